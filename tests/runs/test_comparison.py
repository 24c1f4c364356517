"""Whether a difference is real: statistics against values from tables and scipy, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from safetensors.numpy import load_file, save_file

from smallvit.errors import RunError, UsageError
from smallvit.evaluation.statistics import mcnemar, paired_share
from smallvit.runs.comparison import compare, differing, open_sides, paired_t, seeds_needed

N = 400

RESULTS = {
    "evaluated_part": None,
    "parts": {},
    "weights": {"which": "last", "ema": False, "epoch": 1},
    "timing": {"train_seconds": 1.0},
    "model": {"name": "vit_nano", "parameters": 1},
}


def make_run(
    path: Path, right: np.ndarray, *, model: str = "vit_nano", seed: int = 0, source: str = "photos", rows: range | None = None, finished: bool = True
) -> Path:  # fmt: skip
    """A finished run of two classes that labels the images correctly where `right` says so."""
    path.mkdir(parents=True)
    resolved = {"data": {"source": source}, "model": {"name": model}, "seed": seed}
    (path / "recipe.json").write_text(json.dumps({"asked": {}, "resolved": resolved, "choices": []}))
    labels = np.arange(len(right)) % 2
    answers = np.where(right, labels, 1 - labels)
    probabilities = np.eye(2, dtype=np.float32)[answers]
    ids = np.array(rows or range(len(right)))
    save_file({"probabilities": probabilities, "labels": labels, "rows": ids}, path / "predictions.safetensors")
    if finished:
        (path / "results.json").write_text(json.dumps(RESULTS))
    return path


def make_group(path: Path, accuracies: list[float], model: str, first_seed: int = 0) -> Path:
    names = []
    for seed, accuracy in enumerate(accuracies, first_seed):
        names.append(f"seed-{seed}")
        make_run(path / names[-1], np.arange(N) < round(accuracy * N), model=model, seed=seed)
    (path / "group.json").write_text(json.dumps({"members": names}))
    return path


def test_the_paired_test_is_students() -> None:
    differences = [0.02, 0.01, 0.035, -0.005, 0.02]
    mean, low, high, p = paired_t(differences)
    expected = scipy.stats.ttest_1samp(differences, 0.0)
    assert (mean, p) == pytest.approx((np.mean(differences), expected.pvalue))
    assert (low, high) == pytest.approx(tuple(expected.confidence_interval()))
    assert paired_t([0.01, 0.01])[3] == 0.0 and paired_t([0.0, 0.0])[3] == 1.0


def test_mcnemar_is_a_binomial_test() -> None:
    for b, c in ((32, 18), (3, 0), (10, 10), (0, 0), (1, 40)):
        expected = scipy.stats.binomtest(b, b + c).pvalue if b + c else 1.0
        assert mcnemar(b, c) == pytest.approx(expected)
        difference, low, high = paired_share(b, c, 1000)
        assert difference == pytest.approx((b - c) / 1000) and low <= difference <= high
        assert (low > 0 or high < 0) == (mcnemar(b, c) < 0.05), "test and interval say the same"


@pytest.mark.parametrize(("first", "second"), [(0.05, 0.05), (0.1, 0.02), (0.5, 0.02), (0.74, 0.002)])
def test_the_paired_interval_holds_the_difference_as_often_as_it_promises(first: float, second: float) -> None:
    """Large differences, too: a tuned recipe may be 70 points above a broken one."""
    n, draw = 400, np.random.default_rng(0)
    counts = draw.multinomial(n, [first, second, 1 - first - second], size=1000)
    intervals = [paired_share(int(b), int(c), n) for b, c, _ in counts]
    held = np.mean([low <= first - second <= high for _, low, high in intervals])
    assert 0.94 < held < 0.99, held
    for (b, c, _), (_, low, high) in zip(counts, intervals, strict=True):
        assert (low > 0 or high < 0) == (mcnemar(int(b), int(c)) < 0.05)
        assert paired_share(int(c), int(b), n)[1:] == (-high, -low)


def test_seeds_needed_give_the_power_they_promise() -> None:
    draw = np.random.default_rng(0)
    differences = draw.normal(0, 1, 8)
    differences = 0.8 + (differences - differences.mean()) / differences.std(ddof=1)
    needed = seeds_needed(differences)
    assert needed is not None and 12 <= needed <= 18
    trials = draw.normal(0.8, 1, (2000, needed))
    found = np.mean(scipy.stats.ttest_1samp(trials, 0, axis=1).pvalue < 0.05)
    assert 0.72 < found < 0.88
    assert seeds_needed([0.1, -0.1]) is None


def test_other_measures_stand_beside_accuracy(tmp_path: Path) -> None:
    right = np.arange(N) % 10 > 0
    first, second = make_run(tmp_path / "a", np.arange(N) % 20 > 0), make_run(tmp_path / "b", right)
    (found,) = compare(open_sides([first, second]))
    assert set(found.measures) == {"balanced_accuracy", "macro_f1", "auroc"}
    balanced = found.measures["balanced_accuracy"]
    assert balanced["first"] - balanced["second"] == pytest.approx(balanced["difference"]) == pytest.approx(0.05)
    low, high = balanced["interval"]
    assert 0 < low < 0.05 < high < 0.1
    assert "balanced accuracy differs by +5.0 (" in found.beside and "AUROC differs by" in found.beside
    json.dumps(found._asdict())


def test_groups_of_seeds(tmp_path: Path) -> None:
    better = make_group(tmp_path / "b", [0.92, 0.925, 0.93, 0.92], "dhvt_nano")
    plain = make_group(tmp_path / "a", [0.85, 0.86, 0.85, 0.8575], "vit_nano")
    (found,) = compare(open_sides([better, plain]))
    assert found.paired_by == "seeds" and found.n == 4 and found.real
    assert found.difference == pytest.approx(0.069375)
    assert found.measures["macro_f1"]["interval"] == pytest.approx(found.interval, abs=0.02)
    assert "Over 4 seeds dhvt_nano is 6.9 points better than vit_nano" in found.sentence
    assert found.sentence.endswith("the difference is real.")
    near = make_group(tmp_path / "c", [0.86, 0.84, 0.86, 0.8725], "t2t_nano")
    unsure, _ = compare(open_sides([near, plain, better]))
    assert not unsure.real
    assert "may be chance" in unsure.sentence and "more seeds would tell" in unsure.sentence


def test_only_common_seeds_are_paired(tmp_path: Path) -> None:
    one = make_group(tmp_path / "a", [0.8, 0.9, 0.7], "vit_nano")
    other = make_group(tmp_path / "b", [0.85, 0.72, 0.5], "dhvt_nano", first_seed=1)
    (found,) = compare(open_sides([one, other]))
    assert found.n == 2 and found.accuracy == pytest.approx((0.8, 0.785))
    assert "Over 2 seeds that both have vit_nano is" in found.sentence
    assert "seed 0 of vit_nano is left out; seed 3 of dhvt_nano is left out)" in found.sentence
    alone = make_group(tmp_path / "c", [0.8, 0.7], "cvt_nano", first_seed=2)
    with pytest.raises(UsageError, match="vit_nano has seeds 0, 1, 2 and cvt_nano has seeds 2, 3: pairing takes two"):
        compare(open_sides([one, alone]))


def test_arms_of_one_group_are_compared_seed_by_seed(tmp_path: Path) -> None:
    study, axes = tmp_path / "study", {}
    shares = {"plain": (0.8, 0.81, 0.79), "better": (0.9, 0.905, 0.89)}
    for arm, accuracies in shares.items():
        for seed, accuracy in enumerate(accuracies):
            make_run(study / f"{arm}-{seed}", np.arange(N) < round(accuracy * N), seed=seed)
            axes[f"{arm}-{seed}"] = {"arm": arm, "seed": seed}
    make_run(study / "better-0-first", np.arange(N) < 0, finished=False)
    axes["better-0-first"] = {"arm": "better", "seed": 0, "stage": "first"}
    (study / "group.json").write_text(json.dumps({"members": list(axes), "axes": axes}))
    (found,) = compare(open_sides([study]))
    assert (found.first, found.second, found.paired_by, found.n) == ("plain", "better", "seeds", 3)
    assert found.difference == pytest.approx(np.subtract(*map(np.mean, shares.values())), abs=1e-3) and found.real


def test_folds_are_paired_and_never_with_seeds(tmp_path: Path) -> None:
    groups = []
    for model, accuracies in {"vit_nano": (0.8, 0.7, 0.9), "dhvt_nano": (0.82, 0.75, 0.91)}.items():
        axes = {f"fold-{fold}": {"fold": fold} for fold in range(3)}
        for fold, accuracy in enumerate(accuracies):  # every fold is judged on images of its own
            rows = range(fold * N, (fold + 1) * N)
            make_run(tmp_path / model / f"fold-{fold}", np.arange(N) < round(accuracy * N), model=model, rows=rows)
        (tmp_path / model / "group.json").write_text(json.dumps({"members": list(axes), "axes": axes}))
        groups.append(tmp_path / model)
    (found,) = compare(open_sides(groups))
    assert (found.paired_by, found.n) == ("folds", 3) and "Over 3 folds vit_nano is" in found.sentence
    differences = [-0.02, -0.05, -0.01]  # three folds, each judged by half as many images as it trains on
    t = np.mean(differences) / (np.std(differences, ddof=1) * np.sqrt(1 / 3 + 1 / 2))
    assert (
        found.p == pytest.approx(2 * scipy.stats.t.sf(abs(t), 2), abs=2e-3)
        and "corrected paired t test" in found.sentence
    )
    assert (
        found.interval[0] < found.difference < found.interval[1]
        and "--seeds 3 beside --folds may tell" in found.sentence
    )
    seeds = make_group(tmp_path / "seeds", [0.8, 0.9], "cvt_nano")
    with pytest.raises(
        UsageError, match="vit_nano has folds 0, 1, 2 and cvt_nano has seeds 0, 1: pairing takes two runs"
    ):
        compare(open_sides([groups[0], seeds]))


def test_what_else_differs_is_told(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, np.arange(N) < 300, seed=seed) for seed, name in enumerate("abc")]
    for run, asked in zip(runs, ({"epochs": 5}, {"epochs": 9}, {"epochs": 9, "optimizer": {"lr": 0.1}}), strict=True):
        stored = json.loads((run / "recipe.json").read_text())
        settled = {"optimizer": {"lr": 0.01}, **stored["resolved"], **asked}
        (run / "recipe.json").write_text(json.dumps(stored | {"asked": asked | {"seed": 1}, "resolved": settled}))
    first, second = compare(open_sides(runs))
    assert first.caution == "", "one thing differs: that is what is compared"
    assert second.caution.startswith("They differ in epochs (5 and 9), optimizer.lr (0.01 and 0.1): which of these")


@pytest.mark.parametrize(
    "open_epochs", [{}, {"epochs": "auto"}]
)  # of the default, and of a recipe with epochs of its own
def test_in_the_same_time_one_may_have_far_fewer_epochs(open_epochs: dict[str, str], tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, np.arange(N) < 300, seed=seed) for seed, name in enumerate("abc")]
    for run, epochs in zip(runs, (30, 3, 25), strict=True):
        stored = json.loads((run / "recipe.json").read_text())
        settled = stored["resolved"] | {"budget": 60.0, "epochs": epochs}
        (run / "recipe.json").write_text(
            json.dumps(stored | {"asked": {"budget": 60.0} | open_epochs, "resolved": settled})
        )
    fewer, like = compare(open_sides(runs))
    assert "for 30 epochs" in fewer.caution and "for 3 epochs" in fewer.caution and not like.caution
    (runs[1] / "metrics.jsonl").write_text(
        "".join(json.dumps({"kind": "epoch", "step": 9, "epoch": epoch, "seconds": 1.0}) + "\n" for epoch in range(26))
    )
    fewer, _ = compare(open_sides(runs))
    assert fewer.caution == "", "its budget was counted anew"


def test_digests_are_told_by_their_beginning(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / name, np.arange(N) < 300, seed=seed) for seed, name in enumerate("ab")]
    for run, digit in zip(runs, "5e", strict=True):
        stored = json.loads((run / "recipe.json").read_text())
        asked = {"epochs": int(digit, 16), "aux": {"teacher": {"digest": 64 * digit}}}
        (run / "recipe.json").write_text(json.dumps(stored | {"asked": asked, "resolved": stored["resolved"] | asked}))
    sides = open_sides(runs)
    told = {found.key: (found.first, found.second) for found in differing(*sides)}
    assert told["aux.teacher.digest"] == (12 * "5", 12 * "e")


def test_seeds_of_a_fold_count_once(tmp_path: Path) -> None:
    """As many runs as folds would have told: three that differ in the seed alone are judged by the same images."""
    groups = []
    for model, accuracies in {"vit_nano": (0.8, 0.7, 0.9), "dhvt_nano": (0.83, 0.74, 0.91)}.items():
        axes = {f"seed-{seed}-fold-{fold}": {"seed": seed, "fold": fold} for seed in range(3) for fold in range(3)}
        for name, place in axes.items():
            right = np.arange(N) < round(accuracies[place["fold"]] * N) + (model == "vit_nano") * place["seed"]
            rows = range(place["fold"] * N, (place["fold"] + 1) * N)
            make_run(tmp_path / model / name, right, model=model, seed=place["seed"], rows=rows)
        (tmp_path / model / "group.json").write_text(json.dumps({"members": list(axes), "axes": axes}))
        groups.append(tmp_path / model)
    (found,) = compare(open_sides(groups))
    differences = np.array([-0.03, -0.04, -0.01]) + 1 / N  # of each fold, over its seeds
    t = np.mean(differences) / (np.std(differences, ddof=1) * np.sqrt(1 / 3 + 1 / 2))
    assert found.difference == pytest.approx(differences.mean()) and (found.paired_by, found.n) == ("folds", 3)
    assert "Over 3 folds, each the mean of 3 runs, vit_nano is" in found.sentence
    assert "more --seeds beside --folds may tell" in found.sentence
    assert found.p == pytest.approx(2 * scipy.stats.t.sf(abs(t), 2), abs=2e-3)


def test_a_folder_once_and_in_a_list(tmp_path: Path) -> None:
    run = make_run(tmp_path / "a", np.arange(N) < 300)
    with pytest.raises(UsageError, match=r"a was given twice"):
        open_sides([run, tmp_path / "b" / ".." / "a"])
    with pytest.raises(UsageError, match=r"takes a list of folders"):
        open_sides(str(run))


def test_single_runs_by_image(tmp_path: Path) -> None:
    right = np.arange(N) < 300
    other = right.copy()
    other[:40], other[300:310] = False, True
    one, two = make_run(tmp_path / "a", right), make_run(tmp_path / "b", other)
    (found,) = compare(open_sides([one, two]))
    assert (found.paired_by, found.n, found.first, found.second) == ("images", N, "a", "b")
    assert found.p == pytest.approx(scipy.stats.binomtest(40, 50).pvalue)
    assert "a is 7.5 points better than b" in found.sentence and "right 40 times, b alone 10 times" in found.sentence
    assert "only more seeds tell" in found.sentence
    (same,) = compare(open_sides([one, make_run(tmp_path / "c", right)]))
    assert same.p == 1.0 and "exactly as good" in same.sentence and "may be chance" in same.sentence


def test_refusals(tmp_path: Path) -> None:
    right = np.arange(N) < 300
    one = make_run(tmp_path / "a", right)
    with pytest.raises(UsageError, match="at least two"):
        compare(open_sides([one]))
    with pytest.raises(UsageError, match="judged on other images: they share 0"):
        compare(open_sides([one, make_run(tmp_path / "b", right, rows=range(N, 2 * N))]))
    with pytest.raises(UsageError, match="judged on other images: photos and pictures"):
        compare(open_sides([one, make_run(tmp_path / "c", right, source="pictures")]))
    with pytest.raises(RunError, match="is not finished"):
        open_sides([one, make_run(tmp_path / "d", right, finished=False)])
    broken = make_run(tmp_path / "e", right)
    (broken / "predictions.safetensors").unlink()
    with pytest.raises(RunError, match="no predictions to compare"):
        compare(open_sides([one, broken]))


def make_set(folder: Path, source: str, fingerprint: str, pictures: int, noise: int = 0, **split: object) -> Path:
    """A run on the images of a source, as its folder tells of them: digest, classes, rows, small pictures."""
    draw = np.random.default_rng(pictures)
    run = make_run(folder, np.arange(N) < 300, source=source)
    stored = json.loads((run / "recipe.json").read_text())
    data = {"source": source, "fingerprint": fingerprint, "cache_size": 8, "fit": "crop", "in_chans": 1, "white": 65535}
    stored["resolved"]["data"] = data
    (run / "recipe.json").write_text(json.dumps(stored))
    train = {"n": 2, "how": "", "counts": [1, 1], "rows": [N, N + 1]}
    told = {"class_names": ["cat", "dog"], "counts": [300, 300], "parts": {"train": train}} | split
    (run / "split.json").write_text(json.dumps(told))
    examples = draw.integers(40, 200, (6, 1, 8, 8)) + draw.integers(-noise, noise + 1, (6, 1, 8, 8))
    save_file({"examples": examples.astype(np.uint8)}, run / "images.safetensors")
    return run


def test_sets_that_share_a_name_are_told_apart(tmp_path: Path) -> None:
    """siteA/images and siteB/images: as many images of each class, and others."""
    one = make_set(tmp_path / "a", "siteA/images", 32 * "a", pictures=1)
    other = make_set(tmp_path / "b", "siteB/images", 32 * "b", pictures=2)
    with pytest.raises(
        UsageError, match=r"siteA/images and siteB/images hold other pixels \(fingerprints a{8} and b{8}\)"
    ):
        compare(open_sides([one, other]))
    unlike = {"class_names": ["cat", "owl"], "counts": [300, 301]}
    for number, (key, words) in enumerate((("class_names", "other classes"), ("counts", "other numbers of images"))):
        more = {key: unlike[key]}
        run = make_set(tmp_path / f"c{number}", "siteB/images", "", pictures=2, **more)
        with pytest.raises(UsageError, match=f"siteA/images and siteB/images have {words}"):
            compare(open_sides([one, run]))


def test_copies_of_the_same_images_are_the_same(tmp_path: Path) -> None:
    one = make_set(tmp_path / "a", "siteA/images", 32 * "a", pictures=1)
    moved = make_set(tmp_path / "b", "elsewhere/renamed", 32 * "a", pictures=1)
    again = make_set(tmp_path / "c", "lossy/images", 32 * "c", pictures=1, noise=8)
    old = make_set(tmp_path / "d", "before/images", "", pictures=2)
    assert [found.n for found in compare(open_sides([one, moved, again, old]))] == [N, N, N]


def test_a_classifier_is_not_compared_with_the_neighbours_of_features(tmp_path: Path) -> None:
    right = np.arange(N) < 200
    trained, pretrained = make_run(tmp_path / "a", right), make_run(tmp_path / "ssl", ~right)
    (pretrained / "results.json").write_text(json.dumps(RESULTS | {"judged_by": "k-NN"}))
    with pytest.raises(UsageError, match=r"a was judged by its classifier and .*ssl by its k-NN"):
        compare(open_sides([trained, pretrained]))


def test_few_differences_that_are_just_the_same_prove_nothing(tmp_path: Path) -> None:
    """On twenty images two seeds are often equally far apart by chance: an accuracy is known to a twentieth only."""
    for name, counts in {"a": (18, 17), "b": (17, 16)}.items():
        for seed, count in enumerate(counts):
            make_run(tmp_path / name / f"seed-{seed}", np.arange(20) < count, model=f"vit_{name}", seed=seed)
        (tmp_path / name / "group.json").write_text(json.dumps({"members": ["seed-0", "seed-1"]}))
    (found,) = compare(open_sides([tmp_path / "a", tmp_path / "b"]))
    assert found.difference == pytest.approx(0.05) and found.p > 0.1 and "it may be chance" in found.sentence
    assert found.interval[0] < 0 < found.interval[1]


def test_a_fold_that_judges_one_class_leaves_auroc_out(tmp_path: Path) -> None:
    sides = []
    for model in ("vit_nano", "dhvt_nano"):
        axes = {f"fold-{fold}": {"fold": fold} for fold in range(2)}
        for fold in range(2):
            run = make_run(tmp_path / model / f"fold-{fold}", np.arange(N) < 300 + 9 * fold, model=model)
            if fold:  # all of its images are of one class
                stored = load_file(run / "predictions.safetensors")
                save_file({**stored, "labels": np.zeros_like(stored["labels"])}, run / "predictions.safetensors")
        (tmp_path / model / "group.json").write_text(json.dumps({"members": list(axes), "axes": axes}))
        sides.append(tmp_path / model)
    (found,) = compare(open_sides(sides))
    assert "balanced_accuracy" in found.measures and "auroc" not in found.measures

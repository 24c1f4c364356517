"""`smallvit tune`: trials, the recipe they give, the model trained with it, the page; and going on after a kill."""

from __future__ import annotations

import json
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest

import smallvit
from helpers import Outcome, ends_well, fails, make_folder, run_here, write_npz
from smallvit import Run
from smallvit.runs.executor import STOPPED, Exit
from smallvit.tuning.folder import Asked, open_tuning, write_asked
from smallvit.tuning.space import read_space

WORDS = (
    "tune",
    "digits",
    "--trials",
    "3",
    "--epochs",
    "2",
    "--per-class",
    "6",
    "--jobs",
    "1",
    "--threads",
    "1",
    "--folds",
    "1",
)
SPACE = """
["optimizer.rate_factor"]
low = 0.3
high = 3.0
log = true
default = 1.0
[precision]
choices = ["fp32"]
"""
ALL_OF_SMALL = [
    word
    for setting in ("optimizer.rate_factor=1", "optimizer.weight_decay=0.1", "batch_size=32", "objective.label_smoothing=0", "augment.hue=0.1")
    for word in ("--set", setting)
]  # fmt: skip


class Here:
    """A place to compute: this process, or, by the name of a run, nothing but a status."""

    statuses: dict[str, int] = {}  # noqa: RUF012

    def __init__(self, path: Path) -> None:
        self.status = self.statuses.get(path.name, 0)
        if self.status:
            (path / "log.txt").write_text("smallvit: the loss is no number\n")
        else:
            smallvit.resume(path, show_progress=False)

    def poll(self) -> Exit:
        return Exit(self.status, 1.0)

    def stop(self) -> None: ...


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    monkeypatch.setattr("smallvit.tuning.tune.place_called", lambda on, at_once: Here)
    monkeypatch.setattr("smallvit.runs.executor.POLL_SECONDS", 0.0)
    monkeypatch.setattr(Here, "statuses", {})
    return Here.statuses


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    folder = tmp_path_factory.mktemp("tuned")
    space = folder / "space.toml"
    space.write_text(SPACE)
    return folder / "t", run_here(*WORDS, "--precision", "fp32", "--space", space, "--out", folder / "t")


def test_the_default_is_first_and_the_best_is_trained_on_all_but_the_test_part(tuned: tuple[Path, Outcome]) -> None:
    path, outcome = tuned
    ends_well(outcome)
    trials = open_tuning(path).trials()
    assert [trial.state for trial in trials] == ["done"] * 3
    assert trials[0].values == {}
    assert "given, and not searched: precision" in outcome.err
    assert outcome.err.count("3 trials and the final model take about ") == 1
    assert all("precision" not in trial.values for trial in trials)
    parts = [Run(path / name).read("split.json")["parts"] for name in ("trial-000", "trial-001", "final")]
    assert parts[0] == parts[1]
    assert parts[0]["test"]["n"] == 0 and parts[0]["val"]["n"] > 0
    assert "sealed" in parts[0]["test"]["how"]
    assert parts[2]["val"]["n"] == 0 and parts[2]["test"]["n"] > 0
    seen = {*parts[0]["train"]["rows"], *parts[0]["val"]["rows"]}
    assert not seen & {*parts[2]["test"]["rows"]}  # the test part is the same images, whoever holds it out
    assert Run(path / "final").results["evaluated_part"] == "test"


def test_the_recipe_is_one_that_train_takes(tuned: tuple[Path, Outcome], tmp_path: Path) -> None:
    path, outcome = tuned
    assert outcome.out.splitlines()[-1] == f"recipe: smallvit train digits --per-class 6 --recipe {path / 'best.toml'}"
    tree = tomllib.loads((path / "best.toml").read_text())
    assert "smallvit.tune" not in tree["about"]["source"] or "trial" in tree["about"]["description"]
    assert tree["about"]["description"].endswith("% of the validation images.")
    assert "source" not in tree["data"] and "per_class" not in tree["data"]
    best = max(open_tuning(path).trials(), key=lambda trial: trial.accuracy or 0)
    recipe = smallvit.make_recipe(path / "best.toml")
    assert recipe.optimizer.rate_factor == best.values.get("optimizer.rate_factor", 1.0)
    assert recipe.model.name == "auto"


def test_the_page_shows_all_trials(tuned: tuple[Path, Outcome]) -> None:
    page = (tuned[0] / "report.html").read_text()
    assert "Tuning" in page and "optimizer.rate_factor" in page
    assert "Within chance of the default" in page or "The default stays" in page or "Tuning has paid" in page
    before = page
    ends_well(run_here("report", tuned[0]))
    assert (tuned[0] / "report.html").read_text() == before


@pytest.mark.slow
def test_a_killed_search_goes_on_where_it_was(tuned: tuple[Path, Outcome], tmp_path: Path) -> None:
    path = shutil.copytree(tuned[0], tmp_path / "t")
    for name in ("trial-002", "final"):
        shutil.rmtree(path / name)
    for name in ("best.toml", "report.html"):
        (path / name).unlink()
    # As a kill leaves it in the middle of a trial: planned, begun, not finished.
    (path / "trial-001" / "results.json").unlink()
    ends_well(run_here("resume", path))
    for name in ("trial-001", "trial-002", "final"):
        for file in ("model.safetensors", "predictions.safetensors"):
            assert (path / name / file).read_bytes() == (tuned[0] / name / file).read_bytes(), (name, file)
    assert (path / "best.toml").read_bytes() == (tuned[0] / "best.toml").read_bytes()


def test_a_search_goes_on_with_other_jobs(tuned: tuple[Path, Outcome], tmp_path: Path) -> None:
    path = shutil.copytree(tuned[0], tmp_path / "t")
    for name in ("trial-001", "trial-002", "final"):
        shutil.rmtree(path / name)
    for name in ("best.toml", "report.html"):
        (path / name).unlink()
    done = ends_well(run_here("resume", path, "--jobs", "2"))
    assert "2 trials at a time, 1 thread each" in done.err
    assert json.loads((path / "tune.json").read_text())["jobs"] == 2
    assert [trial.state for trial in open_tuning(path).trials()] == ["done"] * 3 and Run(path / "final").finished
    assert Run(path / "trial-001").read("env.json")["threads"] == 1


def test_the_default_stands_where_it_was_asked_for(tmp_path: Path) -> None:
    asked = Asked(
        command="test", recipe={"model": {"name": "vit_pico"}, "optimizer": {"rate_factor": 0.05}}, space="wide",
        parameters={name: parameter.model_dump(exclude_unset=True) for name, parameter in read_space("wide").parameters.items()},
        trials=2, budget=None, jobs=1, threads=1,
    )  # fmt: skip
    basis = {
        "model.name": "vit_pico",
        "data.img_size": 8,
        "batch_size": 32,
        "optimizer.weight_decay": 0.05,
        "objective.label_smoothing": 0.0,
        "ema": 0.0,
    }
    stands = write_asked(tmp_path, asked).space.defaults(basis)
    assert (stands["model.name"], stands["optimizer.rate_factor"], stands["batch_size"]) == ("vit_pico", 0.05, 32)
    assert stands["augmentation"] == "usual"


@pytest.mark.slow
def test_what_cannot_be_trained_is_a_result(tuned: tuple[Path, Outcome], tmp_path: Path) -> None:
    """The values of a trial may not go together; the search tells it and goes on."""
    space = tmp_path / "space.toml"
    space.write_text('["model.name"]\nchoices = ["auto", "no_such_model"]\ndefault = "auto"\n')
    path = tmp_path / "t"
    words = [word if word != "3" else "4" for word in WORDS]
    ends_well(run_here(*words, "--space", space, "--out", path))
    trials = open_tuning(path).trials()
    failed = [trial for trial in trials if trial.state == "failed"]
    assert failed and all("no_such_model" in trial.problem for trial in failed)
    assert "no_such_model" in (path / "report.html").read_text()


def test_a_rate_that_is_given_is_not_multiplied(here: dict[str, int], tmp_path: Path) -> None:
    space = tmp_path / "space.toml"
    space.write_text(
        SPACE.replace('[precision]\nchoices = ["fp32"]', '["objective.label_smoothing"]\nchoices = [0.0, 0.1]')
    )
    words = [word if word != "3" else "2" for word in WORDS]
    outcome = ends_well(run_here(*words, "--space", space, "--set", "optimizer.lr=0.002", "--out", tmp_path / "t"))
    assert (
        "not searched: optimizer.rate_factor (it multiplies the rates of auto, and optimizer.lr = 0.002)" in outcome.err
    )
    trials = open_tuning(tmp_path / "t").trials()
    assert [trial.state for trial in trials] == ["done"] * 2
    assert trials[1].values and "optimizer.rate_factor" not in trials[1].values
    assert Run(tmp_path / "t" / "final").recipe.optimizer.lr == 0.002


def test_a_recipe_with_a_rate_and_nothing_else_to_search(tmp_path: Path) -> None:
    space = tmp_path / "space.toml"
    space.write_text(SPACE.partition("[precision]")[0])
    words = (*WORDS, "--recipe", "lu2022-cifar", "--space", space, "--out", tmp_path / "t")
    fails(
        run_here(*(word for word in words if word not in ("--epochs", "2"))),
        2,
        "leave one of optimizer.lr to the search",
    )


def test_a_search_whose_trials_all_cannot_be_ends(here: dict[str, int], tmp_path: Path) -> None:
    space = tmp_path / "space.toml"
    space.write_text(SPACE.partition("[precision]")[0] + '["optimizer.lr"]\nlow = 0.001\nhigh = 0.1\n')
    words = [word if word != "3" else "50" for word in WORDS]
    outcome = run_here(*words, "--space", space, "--out", tmp_path / "t")
    fails(outcome, 2, "8 trials in a row cannot be trained, the last because: optimizer.rate_factor", str(space))
    assert [trial.state for trial in open_tuning(tmp_path / "t").trials()] == ["done", *["failed"] * 8]


def test_without_the_default_there_is_nothing_to_compare_with(here: dict[str, int], tmp_path: Path) -> None:
    """It diverges, somebody stops another trial, which has not failed, and the third is taken."""
    here |= {"trial-000": 1, "trial-001": STOPPED}
    outcome = ends_well(run_here(*WORDS, "--set", "batch_size=16", "--out", tmp_path / "t"))
    tuning = open_tuning(tmp_path / "t")
    assert [trial.state for trial in tuning.trials()] == ["failed", "running", "done"]
    assert tuning.read(1).problem == "" and f"`smallvit resume {tmp_path / 't' / 'trial-001'}`" in outcome.err
    told = "The default recipe itself failed: the loss is no number; there is nothing to compare the best of 3 trials with."
    assert f"No comparison. {told}" in outcome.out and "The default stays" not in outcome.out
    assert told in (tmp_path / "t" / "report.html").read_text()


def test_what_folds_have_judged_trains_the_final_model(here: dict[str, int], tmp_path: Path) -> None:
    """Those of the validation part that the source has, too."""
    rng, labels = np.random.default_rng(0), np.arange(12) % 2
    parts = {f"x_{part}": rng.integers(0, 256, (12, 8, 8, 3), dtype=np.uint8) for part in ("val", "test")}
    data = write_npz(tmp_path / "set.npz", n=12, classes=2, **parts, y_val=labels, y_test=labels)
    space = tmp_path / "space.toml"
    space.write_text('["objective.label_smoothing"]\nchoices = [0.0, 0.1]\n')
    words = ("--trials", "2", "--epochs", "1", "--jobs", "1", "--threads", "1", "--folds", "2", "--model", "vit_pico")
    ends_well(run_here("tune", data, *words, "--space", space, "--out", tmp_path / "t"))
    parts = [Run(tmp_path / "t" / name).read("split.json")["parts"] for name in ("trial-000-fold-0", "final")]
    judged = {*parts[0]["train"]["rows"], *parts[0]["left_out"]["rows"]}
    assert {*parts[1]["train"]["rows"]} == judged and len(judged) == 24
    about = tomllib.loads((tmp_path / "t" / "best.toml").read_text())["about"]
    assert about["description"].endswith("of the images that its 2 folds left out.")


def test_the_final_model_selects_by_nothing_where_the_images_that_selected_train_it(
    here: dict[str, int], tmp_path: Path
) -> None:
    space = tmp_path / "space.toml"
    space.write_text('["objective.label_smoothing"]\nchoices = [0.0, 0.1]\n')
    words = (*WORDS[:3], "2", *WORDS[4:], "--model", "vit_pico", "--set", "select=best", "--space", space)
    outcome = run_here(*words, "--out", tmp_path / "t")
    ends_well(outcome)
    assert "select = last for the final model" in outcome.err
    runs = [Run(tmp_path / "t" / name) for name in ("trial-000", "trial-001", "final")]
    assert [run.recipe.select for run in runs] == ["best", "best", "last"]


def test_groups_stay_together_in_trials_and_in_the_final_model(here: dict[str, int], tmp_path: Path) -> None:
    photos = make_folder(tmp_path / "photos", {"cat": 24, "dog": 24})
    space = tmp_path / "space.toml"
    space.write_text('["objective.label_smoothing"]\nchoices = [0.0, 0.1]\n')
    words = ("--trials", "2", "--epochs", "1", "--jobs", "1", "--threads", "1", "--folds", "2", "--model", "vit_pico")
    groups = r"\d(?=\.png)"  # by the last digit of their names
    outcome = run_here("tune", photos, *words, "--groups", groups, "--space", space, "--out", tmp_path / "t")
    ends_well(outcome)
    assert tomllib.loads((tmp_path / "t" / "best.toml").read_text())["data"]["groups"] == groups
    group_of_row = [path.stem[-1] for path in sorted(photos.rglob("*.png"))]
    for name, kinds in (("trial-000-fold-0", ("train", "left_out")), ("final", ("train", "test"))):
        parts = Run(tmp_path / "t" / name).read("split.json")["parts"]
        seen = [{group_of_row[row] for row in parts[kind]["rows"]} for kind in kinds]
        assert all(seen) and not seen[0] & seen[1]


@pytest.mark.slow
def test_folds_judge_the_trials_of_few_images(tmp_path: Path) -> None:
    space = tmp_path / "space.toml"
    space.write_text('["objective.label_smoothing"]\nchoices = [0.0, 0.1]\n')
    path = tmp_path / "t"
    words = ("--trials", "2", "--epochs", "1", "--per-class", "6", "--jobs", "1", "--threads", "1", "--folds", "2")
    outcome = run_here("tune", "digits", *words, "--space", space, "--out", path)
    ends_well(outcome)
    first, second = open_tuning(path).trials()
    assert first.state == second.state == "done" and first.accuracy == pytest.approx(first.course[-1][1])
    runs = [Run(path / f"trial-000-fold-{fold}") for fold in (0, 1)]
    left_out = [set(run.read("split.json")["parts"]["left_out"]["rows"]) for run in runs]
    test = set(Run(path / "final").read("split.json")["parts"]["test"]["rows"])
    assert not left_out[0] & left_out[1] and test and not test & (left_out[0] | left_out[1])
    assert first.accuracy == pytest.approx(sum(run.results["parts"]["left_out"]["accuracy"] for run in runs) / 2)
    assert Run(path / "final").recipe.data.folds is None


def test_a_damaged_file_of_a_search_is_named(tuned: tuple[Path, Outcome], tmp_path: Path) -> None:
    path = shutil.copytree(tuned[0], tmp_path / "t")
    asked = json.loads((path / "tune.json").read_text())
    (path / "tune.json").write_text(json.dumps(asked | {"jobs": -1}))
    fails(run_here("resume", path), 1, "tune.json is damaged: jobs")


@pytest.mark.parametrize(("words", "message"), [
    (("--trials", "1"), "give at least 2"),
    (("--space", "huge"), "small, wide"),
    (("--budget", "20s"), "or give fewer --trials"),
    (("--budget", "100s", "--folds", 5, "--jobs", 2), "s for each of the 5 folds of a trial"),
    (("--budget", "100s", "--per-class", 20, "--jobs", 2), "s for each of the 5 folds of a trial"),  # few images: folds
    (("--budget", "5m", "--epochs", "3"), "exclude each other"),
    (("--budget", "20s", "--recipe", "lu2022-cifar", "--folds", 5), "or give fewer --trials"),  # a recipe's own epochs are none that were given
    (("--recipe", "pretrain-simclr", "--trials", "3"), "has no classifier"),
    (("--budget", "soon"), "no duration"),
    (("--set", "pretrain.method=simclr", "--model", "vit_pico", "--trials", "3"), "tune trains its trials in one stage: leave out pretrain"),
    (("--set", "aux.teacher.run=auto", "--model", "vit_pico", "--trials", "3"), "tune trains its trials in one stage: leave out teacher"),
    (("--set", "data.folds=3", "--trials", "3"), "give --folds 3 to tune instead"),
    (("--trials", "3", *ALL_OF_SMALL), "the space small has only what was given"),
])  # fmt: skip
def test_searches_that_cannot_be(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    fails(run_here("tune", "digits", *words, "--out", tmp_path / "t"), 2, message)
    assert not (tmp_path / "t").exists()


def test_what_cannot_be_searched_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    fails(
        run_here("tune", "digits", "--trials", 2, "--val", "none"), 2, "data.val = none leaves nothing to judge a trial"
    )
    (tmp_path / "space.toml").write_text('["model.kwargs.embed_dim"]\nchoices = [32, 64]\n')
    words = (*WORDS, "--model", "vit_pico", "--space", tmp_path / "space.toml", "--out", tmp_path / "a")
    fails(run_here(*words), 2, "what the default recipe has for model.kwargs.embed_dim is not known: give it a default")
    assert not list((tmp_path / "a").glob("trial-*")), "nothing was planned"


def test_a_decay_of_zero_has_no_place_among_factors(tmp_path: Path) -> None:
    """Some published recipes have none; the rest of the space is searched."""
    made = ends_well(
        run_here(
            *WORDS,
            "--set",
            "optimizer.name=adamw",
            "--model",
            "vit_pico",
            "--recipe",
            no_decay(tmp_path),
            "--out",
            tmp_path / "a",
        )
    )
    assert "optimizer.weight_decay (0 has no place on the scale of its factors)" in made.err + made.out


def no_decay(tmp_path: Path) -> Path:
    file = tmp_path / "mine.toml"
    file.write_text("[optimizer]\nweight_decay = 0.0\n")
    return file

"""What may be said of claims: differences over seeds, draws and images, Holm's correction, and the rules of statuses."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smallvit.runs.axes import Place
from smallvit.runs.comparison import seeds_needed
from smallvit.studies.claims import gathered
from smallvit.studies.differences import Test as Asked
from smallvit.studies.differences import difference, differences, holm
from smallvit.studies.library import read_study, study_from
from smallvit.studies.lines import Point, lines_of, meeting, meetings
from smallvit.studies.page import write_page
from smallvit.studies.queue import queue
from smallvit.studies.record import ArmFacts, Opened, Record, RunFacts, key_of, write_record
from smallvit.studies.spec import Claim, ScaleName, Study
from smallvit.studies.statuses import decides_nothing, statuses, word_of_study
from smallvit.studies.tables import arm_rows

N = 400  # test images
CHANCE = {"majority": {"label": "majority class", "accuracy": 0.1, "interval": [0.08, 0.12], "why": ""}}


def make_study(claim: Mapping[str, Any], **more: Any) -> Study:
    arms = {name: {"model": "vit_nano"} for name in ("a", "b", "c", "d")}
    scales = {"paper": {"epochs": 100}, "laptop": {"epochs": 10}}
    return study_from(
        {"title": "t", "scales": scales, "arms": arms, "claims": [{"says": "s", **claim}], **more}, "here"
    )


def make_record(accuracy: Mapping[str, Sequence[float]], epochs: int = 10, **more: Any) -> Record:
    """Every accuracy is that of a seed; which images are right is drawn anew for each run."""
    runs = {}
    for arm, values in accuracy.items():
        for seed, value in enumerate(values):
            right = np.random.default_rng([seed, len(runs)]).permutation(N) < round(value * N)
            runs[f"{arm}/{seed}"] = make_run(right, value)
    arms = {arm: ArmFacts(epochs=epochs) for arm in accuracy}
    return Record(title="t", runs=runs, arms=arms, floors=CHANCE, **more)


def make_run(right: np.ndarray, accuracy: float, **more: Any) -> RunFacts:
    packed = np.packbits(right).tobytes().hex()
    return RunFacts(
        accuracy=accuracy, right=packed, train_seconds=1, parameters=1, test_images=N, **{"cpu_seconds": 10.0, **more}
    )


BETTER = {"better": [["a", "b"]]}
CLEAR = {"a": (0.80, 0.81, 0.79, 0.80, 0.82), "b": (0.50, 0.51, 0.49, 0.52, 0.50)}
UNCLEAR = {"a": (0.60, 0.50, 0.56), "b": (0.55, 0.52, 0.53)}


def status(claim: Mapping[str, Any], record: Record, **more: Any) -> tuple[str, str]:
    (found,) = statuses(make_study(claim, **more), record)
    return found.word, found.why


def test_the_published_setting_decides_and_another_one_shows_a_direction() -> None:
    at_paper, at_laptop = make_record(CLEAR, epochs=100, scale="paper"), make_record(CLEAR)
    assert status(BETTER, at_paper, epochs_published=100)[0] == "holds"
    assert status({"better": [["b", "a"]]}, at_paper, epochs_published=100)[0] == "fails"
    assert status(BETTER, at_laptop, epochs_published=100)[0] == "direction seen at laptop scale"
    word, why = status({"better": [["b", "a"]]}, at_laptop, epochs_published=100)
    assert word == "not decided" and "only the published setting" in why


def test_fewer_epochs_than_published_are_no_published_setting() -> None:
    cut = make_record(CLEAR, epochs=50, scale="paper")
    assert status(BETTER, cut, epochs_published=100)[0] == "direction seen at laptop scale"


def test_an_unclear_difference_names_the_seeds_that_would_decide() -> None:
    word, why = status(BETTER, make_record(UNCLEAR, epochs=100, scale="paper"), epochs_published=100)
    assert word == "not decided" and "seeds would decide (there are 3)" in why


def test_a_model_at_chance_decides_nothing() -> None:
    record = make_record({"a": (0.4, 0.41, 0.42), "b": (0.08, 0.09, 0.11)}, epochs=100, scale="paper")
    word, why = status(BETTER, record, epochs_published=100)
    assert word == "not decided" and "b is not above chance" in why and "decides nothing" in why
    for key, run in record.runs.items():
        run.measured = {"near": 0.3 if key.startswith("a") else 0.2 + 0.001 * int(key[-1])}
    of_layers = status({**BETTER, "on": "near"}, record, epochs_published=100, measures={"near": "locality.near"})
    assert of_layers[0] == "not decided" and "b is not above chance" in of_layers[1], "whatever is measured of it"


def test_a_hundredth_of_the_published_epochs_decides_nothing() -> None:
    word, why = status(BETTER, make_record(CLEAR, epochs=11), epochs_published=800)
    assert word == "not decided" and "11 of 800 published epochs (1.4 %)" in why
    record = make_record(CLEAR, epochs=50)
    record.arms["a"].first = ArmFacts(epochs=7)
    assert status(BETTER, record, epochs_published=100, epochs_first_published=800)[0] == "not decided"
    assert status(BETTER, record, epochs_published=100)[0] == "direction seen at laptop scale"


def test_a_claim_whose_arms_have_no_runs_or_one_seed_is_not_decided() -> None:
    assert "a and b have no runs yet" in status(BETTER, make_record({"c": (0.5, 0.6)}))[1]
    word, why = status(BETTER, make_record({"a": (0.9,), "b": (0.2,)}))
    assert word == "not decided" and "two seeds" in why


def test_a_tie_holds_where_the_whole_interval_is_near() -> None:
    rng = np.random.default_rng(0)
    right = [rng.random(N) < 0.8 for _ in range(5)]
    runs = {f"{arm}/{seed}": make_run(one, float(one.mean())) for arm in "ab" for seed, one in enumerate(right)}
    record = Record(title="t", scale="paper", runs=runs, arms={"a": ArmFacts(epochs=100), "b": ArmFacts(epochs=100)})
    assert status({"tie": [["a", "b"]]}, record)[0] == "holds"
    assert status({"tie": [["a", "b"]]}, make_record(CLEAR, scale="paper"))[0] == "fails"
    assert status({"tie": [["a", "b"]]}, make_record(UNCLEAR, scale="paper"))[0] == "not decided"


def test_a_tie_holds_after_the_correction_only() -> None:
    """0.75 points, from -0.2 to 1.7: within 2 by itself (p 0.02), and not as one of four comparisons."""
    first = np.arange(N) < 0.8 * N
    runs = {}
    for seed, more in enumerate((0, 6, 0, 6, 3)):
        runs[f"b/{seed}"] = make_run(first, 0.8)
        runs[f"a/{seed}"] = make_run(np.arange(N) < 0.8 * N + more, 0.8 + more / N)
    others = make_record({"c": (0.70, 0.90, 0.80, 0.85, 0.75), "d": (0.90, 0.72, 0.83, 0.79, 0.74)}, epochs=100)
    record = Record(title="t", scale="paper", runs={**runs, **others.runs}, floors=CHANCE)
    tie = {"tie": [["a", "b"]]}
    assert status(tie, record)[0] == "holds"
    word, why = status(tie, record, compare=[["c", "d"], ["b", "c"], ["b", "d"]])
    assert word == "not decided" and "seeds would decide (there are 5)" in why, "as many as the correction takes"


def test_gains_and_error_ratios_are_claims_too() -> None:
    both = {**CLEAR, "c": (0.70, 0.71, 0.72, 0.71, 0.70), "d": (0.68, 0.69, 0.70, 0.69, 0.67)}
    paper = make_record(both, scale="paper")
    assert status({"more": [[["a", "b"], ["c", "d"]]]}, paper)[0] == "holds"
    assert status({"error_ratio": [["b", "a"]], "by": 2.0}, paper)[0] == "holds"
    assert status({"error_ratio": [["b", "a"]], "by": 4.0}, paper)[0] == "fails"
    assert status({"above": ["a"], "by": 75.0}, paper)[0] == "holds"


def test_what_is_said_of_errors_and_gains_is_over_test_images_too() -> None:
    """Seeds are alike to a quarter of a point, and 400 images cannot tell twice the errors from a little more."""
    levels = {"a": (0.835, 0.8375, 0.835), "b": (0.9225, 0.9225, 0.9225)}
    levels |= {"c": (0.8375, 0.8375, 0.8375), "d": (0.9125, 0.9125, 0.9125)}
    record = make_record(levels, scale="paper")
    for claim in (
        {"error_ratio": [["a", "b"]], "by": 2.0},
        {"more": [[["b", "a"], ["d", "c"]]]},
        {"above": ["b"], "by": 91.0},
    ):
        (found,) = statuses(make_study(claim), record)
        (one,) = found.differences
        assert (
            one.corrected < 0.05
            and one.images is not None
            and one.images[0] < one.test.bound % 91 + 91 * (one.test.bound > 50)
        )
        assert found.word == "not decided", found.why
    (found,) = statuses(make_study({"above": ["b"], "by": 80.0}), record)
    assert found.word == "holds" and found.differences[0].images == pytest.approx((89.5, 94.8), abs=1.0)


def test_images_of_a_group_are_drawn_together() -> None:
    """In ten scenes of forty images all of a scene are right, or none."""

    def of_scenes(right: int) -> np.ndarray:
        return np.repeat(np.arange(10) < right, N // 10)

    runs = {f"{arm}/{seed}": make_run(of_scenes(n), n / 10) for arm, n in (("a", 8), ("b", 7)) for seed in range(3)}
    alone = Record(title="t", scale="paper", runs=runs, arms={}, floors=CHANCE)
    grouped = alone.model_copy(update={"groups": {"": np.repeat(np.arange(10), N // 10).tolist()}})
    narrow, wide = (difference(record, Asked("better", ("a", "b"))) for record in (alone, grouped))
    assert narrow is not None and wide is not None and narrow.images is not None and wide.images is not None
    assert narrow.images[0] > 5 and wide.images[0] <= 0, "one scene of ten is what they differ in"
    one = Record(title="t", runs={"a/0": make_run(of_scenes(2), 0.2)}, arms={}, floors=CHANCE)
    (by_image,) = statuses(make_study({"above": ["a"]}), one)
    assert decides_nothing(make_study({"above": ["a"]}), one, "a") == [] and by_image.word == "not decided"
    one.groups = grouped.groups
    assert "a is not above chance" in decides_nothing(make_study({"above": ["a"]}), one, "a")[0]


def test_what_was_trained_first_is_not_judged_by_what_follows() -> None:
    record = make_record({"a": (0.1, 0.11, 0.09), "b": (0.1, 0.09, 0.1)}, epochs=100, scale="paper")
    for key, run in record.runs.items():
        run.measured = {"rows": (0.9 if key.startswith("a") else 0.2) + 0.001 * int(key[-1])}
    claim = {**BETTER, "on": "rows"}
    assert status(claim, record, epochs_published=100, measures={"rows": "first.live_rows"})[0] == "holds"
    of_both = {"rows": "first.live_rows - metrics.train_loss"}
    assert "not above chance" in status(claim, record, epochs_published=100, measures=of_both)[1]


def test_the_seeds_that_would_decide_know_of_the_correction() -> None:
    levels = {**UNCLEAR, "c": (0.61, 0.50, 0.58), "d": (0.52, 0.55, 0.50)}
    one, three = (
        differences(make_study(BETTER, compare=pairs), make_record(levels, scale="paper"))[Asked("better", ("a", "b"))]
        for pairs in ([], [["c", "d"], ["c", "b"]])
    )
    assert one.needed is not None and three.needed is not None and three.needed > one.needed
    assert seeds_needed([0.0, 0.0, 0.0]) is None, "more seeds of two that are equal tell nothing"


def test_two_that_are_compared_both_ways_round_are_one_comparison() -> None:
    record = make_record({**UNCLEAR, "c": (0.61, 0.50, 0.58)}, scale="paper")
    study = make_study({"better": [["b", "a"], ["a", "c"]]}, compare=[["a", "b"]])
    found = differences(study, record)
    first, mirrored = (found[Asked("better", arms)] for arms in (("a", "b"), ("b", "a")))
    assert len(found) == 3 and first.corrected == mirrored.corrected <= min(1.0, 2 * first.p)


def test_more_time_for_the_better_arm_is_told() -> None:
    record = make_record(CLEAR)
    for seed in range(5):
        record.runs[f"a/{seed}"].cpu_seconds = 12.0
    assert "Holm p < 0.001), where a had 20% more processor time" in status(BETTER, record)[1]


def test_what_is_not_accuracy_is_compared_in_its_own_unit() -> None:
    record = make_record(CLEAR)
    for key, run in record.runs.items():
        run.measured = {"near": 0.3 if key.startswith("a") else 0.2 + 0.001 * int(key[-1])}
    word, why = status({**BETTER, "on": "near"}, record, measures={"near": "locality.near"})
    assert word == "direction seen at laptop scale" and "+0.10" in why and "points" not in why


def test_holm_by_hand_and_never_below_the_plain_p() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([]) == [] and holm([0.2]) == [0.2]
    many = np.random.default_rng(1).random(20).tolist()
    assert all(corrected >= p for p, corrected in zip(many, holm(many), strict=True))


def test_the_correction_counts_all_comparisons_of_the_study() -> None:
    record = make_record({**CLEAR, "c": (0.52, 0.50, 0.51, 0.50, 0.51), "d": (0.50, 0.49, 0.51, 0.52, 0.50)})
    alone = differences(make_study(BETTER), record)[Asked("better", ("a", "b"))]
    among = differences(make_study(BETTER, compare=[["c", "d"], ["b", "c"], ["b", "d"]]), record)
    assert alone.corrected == alone.p
    assert among[Asked("better", ("a", "b"))].corrected == pytest.approx(4 * alone.p)


def test_runs_on_one_draw_of_the_images_count_once() -> None:
    rng = np.random.default_rng(0)
    runs = {}
    for draw in range(3):
        for seed in range(4):
            for arm, level in (("a", 0.6 + 0.1 * draw), ("b", 0.5)):
                right = rng.permutation(N) < level * N
                runs[key_of(Place(arm=arm, seed=seed, draw=draw))] = make_run(right, level)
    found = difference(Record(title="t", runs=runs), Asked("better", ("a", "b")))
    assert found is not None and (found.n, found.word) == (3, "draw")
    assert found.mean == pytest.approx(20.0) and found.p > 0.05


def make_draws(levels: Mapping[str, Sequence[float]], seeds: int = 5, **more: Any) -> Record:
    """Of every arm a level of accuracy for each draw, and seeds that lie close to it; the first draw has no number."""
    runs = {}
    for arm, own in levels.items():
        for draw, level in enumerate(own):
            for seed in range(seeds):
                right = round((level + 0.005 * (seed - seeds // 2)) * N)
                place = Place(arm=arm, seed=seed, draw=draw or None)
                course = {"train_loss": [(0, 2.0), (1, 2 - level)]}
                runs[key_of(place)] = make_run(np.arange(N) < right, right / N, courses=course)
    arms = {arm: ArmFacts(epochs=100) for arm in levels}
    return Record(title="t", runs=runs, arms=arms, floors=CHANCE, **more)


ALONG = study_from(
    {
        "title": "t",
        "epochs": 10,
        "arms": {"a": {}, "b": {}},
        "axes": {"images": {"100": {}, "1000": {}}},
        "x": "images",
    },
    "here",
)
APART = (0.60, 0.70, 0.80)  # Student's t over these three: 70 from 45.2 to 94.8
LEVELS = {"a, 100": APART, "a, 1000": APART, "b, 100": (0.6, 0.7, 0.5), "b, 1000": (0.9, 0.8, 0.7)}


def test_intervals_of_arms_and_lines_are_over_draws() -> None:
    study, record = ALONG, make_draws(LEVELS)
    row = arm_rows(study, record)[0]
    assert row.n == len(row.accuracy) == 15 and row.ours == "70.0 (45.2 to 94.8)"
    lines = lines_of(study, record)
    assert lines["a"][0].interval == pytest.approx((70.0, 45.2, 94.8), abs=0.05)
    (found,) = meetings(lines)
    assert math.isnan(found.low), "by three draws so far apart they may not meet at all"


def test_more_seeds_on_the_same_draws_narrow_no_band_of_a_page(tmp_path: Path) -> None:
    def curves(seeds: int) -> str:
        page = write_page(Opened("t", ALONG, make_draws(LEVELS, seeds)), tmp_path / "page.html")
        return page.read_text(encoding="utf-8").partition('id="curves"')[2].partition("</section>")[0]

    assert curves(seeds=5) == curves(seeds=1) and "Loss in training" in curves(seeds=1)


def test_a_page_says_what_its_intervals_are_over(tmp_path: Path) -> None:
    def page(levels: Mapping[str, Sequence[float]]) -> str:
        return write_page(Opened("t", ALONG, make_draws(levels)), tmp_path / "page.html").read_text(encoding="utf-8")

    one_draw = {arm: own[:1] for arm, own in LEVELS.items()}
    assert "Means over draws" in page(LEVELS) and "over seeds" not in page(LEVELS)
    assert "Means over seeds" in page(one_draw) and "over draws" not in page(one_draw)


def test_an_arm_that_is_above_chance_on_one_draw_only_decides_nothing() -> None:
    record = make_draws({"a": (0.8, 0.81, 0.82), "b": (0.1, 0.15, 0.4)}, scale="paper")
    word, why = status(BETTER, record)
    assert word == "not decided" and "b is not above chance (21.7 %" in why


def test_over_test_images_draws_are_drawn_and_not_their_runs() -> None:
    levels = {"a": (0.55, 0.60, 0.80), "b": (0.5, 0.5, 0.5)}
    many, one_each = (difference(make_draws(levels, seeds), Asked("better", ("a", "b"))) for seeds in (5, 1))
    assert many is not None and one_each is not None and many.images is not None
    assert many.images == pytest.approx(one_each.images, abs=0.5), "more seeds on the same draws do not narrow it"


def test_only_runs_that_judged_the_same_images_are_paired_by_image() -> None:
    record = make_record(CLEAR)
    assert difference(record, Asked("better", ("a", "b"))).images is not None  # type: ignore[union-attr]
    record.runs["a/0"].judged = "others"
    assert difference(record, Asked("better", ("a", "b"))).images is None  # type: ignore[union-attr]


def test_one_run_a_point_gives_no_interval_of_where_lines_meet() -> None:
    lines = {"a": [Point(100, (60.0,)), Point(1000, (62.0,))], "b": [Point(100, (59.0,)), Point(1000, (63.0,))]}
    (found,) = meetings(lines)
    assert found.x == pytest.approx(316, abs=1) and math.isnan(found.low) and math.isnan(found.high)


def test_lines_meet_between_the_amounts_where_the_difference_changes_its_sign() -> None:
    assert meeting([100, 400], [-1.0, 1.0]) == pytest.approx(200)
    assert meeting([100, 400], [1.0, 2.0]) is None
    assert meeting([100, 400, 900], [4.0, 0.0, -3.0]) == pytest.approx(400), "measured to be equal"
    assert meeting([100, 400, 900], [4.0, 0.0, 3.0]) is None, "they touch, and part again"
    assert meeting([100, 400], [0.0, 1.0]) is None
    lines = {
        "a": [Point(100, (40.0, 41.0)), Point(1000, (80.0, 81.0))],
        "b": [Point(100, (50.0, 51.0)), Point(1000, (70.0, 71.0))],
    }
    (found,) = meetings(lines)
    assert found.x == pytest.approx(math.sqrt(100 * 1000), rel=0.01) and found.low <= found.x <= found.high


# ---- claims that are checked part by part --------------------------------------------------------------


def word_of_claim(folder: Path, study: str, number: str, record: Record) -> str:
    """What is said of a claim of a paper where this is the only record; and the queue says the same."""
    write_record(folder / f"{study}.json", record)
    found = gathered(folder)
    (word,) = [one.word for one in found if one.claim.number == number]
    (waiting,) = [one for one in queue(found, folder) if one.study == study]
    assert (number in waiting.settled) == (word in ("fails", "holds", "direction seen at laptop scale"))
    return word


def test_a_claim_of_two_models_holds_where_both_do(tmp_path: Path) -> None:
    """D9: DHVT-T above 75.5, DHVT-S above 81.3."""
    tiny = {"DHVT-T": (0.79, 0.80, 0.795, 0.80)}

    def word(small: Mapping[str, Sequence[float]]) -> str:
        record = make_record({**tiny, **small}, epochs=300, scale="paper")
        return word_of_claim(tmp_path, "lu2022-table3", "D9", record)

    assert word({"DHVT-S": (0.80, 0.84, 0.79, 0.85)}) == "not decided"
    assert word({}) == "not decided"
    assert word({"DHVT-S": (0.85, 0.855, 0.86, 0.855)}) == "holds"
    assert word({"DHVT-S": (0.75, 0.755, 0.76, 0.755)}) == "fails", "one part is enough"


def of_sets(sets: Iterable[str], scale: ScaleName) -> Record:
    """The arms of liu2021-table4 on some of its ten sets, all better with the loss; not paired by image, which takes a while."""
    accuracy = {}
    for name in sets:
        for model in ("CvT", "Swin", "T2T"):
            accuracy[f"{model}, {name}"], accuracy[f"{model} drloc, {name}"] = CLEAR["b"], CLEAR["a"]
    record = make_record(accuracy, epochs=100, scale=scale)
    for key, run in record.runs.items():
        run.judged = key
    return record


def test_three_of_ten_sets_are_not_the_claim_of_ten(tmp_path: Path) -> None:
    three = ("CIFAR-10", "Flowers-102", "SVHN")
    ten = read_study("liu2021-table4").axes["set"]
    assert word_of_claim(tmp_path, "liu2021-table4", "L1", of_sets(three, "paper")) == "not decided"
    assert word_of_claim(tmp_path, "liu2021-table4", "L1", of_sets(ten, "paper")) == "holds"
    seen = word_of_claim(tmp_path, "liu2021-table4", "L1", of_sets(three, "laptop"))
    assert seen == "direction seen at laptop scale", "this scale leaves out the other seven"
    assert word_of_claim(tmp_path, "liu2021-table4", "L1", of_sets(three[:2], "laptop")) == "not decided"


def test_a_part_of_a_claim_may_refute_it_and_not_show_it(tmp_path: Path) -> None:
    """L1 is of three models on ten sets; `drloc-cifar` has a Swin on one."""
    clear = {"swin_nano+drloc": CLEAR["a"], "swin_nano": CLEAR["b"]}
    assert word_of_claim(tmp_path, "drloc-cifar", "L1", make_record(clear, epochs=100)) == "not decided"
    part, whole = ({"says": "s", "claim": "X", "part": part, **BETTER} for part in (True, False))
    for claims, accuracy, word in (
        ([part], CLEAR, "not decided"),
        ([part, whole], CLEAR, "holds"),
        ([part], {"a": CLEAR["b"], "b": CLEAR["a"]}, "fails"),
    ):
        study = make_study(BETTER, epochs_published=100).model_copy(
            update={"claims": tuple(map(Claim.model_validate, claims))}
        )
        record = make_record(accuracy, epochs=100, scale="paper")
        assert word_of_study(study, record, statuses(study, record)) == word


def test_what_the_scale_leaves_out_keeps_a_claim_from_holding() -> None:
    claims = [{"says": "s", "claim": "X", **BETTER}, {"says": "s", "claim": "X", "better": [["a", "d"]]}]
    for left_out, word in ((["d"], "direction seen at laptop scale"), ([], "not decided")):
        study = make_study(BETTER, claims=claims, scales={"paper": {"epochs": 100, "left_out": left_out}})
        record = make_record(CLEAR, epochs=100, scale="paper")
        checks = statuses(study, record)
        assert checks[0].word == "holds" and word_of_study(study, record, checks) == word

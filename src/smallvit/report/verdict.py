"""Scores and what may honestly be said about them: means over seeds or folds, and whether a model beats the floors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from smallvit.console import several
from smallvit.evaluation.classes import class_sizes, groups_of, only_answer, with_interval

PART_WORDS = {
    "test": "test images",
    "val": "validation images",
    "train": "training images",
    "left_out": "left-out images",
}


class Score(NamedTuple):
    """An accuracy with its 95% interval; for a mean over replicates, the t-interval of the mean."""

    label: str
    accuracy: float
    low: float
    high: float
    series: int = 0
    replicates: int = 1
    word: str = "seed"  # what the replicates are
    cautious_low: float = math.nan  # lower end that also counts the chance in the choice of images
    only: tuple[int, int, int] | None = None  # of a floor: images that the model alone gets right, the floor alone, all
    over_groups: tuple[float, float] | None = None  # of a floor: the model's lead at the least, and the p of it
    groups: int = 0  # that the images come in; 0: each is one of its own
    only_answer: str = ""  # the class that it names for every image, where it does

    @property
    def interval(self) -> str:
        return f"{percent(self.low)} to {percent(self.high)}"


class Verdict(NamedTuple):
    level: Literal["good", "caution", "bad", "note"]
    word: str
    text: str


def percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def run_score(label: str, result: Mapping[str, Any], series: int = 0, folds: int = 0) -> Score:
    """Of one run, or of `folds` that are judged together."""
    low, high = result["interval"]
    score = Score(
        label, result["accuracy"], low, high, series, cautious_low=low, groups=groups_of(result), only_answer=only_answer(result)
    )  # fmt: skip
    return score._replace(replicates=folds, word="fold") if folds else score


def floor_scores(floors: Mapping[str, Mapping[str, Any]]) -> list[Score]:
    """The floors that were computed, the best first."""
    known = [floor for floor in floors.values() if floor.get("accuracy") is not None]
    scores = [
        Score(floor["label"], floor["accuracy"], low, high, only=_only(floor), over_groups=_over_groups(floor))
        for floor in known
        for low, high in [floor["interval"]]
    ]
    return sorted(scores, key=lambda score: -score.accuracy)


def mean_over_replicates(label: str, scores: Sequence[Score], word: str) -> Score:
    """The mean with a t-interval: how far another set of seeds (or folds) would move it."""
    from smallvit.evaluation.statistics import mean_interval

    n = len(scores)
    mean, low, high = mean_interval([score.accuracy for score in scores])
    low, high = max(0.0, low), min(1.0, high)
    cautious_low = min(low, sum(score.low for score in scores) / n)
    return Score(label, mean, low, high, series=-1, replicates=n, word=word, cautious_low=cautious_low)


def state_of_folds(score: Score, n: int) -> str:
    return (
        f"Over {several(score.replicates, 'fold')}, {score.label} labels {percent(score.accuracy)} of the {several(n, 'image')} correctly, "
        f"each judged by a model that was not trained on it (95% interval {score.interval})."
        f"{few(score.replicates, score.word)}"
    )


def few(replicates: int, word: str) -> str:
    """Behind an interval over replicates, where these are too few for it to tell much; a t-interval over two is the widest."""
    return f" Two {word}s can hardly give an interval: give five or more." if replicates == 2 else ""


def state_as_one(label: str, models: int, result: Mapping[str, Any]) -> str:
    """On a test part that no fold was trained on."""
    low, high = result["interval"]
    return (
        f"Together, the {models} models of {label} answer as one: that labels {percent(result['accuracy'])} of the {several(result['n'], 'test image')} "
        f"correctly (95% interval {percent(low)} to {percent(high)})."
    )


def state(score: Score, part: str, n: int, pretrained: bool = False) -> str:
    """The one sentence that a reader should take away."""
    images = f"{n:,} {PART_WORDS.get(part, f'images of the part {part}')}"
    who = f"a k-NN on the frozen features of {score.label}" if pretrained else score.label
    if score.replicates > 1:
        return (
            f"Over {several(score.replicates, score.word)}, {who} labels {percent(score.accuracy)} of the {images} "
            f"correctly on average (95% t-interval {score.interval}).{few(score.replicates, score.word)}"
        )
    labels = (
        f"{who[0].upper() + who[1:] if pretrained else who} labels {percent(score.accuracy)} of the {images} correctly"
    )
    return f"{labels} (95% interval {score.interval})."


def _only(floor: Mapping[str, Any]) -> tuple[int, int, int] | None:
    keys = ("only_model", "only_floor", "n")  # older runs have none
    return (floor["only_model"], floor["only_floor"], floor["n"]) if all(key in floor for key in keys) else None


def _over_groups(floor: Mapping[str, Any]) -> tuple[float, float] | None:
    keys = ("ahead_over_groups", "p_over_groups")
    return (float(floor[keys[0]]), float(floor[keys[1]])) if all(key in floor for key in keys) else None


def against_floors(score: Score, floors: Sequence[Score], pretrained: bool = False) -> Verdict:
    """Does it beat the best simple method? Both judged the same images: the paired test tells where it can be made."""
    if not floors:
        return Verdict("note", "No floors", "No simple method was run for comparison.")
    best = floors[0]
    floor = f"{best.label} ({percent(best.accuracy)})"
    place = _place(score.accuracy - best.accuracy)
    if score.accuracy <= best.accuracy and pretrained:
        return Verdict(
            "note",
            "Features do not beat the floors",
            f"A k-NN on the features is {place} the best simple method on pixels, {floor}. What pretraining is "
            "worth shows when a model is trained from it: smallvit train DATA --init RUN.",
        )
    if score.accuracy <= best.accuracy and score.only_answer:
        return Verdict(
            "bad",
            "One answer for all",
            f"{score.label} calls every image {score.only_answer}: it has learned nothing that tells classes apart, and is {place} the "
            f"best simple method, {floor}. Train longer first (--budget, --epochs).",
        )
    if score.accuracy <= best.accuracy:
        return Verdict(
            "bad",
            "Does not beat the floors",
            f"{score.label} is {place} the best simple method, {floor}. As it stands, the simple "
            "method is the better choice. More epochs, more images or another model may change that.",
        )
    clear, told = _is_clear(score, best)
    above = f"{score.label} is {place} the best simple method, {floor}"
    if not clear:
        return Verdict("caution", "Too close to call", f"{above}, but {told}: the difference may be chance.")
    return Verdict("good", "Beats the floors", f"{above}, and {told}.")


def _place(difference: float) -> str:
    """Where something stands that is better by so much: above, below, or level as far as it is told."""
    points = f"{100 * abs(difference):.1f}"
    if points == "0.0":
        return "level with"
    return f"{points} points {'above' if difference > 0 else 'below'}"


def _is_clear(score: Score, best: Score) -> tuple[bool, str]:
    """Whether a model above a floor is so by more than chance, and how that is known."""
    from smallvit.evaluation.statistics import mcnemar, paired_share

    if best.only is None:  # a run of an earlier version
        apart = score.cautious_low > best.high
        return apart, "the intervals do not overlap" if apart else "the intervals overlap"
    model, floor, n = best.only
    difference, low, _ = paired_share(model, floor, n)
    p, test = mcnemar(model, floor), "McNemar's exact test"
    if best.over_groups:
        low, p = best.over_groups
        test = f"t test over their {several(score.groups, 'group')}"
    if score.replicates == 1:
        told = f"on the same {n:,} images it alone is right {model:,} times, the simple method alone {floor:,} times"
        unknown = score.groups and not best.over_groups
        surer = f", surer than it should be: they come in {several(score.groups, 'group')}" if unknown else ""
        return p < 0.05, f"{told} ({test}, p {f'= {p:.3f}' if p >= 0.001 else '< 0.001'}{surer})"
    # Over seeds by their t interval, over images by the paired interval of one of them, moved to the mean.
    lowest = min(score.low - best.accuracy, score.accuracy - best.accuracy - (difference - low))
    word = f"over {score.word}s and over the same {n:,} images"
    end = f"{100 * lowest:+.1f} points at the least"
    return lowest > 0, f"{word} it is {end}"


def between(scores: Sequence[Score]) -> Verdict:
    """The best model beside the next one."""
    first, second, *_ = sorted(scores, key=lambda score: -score.accuracy)
    lead = f"{first.label} is {_place(first.accuracy - second.accuracy)} {second.label}"
    if first.accuracy == second.accuracy:
        return Verdict("note", "Level", f"{first.label} and {second.label} are equally good here.")
    once = (
        ""
        if min(first.replicates, second.replicates) > 1
        else " Each was trained once: another seed moves both numbers."
    )
    if first.low <= second.high:
        text = f"{lead}, but the intervals overlap: it may be chance.{once}"
        return Verdict("note", "No clear winner", text)
    return Verdict("note", f"{first.label} is ahead", f"{lead}, and the intervals do not overlap.{once}")


OTHER_IMAGES = Verdict(
    "caution",
    "Not comparable",
    "These runs were not judged on the same images: which of them is better, their accuracies do not tell.",
)


def about_collapse(label: str, why: str) -> Verdict:
    return Verdict("bad", "Collapsed", f"{label}: {why}.")


def told_before(caution: str) -> Verdict:
    """What was said before the start."""
    return Verdict("note", "Said before the start", f"{caution[:1].upper()}{caution[1:]}.")


def about_balance(label: str, result: Mapping[str, Any], floors: Mapping[str, Mapping[str, Any]]) -> Verdict:
    least, most = class_sizes(result)
    known = [floor for floor in floors.values() if floor.get("balanced_accuracy") is not None]
    best = max(known, key=lambda floor: float(floor["balanced_accuracy"]), default=None)
    beside = (
        f"; of the simple methods {best['label']} is best with {percent(best['balanced_accuracy'])}" if best else ""
    )
    text = (
        f"They have {least:,} to {most:,} images here, so large classes decide the accuracy. Counting every "
        f"class the same, the balanced accuracy of {label} is {with_interval(result, 'balanced_accuracy')}{beside}."
    )
    return Verdict("note", "Classes differ in size", text)


def about_part(part: str | None, classes: bool = True, select: str | None = None) -> Verdict | None:
    """A number that training could see is not the number a reader expects.

    `select` is what the recipe says of the weights that are kept: `best` or `last`; nothing where it is not known.
    """
    if part in ("test", "left_out"):
        return None
    if not classes:
        text = "The images have no classes: what the features are worth shows when they are used."
        return Verdict("note", "Not measured", text)
    if part is None:
        text = "There was neither a test nor a validation part: how good the model is, is not known."
        return Verdict("bad", "Not measured", text)
    if part == "val":
        chose = "The validation images chose the weights: the number flatters."
        if select != "best":
            weights = (
                "The validation images did not choose the weights"
                if select
                else "Where select = best, they chose the weights"
            )
            chose = f"{weights}; where settings were chosen by them, the number flatters."
        return Verdict("caution", "Measured on validation images", f"There was no test part. {chose}")
    text = f"There was no test part: accuracy on {PART_WORDS.get(part, part)} says little about new images."
    return Verdict("bad", f"Measured on {PART_WORDS.get(part, part)}", text)

"""`smallvit compare`: is one model better than another, or is the difference chance?

Groups are paired by what their runs repeat (seed, fold): the mean difference, Student's t interval, a paired t test. Folds
train on mostly the same images, so theirs is the corrected one (Nadeau and Bengio 2003).
Single runs are paired by test image: McNemar's exact test. The first one is compared with each of the others, and a
group with several arms gives each of them.
S replicates, N test images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtr, stdtrit  # scipy.stats takes seconds to import

from smallvit.console import several
from smallvit.errors import RunError, UsageError
from smallvit.evaluation.classes import MEASURES
from smallvit.evaluation.measures import paired_interval
from smallvit.evaluation.statistics import clustered_difference, mcnemar, mean_interval, paired_share, rounding
from smallvit.planning.explanation import brief
from smallvit.recipe import flat
from smallvit.runs.axes import Place, in_order, listed, means_over_images, replicate_word
from smallvit.runs.folder import RunFolder
from smallvit.runs.members import Member, final_members, is_group, replicate_of
from smallvit.runs.paired import Pair, same_images

LEVEL = 0.05  # p below which a difference is called real
POWER = 0.8  # chance that so many seeds would show a difference of this size
MOST_SEEDS = 1000
MOST_TOLD = 5  # keys in which two recipes differ
FAR_APART = 2  # times as many epochs
SAME_ANYWAY = {"seed", "threads", "device", "model.init_digest"}  # they make no other method
FEW_SEEDS, MORE_SEEDS = "--seeds 3 beside --folds may tell.", "more --seeds beside --folds may tell."

GROUPED = (
    "The images come in groups, and images of one group are not independent: intervals and p take each image for itself, "
    "and are surer than they should be."
)


class Side(NamedTuple):
    """A run, or the runs of one arm, which differ in seed or fold."""

    name: str
    runs: dict[Place, RunFolder]  # by replicate


class Comparison(NamedTuple):
    first: str
    second: str
    paired_by: str  # "seeds", "folds", "draws" or "images": seeds of one fold count once
    n: int  # of these
    accuracy: tuple[float, float]
    difference: float  # first - second
    interval: tuple[float, float]
    p: float
    sentence: str
    measures: dict[str, dict[str, Any]]  # what counts every class the same: first, second, difference, interval
    caution: str = ""  # what else differs between the two, and what the test does not know
    cka: str = ""  # how alike their layers are, where it was asked for

    @property
    def real(self) -> bool:
        return self.p < LEVEL

    @property
    def beside(self) -> str:
        """The other measures in a sentence."""
        told = [
            f"{MEASURES[name].words} differs by {100 * found['difference']:+.1f} ({100 * found['interval'][0]:+.1f} to "
            f"{100 * found['interval'][1]:+.1f})"
            for name, found in self.measures.items()
        ]
        return f"Beside accuracy, in points: {', '.join(told)}." if told else ""


def compare(sides: Sequence[Side]) -> list[Comparison]:
    if len(sides) < 2:
        raise UsageError("compare needs at least two runs or groups of seeds")
    return [_with_caution(compare_two(sides[0], other), what_else(sides[0], other)) for other in sides[1:]]


def _with_caution(found: Comparison, more: str) -> Comparison:
    return found._replace(caution=" ".join(filter(None, (found.caution, more))))


def open_sides(folders: Sequence[str | Path]) -> list[Side]:
    """Runs and groups, under names that tell them apart: the model where that is enough, else the folder."""
    if isinstance(folders, str | Path):
        raise UsageError(f"compare takes a list of folders, not one: [{str(folders)!r}, ...]")
    places = [Path(folder).resolve() for folder in folders]
    if twice := next((folder for folder, place in zip(folders, places, strict=True) if places.count(place) > 1), None):
        raise UsageError(f"{twice} was given twice: a run does not differ from itself")
    opened = [(folder, arm, runs) for folder in folders for arm, runs in _open(Path(folder)).items()]
    models = [next(iter(runs.values())).recipe.model.name for _, _, runs in opened]
    arms = [arm or _folder_name(folder) for folder, arm, _ in opened]
    long = [f"{folder}/{arm}" if arm else str(folder) for folder, arm, _ in opened]
    names = next((names for names in (models, arms) if len(set(names)) == len(names)), long)
    return [Side(name, runs) for name, (_, _, runs) in zip(names, opened, strict=True)]


def _open(folder: Path) -> dict[str, dict[Place, RunFolder]]:
    """Arm -> its runs by replicate. A single run, and runs that have no arms, are one arm without a name."""
    members = final_members(folder) if is_group(folder) else [Member(folder, Place())]
    arms: dict[str, dict[Place, RunFolder]] = {}
    for path, place in members:
        run = RunFolder(path)
        if not run.finished:
            raise RunError(f"{path} is not finished: go on with `smallvit resume {folder}`")
        arms.setdefault(place.arm or "", {})[replicate_of(path, run.recipe.seed)] = run
    return arms


def default_page(folders: Sequence[str | Path]) -> Path:
    """Beside the first folder, under the names of all."""
    return Path(folders[0]).resolve().parent / f"compare-{'-'.join(map(_folder_name, folders))}.html"


def _folder_name(folder: str | Path) -> str:
    return Path(folder).resolve().name


def compare_two(first: Side, second: Side) -> Comparison:
    both = in_order(first.runs.keys() & second.runs.keys())
    if len(both) >= 2:
        return over_replicates(first, second, both)
    if len(first.runs) == len(second.runs) == 1:
        return over_images(first, second)
    have = " and ".join(f"{side.name} has {listed(list(side.runs))}" for side in (first, second))
    word = replicate_word([*first.runs, *second.runs])
    raise UsageError(f"{have}: pairing takes two {word}s that both have, or two single runs")


class Differing(NamedTuple):
    """A setting in which two sides differ, with its values."""

    key: str
    first: str
    second: str


def differing(first: Side, second: Side) -> list[Differing]:
    """What was asked for differently."""
    recipes = _recipes(first, second)
    asked, resolved = ([flat(recipe[key]) for recipe in recipes] for key in ("asked", "resolved"))
    for own, side in zip(resolved, (first, second), strict=True):  # a budget may have counted them anew
        own["epochs"] = next(iter(side.runs.values())).trained_epochs
    return [
        Differing(key, brief(resolved[0].get(key)), brief(resolved[1].get(key)))
        for key in dict.fromkeys([*asked[0], *asked[1]])
        if key not in SAME_ANYWAY and all(own.get(key) != other.get(key) for own, other in (asked, resolved))
    ]


def _recipes(*sides: Side) -> list[dict[str, Any]]:
    """As asked for and as resolved, of one run of each: others of a side differ in seed or fold."""
    return [next(iter(side.runs.values())).read("recipe.json", "asked", "resolved") for side in sides]


def what_else(first: Side, second: Side) -> str:
    """What was asked for differently, where it is more than one thing: then none of them has made the difference alone.

    And how long each was trained, where a time was given and one saw its images far more often in it.
    """
    found = differing(first, second)
    if len(found) < 2:
        return _lengths(first, second)
    told = [f"{key} ({own} and {other})" for key, own, other in found[:MOST_TOLD]]
    more = f" and {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else ""
    return f"They differ in {', '.join(told)}{more}: which of these made the difference, this does not tell."


def _lengths(first: Side, second: Side) -> str:
    """Empty where the epochs were asked for, or are not far apart."""
    if any(recipe["asked"].get("epochs", "auto") != "auto" for recipe in _recipes(first, second)):
        return ""
    epochs = [next(iter(side.runs.values())).trained_epochs for side in (first, second)]
    if max(epochs) < FAR_APART * max(1, min(epochs)):
        return ""
    each = [f"{side.name} for {several(count, 'epoch')}" for side, count in zip((first, second), epochs, strict=True)]
    return f"In their time {each[0]} and {each[1]} were trained: the longer one has seen its images far more often."


# ---- replicates --------------------------------------------------------------------------------------


def over_replicates(first: Side, second: Side, both: Sequence[Place]) -> Comparison:
    """The two sides over the seeds or folds that both have."""
    pairs = [same_images(first.runs[place], second.runs[place]) for place in both]
    accuracy_S2 = np.array([[right_N.mean() for right_N in pair.right] for pair in pairs])
    a, b = accuracy_S2.mean(0).tolist()
    overlap = overlap_of(both)
    least = rounding(min(len(pair.labels_N) for pair in pairs))
    differences, word = _differences(accuracy_S2, both)
    mean, low, high, p = paired_t(differences, overlap, least)
    runs_each = len(both) / len(differences)
    left_out = [
        f"; {listed(others)} of {side.name} {'is' if len(others) == 1 else 'are'} left out"
        for side in (first, second)
        if (others := list(side.runs.keys() - set(both)))
    ]
    lead = (
        f"Over {several(len(differences), word)}{f', each the mean of {runs_each:.2g} runs,' * (runs_each > 1)}"
        f"{' that both have' * bool(left_out)} {_lead(first.name, second.name, mean)} "
        f"(95% interval {_points(low)} to {_points(high)}, {'corrected ' * bool(overlap)}paired t test p {_p(p)}{''.join(left_out)})"
    )
    if p < LEVEL:
        ending = "the difference is real."
    else:
        more = (FEW_SEEDS if runs_each == 1 else MORE_SEEDS) if overlap else _more(np.array(differences), word, least)
        ending = f"it may be chance; {more}"
    return Comparison(
        first.name, second.name, f"{word}s", len(differences), (a, b), mean, (low, high), p, f"{lead}: {ending}",
        _measured_over(pairs, both, overlap, least),
    )  # fmt: skip


def _differences(value_S2: NDArray[np.floating], places: Sequence[Place]) -> tuple[list[float], str]:
    """First less second of what counts for itself (a seed, a fold, a draw), and its word."""
    each_S = (value_S2[:, 0] - value_S2[:, 1]).tolist()
    return means_over_images(dict(zip(places, each_S, strict=True)))


def _measured_over(
    pairs: Sequence[Pair], places: Sequence[Place], overlap: float, least: float
) -> dict[str, dict[str, Any]]:
    """The mean of each measure over the replicates of both sides, and Student's interval of their difference."""
    each = [pair.measured for pair in pairs]
    found: dict[str, dict[str, Any]] = {}
    for name in each[0]:
        if not all(name in measured for measured in each):  # a fold that judges one class has no AUROC
            continue
        value_S2 = np.array([[side.value for side in measured[name]] for measured in each])
        mean, low, high, _ = paired_t(_differences(value_S2, places)[0], overlap, least)
        first, second = value_S2.mean(0).tolist()
        found[name] = _record(first, second, mean, (low, high))
    return found


def _record(first: float, second: float, difference: float, interval: tuple[float, float]) -> dict[str, Any]:
    return {"first": first, "second": second, "difference": difference, "interval": interval}


def overlap_of(places: Sequence[Place]) -> float:
    """Of K folds, each judged by a K-th of the images: judged to trained ones, 1 / (K - 1). 0 for seeds."""
    folds = {place.fold for place in places} - {None}
    return 1 / (len(folds) - 1) if len(folds) > 1 else 0.0


def paired_t(
    differences_S: Sequence[float], overlap: float = 0.0, least: float = 0.0
) -> tuple[float, float, float, float]:
    """Mean, its t interval, and the two-sided p of no difference.

    Few differences of shares of few images are often just the same, which says little: one varies by `least` at the least.

    Runs that train on mostly the same images vary less among themselves than they would on other images: the variance
    of their mean is taken as (1 / S + `overlap`) times that of one.
    """
    mean, low, high = mean_interval(differences_S, least=least)
    n = len(differences_S)
    wider = math.sqrt(1 + n * overlap)
    low, high = (mean + wider * (end - mean) for end in (low, high))
    error = wider * max(least, float(np.std(differences_S, ddof=1))) / math.sqrt(n)
    if error < 1e-12:
        return mean, low, high, 1.0 if abs(mean) < 1e-12 else 0.0
    return mean, low, high, float(2 * stdtr(n - 1, -abs(mean) / error))


def seeds_needed(
    differences_S: Sequence[float] | NDArray[np.float64], level: float = LEVEL, least: float = 0.0
) -> int | None:
    """How many seeds would show a difference of this size in four of five attempts; None above a thousand, and where there is none."""
    size, spread = abs(float(np.mean(differences_S))), max(least, float(np.std(differences_S, ddof=1)))
    if not size:
        return None
    for n in range(2, MOST_SEEDS + 1):
        if size * math.sqrt(n) >= spread * (float(stdtrit(n - 1, 1 - level / 2)) + float(ndtri(POWER))):
            return n
    return None


def _more(differences_S: NDArray[np.float64], word: str, least: float) -> str:
    needed = seeds_needed(differences_S, least=least)
    if needed is None:
        return f"if there is one, it is so small that {MOST_SEEDS:,} {word}s would not tell."
    more = max(1, needed - len(differences_S))
    return f"if it is as large as it looks, about {several(more, f'more {word}')} would tell."


# ---- single runs -------------------------------------------------------------------------------------


def over_images(first: Side, second: Side) -> Comparison:
    runs = [next(iter(side.runs.values())) for side in (first, second)]
    pair = same_images(*runs)
    one_N, other_N = pair.right
    n, only_first, only_second = len(one_N), int((one_N & ~other_N).sum()), int((other_N & ~one_N).sum())
    if pair.groups_N is None:
        p, test = mcnemar(only_first, only_second), "McNemar's exact test"
        difference, low, high = paired_share(only_first, only_second, n)
    else:
        difference, low, high, p = clustered_difference(one_N, other_N, pair.groups_N)
        test = f"t test over their {several(len(np.unique(pair.groups_N)), 'group')}"
    told = (
        f"On the same {several(n, 'image')} {_lead(first.name, second.name, difference)} (95% interval {_points(low)} to "
        f"{_points(high)}): it alone is right {several(only_first, 'time')}, {second.name} alone {several(only_second, 'time')} "
        f"({test}, p {_p(p)})"
    )
    ending = (
        "these two trained models differ; whether the methods do, only more seeds tell (train both with --seeds 5)."
        if p < LEVEL
        else "it may be chance; train both with --seeds 5 to know."
    )
    accuracy = (float(one_N.mean()), float(other_N.mean()))
    measured = {
        name: _record(
            one.value, other.value, one.value - other.value, paired_interval(one, other, pair.labels_N, pair.groups_N)
        )
        for name, (one, other) in pair.measured.items()
    }
    return Comparison(
        first.name, second.name, "images", n, accuracy, difference, (low, high), p, f"{told}: {ending}", measured,
        GROUPED if pair.groups_N is None and any(run.has_groups for run in runs) else "",
    )  # fmt: skip


# ---- words -------------------------------------------------------------------------------------------


def _lead(first: str, second: str, difference: float) -> str:
    if difference == 0:
        return f"{first} is exactly as good as {second}"
    if _points(abs(difference)) == "0.0":
        return f"{first} is level with {second}"
    return f"{first} is {_points(abs(difference))} points {'better' if difference > 0 else 'worse'} than {second}"


def _points(share: float) -> str:
    return f"{100 * share:.1f}"


def _p(p: float) -> str:
    return f"= {p:.3f}" if p >= 0.001 else "< 0.001"

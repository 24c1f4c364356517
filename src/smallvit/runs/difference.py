"""What made the difference between the best and the worst model of a group: one sentence, from what was measured.

A model may be right more often because it has learned its training images better, or because what it has learned holds
for new ones. How far ahead it is on each tells how much of the difference is which.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from smallvit.console import several
from smallvit.report.verdict import percent
from smallvit.runs.axes import Place
from smallvit.runs.comparison import Comparison, Differing, Side, differing, over_images
from smallvit.runs.folder import RunFolder
from smallvit.runs.inference import evaluate
from smallvit.runs.members import counting_members, is_group, read_group, write_group

KEY = "difference"  # in group.json
DIFFERENCE = "What made the difference"
MOST_TOLD = 4  # settings
NEARLY, MOSTLY = 0.9, 0.5  # shares of the difference


class Learned(NamedTuple):
    """Accuracy on the images that the two were trained on."""

    best: float
    worst: float


def tell_difference(folder: Path, runs: Sequence[RunFolder]) -> str:
    """The sentence, which is stored with the group."""
    record = read_group(folder)
    if KEY not in record:
        ranked = sorted(runs, key=_accuracy, reverse=True)
        best, worst = (Side(run.path.name, {Place(): run}) for run in (ranked[0], ranked[-1]))
        learned = Learned(*(float(evaluate(run.path, "train")["accuracy"]) for run in (ranked[0], ranked[-1])))
        record[KEY] = in_words(over_images(best, worst), learned, differing(best, worst))
        write_group(folder, record, record["axes"])
    return str(record[KEY])


def stored_difference(runs: Sequence[RunFolder]) -> str:
    """The sentence, where these are all runs of a group that has one; else empty."""
    folder = runs[0].path.resolve().parent
    if not is_group(folder):
        return ""
    together = {run.path.resolve() for run in runs} == {member.path.resolve() for member in counting_members(folder)}
    return str(read_group(folder).get(KEY, "")) if together else ""


def _accuracy(run: RunFolder) -> float:
    return float(run.results["parts"][run.results["evaluated_part"]]["accuracy"])


def in_words(compared: Comparison, learned: Learned, settings: Sequence[Differing]) -> str:
    """True whatever was found: a difference that may be chance is not explained."""
    best, worst = compared.first, compared.second
    ahead, low, high = (f"{100 * share:.1f}" for share in (compared.difference, *compared.interval))
    lead = f"{best} is {ahead} points better than {worst} on the same {several(compared.n, 'image')} (95% interval {low} to {high})"
    if not compared.real:
        return f"None is certain: {lead}, which may be chance."
    told = f"{lead}; {_where(compared.difference, learned)}{_owed(settings)}."
    return " ".join(filter(None, (told, compared.caution)))


def _where(difference: float, learned: Learned) -> str:
    """How much of it is there on the training images already."""
    fitted = learned.best - learned.worst
    words = f"{percent(learned.best)} and {percent(learned.worst)} of the images they were trained on"
    share = fitted / difference
    part = share if share >= MOSTLY else 1 - share
    much = "all" if part >= 1 else "nearly all" if part >= NEARLY else "most"
    cause = "how well each has learned its own images" if share >= MOSTLY else "how well that holds for new images"
    return f"they label {words} correctly, so {much} of it is {cause}"


def _owed(settings: Sequence[Differing]) -> str:
    if not settings:
        return ""
    told = [f"{key} ({first}, not {second})" for key, first, second in settings[:MOST_TOLD]]
    more = [f"{len(settings) - MOST_TOLD} more"] if len(settings) > MOST_TOLD else []
    *others, last = [*told, *more]
    return (
        f", and the two differ in {', '.join(others)} and {last}" if others else f", and the two differ in {last} alone"
    )

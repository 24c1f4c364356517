"""What may be said of a claim: holds, fails, not decided, direction seen, cannot be decided here.

"Holds" and "fails" need the published setting and an interval that leaves the other out, after Holm's correction and over test
images, too. At another setting the most that is said is that its direction is seen. A model at chance, or one that was
trained for at most a fiftieth of the published epochs, decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from smallvit.console import several
from smallvit.evaluation.statistics import clustered_interval, mean_interval
from smallvit.runs.axes import means_over_images
from smallvit.runs.comparison import LEVEL
from smallvit.studies.differences import ACCURACY, Difference, Test, differences, tests_of
from smallvit.studies.measured import RECORDED_FIRST, parse
from smallvit.studies.record import Record, right_of
from smallvit.studies.spec import Claim, Study

Word = Literal["fails", "holds", "direction seen at laptop scale", "not decided", "cannot be decided here"]
# The strongest first: of several studies of one claim, that counts.
WORDS: tuple[Word, ...] = ("fails", "holds", "direction seen at laptop scale", "not decided", "cannot be decided here")
LEAST_SHARE = 1 / 50  # of the published epochs; IDMM had 11 of 800
ENOUGH_SHARE = 0.95  # of the published epochs, from which on a setting is the published one
TOLD_TIME = 0.05  # more processor time for the better arm is told from here
MOST_NAMED = 6  # arms without runs


class Status(NamedTuple):
    claim: Claim
    word: Word
    why: str
    differences: tuple[Difference, ...] = ()


def statuses(study: Study, record: Record, found: Mapping[Test, Difference] | None = None) -> list[Status]:
    """`found` are its differences, where they are known already: the bootstrap takes a while."""
    found = differences(study, record) if found is None else found
    return [decide(study, record, claim, found) for claim in study.claims]


def word_of_study(study: Study, record: Record, checks: Sequence[Status]) -> Word:
    """What a study says of a claim of a paper. Each of its `checks` may ask of a part only.

    One part that fails is enough; for all else the weakest word counts, as a claim holds where all of its parts do. Checks of
    arms that the scale leaves out are not asked for, but without them it is not the whole claim that holds; nor does anything show it
    where the study has checks of a part of it alone.
    """
    words = [one.word for one in checks if is_asked(study, record, one.claim)]
    if "fails" in words:
        return "fails"
    weakest: Word = max(words, key=WORDS.index, default="not decided")
    if all(one.claim.part for one in checks):
        return max(weakest, "not decided", key=WORDS.index)
    return "direction seen at laptop scale" if weakest == "holds" and len(words) < len(checks) else weakest


def is_asked(study: Study, record: Record, claim: Claim) -> bool:
    """Whether the scale of the record has all arms of the claim, or they were run even so."""
    at_scale = study.asked(record.scale)
    return all(arm in at_scale or record.of(arm) for arm in claim.arms)


def decide(study: Study, record: Record, claim: Claim, found: Mapping[Test, Difference]) -> Status:
    if missing := [arm for arm in claim.arms if not record.of(arm)]:
        return Status(claim, "not decided", f"{_listed(missing)} {'has' if len(missing) == 1 else 'have'} no runs yet")
    own = tuple(found[test] for test in tests_of(claim) if test in found)
    if len(own) < len(tests_of(claim)):
        what = (
            "two seeds are needed" if claim.on == ACCURACY else f"{claim.on} was not measured in two runs of each arm"
        )
        return Status(claim, "not decided", f"{what}; nothing is known of the chance in one", own)
    told = "; ".join(in_words(one) + _caution(one) for one in own)
    if weak := [why for arm in claim.arms for why in decides_nothing(study, record, arm, claim.on)]:
        return Status(
            claim, "not decided", f"{'; '.join(dict.fromkeys(weak))}: that decides nothing. Seen: {told}", own
        )
    sides = [_side(one) for one in own]
    if not is_comparable(study, record, claim):
        return Status(claim, *_elsewhere(sides, own, told), own)
    if "against" in sides:
        return Status(claim, "fails", told, own)
    if all(side == "for" for side in sides):
        return Status(claim, "holds", told, own)
    return Status(claim, "not decided", f"{told}. {_more(own)}", own)


def _elsewhere(sides: Sequence[str], own: Sequence[Difference], told: str) -> tuple[Word, str]:
    """At another setting than the published one nothing holds and nothing fails."""
    if all(side == "for" for side in sides):
        return "direction seen at laptop scale", told
    if "against" in sides:
        return (
            "not decided",
            f"{told}. At this scale the claim is not met; only the published setting could tell that it fails",
        )
    return "not decided", f"{told}. {_more(own)}"


def _side(one: Difference) -> str:
    """for | against | open: on which side of the claim's bound the difference really lies."""
    if one.test.kind == "tie":
        if one.corrected >= LEVEL:
            return "open"
        if abs(one.mean) > one.test.bound:
            nearest = min if one.mean > 0 else max  # of the ends over test images, that towards a tie
            beyond = one.images is None or nearest(one.images) * math.copysign(1, one.mean) > one.test.bound
            return "against" if beyond else "open"
        ends = [one.low, one.high, *(one.images or ())]
        return "for" if max(map(abs, ends)) < one.test.bound else "open"
    if not one.real:
        return "open"
    bound = 0.0 if one.test.kind == "error_ratio" else one.test.bound
    return "for" if one.mean > bound else "against"


def is_comparable(study: Study, record: Record, claim: Claim) -> bool:
    """The published setting: the paper's scale, and its epochs."""
    if record.scale != "paper" or claim.setting:
        return False
    return all(share >= ENOUGH_SHARE for arm in claim.arms for share, _ in _shares(study, record, arm))


def decides_nothing(study: Study, record: Record, arm: str, on: str = ACCURACY) -> list[str]:
    """Why a result of this arm says nothing of the claim; empty where it may."""
    found = []
    by_place, floors = record.of(arm), record.floors_of(arm)
    chance = floors.get("majority", {}).get("accuracy")
    # Layers of a model that has learned nothing are no finding; what was trained before it is another matter.
    of_the_first = on in study.measures and all(term.of == RECORDED_FIRST for term in parse(study.measures[on]))
    if chance is not None and not of_the_first:
        mean, low, _ = mean_interval(means_over_images({place: run.accuracy for place, run in by_place.items()})[0])
        if len(by_place) < 2:
            (run,) = by_place.values()
            right_N = right_of(record, run).astype(np.float64)
            low = clustered_interval(right_N, groups_N=record.groups_of(run.judged))[0]
        if low <= chance:
            found.append(
                f"{arm} is not above chance ({100 * mean:.1f} %, from {100 * max(0.0, low):.1f}; chance is {100 * chance:.1f})"
            )
    found += [why for share, why in _shares(study, record, arm) if share <= LEAST_SHARE]
    return found


def _shares(study: Study, record: Record, arm: str) -> list[tuple[float, str]]:
    """Of every stage: the share of the published epochs that it had, in words, too."""
    facts = record.arms.get(arm)
    if facts is None:
        return []
    found = []
    for stage in facts.stages:
        asked = study.epochs_published if stage is facts else study.epochs_first_published
        if asked:
            share = stage.epochs / asked
            found.append((share, f"{arm} had {stage.epochs} of {asked} published epochs ({100 * share:.1f} %)"))
    return found


# ---- words ---------------------------------------------------------------------------------------------


def in_words(one: Difference) -> str:
    unit = "" if one.test.on != ACCURACY else " points"
    digits = 1 if one.test.on == ACCURACY else 2
    sign = "" if one.test.kind == "above" else "+"
    mean, low, high = (f"{value:{sign}.{digits}f}" for value in (one.mean, one.low, one.high))
    images = f"; over test images {one.images[0]:+.1f} to {one.images[1]:+.1f}" if one.images else ""
    p = f"{one.corrected:.3f}" if one.corrected >= 0.001 else "< 0.001"
    return f"{one.test.words}: {mean}{unit} ({low} to {high}, {several(one.n, one.word)}{images}; Holm p {p})"


def _caution(one: Difference) -> str:
    better = one.test.arms[0 if one.mean > 0 else -1]
    return f", where {better} had {one.more_time:.0%} more processor time" if one.more_time > TOLD_TIME else ""


def _more(own: Sequence[Difference]) -> str:
    """How many replicates would decide, if differences are as large as they look."""
    open_ones = [one for one in own if _side(one) == "open"]
    needed = [one.needed for one in open_ones]
    word = open_ones[0].word
    if any(one is None for one in needed):
        return f"If there is a difference, it is so small that 1,000 {word}s would not tell"
    most = max((one for one in needed if one is not None), default=2)
    have = min(one.n for one in open_ones)
    if most <= have:
        return f"More {word}s, fewer comparisons or more test images would decide"
    return f"If it is as large as it looks, about {several(most, word)} would decide (there are {have})"


def _listed(names: Sequence[str]) -> str:
    if len(names) > MOST_NAMED:
        return f"{names[0]} and {len(names) - 1} other arms"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

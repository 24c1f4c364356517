"""A plan as a table: what was chosen and why, what that is expected to bring, what was left out, and how to change it.

It is made of what a run folder holds (the recipe as asked and as resolved, the choices, the levers as they were known),
so that a report says later what `--explain` says before. Nothing here knows any lever by name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from smallvit.console import several
from smallvit.planning.choices import Choice
from smallvit.planning.evidence import Lever
from smallvit.recipe import FLAGS

EVERYTHING = "all with their reasons: `smallvit train ... --explain`, or the report"
DIGEST = re.compile("[0-9a-f]{64}")
VALUE = "..."  # in words for the command line
GIVEN = "given, by a flag or by the recipe"
UNTOLD = ("data.source", "data.mean", "data.std")  # told elsewhere, or numbers that say nothing
# What follows from the rest, or is nearly always the same: a run does not begin with it.
ROUTINE = frozenset(
    {"model.timm_name", "model.kwargs.stem_stride", "batch_size", "select", "eval_every", "schedule.warmup_epochs"}
    | {f"data.{name}" for name in ("cache_size", "in_chans", "flips", "shifts")}
    | {f"optimizer.{name}" for name in ("name", "lr", "matrix_lr", "weight_decay")}
    | {f"augment.{name}" for name in ("crop", "padding", "brightness", "contrast", "saturation", "trivial")}
)


class Line(NamedTuple):
    what: str  # a key of the recipe; of a lever that was left out, its name
    value: str
    why: str
    brings: str  # what was measured, a line for each; empty where nothing was
    switch: str  # words for the command line; a line for each way

    @property
    def is_lever(self) -> bool:
        """Whether there are words that change it; of all else only the place where a value goes is known."""
        return not self.switch.endswith(VALUE)


class Explained(NamedTuple):
    chosen: list[Line]
    left_out: list[Line]

    def as_record(self) -> dict[str, list[dict[str, str]]]:
        """Ready for JSON."""
        return {
            "chosen": [line._asdict() for line in self.chosen],
            "left_out": [line._asdict() for line in self.left_out],
        }


def from_record(record: Mapping[str, Any]) -> Explained:
    chosen, left_out = (
        [Line(**{key: str(text) for key, text in line.items()}) for line in record[part]] for part in Explained._fields
    )
    return Explained(chosen, left_out)


def explained(
    asked: Mapping[str, Any], resolved: Mapping[str, Any], choices: Sequence[Choice], levers: Sequence[Lever]
) -> Explained:
    """The recipes have dotted keys. First what was measured to matter, then the rest: as given, as chosen."""
    reasons = {choice.key: choice for choice in choices}  # the last word on each
    given = [key for key, value in asked.items() if value != "auto" and key not in reasons]
    known = [lever for lever in levers if lever.applies(resolved)]
    used = [lever for lever in known if lever.in_use(resolved)]
    keys = dict.fromkeys([*(lever.setting for lever in used), *given, *reasons])
    lines = []
    for key in (key for key in keys if key not in UNTOLD):
        own = [lever for lever in used if lever.setting == key]
        if choice := reasons.get(key):
            value, why = choice.value, choice.why
        else:
            value, why = (
                (resolved.get(key, asked[key]), GIVEN) if key in given else (own[0].value(resolved), own[0].name)
            )
        switch = "\n".join(lever.off for lever in own) or change(key)
        lines.append(Line(key, brief(value), why, _brings(own), switch))
    return Explained(lines, [_left_out(lever, given, reasons) for lever in known if lever not in used])


def _left_out(lever: Lever, given: Sequence[str], reasons: Mapping[str, Choice]) -> Line:
    chosen = reasons.get(lever.setting)
    why = GIVEN if lever.setting in given else lever.why_not or (chosen.why if chosen else "not asked for")
    return Line(lever.name, "", why, _brings([lever]), lever.on)


def _brings(levers: Sequence[Lever]) -> str:
    return "\n".join(str(measured) for lever in levers for measured in lever.measured)


def change(key: str) -> str:
    """The flag of a key, or `--set`."""
    flag = next((name for name, place in FLAGS.items() if place == key), None)
    return f"--{flag.replace('_', '-')} {VALUE}" if flag else f"--set {key}={VALUE}"


def first_lines(choices: Sequence[Choice]) -> list[str]:
    """What a run begins with: the choices that its owner may want otherwise, and how many there are beside them."""
    known = [choice for choice in choices if choice.key not in UNTOLD]
    told = [choice for choice in known if choice.key not in ROUTINE]
    lines = [f"{choice.key} = {brief(choice.value)}  ({choice.why})" for choice in told]
    if more := len(known) - len(told):
        lines.append(f"and {several(more, 'usual choice')} ({EVERYTHING})")
    return lines


# ---- values for reading --------------------------------------------------------------------------------


def show(value: Any) -> str:
    """A recipe value for reading."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(show(item) for item in value)
    return json.dumps(value, ensure_ascii=False)


def brief(value: Any) -> str:
    """The same, but a long list of numbers by its range, and a digest by its beginning: the full recipe has them whole."""
    if isinstance(value, str) and DIGEST.fullmatch(value):
        return value[:12]
    if isinstance(value, list | tuple) and len(value) > 8 and all(isinstance(item, int | float) for item in value):
        return f"{len(value)} numbers, {show(min(value))} to {show(max(value))}"
    return show(value)

"""What a study is: a TOML file with arms, the axes they are crossed with, what is compared, and claims as checks.

Keys of an arm are those of `smallvit.train`, with `first` for what is trained before it. An arm, a value of an axis and a
`first` may say other things for one scale: tables `paper` and `laptop` inside them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from smallvit.recipe import FLAGS, Section
from smallvit.studies.measured import parse

ScaleName = Literal["paper", "laptop"]
SCALES: tuple[ScaleName, ...] = ("paper", "laptop")
Pair = tuple[str, str]
Table = dict[str, Any]
BETWEEN = ", "  # of an arm's name and those of the values of axes
# What a study says of all arms, or in another way: as keys of one they would be written over, or mean another comparison.
NOT_OF_AN_ARM = {
    "seed": "the runs of every arm have the seeds 0, 1, 2, ...: `seeds` says how many",
    "threads": "all runs have as many: --threads of the command",
    "budget": "arms are equal in `cpu_seconds`, `epochs` or `steps`",
    "folds": "an arm is judged by its test part: give `draws` to draw the training images anew",
    "pretrain": "what is trained before is `first = { method = ... }`",
}
STAGE_KEYS = {"first", "method", "share", "recipe", "settings", "aux", *FLAGS} - {*NOT_OF_AN_ARM}
LENGTHS = ("cpu_seconds", "epochs", "steps")
NUMBERED = re.compile(r"[\d,]*\.?\d+( |$)")  # a label with a place on the axis that is drawn: 2,000 images
# What is trained first is asked for as what follows, as far as images and model go; how it is trained is its own.
HANDED_DOWN = ("data", "model", "img_size", "in_chans", "fit", "val", "test", "train_on", "per_class", "fraction", "drop_path", "precision", "device")  # fmt: skip

AMOUNTS = ("per_class", "fraction", "train_on")  # of one set, and not of another


class Scale(Section):
    """How large a study is run, and how its arms are made equal: by processor time, epochs or steps."""

    time: str = ""  # all of it on a known machine, in words
    cpu_hours: Annotated[float, Field(gt=0)] | None = None  # processor time of all of it (benchmarks/study_costs.py)
    cpu_seconds: Annotated[float, Field(gt=0)] | None = None
    epochs: Annotated[int, Field(ge=1)] | None = None
    steps: Annotated[int, Field(ge=1)] | None = None
    seeds: Annotated[int, Field(ge=1, le=1000)] = 5
    draws: Annotated[int, Field(ge=1, le=1000)] = 1  # of the training images, by data.split_seed; each with all seeds
    shared: Table = Field(default_factory=dict)
    left_out: tuple[str, ...] = ()  # arms, or values of axes, that this scale has not

    @property
    def length(self) -> str:
        """By what arms are equal; empty where each arm or its recipe says its own epochs."""
        return next((name for name in LENGTHS if getattr(self, name) is not None), "")

    @model_validator(mode="after")
    def _one_length(self) -> Scale:
        if sum(getattr(self, name) is not None for name in LENGTHS) > 1:
            raise ValueError("give one of cpu_seconds, epochs and steps")
        return self


class Claim(Section):
    """A published sentence as a check. Differences are in points of accuracy, or in units of `on`."""

    claim: str = ""  # its number among those of the papers (studies/claims.toml); empty: the study's own
    part: bool = False  # of that claim, which says more: alone it may refute the claim, and not show it
    says: str
    on: str = "accuracy"  # or one of the study's measures
    better: tuple[Pair, ...] = ()  # each first is above its second by more than `by`
    tie: tuple[Pair, ...] = ()  # each two are within `within` of each other
    more: tuple[tuple[Pair, Pair], ...] = ()  # the first pair differs by more than the second, by more than `by`
    error_ratio: tuple[Pair, ...] = ()  # the errors of each first are at least `by` times those of its second
    above: tuple[str, ...] = ()  # each is above `by`
    by: float = 0.0
    within: Annotated[float, Field(gt=0)] = 2.0
    published: str = ""
    setting: str = ""  # what a comparable setting is, where it is not that of the study's paper scale

    @model_validator(mode="after")
    def _something(self) -> Claim:
        if not (self.better or self.tie or self.more or self.error_ratio or self.above):
            raise ValueError("a claim needs one of better, tie, more, error_ratio and above")
        return self

    @property
    def arms(self) -> list[str]:
        pairs = [*self.better, *self.tie, *self.error_ratio, *(pair for two in self.more for pair in two)]
        return list(dict.fromkeys([*(name for pair in pairs for name in pair), *self.above]))


class Study(Section):
    title: str
    source: str = ""  # what was published, and where
    question: str = ""
    notes: str = ""
    needs: str = ""  # what the paper's scale takes: data, hardware
    epochs_published: Annotated[int, Field(ge=1)] | None = None
    epochs_first_published: Annotated[int, Field(ge=1)] | None = None  # of what is trained first
    scales: dict[ScaleName, Scale]
    arms: dict[str, Table]
    axes: dict[str, dict[str, Table]] = Field(default_factory=dict)
    x: str = ""  # the axis along which accuracy is drawn, its labels numbers
    compare: tuple[Pair, ...] = ()
    reuse: dict[str, str] = Field(default_factory=dict)  # arm -> another study whose runs of it count here, too
    published: dict[str, float] = Field(default_factory=dict)
    # name -> what a diagnosis finds: "locality.near", "locality.entropy[-1] - locality.entropy[0]" (studies/measured.py)
    measures: dict[str, str] = Field(default_factory=dict)
    # arm -> the arm whose run of the same seed its layers are compared with
    against: dict[str, str] = Field(default_factory=dict)
    claims: tuple[Claim, ...] = ()

    @model_validator(mode="before")
    @classmethod
    def _one_scale(cls, tree: Any) -> Any:
        """A file without scales has one, a laptop's, whose keys may stand at its top."""
        if not isinstance(tree, Mapping) or "scales" in tree:
            return tree
        own = {key: tree[key] for key in Scale.model_fields if key in tree}
        return {key: value for key, value in tree.items() if key not in own} | {"scales": {"laptop": own}}

    @model_validator(mode="after")
    def _known_names(self) -> Study:
        if not self.arms:
            raise ValueError("a study needs arms")
        labels = [*self.arms, *(label for values in self.axes.values() for label in values)]
        if parted := [label for label in labels if BETWEEN in label]:
            raise ValueError(
                f"the name {parted[0]!r} has a comma and a blank in it, which part arms from values of axes"
            )
        tables = [
            *self.arms.items(),
            *((f"{axis} {label}", v) for axis, values in self.axes.items() for label, v in values.items()),
        ]
        tables += [("shared", scale.shared) for scale in self.scales.values()]
        for name, table in tables:
            if other := [key for key in NOT_OF_AN_ARM if key in _keys(table)]:
                raise ValueError(f"{name}: {other[0]} is no key of an arm: {NOT_OF_AN_ARM[other[0]]}")
            if unknown := sorted(_keys(table) - STAGE_KEYS - set(SCALES)):
                raise ValueError(f"{name}: unknown key {unknown[0]!r}: keys are {', '.join(sorted(STAGE_KEYS))}")
            for part in (table, *(table[scale] for scale in SCALES if isinstance(table.get(scale), Mapping))):
                if not isinstance(part.get("settings", {}), Mapping):
                    raise ValueError(
                        f"{name}: settings = {part['settings']!r}: should be a table of keys of the recipe"
                    )
                if not isinstance(part.get("first", {}), Mapping):
                    raise ValueError(f"{name}: first = {part['first']!r}: should be a table of what is trained first")
        self._check_named_arms()
        if unknown := [claim.on for claim in self.claims if claim.on not in ("accuracy", *self.measures)]:
            raise ValueError(f"claims: on = {unknown[0]!r}: should be accuracy or a measure of the study")
        for text in self.measures.values():
            parse(text)
        if self.x and self.x not in self.axes:
            raise ValueError(f"x = {self.x!r} is no axis: {', '.join(self.axes)}")
        if wordy := [label for label in self.axes.get(self.x, {}) if not NUMBERED.match(label)]:
            raise ValueError(
                f"x = {self.x!r}: the label {wordy[0]!r} does not begin with a number, and has no place to be drawn at"
            )
        return self

    def _check_named_arms(self) -> None:
        """An arm without values of the axes stands for all of them where two are compared; elsewhere one arm is meant."""
        crossed = self.crossed
        mixed = [pair for pair in self.compare if not all(name in self.arms for name in pair)]
        exact = [name for pair in [*mixed, *(claim.arms for claim in self.claims)] for name in pair]
        exact += [*self.published, *self.reuse]
        either = [name for pair in [*self.compare, *self.against.items()] for name in pair]
        if unknown := [name for name in [*either, *exact] if name not in crossed and name not in self.arms]:
            raise ValueError(f"{unknown[0]!r} is no arm: {', '.join(crossed)}")
        if bare := [name for name in exact if name not in crossed]:
            choices = [repr(name) for name in crossed if name.split(BETWEEN)[0] == bare[0]]
            raise ValueError(f"{bare[0]!r} lacks its {' and '.join(self.axes)}: should be {' or '.join(choices)}")

    @property
    def crossed(self) -> dict[str, list[Table]]:
        """Every arm with every combination of the values of the axes -> what it is asked for, one table on the other."""
        found = {}
        for arm, table in self.arms.items():
            for values in product(*(axis.items() for axis in self.axes.values())):
                found[BETWEEN.join([arm, *(label for label, _ in values)])] = [table, *(one for _, one in values)]
        return found

    def asked(self, scale: ScaleName) -> dict[str, Table]:
        """Arm -> the keys it is asked for at this scale, without what all share."""
        left_out = self.scales[scale].left_out
        return {
            name: merged(*(at_scale(table, scale) for table in tables))
            for name, tables in self.crossed.items()
            if not {name, *name.split(BETWEEN)} & {*left_out}
        }

    def runs(self, scale: ScaleName) -> int:
        own = self.scales[scale]
        return len(self.asked(scale)) * own.seeds * own.draws

    def hours(self, scale: ScaleName) -> float | None:
        """Processor time of all of it: as its file says, or what all runs are given to train. None where neither tells."""
        own = self.scales[scale]
        if own.cpu_hours is not None or own.cpu_seconds is None:
            return own.cpu_hours
        return round(own.cpu_seconds * self.runs(scale) / 3600, 2)

    def takes(self, scale: ScaleName) -> str:
        """How long it is, in words; empty where nobody knows."""
        hours = self.hours(scale)
        return self.scales[scale].time or (f"about {hours:g} CPU-hour{'s' * (hours != 1)}" if hours else "")

    def pairs(self, scale: ScaleName) -> list[Pair]:
        """What is compared: arms that are named without axes are compared at every combination of their values."""
        found = []
        for first, second in self.compare:
            if self.axes and first in self.arms and second in self.arms:
                ends = [BETWEEN.join(["", *labels]) for labels in product(*self.axes.values())]
                found += [(first + end, second + end) for end in ends]
            else:
                found.append((first, second))
        known = self.asked(scale)
        return [pair for pair in found if pair[0] in known and pair[1] in known]


def _keys(table: Mapping[str, Any]) -> set[str]:
    inner = [table[key] for key in (*SCALES, "first") if isinstance(table.get(key), Mapping)]
    return set(table).union(*(_keys(one) for one in inner))


def at_scale(table: Table, scale: ScaleName) -> Table:
    """Without the tables of scales; what this scale says lies on top."""
    plain = {key: value for key, value in table.items() if key not in SCALES}
    found = merged(plain, table.get(scale, {}))
    if isinstance(found.get("first"), Mapping):
        found["first"] = at_scale(found["first"], scale)
    return found


def merged(*tables: Table) -> Table:
    """One on top of the other; settings are joined key by key, and so is what is trained first."""
    found: Table = {}
    for table in tables:
        both = {
            key: merged(found[key], table[key])
            for key in ("settings", "first")
            if isinstance(found.get(key), Mapping) and isinstance(table.get(key), Mapping)
        }
        found |= {**table, **both}
    return found


def stages(shared: Table, asked: Table) -> list[Table]:
    """What `smallvit.train` is asked for, one stage after the other; `share` is what each takes of the time."""
    return list(_stages(merged(shared, asked), 1.0))


def _stages(table: Table, share: float) -> Iterator[Table]:
    own = {key: value for key, value in table.items() if key != "first"}
    first = table.get("first")
    if first is None:
        yield own | {"share": share}
        return
    taken = share * first.get("share", 0.5)
    other_images = first.get("data", own.get("data")) != own.get("data")
    below = {key: own[key] for key in HANDED_DOWN if key in own and not (other_images and key in AMOUNTS)}
    if settings := {
        key: value for key, value in own.get("settings", {}).items() if key.startswith(("model.", "data."))
    }:
        below["settings"] = settings
    yield from _stages(merged(below, {key: value for key, value in first.items() if key != "share"}), taken)
    yield own | {"share": share - taken}

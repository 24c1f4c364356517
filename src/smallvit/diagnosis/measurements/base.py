"""What a measurement declares, and how all of them are found."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import smallvit.diagnosis.measurements
from smallvit.diagnosis.findings import Finding
from smallvit.runs.stored_findings import StoredFinding

if TYPE_CHECKING:
    from smallvit.diagnosis.inputs import Inputs

SHOWN = 6  # images whose attention and feature maps are kept

Findings = Mapping[str, Finding]  # by name: all of one model
StoredFindings = Mapping[str, StoredFinding]


class Said(NamedTuple):
    """`clause` has the number; `advice` is what it means and what to do."""

    clause: str
    advice: str
    weight: float

    @property
    def sentence(self) -> str:
        return f"{self.clause[0].upper()}{self.clause[1:]}: {self.advice}."


class Canvas(NamedTuple):
    """Where a panel is drawn: the colour of the run, what its model is called, and how many bytes all its images may take."""

    series: int
    model: str
    image_bytes: int


class Panel(NamedTuple):
    """A part of the page. Panels of one heading that follow each other stand under it together."""

    place: int  # on the page; smaller is further up
    heading: str
    words: str = ""
    figures: tuple[tuple[str, str], ...] = ()  # caption and SVG
    legend: tuple[tuple[str, str], ...] = ()  # attributes of the mark, which must be safe, and its words
    piece: str = "figures"  # NAME.html.j2 beside the measurements
    values: Mapping[str, Any] = {}  # what another piece than `figures` needs
    by_script: bool = False  # whether the page's script draws it


class Measurement:
    """Abstract. A final subclass has a name and a place, and overrides what it has something to give for."""

    name: ClassVar[str]  # of the finding, and of its files in the run folder
    place: ClassVar[int]  # when it is measured; of findings that weigh the same, the earlier comes first
    label: ClassVar[str]  # while it is measured, and where it cannot be

    def measure(self, inputs: Inputs) -> Finding | None:
        """None where the model has nothing to show for it: a CNN has no heads, a ViT without a table no positions."""
        raise NotImplementedError(f"{type(self).__name__} measures nothing")

    def say(self, findings: Findings) -> Said | None:
        """The sentence, where all numbers together bear it out; its own finding is among them."""
        return None

    def sign(self, finding: Finding) -> str:
        """What it shows of too little training, told where the model under-fits and only there; empty: nothing."""
        return ""

    def measured_on(self, findings: StoredFindings) -> str:
        """What the page says above all panels of the images that were measured."""
        return ""

    def panel(self, findings: StoredFindings, canvas: Canvas) -> Panel | None:
        """What the page shows of it, from what was stored; its own finding is among them."""
        return None


@cache
def measurements() -> tuple[Measurement, ...]:
    """Everything that is declared, in the order in which it is measured."""
    package = smallvit.diagnosis.measurements
    for module in pkgutil.iter_modules(package.__path__):
        importlib.import_module(f"{package.__name__}.{module.name}")
    declared = [kind() for kind in _below(Measurement) if "name" in vars(kind)]
    return tuple(sorted(declared, key=lambda measurement: measurement.place))


def _below(kind: type[Measurement]) -> Iterator[type[Measurement]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _below(subclass)

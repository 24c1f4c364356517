"""Which study to run next: what each would cost at laptop scale, and which claims of the papers it would say something of."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from smallvit.studies.claims import Gathered
from smallvit.studies.library import read_study, study_names
from smallvit.studies.record import read_record
from smallvit.studies.spec import Study, stages

SETTLED = ("fails", "holds", "direction seen at laptop scale")  # words after which no run at laptop scale is needed


class Waiting(NamedTuple):
    study: str
    cpu_hours: float | None  # None where nobody has measured it: its images were not at hand
    runs: int
    stored: int  # runs that its stored record has
    open: tuple[str, ...]  # claims that it checks, and that no stored record has settled
    settled: tuple[str, ...]
    sets: tuple[str, ...]  # images that it asks for by name

    @property
    def command(self) -> str:
        given = [f"--data {name}=SOURCE" for name in self.sets] or ["--data SOURCE"]
        return " ".join([f"smallvit study run {self.study} --scale laptop", *given])

    @property
    def rank(self) -> tuple[bool, float, float]:
        """Those that were not run yet; of them the most open claims for an hour first, then the cheapest."""
        hours = self.cpu_hours or 1e6
        return (self.stored >= self.runs, -len(self.open) / hours, hours)


def queue(found: Sequence[Gathered], results: Path) -> list[Waiting]:
    """`found`: the claims as the records in `results` have them."""
    words = {one.claim.number: one.word for one in found}
    waiting = []
    for name in study_names():
        study = read_study(name)
        if "laptop" not in study.scales:
            continue
        arms = study.asked("laptop")
        can = [claim.claim for claim in study.claims if claim.claim and {*claim.arms} <= arms.keys()]
        numbers = tuple(dict.fromkeys(can))
        waiting.append(
            Waiting(
                name, study.hours("laptop"), study.runs("laptop"), _stored(results / f"{name}.json"),
                tuple(number for number in numbers if words[number] not in SETTLED),
                tuple(number for number in numbers if words[number] in SETTLED), _sets(study),
            )
        )  # fmt: skip
    return sorted(waiting, key=lambda one: one.rank)


def _stored(file: Path) -> int:
    return len(read_record(file).runs) if file.is_file() else 0


def _sets(study: Study) -> tuple[str, ...]:
    own = study.scales["laptop"]
    each = [stage for asked in study.asked("laptop").values() for stage in stages(own.shared, asked)]
    return tuple(dict.fromkeys(stage["data"] for stage in each if "data" in stage))


def queue_table(waiting: Sequence[Waiting]) -> str:
    lines = ["| study | CPU-hours | runs | stored | open claims | settled | images |", "|---|---|---|---|---|---|---|"]
    for one in waiting:
        cost = "not measured" if one.cpu_hours is None else f"{one.cpu_hours:g}"
        lists = (", ".join(names) for names in (one.open, one.settled, one.sets))
        cells = (one.study, cost, str(one.runs), str(one.stored), *lists)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def queue_json(waiting: Sequence[Waiting]) -> str:
    rows: list[dict[str, Any]] = [{**one._asdict(), "command": one.command} for one in waiting]
    return json.dumps(rows, indent=1)

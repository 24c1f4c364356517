"""What a study has found as plain text: tables in Markdown, for the terminal and for pages in docs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import NamedTuple

from smallvit.console import several
from smallvit.evaluation.statistics import mean_interval, wilson
from smallvit.runs.axes import means_over_images, once_for_its_images
from smallvit.studies.differences import Difference, Test, differences, mean_seconds
from smallvit.studies.record import ArmFacts, Opened, Record
from smallvit.studies.spec import BETWEEN, Study
from smallvit.studies.statuses import Status, statuses

UNEQUAL = 0.05  # of processor time between the arms of a study at equal time: told from here


class ArmRow(NamedTuple):
    """An arm that has runs. Percent; the interval is t over seeds or draws, of test images (Wilson's) where there is one run."""

    arm: str
    n: int  # runs
    accuracy: tuple[float, ...]  # of each run
    mean: float
    low: float
    high: float
    published: float  # NaN: nothing
    epochs: str
    cpu_seconds: float
    parameters: int
    train_images: int | None

    @property
    def ours(self) -> str:
        return f"{self.mean:.1f} ({self.low:.1f} to {self.high:.1f})"


def arm_rows(study: Study, record: Record) -> list[ArmRow]:
    arms = [*study.asked(record.scale), *(arm for arm in record.arms if arm not in study.asked(record.scale))]
    return [_row(study, record, arm) for arm in arms if record.of(arm)]


def _row(study: Study, record: Record, arm: str) -> ArmRow:
    by_place, facts = record.of(arm), record.arms.get(arm)
    accuracy = {place: 100 * run.accuracy for place, run in by_place.items()}
    runs = list(by_place.values())
    mean, low, high = mean_interval(means_over_images(accuracy)[0])
    if len(runs) == 1:
        n = record.tests_of(runs[0])
        low, high = (100 * end for end in wilson(runs[0].accuracy * n, n))
    low, high = max(0.0, low), min(100.0, high)
    return ArmRow(
        arm, len(runs), tuple(accuracy.values()), mean, low, high, study.published.get(arm, math.nan), _epochs(facts),
        mean_seconds(runs), runs[0].parameters,
        runs[0].train_images or (facts.train_images if facts else None) or record.train_images,
    )  # fmt: skip


def _epochs(facts: ArmFacts | None) -> str:
    return " + ".join(str(stage.epochs) for stage in facts.stages) if facts else ""


def floor_rows(record: Record) -> list[tuple[str, float]]:
    """Label and percent of every floor; where arms have other images, with what the names of those arms share."""
    groups: dict[str, list[str]] = {}
    for arm in record.arms:
        if floors := record.floors_of(arm):
            groups.setdefault(json.dumps(floors, sort_keys=True), []).append(arm)
    found = []
    for text, arms in groups.items():
        shared = [part for part in arms[0].split(BETWEEN)[1:] if all(part in arm.split(BETWEEN) for arm in arms)]
        of = f" of {BETWEEN.join(shared) or arms[0]}" if len(groups) > 1 else ""
        for floor in json.loads(text).values():
            if floor.get("accuracy") is not None:
                fitted = f" ({floor['why']})" if "images" in floor.get("why", "") else ""
                found.append((f"{floor['label']}{of}{fitted}", 100 * floor["accuracy"]))
    return found


def counted(record: Record) -> str:
    """What intervals are over: seeds, or draws of the training images where there are several."""
    return f"{once_for_its_images({place: None for arm in record.arms for place in record.of(arm)})[1]}s"


def length_words(record: Record) -> str:
    if record.cpu_seconds:
        return f"as many epochs as {record.cpu_seconds:g} s of processor time are worth by the cost of a step"
    if record.epochs:
        return f"{several(record.epochs, 'epoch')} each"
    return f"{record.steps:,} steps each" if record.steps else "epochs as the recipe of each arm has them"


def about(opened: Opened) -> str:
    record = opened.record
    runs = record.runs.values()
    tests = sorted({record.tests_of(run) for run in runs})
    cpu, threads = record.machine.get("cpu", "unknown"), record.machine.get("threads")
    return (
        f"{len(record.runs)} runs, {record.scale} scale, {length_words(record)}; {_among(tests)} test images; "
        f"{cpu}{f', {threads} thread' + 's' * (threads != 1) if threads else ''}, {record.date}."
    )


def _among(values: Sequence[int]) -> str:
    return "no" if not values else f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"


def unequal_time(record: Record, rows: Sequence[ArmRow]) -> str:
    """Said where arms of equal time had unequal ones in the end."""
    spent = [row for row in rows if row.cpu_seconds]
    if not record.cpu_seconds or len(spent) < 2:
        return ""
    least, most = min(spent, key=lambda row: row.cpu_seconds), max(spent, key=lambda row: row.cpu_seconds)
    if most.cpu_seconds / least.cpu_seconds - 1 <= UNEQUAL:
        return ""
    return (
        f"The time was not quite equal: {least.arm} took {least.cpu_seconds:.0f} s, {most.arm} {most.cpu_seconds:.0f} s, "
        "start and judging included."
    )


def markdown(opened: Opened) -> str:
    study, record = opened.study, opened.record
    rows, compared = arm_rows(study, record), differences(study, record)
    lines = [f"{record.title}. {about(opened)}", ""]
    if unequal := unequal_time(record, rows):
        lines += [unequal, ""]
    lines += _claims_table(statuses(study, record, compared))
    lines += [
        "| arm | published, % | ours, % (95 %) | n | epochs | CPU s | parameters |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        theirs = "" if math.isnan(row.published) else f"{row.published:.1f}"
        lines.append(
            f"| {row.arm} | {theirs} | {row.ours} | {row.n} | {row.epochs} | {row.cpu_seconds:.0f} | {row.parameters:,} |"
        )
    lines += [f"| *{label}* | | {value:.1f} | | | | |" for label, value in floor_rows(record)]
    lines += _difference_table(compared, counted(record))
    if record.failed:
        lines += ["", "Failed:", *(f"- {name}: {why}" for name, why in record.failed.items())]
    return "\n".join(lines)


def _claims_table(found: Sequence[Status]) -> list[str]:
    if not found:
        return []
    rows = [
        f"| {one.claim.claim} | {one.claim.says} | {one.claim.published} | **{one.word}** | {one.why} |"
        for one in found
    ]
    return ["| | claim | published | status | what was seen |", "|---|---|---|---|---|", *rows, ""]


def _difference_table(found: dict[Test, Difference], over: str) -> list[str]:
    if not found:
        return []
    lines = [
        "",
        f"| difference | n | points (95 %, t) | 95 % over {over} and test images | p | Holm's p |",
        "|---|---|---|---|---|---|",
    ]
    for one in found.values():
        images = f"{one.images[0]:+.1f} to {one.images[1]:+.1f}" if one.images else ""
        what = one.test.words if one.test.on == "accuracy" else f"{one.test.on}: {one.test.words}"
        lines.append(
            f"| {what} | {one.n} {one.word}s | {one.mean:+.2f} ({one.low:+.2f} to {one.high:+.2f}) | {images} "
            f"| {_p(one.p)} | {_p(one.corrected)} |"
        )
    return lines


def _p(p: float) -> str:
    return f"{p:.3f}" if p >= 0.001 else "< 0.001"

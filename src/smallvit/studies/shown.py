"""What a study would train, in words. Needs no torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smallvit.console import several
from smallvit.errors import UsageError
from smallvit.studies.library import read_study
from smallvit.studies.spec import SCALES, Scale, Study, Table, stages


def shown(name: str | Path, scale: Any = "laptop") -> str:
    study = read_study(name)
    if scale not in SCALES:
        raise UsageError(f"--scale {scale}: choices: {', '.join(SCALES)}")
    if scale not in study.scales:
        raise UsageError(f"--scale {scale}: {name} has {' and '.join(study.scales)}")
    own = study.scales[scale]
    lines = [study.title]
    lines += [text for text in (study.source, study.question, study.notes) if text]
    if scale == "paper" and study.needs:
        lines.append(f"needs: {study.needs}")
    draws = f", {own.draws} draws of the training images" if own.draws > 1 else ""
    lines += [
        "",
        f"{scale} scale: {_length(own)}, {several(own.seeds, 'seed')}{draws}{f'; takes {takes}' if (takes := study.takes(scale)) else ''}",
    ]
    for arm, asked in study.asked(scale).items():
        theirs = f" (published {study.published[arm]:g})" if arm in study.published else ""
        lines.append(f"  {arm}{theirs}")
        lines += [f"    {line}" for line in _stage_lines(own, stages(own.shared, asked))]
    lines += _compared(study, scale)
    return "\n".join(lines)


def _length(scale: Scale) -> str:
    if scale.cpu_seconds:
        return f"{scale.cpu_seconds:g} s of processor time for each run"
    if scale.steps:
        return f"{scale.steps:,} steps for each run"
    return (
        f"{several(scale.epochs, 'epoch')} for each run"
        if scale.epochs
        else "epochs as each arm or its recipe has them"
    )


def _stage_lines(scale: Scale, own: list[Table]) -> list[str]:
    found = []
    for number, stage in enumerate(own):
        time = f"{scale.cpu_seconds * stage['share']:.0f} s: " if scale.cpu_seconds and len(own) > 1 else ""
        said = ", ".join(f"{key} = {value}" for key, value in stage.items() if key != "share")
        found.append(f"{'then ' if number else ''}{time}{said or 'the default'}")
    return found


def _compared(study: Study, scale: Any) -> list[str]:
    lines = [""] + [f"compares {first} with {second}" for first, second in study.pairs(scale)]
    for claim in study.claims:
        theirs = f" (published: {claim.published})" if claim.published else ""
        lines.append(f"claim {claim.claim or '-'}: {claim.says}{theirs}")
    return lines

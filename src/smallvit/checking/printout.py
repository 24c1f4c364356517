"""A check in the terminal: the verdict first, then what is wrong, then what there is and what it would take."""

from __future__ import annotations

from typing import Any

from smallvit.checking.check import CheckReport
from smallvit.checking.rules import Problem
from smallvit.console import duration, printable, several
from smallvit.planning.explanation import first_lines

MOST_FILES = 5
MOST_CLASSES = 12
STYLES = {"error": "bold red", "warning": "yellow", "note": "dim"}


def show_report(report: CheckReport) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)

    def line(text: str = "", style: str | None = None) -> None:
        console.print(printable(text), style=style, markup=False)

    line(verdict(report), "bold red" if not report.ok else "bold green")
    for problem in report.problems:
        _show_problem(problem, line)
    if report.facts:
        line()
        for text in fact_lines(report.facts):
            line(text)
        _show_classes(console, report.facts["classes"])
    if report.recipe:
        line("what smallvit train would choose:")
        for text in first_lines(report.choices):
            line(f"  {text}", "dim")
    if report.seconds is not None:
        t = report.timing
        line(
            f"training takes about {duration(report.seconds)} on this machine: {several(round(t['epochs']), 'epoch')} of "
            f"{several(round(t['steps_an_epoch']), 'step')}, {1000 * t['step']:.0f} ms each"
        )


def verdict(report: CheckReport) -> str:
    counts = {
        severity: sum(problem.severity == severity for problem in report.problems)
        for severity in ("error", "warning", "note")
    }
    counted = ", ".join(several(count, name) for name, count in counts.items() if count)
    if not report.ok:
        return f"{report.source}: {counted}. Fix the errors first: they spoil the result, or stop the training."
    if counts["warning"]:
        return f"{report.source}: {counted}. It can be trained on; the warnings cost accuracy or certainty."
    return f"{report.source}: fit for training{f' ({counted})' if counted else ''}."


def _show_problem(problem: Problem, line: Any) -> None:
    line()
    line(f"{problem.severity} {problem.code}: {problem.message}.", STYLES[problem.severity])
    for name in problem.files[:MOST_FILES]:
        line(f"    {name}")
    if (more := len(problem.files) - MOST_FILES) > 0:
        line(f"    and {more:,} more (--json names all)")
    line(f"  {problem.advice}")


def fact_lines(facts: dict[str, Any]) -> list[str]:
    parts = ", ".join(f"{count:,} {name}" for name, count in facts["parts"].items())
    channels = facts["channels"]
    lines = [
        f"{several(facts['images'], 'image')}, {several(len(facts['classes']), 'class')}{f': {parts}' if parts else ''}"
    ]
    if files := facts.get("files"):
        side = files["shorter_side"]
        formats = ", ".join(f"{count:,} {suffix}" for suffix, count in files["formats"].items())
        lines.append(
            f"{files['bytes'] / 1e6:,.1f} MB in {several(files['count'], 'file')} ({formats}); "
            f"shorter sides {side['min']} to {side['max']} px, half at most {side['median']}"
        )
    lines.append(f"decoded to {facts['decoded_side']} px with {several(channels, 'channel')}")
    return lines


def _show_classes(console: Any, classes: dict[str, dict[str, int]]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    columns = list(next(iter(classes.values())))
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("class", *columns):
        table.add_column(heading, justify="left" if heading == "class" else "right")
    ordered = sorted(classes.items(), key=lambda item: -item[1]["all"])
    half = MOST_CLASSES // 2
    shown = ordered if len(ordered) <= MOST_CLASSES else [*ordered[:half], None, *ordered[-half:]]
    for entry in shown:
        if entry is None:
            table.add_row(f"({len(ordered) - 2 * half} more)", *("..." for _ in columns))
        else:
            table.add_row(Text(printable(entry[0])), *(f"{entry[1][part]:,}" for part in columns))
    console.print(table)

"""A plan in the terminal: the levers of the default as a table (a few lines each where there is no room for one), then the
rest, a line each.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from smallvit.console import duration, printable, several, warn
from smallvit.planning.explanation import Line
from smallvit.planning.forecast import Forecast
from smallvit.planning.plan import Plan, headline, to_beat

if TYPE_CHECKING:
    from rich.console import Console

ROOM = 120  # columns of the terminal from which a table is readable


def show_explanation(plan: Plan, expected: Forecast) -> None:
    """On standard output; what will spoil the result goes where all notes go."""
    from rich.console import Console

    console = Console(highlight=False)

    def say(text: str, **how: Any) -> None:
        console.print(printable(text), markup=False, soft_wrap=True, **how)

    explained = plan.explained
    say(headline(plan))
    for title, switch, lines in (
        ("chosen", "to change it", [line for line in explained.chosen if line.is_lever]),
        ("left out", "to use it", explained.left_out),
    ):
        if lines:
            say(f"\n{title}", style="bold")
            _show(console, lines, switch)
    say("\nall else (to change it: --set KEY=VALUE, or its flag)", style="bold")
    for line in (line for line in explained.chosen if not line.is_lever):
        flag = "" if line.switch.startswith("--set") else f"; {line.switch}"
        _indented(console, f"{_what(line)}  ({line.why}{flag})")
    if any(line.brings for line in (*explained.chosen, *explained.left_out)):
        say("\npoints: accuracy with it less without it, as measured elsewhere; yours will differ")
    say(in_words(expected))
    if plan.floors:
        say(to_beat(plan))
    for caution in plan.cautions:
        warn(caution)


def in_words(expected: Forecast) -> str:
    counted = f"{several(expected.steps, 'step')} of {1000 * expected.step_seconds:.0f} ms, {several(expected.epochs, 'epoch')}"
    if expected.within_budget:
        return f"expected: {duration(expected.seconds)} for the whole command, {counted}"
    before = f", without {' and '.join(expected.before)} before it" if expected.before else ""
    return f"expected: about {duration(expected.seconds)} on this machine{before}, {counted}"


def _show(console: Console, lines: Sequence[Line], switch: str) -> None:
    if console.width >= ROOM:
        console.print(_table(lines, switch))
        return
    for line in lines:
        _stack(console, line, switch)


def _what(line: Line) -> str:
    return f"{line.what} = {line.value}" if line.value else line.what


def _table(lines: Sequence[Line], switch: str) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD)
    columns = zip(*((_what(line), line.why, line.brings, line.switch) for line in lines), strict=True)
    for heading, column in zip(("what", "why", "expected to bring", switch), columns, strict=True):
        # Words are not broken: what is typed can be copied.
        longest = max(len(word) for cell in (heading, *column) for word in cell.split() or [""])
        table.add_column(heading, min_width=min(longest, ROOM // 4), ratio=1, overflow="fold")
    for line in lines:
        # A name of the user's is no markup, and no command to the terminal.
        table.add_row(*(Text(printable(cell)) for cell in (_what(line), line.why, line.brings, line.switch)))
    return table


def _stack(console: Console, line: Line, switch: str) -> None:
    from rich.text import Text

    console.print(Text(printable(_what(line)), style="bold"))
    for name, text in (("why", line.why), ("expected to bring", line.brings), (switch, line.switch)):
        if text:
            _indented(console, f"{name}: {text}".replace("\n", "\n  "))


def _indented(console: Console, text: str) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print(Padding(Text(printable(text)), (0, 0, 0, 2)))

"""The tables of docs/reliability.md, from what is stored: python benchmarks/reliability/page.py writes them into the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from storing import PROJECT, stored

PAGE = PROJECT / "docs" / "reliability.md"


def table(headings: list[str], rows: list[list[Any]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def pieces() -> Iterator[tuple[str, str]]:
    if found := stored("bad-images"):
        used, listed, other = 0, 0, 0
        for kinds in found["by_kind"].values():
            used, listed = used + kinds.get("used", 0), listed + kinds.get("listed", 0)
            other += sum(count for name, count in kinds.items() if name not in ("used", "listed"))
        yield (
            "bad images, read",
            table(["files", "used", "listed with a reason", "anything else"], [[found["files"], used, listed, other]]),
        )
        rows = [
            [name, one["status"], "yes" if one["crashed"] else "no", one.get("listed", "")]
            for name, one in found["commands"].items()
        ]
        if rows:
            yield "bad images, commands", table(["command", "exit status", "crashed", "files left out"], rows)
    for source in ("fuzzing", "guided"):
        if not (found := stored(source)):
            continue
        rows = [
            [
                name,
                f"{one['cases']:,}",
                f"{one['accepted']:,}",
                f"{one['refused']:,}",
                sum(count for count, _ in one["wrong"].values()),
                f"{one['slowest']:.1f} s",
            ]
            for name, one in found["readers"].items()
        ]
        yield (
            source,
            table(["reader", "cases", "accepted", "refused with a reason", "anything else", "slowest"], rows),
        )
    if found := stored("hostile"):
        yield "hostile", table(["case", "outcome"], [list(pair) for pair in found["cases"].items()])
    for name in ("at-once", "disks"):
        if found := stored(name):
            yield (
                name,
                table(
                    ["case", "times", "went wrong"],
                    [[case, one["times"], len(one["problems"])] for case, one in found["cases"].items()],
                ),
            )
    if found := stored("kills"):
        keys = ("runs", "kills", "twice", "resumed", "same", "left", "torn")
        rows = [[kind, *(one[key] for key in keys)] for kind, one in found["kinds"].items()]
        rows.append(["all", *(sum(row[place] for row in rows) for place in range(1, 1 + len(keys)))])
        headings = [
            "kind",
            "runs",
            "kills",
            "killed twice",
            "resumed",
            "bit-identical",
            "files left over",
            "files not whole",
        ]
        yield "kills", table(headings, rows)
    if found := stored("dying"):
        rows = [
            [memory, len(times), sum(seconds > 0 for seconds in times), f"{min(times):.2f} to {max(times):.2f}"]
            for memory, times in found["held"].items()
        ]
        yield "dying", table(["memory of the process, MB", "kills", "still held at once", "for seconds"], rows)
    for where in ("one process", "group"):
        if found := stored("soak").get(where):
            each = soaked(found, "") | soaked(found.get("second half", {}), ", second half")
            rows = [
                [name, one["first"], one["last"], one["most"], one["each"], "{} to {}".format(*one["interval"])]
                for name, one in each.items()
            ]
            headings = ["held", "first", "last", "most", "each training adds", "95 % interval"]
            yield f"soak, {where}", table(headings, rows)
    if found := stored("load"):
        rows = [
            [size, name, one["status"], one["cpu"], one["memory MB"]]
            for size, commands in found["sizes"].items()
            for name, one in commands.items()
        ]
        yield "load", table(["size", "command", "exit status", "processor seconds", "memory MB"], rows)


def soaked(found: dict[str, Any], when: str) -> dict[str, Any]:
    """The slopes under the names of their rows; of the second half what moves at all."""
    held = {f"{name}, after a collection": one for name, one in found.get("held", {}).items()}
    rows = {**found.get("slopes", {}), **held}
    return {f"{name}{when}": one for name, one in rows.items() if not when or one["each"]}


def renewed(text: str) -> str:
    """The page with the tables of what is stored, each below the comment that names it."""
    for name, rows in pieces():
        place = re.compile(rf"(<!-- {re.escape(name)} -->\n)(?:\n(?:\|[^\n]*\n)+)?")
        if not place.search(text):
            raise SystemExit(f"{PAGE.name} has no place for <!-- {name} -->")
        text = place.sub(lambda found, rows=rows: f"{found[1]}\n{rows}\n", text)  # type: ignore[misc]
    return text


def main() -> None:
    PAGE.write_text(renewed(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

"""The tables of docs/reliability.md, from what is stored: python benchmarks/reliability/page.py prints them as Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from storing import stored

FLAT = "memory MB", "threads", "files", "processes"


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
        yield "bad images, commands", table(["command", "exit status", "crashed", "files left out"], rows)
    if found := stored("fuzzing"):
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
            "fuzzing",
            table(["reader", "cases", "accepted", "refused with a reason", "anything else", "slowest"], rows),
        )
    if found := stored("hostile"):
        yield "hostile files", table(["case", "outcome"], [list(pair) for pair in found["cases"].items()])
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
        keys = ("runs", "kills", "resumed", "same", "left")
        yield (
            "kills",
            table(
                ["kind", "runs", "kills", "resumed", "bit-identical", "files left over"],
                [[kind, *(one[key] for key in keys)] for kind, one in found["kinds"].items()],
            ),
        )
    if found := stored("soak").get("one process"):
        rows = [
            [
                name,
                found["slopes"][name]["first"],
                found["slopes"][name]["last"],
                found["slopes"][name]["each"],
                "{} to {}".format(*found["slopes"][name]["interval"]),
            ]
            for name in FLAT
        ]
        yield (
            f"soak, {found['trainings']} trainings in one process",
            table(["held", "first", "last", "each training adds", "95 % interval"], rows),
        )
    if found := stored("load"):
        rows = [
            [size, name, one["cpu"], one["memory MB"]]
            for size, commands in found["sizes"].items()
            for name, one in commands.items()
        ]
        yield "load", table(["size", "command", "processor seconds", "memory MB"], rows)


def main() -> None:
    for name, text in pieces():
        print(f"\n{name}\n\n{text}")


if __name__ == "__main__":
    main()

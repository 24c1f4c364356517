"""Where attention pays: the contest's `hybrid` less its default, the same family without attention, by images and time.

    python benchmarks/attention_page.py [--stores FILE ...] [--write docs/results.md]

Reads the stores of contest.py, whatever pairs of runs are there; a store is of one time. Runs of one seed are pairs: they differ in nothing
but the attention and what it costs, as both take the width that the rule of the default gives them in the time. From three seeds on a
difference has its 95 % interval (t over seeds); fewer are told one by one.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from contest_chart import SETS
from contest_page import Seeds, runs_of, show
from smallvit.evaluation.statistics import mean_interval

RESULTS = Path(__file__).resolve().parents[1] / "docs" / "results"
STORES = ["contest.json", "attention.json", "contest-900.json", "attention-900.json", "contest-3600.json"]
ROWS = ["first50", "cifar200", "cifar1000", "flowers"]
SIDES = {"flowers": 64}  # px, where it is not 32


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stores", type=Path, nargs="+", default=[RESULTS / name for name in STORES])
    parser.add_argument("--write", type=Path, help="a page with <!-- attention: begin --> and <!-- attention: end -->")
    given = parser.parse_args()
    show(table([json.loads(path.read_text()) for path in given.stores if path.is_file()]), given.write, "attention")


def table(records: list[dict[str, Any]]) -> str:
    """A row for each set, a column for each time."""
    cells: dict[str, dict[float, str]] = {name: {} for name in ROWS}
    heads: dict[str, str] = {}
    for record in records:
        found = runs_of(record)
        for name in ROWS:
            with_it, without = found.get("hybrid", {}).get(name, {}), found.get("default", {}).get(name, {})
            if seeds := sorted(set(with_it) & set(without)):
                cells[name][record["seconds"]] = cell(with_it, without, seeds)
                images = f"{record['sets'][name]['train']:,} images of {SIDES.get(name, 32)} px"
                heads[name] = f"{SETS[name]}, {images}"
    times = sorted({seconds for row in cells.values() for seconds in row})
    lines = [f"| attention, points | {' | '.join(f'{seconds / 60:g} min' for seconds in times)} |"]
    lines.append("|---" * (len(times) + 1) + "|")
    lines += [f"| {heads[name]} | {' | '.join(cells[name].get(at, '') for at in times)} |" for name in heads]
    return "\n".join(lines)


def cell(with_it: Seeds, without: Seeds, seeds: list[int]) -> str:
    points = [100 * (with_it[seed]["accuracy"] - without[seed]["accuracy"]) for seed in seeds]
    if len(points) < 3:
        return ", ".join(f"{value:+.1f}" for value in points)
    return "{:+.1f} ({:+.1f} to {:+.1f})".format(*mean_interval(points))


if __name__ == "__main__":
    main()

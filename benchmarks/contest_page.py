"""The contest as tables: docs/results/contest.json to Markdown, whatever rows are there.

    python benchmarks/contest_page.py [--store FILE] [--against default]
    python benchmarks/contest_page.py --write docs/results.md      between the marks of that page
    python benchmarks/contest_page.py --write docs/results.md --store docs/results/contest-900.json --mark contest-900

First what every entrant reaches on every set, then how far the default is from each of the others, then for each set with which settings, in
how many epochs and in what time. A mean has its 95 % interval (t over seeds) from three seeds on; fewer are told one by one. A difference has
two: over seeds alone, and over seeds and test images (bootstrap), which also covers other test images.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from contest_chart import ENTRANTS, SETS
from smallvit.evaluation.statistics import bootstrap_difference, mean_interval
from smallvit.runs.atomic import write_text

ROOT = Path(__file__).resolve().parents[1]

Seeds = dict[int, dict[str, Any]]  # the runs of an entrant on a set


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=ROOT / "docs" / "results" / "contest.json")
    parser.add_argument("--against", default="default", help="the entrant that the others are compared with")
    parser.add_argument("--write", type=Path, help="a page with <!-- MARK: begin --> and <!-- MARK: end -->")
    parser.add_argument("--mark", default="contest")
    given = parser.parse_args()
    page = tables(json.loads(given.store.read_text(encoding="utf-8")), given.against)
    show(page, given.write, given.mark)


def show(tables: str, page: Path | None, mark: str) -> None:
    """Print them, or write them anew between the marks of a page."""
    if page is None:
        print(tables)
        return
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    before, _, rest = page.read_text(encoding="utf-8").partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise SystemExit(f"{page} has no {begin} and {end}: put them where the tables are to stand")
    write_text(page, f"{before}{begin}\n\n{tables}\n\n{end}{after}")


def tables(record: dict[str, Any], against: str) -> str:
    """All of it, with what broke at the end."""
    found = runs_of(record)
    sets = [name for name in record["sets"] if any(name in by_set for by_set in found.values())]
    parts = [overview(record, found, sets), differences(found, sets, against)]
    parts += [details(record, found, name) for name in sets]
    parts += [f"Broke: {key}: {why}" for key, why in record["broken"].items()]
    return "\n\n".join(part for part in parts if part)


def runs_of(record: dict[str, Any]) -> dict[str, dict[str, Seeds]]:
    """By entrant, in the order of the picture, and by set."""
    found: dict[str, dict[str, Seeds]] = {}
    for key, run in record["runs"].items():
        entrant, name = key.split("/")[:2]
        found.setdefault(entrant, {}).setdefault(name, {})[run["seed"]] = run
    order = [*(name for name in ENTRANTS if name in found), *(name for name in found if name not in ENTRANTS)]
    return {entrant: found[entrant] for entrant in order}


def label_of(entrant: str) -> str:
    return ENTRANTS[entrant].label if entrant in ENTRANTS else entrant


def overview(record: dict[str, Any], found: dict[str, dict[str, Seeds]], sets: list[str]) -> str:
    heads = [f"{SETS.get(name, name)}, {record['sets'][name]['train']:,} images" for name in sets]
    lines = [f"| test accuracy, % | {' | '.join(heads)} |", "|---" * (len(sets) + 1) + "|"]
    for entrant, by_set in found.items():
        lines.append(f"| {label_of(entrant)} | {' | '.join(accuracy(by_set.get(name, {})) for name in sets)} |")
    floors = dict.fromkeys(label for name in sets for label in record["sets"][name].get("floors", {}))
    for label in floors:
        cells = (record["sets"][name].get("floors", {}).get(label) for name in sets)
        lines.append(f"| *{label}* | {' | '.join('' if cell is None else f'{100 * cell:.1f}' for cell in cells)} |")
    return "\n".join(lines)


def accuracy(seeds: Seeds) -> str:
    values = [100 * seeds[seed]["accuracy"] for seed in sorted(seeds)]
    if len(values) < 3:
        return ", ".join(f"{value:.1f}" for value in values)
    return "{:.1f} ({:.1f} to {:.1f})".format(*mean_interval(values))


def differences(found: dict[str, dict[str, Seeds]], sets: list[str], against: str) -> str:
    """The entrant less each of the others, over the seeds that both have."""
    own = found.get(against, {})
    others = [entrant for entrant in found if entrant != against]
    pairs = [(entrant, name) for entrant in others for name in sets if name in own and name in found[entrant]]
    if not pairs:
        return ""
    lines = [
        f"| {label_of(against)}, less | set | seeds | points (95 %, t over seeds) | 95 %, seeds and test images |",
        "|---|---|---|---|---|",
    ]
    for entrant, name in pairs:
        first, other = own[name], found[entrant][name]
        if both := sorted(set(first) & set(other)):
            lines.append(f"| {label_of(entrant)} | {name} | {len(both)} | {difference(first, other, both)} |")
    return "\n".join(lines)


def difference(first: Seeds, other: Seeds, seeds: list[int]) -> str:
    points = [100 * (first[seed]["accuracy"] - other[seed]["accuracy"]) for seed in seeds]
    low, high = bootstrap_difference(*(np.stack([right(runs[seed]) for seed in seeds]) for runs in (first, other)))
    each = ", ".join(f"{value:+.1f}" for value in points)
    over_seeds = each if len(seeds) < 3 else "{:+.1f} ({:+.1f} to {:+.1f})".format(*mean_interval(points))
    return f"{over_seeds} | {100 * low:+.1f} to {100 * high:+.1f}"


def right(run: dict[str, Any]) -> NDArray[np.bool_]:
    packed = np.frombuffer(bytes.fromhex(run["right"]), dtype=np.uint8)
    return np.unpackbits(packed, count=run["n"]).astype(bool)


def details(record: dict[str, Any], found: dict[str, dict[str, Seeds]], name: str) -> str:
    facts = record["sets"][name]
    counts = f"{facts['train']:,} training and {facts['test']:,} test images, {facts['classes']} classes"
    lines = [f"**{name}**: {counts}.", "", "| entrant | settings | parameters | epochs | CPU s | accuracy by seed, % |"]
    lines.append("|---|---|---|---|---|---|")
    for entrant, by_set in found.items():
        if seeds := by_set.get(name):
            lines.append(f"| {label_of(entrant)} | {run_facts([seeds[seed] for seed in sorted(seeds)])} |")
    return "\n".join(lines)


def run_facts(runs: list[dict[str, Any]]) -> str:
    settings = " ".join(f"{key}={value}" for key, value in runs[0]["settings"].items()) or "as it is"
    parameters = ", ".join(dict.fromkeys(f"{run['parameters']:,}" for run in runs))
    epochs, cpu = (statistics.mean(run[key] for run in runs) for key in ("epochs", "cpu_seconds"))
    each = ", ".join(f"{100 * run['accuracy']:.1f}" for run in runs)
    return f"{settings} | {parameters} | {epochs:.0f} | {cpu:.0f} | {each}"


if __name__ == "__main__":
    main()

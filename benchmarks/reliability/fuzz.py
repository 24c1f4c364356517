"""Fuzzing of all that reads files of strangers, with hypothesis: each case ends well, or in the reader's own kind of error.

    python benchmarks/reliability/fuzz.py [--reader NAME] [--cases 20000] [--seed 0]

Cases are whole files with bytes changed, cut, doubled or put in; tables and recipes made of their own words; run folders
with one value replaced. Every call adds its cases to what is stored; give another seed for other cases.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import readers
from hypothesis import HealthCheck, Phase, given, seed, settings
from storing import store, stored, table


def fuzz(name: str, cases: int, number: int, place: Path) -> dict[str, Any]:
    """How many cases ran, how many of them were accepted, and what went wrong, by where it did."""
    reader = readers.READERS[name](place)
    found: dict[str, Any] = {"cases": 0, "accepted": 0, "refused": 0, "slowest": 0.0, "wrong": {}}

    @seed(number)
    @settings(
        max_examples=cases, deadline=None, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(reader.cases)
    def one(case: Any) -> None:
        found["cases"] += 1
        started = time.perf_counter()
        try:
            reader.read(case)
            found["accepted"] += 1
        except reader.allowed:
            found["refused"] += 1
        except Exception as error:
            found["wrong"].setdefault(place_of(error), [0, repr(case)[:300]])[0] += 1
        found["slowest"] = max(found["slowest"], round(time.perf_counter() - started, 3))

    one()
    return found


def place_of(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} in {Path(where.filename).name}:{where.lineno}"


def added(before: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    wrong = dict(before.get("wrong", {}))
    for key, (count, example) in now["wrong"].items():
        wrong[key] = [wrong.get(key, [0])[0] + count, example]
    sums = {key: before.get(key, 0) + now[key] for key in ("cases", "accepted", "refused")}
    return {
        **sums,
        "slowest": max(before.get("slowest", 0.0), now["slowest"]),
        "seeds": [*before.get("seeds", []), now["seed"]],
        "wrong": wrong,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reader", choices=sorted(readers.READERS), action="append")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in asked.reader or readers.READERS:
        with tempfile.TemporaryDirectory() as place:
            now = fuzz(name, asked.cases, asked.seed, Path(place)) | {"seed": asked.seed}
        figures = stored("fuzzing").get("readers", {})
        figures[name] = added(figures.get(name, {}), now)
        store("fuzzing", {"readers": figures}, "python benchmarks/reliability/fuzz.py --cases 20000")
        print(
            json.dumps({name: now["wrong"]}, indent=1) if now["wrong"] else f"{name}: {now['cases']:,} cases",
            flush=True,
        )
    all_of = stored("fuzzing")["readers"]
    rows: list[list[Any]] = [
        [
            name,
            f"{f['cases']:,}",
            f"{f['accepted']:,}",
            f"{f['refused']:,}",
            sum(c for c, _ in f["wrong"].values()),
            f["slowest"],
        ]
        for name, f in all_of.items()
    ]
    print(table(["reader", "cases", "accepted", "refused with a reason", "wrong", "slowest case, s"], rows))


if __name__ == "__main__":
    main()

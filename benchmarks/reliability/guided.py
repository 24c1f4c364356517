"""Fuzzing that is guided by coverage, with atheris: bytes that reach new lines of smallvit or Pillow are kept and changed further.

    pip install atheris
    python benchmarks/reliability/guided.py CSV [--cases 20000] [--seed 1]

What a reader may end in is the same as in fuzz.py. Every call adds its cases to what is stored; give another seed for others.
A case that ends the process itself (a signal, or more memory than MOST_MB) is told by libFuzzer, and nothing is stored.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shutil
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import atheris

WATCHED = ["smallvit", "PIL"]
with atheris.instrument_imports(include=WATCHED):
    import readers
    from fuzz import added, place_of
    from storing import store, stored

SECONDS_WARNED = 60
MOST_MB = 4096
MOST_BYTES = 20_000  # of a case


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reader", choices=readers.READERS)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="0 is drawn anew")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    place = Path(tempfile.mkdtemp())
    (corpus := place / "corpus").mkdir()
    with atheris.instrument_imports(include=WATCHED):  # much is imported by the first that is read
        reader = readers.READERS[asked.reader](place)
        read = reader.read_bytes or reader.read
        for number, content in enumerate(reader.examples):
            (corpus / str(number)).write_bytes(content)
            read(content)
    found: dict[str, Any] = {"cases": 0, "accepted": 0, "refused": 0, "slowest": 0.0, "wrong": {}, "seed": asked.seed}

    def one(content: bytes) -> None:
        found["cases"] += 1
        started = time.perf_counter()
        try:
            read(content)
            found["accepted"] += 1
        except reader.allowed:
            found["refused"] += 1
        except Exception as error:
            found["wrong"].setdefault(place_of(error), [0, repr(content)[:300]])[0] += 1
        found["slowest"] = max(found["slowest"], round(time.perf_counter() - started, 3))
        if found["cases"] == asked.cases:
            keep(asked.reader, found)
            shutil.rmtree(place)
            os._exit(bool(found["wrong"]))  # libFuzzer would end the process, too, and count otherwise

    limits = [f"-timeout={SECONDS_WARNED}", f"-rss_limit_mb={MOST_MB}", f"-max_len={MOST_BYTES}", "-len_control=0"]
    atheris.Setup([sys.argv[0], "-runs=-1", f"-seed={asked.seed}", *limits, str(corpus)], one)
    atheris.Fuzz()


def keep(name: str, found: dict[str, Any]) -> None:
    figures = stored("guided").get("readers", {})
    figures[name] = added(figures.get(name, {}), found)
    version = importlib.metadata.version("atheris")
    store(
        "guided",
        {"atheris": version, "readers": figures},
        "python benchmarks/reliability/guided.py READER --cases 20000",
    )
    print(name, found, flush=True)


if __name__ == "__main__":
    main()

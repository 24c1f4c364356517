"""Fuzzing that is guided by coverage, with atheris: bytes that reach new lines of smallvit are kept and changed further.

    pip install atheris
    python benchmarks/reliability/guided.py CSV [--cases 20000] [--seed 1]

For readers of bytes (readers.py); what a reader may end in is the same as in fuzz.py. Every call adds its cases to what is stored.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import atheris

with atheris.instrument_imports(include=["smallvit"]):
    import readers

from corpus import whole
from fuzz import added, place_of
from storing import store, stored

EXAMPLES = {
    "CSV": [b"path,label,split,group\na/1.png,a,train,x\n", b"path;label\na;b\n"],
    "recipe TOML": [b'epochs = 3\n[model]\nname = "vit_pico"\n[optimizer]\nlr = 0.1\n'],
    ".npy": [whole("grey.npy")],
    "PNG": [whole("png")],
    "JPEG": [whole("jpg")],
}
SECONDS_WARNED = 60


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reader", choices=EXAMPLES)
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1, help="0 is drawn anew")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    place = Path(tempfile.mkdtemp())
    corpus = place / "corpus"
    corpus.mkdir()
    reader = readers.READERS[asked.reader](place)
    for number, content in enumerate(EXAMPLES[asked.reader]):
        (corpus / str(number)).write_bytes(content)
    found: dict[str, Any] = {"cases": 0, "accepted": 0, "refused": 0, "slowest": 0.0, "wrong": {}, "seed": asked.seed}

    def one(content: bytes) -> None:
        found["cases"] += 1
        started = time.perf_counter()
        try:
            reader.read(content)
            found["accepted"] += 1
        except reader.allowed:
            found["refused"] += 1
        except Exception as error:
            found["wrong"].setdefault(place_of(error), [0, repr(content)[:300]])[0] += 1
        found["slowest"] = max(found["slowest"], round(time.perf_counter() - started, 3))
        if found["cases"] == asked.cases:  # libFuzzer ends the process itself
            figures = stored("guided").get("readers", {})
            figures[asked.reader] = added(figures.get(asked.reader, {}), found)
            store("guided", {"readers": figures}, "python benchmarks/reliability/guided.py READER")
            print(asked.reader, found, flush=True)

    options = [f"-runs={asked.cases + 1}", f"-seed={asked.seed}", f"-timeout={SECONDS_WARNED}", "-print_final_stats=1"]
    atheris.Setup([sys.argv[0], *options, str(corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()

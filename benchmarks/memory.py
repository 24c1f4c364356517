"""Is the memory that planning foresees what a run then has?

    OMP_NUM_THREADS=1 python benchmarks/memory.py [--store docs/results/memory.json]

Each model is trained, judged and reported in a process of its own, on drawn images, with one thread and fp32, for one epoch of a few
steps. Foreseen is what `smallvit train` says before it starts; measured is the most that the process ever had (VmHWM). It goes on with
the models that are not stored yet.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from smallvit.runs.atomic import write_text

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "docs" / "results" / "memory.json"
WITHIN = 0.25  # of what was measured


class Case(NamedTuple):
    model: str
    size: int
    batch: int
    pieces: int = 1
    checkpointing: bool = False

    @property
    def key(self) -> str:
        pieces = f", {self.pieces} pieces" if self.pieces > 1 else ""
        return f"{self.model}, {self.size} px, batch {self.batch}{pieces}{', checkpointing' * self.checkpointing}"


CASES = (
    Case("vit_nano", 32, 64),
    Case("dhvt_nano", 32, 64),
    Case("conv_tiny", 32, 64),
    Case("swin_nano", 32, 128),
    Case("resnet18_32", 32, 64),
    Case("deit_tiny", 32, 64),
    Case("deit_tiny", 32, 64, pieces=4),
    Case("deit_tiny", 32, 64, checkpointing=True),
    Case("deit_tiny", 224, 16),
)
CHILD = """
import json, sys, smallvit
from pathlib import Path
data, out, model, size, batch, pieces, again = json.loads(sys.argv[1])
run = smallvit.train(
    data, out=out, model=model, img_size=size, batch_size=batch, grad_accum=pieces, grad_checkpointing=again, epochs=1, threads=1,
    precision="fp32", show_progress=False,
)
status = Path("/proc/self/status").read_text().splitlines()
measured = 1024 * next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
print(json.dumps({"foreseen": json.loads((run.path / "recipe.json").read_text())["memory"], "measured": measured}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=STORE)
    given = parser.parse_args()
    found: dict[str, Any] = json.loads(given.store.read_text(encoding="utf-8")) if given.store.is_file() else {}
    for case in CASES:
        if case.key not in found:
            found[case.key] = {**case._asdict(), **measure(case)}
            write_text(given.store, json.dumps(found, indent=1) + "\n")
        one = found[case.key]
        print(
            f"{case.key}: foreseen {one['foreseen'] / 1e6:.0f} MB, measured {one['measured'] / 1e6:.0f} MB "
            f"({one['foreseen'] / one['measured'] - 1:+.0%})",
            flush=True,
        )


def measure(case: Case) -> dict[str, int]:
    draw = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        images = draw.integers(0, 255, (2 * case.batch + 40, case.size, case.size, 3), dtype=np.uint8)
        labels = np.arange(len(images)) % 10
        np.savez(
            Path(place) / "drawn.npz",
            x_train=images[:-40],
            y_train=labels[:-40],
            x_test=images[-40:],
            y_test=labels[-40:],
        )
        told = [f"{place}/drawn.npz", f"{place}/run", *case]
        ended = subprocess.run(
            [sys.executable, "-c", CHILD, json.dumps(told)], stdout=subprocess.PIPE, check=True, env={**os.environ}
        )
    return json.loads(ended.stdout.splitlines()[-1])


if __name__ == "__main__":
    main()

"""What the programs of this folder share: figures that are added to a stored JSON file, a table, and running a command."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).resolve().parents[2]
STORE = PROJECT / "docs" / "results"
SMALL = ("--per-class", "6", "--batch-size", "8", "--epochs", "2", "--threads", "1", "--model", "vit_pico", "--quiet")
TIMES = ("seconds", "images_per_second")


def stored(name: str) -> dict[str, Any]:
    """What earlier calls have found; a program goes on from there."""
    path = STORE / f"reliability-{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def store(name: str, figures: Mapping[str, Any], command: str) -> Path:
    path = STORE / f"reliability-{name}.json"
    part = path.with_suffix(".part")
    tree = {"command": command, "machine": machine(), **figures}
    part.write_text(json.dumps(tree, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    part.replace(path)
    return path


def machine() -> dict[str, Any]:
    import PIL
    import torch

    names = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if Path("/proc/cpuinfo").is_file() else []
    cpu = next((line.partition(":")[2].strip() for line in names if line.startswith("model name")), platform.machine())
    return {
        "cpu": cpu, "cores": os.cpu_count(), "python": platform.python_version(), "torch": str(torch.__version__),
        "pillow": PIL.__version__, "system": platform.system(),
    }  # fmt: skip


def table(headings: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    cells = [[str(cell) for cell in row] for row in [headings, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells
    )


class Done(NamedTuple):
    status: int
    out: str
    err: str
    seconds: float

    @property
    def crashed(self) -> bool:
        """A traceback, or a signal that nobody sent."""
        return "Traceback" in self.out + self.err or self.status < 0


def command(*words: str | Path, timeout: float = 300, **environment: str) -> Done:
    """`smallvit WORDS...` in a process of its own. A status of -999 is one that had to be ended."""
    started = time.monotonic()
    try:
        done = subprocess.run(
            arguments(*words), capture_output=True, text=True, timeout=timeout, check=False, errors="replace",
            env=surroundings(**environment),
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Done(-999, "", f"more than {timeout} s", time.monotonic() - started)
    return Done(done.returncode, done.stdout, done.stderr, time.monotonic() - started)


def arguments(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "smallvit", *map(str, words)]


def surroundings(**more: str) -> dict[str, str]:
    """The environment of a child: it finds the package that this process uses, and computes with one thread."""
    import smallvit

    inherited = os.environ.get("PYTHONPATH", "")
    root = str(Path(smallvit.__file__).resolve().parents[1])
    path = os.pathsep.join(filter(None, [root, inherited]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **more}


def results_of(folder: Path) -> dict[str, Any]:
    """All that training decides, of a run or of all runs below a folder: tensors as digests, records without their times."""
    import hashlib

    from safetensors.numpy import load_file

    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("model.safetensors")):
        digest = hashlib.sha256()
        for name, array in sorted(load_file(path).items()):
            digest.update(name.encode() + array.tobytes())
        records = [json.loads(line) for line in (path.parent / "metrics.jsonl").read_text().splitlines()]
        kept = [{key: value for key, value in record.items() if key not in TIMES} for record in records]
        found[str(path.parent.relative_to(folder))] = [digest.hexdigest(), kept]
    return found

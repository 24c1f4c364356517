"""What the programs of this folder share: figures that are added to a stored JSON file, a table, and what a command says."""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

PROJECT = Path(__file__).resolve().parents[2]
STORE = PROJECT / "docs" / "results"
SMALL = ("--per-class", "6", "--batch-size", "8", "--epochs", "2", "--threads", "1", "--model", "vit_pico", "--quiet")
OFTEN = ("--set", "checkpoint_seconds=0")  # a checkpoint after every step
TINY_PHOTOS = ("--epochs", "1", "--model", "vit_pico", "--img-size", "16", "--threads", "1")  # for a folder of images
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


def counted(name: str, cases: Mapping[str, Callable[[Path], str]], description: str, times: int) -> None:
    """The program of a file of cases, each of which says what went wrong, or nothing: run them, count, store, print."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=times)
    for case in list(cases) * parser.parse_args().times:
        with tempfile.TemporaryDirectory() as place:
            problem = cases[case](Path(place))
        figures = stored(name).get("cases", {})
        before = figures.get(case, {"times": 0, "problems": []})
        problems = [*before["problems"], *([problem] if problem else [])]
        figures[case] = {"times": before["times"] + 1, "problems": problems}
        store(name, {"cases": figures}, f"python benchmarks/reliability/{name.replace('-', '_')}.py")
        print(case, problem or "well", flush=True)
    rows = [[case, one["times"], len(one["problems"])] for case, one in stored(name)["cases"].items()]
    print(table(["case", "times", "went wrong"], rows))


class Done(NamedTuple):
    status: int
    out: str
    err: str
    seconds: float
    cpu: float = 0.0  # seconds of the processor, without importing
    memory: float = 0.0  # MB, at most

    @property
    def crashed(self) -> bool:
        """A traceback, or a signal that nobody sent."""
        return "Traceback" in self.out + self.err or self.status < 0


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

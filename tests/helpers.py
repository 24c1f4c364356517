"""What the tests of several folders share: image folders made on the spot, and two ways to run a command."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
from PIL import Image

PROJECT = Path(__file__).resolve().parents[1]
SHARED_DATA = PROJECT.parent / "shared" / "data"
GOLDEN = PROJECT / "tests" / "golden"  # numbers from the authors' code; its README says from where


def shared_data(name: str) -> Path:
    """A real image set beside the project; the test is skipped, by name, where it is not there."""
    path = SHARED_DATA / name
    if not path.exists():
        pytest.skip(f"no ../shared/data/{name}")
    return path


# ---- image folders -----------------------------------------------------------------------------------


def make_folder(
    root: Path, classes: Mapping[str, int], *, size: tuple[int, int] = (12, 12), mode: str = "RGB", suffix: str = ".png"
) -> Path:
    """`classes` are relative folders with the number of images in each; the pixels depend on folder and number."""
    for name, count in classes.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            noise_image(f"{name}/{number}", size, mode).save(root / name / f"{number:03d}{suffix}")
    return root


def noise_image(seed: str, size: tuple[int, int] = (12, 12), mode: str = "RGB") -> Image.Image:
    """A colour of its own with noise on it. `size` is width, height, as in Pillow."""
    draw = np.random.default_rng(list(seed.encode()))
    channels = {"L": 1, "RGB": 3, "RGBA": 4, "CMYK": 4}[mode]
    pixels = draw.integers(40, 200, channels) + draw.integers(-40, 40, (size[1], size[0], channels))
    return Image.fromarray(pixels.astype(np.uint8).squeeze(), mode)


def forged_png(path: Path, width: int, height: int) -> Path:
    """A tiny file whose header promises a huge image."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0")) + chunk(b"IEND", b"")
    )
    return path


def truncate(path: Path, share: float = 0.5) -> Path:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])
    return path


def write_npz(path: Path, *, n: int = 20, classes: int = 4, side: int = 8, channels: int = 3, **more: Any) -> Path:
    """x_train, y_train of random pixels; `more` are further arrays, or None to leave one out."""
    draw = np.random.default_rng(0)
    shape = (n, side, side, channels) if channels else (n, side, side)
    arrays: dict[str, Any] = {
        "x_train": draw.integers(0, 256, shape, dtype=np.uint8),
        "y_train": np.arange(n) % classes,
        **more,
    }
    np.savez_compressed(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


# ---- commands ----------------------------------------------------------------------------------------

QUICK = ("--epochs", "1", "--threads", "1", "--model", "vit_pico")  # a training of seconds


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


def run_here(*words: str | Path) -> Outcome:
    """`smallvit WORDS...` in this process: what the user would see, and the exit status."""
    from smallvit.cli import main

    out, err = io.StringIO(), io.StringIO()
    status: Any = 0
    with patch.object(sys, "argv", ["smallvit", *map(str, words)]), redirect_stdout(out), redirect_stderr(err):
        try:
            main()
        except SystemExit as stop:
            status = stop.code
    return Outcome(status or 0, out.getvalue(), err.getvalue())


def run_cli(*words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """`python -m smallvit WORDS...` in a process of its own; importing torch there takes seconds."""
    command = [sys.executable, "-m", "smallvit", *map(str, words)]
    environment = {**os.environ, **options.pop("env", {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment, check=False, **options)


def ends_well(outcome: Outcome) -> Outcome:
    assert outcome.status == 0, outcome.err
    return outcome


def fails(outcome: Outcome, status: int, *phrases: str) -> Outcome:
    """One message, no traceback, the right exit status."""
    assert outcome.status == status, outcome
    assert "Traceback" not in outcome.out + outcome.err
    assert outcome.err.count("smallvit: ") == 1, outcome.err
    for phrase in phrases:
        assert phrase in outcome.err
    return outcome

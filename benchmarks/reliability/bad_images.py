"""Bad images through check, train, pretrain, predict and the page of `app`: each is used or listed with its reason, and used ones are read right.

    python benchmarks/reliability/bad_images.py [--keep FOLDER]

The corpus (corpus.py) lies among good images, since more than 5 % of unreadable files stop a training. What is used is compared with
Pillow's own reading (arrays with NumPy's), pixel by pixel, after the orientation that EXIF tells, transparent pixels on white.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import Counter
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
from corpus import corpus, encoded
from forks import command
from numpy.typing import NDArray
from PIL import Image, ImageOps
from storing import Done, store, table

from smallvit.data.images import Unreadable, fit_square, many_reads, read_header, read_image
from smallvit.data.listed import SUFFIXES, shown

GOOD = 3500  # of each of two classes
QUICK = ("--epochs", "1", "--model", "vit_pico", "--img-size", "8", "--threads", "1", "--batch-size", "256")


def build(root: Path, good: int = GOOD) -> list[Path]:
    bad = list(corpus(root))
    for name, colour in (("a", 60), ("b", 180)):
        for number in range(good):
            image = Image.new("RGB", (8, 8), (colour, number % 256, number // 256))
            (root / name / f"good-{number:05d}.png").write_bytes(encoded(image, "PNG"))
    return bad


def outcome(path: Path) -> str:
    """used, listed, wrong (other pixels than Pillow's), or the name of an error that should not come."""
    try:
        read_header(path)
        pixels = read_image(path, 24, "squash", 3)
    except Unreadable as reason:
        return "listed" if str(reason) else "listed without a reason"
    except Exception as error:
        return f"raised {type(error).__name__}"
    expected = torch.from_numpy(np.ascontiguousarray(expected_pixels(path).transpose(2, 0, 1)))
    return "used" if torch.equal(pixels, fit_square(expected, 24, "squash")) else "wrong"


def expected_pixels(path: Path) -> NDArray[np.uint8]:
    """H x W x 3 without smallvit: by Pillow, arrays by NumPy, both with 16 bits as shares of the largest number of 16 bits."""
    if path.suffix.lower() == ".npy":
        array = np.load(path, allow_pickle=False)
        return colours(array if array.dtype == np.uint8 else eight_bits(array))
    with Image.open(path) as image:
        upright = ImageOps.exif_transpose(image)
        if image.mode in ("I", "I;16", "I;16B", "I;16L"):
            return colours(eight_bits(np.asarray(upright)))
        if upright.has_transparency_data:
            paper = Image.new("RGBA", upright.size, "white")
            upright = Image.alpha_composite(paper, upright.convert("RGBA"))
        return np.array(upright.convert("RGB"))


def eight_bits(wide: NDArray[Any]) -> NDArray[np.uint8]:
    return np.rint(wide / 65535 * 255).astype(np.uint8)


def colours(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Grey is all three alike."""
    pixels_HWC = pixels.reshape(*pixels.shape[:2], -1)
    return np.repeat(pixels_HWC, 3, axis=-1) if pixels_HWC.shape[-1] == 1 else pixels_HWC


def kind_of(path: Path) -> str:
    return path.name.partition("-")[0] if path.name.startswith(KINDS) else "names and kinds of files"


KINDS = (
    "cut-",
    "flipped-",
    "noise-",
    "zeros-",
    "twice-",
    "exif-",
    "mode-",
    "really-",
    "moving",
    "strip-",
    "tiff-",
    "bomb-",
    "array-",
    "lying-",
)


def read_all(paths: list[Path]) -> dict[str, Counter[str]]:
    counts: dict[str, Counter[str]] = {}
    with many_reads():
        for path in paths:
            if path.suffix.lower() in SUFFIXES and not path.is_dir():
                counts.setdefault(kind_of(path), Counter())[outcome(path)] += 1
    return counts


def drop_other_channels(paths: list[Path]) -> None:
    """A set has one count of channels: one good file with five of them would rightly stop all commands."""
    for path in paths:
        try:
            if path.suffix.lower() in SUFFIXES and read_header(path).channels not in (1, 3):
                path.unlink()
        except (Unreadable, OSError):
            continue


def through_commands(root: Path, out: Path) -> dict[str, dict[str, Any]]:
    """Exit status, seconds, and how many files each command says it left out."""
    runs = {
        "check": command("check", root, "--fast", "--json", timeout=900),
        "train": command("train", root, *QUICK, "--out", out / "run", timeout=900),
        "pretrain": command("pretrain", root, *QUICK, "--method", "simclr", "--out", out / "first", timeout=900),
        "predict": command("predict", out / "run", root, "--csv", out / "answers.csv", "--threads", "1", timeout=900),
    }
    return {name: told(name, done, out) for name, done in runs.items()}


def through_app(run: Path, paths: list[Path]) -> dict[str, Any]:
    """Every file sent to the page of the model, as a browser would; at the end it must answer to a good one."""
    from smallvit import app

    counts: Counter[int] = Counter()
    started = time.monotonic()
    with app(run, browser=False, wait=False, threads=1, nearest=0) as page:
        for path in paths:
            if path.is_file():
                counts[sent(page.url, path.read_bytes())] += 1
        last = sent(page.url, encoded(Image.new("RGB", (8, 8)), "PNG"))
    others = [status for status in counts if status not in (200, 413, 422)]
    return {
        "status": last, "seconds": round(time.monotonic() - started, 1), "crashed": bool(others) or last != 200,
        "listed": sum(counts.values()) - counts[200], "answered": counts[200],
    }  # fmt: skip


def sent(url: str, content: bytes) -> int:
    """The status of the answer."""
    place = urlsplit(url).netloc
    line = HTTPConnection(place, timeout=120)
    try:
        line.request(
            "POST", "/answer", content, {"Origin": f"http://{place}", "Content-Type": "application/octet-stream"}
        )
        answer = line.getresponse()
        answer.read()
        return answer.status
    finally:
        line.close()


def told(name: str, done: Done, out: Path) -> dict[str, Any]:
    found: dict[str, Any] = {"status": done.status, "seconds": round(done.seconds, 1), "crashed": done.crashed}
    folder = {"train": out / "run", "pretrain": out / "first"}.get(name)
    if folder and (folder / "split.json").is_file():
        found["listed"] = len(json.loads((folder / "split.json").read_text(encoding="utf-8"))["skipped"])
    elif name == "predict":
        found["listed"] = sum(line.startswith("  ") for line in done.err.splitlines())
    if done.crashed or (done.status and folder):
        found["said"] = done.err[-2000:]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keep", type=Path, help="leave the corpus and the runs in this folder")
    parser.add_argument("--good", type=int, default=GOOD)
    parser.add_argument("--read", action="store_true", help="the readers alone, without the commands")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        place = given.keep or Path(temporary)
        paths = build(place / "photos", 1 if given.read else given.good)
        counts = read_all(paths)
        drop_other_channels(paths)
        commands = {} if given.read else through_commands(place / "photos", place)
        commands |= {} if given.read else {"app": through_app(place / "run", paths)}
    kinds = ("used", "listed", "wrong")
    rows = [
        [kind, sum(c.values()), *(c[k] for k in kinds), sum(v for k, v in c.items() if k not in kinds)]
        for kind, c in sorted(counts.items())
    ]
    total = ["all", *(sum(row[place] for row in rows) for place in range(1, 6))]
    print(table(["kind", "files", *kinds, "crashed"], [*rows, total]))
    print(
        table(
            ["command", "status", "seconds", "crashed", "files left out"],
            [[n, c["status"], c["seconds"], c["crashed"], c.get("listed", "–")] for n, c in commands.items()],
        )
    )
    figures = {"files": total[1], "by_kind": {kind: dict(c) for kind, c in counts.items()}, "commands": commands}
    odd = (
        [
            shown(path)
            for path in paths
            if path.suffix.lower() in SUFFIXES
            and not path.is_dir()
            and path.exists()
            and outcome(path) not in ("used", "listed")
        ]
        if given.keep
        else []
    )
    print("\n".join(odd))
    print(store("bad-images", figures, "python benchmarks/reliability/bad_images.py"))


if __name__ == "__main__":
    main()

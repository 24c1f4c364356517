"""The tables of the contest: from the store to the page, whatever rows are there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers import PROJECT

PROGRAM = PROJECT / "benchmarks" / "contest_page.py"
ATTENTION = PROJECT / "benchmarks" / "attention_page.py"
VARIATIONS = PROJECT / "benchmarks" / "variations.py"


def run(seed: int, right: int, n: int = 100) -> dict[str, Any]:
    packed = np.packbits(np.arange(n) < right).tobytes().hex()
    facts = {"settings": {}, "parameters": 1000, "epochs": 10, "cpu_seconds": 240.0}
    return {"seed": seed, "accuracy": right / n, "right": packed, "n": n, **facts}


def store(tmp_path: Path) -> Path:
    runs = {f"default/svhn/{seed}": run(seed, 80 + seed) for seed in range(3)}
    runs |= {f"airbench/svhn/{seed}": run(seed, 70) for seed in range(3)} | {"cnn/svhn/0": run(0, 60)}
    facts = {"train": 500, "test": 100, "classes": 10}
    sets = {"svhn": facts | {"floors": {"k-NN on pixels": 0.25}}, "first50": facts}
    record = {"seconds": 240, "sets": sets, "runs": runs, "broken": {"cnn/svhn/1": "status 1"}, "tries": {}}
    file = tmp_path / "contest.json"
    file.write_text(json.dumps(record))
    return file


def page(*words: Any, program: Path = PROGRAM) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(program), *map(str, words)], capture_output=True, text=True, check=False)


def test_means_single_seeds_floors_differences_and_what_broke(tmp_path: Path) -> None:
    printed = page("--store", store(tmp_path)).stdout
    assert "| smallvit train | 81.0 (78.5 to 83.5) |" in printed and "| plain CNN | 60.0 |" in printed
    assert "| *k-NN on pixels* | 25.0 |" in printed and "Broke: cnn/svhn/1: status 1" in printed
    assert "| airbench-like CNN | svhn | 3 | +11.0 (+8.5 to +13.5) |" in printed
    assert "| plain CNN | svhn | 1 | +20.0 |" in printed
    assert "CIFAR-10" not in printed, "a set without runs has no column"


def test_only_what_stands_between_the_marks_is_written(tmp_path: Path) -> None:
    target = tmp_path / "results.md"
    target.write_text("before\n<!-- contest: begin -->\nold\n<!-- contest: end -->\nafter\n")
    assert page("--store", store(tmp_path), "--write", target).returncode == 0
    written = target.read_text()
    assert written.startswith("before\n") and written.endswith("\nafter\n")
    assert "old" not in written and "smallvit train" in written
    unmarked = tmp_path / "other.md"
    unmarked.write_text("no marks\n")
    refused = page("--store", store(tmp_path), "--write", unmarked)
    assert refused.returncode and "contest: begin" in refused.stderr and unmarked.read_text() == "no marks\n"


def test_what_attention_brings_by_images_and_time(tmp_path: Path) -> None:
    facts = {"train": 500, "test": 100, "classes": 10}
    short = {
        f"{one}/first50/{seed}": run(seed, 80 + seed * (one == "hybrid"))
        for one in ("default", "hybrid")
        for seed in range(3)
    }
    long = {"default/first50/0": run(0, 70), "hybrid/first50/0": run(0, 72), "hybrid/first50/1": run(1, 50)}
    files = [tmp_path / "short.json", tmp_path / "long.json"]
    for file, seconds, runs in zip(files, (240, 900), (short, long), strict=True):
        file.write_text(json.dumps({"seconds": seconds, "sets": {"first50": facts}, "runs": runs}))
    printed = page("--stores", *files, program=ATTENTION).stdout
    assert printed.splitlines() == [
        "| attention, points | 4 min | 15 min |",
        "|---|---|---|",
        "| CIFAR-10, 500 images of 32 px | +1.0 (-1.5 to +3.5) | +2.0 |",
    ]


@pytest.mark.parametrize("words", [(), ("--store", PROJECT / "docs" / "results" / "contest-900.json")])
def test_the_page_says_what_the_stores_hold(words: tuple[Any, ...]) -> None:
    tables = page(*words).stdout.strip()
    assert tables and tables in (PROJECT / "docs" / "results.md").read_text()


def test_the_page_says_where_attention_pays() -> None:
    table = page(program=ATTENTION).stdout.strip()
    assert table and table in (PROJECT / "docs" / "results.md").read_text()


def test_what_strong_augmentation_brings_by_length(tmp_path: Path) -> None:
    runs = {
        "as-it-is/cifar500/4/0": run(0, 60),
        "as-it-is/cifar500/15/0": run(0, 70),
        "as-it-is/cifar500/15/1": run(1, 72),
    }
    runs |= {"cutmix/cifar500/15/0": run(0, 80), "cutmix/cifar500/15/1": run(1, 82), "erase/flowers/15/0": run(0, 50)}
    (tmp_path / "strong.json").write_text(json.dumps({"runs": runs}))
    printed = page("page", "--store", tmp_path / "strong.json", program=VARIATIONS).stdout
    assert printed.splitlines() == [
        "| images | minutes | the default | CutMix, every other batch | erasing, every other image |",
        "|---|---|---|---|---|",
        "| CIFAR-10, 500 images | 4 | 60.0 (10 epochs) |  |  |",
        "| CIFAR-10, 500 images | 15 | 71.0 (10 epochs) | +10.0 (+4.4 to +15.6, 2 seeds; 10 epochs) |  |",
    ]


def test_from_three_seeds_on_a_variation_has_an_interval_over_them(tmp_path: Path) -> None:
    runs = {f"usual/flowers/4/{seed}": run(seed, 50) for seed in range(3)}
    runs |= {f"mimetic/flowers/4/{seed}": run(seed, 60 + seed) for seed in range(3)}
    (tmp_path / "vit.json").write_text(json.dumps({"runs": runs}))
    printed = page("page", "plain-vit", "--store", tmp_path / "vit.json", program=VARIATIONS).stdout
    assert "| +11.0 (+8.5 to +13.5, 3 seeds; 10 epochs) |" in printed


def test_an_arm_that_a_study_does_not_have_is_named() -> None:
    refused = page("run", "plain-vit", "--arms", "cutmix", program=VARIATIONS)
    assert refused.returncode and "cutmix: one of usual, mimetic" in refused.stderr


@pytest.mark.parametrize(
    "study", ["strong-augmentation", "long-runs", "vit-bf16", "vit-varied", "dhvt-varied", "resnet-varied"]
)
def test_the_page_says_what_variations_of_the_default_brought(study: str) -> None:
    table = page("page", study, program=VARIATIONS).stdout.strip()
    assert table and table in (PROJECT / "docs" / "results.md").read_text()

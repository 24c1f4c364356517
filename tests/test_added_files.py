"""One of each kind, added as a contributor would: files in a copy of the package, and nothing else touched.

The files lie in tests/added, where they would lie in src/smallvit; docs/architecture.md counts them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from helpers import PROJECT

ADDED = PROJECT / "tests" / "added"
TORCH_FREE = """
import sys
from smallvit.cli import app
for words in (["train", "--help"], ["pretrain", "--help"], ["list", "methods"], ["list", "datasets"]):
    app(words, standalone_mode=False, prog_name="smallvit")
assert "torch" not in sys.modules
"""
RUNS = """
import sys
from pathlib import Path
import smallvit
folder, common = Path(sys.argv[1]), dict(model="toy_vit", epochs=1, per_class=4, threads=1, show_progress=False)
smallvit.pretrain("digits", method="toy_match", out=folder / "pretrained", **common)
run = smallvit.train("digits", aux=["toy_quiet"], out=folder / "trained", **common)
run.diagnose(images=16)
assert smallvit.check("toy-squares", fast=True, show_progress=False).facts["parts"] == {"train": 16, "test": 8}
"""


@pytest.fixture(scope="module")
def with_added(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package, with the files beside those that are there."""
    root = tmp_path_factory.mktemp("copy")
    package = shutil.copytree(PROJECT / "src" / "smallvit", root / "smallvit", ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip
    for file in ADDED.rglob("*.*"):
        if file.suffix in (".py", ".toml"):
            assert not (package / file.relative_to(ADDED)).exists()
            shutil.copy(file, package / file.relative_to(ADDED))
    return root


def python(root: Path, *words: str | Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(root), "COLUMNS": "200"}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, env=environment, cwd=PROJECT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_page_counts_the_files_that_each_kind_needs() -> None:
    page = (PROJECT / "docs" / "architecture.md").read_text("utf-8")
    kinds = ("model", "objective", "auxiliary loss", "measurement of the diagnosis", "named data set")
    counted = [int(re.search(rf"^\| {kind} \| (\d)", page, re.MULTILINE)[1]) for kind in kinds]  # type: ignore[index]
    added = [file for file in ADDED.rglob("*.*") if file.suffix in (".py", ".toml")]
    assert sum(counted) == len(added), "one of each kind lies in tests/added"


def test_help_and_list_name_the_losses_without_torch(with_added: Path) -> None:
    shown = " ".join(python(with_added, "-c", TORCH_FREE).split())
    assert "Auxiliary loss beside the objective: drloc, teacher or toy_quiet." in shown
    assert "dino, idmm, mae, mocov2, mocov3, simclr, supcon or toy_match." in shown
    assert "objective: Toy match: the features of two crops of an image should be equal, and as long as 1." in shown
    assert "auxiliary loss: Toy quiet: the features of every cell should be small." in shown
    assert "toy-squares 16 train, 8 test; 2 classes. Squares that are dark or bright." in shown


def test_what_was_added_is_on_the_page(with_added: Path, tmp_path: Path) -> None:
    python(with_added, "-c", RUNS, tmp_path)
    pretrained, trained = ((tmp_path / name / "report.html").read_text("utf-8") for name in ("pretrained", "trained"))
    assert "How far two crops are apart" in pretrained and "Spread of the features" in pretrained
    assert "How loud its cells are" in trained
    assert "Its images were looked at: a toy says that they are bright." in trained
    assert "<h3>How bright the images are</h3>" in trained and "A toy measured it." in trained
    stored = json.loads((tmp_path / "trained" / "findings" / "toy_brightness.json").read_text("utf-8"))
    assert stored["weight"] == 0.01


def test_the_contract_tests_find_what_was_added(with_added: Path) -> None:
    contracts = PROJECT / "tests" / "contracts"
    options = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "toy")
    ran = python(with_added, *options, contracts / "test_objectives.py")
    assert "passed" in ran
    collected = python(with_added, *options, "--collect-only", contracts)
    assert "[toy_match]" in collected and "toy_vit" in collected

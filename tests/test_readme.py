"""What the README and the page about the diagnosis show is run here: every `smallvit` line, and the Python blocks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from helpers import PROJECT, make_folder, run_here

PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
SHOWN = [PROJECT / "README.md", PROJECT / "docs" / "diagnosis.md"]
BLOCKS = [
    block for page in SHOWN for block in re.findall(r"```(\w*)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
]
COMMANDS = sorted(
    {
        line.partition(" #")[0].strip()
        for language, block in BLOCKS
        if not language
        for line in block.splitlines()
        if line.startswith("smallvit ")
    }
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `photos/`, `new/` and the finished runs `a`, `b` and `ssl`, as the README assumes."""
    root = tmp_path_factory.mktemp("readme")
    make_folder(root / "photos", {"cat": 30, "dog": 30})
    make_folder(root, {"new": 3})
    (root / "new.jpg").write_bytes((root / "new" / "000.png").read_bytes())
    for name, *command in (("a", "train"), ("b", "train", "--seed", "1"), ("ssl", "pretrain", "--method", "idmm")):
        short = ("--epochs", "1", "--threads", "1", "--out", root / "runs" / name, "-q")
        outcome = run_here(command[0], root / "photos", *command[1:], *short)
        assert outcome.status == 0, outcome.err
    return root


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 7
    assert {shlex.split(line)[1] for line in COMMANDS} >= {
        "train",
        "pretrain",
        "resume",
        "evaluate",
        "predict",
        "diagnose",
        "compare",
        "demo",
    }


@pytest.mark.parametrize("line", [line for line in COMMANDS if line != "smallvit demo"])
def test_command(line: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    words = shlex.split(line)[1:]
    if words[0] in ("train", "pretrain"):
        words.append("--print-recipe")  # resolves data, model and every key, and builds the model; trains nothing
    outcome = run_here(*words)
    assert outcome.status == 0, outcome.err


def test_python(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    training, diagnosis = (block for language, block in BLOCKS if language == "python")
    shorter = training.replace("epochs=50", "epochs=2, overwrite=True, show_progress=False")
    assert shorter != training
    exec(compile(shorter, "README.md", "exec"), {})
    assert (place / "runs" / "a" / "report.html").is_file()
    exec(compile(diagnosis, "diagnosis.md", "exec"), {})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target

"""What the README and the pages about diagnosis, folds, tuning and measures show is run here: every `smallvit` line, and the Python blocks."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import PROJECT, ends_well, make_folder, run_here
from smallvit import Run
from smallvit.planning.cut_short import MOST_EPOCHS, MOST_IMAGES, MOST_TRIALS

PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
SHOWN = [
    PROJECT / "README.md",
    *(PROJECT / "docs" / f"{name}.md" for name in ("diagnosis", "folds", "tuning", "measures")),
]
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


# Lines that the others build on: they make `runs/a` and `runs/ssl`.
FIRST = [line for line in COMMANDS if " --out " in line]


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    """Every line is trained as it stands, with an epoch of a few images; child processes inherit it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MOST_EPOCHS, "1")
        patch.setenv(MOST_IMAGES, "8")
        patch.setenv(MOST_TRIALS, "2")
        yield


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, short: None) -> Path:
    """A folder with `photos/`, `new/` and the finished runs `a`, `b` and `ssl`, as the README assumes."""
    root = tmp_path_factory.mktemp("readme")
    make_folder(root / "photos", {"cat": 30, "dog": 30})
    make_folder(root, {"new": 3})
    (root / "new.jpg").write_bytes((root / "new" / "000.png").read_bytes())
    with contextlib.chdir(root):
        for line in FIRST:
            ends_well(run_here(*shlex.split(line)[1:]))
        ends_well(run_here("train", "photos/", "--model", "vit_nano", "--img-size", "64", "--out", "runs/b"))
    return root


def test_there_are_commands() -> None:
    assert len(COMMANDS) >= 7
    assert {shlex.split(line)[1] for line in COMMANDS} >= {
        "train",
        "pretrain",
        "resume",
        "evaluate",
        "predict",
        "embed",
        "diagnose",
        "compare",
        "demo",
    }


@pytest.mark.parametrize("line", [line for line in COMMANDS if line not in ("smallvit demo", *FIRST)])
def test_command(line: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    before = set(place.glob("runs/*/"))
    ends_well(run_here(*shlex.split(line)[1:]))
    made = set(place.glob("runs/*/")) - before
    assert len(made) == (shlex.split(line)[1] in ("train", "pretrain")), "what trains leaves a folder"
    for folder in made:
        assert (folder / "report.html").is_file()


def test_lines_with_a_folder_are_trained_first(place: Path) -> None:
    assert [shlex.split(line)[-1] for line in FIRST] == [
        "runs/curve",
        "runs/ssl",
        "runs/folds",
        "runs/sure",
        "runs/a",
        "runs/tuned",
    ]
    for name in ("a", "ssl"):
        run = Run(place / "runs" / name)
        assert run.finished and run.recipe.epochs == 1
        assert {"key": "epochs", "value": 1, "why": f"{MOST_EPOCHS} is set"} in run.read("recipe.json")["choices"]
        assert run.read("split.json")["parts"]["train"]["n"] == 16


def test_python(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("photos", "new", "runs/b", "runs/folds", "runs/sure"):
        shutil.copytree(place / name, tmp_path / name)
    shutil.copy(place / "new.jpg", tmp_path)
    monkeypatch.chdir(tmp_path)
    training, in_memory, diagnosis, folds, tuning, unknown, amount = (
        block for language, block in BLOCKS if language == "python"
    )
    exec(compile(training, "README.md", "exec"), {})
    assert (tmp_path / "runs" / "a" / "report.html").is_file()
    exec(compile(in_memory, "README.md", "exec"), {})
    assert (tmp_path / "runs" / "digits" / "report.html").is_file()
    exec(compile(diagnosis, "diagnosis.md", "exec"), {})
    exec(compile(folds, "folds.md", "exec"), {})
    exec(compile(tuning, "tuning.md", "exec"), {})
    assert (tmp_path / "runs" / "tuned-here" / "report.html").is_file()
    exec(compile(unknown, "measures.md", "exec"), {})
    assert (tmp_path / "runs" / "sure" / "reject.json").is_file()
    exec(compile(amount, "measures.md", "exec"), {})
    assert (tmp_path / "runs" / "amount" / "curve.json").is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target

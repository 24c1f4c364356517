"""What README and the guide show is run here: every `smallvit` line and every Python block of a page, in its order.

Each page has a folder of its own with `photos/`, `new/` and the finished runs `runs/a` and `runs/b`; what the page itself
trains takes their place. All is trained as it stands, with an epoch of a few images.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers import PROJECT, ends_well, make_folder, run_here
from smallvit import Run
from smallvit.planning.cut_short import MOST_EPOCHS, MOST_IMAGES, MOST_TRIALS

PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
ADDED = PROJECT / "tests" / "added"
LONG = {"localization.md", "many-runs.md", "models.md", "pretraining.md", "lu2022.md"}  # minutes: `make test-all`
NOT_RUN = {
    "smallvit demo": "tests/test_demo.py runs it",
    "smallvit app runs/a": "serves until Ctrl-C: tests/commands/test_app_command.py runs it",
    "smallvit train photos/ --recipe liu2021-swin --init swin_tiny.safetensors": "needs a published checkpoint",
    "smallvit train photos/ --init swin_tiny.safetensors": "needs a published checkpoint",
}


class Shown(NamedTuple):
    """A `smallvit` line, or a block of Python."""

    language: str
    text: str

    @property
    def folders(self) -> list[str]:
        """Where it writes, if it says so."""
        return re.findall(r'out="([^"]+)"' if self.language == "python" else r" --out (\S+)", self.text)


def shown(page: Path) -> Iterator[Shown]:
    for language, block in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE):
        if language == "python":
            yield Shown(language, block)
        elif not language:
            for line in block.replace("\\\n", " ").splitlines():
                words = line.partition(" #")[0].strip()
                if words.startswith("smallvit ") and words not in NOT_RUN:
                    yield Shown("", words)


RUN = [page for page in PAGES if page.name != "extend.md" and any(shown(page))]  # its files are run by test_added_files


@pytest.fixture(scope="module", autouse=True)
def short() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MOST_EPOCHS, "1")
        patch.setenv(MOST_IMAGES, "8")
        patch.setenv(MOST_TRIALS, "2")
        yield


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, short: None) -> Path:
    root = tmp_path_factory.mktemp("pages")
    for name in ("photos", "clothing10_cc0_64"):
        make_folder(root / name, {"cat": 30, "dog": 30})
    parts = {f"{part}/{kind}": 10 for part in ("train", "val", "test") for kind in ("rose", "tulip")}
    make_folder(root / "flowers", parts)
    make_folder(root, {"new": 3})
    (root / "lists").mkdir()
    for part, rows in (("train", range(10)), ("val", range(10, 15)), ("test", range(15, 25))):
        lines = [f"{kind}/{row:03d} {label}\n" for label, kind in enumerate(("cat", "dog")) for row in rows]
        (root / "lists" / f"{part}.txt").write_text("".join(lines))
    shutil.copy(root / "new" / "000.png", root / "new.jpg")
    with contextlib.chdir(root):
        for name in ("a", "b"):
            ends_well(run_here("train", "photos/", "--model", "vit_nano", "--img-size", "64", "--out", f"runs/{name}"))
    return root


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name, marks=[pytest.mark.slow] * (page.name in LONG)) for page in RUN]
)
def test_page(page: Path, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Path(shutil.copytree(prepared, tmp_path / "place"))
    monkeypatch.chdir(place)
    for item in shown(page):
        for folder in item.folders:
            shutil.rmtree(place / folder, ignore_errors=True)
        if item.language == "python":
            exec(compile(item.text, page.name, "exec"), {"__name__": "__main__"})
        else:
            runs_well(shlex.split(item.text)[1:], place, item.text)
        for folder in item.folders:
            assert (place / folder).exists(), item.text


def runs_well(words: list[str], place: Path, line: str) -> None:
    """It ends well; what trains leaves one folder, with a report, and of a single run with an epoch."""
    before = set(place.glob("runs/*/")) | set(place.glob("*/"))
    outcome = run_here(*words)
    assert outcome.status == 0, f"{line}\n{outcome.err}"
    made = (set(place.glob("runs/*/")) | set(place.glob("*/"))) - before - {place / "runs"}
    trains = words[0] in ("train", "pretrain") and not {"--explain", "--print-recipe"} & set(words)
    if trains:
        assert len(made) == 1, line
    for folder in made if trains else ():
        assert (folder / "report.html").is_file(), line
        if (folder / "metrics.jsonl").is_file():
            run = Run(folder)
            assert run.finished and run.recipe.epochs == 1
            assert {"key": "epochs", "value": 1, "why": f"{MOST_EPOCHS} is set"} in run.read("recipe.json")["choices"]
            split = run.read("split.json")
            assert split["parts"]["train"]["n"] <= 8 * len(split["class_names"])


def test_the_pages_show_all_commands() -> None:
    from smallvit.cli import app

    names = {item.text.split()[1] for page in RUN for item in shown(page) if not item.language} | {"demo", "app"}
    here = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    assert sorted(here - names) == []


def test_the_files_of_the_page_on_extending_are_those_that_are_run() -> None:
    page = (PROJECT / "docs" / "extend.md").read_text("utf-8")
    for file in ADDED.rglob("*.*"):
        if file.suffix in (".py", ".toml"):
            assert f"\n{file.read_text('utf-8')}```" in page, (
                f"{file.name} is not on the page, or another than in tests/added"
            )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), target


def test_every_page_of_the_guide_is_in_the_navigation() -> None:
    listed = set(re.findall(r"[\w/.-]+\.md", (PROJECT / "mkdocs.yml").read_text("utf-8")))
    assert listed == {page.relative_to(PROJECT / "docs").as_posix() for page in PAGES[1:]}

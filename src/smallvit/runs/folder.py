"""A run is a folder, and the folder is the interface: training writes it, everything else reads it.

recipe.json             what was asked, what it resolved to, and why
env.json  split.json    the machine and versions; the rows of each part
floors.json             what needs no deep model, on the same parts
metrics.jsonl           one record per line, the truth about the course of training
model.safetensors       the weights that were evaluated, with all that prediction needs in its header
results.json            accuracy beside the floors, confusion, worst mistakes
predictions.safetensors probabilities on the evaluated part
images.safetensors      the small pictures that the report shows
state/                  where training stands; enough to go on bit-identically
features.safetensors    the frozen features of all parts, where `smallvit probe` was asked for
probe.json              what they are worth
report.html
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smallvit.errors import RunError
from smallvit.recipe import Recipe, validate
from smallvit.runs.atomic import read_lines, write_text


class RunFolder:
    """A run folder. Reading is lazy and cheap; nothing is ever unpickled."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if not (self.path / "recipe.json").is_file():
            raise RunError(why_no_run(self.path))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.path)!r})"

    @property
    def recipe(self) -> Recipe:
        """The recipe with every `auto` resolved: training it again gives this run."""
        return validate(self.read("recipe.json", "resolved")["resolved"], origin=str(self.path / "recipe.json"))

    @property
    def choices(self) -> list[dict[str, Any]]:
        """What `auto` became: key, value, why."""
        return list(self.read("recipe.json", "choices")["choices"])

    @property
    def results(self) -> dict[str, Any]:
        if not self.finished:
            raise RunError(f"{self.path} has no results yet: go on with `smallvit resume {self.path}`")
        return self.read("results.json")

    @property
    def finished(self) -> bool:
        return (self.path / "results.json").is_file()

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return list(read_lines(self.path / "metrics.jsonl"))

    def read(self, name: str, *needed: str) -> dict[str, Any]:
        """The JSON object of a file; a file that lacks a needed key is damaged."""
        try:
            tree = json.loads((self.path / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(f"{self.path} has no {name}") from None
        except (OSError, ValueError) as error:
            raise RunError(f"cannot read {self.path / name}: {error}") from None
        if not isinstance(tree, dict):
            raise RunError(f"{self.path / name} does not hold a JSON object")
        if missing := [key for key in needed if key not in tree]:
            raise RunError(f"{self.path / name} is damaged: it has no {', '.join(missing)}")
        return tree

    def write(self, name: str, tree: Mapping[str, Any]) -> None:
        write_text(self.path / name, json.dumps(tree, indent=1, ensure_ascii=False) + "\n")


def why_no_run(path: Path) -> str:
    if not path.is_dir():
        return (
            f"{path} is {'a file, not a run folder' if path.exists() else 'not a run folder: there is no such folder'}"
        )
    inside = runs_inside(path)
    hint = f" (it holds the runs {', '.join(inside)})" if inside else ""
    return f"{path} is not a run folder: it has no recipe.json{hint}"


def runs_inside(folder: Path) -> list[str]:
    return sorted(found.parent.name for found in folder.glob("*/recipe.json"))


def create(path: str | Path, overwrite: bool = False) -> Path:
    """An empty folder for a new run; a used one is refused unless `overwrite`."""
    path = Path(path)
    try:
        for entry in check_free(path, overwrite):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            else:
                entry.unlink()
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    except OSError as error:
        raise RunError(f"cannot write to {path}: {error.strerror}") from None
    return path


def check_free(path: str | Path, overwrite: bool = False) -> list[Path]:
    """Refuse a folder that `create` would refuse, before hours of work; return what it would delete."""
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; --out takes a folder")
    try:
        used = sorted(path.iterdir()) if path.is_dir() else []
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    if used and not overwrite:
        resume = f", or go on with `smallvit resume {path}`" if _is_run(path) else ""
        raise RunError(f"{path} is already used. Choose another --out, or give --overwrite{resume}")
    if strangers := _strangers(path):
        raise RunError(f"{path} holds what no run wrote ({', '.join(strangers[:3])}): nothing was deleted")
    return used


_FIRST = frozenset({"env.json", "split.json", "floors.json"})  # all there is before a folder is a run
_OURS = _FIRST | {
    "recipe.json", "metrics.jsonl", "model.safetensors", "results.json", "predictions.safetensors",
    "images.safetensors", "report.html", "log.txt", "group.json", "state", "tensorboard", "wandb", "findings",
    "features.safetensors", "probe.json",
}  # fmt: skip


def _is_run(path: Path) -> bool:
    return (path / "recipe.json").is_file() or (path / "group.json").is_file()


def _strangers(path: Path) -> list[str]:
    """Names in a folder that no run and no group wrote; only the runs that a group names are its own."""
    if not path.is_dir():
        return []
    members = _members(path)
    ours = _OURS if _is_run(path) else _FIRST
    found: list[str] = []
    for entry in sorted(path.iterdir()):
        if entry.name in members and entry.is_dir():
            found += [f"{entry.name}/{name}" for name in _strangers(entry)]
        elif entry.name not in ours and not _PART.fullmatch(entry.name):
            found.append(entry.name)
    return found


def _members(path: Path) -> set[str]:
    try:
        names = json.loads((path / "group.json").read_text(encoding="utf-8"))["members"]
        return {name for name in names if name == Path(name).name}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


_PART = re.compile(r"\..+\.\d+\.part")  # what a kill leaves of `replacing`

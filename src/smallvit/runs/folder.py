"""A run is a folder, and the folder is the interface: training writes it, everything else reads it.

recipe.json             what was asked, what it resolved to, and why
env.json  split.json    the machine and versions; the rows of each part
floors.json             what needs no deep model, on the same parts
decision.json           how many steps a budget allows, once their speed was known
metrics.jsonl           one record per line, the truth about the course of training
model.safetensors       the weights that were evaluated, with all that prediction needs in its header
results.json            accuracy beside the floors, confusion, worst mistakes
predictions.safetensors probabilities on the evaluated part
images.safetensors      the small pictures that the report shows
state/                  where training stands; enough to go on bit-identically
features.safetensors    the frozen features of all parts, where `smallvit probe` was asked for
probe.json              what they are worth
neighbours.safetensors  features of the training images, where the nearest of them were asked for
estimator.json          what else the estimator knows that trained it, where one of scikit-learn's kind did
stages.json             what was trained before it in the same command; each stage is a run folder in this one
moved.json              where its images are now, where a command was told so
report.html
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from smallvit.errors import RunError
from smallvit.recipe import Recipe, resolved, validate
from smallvit.runs.atomic import PART, write_text
from smallvit.runs.ownership import LOCK, refuse_owned, sole_owner
from smallvit.runs.stored import read_json, read_records

STAGES_FILE = "stages.json"


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
        return validate(self.read("recipe.json")["resolved"])

    @property
    def choices(self) -> list[dict[str, Any]]:
        """What `auto` became: key, value, why."""
        return list(self.read("recipe.json")["choices"])

    @property
    def threads(self) -> int:
        """That it was trained with."""
        return int(self._had("threads"))

    @property
    def device(self) -> str:
        """That it was trained on."""
        return str(self._had("device"))

    def _had(self, what: str) -> Any:
        """As env.json says, for where a run runs may settle it; else as it was planned."""
        planned = resolved(getattr(self.recipe, what))
        recorded = self.read("env.json") if (self.path / "env.json").is_file() else {}
        return recorded.get(what, planned)

    @property
    def results(self) -> dict[str, Any]:
        if not self.finished:
            raise RunError(f"{self.path} has no results yet: go on with `smallvit resume {self.path}`")
        return self.read("results.json")

    @property
    def finished(self) -> bool:
        return (self.path / "results.json").is_file()

    @property
    def has_groups(self) -> bool:
        """Whether its images come in groups, as far as the folder tells: images of one are not independent."""
        judged = self.results["parts"].values() if self.finished else ()
        if told := [part for part in judged if part.get("groups")]:
            return any(part["groups"] < part["n"] for part in told)
        parts = self.read("split.json", "parts")["parts"].values() if (self.path / "split.json").is_file() else ()
        return bool(self.recipe.data.groups) or any("groups" in str(part.get("how", "")) for part in parts)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return list(read_records(self.path / "metrics.jsonl"))

    @property
    def trained_epochs(self) -> int:
        """So far. A budget may have counted them anew since they were planned; as planned where no records are left."""
        return trained_epochs(self.metrics) or self.read("recipe.json")["resolved"].get("epochs") or 0

    def read(self, name: str, *needed: str) -> dict[str, Any]:
        """The JSON object of a file, checked (runs/stored.py); one that lacks a needed key is damaged."""
        return read_json(self.path / name, *needed)

    def write(self, name: str, tree: Mapping[str, Any]) -> None:
        write_json(self.path / name, tree)


def trained_epochs(metrics: Sequence[Mapping[str, Any]]) -> int:
    return max((int(record["epoch"]) + 1 for record in metrics if "epoch" in record), default=0)


def write_json(file: Path, tree: Mapping[str, Any]) -> None:
    write_text(file, json.dumps(tree, indent=1, ensure_ascii=False) + "\n")


def why_no_run(path: Path) -> str:
    if not path.is_dir():
        return (
            f"{path} is {'a file, not a run folder' if path.exists() else 'not a run folder: there is no such folder'}"
        )
    if (path / STAGES_FILE).is_file():
        return f"{path} is not a run yet: what comes first has not ended; go on with `smallvit resume {path}`"
    if _never_began(path):
        return f"nothing was started in {path} yet: give the command that was to start it again"
    inside = runs_inside(path)
    hint = f" (it holds the runs {', '.join(inside)})" if inside else ""
    return f"{path} is not a run folder: it has no recipe.json{hint}"


def runs_inside(folder: Path) -> list[str]:
    return sorted(recipe.parent.name for recipe in folder.glob("*/recipe.json"))


@contextmanager
def claimed(path: str | Path, overwrite: bool = False, group_is_held: bool = False) -> Iterator[Path]:
    """An empty folder for a new run, held by this process alone; a used one is refused unless `overwrite`.

    Nothing is deleted before the folder and all runs in it are held. `group_is_held`: by this process, too.
    """
    path = Path(path)
    check_free(path, overwrite, group_is_held)
    make_folder(path)
    with sole_owner(path):
        _check_content(path, overwrite)  # once more: it may have been filled until it was ours
        try:
            _empty_all(path)
        except OSError as error:
            raise RunError(f"cannot write to {path}: {error.strerror}") from None
        yield path


def make_folder(path: Path) -> Path:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RunError(f"cannot write to {path}: {error.strerror}") from None
    return path


def check_free(path: str | Path, overwrite: bool = False, group_is_held: bool = False) -> None:
    """Refuse a folder that `claimed` would refuse, before hours of work."""
    path = Path(path)
    _check_content(path, overwrite)
    # Another process that holds the group may be about to start this run.
    group = [path.parent] if path.name in _members(path.parent) and not group_is_held else []
    for folder in (path, *_runs_within(path), *group):
        refuse_owned(folder)


def _check_content(path: Path, overwrite: bool) -> None:
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file; --out takes a folder")
    try:
        used = path.is_dir() and any(not _is_bare_lock(entry) for entry in path.iterdir())
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    if used and not overwrite and not _never_began(path):
        resume = f", or go on with `smallvit resume {path}`" if is_run(path) else ""
        raise RunError(f"{path} is already used. Choose another --out, or give --overwrite{resume}")
    if found := _strangers(path):
        raise RunError(f"{path} holds what no run wrote ({', '.join(found[:3])}): nothing was deleted")


def _empty_all(path: Path) -> None:
    """Delete what runs wrote, all but the lock that is held."""
    runs = _runs_within(path)
    with ExitStack() as held:
        for run in runs:
            held.enter_context(sole_owner(run))
        for run in reversed(runs):  # the innermost first: a kill on the way leaves a group that knows its runs
            _empty(run)
    _empty(path)


def _empty(folder: Path) -> None:
    entries = [*folder.iterdir(), *(folder / LOCK).parent.glob("*")]
    # What makes the folder ours goes last: what a kill leaves can then be overwritten.
    for entry in sorted(entries, key=lambda entry: entry.name in _MARKS):
        if entry == folder / LOCK or entry == (folder / LOCK).parent:
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry)
        else:
            entry.unlink()


def _runs_within(path: Path) -> list[Path]:
    """The runs of a group that are there; a link to one elsewhere is not."""
    members = _members(path)
    here = sorted(entry for entry in path.iterdir() if entry.name in members) if members else []
    inside = [entry for entry in here if entry.is_dir() and not entry.is_symlink()]
    return [path for run in inside for path in (run, *_runs_within(run))]


def _is_bare_lock(entry: Path) -> bool:
    """All that there is between taking a folder and writing to it."""
    return (
        entry.name == LOCK.parent.name and entry.is_dir() and {inner.name for inner in entry.iterdir()} <= {LOCK.name}
    )


_MARKS = ("recipe.json", "group.json", "tune.json", STAGES_FILE)
_FIRST = frozenset({"env.json", "split.json", "floors.json"})  # all there is before a folder is a run
_OURS = _FIRST | {
    "recipe.json", "metrics.jsonl", "model.safetensors", "results.json", "predictions.safetensors",
    "images.safetensors", "report.html", "log.txt", "group.json", "state", "tensorboard", "wandb", "findings",
    "features.safetensors", "probe.json", "decision.json", "trial.json", "tune.json", "spent.json", "best.toml",
    STAGES_FILE, "label-errors.csv", "estimator.json", "moved.json", "reject.json", "curve.json",
    "neighbours.safetensors", "study.json", "asked.json",
}  # fmt: skip


def is_run(path: Path) -> bool:
    """A run, a group, a search, or what becomes one of them."""
    return any((path / name).is_file() for name in _MARKS)


def _never_began(path: Path) -> bool:
    """Whether a kill came between the claim of the folder and the last file of the plan, which makes it a run."""
    return (path / LOCK).is_file() and not is_run(path) and not _strangers(path)


def _strangers(path: Path) -> list[str]:
    """Names in a folder that no run and no group wrote; only the runs that a group names are its own."""
    if not path.is_dir():
        return []
    members = _members(path)
    ours = _OURS if is_run(path) else _FIRST
    found: list[str] = []
    for entry in sorted(path.iterdir()):
        if entry.name in members and entry.is_dir():
            found += [f"{entry.name}/{name}" for name in _strangers(entry)]
        elif _is_refused_trial(entry):
            continue
        elif entry.is_symlink() and entry.name == LOCK.parent.name:
            found.append(entry.name)  # what lies behind it may be anything
        elif entry.name not in ours and not PART.fullmatch(entry.name) and not _is_bare_lock(entry):
            found.append(entry.name)
    return found


def _is_refused_trial(entry: Path) -> bool:
    """A trial that could not be planned is no run of its search: a folder with nothing but what was tried."""
    in_search = (entry.parent / "tune.json").is_file() and entry.name.startswith("trial-")
    if not in_search or entry.is_symlink() or not entry.is_dir():
        return False
    return {inner.name for inner in entry.iterdir() if not PART.fullmatch(inner.name)} == {"trial.json"}


def _members(path: Path) -> set[str]:
    """Names of the runs that a group, or a run with stages, says it holds."""
    return _named(path / "group.json", "members") | _named(path / STAGES_FILE, "stages")


def _named(file: Path, key: str) -> set[str]:
    try:
        names = read_json(file, key)[key]
        return {name for name in names if isinstance(name, str) and name == Path(name).name and name != ".."}
    except RunError:
        return set()

"""What the page shows, read from run folders: no data set, no torch, nothing but the folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from smallvit.errors import RunError
from smallvit.planning.explanation import Explained, from_record
from smallvit.recipe import flat
from smallvit.runs.axes import Place
from smallvit.runs.curves import DeclaredCurves, read_curves
from smallvit.runs.folder import RunFolder
from smallvit.runs.members import arm_name, fold_results, folds_together, full_name, method_of, replicate_of
from smallvit.runs.rejected import read_rejections
from smallvit.runs.stored_findings import StoredFinding, read_findings

T = TypeVar("T")
CURVE_POINTS = 240  # more cannot be seen in a panel of 340 px


class Content(NamedTuple):
    """One run as the page sees it; `series` (from 1) is its colour everywhere."""

    arm: str  # its name together with the other replicates of its method
    label: str
    replicate: Place
    series: int
    path: Path
    asked: dict[str, Any]
    resolved: dict[str, Any]
    choices: list[dict[str, Any]]
    explained: Explained | None  # None: of version 0.1
    command: str
    env: dict[str, Any]
    split: dict[str, Any]
    results: dict[str, Any]
    metrics: list[dict[str, Any]]
    images: dict[str, NDArray[np.uint8]]
    findings: dict[str, StoredFinding] | None  # None: of another version
    curves: DeclaredCurves
    cautions: tuple[str, ...] = ()  # what was said before it began
    folds: int = 0  # how many runs were judged together; 0: this is a run
    rejections: Mapping[str, dict[str, Any]] = MappingProxyType({})  # thresholds of unknown, by the error they allow

    @property
    def part(self) -> str | None:
        """The part that was judged; None where there was neither a test nor a validation part."""
        return self.results.get("evaluated_part")

    @property
    def result(self) -> dict[str, Any]:
        return dict(self.results["parts"][self.part]) if self.part else {}

    @property
    def pretrained(self) -> bool:
        """Whether it learned features without a classifier, which a k-NN judged."""
        return self.results.get("judged_by") == "k-NN"

    @property
    def class_names(self) -> list[str]:
        return [str(name) for name in self.split["class_names"]]


def collect(runs: Sequence[RunFolder]) -> list[Content]:
    recipes = [run.read("recipe.json") for run in runs]
    for run in runs:
        _check_classes(run)
    names = name_runs([flat(recipe["resolved"]) for recipe in recipes], [run.path for run in runs])
    return [
        Content(
            arm=name.arm,
            label=name.run,
            replicate=replicate_of(run.path, recipe["resolved"]["seed"]),
            series=number,
            path=run.path,
            asked=flat(recipe.get("asked", {})),
            resolved=flat(recipe["resolved"]),
            choices=run.choices,
            explained=from_record(recipe["explained"]) if recipe.get("explained") else None,
            command=recipe.get("command", ""),
            env=run.read("env.json"),
            split=run.read("split.json"),
            results=run.results,
            metrics=run.metrics,
            images=read_images(run.path),
            findings=read_findings(run),
            curves=read_curves(run),
            cautions=tuple(map(str, recipe.get("cautions", ()))),
            rejections=read_rejections(run.path),
        )
        for number, (run, recipe, name) in enumerate(zip(runs, recipes, names, strict=True), start=1)
    ]


def _check_classes(run: RunFolder) -> None:
    """The results speak of the classes of the split."""
    classes = len(run.read("split.json")["class_names"])
    for name, part in run.results["parts"].items():
        if any(len(part.get(key) or [None] * classes) != classes for key in ("confusion", "per_class")):
            raise RunError(f"{run.path / 'results.json'} is damaged: its part {name} is not of {classes} classes")


def judged_together(runs: Sequence[RunFolder], contents: Sequence[Content]) -> list[Content]:
    """The same, but the folds of a group as one: every image judged once. Its folder reads as that of a run."""
    folders = dict(zip((content.label for content in contents), runs, strict=True))
    judged: list[Content] = []
    for arm in by_arm(contents):
        folder = folds_together([folders[content.label] for content in arm])
        judged += arm if folder is None else [_as_one(folder, arm)]
    return judged


def _as_one(folder: Path, folds: Sequence[Content]) -> Content:
    first, results = folds[0], fold_results(folder)
    counts = [
        sum(of_class) for of_class in zip(*(fold.split["parts"]["left_out"]["counts"] for fold in folds), strict=True)
    ]
    seeds = len(folds) // results["folds"]  # each of which leaves out every image once
    trained = {"n": results["parts"]["left_out"]["n"], "counts": [count // seeds for count in counts]}
    parts = {name: part for name, part in first.split["parts"].items() if name == "test"}
    return first._replace(
        label=first.arm,
        split={**first.split, "parts": {"train": trained, **parts}},
        results=results,
        images=read_images(folder),
        folds=results["folds"],
        rejections=read_rejections(folder),
    )


def read_images(folder: Path) -> dict[str, NDArray[np.uint8]]:
    """The stored pictures; a folder without them still makes a page."""
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    path = folder / "images.safetensors"
    if not path.is_file():
        return {}
    try:
        arrays = load_file(path)
    except (OSError, SafetensorError) as error:
        raise RunError(f"cannot read {path}: {error}") from None
    return {
        name: array
        for name, array in arrays.items()
        if array.ndim == 4 and array.dtype == np.uint8 and array.shape[1] in (1, 3) and 0 not in array.shape[2:]
    }


class Name(NamedTuple):
    arm: str  # of all replicates of one method
    run: str


def name_runs(recipes: Sequence[Mapping[str, Any]], paths: Sequence[Path]) -> list[Name]:
    """The shortest names that tell arms and runs apart: of an arm the model, or its folder; of a run also the seed."""
    keys = [method_of(path, recipe) for path, recipe in zip(paths, recipes, strict=True)]
    arms = _distinct(keys, [str(recipe["model.name"]) for recipe in recipes], [arm_name(path) for path in paths])
    if len(set(keys)) == len(keys):
        return [Name(arm, arm) for arm in arms]
    lead = [""] * len(arms) if len(set(keys)) == 1 else [f"{arm}, " for arm in arms]
    replicates = [replicate_of(path, recipe["seed"]).words for path, recipe in zip(paths, recipes, strict=True)]
    numbers = [str(number) for number in range(len(keys))]
    by_replicate = [f"{arm}{words}" for arm, words in zip(lead, replicates, strict=True)]
    labels = _distinct(numbers, by_replicate, [full_name(path) for path in paths])
    return [Name(arm, run) for arm, run in zip(arms, labels, strict=True)]


def _distinct(keys: Sequence[str], *candidates: Sequence[str]) -> list[str]:
    """The first of the candidates in which other keys have other names; if there is none, the last with numbers."""
    for names in candidates:
        if len(set(zip(keys, names, strict=True))) == len(set(names)) == len(set(keys)):
            return list(names)
    order = list(dict.fromkeys(keys))
    return [f"{candidates[-1][keys.index(key)]} ({order.index(key) + 1})" for key in keys]


def by_arm(contents: Sequence[Content]) -> list[list[Content]]:
    """Replicates of one method together."""
    arms: dict[str, list[Content]] = {}
    for content in contents:
        arms.setdefault(content.arm, []).append(content)
    return list(arms.values())


def shared(pairs: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
    """Equal values once, under the labels that have them; a value that all share has no label."""
    labels: list[list[str]] = []
    values: list[T] = []
    for label, value in pairs:
        if value in values:
            labels[values.index(value)].append(label)
        else:
            values.append(value)
            labels.append([label])
    names = [""] if len(values) == 1 else [", ".join(group) for group in labels]
    return list(zip(names, values, strict=True))

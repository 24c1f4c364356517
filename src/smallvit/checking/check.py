"""`smallvit check`: everything that can be known about a set, its recipe and its time before training."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from smallvit.checking import copies, inspections
from smallvit.checking.group_names import groups_in_names
from smallvit.checking.near_duplicates.search import Duplicates, find_duplicates, scan
from smallvit.checking.rules import Problem, problem
from smallvit.checking.survey import Survey, damaged, survey
from smallvit.console import quiet
from smallvit.data.imageset import ImageSet
from smallvit.data.kept import Data, lent
from smallvit.data.kinds import where_of
from smallvit.data.sources import open_source
from smallvit.data.split import Split
from smallvit.errors import BudgetError, DataError, SmallvitError, UsageError
from smallvit.models.features import count_parameters
from smallvit.planning.cautions import torn_groups
from smallvit.planning.choices import Choice, Choices
from smallvit.planning.plan import Plan, Prepared, load_images, prepare
from smallvit.planning.resolve import resolve_machine, resolve_names, resolve_size
from smallvit.recipe import Recipe, resolved
from smallvit.training.budget import seconds_of
from smallvit.training.session import computing

ORDER = ("error", "warning", "note")
STOPS = {"one-class", "untrained-class", "many-unreadable"}  # the findings that say why training would stop


@dataclass(frozen=True)
class CheckReport:
    source: str
    problems: tuple[Problem, ...]  # worst first
    facts: dict[str, Any]  # counts, sizes, channels, as far as they could be found out
    recipe: Recipe | None  # what `train` would use; None: it would stop
    choices: tuple[Choice, ...] = ()
    seconds: float | None = None  # of training on this machine
    timing: dict[str, float] = field(default_factory=dict)  # how that came about
    duplicates: tuple[tuple[str, ...], ...] = ()  # groups of files with the same picture

    @property
    def ok(self) -> bool:
        """Nothing would spoil a result."""
        return not any(problem.severity == "error" for problem in self.problems)

    def as_dict(self) -> dict[str, Any]:
        """All of it, ready for JSON."""
        return {
            "source": self.source,
            "ok": self.ok,
            "problems": [problem._asdict() for problem in self.problems],
            "facts": self.facts,
            "duplicates": self.duplicates,
            "recipe": self.recipe.model_dump() if self.recipe else None,
            "choices": [choice._asdict() for choice in self.choices],
            "seconds": self.seconds,
            "timing": self.timing,
        }


def check(
    data: Data = None, *, fast: bool = False, recipe: str | Path = "default",
    settings: Mapping[str, Any] | None = None, show_progress: bool = True, **flags: Any,
) -> CheckReport:  # fmt: skip
    """Look at a set as `train` would with the same arguments. `fast` leaves out near copies and the time."""
    from smallvit.api import make_recipe

    with quiet(not show_progress), lent(data) as source:
        asked = make_recipe(recipe, settings, data=source, **flags)
        with computing(torch.get_num_threads() if asked.threads == "auto" else asked.threads):
            return _check(asked, fast)


def _check(asked: Recipe, fast: bool) -> CheckReport:
    seen = survey(where_of(asked.data))
    prepared, images, stopped = _prepare(asked)
    plan = prepared.plan if prepared else None
    if images is None and seen is None:
        raise stopped or DataError(f"{asked.data.source} cannot be read")
    problems = list(_file_problems(seen, images))
    facts: dict[str, Any] = {}
    same: Duplicates | None = None
    if images is not None:
        looked = scan(images.images_NCSS, near=not fast)
        same = find_duplicates(looked)
        split = plan.split if plan else None
        train = split.train if split else images.parts.get("train", torch.arange(len(images)))
        problems += inspections.classes(images, train)
        problems += groups_in_names(images) if seen is not None else ()
        problems += copies.copies(images, split, same, _same_bytes(seen, images, same))
        problems += [
            *copies.search(images, same),
            *inspections.blanks(images, looked),
            *inspections.colour(images, looked),
        ]
        facts = _facts(images, split, seen)
    timing: dict[str, float] = {}
    if prepared and plan:
        problems += _plan_problems(asked, plan, seen)
        trial = prepared.training
        problems += inspections.tokens(trial.step.backbone, plan.recipe)
        facts["parameters"] = count_parameters(trial.step.backbone)
        timing = {} if fast else _timing(prepared)
    if stopped and not {problem.code for problem in problems} & STOPS:
        problems.append(problem("unusable", str(stopped), "Training would stop here."))
    return CheckReport(
        source=asked.data.source,
        problems=tuple(sorted(problems, key=lambda problem: ORDER.index(problem.severity))),
        facts=facts,
        recipe=plan.recipe if plan else None,
        choices=tuple(plan.choices) if plan else (),
        seconds=timing.get("training"),
        timing=timing,
        duplicates=tuple(tuple(images.files[row] for row in group) for group in same.groups) if same and images else (),
    )


# ---- what train would do -----------------------------------------------------------------------------


def _prepare(asked: Recipe) -> tuple[Prepared | None, ImageSet | None, SmallvitError | None]:
    """The plan of `train`; where it would stop for the data or for want of time, the images if they can be had, and the reason."""
    try:
        try:
            prepared = prepare(asked, with_floors=False)
        except BudgetError:
            raise
        except UsageError:
            if asked.batch_size == "auto":
                raise
            prepared = prepare(asked.model_copy(update={"batch_size": "auto"}), with_floors=False)
            if resolved(asked.batch_size) <= len(prepared.plan.split.train):
                raise
        return prepared, prepared.plan.images, None
    except (DataError, BudgetError) as error:
        try:
            return None, _load(asked), error
        except DataError as worse:
            return None, None, worse


def _load(asked: Recipe) -> ImageSet:
    choices = Choices(asked)
    resolve_machine(choices)
    resolve_names(choices)
    source = open_source(where_of(asked.data))
    resolve_size(choices, source)
    return load_images(source, choices.recipe.data)


def _timing(prepared: Prepared) -> dict[str, float]:
    """Seconds of a step, measured, and of all that training does with it."""
    plan, trial, cost = prepared
    epochs = resolved(plan.recipe.epochs)
    looks = math.ceil(epochs / resolved(plan.recipe.eval_every)) if len(plan.split.val) else 0
    training = seconds_of(trial, cost, epochs, looks)
    return {"step": cost.seconds[1], "steps_an_epoch": len(trial.loader), "epochs": epochs, "training": training}


# ---- what was seen -----------------------------------------------------------------------------------


def _file_problems(seen: Survey | None, images: ImageSet | None) -> Iterator[Problem]:
    if seen is None:
        return
    broken = {item.file: item.why for item in images.skipped} if images else damaged(seen)
    yield from inspections.unreadable(broken, len(seen.files))
    yield from inspections.other_files(seen)


def _plan_problems(asked: Recipe, plan: Plan, seen: Survey | None) -> Iterator[Problem]:
    n, img_size = len(plan.split.train), resolved(plan.recipe.data.img_size)
    if asked.batch_size != "auto" and asked.batch_size > n:
        yield problem(
            "large-batch",
            f"batch size {asked.batch_size} is larger than the {n:,} training images: training refuses it",
            f"--batch-size {plan.recipe.batch_size} suits them; the rest of this report uses it.",
        )
    if torn := torn_groups(plan.images, plan.split):
        message, advice = torn
        yield problem("torn-groups", message, f"{advice[:1].upper()}{advice[1:]}.")
    yield from inspections.judged_part(plan.split)
    if seen is not None:
        yield from inspections.sizes(seen.readable, img_size, plan.recipe.data.fit)
    elif asked.data.img_size != "auto":
        yield from inspections.enlarged_arrays(open_source(where_of(plan.recipe.data)).side, img_size, len(plan.images))


def _facts(images: ImageSet, split: Split | None, seen: Survey | None) -> dict[str, Any]:
    parts = split.parts if split else images.parts
    rows = {"all": torch.arange(len(images)), **{name: part for name, part in parts.items() if len(part)}}
    counts = {
        name: torch.bincount(images.labels_N[part], minlength=len(images.class_names)).tolist()
        for name, part in rows.items()
    }
    facts: dict[str, Any] = {
        "images": len(images),
        "parts": {name: len(part) for name, part in rows.items() if name != "all"},
        "how": split.how if split else {},
        "classes": {
            name: {part: counts[part][index] for part in counts} for index, name in enumerate(images.class_names)
        },
        "channels": images.images_NCSS.shape[1],
        "decoded_side": images.images_NCSS.shape[-1],
    }
    if seen is not None and seen.readable:
        shorter = sorted(min(file.width, file.height) for file in seen.readable)
        facts["files"] = {
            "count": len(seen.files),
            "bytes": sum(file.bytes for file in seen.files),
            "formats": dict(Counter(file.path.suffix.lower() for file in seen.files).most_common()),
            "channels": dict(Counter(file.channels for file in seen.readable).most_common()),
            "shorter_side": {"min": shorter[0], "median": shorter[len(shorter) // 2], "max": shorter[-1]},
        }
    return facts


def _same_bytes(seen: Survey | None, images: ImageSet, same: Duplicates) -> set[int]:
    """Rows whose file is byte for byte that of an earlier row."""
    if seen is None:
        return set()
    paths = {file.name: file.path for file in seen.files}
    repeated: set[int] = set()
    for group in same.exact:
        digests = [hashlib.sha256(paths[images.files[row]].read_bytes()).digest() for row in group]
        repeated |= {row for place, row in enumerate(group) if digests[place] in digests[:place]}
    return repeated

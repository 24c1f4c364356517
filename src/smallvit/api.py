"""What the command line and Python users call: train, resume, evaluate, predict, report."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from smallvit.console import bar, quiet, say
from smallvit.data.images import FULL_WHITE, Unreadable, many_reads, read_image
from smallvit.data.imageset import Images
from smallvit.data.sources import image_files, open_source
from smallvit.errors import DataError, Interrupted, RunError, UsageError, nearest
from smallvit.evaluation.metrics import predict_logits, summary
from smallvit.many import Member, create_group, member_paths, run_members
from smallvit.objectives.base import objectives
from smallvit.plan import Plan, make_plan, read_plan, show_plan, write_plan
from smallvit.recipe import Recipe, build_recipe, known, read_preset
from smallvit.report.page import write_report
from smallvit.report.verdict import Verdict
from smallvit.resolve import check_device
from smallvit.run import Run, check_free, create
from smallvit.training.build import build_training
from smallvit.training.checkpoint import LoadedModel, load_model
from smallvit.training.finish import finish
from smallvit.training.frozen import frozen_parts, probe_parts
from smallvit.training.owner import sole_owner
from smallvit.training.session import Log, fixed_threads, run_session, state_file
from smallvit.training.tensorboard import TensorBoardLog
from smallvit.training.wandb import WandbLog

if TYPE_CHECKING:
    from smallvit.comparison import Comparison
    from smallvit.diagnosis.findings import Finding

LogType = type[TensorBoardLog] | type[WandbLog]
LOGS: dict[str, LogType] = {"tensorboard": TensorBoardLog, "wandb": WandbLog}

# Everyday names -> where they stand in the recipe.
FLAGS = {
    "data": "data.source", "model": "model.name", "img_size": "data.img_size", "in_chans": "data.in_chans",
    "fit": "data.fit", "val": "data.val", "test": "data.test", "train_on": "data.train_on",
    "per_class": "data.per_class", "fraction": "data.fraction", "epochs": "epochs", "batch_size": "batch_size",
    "lr": "optimizer.lr", "init": "model.init", "drop_path": "model.drop_path", "mixup": "objective.mixup", "cutmix": "objective.cutmix",
    "budget": "budget", "seed": "seed", "threads": "threads", "device": "device", "precision": "precision",
    "compile": "compile", "class_weights": "objective.class_weights", "balanced": "data.balanced",
}  # fmt: skip


def make_recipe(recipe: str | Path = "default", settings: Mapping[str, Any] | None = None, **flags: Any) -> Recipe:
    """A recipe from a preset, everyday flags (None: not given) and dotted settings. `aux` names auxiliary losses."""
    names = flags.pop("aux", None) or []
    preset = read_preset(recipe).get("aux", {})  # a name alone keeps the options that the preset gives it
    overrides: dict[str, Any] = {
        f"aux.{name}": preset.get(name, {}) for name in ([names] if isinstance(names, str) else names)
    }
    for name, value in flags.items():
        if name not in FLAGS:
            raise UsageError(
                f"unknown argument {name!r}: {nearest(name, [*FLAGS, 'aux'])}; other keys go through settings={{...}}"
            )
        if value is not None:
            overrides[FLAGS[name]] = str(value) if isinstance(value, Path) else value
    return build_recipe(recipe, {**overrides, **(settings or {})})


def train(
    data: str | Path | None = None, *, out: str | Path | None = None, recipe: str | Path = "default",
    settings: Mapping[str, Any] | None = None, overwrite: bool = False, log: str | None = None,
    show_progress: bool = True, started: float | None = None, **flags: Any,
) -> Run:  # fmt: skip
    """Train one model and return its finished run. Without `data` it is the recipe's: mnist5k in ours.

    `flags` are the everyday names of the command line (model, img_size, epochs, budget="20m", ...); anything else
    in the recipe goes through `settings={"optimizer.weight_decay": 0.1}`.
    """
    asked = make_recipe(recipe, settings, data=data, **flags)
    with quiet(not show_progress):
        started = time.monotonic() if started is None else started
        logs = check_logs(log)
        if out is not None:
            check_free(out, overwrite)
        plan = make_plan(asked, started)
        folder = create(out or default_folder(plan.recipe), overwrite)
        show_plan(plan)
        run = write_plan(folder, plan, command_line())
        return execute(run, plan, logs)


def train_seeds(
    data: str | Path | None = None, *, seeds: int, jobs: int = 1, out: str | Path | None = None,
    recipe: str | Path = "default", settings: Mapping[str, Any] | None = None, overwrite: bool = False,
    show_progress: bool = True, started: float | None = None, **flags: Any,
) -> list[Run]:  # fmt: skip
    """The same recipe with several seeds, in one folder with one report. The split is the same for all."""
    if seeds < 2:
        raise UsageError(f"--seeds {seeds}: give at least 2, or leave it out")
    asked = make_recipe(recipe, settings, data=data, **flags)
    if asked.budget:
        asked = asked.model_copy(update={"budget": asked.budget * min(jobs, seeds) / seeds})
    with quiet(not show_progress):
        if out is not None:
            check_free(out, overwrite)
        plan = make_plan(asked, started)
        first = plan.recipe.seed
        plans = [_reseeded(plan, first + number) for number in range(seeds)]
        folder = out or default_folder(plan.recipe)
        show_plan(plan)
        members = [Member(f"seed-{p.recipe.seed}", p) for p in plans]
        group = create_group(
            folder, members, command_line(), overwrite, title=f"{plan.recipe.model.name}, {seeds} seeds"
        )
        return run_group(group, jobs)


def pretrain(
    data: str | Path | None = None, *, method: str | None = None, recipe: str | Path | None = None,
    out: str | Path | None = None, settings: Mapping[str, Any] | None = None, **more: Any,
) -> Run:  # fmt: skip
    """Pretrain a model without labels (SupCon needs them) and return its finished run; then `train(..., init=run.path)`.

    `method` is idmm, simclr, supcon, mocov2, mocov3 or dino, and may be left out where a recipe says it; `more` is as
    for `train`. A folder of images will do.
    """
    return train(data, recipe=pretraining_recipe(method, recipe), out=out, settings=settings, **more)


def pretraining_recipe(method: str | None, recipe: str | Path | None = None) -> str | Path:
    """The recipe of a method, or the given one, which must be of that method."""
    methods = [name for name, kind in objectives().items() if not kind.classifies]
    if method is None and recipe is None:
        raise UsageError(f"pretraining needs a method: {', '.join(methods)}")
    if method is not None and method not in methods:
        raise UsageError(f"unknown method {method!r}: {nearest(method, methods)}")
    if recipe is None:
        return f"pretrain-{method}"
    named = build_recipe(recipe).objective.name
    if named not in methods or method not in (None, named):
        raise UsageError(f"the recipe {recipe} is one for {named}, not for {method or 'pretraining'}")
    return recipe


def _reseeded(plan: Plan, seed: int) -> Plan:
    return plan._replace(recipe=plan.recipe.model_copy(update={"seed": seed}))


def run_group(folder: Path, jobs: int = 1) -> list[Run]:
    """Finish every run of a group folder, then write its report."""
    run_members(folder, jobs)
    runs = [Run(path) for path in member_paths(folder)]
    report(runs, folder / "report.html")
    return runs


def resume(folder: str | Path, *, jobs: int = 1, log: str | None = None, show_progress: bool = True) -> list[Run]:
    """Go on with a run, or with all unfinished runs of a group, to the result it would have had anyway."""
    folder = Path(folder)
    with quiet(not show_progress):
        if (folder / "group.json").is_file():
            return run_group(folder, jobs)
        run = Run(folder)
        if run.finished:
            say(f"{folder} is already finished")
            if not (folder / "report.html").is_file():
                report([run], folder / "report.html")
            return [run]
        return [execute(run, read_plan(run), check_logs(log))]


def execute(run: Run, plan: Plan, logs: Sequence[LogType] = ()) -> Run:
    """Train, judge, report: from wherever the folder stands."""
    check_device(plan.recipe.device)
    try:
        with sole_owner(run.path), fixed_threads(known(plan.recipe.threads)):
            t = build_training(plan.recipe, plan.images, plan.split, with_init=not state_file(run.path).is_file())
            open_logs: list[Log] = [make(run.path) for make in logs]
            try:
                run_session(run.path, t, open_logs)
            finally:
                for log in open_logs:
                    log.close()
            say("judging the model and writing the report")
            finish(run, t, plan.images, plan.split, plan.floors)
            report([run], run.path / "report.html")
    except KeyboardInterrupt:  # outside the loop, or a second one in it
        raise Interrupted(f"stopped; go on with `smallvit resume {run.path}`") from None
    return run


def diagnose(
    folder: str | Path, *, against: str | Path | None = None, images: int = 256, show_progress: bool = True
) -> list[Finding]:
    """Measure a finished run, the weightiest finding first; they are stored with it, and its report is written anew.

    `against` is another run or a model's name.
    """
    from smallvit.diagnosis.diagnose import diagnose as measure_run

    with quiet(not show_progress):
        found = measure_run(folder, against, images)
        report([Run(folder)], Path(folder) / "report.html")
    return found


def compare(
    folders: Sequence[str | Path], *, cka: bool = False, images: int = 256, out: str | Path | None = None,
    show_progress: bool = True,
) -> list[Comparison]:  # fmt: skip
    """The first run, or group of seeds, against each of the others, and one report of all.

    `cka` also diagnoses the first run against the second, so that the report shows how alike their layers are.
    """
    from smallvit import comparison

    sides = comparison.open_sides(folders)
    found = comparison.compare(sides)
    runs = [run for side in sides for run in side.runs.values()]
    with quiet(not show_progress):
        if cka:
            one, other = (next(iter(side.runs.values())) for side in sides[:2])
            diagnose(one.path, against=other.path, images=images, show_progress=show_progress)
        verdicts = [Verdict("note", "Real" if one.real else "Not decided", one.sentence) for one in found]
        page = Path(out) if out else comparison.default_page(folders)
        write_report(runs, page, " and ".join(dict.fromkeys(side.name for side in sides)), verdicts)
        say(f"report: {page}")
    return found


def open_runs(folder: str | Path) -> list[Run]:
    """The run of a folder, or the runs of a group."""
    folder = Path(folder)
    return [Run(path) for path in member_paths(folder)] if (folder / "group.json").is_file() else [Run(folder)]


def report(runs: Sequence[Run], out: Path) -> Path:
    """One page for one run, or for several side by side."""
    *others, last = dict.fromkeys(run.recipe.model.name for run in runs)
    names = f"{', '.join(others)} and {last}" if others else last
    return write_report(runs, out, f"{names} on {Path(runs[0].recipe.data.source).name}")


def check_logs(names: str | None) -> list[LogType]:
    """`tensorboard`, `wandb`, or both with a comma between; whether their packages are there is asked now."""
    asked = list(dict.fromkeys(name.strip() for name in names.split(","))) if names is not None else []
    for name in asked:
        if name not in LOGS:
            raise UsageError(f"unknown log {name!r}: {nearest(name, LOGS)}")
        LOGS[name].check()
    return [LOGS[name] for name in asked]


def default_folder(recipe: Recipe) -> Path:
    """runs/NAME-MODEL-1, or the next free number; runs/NAME-METHOD-MODEL-1 for pretraining."""
    method = [] if objectives()[recipe.objective.name].classifies else [recipe.objective.name]
    stem = "-".join([Path(recipe.data.source).stem, *method, recipe.model.name])
    number = 1
    while (path := Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return path


def command_line() -> str:
    """What was typed, where it was the command line."""
    program = Path(sys.argv[0])
    ours = "smallvit" in (program.stem, program.parent.name if program.stem == "__main__" else "")
    return shlex.join(["smallvit", *sys.argv[1:]]) if ours else "smallvit.train(...)"


# ---- a finished run ----------------------------------------------------------------------------------


def evaluate(folder: str | Path, part: str = "test", data: str | Path | None = None) -> dict[str, Any]:
    """Accuracy with interval, per class, on a part of the run's own split or on other images of the same classes."""
    run = Run(folder)
    loaded = _trained_model(run)
    names = tuple(loaded.header["class_names"])
    if data is not None:
        images, rows, labels = _other_images(str(data), loaded)
    else:
        plan = read_plan(run)
        parts = dict(zip(("train", "val", "test"), plan.split[:3], strict=True))
        if part not in parts or not len(parts[part]):
            has = [name for name, rows in parts.items() if len(rows)]
            raise UsageError(f"part {part!r} of {run.path} holds no images: choices: {', '.join(has)}")
        images, rows = plan.images.images_NCSS, parts[part]
        labels = plan.images.labels_N[rows]
    with fixed_threads(known(run.recipe.threads)):
        found = predict_logits(loaded.backbone, _batches(loaded, images, rows, labels))
    return summary(*found, names)


def _trained_model(run: Run) -> LoadedModel:
    if not run.finished:
        raise RunError(f"{run.path} is not finished: go on with `smallvit resume {run.path}`")
    return _with_classes(load_model(run.path / "model.safetensors"), run.path)


def _with_classes(loaded: LoadedModel, path: Path) -> LoadedModel:
    if not loaded.header["class_names"]:
        raise UsageError(
            f"{path} was pretrained and knows no classes: train it with `smallvit train DATA --init {path}`, "
            f"or see what its features are worth with `smallvit probe {path}`"
        )
    return loaded


def _other_images(source: str, loaded: LoadedModel) -> tuple[Images, Tensor, Tensor]:
    """Images of another source, which rows of them, and their labels: classes are matched by name."""
    h = loaded.header
    images = open_source(source).load(h["cache_size"], h["fit"], h["in_chans"], h.get("white", FULL_WHITE))
    unknown = [name for name in images.class_names if name not in h["class_names"]]
    if unknown:
        raise DataError(f"{source} has classes the model does not know: {', '.join(unknown[:5])}")
    rows = images.parts.get("test", torch.arange(len(images)))
    number = torch.tensor([h["class_names"].index(name) for name in images.class_names])
    return images.images_NCSS, rows, number[images.labels_N[rows]]


def _batches(loaded: LoadedModel, images: Images, rows: Tensor, labels: Tensor) -> Any:
    for some, their_labels in zip(rows.split(256), labels.split(256), strict=True):
        yield loaded.augmenter.prepare(images[some], loaded.header["img_size"]), their_labels


class Prediction(NamedTuple):
    file: str
    label: str | None  # None: the file could not be read
    probability: float | None
    problem: str = ""


def predict(
    folder: str | Path, files: str | Path | Sequence[str | Path], *, calibrated: bool = False
) -> list[Prediction]:
    """Label and probability of every image file, those below folders included. `folder` is a run or its model file.

    `calibrated` divides the logits by the temperature that suited the validation part: other probabilities, the same
    labels.
    """
    path = Path(folder)
    loaded = _with_classes(load_model(path), path) if path.suffix == ".safetensors" else _trained_model(Run(path))
    temperature = _temperature(path, loaded) if calibrated else 1.0
    found = list(_expand([files] if isinstance(files, str | Path) else files))
    answers: list[Prediction] = []
    with many_reads(), bar("predicting", len(found)) as advance:
        for start in range(0, len(found), 64):
            some = found[start : start + 64]
            answers += _predict_some(loaded, some, temperature)
            advance(len(some))
    return answers


def _temperature(path: Path, loaded: LoadedModel) -> float:
    temperature = loaded.header.get("temperature")
    if temperature is None:
        raise UsageError(f"{path} has no temperature: it takes a run with a validation and a test part to fit one")
    say(f"probabilities at temperature {temperature:.4g}, fitted on the run's validation part")
    return float(temperature)


def _predict_some(loaded: LoadedModel, files: Sequence[Path], temperature: float = 1.0) -> list[Prediction]:
    h, images, answers = loaded.header, [], {}
    for file in files:
        try:
            images.append(
                (file, read_image(file, h["cache_size"], h["fit"], h["in_chans"], h.get("white", FULL_WHITE)))
            )
        except Unreadable as error:
            answers[file] = Prediction(str(file), None, None, str(error))
    if images:
        pixels, rows = torch.stack([image for _, image in images]), torch.arange(len(images))
        logits, _ = predict_logits(loaded.backbone, _batches(loaded, pixels, rows, torch.zeros(len(images))))
        for (file, _), (probability, index) in zip(
            images, zip(*(logits / temperature).softmax(1).max(1), strict=True), strict=True
        ):
            answers[file] = Prediction(str(file), h["class_names"][int(index)], round(float(probability), 6))
    return [answers[file] for file in files]


def _expand(files: Sequence[str | Path]) -> Any:
    for name in files:
        path = Path(name)
        if path.is_dir():
            inside = image_files(path)
            if not inside:
                raise DataError(f"no images below {path}")
            yield from inside
        else:
            yield path  # a missing file is an answer too: it is listed with the unreadable ones


def probe(folder: str | Path, *, knn: bool = True, linear: bool = True) -> dict[str, Any]:
    """What the frozen features of a finished run are worth, on its test part (else on its validation part).

    Works for every run, pretrained or trained. The features are kept in the run folder, the answers in probe.json.
    """
    run = Run(folder)
    if not run.finished:
        raise RunError(f"{run.path} is not finished: go on with `smallvit resume {run.path}`")
    plan = read_plan(run)
    with fixed_threads(known(run.recipe.threads)):
        parts = frozen_parts(run, plan.images, plan.split)
        found = probe_parts(parts, len(plan.images.class_names), knn=knn, linear=linear)
    found["floors"] = floors_for(run.path, found["part"])
    run.write("probe.json", found)
    return found


def floors_for(folder: str | Path, part: str) -> dict[str, Any]:
    """The floors of a run, where they were measured on this part."""
    results = Run(folder).results
    return dict(results["floors"]) if results["evaluated_part"] == part else {}


def describe_recipe(asked: Recipe) -> str:
    """The resolved recipe as TOML, every key with its value and, where it was chosen, the reason."""
    from smallvit.catalog import toml_page

    plan = make_plan(asked, with_floors=False)
    return toml_page(plan.recipe, {choice.key: f"auto: {choice.why}" for choice in plan.choices})

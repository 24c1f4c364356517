"""The commands. No logic: every command calls api.py. Nothing heavy is imported before a command runs."""

from __future__ import annotations

import time

STARTED = time.monotonic()  # a budget counts from here, so that imports are part of it

import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Annotated, Any  # noqa: E402

import typer  # noqa: E402

from smallvit.errors import SmallvitError, UsageError, nearest  # noqa: E402

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    help="Train vision transformers from scratch on small image sets, and see why they fail or work.",
    epilog="Start with `smallvit demo`, then `smallvit train FOLDER`. Everything a run did lies in its folder.",
)
recipe_app = typer.Typer(no_args_is_help=True, help="Look at the recipes that come with smallvit.")
app.add_typer(recipe_app, name="recipe")
cache_app = typer.Typer(no_args_is_help=True, help="Look at the decoded images that runs keep, or remove them.")
app.add_typer(cache_app, name="cache")

Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the run; default runs/DATA-MODEL-N.")]
Budget = Annotated[str | None, typer.Option(help="Time for the whole command, e.g. 20m; sets the epochs.")]
Rate = Annotated[float | None, typer.Option(help="Peak learning rate.")]
DropPath = Annotated[float | None, typer.Option(help="Rate of stochastic depth; 0 is off.")]
Seed = Annotated[int | None, typer.Option(help="Of weights, order and augmentation; the split has its own.")]
Precision = Annotated[str | None, typer.Option(help="auto, fp32 or bf16.")]
PrintRecipe = Annotated[bool, typer.Option("--print-recipe", help="Show the resolved recipe and stop.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace a run that is already in --out.")]
Jobs = Annotated[int, typer.Option("--jobs", min=1, help="How many of several runs at once (give each --threads 1).")]
Log = Annotated[str | None, typer.Option("--log", help="Also log to tensorboard, wandb, or tensorboard,wandb.")]
# What train and check share.
Model = Annotated[str | None, typer.Option(help="A timm model or a short name (see `smallvit list models`).")]
ImgSize = Annotated[int | None, typer.Option(help="Side of the training images in pixels.")]
InChans = Annotated[int | None, typer.Option(help="Channels; 1 and 3 become each other.")]
Fit = Annotated[str | None, typer.Option(help="How images become square: crop, squash or pad.")]
Epochs = Annotated[int | None, typer.Option(help="Passes over the training images.")]
BatchSize = Annotated[int | None, typer.Option(help="Images in one step.")]
Val = Annotated[str | None, typer.Option(help="Validation: none, a share such as 0.15, or a part's name.")]
Test = Annotated[str | None, typer.Option(help="Test: none, a share such as 0.2, or a part's name.")]
TrainOn = Annotated[str | None, typer.Option(help="train, or train+val.")]
PerClass = Annotated[int | None, typer.Option(help="Train on this many images of each class.")]
Fraction = Annotated[float | None, typer.Option(help="Train on this share of each class.")]
RecipeName = Annotated[str, typer.Option(help="A recipe's name or a .toml file.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda, mps.")]
Threads = Annotated[int | None, typer.Option(help="CPU threads.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Any key, e.g. optimizer.weight_decay=0.1. May be repeated."),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the demo.")] = Path("runs/demo"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Seconds instead of minutes: only to see that it works.")
    ] = False,
    quiet: Quiet = False,
) -> None:
    """Train a ViT, a DHVT and a ResNet of 0.2 M parameters on 1,000 embedded digits, and write a report of them."""
    _announce(quiet)
    from smallvit.demo import demo as run_demo

    runs = run_demo(out, quick=quick, show_progress=not quiet)
    _show(runs, out / "report.html", quiet)


@app.command()
def check(
    data: Annotated[str, typer.Argument(help="As for train: a folder, .csv or .npz file, or a named set.")],
    model: Model = None,
    img_size: ImgSize = None,
    in_chans: InChans = None,
    fit: Fit = None,
    epochs: Epochs = None,
    budget: Annotated[str | None, typer.Option(help="Time for training, e.g. 20m; sets the epochs.")] = None,
    batch_size: BatchSize = None,
    val: Val = None,
    test: Test = None,
    train_on: TrainOn = None,
    per_class: PerClass = None,
    fraction: Fraction = None,
    recipe: RecipeName = "default",
    settings: Settings = None,
    device: Device = None,
    threads: Threads = None,
    fast: Annotated[bool, typer.Option("--fast", help="Leave out near copies and the time.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Look at the images before training: damage, copies, leaks, recipe and time. Status 1: something would spoil it."""
    given = dict(locals())
    import json

    _announce(quiet or as_json)
    from smallvit.checking.check import check as run_check
    from smallvit.checking.terminal import show_report

    found = run_check(**_asked(given), fast=fast, show_progress=not (quiet or as_json))
    if as_json:
        typer.echo(json.dumps(found.as_dict(), indent=1))
    elif not quiet:
        show_report(found)
    if not found.ok:
        raise typer.Exit(1)


@app.command()
def train(
    data: Annotated[str | None, typer.Argument(help="Folder of class folders, .csv of path,label[,split], .npz, or mnist5k (default) | digits.")] = None,
    model: Model = None,
    out: Out = None,
    img_size: ImgSize = None,
    in_chans: InChans = None,
    fit: Fit = None,
    epochs: Epochs = None,
    budget: Budget = None,
    batch_size: BatchSize = None,
    lr: Rate = None,
    init: Annotated[str | None, typer.Option(metavar="RUN|FILE", help="Start from the model of a run, or from a checkpoint that the authors released (.safetensors, .pth).")] = None,
    drop_path: DropPath = None,
    mixup: Annotated[float | None, typer.Option(help="Alpha of Mixup; 0 is off.")] = None,
    cutmix: Annotated[float | None, typer.Option(help="Alpha of CutMix; 0 is off.")] = None,
    aux: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Auxiliary loss beside the objective: drloc. Its options: --set aux.drloc.weight=0.1.")] = None,
    class_weights: Annotated[str | None, typer.Option(metavar="auto|none|FILE", help="Weight of each class in the loss: auto is the inverse of its frequency; FILE is a CSV with class,weight or a JSON object.")] = None,
    balanced: Annotated[bool, typer.Option("--balanced", help="Draw every class equally often in each epoch.")] = False,
    val: Val = None,
    test: Test = None,
    train_on: TrainOn = None,
    per_class: PerClass = None,
    fraction: Fraction = None,
    recipe: RecipeName = "default",
    settings: Settings = None,
    seed: Seed = None,
    seeds: Annotated[int | None, typer.Option(help="Train this many seeds of the same recipe.")] = None,
    jobs: Jobs = 1,
    device: Device = None,
    threads: Threads = None,
    precision: Precision = None,
    compile: Annotated[bool, typer.Option("--compile", help="Use torch.compile.")] = False,
    log: Log = None,
    print_recipe: PrintRecipe = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Train on a folder of images; ends with a report. What is not given is chosen, printed and stored."""
    given = dict(locals())
    _announce(quiet)
    _run(_asked(given), {"out": out, "overwrite": overwrite}, seeds, jobs, log, print_recipe, quiet)


@app.command()
def pretrain(
    data: Annotated[str | None, typer.Argument(help="As for train; a folder of images without class folders will do, except for supcon.")] = None,
    method: Annotated[str | None, typer.Option(help="idmm, simclr, supcon, mocov2, mocov3 or dino.")] = None,
    model: Model = None,
    out: Out = None,
    img_size: ImgSize = None,
    in_chans: InChans = None,
    fit: Fit = None,
    epochs: Epochs = None,
    budget: Budget = None,
    batch_size: BatchSize = None,
    lr: Rate = None,
    init: Annotated[str | None, typer.Option(metavar="RUN|FILE", help="Start from the model of a run, or from a checkpoint file.")] = None,
    drop_path: DropPath = None,
    val: Val = None,
    test: Test = None,
    train_on: TrainOn = None,
    per_class: PerClass = None,
    fraction: Fraction = None,
    recipe: Annotated[str | None, typer.Option(help="A recipe's name or a .toml file; default pretrain-METHOD.")] = None,
    settings: Settings = None,
    seed: Seed = None,
    seeds: Annotated[int | None, typer.Option(help="Pretrain this many seeds of the same recipe.")] = None,
    jobs: Jobs = 1,
    device: Device = None,
    threads: Threads = None,
    precision: Precision = None,
    log: Log = None,
    print_recipe: PrintRecipe = False,
    overwrite: Overwrite = False,
    quiet: Quiet = False,
) -> None:  # fmt: skip
    """Learn features from the images alone; then `smallvit train DATA --init RUN`. Without labels, except supcon."""
    given = dict(locals())
    _announce(quiet)
    from smallvit import api

    chosen = _asked(given) | {"recipe": api.pretraining_recipe(method, recipe)}
    _run(chosen, {"out": out, "overwrite": overwrite}, seeds, jobs, log, print_recipe, quiet)


@app.command()
def probe(
    folder: RunFolder,
    knn: Annotated[bool, typer.Option("--knn", help="Nearest neighbours only.")] = False,
    linear: Annotated[bool, typer.Option("--linear", help="The linear probe only.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """What the frozen features of a run are worth: k-NN and a linear probe, beside the floors."""
    import json

    _announce(as_json)
    from smallvit import api
    from smallvit.report.terminal import probe_table

    found = api.probe(folder, knn=knn or not linear, linear=linear or not knn)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        probe_table(found)


@app.command()
def resume(folder: RunFolder, jobs: Jobs = 1, log: Log = None, quiet: Quiet = False) -> None:
    """Go on after a crash, a kill or Ctrl-C: the result is the one it would have had anyway."""
    _announce(quiet)
    from smallvit import api

    runs = api.resume(folder, jobs=jobs, log=log, show_progress=not quiet)
    _show(runs, folder / "report.html", quiet)


@app.command()
def evaluate(
    folder: RunFolder,
    part: Annotated[str, typer.Option(help="train, val or test of the run's own split.")] = "test",
    data: Annotated[str | None, typer.Option(help="Other images of the same classes instead.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Accuracy with its interval, beside the floors, and the worst classes."""
    import json

    _announce(as_json)
    from smallvit import api
    from smallvit.report.terminal import evaluation_table

    found = api.evaluate(folder, part, data)
    if as_json:
        typer.echo(json.dumps(found, indent=1))
    else:
        evaluation_table(found, api.floors_for(folder, part) if data is None else {}, data or part)


@app.command()
def predict(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a model.safetensors.")],
    files: Annotated[list[Path], typer.Argument(help="Image files or folders of them.")],
    csv: Annotated[Path | None, typer.Option(help="Write label, probability, file to this CSV file.")] = None,
    calibrated: Annotated[
        bool,
        typer.Option("--calibrated", help="Probabilities at the temperature fitted on the validation part."),
    ] = False,
) -> None:
    """Label image files. Files that cannot be read are listed at the end and set the exit status to 1."""
    _announce()
    from smallvit import api
    from smallvit.report.terminal import write_predictions

    problems = write_predictions(api.predict(folder, files, calibrated=calibrated), csv)
    if problems:
        raise typer.Exit(1)


@app.command()
def diagnose(
    folder: RunFolder,
    against: Annotated[
        str | None,
        typer.Option(metavar="RUN|MODEL", help="Compare its layers with another run, or an untrained model."),
    ] = None,
    images: Annotated[int, typer.Option(min=8, help="How many images to measure on.")] = 256,
    quiet: Quiet = False,
) -> None:
    """Why it does well or badly: attention, locality, features, CKA; sentences here, pictures in the report."""
    _announce(quiet)
    from smallvit import api

    found = api.diagnose(folder, against=against, images=images, show_progress=not quiet)
    if not quiet:
        for number, finding in enumerate([one for one in found if one.verdict], start=1):
            typer.echo(f"{number}. {finding.verdict}")
        typer.echo(f"report: {folder / 'report.html'}")


@app.command()
def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs, or folders of several seeds.")],
    cka: Annotated[bool, typer.Option("--cka", help="Also compare the layers of the first two by CKA.")] = False,
    images: Annotated[int, typer.Option(min=8, help="How many images to measure CKA on.")] = 256,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; default compare-A-B.html beside the first.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Is the difference real? Paired over seeds, or over test images for single runs; one page with all curves."""
    import json

    _announce(quiet or as_json)
    from smallvit import api

    found = api.compare(folders, cka=cka, images=images, out=out, show_progress=not (quiet or as_json))
    if as_json:
        typer.echo(json.dumps([one._asdict() | {"real": one.real} for one in found], indent=1))
    elif not quiet:
        for one in found:
            typer.echo(one.sentence)


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One or more finished runs.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; default report.html in the first run.")
    ] = None,
) -> None:
    """Write report.html anew, or one report that puts several runs side by side."""
    from smallvit import api

    runs = [run for folder in folders for run in api.open_runs(folder)]
    typer.echo(api.report(runs, out or folders[0] / "report.html"))


@app.command(name="list")
def list_(
    what: Annotated[str, typer.Argument(help="models, recipes, methods or datasets.")],
    pattern: Annotated[str, typer.Argument(help="With models: a pattern over all of timm, e.g. 'convnext*'.")] = "",
) -> None:
    """What there is: models, recipes, methods, datasets."""
    from smallvit.catalog import CATALOG

    if what not in CATALOG:
        raise UsageError(f"cannot list {what!r}: {nearest(what, CATALOG)}")
    for name, *columns in CATALOG[what](pattern):
        *figures, text = columns or [""]
        widths = (12, 8, 7, 18)
        shown = [f"{value:>{width}}" for value, width in zip(figures, widths, strict=False)]
        typer.echo("  ".join([f"{name:<22}", *shown, text]).rstrip())


@recipe_app.command()
def show(name: Annotated[str, typer.Argument(help="A recipe's name or a .toml file.")] = "default") -> None:
    """Print a recipe: where it comes from, and every key with its value."""
    from smallvit.catalog import recipe_page

    typer.echo(recipe_page(name))


@cache_app.command(name="list")
def cache_list() -> None:
    """Every set of decoded images: source, size, number, MB, when it was last used."""
    from smallvit.data.stored import cache_lines, stored

    for line in cache_lines(stored()):
        typer.echo(line)


@cache_app.command(name="clear")
def cache_clear(
    data: Annotated[str | None, typer.Argument(help="Only what was made from this folder or table.")] = None,
    stale: Annotated[bool, typer.Option("--stale", help="Only what no run will use: sources changed or gone.")] = False,
) -> None:
    """Remove decoded images, and say which. They are made anew when they are needed."""
    from smallvit.data.stored import cache_lines, clear

    for line in cache_lines(clear(data, stale), removed=True):
        typer.echo(line)


def _run(
    chosen: dict[str, Any], where: dict[str, Any], seeds: int | None, jobs: int, log: str | None, print_recipe: bool,
    quiet: bool,
) -> None:  # fmt: skip
    """One run or several seeds of it, for train and pretrain."""
    from smallvit import api

    if print_recipe:
        typer.echo(api.describe_recipe(api.make_recipe(**chosen)))
        return
    common: dict[str, Any] = {**where, "show_progress": not quiet, "started": STARTED}
    if seeds is not None:
        if log:
            raise UsageError("--log works with a single run; leave out --seeds")
        runs = api.train_seeds(**chosen, **common, seeds=seeds, jobs=jobs)
        _show(runs, runs[0].path.parent / "report.html", quiet)
    else:
        run = api.train(**chosen, **common, log=log)
        _show([run], run.path / "report.html", quiet)


def _announce(quiet: bool = False) -> None:
    """Importing torch and timm takes seconds: say so where someone is watching."""
    if not quiet and sys.stderr.isatty():
        print("loading torch ...", file=sys.stderr)


def _asked(given: dict[str, Any]) -> dict[str, Any]:
    """The arguments of a command as api.py takes them: recipe, settings, and the everyday flags among them."""
    from smallvit.api import FLAGS
    from smallvit.recipe import parse_assignment

    # A switch that is off was not given: what the recipe says holds.
    flags = {name: None if given[name] is False else given[name] for name in (*FLAGS, "aux") if name in given}
    flags |= {part: _share(flags[part]) for part in ("val", "test")}
    settings = dict(parse_assignment(text) for text in given["settings"] or [])
    return {"recipe": given["recipe"], "settings": settings, **flags}


def _share(text: str | None) -> float | str | None:
    """0.15 is a share; anything else is a word."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _show(runs: list[Any], page: Path, quiet: bool) -> None:
    if quiet:
        return
    from smallvit.report.terminal import results_table

    results_table(runs)
    typer.echo(f"report: {page}")


CTRL_C = 130  # typer's own status for it


def main() -> None:
    """Run a command; what goes wrong outside the program is one message, not a traceback."""
    status: int | None = 0
    try:
        status = app(standalone_mode=False, prog_name="smallvit")  # a typer.Exit comes back as its number
    except SmallvitError as error:
        _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        status = CTRL_C
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as error:
        status = getattr(error, "exit_code", None)
        if status is None:
            raise
        show_usage = getattr(error, "show", None)
        if callable(show_usage):
            show_usage()
    if status == CTRL_C:
        _fail("stopped", 1)
    sys.exit(status)


def _fail(message: str, status: int) -> None:
    print(f"smallvit: {message}", file=sys.stderr)
    sys.exit(status)

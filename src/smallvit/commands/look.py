"""Commands that look at finished runs: probe, evaluate, predict, embed, app, diagnose, compare, report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from smallvit.commands.early import refuse_no_run
from smallvit.commands.options import AsJson, Moved, OwnDevice, OwnThreads, Quiet, RunFolder, RunOrGroup, announce
from smallvit.console import tell


def probe(
    folder: RunFolder,
    knn: Annotated[bool, typer.Option("--knn", help="Nearest neighbours only.")] = False,
    linear: Annotated[bool, typer.Option("--linear", help="The linear probe only.")] = False,
    data: Moved = None,
    threads: OwnThreads = None,
    device: OwnDevice = "auto",
    as_json: AsJson = False,
) -> None:
    """What the frozen features of a run are worth: k-NN and a linear probe, beside the floors."""
    import json

    refuse_no_run(folder)
    announce(as_json)
    from smallvit import api
    from smallvit.report.tables import probe_table

    worth = api.probe(
        folder, knn=knn or not linear, linear=linear or not knn, threads=threads, device=device, data=data
    )
    if as_json:
        typer.echo(json.dumps(worth, indent=1))
    else:
        probe_table(worth)


def evaluate(
    folder: RunOrGroup,
    part: Annotated[
        str | None,
        typer.Option(
            help="train, val or test of the run's own split; left_out of folds; all.",
            show_default="test, else what folds left out",
        ),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help="Other images of the same classes; or where the run's own are now, if they were moved."),
    ] = None,
    reject: Annotated[
        float | None,
        typer.Option(
            metavar="ERROR",
            help="How sure it must be so that at most this share of its answers is wrong, e.g. 0.05; for `predict --reject`.",
        ),
    ] = None,
    threads: OwnThreads = None,
    device: OwnDevice = "auto",
    as_json: AsJson = False,
) -> None:
    """Accuracy with its interval, beside the floors, and the worst classes."""
    import json

    refuse_no_run(folder)
    announce(as_json)
    from smallvit import api
    from smallvit.report.rejection_section import rejection_sentences
    from smallvit.report.tables import evaluation_table
    from smallvit.runs.seen import in_words

    more: dict[str, Any] = {"threads": threads, "device": device}
    found = {} if reject is None else {"reject": api.calibrate_rejection(folder, reject, part, data, **more)}
    scores = api.evaluate(folder, part, data, **more) | found
    if as_json:
        typer.echo(json.dumps(scores, indent=1))
    else:
        judged = scores.get("judged")
        if judged and not judged["of_the_run"]:
            evaluation_table(scores, {}, data or "")
        else:
            own = part or api.usual_part(folder)
            evaluation_table(scores, api.floors_for(folder, own), own.replace("_", " "))
        for line in in_words(judged, scores["n"]) if judged else ():
            tell(line)
        if reject is not None:
            tell("\n".join(rejection_sentences(found["reject"])))


def predict(
    folder: Annotated[
        Path, typer.Argument(metavar="RUN", help="A run folder, a group of seeds or folds, or a model.safetensors.")
    ],
    files: Annotated[list[Path], typer.Argument(help="Image files or folders of them.")],
    csv: Annotated[Path | None, typer.Option(help="Write label, probability, file to this CSV file.")] = None,
    top: Annotated[int, typer.Option("--top", min=1, help="The likeliest classes: so many of them.")] = 1,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="A column for every class.")] = False,
    nearest: Annotated[
        int,
        typer.Option("--nearest", min=0, help="Why this label: so many of the training images most like each file."),
    ] = 0,
    data: Moved = None,
    reject: Annotated[
        float | None,
        typer.Option(
            metavar="ERROR",
            help="Say unknown where it is less sure than `smallvit evaluate RUN --reject ERROR` found that it must be.",
        ),
    ] = None,
    calibrated: Annotated[
        bool | None,
        typer.Option(
            "--calibrated/--as-trained",
            help="Probabilities at the temperature fitted on the validation part, or without it.",
            show_default="as the run was told",
        ),
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, max=1024, help="CPU threads.")] = None,
    device: OwnDevice = "auto",
) -> None:
    """Label image files. Files that cannot be read are listed at the end and set the exit status to 1."""
    refuse_no_run(folder)
    announce()
    from smallvit.report.answers import write_predictions
    from smallvit.runs.prediction import predictions

    answers = predictions(
        folder, files, calibrated=calibrated, threads=threads, device=device, reject=reject, nearest=nearest, data=data,
        most=None if probabilities else top,
    )  # fmt: skip
    if write_predictions(answers, csv, top, probabilities, likeliest=reject is not None):
        raise typer.Exit(1)


def embed(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a model.safetensors.")],
    files: Annotated[list[Path], typer.Argument(help="Image files or folders of them.")],
    npz: Annotated[Path, typer.Option("--npz", metavar="OUT", help="Write features and files to this .npz file.")],
    threads: Annotated[int | None, typer.Option("--threads", min=1, max=1024, help="CPU threads.")] = None,
    device: OwnDevice = "auto",
) -> None:
    """The features of image files, as the classifier gets them. Unreadable files are listed and set the exit status to 1."""
    refuse_no_run(folder)
    announce()
    from smallvit import api
    from smallvit.report.answers import write_features

    if write_features(api.embeddings(folder, files, threads=threads, device=device), npz):
        raise typer.Exit(1)


def app(
    folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a model.safetensors.")],
    host: Annotated[
        str, typer.Option(help="The address that it listens on; 127.0.0.1 is for this computer alone.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is one that is free.")] = 0,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the page in the browser.")] = True,
    nearest: Annotated[int, typer.Option("--nearest", min=0, max=60, help="Training images shown with an answer.")] = 6,
    data: Moved = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, max=1024, help="CPU threads.")] = None,
    device: OwnDevice = "auto",
) -> None:
    """Try a model on a local page: drop images or use the webcam; classes, where it looks, nearest training images."""
    refuse_no_run(folder)
    announce()
    from smallvit.serving.app import app as serve

    serve(folder, host=host, port=port, browser=browser, nearest=nearest, data=data, threads=threads, device=device)


def diagnose(
    folder: RunFolder,
    against: Annotated[
        str | None,
        typer.Option(metavar="RUN|MODEL", help="Compare its layers with another run, or an untrained model."),
    ] = None,
    images: Annotated[int, typer.Option(min=8, help="How many images to measure on.")] = 256,
    data: Moved = None,
    threads: OwnThreads = None,
    device: OwnDevice = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print every measurement's numbers as JSON.")] = False,
    quiet: Quiet = False,
) -> None:
    """Why it does well or badly: attention, locality, features, CKA; sentences here, pictures in the report.

    It takes the place of an earlier diagnosis of the run.
    """
    import json

    silent = quiet or as_json
    refuse_no_run(folder)
    announce(silent)
    from smallvit import api

    findings = api.diagnose(
        folder, against=against, images=images, threads=threads, device=device, show_progress=not silent, data=data
    )
    if as_json:
        told = [
            {key: getattr(finding, key) for key in ("name", "verdict", "weight", "numbers")} for finding in findings
        ]
        typer.echo(json.dumps(told, indent=1))
    elif not quiet:
        for number, finding in enumerate([finding for finding in findings if finding.verdict], start=1):
            tell(f"{number}. {finding.verdict}")
        tell(f"report: {folder / 'report.html'}")


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Runs, or folders of several seeds.")],
    cka: Annotated[
        bool, typer.Option("--cka", help="Also diagnose the first against the second: CKA of their layers.")
    ] = False,
    images: Annotated[int, typer.Option(min=8, help="How many images to measure CKA on.")] = 256,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; default compare-A-B.html beside the first.")
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> None:
    """Is the difference real? Paired over seeds, or over test images for single runs; one page with all curves."""
    import json

    refuse_no_run(*folders)
    announce(quiet or as_json)
    from smallvit import api

    pairs = api.compare(folders, cka=cka, images=images, out=out, show_progress=not (quiet or as_json))
    if as_json:
        typer.echo(json.dumps([pair._asdict() | {"real": pair.real} for pair in pairs], indent=1))
    elif not quiet:
        for pair in pairs:
            tell("\n".join(filter(None, (pair.sentence, pair.beside, pair.caution, pair.cka))))


def report(
    folders: Annotated[list[Path], typer.Argument(metavar="RUN...", help="One or more finished runs.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The file; default report.html in the first run.")
    ] = None,
) -> None:
    """Write report.html anew, or one report that puts several runs side by side."""
    refuse_no_run(*folders)
    from smallvit import api

    tell(str(api.report_folders(folders, out or folders[0] / "report.html")))

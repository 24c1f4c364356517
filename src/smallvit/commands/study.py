"""Commands about studies: list, show, run, report, claims, queue."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from smallvit.commands.options import AsJson, On, Quiet, announce
from smallvit.console import tell

Name = Annotated[str, typer.Argument(help="A study's name (see `smallvit study list`) or a .toml file.")]


def list_() -> None:
    """Studies that come with smallvit: what each asks, at which scales, how long it takes."""
    from smallvit.studies.library import read_study, study_names

    for name in study_names():
        study = read_study(name)
        times = [f"{scale}{f': {takes}' if (takes := study.takes(scale)) else ''}" for scale in study.scales]
        tell(f"{name:<24} {study.title} ({'; '.join(times)})")


def show(
    name: Name,
    scale: Annotated[str, typer.Option(help="paper or laptop.")] = "laptop",
    toml: Annotated[bool, typer.Option("--toml", help="The file itself, to change a copy of it.")] = False,
) -> None:
    """What a study would train: every arm with its stages, what is compared, which claims it checks."""
    from smallvit.studies.library import study_text
    from smallvit.studies.shown import shown

    tell(study_text(name).rstrip() if toml else shown(name, scale))


def run(
    name: Name,
    scale: Annotated[
        str, typer.Option(help="paper (the published setting) or laptop (the same, cut down).")
    ] = "laptop",
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE|SET=SOURCE",
            help="Images as for train; for a study of several sets, each by name. May be repeated.",
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Seeds of every arm; default the study's.")] = None,
    draws: Annotated[int | None, typer.Option(min=1, help="Draws of the training images, each with all seeds.")] = None,
    budget: Annotated[str | None, typer.Option(help="Start no run that would end after this time, e.g. 2h.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARM",
            help="Only this arm, or value of an axis; an arm and a value: that arm there. May be repeated.",
        ),
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs at once; default as many as there are cores.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of each run; default 1 at laptop scale.")] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            metavar="fp32|bf16",
            help="Of all runs for which the study says none; default fp32 where the arms of a laptop have equal epochs or steps, else auto.",
        ),
    ] = None,
    on: On = "local",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder; default runs/studies/NAME-SCALE.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is in the folder.")] = False,
    quiet: Quiet = False,
) -> None:
    """Run what a study lacks, and write its report. The same command goes on, with more seeds or arms, too."""
    announce(quiet)
    from smallvit import api

    opened = api.run_study(
        name, scale=check_scale(scale), data=parse_data(data), seeds=seeds, draws=draws, budget=budget, only=only or (),
        jobs=jobs, threads=threads, precision=precision, on=on, out=out, overwrite=overwrite, show_progress=not quiet,
        command=api.command_line(),
    )  # fmt: skip
    show_study(opened, quiet)


def report(
    study: Annotated[str, typer.Argument(metavar="STUDY", help="A study's name, its folder, or a stored .json file.")],
    scale: Annotated[str, typer.Option(help="With a name: paper or laptop.")] = "laptop",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page; default report.html in the folder, or NAME.html.")
    ] = None,
    quiet: Quiet = False,
) -> None:
    """The tables, claims and page of a study from what is stored; nothing is trained."""
    from smallvit.studies.reporting import report_study
    from smallvit.studies.tables import markdown

    opened, page = report_study(study, check_scale(scale), out)
    if not quiet:
        tell(markdown(opened))
        tell(f"report: {page}")


def claims(
    results: Annotated[Path, typer.Option(help="Folder with stored records of studies, NAME.json.")] = Path(
        "docs/results"
    ),
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write a Markdown page instead of printing it.")
    ] = None,
    pages: Annotated[
        Path | None, typer.Option(help="Renew the table at the top of each paper's page in this folder instead.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """All claims of the four papers with their status and the evidence, from what is stored."""
    from smallvit.studies.claims import claims_json, claims_page, gathered, renew_pages

    found = gathered(results)
    if pages is not None:
        renew_pages(pages, found)
        if out is None:
            return
    text = claims_json(found) if as_json else claims_page(found)
    if out is None:
        tell(text)
    else:
        from smallvit.runs.atomic import write_text

        write_text(out, text + "\n")


def queue(
    results: Annotated[Path, typer.Option(help="Folder with stored records of studies, NAME.json.")] = Path(
        "docs/results"
    ),
    as_json: AsJson = False,
) -> None:
    """What each study would cost at laptop scale and which claims it would decide, the most claims for an hour first."""
    from smallvit.studies import queue as queues
    from smallvit.studies.claims import gathered

    waiting = queues.queue(gathered(results), results)
    tell(queues.queue_json(waiting) if as_json else queues.queue_table(waiting))


def show_study(opened: Any, quiet: bool) -> None:
    """The tables, where the page is, and an error that names what failed."""
    from smallvit.errors import SmallvitError
    from smallvit.studies.tables import markdown

    if not quiet:
        tell(markdown(opened))
        tell(f"report: {opened.path / 'report.html'}")
    if failed := opened.record.failed:
        lines = [f"  {name}: {why}" for name, why in failed.items()]
        go_on = f"try them again with `smallvit resume {opened.path}`"
        raise SmallvitError("\n".join([f"{len(failed)} failed, the rest is done:", *lines, go_on]))


def check_scale(scale: str) -> Any:
    from smallvit.errors import UsageError
    from smallvit.studies.spec import SCALES

    if scale not in SCALES:
        raise UsageError(f"--scale {scale}: choices: {', '.join(SCALES)}")
    return scale


def parse_data(given: list[str] | None) -> Any:
    """SOURCE alone, or SET=SOURCE for each."""
    from smallvit.errors import UsageError

    if not given:
        return None
    named = dict(text.split("=", 1) for text in given if "=" in text and not Path(text).exists())
    alone = [text for text in given if "=" not in text or Path(text).exists()]
    if alone and (named or len(alone) > 1):
        raise UsageError(f"--data {alone[0]}: give one SOURCE for all, or SET=SOURCE for each set")
    return named or alone[0]

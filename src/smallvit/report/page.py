"""One self-contained html page from run folders: read them, say what they show, render, write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from smallvit.console import bar, warn
from smallvit.errors import RunError
from smallvit.report import sections
from smallvit.report.calibration_section import calibration_section
from smallvit.report.collect import Content, collect, judged_together
from smallvit.report.data_section import data_section
from smallvit.report.diagnosis_section import diagnosis_section, outdated
from smallvit.report.label_error_section import label_error_section
from smallvit.report.plan_section import plan_section
from smallvit.report.rejection_section import rejection_section
from smallvit.report.training_section import shown_section, training_section
from smallvit.report.verdict import PART_WORDS, Verdict, percent
from smallvit.runs.atomic import write_text
from smallvit.runs.folder import RunFolder

IMAGE_BYTES = 4_000_000  # data URIs on one page, all galleries together
PAGE_BYTES = 8_000_000  # a page above this is written without images
OPEN_PICTURES = 12  # mistakes per run; the others are folded away


class Extra(NamedTuple):
    """A section that not every page has, before all others."""

    id: str
    title: str
    html: str


def write_report(
    runs: Sequence[RunFolder], out: Path, title: str, verdicts: Sequence[Verdict] = (), extras: Sequence[Extra] = ()
) -> Path:
    """Write the page for one or more finished runs to `out`; `verdicts` are what else is to be said of them.

    Runs that differ in nothing but the seed are summed up by their mean; what runs share is shown once.
    """
    if not runs:
        raise RunError("a report needs at least one run")
    contents = collect(runs)
    judged = judged_together(runs, contents)
    for old in outdated(contents):
        warn(f"{old.word[0].lower()}{old.word[1:]}. {old.text}")
    page = _render(contents, judged, title, verdicts, extras, IMAGE_BYTES)
    if len(page.encode()) > PAGE_BYTES:
        page = _render(contents, judged, title, verdicts, extras, 0)
    write_text(out, page)
    return out


def page_style() -> str:
    """The look of all our pages."""
    return (resources.files("smallvit.report") / "style.css").read_text(encoding="utf-8")


def _render(
    contents: Sequence[Content], judged: Sequence[Content], title: str, verdicts: Sequence[Verdict],
    extras: Sequence[Extra], image_bytes: int,
) -> str:  # fmt: skip
    """`contents` are all runs; `judged` the same, but folds of one group as one."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"percent": percent}
    template = (resources.files("smallvit.report") / "template.html.j2").read_text(encoding="utf-8")
    folds = [run for run in contents if not any(run is other for other in judged)]
    made = _sections(contents, judged, folds, bool(verdicts), image_bytes)
    page = environment.from_string(template).render(
        title=title,
        style=page_style(),
        extras=extras,
        runs=contents,
        judged=judged,
        many=len(contents) > 1,
        many_judged=len(judged) > 1,
        part_words=PART_WORDS,
        version=contents[0].env.get("smallvit", ""),
        open_pictures=OPEN_PICTURES,
        **made | {"verdicts": [*verdicts, *outdated(contents), *made["verdicts"]]},
    )
    # A file name that is no valid text arrives as lone surrogates, which no UTF-8 file can hold.
    return page.strip().encode("utf-8", "replace").decode("utf-8") + "\n"


def _sections(
    contents: Sequence[Content], judged: Sequence[Content], folds: Sequence[Content], compared: bool, image_bytes: int
) -> dict[str, Any]:  # fmt: skip
    """All that the template shows; drawing takes seconds where runs are many."""
    makers: list[Callable[[], dict[str, Any]]] = [
        lambda: sections.accuracy_section(judged, compared=compared, folds=folds),
        lambda: training_section(contents),
        lambda: shown_section(contents, image_bytes // (4 * len(contents))),
        lambda: sections.class_section(judged),
        lambda: sections.mistake_section(judged, image_bytes // (2 * len(judged))),
        lambda: label_error_section(judged, image_bytes // (4 * len(judged))),
        lambda: data_section(judged, image_bytes // (2 * len(judged))),
        lambda: calibration_section(judged),
        lambda: rejection_section(judged),
        lambda: diagnosis_section(contents, image_bytes // 4),
        lambda: plan_section(contents),
        lambda: sections.recipe_section(contents),
    ]
    made: dict[str, Any] = {}
    with bar("writing the report", len(makers)) as advance:
        for make in makers:
            made |= make()
            advance()
    return made

"""A run as a notebook shows it: accuracy beside the floors, what is to be said of it, and its curves."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256
from html import escape

from smallvit.drawing.svg import page_colours, renamed
from smallvit.report.collect import collect
from smallvit.report.sections import accuracy_section
from smallvit.report.training_section import training_section
from smallvit.runs.folder import RunFolder

LOOK = (
    ".smallvit-run{background:var(--card);color:var(--ink);padding:14px 18px;border-radius:10px;max-width:1100px}"
    ".smallvit-run p{margin:0 0 8px}.smallvit-run div{display:flex;flex-wrap:wrap;gap:20px}"
    ".smallvit-run figure{margin:0;flex:1 1 290px;max-width:420px}.smallvit-run svg{max-width:100%}.smallvit-run figcaption{color:var(--soft)}"
)


def card(run: RunFolder) -> str:
    """A piece of html that stands alone: it brings its colours, and its drawings share no names with those of another run."""
    if not run.finished:
        return f"<p>{escape(repr(run))} is not finished: go on with <code>smallvit resume {escape(str(run.path))}</code></p>"
    light, dark = page_colours()
    style = f".smallvit-run{{{light}}}@media(prefers-color-scheme:dark){{.smallvit-run{{{dark}}}}}{LOOK}"
    own = sha256(str(run.path.resolve()).encode()).hexdigest()[:8]
    return f'<style>{style}</style><section class="smallvit-run">{"".join(_parts(run, own))}</section>'


def _parts(run: RunFolder, own: str) -> Iterator[str]:
    contents = collect([run])
    accuracy = accuracy_section(contents)
    yield f"<p><b>{escape(' '.join(accuracy['summary']) or contents[0].label)}</b></p>"
    for verdict in accuracy["verdicts"]:
        yield f"<p><b>{escape(verdict.word)}.</b> {escape(verdict.text)}</p>"
    drawn = [("", accuracy["accuracy_chart"])] if accuracy["accuracy_chart"] else []
    drawn += training_section(contents)["panels"]
    figures = (f"<figure><figcaption>{escape(title)}</figcaption>{renamed(svg, own)}</figure>" for title, svg in drawn)
    yield f"<div>{''.join(figures)}</div>"
    if (page := run.path / "report.html").is_file():
        yield f"<p>report: <code>{escape(str(page))}</code></p>"

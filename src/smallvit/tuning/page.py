"""The report of a search: the final model as any run, and before it all trials and what they tell."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from smallvit.console import several
from smallvit.drawing.figures import color_name
from smallvit.drawing.trials import Course, courses_chart, shares_chart
from smallvit.planning.explanation import brief
from smallvit.report.page import Extra, write_report
from smallvit.report.verdict import Verdict, percent
from smallvit.runs.comparison import LEVEL, Comparison
from smallvit.runs.folder import RunFolder
from smallvit.tuning.folder import Tuning
from smallvit.tuning.search import Trial, importances

BEST, DEFAULT = 1, 2  # series, which are colours of the page
STATES = {"done": "", "ended early": "ended early", "failed": "failed", "running": "not finished"}


def write_page(tuning: Tuning, gain: Comparison | None, best: Trial, out: Path) -> Path:
    final = RunFolder(tuning.final)
    title = f"{final.recipe.model.name}, tuned on {final.recipe.data.source.rsplit('/', 1)[-1]}"
    section = Extra("tuning", "Tuning", _section(tuning, best))
    return write_report([final], out, title, [about_gain(gain, tuning.trials(), best)], [section])


def about_gain(gain: Comparison | None, trials: Sequence[Trial], best: Trial) -> Verdict:
    """What tuning has brought, on the images that it was judged by."""
    tried = several(len(trials), "trial")
    chosen = f"The best of {tried} was chosen by these images, so this flatters"
    if gain is None and best.number:
        problem = trials[0].problem
        what = f"The default recipe itself {f'failed: {problem}' if problem else 'did not come to its end'}"
        return Verdict("caution", "No comparison", f"{what}; there is nothing to compare the best of {tried} with.")
    if gain is None:
        failed = sum(trial.state == "failed" for trial in trials)
        without = f" ({several(failed, 'trial')} could not be trained)" if failed else ""
        told = f"Of {tried} none did better than the default recipe{without}."
        return Verdict("note", "The default stays", told)
    low, high = gain.interval
    points = f"{100 * abs(gain.difference):.1f} points {'better' if gain.difference >= 0 else 'worse'}"
    interval = f"(95% interval {100 * low:+.1f} to {100 * high:+.1f})"
    judged = f"the {gain.n:,} validation images" if gain.paired_by == "images" else f"{gain.n} {gain.paired_by}"
    told = f"On {judged} the best trial is {points} than the default recipe {interval}. {chosen}"
    if gain.p * (len(trials) - 1) >= LEVEL:  # Bonferroni: so many had the chance to look better
        return Verdict(
            "caution", "Within chance of the default",
            f"{told}: with so many trials the gain may be chance. More validation images, more time, or both recipes "
            "with --seeds 5 would tell.",
        )  # fmt: skip
    return Verdict("good", "Tuning has paid", f"{told} a little; what the model is worth, the test images tell.")


def _section(tuning: Tuning, best: Trial) -> str:
    from jinja2 import Environment, StrictUndefined

    trials = tuning.trials()
    mattered = importances(tuning.space, tuning.basis, trials)
    text = (resources.files("smallvit.tuning") / "page.html.j2").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(text).render(
        chart=courses_chart(_courses(trials, best)),
        best_color=color_name(BEST),
        default_color=color_name(DEFAULT),
        is_default=best.number == 0,
        folds=tuning.asked.folds or 0,
        mattered=shares_chart(mattered) if mattered else "",
        names=list(tuning.space.parameters),
        rows=[_row(tuning, trial, best) for trial in sorted(trials, key=_rank)],
    )


def _courses(trials: list[Trial], best: Trial) -> list[Course]:
    found = []
    for trial in trials:
        if trial.course:
            scale = trial.seconds / trial.course[-1][0]
            found.append(
                Course(
                    f"trial {trial.number}",
                    [share * scale for share, _ in trial.course],
                    [accuracy for _, accuracy in trial.course],
                    BEST if trial.number == best.number else DEFAULT if trial.number == 0 else 0,
                    trial.state == "done",
                )
            )
    return found


def _rank(trial: Trial) -> tuple[bool, float]:
    last = trial.course[-1][1] if trial.course else 0.0
    return trial.state != "done", -(trial.accuracy if trial.accuracy is not None else last)


def _row(tuning: Tuning, trial: Trial, best: Trial) -> dict[str, Any]:
    accuracy = trial.accuracy if trial.state == "done" else trial.course[-1][1] if trial.course else None
    values = tuning.space.defaults(tuning.basis) | trial.values
    return {
        "number": trial.number,
        "word": ", ".join(word for word, number in (("default", 0), ("best", best.number)) if trial.number == number),
        "accuracy": "–" if accuracy is None else percent(accuracy),
        "seconds": f"{trial.seconds:.0f}\N{NO-BREAK SPACE}s" if trial.seconds else "–",
        "state": STATES[trial.state],
        "problem": trial.problem,
        "values": [
            "\N{MULTIPLICATION SIGN}\N{NO-BREAK SPACE}" * bool(parameter.times) + _short(values[name])
            for name, parameter in tuning.space.parameters.items()
        ],
    }


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else brief(value)

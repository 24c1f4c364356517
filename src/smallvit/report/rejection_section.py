"""The section about unknown: how many images are answered, and how often the answers are right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from smallvit.drawing.svg import LINE, SOFT, color, few_ticks, pixel_axes, style, to_svg
from smallvit.report.collect import Content
from smallvit.report.verdict import PART_WORDS, percent


def rejection_section(contents: Sequence[Content]) -> dict[str, Any]:
    """Nothing for runs that were never asked to say unknown."""
    asked = [(run, [run.rejections[key] for key in sorted(run.rejections, key=float)]) for run in contents]
    return {"rejections": [_one(run, levels) for run, levels in asked if levels]}


def _one(run: Content, levels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    alike: dict[str, list[Mapping[str, Any]]] = {}  # levels that were judged on the same images share a panel
    for level in levels:
        alike.setdefault(_images(level["judged_on"]), []).append(level)
    return {
        "label": run.label,
        "panels": [
            (coverage_panel(own[0]["judged_on"]["curve"], own, run.series, f"coverage-{run.series}-{number}"), images)
            for number, (images, own) in enumerate(alike.items())
        ],
        "sentences": [sentence for level in levels for sentence in rejection_sentences(level)],
    }


def _images(of: Mapping[str, Any]) -> str:
    return f"{of['n']:,} {PART_WORDS.get(str(of['part']), str(of['part']))}"


def rejection_sentences(record: Mapping[str, Any]) -> list[str]:
    """What is promised on which grounds, what it comes to, and what weakens it."""
    basis = record["calibrated_on"]
    grounds = f"{basis['n']:,} {PART_WORDS.get(str(basis['part']), str(basis['part']))}"
    if "why_not" in record:
        return [f"Unknown at {_share(record['error'])} error: {record['why_not']} (calibrated on the {grounds})."]
    sure = "However sure it is, it answers"
    if record["doubt"] is not None:
        as_trained = " as trained" if basis["part"] == "val" else ""  # a temperature makes other probabilities of them
        sure = f"It says unknown where it is less than {_sure(record['doubt'])} sure{as_trained}"
    whose, who = ("its answers", "it answers")
    if basis["part"] == "left_out":  # the promise is theirs; of the model that they make together the cautions speak
        whose, who = ("the answers that the models of the folds give one by one", "they answer")
    promise = (
        f"{sure}: with {_share(record['confidence'])} confidence at most {_share(record['error'])} of {whose} are wrong, for "
        f"images drawn as the {grounds} were that it was calibrated on. Of these {who} {record['answered']:,}, and "
        f"{record['wrong']:,} of the answers are wrong."
    )
    return [promise, _reached(record), *(f"Mind that {caution}." for caution in record["cautions"])]


def _reached(record: Mapping[str, Any]) -> str:
    reached, of = record["reached"], record["judged_on"]
    if of["on_own_images"]:
        return "What it comes to on images that it was not calibrated on takes other images to see, as a test part."
    if reached["accuracy"] is None:
        return f"Of the {_images(of)} it answers none."
    low, high = reached["interval"]
    return (
        f"Of the {_images(of)} it answers {percent(reached['coverage'])}, and {percent(reached['accuracy'])} of the answers are right "
        f"(95% interval {percent(low)} to {percent(high)})."
    )


def _share(share: float) -> str:
    return f"{100 * share:.3g} %"


def _sure(doubt: float) -> str:
    """99.2 %, and as many nines as it takes."""
    digits = 1
    while digits < 8 and round(100 * doubt, digits) == 0:
        digits += 1
    return f"{100 * (1 - doubt):.{digits}f} %"


def coverage_panel(
    curve: Sequence[Sequence[float]], levels: Sequence[Mapping[str, Any]], series: int, name: str
) -> str:
    """The share of right answers over the share that is answered; a point for each threshold."""
    width, height = 420, 280
    marks = [level["reached"] for level in levels if level.get("reached", {}).get("accuracy") is not None]
    with style(name):
        figure, axes = pixel_axes(width, height, left=56, right=16, top=12, bottom=48)
        axes.grid(color=LINE, linewidth=1)
        axes.plot([x for x, _ in curve], [y for _, y in curve], color=color(series), linewidth=2)
        for mark in marks:
            axes.plot(mark["coverage"], mark["accuracy"], color=color(series), marker="o", markersize=8)
        lowest = min(y for _, y in curve)
        axes.set(xlim=(0, 1.02), ylim=(lowest - 0.25 * max(1 - lowest, 0.02), 1 + 0.06 * max(1 - lowest, 0.02)))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(few_ticks())
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f}%")
        axes.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.4g}%" if value <= 1 else "")
        axes.tick_params(axis="x", pad=6)
        axes.set_xlabel("share of images that is answered", fontsize=12, color=SOFT, labelpad=6)
        axes.set_ylabel("share of answers that is right", fontsize=12, color=SOFT, labelpad=2)
        spoken = "; ".join(f"{x:.0%} answered, {y:.1%} right" for x, y in curve[:: max(1, len(curve) // 10)])
        return to_svg(figure, name, f"Accuracy against coverage. {spoken}", width)

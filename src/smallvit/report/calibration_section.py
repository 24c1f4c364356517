"""The calibration section: whether 90% sure means right nine times in ten."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from smallvit.drawing.svg import LINE, SOFT, color, pixel_axes, style, to_svg
from smallvit.report.collect import Content
from smallvit.report.verdict import PART_WORDS, percent

AXES = ("confidence", "accuracy")


def calibration_section(contents: Sequence[Content]) -> dict[str, Any]:
    """Nothing for runs from before calibration was measured."""
    calibrated = [(run, run.results["calibration"]) for run in contents if run.results.get("calibration")]
    return {"calibrations": [_one(run, measured) for run, measured in calibrated]}


def _one(run: Content, measured: Mapping[str, Any]) -> dict[str, Any]:
    before, after = measured["before"], measured.get("after")
    rows = [("as trained", before)] + ([("at this temperature", after)] if after else [])
    return {
        "label": run.label,
        "svg": reliability_panel(before, after, run.series, f"calibration-{run.series}"),
        "says": _says(run.label, measured),
        "temperature": _about_temperature(measured),
        "bins": measured["bins"],
        "has_after": after is not None,
        "rows": [
            (name, percent(entry["ece"]), percent(entry["ece_if_perfect"]), f"{entry['loss']:.3f}")
            for name, entry in rows
        ],
    }


def _says(label: str, measured: Mapping[str, Any]) -> str:
    """Sure how often, right how often; a gap that chance would give is called that."""
    before, part = measured["before"], str(measured["part"])
    n = sum(entry["n"] for entry in before["bins"])
    sure = sum(entry["n"] * entry["confidence"] for entry in before["bins"]) / n
    right = sum(entry["n"] * entry["accuracy"] for entry in before["bins"]) / n
    images = f"{n:,} {PART_WORDS.get(part, f'images of the part {part}')}"
    said = f"On the {images}, {label} is {percent(sure)} sure of its answers on average, and {percent(right)} are right"
    from smallvit.evaluation.statistics import wilson  # scipy, for which a page need not wait

    low, high = wilson(round(right * n), n)
    if before["ece"] <= 1.5 * before["ece_if_perfect"] and low <= sure <= high:
        return f"{said}. That is about as close as this many images can show."
    gap = before["ece"]
    if abs(sure - right) < gap / 2:
        return f"{said}; it is too sure of some answers and not sure enough of others."
    return f"{said}: it is {'too sure' if sure > right else 'not sure enough'} of itself."


def _about_temperature(measured: Mapping[str, Any]) -> str:
    if "temperature" not in measured:
        why = measured.get("not_fitted", "that takes a validation part beside the one that is judged")
        return f"No temperature was fitted: {why}."
    fitted = measured["fitted_on"]
    used = (
        "Every answer of this model comes with it; smallvit predict --as-trained leaves it out."
        if measured.get("used")
        else "smallvit predict --calibrated uses it."
    )
    if "after" not in measured:
        return (
            f"The logits are divided by a temperature of {measured['temperature']:.3g}, fitted on the same {fitted['n']:,} "
            f"validation images: what it is worth takes a test part to see. It changes no answer. {used}"
        )
    change = measured["after"]["ece"] - measured["before"]["ece"]
    noise = measured["before"]["ece_if_perfect"]
    effect = "makes little difference" if abs(change) < noise / 2 else "helps" if change < 0 else "makes it worse"
    return (
        f"Dividing the logits by a temperature of {measured['temperature']:.3g}, fitted on the {fitted['n']:,} "
        f"validation images alone, {effect} here. It changes no answer, only how sure the model is of it. {used}"
    )


def reliability_panel(before: Mapping[str, Any], after: Mapping[str, Any] | None, series: int, name: str) -> str:
    """Share right over mean probability, a point per bin; on the diagonal the two agree."""
    width, height = 340, 330
    with style(name):
        figure, axes = pixel_axes(width, height, left=56, right=14, top=10, bottom=50)
        axes.grid(color=LINE, linewidth=1)
        axes.plot([0, 1], [0, 1], color=SOFT, linewidth=1.2, linestyle=(0, (4, 3)))
        if after:
            _bins(axes, after, color(series), hollow=True)
        _bins(axes, before, color(series), hollow=False)
        ticks = _ticks([bin_[key] for entry in (before, after or before) for bin_ in entry["bins"] for key in AXES])
        limits = (1.02 * ticks[0] - 0.02 * ticks[-1], 1.02 * ticks[-1] - 0.02 * ticks[0])
        axes.set(xlim=limits, ylim=limits)
        axes.set_xticks(ticks, labels=[f"{tick:.0%}" for tick in ticks])
        axes.set_yticks(ticks, labels=[f"{tick:.0%}" for tick in ticks])
        axes.tick_params(axis="x", pad=6)
        axes.set_xlabel("how sure", fontsize=12, color=SOFT, labelpad=6)
        axes.set_ylabel("how often right", fontsize=12, color=SOFT, labelpad=2)
        spoken = "; ".join(f"{b['confidence']:.0%} sure, {b['accuracy']:.0%} right" for b in before["bins"])
        return to_svg(figure, name, f"Reliability diagram. {spoken}", width)


def _ticks(values: Sequence[float]) -> list[float]:
    """Round numbers around all values, the same for both axes."""
    spread = max(values) - min(values)
    step = next(step for step in (0.01, 0.02, 0.05, 0.1, 0.2) if spread <= 5 * step)
    first, last = math.floor(min(values) / step), math.ceil(max(values) / step)
    return [round(step * place, 2) for place in range(first, max(last, first + 1) + 1)]


def _bins(axes: Any, entry: Mapping[str, Any], shade: str, hollow: bool) -> None:
    x, y = ([bin_[key] for bin_ in entry["bins"]] for key in AXES)
    face = "none" if hollow else shade
    axes.plot(
        x, y, color=shade, linewidth=1.2 if hollow else 2, alpha=0.75 if hollow else 1, marker="o", markersize=5,
        markerfacecolor=face, linestyle=(0, (2, 2)) if hollow else "solid",
    )  # fmt: skip

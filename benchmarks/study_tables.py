"""What a study has found, as tables in Markdown: arms with their intervals over seeds, floors, paired differences."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smallvit.evaluation.statistics import bootstrap_difference, mean_interval


def tables(study: dict[str, Any], record: dict[str, Any]) -> str:
    """Markdown: arms with their intervals over seeds, floors, and the paired differences."""
    n, machine = record["test_images"], record["machine"]
    lines = [
        f"{record['title']}: {record['train_images']:,} training and {n:,} test images, {record['cpu_seconds']} s of "
        f"processor time per run ({machine['cpu']}, one thread).", "",
        "| arm | parameters | epochs | ms a step | CPU s | accuracy by seed, % | mean (95 %, t over seeds) |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for arm in study["arms"]:
        facts, runs = record["arms"].get(arm), seeds_of(record, arm)
        if runs:
            accuracy = [100 * run["accuracy"] for run in runs.values()]
            cpu = statistics.mean(run["cpu_seconds"] for run in runs.values())
            parameters = next(iter(runs.values()))["parameters"]
            mean = "{:.1f} ({:.1f} to {:.1f})".format(*mean_interval(accuracy)) if len(runs) > 1 else "one seed"
            each = ", ".join(f"{value:.1f}" for value in accuracy)
            epochs, step = (_by_stage(facts, key) for key in ("epochs", "step_ms"))
            lines.append(f"| {arm} | {parameters:,} | {epochs} | {step} | {cpu:.0f} | {each} | {mean} |")
    lines += [
        f"| *{floor['label']}* | | | | | | {100 * floor['accuracy']:.1f} |" for floor in record["floors"].values()
    ]
    lines += ["", "| difference | seeds | points (95 %, t over seeds) | 95 %, bootstrap over seeds and test images |"]
    lines += ["|---|---|---|---|"]
    for arm, other in study["compare"]:
        a, b = seeds_of(record, arm), seeds_of(record, other)
        both = sorted(set(a) & set(b))
        if len(both) > 1:
            points = mean_interval([100 * (a[seed]["accuracy"] - b[seed]["accuracy"]) for seed in both])
            low, high = bootstrap_difference(*(np.stack([right(x[seed], n) for seed in both]) for x in (a, b)))
            lines.append(
                f"| {arm} - {other} | {len(both)} | {points[0]:+.1f} ({points[1]:+.1f} to {points[2]:+.1f}) "
                f"| {100 * low:+.1f} to {100 * high:+.1f} |"
            )
    return "\n".join(lines)


def _by_stage(facts: dict[str, Any], key: str) -> str:
    return f"{facts['first'][key]} + {facts[key]}" if "first" in facts else str(facts[key])


def seeds_of(record: dict[str, Any], arm: str) -> dict[int, dict[str, Any]]:
    return {int(key.split("/")[1]): run for key, run in record["runs"].items() if key.split("/")[0] == arm}


def right(run: dict[str, Any], n: int) -> NDArray[np.bool_]:
    packed = np.frombuffer(bytes.fromhex(run["right"]), dtype=np.uint8)
    return np.unpackbits(packed, count=n).astype(bool)

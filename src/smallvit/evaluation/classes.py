"""What a summary says beside accuracy: measures that count every class the same, and single classes.

Needs neither torch nor scipy: the report reads it too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from smallvit.console import several

UNBALANCED = 1.5  # largest class over smallest


class Named(NamedTuple):
    words: str
    interval: str  # the key of its interval


MEASURES = {
    "balanced_accuracy": Named("balanced accuracy", "balanced_interval"),
    "macro_f1": Named("macro F1", "macro_f1_interval"),
    "auroc": Named("AUROC", "auroc_interval"),
}


def with_interval(result: Mapping[str, Any], name: str, brief: bool = False) -> str:
    """93.1% (90.2% to 95.2%), or in brief 93.1% (90.2–95.2); what an older run does not have is left out, or a dash."""
    value, pair = result.get(name), result.get(MEASURES[name].interval)
    if value is None:
        return "–"
    if not pair:
        return f"{100 * value:.1f}%"
    low, high = (f"{100 * end:.1f}" for end in pair)
    return f"{100 * value:.1f}% ({f'{low}–{high}' if brief else f'{low}% to {high}%'})"


def groups_of(result: Mapping[str, Any]) -> int:
    """How many groups the judged images come in; 0 where each is one of its own, or none was told."""
    groups = result.get("groups") or 0
    return groups if groups < result["n"] else 0


def about_groups(result: Mapping[str, Any]) -> str:
    """What the intervals of a summary know of groups, in a sentence; empty where there are none."""
    if not (groups := groups_of(result)):
        return ""
    return (
        f"The model's intervals know that its {result['n']:,} images come in {several(groups, 'group')}, and that "
        "images of one group are not independent."
    )


def only_answer(result: Mapping[str, Any]) -> str:
    """The class that a model names for all images, where these are of several; empty where it names several, too, or that was not stored."""
    rows = result.get("confusion") or []
    named = [column for column in range(len(rows)) if any(row[column] for row in rows)]
    shown = sum(any(row) for row in rows)
    return str(result["per_class"][named[0]]["name"]) if len(named) == 1 and shown > 1 else ""


def class_sizes(result: Mapping[str, Any]) -> tuple[int, int]:
    """Images of the smallest and the largest class that was judged; 0, 0 where the summary has no classes."""
    counts = [row["n"] for row in result.get("per_class", []) if row["n"]]
    return min(counts, default=0), max(counts, default=0)


def is_unbalanced(result: Mapping[str, Any]) -> bool:
    """Whether the classes differ in size so much that balanced accuracy is a number of its own."""
    least, most = class_sizes(result)
    return most > UNBALANCED * least


def worst_classes(result: Mapping[str, Any], most: int) -> list[dict[str, Any]]:
    """Rows of `per_class`, the worst first; among equals the one with more images."""
    seen = [row for row in result["per_class"] if row["accuracy"] is not None]
    return sorted(seen, key=lambda row: (row["accuracy"], -row["n"]))[:most]

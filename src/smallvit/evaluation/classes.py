"""What a summary says about single classes. Needs neither torch nor scipy: the report reads it too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNBALANCED = 1.5  # largest class over smallest


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

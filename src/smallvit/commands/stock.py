"""Commands that say what there is: list, recipe show, cache list, cache clear."""

from __future__ import annotations

from typing import Annotated

import typer

from smallvit.console import tell
from smallvit.errors import UsageError, nearest


def list_(
    what: Annotated[str, typer.Argument(help="models, recipes, methods or datasets.")],
    pattern: Annotated[str, typer.Argument(help="With models: a pattern over all of timm, e.g. 'convnext*'.")] = "",
) -> None:
    """What there is: models, recipes, methods, datasets."""
    from smallvit.listing.catalog import CATALOG

    if what not in CATALOG:
        raise UsageError(f"cannot list {what!r}: {nearest(what, CATALOG)}")
    for name, *columns in CATALOG[what](pattern):
        *figures, text = columns or [""]
        widths = (12, 8, 7, 18)
        shown = [f"{value:>{width}}" for value, width in zip(figures, widths, strict=False)]
        tell("  ".join([f"{name:<22}", *shown, text]).rstrip())


def show(name: Annotated[str, typer.Argument(help="A recipe's name or a .toml file.")] = "default") -> None:
    """Print a recipe: where it comes from, and every key with its value."""
    from smallvit.listing.catalog import recipe_page

    tell(recipe_page(name))


def cache_list() -> None:
    """Every set of decoded images: source, size, number, MB, when it was last used."""
    from smallvit.data.cache_entries import cache_lines, stored

    for line in cache_lines(stored()):
        tell(line)


def cache_clear(
    data: Annotated[str | None, typer.Argument(help="Only what was made from this folder or table.")] = None,
    stale: Annotated[bool, typer.Option("--stale", help="Only what no run will use: sources changed or gone.")] = False,
) -> None:
    """Remove decoded images, and say which. They are made anew when they are needed."""
    from smallvit.data.cache_entries import cache_lines, clear

    for line in cache_lines(clear(data, stale), removed=True):
        tell(line)

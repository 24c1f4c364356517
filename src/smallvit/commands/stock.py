"""Commands that say what there is: doctor, list, recipe show, cache list, cache clear."""

from __future__ import annotations

from typing import Annotated

import typer

from smallvit.commands.options import AsJson, announce
from smallvit.console import tell
from smallvit.errors import UsageError, nearest


def versions() -> str:
    """smallvit and what its numbers depend on, read from what is installed: nothing is imported."""
    import platform
    from importlib import metadata

    from smallvit import __version__

    def of(package: str) -> str:
        try:
            return f"{package} {metadata.version(package)}"
        except metadata.PackageNotFoundError:
            return f"{package} is missing"

    return f"smallvit {__version__} (Python {platform.python_version()}, {of('torch')}, {of('timm')})"


def doctor(as_json: AsJson = False) -> None:
    """What smallvit finds here: versions, cores, memory, GPU, disks, cache, speed; what is slow and why. Status 1: something is wrong."""
    import json

    announce(as_json)
    from smallvit.doctor.doctor import doctor as look
    from smallvit.doctor.doctor import lines_of

    health = look(show_progress=not as_json)
    if as_json:
        typer.echo(json.dumps(health.as_dict(), indent=1))
    else:
        for line in lines_of(health):
            typer.echo(line)
    if not health.ok:
        raise typer.Exit(1)


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

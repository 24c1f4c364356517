"""The recipes that come with smallvit, and those in TOML files of others: as trees of plain values, not yet checked."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from smallvit.errors import UsageError, nearest

MOST_BYTES = 1 << 24  # of a recipe


def preset_names() -> list[str]:
    folder = resources.files("smallvit") / "recipes"
    return sorted(entry.name[:-5] for entry in folder.iterdir() if entry.name.endswith(".toml"))


def preset_text(name: str | Path) -> str:
    """The TOML of a preset by name, or of a file."""
    if str(name).endswith(".toml"):
        try:
            with Path(name).open("rb") as file:
                return file.read(MOST_BYTES).decode("utf-8")
        except OSError as error:
            raise UsageError(f"cannot read recipe file {name}: {error.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"recipe file {name} is not valid TOML: it is not UTF-8 text") from None
    if str(name) not in preset_names():
        choices = f"{nearest(str(name), preset_names())} (see `smallvit list recipes`, or give a .toml file)"
        raise UsageError(f"unknown recipe {str(name)!r}: {choices}")
    return (resources.files("smallvit") / "recipes" / f"{name}.toml").read_text(encoding="utf-8")


def read_preset(name: str | Path) -> dict[str, Any]:
    """The preset's tree, its `about` table (description, source, reproduced) included."""
    text = preset_text(name)
    try:
        tree = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers of 5,000 digits, and brackets in brackets
        raise UsageError(f"recipe file {name} is not valid TOML: {error}") from None
    if not isinstance(tree.get("about", {}), dict):
        raise UsageError(f"recipe {name}: about = {tree['about']!r}: should be a section, [about]")
    return tree

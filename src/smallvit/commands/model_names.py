"""Whether a model of that name can be at all, read off the files that would define it: importing them takes seconds.

A name that stands in none of these files is certainly unknown; whether one that does is a model, is asked where it is built.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

from smallvit.errors import UsageError, nearest

REGISTERED = re.compile(r"@register_model\s+def (\w+)")
SHORT = re.compile(r'^    "(\w+)": _', re.MULTILINE)  # the keys of ALIASES


def refuse_model(name: str) -> None:
    """The error of `models.features.check_model_name`, for a name that no file knows."""
    # A tag of timm's weights comes after a dot; a colon or a slash means a model of elsewhere, and is refused there.
    word = re.compile(rb"\b" + re.escape(name.split(".")[0].encode()) + rb"\b")
    if not name or any(word.search(path.read_bytes()) for path in _files()):
        return
    texts = [path.read_text(encoding="utf-8") for path in _files()]
    choices = [found for text in texts for found in (*REGISTERED.findall(text), *SHORT.findall(text))]
    raise UsageError(f"unknown model {name!r}: {nearest(name, choices)} (see `smallvit list models`)")


def _files() -> Iterator[Path]:
    """Ours first, and the large ones of timm."""
    for package in ("smallvit", "timm"):
        found = importlib.util.find_spec(package)  # of a whole package, this imports nothing
        assert found is not None and found.origin is not None
        yield from sorted((Path(found.origin).parent / "models").rglob("*.py"))

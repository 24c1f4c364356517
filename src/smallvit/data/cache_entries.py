"""What the cache holds: `smallvit cache list` and `smallvit cache clear`."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from smallvit.console import quiet, several
from smallvit.data.cache import META, listing_key, stamps_of, sweep
from smallvit.data.cache_folder import cache_folder, compiled_folder
from smallvit.data.listed import Where
from smallvit.data.sources import listing_of
from smallvit.errors import DataError, UsageError


class Stored(NamedTuple):
    path: Path
    source: str
    images: int
    size: int
    fit: str
    channels: int
    bytes: int
    last_used: float  # seconds since 1970
    stale: bool  # its source is gone or was changed: no run will use it again


def stored() -> list[Stored]:
    """Every entry, the one used last first. One that cannot be read counts as stale."""
    entries = [_entry(path) for path in cache_folder().glob("images-*")]
    return sorted(entries, key=lambda entry: -entry.last_used)


def clear(data: str | Path | None = None, stale: bool = False) -> list[Stored]:
    """Remove all entries, those of one source, or the stale ones; returns what was removed.

    A run that uses one goes on: the file lives as long as it is open.
    """
    entries = [entry for entry in stored() if entry.stale or not stale]
    if data is not None:
        wanted = str(Path(data).expanduser().absolute())
        entries = [entry for entry in entries if Path(entry.source).resolve() == Path(wanted).resolve()]
        if not entries and not Path(wanted).exists():
            raise UsageError(f"{data}: no such folder or file, and the cache holds nothing of it (smallvit cache list)")
    elif not stale:
        for note in cache_folder().glob("facts-*.json"):
            with contextlib.suppress(OSError):
                note.unlink()
        for written_out in cache_folder().glob("hf-*"):  # images of data sets of Hugging Face, as files
            shutil.rmtree(written_out, ignore_errors=True)
        shutil.rmtree(compiled_folder(), ignore_errors=True)
    sweep(cache_folder())
    for entry in entries:
        try:
            shutil.rmtree(entry.path)
        except OSError as error:
            raise DataError(f"cannot remove {entry.path}: {error.strerror}") from None
    return entries


def _entry(path: Path) -> Stored:
    size = used = 0.0
    with contextlib.suppress(OSError):
        size = sum(file.stat().st_size for file in path.iterdir())
        used = max(file.stat().st_mtime for file in [path, *path.glob(META)])
    try:
        meta = json.loads((path / META).read_text(encoding="utf-8"))
        decoding, source, images = meta["decoding"], str(meta["source"]), len(meta["kept"])
        opened = Where(**(meta.get("opened") or {"source": source}))
        stale = not _is_current(path.name.removeprefix("images-"), opened, decoding)
        about = (int(decoding["size"]), str(decoding["fit"]), int(decoding["channels"]))
    except (OSError, ValueError, KeyError, TypeError):
        return Stored(path, "?", 0, 0, "?", 0, int(size), used, stale=True)
    return Stored(path, source, images, *about, int(size), used, stale)


def _is_current(key: str, where: Where, decoding: dict[str, Any]) -> bool:
    """Whether a run on this source would find this entry."""
    try:
        with quiet():
            listing = listing_of(where, labelled=False)
    except (DataError, UsageError, OSError):
        return False
    return listing is not None and key == listing_key(
        listing.root, stamps_of(item.path for item in listing.items), decoding
    )


def cache_lines(entries: Sequence[Stored], removed: bool = False) -> Iterator[str]:
    """One line for each entry of the cache, and their sum."""
    for entry in entries:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.last_used))
        kind = f"{entry.size} px, {entry.fit}, {several(entry.channels, 'channel')}"
        note = "stale" if entry.stale else ""
        yield f"{entry.bytes / 1e6:9.1f} MB  {several(entry.images, 'image'):>15}  {kind:<24}  {used}  {note:<5}  {entry.source}"
    word = "removed" if removed else "in all"
    total = sum(entry.bytes for entry in entries) / 1e6
    yield f"{total:9.1f} MB {word}, {several(len(entries), 'entry')} in {cache_folder()}"

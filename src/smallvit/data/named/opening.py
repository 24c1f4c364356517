"""From the name of a set to its content: found, or fetched where that is asked for; counted against what it should hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from smallvit.console import say, warn
from smallvit.data.listed import Arrays, Listed, Listing, Where
from smallvit.data.named.declared import Layout, NamedSet, data_folder, named_sets
from smallvit.data.named.fetching import fetch
from smallvit.errors import DataError, UsageError


def is_named(where: Where) -> bool:
    """Whether a named set is meant. A folder of that name counts where nothing speaks for the set: it is not there either."""
    chosen = named_sets().get(where.source)
    if chosen is None:
        return False
    said = bool(where.dir or where.download or not chosen.layouts)
    return said or not Path(where.source).is_dir() or _found(chosen, data_folder(where.dir)) is not None


def check_there(where: Where) -> None:
    """Refuse a set that is not there, where it is not to be fetched."""
    if not where.download or not named_sets()[where.source].remotes:
        _root(named_sets()[where.source], where)


def open_named(where: Where) -> Listing | Arrays:
    """The content of the set that `where.source` names."""
    chosen = named_sets()[where.source]
    root = _root(chosen, where)
    content = chosen.read(root)
    if isinstance(content, Listing):
        content = content._replace(
            name=chosen.name, opened=where._replace(download=False, dir=str(data_folder(where.dir)))
        )
        content = content._replace(items=_existing(content, where.incomplete))
    _count(chosen, root, content, where.incomplete)
    return content


def _root(chosen: NamedSet, where: Where) -> Path:
    """The folder of the set. What is missing is fetched only where that is asked for."""
    if not chosen.layouts:
        return Path()
    folder = data_folder(where.dir)
    if found := _found(chosen, folder):
        return found
    if where.download:
        if not chosen.remotes:
            raise UsageError(
                f"--download: {chosen.name} cannot be downloaded by smallvit. {what_to_put(chosen, folder)}"
            )
        for remote in chosen.remotes:
            fetch(remote, folder)
        if found := _found(chosen, folder):
            say(f"{chosen.name} is in {found}")
            return found
    raise DataError(
        f"{chosen.name} is not in {folder}: {_missing(chosen.layouts, folder)}. {what_to_put(chosen, folder)}"
    )


def _found(chosen: NamedSet, folder: Path) -> Path | None:
    for layout in chosen.layouts:
        for root in (folder / layout.folder, *([folder] if folder.name == layout.folder else [])):
            if all((root / needed).exists() for needed in layout.needs):
                return root
    return None


def _missing(layouts: tuple[Layout, ...], folder: Path) -> str:
    """What the layout that is nearest to being there lacks."""
    lacks = [[need for need in layout.needs if not (folder / layout.folder / need).exists()] for layout in layouts]
    place = min(range(len(layouts)), key=lambda number: len(lacks[number]) / len(layouts[number].needs))
    return f"{folder / layouts[place].folder / lacks[place][0]} is missing"


def what_to_put(chosen: NamedSet, folder: Path) -> str:
    """Which files belong where, how large they are, and where they can be had."""
    places = " or ".join(f"{folder / layout.folder} with {', '.join(layout.needs)}" for layout in chosen.layouts)
    text = f"Put there ({chosen.size}): {places}; or say where it is (--data-dir D, or SMALLVIT_DATA)."
    if chosen.origin:
        text += f" It can be had from {chosen.origin}."
    if chosen.remotes:
        megabytes = sum(remote.megabytes for remote in chosen.remotes)
        files = ", ".join(dict.fromkeys(remote.file for remote in chosen.remotes))
        text += (
            f" --download fetches it ({files}: {megabytes:,.0f} MB), or unpacks these files where they lie in {folder}."
        )
    return text


def _existing(listing: Listing, incomplete: bool) -> list[Listed]:
    """What is listed and there; once each."""
    before: dict[Path, Listed] = {}
    for item in listing.items:
        if (other := before.setdefault(item.path, item)) is not item:
            raise DataError(f"{listing.name}: {item.path} is listed twice (in {other.part} and in {item.part})")
    there = [item for item in listing.items if item.path.is_file()]
    if len(there) < len(listing.items) and not incomplete:
        gone = next(item.path for item in listing.items if not item.path.is_file())
        warn(f"{listing.name}: {len(listing.items) - len(there):,} listed files are missing, the first: {gone}")
    return there


def _count(chosen: NamedSet, root: Path, content: Listing | Arrays, incomplete: bool) -> None:
    if isinstance(content, Listing):
        found = Counter(item.part for item in content.items)
        classes = len({item.class_name for item in content.items})
    else:
        parts = content.parts or {"": content.labels}
        found = Counter({part: len(rows) for part, rows in parts.items()})
        classes = len({*content.labels.tolist()})
    same = dict(found) == dict(chosen.images)
    if same and classes == chosen.classes:
        return
    expected = _in_words(chosen.images, chosen.classes)
    text = f"{chosen.name} in {root} should hold {expected}; found were {_in_words(found, classes)}"
    if same or (incomplete and found):
        warn(text)
        return
    raise DataError(
        f"{text}. Unpack it anew, or take it as it is: --set data.incomplete=true "
        "(the result is then not comparable with others)"
    )


def _in_words(images: dict[str, int] | Counter[str] | object, classes: int) -> str:
    counts = dict(images) if isinstance(images, dict) else {}
    parts = [f"{count:,} {part or 'images'}" for part, count in counts.items()]
    return ", ".join([*(parts or ["no images"]), f"{classes:,} classes"])

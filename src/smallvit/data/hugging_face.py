"""Data sets of Hugging Face: `hf:NAME` and folders that `save_to_disk` wrote -> Listing (extra `smallvit[hf]`).

Their images are written out once, as files in the cache, and are then a set of files like any other. No code of a data set is
run, only two of its columns are read, and its images are decoded by us, within bounds. Nothing is fetched unless asked for.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from smallvit.console import bar, warn
from smallvit.data.cache import stamp
from smallvit.data.cache_folder import cache_folder
from smallvit.data.kinds import HUGGING_FACE
from smallvit.data.listed import PART_NAMES, UNLABELLED, Listed, Listing, Where
from smallvit.data.memory import columns_of
from smallvit.errors import DataError, UsageError

TABLE = "listing.json"
LAYOUT = 1
ENDINGS = {b"\xff\xd8\xff": ".jpg", b"\x89PNG": ".png", b"RIFF": ".webp", b"GIF8": ".gif", b"BM": ".bmp", b"II*\0": ".tif", b"MM\0*": ".tif"}  # fmt: skip
MOST_IMAGE_BYTES = 1 << 28


class Name(NamedTuple):
    """hf:NAME, hf:NAME@CONFIGURATION, hf:NAME#COLUMN of the label."""

    name: str
    configuration: str
    column: str


def parse(source: str) -> Name:
    rest, _, column = source.removeprefix(HUGGING_FACE).partition("#")
    name, _, configuration = rest.partition("@")
    if not name:
        raise UsageError(f"{source!r}: a name is missing; write hf:NAME, hf:NAME@CONFIGURATION or hf:NAME#LABEL-COLUMN")
    return Name(name, configuration, column)


def hugging_face_listing(where: Where, labelled: bool = True) -> Listing:
    by_name = where.source.startswith(HUGGING_FACE)
    parts = _load(where) if by_name else _from_disk(Path(where.source).expanduser())
    key = _key(where.source, parts) if by_name else _key_of_files(Path(where.source).expanduser())
    column = parse(where.source).column if by_name else ""
    folder = cache_folder() / f"hf-{key}"
    if not (folder / TABLE).is_file():
        _write(folder, where.source, parts, column, labelled)
    try:
        table = json.loads((folder / TABLE).read_text(encoding="utf-8"))
        items = [Listed(folder / file, klass, part) for file, klass, part in table["items"]]
        classes = tuple(table["classes"])
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{folder} is damaged: remove it, and it is written anew") from None
    if labelled and classes == (UNLABELLED,):
        raise DataError(f"{where.source} has no column with labels; only `smallvit pretrain` does without")
    source = where.source if by_name else str(Path(where.source).expanduser().absolute())
    # Numbers that nobody gave as names say nothing of what the images show.
    unnamed = not table.get("named", True) and all(name.isdecimal() for name in classes)
    return Listing(
        where.source,
        folder,
        items,
        classes,
        True if unnamed else None,
        opened=where._replace(source=source, download=False),
    )


# ---- loading -----------------------------------------------------------------------------------------


def _package() -> Any:
    # Before the first import: nobody is to be asked whether code of a data set may run.
    os.environ.setdefault("HF_DATASETS_TRUST_REMOTE_CODE", "0")
    try:
        import datasets
    except ImportError:
        raise UsageError("data sets of Hugging Face need the package datasets: pip install 'smallvit[hf]'") from None
    datasets.disable_progress_bars()
    return datasets


@contextmanager
def _network(allowed: bool) -> Iterator[None]:
    """Where it is not allowed, both packages are told that there is none; their answers then come at once."""
    import datasets.config
    import huggingface_hub.constants

    places: tuple[Any, ...] = (datasets.config, huggingface_hub.constants)
    before = [place.HF_HUB_OFFLINE for place in places]
    try:
        for place in places:
            place.HF_HUB_OFFLINE = place.HF_HUB_OFFLINE or not allowed
        yield
    finally:
        for place, was in zip(places, before, strict=True):
            place.HF_HUB_OFFLINE = was


def _load(where: Where) -> dict[str, Any]:
    datasets = _package()
    name, configuration, _ = parse(where.source)
    options: dict[str, Any] = {"download_config": datasets.DownloadConfig(local_files_only=not where.download)}
    if int(datasets.__version__.partition(".")[0]) < 4:
        options["trust_remote_code"] = False  # later versions know no such code
    try:
        with _network(where.download):
            found = datasets.load_dataset(name, configuration or None, **options)
    except Exception as error:  # its readers and the network raise nearly anything
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        how = "" if where.download else "; --download fetches it where it is not on this machine yet"
        raise DataError(f"{where.source} cannot be loaded: {first}{how}") from None
    return _by_part(where.source, found)


def _from_disk(folder: Path) -> dict[str, Any]:
    datasets = _package()
    try:
        found = datasets.load_from_disk(str(folder))
    except Exception as error:
        raise DataError(f"{folder} cannot be read: {str(error).strip() or type(error).__name__}") from None
    return _by_part(str(folder), found)


def _by_part(source: str, found: Any) -> dict[str, Any]:
    if not isinstance(found, Mapping):
        return {"train": found}
    known = {part: name for name in found if (part := PART_NAMES.get(str(name).lower()))}
    if left := [name for name in found if name not in known.values()]:
        warn(f"{source}: the parts {', '.join(map(str, left))} are left out; train, validation and test are taken")
    if "train" not in known:
        raise DataError(f"{source} has the parts {', '.join(map(str, found)) or 'none'}, and no train")
    return {part: found[name] for part, name in known.items()}


def _key(source: str, parts: Mapping[str, Any]) -> str:
    text = json.dumps([LAYOUT, source, {part: str(data._fingerprint) for part, data in parts.items()}], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _key_of_files(folder: Path) -> str:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    text = json.dumps([LAYOUT, str(folder.resolve()), [(str(path.relative_to(folder)), stamp(path)) for path in files]])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


# ---- writing out -------------------------------------------------------------------------------------


def _write(folder: Path, source: str, parts: Mapping[str, Any], column: str, labelled: bool) -> None:
    """All files and the table of them, beside their place, then by one rename into it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".building-hf-", dir=folder.parent))
    try:
        items: list[tuple[str, str, str]] = []
        classes: dict[str, None] = {}
        named = False
        for part, data in parts.items():
            rows, names = _rows(source, data, column, labelled)
            classes |= dict.fromkeys(names)
            named |= bool(names)
            (work / part).mkdir()
            with bar(f"writing out {part} of {source}", len(data)) as advance:
                for number, (content, klass) in enumerate(rows):
                    if klass is not None:
                        items.append((_image(work, part, number, content), klass, part if len(parts) > 1 else ""))
                        classes.setdefault(klass)
                    advance(1)
        if not items:
            raise DataError(f"{source} holds no images with a label")
        (work / TABLE).write_text(
            json.dumps({"source": source, "items": items, "classes": list(classes), "named": named}), encoding="utf-8"
        )
        if folder.exists() and not (folder / TABLE).is_file():
            shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            work.rename(folder)
    except OSError as error:
        raise DataError(f"the images of {source} cannot be written to {folder}: {error.strerror}") from None
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _rows(source: str, data: Any, column: str, labelled: bool) -> tuple[Iterator[tuple[bytes, str | None]], list[str]]:
    """The files and classes of a part, one after the other (None: without a label), and the names that are declared."""
    from datasets import Image

    image, label = columns_of(data.features, column, labelled, source)
    if type(data.features[image]).__name__ != "Image":
        raise UsageError(f"{source}: the column {image!r} holds {type(data.features[image]).__name__}, no images")
    names = list(getattr(data.features[label], "names", None) or []) if label else []
    raw = data.select_columns([image, *([label] if label else [])]).cast_column(image, Image(decode=False))

    def rows() -> Iterator[tuple[bytes, str | None]]:
        for number, row in enumerate(raw):
            yield (
                _content(source, number, row[image]),
                _class(source, number, row[label], names) if label else UNLABELLED,
            )

    return rows(), names


def _content(source: str, number: int, cell: Any) -> bytes:
    content, path = (cell or {}).get("bytes"), (cell or {}).get("path")
    if content is None and path and Path(path).is_file() and Path(path).stat().st_size <= MOST_IMAGE_BYTES:
        content = Path(path).read_bytes()
    if not isinstance(content, bytes) or len(content) > MOST_IMAGE_BYTES:
        raise DataError(f"{source}: image {number} holds no bytes of a file ({path or 'no path'})")
    return content


def _class(source: str, number: int, label: Any, names: list[str]) -> str | None:
    if isinstance(label, str):
        return label or None
    if not isinstance(label, int) or isinstance(label, bool):
        raise DataError(
            f"{source}: the label of image {number} is a {type(label).__name__}; it must be a number or a word"
        )
    if label < 0:  # how a part without labels is published
        return None
    if names and label >= len(names):
        raise DataError(f"{source}: the label {label} of image {number} has no name; there are {len(names)}")
    return names[label] if names else str(label)


def _image(work: Path, part: str, number: int, content: bytes) -> str:
    ending = next((ending for start, ending in ENDINGS.items() if content.startswith(start)), ".bin")
    name = f"{part}/{number:07d}{ending}"
    (work / name).write_bytes(content)
    return name

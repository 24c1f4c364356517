"""Image files with a class each -> ImageSet: what a folder and a table have in common."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from smallvit.console import bar, several, warn
from smallvit.data.cache import allocate, below, cached, listing_key, remembered, stamps_of
from smallvit.data.contents import Contents
from smallvit.data.images import (
    FULL_WHITE,
    Fit,
    Header,
    Unreadable,
    cannot_convert,
    convertible,
    many_reads,
    read_header,
    read_image,
    read_peak,
)
from smallvit.data.imageset import Images, ImageSet, PixelDigest, Skipped, fingerprint, may_mirror, pixel_digest
from smallvit.data.listed import Listed, Listing, shown
from smallvit.data.stream import StreamedImages
from smallvit.errors import DataError, UsageError

MOST_BROKEN = 0.05  # a larger share of unreadable files stops
MOST_LISTED = 20  # of them in an error
CACHE_LIMIT_GB = 8.0  # decoded; larger sets are streamed


class Decoding(NamedTuple):
    """How a file becomes an image: part of the cache's key."""

    size: int
    fit: Fit
    channels: int
    white: int

    def read(self, path: Path, contents: Contents | None = None) -> Tensor:
        return read_image(path, *self, contents)


class FileSource:
    """The files of a listing. Every header is looked at; nothing is decoded before `load`."""

    def __init__(self, listing: Listing) -> None:
        self.listing = listing
        self.name, self.root, self.items = listing.name, listing.root, listing.items
        self.class_names = tuple(sorted({item.class_name for item in self.items}))
        self.mirrors = may_mirror(self.class_names) if listing.mirrors is None else listing.mirrors
        self._stamps = stamps_of(item.path for item in self.items)  # before any file is read
        self._contents = Contents()
        headers = self._headers()
        sides = sorted(header.side for header in headers.values())
        self.side = sides[len(sides) // 2]
        self.channels = _common_channels(self.name, self.root, headers)
        self.wide = [item for item, header in headers.items() if header.wide]

    def _headers(self) -> dict[Listed, Header]:
        """Of all files that have one; looked at once and remembered."""

        def look() -> dict[str, Any]:
            label = f"looking at {self.root.name}"
            headers, broken = _split(_for_all(self.items, partial(read_header, contents=self._contents), label))
            _check_broken(self.name, self.items, broken)  # what stops the command is looked at again
            return {
                "headers": [headers.get(item) for item in self.items],
                "broken": [broken.get(item) for item in self.items],
            }

        facts = self._remembered({"what": "headers"}, look)
        reasons = {item: why for item, why in zip(self.items, facts["broken"], strict=True) if why}
        _check_broken(self.name, self.items, reasons)  # classes may have changed since
        return {item: Header(*header) for item, header in zip(self.items, facts["headers"], strict=True) if header}

    @cached_property
    def white(self) -> int:
        """The bit depth that the files with 16 bits use, as its largest value; measured once and remembered."""
        if not self.wide:
            return FULL_WHITE

        def measure() -> dict[str, Any]:
            label = f"measuring the brightness of {self.root.name}"
            peaks, _ = _split(_for_all(self.wide, partial(read_peak, contents=self._contents), label))
            return {"white": (1 << max(8, max(peaks.values(), default=FULL_WHITE).bit_length())) - 1}

        return int(self._remembered({"what": "white"}, measure, [item.path for item in self.wide])["white"])

    def load(
        self, size: int, fit: Fit, channels: int, white: int | None = None, limit_gb: float = CACHE_LIMIT_GB
    ) -> ImageSet:
        if not convertible(self.channels, channels):
            raise UsageError(cannot_convert(self.name, self.channels, channels))
        decoding = Decoding(size, fit, channels, (self.white if white is None else white) if self.wide else FULL_WHITE)
        too_large = len(self.items) * channels * size * size > limit_gb * 1e9
        images, meta = self._stream(decoding) if too_large else self._from_cache(decoding)
        self._contents.forget()
        return self._image_set(images, meta)

    def _from_cache(self, decoding: Decoding) -> tuple[Images, dict[str, Any]]:
        key = listing_key(self.root, self._stamps, decoding._asdict())
        images, meta = cached(key, lambda folder: self._decode(folder, decoding), self._is_unchanged)
        return torch.from_numpy(images), meta

    def _remembered(
        self, what: dict[str, Any], compute: Callable[[], dict[str, Any]], files: Sequence[Path] | None = None
    ) -> dict[str, Any]:
        """What is known of these files, all of them or some, as long as they stay as they were when this source opened."""
        stamps = self._stamps if files is None else {path: self._stamps[path] for path in files}
        return remembered(listing_key(self.root, stamps, what), compute, self._is_unchanged)

    def _is_unchanged(self) -> bool:
        return stamps_of(self._stamps) == self._stamps

    def _image_set(self, images: Images, meta: dict[str, Any]) -> ImageSet:
        kept = [self.items[row] for row in meta["kept"]]
        broken = {self.items[row]: why for row, why in meta["skipped"]}
        _check_broken(self.name, self.items, broken)  # classes may have changed since the files were decoded
        skipped = [Skipped(self._shown(item), why) for item, why in broken.items()]
        if skipped:
            warn(
                f"skipped {several(len(skipped), 'file', len(self.items))}, the first: {skipped[0].file} ({skipped[0].why})"
            )
        present = {item.class_name for item in kept}
        class_names = tuple(name for name in self.listing.classes or sorted(present) if name in present)
        number = {name: index for index, name in enumerate(class_names)}
        labels = np.array([number[item.class_name] for item in kept], dtype=np.int64)
        part_of = [item.part for item in kept]
        names = tuple(self._shown(item) for item in kept)
        grouped = any(item.group for item in kept)
        return ImageSet(
            images_NCSS=images,
            labels_N=torch.from_numpy(labels),
            class_names=class_names,
            # Training images alone are no split: a part of them is held out, as it is of a table.
            parts={part: _rows_where(part_of, part) for part in sorted({*part_of} - {""}) if {*part_of} != {"train"}},
            files=names,
            source=self.name,
            fingerprint=fingerprint(meta["pixels"], labels),
            skipped=tuple(skipped),
            groups=tuple(own_group(item.group, name) for item, name in zip(kept, names, strict=True))
            if grouped
            else (),
        )

    def _shown(self, item: Listed) -> str:
        return shown(below(item.path, self.root))

    def _decode(self, folder: Path, decoding: Decoding) -> dict[str, Any]:
        """Write images.npy; files that turn out damaged leave no row."""
        part = folder / "images.part.npy"
        target = allocate(part, (len(self.items), decoding.channels, decoding.size, decoding.size))
        row_of = {item.path: row for row, item in enumerate(self.items)}

        def decode(path: Path) -> None:
            target[row_of[path]] = decoding.read(path, self._contents).numpy()

        decoded, broken = _split(_for_all(self.items, decode, f"decoding {self.root.name}"))
        _check_broken(self.name, self.items, broken)
        kept = [row_of[item.path] for item in decoded]
        # The common case, nothing broken, keeps the file as it is.
        images = target if len(kept) == len(target) else target[kept]
        digest = pixel_digest(images)
        if images is target:
            target.flush()
            part.rename(folder / "images.npy")
        else:
            np.save(folder / "images.npy", images)
            part.unlink()
        skipped = [(row_of[item.path], why) for item, why in broken.items()]
        opened = self.listing.opened
        place = self.root if opened else Path(self.name).expanduser().absolute()
        about = {"source": str(place), "opened": opened and opened._asdict(), "decoding": decoding._asdict()}
        return {"kept": kept, "skipped": skipped, "pixels": digest, **about}

    def _stream(self, decoding: Decoding) -> tuple[Images, dict[str, Any]]:
        """Every file is decoded once, to know that it can be and what is in it; that is remembered, the pixels not."""

        def survey() -> dict[str, Any]:
            digest, kept, skipped = PixelDigest(), [], []
            label = f"reading {self.root.name} (too large for the cache)"
            decoded = _for_all(self.items, partial(decoding.read, contents=self._contents), label)
            for row, (_, image) in enumerate(decoded):
                if isinstance(image, Unreadable):
                    skipped.append((row, str(image)))
                else:
                    kept.append(row)
                    digest.add(image.numpy())
            shape = (len(kept), decoding.channels, decoding.size, decoding.size)
            return {"kept": kept, "skipped": skipped, "pixels": digest.close(shape)}

        facts = self._remembered({"what": "survey", **decoding._asdict()}, survey)
        kept = [self.items[row].path for row in facts["kept"]]
        shape_CSS = (decoding.channels, decoding.size, decoding.size)
        return StreamedImages(kept, [self._stamps[path] for path in kept], shape_CSS, decoding.read), facts


def own_group(group: str, file: str) -> str:
    """The name of its group; of an image without one, a name that no other has."""
    return group or f"{file}\0"


def _rows_where(part_of: list[str], part: str) -> Tensor:
    return torch.tensor([row for row, name in enumerate(part_of) if name == part])


def _common_channels(name: str, root: Path, headers: dict[Listed, Header]) -> int:
    """One count for the whole set; grey and RGB together are RGB."""
    files: dict[int, list[str]] = {}
    for item, header in headers.items():
        files.setdefault(header.channels, []).append(shown(below(item.path, root)))
    if len(files) == 1 or {*files} == {1, 3}:
        return max(files)
    lines = [
        f"\n  {several(count, 'channel')}: {several(len(names), 'file')}, {', '.join(names[:3])}{', ...' * (len(names) > 3)}"
        for count, names in sorted(files.items())
    ]
    raise DataError(f"the images of {name} differ in their channels; a set has one count:{''.join(lines)}")


def _for_all(
    items: Sequence[Listed], work: Callable[[Path], Any], label: str
) -> Iterator[tuple[Listed, Any | Unreadable]]:
    """`work` on every file in threads (Pillow lets go of the interpreter while it decodes), in order, with a bar."""

    def attempt(item: Listed) -> Any | Unreadable:
        try:
            return work(item.path)
        except Unreadable as error:
            return error

    with many_reads(), ThreadPoolExecutor(os.cpu_count()) as pool, bar(label, len(items)) as advance:
        for item, result in zip(items, pool.map(attempt, items), strict=True):
            yield item, result
            advance(1)


def _split(results: Iterator[tuple[Listed, Any | Unreadable]]) -> tuple[dict[Listed, Any], dict[Listed, str]]:
    """What worked, and the reasons of what did not."""
    done: dict[Listed, Any] = {}
    broken: dict[Listed, str] = {}
    for item, result in results:
        if isinstance(result, Unreadable):
            broken[item] = str(result)
        else:
            done[item] = result
    return done, broken


def _check_broken(name: str, items: Sequence[Listed], broken: dict[Listed, str]) -> None:
    """A few damaged files are skipped; many, or all of a class, are the user's to look at."""
    if len(broken) > MOST_BROKEN * len(items):
        listed = "\n".join(f"  {shown(item.path)}: {why}" for item, why in list(broken.items())[:MOST_LISTED])
        more = f"\n  and {len(broken) - MOST_LISTED} more" if len(broken) > MOST_LISTED else ""
        raise DataError(f"{several(len(broken), 'image', len(items))} of {name} cannot be read:\n{listed}{more}")
    lost = {item.class_name for item in broken} - {item.class_name for item in items if item not in broken}
    if lost:
        raise DataError(f"no image of class {', '.join(map(repr, sorted(lost)))} of {name} can be read")

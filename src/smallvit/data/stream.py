"""Sets too large to be decoded into one file: read when asked for, by threads, the next batches ahead of time.

C channels, S side. The same pixels as from the cache: the same function decodes them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cached_property
from pathlib import Path

import torch
from torch import Tensor

from smallvit.data.cache import stamp
from smallvit.data.images import Unreadable
from smallvit.errors import DataError

MOST_AHEAD_BYTES = 1 << 30  # of images that are decoded before they are asked for


class StreamedImages:
    """Indexed like a tensor of rows. A file that is not the one that was looked at is an error, never an image."""

    def __init__(
        self, paths: Sequence[Path], stamps: Sequence[str], shape_CSS: tuple[int, int, int],
        read: Callable[[Path], Tensor],
    ) -> None:  # fmt: skip
        self.paths = paths
        self.stamps = stamps
        self.shape = torch.Size([len(paths), *shape_CSS])
        self.device = torch.device("cpu")
        self._read = read
        self._ahead: dict[int, Future[Tensor]] = {}

    def __len__(self) -> int:
        return len(self.paths)

    def numel(self) -> int:
        return self.shape.numel()

    def __getitem__(self, rows: Tensor | slice | int, /) -> Tensor:
        wanted = torch.arange(len(self))[rows]
        pending = [self._begun(row) for row in wanted.view(-1).tolist()]
        images_NCSS = torch.empty((len(pending), *self.shape[1:]), dtype=torch.uint8)
        for place, future in enumerate(pending):
            images_NCSS[place] = future.result()
        return images_NCSS.view(*wanted.shape, *self.shape[1:])

    def _begun(self, row: int) -> Future[Tensor]:
        return self._ahead.pop(row) if row in self._ahead else self._pool.submit(self._image, row)

    def prefetch(self, rows: Tensor) -> None:
        """Begin to decode these rows. What was begun for rows that nobody asks for any more is dropped."""
        wanted = rows.tolist()[: MOST_AHEAD_BYTES // max(1, self.shape[1:].numel())]
        for row in self._ahead.keys() - {*wanted}:
            self._ahead.pop(row).cancel()
        for row in wanted:
            if row not in self._ahead:
                self._ahead[row] = self._pool.submit(self._image, row)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="smallvit-stream")

    def _image(self, row: int) -> Tensor:
        path = self.paths[row]
        try:
            image_CSS = self._read(path)
        except Unreadable as error:
            raise DataError(f"{path} could be read before, and cannot any more: {error}") from None
        if stamp(path) != self.stamps[row]:
            raise DataError(f"{path} was changed while it was in use: leave the images alone until the run has ended")
        return image_CSS

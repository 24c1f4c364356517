"""Batches by number: `loader.batch(epoch, i)` depends on nothing that came before, so resuming is just going on.

B images of a batch, V copies of a view, N images of the set, S side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from smallvit.data.augment import Augmenter
from smallvit.data.imageset import ImageSet
from smallvit.errors import UsageError
from smallvit.randomness import generator, key_of
from smallvit.types import Batch, View

DEVICE_SHARE = 0.4  # images move to an accelerator whole when they take less than this of its free memory


class DeviceImages:
    """An ImageSet as one device sees it: whole in its memory where it fits, else sent batch by batch."""

    def __init__(self, images: ImageSet, augmenter: Augmenter, device: torch.device) -> None:
        self.pixels_NCSS = images.images_NCSS
        if device.type == "cuda" and images.images_NCSS.numel() < DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]:
            self.pixels_NCSS = images.images_NCSS.to(device)
        self.labels_N = images.labels_N.to(device)
        self.augmenter = augmenter
        self.device = device

    def take(self, rows_B: Tensor) -> Tensor:
        return self.pixels_NCSS[rows_B.to(self.pixels_NCSS.device)].to(self.device, non_blocking=True)

    def plain(self, rows: Tensor, size: int, batch_size: int = 256) -> Iterator[tuple[Tensor, Tensor]]:
        """Images as evaluation sees them, in order and without augmentation, with their labels."""
        for chunk in rows.split(batch_size):
            yield self.augmenter.prepare(self.take(chunk), size), self.labels_N[chunk.to(self.device)]


class Loader:
    """The training rows in another order each epoch, as the views that an objective asks for."""

    def __init__(self, images: DeviceImages, rows: Tensor, views: Sequence[View], batch_size: int, seed: int) -> None:
        if batch_size > len(rows):
            raise UsageError(
                f"batch_size {batch_size} is larger than the {len(rows)} training images: "
                f"give --batch-size {max(2, len(rows) // 4)} or less"
            )
        self.images = images
        self.rows = rows
        self.views = tuple(views)
        self.batch_size = batch_size
        self.seed = seed
        self._order: tuple[int, Tensor] = (-1, rows)

    def __len__(self) -> int:
        """Batches in an epoch. The last, smaller one is left out: the next epoch draws another order."""
        return len(self.rows) // self.batch_size

    def batch(self, epoch: int, number: int) -> Batch:
        start, device = number * self.batch_size, self.images.device
        index_B = self.order(epoch)[start : start + self.batch_size]
        positions_B = torch.arange(start, start + len(index_B), device=device)
        pixels = self.images.take(index_B)
        views = []
        for kind, view in enumerate(self.views):
            key = key_of(self.seed, "augment", epoch, kind)
            # The copies of a view are further positions of the same key: each draws its own parameters.
            positions_VB = torch.cat([positions_B + copy * len(self.rows) for copy in range(view.copies)])
            repeated = pixels.repeat(view.copies, 1, 1, 1) if view.copies > 1 else pixels
            views.append(self.images.augmenter(repeated, view.size, key, positions_VB, view.scale))
        index_B = index_B.to(device)
        return Batch(tuple(views), self.images.labels_N[index_B], index_B)

    def order(self, epoch: int) -> Tensor:
        if self._order[0] != epoch:
            shuffle = torch.randperm(len(self.rows), generator=generator(self.seed, "order", epoch))
            self._order = (epoch, self.rows[shuffle])
        return self._order[1]

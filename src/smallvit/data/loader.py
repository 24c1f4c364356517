"""Batches by number: `loader.batch(epoch, i)` depends on nothing that came before, so resuming is just going on.

B images of a batch, G of several batches, V copies of a view, N images of the set, S side.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from smallvit.data.augment import Augmenter
from smallvit.data.dealing import places_of_classes
from smallvit.data.imageset import ImageSet
from smallvit.data.stream import StreamedImages
from smallvit.errors import DataError, UsageError
from smallvit.randomness import generator, key_of
from smallvit.types import Batch, View

AHEAD = 2  # batches that are read before they are asked for, where images are streamed
AT_ONCE = 2_000_000  # values: small images are augmented several batches at a time, which costs hardly more than one
DEVICE_SHARE = 0.4  # images move to an accelerator whole when they take less than this of its free memory


class DeviceImages:
    """An ImageSet as one device sees it: whole in its memory where it fits, else sent batch by batch.

    `once`: they are gone through once, which is no reason to send more than is asked for.
    """

    def __init__(self, images: ImageSet, augmenter: Augmenter, device: torch.device, once: bool = False) -> None:
        self.pixels_NCSS = pixels = images.images_NCSS
        if device.type == "cuda" and not once and isinstance(pixels, Tensor) and pixels.numel() < _room(device):
            self.pixels_NCSS = pixels.to(device)
        self.labels_N = images.labels_N.to(device)
        self.augmenter = augmenter
        self.device = device

    def take(self, rows_B: Tensor) -> Tensor:
        rows_B = rows_B.to(self.pixels_NCSS.device)
        if isinstance(self.pixels_NCSS, Tensor):  # copies whole images, where an index in brackets goes by pixels
            return self.pixels_NCSS.index_select(0, rows_B).to(self.device, non_blocking=True)
        return self.pixels_NCSS[rows_B].to(self.device, non_blocking=True)

    def expect(self, rows: Tensor) -> None:
        """These rows come next: images that are read from files may begin with them."""
        if isinstance(self.pixels_NCSS, StreamedImages):
            self.pixels_NCSS.prefetch(rows)

    def batches(self, rows: Tensor, batch_size: int) -> Iterator[Tensor]:
        """The uint8 images of these rows, in their order."""
        for number, chunk in enumerate(rows.split(batch_size), 1):
            self.expect(rows[(number - 1) * batch_size : (number + 1) * batch_size])
            yield self.take(chunk)


def _room(device: torch.device) -> float:
    """Bytes that images may take of an accelerator's memory."""
    return DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]


class Loader:
    """The training rows in another order each epoch, as the views that an objective asks for in it."""

    def __init__(
        self,
        images: DeviceImages,
        rows: Tensor,
        views_at: Callable[[int], Sequence[View]],
        batch_size: int,
        seed: int,
        balanced: bool = False,
        repeats: int = 1,
        at_once: int = AT_ONCE,
    ) -> None:
        if len(rows) < 2:
            raise DataError(f"there is {len(rows)} image to train on: training needs at least 2")
        if batch_size > len(rows):
            raise UsageError(
                f"batch_size {batch_size} is larger than the {len(rows)} training images: "
                f"give --batch-size {len(rows)} or less"
            )
        self.images = images
        self.rows = rows
        self.views_at = views_at
        self.batch_size = batch_size
        self.seed = seed
        self.labels = images.labels_N[rows.to(images.device)].cpu() if balanced else None
        self.repeats = repeats
        self.at_once = at_once
        self._order: tuple[int, Tensor] = (-1, rows)
        self._made: tuple[tuple[int, int], list[Batch]] = ((-1, -1), [])

    def __len__(self) -> int:
        """Batches in an epoch. The last, smaller one is left out: the next epoch draws another order."""
        return len(self.rows) // self.batch_size

    def batch(self, epoch: int, number: int) -> Batch:
        group, place = divmod(number, self.together(epoch))
        if self._made[0] != (epoch, group):
            self._made = ((epoch, group), self._make(epoch, group))
        return self._made[1][place]

    def _make(self, epoch: int, group: int) -> list[Batch]:
        """The batches of one group. What a sample draws does not depend on its neighbours, so groups change nothing."""
        device, order, together = self.images.device, self.order(epoch), self.together(epoch)
        start, stop = group * together, min((group + 1) * together, len(self))
        positions_G = torch.arange(start * self.batch_size, stop * self.batch_size)
        index_G = order[positions_G]
        pixels = self.images.take(index_G)
        self.images.expect(order[stop * self.batch_size : min(stop + AHEAD, len(self)) * self.batch_size])
        positions_G = positions_G.to(device)
        views = []
        for kind, view in enumerate(self.views_at(epoch)):
            key = key_of(self.seed, "augment", epoch, kind)
            # The copies of a view are further positions of the same key: each draws its own parameters.
            positions_VG = torch.cat([positions_G + copy * len(self.rows) for copy in range(view.copies)])
            repeated = pixels.repeat(view.copies, 1, 1, 1) if view.copies > 1 else pixels
            made_VG = self.images.augmenter(repeated, view.of or view.size, key, positions_VG, view.scale)
            if made_VG.shape[-1] != view.size:
                made_VG = F.interpolate(made_VG, (view.size, view.size), mode="bilinear", antialias=True)
            parts = made_VG.unflatten(0, (view.copies, stop - start, self.batch_size)).unbind(1)
            views.append([part.flatten(0, 1) for part in parts])
        index_G = index_G.to(device)
        labels = self.images.labels_N[index_G].split(self.batch_size)
        batches = zip(zip(*views, strict=True), labels, index_G.split(self.batch_size), strict=True)
        return [Batch(*batch) for batch in batches]

    def together(self, epoch: int) -> int:
        """Batches that are made at a time: several of small images."""
        views = self.views_at(epoch)
        if not views or isinstance(self.images.pixels_NCSS, StreamedImages):
            return 1
        values = sum(view.copies * view.size**2 for view in views) * self.images.augmenter.channels
        return max(1, min(len(self), self.at_once // (self.batch_size * values)))

    def showing(self, views: Sequence[View]) -> Loader:
        """The same images and order, as these views in every epoch."""
        other = copy.copy(self)
        other.views_at, other._made = lambda epoch: views, ((-1, -1), [])
        return other

    def augment_with(self, augmenter: Augmenter) -> None:
        """Another augmentation from here on; what was made with the one before is forgotten."""
        self.images.augmenter = augmenter
        self._made = ((-1, -1), [])

    def order(self, epoch: int) -> Tensor:
        if self._order[0] != epoch:
            draw = generator(self.seed, "order", epoch)
            if self.labels is None:
                places = torch.randperm(len(self.rows), generator=draw)
            else:
                places = balanced_order(self.labels, draw)
            # Repeated augmentation: an epoch is as long as ever, so it sees a share of the images, each several times.
            self._order = (epoch, self.rows[places.repeat_interleave(min(self.repeats, len(places)))[: len(places)]])
        return self._order[1]


def balanced_order(labels_N: Tensor, draw: torch.Generator) -> Tensor:
    """N places with every class equally often, give or take one; which classes have one more is drawn too.

    A class is shuffled and gone through as often as it takes, so no image of it comes a second time before all came
    once: a rare class repeats, a frequent one shows another part of itself each epoch.
    """
    of_class = places_of_classes(labels_N)
    share, rest = divmod(len(labels_N), len(of_class))
    lucky = set(torch.tensor([*of_class])[torch.randperm(len(of_class), generator=draw)[:rest]].tolist())
    chosen = []
    for klass, own in of_class.items():
        wanted = share + (klass in lucky)
        rounds = -(-wanted // len(own))
        shuffles = [own[torch.randperm(len(own), generator=draw)] for _ in range(rounds)]
        chosen.append(torch.cat([*shuffles, own[:0]])[:wanted])
    return torch.cat(chosen)[torch.randperm(len(labels_N), generator=draw)]

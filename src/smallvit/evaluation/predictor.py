"""The one way to run a trained model: images in; logits, features or probabilities out.

In batches, in evaluation mode, without gradients, in float32; what comes out is on the CPU. Validation during training,
evaluation, prediction, probes and diagnosis all come through here.

N images, B of a batch, C channels, S side, D width, K classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from smallvit.console import bar
from smallvit.data.images import Unreadable, convertible, many_reads
from smallvit.data.imageset import ImageSet
from smallvit.data.loader import DeviceImages
from smallvit.data.preparation import Picture, Preparation
from smallvit.errors import DataError, UsageError, ran_out
from smallvit.models.features import Backbone

BATCH = 256

# A set; one image or many: files, PIL images, arrays N x H x W x C, tensors N x C x H x W, lists of images.
Given = ImageSet | DeviceImages | Picture | Sequence[Picture]


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; every module's own mode comes back."""
    training = [module for module in model.modules() if module.training]
    try:
        model.eval()
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def _as_written(model: nn.Module) -> AbstractContextManager[None]:
    """A model that is compiled for training answers without it: batches of other sizes would be compiled anew."""
    compiled = getattr(model, "_compiled_call_impl", None) is not None
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()


class Predictor:
    """A model with all that it needs to answer. `rows` choose from an ImageSet; without them all of it is meant."""

    def __init__(
        self,
        backbone: Backbone,
        preparation: Preparation,
        class_names: Sequence[str] = (),
        temperature: float | None = None,
        calibrated: bool = False,
    ) -> None:
        self.backbone = backbone
        self.preparation = preparation
        self.class_names = tuple(class_names)  # in the order of the logits; empty: pretrained, without a classifier
        self.temperature = temperature  # that suited the run's validation part; None: it was not fitted
        self.calibrated = calibrated  # logits are divided by it, where there is one

    @property
    def device(self) -> torch.device:
        return next(self.backbone.parameters()).device

    @property
    def temperatures(self) -> tuple[float, ...]:
        """Its own, where it has one."""
        return () if self.temperature is None else (self.temperature,)

    def logits(self, images: Given, rows: Tensor | None = None, *, batch_size: int = BATCH) -> Tensor:
        """(N, K), at the temperature where the model is calibrated: the same answers, as sure as they should be."""
        logits_NK = self._run(self._batches(images, rows, batch_size), True, _count(images, rows))
        return self._at_temperature(logits_NK, self.calibrated)

    def features(self, images: Given, rows: Tensor | None = None, *, batch_size: int = BATCH) -> Tensor:
        """(N, D): the pooled vectors that the classifier stands on."""
        return self._run(self._batches(images, rows, batch_size), False, _count(images, rows))

    def probabilities(
        self, images: Given, rows: Tensor | None = None, *, calibrated: bool | None = None, batch_size: int = BATCH
    ) -> Tensor:
        """(N, K), of the classes in `class_names`. `calibrated`: at the temperature that suited the validation part, or
        as trained; None: as the run was told.
        """
        if calibrated and self.temperature is None:
            raise UsageError("the model has no temperature: it takes a run with a validation part to fit one")
        wanted = self.calibrated if calibrated is None else calibrated
        logits_NK = self._run(self._batches(images, rows, batch_size), True, _count(images, rows))
        return self._at_temperature(logits_NK, wanted).softmax(1)

    def prepared(self, images: Given, rows: Tensor | None = None) -> Tensor:
        """(N, C, S, S): as the model takes them, all at once and on its device."""
        return torch.cat(list(self._batches(images, rows, BATCH)))

    def logits_of(self, prepared: Iterable[Tensor]) -> Tensor:
        """(N, K) of images that are prepared already, batch by batch."""
        total = sum(map(len, prepared)) if isinstance(prepared, Sequence) else 0
        logits_NK = self._run(prepared, True, total)
        return self._at_temperature(logits_NK, self.calibrated)

    def _at_temperature(self, logits_NK: Tensor, calibrated: bool) -> Tensor:
        return logits_NK / self.temperature if calibrated and self.temperature else logits_NK

    def _run(self, prepared: Iterable[Tensor], classify: bool, total: int) -> Tensor:
        """`total` is how many images that is; 0 where it is not known."""
        outputs = Gathered(total)
        with (
            evaluating(self.backbone),
            _as_written(self.backbone),
            torch.autocast(self.device.type, enabled=False),
            bar("running the model", total) as advance,
        ):
            for images_BCSS in prepared:
                outputs.add(self._in_memory(images_BCSS, classify))
                advance(len(images_BCSS))
        return outputs.whole().cpu()

    def _in_memory(self, images_BCSS: Tensor, classify: bool) -> Tensor:
        """Half as many at once where memory does not hold them: a run that was trained in pieces must be judged, too."""
        try:
            return self._forward(images_BCSS, classify)
        except (MemoryError, RuntimeError) as error:
            if len(images_BCSS) == 1 or not ran_out(error):
                raise
        # Only now: the error held what was made so far.
        halves = images_BCSS.split(-(-len(images_BCSS) // 2))
        return torch.cat([self._in_memory(half, classify) for half in halves])

    def _forward(self, images_BCSS: Tensor, classify: bool) -> Tensor:
        """All images go through the model here, and nowhere else."""
        if not classify:
            return self.backbone(images_BCSS).pooled_BD.float()
        looks = self.preparation.looks(images_BCSS)
        first_BK, *others = [self.backbone.classify(self.backbone(look).pooled_BD).float() for look in looks]
        return sum(others, start=first_BK) / len(looks)

    def _batches(self, images: Given, rows: Tensor | None, batch_size: int) -> Iterator[Tensor]:
        for squares_BCSS in self._squares(images, rows, batch_size):
            yield self.preparation.normalised(squares_BCSS)

    def _squares(self, images: Given, rows: Tensor | None, batch_size: int) -> Iterator[Tensor]:
        """uint8 and on the device."""
        if isinstance(images, ImageSet):
            images = DeviceImages(images, self.preparation.augmenter, self.device, once=True)
        if isinstance(images, DeviceImages):
            rows = torch.arange(len(images.labels_N)) if rows is None else rows
            yield from images.batches(rows, batch_size)
            return
        if rows is not None:
            raise UsageError("rows choose from an ImageSet; of other images give those that are meant")
        if isinstance(images, Tensor) and self.preparation.are_squares(images):
            yield from images.to(self.device).split(batch_size)
            return
        pictures = listed(images, self.preparation.in_chans)
        for start in range(0, len(pictures), batch_size):
            with many_reads():
                squares = [self._square(pictures, place) for place in range(len(pictures))[start : start + batch_size]]
            yield torch.stack(squares).to(self.device)

    def _square(self, pictures: Sequence[Picture], place: int) -> Tensor:
        try:
            return self.preparation.square(pictures[place])
        except Unreadable as error:
            given = pictures[place]
            name = str(given) if isinstance(given, str | Path) else f"image {place} of {len(pictures)}"
            raise DataError(f"{name}: {error}") from None


class Gathered:
    """What is said of the images, batch after batch, as one tensor: with thousands of classes there is no room for two of it."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0  # images; a total of 0 is not known
        self.parts: list[Tensor] = []

    def add(self, output_BD: Tensor) -> None:
        if not self.total:
            self.parts.append(output_BD)
            return
        if not self.parts:
            self.parts = [output_BD.new_empty((self.total, *output_BD.shape[1:]))]
        self.parts[0][self.done : self.done + len(output_BD)] = output_BD
        self.done += len(output_BD)

    def whole(self) -> Tensor:
        if not self.parts:
            raise UsageError("there are no images to look at")
        return self.parts[0] if len(self.parts) == 1 else torch.cat(self.parts)


def _count(images: Given, rows: Tensor | None) -> int:
    """0 where it is not known, or is one image; who gives single images has a bar of his own."""
    if rows is not None:
        return len(rows)
    if isinstance(images, ImageSet | DeviceImages):
        return len(images.labels_N)
    return 0


def listed(images: Picture | Sequence[Picture], channels: int) -> Sequence[Picture]:
    """One image is a list of one. What has three axes is one image or many grey ones, as far as its shape can tell."""
    if isinstance(images, str | Path | Image.Image):
        return [images]
    if not isinstance(images, np.ndarray | Tensor):
        return images
    shape, is_tensor = tuple(images.shape), isinstance(images, Tensor)
    channel_axes = (0, 2) if is_tensor else (2,)  # a tensor may have its channels last where they can be nothing else
    if len(shape) == 2 or (len(shape) == 3 and any(shape[axis] in (1, channels) for axis in channel_axes)):
        return [images]
    many_grey = len(shape) == 3 and convertible(1, channels) and not {shape[0], shape[2]} & {1, 3, channels}
    if len(shape) != 4 and not many_grey:
        layout = "N x C x H x W" if is_tensor else "N x H x W x C"
        raise UsageError(f"images of the shape {shape}: give {layout}, or a list of images")
    return list(images)

"""Centred kernel alignment (CKA): how alike the layers of two models, or of one, see the same images.

1: the same up to rotation and scale; 0: unrelated. HSIC is the unbiased estimate of Song et al. (2012), averaged over
batches before the ratio is taken (Nguyen et al., 2021), so the result does not depend on how many images fit into
memory. It subtracts large numbers that are nearly equal: features are centred before they are multiplied, which
changes nothing but the rounding, and everything after that is in float64.

B images of a batch, F values of a layer per image, L layers (A of the first model, C of the second), R replicates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor, nn

from smallvit.diagnosis.capture import watched_outputs
from smallvit.errors import UsageError

LEAST_IMAGES = 4  # of a batch: the estimate divides by B - 3
LEAST_BATCHES = 10  # for intervals: they come from the differences between batches
FINE = 4096  # features up to which a Gram matrix costs nothing in float64
CHUNK = 8192  # features that are centred and multiplied while they are in the processor's cache
ROUNDING = 1e-12  # of squared features, in float32


class Similarity(NamedTuple):
    """CKA of every executed layer with every other; rows and columns in the order in which the layers ran."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cka_AC: Tensor
    images: int
    low_AC: Tensor | None = None  # 95 % interval of each cell, where it was asked for
    high_AC: Tensor | None = None
    constant: tuple[str, ...] = ()  # layers left out because they give the same for every image


def cka(
    first: nn.Module,
    second: nn.Module,
    batches: Iterable[Tensor | tuple[Tensor, Tensor]],
    *,
    replicates: int = 0,
    leave_out_constant: bool = False,
) -> Similarity:
    """Compare all layers of two models on the same images; a model with itself is run once.

    A batch is a pair where the models take the images in different sizes or normalised differently. `replicates` (200
    will do) asks for intervals: batches of images are drawn anew by random weights. A layer that gives the same for
    every image has no CKA: it is refused by name, or left out and listed.
    """
    same, sums = first is second, _Sums(replicates)
    rows: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    for batch in batches:
        images_BCHW, others_BCHW = (batch, batch) if isinstance(batch, Tensor) else batch
        check_batch(len(images_BCHW))
        # numpy's threads wait in a loop: on a busy machine one more than torch may use costs thirty times the work.
        with threadpool_limits(torch.get_num_threads(), user_api="blas"):
            names_A, grams_AX = layer_grams(first, images_BCHW)
            names_C, grams_CX = (names_A, grams_AX) if same else layer_grams(second, others_BCHW)
        if sums.batches and (rows, columns) != (names_A, names_C):
            raise UsageError("the model runs other layers from batch to batch: CKA needs the same ones")
        rows, columns = names_A, names_C
        sums.add(grams_AX, grams_CX, len(images_BCHW))
    if replicates and sums.batches < LEAST_BATCHES:
        raise UsageError(
            f"intervals of CKA need {LEAST_BATCHES} batches, not {sums.batches}: give more images or smaller batches"
        )
    if not sums.batches:
        raise UsageError("CKA needs at least one batch of images")
    return _result(sums, rows, columns, leave_out_constant)


def check_batch(images: int) -> None:
    if images < LEAST_IMAGES:
        raise UsageError(f"CKA needs batches of at least {LEAST_IMAGES} images, not {images}")


def even_batches(images: int, most: int) -> list[int]:
    """Sizes of batches that differ by one at most, so that none is too small for its part in the average."""
    count = max(1, math.ceil(images / most))
    return [images // count + (place < images % count) for place in range(count)]


# ---- the estimate ------------------------------------------------------------------------------------


def feature_cka(x_BF: Tensor, y_BG: Tensor, batch_size: int | None = None) -> float:
    """CKA of two sets of features of the same images."""
    size = len(x_BF) if batch_size is None else batch_size
    sums = _Sums(0)
    for x, y in zip(x_BF.split(size), y_BG.split(size), strict=True):
        check_batch(len(x))
        sums.add(centred_gram(x)[None], centred_gram(y)[None], len(x))
    return float(_result(sums, ("the first features",), ("the second features",), False).cka_AC)


def hsic(x_BF: Tensor, y_BG: Tensor) -> float:
    """The unbiased estimate of the Hilbert-Schmidt independence criterion of one batch."""
    check_batch(len(x_BF))
    return float(_all_hsic(centred_gram(x_BF)[None], centred_gram(y_BG)[None], len(x_BF)))


def centred_gram(x_BF: Tensor) -> Tensor:
    """(B * B): the Gram matrix, U-centred, so that HSIC of two layers is the inner product of theirs.

    Without its diagonal K, minus the rows' and columns' means over B - 2 and plus the whole's over (B - 1)(B - 2)
    (Székely and Rizzo, 2014): the same number as tr(KL) with its two corrections, from one product instead of three.
    """
    x_BF = x_BF.cpu() if x_BF.device.type == "mps" else x_BF  # it has no float64
    x_BF = x_BF.double() if x_BF.shape[1] <= FINE else x_BF.float()
    B = len(x_BF)
    gram_BB = torch.zeros(B, B, dtype=torch.float64, device=x_BF.device)
    mean_square = gram_BB.new_zeros(())
    for some_BF in x_BF.split(CHUNK, dim=1):
        mean_1F = some_BF.new_full((1, B), 1 / B) @ some_BF  # three times as fast as mean(0)
        mean_square += mean_1F.square().sum()
        some_BF = some_BF - mean_1F
        gram_BB += _with_itself(some_BF)
    if gram_BB.trace() <= ROUNDING * B * mean_square:  # nothing is left but the mean's rounding
        return torch.zeros_like(gram_BB).flatten()
    means_B = gram_BB.fill_diagonal_(0.0).sum(0) / (B - 2)
    gram_BB += means_B.sum() / (B - 1) - means_B[:, None] - means_B
    return gram_BB.fill_diagonal_(0.0).flatten()


def _with_itself(x_BF: Tensor) -> Tensor:
    """x times its transpose. numpy sees that the result is symmetric and does half of the work; torch does not."""
    if x_BF.device.type != "cpu":
        return x_BF @ x_BF.T
    values_BF = x_BF.detach().numpy()
    return torch.from_numpy(values_BF @ values_BF.T)


def _all_hsic(grams_AX: Tensor, grams_CX: Tensor, images: int) -> Tensor:
    return grams_AX @ grams_CX.T / (images * (images - 3))


class _Sums:
    """HSIC summed over batches: of all pairs of layers, and of each layer with itself. Its size does not grow.

    The first replicate is the sum itself; the others weigh every batch by an exponential number, which is a bootstrap
    that never leaves all batches out.
    """

    def __init__(self, replicates: int) -> None:
        self.batches = self.images = 0
        self.replicates = replicates
        self.draw = torch.Generator().manual_seed(0)
        self.both_RAC, self.first_RA, self.second_RC = (torch.zeros((), dtype=torch.float64) for _ in range(3))

    def add(self, grams_AX: Tensor, grams_CX: Tensor, images: int) -> None:
        weights_R = torch.ones(1 + self.replicates, dtype=torch.float64)
        weights_R[1:].exponential_(generator=self.draw)
        own = 1 / (images * (images - 3))
        self.both_RAC = self.both_RAC + weights_R[:, None, None] * _all_hsic(grams_AX, grams_CX, images).cpu()
        self.first_RA = self.first_RA + weights_R[:, None] * grams_AX.square().sum(1).cpu() * own
        self.second_RC = self.second_RC + weights_R[:, None] * grams_CX.square().sum(1).cpu() * own
        self.batches += 1
        self.images += images


def _result(sums: _Sums, rows: tuple[str, ...], columns: tuple[str, ...], leave_out_constant: bool) -> Similarity:
    kept_A, kept_C = sums.first_RA[0] > 0, sums.second_RC[0] > 0
    constant = [name for name, kept in zip(rows + columns, (*kept_A, *kept_C), strict=True) if not kept]
    if constant and not leave_out_constant:
        raise UsageError(f"{constant[0]} gives the same for every image: it has no CKA")
    if not (kept_A.any() and kept_C.any()):
        raise UsageError("every layer gives the same for every image: there is no CKA")
    scale_RAC = (sums.first_RA[:, kept_A, None] * sums.second_RC[:, None, kept_C]).sqrt()
    cka_RAC = sums.both_RAC[:, kept_A][:, :, kept_C] / scale_RAC
    low = high = None
    if sums.replicates:
        low, high = cka_RAC[1:].quantile(torch.tensor([0.025, 0.975], dtype=torch.float64), dim=0)
    names = [
        tuple(name for name, kept in zip(all_names, keeps, strict=True) if kept)
        for all_names, keeps in ((rows, kept_A), (columns, kept_C))
    ]
    return Similarity(names[0], names[1], cka_RAC[0], sums.images, low, high, tuple(dict.fromkeys(constant)))


# ---- the layers of a model ---------------------------------------------------------------------------


def layer_grams(model: nn.Module, images_BCHW: Tensor) -> tuple[tuple[str, ...], Tensor]:
    """The layers that ran, in their order, and (L, B * B) their centred Gram matrices.

    A Gram matrix is computed when its layer has run, before another one can overwrite the output, so that nothing
    but Gram matrices is kept. A module that hands on what the module before it gave, or a part of it (a container,
    dropout in evaluation), is no layer of its own; one that runs again is counted.
    """
    grams: dict[str, Tensor] = {}
    last: list[tuple[Tensor, int]] = []  # the tensor is held, or its memory could be another's by now

    def watch(name: str, module: nn.Module, output: Tensor) -> None:
        if not output.is_floating_point() or len(output) % len(images_BCHW) or output.numel() == 0:
            return
        if last and _is_same(output, *last[0]):
            return
        last[:] = [(output, output._version)]
        label = unique = name or type(module).__name__
        number = 1
        while unique in grams:
            number += 1
            unique = f"{label} ({number})"
        grams[unique] = centred_gram(by_image(output, len(images_BCHW)))

    with watched_outputs(model, watch):
        model(images_BCHW)
    return tuple(grams), torch.stack(list(grams.values()))


def _is_same(output: Tensor, before: Tensor, version: int) -> bool:
    shares = output.untyped_storage().data_ptr() == before.untyped_storage().data_ptr()
    return shares and output._version == version == before._version


def by_image(output: Tensor, images: int) -> Tensor:
    """(B, F) without moving memory where it can be helped: the order of the features does not matter.

    Windows and tokens that were counted as images (Swin, DHVT) stand image by image.
    """
    order = sorted(range(1, output.ndim), key=lambda axis: -output.stride()[axis])
    return output.permute(0, *order).reshape(images, -1)

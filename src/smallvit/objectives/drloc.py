"""Dense relative localization: from the features of two cells of a grid, guess how far apart they lie.

Liu et al. 2021, "Efficient Training of Visual Transformers with Small Datasets". The loss needs no labels and no change to a
model: any backbone with a grid of at least two cells will do.

    B images, D width, H by W cells, M pairs per image, P = B M pairs, K distances.

Where paper and code of the authors differ, the code is the default: distances in cells (Eq. 1 divides them by the side),
the mean over both axes (Eq. 2 sums them), a weight that rises for 20 epochs and then falls to 0 (not in the paper).
`target="paper"` gives Eq. 1 and 2. Grids that are not square are indexed by their own width, which the authors' code does
not do. Pairs are drawn with replacement; the two cells of a pair may be the same.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from smallvit.console import several
from smallvit.errors import UsageError
from smallvit.models.features import Backbone, check_normed
from smallvit.objectives.base import Auxiliary, TaskInfo
from smallvit.planning.choices import Choices
from smallvit.recipe import Section
from smallvit.runs.curves import CurvePanel
from smallvit.types import Context, Loss, Seen

Kind = Literal["l1", "ce", "cbr", "cbr_mse"]
Target = Literal["raw", "over_k", "over_k1", "paper"]
Grid = tuple[int, int]
SHARE_OF_WARMUP = 0.2  # of all epochs, at most: short runs are not to end before the weight has risen


class Localization(NamedTuple):
    loss: Tensor
    error: Tensor  # mean distance between guess and truth, in cells, without gradient
    chance: float  # the error of the best answer that does not look at the image


class DenseRelativeLocalization(nn.Module):
    """A grid of features (B, D, H, W) -> loss. Works in any training loop: add `weight * loss` to yours.

    `grid` is the size (H, W) of the grids to come, after pooling; only the classifying heads (ce, cbr) need it.
    """

    def __init__(
        self, width: int, *, grid: Grid | None = None, pairs: int | Literal["all"] = 64, hidden: int = 512,
        loss: Kind = "l1", signed: bool = False, target: Target = "raw", pool_from: int = 14,
    ) -> None:  # fmt: skip
        super().__init__()
        for name, value, choices in (("loss", loss, get_args(Kind)), ("target", target, get_args(Target))):
            if value not in choices:
                raise ValueError(f"{name}={value!r}: choose one of {', '.join(choices)}")
        if pairs != "all" and pairs < 1:
            raise ValueError(f"pairs={pairs}: give at least 1, or 'all'")
        if loss != "l1" and grid is None:
            raise ValueError(f"loss={loss!r} has one output for each distance: give grid=(H, W)")
        if loss != "l1" and target != "raw":
            raise ValueError(f"target={target!r} is for loss='l1': {loss} counts distances in cells")
        self.width, self.pairs, self.loss, self.signed = width, pairs, loss, signed
        self.target, self.pool_from = target, pool_from
        last = 2 if loss == "l1" else hidden
        self.layers = nn.Sequential(
            nn.Linear(2 * width, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, last)
        )
        self.counts = [_distances(side, signed) for side in grid] if grid and loss != "l1" else []
        self.axes = nn.ModuleList(nn.Linear(hidden, count) for count in self.counts)

    def forward(self, grid_BDHW: Tensor, generator: torch.Generator | None = None) -> Localization:
        self._check(grid_BDHW.shape)
        grid_BDHW = pooled(grid_BDHW, self.pool_from)
        B, _, H, W = grid_BDHW.shape
        first_BM, second_BM = draw_pairs(B, (H, W), self.pairs, grid_BDHW.device, generator)
        index_P2 = true_distances(first_BM, second_BM, (H, W), self.signed).flatten(0, 1)
        index_P2 = self._shift(index_P2, (H, W))
        guess = self.guess(grid_BDHW, first_BM, second_BM)
        loss = localization_loss(guess, index_P2, (H, W), self.loss, self.signed, self.target)
        with torch.no_grad():
            error = (self._in_cells(guess, (H, W)) - index_P2).abs().float().mean()
        return Localization(loss, error, chance_error((H, W), self.signed))

    def _check(self, shape: torch.Size) -> None:
        if len(shape) != 4 or shape[1] != self.width:
            raise ValueError(f"features of shape {tuple(shape)}: give (images, {self.width}, rows, columns)")
        if shape[2] * shape[3] < 2:
            raise ValueError("a grid of one cell has no distances: take larger images or a smaller patch or stride")

    def _shift(self, index_P2: Tensor, grid: Grid) -> Tensor:
        """Of signed distances as classes, on a grid that is not full size yet: the same offset is always the same class."""
        if not (self.signed and self.counts):
            return index_P2
        less = [(count - _distances(side, True)) // 2 for count, side in zip(self.counts, grid, strict=True)]
        return index_P2 + index_P2.new_tensor(less) if any(less) else index_P2

    def guess(self, grid_BDHW: Tensor, first_BM: Tensor, second_BM: Tensor) -> list[Tensor]:
        """One tensor per axis (rows, columns): P numbers, or P by K scores where distances are classes."""
        cells_BND = grid_BDHW.flatten(2).transpose(1, 2)
        both = [cells_BND.gather(1, i[..., None].expand(-1, -1, cells_BND.shape[2])) for i in (first_BM, second_BM)]
        # In 32 bits from here: the squares and logarithms of the losses are too much for bf16.
        hidden_P = self.layers(torch.cat(both, 2).flatten(0, 1)).float()
        return [axis(hidden_P).float() for axis in self.axes] or list(hidden_P.unbind(1))

    def _in_cells(self, guess: list[Tensor], grid: Grid) -> Tensor:
        if self.loss == "l1":
            return torch.stack([g * _unit(n, self.signed, self.target) for g, n in zip(guess, grid, strict=True)], 1)
        if self.loss == "ce":
            return torch.stack([scores_PK.argmax(1) for scores_PK in guess], 1)
        return torch.stack([_expected(scores_PK.softmax(1)) for scores_PK in guess], 1)


# ---- pairs and their distances -----------------------------------------------------------------------


def pooled(grid_BDHW: Tensor, pool_from: int) -> Tensor:
    """A fine grid makes the task hard: from 14 cells on the authors average it once, 14 x 14 to 7 x 7. 0: never."""
    if not pool_from or max(grid_BDHW.shape[2:]) < pool_from:
        return grid_BDHW
    return F.avg_pool2d(grid_BDHW, 3, stride=2, padding=1, count_include_pad=False)


def draw_pairs(
    images: int, grid: Grid, pairs: int | Literal["all"], device: torch.device, generator: torch.Generator | None
) -> tuple[Tensor, Tensor]:
    """Numbers of the first and the second cells, each B by M. `all`: every cell, with the cells in a random order."""
    cells = grid[0] * grid[1]
    if pairs == "all":
        first_BM = torch.arange(cells, device=device).expand(images, cells)
        return first_BM, torch.rand(images, cells, device=device, generator=generator).argsort(1)
    drawn_2BM = torch.randint(cells, (2, images, pairs), device=device, generator=generator)
    return drawn_2BM[0], drawn_2BM[1]


def true_distances(first_BM: Tensor, second_BM: Tensor, grid: Grid, signed: bool) -> Tensor:
    """B by M by 2 (rows, columns), counted from 0: cells apart, or, signed, first minus second plus side - 1."""
    H, W = grid
    delta_BM2 = torch.stack([first_BM // W - second_BM // W, first_BM % W - second_BM % W], 2)
    return delta_BM2 + delta_BM2.new_tensor([H - 1, W - 1]) if signed else delta_BM2.abs()


@cache
def chance_error(grid: Grid, signed: bool) -> float:
    """The mean error, over both axes, of always answering the median distance."""
    errors = []
    for side in grid:
        cells = torch.arange(side)
        delta = (cells[:, None] - cells).flatten()
        distance = (delta if signed else delta.abs()).double()
        errors.append(float((distance - distance.median()).abs().mean()))
    return sum(errors) / 2


def _distances(side: int, signed: bool) -> int:
    return 2 * side - 1 if signed else side


def _unit(side: int, signed: bool, target: Target) -> float:
    """What a target is divided by: nothing, the number of distances, or the largest one."""
    if target == "raw":
        return 1.0
    count = _distances(side, signed)
    return float(count if target in ("over_k", "paper") else max(1, count - 1))


# ---- losses ------------------------------------------------------------------------------------------


def localization_loss(
    guess: list[Tensor], index_P2: Tensor, grid: Grid, kind: Kind = "l1", signed: bool = False, target: Target = "raw"
) -> Tensor:
    """The loss of a guess per axis against distances in cells."""
    each = [
        _axis_loss(kind, axis_guess, index_P2[:, axis], _unit(grid[axis], signed, target))
        for axis, axis_guess in enumerate(guess)
    ]
    return sum(each[1:], each[0]) / (2 if kind == "l1" and target != "paper" else 1)


def _axis_loss(kind: Kind, guess: Tensor, index_P: Tensor, unit: float) -> Tensor:
    if kind == "l1":
        return F.l1_loss(guess, index_P / unit)
    if kind == "ce":
        return F.cross_entropy(guess, index_P)
    share_PK = guess.softmax(1)
    expected_P = _expected(share_PK)
    squared_P = (expected_P - index_P).square()
    if kind == "cbr_mse":
        return squared_P.mean()
    # Variance-aware: an unsure guess costs less where it is wrong, and a little for being unsure.
    places_K = torch.arange(guess.shape[1], device=guess.device)
    variance_P = (share_PK * (places_K - expected_P[:, None]).square()).sum(1) + 1e-8
    return (squared_P / variance_P + 0.001 * variance_P.log()).mean()


def _expected(share_PK: Tensor) -> Tensor:
    return share_PK @ torch.arange(share_PK.shape[1], device=share_PK.device, dtype=share_PK.dtype)


# ---- as an auxiliary loss ----------------------------------------------------------------------------


class DrlocOptions(Section):
    weight: Annotated[float, Field(ge=0)] = 0.5
    schedule: Literal["warmup", "constant"] = "warmup"  # warmup: up to the weight, then down to 0 at the end
    warmup_epochs: Annotated[float, Field(ge=0)] = 20.0  # at most a fifth of the epochs
    pairs: Annotated[int, Field(ge=1)] | Literal["all"] = 64  # per image
    hidden: Annotated[int, Field(ge=1)] | Literal["width"] = "width"  # width: as wide as the features; published: 512
    loss: Kind = "l1"
    signed: bool = False  # distances with their sign
    target: Target = "raw"  # in cells, over the side k, over k - 1; paper: over k, and both axes summed
    pool_from: Annotated[int, Field(ge=0)] = 14  # a grid with so many cells along a side is averaged once; 0: never
    norm: Literal["before", "after"] = "before"  # the model's final norm
    multiscale: bool = False  # one head for every stage of a hierarchical model, their losses summed


class Drloc(Auxiliary):
    name = "drloc"
    Options = DrlocOptions
    curves = (
        CurvePanel(
            "drloc",
            "Localization error, in cells (thin: chance)",
            keys=("drloc_error", "drloc_chance"),
            spoken="Localization error and chance",
            faint=("drloc_chance",),
        ),
    )

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__(backbone, options, setting)
        o: DrlocOptions = options
        self.options = o
        self.stages = _usable_stages(backbone, o)
        if o.norm == "after":
            check_normed(backbone, "aux drloc: norm = after")
        self.sizes = [_head_size(backbone.grid_shapes[stage], o) for stage in self.stages]
        self.heads = nn.ModuleList(_head(size, o) for size in self.sizes)

    def forward(self, backbone: Backbone, seen: Seen, ctx: Context) -> Loss:
        grids = seen.features.grids
        if self.options.norm == "after":
            grids = (*grids[:-1], backbone.normed(grids[-1]))
        guesses: list[Localization] = [
            head(grids[stage], ctx.generator) for stage, head in zip(self.stages, self.heads, strict=True)
        ]
        total = torch.stack([guess.loss for guess in guesses]).sum()
        weight = weight_at(self.options, ctx.progress * ctx.epochs, ctx.epochs)
        chance = sum(guess.chance for guess in guesses) / len(guesses)
        parts = {
            "drloc": total.detach(),
            "drloc_error": torch.stack([guess.error for guess in guesses]).mean(),
            "drloc_chance": torch.full_like(total, chance).detach(),
            "drloc_weight": torch.full_like(total, weight).detach(),
        }
        return Loss(weight * total, parts, seen)

    def notes(self, choices: Choices, epochs: int) -> None:
        o = self.options
        looks = [
            f"{size.grid_in_words()} with a head of width {size.hidden}, where chance is "
            f"{chance_error(size.grid, o.signed):.3g} cells off"
            for size in self.sizes
        ]
        choices.record("weight", o.weight, f"{_schedule_in_words(o, epochs)}; it looks at {' and at '.join(looks)}")


class HeadSize(NamedTuple):
    width: int  # of the features
    model_grid: Grid
    grid: Grid  # after pooling
    hidden: int

    def grid_in_words(self) -> str:
        rows, columns = self.grid
        averaged = (
            f", averaged from {self.model_grid[0]} x {self.model_grid[1]}," if self.grid != self.model_grid else ""
        )
        return f"the {rows} x {columns} grid{averaged}"


def _head_size(shape: tuple[int, int, int], o: DrlocOptions) -> HeadSize:
    D, rows, columns = shape
    H, W = pooled(torch.zeros(1, 1, rows, columns), o.pool_from).shape[2:]
    return HeadSize(D, (rows, columns), (H, W), D if o.hidden == "width" else o.hidden)


def _head(size: HeadSize, o: DrlocOptions) -> DenseRelativeLocalization:
    try:
        return DenseRelativeLocalization(
            size.width, grid=size.grid, pairs=o.pairs, hidden=size.hidden, loss=o.loss, signed=o.signed,
            target=o.target, pool_from=o.pool_from,
        )  # fmt: skip
    except ValueError as error:
        raise UsageError(f"aux drloc: {error}") from None


def _usable_stages(backbone: Backbone, o: DrlocOptions) -> list[int]:
    """Places of the grids that are looked at, counted from the last. One cell has no distance to another."""
    shapes = backbone.grid_shapes
    if not shapes:
        raise UsageError("aux drloc: this model gives one vector per image and no grid; choose another model")
    if o.multiscale and len(shapes) == 1:
        raise UsageError(
            "aux drloc: multiscale looks at every stage, and this model has one; leave it out, or choose a model with "
            "stages (swin_nano, swin_tiny, pvt_b0, cvt_13, resnet18_32)"
        )
    stages = range(-len(shapes), 0) if o.multiscale else [-1]
    usable = [stage for stage in stages if math.prod(_head_size(shapes[stage], o).grid) > 1]
    if not usable:
        size = backbone.img_size
        raise UsageError(
            f"aux drloc: the model's last grid is 1x1 at {size} px: with one cell there is no distance to guess. Take larger "
            f"images (--img-size {4 * size}), a smaller patch or stride, or a model for small images (swin_tiny, pvt_b0, "
            "resnet18_32, dhvt_tiny)"
        )
    return usable


def weight_at(o: DrlocOptions, epoch: float, epochs: int) -> float:
    """Linear up, then linear down to 0 at the end, as in the authors' code, made sound for short runs."""
    if o.schedule == "constant":
        return o.weight
    warmup = warmup_of(o, epochs)
    if epoch < warmup:
        return o.weight * epoch / warmup
    return o.weight * max(0.0, 1 - (epoch - warmup) / max(1e-9, epochs - warmup))


def warmup_of(o: DrlocOptions, epochs: int) -> float:
    return min(o.warmup_epochs, SHARE_OF_WARMUP * epochs)


def _schedule_in_words(o: DrlocOptions, epochs: int) -> str:
    if o.schedule == "constant":
        return "all the time"
    warmup = warmup_of(o, epochs)
    short = f", a fifth of the run instead of {o.warmup_epochs:g}" if warmup < o.warmup_epochs else ""
    return f"reached after {warmup:.3g} of {several(epochs, 'epoch')}{short}, then falling to 0"

"""MAE: three quarters of an image are hidden, and their pixels guessed from the rest.

He et al. 2022, "Masked Autoencoders Are Scalable Vision Learners". The model encodes the visible cells alone, so that a step
is cheap. A small transformer, which no later training keeps, gets them at their places, one learned token at every other
place, and the places as sines and cosines; it guesses all pixels. With patches x_n of the image and guesses y_n,

    loss = mean over hidden cells n of mean((y_n - t_n)^2),     t_n = (x_n - mean(x_n)) / sqrt(var(x_n) + 1e-6),

or t_n = x_n without `norm_pixels` (the variance is over one less than the number of values, as in the authors' code). The
cells of an image are sorted by numbers that it draws, and the first of them are visible.

B images, C channels, N = H W cells, V visible, M hidden, X = C p q values of a patch of p by q pixels, D width of the model,
W of the decoder, P tokens in front.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from pydantic import Field
from timm.layers import build_sincos2d_pos_embed
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from smallvit.errors import UsageError
from smallvit.evaluation.predictor import evaluating
from smallvit.models.features import Backbone
from smallvit.models.visible_tokens import Visible, blanked, check_visible, encode_visible
from smallvit.objectives.base import EvalData, Shown, TaskInfo
from smallvit.objectives.hidden_cells import (
    Cells,
    Grid,
    deviation,
    drawn_cells,
    hidden_error,
    images_of,
    patches,
    visible_cells,
)
from smallvit.objectives.selfsupervised import PretrainingOptions, SelfSupervised, thinned
from smallvit.planning.choices import Choices
from smallvit.randomness import key_of, uniform
from smallvit.recipe import Auto
from smallvit.types import Batch, Context, Features, Loss, Seen, View

HEAD_WIDTH = 16  # of the decoder
SHOWN = 6  # images whose guess is in the report


class MaeOptions(PretrainingOptions):
    mask_ratio: Annotated[float, Field(gt=0, lt=1)] = 0.75  # share of the cells that is hidden
    norm_pixels: bool = True  # pixels are guessed less the mean of their patch, and over its deviation
    decoder_width: Annotated[int, Field(ge=HEAD_WIDTH)] | Auto = "auto"  # auto: about half the model's
    decoder_depth: Annotated[int, Field(ge=1)] = 2  # blocks; 8 in the paper


class MAE(SelfSupervised):
    name = "mae"
    Options = MaeOptions
    whole_grids = False
    options: MaeOptions

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__(backbone, options, setting)
        check_visible(backbone, "method mae")
        self.views = (View(1, setting.img_size),)
        width, *grid = backbone.grid_shapes[-1]
        self.grid: Grid = (grid[0], grid[1])
        values = backbone.in_chans * setting.img_size**2 // math.prod(self.grid)
        if values == 1 and self.options.norm_pixels:
            raise UsageError(
                "method mae: a patch of one pixel has no contrast to guess: a larger one (--set model.kwargs.patch_size=2), other "
                "images (--img-size), or --set objective.norm_pixels=false"
            )
        self.decoder = Decoder(width, decoder_width(self.options, width), self.options.decoder_depth, self.grid, values)

    def forward(self, backbone: Backbone, batch: Batch, ctx: Context) -> Loss:
        images_BCSS = batch.views[0]
        cells = drawn_cells(uniform(ctx.key, batch.index_B, math.prod(self.grid)), self.options.mask_ratio)
        seen = encode_visible(backbone, images_BCSS, cells.visible_BV)
        guess_BNX = self.decoder(seen, cells.visible_BV)
        total = hidden_error(guess_BNX, patches(images_BCSS, self.grid), cells.hidden_BM, self.options.norm_pixels)
        return Loss(total, {"mae": total.detach()}, Seen.of(batch, images_BCSS, Features(seen.pooled_BD, ())))

    def notes(self, choices: Choices, epochs: int) -> None:
        cells = math.prod(self.grid)
        visible = visible_cells(cells, self.options.mask_ratio)
        choices.record("mask_ratio", self.options.mask_ratio, f"the model sees {visible} of {cells} cells of an image")
        choices.choose("decoder_width", self.decoder.width, "about half the model's; it is left behind")

    def shown(self, backbone: Backbone, exam: EvalData) -> Shown:
        """What it makes of images that were held out, where some were; the same cells are hidden every time."""
        rows = thinned(exam.held_out if len(exam.held_out) else exam.train_rows, SHOWN)
        images_BCSS = exam.preparation.normalised(exam.images.take(rows))
        draws_BN = uniform(key_of(0, "shown"), rows.to(images_BCSS.device), math.prod(self.grid))
        cells = drawn_cells(draws_BN, self.options.mask_ratio)
        with evaluating(backbone), evaluating(self.decoder):
            guess_BCSS = self._guess(backbone, images_BCSS, cells)
        seen_BCSS = blanked(images_BCSS, cells.visible_BV, self.grid)
        whole_BCSS = seen_BCSS + blanked(guess_BCSS, cells.hidden_BM, self.grid)
        columns = [exam.preparation.pixels(images) for images in (images_BCSS, seen_BCSS, whole_BCSS)]
        own = ", with the brightness and contrast that each hidden cell has" if self.options.norm_pixels else ""
        words = f"The image, what the model sees of it, and what it makes of that{own}."
        return Shown("Its guesses", words, ("the image", "seen", "guessed"), torch.stack(columns, dim=1))

    def _guess(self, backbone: Backbone, images_BCSS: Tensor, cells: Cells) -> Tensor:
        guess_BNX = self.decoder(encode_visible(backbone, images_BCSS, cells.visible_BV), cells.visible_BV)
        if self.options.norm_pixels:  # what it does not guess, the mean and deviation of a patch, is the image's own
            true_BNX = patches(images_BCSS, self.grid)
            guess_BNX = guess_BNX * deviation(true_BNX) + true_BNX.mean(-1, keepdim=True)
        return images_of(guess_BNX, self.grid, images_BCSS.shape[1])


class Decoder(nn.Module):
    """From the visible tokens to the pixels of all cells."""

    places_1NW: Tensor

    def __init__(self, width: int, own: int, depth: int, grid: Grid, values: int) -> None:
        super().__init__()
        self.width = own
        self.embed = nn.Linear(width, own)
        self.hidden_token = nn.Parameter(torch.empty(1, 1, own))
        # Fixed, and the same for every run: the checkpoint does not hold them.
        self.register_buffer("places_1NW", build_sincos2d_pos_embed(list(grid), own)[None], persistent=False)
        self.blocks = nn.Sequential(*(Block(own, own // HEAD_WIDTH, qkv_bias=True) for _ in range(depth)))
        self.norm = nn.LayerNorm(own)
        self.pixels = nn.Linear(own, values)
        nn.init.normal_(self.hidden_token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, seen: Visible, visible_BV: Tensor) -> Tensor:
        front_BPW, cells_BVW = self.embed(seen.front_BPD), self.embed(seen.cells_BVD)
        hidden_BNW = self.hidden_token.to(cells_BVW.dtype).expand(len(cells_BVW), self.places_1NW.shape[1], -1)
        cells_BNW = hidden_BNW.scatter(1, visible_BV[:, :, None].expand(-1, -1, self.width), cells_BVW)
        x_BMW = self.blocks(torch.cat([front_BPW, cells_BNW + self.places_1NW], dim=1))
        return self.pixels(self.norm(x_BMW[:, front_BPW.shape[1] :]))


def decoder_width(options: MaeOptions, width: int) -> int:
    """A number of whole heads, and of sines and cosines for two axes."""
    if options.decoder_width == "auto":
        return max(2, round(width / (2 * HEAD_WIDTH))) * HEAD_WIDTH
    if options.decoder_width % HEAD_WIDTH:
        raise UsageError(
            f"objective.decoder_width = {options.decoder_width}: its heads are {HEAD_WIDTH} wide; give a multiple of that"
        )
    return options.decoder_width

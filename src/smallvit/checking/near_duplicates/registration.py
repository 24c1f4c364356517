"""Lay one picture over another, and say how well they agree.

A transform (2 x 3) says where a point of the first picture lies in the second; both pictures span -1..1.
P pairs, S side, G parameters of a transform.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

CROP = 0.1  # the share of the side that the search tries to take off
WINDOW = 7  # pixels, of the small windows
STRUCTURE = 3.0  # grey levels of deviation that make a window count; less is noise
MOST = 0.9  # of the windows
SCALES, MOST_STRETCH = (0.7, 1.4), 1.4  # of width and height, and of the one against the other
MOST_TURN = 0.12  # radians, 7 degrees
LEAST_OVERLAP = 0.6
UPSIDE_DOWN = torch.tensor([[[1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]])
SQUEEZED = torch.tensor([[[0.62, 0.0, 0.0], [0.0, 1.0, 0.0]], [[1.0, 0.0, 0.0], [0.0, 0.62, 0.0]]])


def crop_starts(crops: bool) -> Tensor:
    """Whole and mirrored; with `crops` also the middle and the corners of the second picture."""
    share = 1 - CROP
    boxes = [(1.0, 0.0, 0.0), (share, 0.0, 0.0)]
    corners = [(share, x, y) for x in (-CROP, CROP) for y in (-CROP, CROP)]
    plain = [*boxes, *corners] if crops else boxes[:1]
    mirrored = boxes if crops else boxes[:1]
    return torch.tensor(
        [[[scale, 0, x], [0, scale, y]] for scale, x, y in plain]
        + [[[-scale, 0, x], [0, scale, y]] for scale, x, y in mirrored]
    )


def describe(pictures_N1SS: Tensor, transform_23: Tensor, side: int = 8) -> Tensor:
    """The part of every picture that a transform shows, `side` x `side` without its mean."""
    described = []
    for some in pictures_N1SS.split(2048):
        seen, _ = look(some.float(), transform_23.expand(len(some), 2, 3), 2 * side)
        described.append(F.avg_pool2d(seen, 2).flatten(1))
    flat = torch.cat(described)
    return flat - flat.mean(1, keepdim=True)


def look(pictures_P1SS: Tensor, transform_P23: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Pictures as a transform shows them, and a mask (0 or 1) of the points that lie well inside of both pictures.

    The outermost pixels do not count: many pictures have a thin frame there.
    """
    grid = F.affine_grid(transform_P23, [len(transform_P23), 1, side, side], align_corners=False)
    seen = F.grid_sample(pictures_P1SS, grid, align_corners=False, padding_mode="border")
    inside = (grid.abs() <= 1 - 2 / pictures_P1SS.shape[-1]).all(-1)[:, None].float()
    return seen, inside * F.pad(torch.ones(side - 2, side - 2), (1, 1, 1, 1))


def register(first_P1SS: Tensor, second_P1SS: Tensor, transform_P23: Tensor, steps: int) -> Tensor:
    """Gauss-Newton steps on stretch, shift and turn (inverse compositional: one Jacobian for all steps)."""
    jacobian_PGS = _jacobian(first_P1SS)
    squares = jacobian_PGS @ jacobian_PGS.transpose(1, 2)
    inverse_PGG = torch.linalg.inv(squares + torch.diag_embed(0.01 * squares.diagonal(dim1=1, dim2=2) + 1e-3))
    for _ in range(steps):
        seen, mask = look(second_P1SS, transform_P23, first_P1SS.shape[-1])
        error = ((same_levels(seen, first_P1SS, mask) - first_P1SS) * mask).flatten(1)
        step_PG = (inverse_PGG @ (jacobian_PGS @ error[..., None]))[..., 0].clamp(-0.1, 0.1)
        transform_P23 = transform_P23 @ _undo(step_PG)
    return transform_P23


def _jacobian(pictures_P1SS: Tensor) -> Tensor:
    """How the picture changes when it is stretched (x, y), shifted (x, y) and turned."""
    side = pictures_P1SS.shape[-1]
    padded = F.pad(pictures_P1SS, (1, 1, 1, 1), mode="replicate")
    dx = ((padded[..., 1:-1, 2:] - padded[..., 1:-1, :-2]) * (side / 4)).flatten(1)
    dy = ((padded[..., 2:, 1:-1] - padded[..., :-2, 1:-1]) * (side / 4)).flatten(1)
    line = (torch.arange(side) + 0.5) / side * 2 - 1
    y, x = (axis.flatten() for axis in torch.meshgrid(line, line, indexing="ij"))
    return torch.stack([dx * x, dy * y, dx, dy, dy * x - dx * y], 1)


def _undo(step_PG: Tensor) -> Tensor:
    """The inverse of a small step, as 3 x 3 matrices."""
    wide, high, right, down, turn = step_PG.unbind(1)
    zeros, ones = torch.zeros_like(turn), torch.ones_like(turn)
    rows = [(1 - wide, turn, -right), (-turn, 1 - high, -down), (zeros, zeros, ones)]
    return torch.stack([torch.stack(row, 1) for row in rows], 1)


def inverse(transform_P23: Tensor) -> Tensor:
    """Where a point of the second picture lies in the first. A transform that flattens has none: as good as any."""
    turn_P22, shift_P21 = transform_P23.split([2, 1], 2)
    back, _ = torch.linalg.inv_ex(turn_P22)
    back = torch.where(back.isfinite().all(2).all(1)[:, None, None], back, torch.eye(2))
    return torch.cat([back, -back @ shift_P21], 2)


def plausible(transform_P23: Tensor) -> Tensor:
    """A copy is neither squeezed nor turned much."""
    stretch = transform_P23.diagonal(dim1=1, dim2=2).abs()
    turn = torch.stack([transform_P23[:, 0, 1], transform_P23[:, 1, 0]], 1).abs()
    even = stretch.amax(1) < MOST_STRETCH * stretch.amin(1)
    return even & ((stretch > SCALES[0]) & (stretch < SCALES[1]) & (turn < MOST_TURN)).all(1)


def squeezed(transform_P23: Tensor) -> Tensor:
    """The opposite: matches that need a squeeze which no copy has."""
    stretch = transform_P23.diagonal(dim1=1, dim2=2).abs()
    ratio = stretch.amax(1) / stretch.amin(1).clamp_min(1e-3)
    return (ratio > MOST_STRETCH) & (ratio < 2.2) & (stretch.amax(1) < SCALES[1])


# ---- how well they agree -----------------------------------------------------------------------------


def judge(first_P1SS: Tensor, second_P1SS: Tensor, transform_P23: Tensor) -> Tensor:
    """Three correlations (P, 3) where the pictures overlap: of pixels, of detail, and within small windows."""
    first = soften(first_P1SS)
    seen, mask = look(soften(second_P1SS), transform_P23, first.shape[-1])
    seen = same_levels(seen, first, mask)
    scores = [
        correlation(seen, first, mask),
        correlation(detail(seen, mask), detail(first, mask), mask),
        window_correlation(seen, first, mask),
    ]
    overlap = mask.flatten(1).mean(1) >= LEAST_OVERLAP
    return torch.stack(scores, 1) * overlap[:, None]


def soften(pictures_P1SS: Tensor) -> Tensor:
    """A slight blur, so that what encoding and resizing do to the finest detail does not count."""
    line = torch.tensor([0.25, 0.5, 0.25])
    return F.conv2d(F.pad(pictures_P1SS, (1, 1, 1, 1), mode="replicate"), torch.outer(line, line)[None, None])


def same_levels(seen_P1SS: Tensor, first_P1SS: Tensor, mask_P1SS: Tensor) -> Tensor:
    """`seen` with the brightness and contrast of `first`."""
    mean_seen, std_seen = _moments(seen_P1SS, mask_P1SS)
    mean, std = _moments(first_P1SS, mask_P1SS)
    return (seen_P1SS - mean_seen) * (std / std_seen.clamp_min(1e-3)) + mean


def _moments(pictures_P1SS: Tensor, mask_P1SS: Tensor) -> tuple[Tensor, Tensor]:
    count = mask_P1SS.sum((1, 2, 3), keepdim=True).clamp_min(1)
    mean = (pictures_P1SS * mask_P1SS).sum((1, 2, 3), keepdim=True) / count
    return mean, (((pictures_P1SS - mean).square() * mask_P1SS).sum((1, 2, 3), keepdim=True) / count).sqrt()


def pixel_correlation(first_P1SS: Tensor, second_P1SS: Tensor, transform_P23: Tensor) -> Tensor:
    seen, mask = look(second_P1SS, transform_P23, first_P1SS.shape[-1])
    return correlation(seen, first_P1SS, mask)


def correlation(a_P1SS: Tensor, b_P1SS: Tensor, mask_P1SS: Tensor) -> Tensor:
    (mean_a, std_a), (mean_b, std_b) = _moments(a_P1SS, mask_P1SS), _moments(b_P1SS, mask_P1SS)
    product, _ = _moments((a_P1SS - mean_a) * (b_P1SS - mean_b), mask_P1SS)
    return (product / (std_a * std_b).clamp_min(1e-3)).flatten()


def detail(pictures_P1SS: Tensor, mask_P1SS: Tensor) -> Tensor:
    """What a blur of five pixels takes away: layout and light are gone."""
    blurred = F.avg_pool2d(pictures_P1SS * mask_P1SS, 5, 1, 2) / F.avg_pool2d(mask_P1SS, 5, 1, 2).clamp_min(1e-3)
    return (pictures_P1SS - blurred) * mask_P1SS


def window_correlation(a_P1SS: Tensor, b_P1SS: Tensor, mask_P1SS: Tensor) -> Tensor:
    """The correlation that most small windows with any structure reach: a strong common outline is not enough."""

    def mean(x: Tensor) -> Tensor:
        return F.avg_pool2d(x, WINDOW, 1)

    a, b = mean(a_P1SS), mean(b_P1SS)
    spread_a, spread_b = mean(a_P1SS.square()) - a.square(), mean(b_P1SS.square()) - b.square()
    correlation_P1WW = (mean(a_P1SS * b_P1SS) - a * b) / (spread_a * spread_b).clamp_min(1e-4).sqrt()
    counts = (mean(mask_P1SS) > 0.999) & (torch.maximum(spread_a, spread_b) > STRUCTURE**2)
    return correlation_P1WW.masked_fill(~counts, torch.nan).flatten(1).nanquantile(1 - MOST, 1).nan_to_num(0)

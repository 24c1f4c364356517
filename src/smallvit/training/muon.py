"""Muon: the momentum of every hidden matrix is made orthogonal before it is applied; AdamW moves all the rest.

Jordan et al. 2024. A step then moves every direction of a matrix alike, and a few hundred steps get further. Newton-Schulz
iterations do it without a decomposition; matrices of one shape go through them together, which on a CPU takes half the
time of one after the other, and by their Gram matrices, which takes half of that. The filters of a convolution are the rows of a matrix; a norm follows them, so that their
own size says nothing, and it is kept: else the first steps would shrink all that come later.

G matrices of one shape, R rows, C columns.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

ITERATIONS = 3  # five in the paper; the last two are not worth their time in short runs
LINEAR_RATE = 0.1  # of linear layers, whose size is not kept, to that of filters
COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the published polynomial: singular values go to about 1, fast
MOMENTUM = 0.6


class Muon(torch.optim.Optimizer):
    """`matrices` are moved by Muon, `rest` (groups as AdamW takes them) by AdamW.

    A group of matrices has the rate `lr * lr_scale`; what sets the rate of all groups sets `lr`.
    """

    def __init__(
        self, matrices: Iterable[nn.Parameter], rest: list[dict[str, Any]], *, lr: float, matrix_lr: float,
        betas: tuple[float, float], fused: bool,
    ) -> None:  # fmt: skip
        shapes: dict[torch.Size, list[nn.Parameter]] = defaultdict(list)
        for matrix in matrices:
            shapes[matrix.shape].append(matrix)
        groups = [
            {"params": alike, "lr_scale": matrix_lr / lr * (1.0 if alike[0].ndim > 2 else LINEAR_RATE)}
            for alike in shapes.values()
        ]
        super().__init__(groups, {"lr": lr})
        self.matrix_groups = list(self.param_groups)
        self.adamw = torch.optim.AdamW(rest, lr=lr, betas=betas, fused=fused)
        # One list of groups and one state for both: whoever sets rates or stores the state need not know of two.
        self.param_groups.extend(self.adamw.param_groups)
        self.adamw.state = self.state

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the loop computes the loss once"
        for group in self.matrix_groups:
            self._step_alike(group["params"], group["lr"] * group["lr_scale"])
        self.adamw.step()

    def _step_alike(self, matrices: list[nn.Parameter], rate: float) -> None:
        """Move the matrices of one shape."""
        moving = [matrix for matrix in matrices if matrix.grad is not None]
        if not moving:
            return
        gradients = [cast(Tensor, matrix.grad) for matrix in moving]
        momenta = [self._momentum(matrix) for matrix in moving]
        torch._foreach_mul_(momenta, MOMENTUM)
        torch._foreach_add_(momenta, gradients)
        ahead = torch._foreach_add(gradients, momenta, alpha=MOMENTUM)  # as Nesterov does
        moves_GRC = orthogonal(torch.stack([move.flatten(1) for move in ahead]))
        for matrix, move_RC in zip(moving, moves_GRC, strict=True):
            if matrix.ndim > 2:
                matrix.mul_(len(matrix) ** 0.5 / matrix.norm().clamp_min(1e-7))  # zeros stay zeros
            matrix.add_(move_RC.view_as(matrix), alpha=-rate)

    def _momentum(self, matrix: nn.Parameter) -> Tensor:
        state = self.state[matrix]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(matrix)
        return state["momentum"]


def orthogonal(matrices_GRC: Tensor) -> Tensor:
    """Nearly the nearest orthogonal matrix of each: the same singular vectors, all singular values about 1."""
    tall = matrices_GRC.shape[1] > matrices_GRC.shape[2]
    x = matrices_GRC.mT if tall else matrices_GRC  # the product below is then the smaller one
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    moved = _polynomial(x @ x.mT) @ x
    return moved.mT if tall else moved


def _polynomial(gram_GRR: Tensor) -> Tensor:
    """What all iterations together multiply a matrix by.

    Each multiplies it by a polynomial of its own Gram matrix, and the next Gram matrix follows from that: filters have four to nine
    times as many columns as rows, and only the first product and the last are as wide as they are.
    """
    a, b, c = COEFFICIENTS
    whole_GRR = None
    for left in reversed(range(ITERATIONS)):
        step_GRR = torch.baddbmm(b * gram_GRR, gram_GRR, gram_GRR, alpha=c)
        step_GRR.diagonal(dim1=1, dim2=2).add_(a)
        whole_GRR = step_GRR if whole_GRR is None else step_GRR @ whole_GRR
        gram_GRR = step_GRR @ (gram_GRR @ step_GRR) if left else gram_GRR
    assert whole_GRR is not None
    return whole_GRR

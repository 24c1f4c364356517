"""The first layer of the hybrid family: filters that whiten the patches of the training images (Jordan 2024).

B images, C channels, H by W pixels, D filters, P values of a patch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

COMPONENTS = 12  # of the patches of a colour image; each gives two filters
NOISE = 5e-4  # added to the variance of a component: rare ones are not blown up


class Whitening(nn.Module):
    """Fixed filters: the principal components of patches, each scaled to variance 1, and their negatives.

    Random orthogonal ones until `whiten` has seen images; `learned` ones start as these and are trained. Patches overlap
    by half, and the image is padded so that the grid is the image's size over the stride.
    """

    weight: Tensor

    def __init__(self, in_chans: int, stride: int, learned: bool = False) -> None:
        super().__init__()
        self.stride, self.side = stride, 2 * stride
        values = in_chans * self.side**2
        self.components = min(COMPONENTS, values)
        filters_PP = torch.linalg.qr(torch.randn(values, values))[0]
        weight = self._filters(filters_PP.T[: self.components], in_chans)
        self.learned = learned
        if learned:
            self.weight = nn.Parameter(weight)
        else:
            self.register_buffer("weight", weight)
        self.bias = nn.Parameter(torch.zeros(2 * self.components))

    @property
    def width(self) -> int:
        return 2 * self.components

    def forward(self, x: Tensor) -> Tensor:
        before = self.stride // 2
        padded = F.pad(x, (before, self.stride - before, before, self.stride - before))
        return F.gelu(F.conv2d(padded, self.weight.to(x.dtype), self.bias, self.stride))

    @torch.no_grad()
    def fit(self, images_BCHW: Tensor) -> None:
        patches_NP = F.unfold(images_BCHW.float(), self.side, stride=self.side).mT.flatten(0, 1)
        values_P, vectors_PP = torch.linalg.eigh(patches_NP.T.cov())  # rising
        scaled_PP = (vectors_PP / (values_P + NOISE).sqrt()).T.flip(0)
        self.weight.copy_(self._filters(scaled_PP[: self.components], images_BCHW.shape[1]))

    def _filters(self, components_CP: Tensor, in_chans: int) -> Tensor:
        both_DP = torch.cat([components_CP, -components_CP])
        return both_DP.unflatten(1, (in_chans, self.side, self.side))

"""PVTv2-B0 whose stem keeps small images large: timm's has a stride of 4 and no argument for it."""

from __future__ import annotations

from typing import Any

from timm.models import build_model_with_cfg, register_model
from timm.models._registry import generate_default_cfgs
from timm.models.pvt_v2 import PyramidVisionTransformerV2

from smallvit.models.registry import config

default_cfgs = generate_default_cfgs({"pvt_v2_b0_32": config(32, "patch_embed.proj", "head", fixed_size=False)})


class SmallImagePvt(PyramidVisionTransformerV2):
    def __init__(self, *args: Any, stem_stride: int = 1, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.patch_embed.proj.stride = (stem_stride, stem_stride)
        for info in self.feature_info:
            info["reduction"] = info["reduction"] * stem_stride // 4


@register_model
def pvt_v2_b0_32(pretrained: bool = False, **kwargs: Any) -> SmallImagePvt:
    """PVTv2-B0 for small images: stem stride 1 (32 px end in 4x4)."""
    shape = {"depths": (2, 2, 2, 2), "embed_dims": (32, 64, 160, 256), "num_heads": (1, 2, 5, 8)}
    return build_model_with_cfg(SmallImagePvt, "pvt_v2_b0_32", pretrained, **{**shape, **kwargs})

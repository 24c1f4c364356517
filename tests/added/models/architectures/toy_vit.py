"""A transformer of one block."""

from __future__ import annotations

from typing import Any

from timm.models import build_model_with_cfg, register_model
from timm.models._registry import generate_default_cfgs
from timm.models.vision_transformer import VisionTransformer

from smallvit.models.registry import config

default_cfgs = generate_default_cfgs({"toy_vit": config(32, "patch_embed.proj", "head", fixed_size=True)})


@register_model
def toy_vit(pretrained: bool = False, **kwargs: Any) -> VisionTransformer:
    """Width 16, one block, two heads, patch 4."""
    shape = {"img_size": 32, "patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2, "mlp_ratio": 2.0}
    features = {"out_indices": 1, "feature_cls": "getter"}
    return build_model_with_cfg(VisionTransformer, "toy_vit", pretrained, feature_cfg=features, **{**shape, **kwargs})

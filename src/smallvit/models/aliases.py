"""Short names on the command line, and the patch, window or stem that suits the size of the images.

A name of timm's own is never changed: it is built as timm builds it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from smallvit.errors import UsageError


class Architecture(NamedTuple):
    timm_name: str
    kwargs: dict[str, Any]


MOST_CELLS = 32  # along a side: 1,024 tokens, whose attention is already slow


def patch_for(img_size: int) -> int:
    """About 8 x 8 tokens at 32 and 64 px, 14 x 14 at 224. A patch must divide the image: 50 px take 10."""
    wanted = 2 if img_size < 16 else 4 if img_size <= 48 else 8 if img_size <= 112 else 16
    dividing = [patch for patch in range(1, 2 * wanted + 1) if img_size % patch == 0]
    # One pixel is no patch, unless nothing else divides.
    patch = min(dividing, key=lambda patch: (patch == 1, abs(patch - wanted), patch))
    if img_size // patch > MOST_CELLS:
        below = img_size - img_size % wanted
        raise UsageError(f"no patch of 2 to {2 * wanted} px fits images of {img_size} px: take --img-size {below}")
    return patch


def _vit(timm_name: str) -> Callable[[int], Architecture]:
    return lambda img_size: Architecture(timm_name, {"patch_size": patch_for(img_size)})


def _swin_tiny(img_size: int) -> Architecture:
    name = "swin_tiny_patch4_window7_224"
    if img_size > 112:
        return Architecture(name, {})
    return Architecture(name, {"patch_size": 1 if img_size <= 48 else 2, "window_size": 4})


def _pvt_b0(img_size: int) -> Architecture:
    if img_size > 112:
        return Architecture("pvt_v2_b0", {})
    return Architecture("pvt_v2_b0_32", {"stem_stride": 1 if img_size <= 48 else 2})


ALIASES: dict[str, Callable[[int], Architecture]] = {
    "vit_pico": _vit("vit_pico"),
    "vit_nano": _vit("vit_nano"),
    "vit_tiny": _vit("vit_tiny_patch16_224"),
    "vit_small": _vit("vit_small_patch16_224"),
    "deit_tiny": _vit("deit_tiny_patch16_224"),
    "deit_small": _vit("deit_small_patch16_224"),
    "swin_tiny": _swin_tiny,
    "pvt_b0": _pvt_b0,
}


def architecture(name: str, img_size: int) -> Architecture:
    """The timm name and constructor arguments that a name means for images of this size."""
    return ALIASES[name](img_size) if name in ALIASES else Architecture(name, {})

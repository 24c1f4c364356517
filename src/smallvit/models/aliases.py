"""Short names on the command line, and the patch, window or stem that suits the size of the images.

A name of timm's own is never changed: it is built as timm builds it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from smallvit.errors import UsageError
from smallvit.models.architectures import cvt, hybrid, t2t


class Architecture(NamedTuple):
    timm_name: str
    kwargs: dict[str, Any]


# Plain ViTs, whose positions timm stretches to images of another size where it is told to.
VITS = ("vit_pico", "vit_nano", "vit_tiny", "vit_small", "deit_tiny", "deit_small")

# Our own family: `conv` and `hybrid` mean their smallest member, and a wider one where a plan has time for it.
HYBRID_KINDS = tuple(hybrid.LAYERS)
HYBRIDS = tuple(f"{kind}_{size}" for kind in hybrid.LAYERS for size in hybrid.WIDTHS)
SMALL_WINDOW = 4  # of swin_tiny, for images of up to 112 px; timm's is 7
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


def halving_patch_for(img_size: int) -> int:
    """The same where a patch is cut by strides of 2: 2, 4, 8 or 16. 50 px take 2."""
    wanted = patch_for(img_size)
    fitting = [patch for patch in (2, 4, 8, 16) if img_size % patch == 0 and img_size // patch <= MOST_CELLS]
    if not fitting:
        below = img_size - img_size % 8
        raise UsageError(f"no patch of 2, 4, 8 or 16 px fits images of {img_size} px: take --img-size {below}")
    return min(fitting, key=lambda patch: (abs(patch - wanted), patch))


def _vit(timm_name: str) -> Callable[[int], Architecture]:
    return lambda img_size: Architecture(timm_name, {"patch_size": patch_for(img_size)})


def _dhvt_laptop(timm_name: str) -> Callable[[int], Architecture]:
    return lambda img_size: Architecture(timm_name, {"patch_size": halving_patch_for(img_size)})


def _dhvt(size: str) -> Callable[[int], Architecture]:
    """The published models: patch 2, 4 and 8 with the heads of CIFAR, patch 16 with those of ImageNet."""

    def choose(img_size: int) -> Architecture:
        patch = halving_patch_for(img_size)
        return Architecture(f"dhvt_{size}_patch{patch}_{224 if patch == 16 else 32}", {})

    return choose


def _strided(timm_name: str, argument: str, strides: Callable[[int], tuple[int, ...]]) -> Callable[[int], Architecture]:
    return lambda img_size: Architecture(timm_name, {argument: list(strides(img_size))})


def _hybrid(timm_name: str) -> Callable[[int], Architecture]:
    """A stem that leaves about 32 x 32 cells, so that three halvings end at about 4 x 4; of tiny images two are enough."""
    kind, size = timm_name.split("_") if "_" in timm_name else (timm_name, next(iter(hybrid.WIDTHS)))
    timm_name = f"{kind}_{size}"

    def choose(img_size: int) -> Architecture:
        if img_size < 16:
            widths, layers = hybrid.WIDTHS[size], hybrid.LAYERS[kind]
            return Architecture(timm_name, {"stem_stride": 1, "widths": [*widths[:2]], "layers": [*layers[1:]]})
        return Architecture(timm_name, {"stem_stride": stem_stride_for(img_size)})

    return choose


def stem_stride_for(img_size: int) -> int:
    """About 32 x 32 cells after the stem."""
    return 1 if img_size <= 48 else 2 if img_size <= 112 else 4


def _swin_nano(img_size: int) -> Architecture:
    return Architecture("swin_nano", {"patch_size": 2 if img_size <= 48 else 4 if img_size <= 112 else 8})


def _swin_tiny(img_size: int) -> Architecture:
    patch = _swin_tiny_patch(img_size)
    if not _swin_tiny_fits(img_size):
        both_ways = range(img_size, 0, -1), range(img_size, 2 * img_size)
        near = [next(size for size in way if size % patch == 0 and _swin_tiny_fits(size)) for way in both_ways]
        raise UsageError(
            f"swin_tiny cannot cut images of {img_size} px into windows, for one of its grids is odd: take --img-size "
            f"{' or '.join(map(str, near))}"
        )
    return Architecture(
        "swin_tiny_patch4_window7_224", {} if patch == 4 else {"patch_size": patch, "window_size": SMALL_WINDOW}
    )


def _swin_tiny_patch(img_size: int) -> int:
    return 1 if img_size <= 48 else 2 if img_size <= 112 else 4


def _swin_tiny_fits(img_size: int) -> bool:
    """Merging rounds an odd grid up, but timm plans shifted windows for one rounded down: there may be one too few."""
    patch = _swin_tiny_patch(img_size)
    window = 7 if patch == 4 else SMALL_WINDOW
    planned = found = img_size // patch
    for _ in range(3):
        planned, found = planned // 2, (found + 1) // 2
        if planned > window and math.ceil(planned / window) != math.ceil(found / window):
            return False
    return True


def _pvt_b0(img_size: int) -> Architecture:
    if img_size > 112:
        return Architecture("pvt_v2_b0", {})
    return Architecture("pvt_v2_b0_32", {"stem_stride": stem_stride_for(img_size)})


ALIASES: dict[str, Callable[[int], Architecture]] = {
    "vit_pico": _vit("vit_pico"),
    "vit_nano": _vit("vit_nano"),
    "vit_tiny": _vit("vit_tiny_patch16_224"),
    "vit_small": _vit("vit_small_patch16_224"),
    "deit_tiny": _vit("deit_tiny_patch16_224"),
    "deit_small": _vit("deit_small_patch16_224"),
    "dhvt_pico": _dhvt_laptop("dhvt_pico"),
    "dhvt_nano": _dhvt_laptop("dhvt_nano"),
    "dhvt_tiny": _dhvt("tiny"),
    "dhvt_small": _dhvt("small"),
    "cvt_nano": _strided("cvt_nano", "patch_strides", cvt.strides_for),
    "cvt_13": _strided("cvt_13", "patch_strides", cvt.strides_for),
    "cvt_13_gap": _strided("cvt_13_gap", "patch_strides", cvt.strides_for),
    "t2t_nano": _strided("t2t_nano", "strides", t2t.nano_strides_for),
    "t2t_vit_7": _strided("t2t_vit_7", "strides", t2t.strides_for),
    "t2t_vit_14": _strided("t2t_vit_14", "strides", t2t.strides_for),
    "t2t_vit_t_14": _strided("t2t_vit_t_14", "strides", t2t.strides_for),
    **{name: _hybrid(name) for name in (*HYBRID_KINDS, *HYBRIDS)},
    "resnet_nano": lambda img_size: Architecture("resnet_nano", {"stem_stride": stem_stride_for(img_size)}),
    "swin_nano": _swin_nano,
    "swin_tiny": _swin_tiny,
    "pvt_b0": _pvt_b0,
}


def architecture(name: str, img_size: int) -> Architecture:
    """The timm name and constructor arguments that a name means for images of this size."""
    return ALIASES[name](img_size) if name in ALIASES else Architecture(name, {})

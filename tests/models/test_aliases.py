"""What short names mean at sizes that do not suit them."""

from __future__ import annotations

import pytest

from smallvit.errors import UsageError
from smallvit.models.aliases import architecture
from smallvit.models.features import create_backbone

# Windows as in the whole model, in no time.
NARROW = {"embed_dim": 8, "num_heads": [1, 1, 1, 1], "depths": [2, 2, 2, 2]}
SMALL = {"patch_size": 2, "window_size": 4}  # of swin_tiny from 49 to 112 px


@pytest.mark.parametrize(
    ("size", "windows", "near"),
    [(50, SMALL, (48, 52)), (100, SMALL, (96, 104)), (117, {}, (112, 120))],
)
def test_swin_tiny_names_the_sizes_that_its_windows_fit(
    size: int, windows: dict[str, int], near: tuple[int, int]
) -> None:
    with pytest.raises(UsageError, match=f"images of {size} px .* take --img-size {near[0]} or {near[1]}$"):
        architecture("swin_tiny", size)
    name = architecture("swin_tiny", near[0]).timm_name
    with pytest.raises(UsageError, match="is invalid for input of size"):  # else there is nothing to refuse any more
        create_backbone(name, {**windows, **NARROW}, num_classes=2, in_chans=1, img_size=size)


@pytest.mark.parametrize("size", [28, 47, 48, 52, 54, 96, 104, 110, 112, 120, 130, 140])
def test_swin_tiny_takes_all_other_sizes_and_odd_grids_among_them(size: int) -> None:
    plan = architecture("swin_tiny", size)
    assert create_backbone(plan.timm_name, {**plan.kwargs, **NARROW}, num_classes=2, in_chans=1, img_size=size)

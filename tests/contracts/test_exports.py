"""Every family of models can leave: traced, written and read again, they answer as the run would. Smallest members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from our_models import OURS, shallow

from smallvit.data.preparation import Preparation
from smallvit.evaluation.predictor import Predictor
from smallvit.listing.counted import stored_rows
from smallvit.models.features import create_backbone
from smallvit.shipping import exported_program, onnx_file, timm_folder
from smallvit.shipping.agreement import TOLERANCE, Squares, compare
from smallvit.shipping.formats import Shipment

TIMM = ["test_vit", "test_resnet", "test_convnext", "test_efficientnet"]  # the smallest of timm's own
QUICK = {"conv_nano", "t2t_nano", "dhvt_pico"}  # each takes seconds; these are the least alike


def smallest() -> list[str]:
    """The smallest model of each family, by the first word of its name."""
    size = {name: int(count.replace(",", "")) for name, count, *_ in stored_rows() if count}
    families: dict[str, list[str]] = {}
    for name in OURS:
        families.setdefault(name.partition("_")[0].rstrip("0123456789"), []).append(name)
    # One that was just added is not counted yet.
    return sorted(min(names, key=lambda name: size.get(name, 0)) for names in families.values())


def predictor(name: str) -> Predictor:
    """Untrained, with no zeros left that would hide mistakes; of a square of 36 px it sees the centre, in six ways."""
    torch.manual_seed(0)
    arguments: dict[str, Any] = shallow(name) if name in OURS else {}
    backbone = create_backbone(name, arguments, num_classes=7, in_chans=3, img_size=32).eval()
    with torch.no_grad():
        for parameter in backbone.parameters():
            parameter.add_(0.02 * torch.randn_like(parameter))
    preparation = Preparation(32, 36, 3, "crop", (0.4, 0.5, 0.6), (0.2, 0.3, 0.25), flips=True, shifts=1)
    return Predictor(backbone, preparation, [f"c{k}" for k in range(7)], temperature=0.3, calibrated=True)


def squares() -> Squares:
    pixels = torch.randint(0, 256, (8, 3, 36, 36), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    return Squares(pixels, "made-up images")


EVERY = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow) for name in [*smallest(), *TIMM]]


@pytest.mark.parametrize("name", EVERY)
def test_timm(name: str, tmp_path: Path) -> None:
    agrees(timm_folder, name, tmp_path)


@pytest.mark.parametrize("name", EVERY)
def test_torch_export(name: str, tmp_path: Path) -> None:
    agrees(exported_program, name, tmp_path)


@pytest.mark.parametrize("name", EVERY)
def test_onnx(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    agrees(onnx_file, name, tmp_path)


def agrees(format: Any, name: str, folder: Path) -> None:
    model = predictor(name)
    format.write(Shipment(model, name, shallow(name) if name in OURS else {}), folder)
    found = compare(model, format.read(folder), squares(), lambda *_, **__: None)
    assert found.difference <= TOLERANCE
    answers = model.probabilities(squares().pixels_NCSS)
    assert answers.std(0).max() > 10 * TOLERANCE, "all images get the same answer: nothing was compared"

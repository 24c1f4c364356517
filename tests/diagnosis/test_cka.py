"""CKA: golden values, its properties, what it refuses, and which layers it compares.

Whose numbers they are: golden/README.md.
"""

from __future__ import annotations

import json

import pytest
import timm
import torch
from safetensors import safe_open
from torch import Tensor, nn

import smallvit.models  # noqa: F401
from helpers import GOLDEN
from smallvit.diagnosis.alignment import by_image, centred_gram, cka, even_batches, feature_cka, hsic, layer_grams
from smallvit.errors import UsageError

NUMBERS = GOLDEN / "cka.safetensors"


def related(count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 12, generator=draw)
    return x, x @ torch.randn(12, 9, generator=draw) + torch.randn(count, 9, generator=draw)


def test_golden_values() -> None:
    with safe_open(NUMBERS, "pt") as file:
        x, y, about = file.get_tensor("X"), file.get_tensor("Y"), file.metadata()
    expected = json.loads(about["hsic"])
    assert [hsic(x, y), hsic(x, x), hsic(y, y)] == pytest.approx(expected, rel=1e-6)
    assert feature_cka(x, y) == pytest.approx(float(about["cka"]), rel=1e-6)
    assert feature_cka(x, y, batch_size=6) == pytest.approx(float(about["cka_mb6"]), rel=1e-6)


def test_the_estimate_as_it_is_written_down() -> None:
    """Song et al. (2012), equation 5, term by term."""
    x, y = related(10)
    k, l = ((z.double() @ z.double().T).fill_diagonal_(0) for z in (x, y))  # noqa: E741
    n, one = 10, torch.ones(10, dtype=torch.float64)
    trace, sums, product = (k @ l).trace(), (one @ k @ one) * (one @ l @ one), one @ k @ l @ one
    expected = (trace + sums / ((n - 1) * (n - 2)) - 2 * product / (n - 2)) / (n * (n - 3))
    assert hsic(x, y) == pytest.approx(float(expected), rel=1e-10)


def test_properties() -> None:
    x, y = related(40)
    turn = torch.linalg.qr(torch.randn(12, 12, generator=torch.Generator().manual_seed(1))).Q
    assert feature_cka(x, x) == pytest.approx(1.0, abs=1e-12)
    assert feature_cka(3 * x @ turn + 5, y) == pytest.approx(feature_cka(x, y), rel=1e-4)
    assert feature_cka(x, y) == pytest.approx(feature_cka(y, x), rel=1e-12)
    assert feature_cka(x, y) > 0.5
    assert abs(feature_cka(x, y[torch.randperm(40, generator=torch.Generator().manual_seed(2))])) < 0.2
    assert feature_cka(x, y[:, :1]) < feature_cka(x, y)


def test_a_large_offset_does_not_spoil_it() -> None:
    """In float32 without centring, features that differ in the fourth digit come out as noise."""
    x, y = (torch.randn(32, 5000, generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
    y = y + x
    assert feature_cka(x + 1000, y + 1000) == pytest.approx(feature_cka(x, y), abs=2e-3)


def test_small_batches_are_unbiased() -> None:
    """Means over many batches of 8 agree with one of all images; the biased estimate would be near 1."""
    x, y = related(800)
    assert feature_cka(x, y, batch_size=8) == pytest.approx(feature_cka(x, y), abs=0.03)


def test_refusals() -> None:
    x, y = related(8)
    with pytest.raises(UsageError, match="at least 4 images, not 3"):
        feature_cka(x[:3], y[:3])
    with pytest.raises(UsageError, match="at least 4 images, not 2"):
        feature_cka(x, y, batch_size=6)
    with pytest.raises(UsageError, match="the second features gives the same for every image"):
        feature_cka(x, torch.full((8, 3), 0.1))
    model = timm.create_model("vit_pico", num_classes=3, in_chans=1, img_size=16)
    with pytest.raises(UsageError, match="at least one batch"):
        cka(model, model, [])
    with pytest.raises(UsageError, match="10 batches, not 2"):
        cka(model, model, [torch.randn(4, 1, 16, 16)] * 2, replicates=50)


def test_constant_layers_are_refused_by_name_or_left_out() -> None:
    torch.manual_seed(0)
    model = timm.create_model("resnet_nano", num_classes=3, in_chans=1)  # timm starts the last norm of a block at 0
    images = torch.randn(8, 1, 16, 16)
    with pytest.raises(UsageError, match=r"layer1\.0\.bn2 gives the same for every image"):
        cka(model, model, [images])
    found = cka(model, model, [images], leave_out_constant=True)
    assert "layer1.0.bn2" in found.constant and "layer1.0.bn2" not in found.rows
    assert found.cka_AC.isfinite().all()


class InPlace(nn.Module):
    """An activation that overwrites what a layer gave, a layer that never runs, one that runs twice, a container."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.act = nn.ReLU(inplace=True)
        self.unused = nn.Linear(6, 6)
        self.tail = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 4))

    def forward(self, x_BF: Tensor) -> Tensor:
        x_BF = self.act(self.first(x_BF))
        return self.tail(self.act(self.first(x_BF)))


def test_layers_are_those_that_ran_with_what_they_gave() -> None:
    torch.manual_seed(0)
    model, images = InPlace(), torch.randn(12, 6)
    names, grams = layer_grams(model, images)
    assert names == ("first", "act", "first (2)", "act (2)", "tail.1")
    with torch.no_grad():
        before = model.first(images)
        torch.testing.assert_close(grams[0], centred_gram(before))
        torch.testing.assert_close(grams[1], centred_gram(before.relu()))
    assert model.training and not any(module._forward_hooks for module in model.modules())


def test_two_models_layer_by_layer() -> None:
    torch.manual_seed(0)
    vit = timm.create_model("vit_pico", num_classes=3, in_chans=1, img_size=16)
    nn.init.normal_(vit.head.weight)  # timm starts it at 0
    resnet = timm.create_model("resnet_nano", num_classes=3, in_chans=1, zero_init_last=False)
    batches = list(torch.randn(24, 1, 16, 16).split(8))
    found = cka(vit, resnet, batches)
    assert found.cka_AC.shape == (len(found.rows), len(found.columns)) and found.cka_AC.dtype == torch.float64
    assert found.images == 24 and found.low_AC is None
    assert found.rows[:2] == ("patch_embed.proj", "pos_drop") and found.rows[-1] == "head"
    assert {"blocks.0", "blocks.5", "blocks.0.attn.qkv"} <= set(found.rows)
    assert found.columns[0] == "conv1" and found.columns[-1] == "fc"
    # Row "blocks.0" holds the output of the first block, wherever the module was defined.
    grids = [
        vit.eval().forward_intermediates(images, indices=[0], return_prefix_tokens=True)[1][0] for images in batches
    ]
    tokens = [torch.cat([front, cells.flatten(2).mT], 1) for cells, front in grids]
    ends = [resnet.eval()(images) for images in batches]
    expected = feature_cka(torch.cat(tokens).flatten(1).detach(), torch.cat(ends).detach(), batch_size=8)
    assert float(found.cka_AC[found.rows.index("blocks.0"), -1]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["vit_pico", "swin_nano", "dhvt_pico", "pvt_v2_b0_32", "cvt_nano", "t2t_nano"])
def test_a_model_with_itself(name: str) -> None:
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=3, in_chans=1)
    found = cka(model, model, [torch.randn(6, 1, 32, 32)], leave_out_constant=True)
    torch.testing.assert_close(found.cka_AC.diagonal(), torch.ones(len(found.rows), dtype=torch.float64))
    assert len(set(found.rows)) == len(found.rows) > 10


def test_intervals_hold_the_truth() -> None:
    """The 95 % interval of 16 batches holds the value of very many images nearly always."""

    class Views(nn.Module):
        def __init__(self, columns: slice) -> None:
            super().__init__()
            self.layer = nn.Identity()
            self.columns = columns

        def forward(self, x_BF: Tensor) -> Tensor:
            return self.layer(x_BF[:, self.columns])

    first, second = Views(slice(0, 12)), Views(slice(12, 21))
    draw = torch.Generator().manual_seed(3)
    mix = torch.randn(12, 9, generator=draw)

    def images(count: int) -> Tensor:
        x = torch.randn(count, 12, generator=draw)
        return torch.cat([x, x @ mix + 2 * torch.randn(count, 9, generator=draw)], 1)

    truth = float(cka(first, second, images(16_000).split(16)).cka_AC)
    inside = 0
    for _ in range(40):
        found = cka(first, second, images(256).split(16), replicates=100)
        assert found.low_AC is not None and found.high_AC is not None
        assert found.low_AC < found.cka_AC < found.high_AC
        inside += int(found.low_AC < truth < found.high_AC)
    assert 32 <= inside <= 40


def test_batches_of_like_size() -> None:
    assert even_batches(130, 64) == [44, 43, 43]
    assert even_batches(128, 64) == [64, 64]
    assert even_batches(5, 64) == [5]


def test_no_memory_is_moved_for_channels_last() -> None:
    output = torch.randn(4, 3, 5, 5).contiguous(memory_format=torch.channels_last)
    assert by_image(output, 4).data_ptr() == output.data_ptr()

"""MAE against a reference in numpy, written from the paper's formulas; what the model sees, and which models can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from smallvit.errors import UsageError
from smallvit.models.aliases import architecture
from smallvit.models.features import Backbone, create_backbone
from smallvit.models.visible_tokens import check_visible, encode_visible
from smallvit.objectives import Objective, TaskInfo, objectives
from smallvit.objectives.base import options_of
from smallvit.objectives.hidden_cells import drawn_cells, hidden_error, images_of, patches, visible_cells
from smallvit.randomness import uniform
from smallvit.types import Batch, Context

Array = NDArray[np.float64]
SIZE, IMAGES = 32, 40
CAN = ["vit_pico", "deit_tiny", "zhu_vit_patch4_32", "spt_lsa_vit_32", "cct_7_3x2_32", "t2t_nano"]
CANNOT = ["dhvt_nano", "swin_nano", "cvt_nano", "resnet_nano", "conv_nano", "hybrid_nano", "pvt_b0"]


def backbone(name: str = "vit_pico", size: int = SIZE, **more: Any) -> Backbone:
    torch.manual_seed(0)
    plan = architecture(name, size)
    depth = {} if "_nano" in name or name == "pvt_b0" else {"depth": 2}
    return create_backbone(plan.timm_name, {**plan.kwargs, **depth, **more}, num_classes=0, in_chans=3, img_size=size)


def mae(of: Backbone, **options: Any) -> Any:
    setting = TaskInfo(num_classes=5, num_images=IMAGES, img_size=of.img_size)
    made: Objective = objectives()["mae"](of, options_of(objectives(), "mae", options, "objective"), setting)
    return made.eval()


def batch(rows: Tensor, size: int = SIZE) -> Batch:
    """The images of these rows, whatever else is in the batch."""
    draw = torch.Generator().manual_seed(1)
    images = torch.randn(IMAGES, 3, size, size, generator=draw)[rows]
    return Batch((images,), rows % 5, rows)


def context(key: int = 7) -> Context:
    return Context(1, 10, 0.3, torch.Generator().manual_seed(0), epochs=10, key=key)


# ---- the reference -------------------------------------------------------------------------------------


def reference_patches(images: Array, p: int) -> Array:
    n, c, height, width = images.shape
    cut = images.reshape(n, c, height // p, p, width // p, p)
    return np.einsum("nchpwq->nhwpqc", cut).reshape(n, height // p * (width // p), p * p * c)


def reference_mask(noise: Array, ratio: float) -> tuple[NDArray[np.int64], Array]:
    """The ids that are kept, and a mask that is 1 where a patch is removed."""
    length = noise.shape[1]
    keep = round(length * (1 - ratio))
    shuffle = np.argsort(noise, axis=1, kind="stable")
    restore = np.argsort(shuffle, axis=1)
    mask = np.ones(noise.shape)
    mask[:, :keep] = 0
    return shuffle[:, :keep], np.take_along_axis(mask, restore, axis=1)


def reference_loss(images: Array, guess: Array, mask: Array, p: int, norm_pixels: bool) -> float:
    target = reference_patches(images, p)
    if norm_pixels:
        mean, var = target.mean(-1, keepdims=True), target.var(-1, keepdims=True, ddof=1)
        target = (target - mean) / np.sqrt(var + 1e-6)
    return float((((guess - target) ** 2).mean(-1) * mask).sum() / mask.sum())


def doubles(tensor: Tensor) -> Array:
    return tensor.detach().double().numpy()


@pytest.mark.parametrize(("ratio", "norm_pixels"), [(0.75, True), (0.75, False), (0.4, True)])
def test_the_loss_is_the_one_of_the_paper(ratio: float, norm_pixels: bool) -> None:
    """What the objective gives for a batch, to 1e-5 of its size: float32 beside float64."""
    model = backbone().eval()
    made = mae(model, mask_ratio=ratio, norm_pixels=norm_pixels)
    images = batch(torch.tensor([3, 1, 30, 8]))
    guesses: list[Tensor] = []
    made.decoder.register_forward_hook(lambda module, given, guess: guesses.append(guess))
    found = made(model, images, context())
    _, mask = reference_mask(doubles(uniform(7, images.index_B, 64)), ratio)
    expected = reference_loss(doubles(images.views[0]), doubles(guesses[0]), mask, 4, norm_pixels)
    assert found.total.item() == pytest.approx(expected, rel=1e-5) and expected > 0.5
    assert mask.sum(1).tolist() == [64 - round(64 * (1 - ratio))] * 4


def test_masking_is_sorting_noise() -> None:
    noise = torch.rand(5, 49, generator=torch.Generator().manual_seed(0))
    noise[0, 10:20] = noise[0, 0]  # equal numbers: the first of them comes first
    kept, mask = reference_mask(doubles(noise), 0.75)
    cells = drawn_cells(noise, 0.75)
    assert cells.visible_BV.tolist() == kept.tolist() and cells.visible_BV.shape == (5, 12)
    assert torch.equal(torch.zeros(5, 49).scatter(1, cells.hidden_BM, 1.0), torch.from_numpy(mask).float())


def test_patches_and_back() -> None:
    images = torch.randn(2, 3, 12, 12)
    cut = patches(images, (3, 3))
    assert np.array_equal(doubles(cut), reference_patches(doubles(images), 4))
    assert torch.equal(images_of(cut, (3, 3), 3), images)
    assert torch.equal(images_of(patches(images, (6, 3)), (6, 3), 3), images)  # patches that are not square


def test_a_perfect_guess_costs_nothing_and_visible_cells_do_not_count() -> None:
    true = torch.randn(2, 9, 12)
    normed = (true - true.mean(-1, keepdim=True)) / (true.var(-1, keepdim=True) + 1e-6).sqrt()
    hidden = torch.tensor([[0, 4, 7], [8, 2, 1]])
    guess = torch.full_like(true, 100.0).scatter(
        1, hidden[:, :, None].expand(-1, -1, 12), normed.gather(1, hidden[:, :, None].expand(-1, -1, 12))
    )
    assert float(hidden_error(guess, true, hidden, norm_pixels=True)) == 0
    assert float(hidden_error(guess, true, hidden, norm_pixels=False)) > 0.1
    flat = torch.full_like(true, 3.0)  # nothing to guess but the mean, which is taken off
    assert float(hidden_error(torch.zeros_like(true), flat, hidden, norm_pixels=True)) == 0
    with torch.autocast("cpu", torch.bfloat16):
        assert float(hidden_error(guess, true, hidden, norm_pixels=True)) == 0


@pytest.mark.parametrize(
    ("cells", "ratio", "visible"), [(64, 0.75, 16), (100, 0.9, 10), (4, 0.99, 1), (4, 0.01, 3), (49, 0.75, 12)]
)
def test_at_least_one_cell_is_visible_and_one_hidden(cells: int, ratio: float, visible: int) -> None:
    assert visible_cells(cells, ratio) == visible


# ---- what is seen --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CAN)
def test_nothing_of_hidden_cells_is_seen_and_only_visible_ones_go_through_the_blocks(name: str) -> None:
    """Also where the windows of the stem overlap."""
    model = backbone(name).eval()
    made = mae(model)
    counts: list[int] = []
    model.model.blocks[0].register_forward_pre_hook(lambda module, given: counts.append(given[0].shape[1]))  # type: ignore[index, union-attr, operator]
    images = batch(torch.arange(3)).views[0]
    cells = drawn_cells(uniform(1, torch.arange(3), 64), 0.75)
    hidden = cells.hidden_BM[:, :, None].expand(-1, -1, 48)
    others = images_of(patches(images, (8, 8)).scatter(1, hidden, torch.randn(3, 48, 48)), (8, 8), 3)
    seen, again = (encode_visible(model, given, cells.visible_BV) for given in (images, others))
    assert counts == [model.model.num_prefix_tokens + 16] * 2
    assert torch.equal(seen.cells_BVD, again.cells_BVD) and torch.equal(seen.pooled_BD, again.pooled_BD)
    assert made(model, batch(torch.arange(3)), context()).total.isfinite()


@pytest.mark.parametrize("name", CAN)
def test_who_sees_all_cells_gets_what_the_model_gives(name: str) -> None:
    model = backbone(name).eval()
    images = batch(torch.arange(2)).views[0]
    order = torch.randperm(model.final_grid[0] * model.final_grid[1]).expand(2, -1)
    with torch.no_grad():
        seen, whole = encode_visible(model, images, order), model(images)
    torch.testing.assert_close(seen.pooled_BD, whole.pooled_BD, rtol=1e-4, atol=1e-4)


def test_the_decoder_gets_every_token_at_its_place() -> None:
    """As in the paper: hidden tokens behind the visible ones, all unshuffled, then positions."""
    model = backbone().eval()
    decoder = mae(model).decoder
    images = batch(torch.arange(3))
    noise = uniform(5, images.index_B, 64)
    cells = drawn_cells(noise, 0.75)
    seen = encode_visible(model, images.views[0], cells.visible_BV)
    inputs: list[Tensor] = []
    decoder.blocks.register_forward_pre_hook(lambda module, given: inputs.append(given[0]))
    decoder(seen, cells.visible_BV)
    restore = noise.argsort(1).argsort(1)[:, :, None].expand(-1, -1, decoder.width)
    shuffled = torch.cat([decoder.embed(seen.cells_BVD), decoder.hidden_token.expand(3, 48, -1)], dim=1)
    expected = torch.cat([decoder.embed(seen.front_BPD), shuffled.gather(1, restore) + decoder.places_1NW], dim=1)
    torch.testing.assert_close(inputs[0], expected, rtol=0, atol=1e-6)


def test_what_an_image_hides_depends_on_its_row_and_the_epoch_alone() -> None:
    model = backbone().eval()
    made = mae(model)
    rows = torch.tensor([5, 17, 2, 30])
    whole = made(model, batch(rows), context()).total
    halves = [made(model, batch(some), context()).total for some in (rows[:2], rows[2:])]
    torch.testing.assert_close(torch.stack(halves).mean(), whole, rtol=1e-5, atol=0)
    assert made(model, batch(rows), context(8)).total != whole


# ---- which models, which options -----------------------------------------------------------------------


@pytest.mark.parametrize("name", CANNOT)
def test_models_that_need_all_tokens_are_refused_with_those_that_do_not(name: str) -> None:
    with pytest.raises(
        UsageError, match=r"method mae: .* needs the tokens of the whole image; take .*vit_nano.*deit_tiny.*cct"
    ):
        mae(backbone(name))


def test_a_grid_that_cannot_be_hidden_in_part_is_refused() -> None:
    with pytest.raises(UsageError, match=r"images of 32 px are not cut evenly into several.*--img-size"):
        check_visible(backbone(patch_size=32), "method mae")


def test_a_patch_of_one_value_has_no_contrast() -> None:
    model = create_backbone("vit_pico", {"patch_size": 1}, num_classes=0, in_chans=1, img_size=SIZE)
    with pytest.raises(UsageError, match=r"a patch of one pixel has no contrast to guess: .*norm_pixels=false"):
        mae(model)
    mae(model, norm_pixels=False)


def test_images_of_any_size_and_registers_in_front() -> None:
    for model in (
        backbone(dynamic_img_size=True),
        backbone(reg_tokens=2),
        backbone(class_token=False, global_pool="avg"),
    ):
        assert mae(model.eval())(model, batch(torch.arange(2)), context()).total.isfinite()


def test_a_width_that_heads_do_not_divide_is_refused() -> None:
    assert mae(backbone()).decoder.width == 32 and mae(backbone("deit_tiny")).decoder.width == 96
    with pytest.raises(UsageError, match=r"decoder_width = 40: its heads are 16 wide; give a multiple"):
        mae(backbone(), decoder_width=40)
    for wrong in ({"mask_ratio": 1.0}, {"mask_ratio": 0}, {"decoder_depth": 0}):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            mae(backbone(), **wrong)

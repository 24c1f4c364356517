"""The hybrid family: first filters that whiten, attention that can be taken out, and other sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

import smallvit
from smallvit.data.preparation import Preparation
from smallvit.errors import UsageError
from smallvit.models.aliases import architecture
from smallvit.models.architectures.hybrid import Hybrid, RelativeAttention, ShiftNorm
from smallvit.models.architectures.whitening import COMPONENTS, Whitening
from smallvit.planning.plan import read_plan
from smallvit.training.build import WHITENED, build_training

TINY: dict[str, Any] = {
    "data": "digits", "model": "hybrid_nano", "per_class": 6, "epochs": 1, "batch_size": 16, "threads": 1,
    "show_progress": False,
}  # fmt: skip
FAST: dict[str, Any] = {"precision": "fp32"}


def smooth_images(count: int, in_chans: int = 3, side: int = 16) -> Tensor:
    """Neighbouring pixels are alike, and so are the channels, as in photos."""
    draw = torch.Generator().manual_seed(0)
    coarse = torch.randn(count, 1, side // 4, side // 4, generator=draw)
    fine = torch.randn(count, in_chans, side, side, generator=draw)
    return F.interpolate(coarse, size=(side, side), mode="bilinear") + 0.2 * fine


def hybrid(name: str = "hybrid_nano", **arguments: Any) -> Hybrid:
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=5, **arguments)
    assert isinstance(model, Hybrid)
    return model.eval()


# ---- whitening -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("in_chans", "stride"), [(3, 1), (1, 1), (3, 2), (4, 4)])
def test_filters_give_patches_a_covariance_near_the_identity(in_chans: int, stride: int) -> None:
    stem = Whitening(in_chans, stride)
    images = smooth_images(200, in_chans)
    stem.fit(images)
    count = min(COMPONENTS, in_chans * (2 * stride) ** 2)
    assert stem.weight.shape == (2 * count, in_chans, 2 * stride, 2 * stride)
    answers = F.conv2d(images, stem.weight[:count], stride=2 * stride).permute(1, 0, 2, 3).flatten(1)
    torch.testing.assert_close(answers.cov(), torch.eye(count), atol=0.05, rtol=0)
    assert torch.equal(stem.weight[count:], -stem.weight[:count])


def test_the_components_that_vary_most_are_taken() -> None:
    stem = Whitening(3, 2)
    images = smooth_images(100)
    stem.fit(images)
    patches = F.unfold(images, 4, stride=4).mT.flatten(0, 1)
    values = torch.linalg.eigvalsh(patches.T.cov()).flip(0)
    norms = stem.weight[:COMPONENTS].flatten(1).norm(dim=1)  # a component that varies little is scaled up most
    torch.testing.assert_close(norms, (values[:COMPONENTS] + 5e-4).rsqrt(), rtol=1e-3, atol=0)


def test_images_of_one_colour_are_no_trouble() -> None:
    stem = Whitening(3, 1)
    stem.fit(torch.ones(4, 3, 8, 8))
    assert stem.weight.isfinite().all() and stem(torch.ones(1, 3, 8, 8)).isfinite().all()


@pytest.mark.parametrize("stride", [1, 2, 4])
def test_the_grid_is_the_size_over_the_stride(stride: int) -> None:
    assert Whitening(3, stride)(torch.zeros(1, 3, 16, 24)).shape[2:] == (16 // stride, 24 // stride)


def test_a_short_name_means_about_as_many_cells_at_every_size() -> None:
    strides = {size: architecture("hybrid_nano", size).kwargs["stem_stride"] for size in (8, 32, 48, 64, 112, 128, 224)}
    assert strides == {8: 1, 32: 1, 48: 1, 64: 2, 112: 2, 128: 4, 224: 4}


# ---- attention -----------------------------------------------------------------------------------------


def test_attention_adds_nothing_at_the_start_and_something_later() -> None:
    images = smooth_images(2, side=32)
    looking, without = hybrid(), hybrid(attention=False)
    assert not [module for module in without.modules() if isinstance(module, RelativeAttention)]
    shared = {name: tensor for name, tensor in looking.state_dict().items() if ".attn." not in name}
    assert shared.keys() == without.state_dict().keys()
    without.load_state_dict(shared)
    assert torch.equal(looking(images), without(images))
    for module in looking.modules():
        if isinstance(module, RelativeAttention):
            nn.init.normal_(module.proj.weight)
    assert not torch.allclose(looking(images), without(images))


def test_without_attention_it_is_the_model_of_the_letters_c() -> None:
    without, plain = hybrid(attention=False), hybrid("conv_nano")
    assert [(name, tuple(p.shape)) for name, p in without.named_parameters()] == [
        (name, tuple(p.shape)) for name, p in plain.named_parameters()
    ]
    assert plain.state_dict().keys() == hybrid(layers=("c", "c", "c")).state_dict().keys()


def test_fused_and_plain_attention_are_the_same() -> None:
    attention = RelativeAttention(64, (4, 4), 32).eval()
    nn.init.normal_(attention.proj.weight)
    x = torch.randn(2, 64, 4, 4)
    plain = attention(x)
    attention.fused_attn = True
    torch.testing.assert_close(attention(x), plain)


def test_heads_start_out_looking_near_some_nearer_than_others() -> None:
    bias = RelativeAttention(96, (5, 5), 32).bias(5, 5)[0]
    assert (bias[:, 12].argmax(1) == 12).all()
    own = bias[:, 12].softmax(1)[:, 12]
    assert (own.diff() < 0).all(), "the first head looks at its own cell most"
    assert bias[0, 0, 1] == bias[0, 1, 0] == bias[0, 12, 13], "only the offset counts"


@pytest.mark.parametrize("size", [16, 24, 33, 48])
def test_images_of_another_size_go_through(size: int) -> None:
    model = hybrid(img_size=32)
    for module in model.modules():
        if isinstance(module, RelativeAttention):
            nn.init.normal_(module.proj.weight)
    answers = model(smooth_images(2, side=48)[..., :size, :size])
    assert answers.shape == (2, 5) and answers.isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"layers": ("c", "x", "c")}, "no block is called 'x'; c: a convolution, a: attention"),
        ({"layers": ("c", "c")}, "2 layers and 3 widths: give one of each for every stage"),
        ({"layers": (), "widths": ()}, "0 layers and 0 widths"),
        ({"head_width": 48}, "a width of 128 is no multiple of head_width 48"),
        ({"global_pool": "median"}, "global_pool 'median': one of 'max', 'avg', ''"),
    ],
)
def test_what_is_wrong_is_named_with_the_choices(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hybrid(**arguments)


def test_wrong_layers_are_a_plain_error_of_the_command(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no block is called 'z'"):
        smallvit.train(**TINY, settings={**FAST, "model.kwargs.layers": ["c", "z"]}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


# ---- in a run ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> smallvit.Run:
    return smallvit.train(**TINY, settings=FAST, out=tmp_path_factory.mktemp("hybrid") / "run")


def test_a_run_ends_with_the_filters_that_whiten_its_training_images(trained: smallvit.Run) -> None:
    """Its training images are fewer than are looked at, so all of them count, in whatever order."""
    plan = read_plan(trained)
    assert len(plan.split.train) < WHITENED
    stem = Whitening(1, 1)
    rows = plan.images.images_NCSS[plan.split.train]
    stem.fit(Preparation.of(plan.recipe.data.model_dump()).normalised(rows))
    found = load_file(trained.path / "model.safetensors")["stem.weight"]
    signs = (found * stem.weight).sum((1, 2, 3), keepdim=True).sign()  # of a component: either will do
    torch.testing.assert_close(found, stem.weight * signs, atol=1e-3, rtol=1e-3)
    again = trained.predictor().backbone.model.state_dict()["stem.weight"]
    assert torch.equal(again, found)


def test_a_run_that_starts_from_another_keeps_its_filters(trained: smallvit.Run, tmp_path: Path) -> None:
    more = {**TINY, "per_class": 9, "model": None}
    run = smallvit.train(**more, settings=FAST, init=trained.path, out=tmp_path / "run")
    assert run.recipe.model.timm_name == "hybrid_nano"
    before, after = (load_file(folder / "model.safetensors") for folder in (trained.path, run.path))
    assert torch.equal(before["stem.weight"], after["stem.weight"])
    assert not torch.equal(before["stages.0.0.conv.weight"], after["stages.0.0.conv.weight"])


def test_without_whitening_the_first_filters_are_learned(tmp_path: Path) -> None:
    settings = {**FAST, "model.kwargs.whiten": False}
    run = smallvit.train(**{**TINY, "per_class": 3}, settings=settings, out=tmp_path / "run")
    plan = read_plan(run)
    t = build_training(plan.recipe, plan.images, plan.split)
    stem = t.step.backbone.model.stem
    drawn = stem.weight.detach().clone()
    flat = drawn[: stem.components].flatten(1)
    torch.testing.assert_close(flat @ flat.T, torch.eye(stem.components))  # not those of the images
    found = load_file(run.path / "model.safetensors")["stem.weight"]
    assert not torch.equal(found, drawn), "they were trained"
    assert any(parameter is stem.weight for group in t.optimizer.param_groups for parameter in group["params"])
    assert torch.equal(run.predictor().backbone.model.state_dict()["stem.weight"], found)
    assert hybrid(whiten=False).state_dict().keys() == hybrid().state_dict().keys(), "either can start from the other"


def test_filters_that_do_not_fit_are_made_of_the_images_at_hand(trained: smallvit.Run, tmp_path: Path) -> None:
    """Another stride has filters of another shape: those of the run cannot be taken, and random ones would be worse."""
    settings = {**FAST, "model.kwargs.stem_stride": 2}
    run = smallvit.train(**{**TINY, "img_size": 16}, settings=settings, init=trained.path, out=tmp_path / "run")
    plan = read_plan(run)
    fitted = build_training(plan.recipe.model_copy(update={"model": plan.recipe.model.model_copy(update={"init": ""})}),
                            plan.images, plan.split)  # fmt: skip
    found = load_file(run.path / "model.safetensors")["stem.weight"]
    assert torch.equal(found, fitted.step.backbone.model.state_dict()["stem.weight"])


def test_a_few_batches_are_enough_for_the_statistics_of_norms() -> None:
    """What they were at first is no part of them, the latest count most, and in the long run all is as BatchNorm has it."""
    images = 3 * smooth_images(16, in_chans=8) + 5
    norm, usual = ShiftNorm(8), nn.BatchNorm2d(8, affine=False)
    trained = norm(images)
    torch.testing.assert_close(trained, usual(images))
    norm.eval()
    torch.testing.assert_close(
        norm(images), trained, rtol=0, atol=2e-3
    )  # the variance of images to come is a bit larger

    norm.train()
    for _ in range(4):
        norm(images - 20)
    assert (norm.running_mean < -10).all(), "the four latest batches outweigh the first"
    generator = torch.Generator().manual_seed(1)
    for _ in range(300):
        batch = torch.randn(4, 8, 4, 4, generator=generator)
        norm(batch), usual(batch)
    torch.testing.assert_close(norm.running_mean, usual.running_mean, rtol=0, atol=1e-5)
    torch.testing.assert_close(norm.running_var, usual.running_var, rtol=0, atol=1e-5)

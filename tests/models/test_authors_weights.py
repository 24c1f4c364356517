"""Authors' checkpoints and earlier weights into a model: what is taken, resized, dropped and refused.

Whose numbers they are: golden/README.md.
"""

from __future__ import annotations

import argparse
import json
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from timm.models.pvt_v2 import PyramidVisionTransformerV2
from torch import Tensor, nn

import smallvit.models  # noqa: F401
from helpers import GOLDEN
from smallvit.errors import UsageError
from smallvit.models.transfer import load_authors_weights, read_checkpoint, transfer, unwrap

VIT: dict[str, Any] = {"embed_dim": 16, "num_heads": 2, "depth": 2, "num_classes": 5}


def vit(seed: int, **changes: Any) -> nn.Module:
    torch.manual_seed(seed)
    model = timm.create_model("vit_pico", **{**VIT, **changes}).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def same(model: nn.Module, other: nn.Module, *names: str) -> bool:
    ours, theirs = model.state_dict(), other.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in names or ours)


# ---- by name and shape -------------------------------------------------------------------------------


def test_the_same_model_is_taken_whole() -> None:
    model, other = vit(0), vit(1)
    done = transfer(model, other.state_dict())
    assert same(model, other)
    assert set(done.taken) == set(other.state_dict()) and not (done.resized or done.dropped or done.missing)
    assert str(done) == f"{len(other.state_dict())} tensors taken"


def test_a_head_of_another_width_is_dropped_and_said_so() -> None:
    model, other = vit(0), vit(1, num_classes=9)
    before = model.head.weight.clone()
    done = transfer(model, other.state_dict())
    assert done.dropped == dict.fromkeys(("head.weight", "head.bias"), "9 classes instead of 5")
    assert done.missing == ("head.weight", "head.bias")
    assert torch.equal(model.head.weight, before) and same(model, other, "blocks.1.mlp.fc2.weight", "pos_embed")
    assert str(done).endswith("tensors taken, head.weight, head.bias dropped (9 classes instead of 5)")


def test_other_shapes_unknown_and_missing_names_are_told() -> None:
    model, other = vit(0), vit(1, in_chans=1, depth=3)
    weights = other.state_dict()
    del weights["blocks.1.norm1.bias"]
    done = transfer(model, weights)
    assert done.dropped["patch_embed.proj.weight"] == "16x1x4x4 instead of 16x3x4x4"
    assert done.dropped["blocks.2.norm1.bias"] == "unknown to the model"
    assert set(done.missing) == {"patch_embed.proj.weight", "blocks.1.norm1.bias"}
    assert "blocks.1.norm1.bias new" in str(done)
    assert "and 9 more dropped (unknown to the model)" in str(done)


def test_half_precision_becomes_the_precision_of_the_model() -> None:
    model, other = vit(0), vit(1)
    transfer(model, {name: tensor.half() for name, tensor in other.state_dict().items()})
    assert model.pos_embed.dtype == torch.float32
    torch.testing.assert_close(model.pos_embed, other.pos_embed, rtol=1e-3, atol=1e-3)


def test_statistics_of_batch_norm_come_along() -> None:
    model, other = (timm.create_model("resnet_nano", num_classes=3) for _ in range(2))
    other.train()(torch.randn(4, 3, 16, 16))
    transfer(model, other.state_dict())
    assert model.bn1.num_batches_tracked == 1 and same(model, other)


@pytest.mark.parametrize("weights", [{"conv1.weight": torch.zeros(3)}, {"head.weight": torch.zeros(5, 16)}])
def test_what_does_not_fit_is_refused_and_changes_nothing(weights: dict[str, Tensor]) -> None:
    model, untouched = vit(0), vit(0)
    with pytest.raises(UsageError, match=rf"0% .*it has {next(iter(weights))}; the model lacks cls_token, .* more"):
        transfer(model, weights)
    assert same(model, untouched)


def test_less_than_half_is_refused_in_the_names_of_both() -> None:
    with pytest.raises(UsageError, match=r"\d\d% of the weights .*blocks\.2\.norm1\.weight"):
        transfer(vit(0, depth=6), vit(1).state_dict())


# ---- positions ---------------------------------------------------------------------------------------


def ramp(height: int, width: int) -> Tensor:
    """Row number in the first channel, column number in the second, at the centres of cells of the unit square."""
    rows = ((torch.arange(height) + 0.5) / height)[:, None].expand(height, width)
    columns = ((torch.arange(width) + 0.5) / width)[None].expand(height, width)
    return torch.stack([rows, columns], dim=-1).reshape(1, height * width, 2)


def with_ramp(model: nn.Module, height: int, width: int, front: int) -> dict[str, Tensor]:
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    weights["pos_embed"][:, front:, :2] = ramp(height, width)
    weights["pos_embed"][:, :front] = 7.0
    return weights


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (32, 64, "8x8 to 16x16"),
        (64, 32, "16x16 to 8x8"),
        (32, (32, 64), "8x8 to 8x16"),
        ((32, 64), (64, 128), "8x16 to 16x32"),
        ((64, 32), (32, 16), "16x8 to 8x4"),
    ],
)
@pytest.mark.parametrize("class_token", [True, False])
def test_positions_are_interpolated_on_their_grid(before: Any, after: Any, told: str, class_token: bool) -> None:
    kind = {} if class_token else {"class_token": False, "global_pool": "avg"}
    other, model = vit(1, img_size=before, **kind), vit(0, img_size=after, **kind)
    front = int(class_token)
    done = transfer(model, with_ramp(other, *other.patch_embed.grid_size, front))
    assert done.resized == {"pos_embed": told} and not done.missing and f"pos_embed resized from {told}" in str(done)
    height, width = model.patch_embed.grid_size
    found, expected = model.pos_embed[:, front:, :2].detach(), ramp(height, width)
    inner = ((expected > 0.2) & (expected < 0.8)).all(-1)  # the border has nothing to go on
    torch.testing.assert_close(found[inner], expected[inner], rtol=0, atol=0.02)
    assert (model.pos_embed[:, :front] == 7).all()


def test_offsets_of_our_hybrids_are_stretched() -> None:
    small, large = (timm.create_model("hybrid_nano", img_size=size, num_classes=3) for size in (16, 32))
    done = transfer(large, small.state_dict())
    tables = [name for name in done.resized if name.endswith(".offsets")]
    assert (
        tables and done.resized[tables[0]] == "3x3 to 7x7" and not [name for name in done.dropped if "offsets" in name]
    )
    before, after = small.state_dict()[tables[0]], large.state_dict()[tables[0]]
    torch.testing.assert_close(after[:, ::3, ::3], before)  # the nearest and the furthest stay what they were


def test_the_grid_can_be_said_where_the_table_does_not_tell() -> None:
    other, model = vit(1, img_size=(16, 64)), vit(0, img_size=32)  # 64 cells both
    weights = with_ramp(other, 4, 16, 1)
    assert not transfer(model, weights).resized
    assert transfer(model, weights, from_grid=(4, 16)).resized == {"pos_embed": "4x16 to 8x8"}
    with pytest.raises(UsageError, match="65 positions cannot be a grid of 5x16"):
        transfer(model, weights, from_grid=(5, 16))


def test_a_class_position_that_the_model_does_not_have_is_left_out() -> None:
    other, model = vit(1), vit(0, class_token=False, global_pool="avg", fc_norm=False)
    done = transfer(model, other.state_dict())
    assert torch.equal(model.pos_embed, other.pos_embed[:, 1:]) and "cls_token" in done.dropped
    back = vit(2)
    own = back.pos_embed[:, :1].clone()
    transfer(back, model.state_dict())
    assert torch.equal(back.pos_embed[:, 1:], model.pos_embed) and torch.equal(back.pos_embed[:, :1], own)


def test_resizing_is_what_the_authors_scripts_do() -> None:
    """Bicubic without smoothing, the class position put back in front."""
    other, model = vit(1), vit(0, img_size=56)
    transfer(model, other.state_dict())
    grid = other.pos_embed[:, 1:].reshape(1, 8, 8, 16).permute(0, 3, 1, 2)
    grid = nn.functional.interpolate(grid, size=(14, 14), mode="bicubic", align_corners=False)
    torch.testing.assert_close(model.pos_embed[:, 1:], grid.flatten(2).transpose(1, 2))
    assert torch.equal(model.pos_embed[:, :1], other.pos_embed[:, :1])


# ---- the authors' names ------------------------------------------------------------------------------


def test_pvt_from_the_authors_names_gives_the_authors_logits() -> None:
    with safe_open(GOLDEN / "pvtv2.safetensors", "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        shape = json.loads(file.metadata()["config"])
    weights = {name.removeprefix("state_dict/"): tensor for name, tensor in tensors.items() if "/" in name}
    keep = ("embed_dims", "num_heads", "mlp_ratios", "depths", "sr_ratios", "num_classes")
    model = PyramidVisionTransformerV2(**{key: shape[key] for key in keep}).eval()
    done = load_authors_weights(model, {"state_dict": {f"module.{name}": tensor for name, tensor in weights.items()}})
    assert not done.missing and not done.dropped and len(done.taken) == len(weights)
    with torch.no_grad():
        torch.testing.assert_close(model(tensors["x"]), tensors["y"], rtol=0, atol=2e-6)
    again = PyramidVisionTransformerV2(**{key: shape[key] for key in keep})
    assert not load_authors_weights(again, model.state_dict()).missing, "timm's own names fit, too"


def test_swin_from_the_authors_names() -> None:
    """They halve the grid at the end of a stage and call the classifier `head`."""
    arguments = {"img_size": 32, "patch_size": 2, "window_size": 4, "embed_dim": 12, "depths": (1, 1, 1), "num_heads": (1, 2, 4)}  # fmt: skip
    name = "swin_tiny_patch4_window7_224"
    model, other = (timm.create_model(name, num_classes=3, **arguments) for _ in range(2))
    authors = {}
    for key, tensor in other.state_dict().items():
        key = key.replace("layers.1.downsample", "layers.0.downsample").replace("head.fc.", "head.")
        authors[key.replace("layers.2.downsample", "layers.1.downsample")] = tensor
    authors["layers.0.blocks.0.attn.relative_position_index"] = torch.zeros(16, 16, dtype=torch.long)
    authors["layers.0.blocks.1.attn_mask"] = torch.zeros(4, 16, 16)
    done = load_authors_weights(model, {"model": authors})
    assert not done.missing and not done.dropped and same(model, other)
    assert not load_authors_weights(model, other.state_dict()).missing, "timm's own names fit, too"


def test_deit_has_timms_names() -> None:
    other = timm.create_model("deit_tiny_patch16_224", img_size=32, patch_size=8, depth=1, num_classes=20)
    model = timm.create_model("deit_tiny_patch16_224", img_size=64, patch_size=8, depth=1, num_classes=2)
    done = load_authors_weights(model, {"epoch": 799, "state_dict": other.state_dict()})
    assert done.resized == {"pos_embed": "4x4 to 8x8"} and done.missing == ("head.weight", "head.bias")


# ---- wrappers ----------------------------------------------------------------------------------------

W = {"a.weight": torch.ones(2)}


@pytest.mark.parametrize(
    "checkpoint",
    [
        W,
        {"state_dict": W, "epoch": 3},
        {"model": W, "optimizer": {"state": {}}},
        {"state_dict": {"module.a.weight": W["a.weight"]}},
        {"model": {"_orig_mod.module.a.weight": W["a.weight"]}},
        {"model": {"module._orig_mod.a.weight": W["a.weight"]}},
        {"state_dict": {"a.weight": torch.zeros(2)}, "state_dict_ema": W},
        {"model": {"a.weight": torch.zeros(2)}, "model_ema": {"module.a.weight": W["a.weight"]}},
        {"state_dict": W, "state_dict_ema": {}},
        {"model": {"state_dict": W}},
        OrderedDict(W, version=1),
    ],
)
def test_wrappers_are_taken_off_moving_averages_first(checkpoint: Any) -> None:
    found = unwrap(checkpoint)
    assert list(found) == ["a.weight"] and found["a.weight"].sum() == 2


def test_a_prefix_of_some_names_only_is_part_of_the_names() -> None:
    assert set(unwrap({"module.a": W["a.weight"], "b": W["a.weight"]})) == {"module.a", "b"}


@pytest.mark.parametrize("checkpoint", [torch.zeros(3), [1, 2], {"epoch": 3}, {}, None])
def test_what_holds_no_tensors_by_name_is_refused(checkpoint: Any) -> None:
    with pytest.raises(UsageError, match="tensors by name"):
        unwrap(checkpoint)


# ---- files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["pth", "pt", "pth.tar", "bin", "safetensors"])
def test_files_come_back_as_they_were_written(ending: str, tmp_path: Path) -> None:
    path, weights = tmp_path / f"weights.{ending}", vit(1).state_dict()
    if ending == "safetensors":
        save_file(weights, path)
    else:
        torch.save({"state_dict": weights, "args": argparse.Namespace(lr=0.1, model="vit"), "epoch": 3}, path)
    for given in (path, str(path)):
        model = vit(0)
        assert not transfer(model, read_checkpoint(given)).missing and same(model, vit(1))


def test_files_of_the_old_format_are_read(tmp_path: Path) -> None:
    torch.save(vit(1).state_dict(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert not transfer(vit(0), read_checkpoint(tmp_path / "old.pth")).missing


class Harmful:
    ran = False

    def __reduce__(self) -> Any:
        return (_harm, ())


def _harm() -> None:
    Harmful.ran = True


@pytest.mark.parametrize("zipped", [True, False])
def test_code_in_a_file_is_never_run(zipped: bool, tmp_path: Path) -> None:
    path = tmp_path / "harmful.pth"
    torch.save({"state_dict": W, "more": Harmful()}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(UsageError, match=r"harmful\.pth is a pickle that needs .*_harm; smallvit never unpickles code"):
        read_checkpoint(path)
    torch.save(vit(0), path, _use_new_zipfile_serialization=zipped)  # a whole model
    with pytest.raises(
        UsageError, match=r"needs smallvit\.models\.architectures\.vit\.SmallVit; smallvit never unpickles code"
    ):
        read_checkpoint(path)
    assert not Harmful.ran


def test_a_bare_pickle_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bare.bin").write_bytes(pickle.dumps({"harm": Harmful()}))
    with pytest.raises(UsageError, match=r"bare\.bin"):
        read_checkpoint(tmp_path / "bare.bin")
    assert not Harmful.ran


@pytest.mark.parametrize("ending", ["pth", "safetensors"])
@pytest.mark.parametrize("keep", [0, 7, 100, 0.5, 0.98])
def test_truncated_files_are_refused_by_name(ending: str, keep: float, tmp_path: Path) -> None:
    path = tmp_path / f"cut.{ending}"
    if ending == "pth":
        torch.save(vit(0).state_dict(), path)
    else:
        save_file(vit(0).state_dict(), path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(UsageError, match=rf"cut\.{ending}"):
        read_checkpoint(path)


@pytest.mark.parametrize("keep", [0, 7, 100, 0.5, 0.98])
def test_truncated_files_of_the_old_format_are_refused_by_name(keep: float, tmp_path: Path) -> None:
    path = tmp_path / "cut.pth"
    torch.save(vit(0).state_dict(), path, _use_new_zipfile_serialization=False)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content)) if isinstance(keep, float) else keep])
    with pytest.raises(UsageError, match=r"cut\.pth"):
        read_checkpoint(path)


def test_files_that_are_not_there_or_not_files_are_refused(tmp_path: Path) -> None:
    for path, reason in [
        (tmp_path / "no.pth", "no such file.*no.pth"),
        (tmp_path, "is a folder"),
        (tmp_path / "x.npz", "no checkpoint that smallvit reads"),
        (tmp_path / "text.pth", "text.pth is not a PyTorch checkpoint"),
    ]:
        if path.suffix == ".npz" or path.name == "text.pth":
            path.write_text("hello")
        with pytest.raises(UsageError, match=reason):
            read_checkpoint(path)

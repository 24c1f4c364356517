"""Starting from other weights: an earlier run, at another size, of other classes; or a checkpoint file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

import smallvit
from smallvit import Run
from smallvit.errors import RunError, UsageError
from smallvit.evaluation.model_file import read_tensors, write_tensors

SMALL: dict[str, Any] = {"per_class": 10, "threads": 1, "show_progress": False, "settings": {}}
PATCH = {"model.name": "vit_nano", "model.kwargs.patch_size": 2, "model.kwargs.depth": 2}


def tensors(run: Run) -> dict[str, torch.Tensor]:
    return read_tensors(run.path / "model.safetensors")[0]


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("first") / "run"
    return smallvit.train("digits", epochs=2, out=out, **{**SMALL, "settings": PATCH})


def still(settings: dict[str, Any]) -> dict[str, Any]:
    """A rate so small that the weights stay where they start."""
    return {**SMALL, "settings": {**PATCH, "optimizer.lr": 1e-12, **settings}, "epochs": 1}


def test_a_run_goes_on_from_another(first: Run, tmp_path: Path) -> None:
    run = smallvit.train("digits", init=first.path, out=tmp_path / "run", **still({}))
    before, after = tensors(first), tensors(run)
    for name in before:
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-6)
    assert run.results["parts"]["test"]["accuracy"] == first.results["parts"]["test"]["accuracy"]
    told = next(choice for choice in run.choices if choice["key"] == "model.init")
    assert "tensors taken" in told["why"] and told["value"].endswith("model.safetensors")


def test_positions_are_resized_to_another_image_size(first: Run, tmp_path: Path) -> None:
    run = smallvit.train("digits", init=str(first.path), img_size=16, out=tmp_path / "run", **still({}))
    before, after = tensors(first), tensors(run)
    assert after["pos_embed"].shape[1] == 65 and before["pos_embed"].shape[1] == 17
    torch.testing.assert_close(after["pos_embed"][:, :1], before["pos_embed"][:, :1], rtol=0, atol=1e-6)
    torch.testing.assert_close(after["head.weight"], before["head.weight"], rtol=0, atol=1e-6)
    told = next(choice for choice in run.choices if choice["key"] == "model.init")
    assert "4x4 to 8x8" in told["why"]


def test_other_classes_get_a_new_classifier_even_where_their_number_is_the_same(first: Run, tmp_path: Path) -> None:
    file = tmp_path / "other.safetensors"
    weights, header = read_tensors(first.path / "model.safetensors")
    write_tensors(file, weights, {**header, "class_names": [f"other {n}" for n in range(10)]})
    run = smallvit.train("digits", init=file, out=tmp_path / "run", **still({}))
    assert not torch.allclose(tensors(run)["head.weight"], weights["head.weight"])
    torch.testing.assert_close(tensors(run)["blocks.0.attn.qkv.weight"], weights["blocks.0.attn.qkv.weight"])


def test_a_checkpoint_file(first: Run, tmp_path: Path) -> None:
    """What training scripts leave behind: wrapped, prefixed, with a classifier of another width."""
    weights = {f"module.{name}": tensor for name, tensor in tensors(first).items()}
    weights["module.head.weight"], weights["module.head.bias"] = torch.zeros(3, 64), torch.zeros(3)
    torch.save({"state_dict": weights, "epoch": 3}, tmp_path / "authors.pth")
    run = smallvit.train("digits", init=tmp_path / "authors.pth", out=tmp_path / "run", **still({}))
    torch.testing.assert_close(tensors(run)["norm.weight"], weights["module.norm.weight"])
    told = next(choice for choice in run.choices if choice["key"] == "model.init")
    assert "3 classes instead of 10" in told["why"]


def test_a_killed_run_goes_on_where_the_file_is_gone(first: Run, tmp_path: Path) -> None:
    """Once a state is stored, the file is not needed; before, a changed one is refused."""
    weights = tmp_path / "start.safetensors"
    shutil.copy(first.path / "model.safetensors", weights)
    whole = smallvit.train("digits", init=weights, epochs=2, out=tmp_path / "whole", **{**SMALL, "settings": PATCH})
    broken = tmp_path / "broken"
    shutil.copytree(whole.path, broken)
    for name in ("results.json", "model.safetensors", "report.html", "metrics.jsonl"):
        (broken / name).unlink()
    shutil.rmtree(broken / "state")
    (again,) = smallvit.resume(broken, show_progress=False)
    assert all(torch.equal(tensors(again)[name], tensor) for name, tensor in tensors(whole).items())
    weights.unlink()
    (broken / "results.json").unlink()
    (again,) = smallvit.resume(broken, show_progress=False)
    assert all(torch.equal(tensors(again)[name], tensor) for name, tensor in tensors(whole).items())
    weights.write_bytes(b"something else")
    shutil.rmtree(broken / "state")
    (broken / "results.json").unlink()
    with pytest.raises(RunError, match="not the file that the run was planned with"):
        smallvit.resume(broken, show_progress=False)


def test_another_model_is_refused_by_its_name(first: Run, tmp_path: Path) -> None:
    held = first.recipe.model.timm_name
    with pytest.raises(UsageError, match=f"holds {held}, and this run is resnet_nano: give --model {held}$"):
        smallvit.train("digits", init=first.path, model="resnet_nano", out=tmp_path / "run", **SMALL)
    with pytest.raises(UsageError, match=r"this run is deit_tiny \(deit_tiny_patch16_224\): give"):
        smallvit.train("digits", init=first.path, model="deit_tiny", img_size=224, out=tmp_path / "run", **SMALL)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: folder / "absent.pth", "No such file"),
        (lambda folder: folder, "not a run"),
        (lambda folder: _written(folder / "text.pth", b"hello"), "not a PyTorch checkpoint"),
        (lambda folder: _written(folder / "a.txt", b"hello"), "no checkpoint that smallvit reads"),
        (lambda folder: _saved(folder / "other.pth", {"a": torch.zeros(3)}), "does not fit the model"),
    ],
)
def test_refusals_name_the_file_or_what_is_wrong(tmp_path: Path, make: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        smallvit.train("digits", init=make(tmp_path), out=tmp_path / "run", **still({}))
    assert not (tmp_path / "run").exists()


def _written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def _saved(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


def test_fine_tuning_from_given_weights_with_dense_relative_localization(tmp_path: Path) -> None:
    """Liu et al.'s table 5: weights of 1,000 classes from a file, other classes, the loss on."""
    kwargs = {"patch_size": 2, "embed_dim": 16, "depths": [1, 1], "num_heads": [1, 2], "window_size": 2}
    given = timm.create_model("swin_tiny_patch4_window7_224", num_classes=1000, in_chans=1, img_size=8, **kwargs)
    file = tmp_path / "imagenet.safetensors"
    save_file(given.state_dict(), file)
    settings = {f"model.kwargs.{key}": value for key, value in kwargs.items()}
    run = smallvit.train(
        "digits", recipe="liu2021-swin", model="swin_tiny_patch4_window7_224", init=file, img_size=8, batch_size=16,
        epochs=1, out=tmp_path / "run", **{**SMALL, "settings": {**settings, "aux.drloc.hidden": 16, "optimizer.lr": 1e-12}},
    )  # fmt: skip
    after = tensors(run)
    assert after["head.fc.weight"].shape == (10, 32)
    for name, tensor in given.state_dict().items():
        if name in after and not name.startswith("head."):
            torch.testing.assert_close(after[name], tensor, rtol=0, atol=1e-6)
    assert not [name for name in after if "drloc" in name]
    losses = [record["parts"]["drloc"] for record in run.metrics if record["kind"] == "train"]
    assert losses and all(loss > 0 for loss in losses)

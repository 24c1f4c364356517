"""Tensors and models on disk."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny_runs import Reference, same_bits, training

from smallvit.errors import RunError
from smallvit.evaluation.model_file import load_model, read_tensors, write_tensors
from smallvit.training.checkpoint import load_state, model_header, save_model, save_state
from smallvit.types import World

TENSORS = {
    "empty": torch.zeros(0, 3, 8, 8, dtype=torch.uint8),
    "scalar": torch.tensor(3.5),
    "flags": torch.tensor([True, False]),
    "half": torch.randn(4).bfloat16(),
    "strange": torch.tensor([float("nan"), float("inf"), -0.0, 1e-45]),
    "turned": torch.arange(6.0).reshape(2, 3).T,
    "channels last": torch.randn(2, 3, 4, 4).contiguous(memory_format=torch.channels_last),
    "double": torch.tensor([1 / 3], dtype=torch.float64),
}


def test_tensors_come_back_as_they_were(tmp_path: Path) -> None:
    header = {"text": 'ä "quoted"', "numbers": [1, 0.1, float("-inf")], "nothing": None}
    write_tensors(tmp_path / "new" / "file", TENSORS, header)
    found, found_header = read_tensors(tmp_path / "new" / "file")
    assert found_header == header
    assert found.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        assert found[name].dtype == tensor.dtype and found[name].shape == tensor.shape, name
        as_bytes = [t.contiguous().view(torch.uint8) if t.ndim else t for t in (found[name], tensor)]
        assert same_bits(*as_bytes), name
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["file"]


def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    write_tensors(tmp_path / "file", {"a": torch.ones(3)}, {})
    with pytest.raises(RunError, match="cannot write"):
        write_tensors(tmp_path / "file" / "below", {"a": torch.zeros(3)}, {})
    assert read_tensors(tmp_path / "file")[0]["a"].tolist() == [1, 1, 1]


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such file"):
        read_tensors(tmp_path / "none")


@pytest.mark.parametrize("recipe", ["vit", "resnet"])
def test_a_model_needs_only_its_file(recipe: str, tmp_path: Path) -> None:
    t = training(recipe)
    torch.nn.init.normal_(t.evaluated.model.get_classifier().weight)  # type: ignore[operator]
    names = tuple("0123456789")
    save_model(tmp_path / "model.safetensors", t.evaluated, model_header(t, names, "last", 3))
    random_state = torch.get_rng_state()
    loaded = load_model(tmp_path / "model.safetensors")
    assert torch.equal(torch.get_rng_state(), random_state)
    assert loaded.header["class_names"] == list(names)
    assert loaded.header["weights"] == {"which": "last", "ema": True, "epoch": 3}
    predictor, rows = loaded.predictor, t.val_rows[:32]
    assert not predictor.backbone.training and predictor.class_names == names
    exam = t.exam(rows)
    assert predictor.preparation == exam.preparation
    expected = exam.predictor(t.evaluated).logits(exam.images, rows)
    torch.testing.assert_close(predictor.logits(exam.images, rows), expected)
    assert expected.std() > 0


@pytest.mark.parametrize(("size", "told"), [(2, True), (1, False)])
def test_another_number_of_processes_is_told(
    size: int, told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    t = training()
    t.world = World(0, size)
    save_state(tmp_path / "state.safetensors", t)
    t.world = World()
    load_state(tmp_path / "state.safetensors", t)
    said = " ".join(capsys.readouterr().err.split())
    assert ("this run was trained by 2 processes so far, and is by 1 process from here" in said) == told


def test_what_is_no_model_is_refused(reference: Reference, tmp_path: Path) -> None:
    save_state(tmp_path / "state", training())
    write_tensors(tmp_path / "tensors", {"a": torch.zeros(1)}, {})
    for path in (tmp_path / "state", tmp_path / "tensors", reference("vit") / "state" / "best.safetensors"):
        with pytest.raises(RunError, match="does not hold a smallvit model"):
            load_model(path)
    tensors, header = read_tensors(reference("vit") / "model.safetensors")
    del tensors["norm.weight"]
    write_tensors(tmp_path / "part", tensors, header)
    with pytest.raises(RunError, match=r"norm\.weight"):
        load_model(tmp_path / "part")

"""A model file or a run folder of a stranger: nothing is run, fetched or built that its weights do not need."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_runs import Reference

from helpers import Outcome, noise_image, run_here
from smallvit.errors import RunError
from smallvit.evaluation.model_file import load_model, read_tensors, write_tensors


@pytest.fixture
def requests() -> Iterator[tuple[str, list[str]]]:
    """The address of a server, and what it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

        def log_message(self, *arguments: Any) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    thread.join()
    server.server_close()


class Payload:
    """A pickle that makes a folder when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def changed(reference: Reference, path: Path, **changes: Any) -> Path:
    """A copy of a model file with another header."""
    tensors, header = read_tensors(reference("vit") / "model.safetensors")
    write_tensors(path, tensors, {**header, **changes})
    return path


def predict(model: Path) -> Outcome:
    image = model.parent / "image.png"
    noise_image("any").save(image)
    return run_here("predict", model, image)


def assert_refused(outcome: Outcome, *parts: str | Path) -> None:
    assert outcome.status == 1, outcome.err
    assert "Traceback" not in outcome.err
    for part in parts:
        assert str(part) in outcome.err


def test_unchanged_copy_predicts(reference: Reference, tmp_path: Path) -> None:
    outcome = predict(changed(reference, tmp_path / "model.safetensors"))
    assert outcome.status == 0, outcome.err


def test_nothing_is_fetched(reference: Reference, requests: tuple[str, list[str]], tmp_path: Path) -> None:
    address, asked = requests
    source = {"url": f"{address}/weights.pth", "file": None, "hf_hub_id": None}
    path = changed(
        reference,
        tmp_path / "model.safetensors",
        kwargs={"pretrained": True, "pretrained_cfg": source, "patch_size": 1},
    )
    assert_refused(predict(path), path, "model.kwargs.pretrained = True")
    assert asked == []


def test_nothing_is_unpickled(reference: Reference, tmp_path: Path) -> None:
    weights, made = tmp_path / "weights.pth", tmp_path / "made"
    weights.write_bytes(pickle.dumps(Payload(made)))
    path = changed(reference, tmp_path / "model.safetensors", kwargs={"checkpoint_path": str(weights)})
    assert_refused(predict(path), path, "model.kwargs.checkpoint_path")
    assert not made.exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kwargs": {"depth": 100_000}}, "model.kwargs.depth = 100000: should be at most"),
        ({"kwargs": {"act_layer": "os.system"}}, "model.kwargs.act_layer = 'os.system': unknown layer; choices: celu"),
        ({"kwargs": [1, 2]}, "kwargs = [1, 2]"),
        ({"kwargs": None}, "kwargs = None"),
        ({"model": "hf-hub:timm/resnet18.a1_in1k"}, "unknown model 'hf-hub:timm/resnet18.a1_in1k'"),
        ({"model": "local-dir:/etc"}, "unknown model 'local-dir:/etc'"),
        ({"model": 7}, "model = 7: should be a word"),
        ({"model": "x" * 1000}, "should have at most 100 characters"),
        ({"img_size": 10**9}, "img_size = 1000000000: should be at most 2048"),
        ({"img_size": "large"}, "img_size = 'large': should be a whole number"),
        ({"img_size": None}, "img_size = None: should be a whole number"),
        ({"cache_size": 10**9}, "cache_size = 1000000000: should be at most 4096"),
        ({"in_chans": 10**6}, "in_chans = 1000000: should be at most 64"),
        ({"in_chans": 3}, "mean = [0."),
        ({"std": [0.0]}, "std = [0.0]: should be more than 0"),
        ({"mean": "grey"}, "mean = 'grey'"),
        ({"fit": "stretch"}, "fit = 'stretch': should be 'crop', 'squash' or 'pad'"),
        ({"white": 10**9}, "white = 1000000000: should be at most 65535"),
        ({"class_names": 10}, "class_names = 10"),
        ({"class_names": ["a", 2]}, "class_names = ['a', 2]"),
        ({"class_names": ["a"] * 200_000}, "parameters"),
        ({"temperature": "hot"}, "temperature = 'hot': should be a number"),
        ({"temperature": -1}, "temperature = -1: should be more than 0"),
        ({"model": "vit_large_patch16_224", "kwargs": {"patch_size": 2}}, "it has more than"),
        ({"kwargs": {"depth": 400}}, "it has more than"),
    ],
)
def test_header_is_checked_before_anything_is_built(
    changes: dict[str, Any], reason: str, reference: Reference, tmp_path: Path
) -> None:
    path = changed(reference, tmp_path / "model.safetensors", **changes)
    assert_refused(predict(path), f"{path} does not hold a smallvit model: ", reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [("[" * 100_000, "nested too deeply"), ("[1]", "not a JSON object"), ("{", "Expecting property name")],
)
def test_header_that_is_no_header(text: str, reason: str, reference: Reference, tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(load_file(reference("vit") / "model.safetensors"), path, metadata={"smallvit": text})
    assert_refused(predict(path), f"cannot read {path}: ", reason)
    assert_refused(run_here("train", "digits", "--init", path, "--out", tmp_path / "run"), f"cannot read {path}: ")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kwargs": {"pretrained": True}}, "model.kwargs.pretrained = True"),
        ({"kwargs": {"depth": 100_000}}, "model.kwargs.depth = 100000"),
        ({"kwargs": 5}, "kwargs = 5"),
        ({"model": "hf-hub:a/b"}, "unknown model 'hf-hub:a/b'"),
        ({"img_size": "large"}, "img_size = 'large'"),
        ({"in_chans": [3]}, "in_chans = [3]"),
        ({"class_names": 10}, "class_names = 10"),
    ],
)
@pytest.mark.parametrize("named", [[], ["--model", "vit_pico"]])
def test_model_to_start_from(
    changes: dict[str, Any], reason: str, named: list[str], reference: Reference, tmp_path: Path
) -> None:
    path = changed(reference, tmp_path / "model.safetensors", **changes)
    outcome = run_here(
        "train", "digits", "--per-class", "5", "--epochs", "1", "--init", path, *named, "--out", tmp_path / "run"
    )
    assert_refused(outcome, f"{path} does not hold a smallvit model: ", reason)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"kwargs": {"pretrained": True}}, "model.kwargs.pretrained = True"),
        ({"kwargs": {"checkpoint_path": "weights.pth"}}, "model.kwargs.checkpoint_path = 'weights.pth'"),
        ({"kwargs": {"depth": 16_000}}, "it has more than 10,000 layers"),
        ({"timm_name": "hf-hub:timm/resnet18.a1_in1k"}, "unknown model 'hf-hub:timm/resnet18.a1_in1k'"),
    ],
)
def test_run_folder_to_resume(changes: dict[str, Any], reason: str, reference: Reference, tmp_path: Path) -> None:
    folder = shutil.copytree(reference("vit"), tmp_path / "run")
    (folder / "results.json").unlink()
    record = json.loads((folder / "recipe.json").read_text())
    record["resolved"]["model"] |= changes
    (folder / "recipe.json").write_text(json.dumps(record))
    assert_refused(run_here("resume", folder), f"{folder / 'recipe.json'}: ", reason)


def test_error_is_one_kind_in_python(reference: Reference, tmp_path: Path) -> None:
    random_state = torch.get_rng_state()
    with pytest.raises(RunError, match=r"does not hold a smallvit model: model\.kwargs\.pretrained"):
        load_model(changed(reference, tmp_path / "model.safetensors", kwargs={"pretrained": True}))
    assert torch.equal(torch.get_rng_state(), random_state)

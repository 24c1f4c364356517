"""What is not exported, and what is said of it; what is there already stays as it was."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import smallvit
from helpers import PROJECT, fails, run_here
from smallvit.errors import RunError, UsageError
from smallvit.runs.axes import Place
from smallvit.runs.members import write_group
from smallvit.shipping import timm_folder


def test_one_format_must_be_named(run: Path) -> None:
    choices = "choose one of --onnx, --torch-export, --timm, --hf"
    fails(run_here("export", run), 2, "no format was given", choices)
    fails(run_here("export", run, "--onnx", "--hf", "x"), 2, "--onnx and --hf at once", choices)
    with pytest.raises(UsageError, match="unknown format 'onx': did you mean onnx"):
        smallvit.export(run, "onx")


def test_what_is_no_finished_classifier(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / "results.json").unlink()
    fails(run_here("export", copy, "--timm"), 1, f"{copy} is not finished: go on with `smallvit resume {copy}`")
    fails(run_here("export", run / "model.safetensors", "--timm"), 2, "is a model file", "give the run folder")
    fails(run_here("export", tmp_path, "--timm"), 1, f"{tmp_path} is not a run folder")
    pretrained = PROJECT / "tests" / "runs_0_1" / "pretrained"
    fails(
        run_here("export", pretrained, "--timm", tmp_path / "x"),
        2,
        "has no classifier to export",
        "--init",
        "smallvit embed",
    )


def test_weights_of_one_model_cannot_hold_a_group(run: Path, tmp_path: Path) -> None:
    places = {f"seed-{seed}": Place(seed=seed) for seed in (0, 1)}
    for name in places:
        shutil.copytree(run, tmp_path / name)
    write_group(tmp_path, {}, places)
    fails(
        run_here("export", tmp_path, "--hf", tmp_path.parent / "x"),
        2,
        "holds 2 models",
        str(tmp_path / "seed-0"),
        "--onnx",
    )


def test_a_missing_package_is_named_before_torch_is_loaded(run: Path, tmp_path: Path) -> None:
    """In a process of its own: what is imported here is imported already."""
    program = (
        "import importlib.util, sys; real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *more: None if name == 'onnxscript' else real(name, *more)\n"
        f"sys.argv = ['smallvit', 'export', {str(run)!r}, '--onnx', {str(tmp_path / 'x')!r}]\n"
        "import smallvit.cli\n"
        "try: smallvit.cli.main()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (
        2,
        "smallvit: --onnx needs the package onnxscript: pip install 'smallvit[onnx]'\n",
    )
    assert importlib.util.find_spec("onnxscript"), "here it is installed"


def test_a_used_folder(run: Path, exported: Callable[[str], smallvit.Export], tmp_path: Path) -> None:
    used = shutil.copytree(exported("timm").path, tmp_path / "used")
    (used / "README.md").write_text("old")
    fails(run_here("export", run, "--timm", used), 1, f"{used} is already used", "--overwrite")
    assert run_here("export", run, "--timm", used, "--overwrite", "--quiet") == (0, "", "")
    assert (used / "README.md").read_text().startswith("# vit_pico")
    (used / "mine.txt").touch()
    fails(
        run_here("export", run, "--timm", used, "--overwrite"),
        1,
        "holds what no export wrote (mine.txt): nothing was deleted",
    )
    fails(run_here("export", run, "--timm", used / "mine.txt"), 1, "mine.txt is a file; an export is a folder")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["used"], "nothing half written is left"


def test_another_model_is_refused(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = timm_folder.write

    def spoiled(shipped: Any, folder: Path) -> None:
        write(shipped, folder)
        tensors = load_file(folder / "model.safetensors")
        save_file(
            tensors | {"head.bias": tensors["head.bias"] + 0.01 * tensors["head.bias"].new_tensor([1, 0, 0])},
            folder / "model.safetensors",
        )

    monkeypatch.setattr(timm_folder, "write", spoiled)
    with pytest.raises(
        RunError, match=r"not the same model: on \d+ test images its probabilities differ .* by up to \d\.\de-0\d"
    ):
        smallvit.export(run, "timm", tmp_path / "out", show_progress=False)
    assert list(tmp_path.iterdir()) == []


def test_images_that_are_gone(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "copy")
    text = (copy / "recipe.json").read_text()
    photos = str(run.parent / "photos")
    assert photos in text
    (copy / "recipe.json").write_text(text.replace(photos, str(tmp_path / "gone")))
    fails(run_here("export", copy, "--timm"), 1, "cannot be read", "give --images FOLDER")
    assert run_here("export", copy, "--timm", "--images", photos).status == 0
    assert run_here("export", copy, "--timm", tmp_path / "moved", "--data", photos).status == 0
    (tmp_path / "empty").mkdir()
    fails(run_here("export", copy, "--timm", tmp_path / "x", "--images", tmp_path / "empty"), 1, "no images below")
    fails(
        run_here("export", copy, "--timm", tmp_path / "x", "--images", tmp_path / "no.png"), 1, "no.png: No such file"
    )

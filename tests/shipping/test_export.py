"""What is exported answers as the run does, by itself, and says what it is."""

from __future__ import annotations

import io
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from shipped_runs import TINY, trained, warm

import smallvit
from helpers import ends_well, noise_image, run_here, write_npz
from smallvit.runs.axes import Place
from smallvit.runs.members import write_group
from smallvit.shipping.agreement import TOLERANCE

FORMATS = {
    "onnx": {"model.onnx"},
    "torch-export": {"model.pt2"},
    "timm": {"model.safetensors", "config.json"},
    "hf": {"model.safetensors", "config.json"},
}
Exported = Callable[[str], smallvit.Export]


def answers(folder: Path, *files: Path, without: tuple[str, ...] = ()) -> list[list[str]]:
    """What predict.py says of files, in a process where importing some packages fails."""
    none = folder.with_name(f"{folder.name}-without")
    for package in without:
        (none / package).mkdir(parents=True)
        (none / package / "__init__.py").write_text(f"raise ImportError('there is no {package}')")
    path = str(none) if without else os.environ.get("PYTHONPATH", "")
    done = subprocess.run(
        [sys.executable, str(folder / "predict.py"), *map(str, files)], capture_output=True, text=True, timeout=300,
        env=os.environ | {"PYTHONPATH": path}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [line.split("\t") for line in done.stdout.splitlines()]


def agree(said: list[list[str]], run: Path, files: list[Path], within: float = 1e-4) -> None:
    """Every line is a file and its three likeliest classes, each with its probability."""
    expected = smallvit.predict(run, files)
    assert [line[0] for line in said] == [str(file) for file in files]
    for line, one in zip(said, expected, strict=True):
        best = [answer.rsplit(" ", 1) for answer in line[1:]]
        assert len(best) == min(3, len(one.probabilities)) and best[0][0] == one.label
        assert {label: float(number) for label, number in best} == pytest.approx(
            {label: one.probabilities[label] for label, _ in best}, abs=within
        )


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Wide, high, grey, transparent, turned by a camera: all that a file can be."""
    folder = tmp_path_factory.mktemp("files")
    smooth = Image.effect_mandelbrot((90, 61), (-2, -1.2, 1, 1.2), 60).convert("RGB")
    pictures: dict[str, Image.Image] = {
        "wide.png": noise_image("wide", (40, 21)),
        "high.png": noise_image("high", (13, 30)),
        "grey.png": noise_image("grey", (20, 20), "L"),
        "glass.png": noise_image("glass", (20, 24), "RGBA"),
        "large.jpg": smooth,
        "turned.jpg": smooth,
    }
    for name, picture in pictures.items():
        turned = Image.Exif()
        turned[0x0112] = 6 if name == "turned.jpg" else 1
        picture.save(folder / name, **({"exif": turned} if name.endswith(".jpg") else {}))
    return sorted(folder.iterdir())


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_agrees_with_the_run(exported: Exported, format: str) -> None:
    made = exported(format)
    assert made.format == format and made.agreement.images > 7, "of the test part"
    assert 0 <= made.agreement.difference <= TOLERANCE
    assert {file.name for file in made.path.iterdir()} == FORMATS[format] | {"README.md", "predict.py"}


def test_the_onnx_example_needs_neither_torch_nor_smallvit(run: Path, exported: Exported, files: list[Path]) -> None:
    folder = exported("onnx").path
    agree(answers(folder, *files, without=("torch", "smallvit", "timm")), run, files, within=2e-3)
    lines = [line for line in (folder / "predict.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 38
    asked = subprocess.run([sys.executable, folder / "predict.py"], capture_output=True, text=True, check=False)
    assert asked.returncode == 1 and "python predict.py FILE ..." in asked.stderr and "onnxruntime" in asked.stderr


def test_the_torch_export_example_needs_torch_alone(run: Path, exported: Exported, files: list[Path]) -> None:
    agree(answers(exported("torch-export").path, *files, without=("smallvit", "timm")), run, files, within=2e-3)


def test_a_file_that_cannot_be_read_stops_no_other(exported: Exported, files: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    words = [
        sys.executable,
        exported("onnx").path / "predict.py",
        tmp_path / "bad.png",
        tmp_path / "none.png",
        files[0],
    ]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout.startswith(f"{files[0]}\t") and done.stdout.count("\n") == 1
    assert f"{tmp_path / 'bad.png'}: " in done.stderr and f"{tmp_path / 'none.png'}: " in done.stderr
    assert "Traceback" not in done.stderr


def answers_here(folder: Path, *files: Path) -> list[list[str]]:
    """The same in this process."""
    out = io.StringIO()
    with patch.object(sys, "argv", ["predict.py", *map(str, files)]), redirect_stdout(out):
        runpy.run_path(str(folder / "predict.py"))
    return [line.split("\t") for line in out.getvalue().splitlines()]


def test_the_timm_example_does_all_that_predict_does(run: Path, exported: Exported, files: list[Path]) -> None:
    agree(answers_here(exported("timm").path, *files), run, files, within=2e-3)


@pytest.mark.parametrize(("darkest", "white"), [(2000, 4095), (30_000, 65535)])
def test_sixteen_bits(tmp_path: Path, darkest: int, white: int) -> None:
    """A white of its own, or the full range, as a set without 16-bit files has it; and one channel."""
    draw = np.random.default_rng(0)
    for number in range(30):
        file = tmp_path / "photos" / ("bright" if number % 2 else "dark") / f"{number}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        most = darkest * (1 + number % 2)
        Image.fromarray(draw.integers(0, most, (14, 11), dtype=np.uint16)).save(file)
    run = smallvit.train(
        tmp_path / "photos", out=tmp_path / "a", model="vit_pico", img_size=8, epochs=1, batch_size=8, threads=1, settings={**TINY, "data.few_looks": False},
        show_progress=False,
    )  # fmt: skip
    assert run.transform.white == white and run.transform.in_chans == 1
    files = sorted((tmp_path / "photos").rglob("*.png"))[::6]
    folder = run.export("timm").path
    agree(answers_here(folder, *files), run.path, files, within=2e-3)
    Image.fromarray(np.ones((9, 9), np.float32)).save(tmp_path / "fractions.tif")
    problems = io.StringIO()
    with redirect_stderr(problems), pytest.raises(SystemExit, match="1"):
        answers_here(folder, tmp_path / "fractions.tif")
    assert "fractions.tif: fractions, or 16 bits a colour" in problems.getvalue()


def test_timm_loads_a_model_of_its_own_without_smallvit(tmp_path: Path, files: list[Path]) -> None:
    run = trained(tmp_path, {"data.fit": "pad"}, model="test_vit", img_size=16)
    folder = smallvit.export(run, "hf", tmp_path / "hf", show_progress=False).path
    agree(answers(folder, *files, without=("smallvit",)), run, files, within=2e-3)
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    data = timm.data.resolve_model_data_config(model)
    assert tuple(data["input_size"]) == (3, 16, 16) and data["mean"] == pytest.approx(smallvit.Run(run).transform.mean)
    arguments = {"num_classes": 3, "img_size": 16}
    by_checkpoint = timm.create_model("test_vit", checkpoint_path=folder / "model.safetensors", **arguments).eval()
    images = torch.randn(2, 3, 16, 16)
    with torch.no_grad():
        assert torch.equal(by_checkpoint(images), model(images))
        torch.testing.assert_close(model(images), smallvit.Run(run).model()(images))


@pytest.mark.parametrize("fit", ["squash", "pad"])
def test_the_example_makes_squares_as_the_run_does(root: Path, tmp_path: Path, files: list[Path], fit: str) -> None:
    run = trained(tmp_path, TINY | {"data.fit": fit})
    folder = smallvit.export(run, "onnx", tmp_path / "onnx", show_progress=False).path
    agree(answers_here(folder, *files), run, files, within=2e-3)


def test_other_channels(tmp_path: Path) -> None:
    write_npz(tmp_path / "set.npz", n=40, side=9, channels=5)
    run = smallvit.train(
        tmp_path / "set.npz", out=tmp_path / "a", model="vit_pico", epochs=1, batch_size=8, threads=1,
        settings=TINY | {"model.kwargs.patch_size": 3}, show_progress=False,
    )  # fmt: skip
    made = run.export("onnx")
    assert made.path == tmp_path / "a-onnx" and made.agreement.difference <= TOLERANCE
    pixels = np.random.default_rng(1).integers(0, 256, (14, 9, 5), dtype=np.uint8)
    np.save(tmp_path / "one.npy", pixels)
    np.save(tmp_path / "wide.npy", pixels.astype(">u2") * 257)  # either end first
    both = [tmp_path / "one.npy", tmp_path / "wide.npy"]
    agree(answers_here(made.path, *both), run.path, both, within=2e-3)
    np.save(tmp_path / "real.npy", pixels / 255)
    done = subprocess.run(
        [sys.executable, made.path / "predict.py", tmp_path / "real.npy", both[0]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "real.npy: its pixels are float64; save it as uint8 or uint16" in done.stderr
    assert done.returncode == 1 and done.stdout.startswith(f"{both[0]}\t"), "the others are answered"
    assert run.export("timm", tmp_path / "timm").agreement.difference <= TOLERANCE


def test_a_group_is_exported_as_one(run: Path, tmp_path: Path) -> None:
    places = {f"seed-{seed}": Place(seed=seed) for seed in (0, 1)}
    for name, place in places.items():
        shutil.copytree(run, tmp_path / "two" / name)
        warm(tmp_path / "two" / name, temperature=0.1 + 0.4 * (place.seed or 0))
    write_group(tmp_path / "two", {}, places)
    group = smallvit.Group(tmp_path / "two")
    made = group.export("torch-export", tmp_path / "out")
    assert made.agreement.difference <= TOLERANCE
    model = torch.export.load(made.path / "model.pt2").module()
    images = torch.randint(0, 256, (5, 3, 12, 12), dtype=torch.uint8)
    each = torch.stack([one.predictor().probabilities(images) for one in group.runs])
    assert (each[0] - each[1]).abs().max() > 100 * TOLERANCE, "the two answer alike: nothing was tried"
    torch.testing.assert_close(model(images).detach(), each.mean(0), rtol=0, atol=1e-5)
    assert "2 models that answer as one" in (made.path / "README.md").read_text()


def test_the_command(root: Path, tmp_path: Path) -> None:
    outcome = ends_well(run_here("export", root / "a", "--timm", tmp_path / "out", "--images", root / "photos" / "cat"))
    assert outcome.out.strip() == str(tmp_path / "out")
    assert "20 images of cat, in batches of 1 and 7, no probability differs from the run's by more than" in outcome.err

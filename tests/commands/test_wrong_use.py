"""Data, flags and values that cannot be: one message that names them, and exit status 1 or 2."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers import QUICK, fails, make_folder, run_here


def missing(root: Path) -> Path:
    return root / "nowhere"


def empty(root: Path) -> Path:
    (root / "empty").mkdir()
    return root / "empty"


def one_class(root: Path) -> Path:
    return make_folder(root / "one", {"cat": 10})


def lonely(root: Path) -> Path:
    return make_folder(root / "lonely", {"cat": 10, "dog": 1})


def loose(root: Path) -> Path:
    return make_folder(root / "loose", {".": 3})


def rotten(root: Path) -> Path:
    make_folder(root / "rotten", {"cat": 10, "dog": 10})
    for number in range(2):
        (root / "rotten" / "dog" / f"00{number}.png").write_text("rotten")
    return root / "rotten"


def text_file(root: Path) -> Path:
    (root / "list.txt").write_text("a b c")
    return root / "list.txt"


@pytest.mark.parametrize(
    ("make", "phrases"),
    [
        (missing, ["no such folder or file: ", "nowhere"]),
        (empty, ["empty holds no folders and no images", "put the images of each class into a folder of its own"]),
        (one_class, ["one has one class only (cat): there is nothing to tell apart"]),
        (lonely, ["one image only is left of class 'dog'", "--test none"]),
        (loose, ["images, but no class folders"]),
        (rotten, ["2 of 20 images of", "dog/000.png: not a readable image", "dog/001.png"]),
        (
            text_file,
            [
                "list.txt: data is a folder of class folders, a .csv file of path,label, an .npz file, hf:NAME, or a named set"
            ],
        ),
    ],
)
def test_data_that_cannot_be_used(tmp_path: Path, make: Callable[[Path], Path], phrases: list[str]) -> None:
    out = tmp_path / "out"
    fails(run_here("train", make(tmp_path), *QUICK, "--out", out), 1, *phrases)
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "phrases"),
    [
        (["--batch-size", "64"], ["batch_size 64 is larger than the 16 training images", "--batch-size 16 or less"]),
        (["--model", "vit_nanno"], ["unknown model 'vit_nanno': did you mean vit_nano", "smallvit list models"]),
        (["--recipe", "defalt"], ["unknown recipe 'defalt': did you mean default?"]),
        (["--recipe", "mine.toml"], ["cannot read recipe file mine.toml: No such file or directory"]),
        (["--set", "optimizer.lr=abc"], ["smallvit: optimizer.lr = 'abc': should be a number or 'auto'"]),
        (["--lr", "1", "--set", "optimizer.lr=-1"], ["smallvit: optimizer.lr = -1: should be more than 0"]),
        (["--set", "optimizer.lrr=1"], ["smallvit: unknown key 'optimizer.lrr': did you mean optimizer.lr?"]),
        (["--set", "objective.mixupp=1"], ["unknown key 'objective.mixupp': did you mean objective.mixup, "]),
        (["--set", "objective.name=simclrr"], ["unknown objective 'simclrr'"]),
        (["--set", "aux.drlok.weight=1"], ["unknown aux 'drlok'"]),
        (["--set", "epochs"], ["--set 'epochs': write it as section.key=value"]),
        (["--set", "model.kwargs.depht=3"], ["model vit_pico (", "depht=3", "cannot be used for 3 channels of 12 px"]),
        (["--epochs", "0"], ["smallvit: --epochs 0: should be at least 1 or leave it out"]),
        (["--lr", "-1"], ["smallvit: --lr -1.0: should be more than 0"]),
        (["--lr", "nan"], ["smallvit: --lr nan: should be a finite number"]),
        (["--mixup", "-1"], ["objective supervised: --mixup -1.0: should be at least 0"]),
        (["--img-size", "3"], ["smallvit: --img-size 3: should be at least 4"]),
        (
            ["--set", "model.kwargs.num_heads=5"],
            ["model vit_pico (num_heads=5, ", "cannot be used for 3 channels of 12 px"],
        ),
        (["--in-chans", "4"], ["--in-chans 4: the images of", "only grey and RGB, 1 and 3"]),
        (["--fit", "stretch"], ["smallvit: --fit stretch: should be 'crop', 'squash' or 'pad'"]),
        (["--budget", "soon"], ["smallvit: --budget soon: 'soon' is no duration: write 90s, 3m or 1.5h"]),
        (["--budget", "3m", "--epochs", "3"], ["budget and epochs", "exclude each other"]),
        (["--val", "1.5"], ["smallvit: --val 1.5: should be none, a share between 0 and 1, or the name of a part"]),
        (["--val", "test"], ["--val test: the test part never selects anything"]),
        (["--val", "dev"], ["--val dev: the source has no such part (it has no parts)"]),
        (["--train-on", "val"], ["smallvit: --train-on val: should be 'train' or 'train+val'"]),
        (["--train-on", "train+val"], ["has no validation part"]),
        (["--per-class", "50"], ["--per-class 50: class 'cat' has 8 images left for training"]),
        (["--per-class", "5", "--fraction", "0.5"], ["--per-class and --fraction exclude each other"]),
        (["--device", "toaster"], ["device 'toaster' cannot be used here"]),
        (["--precision", "fp8"], ["smallvit: --precision fp8: should be 'fp32' or 'bf16'"]),
        (["--threads", "0"], ["smallvit: --threads 0: should be at least 1"]),
        (["--set", "data.mean=[0.5, 0.5]"], ["data.mean = [0.5, 0.5]: give 3 numbers, one for each channel"]),
        (["--set", "data.cache_size=8"], ["data.cache_size = 8 is smaller than data.img_size = 12"]),
        (["--val", "none", "--set", "select=best"], ["select = best needs a validation part"]),
        (["--log", "mlflow"], ["unknown log 'mlflow': choices: tensorboard, wandb"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_use(photos: Path, tmp_path: Path, words: list[str], phrases: list[str]) -> None:
    quick = ["--threads", "1", *([] if "--epochs" in words or "--budget" in words else ["--epochs", "1"])]
    model = [] if "--model" in words else ["--model", "vit_pico"]
    outcome = run_here("train", photos, *quick, *model, *words, "--out", tmp_path / "out")
    fails(outcome, 2, *phrases)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("command", ["evaluate", "predict", "probe", "diagnose"])
def test_a_device_that_is_not_there(command: str, place: Path) -> None:
    files = [place / "photos" / "dog"] if command == "predict" else []
    outcome = run_here(command, place / "runs" / "a", *files, "--device", "toaster")
    fails(outcome, 2, "device 'toaster' cannot be used here", "choices: auto, cpu, cuda")


def test_the_home_of_nobody() -> None:
    fails(run_here("train", "~nobody-of-that-name/photos"), 2, "no home directory of the user named after a ~")

"""--log wandb without a network, together with tensorboard, and without the package."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from helpers import make_folder, run_cli, run_here
from smallvit import Run

QUICK = ("--epochs", "1", "--per-class", "5", "--threads", "1", "--quiet")


def test_wandb_offline_beside_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    environment = {"WANDB_MODE": "offline", "WANDB_CACHE_DIR": str(tmp_path / "cache"), "HOME": str(tmp_path)}
    words = ("train", "digits", *QUICK, "--out", tmp_path / "a", "--log", "wandb,tensorboard")
    done = run_cli(*words, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert Run(tmp_path / "a").finished
    folder = tmp_path / "a" / "wandb"
    (written,) = folder.glob("offline-run-*/run-*.wandb")
    assert b"train/loss" in written.read_bytes()
    assert (folder / "run_id.txt").read_text().strip() in written.name
    assert list((tmp_path / "a" / "tensorboard").glob("events*"))


def test_a_missing_package_is_said_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    outcome = run_here("train", "digits", *QUICK, "--out", tmp_path / "a", "--log", "wandb")
    assert outcome.status == 2
    assert "--log wandb needs the package wandb: install smallvit[wandb]" in outcome.err
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("names", ["wandb,tensorbord", "tensorboard,", ""])
def test_every_name_must_be_known(tmp_path: Path, names: str) -> None:
    outcome = run_here("train", "digits", *QUICK, "--out", tmp_path / "a", "--log", names)
    assert outcome.status == 2 and "unknown log" in outcome.err


def test_evaluate_prints_the_worst_classes(tmp_path: Path) -> None:
    data = make_folder(tmp_path / "photos", {"[red]cat": 24, "dog": 12})
    assert (
        run_here(
            "train", data, "--epochs", "1", "--threads", "1", "--img-size", "12", "--quiet", "--out", tmp_path / "a"
        ).status
        == 0
    )
    outcome = run_here("evaluate", tmp_path / "a")
    assert outcome.status == 0
    assert "the classes, worst first" in outcome.out and "[red]cat" in outcome.out
    assert "balanced accuracy" in outcome.out and "every class counts the same" in outcome.out

"""What there is: `list` and `recipe show`."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from helpers import ends_well, fails, run_here
from smallvit.recipes import preset_names


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("models", ["vit_nano", "vit_pico", "resnet_nano", "resnet18_32", "resnet50_32", "deit_tiny", "swin_tiny"]),
        ("recipes", preset_names()),
        ("methods", ["supervised"]),
        ("datasets", ["mnist5k", "digits", "FOLDER", "FILE.npz"]),
    ],
)
def test_list(what: str, names: list[str]) -> None:
    lines = ends_well(run_here("list", what)).out.splitlines()
    described = {line.split()[0]: line.split()[1:] for line in lines}
    for name in names:
        assert described[name], f"{name} is not described"


def test_list_models_by_pattern() -> None:
    names = ends_well(run_here("list", "models", "resnet1?")).out.split()
    assert "resnet18" in names
    fails(run_here("list", "models", "nothing_of_this_name"), 2, "no timm model matches 'nothing_of_this_name'")


def test_list_of_something_else() -> None:
    fails(run_here("list", "model"), 2, "cannot list 'model': did you mean models")


@pytest.mark.skipif(sys.platform == "win32", reason="no such shell")
def test_output_into_a_closed_pipe_ends_without_a_word() -> None:
    command = f"{sys.executable} -m smallvit recipe show | true"
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert found.stderr == ""


def test_recipe_show(tmp_path: Path) -> None:
    page = ends_well(run_here("recipe", "show", "default")).out
    assert page.startswith("# description: ")
    assert "optimizer.clip = 1.0" in page
    (tmp_path / "mine.toml").write_text(page)
    again = ends_well(run_here("recipe", "show", tmp_path / "mine.toml")).out
    assert tomllib.loads(again) == tomllib.loads(page), "what is shown is a recipe file, and shows itself"
    fails(run_here("recipe", "show", "defaul"), 2, "unknown recipe 'defaul': did you mean default?")

"""The package as others install it: a wheel in an environment that has the dependencies and nothing else of ours."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import smallvit
from helpers import PROJECT


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=PROJECT, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("smallvit/")}
    source = PROJECT / "src"
    files = {path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()}
    assert inside == {name for name in files if "__pycache__" not in name}
    assert "smallvit/py.typed" in inside


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_wheel_runs_where_nothing_else_of_ours_is(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv", with_pip=False, symlinks=os.name != "nt")
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    asked = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    place = Path(subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip())
    zipfile.ZipFile(wheel).extractall(place)
    # Packages there are found, but not what they install by .pth files of their own, such as our source.
    (place / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-m", "smallvit", "demo", "--quick", "--out", tmp_path / "demo"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=800,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "demo" / "report.html").is_file()
    where = [python, "-c", "import smallvit; print(smallvit.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environment, check=True, capture_output=True, text=True).stdout
    assert Path(found.strip()).is_relative_to(tmp_path)


def test_one_version_everywhere() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]
    cited = re.search(r"^version: (\S+)$", (PROJECT / "CITATION.cff").read_text("utf-8"), re.MULTILINE)
    assert cited and smallvit.__version__ == project["version"] == cited[1]

"""The notebook of examples/ runs from top to bottom, with an epoch of a few images, and shows what it promises."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from helpers import PROJECT
from smallvit.planning.cut_short import MOST_EPOCHS, MOST_IMAGES

NOTEBOOK = PROJECT / "examples" / "why-vits-fail.ipynb"


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MOST_EPOCHS, "1")
    monkeypatch.setenv(MOST_IMAGES, "8")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(PROJECT / "src"), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=500, kernel_name="python3", resources={"metadata": {"path": tmp_path}}).execute()
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    shown = [kind for output in outputs for kind in output.get("data", {})]
    assert shown.count("text/html") >= 2, "the runs show themselves"
    assert shown.count("image/png") >= 2, "attention and CKA are drawn"
    assert "the default" in "".join(output.get("text", "") for output in outputs)


def test_the_notebook_is_kept_without_its_outputs() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert [
        cell for cell in notebook.cells if cell.cell_type == "code" and (cell.outputs or cell.execution_count)
    ] == []

"""In a notebook: figures that show themselves, and progress that is one line without control characters."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from PIL import Image

import smallvit
from smallvit import Run
from smallvit.drawing.svg import VARIABLES


def picture(figure: Any) -> np.ndarray:
    data, about = figure._repr_png_()
    shown = Image.open(io.BytesIO(data))
    assert (shown.width, shown.height) == pytest.approx((2 * about["width"], 2 * about["height"]), abs=2)
    return np.asarray(shown.convert("RGB"))


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(lambda artist: hasattr(artist, "get_text"))]


def test_figures_of_a_run(make_run: Callable[..., Run]) -> None:
    figures = make_run(names=["$x_1$", "日本", "<b>"]).figures
    for make in (figures.accuracy, figures.confusion, figures.curves):
        figure = make()
        assert isinstance(figure, Figure) and make() is not figure
        assert picture(figure).std() > 10
        colours = {to_hex(line.get_color()) for axes in figure.axes for line in axes.get_lines()}
        assert not colours & VARIABLES.keys(), "colours that stand for those of a page"
    assert {"$x_1$", "日本", "<b>"} <= set(texts(figures.confusion()))
    assert len(figures.curves().axes) >= 2
    assert "confusion" in repr(figures) and "cka" in repr(figures)


def test_the_users_settings_stay_and_figures_can_be_saved(make_run: Callable[..., Run], tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    figure = make_run().figures.confusion()
    figure.axes[0].set_title("mine")
    figure.savefig(tmp_path / "confusion.pdf")
    assert (tmp_path / "confusion.pdf").read_bytes().startswith(b"%PDF")
    assert dict(matplotlib.rcParams) == before


def test_what_needs_a_diagnosis_says_so(make_run: Callable[..., Run]) -> None:
    run = make_run()
    for make in (run.figures.attention, run.figures.locality, run.figures.cka):
        with pytest.raises(smallvit.SmallvitError, match="has not been diagnosed: `smallvit diagnose "):
            make()
    (run.path / "results.json").unlink()
    with pytest.raises(smallvit.SmallvitError, match="is not finished: go on with `smallvit resume"):
        run.figures.curves()


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("notebook")
    run = smallvit.train(
        "digits", model="vit_pico", out=folder / "a", epochs=1, per_class=12, threads=1, show_progress=False
    )
    run.diagnose(images=16)
    return run


def test_figures_of_a_diagnosis(diagnosed: Run, tmp_path: Path) -> None:
    figures = diagnosed.figures
    layers = diagnosed.read("findings/attention.json")["labels"]["layers"]
    mean, rollout = figures.attention(), figures.attention(1, shown="rollout")
    assert set(layers) <= set(texts(mean)) and picture(mean).std() > 10
    assert picture(rollout).shape == picture(mean).shape and (picture(rollout) != picture(mean)).any()
    assert len(figures.locality().axes) == 3
    own = figures.cka(own=True)
    (shown,) = own.axes[0].get_images()
    values = np.asarray(shown.get_array())
    assert values.shape[0] == values.shape[1] and np.allclose(np.diag(values), 1, atol=1e-3)
    with pytest.raises(
        smallvit.SmallvitError, match=r"has no similarity: it was not diagnosed against .* or cka\(own=True\)"
    ):
        figures.cka()
    with pytest.raises(smallvit.UsageError, match="image 99: the diagnosis holds 6, from 0 to 5"):
        figures.attention(99)
    with pytest.raises(smallvit.UsageError, match="shown 'rolout': did you mean rollout"):
        figures.attention(shown="rolout")
    (copy := shutil.copytree(diagnosed.path, tmp_path / "b") / "findings" / "attention.json").unlink()
    with pytest.raises(smallvit.SmallvitError, match="has no attention: no layer with attention"):
        Run(copy.parents[1]).figures.attention()


CELLS = (
    "import sys, time, smallvit, smallvit.console as console\nconsole.PATIENCE_SECONDS = console.NOTEBOOK_SECONDS = 0.05",
    "console.say('a [line]', style='dim'); console.warn('mind')",
    "with console.bar('<looking>', 8) as advance:\n    for _ in range(8):\n        time.sleep(0.03); advance(1, note='n')",
    "with console.quiet(), console.bar('unseen', 8) as advance:\n    time.sleep(0.1); advance(8)",
    "run = smallvit.Run({path!r}); run.figures.confusion()",
    "assert 'matplotlib.pyplot' not in sys.modules; run",
)


def test_a_real_notebook(diagnosed: Run) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    cells = [nbformat.v4.new_code_cell(code.replace("{path!r}", repr(str(diagnosed.path)))) for code in CELLS]
    book = nbformat.v4.new_notebook(cells=cells)
    nbclient.NotebookClient(book, timeout=300, kernel_name="python3").execute()
    said, bar, unseen, figure, card = (cell.outputs for cell in book.cells[1:])
    assert {output.name for output in said} == {"stdout"}
    assert "".join(output.text for output in said) == "a [line]\nnote: mind\n"
    (shown,) = bar
    assert re.fullmatch(r"<looking> 100%, took \d+ s  n", shown.data["text/plain"])
    assert "<progress " in shown.data["text/html"] and "&lt;looking&gt;" in shown.data["text/html"]
    assert unseen == []
    figure = [output for output in figure if "data" in output]  # beside what other packages warn of
    assert figure[0].data["image/png"] and "<svg" in card[0].data["text/html"]
    assert not re.search(r"[\x00-\x08\x0b-\x1f]", str(book.cells)), "control characters"

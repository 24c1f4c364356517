"""The diagnosis on the page: what is said, what can be chosen, and that nothing else can run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fabricated import HOSTILE
from safetensors.numpy import save_file

from smallvit import Run
from smallvit.errors import RunError
from smallvit.report.page import write_report
from smallvit.runs.stored_findings import VERSION

MakeRun = Callable[..., Run]
LAYERS = [f"blocks.{number}.attn" for number in range(4)]
ROWS, COLUMNS = ["stem", *LAYERS], ["conv1", "layer1", "</script><script>alert(3)</script>"]


def store(run: Run, name: str, verdict: str, weight: float, labels: dict[str, Any], **arrays: np.ndarray) -> None:
    folder = run.path / "findings"
    folder.mkdir(exist_ok=True)
    about = {"version": VERSION, "name": name, "verdict": verdict, "weight": weight, "numbers": {}, "labels": labels}
    (folder / f"{name}.json").write_text(json.dumps(about), encoding="utf-8")
    save_file({key: np.ascontiguousarray(value) for key, value in arrays.items()}, folder / f"{name}.safetensors")


def diagnosed(run: Run, names: list[str] | None = None) -> Run:
    """Made-up findings, stored as a diagnosis stores them; in layer 2 all attention is on the upper left cell."""
    names = names or ["seven", "one"]
    draw = np.random.default_rng(0)
    looks = {f"looks.{layer}": draw.random((2, 3, 4, 4)).astype(np.float16) for layer in range(4)}
    looks["looks.2"] = np.zeros((2, 3, 4, 4), np.float16)
    looks["looks.2"][:, :, 0, 0] = 1
    rolled = {f"rollout.{layer}": draw.random((2, 4, 4)).astype(np.float16) for layer in range(4)}
    store(run, "attention", "", 0.0, {"layers": LAYERS}, **looks, **rolled)
    pixels = np.full((2, 1, 28, 28), 255, np.uint8)
    store(
        run,
        "pictures",
        "",
        0,
        {"true": names[:2], "predicted": [names[0], names[0]], "files": ["a", "b"]},
        pixels=pixels,
    )
    cka = np.round(draw.random((5, 3)), 3).astype(np.float32)
    cka[1, 2] = 0.123
    labels = {"rows": ROWS, "columns": COLUMNS, "constant": ["bn2"], "other": ["resnet_nano"]}
    store(run, "similarity", "They differ.", 0.3, labels, cka=cka, low=cka - 0.01, high=cka + 0.01)
    table = {
        f"{key}{suffix}": draw.random((4, 1 if suffix == "_uniform" else 3)).astype(np.float32)
        for key in ("distance", "near", "entropy")
        for suffix in ("", "_initial", "_uniform")
    }
    store(run, "locality", "It looks far: 0.71.", 0.7, {"layers": LAYERS}, **table)
    store(run, "neighbours", "", 0, {"layers": LAYERS, "unit": ["block"]}, accuracy=np.array([0.3, 0.5, 0.6, 0.4]))
    maps = {"mean.0": draw.random((2, 8, 8)), "channels.0": draw.random((2, 4, 8, 8))}
    store(
        run, "feature_maps", "", 0, {"layers": ["conv1"]}, **{key: one.astype(np.float16) for key, one in maps.items()}
    )
    for number in range(5):
        store(run, f"rule{number}", f"Rule {number}.", 0.1 - 0.01 * number, {}, x=np.zeros(1))
    return run


def test_five_sentences_by_weight_and_the_others_below(make_run: MakeRun, tmp_path: Path) -> None:
    page = write_report([diagnosed(make_run())], tmp_path / "r.html", "x").read_text(encoding="utf-8")
    said = re.search(r'<ol class="found">(.*?)</ol>', page, re.S)
    assert said is not None
    assert re.findall(r"<li[^>]*>(.*?)</li>", said[1]) == ["It looks far: 0.71.", "They differ.", "Rule 0.", "Rule 1.", "Rule 2."]  # fmt: skip
    assert "Rule 4." in page.split("Further findings")[1]
    assert len(page) < 1_000_000


def test_one_script_and_no_other(make_run: MakeRun, tmp_path: Path) -> None:
    plain = write_report([make_run("plain")], tmp_path / "plain.html", "x").read_text(encoding="utf-8")
    assert "<script" not in plain and "script-src" not in plain
    page = write_report([diagnosed(make_run(), HOSTILE)], tmp_path / "r.html", "x").read_text(encoding="utf-8")
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert "alert(3)" not in page.replace("\\u003cscript\\u003ealert(3)\\u003c/script\\u003e", "")
    for text in re.findall(r'<script type="application/json">(.*?)</script>', page, re.S):
        assert json.loads(text)
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")


def test_a_damaged_finding_is_named(make_run: MakeRun, tmp_path: Path) -> None:
    run = diagnosed(make_run())
    (run.path / "findings" / "locality.safetensors").write_bytes(b"nothing")
    with pytest.raises(RunError, match=r"locality\.safetensors"):
        write_report([run], tmp_path / "r.html", "x")


@pytest.mark.parametrize("version", [None, VERSION + 1])
def test_a_diagnosis_of_another_version_is_left_out(
    make_run: MakeRun, tmp_path: Path, version: int | None, capsys: pytest.CaptureFixture[str]
) -> None:
    run, file = diagnosed(make_run()), "locality.json"
    about = json.loads((run.path / "findings" / file).read_text(encoding="utf-8")) | {"version": version}
    if version is None:
        del about["version"]
    (run.path / "findings" / file).write_text(json.dumps(about), encoding="utf-8")
    page = write_report([run], tmp_path / "r.html", "x").read_text(encoding="utf-8")
    assert "run `smallvit diagnose` on it again" in page and "It looks far" not in page and "<script" not in page
    assert "`smallvit diagnose`" in capsys.readouterr().err


# ---- in a browser ------------------------------------------------------------------------------------


@pytest.fixture
def page(chromium: Any, make_run: MakeRun, tmp_path: Path) -> Any:
    file = write_report([diagnosed(make_run(), HOSTILE)], tmp_path / "r.html", "x")
    page = chromium.new_page(viewport={"width": 1000, "height": 900})
    trouble: list[str] = []
    page.on("console", lambda message: trouble.append(message.text))
    page.on("pageerror", lambda error: trouble.append(str(error)))
    page.on("dialog", lambda dialog: (trouble.append(dialog.message), dialog.dismiss()))
    page.goto(file.as_uri())
    page.wait_for_function("document.querySelector('.looks output').value")
    yield page
    assert not trouble
    page.close()


def pixel(page: Any, card: int, x: float, y: float) -> list[int]:
    """The colour of a place of a layer's picture, in shares of its width and height."""
    return page.evaluate(
        """([card, x, y]) => {
            const canvas = document.querySelectorAll(".layers canvas")[card];
            const copy = Object.assign(document.createElement("canvas"), { width: canvas.width, height: canvas.height });
            const pen = copy.getContext("2d", { willReadFrequently: true });
            pen.drawImage(canvas, 0, 0);
            return [...pen.getImageData(x * canvas.width, y * canvas.height, 1, 1).data];
        }""",
        [card, x, y],
    )


@pytest.mark.browser
def test_the_slider_chooses_the_layer(page: Any) -> None:
    slider = page.locator(".looks input[type=range]")
    slider.focus()
    assert page.locator(".looks output").inner_text() == "blocks.3.attn (4 of 4)"
    page.keyboard.press("ArrowLeft")
    assert page.locator(".looks output").inner_text() == "blocks.2.attn (3 of 4)"
    assert page.locator(".layers .chosen p").inner_text() == "blocks.2.attn"
    bright, dark = pixel(page, 2, 0.05, 0.05), pixel(page, 2, 0.95, 0.95)
    assert bright[1] > dark[1] + 60, "the cell that is looked at is bright on the picture"


@pytest.mark.browser
def test_images_and_kinds_can_be_chosen(page: Any) -> None:
    before = pixel(page, 0, 0.5, 0.5)
    page.select_option(".looks [data-role=kind]", label="rollout")
    assert pixel(page, 0, 0.5, 0.5) != before
    page.select_option(".looks [data-role=image]", "1")
    spoken = page.get_attribute(".layers canvas >> nth=1", "aria-label")
    assert spoken.endswith("blocks.1.attn, rollout") and HOSTILE[1] in spoken


@pytest.mark.browser
def test_a_cell_of_the_cka_map_by_keyboard_and_pointer(page: Any) -> None:
    canvas, said = page.locator(".cka canvas"), page.locator(".cka output")
    canvas.focus()
    assert said.inner_text().startswith("vit_nano: stem, and resnet_nano: conv1: ")
    for key in ("ArrowUp", "ArrowRight", "ArrowRight", "ArrowRight"):  # the last one has nowhere to go
        page.keyboard.press(key)
    assert (
        said.inner_text() == f"vit_nano: {ROWS[1]}, and resnet_nano: {COLUMNS[2]}: 0.123 (95% interval 0.113 to 0.133)"
    )
    canvas.hover(position={"x": 2, "y": 2})
    assert said.inner_text().startswith(f"vit_nano: {ROWS[4]}, and resnet_nano: {COLUMNS[0]}: ")
    box = canvas.bounding_box()
    canvas.hover(position={"x": box["width"] * 0.9, "y": box["height"] * 0.7})
    assert said.inner_text().startswith(f"vit_nano: {ROWS[1]}, and resnet_nano: {COLUMNS[2]}: 0.123")


@pytest.mark.browser
def test_on_paper_and_on_a_phone(page: Any) -> None:
    page.emulate_media(media="print")
    assert not page.locator(".controls").is_visible()
    assert page.locator(".layers canvas").count() == 4
    assert all(page.locator(".layers canvas").nth(number).is_visible() for number in range(4))
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 375, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")

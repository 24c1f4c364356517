"""The page as somebody uses it: files that are good, broken and too large, names with markup, the webcam, both schemes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from markup import HOSTILE

import smallvit
from helpers import forged_png, noise_image, truncate
from smallvit.serving.app import App
from smallvit.serving.server import Limits

pytestmark = pytest.mark.browser

MARKUP = "<b onmouseover=alert(3)>new.png"


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page whose errors, dialogs and requests are remembered."""
    page = chromium.new_page(viewport={"width": 1120, "height": 900})
    page.trouble, page.asked = [], []
    page.on("console", lambda message: page.trouble.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: page.trouble.append(str(error)))
    page.on("dialog", lambda dialog: (page.trouble.append(dialog.message), dialog.dismiss()))
    page.on("request", lambda request: page.asked.append(request.url))
    yield page
    page.close()


def drop(page: Any, *files: Path) -> list[Any]:
    """What the page shows for them, the first file first."""
    page.set_input_files("#files", [str(file) for file in files])
    answers = page.locator(".answer")
    answers.nth(len(files) - 1).wait_for(timeout=60_000)
    return [answers.nth(place) for place in range(len(files))]


def test_good_broken_and_too_large_files_dropped_together(
    page: Any, served: App, runs: dict[str, smallvit.Run], tmp_path: Path
) -> None:
    noise_image("new", (40, 30)).save(tmp_path / MARKUP)
    noise_image("photo", (50, 50)).save(tmp_path / "photo.jpg")
    noise_image("y", (64, 64)).save(tmp_path / "broken.png")
    files = [tmp_path / MARKUP, truncate(tmp_path / "broken.png"), forged_png(tmp_path / "huge.png", 90_000, 90_000)]
    (tmp_path / "heavy.bmp").write_bytes(bytes(Limits().file_bytes + 1))
    page.goto(served.url)
    good, broken, huge, heavy, last = drop(page, *files, tmp_path / "heavy.bmp", tmp_path / "photo.jpg")
    assert good.locator("h2").inner_text() == MARKUP
    (expected,) = runs["vit_pico"].predict(tmp_path / MARKUP)
    assert good.locator(".lead").inner_text() == f"{expected.label} with {100 * (expected.probability or 0):.1f}%"
    shown = good.locator('[data-role="rows"] th').all_inner_texts()
    assert shown == [name for name, _ in expected.top(3)] and HOSTILE in shown
    (near,) = runs["vit_pico"].nearest(tmp_path / MARKUP, k=6)
    assert good.locator(".near b").all_inner_texts() == [one.label for one in near]
    assert good.locator(".near .file").all_text_contents() == [one.file for one in near]
    assert "damaged: " in broken.locator(".verdict").inner_text()
    assert "more than 89,478,485 pixels" in huge.locator(".verdict").inner_text()
    assert heavy.locator(".verdict").inner_text() == "The file is larger than 20 MB."
    assert last.locator("h2").inner_text() == "photo.jpg" and last.locator(".near img").count() == 6
    assert (
        page.trouble
        == ["Failed to load resource: the server responded with a status of 422 (Unprocessable Entity)"] * 2
    )
    assert {url.removeprefix(served.url) for url in page.asked if not url.startswith("data:")} == {"", "answer"}


def pixels(canvas: Any) -> list[int]:
    found: list[int] = canvas.evaluate(
        "canvas => [...canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data]"
    )
    return found


def test_layers_are_drawn_and_can_be_chosen(page: Any, served: App, tmp_path: Path) -> None:
    noise_image("new").save(tmp_path / "new.png")
    page.goto(served.url)
    (answer,) = drop(page, tmp_path / "new.png")
    layers = answer.locator(".layers canvas")
    assert layers.count() > 1 and answer.locator("h3").all_inner_texts()[-1] == "Where it looks"
    before = pixels(layers.first)
    assert len(set(before)) > 10
    answer.locator("select").select_option(label="rollout")
    assert pixels(layers.nth(1)) != before and "rollout" in layers.first.get_attribute("aria-label")
    assert not page.trouble


def test_a_model_without_attention_says_so(
    page: Any, runs: dict[str, smallvit.Run], serve: Callable[..., App], tmp_path: Path
) -> None:
    noise_image("new").save(tmp_path / "new.png")
    page.goto(serve(runs["resnet_nano"]).url)
    (answer,) = drop(page, tmp_path / "new.png")
    assert answer.locator("h3").all_inner_texts()[-1] == "Where its layers respond"
    assert "has no attention" in answer.inner_text() and not answer.locator("select").is_visible()
    assert not page.trouble


def test_more_files_than_it_takes_and_taking_them_away(
    page: Any, runs: dict[str, smallvit.Run], serve: Callable[..., App], tmp_path: Path
) -> None:
    page.goto(serve(runs["vit_pico"], limits=Limits(files=1), nearest=0).url)
    for number in range(2):
        noise_image(f"{number}").save(tmp_path / f"{number}.png")
    told, answer = drop(page, tmp_path / "0.png", tmp_path / "1.png")
    assert "The page takes 1 files at a time" in told.inner_text() and answer.locator("h2").inner_text() == "0.png"
    assert "They were not asked for" in answer.inner_text()
    page.click("#clear")
    assert page.locator(".answer").count() == 0 and not page.locator("#clear").is_visible()


def test_the_webcam(page: Any, served: App) -> None:
    page.goto(served.url)
    page.click("#camera")
    page.click("#take")
    page.locator(".answer").first.wait_for(timeout=60_000)
    assert page.locator(".answer h2").inner_text().startswith("webcam, ")
    page.check("#keep")
    page.locator("#state", has_text="webcam").wait_for(timeout=60_000)
    page.click("#stop")
    assert page.locator("#camera").is_visible() and not page.trouble


def test_a_server_that_has_ended_is_told_of(page: Any, runs: dict[str, smallvit.Run], tmp_path: Path) -> None:
    noise_image("new").save(tmp_path / "new.png")
    with smallvit.app(runs["vit_pico"], browser=False, wait=False, threads=1) as app:
        page.goto(app.url)
    (answer,) = drop(page, tmp_path / "new.png")
    assert "smallvit does not answer" in answer.inner_text()


@pytest.mark.parametrize("width", [375, 1280])
def test_it_fits_phones_and_both_schemes(chromium: Any, served: App, tmp_path: Path, width: int) -> None:
    noise_image("new").save(tmp_path / f"{'long-name-' * 12}.png")
    grounds = set()
    for scheme in ("light", "dark"):
        page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        page.goto(served.url)
        drop(page, *tmp_path.iterdir())
        root = page.evaluate("(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])(document.documentElement)")
        assert root[0] <= root[1], "the page scrolls sideways"
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.close()
    assert len(grounds) == 2

"""The page in a real browser: both colour schemes, phone and desktop, and nothing that runs or loads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fabricated import HOSTILE

from smallvit import Run
from smallvit.report.page import write_report

pytestmark = pytest.mark.browser

LONG = [f"a-rather-long-class-name-without-spaces-{number}" for number in range(24)]
KINDS: dict[str, list[dict[str, Any]]] = {
    "one": [{}],
    "two": [{"model": "vit_nano"}, {"model": "resnet_nano"}],
    "seeds": [{"seed": seed} for seed in range(3)],
    "hostile": [{"names": HOSTILE, "accuracy": 0.7}],
    "long names": [{"names": LONG, "channels": 3, "side": 96}],
    "old and uneven": [{"old": True, "uneven": True}],
    "flowers": [{"names": [f"flower {number}" for number in range(102)], "images": False, "val": False}],
}


@pytest.fixture(params=KINDS)
def page_file(request: pytest.FixtureRequest, make_run: Callable[..., Run], tmp_path: Path) -> Path:
    runs = [make_run(f"run{number}", **about) for number, about in enumerate(KINDS[request.param])]
    return write_report(runs, tmp_path / "report.html", request.param)


def test_page_in_both_schemes_and_widths(chromium: Any, page_file: Path) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        for width in (375, 1280):
            page = chromium.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
            trouble: list[str] = []
            page.on("console", lambda message, seen=trouble: seen.append(message.text))
            page.on("pageerror", lambda error, seen=trouble: seen.append(str(error)))
            page.on("dialog", lambda dialog, seen=trouble: (seen.append(dialog.message), dialog.dismiss()))
            page.on("requestfailed", lambda request, seen=trouble: seen.append(f"failed: {request.url}"))
            requests: list[str] = []
            page.on("request", lambda request, seen=requests: seen.append(request.url))
            page.goto(page_file.as_uri())
            page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
            root = page.evaluate(
                "(({scrollWidth, clientWidth}) => [scrollWidth, clientWidth])(document.documentElement)"
            )
            assert root[0] <= root[1], f"{scheme} {width}: the page scrolls sideways"
            assert page.evaluate("[...document.images].every(image => image.complete && image.naturalWidth > 0)")
            assert not trouble, f"{scheme} {width}: {trouble}"
            assert [url for url in requests if not url.startswith("data:")] == [page_file.as_uri()]
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            page.close()
    assert len(grounds) == 2, "light and dark look the same"


def test_paper_holds_everything_in_light_colours(chromium: Any, page_file: Path) -> None:
    """Printed from a dark screen: light, no wider than A4, folded parts open, no menu."""
    page = chromium.new_page(viewport={"width": 794, "height": 1100}, color_scheme="dark")
    page.emulate_media(media="print")
    page.goto(page_file.as_uri())
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert page.evaluate("document.documentElement.scrollWidth") <= 794
    hidden = page.evaluate(
        "[...document.querySelectorAll('details:not(.screen)')].filter("
        "each => !each.lastElementChild.checkVisibility({contentVisibilityAuto: true})).length"
    )
    assert hidden == 0
    page.close()


def contrast(one: str, other: str) -> float:
    """WCAG's contrast ratio of two `rgb(r, g, b)` colours."""

    def luminance(color: str) -> float:
        parts = [int(part) / 255 for part in color.removeprefix("rgb(").removesuffix(")").split(",")]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    dark, light = sorted(map(luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def test_figures_take_the_pages_colours(chromium: Any, make_run: Callable[..., Run], tmp_path: Path) -> None:
    """Text in figures contrasts with the ground in both schemes."""
    file = write_report([make_run()], tmp_path / "report.html", "x")
    for scheme in ("light", "dark"):
        page = chromium.new_page(color_scheme=scheme)
        page.goto(file.as_uri())
        text, ground = page.evaluate(
            "[getComputedStyle(document.querySelector('svg.plot text')).fill,"
            " getComputedStyle(document.querySelector('section')).backgroundColor]"
        )
        assert contrast(text, ground) > 4.5
        page.close()


def test_scrolling_boxes_and_links_are_reached_with_the_keyboard(
    chromium: Any, make_run: Callable[..., Run], tmp_path: Path
) -> None:
    file = write_report([make_run()], tmp_path / "report.html", "x")
    page = chromium.new_page(viewport={"width": 375, "height": 800})
    page.goto(file.as_uri())
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.tagName + '.' + document.activeElement.className"))
    assert {"A.", "A.anchor", "DIV.scroll", "FIGURE.scroll", "SUMMARY."} <= reached
    page.focus("summary")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open")
    page.close()

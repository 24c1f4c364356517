"""From a matplotlib figure to inline SVG: one look, own ids, and the page's colours, fonts and dark scheme."""

from __future__ import annotations

import html
import io
import re
import unicodedata
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.ticker import Locator

SERIES = 6  # colours of the page before they repeat

INK, SOFT, LINE, FLOOR, STRONG = "#010101", "#020202", "#030303", "#040404", "#050505"
VARIABLES = {INK: "--ink", SOFT: "--soft", LINE: "--line", FLOOR: "--floor", STRONG: "--on-strong"}
VARIABLES |= {f"#0100{index:02d}": f"--series-{index}" for index in range(1, SERIES + 1)}


@contextmanager
def style(name: str) -> Iterator[None]:
    """matplotlib's defaults plus ours, whatever the user's own settings are; undone afterwards."""
    import matplotlib

    with matplotlib.rc_context(), warnings.catch_warnings():
        # Widths of letters that matplotlib's font lacks are estimates; the browser has them.
        warnings.filterwarnings("ignore", message="Glyph .* missing")
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(
            {
                "svg.fonttype": "none",
                "svg.hashsalt": name,
                "text.parse_math": False,
                "text.color": INK,
                "xtick.color": LINE,
                "ytick.color": LINE,
                "xtick.labelcolor": SOFT,
                "ytick.labelcolor": SOFT,
                "xtick.labelsize": 12,
                "ytick.labelsize": 12,
                "axes.edgecolor": LINE,
            }
        )
        yield


def pixel_axes(
    width: float, height: float, left: float, right: float, top: float, bottom: float
) -> tuple[Figure, Axes]:
    """A figure in pixels (72 to the inch, as SVG counts) with one frameless plot inside the margins."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width / 72, height / 72))
    box = (left / width, bottom / height, (width - left - right) / width, (height - top - bottom) / height)
    axes = figure.add_axes(box)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.spines["bottom"].set_visible(True)
    axes.tick_params(length=0)
    axes.set_axisbelow(True)
    return figure, axes


class Drawing(NamedTuple):
    """A figure in the colours of no page yet, and what a page needs beside it: own ids, a spoken label, its size."""

    figure: Figure
    name: str
    label: str
    width: float
    least: float = 0.0

    def svg(self) -> str:
        with style(self.name):
            return to_svg(self.figure, self.name, self.label, self.width, self.least)


_TAG = re.compile(r"<[^<>]*>")  # text never holds < or >: matplotlib writes them as entities
_NAMES = re.compile(r'\b(id="|url\(#|href="#)')
_FONT = re.compile(r" ?font-family: [^;\"]*;?")
_HEX = re.compile("|".join(VARIABLES))


def to_svg(figure: Figure, name: str, label: str, width: float, least: float = 0.0) -> str:
    """The figure's SVG, fit to stand in a page: own ids, page colours and fonts, a spoken label.

    It shrinks with the page down to the share `least` of its width, and never grows.
    """
    buffer = io.StringIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", transparent=True, metadata=no_metadata)
    drawn = buffer.getvalue()
    box = re.search(r'viewBox="([^"]*)"', drawn)
    assert box, "matplotlib wrote no viewBox"
    body = drawn[drawn.index("</defs>") + len("</defs>") :]  # the first <defs> styles every element of a page

    def page_tag(match: re.Match[str]) -> str:
        tag = _NAMES.sub(rf"\g<1>{name}-", match[0])
        return _HEX.sub(lambda color: f"var({VARIABLES[color[0]]})", _FONT.sub("", tag))

    body = re.sub(r"\s*\n\s*", "\n", _TAG.sub(page_tag, body))
    sizes = f"width:{width:.0f}px;min-width:{least * width:.0f}px"
    spoken = html.escape(label, quote=True)
    return f'<svg class="plot" role="img" aria-label="{spoken}" viewBox="{box[1]}" style="{sizes}">{body}'


_PAGE = {
    "light": "--card:#ffffff;--ink:#1b2128;--soft:#59636e;--line:#dde2e8;--floor:#b3bcc6;--on-strong:#ffffff;"
    "--series-1:#0072b2;--series-2:#d55e00;--series-3:#008f68;--series-4:#b0508a;--series-5:#6b56b3;--series-6:#8a6d00",
    "dark": "--card:#1a2027;--ink:#e6e9ed;--soft:#a0abb7;--line:#343d47;--floor:#5c6874;--on-strong:#ffffff;"
    "--series-1:#56b4e9;--series-2:#ff9248;--series-3:#2cc69a;--series-4:#e69ac4;--series-5:#b7a4f2;--series-6:#e8d44d",
}


def renamed(svg: str, own: str) -> str:
    """With names that no other drawing has: those of a page are one space."""
    return _TAG.sub(lambda match: _NAMES.sub(rf"\g<1>{own}-", match[0]), svg)


def page_colours() -> tuple[str, str]:
    """What the colours of drawings are on a light and on a dark page, as CSS."""
    return _PAGE["light"], _PAGE["dark"]


def stand_alone(drawn: str, width: float, height: float) -> str:
    """What `to_svg` gave as a file of its own, on a card with the colours of the report, light or dark as the reader's are."""
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    look = (
        f"svg{{{_PAGE['light']};font-family:system-ui,-apple-system,'Segoe UI',Roboto,'Liberation Sans',Arial,sans-serif}}"
        f"@media(prefers-color-scheme:dark){{svg{{{_PAGE['dark']}}}}}"
    )
    card = f'<rect width="{width:.0f}" height="{height:.0f}" rx="10" style="fill:var(--card)"/>'
    opening = drawn.index(">") + 1
    head = drawn[:opening].replace("<svg ", f'<svg {spaces} width="{width:.0f}" height="{height:.0f}" ', 1)
    return f"{head}\n<style>{look}</style>\n{card}{drawn[opening:]}\n"


# ---- small parts that drawings share -------------------------------------------------------------------------


def color(series: int) -> str:
    if series <= 0:
        return FLOOR if series == 0 else SOFT
    return f"#0100{(series - 1) % SERIES + 1:02d}"


def few_ticks(integer: bool = False) -> Locator:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(nbins=5, integer=integer, steps=[1, 2, 5, 10])


def fit(text: str, most: int) -> str:
    """`text` cut to about `most` Latin letters, on one line, without what an XML text cannot hold."""
    kept: list[str] = []
    room = most
    for letter in " ".join(text.split()):
        letter = "\N{REPLACEMENT CHARACTER}" if unicodedata.category(letter) in ("Cc", "Cs", "Co", "Cn") else letter
        room -= 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        if room < 0:
            return "".join(kept[:-1]) + "…"
        kept.append(letter)
    return "".join(kept)

"""The page as one piece of html, in the look of the report, and what the browser may do with it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from PIL import Image

from smallvit.drawing.script import in_script
from smallvit.report.diagnosis_section import shading
from smallvit.report.page import page_style
from smallvit.serving.guard import too_large
from smallvit.serving.server import Limits, Page


def make_page(about: Mapping[str, Any], limits: Limits) -> Page:
    """Style and script stand in the page, and the policy names them by their hashes: nothing else runs, nothing is fetched."""
    from jinja2 import Environment, StrictUndefined

    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style, script = page_style() + _own("page.css"), shading() + _own("page.js")
    bounds = {
        "file_bytes": limits.file_bytes,
        "files": limits.files,
        "too_large": too_large(limits.file_bytes),
        "pixels": f"{(Image.MAX_IMAGE_PIXELS or 1 << 30) / 1e6:.0f}",
    }
    html = environment.from_string(_own("page.html.j2")).render(
        about=about, bounds=bounds, data=in_script({"bounds": bounds}), style=style, script=script
    )
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return Page(html.encode("utf-8", "replace"), policy)


def _own(name: str) -> str:
    return (resources.files("smallvit.serving") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

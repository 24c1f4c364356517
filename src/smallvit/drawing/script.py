"""Data for the one script of a page."""

from __future__ import annotations

import json
from typing import Any


def in_script(data: Any) -> str:
    """JSON that no text in it can end: a class may be called </script>."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

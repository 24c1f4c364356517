"""Times as users write them."""

from __future__ import annotations

import re

from smallvit.errors import UsageError

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Seconds of `90s`, `3m`, `1.5h`; a bare number is seconds."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smh]?)\s*", text)
    if not match or float(match[1]) == 0:
        raise UsageError(f"{text!r} is no duration: write 90s, 3m or 1.5h")
    return float(match[1]) * _UNITS[match[2] or "s"]

"""Where decoded images and compiled code are kept: known without torch."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """$SMALLVIT_CACHE, or the user's cache folder."""
    if chosen := os.environ.get("SMALLVIT_CACHE"):
        return Path(chosen)
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / "smallvit"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "smallvit"
    return Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "smallvit"


def compiled_folder() -> Path:
    """Of what torch.compile made."""
    return cache_folder() / "compiled"

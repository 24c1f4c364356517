"""What files hold, kept between the look at their headers and their decoding: every file is read once."""

from __future__ import annotations

import io
from pathlib import Path

MOST_BYTES = 1 << 28  # of files, as they lie on the disk; what is beyond is opened a second time


class Contents:
    """Bytes of files by path, up to a limit. Several threads may ask for different files."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._room = most_bytes
        self._kept: dict[Path, bytes] = {}

    def open(self, path: Path) -> Path | io.BytesIO:
        """What a decoder opens: the bytes where they are kept or there is room for them, else the file."""
        if path not in self._kept:
            size = path.stat().st_size
            if size > self._room:
                return path
            self._room -= size
            self._kept[path] = path.read_bytes()
        return io.BytesIO(self._kept[path])

    def forget(self) -> None:
        """Once the files are decoded: nothing is kept any more, and nothing will be."""
        self._room = 0
        self._kept.clear()

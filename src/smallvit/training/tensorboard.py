"""Records as TensorBoard scalars, beside metrics.jsonl."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from smallvit.errors import UsageError


class TensorBoardLog:
    @staticmethod
    def check() -> None:
        """The package is there, or it is said before anything is written."""
        if find_spec("tensorboard") is None:
            raise UsageError("--log tensorboard needs the package tensorboard: install smallvit[tensorboard]")

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(folder / "tensorboard"))

    def add(self, record: dict[str, Any]) -> None:
        for key, value in {**record, **record.get("parts", {})}.items():
            if isinstance(value, float | bool) and key != "seconds":
                self.writer.add_scalar(f"{record['kind']}/{key}", float(value), record["step"])

    def close(self) -> None:
        self.writer.close()

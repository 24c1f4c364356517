"""Records as TensorBoard scalars, beside metrics.jsonl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smallvit.errors import UsageError


class TensorBoardLog:
    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UsageError("--log tensorboard needs the package tensorboard: install smallvit[tensorboard]") from None
        self.writer = SummaryWriter(str(folder / "tensorboard"))

    def add(self, record: dict[str, Any]) -> None:
        for key, value in {**record, **record.get("parts", {})}.items():
            if isinstance(value, float | bool) and key != "seconds":
                self.writer.add_scalar(f"{record['kind']}/{key}", float(value), record["step"])

    def close(self) -> None:
        self.writer.close()

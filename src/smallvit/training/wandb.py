"""Records as a Weights & Biases run, beside metrics.jsonl. With WANDB_MODE=offline nothing leaves the machine."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from smallvit.errors import RunError, UsageError
from smallvit.runs.stored import read_json


class WandbLog:
    @staticmethod
    def check() -> None:
        """The package is there, or it is said before anything is written."""
        if find_spec("wandb") is None:
            raise UsageError("--log wandb needs the package wandb: install smallvit[wandb]")

    def __init__(self, folder: Path) -> None:
        import wandb

        identity = folder / "wandb" / "run_id.txt"  # a resumed run goes on as the same one
        old = identity.read_text(encoding="utf-8").strip() if identity.is_file() else None
        try:
            self.run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "smallvit"), name=folder.name, dir=str(folder), id=old,
                resume="allow" if old else None, config=_recipe(folder), settings=wandb.Settings(silent=True, console="off"),
            )  # fmt: skip
        except wandb.Error as error:
            raise RunError(
                f"wandb could not start: {error}. Log in with `wandb login`, or set WANDB_MODE=offline"
            ) from None
        identity.parent.mkdir(exist_ok=True)
        identity.write_text(self.run.id + "\n", encoding="utf-8")
        self.run.define_metric("*", step_metric="step")  # steps taken again after a crash are logged again

    def add(self, record: dict[str, Any]) -> None:
        values = {
            f"{record['kind']}/{key}": float(value)
            for key, value in {**record, **record.get("parts", {})}.items()
            if isinstance(value, float | bool) and key != "seconds"
        }
        self.run.log({**values, "step": record["step"]})

    def close(self) -> None:
        self.run.finish()


def _recipe(folder: Path) -> dict[str, Any]:
    return dict(read_json(folder / "recipe.json")["resolved"])

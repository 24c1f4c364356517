"""Every model of ours with parameters, multiply-adds, native size and source, counted once and stored in counted.json.

Counting builds all of them, which takes many seconds; `smallvit list models` reads the file and needs no torch. After a
model was added or changed, `python -m smallvit.listing.counted` writes the file anew; a test compares the two.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import Any

FILE = "counted.json"


def stored_rows() -> list[list[str]]:
    """Name, parameters, MACs, size, source, what it is."""
    rows: list[list[str]] = json.loads((resources.files("smallvit.listing") / FILE).read_text(encoding="utf-8"))
    return rows


def counted_rows() -> list[list[str]]:
    import timm

    from smallvit.models.aliases import ALIASES, HYBRID_KINDS, architecture

    ours = [name for name in timm.list_models() if timm.model_entrypoint(name).__module__.startswith("smallvit.")]
    rows = [[name, *_measured(name), first_line(timm.model_entrypoint(name))] for name in ours]
    for name in sorted(set(ALIASES) - set(ours)):
        means = dict.fromkeys(architecture(name, size).timm_name for size in (32, 224))
        suits = ", or a wider one where there is time" if name in HYBRID_KINDS else ", as suits the image size"
        rows.append([name, "", "", "any", "short name", " or ".join(means) + suits])
    return rows


def _measured(name: str) -> tuple[str, str, str, str]:
    """Parameters and multiply-adds (attention included) of one image at the native size, with 10 classes."""
    try:
        count, operations, config = _counted(name, "meta")  # nothing is drawn and nothing computed
    except (RuntimeError, NotImplementedError):  # T2T asks what its device can do, and this one can do nothing
        count, operations, config = _counted(name, "cpu")
    side, paper = config["input_size"][-1], config.get("paper_name") or "smallvit"
    return f"{count:,}", f"{operations / 2e6:,.0f} M", f"{side} px", paper


def _counted(name: str, device: str) -> tuple[int, int, Any]:
    import timm
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from smallvit.models.features import count_parameters

    with torch.device(device), torch.no_grad(), FlopCounterMode(display=False) as counter:
        model = timm.create_model(name, num_classes=10).eval()
        model(torch.zeros(1, *model.default_cfg["input_size"]))
    return count_parameters(model), counter.get_total_flops(), model.default_cfg


def first_line(documented: Any) -> str:
    return (documented.__doc__ or "").strip().splitlines()[0] if documented.__doc__ else ""


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in counted_rows())
    Path(__file__).with_name(FILE).write_text(f"[\n{lines}\n]\n", encoding="utf-8")

"""Does what a ViT learns change with the amount of data, and how like is it to what a ResNet learns?

    python benchmarks/representations.py [--images 640] [--show]

Compares the runs that `smallvit study run amount-cifar` and amount-svhn left in runs/studies, layer
by layer, on images of their test part, by CKA over the layers that ran. Numbers go to docs/results/representations.json
as they are found, pictures to docs/images. --show draws and prints what is there.

    alike      mean CKA of the same layers of two runs of one model: with n images, and with all of them and another seed
    bottom     mean CKA of the lowest quarter of the ViT's layers with the lower half of the ResNet's
    top        mean CKA of the top quarter of the ViT's layers with all of the ResNet's
    pattern    bottom - top: what Zhu et al. read from their figures 6 and 7, as one number
    published  the same with rows of zeros on top, one for every 16 that ran, as their 119 rows had 7 that never ran
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from smallvit import Run
from smallvit.diagnosis.alignment import cka
from smallvit.diagnosis.measurements.layer_likeness import pattern
from smallvit.evaluation.model_file import load_model
from smallvit.evaluation.statistics import mean_interval
from smallvit.models.features import create_backbone
from smallvit.planning.plan import read_plan
from smallvit.runs.atomic import write_text

ROOT = Path(__file__).resolve().parents[1]
STORE = ROOT / "docs" / "results" / "representations.json"
RUNS = ROOT / "runs" / "studies"
PICTURES = ROOT / "docs" / "images"
AMOUNTS = ("500", "2,000", "10,000")
SEEDS = 3
NEVER_RAN = 7 / 112  # rows of zeros for every row of the published matrix that ran
BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=640)
    parser.add_argument("--show", action="store_true", help="draw and print what is there")
    given = parser.parse_args()
    torch.set_num_threads(1)
    record: dict[str, Any] = json.loads(STORE.read_text()) if STORE.is_file() else {"images": given.images, "pairs": {}}
    if not given.show:
        measure(record, given.images)
    print(tables(record))
    if missing := [name for name, *_ in comparisons() if name not in record["pairs"]]:
        print(f"{len(missing)} comparisons wait for their runs, for example {missing[0]}: nothing is drawn")
        return
    draw_amount(record["pairs"])
    draw_tables(record["pairs"])


# ---- the comparisons -----------------------------------------------------------------------------------


def measure(record: dict[str, Any], images: int) -> None:
    for name, first, second in comparisons():
        if name not in record["pairs"] and all((folder_of(one) / "results.json").is_file() for one in (first, second)):
            print(name, flush=True)
            record["pairs"][name] = compared(*first, *second, images)
            write_text(STORE, json.dumps(record) + "\n")


Model = tuple[str, str, int]  # study, arm, seed; a seed of -1 is the model before training


def comparisons() -> list[tuple[str, Model, Model]]:
    """Every run against one of another seed with all images, and every ViT against the ResNet of its images and seed."""
    found: list[tuple[str, Model, Model]] = []
    for seed in range(SEEDS):
        other = (seed + 1) % SEEDS
        for n in AMOUNTS:
            for model in ("vit", "resnet"):
                most: Model = ("amount-cifar", f"{model} 10,000", other)
                found.append(
                    (f"{model} {n} against {model} 10,000, {seed}", ("amount-cifar", f"{model} {n}", seed), most)
                )
            found.append(_crossed("amount-cifar", n, seed))
        found.append(_crossed("amount-svhn", "1,000", seed))
    for model in ("vit", "resnet"):
        arm = f"{model} 10,000"
        found.append((f"{model} untrained against {arm}, 0", ("amount-cifar", arm, -1), ("amount-cifar", arm, 0)))
    for study, n in (("amount-cifar", AMOUNTS[0]), ("amount-svhn", "1,000")):
        vit, resnet = (study, f"vit {n}", -1), (study, f"resnet {n}", -1)
        found.append((f"vit untrained against resnet untrained, {study}", vit, resnet))
    return found


def _crossed(study: str, n: str, seed: int) -> tuple[str, Model, Model]:
    return f"vit {n} against resnet {n}, {study}, {seed}", (study, f"vit {n}", seed), (study, f"resnet {n}", seed)


def compared(
    study: str, arm: str, seed: int, other_study: str, other_arm: str, other_seed: int, images: int
) -> dict[str, Any]:
    first, second = loaded(study, arm, seed, images), loaded(other_study, other_arm, other_seed, images)
    batches = zip(first.images_NCHW.split(BATCH), second.images_NCHW.split(BATCH), strict=True)
    found = cka(first.model, second.model, batches, leave_out_constant=True)
    table_AC = found.cka_AC.numpy()
    numbers: dict[str, Any] = {}
    if arm.split()[0] == other_arm.split()[0]:
        # By name: an untrained classifier may give the same for every image, and then it is no row.
        same = [(found.rows.index(name), found.columns.index(name)) for name in found.rows if name in found.columns]
        numbers["alike"] = float(np.mean([table_AC[place] for place in same]))
    else:
        numbers |= pattern(table_AC)
        silent = np.zeros((round(NEVER_RAN * len(table_AC)), table_AC.shape[1]))
        numbers["published"] = pattern(np.concatenate([table_AC, silent]))["pattern"]
        numbers["table"] = [[round(float(value), 3) for value in row] for row in table_AC]
    return numbers


class Loaded(NamedTuple):
    """A model, some test images as it takes them, their labels, and as they were. The order is mixed: files are not."""

    model: nn.Module
    images_NCHW: Tensor
    labels_N: Tensor
    pixels_NCHW: Tensor
    class_names: list[str]


def folder_of(model: Model) -> Path:
    study, arm, seed = model
    return RUNS / f"{study}-laptop" / f"{arm}-seed-{max(0, seed)}"


def loaded(study: str, arm: str, seed: int, images: int) -> Loaded:
    """All runs of a study share the test part and its order."""
    run = Run(folder_of((study, arm, seed)))
    saved, plan = load_model(run.path / "model.safetensors"), read_plan(run)
    h, test = saved.header, plan.split.test
    rows = test[torch.randperm(len(test), generator=torch.Generator().manual_seed(0))[:images]]
    model = saved.predictor.backbone.model
    if seed < 0:
        torch.manual_seed(0)
        model = create_backbone(
            h["model"], h["kwargs"], num_classes=len(h["class_names"]), in_chans=h["in_chans"], img_size=h["img_size"]
        ).model
    pixels = plan.images.images_NCSS[rows]
    return Loaded(
        model.eval(),
        saved.predictor.prepared(plan.images, rows),
        plan.images.labels_N[rows],
        pixels,
        list(h["class_names"]),
    )


# ---- tables --------------------------------------------------------------------------------------------


def tables(record: dict[str, Any]) -> str:
    pairs = record["pairs"]

    def over_seeds(name: str, key: str) -> str:
        values = [pairs[f"{name}, {seed}"][key] for seed in range(SEEDS) if f"{name}, {seed}" in pairs]
        return "{:.2f} ({:.2f} to {:.2f})".format(*mean_interval(values)) if len(values) > 1 else ""

    def less_than_another_seed(model: str, n: str) -> str:
        lost = []
        for seed in range(SEEDS):
            few, most = (pairs.get(f"{model} {one} against {model} 10,000, {seed}") for one in (n, "10,000"))
            if few and most and n != "10,000":
                lost.append(few["alike"] - most["alike"])
        return "{:+.2f} ({:+.2f} to {:+.2f})".format(*mean_interval(lost)) if len(lost) > 1 else ""

    lines = ["| images | ViT alike | less another seed | ResNet alike | less another seed |", "|---|---|---|---|---|"]
    for n in AMOUNTS:
        cells = [
            cell
            for model in ("vit", "resnet")
            for cell in (over_seeds(f"{model} {n} against {model} 10,000", "alike"), less_than_another_seed(model, n))
        ]
        lines.append(f"| {n} | {' | '.join(cells)} |")
    untrained = [
        pairs.get(f"{m} untrained against {m} 10,000, 0", {}).get("alike", float("nan")) for m in ("vit", "resnet")
    ]
    lines += [f"| untrained | {untrained[0]:.2f} | | {untrained[1]:.2f} | |", ""]
    lines += ["| set, images | bottom | top | pattern | published |", "|---|---|---|---|---|"]
    for study, n in [*(("amount-cifar", n) for n in AMOUNTS), ("amount-svhn", "1,000")]:
        cells = [
            over_seeds(f"vit {n} against resnet {n}, {study}", key) for key in ("bottom", "top", "pattern", "published")
        ]
        lines.append(f"| {study.removeprefix('amount-')}, {n} | {' | '.join(cells)} |")
    for study in ("amount-cifar", "amount-svhn"):
        found = pairs.get(f"vit untrained against resnet untrained, {study}")
        if found:
            cells = [f"{found[key]:.2f}" for key in ("bottom", "top", "pattern", "published")]
            lines.append(f"| {study.removeprefix('amount-')}, untrained | {' | '.join(cells)} |")
    return "\n".join(lines)


# ---- pictures ------------------------------------------------------------------------------------------


def draw_amount(pairs: dict[str, Any]) -> None:
    """How like a run with n images is to one with all of them, seed by seed."""
    figure = Figure(figsize=(6, 3.6), layout="constrained")
    axes = figure.subplots()
    amounts = [int(n.replace(",", "")) for n in AMOUNTS]
    for model, colour in (("vit", "C0"), ("resnet", "C1")):
        found = [
            [pairs[f"{model} {n} against {model} 10,000, {seed}"]["alike"] for n in AMOUNTS] for seed in range(SEEDS)
        ]
        for values in found:
            axes.plot(amounts, values, "o", color=colour, alpha=0.5, markersize=4)
        axes.plot(amounts, np.mean(found, axis=0), color=colour, label={"vit": "ViT", "resnet": "ResNet"}[model])
        untrained = pairs[f"{model} untrained against {model} 10,000, 0"]["alike"]
        axes.axhline(untrained, color=colour, linestyle=":", label="before training")
    axes.set(xscale="log", xlabel="training images", ylabel="CKA with a run on 10,000", ylim=(0, 1), xticks=amounts)
    axes.set_xticklabels(AMOUNTS)
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(PICTURES / "representations-amount.png", dpi=150)


def draw_tables(pairs: dict[str, Any]) -> None:
    """CKA of the ViT's layers with the ResNet's, the mean over seeds, on one scale."""
    shown = {
        "CIFAR-10, before training": ["vit untrained against resnet untrained, amount-cifar"],
        "CIFAR-10, 500 images": [f"vit 500 against resnet 500, amount-cifar, {seed}" for seed in range(SEEDS)],
        "CIFAR-10, 10,000 images": [f"vit 10,000 against resnet 10,000, amount-cifar, {seed}" for seed in range(SEEDS)],
        "SVHN, 1,000 images": [f"vit 1,000 against resnet 1,000, amount-svhn, {seed}" for seed in range(SEEDS)],
    }
    figure = Figure(figsize=(3 * len(shown), 3.6), layout="constrained")
    all_axes = figure.subplots(1, len(shown), sharey=True)
    for axes, (title, names) in zip(all_axes, shown.items(), strict=True):
        tables = [np.array(pairs[name]["table"]) for name in names]
        # A seed may have left out a constant layer: the tables of the others stand for it.
        usual = max({table.shape for table in tables}, key=[table.shape for table in tables].count)
        mean = np.mean([table for table in tables if table.shape == usual], axis=0)
        picture = axes.imshow(mean, origin="lower", aspect="auto", vmin=0, vmax=1, cmap="magma")
        axes.set(title=title, xlabel="layers of the ResNet")
        axes.title.set_fontsize(10)
    all_axes[0].set_ylabel("layers of the ViT")
    figure.colorbar(picture, ax=all_axes, label="CKA", shrink=0.8)
    figure.savefig(PICTURES / "representations-cka.png", dpi=130)


if __name__ == "__main__":
    main()

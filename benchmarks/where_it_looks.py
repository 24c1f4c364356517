"""Where a ViT looks, layer by layer; whether it looks at contrast; and whether what it looks at is what it uses.

    python benchmarks/where_it_looks.py [--images 2000] [--show]

Measures the ViTs that `smallvit study run amount-cifar` and amount-svhn left in runs/studies on
images of their test part, and draws what the class token of one of them looks at. Numbers go to
docs/results/where-it-looks.json as they are found, pictures to docs/images. --show draws and prints what is there.

    spread     number of cells that the class token looks at, exp(entropy), as a share of all: 1 is all of them alike
    rollout    the same of the rollout up to the layer, which multiplies the layers with the identity added
    distance   mean distance of a cell to the cells it looks at, as a share of that of looking everywhere alike
    contrast   correlation, over the cells of an image, of what the class token looks at with the cell's contrast
    hidden     right answers with a quarter of the cells greyed: the most looked at, the least, and any

B images, H by W cells.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor, nn

from representations import PICTURES, ROOT, SEEDS, folder_of, loaded
from smallvit.diagnosis import attention_maps, feature_maps, locality, looks, rollout_looks
from smallvit.diagnosis.attention import on_image, scaled
from smallvit.diagnosis.distances import uniform_locality
from smallvit.diagnosis.featuremaps import channel_mean
from smallvit.evaluation.statistics import mean_interval
from smallvit.runs.atomic import write_text

STORE = ROOT / "docs" / "results" / "where-it-looks.json"
ARMS = (
    ("amount-cifar", "vit 500"), ("amount-cifar", "vit 2,000"), ("amount-cifar", "vit 10,000"),
    ("amount-svhn", "vit 1,000"),
)  # fmt: skip
SHOWN = (("amount-cifar", "resnet 10,000"), ("amount-svhn", "resnet 1,000"))
UNTRAINED = -1  # the seed of a model before training
BATCH = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=2000, help="at most")
    parser.add_argument("--show", action="store_true", help="draw and print what is there")
    given = parser.parse_args()
    torch.set_num_threads(1)
    record: dict[str, Any] = json.loads(STORE.read_text()) if STORE.is_file() else {}
    if not given.show:
        for study, arm in ARMS:
            for seed in range(UNTRAINED, SEEDS):
                if (name := f"{study}, {arm}, {seed}") not in record:
                    print(name, flush=True)
                    record[name] = measured(study, arm, seed, given.images)
                    write_text(STORE, json.dumps(record, indent=1) + "\n")
    print(tables(record))
    draw_spread(record)
    for study, arm in (("amount-cifar", "vit 10,000"), ("amount-svhn", "vit 1,000")):
        if folder_of((study, arm, 0)).is_dir():
            draw_attention(study, arm)
    if all(folder_of((study, arm, 0)).is_dir() for study, arm in SHOWN):
        draw_maps()


# ---- the measurements ----------------------------------------------------------------------------------


@torch.no_grad()
def measured(study: str, arm: str, seed: int, images: int) -> dict[str, Any]:
    model, shown, labels, *_ = loaded(study, arm, seed, images)
    right = torch.cat([model(some).argmax(1) for some in shown.split(BATCH)]) == labels
    spread, joint, contrast, last = [], [], [], []
    for some in shown.split(BATCH):
        maps = attention_maps(model, some)
        own = [looks(found).mean(1) for found in maps]
        joined = rollout_looks(maps)
        spread.append(torch.stack([share_of_cells(one) for one in own]))
        joint.append(torch.stack([share_of_cells(one) for one in joined]))
        there = contrast_of(some, maps[0].queries.grid)
        contrast.append(torch.stack([correlation(one, there) for one in (*own, joined[-1])]))
        last.append(joined[-1])
    contrast_LN = torch.cat(contrast, 1)
    near = locality(model, shown[:256].split(32))
    everywhere = float(uniform_locality(near[0].grid).distance_M[0])
    return {
        "images": len(shown), "accuracy": float(right.double().mean()),
        "spread": rounded(torch.cat(spread, 1).mean(1)), "rollout": rounded(torch.cat(joint, 1).mean(1)),
        "distance": [round(float(one.distance_M.mean()) / everywhere, 4) for one in near],
        "near": [round(float(one.near_M.mean()), 4) for one in near],
        "contrast_right": rounded(contrast_LN[:, right].mean(1)), "contrast_wrong": rounded(contrast_LN[:, ~right].mean(1)),
        "hidden": hidden(model, shown, labels, torch.cat(last)) if seed != UNTRAINED else {},
    }  # fmt: skip


def rounded(values: Tensor) -> list[float]:
    return [round(float(value), 4) for value in values]


def share_of_cells(looks_BHW: Tensor) -> Tensor:
    share_BN = looks_BHW.flatten(1) / looks_BHW.flatten(1).sum(1, keepdim=True)
    return torch.special.entr(share_BN).sum(1).exp() / share_BN.shape[1]


def contrast_of(images_BCHW: Tensor, grid: tuple[int, int]) -> Tensor:
    """(B, H, W): the deviation of brightness within every cell."""
    grey = images_BCHW.mean(1, keepdim=True)
    mean, squares = (F.adaptive_avg_pool2d(one, grid)[:, 0] for one in (grey, grey**2))
    return (squares - mean**2).clamp_min(0).sqrt()


def correlation(one_BHW: Tensor, other_BHW: Tensor) -> Tensor:
    a, b = (one.flatten(1) - one.flatten(1).mean(1, keepdim=True) for one in (one_BHW, other_BHW))
    return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1)).clamp_min(1e-12)


def hidden(model: nn.Module, images_BCHW: Tensor, labels: Tensor, looks_BHW: Tensor) -> dict[str, float]:
    """Right answers when a quarter of the cells is replaced by the image's mean colour."""
    generator = torch.Generator().manual_seed(0)
    by = {"most": looks_BHW, "least": -looks_BHW, "any": torch.rand(looks_BHW.shape, generator=generator)}
    found = {}
    for name, rank_BHW in by.items():
        flat_BN = rank_BHW.flatten(1)
        chosen = flat_BN >= flat_BN.kthvalue(flat_BN.shape[1] * 3 // 4 + 1, dim=1, keepdim=True).values
        mask = F.interpolate(chosen.view_as(rank_BHW)[:, None].float(), images_BCHW.shape[-2:], mode="nearest")
        greyed = images_BCHW * (1 - mask) + images_BCHW.mean((2, 3), keepdim=True) * mask
        answers = torch.cat([model(some).argmax(1) for some in greyed.split(BATCH)])
        found[name] = round(float((answers == labels).double().mean()), 4)
    return found


# ---- tables --------------------------------------------------------------------------------------------


def tables(record: dict[str, Any]) -> str:
    lines = ["| set, images | distance, first layer | spread, first / last layer | rollout, first / last layer |"]
    lines += ["|---|---|---|---|"]
    for study, arm in ARMS:
        for trained in (False, True) if arm in ("vit 500", "vit 1,000") else (True,):
            runs = runs_of(record, study, arm, trained)
            cells = [over([run["distance"][0] for run in runs])]
            cells += [
                " / ".join(over([run[key][layer] for run in runs]) for layer in (0, -1))
                for key in ("spread", "rollout")
            ]
            lines.append(
                f"| {study.removeprefix('amount-')}, {arm if trained else 'untrained'} | {' | '.join(cells)} |"
            )
    lines += [
        "",
        "| set, images | contrast, first layer: right, wrong | rollout: right, wrong | right | hidden: most, any, least |",
    ]
    lines += ["|---|---|---|---|---|"]
    for study, arm in ARMS:
        runs = runs_of(record, study, arm, True)
        cells = [
            ", ".join(over([run[f"contrast_{kind}"][place] for run in runs]) for kind in ("right", "wrong"))
            for place in (0, -1)
        ]
        cells.append(over([100 * run["accuracy"] for run in runs], 1))
        cells.append(
            ", ".join(over([100 * run["hidden"][kind] for run in runs], 1) for kind in ("most", "any", "least"))
        )
        lines.append(f"| {study.removeprefix('amount-')}, {arm} | {' | '.join(cells)} |")
    return "\n".join(lines)


def runs_of(record: dict[str, Any], study: str, arm: str, trained: bool) -> list[dict[str, Any]]:
    seeds = range(SEEDS) if trained else (UNTRAINED,)
    return [record[name] for seed in seeds if (name := f"{study}, {arm}, {seed}") in record]


def over(values: list[float], digits: int = 2) -> str:
    if len(values) < 2:
        return ", ".join(f"{value:.{digits}f}" for value in values)
    mean, low, high = mean_interval(values)
    return f"{mean:.{digits}f} ({low:.{digits}f} to {high:.{digits}f})"


# ---- pictures ------------------------------------------------------------------------------------------


def draw_spread(record: dict[str, Any]) -> None:
    """The spread of every layer's own attention and of the rollout, before and after training."""
    figure = Figure(figsize=(8, 3.2), layout="constrained")
    for axes, (key, title) in zip(
        figure.subplots(1, 2, sharey=True), (("spread", "attention of the layer"), ("rollout", "rollout up to the layer")), strict=True
    ):  # fmt: skip
        for study, arm, label in (("amount-cifar", "vit 10,000", "CIFAR-10, 10,000 images"), ("amount-svhn", "vit 1,000", "SVHN, 1,000 images")):  # fmt: skip
            values = np.array([run[key] for run in runs_of(record, study, arm, True)])
            axes.plot(range(1, values.shape[1] + 1), values.mean(0), "o-", label=label, markersize=4)
        before = runs_of(record, "amount-cifar", "vit 10,000", False)[0][key]
        axes.plot(range(1, len(before) + 1), before, ":", color="grey", label="before training")
        axes.set(title=title, xlabel="layer", ylim=(0, 1.02), xticks=range(1, len(before) + 1))
        axes.title.set_fontsize(10)
        axes.legend(frameon=False, fontsize=8, loc="lower right")
    figure.axes[0].set_ylabel("share of the cells looked at")
    figure.savefig(PICTURES / "attention-spread.png", dpi=130)


@torch.no_grad()
def draw_attention(study: str, arm: str, each: int = 4) -> None:
    """Images that a ViT is surely right and surely wrong about, and where its class token looks."""
    model, shown, labels, pixels, names = loaded(study, arm, 0, 400)
    probability, answer = model(shown).softmax(1).max(1)
    right = answer == labels
    rows = [
        which for kind in (right, ~right) for which in torch.where(kind, probability, -1.0).topk(each).indices.tolist()
    ]
    maps = attention_maps(model, shown[rows])
    columns = {f"layer {number}": scaled([looks(found).mean(1)])[0] for number, found in enumerate(maps, 1)}
    columns["rollout"] = scaled([rollout_looks(maps)[-1]])[0]
    # Two halves side by side: right on the left, wrong on the right.
    width = 1 + len(columns)
    figure = Figure(figsize=(0.85 * (2 * width + 0.6), 0.92 * each), layout="constrained")
    halves = figure.subfigures(1, 2, wspace=0.03)
    for half, some, title in zip(halves, (rows[:each], rows[each:]), ("right", "wrong"), strict=True):
        half.suptitle(f"surely {title}", fontsize=9)
        grid = half.subplots(each, width)
        for place, row in enumerate(some):
            image = pixels[row].permute(1, 2, 0).numpy()
            grid[place, 0].imshow(image)
            told = str(names[labels[row]]) + ("" if right[row] else f",\nnot {names[answer[row]]}")
            grid[place, 0].set_ylabel(told, fontsize=7)
            for axes, (name, mask_BHW) in zip(grid[place, 1:], columns.items(), strict=True):
                mask = on_image(mask_BHW[rows.index(row)][None], image.shape[:2])[0].numpy()[..., None]
                axes.imshow((image * (0.15 + 0.85 * mask)).astype(np.uint8))
                if not place:
                    axes.set_title(name, fontsize=7)
        for axes in grid.flat:
            axes.set(xticks=[], yticks=[])
    figure.savefig(PICTURES / f"attention-{study.removeprefix('amount-')}.png", dpi=130)


@torch.no_grad()
def draw_maps(each: int = 2) -> None:
    """What the convolutions of a trained ResNet give inside the network, the mean over channels, for a few images."""
    figure = Figure(figsize=(9, 1.02 * each * len(SHOWN)), layout="constrained")
    halves = figure.subfigures(len(SHOWN), 1, hspace=0.02)
    for half, (study, arm) in zip(halves, SHOWN, strict=True):
        found = loaded(study, arm, 0, each)
        maps = feature_maps(found.model, found.images_NCHW)
        grid = half.subplots(each, 1 + len(maps))
        for row in range(each):
            grid[row, 0].imshow(found.pixels_NCHW[row].permute(1, 2, 0).numpy())
            grid[row, 0].set_ylabel(found.class_names[found.labels_N[row]], fontsize=7)
            for axes, (number, one) in zip(grid[row, 1:], enumerate(maps, 1), strict=True):
                axes.imshow(channel_mean(one)[row].numpy(), cmap="gray")
                if not row:
                    axes.set_title(str(number), fontsize=7)
        for axes in grid.flat:
            axes.set(xticks=[], yticks=[])
    figure.savefig(PICTURES / "feature-maps.png", dpi=130)


if __name__ == "__main__":
    main()

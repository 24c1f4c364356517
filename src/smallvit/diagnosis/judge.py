"""From numbers to sentences: what may be said of a model when all its measurements are known.

A sentence has its number and what to do. A measurement that the thresholds do not bear out is stored and drawn, and
nothing is said of it. Where the thresholds come from, and what was tried and left out: docs/decisions/005-thresholds.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from smallvit.diagnosis.findings import Finding


class Thresholds:
    """From where on a number is worth words. They decide what is said, never what is measured or stored."""

    under_fit = 0.80  # accuracy on training images below which the model has not learned even those
    gap = 0.10  # accuracy on training images beyond that on others
    known = 0.40  # accuracy on training images from which on it can be said to know some by heart
    few_tokens = 4  # cells, a grid of 2 x 2
    everywhere = 0.90  # attention distance of the first layer, as a share of that of one that looks at all cells alike
    alike = 0.50  # CKA from which on layers are called alike
    parting = 0.10  # CKA with another model that the bottom has beyond the top
    peak = 0.02  # accuracy of neighbours that is lost between the best block and the last
    rank_by_class = 1.2  # effective rank of the last block, for each class
    images_by_rank = 5  # images for each direction that is asked for: few images differ in few directions
    repeats = 0.99  # CKA of a block with the one before
    blind = 0.02  # selectivity of a head that gives every query the same
    blind_heads = 0.15  # share of such heads


class Said(NamedTuple):
    """`clause` has the number; `advice` is what it means and what to do."""

    clause: str
    advice: str
    weight: float

    @property
    def sentence(self) -> str:
        return f"{self.clause[0].upper()}{self.clause[1:]}: {self.advice}."


def judge(found: list[Finding]) -> list[Finding]:
    """The findings with their verdicts, the weightiest first.

    Little training shows in many numbers. Each by itself has its own cure, and the cures contradict each other; so they
    are told together, as signs of the one cause, and only where the model under-fits.
    """
    named = {one.name: one for one in found}
    said = {name: words for name, rule in RULES.items() if name in named and (words := rule(named[name]))}
    if "fit" in named and under_fits(named["fit"]):
        said.pop("locality", None)  # what it will look at is not decided yet
        signs = [sign for name, rule in SIGNS.items() if name in named and (sign := rule(named[name]))]
        if signs:
            told = f"{', '.join(signs[:-1])} and {signs[-1]}" if signs[1:] else signs[0]
            advice = f"{said['fit'].advice}. It is also seen in {told}, which need no cure of their own"
            said["fit"] = said["fit"]._replace(advice=advice)
    judged = [
        one._replace(verdict=said[one.name].sentence, weight=said[one.name].weight) if one.name in said else one
        for one in found
    ]
    return sorted(judged, key=lambda one: -one.weight)


# ---- what is said by itself --------------------------------------------------------------------------


def under_fits(one: Finding) -> bool:
    """Whether it does not know its own training images, nor them better than others.

    A model that is right about images it was trained on less often than pixels alone are about new ones has not learned
    enough either, whatever the share.
    """
    numbers = one.numbers
    little = numbers["train_high"] < Thresholds.under_fit or numbers["train_accuracy"] < numbers["floor"]
    return little and not _by_heart(one)


def _by_heart(one: Finding) -> bool:
    """The intervals must agree that there is a gap; of little knowledge a gap says little."""
    numbers = one.numbers
    gap = numbers["gap"] > Thresholds.gap and numbers["train_low"] > numbers["high"]
    return gap and numbers["train_accuracy"] >= Thresholds.known


def fit(one: Finding) -> Said:
    """Of the fit there is always a sentence, for it is the first thing to know."""
    numbers, (part, floor) = one.numbers, (one.labels[key][0] for key in ("part", "floor"))
    train, other = (
        f"{numbers[f'{of}accuracy']:.0%} ({numbers[f'{of}low']:.0%} to {numbers[f'{of}high']:.0%}) of {int(numbers[f'{of}images'])} {name} images"
        for of, name in (("train_", "training"), ("", part))
    )
    if under_fits(one):
        clause = f"it labels only {train} correctly"
        if numbers["train_low"] <= 1 / numbers["classes"]:
            clause += f", no better than guessing among {int(numbers['classes'])} classes"
        elif numbers["train_accuracy"] < numbers["floor"]:
            clause += f", fewer than {floor} does of images that it has not seen ({numbers['floor']:.0%})"
        return Said(
            clause,
            "it under-fits; train longer first (--epochs, --budget); if the training loss no longer falls, raise the learning "
            "rate, take a larger model or weaker augmentation",
            1.0 - 0.4 * numbers["train_accuracy"],  # before all else
        )
    if _by_heart(one):
        return Said(
            f"it labels {train} correctly, but {other}",
            "it learns images by heart; more images, stronger augmentation (--set augment.randaugment=2), --mixup or a model "
            "with more built in (dhvt_nano, a ResNet) help",
            min(1.0, 0.5 + numbers["gap"]),
        )
    return Said(f"it labels {train} and {other} correctly", "neither under-fitting nor learning by heart shows", 0.05)


def tokens(one: Finding) -> Said | None:
    """Digits do without more, photos do not: the count alone cannot tell, so the advice is to try."""
    cells, size, rows = (int(one.numbers[key]) for key in ("cells", "img_size", "rows"))
    if not one.numbers["attends"] or cells > Thresholds.few_tokens:
        return None
    patch = size // rows
    return Said(
        f"a patch of {patch} px leaves {cells} token{'s' if cells > 1 else ''} of an image of {size} px",
        f"there is little to attend among; it cost vit_nano ten points on CIFAR-10 and nothing on digits: try "
        f"--set model.kwargs.patch_size={max(1, patch // 4)}, or larger images",
        0.6,
    )


def locality(one: Finding) -> Said | None:
    """Where convolutions mix neighbours, attention that looks far is no fault."""
    distance, even = one.numbers["distance"], one.numbers["distance_uniform"]
    if one.numbers["mixes_neighbours"] or distance < Thresholds.everywhere * even:
        return None
    return Said(
        f"the first layer looks {distance:.2f} of the image's width away on average, where looking at all cells alike "
        f"would give {even:.2f}",
        "it has learned next to nothing about what is near, and nothing in the model tells it; try --model dhvt_nano or "
        "cvt_nano, which have convolutions that do, or --aux drloc",
        0.4,
    )


def similarity(one: Finding) -> Said:
    """Of the other model that was asked for there is always a sentence."""
    other = one.labels["other"][0]
    bottom, top, mean = (one.numbers[key] for key in ("bottom", "top", "mean"))
    if bottom - top <= Thresholds.parting:
        way = "no part of it stands out"
    elif bottom >= Thresholds.alike:
        way = "they begin alike and part on the way up"
    else:
        way = "they have little in common from the start, and less on the way up"
    return Said(
        f"its layers are like those of {other} by {mean:.2f} on average (CKA; 1 is the same), by {bottom:.2f} at the bottom "
        f"(the lowest quarter with the other's lower half) and by {top:.2f} at the top (the top quarter with all)",
        way,
        0.25,
    )


RULES: dict[str, Callable[[Finding], Said | None]] = {
    "fit": fit, "tokens": tokens, "locality": locality, "similarity": similarity,
}  # fmt: skip


# ---- signs of too little training --------------------------------------------------------------------


def repeated_blocks(one: Finding) -> str:
    blocks, unit = int(one.numbers["blocks"]), one.labels["unit"][0]
    repeated = int((one.arrays["steps"] > Thresholds.repeats).sum())
    return f"{repeated} of {blocks} {unit}s that hardly change what the {unit} before gave (CKA above {Thresholds.repeats})" if repeated > 1 else ""  # fmt: skip


def low_rank(one: Finding) -> str:
    rank, classes = one.numbers["last"], int(one.numbers["classes"])
    needed = min(Thresholds.rank_by_class * classes, one.numbers["width"] / 2)
    enough = one.numbers["images"] >= Thresholds.images_by_rank * needed
    return (
        f"features of {rank:.1f} directions for {classes} classes" if classes > 2 and enough and rank < needed else ""
    )


def lost_neighbours(one: Finding) -> str:
    best, last, images = (one.numbers[key] for key in ("best", "last", "images"))
    # Two shares of the same images: twice the larger standard error is a cautious bound for their difference.
    noise = 2 * math.sqrt(max(share * (1 - share) for share in (best, last)) / images)
    layer = one.labels["layers"][int(one.numbers["best_block"])]
    return f"nearest neighbours that are right for {best:.0%} after {layer} but {last:.0%} after the last {one.labels['unit'][0]}" if best - last > max(Thresholds.peak, noise) else ""  # fmt: skip


def blind_heads(one: Finding) -> str:
    blind, heads = int((one.arrays["selectivity"] < Thresholds.blind).sum()), int(one.numbers["heads"])
    return f"{blind} of {heads} heads that give every token the same" if blind > Thresholds.blind_heads * heads else ""


SIGNS: dict[str, Callable[[Finding], str]] = {
    "self_similarity": repeated_blocks, "rank": low_rank, "neighbours": lost_neighbours, "heads": blind_heads,
}  # fmt: skip

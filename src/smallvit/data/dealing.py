"""Images dealt into parts so that every part has its share of every class: one by one, or in whole groups.

R images, G groups, K classes, P parts.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from smallvit.randomness import generator

SIZE = 0.1  # how much the size of a part counts beside one of its classes


def deal_images(labels_R: Tensor, parts: int, seed: int, purpose: str) -> Tensor:
    """(R,): the part of each image. Class by class in turns, so that classes and parts are even to within one image."""
    order = torch.cat(list(shuffled_classes(labels_R, seed, purpose).values()))
    part_R = torch.empty_like(order)
    part_R[order] = torch.arange(len(order)) % parts
    return part_R


def shuffled_classes(labels_R: Tensor, seed: int, purpose: str) -> dict[int, Tensor]:
    """Where the images of each class are, each class in an order of its own."""
    return {
        klass: own[torch.randperm(len(own), generator=generator(seed, purpose, klass))]
        for klass, own in places_of_classes(labels_R).items()
    }


def places_of_classes(labels_R: Tensor) -> dict[int, Tensor]:
    """Where the images of each class are, as they come. Sorted once: to look for every class takes as long as there are classes."""
    classes, counts = labels_R.unique(return_counts=True)
    return dict(zip(classes.tolist(), labels_R.argsort(stable=True).split(counts.tolist()), strict=True))


def deal_groups(labels_R: Tensor, groups_R: Sequence[str], shares: Sequence[float], seed: int, purpose: str) -> Tensor:
    """(R,): the part of each image; no group is in two. Classes come as near to the `shares` as whole groups allow.

    The largest groups go first, each to the part that is left nearest to its shares. Then a class that is missing in a
    part gets its smallest group from a part that has several of it.
    """
    number = {group: place for place, group in enumerate(dict.fromkeys(groups_R))}
    group_R = torch.tensor([number[group] for group in groups_R])
    counts_GK = torch.zeros(len(number), int(labels_R.max()) + 1, dtype=torch.float64)
    counts_GK.index_put_((group_R, labels_R), torch.ones(len(labels_R), dtype=torch.float64), accumulate=True)
    all_G1 = counts_GK.sum(1, keepdim=True)
    # Every class counts the same, however many images it has; where classes do not care, the size of the part decides.
    weight_GK = torch.cat([counts_GK / counts_GK.sum(0).clamp_min(1), SIZE * all_G1 / all_G1.sum()], 1)
    drawn = torch.randperm(len(number), generator=generator(seed, purpose))
    order = drawn[all_G1[drawn, 0].argsort(descending=True, stable=True)]
    missing_PK = torch.tensor(shares, dtype=torch.float64)[:, None] * weight_GK.sum(0)
    part_G = torch.empty(len(number), dtype=torch.int64)
    for group in order.tolist():
        # The squared distance from the shares changes by |w|^2 - 2 w m.
        part = int((missing_PK @ weight_GK[group]).argmax())
        part_G[group] = part
        missing_PK[part] -= weight_GK[group]
    _fill_gaps(part_G, counts_GK, len(shares))
    return part_G[group_R]


def _fill_gaps(part_G: Tensor, counts_GK: Tensor, parts: int) -> None:
    """Give a part that lacks a class the smallest group of that class that its own part can do without."""
    has_GK = (counts_GK > 0).long()
    held_PK = torch.zeros(parts, counts_GK.shape[1], dtype=torch.int64).index_add_(0, part_G, has_GK)
    for part, klass in (held_PK == 0).nonzero().tolist():
        own_C = has_GK[:, klass].nonzero()[:, 0]  # the groups of the class: of many classes a few of many
        spare_C = own_C[((held_PK[part_G[own_C]] > 1) | (has_GK[own_C] == 0)).all(1)]
        if held_PK[part, klass] or not len(spare_C):
            continue
        group = min(spare_C.tolist(), key=lambda spare: float(counts_GK[spare].sum()))
        held_PK[part_G[group]] -= has_GK[group]
        held_PK[part] += has_GK[group]
        part_G[group] = part

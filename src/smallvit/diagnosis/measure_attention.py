"""What is measured of attention: tokens, locality, heads, where it looks, positions.

B images, L layers, M heads, H by W cells.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from smallvit.console import warn
from smallvit.diagnosis.attended import Attended, Heads, attend
from smallvit.diagnosis.attention import AttentionMap, head_token_looks, looks, rollout_looks
from smallvit.diagnosis.findings import Array, Finding, ragged
from smallvit.diagnosis.layer_features import position_similarity
from smallvit.diagnosis.locality import Locality, uniform_locality
from smallvit.models.architectures.spt_lsa import ShiftedPatchEmbed
from smallvit.models.architectures.t2t import TokensToToken
from smallvit.models.features import Backbone

SHOWN = 6  # images whose attention and feature maps are kept
PER_BATCH = 16  # images whose attention is in memory at once
FOR_UNTRAINED = 32  # images: an untrained model hardly looks at another place in another image


def measure_attention(backbone: Backbone, untrained: nn.Module, images_NCHW: Tensor) -> list[Finding]:
    """Each model runs once over the images; nothing but the last grid is known of a CNN."""
    model = backbone.model
    now = attend(model, images_NCHW.split(PER_BATCH))
    for reason in _in_few_lines(now.left_out):
        warn(reason)
    found = [tokens_finding(backbone, now)]
    if now.locality:
        initial = attend(untrained, images_NCHW[:FOR_UNTRAINED].split(PER_BATCH))
        found.append(locality_finding(now.locality, initial.locality, mixes_neighbours(model)))
    if now.heads:
        found.append(heads_finding(now.heads))
    if now.maps:
        found.append(looks_finding(now.maps))
    places, before = position_similarity(model), position_similarity(untrained)
    if places is not None and before is not None:
        numbers = {"correlation": places.correlation, "correlation_initial": before.correlation}
        found.append(Finding("positions", {"similarity": places.similarity_NN.numpy()}, numbers))
    return found


def _in_few_lines(left_out: dict[str, str]) -> list[str]:
    """The first layer of those that are left out for the same reason, and how many more there are."""
    kinds: dict[str, list[str]] = {}
    for layer, reason in left_out.items():
        kinds.setdefault(reason.replace(layer, ""), []).append(reason)
    return [
        f"{one}: it is left out" + (f", like {len(more)} others of its kind" if more else "")
        for one, *more in kinds.values()
    ]


def tokens_finding(backbone: Backbone, now: Attended) -> Finding:
    """The grid that cells first attend among; without attention the grid that the model ends with."""
    grids = [one.grid for one in now.locality] + [one.keys.grid for one in now.maps] + [backbone.final_grid or (1, 1)]
    rows, columns = grids[0]
    numbers = {
        "cells": float(rows * columns), "rows": float(rows), "columns": float(columns),
        "img_size": float(backbone.img_size), "attends": float(bool(now.maps or now.left_out)),
    }  # fmt: skip
    return Finding("tokens", {}, numbers)


def locality_finding(now: list[Locality], initial: list[Locality], mixes: bool) -> Finding:
    """Distance, entropy and nearness by layer and head: of the model, of an untrained one, of one that looks everywhere."""
    even = [uniform_locality(one.grid) for one in now]
    arrays: dict[str, Array] = {}
    for key in ("distance", "entropy", "near"):
        for suffix, layers in (("", now), ("_initial", initial), ("_uniform", even)):
            arrays[key + suffix] = ragged([getattr(one, f"{key}_M").numpy() for one in layers])
    numbers = {name: float(np.nanmean(arrays[name][0])) for name in arrays if not name.startswith("entropy")}
    numbers["mixes_neighbours"] = float(mixes)
    return Finding("locality", arrays, numbers, {"layers": [one.layer for one in now]})


def mixes_neighbours(model: nn.Module) -> bool:
    """Whether something other than attention looks beyond a cell's own pixels; a plain patch embedding does not."""
    return any(
        isinstance(module, TokensToToken | ShiftedPatchEmbed)
        or (isinstance(module, nn.Conv2d) and max(module.kernel_size) > max(module.stride))
        for module in model.modules()
    )


def heads_finding(layers: list[Heads]) -> Finding:
    """`twin`: the correlation of a head with the earlier head of its layer that is most like it."""
    twin_LM = [np.tril(one.likeness_MM.numpy(), -1).max(1) for one in layers]
    arrays = {"selectivity": ragged([one.selectivity_M.numpy() for one in layers]), "twin": ragged(twin_LM)}
    numbers = {
        "heads": float(sum(len(one) for one in twin_LM)),
        "selectivity": float(np.nanmedian(arrays["selectivity"])),
        "twin": float(np.nanmedian(arrays["twin"][:, 1:])) if arrays["twin"].shape[1] > 1 else 0.0,
    }
    return Finding("heads", arrays, numbers, {"layers": [one.layer for one in layers]})


def looks_finding(maps: list[AttentionMap]) -> Finding:
    """What each layer looks at: over all heads, head by head, by rollout, from DHVT's head tokens."""
    arrays: dict[str, Array] = {}
    shown = [found._replace(weights_BMQK=found.weights_BMQK[:SHOWN]) for found in maps]
    for number, (found, rolled) in enumerate(zip(shown, rollout_looks(shown), strict=True)):
        arrays[f"looks.{number}"] = looks(found).numpy().astype(np.float16)
        arrays[f"rollout.{number}"] = rolled.numpy().astype(np.float16)
        if found.queries.behind:
            arrays[f"head_tokens.{number}"] = head_token_looks(found).mean(2).numpy().astype(np.float16)
    numbers = {"same_looks": _alike(looks(maps[-1]).mean(1)), "class_token": float(maps[-1].queries.front > 0)}
    return Finding("attention", arrays, numbers, {"layers": [found.layer for found in maps]})


def _alike(looks_BHW: Tensor) -> float:
    """Mean correlation between images of where a layer looks; a layer that looks everywhere alike has none."""
    flat_BN = looks_BHW.flatten(1).double()
    if len(flat_BN) < 2 or flat_BN.shape[1] < 3 or (flat_BN.std(1) / flat_BN.mean(1) < 0.05).any():
        return 0.0
    table_BB = torch.corrcoef(flat_BN)
    return float(table_BB[torch.ones_like(table_BB, dtype=torch.bool).triu(1)].mean())

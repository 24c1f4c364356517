"""Whether the runs of an arm are trained alike, whenever each of them was planned.

An arm says little, and the rest is chosen when a run is planned: another version of smallvit may choose otherwise, and its seeds
would be mixed with those before it. So what the first run of an arm was resolved to is kept, stage by stage, and later ones must agree.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from smallvit.errors import RunError
from smallvit.objectives.base import all_options
from smallvit.planning.explanation import brief
from smallvit.recipe import Recipe, flat

Values = Mapping[str, Any]  # dotted keys of a resolved recipe
MOST_TOLD = 3  # keys in which two differ
OWN = {
    "seed", "checkpoint_seconds",
    "threads", "device", "compile",  # other last bits, and the same method
    "data.source", "data.dir", "data.lists", "data.download", "data.cache_limit_gb",  # the fingerprint tells the images
    "data.mean", "data.std", "objective.class_weights",  # measured on the training images, of which each draw has its own
    "model.init", "aux.teacher.run", "continued.file",  # paths; the digest tells the file
}  # fmt: skip


class Differing(NamedTuple):
    key: str
    before: str
    now: str


def decisive(resolved: Mapping[str, Any], draw: int | None, after_another: bool) -> dict[str, Any]:
    """What decides the result of a run and is the same for all of its arm, from a resolved recipe as it is stored.

    A draw counts its split seed on from the first's. What follows another stage starts from a file of its own.
    """
    own = OWN | {"model.init_digest"} if after_another else OWN
    found = {key: value for key, value in flat(resolved).items() if key not in own and value != {}}
    if found.get("optimizer.name") != "muon":
        found.pop("optimizer.matrix_lr", None)  # a number that nothing uses
    if draw and isinstance(seed := found.get("data.split_seed"), int):
        found["data.split_seed"] = seed - draw
    return found


def differing(before: Values, now: Values) -> list[Differing]:
    """Keys that do not agree. One that only the present version knows was not used, and counts where it is now."""
    usual = _unused(now)
    return [
        Differing(key, brief(before[key]) if key in before else "not there", brief(now[key]))
        for key in now
        if now[key] != before.get(key, usual.get(key))
    ] + [
        Differing(key, brief(before[key]), "not there")
        for key in before
        if key not in now and key.startswith(("aux.", "model.kwargs."))
    ]


def _unused(now: Values) -> dict[str, Any]:
    """What this version takes where nothing is said."""
    bare = Recipe.model_validate({"objective": {"name": now["objective.name"]}})
    whole = Recipe.model_validate({"objective": all_options(bare)["objective"]})
    return flat(whole.model_dump(mode="json"))


def check_alike(before: Values, now: Values, arm: str, began: str) -> None:
    """Refuse a run that would be trained otherwise than those of its arm. `began`: the version that began the study."""
    if not (found := differing(before, now)):
        return
    told = [f"{one.key} ({one.before} in its runs, {one.now} now)" for one in found[:MOST_TOLD]]
    more = f" and {len(found) - MOST_TOLD} more" if len(found) > MOST_TOLD else ""
    raise RunError(
        f"{arm} would be trained otherwise than the runs that it has, which are one arm with it: {', '.join(told)}{more}; finish the study "
        f"with the smallvit{f' {began}' if began else ''}, the images and the kind of machine that began it, or begin anew with "
        "--overwrite or another --out"
    )

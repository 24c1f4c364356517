"""Findings about pictures that are there more than once: between parts, within one, under different labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Set

from smallvit.checking import rules
from smallvit.checking.near_duplicates.search import MOST_PICTURES, RUNGS, SMALLEST_SIDE, Duplicates
from smallvit.checking.rules import Problem, problem, share
from smallvit.console import are
from smallvit.data.imageset import ImageSet
from smallvit.data.split import PART_ADJECTIVES, Split


def copies(images: ImageSet, split: Split | None, duplicates: Duplicates, same_bytes: Set[int]) -> Iterator[Problem]:
    """`same_bytes` are rows whose file is byte for byte that of an earlier row."""
    part_of = _part_of(images, split)
    exact = {row: number for number, group in enumerate(duplicates.exact) for row in group}
    for earlier, later in (("train", "left_out"), ("train", "test"), ("train", "val"), ("val", "test")):
        yield from _leak(images, duplicates, part_of, exact, earlier, later)
    yield from _conflicts(images, duplicates, exact)
    # A picture under two labels is told of once: the conflict weighs more than the copy.
    agreed = [group for group in duplicates.groups if len(_labels(images, group)) == 1]
    if inside := [group for group in agreed if len({part_of.get(row, "") for row in group}) == 1]:
        extra = sum(len(group) - 1 for group in inside)
        bytewise_count = sum(row in same_bytes for group in inside for row in group)
        where = Counter(part_of.get(group[0], "") for group in inside)
        places = ", ".join(f"{n:,} in the {PART_ADJECTIVES[p]} part" for p, n in where.items() if p) or "no parts"
        bytewise = f"; {are(bytewise_count, 'file')} byte for byte the same as another" if bytewise_count else ""
        yield problem(
            "duplicates",
            f"{are(extra, 'image')} copied from others of the same part (groups: {places}){bytewise}",
            "Keep one of each: copies count twice, in training and in the accuracy.",
            [_pair(images, exact, group[0], row) for group in inside for row in group[1:]],
        )


def _part_of(images: ImageSet, split: Split | None) -> dict[int, str]:
    parts = split.parts if split else images.parts
    return {row: name for name, rows in parts.items() for row in rows.tolist()}


def _leak(
    images: ImageSet, duplicates: Duplicates, part_of: dict[int, str], exact: dict[int, int], earlier: str, later: str
) -> Iterator[Problem]:
    """Images of the part `other` that are in the part `one` too."""
    pairs: list[tuple[int, int]] = []
    for group in duplicates.groups:
        known_rows = [row for row in group if part_of.get(row) == earlier]
        if known_rows:
            pairs += [(row, _closest(row, known_rows, exact)) for row in group if part_of.get(row) == later]
    if not pairs:
        return
    total = sum(name == later for name in part_of.values())
    identical = sum(_same(exact, *pair) for pair in pairs)
    own = bool(images.parts) and {earlier, later} <= {*images.parts}
    advice = (
        "Remove them from one of the parts: the accuracy counts what the model has learnt by heart."
        if own
        else "smallvit divides this set itself, and copies fall on both sides: keep one of each, or give the set parts of "
        "its own (train, val, test) in which pictures that belong together (bursts, crops, augmented copies) stay together."
    )
    yield problem(
        "leak",
        f"{are(len(pairs), PART_ADJECTIVES[later] + ' image', total)} ({share(len(pairs), total)}) also in the "
        f"{PART_ADJECTIVES[earlier]} part: {identical:,} identical, {len(pairs) - identical:,} nearly",
        advice,
        [_pair(images, exact, *pair) for pair in pairs],
    )


def _closest(row: int, others: list[int], exact: dict[int, int]) -> int:
    return next((other for other in others if _same(exact, row, other)), others[0])


def _same(exact: dict[int, int], row: int, twin: int) -> bool:
    return row in exact and exact[row] == exact.get(twin)


def _pair(images: ImageSet, exact: dict[int, int], row: int, twin: int) -> str:
    sign = "=" if _same(exact, row, twin) else "~"
    return f"{images.files[row]} {sign} {images.files[twin]}"


def _labels(images: ImageSet, group: list[int]) -> set[int]:
    return {*images.labels_N[group].tolist()}


def _conflicts(images: ImageSet, duplicates: Duplicates, exact: dict[int, int]) -> Iterator[Problem]:
    groups = [group for group in duplicates.groups if len(_labels(images, group)) > 1]
    if not groups:
        return
    labels = images.labels_N.tolist()
    touched = sum(map(len, groups))
    pairs = []
    for group in groups:
        other = next(row for row in group if labels[row] != labels[group[0]])
        pairs.append(_pair(images, exact, group[0], other))
    yield problem(
        "many-conflicts" if touched > rules.MOST_CONFLICTS * len(images) else "conflicts",
        f"{are(len(groups), 'picture')} there under different labels ({touched:,} images, {share(touched, len(images))})",
        "Decide which label is right, and remove the others.",
        pairs,
    )


def search(images: ImageSet, duplicates: Duplicates) -> Iterator[Problem]:
    """What the search for near copies could not do."""
    side = images.images_NCSS.shape[-1]
    if duplicates.rung is None and len(images) > 1:
        reason = (
            f"{side} px images hold too little to tell a copy from a likeness"
            if side < SMALLEST_SIDE
            else f"{len(images):,} images are more than {MOST_PICTURES:,}"
            if len(images) > MOST_PICTURES
            else "it was left out"
        )
        yield problem(
            "near-not-searched", f"near copies were not looked for: {reason}", "Identical images were looked for."
        )
    elif duplicates.rung == len(RUNGS) - 1:
        yield problem(
            "look-alikes",
            "the pictures look so much alike that unrelated ones match: only nearly identical ones count as copies",
            "Digits and drawings are like that. Where pictures come in series (video, one object), put each series into one "
            "part yourself.",
        )

"""Which pictures are the same: exactly, or nearly (re-encoded, resized, brightened, mirrored, slightly cropped or turned).

Whitened 8 x 8 thumbnails propose the likeliest partners of every picture. Each proposal is registered, the one picture
laid over the other, and then pixels decide. How strict they must be, the set itself says: as a control, the same search
among upside-down and squeezed pictures, which are no copies, must find next to nothing, and pairs taken at random must
not match. Thresholds and evidence: docs/decisions/003-near-duplicates.md.
N pictures, P pairs, S side, V start transforms.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from smallvit.checking.near_duplicates.registration import (
    SQUEEZED,
    UPSIDE_DOWN,
    crop_starts,
    describe,
    inverse,
    judge,
    pixel_correlation,
    plausible,
    register,
    squeezed,
)
from smallvit.console import Advance, bar
from smallvit.data.imageset import Images
from smallvit.randomness import generator

SMALLEST_SIDE = 16  # smaller pictures hold too little to tell a copy from a likeness
SIDES, STEPS = (16, 32, 64), (6, 4, 2)  # registered at each side in turn, judged at the last
MOST_FOR_CROPS = 15_000  # larger sets are searched for whole pictures only: the time grows with the square
MOST_PICTURES = 60_000  # even larger ones for exact copies only
PER_PICTURE, AT_LEAST = 1.0, 4_000  # proposals that are looked at closely
GIVE_UP = (0.8, 0.92)  # pixel correlation after the first and the second registration
HOPE = (0.93, 0.70, 0.30)  # scores from which a second try, the other way round, is worth its time
BLANK = 2  # grey levels between the darkest and the brightest pixel

# Correlation of pixels, of detail (without a blurred copy), and within most small windows. The lowest rung that passes
# the controls holds; the last one holds in any case.
RUNGS = ((0.97, 0.85, 0.70), (0.98, 0.90, 0.75), (0.985, 0.93, 0.80), (0.99, 0.96, 0.90), (0.998, 0.99, 0.97))
LAST = len(RUNGS) - 1
MOST_UPSIDE_DOWN, MOST_SQUEEZED = 0.05, 0.002  # for each pair that was found
MOST_RANDOM, RANDOM = 0.25, 500  # of pairs taken at random: where these match, all pictures look alike
RECOLOURED = 2  # the rung for pairs of another tint: lettering and silhouettes come in many colours
OTHER_TINT = 12  # levels between the mean tints of two pictures


class Pair(NamedTuple):
    first: int
    second: int
    correlation: float
    mirrored: bool


class Duplicates(NamedTuple):
    exact: list[list[int]]  # rows with identical pixels
    near: list[Pair]  # each by the first row of its exact group
    groups: list[list[int]]  # rows that exact and near pairs tie together
    proposed: int  # pairs that were compared closely
    rung: int | None  # of RUNGS; None: near copies were not looked for


class Scan(NamedTuple):
    """One look at every picture."""

    digests: list[bytes]
    blank_N: Tensor  # of a single colour: copies of nothing
    colourless_N: Tensor  # three equal channels
    tint_NC: Tensor  # mean of each channel, less the mean of all
    thumbnails_N1SS: Tensor | None  # uint8, grey; None where near copies are not looked for


def scan(images_NCSS: Images, near: bool = True) -> Scan:
    n, channels, side = images_NCSS.shape[0], images_NCSS.shape[1], min(SIDES[-1], images_NCSS.shape[-1])
    near = near and side >= SMALLEST_SIDE and n <= MOST_PICTURES
    digests: list[bytes] = []
    blank, colourless, tint, thumbnails = [], [], [], []
    with bar("looking at every image", n) as advance:
        for rows in torch.arange(n).split(512):
            pixels = images_NCSS[rows]
            digests += [hashlib.blake2b(image, digest_size=16).digest() for image in pixels.contiguous().numpy()]
            blank.append((pixels.amax((2, 3)).int() - pixels.amin((2, 3)).int() <= BLANK).all(1))
            colourless.append((pixels == pixels[:, :1]).all(dim=(1, 2, 3)) & (channels == 3))
            means_NC = pixels.float().mean((2, 3))
            tint.append(means_NC - means_NC.mean(1, keepdim=True))
            if near:
                thumbnails.append(thumbnail(pixels.float().mean(1, keepdim=True), side))
            advance(len(rows))
    columns = torch.cat(blank), torch.cat(colourless), torch.cat(tint)
    return Scan(digests, *columns, torch.cat(thumbnails) if near else None)


def thumbnail(pictures_N1SS: Tensor, side: int) -> Tensor:
    return F.interpolate(pictures_N1SS.float(), (side, side), mode="bilinear", antialias=True).round().byte()


def find_duplicates(looked_at: Scan) -> Duplicates:
    exact = exact_groups(looked_at)
    links = [(group[0], row) for group in exact for row in group[1:]]
    later = {row for _, row in links} | set(looked_at.blank_N.nonzero()[:, 0].tolist())
    rows = torch.tensor([row for row in range(len(looked_at.digests)) if row not in later], dtype=torch.int64)
    if looked_at.thumbnails_N1SS is None or len(rows) < 2:
        return Duplicates(exact, [], exact, 0, None)
    near, proposed, rung = near_pairs(looked_at.thumbnails_N1SS[rows], looked_at.tint_NC[rows], rows)
    return Duplicates(exact, near, connected([*links, *((p.first, p.second) for p in near)]), proposed, rung)


def exact_groups(looked_at: Scan) -> list[list[int]]:
    groups: dict[bytes, list[int]] = defaultdict(list)
    for row, digest in enumerate(looked_at.digests):
        if not looked_at.blank_N[row]:
            groups[digest].append(row)
    return [group for group in groups.values() if len(group) > 1]


def connected(links: list[tuple[int, int]]) -> list[list[int]]:
    """The groups that links tie together, each in order."""
    leader: dict[int, int] = {}

    def find(row: int) -> int:
        while (up := leader.setdefault(row, row)) != row:
            leader[row] = row = leader[up]
        return row

    for first, second in links:
        leader[find(first)] = find(second)
    groups: dict[int, list[int]] = defaultdict(list)
    for row in sorted(leader):
        groups[find(row)].append(row)
    return sorted(groups.values())


# ---- near pairs --------------------------------------------------------------------------------------


class Proposals(NamedTuple):
    first_P: Tensor
    second_P: Tensor
    transform_P23: Tensor  # where a point of the first picture lies in the second; both span -1..1

    def keep(self, which: Tensor) -> Proposals:
        return Proposals(self.first_P[which], self.second_P[which], self.transform_P23[which])


def near_pairs(thumbnails_N1SS: Tensor, tint_NC: Tensor, rows: Tensor) -> tuple[list[Pair], int, int]:
    """Pairs of `rows`, how many were compared, and the rung that they had to reach."""
    largest, most = thumbnails_N1SS.shape[-1], max(AT_LEAST, int(PER_PICTURE * len(rows)))
    pictures = [torch.cat([thumbnail(s, min(side, largest)) for s in thumbnails_N1SS.split(2048)]) for side in SIDES]
    with bar("looking for near copies", 100) as advance:
        proposals = propose(pictures[0], crop_starts(crops=len(rows) <= MOST_FOR_CROPS), most, advance, 50)
        confirmed, scores = confirm(pictures, proposals, plausible, advance, 30)
        _, random_scores = confirm(pictures, random_pairs(len(rows)), plausible, advance, 2)
        flipped, flipped_scores = _control(pictures, UPSIDE_DOWN, plausible, most // 2, advance)
        squeezed_scores = scores[:0]
        if reaches(flipped_scores, 0).sum() > MOST_UPSIDE_DOWN * reaches(scores, 0).sum():
            _, squeezed_scores = _control(pictures, SQUEEZED, squeezed, most // 2, advance)
    rung = lowest_rung(scores, random_scores, flipped_scores, squeezed_scores)
    recoloured_P = (tint_NC[confirmed.first_P] - tint_NC[confirmed.second_P]).abs().amax(1) > OTHER_TINT
    good = reaches(scores, rung) & (reaches(scores, RECOLOURED) | ~recoloured_P)
    pairs = _pairs(confirmed.keep(good), scores[good], rows)
    # Many upside-down matches in a set that passes are no chance: it holds flipped copies. So is a perfect match.
    many = rung < LAST and reaches(flipped_scores, rung).sum() > MOST_UPSIDE_DOWN * reaches(scores, rung).sum()
    good = reaches(flipped_scores, rung if many else LAST)
    pairs += _pairs(flipped.keep(good), flipped_scores[good], rows)
    return pairs, len(proposals.first_P), rung


def _control(
    pictures: list[Tensor], starts_V23: Tensor, fits: Fits, most: int, advance: Advance
) -> tuple[Proposals, Tensor]:
    return confirm(pictures, propose(pictures[0], starts_V23, most, advance, 5), fits, advance, 10)


def random_pairs(n: int) -> Proposals:
    draw = generator(0, "pairs at random")
    first = torch.randint(n, (RANDOM,), generator=draw)
    second = (first + torch.randint(1, n, (RANDOM,), generator=draw)) % n
    return Proposals(first, second, torch.eye(2, 3).repeat(RANDOM, 1, 1))


def lowest_rung(scores_P3: Tensor, random_P3: Tensor, flipped_P3: Tensor, squeezed_P3: Tensor) -> int:
    """Chance likenesses show in both controls; flipped copies, which augmenting leaves behind, in the first only."""
    if reaches(random_P3, 0).sum() > MOST_RANDOM * RANDOM:
        return LAST
    for rung in range(LAST):
        matches, flips, squeezes = (reaches(scores, rung).sum() for scores in (scores_P3, flipped_P3, squeezed_P3))
        if flips <= MOST_UPSIDE_DOWN * matches or squeezes <= MOST_SQUEEZED * matches:
            return rung
    return LAST


def reaches(scores_P3: Tensor, rung: int) -> Tensor:
    return (scores_P3 >= torch.tensor(RUNGS[rung])).all(1)


def _pairs(confirmed: Proposals, scores_P3: Tensor, rows: Tensor) -> list[Pair]:
    columns = (
        rows[confirmed.first_P].tolist(),
        rows[confirmed.second_P].tolist(),
        scores_P3[:, 0].tolist(),
        (torch.linalg.det(confirmed.transform_P23[:, :, :2]) < 0).tolist(),
    )
    return [Pair(min(a, b), max(a, b), min(c, 1.0), m) for a, b, c, m in zip(*columns, strict=True)]


def propose(pictures_N1SS: Tensor, starts_V23: Tensor, most: int, advance: Advance, ticks: int) -> Proposals:
    """The most similar pairs: every picture's best partners under each start transform, the best `most` of these.

    Whitening takes out what the pictures of the set have in common: a shared layout proposes nothing.
    """
    whole = describe(pictures_N1SS, torch.eye(2, 3))
    values, vectors = torch.linalg.eigh((whole.T @ whole).double() / len(whole))
    whiten = (vectors * values.clamp_min(1e-4 * float(values.max()) + 1e-9) ** -0.5).float()
    queries = F.normalize(whole @ whiten, dim=1)
    n = len(queries)
    k = max(1, min(n - 1, most // (n * len(starts_V23))))  # one, but for small sets
    score, best = [], []
    for start in starts_V23:
        keys = F.normalize(describe(pictures_N1SS, start) @ whiten, dim=1)
        for begin in range(0, n, 1024):
            similarity = queries[begin : begin + 1024] @ keys.T
            similarity.diagonal(begin).fill_(-1)  # not with itself
            top = similarity.max(1) if k == 1 else similarity.topk(k, 1)
            score.append(top.values.flatten())
            best.append(top.indices.flatten())
        advance(ticks / len(starts_V23))
    first, second = torch.arange(n).repeat_interleave(k).repeat(len(starts_V23)), torch.cat(best)
    order = torch.cat(score).argsort(descending=True)
    ends = torch.minimum(first, second) * n + torch.maximum(first, second)
    _, once = np.unique(ends[order].numpy(), return_index=True)  # the best-scored of each pair
    kept = order[torch.from_numpy(np.sort(once))[:most]]
    return Proposals(first[kept], second[kept], starts_V23[kept // (n * k)])


Fits = Callable[[Tensor], Tensor]  # which transforms (P, 2, 3) may be


def confirm(
    pictures: list[Tensor], proposals: Proposals, fits: Fits, advance: Advance, ticks: int
) -> tuple[Proposals, Tensor]:
    """Register coarse to fine, giving up early on what does not fit; then the three scores of what is left."""
    confirmed, scores = [], []
    parts = torch.arange(len(proposals.first_P)).split(1024)
    for part in parts:
        some, score = _confirm_some(pictures, proposals.keep(part), fits)
        confirmed.append(some)
        scores.append(score)
        advance(ticks / len(parts))
    return Proposals(*(torch.cat(column) for column in zip(*confirmed, strict=True))), torch.cat(scores)


def _confirm_some(pictures: list[Tensor], some: Proposals, fits: Fits) -> tuple[Proposals, Tensor]:
    for level, pixels in enumerate(pictures):
        first, second = pixels[some.first_P].float(), pixels[some.second_P].float()
        some = some._replace(transform_P23=register(first, second, some.transform_P23, STEPS[level]))
        if level < len(GIVE_UP):
            some = some.keep(pixel_correlation(first, second, some.transform_P23) > GIVE_UP[level])
        if not len(some.first_P):
            return some, torch.zeros(0, 3)
    scores = judge(first, second, some.transform_P23) * fits(some.transform_P23)[:, None]
    near = (scores > torch.tensor(HOPE)).all(1)
    if near.any():
        scores[near] = _better_way(first[near], second[near], some.transform_P23[near], scores[near], fits)
    return some, scores


def _better_way(first_P1SS: Tensor, second_P1SS: Tensor, there_P23: Tensor, scores_P3: Tensor, fits: Fits) -> Tensor:
    """The way back may fit where the way there got stuck, or sees a crop enlarged instead of a whole reduced."""
    back_P23 = register(second_P1SS, first_P1SS, inverse(there_P23), STEPS[0])
    back_P3 = judge(second_P1SS, first_P1SS, back_P23) * fits(back_P23)[:, None]
    return torch.where((back_P3.sum(1) > scores_P3.sum(1))[:, None], back_P3, scores_P3)

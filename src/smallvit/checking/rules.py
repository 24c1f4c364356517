"""What counts as an error, a warning or a note: one table, and the limits behind it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

Severity = Literal["error", "warning", "note"]

MOST_CONFLICTS = 0.01  # share of images that are under two labels
MOST_IMBALANCE = 5  # times as many training images in the largest class as in the smallest
FEW_IMAGES = 10  # training images of a class
WIDEST_INTERVAL = 0.10  # half of the 95 % interval, at the accuracy where it is widest
MOST_SIZE_SPREAD = 4  # times between the small and the large shorter sides (5th and 95th percentile)
LONG_SHAPE = 2  # times as long as wide
MOST_ENLARGED = 1.25  # times the size of the file, as far as smallvit's own choice of a size goes
NOTABLE_SHARE = 0.1  # of the images, for shape and enlarging
FEW_TOKENS = 4  # per side
HUGE_PIXELS = 50_000_000
MOST_IGNORED = 0.05  # of all files

# Errors spoil the result, or keep it from coming about; warnings make it worse than it could be; notes are good to know.
RULES: dict[str, Severity] = {
    "leak": "error",  # the same picture in two parts
    "torn-groups": "error",  # images of one patient or video in two parts
    "many-conflicts": "error",  # the same picture under different labels, beyond MOST_CONFLICTS
    "one-class": "error",  # fewer than two classes
    "untrained-class": "error",  # a class without training images
    "many-unreadable": "error",  # beyond the share at which training stops
    "large-batch": "error",  # larger than the training part: training refuses it
    "unusable": "error",  # anything else at which training would stop
    "conflicts": "warning",
    "duplicates": "warning",  # within one part
    "imbalance": "warning",
    "few-images": "warning",
    "small-test": "warning",
    "no-test": "warning",
    "unreadable": "warning",
    "empty-class": "warning",  # a class folder without images
    "outside-classes": "warning",  # images that belong to no class, and folders that are only linked
    "ignored-files": "warning",  # more than MOST_IGNORED have a suffix that is not read
    "blank": "warning",
    "sizes": "warning",
    "shapes": "warning",
    "enlarged": "warning",  # images smaller than the training size
    "some-grey": "warning",
    "few-tokens": "warning",
    "groups-in-names": "warning",  # images of one patient or video may be torn apart
    "other-files": "note",
    "huge-files": "note",
    "stored-colour": "note",  # grey pictures with three channels
    "near-not-searched": "note",
    "look-alikes": "note",  # unrelated pictures match: only nearly identical ones count as copies
}


class Problem(NamedTuple):
    severity: Severity
    code: str
    message: str  # what is the matter, with numbers
    advice: str  # what to do
    files: tuple[str, ...] = ()  # all of them, or "one = other" for pairs


def problem(code: str, message: str, advice: str, files: Sequence[str] = ()) -> Problem:
    return Problem(RULES[code], code, message, advice, tuple(files))


def listed(names: Sequence[str], most: int = 5) -> str:
    """a, b, c and 4 more"""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def share(part: int, whole: int) -> str:
    """12 of 300 images ... (4 %)"""
    percent = 100 * part / max(whole, 1)
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:.2g} %"

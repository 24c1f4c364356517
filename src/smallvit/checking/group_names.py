"""File names that look as if images belonged together, where nobody said so: patient01_003.png, videoA_frame12.jpg.

Numbering alone (img_0001.jpg, cat.12.jpg, a date with a time) is no group. Three kinds of names are one:

- a word that means something photographed several times, with what tells one from another: patient01, video-A, scene_X;
- a name with a digit in it before the number of the image, where these numbers begin anew: p01_3, p01_4, p02_1;
- folders below that of the class: cat/0012/1.png.

In each of them most groups have several images, and classes have several groups, or else the name is that of the class.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath
from typing import NamedTuple

from smallvit.checking.rules import Problem, problem
from smallvit.data.imageset import ImageSet

WORDS = (
    "patient|participant|subject|subj|sub|person|donor|animal|mouse|plant|tree|specimen|slide|series|study|case|session|visit|"
    "video|vid|clip|movie|scene|seq|sequence|shot|burst|track|camera|cam|site|plot|location|station"
)
NO_GROUPS = {"train", "test", "val", "valid", "batch", "fold", "part", "split", "shard", "class", "label", "set"}
MATCHING = 0.95  # of the files
IN_COMPANY = 0.8  # of the files, in groups of two and more
LEAST_GROUPS = 5  # where no word speaks for them
MOST_GROUP = 0.6  # of the files, in the largest
SHOWN = 3

_WORD = re.compile(rf"(?<![a-z])({WORDS})[-_. ]?(\d+[a-z]?|[a-z]\d*)(?![a-z0-9])", re.IGNORECASE)
_NUMBERED = re.compile(r"(.*\d.*)[-_. ]([a-z]*\d+)", re.IGNORECASE)


class Found(NamedTuple):
    pattern: str  # for --groups
    groups_N: list[str | None]


def groups_in_names(images: ImageSet) -> Iterator[Problem]:
    if images.groups:
        return
    labels = [images.class_names[label] for label in images.labels_N.tolist()]
    names = [name.replace("\\", "/") for name in images.files]
    if found := look_for_groups(names, labels):
        sizes = Counter(group for group in found.groups_N if group is not None)
        largest = [
            name for name, group in zip(names, found.groups_N, strict=True) if group == sizes.most_common(1)[0][0]
        ]
        yield problem(
            "groups-in-names",
            f"the file names look like {len(sizes):,} groups of up to {max(sizes.values()):,} images that belong together, as "
            f"{', '.join(largest[:SHOWN])}",
            f"If they are of one patient, scene or video, give --groups '{found.pattern}' to every command: else some train, others "
            "judge, and the accuracy flatters.",
        )


def look_for_groups(names: Sequence[str], labels: Sequence[str]) -> Found | None:
    """The expression that finds groups in these paths; None where they are numbered, or named by what they show."""
    inside = [_below_class(name, label) for name, label in zip(names, labels, strict=True)]
    for candidate in (_by_word(inside), _by_number(inside), _by_folder(inside)):
        if candidate and _convinces(found := _applied(candidate, names), labels):
            return found
    return None


def _below_class(name: str, label: str) -> str:
    """The path without the folder of the class, and without those above it."""
    parts = PurePosixPath(name).parts
    places = [place for place, part in enumerate(parts[:-1]) if part == label]
    return "/".join(parts[places[-1] + 1 :] if places else parts)


def _by_word(inside: Sequence[str]) -> str | None:
    found = [_WORD.search(name.rpartition(".")[0]) for name in inside]
    words = Counter(match[1].lower() for match in found if match)
    if not words or words.total() < MATCHING * len(inside):
        return None
    (word, count), *_ = words.most_common()
    return rf"(?i:(?<![a-z]){word})[-_. ]?([A-Za-z0-9]+)" if count >= MATCHING * len(inside) else None


def _by_number(inside: Sequence[str]) -> str | None:
    stems = [PurePosixPath(name).stem for name in inside]
    found = [match for stem in stems if (match := _NUMBERED.fullmatch(stem))]
    if len(found) < MATCHING * len(stems):
        return None
    words = {word.lower() for match in found for word in re.findall(r"[A-Za-z]+", match[1])}
    numbers, keys = {match[2].lower() for match in found}, {match[1] for match in found}
    if words & NO_GROUPS or len(numbers) > len(stems) / 2 or len(keys) < LEAST_GROUPS:
        return None  # parts of a set; numbers that go on; too few to tell from chance
    return r"([^/]*\d[^/]*)[-_. ][A-Za-z]*\d+\.[^./]+$"


def _by_folder(inside: Sequence[str]) -> str | None:
    folders = [PurePosixPath(name).parent.name for name in inside]
    if not all(folders) or len(set(folders)) < LEAST_GROUPS or set(map(str.lower, folders)) & NO_GROUPS:
        return None
    return r"([^/]+)/[^/]+$"


def _applied(pattern: str, names: Sequence[str]) -> Found:
    """As --groups does."""
    compiled = re.compile(pattern)
    return Found(pattern, [match[1] if (match := compiled.search(name)) else None for name in names])


def _convinces(found: Found, labels: Sequence[str]) -> bool:
    """All files have a group, most of them in company, no group is nearly all, and half of the classes have several."""
    sizes = Counter(group for group in found.groups_N if group is not None)
    n = len(labels)
    if not sizes or sizes.total() < n or len(sizes) < 2 or max(sizes.values()) > MOST_GROUP * n:
        return False
    if sum(size for size in sizes.values() if size > 1) < IN_COMPANY * n:
        return False
    of_class: dict[str, set[str | None]] = defaultdict(set)
    for label, group in zip(labels, found.groups_N, strict=True):
        of_class[label].add(group)
    return sum(len(groups) > 1 for groups in of_class.values()) >= len(of_class) / 2

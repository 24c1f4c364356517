"""Groups that file names tell (`--groups REGEX`): one patient, scene or video, whose images must stay together."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

from smallvit.console import several
from smallvit.data.imageset import ImageSet
from smallvit.errors import UsageError

SECONDS = 20.0  # an expression that takes longer would take for ever
SHOWN = 3

# Matching runs in a process of its own: some expressions take exponential time, and Python cannot stop them otherwise.
_MATCH = """
import json, re, sys
pattern, names = json.load(sys.stdin)
found = [re.search(pattern, name) for name in names]
json.dump([m and (m[m.re.groups] or m[0] or None) for m in found], sys.stdout)
"""


def with_groups(images: ImageSet, pattern: str) -> ImageSet:
    """The same images; the group of each is what `pattern` finds in its path: its bracket, or else the whole match."""
    if not pattern:
        return images
    if images.groups:
        raise UsageError(f"--groups {pattern}: {images.source} has a column group already; leave one of the two out")
    found = _found(pattern, [name.replace(os.sep, "/") for name in images.files])
    if unmatched := [file for file, group in zip(images.files, found, strict=True) if group is None]:
        # What is matched before it must not become a part of the group: without a bracket it would.
        in_front = re.match(r"\(\?[aiLmsux]+\)", pattern)  # flags must stay there
        flags = in_front[0] if in_front else ""
        bare = pattern.removeprefix(flags)
        inner = f"(?:{bare})" if re.compile(pattern).groups else f"({bare})"
        raise UsageError(
            f"--groups {pattern}: {several(len(unmatched), 'file', len(images))} without a match, as {', '.join(unmatched[:SHOWN])}"
            f"; to make each of these a group of its own: --groups '{flags}.*?{inner}|.+'"
        )
    return replace(images, groups=tuple(map(str, found)))


def _found(pattern: str, names: list[str]) -> list[str | None]:
    command = [sys.executable, "-I", "-c", _MATCH]
    try:
        done = subprocess.run(
            command, input=json.dumps([pattern, names]), capture_output=True, text=True, check=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"--groups {pattern}: still not done with {len(names):,} names after {SECONDS:.0f} s; repetitions inside "
            "repetitions, as in (a+)+, take for ever: write it without"
        ) from None
    found: list[str | None] = json.loads(done.stdout)
    return found

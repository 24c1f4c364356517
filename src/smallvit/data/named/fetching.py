"""Fetching a file of a named set: over the network only when asked, never trusted before its digest was seen."""

from __future__ import annotations

import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from pathlib import Path

from smallvit.console import bar, say
from smallvit.data.named.declared import Remote
from smallvit.data.named.unpacking import is_archive, unpack
from smallvit.errors import DataError

SCHEMES = ("https://", "http://", "file://")
CHUNK = 1 << 20
TIMEOUT_SECONDS = 60
LARGER = 1.1  # than the stated size: then it is another file
UNPACKED = 4.0  # times its own size: images hardly shrink in an archive
SLACK_BYTES = 64 << 20


def fetch(remote: Remote, folder: Path) -> None:
    """What `remote` makes, below `folder`. A file that lies there already is used if it is the right one."""
    if (folder / remote.makes).exists():
        return
    place = folder / remote.into
    _make_folder(place)
    given = next((path for path in (place / remote.file, folder / remote.file) if path.is_file()), None)
    archive = given or _download(remote, place / remote.file)
    if given:
        _verify(remote, given)
    if not is_archive(archive):
        if archive != folder / remote.makes:
            (shutil.copyfile if given else os.replace)(archive, folder / remote.makes)
        return
    most = int(archive.stat().st_size * UNPACKED) + SLACK_BYTES
    unpack(archive, place, most)
    if not given:
        archive.unlink()
    if not (folder / remote.makes).exists():
        raise DataError(f"{archive.name} was unpacked into {place}, but {folder / remote.makes} is not there")


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot make {folder}: {error.strerror}") from None


def _download(remote: Remote, path: Path) -> Path:
    """The file at `path`, once it is whole and its digest is right."""
    if not remote.url.startswith(SCHEMES):
        raise DataError(f"{remote.url}: only http, https and file addresses are fetched")
    most = int(remote.megabytes * 1e6 * LARGER) + CHUNK
    if (free := shutil.disk_usage(path.parent).free) < 2 * most:
        raise DataError(f"no room in {path.parent}: {free / 1e6:,.0f} MB are free, {2 * most / 1e6:,.0f} are needed")
    kind, _, _ = remote.digest.partition(":")
    alone = ", the only digest of it that we know" if kind == "md5" else ""
    say(f"fetching {remote.url} ({remote.megabytes:,.0f} MB), checked by {kind}{alone}")
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        _copy(remote, part, most)
        _verify(remote, part, f"what {remote.url} sent")
        part.replace(path)
    except (OSError, urllib.error.URLError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
        raise DataError(
            f"cannot fetch {remote.url}: {reason}. Fetch it by other means and put it into {path.parent}; "
            "--download then unpacks it"
        ) from None
    finally:
        part.unlink(missing_ok=True)
    return path


def _copy(remote: Remote, part: Path, most: int) -> None:
    request = urllib.request.Request(remote.url, headers={"User-Agent": "smallvit"})
    done = 0
    with (
        urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer,
        part.open("xb") as file,
        bar(f"fetching {remote.file}", round(remote.megabytes)) as advance,
    ):
        while chunk := answer.read(CHUNK):
            done += len(chunk)
            if done > most:
                raise DataError(f"{remote.url} sends more than the {remote.megabytes:,.0f} MB that it should: stopped")
            file.write(chunk)
            advance(len(chunk) / 1e6)


def _verify(remote: Remote, path: Path, called: str = "") -> None:
    kind, _, expected = remote.digest.partition(":")
    found = hashlib.new(kind, usedforsecurity=False)
    with path.open("rb") as file, bar(f"checking {remote.file}", path.stat().st_size) as advance:
        while chunk := file.read(CHUNK):
            found.update(chunk)
            advance(len(chunk))
    if found.hexdigest() != expected:
        raise DataError(
            f"{called or path} is not {remote.file} as it is known: its {kind} is {found.hexdigest()}, not {expected}. "
            "It is damaged or was changed: it was not used"
        )

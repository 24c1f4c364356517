"""Unpacking an archive of a stranger: nothing leaves the folder, and nothing but plain files within bounds comes out.

All is unpacked beside its place first, and renamed into it when it is whole.
"""

from __future__ import annotations

import os
import stat
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple

from smallvit.console import bar, warn
from smallvit.errors import DataError

MOST_FILES = 2_000_000
CHUNK = 1 << 20
TARS, ZIPS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"), (".zip",)


class Member(NamedTuple):
    name: str
    kind: str  # file | folder | link | other
    file: IO[bytes] | None = None
    target: PurePosixPath | None = None  # of a link, seen from the folder


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith((*TARS, *ZIPS))


def unpack(archive: Path, into: Path, most_bytes: int, most_files: int = MOST_FILES) -> None:
    """The plain files of the archive below `into`. Raises before anything is put there that should not be."""
    try:
        into.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".unpacking-", dir=into) as staged:
            _write_all(archive, Path(staged), most_bytes, most_files)
            _put(Path(staged), into)
    except (
        tarfile.TarError,
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        ValueError,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise DataError(f"{archive} cannot be unpacked: {error or type(error).__name__}") from None
    except OSError as error:
        raise DataError(f"{archive} cannot be unpacked into {into}: {error.strerror or error}") from None


def _write_all(archive: Path, staged: Path, most_bytes: int, most_files: int) -> None:
    left, links = most_bytes, 0
    with ExitStack() as stack, bar(f"unpacking {archive.name}", most_bytes) as advance:
        members = _tar_members(archive, stack) if archive.name.lower().endswith(TARS) else _zip_members(archive, stack)
        for number, member in enumerate(members):
            if number >= most_files:
                raise DataError(f"{archive} holds more than {most_files:,} files: it was not unpacked")
            place = _inside(archive, member.name)
            if member.kind == "link":
                _check_link(archive, member)
                links += 1
            elif member.kind == "other":
                raise DataError(f"{archive} holds {member.name!r}, which is a device or a pipe: it was not unpacked")
            elif member.kind == "folder":
                (staged / place).mkdir(parents=True, exist_ok=True)
            elif member.file:
                written = _write(archive, member, staged / place, left, most_bytes)
                left -= written
                advance(written)
    if links:
        warn(f"{archive.name}: {links} links were left out")


def _inside(archive: Path, name: str) -> PurePosixPath:
    """The path of a member below the folder; an error where it would lie elsewhere."""
    place = PurePosixPath(name.replace("\\", "/"))
    drive = len(name) > 1 and name[1] == ":"
    if place.is_absolute() or ".." in place.parts or drive or "\0" in name:
        raise DataError(f"{archive} holds {name!r}, which would be put outside of the folder: it was not unpacked")
    return place


def _check_link(archive: Path, member: Member) -> None:
    """Links are never made; one that leads out of the folder says that the archive means harm."""
    target = PurePosixPath(os.path.normpath(member.target or ""))
    if target.is_absolute() or ".." in target.parts:
        raise DataError(
            f"{archive} holds the link {member.name!r} to {str(member.target)!r}, outside of the folder: it was not unpacked"
        )


def _write(archive: Path, member: Member, path: Path, left: int, most_bytes: int) -> int:
    """Counted as it is written: what an archive says of its sizes is not believed."""
    written = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    assert member.file is not None
    with member.file as source, path.open("wb") as file:
        while chunk := source.read(CHUNK):
            written += len(chunk)
            if written > left:
                raise DataError(f"{archive} unpacks to more than {most_bytes / 1e6:,.0f} MB: it was not unpacked")
            file.write(chunk)
    return written


def _tar_members(archive: Path, stack: ExitStack) -> Iterator[Member]:
    tar = stack.enter_context(tarfile.open(archive, "r|*"))  # noqa: SIM115
    for info in tar:
        if info.isfile():
            yield Member(info.name, "file", tar.extractfile(info))
        elif info.isdir():
            yield Member(info.name, "folder")
        elif info.issym() or info.islnk():
            start = PurePosixPath(info.name).parent if info.issym() else PurePosixPath()
            yield Member(info.name, "link", target=start / info.linkname)
        else:
            yield Member(info.name, "other")


def _zip_members(archive: Path, stack: ExitStack) -> Iterator[Member]:
    packed = stack.enter_context(zipfile.ZipFile(archive))
    for info in packed.infolist():
        mode = info.external_attr >> 16  # as Unix has it; 0 where the archive was made elsewhere
        if info.is_dir():
            yield Member(info.filename, "folder")
        elif stat.S_ISLNK(mode):
            with packed.open(info) as file:
                target = file.read(4096).decode("utf-8", "replace")
            yield Member(info.filename, "link", target=PurePosixPath(info.filename).parent / target)
        elif stat.S_IFMT(mode) not in (0, stat.S_IFREG):
            yield Member(info.filename, "other")
        else:
            yield Member(info.filename, "file", packed.open(info))


def _put(staged: Path, into: Path) -> None:
    """Every entry by one rename. A folder that is there already is the user's: it is left alone."""
    entries = sorted(staged.iterdir())
    if taken := next((into / entry.name for entry in entries if (into / entry.name).is_dir()), None):
        raise DataError(f"{taken} is there already, and not whole: move it away and try again")
    for entry in entries:
        entry.replace(into / entry.name)

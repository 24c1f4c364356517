"""`--download`: from a server of this machine, with digests; archives of people who mean harm."""

from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from miniatures import BUILDERS, as_large_as

from helpers import QUICK, ends_well, fails, run_here
from smallvit.data.named.declared import Remote, named_sets
from smallvit.data.named.fetching import fetch
from smallvit.data.named.unpacking import is_archive, unpack
from smallvit.data.sources import Where, open_source
from smallvit.errors import DataError


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder, and its address on this machine."""
    (tmp_path / "served").mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "served")))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield tmp_path / "served", f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def packed(archive: Path, folder: Path) -> str:
    """An archive of all that is in a folder; returns its digest."""
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as zipped:
            for path in sorted(folder.rglob("*")):
                zipped.write(path, path.relative_to(folder))
    else:
        with tarfile.open(archive, "w:gz") as tar:
            for path in sorted(folder.iterdir()):
                tar.add(path, path.name)
    return "sha256:" + hashlib.sha256(archive.read_bytes()).hexdigest()


def published(name: str, place: tuple[Path, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The miniature of a set as its publisher would have it: archives and files of the same names, with their digests."""
    served, address = place
    made = tmp_path / "made"
    made.mkdir()
    BUILDERS[name][2](made)
    remotes = []
    for remote in named_sets()[name].remotes:
        if remote.file.endswith((".mat", ".txt")):
            content = (made / remote.makes).read_bytes()
            (served / remote.file).write_bytes(content)
            digest = f"md5:{hashlib.md5(content).hexdigest()}"
        else:
            only = tmp_path / "only" / remote.file
            target = only / Path(remote.makes).relative_to(remote.into)
            target.parent.mkdir(parents=True)
            (made / remote.makes).rename(target)
            digest = packed(served / remote.file, only)
        size = (served / remote.file).stat().st_size / 1e6
        remotes.append(remote._replace(url=f"{address}/{remote.file}", digest=digest, megabytes=size))
    monkeypatch.setitem(named_sets(), name, as_large_as(name, remotes=tuple(remotes)))


DOWNLOADABLE = sorted(name for name in BUILDERS if named_sets()[name].remotes)


@pytest.mark.parametrize("name", DOWNLOADABLE)
def test_download(name: str, served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    published(name, served, monkeypatch, tmp_path)
    folder = tmp_path / "fetched"
    with pytest.raises(DataError, match=f"{name} is not in {folder}"):
        open_source(Where(name, str(folder)))
    assert not folder.exists(), "nothing is fetched unless it is asked for"
    images = open_source(Where(name, str(folder), download=True)).load(8, "crop", 3)
    assert len(images) == sum(BUILDERS[name][0].values())
    left = {path.name for path in folder.rglob("*")} & {remote.file for remote in named_sets()[name].remotes}
    assert not any(map(is_archive, map(Path, left))), "archives are removed once they are unpacked"
    for path in served[0].iterdir():
        path.unlink()
    open_source(Where(name, str(folder), download=True))  # what is there is not fetched again


def test_train_with_download_stores_nothing_to_fetch(
    served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from smallvit import Run

    published("cifar100", served, monkeypatch, tmp_path)
    ends_well(
        run_here("train", "cifar100", "--data-dir", tmp_path / "d", "--download", *QUICK, "--out", tmp_path / "run")
    )
    data = Run(tmp_path / "run").recipe.data
    assert (data.source, data.dir, data.download) == ("cifar100", str(tmp_path / "d"), False)


def test_an_archive_that_lies_there_is_unpacked(
    served: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published("cub200", served, monkeypatch, tmp_path)
    folder = tmp_path / "d"
    folder.mkdir()
    (served[0] / "CUB_200_2011.tgz").rename(folder / "CUB_200_2011.tgz")
    assert run_here("check", "cub200", "--data-dir", folder, "--download", "--fast").status == 0
    assert (folder / "CUB_200_2011.tgz").is_file(), "what the user put there stays"


def test_sets_that_nobody_may_hand_on(tmp_path: Path) -> None:
    fails(
        run_here("train", "imagenet", "--data-dir", tmp_path, "--download"), 2, "cannot be downloaded", "image-net.org"
    )
    fails(run_here("train", str(tmp_path), "--download"), 2, "is no named set")


# ---- what is fetched ---------------------------------------------------------------------------------


def remote_of(served: tuple[Path, str], content: bytes = b"x" * 1000, **changes: object) -> Remote:
    (served[0] / "set.zip").write_bytes(content)
    usual = Remote(f"{served[1]}/set.zip", f"md5:{hashlib.md5(content).hexdigest()}", 0.001, "set")
    return usual._replace(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"digest": "sha256:" + "0" * 64}, "its sha256 is .*, not 0000"),
        ({"url": "ftp://127.0.0.1/set.zip"}, "only http, https and file addresses"),
        ({}, "cannot be unpacked"),
    ],
)
def test_what_is_not_as_it_should_be(
    changes: dict[str, object], message: str, served: tuple[Path, str], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=message):
        fetch(remote_of(served, **changes), tmp_path / "d")
    assert not (tmp_path / "d" / "set").exists()
    assert not [path for path in (tmp_path / "d").iterdir() if path.name.startswith(".")], "nothing half done is left"


def test_an_answer_that_is_too_large_is_cut_off(served: tuple[Path, str], tmp_path: Path) -> None:
    with pytest.raises(DataError, match="sends more than"):
        fetch(remote_of(served, b"x" * (4 << 20)), tmp_path)


def test_no_such_file_and_no_such_server(served: tuple[Path, str], tmp_path: Path) -> None:
    remote = remote_of(served)
    with pytest.raises(DataError, match=r"cannot fetch .*other\.zip: File not found.*put it into"):
        fetch(remote._replace(url=f"{served[1]}/other.zip"), tmp_path)
    with pytest.raises(DataError, match=r"cannot fetch http://127\.0\.0\.1:1/"):
        fetch(remote._replace(url="http://127.0.0.1:1/set.zip"), tmp_path)


def test_files_of_this_machine(served: tuple[Path, str], tmp_path: Path) -> None:
    (tmp_path / "in" / "set").mkdir(parents=True)
    (tmp_path / "in" / "set" / "a.txt").write_text("a")
    digest = packed(tmp_path / "set.zip", tmp_path / "in")
    fetch(Remote((tmp_path / "set.zip").as_uri(), digest, 0.001, "set"), tmp_path / "d")
    assert (tmp_path / "d" / "set" / "a.txt").read_text() == "a"


# ---- archives ----------------------------------------------------------------------------------------


def tar_with(path: Path, *members: tarfile.TarInfo) -> Path:
    with tarfile.open(path, "w:gz") as tar:
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size) if member.isfile() else None)
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 3) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size if kind == tarfile.REGTYPE else 0
    return info


BAD_TARS: dict[str, tuple[tarfile.TarInfo, str]] = {
    "above": (member("../evil"), "outside of the folder"),
    "inside and above": (member("a/../../evil"), "outside of the folder"),
    "absolute": (member("/tmp/evil"), "outside of the folder"),
    "drive": (member("C:\\evil"), "outside of the folder"),
    "backslashes": (member("..\\evil"), "outside of the folder"),
    "link out": (member("a", tarfile.SYMTYPE, "../../evil"), "the link 'a'"),
    "absolute link": (member("a", tarfile.SYMTYPE, "/etc/passwd"), "the link 'a'"),
    "hard link out": (member("a/b", tarfile.LNKTYPE, "../evil"), "the link 'a/b'"),
    "absolute hard link": (member("a", tarfile.LNKTYPE, "/etc/passwd"), "the link 'a'"),
    "device": (member("null", tarfile.CHRTYPE), "a device or a pipe"),
    "disk": (member("sda", tarfile.BLKTYPE), "a device or a pipe"),
    "pipe": (member("pipe", tarfile.FIFOTYPE), "a device or a pipe"),
}


@pytest.mark.parametrize("name", BAD_TARS)
def test_archives_that_mean_harm(name: str, tmp_path: Path) -> None:
    bad, message = BAD_TARS[name]
    archive = tar_with(tmp_path / "set.tar.gz", member("first"), bad)
    with pytest.raises(DataError, match=message):
        unpack(archive, tmp_path / "a" / "b", 1000)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "set.tar.gz"], "nothing of it was unpacked"


def test_a_link_that_stays_inside_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    links = (member("x/a", tarfile.SYMTYPE, "../file"), member("x/b", tarfile.LNKTYPE, "file"))
    unpack(tar_with(tmp_path / "set.tgz", member("file"), *links), tmp_path / "d", 1000)
    assert [path.name for path in (tmp_path / "d").rglob("*")] == ["file"]
    assert "2 links were left out" in capsys.readouterr().err


@pytest.mark.parametrize("ending", [".tar.gz", ".zip"])
def test_bombs(ending: str, tmp_path: Path) -> None:
    archive = tmp_path / f"set{ending}"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "zeros").write_bytes(bytes(8 << 20))
    for number in range(5):
        (tmp_path / "in" / str(number)).write_bytes(b"")
    packed(archive, tmp_path / "in")
    with pytest.raises(DataError, match="unpacks to more than 1 MB"):
        unpack(archive, tmp_path / "d", 1_000_000)
    with pytest.raises(DataError, match="holds more than 4 files"):
        unpack(archive, tmp_path / "d", 1 << 30, most_files=4)
    assert list((tmp_path / "d").iterdir()) == []


def zip_with(path: Path, name: str, mode: int = 0, content: str = "x") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo(name)
        info.create_system, info.external_attr = 3, mode << 16
        archive.writestr(info, content)
    return path


@pytest.mark.parametrize(
    ("name", "mode", "content", "message"),
    [
        ("../evil", 0, "x", "outside of the folder"),
        ("/evil", 0, "x", "outside of the folder"),
        ("a/link", 0o120777, "../../evil", "the link 'a/link'"),
        ("link", 0o120777, "/etc/passwd", "the link 'link'"),
        ("null", 0o020666, "", "a device or a pipe"),
    ],
)
def test_zip_files_that_mean_harm(name: str, mode: int, content: str, message: str, tmp_path: Path) -> None:
    archive = zip_with(tmp_path / "set.zip", name, mode, content)
    with pytest.raises(DataError, match=message):
        unpack(archive, tmp_path / "a" / "b", 1000)
    assert list((tmp_path / "a" / "b").iterdir()) == []


@pytest.mark.parametrize("ending", [".tar.gz", ".zip", ".tar"])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_damaged_archives(ending: str, share: float, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "noise").write_bytes(hashlib.sha512(b"a").digest() * 500)
    archive = tmp_path / f"set{ending}"
    packed(archive, tmp_path / "in")
    content = archive.read_bytes()
    archive.write_bytes(content[: int(share * len(content))])
    with pytest.raises(DataError, match="cannot be unpacked"):
        unpack(archive, tmp_path / "d", 1 << 20)
    assert list((tmp_path / "d").iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "in" / "set").mkdir(parents=True)
    (tmp_path / "in" / "set" / "a.txt").write_text("new")
    packed(tmp_path / "set.zip", tmp_path / "in")
    (tmp_path / "d" / "set").mkdir(parents=True)
    (tmp_path / "d" / "set" / "a.txt").write_text("mine")
    with pytest.raises(DataError, match="is there already"):
        unpack(tmp_path / "set.zip", tmp_path / "d", 1000)
    assert (tmp_path / "d" / "set" / "a.txt").read_text() == "mine"

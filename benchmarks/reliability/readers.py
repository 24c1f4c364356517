"""What is fuzzed: for each reader its cases, how one is read, and the errors that it may end in."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from corpus import FORMATS, npy, whole
from hypothesis import strategies as st
from storing import PROJECT

from smallvit.data.arrays import npz_source
from smallvit.data.images import Unreadable, read_header, read_image
from smallvit.data.tables import list_table
from smallvit.errors import DataError, RunError, UsageError
from smallvit.recipe import Recipe, build_recipe, flat

OLD = PROJECT / "tests" / "runs_0_1"


class Reader(NamedTuple):
    cases: st.SearchStrategy[Any]
    read: Callable[[Any], object]
    allowed: tuple[type[Exception], ...]
    examples: tuple[bytes, ...]  # what fuzzing that is guided by coverage begins with (guided.py)
    read_bytes: Callable[[bytes], object] | None = None  # where a case is not the bytes of a file


# ---- bytes -------------------------------------------------------------------------------------------


def mutated(contents: list[bytes]) -> st.SearchStrategy[bytes]:
    """One of the files with up to six changes, at places that are shares of its length."""
    change = st.tuples(
        st.floats(0, 1, exclude_max=True), st.sampled_from(["set", "cut", "drop", "double", "insert"]),
        st.integers(1, 64), st.binary(min_size=1, max_size=12),
    )  # fmt: skip
    return st.tuples(st.sampled_from(contents), st.lists(change, min_size=1, max_size=6)).map(
        lambda case: _apply(*case)
    )


def _apply(content: bytes, changes: list[tuple[float, str, int, bytes]]) -> bytes:
    for share, kind, count, new in changes:
        place = int(share * len(content))
        before, after = content[:place], content[place:]
        if kind == "set":
            content = before + new + after[len(new) :]
        elif kind == "cut":
            content = before
        elif kind == "drop":
            content = before + after[count:]
        elif kind == "double":
            content = before + after[:count] + after
        else:
            content = before + new + after
    return content


def _file_reader(place: Path, suffix: str, read: Callable[[Path], object]) -> Callable[[bytes], object]:
    file = place / f"case{suffix}"

    def read_bytes(content: bytes) -> object:
        file.write_bytes(content)
        return read(file)

    return read_bytes


def pictures(keys: list[str], suffix: str) -> Callable[[Path], Reader]:
    def make(place: Path) -> Reader:
        def read(path: Path) -> None:
            read_header(path)
            read_image(path, 16, "crop", 3)

        files = [whole(key) for key in keys]
        return Reader(mutated(files), _file_reader(place, suffix, read), (Unreadable,), tuple(files))

    return make


def arrays(place: Path) -> Reader:
    """.npy: whole files changed, and headers of any words."""
    words = st.lists(
        st.sampled_from(
            [
                "{",
                "}",
                "(",
                ")",
                "[",
                "'descr'",
                ":",
                ",",
                "'|u1'",
                "'shape'",
                "8",
                "-1",
                "10**9",
                "True",
                "'O'",
                "'fortran_order'",
                "False",
                "\0",
                "\n",
            ]
        ),
        max_size=30,
    )
    headers = words.map(lambda parts: npy(" ".join(parts).encode(), bytes(64)))

    def read(path: Path) -> None:
        read_header(path)
        read_image(path, 16, "crop", 1)

    file = whole("grey.npy")
    return Reader(st.one_of(mutated([file]), headers), _file_reader(place, ".npy", read), (Unreadable,), (file,))


def archives(place: Path) -> Reader:
    samples = []
    for pack in (np.savez, np.savez_compressed):
        buffer = io.BytesIO()
        pack(
            buffer,
            x_train=np.arange(4 * 64, dtype=np.uint8).reshape(4, 8, 8),
            y_train=np.arange(4) % 2,
            class_names=np.array(["a", "b"]),
        )
        samples.append(buffer.getvalue())
    return Reader(mutated(samples), _file_reader(place, ".npz", npz_source), (DataError,), tuple(samples))


# ---- words -------------------------------------------------------------------------------------------


def tables(place: Path) -> Reader:
    cell = st.one_of(
        st.sampled_from(["path", "label", "split", "group", "train", "test", "a/1.png", "../x", "", '"', "\0", "="]),
        st.text(max_size=8),
    )
    line = st.lists(cell, max_size=5).map(",".join)
    text = st.tuples(
        st.sampled_from(["path,label", "path;label;split", "\ufeffpath\tlabel", "label,path,group", ""]),
        st.lists(line, max_size=6),
    ).map(lambda parts: "\n".join([parts[0], *parts[1]]))
    content = st.one_of(text.map(lambda one: one.encode("utf-8", "surrogatepass")), st.binary(max_size=200))
    examples = (b"path,label,split,group\na/1.png,a,train,x\n", b"path;label\na;b\n")
    return Reader(content, _file_reader(place, ".csv", list_table), (DataError,), examples)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(10**18, 10**30), st.floats(), st.text(max_size=10),
    st.sampled_from(["auto", "none", "best", "../x", "/etc/passwd", "\x1b[2J", "<b>"]),
    st.lists(st.integers(-5, 5), max_size=4), st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)  # fmt: skip
ANY = st.recursive(
    VALUES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner, max_size=3)),
    max_leaves=6,
)


def recipes(place: Path) -> Reader:
    keys = [
        *flat(Recipe().model_dump()),
        "objective.mixup",
        "aux.drloc.weight",
        "model.kwargs.depth",
        "nothing",
        "data",
    ]
    number = st.one_of(
        st.integers().map(str), st.floats().map(str), st.sampled_from(["9" * 5000, "1e999", "-0", "0x_"])
    )
    value = st.one_of(
        number,
        st.sampled_from(['"auto"', '"none"', "true", "[1, 2]", "{}", "[" * 300, '"', "nan", "{a = 1}"]),
        st.text(max_size=8).map(lambda text: json.dumps(text)),
    )
    lines = st.lists(st.tuples(st.sampled_from(keys), value).map(lambda pair: f"{pair[0]} = {pair[1]}"), max_size=4)
    content = st.one_of(lines.map(lambda some: "\n".join(some).encode()), st.binary(max_size=80))
    example = b'epochs = 3\n[model]\nname = "vit_pico"\n[optimizer]\nlr = 0.1\n'
    return Reader(content, _file_reader(place, ".toml", build_recipe), (UsageError,), (example,))


# ---- run folders -------------------------------------------------------------------------------------


def run_folders(place: Path) -> Reader:
    """One value of one file of a finished run, of a group, replaced by any other; then all that the page is made of is read."""
    from smallvit import Run
    from smallvit.report.collect import collect
    from smallvit.runs.members import final_members

    folder = shutil.copytree(OLD / "seeds", place / "seeds")
    run = folder / "seed-0"
    files = {
        run / name: (run / name).read_bytes() for name in ("recipe.json", "results.json", "split.json", "metrics.jsonl")
    }
    files[folder / "group.json"] = (folder / "group.json").read_bytes()
    case = st.tuples(st.sampled_from(sorted(files)), st.lists(st.integers(0, 40), min_size=1, max_size=6), ANY)

    def read(given: tuple[Path, list[int], Any]) -> None:
        file, way, value = given
        read_with(file, _changed(files[file].decode(), way, value).encode("utf-8", "replace"))

    def read_bytes(content: bytes) -> None:
        """The first byte says which file it is."""
        if content:
            read_with(sorted(files)[content[0] % len(files)], content[1:])

    def read_with(file: Path, changed: bytes) -> None:
        for path, content in files.items():
            path.write_bytes(content)
        file.write_bytes(changed)
        final_members(folder)
        opened = Run(run)
        _ = opened.recipe, opened.choices, opened.results, opened.metrics
        collect([opened])

    examples = tuple(bytes([number]) + files[file] for number, file in enumerate(sorted(files)))
    return Reader(case, read, (RunError,), examples, read_bytes)


def _changed(text: str, way: list[int], value: Any) -> str:
    """The text of a JSON file (or the first line of several) with the value at a place replaced."""
    first, line, rest = text.partition("\n") if text.startswith('{"kind"') else (text, "", "")
    tree = json.loads(first)
    inner, last = tree, None
    for step in way:
        keys: list[Any] = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        if not keys:
            break
        last = (inner, keys[step % len(keys)])
        inner = inner[last[1]]
        if not isinstance(inner, dict | list):
            break
    if last is not None:
        last[0][last[1]] = value
    return json.dumps(tree) + line + rest


def model_files(place: Path) -> Reader:
    """safetensors: bytes changed anywhere, most of them in the header, and values of our header replaced."""
    from smallvit.evaluation.model_file import load_model

    content = (OLD / "finished" / "model.safetensors").read_bytes()
    length = int.from_bytes(content[:8], "little")
    head, tensors = content[: 8 + length], content[8 + length :]
    plain = json.loads(content[8 : 8 + length])
    own = json.loads(plain["__metadata__"]["smallvit"])

    def with_value(pair: tuple[int, Any]) -> bytes:
        keys = list(own)
        changed = own | {keys[pair[0] % len(keys)]: pair[1]}
        header = json.dumps(plain | {"__metadata__": {"smallvit": json.dumps(changed)}}).encode()
        return len(header).to_bytes(8, "little") + header + tensors

    cases = st.one_of(
        mutated([head]).map(lambda changed: changed + tensors), st.tuples(st.integers(0, 40), ANY).map(with_value)
    )
    read = _file_reader(place, ".safetensors", load_model)
    return Reader(cases, read, (RunError,), (head,), lambda changed: read(changed + tensors))


READERS: dict[str, Callable[[Path], Reader]] = {
    "JPEG": pictures(["jpg", "progressive.jpg"], ".jpg"),
    "PNG": pictures(["png"], ".png"),
    "GIF, BMP, WEBP, PPM": pictures(["gif", "bmp", "webp", "ppm", "pgm"], ".png"),
    "TIFF": pictures([key for key in FORMATS if key.endswith("tif")], ".tif"),
    ".npy": arrays,
    ".npz": archives,
    "CSV": tables,
    "recipe TOML": recipes,
    "run folder": run_folders,
    "safetensors": model_files,
}

"""The house: which module may know which (the table in docs/architecture.md), no cycles, nothing too long."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from helpers import PROJECT

SOURCE = PROJECT / "src"
MOST_LINES_OF_A_FUNCTION, MOST_LINES_OF_A_FILE, MOST_FLAT_MODULES = 50, 350, 12


class Import(NamedTuple):
    importer: str
    imported: str
    place: str  # file:line


def module_name(path: Path) -> str:
    """`runs.folder` of src/smallvit/runs/folder.py; a package is its name, smallvit itself `__init__`."""
    parts = path.relative_to(SOURCE / "smallvit").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and parts[1:] else parts)


@cache
def modules() -> dict[str, Path]:
    return {module_name(path): path for path in sorted((SOURCE / "smallvit").rglob("*.py"))}


@cache
def imports() -> list[Import]:
    """Every import of one of our modules by another, wherever it stands: in functions and for types, too."""
    return [item for module, path in modules().items() for item in imports_of(module, path)]


def imports_of(module: str, path: Path) -> Iterator[Import]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        else:
            continue
        for name in names:
            imported = name.removeprefix("smallvit.")
            if name.startswith("smallvit.") and imported in modules() and imported != module:
                yield Import(module, imported, f"{path.relative_to(PROJECT)}:{node.lineno}")


@cache
def page() -> str:
    return (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")


def paths_on_the_page() -> set[str]:
    """All that ends as a file of ours does, and folders as they are marked; not where a NAME stands for any."""
    files = re.findall(r"[\w./-]+\.(?:py|j2|toml)\b|`[\w./-]+\.json`", page())
    folders = re.findall(r"`([\w.-]+(?:/[\w.-]+)*/)`", page())
    return {name.strip("`") for name in (*files, *folders) if "NAME" not in name and not name.startswith(".")}


def layers() -> list[list[str]]:
    """The block of docs/architecture.md that begins with `layers:`, the lowest first."""
    block = re.search(r"^    layers:\n((?:    .*\n)+)", page(), re.MULTILINE)
    assert block, "docs/architecture.md has no block of layers"
    return [line.split() for line in block[1].splitlines()]


def layer_of(module: str) -> int:
    """The layer that names the module, or else the package that it is in."""
    places = {name: number for number, names in enumerate(layers()) for name in names}
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        if (name := ".".join(parts[:length])) in places:
            return places[name]
    pytest.fail(f"docs/architecture.md does not say on which layer {module} is")


def test_every_name_in_the_layers_is_a_module_and_stands_once() -> None:
    names = [name for layer in layers() for name in layer]
    assert sorted(set(names) - modules().keys()) == []
    assert len(names) == len(set(names))


def test_every_path_on_the_page_is_there() -> None:
    roots = (SOURCE / "smallvit", PROJECT)
    assert len(paths_on_the_page()) > 80
    assert [name for name in sorted(paths_on_the_page()) if not any((root / name).exists() for root in roots)] == []


def test_every_room_and_every_flat_module_is_on_the_page() -> None:
    rooms = {f"{name.replace('.', '/')}/" for name, path in modules().items() if path.name == "__init__.py"} - {
        "__init__/"
    }
    flat = {path.name for path in (SOURCE / "smallvit").glob("[!_]*.py")}
    named = paths_on_the_page()
    assert [room for room in sorted(rooms) if not any(name.startswith(room) for name in named)] == []
    assert sorted(flat - named) == []


def test_no_module_imports_one_of_a_higher_layer() -> None:
    upward = [
        f"{item.place}: {item.importer} imports {item.imported}"
        for item in imports()
        if layer_of(item.importer) < layer_of(item.imported)
    ]
    assert upward == []


def test_packages_on_one_layer_do_not_know_each_other() -> None:
    sideways = [
        f"{item.place}: {item.importer} imports {item.imported}"
        for item in imports()
        if layer_of(item.importer) == layer_of(item.imported)
        and item.importer.split(".")[0] != item.imported.split(".")[0]
    ]
    assert sideways == []


def test_no_modules_import_each_other_in_a_circle() -> None:
    rest = {name: {item.imported for item in imports() if item.importer == name} for name in modules()}
    # A package imports its modules to find them, and a module's import of its package is no edge of its own.
    packages = {name for name, path in modules().items() if path.name == "__init__.py"}
    rest = {name: needed - packages for name, needed in rest.items() if name not in packages}
    while free := [name for name, needed in rest.items() if not needed & rest.keys()]:
        for name in free:
            del rest[name]
    assert sorted(rest) == []


def test_no_function_and_no_file_is_too_long() -> None:
    long = []
    for path in modules().values():
        text = path.read_text(encoding="utf-8")
        if (lines := text.count("\n")) > MOST_LINES_OF_A_FILE:
            long.append(f"{path.relative_to(PROJECT)}: {lines} lines")
        long += [
            f"{path.relative_to(PROJECT)}:{node.lineno} {node.name}: {length} lines"
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > MOST_LINES_OF_A_FUNCTION
        ]
    assert long == []


def test_few_modules_lie_flat() -> None:
    flat = [path.name for path in (SOURCE / "smallvit").glob("*.py")]
    assert len(flat) <= MOST_FLAT_MODULES, flat

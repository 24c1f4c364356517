"""Hostile files: nothing runs, nothing is written elsewhere, nothing is shown unescaped.

    python benchmarks/reliability/hostile.py

A pickle in place of a checkpoint, model files with other arguments and sizes, run folders and recipes of a stranger, names with markup,
formulas and control characters, links out of folders, archives that lie. A watched folder holds what must not change.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from corpus import encoded, picture, says
from forks import command
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from storing import PROJECT, TINY_PHOTOS, Done, store, table

OLD = PROJECT / "tests" / "runs_0_1"
MARKUP = "<img src=x onerror=alert(1)>"
NAMES = (MARKUP, "=cmd()|calc", "\x1b[2Jwiped", "plain")


class Payload:
    """A pickle that makes a folder when it is loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


def model_with(place: Path, **changes: Any) -> Path:
    file = OLD / "finished" / "model.safetensors"
    with safe_open(file, "np") as opened:
        header = json.loads(opened.metadata()["smallvit"])
    path = place / "model.safetensors"
    save_file(load_file(file), path, metadata={"smallvit": json.dumps(header | changes)})
    return path


def run_with(place: Path, name: str, **changes: Any) -> Path:
    folder = shutil.copytree(OLD / "finished", place / "run")
    tree = json.loads((folder / name).read_text(encoding="utf-8"))
    for key, value in changes.items():
        *outer, last = key.split("__")
        inner = tree
        for part in outer:
            inner = inner[part]
        inner[last] = value
    (folder / name).write_text(json.dumps(tree), encoding="utf-8")
    return folder


def lying_archive(place: Path) -> Path:
    """An .npz of a few hundred bytes with an array of 100 GB in it."""
    path = place / "set.npz"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("x_train.npy", says("(1000000, 400, 250)"))
        file.writestr("y_train.npy", says("(1000000,)"))
    return path


def cases(place: Path, watched: Path) -> Iterator[tuple[str, Done]]:
    """Each is refused: exit status 1 or 2, a message, no traceback."""
    image = place / "x.png"
    image.write_bytes(encoded(picture("L"), "PNG"))

    def look(at: Path) -> Done:
        return command("predict", at, image, "--threads", "1")

    for suffix in ("pth", "safetensors"):
        bad = place / f"payload.{suffix}"
        bad.write_bytes(pickle.dumps(Payload(watched / "ran")))
        yield (
            f"a pickle as .{suffix}",
            command("train", "digits", "--init", bad, "--epochs", "1", "--threads", "1", "--out", place / "out"),
        )
    for what, changes in {
        "arguments that load a file": {"kwargs": {"pretrained": True, "pretrained_cfg": {"file": "/etc/passwd"}}},
        "a model of any size": {"kwargs": {"embed_dim": 10**6}},
        "a temperature of 0": {"temperature": 0},
        "an unknown fit": {"fit": "stretch"},
        "a side of 10^9": {"img_size": 10**9},
        "a million classes": {"class_names": ["x"] * 10**6},
    }.items():
        yield what, look(model_with(place, **changes))
    for what, name, changes in (
        ("a run that reads elsewhere", "recipe.json", {"resolved__data__source": "/etc"}),
        ("a run with a seed of 10^30", "recipe.json", {"resolved__seed": 10**30}),
        ("test rows that were trained on", "split.json", {"parts__test__rows": [0, 1]}),
    ):
        with tempfile.TemporaryDirectory() as own:
            yield what, command("evaluate", run_with(Path(own), name, **changes), "--threads", "1")
    yield "an archive that claims 100 GB", command("train", lying_archive(place), *TINY_PHOTOS, "--out", place / "o3")
    group = shutil.copytree(OLD / "seeds", place / "group")
    (group / "group.json").write_text(json.dumps({"members": [str(watched)]}))
    yield (
        "a group with members elsewhere",
        command("train", "digits", "--out", group, "--overwrite", "--epochs", "1", "--threads", "1"),
    )
    recipe = place / "r.toml"
    recipe.write_text('[model]\nname = "vit_pico"\n[model.kwargs]\npretrained_cfg_overlay = {file = "/etc/passwd"}\n')
    yield (
        "a recipe that loads a file",
        command("train", "digits", "--recipe", recipe, "--out", place / "o2", "--threads", "1"),
    )


def shown_names(place: Path) -> list[str]:
    """What is shown unescaped of a set whose classes and files have hostile names: in the terminal, the report, a CSV file."""
    for name in NAMES:
        (place / "photos" / name).mkdir(parents=True)
        for number in range(12):
            (place / "photos" / name / f"{MARKUP.replace('/', '')}{number}.png").write_bytes(
                encoded(picture().rotate(7 * number), "PNG")
            )
    done = command("train", place / "photos", *TINY_PHOTOS, "--out", place / "named")
    said = command("predict", place / "named", place / "photos", "--csv", place / "out.csv", "--threads", "1")
    page = (place / "named" / "report.html").read_text(encoding="utf-8") if done.status == 0 else ""
    cells = [line.split(",")[0] for line in (place / "out.csv").read_text(encoding="utf-8").splitlines()]
    return [
        *(["the training failed"] if done.status else []),
        *(["markup in the report"] if MARKUP in page else []),
        *(["a formula in the CSV"] if any(cell.startswith(("=", "@")) for cell in cells) else []),
        *(["control characters in the terminal"] if "\x1b[2J" in done.out + done.err + said.out + said.err else []),
    ]


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as temporary, tempfile.TemporaryDirectory() as elsewhere:
        watched = Path(elsewhere)
        (watched / "thesis.txt").write_text("mine")
        before = sorted(path.name for path in watched.iterdir())
        found = {
            what: "crashed" if done.crashed else "accepted" if done.status == 0 else "refused"
            for what, done in cases(Path(temporary), watched)
        }
        unescaped = shown_names(Path(temporary))
        touched = sorted(path.name for path in watched.iterdir()) != before
    print(table(["case", "outcome"], list(found.items())))
    print("shown unescaped:", unescaped or "nothing", "; changed elsewhere:", touched)
    store(
        "hostile",
        {"cases": found, "shown_unescaped": unescaped, "changed_elsewhere": touched},
        "python benchmarks/reliability/hostile.py",
    )


if __name__ == "__main__":
    main()

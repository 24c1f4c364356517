"""Miniatures of every named set, in the layout in which it is published."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.io import savemat

from helpers import noise_image
from smallvit.data.named.declared import NamedSet, named_sets

Build = Callable[[Path], None]
BUILDERS: dict[str, tuple[dict[str, int], int, Build]] = {}  # by name: images in each part, classes, how it is made


def miniature(name: str, images: Mapping[str, int], classes: int) -> Callable[[Build], Build]:
    def declare(build: Build) -> Build:
        BUILDERS[name] = (dict(images), classes, build)
        return build

    return declare


def as_large_as(name: str, **changes: Any) -> NamedSet:
    """The declaration of a set, with the counts of its miniature."""
    images, classes, _ = BUILDERS[name]
    return replace(named_sets()[name], images=images, classes=classes, **changes)


def picture(path: Path, size: tuple[int, int] = (14, 12)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    noise_image(path.name + path.parent.name, size).save(path, "JPEG")


def text(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))


def pixels(count: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (count, 3072), dtype=np.uint8)


# ---- CIFAR -------------------------------------------------------------------------------------------


def cifar_batches(each: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Pixels and labels of every file; `each` images of each of 10 classes in every one, the classes in turn."""
    names = [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]
    return {name: (pixels(10 * each, seed), np.arange(10 * each) % 10) for seed, name in enumerate(names)}


def binary(folder: Path, each: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (images, labels) in cifar_batches(each).items():
        (folder / f"{name}.bin").write_bytes(np.hstack([labels[:, None].astype(np.uint8), images]).tobytes())


def short(text: bytes) -> bytes:
    return b"U" + bytes([len(text)]) + text


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def python_2_array(images: np.ndarray) -> bytes:
    """An array as Python 2 and the NumPy of its time pickled it, instruction by instruction."""
    shape = b"".join(number(length) for length in images.shape) + b"\x86"
    kind = b"cnumpy\ndtype\n" + short(b"u1") + number(0) + number(1) + b"\x87R"
    kind += b"(" + number(3) + short(b"|") + b"NNN" + number(-1) + number(-1) + number(0) + b"tb"
    content = b"T" + struct.pack("<i", images.nbytes) + images.tobytes()
    begun = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\n" + number(0) + b"\x85" + short(b"b") + b"\x87R"
    return begun + b"(" + number(1) + shape + kind + b"\x89" + content + b"tb"


def python_2_pickle(**entries: Any) -> bytes:
    body = b""
    for key, value in entries.items():
        body += short(key.encode())
        if isinstance(value, np.ndarray):
            body += python_2_array(value)
        else:
            rows = b"".join(short(item) if isinstance(item, bytes) else number(item) for item in value)
            body += b"](" + rows + b"e"
    return b"\x80\x02}(" + body + b"u."


def pickled(folder: Path, each: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (images, labels) in cifar_batches(each).items():
        (folder / name).write_bytes(python_2_pickle(batch_label=[b"training"], labels=labels.tolist(), data=images))


@miniature("cifar10", {"train": 150, "test": 30}, 10)
def cifar10(folder: Path) -> None:
    binary(folder / "cifar-10-batches-bin", 3)


@miniature("cifar10-gem", {"train": 300, "val": 200, "test": 110}, 10)
def cifar10_gem(folder: Path) -> None:
    binary(folder / "cifar-10-batches-bin", 11)


@miniature("cifair10-gem", {"train": 300, "val": 200, "test": 110}, 10)
def cifair10_gem(folder: Path) -> None:
    pickled(folder / "ciFAIR-10", 11)


@miniature("cifar100", {"train": 40, "test": 20}, 4)
def cifar100(folder: Path) -> None:
    for part, count in (("train", 40), ("test", 20)):
        labels = np.arange(count) % 4
        table = np.hstack([labels[:, None] // 2, labels[:, None], pixels(count, count)]).astype(np.uint8)
        (folder / "cifar-100-binary").mkdir(exist_ok=True)
        (folder / "cifar-100-binary" / f"{part}.bin").write_bytes(table.tobytes())
    text(folder / "cifar-100-binary" / "fine_label_names.txt", "apple", "aquarium_fish", "baby", "bear")


# ---- photos ------------------------------------------------------------------------------------------


@miniature("svhn", {"train": 40, "test": 20}, 10)
def svhn(folder: Path) -> None:
    (folder / "svhn").mkdir()
    for part, count in (("train", 40), ("test", 20)):
        x = np.random.default_rng(count).integers(0, 256, (32, 32, 3, count), dtype=np.uint8)
        savemat(folder / "svhn" / f"{part}_32x32.mat", {"X": x, "y": np.arange(count)[:, None] % 10 + 1})


@miniature("flowers102", {"train": 4, "val": 4, "test": 6}, 2)
def flowers102(folder: Path) -> None:
    root = folder / "flowers-102"
    for image in range(1, 15):
        picture(root / "jpg" / f"image_{image:05d}.jpg")
    savemat(root / "imagelabels.mat", {"labels": np.arange(14)[None] % 2 + 1})
    savemat(root / "setid.mat", {"trnid": [[1, 2, 3, 4]], "valid": [[5, 6, 7, 8]], "tstid": [[*range(9, 15)]]})


@miniature("pets", {"train": 4, "test": 4}, 2)
def pets(folder: Path) -> None:
    root = folder / "oxford-iiit-pet"
    for part in ("trainval", "test"):
        names = [f"{breed}_{part}{n}" for breed in ("Abyssinian", "basset_hound") for n in (1, 2)]
        text(root / "annotations" / f"{part}.txt", *(f"{name} {1 + (name[0] == 'b')} 1 1" for name in names))
        for name in names:
            picture(root / "images" / f"{name}.jpg")


@miniature("dtd", {"train": 4, "val": 4, "test": 4}, 2)
def dtd(folder: Path) -> None:
    root = folder / "dtd" / "dtd"
    for part in ("train", "val", "test"):
        names = [f"{klass}/{klass}_{part}_{n}.jpg" for klass in ("banded", "dotted") for n in (1, 2)]
        text(root / "labels" / f"{part}1.txt", *names)
        for name in names:
            picture(root / "images" / name)


@miniature("indoor67", {"train": 4, "test": 2}, 2)
def indoor67(folder: Path) -> None:
    for part, count in (("Train", 2), ("Test", 1)):
        names = [f"{klass}/{part} {n}.jpg" for klass in ("airport_inside", "bakery") for n in range(count)]
        text(folder / "indoor67" / f"{part}Images.txt", *names)
        for name in names:
            picture(folder / "indoor67" / "Images" / name)


@miniature("cub200", {"train": 4, "test": 4}, 2)
def cub200(folder: Path) -> None:
    root = folder / "CUB_200_2011"
    files = [
        f"{klass}/{klass}_{n}.jpg" for klass in ("001.Black_footed_Albatross", "002.Laysan_Albatross") for n in range(4)
    ]
    for file in files:
        picture(root / "images" / file)
    text(root / "images.txt", *(f"{n} {file}" for n, file in enumerate(files, 1)))
    text(root / "image_class_labels.txt", *(f"{n} {1 + (n > 4)}" for n in range(1, 9)))
    text(root / "train_test_split.txt", *(f"{n} {n % 2}" for n in range(1, 9)))
    text(root / "classes.txt", "1 001.Black_footed_Albatross", "2 002.Laysan_Albatross")


@miniature("aircraft", {"train": 4, "val": 2, "test": 2}, 2)
def aircraft(folder: Path) -> None:
    root = folder / "fgvc-aircraft-2013b" / "data"
    text(root / "variants.txt", "707-320", "Challenger 600")
    for part, count in (("train", 2), ("val", 1), ("test", 1)):
        rows = [(f"{part}{kind[0]}{n}", kind) for kind in ("707-320", "Challenger 600") for n in range(count)]
        text(root / f"images_variant_{part}.txt", *(f"{image} {kind}" for image, kind in rows))
        for image, _ in rows:
            picture(root / "images" / f"{image}.jpg")


@miniature("cars", {"train": 4, "test": 2}, 2)
def cars(folder: Path) -> None:
    root = folder / "stanford_cars"
    (root / "devkit").mkdir(parents=True)
    names = np.array(["AM General Hummer SUV 2000", "Acura RL Sedan 2012"], dtype=object)
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": names})
    for part, count, table in (
        ("train", 4, "devkit/cars_train_annos.mat"),
        ("test", 2, "cars_test_annos_withlabels.mat"),
    ):
        rows = np.array(
            [(n % 2 + 1, f"{n:05d}.jpg") for n in range(count)], dtype=[("class", object), ("fname", object)]
        )
        savemat(root / table, {"annotations": rows})
        for n in range(count):
            picture(root / f"cars_{part}" / f"{n:05d}.jpg")


def domain(name: str) -> None:
    @miniature(f"domainnet-{name}", {"train": 4, "test": 2}, 2)
    def build(folder: Path) -> None:
        for part, count in (("train", 2), ("test", 1)):
            files = [f"{name}/{klass}/{name}_{part}_{n}.jpg" for klass in ("zebra", "airplane") for n in range(count)]
            text(
                folder / "DomainNet" / f"{name}_{part}.txt",
                *(f"{file} {int('airplane' not in file)}" for file in files),
            )
            for file in files:
                picture(folder / "DomainNet" / file)


for _name in ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"):
    domain(_name)


# ---- ImageNet ----------------------------------------------------------------------------------------


def imagenet_folders(root: Path, classes: tuple[str, ...], train: int) -> None:
    for klass in classes:
        for n in range(train):
            picture(root / "train" / klass / f"{klass}_{n}.JPEG")
        picture(root / "val" / klass / f"ILSVRC2012_val_{klass}.JPEG")


@miniature("imagenet", {"train": 4, "test": 2}, 2)
def imagenet(folder: Path) -> None:
    imagenet_folders(folder / "imagenet", ("n01440764", "n01443537"), 2)


@miniature("imagenet100", {"train": 4, "test": 2}, 2)
def imagenet100(folder: Path) -> None:
    imagenet_folders(folder / "imagenet", ("n01440764", "n01558993", "n02869837"), 2)  # the first is not of the hundred


@miniature("sin10k", {"train": 20, "test": 2}, 2)
def sin10k(folder: Path) -> None:
    imagenet_folders(folder / "imagenet", ("n01440764", "n01443537"), 14)


@miniature("tinyimagenet", {"train": 4, "test": 2}, 2)
def tinyimagenet(folder: Path) -> None:
    root, classes = folder / "tiny-imagenet-200", ("n02124075", "n01443537")
    text(root / "wnids.txt", *classes)
    text(
        root / "val" / "val_annotations.txt", *(f"val_{n}.JPEG\t{klass}\t0\t0\t9\t9" for n, klass in enumerate(classes))
    )
    for n, klass in enumerate(classes):
        picture(root / "val" / "images" / f"val_{n}.JPEG")
        for image in range(2):
            picture(root / "train" / klass / "images" / f"{klass}_{image}.JPEG")

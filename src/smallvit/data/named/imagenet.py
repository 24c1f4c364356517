"""ImageNet-1K and what is made of it: ImageNet-100, SIN-10k, Tiny-ImageNet.

The official validation images are the part `test`: those of the official test part have no labels, and the papers report these.
"""

from __future__ import annotations

import hashlib
from importlib import resources
from pathlib import Path

from smallvit.data.listed import Listed, Listing
from smallvit.data.named.declared import Layout, Remote, named
from smallvit.data.named.reading import fields_of, lines_of

ORIGIN = "https://image-net.org (ILSVRC2012; an account is needed), unpacked into class folders: train/n01440764/*.JPEG, val/n01440764/*.JPEG"
WHOLE = tuple(Layout(folder, ("train", "val")) for folder in ("imagenet", "ILSVRC2012"))
SIN_EACH = 10
SIN_SEED = 0


@named(
    "imagenet", images={"train": 1_281_167, "test": 50_000}, classes=1000, layouts=WHOLE, size="145 GB", origin=ORIGIN
)
def imagenet(root: Path) -> Listing:
    """ImageNet-1K (Russakovsky et al. 2015), read from the disk while it trains; test is the official validation part."""
    return Listing("imagenet", root, _of_folders(root))


@named(
    "imagenet100",
    images={"train": 126_689, "test": 5000},
    classes=100,
    layouts=(Layout("imagenet100", ("train", "val")), *WHOLE),
    size="13 GB",
    origin=ORIGIN,
)
def imagenet100(root: Path) -> Listing:
    """The 100 classes of ImageNet that Tian et al. 2020 took (CMC's list); test is the official validation part."""
    text = (resources.files("smallvit.data.named") / "imagenet100.txt").read_text(encoding="utf-8")
    chosen = {*text.split()}
    return Listing("imagenet100", root, [item for item in _of_folders(root, chosen) if item.class_name in chosen])


@named("sin10k", images={"train": 10_000, "test": 50_000}, classes=1000, layouts=WHOLE, size="145 GB", origin=ORIGIN)
def sin10k(root: Path) -> Listing:
    """SIN-10k after Cao et al. 2022: ten training images of each class of ImageNet, drawn by us; theirs are others."""
    every: dict[str, list[Listed]] = {}
    items = []
    for item in _of_folders(root):
        if item.part == "train":
            every.setdefault(item.class_name, []).append(item)
        else:
            items.append(item)
    drawn = [item for klass in sorted(every) for item in _drawn(every[klass])]
    return Listing("sin10k", root, [*drawn, *items])


def _drawn(items: list[Listed]) -> list[Listed]:
    """The ten with the smallest BLAKE2b digest (8 bytes) of `sin10k/SEED/CLASS/FILE`: the same wherever the files lie."""

    def draw(item: Listed) -> bytes:
        text = f"sin10k/{SIN_SEED}/{item.class_name}/{item.path.name}"
        return hashlib.blake2b(text.encode(), digest_size=8).digest()

    return sorted(sorted(items, key=draw)[:SIN_EACH])


def _of_folders(root: Path, chosen: set[str] | None = None) -> list[Listed]:
    from smallvit.data.folders import image_files, visible_folders

    return [
        Listed(path, klass.name, part)
        for folder, part in (("train", "train"), ("val", "test"))
        for klass in visible_folders(root / folder)
        if chosen is None or klass.name in chosen
        for path in image_files(klass)
    ]


@named(
    "tinyimagenet",
    images={"train": 100_000, "test": 10_000},
    classes=200,
    layouts=(Layout("tiny-imagenet-200", ("train", "val/images", "val/val_annotations.txt", "wnids.txt")),),
    remotes=(
        Remote(
            "http://cs231n.stanford.edu/tiny-imagenet-200.zip",
            "md5:90528d7ca1a48142e341f4ef8d21d0de",
            248.1,
            "tiny-imagenet-200",
        ),
    ),
    size="480 MB",
)
def tinyimagenet(root: Path) -> Listing:
    """Tiny-ImageNet (CS231n): 200 classes of ImageNet at 64 px; test is the official validation part."""
    from smallvit.data.folders import image_files

    classes = tuple(sorted(line for _, line in lines_of(root / "wnids.txt")))
    items = [
        Listed(path, klass, "train") for klass in classes for path in image_files(root / "train" / klass / "images")
    ]
    for file, klass, *_ in fields_of(root / "val" / "val_annotations.txt", 2, by="\t"):
        items.append(Listed(root / "val" / "images" / file, klass, "test"))
    return Listing("tinyimagenet", root, items)

"""Photos with official lists: Flowers-102, Oxford-IIIT Pets, DTD, MIT Indoor-67. Layouts as torchvision unpacks them."""

from __future__ import annotations

from pathlib import Path

from smallvit.data.listed import Listed, Listing
from smallvit.data.named.declared import Layout, Remote, named
from smallvit.data.named.reading import fields_of, lines_of, mat_of
from smallvit.errors import DataError

OXFORD = "https://www.robots.ox.ac.uk/~vgg/data"


@named(
    "flowers102",
    images={"train": 1020, "val": 1020, "test": 6149},
    classes=102,
    layouts=(Layout("flowers-102", ("jpg", "imagelabels.mat", "setid.mat")),),
    remotes=(
        Remote(f"{OXFORD}/flowers/102/102flowers.tgz", "sha256:2d01ecc807db462958cfe3d92f57a8c252b4abd240eb955770201e45f783b246", 344.9, "flowers-102/jpg", "flowers-102"),
        Remote(f"{OXFORD}/flowers/102/imagelabels.mat", "sha256:4903e94206bac23bf772aadf06451916df56b58fc483a62db32a97b82656651d", 0.001, "flowers-102/imagelabels.mat", "flowers-102"),
        Remote(f"{OXFORD}/flowers/102/setid.mat", "sha256:46b8678f91fd95d3c8f4feab80d271a6c834a1dd896fe29fd3e6ad9ce5c8dccd", 0.015, "flowers-102/setid.mat", "flowers-102"),
    ),
    size="350 MB",
)  # fmt: skip
def flowers102(root: Path) -> Listing:
    """Oxford Flowers-102 (Nilsback 2008); the papers train on train and val: --train-on train+val."""
    (labels,) = mat_of(root / "imagelabels.mat", "labels")
    parts = dict(zip(("train", "val", "test"), mat_of(root / "setid.mat", "trnid", "valid", "tstid"), strict=True))
    known = _flower_names()
    items = []
    for part, numbers in parts.items():
        for number in numbers.tolist() if numbers.ndim else [int(numbers)]:
            if not 1 <= number <= labels.size or not 1 <= (label := int(labels.flat[number - 1])) <= len(known):
                raise DataError(f"{root}: setid.mat names image {number}, of which imagelabels.mat has no class")
            items.append(Listed(root / "jpg" / f"image_{number:05d}.jpg", known[label - 1], part))
    return Listing("flowers102", root, items, known)


def _flower_names() -> tuple[str, ...]:
    """As torchvision has them; older versions have none, and the official files have numbers."""
    from torchvision.datasets import Flowers102

    return tuple(getattr(Flowers102, "classes", ())) or tuple(f"{number:03d}" for number in range(1, 103))


@named(
    "pets",
    images={"train": 3680, "test": 3669},
    classes=37,
    layouts=(Layout("oxford-iiit-pet", ("images", "annotations/trainval.txt", "annotations/test.txt")),),
    remotes=(
        Remote(f"{OXFORD}/pets/data/images.tar.gz", "sha256:67195c5e1c01f1ab5f9b6a5d22b8c27a580d896ece458917e61d459337fa318d", 791.9, "oxford-iiit-pet/images", "oxford-iiit-pet"),
        Remote(f"{OXFORD}/pets/data/annotations.tar.gz", "sha256:52425fb6de5c424942b7626b428656fcbd798db970a937df61750c0f1d358e91", 19.2, "oxford-iiit-pet/annotations", "oxford-iiit-pet"),
    ),
    size="830 MB",
)  # fmt: skip
def pets(root: Path) -> Listing:
    """Oxford-IIIT Pets (Parkhi et al. 2012): breeds of cats and dogs."""
    items, numbers = [], {}
    for part, name in (("train", "trainval"), ("test", "test")):
        for image, number, *_ in fields_of(root / "annotations" / f"{name}.txt", 2):
            breed = image.rpartition("_")[0].replace("_", " ")
            numbers[breed] = int(number) if number.isdecimal() else 0
            items.append(Listed(root / "images" / f"{image}.jpg", breed, part))
    return Listing("pets", root, items, tuple(sorted(numbers, key=lambda breed: (numbers[breed], breed))))


DTD_FILES = ("images", *(f"labels/{part}1.txt" for part in ("train", "val", "test")))


@named(
    "dtd",
    images={"train": 1880, "val": 1880, "test": 1880},
    classes=47,
    layouts=(Layout("dtd/dtd", DTD_FILES), Layout("dtd", DTD_FILES)),
    remotes=(
        Remote(f"{OXFORD}/dtd/download/dtd-r1.0.1.tar.gz", "sha256:e42855a52a4950a3b59612834602aa253914755c95b0cff9ead6d07395f8e205", 625.2, "dtd/dtd", "dtd"),
    ),
    size="640 MB",
)  # fmt: skip
def dtd(root: Path) -> Listing:
    """Describable Textures (Cimpoi et al. 2014), the first of its ten official splits."""
    items = [
        Listed(root / "images" / line, line.partition("/")[0], part)
        for part in ("train", "val", "test")
        for _, line in lines_of(root / "labels" / f"{part}1.txt")
    ]
    return Listing("dtd", root, items)


INDOOR_FILES = ("Images", "TrainImages.txt", "TestImages.txt")


@named(
    "indoor67",
    images={"train": 5360, "test": 1340},
    classes=67,
    layouts=(Layout("indoor67", INDOOR_FILES), Layout("indoorCVPR_09", INDOOR_FILES)),
    size="2.5 GB",
    origin="https://web.mit.edu/torralba/www/indoor.html (indoorCVPR_09.tar, TrainImages.txt, TestImages.txt; no digests of them are published)",
)
def indoor67(root: Path) -> Listing:
    """MIT Indoor-67 (Quattoni 2009): scenes inside of buildings."""
    items = [
        Listed(root / "Images" / line, line.partition("/")[0], part)
        for part in ("train", "test")
        for _, line in lines_of(root / f"{part.capitalize()}Images.txt")
    ]
    return Listing("indoor67", root, items)

"""Kinds that are hard to tell apart: CUB-200, FGVC-Aircraft, Stanford Cars."""

from __future__ import annotations

from pathlib import Path

from smallvit.data.listed import Listed, Listing
from smallvit.data.named.declared import Layout, Remote, named
from smallvit.data.named.reading import fields_of, lines_of, mat_of
from smallvit.errors import DataError


@named(
    "cub200",
    images={"train": 5994, "test": 5794},
    classes=200,
    layouts=(
        Layout("CUB_200_2011", ("images", "images.txt", "image_class_labels.txt", "train_test_split.txt", "classes.txt")),
    ),
    remotes=(
        Remote("https://data.caltech.edu/records/65de6-vp158/files/CUB_200_2011.tgz", "sha256:0c685df5597a8b24909f6a7c9db6d11e008733779a671760afef78feb49bf081", 1150.6, "CUB_200_2011"),
    ),
    size="1.2 GB",
)  # fmt: skip
def cub200(root: Path) -> Listing:
    """Caltech-UCSD Birds-200-2011 (Wah et al. 2011): kinds of birds."""
    names = dict(fields_of(root / "classes.txt", 2, 1))
    classes = {image: number for image, number, *_ in fields_of(root / "image_class_labels.txt", 2)}
    trains = {image: flag for image, flag, *_ in fields_of(root / "train_test_split.txt", 2)}
    items = []
    for image, file in fields_of(root / "images.txt", 2, 1):
        if classes.get(image) not in names or image not in trains:
            raise DataError(f"{root}: image {image} of images.txt has no class or no part in the files beside it")
        items.append(Listed(root / "images" / file, names[classes[image]], "train" if trains[image] == "1" else "test"))
    return Listing("cub200", root, items, tuple(names.values()))


@named(
    "aircraft",
    images={"train": 3334, "val": 3333, "test": 3333},
    classes=100,
    layouts=(
        Layout("fgvc-aircraft-2013b/data", ("images", "variants.txt", *(f"images_variant_{part}.txt" for part in ("train", "val", "test")))),
    ),
    remotes=(
        Remote("https://www.robots.ox.ac.uk/~vgg/data/fgvc-aircraft/archives/fgvc-aircraft-2013b.tar.gz", "md5:d4acdd33327262359767eeaa97a4f732", 2753, "fgvc-aircraft-2013b"),
    ),
    size="2.8 GB",
)  # fmt: skip
def aircraft(root: Path) -> Listing:
    """FGVC-Aircraft (Maji et al. 2013): variants of planes; the lowest 20 rows of each image are a copyright banner."""
    names = tuple(line for _, line in lines_of(root / "variants.txt"))
    items = [
        Listed(root / "images" / f"{image}.jpg", variant, part)
        for part in ("train", "val", "test")
        for image, variant in fields_of(root / f"images_variant_{part}.txt", 2, 1)
    ]
    if unknown := next((item for item in items if item.class_name not in names), None):
        raise DataError(f"{root}: the variant {unknown.class_name!r} of {unknown.path.name} is not in variants.txt")
    return Listing("aircraft", root, items, names)


CARS = {"train": ("cars_train", "devkit/cars_train_annos.mat"), "test": ("cars_test", "cars_test_annos_withlabels.mat")}


@named(
    "cars",
    images={"train": 8144, "test": 8041},
    classes=196,
    layouts=(Layout("stanford_cars", ("devkit/cars_meta.mat", *(name for pair in CARS.values() for name in pair))),),
    size="2.0 GB",
    origin="copies of it: its own site, ai.stanford.edu/~jkrause/cars, has it no more",
)
def cars(root: Path) -> Listing:
    """Stanford Cars (Krause et al. 2013): make, model and year."""
    (known,) = mat_of(root / "devkit" / "cars_meta.mat", "class_names")
    names = tuple(str(name) for name in known.reshape(-1))
    items = []
    for part, (folder, table) in CARS.items():
        (rows,) = mat_of(root / table, "annotations")
        if rows.dtype.names is None or not {"fname", "class"} <= {*rows.dtype.names}:
            raise DataError(f"{root / table}: annotations have no fname and class")
        for row in rows.reshape(-1):
            number, file = int(row["class"]), str(row["fname"])
            if not 1 <= number <= len(names) or Path(file).name != file:
                raise DataError(f"{root / table}: {file!r} of class {number}; there are {len(names)} classes")
            items.append(Listed(root / folder / file, names[number - 1], part))
    return Listing("cars", root, items, names)

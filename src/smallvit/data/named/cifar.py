"""CIFAR-10 and CIFAR-100, from the binary files or from the pickled ones (which are read, not unpickled), and the GEM split."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from smallvit.console import say
from smallvit.data.listed import Arrays
from smallvit.data.named.declared import Layout, Remote, named
from smallvit.errors import DataError

if TYPE_CHECKING:
    import numpy as np

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIDE = 32
PIXELS = 3 * SIDE * SIDE
HOME = "https://www.cs.toronto.edu/~kriz"
BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEN = (
    Layout("cifar-10-batches-bin", (*(f"{name}.bin" for name in BATCHES), "test_batch.bin")),
    Layout("cifar-10-batches-py", (*BATCHES, "test_batch")),
)
TEN_REMOTE = (
    Remote(
        f"{HOME}/cifar-10-binary.tar.gz",
        "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        170.1,
        "cifar-10-batches-bin",
    ),
)
GEM_TRAIN, GEM_VAL = 30, 20  # of each class, in the official order


@named("cifar10", images={"train": 50_000, "test": 10_000}, classes=10, layouts=TEN, remotes=TEN_REMOTE, size="180 MB")
def cifar10(root: Path) -> Arrays:
    """CIFAR-10 (Krizhevsky 2009): small photos, 32 px."""
    return _ten(root)


@named("cifar10-gem", images={"train": 300, "val": 200, "test": 10_000}, classes=10, layouts=TEN, remotes=TEN_REMOTE, size="180 MB")  # fmt: skip
def cifar10_gem(root: Path) -> Arrays:
    """CIFAR-10 as GEM cuts it: of each class the first 30 train, the next 20 validate; all test images."""
    return gem_split(_ten(root))


@named(
    "cifair10-gem",
    images={"train": 300, "val": 200, "test": 10_000},
    classes=10,
    layouts=(Layout("ciFAIR-10", (*BATCHES, "test_batch")),),
    remotes=(
        Remote(
            "https://github.com/cvjena/cifair/releases/download/v1.0/ciFAIR-10.zip",
            "md5:ca08fd390f0839693d3fc45c4e49585f",
            170,
            "ciFAIR-10",
        ),
    ),
    size="180 MB",
)
def cifair10_gem(root: Path) -> Arrays:
    """The same of ciFAIR-10 (Barz 2020), whose test images are no near copies of training images."""
    return gem_split(_ten(root))


@named(
    "cifar100",
    images={"train": 50_000, "test": 10_000},
    classes=100,
    layouts=(
        Layout("cifar-100-binary", ("train.bin", "test.bin", "fine_label_names.txt")),
        Layout("cifar-100-python", ("train", "test", "meta")),
    ),
    remotes=(
        Remote(
            f"{HOME}/cifar-100-binary.tar.gz",
            "sha256:58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            168.5,
            "cifar-100-binary",
        ),
    ),
    size="180 MB",
)
def cifar100(root: Path) -> Arrays:
    """CIFAR-100 (Krizhevsky 2009), the 100 fine classes: small photos, 32 px."""
    from smallvit.data.named.plain_pickle import read_plain
    from smallvit.data.named.reading import lines_of

    if (root / "train.bin").exists():
        names = tuple(line for _, line in lines_of(root / "fine_label_names.txt"))
        parts = {part: _binary(root / f"{part}.bin", before=1) for part in ("train", "test")}
    else:
        say(f"reading {root} (the binary files are read faster)")
        names = tuple(_word(name) for name in _entry(root / "meta", read_plain(root / "meta"), "fine_label_names"))
        parts = {part: _pickled(root / part, "fine_labels") for part in ("train", "test")}
    return _arrays(root, {part: [pair] for part, pair in parts.items()}, names)


def gem_split(whole: Arrays) -> Arrays:
    """The first images of each class, in the order of the training files."""
    import numpy as np

    train, val = [], []
    for klass in range(len(whole.class_names)):
        own = whole.parts["train"][whole.labels[whole.parts["train"]] == klass]
        train.append(own[:GEM_TRAIN])
        val.append(own[GEM_TRAIN : GEM_TRAIN + GEM_VAL])
    rows = {"train": np.concatenate(train), "val": np.concatenate(val), "test": whole.parts["test"]}
    taken = np.concatenate(list(rows.values()))
    ends = np.cumsum([0, *map(len, rows.values())])
    parts = {part: np.arange(ends[place], ends[place + 1]) for place, part in enumerate(rows)}
    return Arrays(whole.images_NHWC[taken], whole.labels[taken], whole.class_names, parts)


def _ten(root: Path) -> Arrays:
    files = {"train": BATCHES, "test": ("test_batch",)}
    if (root / "test_batch.bin").exists():
        pairs = {part: [_binary(root / f"{name}.bin") for name in names] for part, names in files.items()}
    else:
        say(f"reading {root} (the binary files are read faster)")
        pairs = {part: [_pickled(root / name, "labels") for name in names] for part, names in files.items()}
    return _arrays(root, pairs, CLASSES)


def _arrays(root: Path, pairs: dict[str, list[tuple[np.ndarray, np.ndarray]]], names: tuple[str, ...]) -> Arrays:
    import numpy as np

    images = np.concatenate([images for part in pairs.values() for images, _ in part])
    labels = np.concatenate([labels for part in pairs.values() for _, labels in part])
    if len(labels) and labels.max() >= len(names):
        raise DataError(f"{root}: the label {labels.max()} has no name; there are {len(names)}")
    ends = np.cumsum([0, *(sum(len(labels) for _, labels in part) for part in pairs.values())])
    return Arrays(
        images, labels, names, {part: np.arange(ends[place], ends[place + 1]) for place, part in enumerate(pairs)}
    )


def _binary(path: Path, before: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Records of so many bytes before the label, the label, and the pixels channel by channel."""
    import numpy as np

    record = before + 1 + PIXELS
    size = path.stat().st_size
    if size % record or size > 60_000 * record:
        raise DataError(f"{path} is damaged: {size:,} bytes are no whole number of images of {record:,}")
    table = np.fromfile(path, dtype=np.uint8).reshape(-1, record)
    return _upright(table[:, before + 1 :]), table[:, before].astype(np.int64)


def _pickled(path: Path, key: str) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    from smallvit.data.named.plain_pickle import read_plain

    found = read_plain(path)
    pixels, labels = _entry(path, found, "data"), _entry(path, found, key)
    if getattr(pixels, "shape", ()) != (len(labels), PIXELS) or not all(
        type(n) is int and 0 <= n < 256 for n in labels
    ):
        raise DataError(f"{path} is damaged: its data do not fit its {key}")
    return _upright(pixels), np.array(labels, dtype=np.int64)


def _entry(path: Path, found: dict[str, Any], key: str) -> Any:
    if key not in found:
        raise DataError(f"{path} has no {key}; it holds {', '.join(found) or 'nothing'}")
    return found[key]


def _word(name: object) -> str:
    return name.decode("latin-1") if isinstance(name, bytes) else str(name)


def _upright(flat: np.ndarray) -> np.ndarray:
    """N x H x W x C of pixels that lie channel by channel."""
    import numpy as np

    return np.ascontiguousarray(flat.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1))

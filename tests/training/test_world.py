"""Several processes that train one model: what each of them gets, and which of them writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_runs import assert_same_tensors, plan, training
from torch import Tensor

from smallvit.data.augment import Augmenter
from smallvit.data.imageset import ImageSet
from smallvit.data.loader import DeviceImages, Loader
from smallvit.errors import UsageError
from smallvit.evaluation.model_file import read_tensors
from smallvit.recipe import AugmentSpec
from smallvit.training.build import build_training
from smallvit.training.session import run_session
from smallvit.types import ALONE, View, World

ONE, SEVERAL = (View(1, 16),), (View(2, 16, (0.4, 1.0)), View(3, 8, (0.1, 0.4)))
COUNT, BATCH = 53, 12


def loader(world: World, views: tuple[View, ...] = ONE, **options: Any) -> Loader:
    draw = torch.Generator().manual_seed(0)
    pixels = torch.randint(0, 256, (COUNT, 3, 16, 16), dtype=torch.uint8, generator=draw)
    labels = torch.arange(COUNT) % 7 % 3  # of unequal sizes
    pictures = ImageSet(pixels, labels, ("a", "b", "c"), {}, (), "", "")
    spec = AugmentSpec(crop="pad", flip=0.5, randaugment=2, erase=0.25)
    augmenter = Augmenter(spec, (0.5,) * 3, (0.25,) * 3)
    rows = torch.arange(COUNT)
    images = DeviceImages(pictures, augmenter, torch.device("cpu"))
    return Loader(images, rows, lambda epoch: views, BATCH, 0, world=world, **options)


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("options", [{}, {"repeats": 3}, {"balanced": True}, {"balanced": True, "repeats": 2}])
@pytest.mark.parametrize("views", [ONE, SEVERAL])
def test_the_parts_of_all_processes_are_the_whole_batch(
    views: tuple[View, ...], options: dict[str, Any], size: int
) -> None:
    whole = loader(ALONE, views, **options)
    parts = [loader(World(rank, size), views, **options) for rank in range(size)]
    assert all(len(part) == len(whole) == 4 for part in parts)
    for epoch, number in ((0, 0), (0, 3), (2, 1)):
        expected = whole.batch(epoch, number)
        batches = [part.batch(epoch, number) for part in parts]
        assert torch.equal(torch.cat([batch.index_B for batch in batches]), expected.index_B)
        assert torch.equal(torch.cat([batch.labels_B for batch in batches]), expected.labels_B)
        for kind, view in enumerate(views):
            crops = [by_crop(batch.views[kind], view) for batch in batches]
            assert torch.equal(torch.cat(crops, 1), by_crop(expected.views[kind], view))


def by_crop(images: Tensor, view: View) -> Tensor:
    return images.unflatten(0, (view.copies, -1))


def test_a_batch_that_cannot_be_shared_evenly_is_refused() -> None:
    with pytest.raises(UsageError, match="batch_size 12 cannot be shared by 5 processes: give a multiple of 5"):
        loader(World(0, 5))


def test_one_process_writes_and_all_train(tmp_path: Path) -> None:
    made = plan(epochs=1)
    steps = []
    for rank in (0, 1):
        t = build_training(made.recipe, made.images, made.split, world=World(rank, 2))
        run_session(tmp_path / str(rank), t, [])
        assert t.done == t.total == 13 and len(t.loader.batch(0, 0).labels_B) == 4
        steps.append(dict(t.step.state_dict()))
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {"0/metrics.jsonl", "0/state/latest.safetensors", "0/state/best.safetensors"}
    stored = read_tensors(tmp_path / "0" / "state" / "latest.safetensors")[0]
    assert_same_tensors({name: stored[f"step/{name}"] for name in steps[0]}, steps[0])
    different = [name for name, tensor in steps[0].items() if not torch.equal(tensor, steps[1][name])]
    assert different, "each process saw its own half of the images"


def test_alone_is_what_a_run_is_without_further_words() -> None:
    assert training().world == ALONE == World(rank=0, size=1) and ALONE.writes
    assert not World(1, 2).writes

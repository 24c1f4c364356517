"""What does CKA of all layers cost, beside the forward passes alone and beside the torch-cka package?

    OMP_NUM_THREADS=1 python benchmarks/cka.py [--batch 64] [--rounds 5] [--peer FOLDER] [--quick]

Zhu et al.'s ViT (depth 6, patch 4) against a ResNet-18 at 32 px, every layer with every other, end to end: models run,
hooks, Gram matrices, HSIC, ratio. smallvit and the bare forward passes take turns within each round, in one process
and on one thread, so that a busy machine slows both; medians of processor time. torch-cka takes one turn of its own,
on one batch, because it is slow. It is no dependency: install it somewhere with

    uv pip install --no-deps --target FOLDER torch-cka

and name the folder; without it the comparison is left out. --quick takes seconds and its figures mean little.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import timm
import torch
from torch import Tensor, nn

import smallvit.models  # noqa: F401  (registers the models with timm)
from smallvit.diagnosis.alignment import Similarity, cka


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer", help="folder that holds the package torch_cka")
    parser.add_argument("--quick", action="store_true", help="one round of batch 8")
    args = parser.parse_args()
    batch, rounds = (8, 1) if args.quick else (args.batch, args.rounds)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    vit, resnet = contenders()
    images = torch.randn(batch, 3, 32, 32)
    bare, ours = take_turns([lambda: forward(vit, resnet, images), lambda: cka(vit, resnet, [images])], rounds)
    found = cka(vit, resnet, [images])
    print(f"{batch} images, {len(found.rows)} x {len(found.columns)} layers, torch {torch.__version__}, one thread")
    print(f"bare forward passes  {bare:8.2f} s")
    print(f"smallvit             {ours:8.2f} s   {ours / bare:.2f} times the bare passes")
    peer(args.peer, vit, resnet, images, ours, found)


def contenders() -> tuple[nn.Module, nn.Module]:
    """Weights as they start, except that no layer starts constant: norms and classifiers at zero have no CKA."""
    vit = timm.create_model("zhu_vit_patch4_32", num_classes=10)
    resnet = timm.create_model("resnet18_32", num_classes=10, zero_init_last=False)
    return vit.eval(), resnet.eval()


@torch.no_grad()
def forward(first: nn.Module, second: nn.Module, images: Tensor) -> None:
    first(images)
    second(images)


def take_turns(tasks: list[Callable[[], Any]], rounds: int) -> list[float]:
    """Median processor time of each; the first round warms up."""
    seconds: list[list[float]] = [[] for _ in tasks]
    for _ in range(rounds + 1):
        for task, own in zip(tasks, seconds, strict=True):
            own.append(timed(task))
    return [statistics.median(own[1:]) for own in seconds]


def timed(task: Callable[[], Any]) -> float:
    start = time.process_time()
    task()
    return time.process_time() - start


def peer(folder: str | None, vit: nn.Module, resnet: nn.Module, images: Tensor, ours: float, found: Similarity) -> None:
    if folder:
        sys.path.insert(0, folder)
    try:
        package = importlib.import_module("torch_cka")
    except ImportError:
        print("torch-cka is not installed: the comparison with it is left out (see the head of this file)")
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        comparison = package.CKA(vit, resnet, device="cpu")
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images), batch_size=len(images))
        ending = "finished"

        def compare() -> None:
            nonlocal ending
            try:
                with torch.no_grad():
                    comparison.compare(loader)
            except AssertionError as error:
                ending = f"failed at the end: {error}"

        seconds = timed(compare)
    print(f"torch-cka            {seconds:8.2f} s   {seconds / ours:.1f} times smallvit; {ending}")
    values = comparison.hsic_matrix
    empty = int((values.nan_to_num() == 0).all(1).sum())
    print(
        f"torch-cka: {len(values)} x {len(values[0])} modules, {empty} rows without a value; "
        f"smallvit: {len(found.rows)} x {len(found.columns)} layers that ran, no row without"
    )


if __name__ == "__main__":
    main()

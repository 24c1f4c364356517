"""What does a step of pretraining cost, beside a supervised step on as many images?

    OMP_NUM_THREADS=1 python benchmarks/pretrain_step.py [--model deit_tiny] [--batch 16] [--rounds 9] [--only mae,simclr] [--quick]

A step is forward, backward, AdamW and what comes after (teachers, queues), on made-up images of 32 px; augmentation is
not in it. Every method is compared with supervised training on as many crops as its student sees: 2 per image for
SimCLR, SupCon and MoCo v3, 1 for MoCo v2 (the other one goes to the teacher) and MAE, 6 for DINO and IDMM. So 1.0 means that
a method costs no more than its crops, and a teacher shows as what it adds. IDMM is also measured with 50,000 images,
where its layer has 50,000 rows, and without CutMix, smoothing and small crops. MAE encodes a quarter of each image.

A method and its supervised partner take turns, in one process and on one thread, so that a busy machine slows both;
ratios are taken within a round, medians over the rounds, of processor time. Minutes; --quick takes seconds and its
figures mean little.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from smallvit.models.aliases import architecture
from smallvit.models.features import create_backbone
from smallvit.objectives.base import TaskInfo, objectives, options_of
from smallvit.recipe import OptimizerSpec
from smallvit.training.optimizer import make_optimizer
from smallvit.training.step import Step
from smallvit.types import Batch, Context

SIZE, CLASSES = 32, 10


class Case(NamedTuple):
    label: str
    objective: str
    images: int = 2_040
    options: dict[str, Any] = {}  # noqa: RUF012


CASES = [
    Case("SimCLR", "simclr"),
    Case("SupCon", "supcon"),
    Case("MoCo v2", "mocov2"),
    Case("MoCo v3", "mocov3"),
    Case("DINO", "dino"),
    Case("MAE", "mae"),
    Case("MAE, one cell hidden", "mae", options={"mask_ratio": 0.001}),
    Case("IDMM", "idmm"),
    Case("IDMM, 50,000 images", "idmm", 50_000),
    Case("IDMM, large crops alone", "idmm", options={"small_crops": 0, "cutmix": 0.0, "label_smoothing": 0.0}),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--model", default="deit_tiny")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="methods, with commas between")
    parser.add_argument("--quick", action="store_true", help="two rounds of batch 4")
    args = parser.parse_args()
    batch, rounds = (4, 2) if args.quick else (args.batch, args.rounds)
    torch.set_num_threads(1)
    width = backbone(args.model, CLASSES).width
    print(
        f"{args.model} ({width} wide), {batch} images of {SIZE} px, one thread, medians of {rounds} rounds, "
        f"processor time, torch {torch.__version__}\n"
    )
    print("| method | student crops | ms per step | supervised, as many crops | ratio (smallest to largest) |")
    print("|---|---:|---:|---:|---:|")
    for case in (case for case in CASES if not args.only or case.objective in args.only.split(",")):
        print(measure(case, args.model, batch, rounds), flush=True)


def measure(case: Case, model: str, batch: int, rounds: int) -> str:
    crops = {"mocov2": 1}.get(case.objective)
    step, seen = training_step(case, model, batch)
    crops = crops or seen
    supervised, _ = training_step(Case("", "supervised", case.images), model, batch * crops)
    times: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        pair = timed(step), timed(supervised)
        if number:  # the first one warms up
            times.append(pair)
    ratios = [own / other for own, other in times]
    own, other = (1000 * statistics.median(column) for column in zip(*times, strict=True))
    return (
        f"| {case.label} | {crops} | {own:.0f} | {other:.0f} | "
        f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) |"
    )


def timed(step: Callable[[], None]) -> float:
    started = time.process_time()
    step()
    return time.process_time() - started


def backbone(model: str, classes: int) -> Any:
    plan = architecture(model, SIZE)
    return create_backbone(plan.timm_name, plan.kwargs, num_classes=classes, in_chans=3, img_size=SIZE)


def training_step(case: Case, model: str, batch: int) -> tuple[Callable[[], None], int]:
    """One step as the loop takes it, and the crops per image."""
    torch.manual_seed(0)
    kind = objectives()[case.objective]
    student = backbone(model, CLASSES if kind.classifies else 0)
    options = options_of(objectives(), case.objective, case.options, "objective")
    objective = kind(student, options, TaskInfo(CLASSES, case.images, SIZE))
    module = Step(student, objective, {}).to(memory_format=student.memory_format).train()
    optimizer = make_optimizer(module, OptimizerSpec(lr=1e-4, weight_decay=0.05), torch.device("cpu"))
    views = tuple(torch.randn(view.copies * batch, 3, view.size, view.size) for view in objective.views_at(0, 1))
    images = Batch(views, torch.randint(0, CLASSES, (batch,)), torch.randint(0, case.images, (batch,)))

    def step() -> None:
        ctx = Context(1, 10, 0.3, torch.Generator().manual_seed(0), epochs=100)
        optimizer.zero_grad(set_to_none=True)
        module(images, ctx).total.backward()
        optimizer.step()
        module.after_step(ctx)

    return step, sum(view.copies for view in objective.views_at(0, 1))


if __name__ == "__main__":
    main()

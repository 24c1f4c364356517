"""The loop, the schedule, the optimizer's groups, the moving average, and how many epochs fit a budget."""

from __future__ import annotations

import gc
import math
import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch
from tiny_runs import Reference, all_tensors, assert_same_tensors, training
from torch import nn

import smallvit
from smallvit.evaluation.model_file import read_tensors
from smallvit.models.features import Backbone, create_backbone
from smallvit.recipe import ScheduleSpec
from smallvit.training.budget import (
    MOST_EPOCHS,
    MOST_VALIDATIONS,
    StepCost,
    fitting_epochs,
    measure_step,
    steps_within,
)
from smallvit.training.loop import train
from smallvit.training.optimizer import learning_rate, parameter_groups
from smallvit.training.step import Step
from smallvit.types import Batch, Context, Loss, Seen

# ---- the loop ------------------------------------------------------------------------------------------


def test_yields_after_every_step() -> None:
    t = training(epochs=2)
    ticks = list(train(t))
    assert [tick.step for tick in ticks] == list(range(1, 27))
    assert [tick.epoch for tick in ticks] == [0] * 13 + [1] * 13
    assert [tick.step for tick in ticks if tick.ends_epoch] == [13, 26]
    assert [tick.step for tick in ticks if tick.validation] == [13, 26]
    assert t.done == t.total == 26
    assert all(math.isfinite(tick.loss) and tick.grad_norm > 0 for tick in ticks)
    assert list(train(t)) == []  # nothing is left to do


def test_nothing_happens_before_it_is_asked_for() -> None:
    t = training()
    before = all_tensors(t)
    ticks = train(t)
    assert_same_tensors(all_tensors(t), before)
    next(ticks)
    assert t.done == 1


def test_it_learns() -> None:
    settings = {"augment.crop": "none", "objective.label_smoothing": 0}
    losses = [float(tick.loss) for tick in train(training(epochs=30, per_class=2, batch_size=10, lr=2e-3, **settings))]
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


@pytest.mark.parametrize("recipe", ["vit", "sgd"])
def test_twice_gives_the_same_weights_and_another_seed_others(recipe: str) -> None:
    found = []
    for seed in (5, 5, 6):
        t = training(recipe, epochs=1, seed=seed)
        list(train(t))
        found.append(all_tensors(t))
        torch.manual_seed(len(found))  # what the caller did with torch's stream in between does not matter
    assert_same_tensors(found[0], found[1])
    with pytest.raises(AssertionError, match="differ"):
        assert_same_tensors(found[0], found[2])


@pytest.mark.parametrize(("eval_every", "epochs"), [(1, [0, 1, 2, 3, 4]), (2, [1, 3, 4]), (3, [2, 4]), (99, [4])])
def test_validates_every_so_many_epochs_and_after_the_last(eval_every: int, epochs: list[int]) -> None:
    t = training(epochs=5, eval_every=eval_every, per_class=2)
    assert [tick.epoch for tick in train(t) if tick.validation] == epochs


def test_without_validation_part_nothing_is_validated() -> None:
    t = training(epochs=1, val="auto", select="auto")
    assert not any(tick.validation or tick.kept for tick in train(t))
    assert t.recipe.select == "last"


def test_looks_that_cannot_be_told_apart_keep_the_latest() -> None:
    t = training(epochs=4, lr=1e-30, model="resnet_nano", **{"optimizer.name": "sgd", "optimizer.weight_decay": 0})
    for module in t.step.modules():  # statistics of BatchNorm move without any learning
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.0
    ticks = [tick for tick in train(t) if tick.validation]
    assert len({tick.validation.accuracy for tick in ticks}) == 1 and all(tick.kept for tick in ticks)
    assert t.best.epoch == 3


def test_a_model_that_gives_no_numbers_is_never_the_best() -> None:
    """Its answers are all the same class, which may well be right more often than before."""
    t = training(epochs=1)
    for tick in train(t):
        if tick.step == t.total - 1:
            for parameter in t.step.parameters():
                parameter.data.fill_(math.nan)
    assert tick.validation and math.isnan(tick.validation.loss) and tick.validation.accuracy > 0
    assert not tick.kept and t.best.epoch == -1


def test_the_model_file_holds_what_was_selected(reference: Reference) -> None:
    best, header = read_tensors(reference("vit") / "model.safetensors")
    assert header["weights"] == {"which": "best", "ema": True, "epoch": header["weights"]["epoch"]}
    assert_same_tensors(best, read_tensors(reference("vit") / "state" / "best.safetensors")[0])
    last, header = read_tensors(reference("sgd") / "model.safetensors")
    assert header["weights"] == {"which": "last", "ema": False, "epoch": 3}
    state = read_tensors(reference("sgd") / "state" / "latest.safetensors")[0]
    prefix = "step/backbone.model."
    assert_same_tensors(last, {name[len(prefix) :]: state[name] for name in state if name.startswith(prefix)})


def test_bf16_on_the_cpu_gives_numbers() -> None:
    exact, rough = (list(train(training(epochs=1, per_class=4, precision=p))) for p in ("fp32", "bf16"))
    assert all(math.isfinite(tick.loss) for tick in rough)
    assert float(rough[1].loss) == pytest.approx(float(exact[1].loss), rel=0.02)
    assert float(rough[1].loss) != float(exact[1].loss), "nothing was computed in bf16"


@pytest.mark.slow
def test_compiled_model_trains_the_same() -> None:
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        pytest.skip("torch.compile needs a C++ compiler")
    plain, compiled = (
        [float(tick.loss) for tick in train(training(epochs=1, lr=1e-3, compile=on, **{"model.kwargs.depth": 1}))]
        for on in (False, True)
    )
    assert compiled == pytest.approx(plain, rel=1e-3)
    assert compiled != plain, "nothing was compiled"


def test_the_callers_random_numbers_and_threads_stay(tmp_path: Path) -> None:
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002
    random.seed(3)
    torch.set_num_threads(2)
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    run = smallvit.train(
        "digits", model="vit_pico", per_class=2, epochs=1, threads=1, out=tmp_path / "run", show_progress=False
    )
    run.evaluate()
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]  # noqa: NPY002
    assert random.getstate() == states[2]
    assert torch.get_num_threads() == 2


# ---- the schedule --------------------------------------------------------------------------------------


def rates(warmup_epochs: float, total: int, steps_per_epoch: int, base: float = 1.0) -> list[float]:
    spec = ScheduleSpec(warmup_epochs=warmup_epochs, warmup_from=0.01, end_at=0.1)
    return [learning_rate(spec, base, step, total, steps_per_epoch) for step in range(total)]


def test_schedule_warms_up_then_follows_a_cosine() -> None:
    found = rates(warmup_epochs=2, total=100, steps_per_epoch=10, base=0.5)
    assert found[20] == 0.5  # the first step after the warm-up
    assert found[:21] == pytest.approx([0.5 * (0.01 + 0.99 * (step + 1) / 21) for step in range(21)])
    assert found[-1] == pytest.approx(0.05)
    assert found[20:] == pytest.approx([0.05 + 0.45 * 0.5 * (1 + math.cos(math.pi * n / 79)) for n in range(80)])
    assert all(a > b for a, b in pairwise(found[20:]))


@pytest.mark.parametrize(("warmup_epochs", "total"), [(0, 1), (10, 1), (0, 2), (10, 2), (50, 10), (0.5, 3)])
def test_schedule_of_short_runs(warmup_epochs: float, total: int) -> None:
    found = rates(warmup_epochs, total, steps_per_epoch=1)
    assert len(found) == total and all(0 < rate <= 1 for rate in found)
    assert max(found) == 1.0  # however long the warm-up, the full rate is reached


def test_the_optimizer_uses_the_schedule() -> None:
    t = training(epochs=1, lr=0.01)
    spec = t.recipe.schedule
    for step, tick in enumerate(train(t)):
        assert tick.lr == learning_rate(spec, 0.01, step, 13, 13)
        assert {group["lr"] for group in t.optimizer.param_groups} == {tick.lr}


def test_a_run_of_one_step() -> None:
    t = training(epochs=1, per_class=2, batch_size=20)
    (tick,) = train(t)
    assert tick.ends_epoch and tick.validation and tick.lr == t.recipe.optimizer.lr


# ---- the optimizer -------------------------------------------------------------------------------------


def group_names(module: nn.Module) -> tuple[set[str], set[str]]:
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    groups = parameter_groups(module, 0.05)
    assert [group["weight_decay"] for group in groups] == [0.05, 0.0]
    decayed, plain = ({names[id(p)] for p in group["params"]} for group in groups)
    assert decayed | plain == set(names.values()) and not decayed & plain
    return decayed, plain


def test_weight_decay_of_a_vit() -> None:
    backbone = create_backbone("vit_nano", {}, num_classes=10, in_chans=1, img_size=32)
    decayed, plain = group_names(nn.ModuleDict({"backbone": backbone}))
    prefix = "backbone.model."
    assert {f"{prefix}{name}" for name in ("cls_token", "pos_embed", "head.bias", "blocks.0.norm1.weight")} <= plain
    assert {
        f"{prefix}{name}" for name in ("head.weight", "patch_embed.proj.weight", "blocks.5.mlp.fc1.weight")
    } <= decayed


def test_weight_decay_of_swin_excludes_its_position_tables() -> None:
    backbone = create_backbone(
        "swin_tiny_patch4_window7_224", {"patch_size": 1, "window_size": 4}, num_classes=10, in_chans=1, img_size=16
    )
    decayed, plain = group_names(backbone)
    tables = {name for name in decayed | plain if "relative_position_bias_table" in name}
    assert tables and tables <= plain


def test_weight_decay_of_a_resnet() -> None:
    decayed, plain = group_names(create_backbone("resnet_nano", {}, num_classes=10, in_chans=3, img_size=32))
    assert all("bn" in name or "downsample.1" in name or name.endswith("bias") for name in plain)
    assert "model.conv1.weight" in decayed and "model.fc.weight" in decayed


def test_frozen_parameters_are_left_out() -> None:
    module = nn.Linear(2, 2)
    module.bias.requires_grad_(False)
    assert [group["params"] for group in parameter_groups(module, 0.1)] == [[module.weight]]


@pytest.mark.parametrize("clip", [0.0, 0.05, 1e6])
def test_clipping_limits_the_update(clip: float) -> None:
    """Plain SGD moves by rate times gradient, so the length of the move shows the gradient that was used."""
    settings = {"optimizer.name": "sgd", "optimizer.momentum": 0, "optimizer.weight_decay": 0, "optimizer.clip": clip}
    t = training(epochs=1, lr=0.1, **settings)

    def weights() -> torch.Tensor:
        return torch.cat([p.detach().flatten().double() for p in t.step.parameters()])

    before = weights()
    for tick in train(t):
        after = weights()
        expected = min(float(tick.grad_norm), clip) if clip else float(tick.grad_norm)
        assert float((after - before).norm()) / tick.lr == pytest.approx(expected, rel=1e-2)
        before = after


# ---- the moving average --------------------------------------------------------------------------------


def test_average_warms_up_and_copies_the_statistics_of_batchnorm() -> None:
    t = training("resnet", ema=0.9)
    expected: dict[str, Any] = {}
    for tick in train(t):
        assert t.ema is not None and t.evaluated is t.ema.module
        # Early on it is a mean over few steps, not mostly the initial weights.
        decay = min(0.9, 1 - (1 + max(0, tick.step - 2)) ** (-2 / 3))
        weights = {name: p.detach().double() for name, p in t.step.backbone.named_parameters()}
        expected = {
            name: decay * expected[name] + (1 - decay) * weight if expected else weight.clone()
            for name, weight in weights.items()
        }
        for name, parameter in t.ema.module.named_parameters():
            torch.testing.assert_close(parameter.double(), expected[name], rtol=1e-4, atol=1e-6)
        buffers = dict(t.step.backbone.named_buffers())
        assert any("running_var" in name for name in buffers)
        assert_same_tensors(dict(t.ema.module.named_buffers()), buffers)


def test_average_is_what_gets_validated() -> None:
    # A rate at which weights move: after 13 steps of the usual one both losses may be the same float.
    raw, averaged = (training("vit", epochs=1, lr=0.01, ema=ema) for ema in (0, 0.999))
    *_, a = train(raw)
    *_, b = train(averaged)
    assert_same_tensors(dict(raw.step.state_dict()), dict(averaged.step.state_dict()))
    assert a.validation and b.validation and a.validation.loss != b.validation.loss


# ---- the step ------------------------------------------------------------------------------------------


def test_auxiliary_losses_are_added_and_reach_the_backbone() -> None:
    class Extra(nn.Module):
        objective_share = 1.0
        learned_from = ()

        def forward(self, backbone: Backbone, seen: Seen, ctx: Context) -> Loss:
            total = seen.features.grids[-1].square().mean() / 2
            return Loss(total, {"extra": total.detach()}, seen)

    t = training()
    batch, ctx = t.loader.batch(0, 0), Context(0, 0, 0.0, torch.Generator().manual_seed(1), epochs=10)
    t.step.eval()
    alone, both = t.step(batch, ctx), Step(t.step.backbone, t.step.objective, {"extra": Extra()})(batch, ctx)  # type: ignore[dict-item]
    assert both.parts.keys() == {"cross_entropy", "extra"}
    torch.testing.assert_close(both.total, alone.total + both.parts["extra"])
    both.total.backward()
    assert all(p.grad is not None for p in t.step.backbone.parameters())


def test_the_loop_calls_what_stands_around_the_step() -> None:
    """DDP and compiled modules do; all that is stored, judged and averaged is the bare step's."""

    class Around(nn.Module):
        calls = 0

        def __init__(self, step: Step) -> None:
            super().__init__()
            self.step = step

        def forward(self, batch: Batch, ctx: Context) -> Loss:
            self.calls += 1
            return self.step(batch, ctx)

    bare, wrapped = training(epochs=1), training(epochs=1)
    assert wrapped.wrapped is wrapped.step
    wrapped.wrapped = around = Around(wrapped.step)
    for t in (bare, wrapped):
        assert list(train(t))[-1].validation is not None
    assert around.calls == wrapped.total
    assert_same_tensors(all_tensors(wrapped), all_tensors(bare))


# ---- the budget ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch_seconds", [0.001, 0.5, 7.0, 100.0])
@pytest.mark.parametrize("validation_seconds", [0.0, 0.1, 20.0])
@pytest.mark.parametrize("seconds", [-5.0, 0.0, 1.0, 30.0, 1000.0])
def test_epochs_fit_and_one_more_would_not(seconds: float, epoch_seconds: float, validation_seconds: float) -> None:
    def takes(epochs: int) -> float:
        return epochs * epoch_seconds + min(epochs, MOST_VALIDATIONS) * validation_seconds

    epochs = fitting_epochs(seconds, takes)
    assert 0 <= epochs <= MOST_EPOCHS
    assert not epochs or takes(epochs) <= seconds
    assert epochs == MOST_EPOCHS or takes(epochs + 1) > seconds


def test_measuring_uses_nothing_up() -> None:
    t = training("resnet")
    before = all_tensors(t)
    assert 0 < measure_step(t, t.step.objective.views_at(0, 1)) < 10
    assert t.done == 0
    assert_same_tensors(all_tensors(t), before)


@pytest.mark.parametrize("seconds", [-3.0, 0.0, 1e-3])
def test_less_than_an_epoch_is_no_step(seconds: float) -> None:
    assert steps_within(training(), StepCost((1, 1), (1.0, 1.0)), seconds) == 0


def test_steps_fill_the_last_epoch_in_part() -> None:
    """Steps of 1 s and no validation: what is left after the last whole epoch is not thrown away."""
    t = training(val="none", select="last")
    assert len(t.loader) == 13
    assert steps_within(t, StepCost((1, 1), (1.0, 1.0)), 2 * 13 + 5.5) == 2 * 13 + 5


def test_a_training_that_nobody_holds_is_gone_at_once() -> None:
    """Its model, optimizer and images are too large to wait for a collection of cycles."""
    t = training(epochs=1, ema=0.9)
    ticks = train(t)
    next(ticks)
    held = [ref(part) for part in (t, t.step, t.optimizer, t.ema, t.loader.images)]
    collecting = gc.isenabled()
    gc.disable()
    try:
        del ticks, t
        assert [one() for one in held] == [None] * len(held)
    finally:
        if collecting:
            gc.enable()

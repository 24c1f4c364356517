"""A finished run trained longer: from where it stood, as a run of its own that can be killed and resumed like any other."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest
import torch
from processes import Moment, Warm
from tiny_runs import Reference, assert_same_run, assert_same_tensors

import smallvit
from smallvit.errors import RunError, UsageError
from smallvit.evaluation.model_file import read_tensors
from smallvit.planning.plan import read_plan
from smallvit.runs.longer import ask_longer
from smallvit.training.build import build_training
from smallvit.training.continued import seed_of_draws
from smallvit.training.loop import train

MOMENTS: list[Moment] = [
    ("enter", "save_state", 1),
    ("leave", "save_state", 5),
]  # before its own state is there, and after


@pytest.fixture
def origin(reference: Reference, tmp_path: Path) -> smallvit.Run:
    """39 steps with momentum, moving average and a kept best; a copy, to be spoiled."""
    return smallvit.Run(shutil.copytree(reference("vit"), tmp_path / "origin"))


@pytest.mark.timeout(180)
def test_killed_and_resumed_it_ends_the_same(smallvit_command: Warm, origin: smallvit.Run, tmp_path: Path) -> None:
    expected, folder = tmp_path / "expected", tmp_path / "run"
    longer = ("train", "--continue", origin.path, "--epochs", "1", "--set", "checkpoint_seconds=0")
    smallvit_command.run(*longer, "--out", expected)
    words: list[str | Path] = [*longer, "--out", folder]
    for moment in MOMENTS:
        killed = smallvit_command.start(*words, moment=moment)
        assert killed.wait() == -signal.SIGKILL, f"{moment} never came:\n{killed.output}"
        words = ["resume", folder]
    shutil.rmtree(origin.path / "state")  # its own state is all that it still needs
    smallvit_command.run(*words)
    assert_same_run(folder, expected)

    run = smallvit.Run(folder)
    assert run.recipe.continued.steps == 39 and run.recipe.epochs == 1
    assert run.read("split.json")["parts"] == origin.read("split.json")["parts"]
    floors, same = ({key: one["accuracy"] for key, one in r.results["floors"].items()} for r in (run, origin))
    assert floors == same
    told = {choice["key"]: choice["why"] for choice in run.choices}
    assert "after 39 steps; the learning rate runs its course once more" in told["continued.file"]
    assert "model.name" not in told and told["epochs" if "epochs" in told else "schedule.warmup_epochs"]
    rates = [record["lr"] for record in run.metrics if record["kind"] == "train"]
    assert rates[0] > 10 * rates[-1], "from its height down to nothing, once more"

    twice = smallvit.train_longer(run.path, epochs=1, out=tmp_path / "twice", show_progress=False)
    assert twice.recipe.continued.steps == 39 + 13


def test_it_begins_with_all_that_the_run_had(origin: smallvit.Run) -> None:
    _, asked = ask_longer(origin.path, {"epochs": 2})
    plan = read_plan(origin)
    recipe = asked.model_copy(update={"eval_every": 1, "schedule": plan.recipe.schedule})
    t = build_training(recipe, plan.images, plan.split)
    stored, _ = read_tensors(origin.path / "state" / "latest.safetensors")
    own = {f"step/{name}": tensor for name, tensor in t.step.state_dict().items()}
    assert t.ema is not None
    own |= {f"ema/{name}": tensor for name, tensor in t.ema.module.state_dict().items()}
    for name, parameter in t.step.named_parameters():
        own |= {f"optimizer/{name}/{slot}": value for slot, value in t.optimizer.state[parameter].items()}
    assert_same_tensors(own, stored)
    assert t.done == 0 and t.total == 2 * 13

    first = build_training(plan.recipe, plan.images, plan.split)
    assert not torch.equal(t.loader.batch(0, 0).index_B, first.loader.batch(0, 0).index_B), "other orders than before"
    assert seed_of_draws(plan.recipe) == plan.recipe.seed

    next(train(t))
    average, weights = (list(module.parameters()) for module in (t.ema.module, t.step.backbone))
    assert not any(map(torch.equal, average, weights)), "the average goes on, and does not begin anew"


def test_another_learning_rate_changes_that_of_muons_filters_by_as_much(reference: Reference) -> None:
    folder = reference("hybrid")
    own = smallvit.Run(folder).recipe.optimizer
    lr, matrix_lr = float(own.lr), float(own.matrix_lr)

    def rates(**changes: float) -> tuple[object, object]:
        _, asked = ask_longer(folder, {"epochs": 1, **{f"optimizer.{key}": to for key, to in changes.items()}})
        return asked.optimizer.lr, asked.optimizer.matrix_lr

    assert rates() == (lr, matrix_lr)
    assert rates(lr=lr / 4) == pytest.approx((lr / 4, matrix_lr / 4))
    assert rates(lr=lr / 4, matrix_lr=0.01) == pytest.approx((lr / 4, 0.01))


def test_what_is_told_of_the_rates_is_what_they_are(reference: Reference, tmp_path: Path) -> None:
    origin, out = reference("hybrid"), tmp_path / "longer"
    longer = smallvit.train_longer(origin, epochs=1, lr=0.003, out=out, show_progress=False)
    told = {choice["key"]: choice["value"] for choice in longer.choices}
    assert "optimizer.lr" not in told, "it was given"
    assert told["optimizer.matrix_lr"] == longer.recipe.optimizer.matrix_lr


def test_without_its_state_its_weights_are_taken(origin: smallvit.Run, tmp_path: Path) -> None:
    shutil.rmtree(origin.path / "state")
    longer = smallvit.train_longer(origin.path, epochs=1, out=tmp_path / "longer", show_progress=False)
    told = {choice["key"]: choice["why"] for choice in longer.choices}
    assert "the weights of its model; the state of its training is gone" in told["continued.file"]


def test_another_state_than_planned_is_refused(origin: smallvit.Run) -> None:
    _, asked = ask_longer(origin.path, {"epochs": 1})
    plan = read_plan(origin)
    other = asked.continued.model_copy(update={"digest": "0" * 64})
    with pytest.raises(RunError, match="is not the file that the run was planned with"):
        build_training(plan.recipe.model_copy(update={"continued": other}), plan.images, plan.split)


def test_what_cannot_change(origin: smallvit.Run, tmp_path: Path) -> None:
    def longer(**more: object) -> smallvit.Run:
        return smallvit.train_longer(origin.path, show_progress=False, **more)  # type: ignore[arg-type]

    with pytest.raises(UsageError, match="needs a length: --epochs N"):
        longer()
    with pytest.raises(UsageError, match="--img-size cannot change, for the run goes on with its own"):
        longer(epochs=1, img_size=16)
    with pytest.raises(UsageError, match=r"optimizer\.name, data\.per_class cannot change"):
        longer(epochs=1, settings={"optimizer.name": "sgd", "data.per_class": 3})
    with pytest.raises(UsageError, match="epochs = 0: should be at least 1"):
        longer(epochs=0)
    (origin.path / "results.json").unlink()
    with pytest.raises(RunError, match="is not finished: go on with `smallvit resume"):
        longer(epochs=1)
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / "group.json").write_text("{}")
    with pytest.raises(UsageError, match="it is a group; give one of its runs"):
        smallvit.train_longer(tmp_path / "group", epochs=1)


@pytest.mark.parametrize(
    ("length", "warmup"), [({"epochs": 3}, 0.6), ({"epochs": 20}, 2.0), ({"budget": 60.0}, "auto")]
)
def test_a_warm_up_of_another_length_is_cut(length: dict[str, float], warmup: object, tmp_path: Path) -> None:
    run = smallvit.train(
        "digits", model="vit_pico", per_class=4, epochs=3, threads=1, settings={"schedule.warmup_epochs": 2.0},
        out=tmp_path / "a", show_progress=False,
    )  # fmt: skip
    assert ask_longer(run.path, length)[1].schedule.warmup_epochs == warmup

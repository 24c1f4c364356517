"""Learning from a teacher's answers: the loss by its formula, and teachers that differ from the student."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import smallvit
from helpers import fails, make_folder, run_here, write_npz
from smallvit.errors import RunError, UsageError
from smallvit.evaluation.model_file import load_model, read_tensors, write_tensors
from smallvit.objectives.teacher import Distillation
from smallvit.planning.plan import make_plan, prepare
from smallvit.training import budget
from smallvit.training.build import build_training
from smallvit.training.checkpoint import load_state, save_state
from smallvit.training.loop import Training, train
from smallvit.types import Context, Loss

STUDENT: dict[str, Any] = {"model": "vit_pico", "batch_size": 8, "epochs": 2, "threads": 1, "per_class": 4}


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MEASURED_SECONDS", 0.02)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> smallvit.Run:
    """A teacher that knows something."""
    return smallvit.train(
        "digits", model="conv_nano", epochs=6, per_class=20, threads=1, out=tmp_path_factory.mktemp("runs") / "teacher",
        show_progress=False,
    )  # fmt: skip


def changed(run: smallvit.Run, folder: Path, **header: Any) -> Path:
    """The file of a run that says something else of its model."""
    tensors, stored = read_tensors(run.path / "model.safetensors")
    write_tensors(folder / "model.safetensors", tensors, stored | header)
    return folder / "model.safetensors"


def taught(teacher: Path | str, data: str | Path = "digits", **more: Any) -> Training:
    settings = {key: more.pop(key) for key in list(more) if "." in key}
    asked = smallvit.make_recipe(data=data, teacher=teacher, settings=settings, **{**STUDENT, **more})
    return prepare(asked, with_floors=False).training


def loss_of(t: Training) -> tuple[Loss, Loss]:
    """Of the whole step, and of the objective alone, for one batch."""
    t.step.eval()
    batch = t.loader.batch(0, 0)

    def context() -> Context:
        return Context(0, 0, 0.0, torch.Generator().manual_seed(0), 2)

    return t.step(batch, context()), t.step.objective(t.step.backbone, batch, context())


def softmax(logits_BK: Tensor) -> np.ndarray:
    powers = np.exp(logits_BK.detach().double().numpy())
    return powers / powers.sum(1, keepdims=True)


def answers_of(t: Training) -> Distillation:
    loss = t.step.auxiliaries["teacher"]
    assert isinstance(loss, Distillation)
    return loss


def test_the_loss_is_the_formula_on_the_mixed_images(digits: smallvit.Run) -> None:
    t = taught(digits.path, mixup=1.0, **{"aux.teacher.weight": 0.3, "aux.teacher.temperature": 3.0})
    whole, alone = loss_of(t)
    images_BCHW = alone.seen.images_ACHW
    assert not torch.equal(images_BCHW, t.loader.batch(0, 0).views[0]), "they are mixed"
    predictor = load_model(digits.path / "model.safetensors").predictor
    mean, std = (torch.tensor(numbers)[:, None, None] for numbers in (t.recipe.data.mean, t.recipe.data.std))
    pixels_BCHW = images_BCHW * std + mean
    own_mean, own_std = (
        torch.tensor(n)[:, None, None] for n in (predictor.preparation.mean, predictor.preparation.std)
    )
    taught_BK = predictor.logits_of([(pixels_BCHW - own_mean) / own_std])
    guess_BK = t.step.backbone.classify(alone.seen.features.pooled_BD)
    q, p = softmax(taught_BK / 3), softmax(guess_BK / 3)
    apart = (q * np.log(q / p)).sum(1).mean()
    assert float(whole.parts["teacher"]) == pytest.approx(apart, rel=1e-4)
    assert whole.total.item() == pytest.approx(0.7 * alone.total.item() + 0.3 * 9 * apart, rel=1e-4)
    agree = (q.argmax(1) == p.argmax(1)).mean()
    assert float(whole.parts["teacher_agreement"]) == pytest.approx(agree)


def test_a_student_follows_its_teacher(digits: smallvit.Run) -> None:
    """With all of the weight on the teacher, which knows the digits, no label is needed."""
    t = taught(digits.path, model="conv_nano", epochs=6, per_class=20, batch_size=32, **{"aux.teacher.weight": 1.0})
    agreements = [float(tick.parts["teacher_agreement"]) for tick in train(t)]
    assert np.mean(agreements[-5:]) > 0.7 > 0.5 > np.mean(agreements[:5])


def test_classes_in_another_order(digits: smallvit.Run, tmp_path: Path) -> None:
    """A teacher of the same classes answers for each by its name."""
    names = [str(number) for number in range(10)]
    turned = changed(digits, tmp_path, class_names=names[::-1])
    images = torch.randn(3, 1, 8, 8)
    plain_BK, turned_BK = (answers_of(taught(file)).teacher(images) for file in (digits.path, turned))
    assert torch.equal(turned_BK, plain_BK.flip(1))


def test_its_own_temperature_counts_where_it_was_calibrated(digits: smallvit.Run, tmp_path: Path) -> None:
    images = torch.randn(3, 1, 8, 8)
    told = [{"temperature": 4.0, "calibrate": True}, {"temperature": 4.0, "calibrate": False}]
    files = [changed(digits, tmp_path / str(number), **header) for number, header in enumerate(told)]
    hot_BK, cold_BK = (answers_of(taught(file)).teacher(images) for file in files)
    assert torch.allclose(4 * hot_BK, cold_BK)


def test_images_of_another_size_are_resized_for_it(digits: smallvit.Run) -> None:
    t = taught(digits.path, img_size=16)
    images_BCHW = torch.rand(2, 1, 8, 8).repeat_interleave(2, 2).repeat_interleave(2, 3)
    seen: list[torch.Size] = []
    held = answers_of(t).teacher.module
    held.backbone.register_forward_pre_hook(lambda module, given: seen.append(given[0].shape))  # type: ignore[operator,union-attr]
    assert held(images_BCHW).shape == (2, 10) and seen == [(2, 1, 8, 8)]
    (why,) = [c.why for c in make_plan(smallvit.make_recipe(data="digits", teacher=digits.path, img_size=16, **STUDENT), with_floors=False).choices if c.key == "aux.teacher.run"]  # fmt: skip
    assert why == "the teacher: it sees 8 px, for which images of 16 px are resized"


def test_it_is_in_no_checkpoint_and_resume_is_exact(digits: smallvit.Run, tmp_path: Path) -> None:
    whole, part, resumed = (taught(digits.path, mixup=0.5) for _ in range(3))
    list(islice(train(part), 4))
    save_state(tmp_path / "state", part)
    assert not [name for name in read_tensors(tmp_path / "state")[0] if "teacher" in name]
    load_state(tmp_path / "state", resumed)
    for t in (whole, resumed):
        list(train(t))
    expected = whole.step.state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in resumed.step.state_dict().items())


def test_a_run_is_not_resumed_with_another_teacher(digits: smallvit.Run, tmp_path: Path) -> None:
    file = changed(digits, tmp_path)
    plan = make_plan(smallvit.make_recipe(data="digits", teacher=file, **STUDENT), with_floors=False)
    assert plan.recipe.aux["teacher"]["run"] == str(file)
    changed(digits, tmp_path, temperature=2.0)
    with pytest.raises(RunError, match="is not the teacher that the run was planned with"):
        build_training(plan.recipe, plan.images, plan.split)
    file.unlink()
    with pytest.raises(UsageError, match=r"cannot read .*model\.safetensors"):
        build_training(plan.recipe, plan.images, plan.split)


def test_a_teacher_that_has_seen_the_test_images_is_told(digits: smallvit.Run, tmp_path: Path) -> None:
    run = smallvit.train("digits", **STUDENT, test="none", out=tmp_path / "all", show_progress=False)
    outcome = run_here("train", "digits", "--teacher", run.path, "--explain", "--per-class", "4", "--epochs", "1", "--threads", "1")  # fmt: skip
    assert "test images are among those that" in outcome.err and "the result may be too good" in outcome.err


@pytest.mark.parametrize(("header", "message"), [
    ({"class_names": [*"012345678", "ten"]}, "its classes are not those of the images (10 and 10): it lacks 9; only it has ten"),
    ({"class_names": []}, "it was pretrained and has no classes"),
])  # fmt: skip
def test_other_classes_are_refused(digits: smallvit.Run, header: dict[str, Any], message: str, tmp_path: Path) -> None:
    tensors, stored = read_tensors(digits.path / "model.safetensors")
    classifier = {name: tensor for name, tensor in tensors.items() if "head" in name}
    assert classifier
    kept = {name: tensor for name, tensor in tensors.items() if header["class_names"] or name not in classifier}
    write_tensors(tmp_path / "model.safetensors", kept, stored | header)
    with pytest.raises(UsageError) as refusal:
        taught(tmp_path / "model.safetensors")
    assert message in str(refusal.value)


def test_other_channels_are_refused(digits: smallvit.Run) -> None:
    with pytest.raises(UsageError, match="it takes images of 1 channel, and this run has 3: give --in-chans 1"):
        taught(digits.path, in_chans=3)


def test_runs_that_cannot_teach(digits: smallvit.Run, tmp_path: Path) -> None:
    make_folder(tmp_path, {"photos": 2})
    words = ("train", "digits", "--epochs", "1", "--out", tmp_path / "a", "--teacher")
    fails(run_here(*words, tmp_path / "photos"), 2, f"--teacher {tmp_path / 'photos'}: the folder is not a run")
    fails(run_here(*words, tmp_path / "nowhere"), 2, "should be auto, a finished run or a model", "nowhere")
    stranger = write_npz(tmp_path / "x.npz")
    fails(run_here(*words, stranger), 1, f"cannot read {stranger}")


def test_none_takes_out_what_a_preset_has(tmp_path: Path) -> None:
    preset = tmp_path / "own.toml"
    preset.write_text("[aux.teacher]\nweight = 0.7\n[aux.drloc]\n")
    asked = smallvit.make_recipe(preset, teacher="conv_nano")
    assert asked.aux == {"teacher": {"weight": 0.7, "run": "conv_nano"}, "drloc": {}}
    assert smallvit.make_recipe(preset, {"aux.teacher": "none"}).aux == {"drloc": {}}

"""The supervised loss with class weights is the formula of its docstring, and a run stores the numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import smallvit
from helpers import make_folder, run_here
from smallvit import Run
from smallvit.errors import UsageError
from smallvit.objectives.base import TaskInfo
from smallvit.objectives.supervised import Supervised, SupervisedOptions
from smallvit.planning.plan import make_plan
from smallvit.randomness import generator
from smallvit.types import Batch, Context, Features

K, SMOOTHING = 3, 0.1


class Linear(nn.Module):
    """Stands in for a backbone: logits are a linear map of the pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, K)

    def forward(self, images_BCHW: Tensor) -> Features:
        return Features(images_BCHW.flatten(1), ())

    def classify(self, pooled_BD: Tensor) -> Tensor:
        return self.head(pooled_BD)


def loss_of(weights: tuple[float, ...] | str, **mixing: float) -> tuple[Tensor, Linear, Batch]:
    torch.manual_seed(0)
    backbone = Linear()
    options = SupervisedOptions(label_smoothing=SMOOTHING, class_weights=weights, **mixing)
    objective = Supervised(backbone, options, TaskInfo(K, 6, 2))  # type: ignore[arg-type]
    batch = Batch((torch.randn(6, 1, 2, 2),), torch.tensor([0, 1, 2, 0, 1, 0]), torch.arange(6))
    loss = objective(backbone, batch, Context(0, 0, 0.0, generator(0, "objective", 0), epochs=10))
    return loss.total, backbone, batch


def smoothed(logits_BK: Tensor, labels_B: Tensor) -> Tensor:
    log_p = logits_BK.log_softmax(1)
    return -(1 - SMOOTHING) * log_p.gather(1, labels_B[:, None])[:, 0] - SMOOTHING / K * log_p.sum(1)


def test_without_mixing() -> None:
    weights = torch.tensor([0.5, 1.0, 4.0])
    found, backbone, batch = loss_of((0.5, 1.0, 4.0))
    loss_B = smoothed(backbone.head(batch.views[0].flatten(1)), batch.labels_B)
    torch.testing.assert_close(found, (weights[batch.labels_B] * loss_B).mean())


def test_with_mixup_each_label_carries_its_own_weight() -> None:
    from smallvit.data.mixing import mix

    weights = torch.tensor([0.5, 1.0, 4.0])
    found, backbone, batch = loss_of((0.5, 1.0, 4.0), mixup=0.8)
    mixed = mix(batch.views[0], generator(0, "objective", 0), mixup=0.8, cutmix=0, per="element")
    logits_BK = backbone.head(mixed.images_BCHW.flatten(1))
    own, other = batch.labels_B, batch.labels_B[mixed.partner_B]
    expected_B = mixed.lam_B * weights[own] * smoothed(logits_BK, own)
    expected_B = expected_B + (1 - mixed.lam_B) * weights[other] * smoothed(logits_BK, other)
    torch.testing.assert_close(found, expected_B.mean())


def test_equal_weights_change_nothing() -> None:
    torch.testing.assert_close(loss_of((1.0, 1.0, 1.0), cutmix=1.0)[0], loss_of("none", cutmix=1.0)[0])


def test_a_number_for_each_class() -> None:
    with pytest.raises(UsageError, match="2 numbers, but there are 3 classes"):
        loss_of((1.0, 2.0))


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "photos", {"cat": 30, "dog": 12, "owl": 8})


def arguments(data: Path, out: Path) -> list[str | Path]:
    return ["train", data, "--epochs", "1", "--threads", "1", "--img-size", "12", "--out", out, "--quiet"]


def test_a_run_stores_the_numbers_and_reruns_without_the_file(uneven: Path, tmp_path: Path) -> None:
    file = tmp_path / "w.csv"
    file.write_text("class,weight\nowl,3\ncat,1\ndog,2\n")
    done = run_here(*arguments(uneven, tmp_path / "a"), "--class-weights", file)
    assert done.status == 0, done.err
    run = Run(tmp_path / "a")
    assert run.recipe.objective.options["class_weights"] == [1.0, 2.0, 3.0]
    assert any(choice["key"] == "objective.class_weights" for choice in run.choices)
    file.unlink()
    (run.path / "results.json").unlink()
    assert run_here("resume", run.path, "--quiet").status == 0


def test_auto_balanced_and_the_refusals(uneven: Path, tmp_path: Path) -> None:
    done = run_here(*arguments(uneven, tmp_path / "a"), "--class-weights", "auto", "--balanced")
    assert done.status == 0, done.err
    recipe = Run(tmp_path / "a").recipe
    counts = Run(tmp_path / "a").read("split.json")["parts"]["train"]["counts"]
    weights = recipe.objective.options["class_weights"]
    assert recipe.data.balanced
    assert sum(map(float.__mul__, weights, map(float, counts))) / sum(counts) == pytest.approx(1, rel=1e-4)
    wrong = run_here(*arguments(uneven, tmp_path / "b"), "--class-weights", tmp_path / "none.csv")
    assert wrong.status == 2 and "cannot read" in wrong.err
    assert not (tmp_path / "b").exists()


def test_the_bound_of_an_automatic_weight_is_told(tmp_path: Path) -> None:
    photos = make_folder(tmp_path / "photos", {"cat": 50, "dog": 50, "owl": 1})
    asked = smallvit.make_recipe(
        data=photos, class_weights="auto", epochs=1, img_size=12, threads=1, val="none", test="none"
    )
    plan = make_plan(asked, with_floors=False)
    (told,) = [choice for choice in plan.choices if choice.key == "objective.class_weights"]
    assert plan.recipe.objective.options["class_weights"][2] == 10.0
    assert "at most 10 (owl): single images should not lead" in told.why

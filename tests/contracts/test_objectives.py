"""Every objective that is found keeps the contract of `Objective`; supervised ones equal the formulas."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from smallvit.data.mixing import mix
from smallvit.errors import UsageError
from smallvit.models.features import Backbone, create_backbone
from smallvit.objectives import Objective, Setting, auxiliaries, objectives
from smallvit.objectives.base import options_of
from smallvit.randomness import generator
from smallvit.types import Batch, Context

CLASSES, IMAGES, SIZE, B = 5, 40, 16, 6
GOLDEN = Path(__file__).parents[1] / "golden"


def make(name: str, **options: Any) -> tuple[Backbone, Objective]:
    torch.manual_seed(0)
    backbone = create_backbone("vit_pico", {"patch_size": 4}, num_classes=CLASSES, in_chans=1, img_size=SIZE)
    setting = Setting(CLASSES, IMAGES, SIZE, epochs=3)
    return backbone, objectives()[name](backbone, options_of(objectives(), name, options, "objective"), setting)


def make_batch(objective: Objective) -> Batch:
    g = generator(0, "test batch")
    views = tuple(torch.randn(view.copies * B, 1, view.size, view.size, generator=g) for view in objective.views)
    return Batch(views, torch.arange(B) % CLASSES, torch.randperm(IMAGES, generator=g)[:B])


def context(seed: int = 0) -> Context:
    return Context(epoch=0, step=3, progress=0.1, generator=generator(seed, "context"))


@pytest.mark.parametrize("name", sorted(objectives()))
class TestEvery:
    def test_loss_is_finite_and_reaches_every_weight(self, name: str) -> None:
        backbone, objective = make(name)
        loss = objective(backbone, make_batch(objective), context())
        assert loss.total.isfinite()
        assert loss.total.ndim == 0
        assert all(part.isfinite() for part in loss.parts.values())
        loss.total.backward()
        silent = [key for key, p in backbone.named_parameters() if p.grad is None and p.requires_grad]
        assert not silent
        objective.after_step(backbone, context())

    def test_same_generator_gives_the_same_loss(self, name: str) -> None:
        backbone, objective = make(name)
        backbone.eval()
        batch = make_batch(objective)
        first, again = (objective(backbone, batch, context()).total for _ in range(2))
        assert torch.equal(first, again)

    def test_options_have_defaults_and_unknown_ones_are_refused(self, name: str) -> None:
        known = objectives()[name].Options()
        assert known.model_dump()
        key = next(iter(known.model_dump()))
        with pytest.raises(UsageError, match=key):
            options_of(objectives(), name, {key + "x": 1}, "objective")


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="supervised"):
        options_of(objectives(), "supervized", {}, "objective")
    with pytest.raises(UsageError, match="unknown aux"):
        options_of(auxiliaries(), "no such loss", {}, "aux")


class TestSupervised:
    def test_plain_is_cross_entropy_of_the_models_own_logits(self) -> None:
        backbone, objective = make("supervised", label_smoothing=0.0)
        backbone.eval()
        batch = make_batch(objective)
        expected = F.cross_entropy(backbone.model(batch.views[0]), batch.labels_B)
        assert objective(backbone, batch, context()).total.item() == pytest.approx(expected.item(), abs=1e-6)

    def test_order_of_the_batch_does_not_matter(self) -> None:
        backbone, objective = make("supervised")
        backbone.eval()
        batch = make_batch(objective)
        turned = Batch((batch.views[0].flip(0),), batch.labels_B.flip(0), batch.index_B.flip(0))
        first, other = (objective(backbone, some, context()).total.item() for some in (batch, turned))
        assert first == pytest.approx(other, abs=1e-6)

    @pytest.mark.parametrize("options", [{"mixup": 0.8}, {"cutmix": 1.0}, {"mixup": 0.8, "cutmix": 1.0}])
    def test_mixed_loss_is_shared_between_both_labels(self, options: dict[str, float]) -> None:
        backbone, objective = make("supervised", label_smoothing=0.1, **options)
        backbone.eval()
        batch = make_batch(objective)
        given = {"mixup": 0.0, "cutmix": 0.0, **options}
        mixed = mix(batch.views[0], context().generator, per="element", **given)
        logits = backbone.model(mixed.images_BCHW)
        own, other = (
            F.cross_entropy(logits, labels, label_smoothing=0.1, reduction="none")
            for labels in (batch.labels_B, batch.labels_B[mixed.partner_B])
        )
        expected = (mixed.lam_B * own + (1 - mixed.lam_B) * other).mean()
        assert not torch.equal(mixed.images_BCHW, batch.views[0])
        assert objective(backbone, batch, context()).total.item() == pytest.approx(expected.item(), abs=1e-6)


def test_label_smoothing_equals_the_authors_value() -> None:
    """The value in tests/golden comes from running the loss of cao2022's public code."""
    golden = load_file(GOLDEN / "label_smoothing.safetensors")
    logits, labels = golden["logits"], golden["target"]

    class Fixed(torch.nn.Module):
        """Gives the golden logits, whatever it is shown."""

        def forward(self, images: torch.Tensor) -> Any:
            return type("Features", (), {"pooled_BD": logits, "grids": ()})()

        def classify(self, pooled: torch.Tensor) -> torch.Tensor:
            return pooled

    options = options_of(objectives(), "supervised", {"label_smoothing": 0.1}, "objective")
    objective = objectives()["supervised"](Fixed(), options, Setting(logits.shape[1], 10, 8, 1))  # type: ignore[arg-type]
    batch = Batch((torch.zeros(len(labels), 1, 8, 8),), labels, torch.arange(len(labels)))
    assert objective(Fixed(), batch, context()).total.item() == pytest.approx(3.334198, abs=1e-5)

"""What every objective must keep to, and what supervised training computes.

Whose numbers they are: golden/README.md.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor, nn

from helpers import GOLDEN
from smallvit.data.mixing import mix
from smallvit.errors import UsageError
from smallvit.models.features import Backbone, create_backbone
from smallvit.objectives import Objective, TaskInfo, auxiliaries, objectives
from smallvit.objectives.base import options_of
from smallvit.types import Batch, Context, Features, Loss, Seen

SIZE, CLASSES, IMAGES = 16, 5, 40


def backbone(name: str = "resnet_nano") -> Backbone:
    torch.manual_seed(0)
    made = create_backbone(name, {}, num_classes=CLASSES, in_chans=3, img_size=SIZE)
    with torch.no_grad():
        for parameter in made.parameters():  # scales that start at zero stop the gradient of what stands before them
            parameter.add_(0.02 * torch.randn_like(parameter))
    return made.eval()  # BatchNorm over a batch would tie its images together


def objective(name: str, of: Backbone, **options: Any) -> Objective:
    setting = TaskInfo(num_classes=CLASSES, num_images=IMAGES, img_size=SIZE)
    return objectives()[name](of, options_of(objectives(), name, options, "objective"), setting)


def made_with_its_model(name: str) -> tuple[Backbone, Objective]:
    """Most take every model; those that do not take a ViT."""
    try:
        model = backbone()
        return model, objective(name, model)
    except UsageError:
        model = backbone("vit_pico")
        return model, objective(name, model)


def batch(of: Objective, count: int = 6) -> Batch:
    """The views that the objective asks for, of made-up images."""
    draw = torch.Generator().manual_seed(1)
    views = tuple(
        torch.randn(view.copies * count, 3, view.size, view.size, generator=draw) for view in of.views_at(0, 3)
    )
    return Batch(views, torch.arange(count) % CLASSES, torch.arange(count) * 3)


def context(seed: int = 0) -> Context:
    return Context(epoch=1, step=10, progress=0.3, generator=torch.Generator().manual_seed(seed), epochs=10)


@pytest.mark.parametrize("name", objectives())
def test_contract(name: str) -> None:
    model, made = made_with_its_model(name)
    images = batch(made)
    found: Loss = made(model, images, context())
    assert found.total.ndim == 0 and found.total.isfinite() and found.total.requires_grad
    assert found.parts and all(part.ndim == 0 and not part.requires_grad for part in found.parts.values())
    check_seen(found.seen, images, made.whole_grids)
    found.total.backward()
    classifier = {key for key, _ in model.named_parameters() if key.startswith(("model.fc.", "model.head."))}
    assert unmoved(model) == (set() if made.classifies else classifier)
    assert not unmoved(made)
    again = made(model, images, context())
    assert torch.equal(again.total, found.total), "the same generator gives another loss"
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    made.after_step(model, context())
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())


def unmoved(module: nn.Module) -> set[str]:
    """Parameters that learn nothing: no gradient, or one of zeros alone."""
    trained = {key: p.grad for key, p in module.named_parameters() if p.requires_grad}
    return {key for key, gradient in trained.items() if gradient is None or not gradient.any()}


def check_seen(seen: Seen, images: Batch, whole_grids: bool = True) -> None:
    """What auxiliary losses are given fits together, row by row."""
    A = len(seen.images_ACHW)
    assert A % len(images.labels_B) == 0
    assert len(seen.labels_A) == len(seen.index_A) == len(seen.features.pooled_BD) == A
    assert seen.features.pooled_BD.ndim == 2 and bool(seen.features.grids) == whole_grids
    assert torch.equal(seen.index_A // 3 % CLASSES, seen.labels_A)
    plain = images.views[0][:A]
    if seen.partner_A is None or seen.share_A is None:
        assert torch.equal(seen.images_ACHW, plain)
    else:
        error = seen.images_ACHW - torch.where(seen.images_ACHW == plain, plain, plain[seen.partner_A])
        kept = (seen.images_ACHW == plain).flatten(1).float().mean(1)
        assert not error.any() and torch.allclose(kept, seen.share_A, atol=0.02)


@pytest.mark.parametrize("name", objectives())
def test_no_hidden_randomness(name: str) -> None:
    """Every draw comes from the context: torch's own stream is not touched."""
    model, made = made_with_its_model(name)
    state = torch.get_rng_state()
    made(model, batch(made), context())
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(("kind", "key"), [(objectives(), "objective"), (auxiliaries(), "aux")])
def test_options_have_defaults_and_refuse_what_they_do_not_know(kind: Any, key: str) -> None:
    for name, part in kind.items():
        assert part.name == name
        defaults = options_of(kind, name, {}, key)
        for option in part.Options.model_fields:
            assert getattr(defaults, option) is not None
            with pytest.raises(UsageError, match=f"{option}x.*did you mean .*{option}"):
                options_of(kind, name, {f"{option}x": 1}, key)


def test_unknown_names_come_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="supervised"):
        options_of(objectives(), "suprevised", {}, "objective")
    with pytest.raises(UsageError, match="unknown aux"):
        options_of({}, "drloc", {}, "aux")


@pytest.mark.parametrize(
    "options", [{"label_smoothing": 1.5}, {"mixup": -1}, {"mix_per": "pixel"}, {"mix_prob": "often"}]
)
def test_impossible_options_are_refused(options: dict[str, Any]) -> None:
    (option,) = options
    with pytest.raises(UsageError, match=option):
        objective("supervised", backbone(), **options)


# ---- supervised ----------------------------------------------------------------------------------------


def supervised(images: Batch | None = None, seed: int = 0, **options: Any) -> tuple[Tensor, Backbone, Batch]:
    model = backbone()
    made = objective("supervised", model, **options)
    images = images or batch(made)
    return made(model, images, context(seed)).total.detach(), model, images


def cross_entropy(model: Backbone, images: Tensor, labels: Tensor, smoothing: float) -> Tensor:
    with torch.no_grad():
        return F.cross_entropy(model.model(images), labels, label_smoothing=smoothing, reduction="none")


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_without_mixing_it_is_cross_entropy(smoothing: float) -> None:
    total, model, images = supervised(label_smoothing=smoothing)
    torch.testing.assert_close(total, cross_entropy(model, images.views[0], images.labels_B, smoothing).mean())


def test_without_mixing_the_order_of_the_batch_does_not_matter() -> None:
    total, _, images = supervised()
    order = torch.tensor([3, 0, 5, 1, 4, 2])
    turned, _, _ = supervised(Batch((images.views[0][order],), images.labels_B[order], images.index_B[order]))
    torch.testing.assert_close(turned, total)


@pytest.mark.parametrize("per", ["batch", "element"])
@pytest.mark.parametrize(("mixup", "cutmix"), [(0.8, 0.0), (0.0, 1.0), (0.8, 1.0)])
def test_mixing_weighs_the_losses_of_both_labels(mixup: float, cutmix: float, per: Any) -> None:
    total, model, images = supervised(label_smoothing=0.1, mixup=mixup, cutmix=cutmix, mix_per=per)
    mixed = mix(images.views[0], context().generator, mixup=mixup, cutmix=cutmix, per=per)
    own, other = (
        cross_entropy(model, mixed.images_BCHW, labels, 0.1)
        for labels in (images.labels_B, images.labels_B[mixed.partner_B])
    )
    torch.testing.assert_close(total, (mixed.lam_B * own + (1 - mixed.lam_B) * other).mean())
    assert not torch.isclose(total, supervised(label_smoothing=0.1)[0])
    assert not torch.equal(total, supervised(seed=1, label_smoothing=0.1, mixup=mixup, cutmix=cutmix, mix_per=per)[0])


def test_auxiliary_losses_see_what_was_mixed() -> None:
    model = backbone()
    made = objective("supervised", model, mixup=0.8)
    images = batch(made)
    seen = made(model, images, context()).seen
    mixed = mix(images.views[0], context().generator, mixup=0.8, cutmix=0.0, per="element")
    assert torch.equal(seen.images_ACHW, mixed.images_BCHW)
    assert torch.equal(seen.partner_A, mixed.partner_B) and torch.equal(seen.share_A, mixed.lam_B)
    torch.testing.assert_close(seen.features.pooled_BD, model(mixed.images_BCHW).pooled_BD)


@pytest.mark.parametrize("options", [{}, {"mixup": 0.8, "mix_prob": 0.0}, {"mixup": 0.8, "mix_alternate": True}])
def test_where_nothing_is_mixed_there_are_no_partners(options: dict[str, Any]) -> None:
    model = backbone()
    made = objective("supervised", model, **options)  # the second epoch: CutMix's turn, which is off
    check_seen(seen := made(model, batch(made), context()).seen, batch(made))
    assert seen.partner_A is None and seen.share_A is None


def test_mixing_with_probability_zero_is_no_mixing() -> None:
    torch.testing.assert_close(supervised(mixup=0.8, cutmix=1.0, mix_prob=0.0)[0], supervised()[0])


class Given(nn.Module):
    """A backbone whose logits are given."""

    def __init__(self, logits_BK: Tensor) -> None:
        super().__init__()
        self.logits_BK = logits_BK

    def forward(self, images: Tensor) -> Features:
        return Features(self.logits_BK, ())

    def classify(self, pooled: Tensor) -> Tensor:
        return pooled


def test_label_smoothing_as_in_the_authors_code() -> None:
    """IDMM's LabelSmoothing at 0.1 on stored logits."""
    with safe_open(GOLDEN / "label_smoothing.safetensors", "pt") as file:
        logits, target = file.get_tensor("logits"), file.get_tensor("target")
        expected = float(file.metadata()["ls"])
    made = objective("supervised", backbone(), label_smoothing=0.1)
    total = made(Given(logits), Batch((torch.zeros(8, 3, 4, 4),), target, target), context()).total
    assert float(total) == pytest.approx(expected, rel=1e-6)

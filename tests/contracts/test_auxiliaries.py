"""What every auxiliary loss must keep to, and that a loss which does not is noticed."""

from __future__ import annotations

from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from torch import Tensor

from smallvit.errors import UsageError
from smallvit.models.features import Backbone, create_backbone
from smallvit.objectives import Auxiliary, TaskInfo, auxiliaries
from smallvit.objectives.base import options_of
from smallvit.types import Context, Loss, Seen

SIZE, CLASSES, DRAWS = 16, 3, 48
every_loss = pytest.mark.parametrize("name", auxiliaries())


def made(name: str) -> tuple[Backbone, Auxiliary]:
    torch.manual_seed(0)
    backbone = create_backbone("resnet_nano", {}, num_classes=CLASSES, in_chans=3, img_size=SIZE).eval()
    setting = TaskInfo(num_classes=CLASSES, num_images=30, img_size=SIZE)
    return backbone, auxiliaries()[name](backbone, options_of(auxiliaries(), name, {}, "aux"), setting)


def seen_by(backbone: Backbone, count: int = 4) -> Seen:
    draw = torch.Generator().manual_seed(1)
    images = torch.randn(count, 3, SIZE, SIZE, generator=draw) * torch.arange(1.0, count + 1)[:, None, None, None]
    return Seen(images, torch.arange(count) % CLASSES, torch.arange(count) * 3, backbone(images))


def context(seed: int = 0) -> Context:
    return Context(epoch=1, step=10, progress=0.3, generator=torch.Generator().manual_seed(seed), epochs=10)


@every_loss
def test_contract(name: str) -> None:
    backbone, loss = made(name)
    stream, modes = torch.get_rng_state(), [module.training for module in backbone.modules()]
    before = {key: tensor.clone() for key, tensor in backbone.state_dict().items()}
    seen = seen_by(backbone)
    found: Loss = loss(backbone, seen, context())
    assert found.total.ndim == 0 and found.total.isfinite() and found.total.requires_grad
    assert found.parts and all(part.ndim == 0 and not part.requires_grad for part in found.parts.values())
    assert all(key == name or key.startswith(f"{name}_") for key in found.parts), "names of parts could clash"
    assert found.seen is seen
    assert torch.equal(loss(backbone, seen, context()).total, found.total), "the same generator gives another loss"
    assert torch.equal(torch.get_rng_state(), stream), "it draws from torch's own stream"
    assert learns(found.total, seen)
    found.total.backward()
    trained = {key: p.grad for key, p in loss.named_parameters() if p.requires_grad}
    assert not [key for key, gradient in trained.items() if gradient is None or not gradient.any()]
    # The backbone is as it was.
    assert all(torch.equal(tensor, before[key]) for key, tensor in backbone.state_dict().items())
    assert [module.training for module in backbone.modules()] == modes


@every_loss
def test_a_batch_of_one(name: str) -> None:
    backbone, loss = made(name)
    seen = seen_by(backbone, count=1)
    total = loss(backbone, seen, context()).total
    assert total.isfinite() and learns(total, seen)


@every_loss
def test_the_order_of_the_batch_does_not_matter(name: str) -> None:
    backbone, loss = made(name)
    assert order_matters(loss, backbone) < 4


@every_loss
def test_options_that_cannot_be_are_refused_with_the_choices(name: str) -> None:
    for option, field in auxiliaries()[name].Options.model_fields.items():
        with pytest.raises(UsageError, match=rf"{option} = 'no such thing'") as refusal:
            options_of(auxiliaries(), name, {option: "no such thing"}, "aux")
        for choice in choices(field.annotation):
            assert str(choice) in str(refusal.value)


def choices(annotation: Any) -> list[Any]:
    if get_origin(annotation) is Literal:
        return list(get_args(annotation))
    return [choice for part in get_args(annotation) for choice in choices(part)]


def learns(total: Tensor, seen: Seen) -> bool:
    """Whether the loss moves the features that it was given: a gradient of zeros alone teaches a backbone nothing."""
    features = (seen.features.pooled_BD, *seen.features.grids)
    gradients = torch.autograd.grad(total, features, retain_graph=True, allow_unused=True)
    present = [gradient for gradient in gradients if gradient is not None]
    return bool(present) and all(g.isfinite().all() for g in present) and any(g.any() for g in present)


@torch.no_grad()
def order_matters(loss: Auxiliary, backbone: Backbone) -> float:
    """How far apart the means over many draws are with the batch as it is and turned round, in standard errors.

    A loss that draws gives other numbers to other rows, so one value says nothing; one that does not must agree.
    """
    seen = seen_by(backbone)
    values = torch.tensor([
        [float(loss(backbone, rows, context(2 * draw + which)).total) for which, rows in enumerate((seen, turned(seen)))]
        for draw in range(DRAWS)
    ]).double()  # fmt: skip
    error = (values.var(0).sum() / DRAWS).sqrt() + 1e-6 * values.abs().max()
    return float((values[:, 0] - values[:, 1]).mean().abs() / error)


def turned(seen: Seen) -> Seen:
    order = torch.arange(len(seen.labels_A)).flip(0)
    features = seen.features._replace(
        pooled_BD=seen.features.pooled_BD[order], grids=tuple(grid[order] for grid in seen.features.grids)
    )
    return Seen(seen.images_ACHW[order], seen.labels_A[order], seen.index_A[order], features)


# ---- losses that do not keep to it -----------------------------------------------------------------------


class FirstImage(Auxiliary):
    """Has no name, so that it is not found among the losses."""

    def forward(self, backbone: Backbone, seen: Seen, ctx: Context) -> Loss:
        total = seen.features.grids[-1][0].square().mean()
        return Loss(total * (1 + 0.1 * torch.rand((), generator=ctx.generator)), {}, seen)


class Flat(Auxiliary):
    def forward(self, backbone: Backbone, seen: Seen, ctx: Context) -> Loss:
        return Loss(0 * seen.features.grids[-1].sum(), {}, seen)


def test_a_loss_that_prefers_a_place_in_the_batch_is_noticed() -> None:
    backbone, _ = made("drloc")
    loss = FirstImage(backbone, None, TaskInfo(CLASSES, 30, SIZE))
    assert order_matters(loss, backbone) > 10


def test_a_loss_that_teaches_nothing_is_noticed() -> None:
    backbone, _ = made("drloc")
    loss = Flat(backbone, None, TaskInfo(CLASSES, 30, SIZE))
    seen = seen_by(backbone)
    assert not learns(loss(backbone, seen, context()).total, seen)

"""From a resolved recipe and images to a `Training` that is ready for its first step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from weakref import ref

import torch
from timm.utils import ModelEmaV3

from smallvit.data.augment import Augmenter
from smallvit.data.imageset import ImageSet
from smallvit.data.loader import DeviceImages, Loader
from smallvit.data.preparation import Preparation
from smallvit.data.split import Split
from smallvit.models.features import Backbone, check_size, create_backbone
from smallvit.models.saving_memory import save_memory
from smallvit.models.starting_weights import give_weights
from smallvit.objectives.base import Objective, TaskInfo, auxiliaries, objectives, options_of
from smallvit.randomness import generator, key_of
from smallvit.recipe import Recipe, resolved
from smallvit.training.checkpoint import go_on_from
from smallvit.training.continued import check_origin, seed_of_draws
from smallvit.training.initial import load_initial_weights
from smallvit.training.loop import Training
from smallvit.training.optimizer import make_optimizer
from smallvit.training.step import Step, wrap
from smallvit.types import View

WHITENED = 500  # images that the first filters are made of


def build_training(recipe: Recipe, images: ImageSet, split: Split, with_init: bool = True) -> Training:
    """`with_init` is off where a stored state follows: the file that the run began with may be gone by then."""
    device = torch.device(recipe.device)
    data = recipe.data
    torch.manual_seed(key_of(recipe.seed, "initial weights"))
    backbone = build_backbone(recipe, images)
    if recipe.grad_checkpointing:
        save_memory(backbone, recipe.model.name)
    said = give_weights(backbone.model, recipe.model.weights, recipe.model.name) if with_init else ""
    if with_init:
        whiten(backbone, images, split, recipe)  # before what is given: filters that fit come from there
    transferred = (
        load_initial_weights(backbone, recipe.model, images.class_names) if recipe.model.init and with_init else None
    )
    step = build_step(recipe, backbone, images, split).to(device)  # after the weights: teachers start as copies
    step = step.to(memory_format=step.backbone.memory_format)
    ema = ModelEmaV3(step.backbone, recipe.ema, use_warmup=True, exclude_buffers=True) if recipe.ema else None
    loader = Loader(
        DeviceImages(images, make_augmenter(recipe), device),
        split.train,
        partial(step.objective.views_at, epochs=resolved(recipe.epochs)),
        resolved(recipe.batch_size),
        seed_of_draws(recipe),
        balanced=data.balanced,
        repeats=recipe.augment.repeats,
    )
    training = Training(
        recipe=recipe,
        step=step,
        wrapped=wrap(step, recipe),
        optimizer=make_optimizer(step, recipe.optimizer, device),
        ema=ema,
        loader=loader,
        val_rows=split.val,
        num_classes=len(images.class_names),
        device=device,
        starting_weights=said,
        transferred=transferred,
    )
    loader.views_at = _as_decided(training, loader.views_at)
    if recipe.continued.file and with_init:
        training.went_on = go_on_from(check_origin(recipe.continued), training)
    return training


def _as_decided(training: Training, planned: Callable[[int], Sequence[View]]) -> Callable[[int], Sequence[View]]:
    """The views of a training, which a budget may decide anew on the way.

    Its loader does not hold it: model, optimizer and images go with the last one who does, not when cycles are collected.
    """
    weak = ref(training)

    def views_at(epoch: int) -> Sequence[View]:
        alive = weak()
        return planned(epoch) if alive is None else alive.views_at(epoch)

    return views_at


def make_augmenter(recipe: Recipe) -> Augmenter:
    return Augmenter(recipe.augment, resolved(recipe.data.mean), resolved(recipe.data.std))


def build_backbone(recipe: Recipe, images: ImageSet) -> Backbone:
    model, classifies = recipe.model, objectives()[recipe.objective.name].classifies
    return create_backbone(
        model.timm_name, model.kwargs, num_classes=len(images.class_names) if classifies else 0,
        in_chans=resolved(recipe.data.in_chans), img_size=resolved(recipe.data.img_size), drop_path=model.drop_path,
    )  # fmt: skip


def whiten(backbone: Backbone, images: ImageSet, split: Split, recipe: Recipe) -> None:
    """Give a model that asks for it the training images that its first filters are made of."""
    fit = getattr(backbone.model, "whiten", None)
    if callable(fit):
        few = split.train[torch.randperm(len(split.train), generator=generator(recipe.seed, "whiten"))[:WHITENED]]
        fit(Preparation.of(recipe.data.model_dump()).normalised(images.images_NCSS[few]))


def build_step(recipe: Recipe, backbone: Backbone, images: ImageSet, split: Split) -> Step:
    setting = TaskInfo.of(images, split, recipe.data)
    name = recipe.objective.name
    objective = objectives()[name](
        backbone, options_of(objectives(), name, recipe.objective.options, "objective"), setting
    )
    for size in _view_sizes(objective, resolved(recipe.epochs)):
        check_size(backbone, recipe.model.name, size)
    extras = {
        name: auxiliaries()[name](backbone, options_of(auxiliaries(), name, given, "aux"), setting)
        for name, given in recipe.aux.items()
    }
    return Step(backbone, objective, extras)


def _view_sizes(objective: Objective, epochs: int) -> set[int]:
    """All sizes of crops in a run of so many epochs: what the model cannot take is refused before the first."""
    return {view.size for epoch in range(epochs) for view in objective.views_at(epoch, epochs)}

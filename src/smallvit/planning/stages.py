"""What a command trains before the run that counts: a pretraining to start from (`--pretrain`), a teacher (`--teacher MODEL`).

A stage is a run like any other, on the same training images, which are those of the run that counts and never held-out ones. It
has a share of the budget, or as many epochs as were given. What it leaves, its model file, is handed on in the recipe of the run
that counts: as weights to start from, or as the teacher. Which stages a recipe still wants is read from the recipe alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from smallvit.errors import RunError, UsageError, nearest
from smallvit.evaluation.model_file import digest
from smallvit.models.aliases import VITS
from smallvit.objectives.base import auxiliaries, objectives, options_of
from smallvit.objectives.teacher import TeacherOptions
from smallvit.planning.choices import Choices
from smallvit.recipe import DataSpec, ModelSpec, Recipe, build_recipe, resolved

# All else of the data is that of the run that counts: the same rows train, and none that it holds out.
OWN_DATA = ("cache_size", "mean", "std", "flips", "shifts", "few_looks", "calibrate", "fingerprint")
SAME_MACHINE = ("device", "threads", "seed", "checkpoint_seconds")
LEAST_SECONDS, LEAST_EPOCHS = 180, 30  # below, `--pretrain auto` takes none: what was measured took four minutes
OF_BUDGET = "of a budget; where there is none, it comes on top"
LEAST_LEFT = 0.05  # of a budget, for the run that counts


class Stage(Protocol):
    """A kind of run that comes first."""

    name: str  # of its folder, within that of the run that counts

    def wanted(self, recipe: Recipe) -> bool:
        """Whether it still is to be run."""

    def share(self, recipe: Recipe) -> float:
        """Of a budget."""

    def asked(self, recipe: Recipe) -> Recipe:
        """What it is asked for. `recipe` is that of the run that counts, resolved but for its length."""

    def handed_on(self, recipe: Recipe, file: Path) -> Recipe:
        """The recipe of the run that counts, with the model that this one has left."""


class Pretraining:
    name = "pretraining"

    def wanted(self, recipe: Recipe) -> bool:
        return recipe.pretrain.method not in ("none", "auto") and not recipe.model.init

    def share(self, recipe: Recipe) -> float:
        return recipe.pretrain.share

    def asked(self, recipe: Recipe) -> Recipe:
        base, side = build_recipe(f"pretrain-{recipe.pretrain.method}"), resolved(recipe.pretrain.side)
        img_size = max(4, round(side * resolved(recipe.data.img_size)))
        return _beside(base, recipe, model=recipe.model, img_size=img_size)

    def handed_on(self, recipe: Recipe, file: Path) -> Recipe:
        model = recipe.model.model_copy(update={"init": str(file), "init_digest": digest(file)})
        return recipe.model_copy(update={"model": model})


class Teaching:
    name = "teacher"

    def wanted(self, recipe: Recipe) -> bool:
        return "teacher" in recipe.aux and self._options(recipe).is_untrained

    def share(self, recipe: Recipe) -> float:
        return self._options(recipe).share

    def asked(self, recipe: Recipe) -> Recipe:
        base = build_recipe("default")
        model = base.model.model_copy(update={"name": self._options(recipe).run})
        return _beside(base, recipe, model=model)

    def handed_on(self, recipe: Recipe, file: Path) -> Recipe:
        options = {**recipe.aux["teacher"], "run": str(file), "digest": digest(file)}
        return recipe.model_copy(update={"aux": {**recipe.aux, "teacher": options}})

    @staticmethod
    def _options(recipe: Recipe) -> TeacherOptions:
        options = options_of(auxiliaries(), "teacher", recipe.aux["teacher"], "aux")
        assert isinstance(options, TeacherOptions)
        return options


STAGES: tuple[Stage, ...] = (Pretraining(), Teaching())


def stages_of(recipe: Recipe) -> list[Stage]:
    """What is still to be run before it, in this order."""
    wanted = [stage for stage in STAGES if stage.wanted(recipe)]
    shares = {stage.name: stage.share(recipe) for stage in wanted}
    if sum(shares.values()) > 1 - LEAST_LEFT:
        told = " and ".join(f"{name} {share:.0%}" for name, share in shares.items())
        raise UsageError(
            f"the stages before training take too much of the budget ({told}): lower pretrain.share or aux.teacher.share"
        )
    return wanted


def stage_named(name: str) -> Stage:
    stages = {stage.name: stage for stage in STAGES}
    if name not in stages:
        raise RunError(f"there is no stage {name!r}: {nearest(name, stages)}")
    return stages[name]


def _beside(own: Recipe, recipe: Recipe, model: ModelSpec, **data: Any) -> Recipe:
    """A stage's own recipe, on the data and the machine of the run that counts. Whether mirroring keeps a class is known of the
    data, too. The length: as many epochs, or the same budget, of which the clock knows the share.
    """
    same = {key: getattr(recipe.data, key) for key in DataSpec.model_fields if key not in OWN_DATA}
    return own.model_copy(
        update={
            **{key: getattr(recipe, key) for key in (*SAME_MACHINE, "epochs", "budget")},
            "model": model,
            "data": own.data.model_copy(update=same | data),
            "augment": own.augment.model_copy(update={"flip": recipe.augment.flip}),
        }
    )


# ---- what `--pretrain auto` becomes -----------------------------------------------------------------------


def resolve_pretraining(choices: Choices) -> None:
    """By what was measured: docs/papers/cao2022.md, pretraining on Flowers-102."""
    classifies = objectives()[choices["objective.name"]].classifies
    if not classifies and choices["pretrain.method"] not in ("none", "auto"):
        raise UsageError(
            f"--pretrain {choices['pretrain.method']} comes before training on labels, and this run has none: leave it out"
        )
    method, why = _measured_best(choices) if classifies else ("none", "this is a pretraining")
    choices.choose("pretrain.method", method, why)
    if choices["pretrain.method"] == "none":
        choices.put("pretrain.side", 1.0)  # nothing to choose
    else:
        choices.record("pretrain.share", choices["pretrain.share"], OF_BUDGET)
    size, patch = choices["data.img_size"], choices["model.kwargs"].get("patch_size", 0)
    halves = choices["model.name"] in VITS and bool(patch) and size >= 32 and size % (2 * patch) == 0
    why = f"a ViT learns from {size // 2} px images in a third of the time" if halves else "images as in training"
    choices.choose("pretrain.side", 0.5 if halves else 1.0, why)


def _measured_best(choices: Choices) -> tuple[str, str]:
    name, seconds, epochs = choices["model.name"], choices.seconds, choices["epochs"]
    if choices["model.init"]:
        return "none", "the model starts from given weights"
    if name.startswith("dhvt"):
        return "none", "SimCLR cost a DHVT 9 points in four minutes on 2,040 images"
    if name not in VITS:
        return "none", f"for {name} it was not measured; it gained for plain ViTs and lost for DHVT"
    if seconds is not None and seconds < LEAST_SECONDS:
        return "none", f"in less than {LEAST_SECONDS // 60} minutes there is no time for it"
    if epochs != "auto" and epochs < LEAST_EPOCHS:
        return "none", f"under {LEAST_EPOCHS} epochs there is no time for it"
    return "simclr", "it gained a plain ViT 4 points in four minutes on 2,040 images"

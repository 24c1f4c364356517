"""A teacher: the student is to answer as a trained model does, for the very images that it sees itself.

Hinton et al. 2015, "Distilling the Knowledge in a Neural Network". The teacher, which never changes, looks at the images after
augmentation and mixing. With its probabilities q and the student's p, both at the temperature T, and the weight w,

    loss = (1 - w) objective + w T^2 KL(q || p),

the mean over the batch. The T^2 keeps the gradient as large at one temperature as at another. The teacher answers once for
an image (no mirror image), at the temperature that it was calibrated to, where it was. It may be another architecture, see
other image sizes (images are resized for it) and other means and deviations; classes and channels must be the same.

B images, C channels, H by W pixels, S side of the teacher's images, K classes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

import torch
import torch.nn.functional as F
from pydantic import Field, ValidationInfo, field_validator
from torch import Tensor, nn

from smallvit.console import several
from smallvit.errors import RunError, UsageError
from smallvit.evaluation.model_file import digest, load_model, model_file
from smallvit.evaluation.predictor import Predictor
from smallvit.models.aliases import architecture
from smallvit.models.features import Backbone, check_model_name, create_backbone
from smallvit.objectives.base import Auxiliary, TaskInfo
from smallvit.objectives.fixed import Fixed
from smallvit.planning.choices import Choices
from smallvit.recipe import Section, Share
from smallvit.runs.curves import CurvePanel
from smallvit.types import Context, Loss, Seen

STANDS_IN = "conv_nano"  # for a teacher that is ours to choose, until it is trained


class TeacherOptions(Section):
    digest: str = ""  # of its file; filled in when the recipe is resolved
    run: str = "auto"  # a finished run, or the model that is to be trained first: a name, or auto, which chooses it
    weight: Annotated[float, Field(gt=0, le=1)] = 0.5  # of its answers; the labels have the rest
    temperature: Annotated[float, Field(gt=0, le=100)] = 2.0
    share: Share = 0.4  # of a budget, where the teacher is trained first

    @property
    def is_untrained(self) -> bool:
        """Whether it is a model that is still to be trained. What has a digest was trained, wherever its file is now."""
        return not self.digest and is_model(self.run)

    @field_validator("run")
    @classmethod
    def _run_or_model(cls, run: str, known: ValidationInfo) -> str:
        if not known.data.get("digest") and is_model(run) and run != "auto":
            try:
                check_model_name(run)
            except UsageError as error:
                raise ValueError(
                    f"should be auto, a finished run or a model, and there is no such folder: {error}"
                ) from None
        return run

    @field_validator("digest")
    @classmethod
    def _of_a_file(cls, digest: str) -> str:
        if not re.fullmatch("([0-9a-f]{64})?", digest):
            raise ValueError("should be empty, or the SHA-256 of the teacher's file")
        return digest


def is_model(run: str) -> bool:
    """Whether the teacher is a model that is still to be trained, and no run. A file or folder of that name is a run."""
    try:
        return run == "auto" or not Path(run).expanduser().exists()
    except (OSError, RuntimeError):  # too long for a path, or of a user that there is not
        return True


class Answers(nn.Module):
    """A trained model that answers for images as another run has prepared them."""

    gain_C11: Tensor
    shift_C11: Tensor
    order_K: Tensor

    def __init__(
        self, backbone: Backbone, prepared: tuple[Tensor, Tensor], order: Sequence[int], temperature: float
    ) -> None:
        super().__init__()
        self.backbone, self.temperature = backbone, temperature
        self.register_buffer("gain_C11", prepared[0])
        self.register_buffer("shift_C11", prepared[1])
        self.register_buffer("order_K", torch.tensor(order))

    @classmethod
    def stored(cls, predictor: Predictor, task: TaskInfo) -> Self:
        theirs = predictor.preparation
        prepared = renormalised((task.mean, task.std), (theirs.mean, theirs.std))
        order = [predictor.class_names.index(name) for name in task.class_names]
        temperature = predictor.temperature if predictor.calibrated else None
        return cls(predictor.backbone, prepared, order, temperature or 1.0)

    @classmethod
    def untrained(cls, name: str, student: Backbone, task: TaskInfo) -> Self:
        """What planning measures steps with before the teacher is there: it costs the same and knows nothing."""
        meant = architecture(STANDS_IN if name == "auto" else name, task.img_size)
        with torch.random.fork_rng(devices=[]):  # its weights leave no trace
            backbone = create_backbone(
                meant.timm_name,
                meant.kwargs,
                num_classes=task.num_classes,
                in_chans=student.in_chans,
                img_size=task.img_size,
            )
        return cls(backbone, renormalised(((0.0,), (1.0,)), ((0.0,), (1.0,))), range(task.num_classes), 1.0)

    def forward(self, images_BCHW: Tensor) -> Tensor:
        size = self.backbone.img_size
        if images_BCHW.shape[-1] != size:
            images_BCHW = F.interpolate(images_BCHW, (size, size), mode="bilinear", antialias=True)
        features = self.backbone(images_BCHW * self.gain_C11 + self.shift_C11)
        return self.backbone.classify(features.pooled_BD).float()[:, self.order_K] / self.temperature


Normal = tuple[Sequence[float], Sequence[float]]  # mean and deviation of each channel


def renormalised(have: Normal, want: Normal) -> tuple[Tensor, Tensor]:
    """Factor and summand that make of images with one mean and deviation those with another."""
    (mean, std), (other_mean, other_std) = (
        tuple(torch.tensor(numbers)[:, None, None] for numbers in pair) for pair in (have, want)
    )
    return std / other_std, (mean - other_mean) / other_std


class Distillation(Auxiliary):
    name = "teacher"
    Options = TeacherOptions
    curves = (
        CurvePanel("teacher", "Distance from the teacher's answers (KL)", ("teacher",), "Distance from the teacher's answers"),
        CurvePanel(
            "teacher-agreement", "Images that both call the same", ("teacher_agreement",), "Share of images that both call the same",
            percent=True,
        ),
    )  # fmt: skip

    def __init__(self, backbone: Backbone, options: Any, setting: TaskInfo) -> None:
        super().__init__(backbone, options, setting)
        self.options: TeacherOptions = options
        self.objective_share = 1 - self.options.weight
        if isinstance(backbone.model.get_classifier(), nn.Identity):  # type: ignore[operator]
            raise UsageError(
                "aux teacher: its answers are about classes, and pretraining has none; it goes with `smallvit train`"
            )
        if self.options.is_untrained:
            answers = Answers.untrained(self.options.run, backbone, setting)
        else:
            file = model_file(self.options.run, "--teacher")
            check_digest(file, self.options.digest)
            predictor = load_model(file).predictor
            check_fit(file, predictor, backbone, setting)
            answers = Answers.stored(predictor, setting)
            self.learned_from = (file,)
        self.sizes = (setting.img_size, answers.backbone.img_size)
        self.teacher = Fixed(answers)

    def forward(self, backbone: Backbone, seen: Seen, ctx: Context) -> Loss:
        T = self.options.temperature
        taught_BK = self.teacher(seen.images_ACHW)
        guess_BK = backbone.classify(seen.features.pooled_BD).float()
        apart = F.kl_div(
            (guess_BK / T).log_softmax(1), (taught_BK / T).log_softmax(1), reduction="batchmean", log_target=True
        )
        agree = (taught_BK.argmax(1) == guess_BK.argmax(1)).float().mean()
        parts = {"teacher": apart.detach(), "teacher_agreement": agree}
        return Loss(self.options.weight * T**2 * apart, parts, seen)

    @classmethod
    def resolve(cls, options: Any, task: TaskInfo, choices: Choices) -> None:
        """The file that a run means, and what it holds: another one is refused when the run is resumed."""
        if not options.is_untrained:
            file = model_file(options.run, "--teacher")
            choices.put("run", str(file))
            choices.put("digest", options.digest or digest(file, "--teacher"))

    def notes(self, choices: Choices, epochs: int) -> None:
        o, (own, theirs) = self.options, self.sizes
        why = (
            f"of the loss are the teacher's answers, at temperature {o.temperature:g}; {1 - o.weight:g} are the labels"
        )
        choices.record("weight", o.weight, why)
        if not self.learned_from:
            choices.record("run", o.run, "the model that is trained first, in the same command, by the default recipe")
            choices.record("share", o.share, "of a budget, for the teacher; where there is none, it comes on top")
        else:
            resized = f", for which images of {own} px are resized" if own != theirs else ""
            choices.record("run", choices["run"], f"the teacher: it sees {theirs} px{resized}")


def check_digest(file: Path, planned: str) -> None:
    if planned and digest(file, "--teacher") != planned:
        raise RunError(f"{file} is not the teacher that the run was planned with: put it back, or start a new run")


def check_fit(file: Path, predictor: Predictor, student: Backbone, task: TaskInfo) -> None:
    """Classes and channels are the student's; else what differs."""
    theirs, ours = predictor.class_names, task.class_names
    if not theirs:
        raise UsageError(f"--teacher {file}: it was pretrained and has no classes; train from it first (--init)")
    missing, more = ([name for name in one if name not in other] for one, other in ((ours, theirs), (theirs, ours)))
    if missing or more:
        told = [
            f"{word} {', '.join(names[:5])}{' ...' * (len(names) > 5)}"
            for word, names in (("it lacks", missing), ("only it has", more))
            if names
        ]
        raise UsageError(
            f"--teacher {file}: its classes are not those of the images ({len(theirs)} and {len(ours)}): {'; '.join(told)}"
        )
    if (channels := predictor.preparation.in_chans) != student.in_chans:
        raise UsageError(
            f"--teacher {file}: it takes images of {several(channels, 'channel')}, and this run has {student.in_chans}: give --in-chans {channels}"
        )

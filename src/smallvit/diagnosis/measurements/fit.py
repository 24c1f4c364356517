"""How often it is right about images it was trained on, and about others: under-fitting, and learning by heart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smallvit.diagnosis.findings import Finding
from smallvit.diagnosis.measurements.base import Findings, Measurement, Said, StoredFindings
from smallvit.planning.evidence import best_gain

if TYPE_CHECKING:
    from smallvit.diagnosis.inputs import Inputs

UNDER_FIT = 0.80  # accuracy on training images below which the model has not learned even those
GAP = 0.10  # accuracy on training images beyond that on others
KNOWN = 0.40  # accuracy on training images from which on it can be said to know some by heart


class Fit(Measurement):
    name = "fit"
    place = 10
    label = "fit"

    def measure(self, inputs: Inputs) -> Finding:
        """Right answers of training images, without augmentation, and of others, each with its interval."""
        from smallvit.evaluation.statistics import wilson

        numbers: dict[str, float] = {}
        for prefix, images in (("train_", inputs.train), ("", inputs.judged)):
            right, n = int((images.logits_NK.argmax(1) == images.labels_N).sum()), len(images.labels_N)
            low, high = wilson(right, n)
            numbers |= {f"{prefix}accuracy": right / n, f"{prefix}low": low, f"{prefix}high": high, f"{prefix}images": float(n)}  # fmt: skip
        numbers |= {
            "gap": numbers["train_accuracy"] - numbers["accuracy"],
            "classes": float(inputs.known.classes),
            "floor": inputs.known.floor_accuracy,
            "varied": float(inputs.known.varied),
            "answers": float(inputs.train.logits_NK.argmax(1).unique().numel()),
        }
        known = {"part": inputs.known.part, "floor": inputs.known.floor, "model": inputs.known.model}
        return Finding("fit", {}, numbers, {key: [value] for key, value in known.items()})

    def say(self, findings: Findings) -> Said:
        """Of the fit there is always a sentence, for it is the first thing to know."""
        fit = findings["fit"]
        numbers, (part, floor) = fit.numbers, (fit.labels[key][0] for key in ("part", "floor"))
        train, other = (_share(numbers, "train_", "training"), _share(numbers, "", part))
        if under_fits(findings):
            clause = f"it labels only {train} correctly"
            if _answers_once(fit):
                clause = f"it gives all of {int(numbers['train_images'])} training images one label, which is right of {numbers['train_accuracy']:.0%}"
            elif numbers["train_low"] <= 1 / numbers["classes"]:
                clause += f", no better than guessing among {int(numbers['classes'])} classes"
            elif numbers["train_accuracy"] < numbers["floor"]:
                clause += f", fewer than {floor} does of images that it has not seen ({numbers['floor']:.0%})"
            return Said(
                clause,
                "it under-fits; train longer first (--epochs, --budget); if the training loss no longer falls, raise the learning "
                "rate, take a larger model or weaker augmentation",
                1.0 - 0.4 * numbers["train_accuracy"],  # before all else
            )
        if _by_heart(fit):
            plain = "locality" in findings and not findings["locality"].numbers.get("mixes_neighbours")
            other_model = " and, in place of a ViT, a model with more built in (conv_nano, dhvt_nano)" if plain else ""
            return Said(
                f"it labels {train} correctly, but {other}",
                f"it learns images by heart; more images, {_stronger(fit)}--mixup{other_model} help",
                min(1.0, 0.5 + numbers["gap"]),
            )
        if part == "training":
            return Said(
                f"it labels {train} correctly",
                "no images were held out: whether it learns them by heart cannot be seen",
                0.05,
            )
        return Said(
            f"it labels {train} and {other} correctly", "neither under-fitting nor learning by heart shows", 0.05
        )

    def measured_on(self, findings: StoredFindings) -> str:
        numbers, labels = findings["fit"].numbers, findings["fit"].labels
        return f"{numbers['images']:.0f} {labels['part'][0]} images and {numbers['train_images']:.0f} training images"


def _stronger(fit: Finding) -> str:
    """Augmentation that the run did without, and what it gave this very model where that was beyond chance."""
    if fit.numbers.get("varied"):
        return ""
    model = next(iter(fit.labels.get("model", ())), "")
    best = best_gain("augment.trivial", model, now=False)
    gained = f", which gained {best.measured}" if best else ""
    return f"stronger augmentation (--set augment.trivial=true{gained}), "


def _share(numbers: dict[str, float], prefix: str, name: str) -> str:
    accuracy, low, high, images = (numbers[f"{prefix}{key}"] for key in ("accuracy", "low", "high", "images"))
    return f"{accuracy:.0%} ({low:.0%} to {high:.0%}) of {int(images)} {name} images"


def under_fits(findings: Findings) -> bool:
    """Whether it does not know its own training images, nor them better than others.

    A model that is right about images it was trained on less often than pixels alone are about new ones has not learned
    enough either, whatever the share.
    """
    if "fit" not in findings:
        return False
    numbers = findings["fit"].numbers
    little = numbers["train_high"] < UNDER_FIT or numbers["train_accuracy"] < numbers["floor"]
    return (little and not _by_heart(findings["fit"])) or _answers_once(findings["fit"])


def _answers_once(fit: Finding) -> bool:
    """One class for all it was trained on, which is often right where that class is large."""
    return fit.numbers.get("answers") == 1


def _by_heart(fit: Finding) -> bool:
    """The intervals must agree that there is a gap; of little knowledge a gap says little."""
    gap = fit.numbers["gap"] > GAP and fit.numbers["train_low"] > fit.numbers["high"]
    return gap and fit.numbers["train_accuracy"] >= KNOWN

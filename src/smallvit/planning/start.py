"""What a run starts from, where that is not drawn: a model (`--init`), or a run that is trained longer (`--continue`)."""

from __future__ import annotations

from pathlib import Path

from smallvit.console import warn
from smallvit.data.imageset import ImageSet
from smallvit.data.split import PART_ADJECTIVES, Split
from smallvit.evaluation.model_file import digest, model_file
from smallvit.models.aliases import HYBRIDS, architecture
from smallvit.models.transfer import Transfer
from smallvit.planning.choices import Choices
from smallvit.recipe import Recipe
from smallvit.runs.folder import RunFolder
from smallvit.training.initial import already_seen, initial_model


def start_from(choices: Choices, asked: Recipe, channels: int) -> None:
    """The file that `--init` means. Where it is of ours, it also says which model that is, at whatever image size."""
    file = model_file(asked.model.init, "--init")
    choices.put("model.init", str(file))
    choices.put("model.init_digest", digest(file))
    start = initial_model(file)
    if start is None:
        return
    left_open = asked.model.name == "auto" or "name" not in asked.model.model_fields_set
    if left_open or (start.timm_name in HYBRIDS and start.timm_name.split("_")[0] == asked.model.name):
        choices.record("model.name", start.timm_name, "the model to start from")
    elif architecture(asked.model.name, start.img_size).timm_name != start.timm_name:
        return
    if {start.in_chans, channels} <= {1, 3}:  # grey and colour become each other; other channels do not
        choices.choose("data.in_chans", start.in_chans, "as in the model to start from")
    choices.choose("model.timm_name", start.timm_name, "the model to start from")
    for key, value in start.kwargs.items():
        choices.choose(f"model.kwargs.{key}", value, "as in the model to start from")


def tell_of_start(choices: Choices, transferred: Transfer, images: ImageSet, split: Split) -> None:
    """What became of the weights, and what is wrong with starting from that model, if anything."""
    said = filter(None, (str(transferred), _warn_of_start(choices.recipe, images, split)))
    choices.record("model.init", choices["model.init"], "; ".join(said))


def _warn_of_start(recipe: Recipe, images: ImageSet, split: Split) -> str:
    """Images that the model has seen, or a collapse."""
    file = Path(recipe.model.init)
    if (file.parent / "results.json").is_file() and RunFolder(file.parent).results.get("collapse"):
        warn(f"{file.parent}, which this run starts from, collapsed: its features hardly tell images apart")
    return warn_of_seen(file, recipe, images, split)


def warn_of_seen(file: Path, recipe: Recipe, images: ImageSet, split: Split) -> str:
    held_out = {PART_ADJECTIVES[part]: rows for part, rows in split.judged.items()}
    seen = already_seen(file, recipe.data, images, held_out)
    if seen:
        warn(f"{seen}: the result may be too good. Give both commands the same --test and --val")
    return seen

"""best.toml: the recipe that a search found, with where it comes from."""

from __future__ import annotations

import json

from smallvit.listing.catalog import toml_line
from smallvit.recipe import flat
from smallvit.runs.atomic import write_text
from smallvit.tuning.folder import Tuning, stored_trial
from smallvit.tuning.search import Trial

# Which images, and where they are trained on: other commands have their own.
NOT_FOUND = {
    "data.source", "data.dir", "data.lists", "data.download", "data.incomplete", "data.per_class", "data.fraction", "data.val", "data.test", "data.split_seed", "seed", "threads",
    "device",
}  # fmt: skip


def write_best(tuning: Tuning, best: Trial) -> None:
    """What was asked for and what was found on top of it; what depends on images and time stays open."""
    asked = flat(tuning.asked.recipe)
    kept = {key: value for key, value in asked.items() if key not in NOT_FOUND}
    settings = stored_trial(tuning.trial(best.number)).settings
    number = f"trial {best.number} of {len(tuning.trials())}"
    folds = tuning.asked.folds
    judged_by = f"the images that its {folds} folds left out" if folds else "the validation images"
    about = {
        "description": f"Found by tuning: {number}, {best.accuracy:.1%} of {judged_by}.",
        "source": f"{tuning.asked.command}; space {tuning.asked.space}",
    }
    lines = ["[about]", *(f"{key} = {json.dumps(text, ensure_ascii=False)}" for key, text in about.items())]
    write_text(tuning.path / "best.toml", "\n".join([*sorted_tables(kept | settings), *lines]) + "\n")


def sorted_tables(settings: dict[str, object]) -> list[str]:
    """Dotted keys, which stand before the first table."""
    return [toml_line(key, value) for key, value in settings.items() if value is not None and value != {}]

"""README.md of an export: what the model is, how good it is and how that is known, and what must not be expected of it.

All of it is read from the run folder. No path of the user's machine is in it: a card is made to be shown around.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from smallvit.console import duration, several
from smallvit.evaluation.classes import MEASURES, about_groups, with_interval, worst_classes
from smallvit.evaluation.floors import beside
from smallvit.recipe import Recipe, flat
from smallvit.report.verdict import (
    PART_WORDS,
    about_part,
    against_floors,
    floor_scores,
    percent,
    run_score,
    state,
    state_of_folds,
)
from smallvit.runs.folder import RunFolder
from smallvit.runs.inference import judge_as_one
from smallvit.runs.members import fold_results, is_folds
from smallvit.runs.stored_findings import read_findings
from smallvit.shipping.agreement import Agreement
from smallvit.shipping.answer import members_of, temperature_of
from smallvit.shipping.example import is_ours, render
from smallvit.shipping.formats import Shipment
from smallvit.shipping.request import Request
from smallvit.training.initial import folder_of_start

MOST_CLASSES, WORST, FEW_IMAGES = 100, 5, 100
FROM_NOTHING = "nothing: no pretrained weights"


def card(request: Request, shipped: Shipment, agreement: Agreement) -> str:
    run = request.runs[0]
    recipe, preparation = run.recipe, shipped.predictor.preparation
    results = _results(request)
    judged = _judged(results, recipe, len(request.runs))
    classes = [plain(name) for name in shipped.predictor.class_names]
    text = render(
        "card.md.j2",
        format=request.format,
        kind=request.kind.title,
        ours=is_ours(shipped.architecture),
        architecture=shipped.architecture,
        name=recipe.model.name,
        models=len(request.runs),
        parameters=results["model"]["parameters"],
        classes=classes[:MOST_CLASSES],
        class_count=len(classes),
        source=plain(Path(recipe.data.source).name),
        parts=_parts(run),
        preparation=preparation,
        looks=preparation.looks_in_words(),
        temperatures=[temperature for one in members_of(shipped.predictor) if (temperature := temperature_of(one))],
        findings=_findings(request),
        agreement=agreement.sentence,
        trained=_trained(run, results),
        from_scratch=_start(run).endswith(FROM_NOTHING),
        limits=_limits(results, judged),
        front_matter=_front_matter(recipe.model.name, results, Path(recipe.data.source).name),
        percent=percent,
        **judged,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def plain(text: str) -> str:
    """A name of the user's as text and nothing else: neither markdown nor html nor a second line."""
    return re.sub(r"([\\`*_{}\[\]<>#|!&~$])", r"\\\1", " ".join(text.split()))


def _results(request: Request) -> dict[str, Any]:
    """Of the run; of folds together; of seeds that answer as one, judged now, for each was judged alone."""
    if is_folds(request.source):
        return fold_results(request.source)
    first = request.runs[0]
    results = dict(first.results)
    if len(request.runs) > 1 and (part := results["evaluated_part"]):
        scores, right_N, groups_N = judge_as_one(request.source, part)
        results |= {"parts": {part: scores}, "floors": beside(first.read("floors.json"), right_N, groups_N)}
    return results


def _judged(results: Mapping[str, Any], recipe: Recipe, models: int) -> dict[str, Any]:
    part, name = results["evaluated_part"], recipe.model.name
    caution = about_part(part, select=recipe.select)
    told: dict[str, Any] = {
        "caution": caution.text if caution else "",
        "sentence": "",
        "scores": [],
        "beside": "",
        "worst": [],
        "measures": [],
        "grouped": "",
    }
    if part is None:
        return told
    result = results["parts"][part]
    label = name if models == 1 else f"{models} models of {name}"
    folds = results.get("folds", 0) if part == "left_out" else 0
    score, floors = run_score(label, result, folds=folds), floor_scores(results["floors"])
    told["sentence"] = state_of_folds(score, result["n"]) if folds else state(score, part, result["n"])
    told["scores"] = [score, *floors]
    told["beside"] = against_floors(score._replace(only_answer=plain(score.only_answer)), floors).text
    told["worst"] = [
        f"{plain(row['name'])} {percent(row['accuracy'])} of {row['n']:,}" for row in worst_classes(result, WORST)
    ] if len(result["per_class"]) > 2 else []  # fmt: skip
    told["measures"] = [
        f"{named.words} {with_interval(result, key)}" for key, named in MEASURES.items() if result.get(key) is not None
    ]
    return told | {"words": PART_WORDS.get(part, part), "n": result["n"], "grouped": about_groups(result)}


def _parts(run: RunFolder) -> list[tuple[str, int, str]]:
    """The images of each part, and how they were chosen."""
    parts = run.read("split.json", "parts")["parts"]
    rows = {name: part.get("n", len(part.get("rows", ()))) for name, part in parts.items()}
    return [(PART_WORDS.get(name, name), n, str(parts[name].get("how", ""))) for name, n in rows.items() if n]


def _findings(request: Request) -> list[str] | None:
    """What a diagnosis says, the weightiest first; None where there was none."""
    stored = read_findings(request.runs[0]) if len(request.runs) == 1 else None
    if not stored:
        return None
    ranked = sorted(stored.values(), key=lambda finding: -finding.weight)
    return [finding.verdict for finding in ranked if finding.verdict]


def _trained(run: RunFolder, results: Mapping[str, Any]) -> list[str]:
    recipe, machine = run.recipe, run.read("env.json")
    versions = ", ".join(f"{name} {machine[name]}" for name in ("smallvit", "torch", "timm") if name in machine)
    return [
        f"{_length(run)} in {duration(results['timing']['train_seconds'])}, seed {recipe.seed}",
        f"started from {_start(run)}",
        f"{versions}; {machine.get('cpu', '') or machine.get('platform', '')}, {run.device}",
        f"exported by smallvit {metadata.version('smallvit')}",
    ]


def _length(run: RunFolder) -> str:
    steps = max((record.get("step", 0) for record in run.metrics), default=0)
    return several(run.trained_epochs, "epoch") + (f" ({several(steps, 'step')})" if steps else "")


def _start(run: RunFolder) -> str:
    """What there was before the first step. A run that was trained longer goes on from another: back to the first of them."""
    recipe, before = run.recipe, run.recipe.continued.steps
    passed: set[Path] = set()
    while recipe.continued.file:
        folder = folder_of_start(Path(recipe.continued.file))
        if folder in passed or not (folder / "recipe.json").is_file():
            break
        passed.add(folder)
        recipe = RunFolder(folder).recipe
    asked = flat(
        run.read("recipe.json").get("asked", {})
    )  # of a run that was trained longer: what the first was asked for
    if recipe.model.init or (recipe.continued.file and asked.get("model.init")):
        began = "another model's weights"
    elif recipe.continued.file:
        return (
            f"where an earlier run stood after {several(before, 'step')}; how that started is not known, for it is gone"
        )
    else:
        began = FROM_NOTHING
    return (
        f"where an earlier run stood after {several(before, 'step')}, which started from {began}" if before else began
    )


def _limits(results: Mapping[str, Any], judged: Mapping[str, Any]) -> list[str]:
    limits = [
        "It knows its classes and nothing else: an image of anything else gets one of them, sometimes with a high probability.",
        "It has seen images of one source. On images that were taken, cut out or stored otherwise the accuracy above does not hold.",
        "Whether the images stand for the people, places or things that it will be used on was not examined.",
    ]
    if judged["scores"] and judged["n"] < FEW_IMAGES:
        limits.append(f"It was judged on {judged['n']:,} images: the interval above is wide for that reason.")
    if not (temperature := results.get("calibration", {}).get("temperature")):
        limits.append("Its probabilities were not calibrated: read them as an order, not as shares of right answers.")
    elif not results["calibration"].get("used"):
        limits.append(
            f"Its probabilities are as trained; a temperature of {temperature:.4g} suited the validation images better."
        )
    return limits


def _front_matter(name: str, results: Mapping[str, Any], source: str) -> list[str]:
    """What the Hugging Face hub reads, line by line: YAML, whose values are JSON, so that no name can end them."""
    lines = [
        "tags: [image-classification, timm, smallvit]",
        "library_name: timm",
        "pipeline_tag: image-classification",
        "license: unknown",
    ]
    if (part := results["evaluated_part"]) is None:
        return lines
    shown = {
        "name": name,
        "results": [
            {
                "task": {"type": "image-classification"},
                "dataset": {"name": source, "type": "image-folder", "split": part},
                "metrics": [{"type": "accuracy", "value": round(results["parts"][part]["accuracy"], 4)}],
            }
        ],
    }
    return [*lines, f"model-index: {json.dumps([shown])}"]

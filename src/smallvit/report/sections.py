"""What each section of the page shows, as plain values for the template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from smallvit.console import several
from smallvit.drawing import figures
from smallvit.evaluation.classes import MEASURES, groups_of, is_unbalanced, with_interval
from smallvit.planning.explanation import show
from smallvit.report.collect import Content, by_arm, shared
from smallvit.report.data_section import stored_gallery
from smallvit.report.verdict import (
    OTHER_IMAGES,
    PART_WORDS,
    Score,
    Verdict,
    about_balance,
    about_collapse,
    about_part,
    against_floors,
    between,
    floor_scores,
    mean_over_replicates,
    percent,
    run_score,
    state,
    state_as_one,
    state_of_folds,
    told_before,
)
from smallvit.runs.axes import replicate_word
from smallvit.runs.together import answers_as_one

OPEN_CLASSES, MOST_CLASSES = 20, 500  # rows of tables: shown, kept
FULL_CLASSES, BLOCK_CLASSES = 40, 16  # up to 40 classes the whole confusion matrix has names; beyond, a block of 16 has


def accuracy_section(
    contents: Sequence[Content], compared: bool = False, folds: Sequence[Content] = ()
) -> dict[str, Any]:
    """`compared`: a paired comparison speaks of their difference, and knows more than two intervals side by side.

    `folds` are the runs that are judged together in one of the contents.
    """
    judged = [run for run in contents if run.part]
    scores = {run.label: _score(run) for run in judged}
    means: list[Score] = []
    headlines: list[tuple[Score, Content]] = []
    summary: list[str] = []
    for group in by_arm(judged):
        score = scores[group[0].label]
        if len(group) > 1:
            word = replicate_word(run.replicate for run in group)
            score = mean_over_replicates(group[0].arm, [scores[run.label] for run in group], word)
            means.append(score._replace(label=f"{group[0].arm}, mean of {several(len(group), word)}"))
        headlines.append((score, group[0]))
        summary += _stated(score, group)
    floors = [
        floor._replace(label=f"{floor.label} ({label})" if label else floor.label)
        for label, known in shared((run.label, _drawn_floors(run)) for run in judged)
        for floor in known
    ]
    single = [_score(run) for run in (*judged, *folds) if not run.folds]
    bars = [
        figures.Bar(score.label, score.accuracy, score.low, score.high, score.series)
        for score in (*means, *_all_folds(judged), *single, *floors)
    ]
    return {
        "summary": summary,
        "verdicts": _verdicts(headlines, contents, compared),
        "accuracy_chart": figures.accuracy_chart(bars) if bars else "",
        "has_mean": bool(means),
        "has_folds": bool(folds),
        "has_groups": any(groups_of(run.result) for run in judged),
        "floor_notes": _floor_notes(judged),
        "numbers": _numbers(contents),
    }


def _verdicts(headlines: Sequence[tuple[Score, Content]], contents: Sequence[Content], compared: bool) -> list[Verdict]:
    verdicts = [against_floors(score, _floors(run), run.pretrained) for score, run in headlines]
    verdicts += [about_collapse(run.label, run.results["collapse"]) for run in contents if "collapse" in run.results]
    if len(headlines) > 1 and not compared:
        same = len({_judged_by(run) for _, run in headlines}) == 1
        verdicts.append(between([score for score, _ in headlines]) if same else OTHER_IMAGES)
    verdicts += [
        about_balance(score.label, run.result, run.results.get("floors", {}))
        for score, run in headlines
        if (run.folds or score.replicates == 1) and is_unbalanced(run.result)
    ]
    verdicts += map(told_before, dict.fromkeys(said for run in contents for said in run.cautions))
    about = (
        about_part(run.part, classes=len(run.class_names) > 1, select=run.resolved.get("select")) for run in contents
    )
    return verdicts + [verdict for verdict in dict.fromkeys(about) if verdict]


def _judged_by(run: Content) -> tuple[Any, ...]:
    """What kind of images: the part, the classes, and how many images each has."""
    classes = [(row["name"], row["n"]) for row in run.result.get("per_class", [])]
    return run.part, run.result["n"], *classes


def _score(run: Content) -> Score:
    return run_score(run.label, run.result, run.series, run.folds)


def _all_folds(judged: Sequence[Content]) -> list[Score]:
    """As a mean over seeds is drawn: in ink, for the colours are those of the runs."""
    return [
        _score(run)._replace(label=f"{run.label}, all {several(run.folds, 'fold')}", series=-1)
        for run in judged
        if run.folds
    ]


def _stated(score: Score, group: Sequence[Content]) -> list[str]:
    run = group[0]
    if not run.folds:
        together = answers_as_one([one.path for one in group]) if run.part == "test" else None
        as_one = [state_as_one(score.label, len(group), together)] if together else []
        return [state(score, str(run.part), run.result["n"], run.pretrained), *as_one]
    as_one = [state_as_one(run.label, run.results["runs"], test) for test in [run.results["parts"].get("test")] if test]
    return [state_of_folds(score, run.result["n"]), *as_one]


def _floors(run: Content) -> list[Score]:
    return floor_scores(run.results.get("floors", {}))


def _drawn_floors(run: Content) -> list[Score]:
    """The same for all runs on the same images: whom the model beats, image by image, is not drawn."""
    return [floor._replace(only=None, over_groups=None) for floor in _floors(run)]


def _floor_notes(contents: Sequence[Content]) -> list[str]:
    """How each floor was made, or why there is none."""
    floors = [floor for run in contents for floor in run.results.get("floors", {}).values()]
    notes = [
        f"{floor['label']}: {'' if floor.get('accuracy') is not None else 'not computed, '}{floor['why']}"
        for floor in floors
        if floor.get("why")
    ]
    return list(dict.fromkeys(notes))


def _numbers(contents: Sequence[Content]) -> list[tuple[str, list[str]]]:
    """The table beside the chart: a name, and a value for every run."""

    def column(run: Content) -> dict[str, str]:
        result, weights = run.result, run.results["weights"]
        measured = (
            {
                "accuracy": percent(result["accuracy"]),
                "95% interval": f"{percent(result['interval'][0])} to {percent(result['interval'][1])}",
                **{named.words: with_interval(result, name) for name, named in MEASURES.items() if name in result},
                "loss": f"{result['loss']:.3f}",
                "measured on": f"{result['n']:,} {PART_WORDS.get(str(run.part), run.part)}"
                + (f" of {several(groups, 'group')}" if (groups := groups_of(result)) else ""),
            }
            if result
            else {}
        )
        if result and run.pretrained:  # the votes of neighbours have no loss worth telling
            del measured["loss"]
            measured["judged by"] = "k-NN on frozen features"
        if run.folds:
            measured["in each fold"] = ", ".join(percent(accuracy) for accuracy in result["of_fold"].values())
        if run.folds and (test := run.results["parts"].get("test")):
            low, high = test["interval"]
            measured["as one model"] = (
                f"{percent(test['accuracy'])} ({percent(low)} to {percent(high)}) of {test['n']:,} test images"
            )
        return measured | {
            "parameters": count(run.results["model"]["parameters"]),
            "weights": f"{weights['which']}, epoch {weights['epoch']}" + (", averaged" if weights["ema"] else ""),
            "training time": duration(run.results["timing"]["train_seconds"]),
        }

    columns = [column(run) for run in contents]
    names = dict.fromkeys(name for facts in columns for name in facts)
    return [(name, [facts.get(name, "–") for facts in columns]) for name in names]


def class_section(contents: Sequence[Content]) -> dict[str, Any]:
    maps = [_confusion(run) for run in contents if run.result.get("confusion")]
    kinds = [[(entry["name"], entry["n"]) for entry in run.result.get("per_class", [])] for run in contents]
    groups = [list(contents)] if all(kind == kinds[0] for kind in kinds) else [[run] for run in contents]
    return {
        "confusions": maps,
        "class_tables": [_class_table(group) for group in groups if group[0].result.get("per_class")],
    }


def _confusion(run: Content) -> dict[str, Any]:
    """The whole matrix; with many classes also the block of those that are confused most, with their names."""
    counts, names = run.result["confusion"], run.class_names
    block = ""
    if len(names) > FULL_CLASSES and (chosen := confused_block(counts, BLOCK_CLASSES)):
        counts_KK = np.asarray(counts)
        inside = counts_KK[np.ix_(chosen, chosen)].tolist()
        totals = counts_KK.sum(axis=1)[chosen].tolist()
        block = figures.confusion_map(inside, [names[klass] for klass in chosen], f"confused-{run.series}", totals)
    return {
        "label": run.label,
        "svg": figures.confusion_map(counts, names, f"confusion-{run.series}"),
        "block": block,
        "classes": len(names),
        "pairs": confused_pairs(counts, names),
    }


def confused_block(confusion: Sequence[Sequence[int]], most: int) -> list[int]:
    """Classes that are taken for each other: the worst pair, then always the one most confused with those so far."""
    counts_KK = np.asarray(confusion)
    both_KK = counts_KK + counts_KK.T
    np.fill_diagonal(both_KK, 0)
    if not both_KK.any():
        return []
    chosen = [int(place) for place in np.unravel_index(both_KK.argmax(), both_KK.shape)]
    while len(chosen) < min(most, len(both_KK)):
        ties_K = both_KK[chosen].sum(axis=0)
        ties_K[chosen] = -1
        if ties_K.max() <= 0:
            break
        chosen.append(int(ties_K.argmax()))
    return chosen


def confused_pairs(confusion: Sequence[Sequence[int]], names: Sequence[str], most: int = 8) -> list[dict[str, Any]]:
    """The mistakes made most often, with their share of the true class."""
    counts_KK = np.asarray(confusion)
    wrong_KK = counts_KK - np.diag(np.diag(counts_KK))
    order = np.argsort(-wrong_KK, axis=None, kind="stable")[:most]
    cells = [divmod(int(cell), len(names)) for cell in order]
    return [
        {
            "true": names[row],
            "predicted": names[column],
            "n": int(wrong_KK[row, column]),
            "share": wrong_KK[row, column] / counts_KK[row].sum(),
        }
        for row, column in cells
        if wrong_KK[row, column]
    ]


def _class_table(group: Sequence[Content]) -> dict[str, Any]:
    """Accuracy per class and run; the worst first, since those are the ones to look at."""
    columns = [run.result["per_class"] for run in group]
    rows = [
        {"number": number, "name": cells[0]["name"], "n": cells[0]["n"], "cells": cells}
        for number, cells in enumerate(zip(*columns, strict=True), start=1)
    ]

    def badness(row: dict[str, Any]) -> float:
        known = [cell["accuracy"] for cell in row["cells"] if cell.get("accuracy") is not None]
        return sum(known) / len(known) if known else 2.0

    rows.sort(key=badness)
    return {
        "runs": [(run.label, figures.color_name(run.series)) for run in group],
        "numbered": len(rows) > 40,
        "open": rows[:OPEN_CLASSES],
        "folded": rows[OPEN_CLASSES:MOST_CLASSES],
        "left_out": max(0, len(rows) - MOST_CLASSES),
    }


def mistake_section(contents: Sequence[Content], image_bytes: int) -> dict[str, Any]:
    mistakes = [(run.label, stored_gallery(run, "mistakes", image_bytes)) for run in contents]
    return {"mistakes": [pair for pair in mistakes if pair[1].pictures or pair[1].dropped]}


def recipe_section(contents: Sequence[Content]) -> dict[str, Any]:
    recipes = by_key([run.resolved for run in contents])
    return {
        "differences": [(key, values) for key, values in recipes if len(set(values)) > 1],
        "recipe": recipes,
        "commands": list(dict.fromkeys(run.command for run in contents if run.command)),
        "environment": by_key([run.env for run in contents]),
    }


def by_key(dicts: Sequence[Mapping[str, Any]]) -> list[tuple[str, list[str]]]:
    """Each key with its value in every run, or with one value where all agree."""
    keys = dict.fromkeys(key for of_run in dicts for key in of_run)
    rows = [(key, [show(of_run[key]) if key in of_run else "–" for of_run in dicts]) for key in keys]
    return [(key, values if len(set(values)) > 1 else values[:1]) for key, values in rows]


# ---- words for numbers -------------------------------------------------------------------------------


def duration(seconds: float) -> str:
    whole = round(seconds)
    if whole < 60:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"


def count(number: float) -> str:
    """1,234; 205 thousand; 5.7 million."""
    if number >= 1e6:
        return f"{number / 1e6:.1f} million"
    return f"{number:,.0f}"

"""Results as short tables in the terminal, floors always in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from smallvit.console import are, duration, printable, several, tell
from smallvit.evaluation.classes import (
    MEASURES,
    about_groups,
    class_sizes,
    is_unbalanced,
    with_interval,
    worst_classes,
)
from smallvit.evaluation.statistics import mean_interval
from smallvit.recipe import flat
from smallvit.report.verdict import against_floors, few, floor_scores, run_score
from smallvit.runs.axes import replicate_word
from smallvit.runs.folder import RunFolder
from smallvit.runs.members import fold_results, folds_together, method_of, replicate_of
from smallvit.runs.together import answers_as_one

WORST_CLASSES = 10


def _table(title: str, *more: str) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    # A path that was given, or the part that a stranger's file names: no markup, and no command to the terminal.
    table = Table(title=Text(printable(title)), box=box.SIMPLE_HEAD, title_justify="left")
    table.add_column("")
    for heading in ("accuracy", "95 % interval", *more):
        table.add_column(heading, justify="right")
    return table


def _print(table: Any) -> None:
    from rich.console import Console

    Console().print(table)


def _row(table: Any, label: str, entry: Mapping[str, Any], *more: str, style: str = "") -> None:
    from rich.text import Text

    if entry.get("accuracy") is None:  # a floor that was not computed
        return
    low, high = entry["interval"]
    table.add_row(Text(printable(label)), f"{entry['accuracy']:.1%}", f"{low:.1%} to {high:.1%}", *more, style=style)


def results_table(runs: Sequence[RunFolder]) -> None:
    """Every run beside the floors; their mean where they are replicates of one method, folds as one where they are all."""
    if len(runs) > 1 and (folder := folds_together(runs)):
        folds_table(folder, runs)
        return
    results = [run.results for run in runs]
    part = results[0]["evaluated_part"]
    if part is None:
        for run in runs:
            tell(_unjudged(run))
        return
    how = " of a k-NN on the features" if results[0].get("judged_by") == "k-NN" else ""
    images = several(results[0]["parts"][part]["n"], "image")
    table = _table(f"accuracy{how} on the {part.replace('_', '-')} part ({images})", "parameters", "training")
    for run, result in zip(runs, results, strict=True):
        model, seconds = result["model"], result["timing"]["train_seconds"]
        _row(
            table, _label(run, runs), result["parts"][part], f"{model['parameters']:,}", duration(seconds), style="bold"
        )
    told: list[str] = []
    recipes = [flat(run.read("recipe.json", "resolved")["resolved"]) for run in runs]  # as they were written
    if len(runs) > 1 and len({method_of(run.path, recipe) for run, recipe in zip(runs, recipes, strict=True)}) == 1:
        word = replicate_word(replicate_of(run.path, run.recipe.seed) for run in runs)
        mean, low, high = mean_interval([result["parts"][part]["accuracy"] for result in results])
        label = f"mean of {several(len(runs), word)}"
        table.add_row(label, f"{mean:.1%}", style="bold")  # its interval is of another kind: not in that column
        told = [
            f"{label}: {mean:.1%}, other {word}s would move it within {max(0.0, low):.1%} to {min(1.0, high):.1%} (95 %, same images).{few(len(runs), word)}"
        ]
        if together := answers_as_one([run.path for run in runs]):
            _row(table, f"all {len(runs)} as one model", together, style="bold")
    for floor in results[0]["floors"].values():
        _row(table, floor["label"], floor, style="dim")
    _print(table)
    for line in told:
        print(line)
    _measures_table(
        [(_label(run, runs), result["parts"][part]) for run, result in zip(runs, results, strict=True)],
        results[0]["floors"],
    )
    _tell_groups(results[0]["parts"][part])
    for run, result in zip(runs, results, strict=True):
        score = run_score(_label(run, runs), result["parts"][part])
        verdict = against_floors(score, floor_scores(result["floors"]), result.get("judged_by") == "k-NN")
        tell(f"{verdict.word}: {verdict.text}")


def _label(run: RunFolder, runs: Sequence[RunFolder]) -> str:
    return run.recipe.model.name if len(runs) == 1 else run.path.name


def folds_table(folder: Path, runs: Sequence[RunFolder]) -> None:
    """All folds together, then each; what they reach as one model where there is a test part; floors over all folds."""
    results = fold_results(folder)
    judged, model = results["parts"]["left_out"], results["model"]
    table = _table(
        f"accuracy over {several(results['folds'], 'fold')} ({several(judged['n'], 'image')}, each judged where it was left out)",
        "training",
    )
    seconds = duration(results["timing"]["train_seconds"])
    _row(table, "all folds together", judged, seconds, style="bold")
    for run in runs:
        _row(table, run.path.name, run.results["parts"]["left_out"], duration(run.results["timing"]["train_seconds"]))
    if test := results["parts"].get("test"):
        _row(table, f"as one model, on {test['n']:,} test images", test, style="bold")
    for floor in results["floors"].values():
        _row(table, floor["label"], floor, style="dim")
    _print(table)
    if told := few(results["folds"], "fold"):
        tell(told.strip())
    as_one = [("as one model", test)] if test else []
    _measures_table([("all folds together", judged), *as_one], results["floors"])
    _tell_groups(judged)
    score = run_score(model["name"], judged, folds=results["folds"])
    verdict = against_floors(score, floor_scores(results["floors"]))
    tell(f"{verdict.word}: {verdict.text}")
    if n := results["suspected_labels"]:
        tell(
            f"{are(n, 'label')} probably wrong, the surest first in {folder / 'label-errors.csv'}, with pictures in the report; look "
            f"before you change one: the models are right {100 * judged['accuracy']:.1f}% of the time"
        )
    else:
        from smallvit.evaluation.label_errors import LEAST_ACCURACY, may_doubt  # needs torch: one run does without

        good = may_doubt(judged)
        why = f": of models that are right less than {LEAST_ACCURACY:.0%} of the time, classes counted alike, most doubts are their own mistakes"
        tell("no label is called wrong" + ("" if good else why))


def _unjudged(run: RunFolder) -> str:
    """What may be said where nothing could be judged: for pretraining, the last look at its features."""
    looks = [record for record in run.metrics if "spread" in record]
    if not looks:
        return "no test and no validation part: nothing was evaluated"
    return (
        f"no classes to judge by; the features have spread {looks[-1]['spread']:.2f} (0: all alike) and effective rank "
        f"{looks[-1]['effective_rank']:.1f}"
    )


def _measures_table(rows: Sequence[tuple[str, Mapping[str, Any]]], floors: Mapping[str, Any]) -> None:
    """What counts every class the same, as far as the runs have it: those of version 0.1 have balanced accuracy only.

    Where classes differ in size, that of the floors, too: else it is their accuracy.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = [name for name in MEASURES if any(name in result for _, result in rows)]
    table = Table(
        title="where every class counts the same, with 95 % intervals", box=box.SIMPLE_HEAD, title_justify="left"
    )
    for heading in ("", *(MEASURES[name].words for name in names)):
        table.add_column(heading, justify="right" if heading else "left")
    for label, result in rows:
        table.add_row(Text(printable(label)), *(with_interval(result, name, brief=True) for name in names))
    if unbalanced := is_unbalanced(rows[0][1]):
        for floor in floors.values():
            if "balanced_accuracy" in floor:
                cells = (with_interval(floor, name, brief=True) for name in names)
                table.add_row(Text(printable(floor["label"])), *cells, style="dim")
    _print(table)
    if unbalanced:
        least, most = class_sizes(rows[0][1])
        print(f"the classes have {least:,} to {most:,} images here: large ones decide the accuracy")


def _tell_groups(result: Mapping[str, Any]) -> None:
    if told := about_groups(result):
        tell(told)


def evaluation_table(result: Mapping[str, Any], floors: Mapping[str, Any], part: str) -> None:
    table = _table(f"accuracy on {part} ({several(result['n'], 'image')})")
    _row(table, "model", result, style="bold")
    for floor in floors.values():
        _row(table, floor["label"], floor, style="dim")
    _print(table)
    _worst_table(result)
    _measures_table([("model", result)], floors)
    _tell_groups(result)
    print(f"loss {result['loss']:.3f}")


def shares_table(rows: Sequence[tuple[float, int, Sequence[float]]]) -> None:
    """Share, images, and the accuracy of every seed."""
    from rich import box
    from rich.table import Table

    table = Table(title="test accuracy on shares of the training images", box=box.SIMPLE_HEAD, title_justify="left")
    for heading in ("share", "images", "accuracy", "of each seed"):
        table.add_column(heading, justify="right")
    for share, images, accuracies in rows:
        mean = sum(accuracies) / len(accuracies)
        table.add_row(f"{share:g}", f"{images:,}", f"{mean:.1%}", ", ".join(f"{one:.1%}" for one in accuracies))
    _print(table)


def probe_table(probed: Mapping[str, Any]) -> None:
    probes = [probed[name] for name in ("knn", "linear") if name in probed]
    table = _table(f"frozen features on the {probed['part']} part ({several(probes[0]['n'], 'image')})")
    for entry in probes:
        _row(table, entry["label"], entry, style="bold")
    for floor in probed["floors"].values():
        _row(table, floor["label"], floor, style="dim")
    _print(table)
    for entry in probes:
        tell(f"{entry['label']}: {entry['why']}")


def _worst_table(result: Mapping[str, Any]) -> None:
    """The classes to look at; all of them where they are few."""
    rows = worst_classes(result, WORST_CLASSES)
    seen = sum(row["accuracy"] is not None for row in result["per_class"])
    title = "the classes, worst first" if len(rows) == seen else f"the {len(rows)} worst of {seen} classes"
    table = _table(title, "images")
    for row in rows:
        _row(table, row["name"], row, f"{row['n']:,}")
    _print(table)

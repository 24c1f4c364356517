"""Runs that come before the run that counts: a pretraining, a teacher, in one command and one folder."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import smallvit
from helpers import ends_well, fails, run_here
from smallvit.errors import RunError, UsageError
from smallvit.planning.length import AIM, Clock
from smallvit.planning.plan import make_plan, write_plan
from smallvit.recipe import flat
from smallvit.runs import executor
from smallvit.runs.members import method_of
from smallvit.runs.stages import Stages, settled
from smallvit.training import budget
from smallvit.training.session import train_seconds

TINY: dict[str, Any] = {
    "data": "digits", "model": "vit_pico", "per_class": 4, "batch_size": 8, "epochs": 1, "threads": 1, "show_progress": False,
}  # fmt: skip
WORDS = ("train", "digits", "--model", "vit_pico", "--per-class", "4", "--epochs", "1", "--threads", "1")


@pytest.fixture(autouse=True)
def short_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "MEASURED_SECONDS", 0.02)


@pytest.fixture(scope="module")
def staged(tmp_path_factory: pytest.TempPathFactory) -> smallvit.Run:
    return smallvit.train(
        **TINY, teacher="conv_nano", pretrain="simclr", out=tmp_path_factory.mktemp("runs") / "a", val=0.2
    )


def test_every_stage_is_a_run_on_the_same_training_images(staged: smallvit.Run) -> None:
    pretrained, teacher = (smallvit.Run(staged.path / name) for name in ("pretraining", "teacher"))
    rows = staged.read("split.json")["parts"]
    for stage in (pretrained, teacher):
        assert stage.finished and stage.read("split.json")["parts"] == rows
        assert stage.recipe.epochs == staged.recipe.epochs == 1 and stage.recipe.seed == staged.recipe.seed
        assert (stage.path / "report.html").is_file()
    assert (pretrained.recipe.objective.name, pretrained.recipe.model.name) == ("simclr", "vit_pico")
    assert (teacher.recipe.objective.name, teacher.recipe.model.name) == ("supervised", "conv_nano")
    assert teacher.recipe.optimizer.name == "muon", "it has the default recipe"
    assert pretrained.recipe.augment.flip == teacher.recipe.augment.flip == 0.0, "digits are not mirrored"


def test_what_they_leave_is_handed_on(staged: smallvit.Run) -> None:
    recipe = staged.recipe
    assert recipe.model.init == str(staged.path / "pretraining" / "model.safetensors")
    assert recipe.aux["teacher"]["run"] == str(staged.path / "teacher" / "model.safetensors")
    assert len(recipe.model.init_digest) == len(recipe.aux["teacher"]["digest"]) == 64
    asked = staged.read("recipe.json")["asked"]
    assert asked["aux"]["teacher"]["run"] == "conv_nano" and "init" not in asked["model"]
    reasons = {choice["key"]: choice["why"] for choice in staged.choices}
    assert "tensors taken" in reasons["model.init"] and reasons["data.img_size"] and reasons["aux.teacher.share"]


def test_the_report_tells_both_stages(staged: smallvit.Run) -> None:
    page = (staged.path / "report.html").read_text("utf-8")
    accuracy = smallvit.Run(staged.path / "teacher").results["parts"]["test"]["accuracy"]
    assert "In stages." in page
    assert re.search(rf"the teacher, conv_nano \(\d+ s; {accuracy:.1%} of the test images right\)", page)
    assert re.search(r"pretraining with simclr at 8 px \(\d+ s; a k-NN on its features: ", page)


def test_the_folder_is_overwritten_whole(staged: smallvit.Run, tmp_path: Path) -> None:
    folder = shutil.copytree(staged.path, tmp_path / "a")
    (folder / "teacher" / "mine.txt").touch()
    fails(run_here(*WORDS, "--out", folder, "--overwrite"), 1, "holds what no run wrote (teacher/mine.txt)")
    (folder / "teacher" / "mine.txt").unlink()
    smallvit.train(**TINY, out=folder, overwrite=True)
    assert not (folder / "teacher").exists() and not (folder / "stages.json").exists()


class Here:
    """A run of a group that is computed in this process: five times importing torch is not what is tested."""

    def __init__(self, path: Path, cores: int) -> None:
        smallvit.resume(path, show_progress=False)

    def poll(self) -> executor.Exit:
        return executor.Exit(0, None)

    def stop(self) -> None:
        pass


def test_seeds_have_stages_of_their_own_and_one_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "Process", Here)
    monkeypatch.setattr(executor, "POLL_SECONDS", 0.01)
    folder = tmp_path / "group"
    outcome = ends_well(run_here(*WORDS, "--teacher", "conv_nano", "--seeds", "2", "--out", folder))
    runs = [smallvit.Run(folder / f"seed-{seed}") for seed in (0, 1)]
    for seed, run in enumerate(runs):
        assert run.recipe.seed == smallvit.Run(run.path / "teacher").recipe.seed == seed
        assert run.recipe.aux["teacher"]["run"] == str(run.path / "teacher" / "model.safetensors")
        assert {"key": "aux.teacher.run", "value": run.recipe.aux["teacher"]["run"]}.items() <= next(
            choice for choice in run.choices if choice["key"] == "aux.teacher.run"
        ).items()
    first, second = (run.recipe.model_dump(exclude={"seed", "aux"}) for run in runs)
    assert first == second
    assert "seed-1: Before it, in the same command: the teacher, conv_nano" in outcome.out
    assert "mean of 2 seeds" in outcome.out
    # One seed is killed before it has a plan: the group goes on, the member alone does not.
    (runs[1].path / "recipe.json").unlink()
    (runs[1].path / "results.json").unlink()
    fails(run_here("resume", runs[1].path), 1, f"with the other runs of its group: `smallvit resume {folder}`")
    fails(run_here("evaluate", runs[1].path), 1, "is not a run yet: what comes first has not ended")
    before = [(run.path / "teacher" / "model.safetensors").stat().st_mtime_ns for run in runs]
    ends_well(run_here("resume", folder))
    assert [(run.path / "teacher" / "model.safetensors").stat().st_mtime_ns for run in runs] == before
    assert runs[1].finished


def test_runs_with_stages_of_their_own_are_one_method(staged: smallvit.Run, tmp_path: Path) -> None:
    other = shutil.copytree(staged.path, tmp_path / "b")
    text = (
        (other / "recipe.json")
        .read_text("utf-8")
        .replace(str(staged.path), str(other))
        .replace('"seed": 0', '"seed": 1')
    )
    (other / "recipe.json").write_text(text, "utf-8")
    keys = [method_of(run, flat(smallvit.Run(run).read("recipe.json")["resolved"])) for run in (staged.path, other)]
    assert keys[0] == keys[1] and str(staged.path) not in keys[0]


# ---- the budget ------------------------------------------------------------------------------------------


def test_a_stage_ends_when_its_share_is_gone() -> None:
    """Planned, not trained: all stages and the last run have a time at which they are to be over."""
    asked = smallvit.make_recipe(
        data="digits", model="vit_pico", per_class=20, threads=1, budget=1000, teacher="conv_nano", pretrain="simclr",
        settings={"pretrain.share": 0.2, "aux.teacher.share": 0.3},
    )  # fmt: skip
    clock = Clock()
    plan = make_plan(asked, clock, with_floors=False)
    assert plan.recipe.replan and plan.recipe.replan.seconds == pytest.approx(AIM * 500)
    stages = Stages.planned(plan, clock, "")
    assert stages and stages.prepared
    for stage, share in zip(stages.all, (0.2, 0.5), strict=True):
        replan = stages.prepare(stage).plan.recipe.replan
        assert replan and replan.seconds == pytest.approx(AIM * share * 1000)


def test_a_clock_with_a_share() -> None:
    clock = Clock(share=0.4)
    assert clock.end_of(100) == pytest.approx(AIM * 40)
    assert clock.for_steps(100, 5.0) == pytest.approx(AIM * 40 - 5, abs=0.1)


def test_a_budget_that_is_too_short_for_a_stage_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    words = ("--teacher", "conv_nano", "--set", "aux.teacher.share=0.001", "--budget", "60s", "--out", tmp_path / "a")
    fails(
        run_here("train", "digits", "--model", "vit_pico", "--threads", "1", *words), 2, "the budget of 60 s leaves 0 s"
    )
    assert not (tmp_path / "a").exists()


def test_a_run_that_comes_late_is_trained_all_the_same(
    staged: smallvit.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Stages that took longer than the whole budget: half of its share is left for the run that counts."""
    folder = shutil.copytree(staged.path, tmp_path / "a")
    stored = json.loads((folder / "stages.json").read_text("utf-8"))
    for recipe in (stored["ahead"]["asked"], stored["ahead"]["settled"]):
        recipe |= {"epochs": "auto", "budget": 1000.0}
    (folder / "stages.json").write_text(json.dumps(stored | {"spent": 5000.0}), "utf-8")
    recipe = Stages.stored(folder).last(folder).plan.recipe
    assert recipe.steps and recipe.replan and recipe.replan.seconds == pytest.approx(AIM * 1000)
    assert 950 < recipe.replan.by < 985, "its share is a tenth of the budget"
    assert "what came first took 5000 s of the 1000 s: the budget will not be kept" in capsys.readouterr().err


def test_the_time_of_a_stage_that_outlived_its_command_is_gone(staged: smallvit.Run, tmp_path: Path) -> None:
    """The command was killed in its first stage, which went on to its end in a process of its own."""
    folder = shutil.copytree(staged.path, tmp_path / "a")
    (folder / "recipe.json").unlink()
    stored = json.loads((folder / "stages.json").read_text("utf-8"))
    assert stored["counted"] == ["pretraining", "teacher"]

    def gone(**changes: Any) -> float:
        (folder / "stages.json").write_text(json.dumps(stored | {"spent": 10.0} | changes), "utf-8")
        stages = Stages.stored(folder)
        stages.run(folder, {folder: 0}, lambda paths, prepared: None)
        return stages.clock.gone

    def trained(name: str) -> float:
        path, seconds = folder / name / "metrics.jsonl", 500.0
        lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        path.write_text("".join(json.dumps(line | {"seconds": seconds}) + "\n" for line in lines), "utf-8")
        return train_seconds(folder / name)

    seconds = sum(map(trained, ("pretraining", "teacher")))
    assert seconds >= 1000 and gone() < 500 and gone(counted=None) < 500, "an earlier version has all of it in `spent`"
    assert gone(counted=["pretraining"]) > 500 and gone(counted=[]) > seconds


def test_changes_that_go_by_the_epochs_are_chosen_with_their_number(staged: smallvit.Run) -> None:
    flags = {key: value for key, value in TINY.items() if key != "show_progress"}
    plan = make_plan(smallvit.make_recipe(settings={"augment.trivial": "auto"}, **flags), with_floors=False)
    assert plan.recipe.augment.trivial is False and settled(plan).augment.trivial == "auto"


def test_a_folder_that_was_moved_has_its_teacher_in_it(staged: smallvit.Run, tmp_path: Path) -> None:
    moved = shutil.copytree(staged.path, tmp_path / "moved")
    recipe = (moved / "recipe.json").read_text("utf-8").replace(str(staged.path / "teacher"), str(tmp_path / "gone"))
    (moved / "recipe.json").write_text(recipe, "utf-8")
    for name in ("results.json", "report.html", "model.safetensors", "metrics.jsonl"):
        (moved / name).unlink()
    shutil.rmtree(moved / "state")
    smallvit.resume(moved, show_progress=False)
    again, once = (load_file(run / "model.safetensors") for run in (moved, staged.path))
    assert again.keys() == once.keys() and all(torch.equal(again[name], once[name]) for name in once)
    (moved / "teacher" / "model.safetensors").unlink()
    (moved / "results.json").unlink()
    with pytest.raises(RunError, match="gone"):
        smallvit.resume(moved, show_progress=False)


# ---- what cannot be ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flags", "message"), [
    ({"pretrain": "simcrl"}, "unknown method --pretrain 'simcrl': did you mean simclr?"),
    ({"pretrain": "simclr", "init": "runs/a"}, "--pretrain simclr and --init exclude each other"),
    ({"teacher": "no_such_model"}, "--teacher no_such_model: should be auto, a finished run or a model"),
])  # fmt: skip
def test_what_cannot_be_asked_for(flags: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        smallvit.make_recipe(data="digits", **flags)
    assert message in str(refusal.value)


@pytest.mark.parametrize(("words", "message"), [
    (("train", "--set", "pretrain.share=0.7", "--pretrain", "simclr", "--teacher", "auto"), "too much of the budget (pretraining 70% and teacher 40%)"),
    (("pretrain", "--method", "simclr", "--aux", "teacher"), "its answers are about classes, and pretraining has none"),
    (("pretrain", "--method", "simclr", "--set", "pretrain.method=dino"), "--pretrain dino comes before training on labels"),
])  # fmt: skip
def test_what_does_not_go_together(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    command, *rest = words
    fails(run_here(command, "digits", *WORDS[2:], *rest, "--out", tmp_path / "a"), 2, message)
    assert not (tmp_path / "a").exists()


def test_a_plan_that_lacks_its_stages_is_not_written(tmp_path: Path) -> None:
    given = {key: value for key, value in TINY.items() if key != "show_progress"}
    plan = make_plan(smallvit.make_recipe(**given, teacher="conv_nano"), with_floors=False)
    with pytest.raises(UsageError, match=r"a stage that was not run \(teacher\): smallvit\.train runs it first"):
        write_plan(tmp_path, plan, "")


@pytest.mark.parametrize("content", ["{", '{"stages": ["../b"]}', '{"stages": ["teacher"], "ahead": 1}'])
def test_a_damaged_file_of_stages(content: str, tmp_path: Path) -> None:
    (tmp_path / "stages.json").write_text(content)
    with pytest.raises(RunError, match=r"stages\.json"):
        smallvit.resume(tmp_path)


def test_a_stage_that_there_is_not(staged: smallvit.Run, tmp_path: Path) -> None:
    folder = shutil.copytree(staged.path, tmp_path / "a")
    (folder / "recipe.json").unlink()
    text = (folder / "stages.json").read_text("utf-8").replace('"teacher"', '"teecher"', 1)
    (folder / "stages.json").write_text(text, "utf-8")
    with pytest.raises(RunError, match=r"there is no stage 'teecher': did you mean teacher\?"):
        smallvit.resume(folder)


# ---- --pretrain auto ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("flags", "method", "why"), [
    ({"model": "vit_nano", "epochs": 60}, "simclr", "it gained a plain ViT 4 points in four minutes"),
    ({"model": "vit_nano", "epochs": 10}, "none", "under 30 epochs there is no time for it"),
    ({"model": "vit_nano", "budget": "60s"}, "none", "in less than 3 minutes"),
    ({"model": "dhvt_nano", "epochs": 60}, "none", "cost a DHVT 9 points"),
    ({"model": "conv_nano", "epochs": 60}, "none", "for conv_nano it was not measured"),
])  # fmt: skip
def test_auto_goes_by_what_was_measured(flags: dict[str, Any], method: str, why: str) -> None:
    found = smallvit.explain("digits", per_class=4, threads=1, pretrain="auto", show_progress=False, **flags)
    (line,) = [line for line in found.chosen if line.what == "pretrain.method"] or [
        line for line in found.left_out if "pretraining" in line.what
    ]
    assert found.plan.recipe.pretrain.method == method and why in line.why


def test_a_vit_is_pretrained_on_images_of_half_the_side() -> None:
    found = smallvit.explain(
        "mnist5k",
        model="vit_nano",
        per_class=2,
        img_size=32,
        epochs=1,
        threads=1,
        pretrain="simclr",
        show_progress=False,
    )
    assert found.plan.recipe.pretrain.side == 0.5
    assert json.loads(json.dumps(found.plan.recipe.model_dump()))["pretrain"]["share"] == 0.5

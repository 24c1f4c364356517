"""Pretraining from the command to the fine-tuned model: what it writes, what it refuses, and that it resumes exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from processes import Warm
from tiny_runs import assert_same_run

import smallvit
from helpers import make_folder, noise_image, run_here, write_npz
from smallvit import Run
from smallvit.errors import Collapsed, DataError, UsageError
from smallvit.evaluation.model_file import read_tensors
from smallvit.planning.plan import make_plan
from smallvit.training.build import build_training

METHODS = ("idmm", "simclr", "supcon", "mocov2", "mocov3", "dino", "mae")
SMALL: dict[str, Any] = {
    "model": "vit_pico", "per_class": 4, "batch_size": 8, "epochs": 2, "threads": 1, "show_progress": False,
}  # fmt: skip
NARROW: dict[str, dict[str, Any]] = {
    "dino": {"objective.outputs": 16, "objective.hidden": 32},
    "mocov3": {"objective.hidden": 32},
}


def pretrain(method: str, out: Path, data: Any = "digits", **changes: Any) -> Run:
    settings = {**NARROW.get(method, {}), **changes.pop("settings", {})}
    return smallvit.pretrain(data, method=method, out=out, settings=settings, **{**SMALL, **changes})


@pytest.fixture(scope="module")
def idmm(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return pretrain("idmm", tmp_path_factory.mktemp("pretrained") / "run")


def epochs(run: Run) -> list[dict[str, Any]]:
    return [record for record in run.metrics if record["kind"] == "epoch"]


# ---- a run ---------------------------------------------------------------------------------------------


def test_sgd_takes_weights_whose_gradient_comes_later(tmp_path: Path) -> None:
    """DINO leaves the last layer of its head alone for an epoch."""
    run = pretrain("dino", tmp_path / "run", settings={"optimizer.name": "sgd"})
    assert [record["epoch"] for record in epochs(run)] == [0, 1]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_ends_in_a_model_without_classes(method: str, tmp_path: Path) -> None:
    run = pretrain(method, tmp_path / "run")
    weights, header = read_tensors(run.path / "model.safetensors")
    assert header["class_names"] == [] and header["objective"] == method
    assert not [
        name for name in weights if "head" in name or "instances" in name or "coder" in name or "teacher" in name
    ]
    results = run.results
    assert results["judged_by"] == "k-NN" and results["weights"]["which"] == "last"
    assert results["parts"]["test"]["n"] > 300 and results["floors"] and not results["calibration"]
    for record in epochs(run):
        assert {"train_loss", "val_accuracy", "spread", "effective_rank"} <= record.keys()
        assert 0 < record["spread"] < 1 and 1 < record["effective_rank"] < 48
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "A k-NN on the frozen features of vit_pico labels" in page
    assert "Spread of the features" in page and "Effective rank" in page
    assert ("Rows of the instance layer" in page) == (method == "idmm")


@pytest.mark.parametrize("method", METHODS)
def test_bf16(method: str, tmp_path: Path) -> None:
    run = pretrain(method, tmp_path / "run", precision="bf16", epochs=1)
    assert run.finished and run.recipe.precision == "bf16"


def test_the_last_record_is_what_the_stored_model_gives(idmm: Run) -> None:
    """The k-NN while it runs and the one at the end are the same where nothing is thinned."""
    assert idmm.results["parts"]["val"]["accuracy"] == pytest.approx(epochs(idmm)[-1]["val_accuracy"])


@pytest.mark.parametrize("method", ["idmm", "dino"])
def test_an_auxiliary_loss_goes_along(method: str, tmp_path: Path) -> None:
    run = pretrain(method, tmp_path / "run", aux=["drloc"], epochs=1)
    parts = next(record["parts"] for record in run.metrics if record["kind"] == "train")
    assert parts["drloc"] > 0 and parts.keys() & {"dino", "instances_large"}


def test_images_without_classes(tmp_path: Path) -> None:
    flat = tmp_path / "photos"
    flat.mkdir()
    pixels = [np.asarray(noise_image(str(number), (16, 16))) for number in range(24)]
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(flat / f"{number}.png")
    run = pretrain("simclr", tmp_path / "run", flat, per_class=None)
    assert run.results["evaluated_part"] is None and run.results["parts"] == {}
    assert all("val_accuracy" not in record and record["spread"] > 0 for record in epochs(run))
    assert len(run.read("split.json")["parts"]["train"]["rows"]) == 24
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "no classes" in page and "Spread of the features" in page
    for refused in (
        lambda: pretrain("supcon", tmp_path / "no", flat, per_class=None),
        lambda: smallvit.train(flat, out=tmp_path / "no", show_progress=False),
    ):
        with pytest.raises(DataError, match="no class folders"):
            refused()
    assert not (tmp_path / "no").exists()
    (tmp_path / "list.csv").write_text("path\n" + "".join(f"photos/{number}.png\n" for number in range(24)))
    write_npz(tmp_path / "a.npz", n=24, side=16, x_train=None, y_train=None, x=np.stack(pixels))
    for path in (tmp_path / "list.csv", tmp_path / "a.npz"):
        same = pretrain("simclr", tmp_path / path.stem, path, per_class=None)
        assert len(same.read("split.json")["parts"]["train"]["rows"]) == 24
        with pytest.raises(DataError, match="no labels"):
            smallvit.train(path, out=tmp_path / "no", show_progress=False)
    one = make_folder(tmp_path / "one", {"cat": 20})
    assert pretrain("simclr", tmp_path / "cats", one, per_class=None).results["evaluated_part"] is None


def test_two_images_differ_in_one_direction_and_have_not_collapsed(tmp_path: Path) -> None:
    pixels = np.stack([np.asarray(noise_image(str(number), (16, 16))) for number in range(2)])
    write_npz(tmp_path / "two.npz", n=2, side=16, x_train=None, y_train=None, x=pixels)
    run = pretrain("simclr", tmp_path / "run", tmp_path / "two.npz", per_class=None, batch_size=2)
    assert run.results and epochs(run)[-1]["effective_rank"] < 1.5


def test_held_out_images_are_no_instances(idmm: Run) -> None:
    """The test part of a later training must not have been pretrained on."""
    state, _ = read_tensors(idmm.path / "state" / "latest.safetensors")
    assert len(state["step/objective.instances.weight"]) == 40
    later = make_plan(smallvit.make_recipe(data="digits", init=idmm.path), with_floors=False)
    assert later.split.test.tolist() == idmm.read("split.json")["parts"]["test"]["rows"]


def test_the_queue_is_chosen_from_the_number_of_images(tmp_path: Path) -> None:
    asked = smallvit.make_recipe("pretrain-mocov2", data="digits", per_class=4, epochs=1, model="vit_pico")
    plan = make_plan(asked, with_floors=False)
    assert plan.recipe.objective.options["queue"] == 20
    assert any(choice.key == "objective.queue" and "half of 40" in choice.why for choice in plan.choices)
    with pytest.raises(UsageError, match=r"queue = 30.*20 at most"):
        pretrain("mocov2", tmp_path / "run", settings={"objective.queue": 30})
    assert not (tmp_path / "run").exists()


def test_small_crops_that_a_model_cannot_take_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"vit_pico for images of 8 px cannot take crops of 4 px.*dynamic_img_size"):
        pretrain("idmm", tmp_path / "run", settings={"objective.small_size": 4})
    assert not (tmp_path / "run").exists()
    run = pretrain(
        "idmm", tmp_path / "run", settings={"objective.small_size": 4, "model.kwargs.dynamic_img_size": True}
    )
    assert run.finished


def test_a_collapse_ends_the_run_unless_allowed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """DINO with far too large a rate gives the same features to all images."""
    broken = {"optimizer.lr": 0.1, "objective.outputs": 2048, "objective.hidden": 512}
    with pytest.raises(Collapsed, match=r"after epoch 1 of 4 the features of all images point the same way.*--lr"):
        pretrain("dino", tmp_path / "run", settings=broken, per_class=10, batch_size=20, epochs=4)
    stopped = Run(tmp_path / "run")
    assert stopped.metrics[-1]["spread"] < 0.02
    assert stopped.finished and stopped.results["weights"]["epoch"] == 1, "it ends there, with all that shows it"
    assert "Collapsed" in (stopped.path / "report.html").read_text(encoding="utf-8")
    asked = smallvit.make_recipe(data="digits", per_class=10, epochs=1, init=stopped.path, threads=1)
    make_plan(asked, with_floors=False)
    assert "which this run starts from, collapsed" in capsys.readouterr().err
    allowed = {**broken, "objective.allow_collapse": True}
    run = pretrain("dino", tmp_path / "allowed", settings=allowed, per_class=10, batch_size=20, epochs=2)
    assert epochs(run)[-1]["spread"] < 0.02


def test_a_batch_of_pretraining_holds_many_images() -> None:
    sizes = {}
    for recipe in ("default", "pretrain-simclr"):
        asked = smallvit.make_recipe(recipe, data="digits", per_class=10, model="vit_pico", epochs=1, threads=1)
        sizes[recipe] = make_plan(asked, with_floors=False).recipe.batch_size
    assert sizes == {"default": 8, "pretrain-simclr": 32}


def test_a_budget_sets_the_epochs() -> None:
    asked = smallvit.make_recipe("pretrain-dino", data="digits", per_class=4, model="vit_pico", budget="25s", threads=1)
    plan = make_plan(asked, with_floors=False)
    assert isinstance(plan.recipe.epochs, int) and plan.recipe.epochs > 1 and plan.recipe.budget is None


def test_methods_and_recipes_that_do_not_go_together(tmp_path: Path) -> None:
    for refused, message in (
        ({"method": "SimClear"}, "did you mean.*simclr"),
        ({"method": "supervised"}, "unknown method"),
        ({"method": "dino", "recipe": "pretrain-idmm"}, "is one for idmm, not for dino"),
        ({"recipe": "default"}, "is one for supervised, not for pretraining"),
        ({}, "needs a method: .*idmm"),
    ):
        with pytest.raises(UsageError, match=message):
            smallvit.pretrain("digits", out=tmp_path / "run", **refused)  # type: ignore[arg-type]


# ---- going on ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["mocov2", "dino", "mae"])
def test_killed_and_resumed_it_ends_the_same(method: str, smallvit_command: Warm, tmp_path: Path) -> None:
    """Teacher, queue, centre and decoder included, to the last bit."""
    words: list[str | Path] = ["pretrain", "digits", "--method", method, "--model", "vit_pico", "--drop-path", "0.1"]
    words += ["--per-class", "11", "--batch-size", "8", "--epochs", "2", "--threads", "1"]
    narrow = "objective.decoder_depth=1" if method == "mae" else "objective.hidden=32"
    words += ["--set", "checkpoint_seconds=0", "--set", "ema=0.9", "--set", narrow]
    smallvit_command.run(*words, "--out", tmp_path / "whole")
    for number, moment in enumerate([("enter", "after_step", 6), ("leave", "judge", 1), ("enter", "finish", 1)]):
        start = [*words, "--out", tmp_path / "killed"] if number == 0 else ["resume", tmp_path / "killed"]
        assert smallvit_command.start(*start, moment=moment).wait() == -9
    smallvit_command.run("resume", tmp_path / "killed")
    assert_same_run(tmp_path / "killed", tmp_path / "whole")
    state, _ = read_tensors(tmp_path / "whole" / "state" / "latest.safetensors")
    teacher = "teacher.backbone.model.cls_token"
    kept = {"mocov2": {"queue_QP", teacher}, "dino": {"centre_O", teacher}, "mae": {"decoder.hidden_token"}}[method]
    assert {f"step/objective.{name}" for name in kept} <= state.keys()


def test_several_seeds_from_the_command_line(tmp_path: Path) -> None:
    out = tmp_path / "runs"
    done = run_here(
        "pretrain", "digits", "--method", "simclr", "--model", "vit_pico", "--per-class", "4", "--batch-size", "8",
        "--epochs", "1", "--threads", "1", "--seeds", "2", "--out", out,
    )  # fmt: skip
    assert done.status == 0, done.err
    assert "accuracy of a k-NN on the features" in done.out and "mean of 2 seeds" in done.out
    assert done.out.splitlines()[-1] == f"next: smallvit train digits --seeds 2 --init {out}"
    first, second = (read_tensors(out / f"seed-{seed}" / "model.safetensors")[0] for seed in (0, 1))
    assert not torch.equal(first["norm.weight"], second["norm.weight"])
    with pytest.raises(UsageError, match=r"it holds 2 runs, give one of them: --init .*seed-0"):
        smallvit.train("digits", init=out)
    with pytest.raises(UsageError, match="the group has no run of seed 2"):
        smallvit.train_seeds("digits", init=out, seeds=3)

    done = run_here(
        "train", "digits", "--init", out, "--per-class", "4", "--epochs", "1", "--lr", "1e-12", "--threads", "1",
        "--seeds", "2", "--out", tmp_path / "tuned",
    )  # fmt: skip
    assert done.status == 0, done.err
    assert "mean of 2 seeds" in done.out, "runs that start from their own seeds are still seeds of one recipe"
    for seed, start in ((0, first), (1, second)):
        tuned, _ = read_tensors(tmp_path / "tuned" / f"seed-{seed}" / "model.safetensors")
        torch.testing.assert_close(tuned["norm.weight"], start["norm.weight"], rtol=0, atol=1e-6)


# ---- fine-tuning ---------------------------------------------------------------------------------------


def still(**changes: Any) -> dict[str, Any]:
    """A rate so small that the weights stay where they start."""
    return {**SMALL, "model": None, "epochs": 1, "settings": {"optimizer.lr": 1e-12}, **changes}


def test_training_starts_from_the_pretrained_model(idmm: Run, tmp_path: Path) -> None:
    run = smallvit.train("digits", init=idmm.path, out=tmp_path / "run", **still())
    before, after = (read_tensors(one.path / "model.safetensors")[0] for one in (idmm, run))
    for name, tensor in before.items():
        torch.testing.assert_close(after[name], tensor, rtol=0, atol=1e-6)
    assert after.keys() - before.keys() == {"head.weight", "head.bias"}
    why = {choice["key"]: choice["why"] for choice in run.choices}
    assert "head.weight, head.bias new" in why["model.init"]
    assert why["model.name"] == "the model to start from"


def test_what_guessed_hidden_cells_is_left_behind(tmp_path: Path) -> None:
    run = pretrain("mae", tmp_path / "run", epochs=1)
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert '<h3 class="name">Its guesses</h3>' in page and page.count('alt="guessed"') == 6
    why = {choice["key"]: choice["why"] for choice in run.choices}
    assert "the model sees 4 of 16 cells" in why["objective.mask_ratio"]
    assert "left behind" in why["objective.decoder_width"]
    trained = smallvit.train("digits", init=run.path, out=tmp_path / "trained", **still())
    before, after = (read_tensors(one.path / "model.safetensors")[0] for one in (run, trained))
    assert after.keys() - before.keys() == {"head.weight", "head.bias"} and before.keys() <= after.keys()
    torch.testing.assert_close(after["pos_embed"], before["pos_embed"], rtol=0, atol=1e-6)


def test_an_auxiliary_loss_needs_whole_images(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"aux drloc: with mae the model sees parts of images.*leave it out"):
        pretrain("mae", tmp_path / "run", aux=["drloc"])
    assert not (tmp_path / "run").exists()


def test_images_that_pretraining_has_seen_are_told(
    idmm: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same split holds out the same images; another one may hold out what the model was pretrained on."""
    same = smallvit.make_recipe(data="digits", init=idmm.path, per_class=4, threads=1)
    make_plan(same, with_floors=False)
    assert "was trained on" not in capsys.readouterr().err
    other = smallvit.make_recipe(data="digits", init=idmm.path, test=0.5, threads=1)
    plan = make_plan(other, with_floors=False)
    seen = int(torch.isin(plan.split.test, make_plan(idmm.recipe, with_floors=False).split.train).sum())
    assert seen > 0
    told = f"{seen:,} of {len(plan.split.test):,} test images are among those that {idmm.path} was trained on"
    assert told in capsys.readouterr().err.replace("\n", " ")
    assert told in next(choice.why for choice in plan.choices if choice.key == "model.init")


def test_images_that_came_since_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = make_folder(tmp_path / "photos", {"a": 8, "b": 8})
    flags = {"data": photos, "model": "vit_pico", "epochs": 1, "threads": 1}
    first = smallvit.train(**flags, out=tmp_path / "first", show_progress=False)
    noise_image("one more").save(photos / "a" / "000-before.png")
    capsys.readouterr()
    make_plan(smallvit.make_recipe(**flags, init=first.path), with_floors=False)
    assert f"has changed since {first.path} was trained on it" in capsys.readouterr().err.replace("\n", " ")


def test_a_model_of_grey_images_takes_colour_as_grey(idmm: Run, tmp_path: Path) -> None:
    photos = make_folder(tmp_path / "photos", {"a": 6, "b": 6}, size=(8, 8))
    plan = make_plan(smallvit.make_recipe(data=photos, init=idmm.path, threads=1), with_floors=False)
    assert plan.recipe.data.in_chans == 1
    assert "dropped" not in next(choice.why for choice in plan.choices if choice.key == "model.init")


def test_the_patch_stays_and_positions_are_resized_at_another_size(idmm: Run, tmp_path: Path) -> None:
    """The chain of sizes: 8 px with patch 2, then 16 px with the same patch, though 16 px alone would take 4."""
    run = smallvit.train("digits", init=idmm.path, img_size=16, out=tmp_path / "run", **still())
    assert run.recipe.model.kwargs["patch_size"] == 2
    before, after = (read_tensors(one.path / "model.safetensors")[0] for one in (idmm, run))
    assert (before["pos_embed"].shape[1], after["pos_embed"].shape[1]) == (17, 65)
    larger = smallvit.train("digits", init=run.path, img_size=24, out=tmp_path / "larger", **still())
    torch.testing.assert_close(
        read_tensors(larger.path / "model.safetensors")[0]["head.weight"], after["head.weight"], rtol=0, atol=1e-6
    )


def test_pretraining_goes_on_from_another_run_and_its_teacher_too(idmm: Run) -> None:
    asked = smallvit.make_recipe("pretrain-dino", data="digits", per_class=4, epochs=1, init=idmm.path, threads=1)
    plan = make_plan(asked, with_floors=False)
    step = build_training(plan.recipe, plan.images, plan.split).step
    weights, _ = read_tensors(idmm.path / "model.safetensors")
    for model in (step.backbone.model, step.objective.teacher.backbone.model):  # type: ignore[union-attr]
        assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())  # type: ignore[operator]


def test_a_pretrained_run_does_not_predict(idmm: Run, tmp_path: Path) -> None:
    noise_image("x").save(tmp_path / "x.png")
    for asked in (
        lambda: smallvit.predict(idmm.path, tmp_path / "x.png"),
        lambda: smallvit.predict(idmm.path / "model.safetensors", tmp_path / "x.png"),
        lambda: smallvit.evaluate(idmm.path),
    ):
        with pytest.raises(UsageError, match=r"knows no classes.*--init"):
            asked()

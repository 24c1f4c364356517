"""Run folders of earlier versions (tests/runs_0_1, runs_0_2): everything that can be done with a run can be done with them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.numpy import load_file
from sklearn.datasets import load_digits

import smallvit
from helpers import PROJECT, run_here
from smallvit import Run
from smallvit.runs.axes import Place
from smallvit.runs.members import members_of
from smallvit.training.initial import member_starts

VERSIONS = ("0_1", "0_2")


@pytest.fixture(params=VERSIONS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return shutil.copytree(PROJECT / "tests" / f"runs_{request.param}", tmp_path / "old")


def test_they_say_what_they_are(old: Path) -> None:
    for name in ("finished", "stopped", "pretrained", "seeds/seed-0"):
        run = Run(old / name)
        assert run.read("env.json")["smallvit"] in ("0.1.0", "0.2.0")
        assert run.recipe.data.source == "digits" and run.metrics, name
        assert run.finished == (name != "stopped"), name
    assert [member.place for member in members_of(old / "seeds")] == [Place(seed=0), Place(seed=1)]
    assert not Run(old / "seeds" / "seed-1").finished


def test_a_finished_one_is_judged_again_and_predicts(old: Path, tmp_path: Path) -> None:
    run = Run(old / "finished")
    stored = run.results["parts"]["test"]
    again = run.evaluate()
    assert again["accuracy"] == pytest.approx(stored["accuracy"])
    assert again["loss"] == pytest.approx(stored["loss"], rel=1e-4)
    digit = (load_digits().images[0] * 255 / 16).astype(np.uint8)
    Image.fromarray(digit).save(tmp_path / "digit.png")
    (answer,) = run.predict(tmp_path / "digit.png")
    assert answer.label in map(str, range(10)) and not answer.problem


def test_a_finished_one_is_reported_with_its_diagnosis(old: Path) -> None:
    done = run_here("report", old / "finished")
    assert done.status == 0, done.err
    page = (old / "finished" / "report.html").read_text(encoding="utf-8")
    assert "What the diagnosis found" in page and "vit_pico" in page


def test_a_stopped_one_ends_as_if_it_had_not_been_stopped(old: Path) -> None:
    (run,) = smallvit.resume(old / "stopped", show_progress=False)
    # The weights that training ended with: which of an earlier look become the model is another rule since.
    resumed, whole = (load_file(path / "state" / "latest.safetensors") for path in (run.path, old / "finished"))
    assert resumed.keys() == whole.keys()
    for name, tensor in whole.items():
        np.testing.assert_allclose(resumed[name], tensor, atol=1e-5, err_msg=name)  # other machines, other last bits
    assert run.results["weights"] == {"which": run.recipe.select, "ema": False, "epoch": 2}
    assert [record["step"] for record in run.metrics] == [record["step"] for record in Run(old / "finished").metrics]


def test_a_group_goes_on_is_reported_and_compared(old: Path) -> None:
    done = run_here("resume", old / "seeds")
    assert done.status == 0, done.err
    assert "mean of 2 seeds" in done.out
    assert "vit_pico, mean of 2 seeds" in (old / "seeds" / "report.html").read_text(encoding="utf-8")

    shutil.copytree(old / "seeds", old / "again")
    told = run_here("compare", old / "seeds", old / "again")
    assert told.status == 0 and told.out.startswith("Over 2 seeds seeds is exactly as good as again"), told
    told = run_here("compare", old / "finished", old / "seeds" / "seed-0")
    assert told.status == 0 and "finished is exactly as good as seed-0" in told.out, "the same recipe and seed"


def test_training_starts_from_a_pretrained_one(old: Path, tmp_path: Path) -> None:
    few = {"epochs": 1, "per_class": 6, "batch_size": 16, "threads": 1, "test": 0.06, "show_progress": False}
    run = smallvit.train("digits", init=old / "pretrained", out=tmp_path / "tuned", **few)
    assert run.recipe.model.kwargs["embed_dim"] == 12


def test_seeds_start_from_their_own_seed_of_a_group(old: Path) -> None:
    places = [Place(seed=0), Place(seed=1)]
    starts = member_starts(str(old / "seeds"), places)
    assert starts == {place: (old / "seeds" / place.folder).resolve() for place in places}
    with pytest.raises(smallvit.UsageError, match="the group has no run of seed 7"):
        member_starts(str(old / "seeds"), [*places, Place(seed=7)])
    assert member_starts(str(old / "finished"), places) == {}

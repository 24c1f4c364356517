"""Studies from the command to the report, on a few noise images. Runs are trained here, one after the other."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

import smallvit
from helpers import run_cli, run_here
from smallvit.errors import DataError, SmallvitError, UsageError
from smallvit.planning import tryout
from smallvit.runs.executor import Exit
from smallvit.runs.folder import RunFolder
from smallvit.studies import study as running
from smallvit.studies.library import read_study, study_names
from smallvit.studies.record import open_study, read_record
from smallvit.studies.sets import sets_of
from smallvit.studies.spec import SCALES, stages

MINE = """
title = "A miniature"
seeds = 1
epochs = 1
x = "images"
compare = [["cnn", "vit"]]
[shared]
val = "none"
batch_size = 4
[arms]
vit = { model = "vit_pico" }
cnn = { model = "resnet_nano", settings = { "model.kwargs.widths" = [4, 4, 4] } }
first = { model = "vit_pico", first = { method = "simclr", epochs = 1 } }
[axes.images]
"8" = { per_class = 4 }
"12" = { per_class = 6 }
[[claims]]
says = "A CNN is better."
better = [["cnn, 12", "vit, 12"]]
"""


class Here:
    """A place to compute: this process. What cannot be trained ends as it would elsewhere."""

    started: list[str] = []  # noqa: RUF012

    def __init__(self, path: Path) -> None:
        self.started.append(path.name)
        self.status = 0
        try:
            smallvit.resume(path, show_progress=False)
        except SmallvitError as error:
            (path / "log.txt").write_text(f"smallvit: {error}\n")
            self.status = 1

    def poll(self) -> Exit:
        return Exit(self.status, 1.0)

    def stop(self) -> None: ...


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    monkeypatch.setattr(running, "place_called", lambda on, at_once: Here)
    monkeypatch.setattr("smallvit.runs.executor.POLL_SECONDS", 0.0)
    Here.started.clear()
    yield Here.started


def make_set(path: Path, side: int = 16, classes: int = 2, each: int = 12, judged: int | None = None) -> Path:
    """Train, validation and test part, with `judged` of each class in the latter two; one class is darker than the other."""
    rng, parts = np.random.default_rng(0), {}
    for part in ("train", "val", "test"):
        labels = np.arange(classes * (each if part == "train" else judged or each)) % classes
        images = rng.integers(0, 255, (len(labels), side, side, 3), dtype=np.uint8)
        images[labels == 0] //= 2
        parts |= {f"x_{part}": images, f"y_{part}": labels}
    np.savez(path, **parts)
    return path


def test_a_study_runs_goes_on_and_grows(tmp_path: Path, here: list[str]) -> None:
    data, mine = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml"
    mine.write_text(MINE.replace("widths", "wrong"))  # an arm that cannot be
    out = tmp_path / "study"
    opened = smallvit.run_study(mine, data=data, out=out, show_progress=False)
    assert set(opened.record.failed) == {"cnn, 8/0", "cnn, 12/0"} and len(opened.record.runs) == 4
    assert opened.record.runs["first, 8/0"].accuracy_first is not None
    assert opened.record.runs["vit, 12/0"].train_images == 12
    assert "no runs yet" in (out / "report.html").read_text()

    with pytest.raises(UsageError, match="was another one"):
        mine.write_text(MINE)
        smallvit.run_study(mine, data=data, out=out, show_progress=False)
    mine.write_text(MINE.replace("cnn", "wide"))  # under another name it is an arm that is new
    here.clear()
    grown = smallvit.run_study(mine, data=data, out=out, seeds=2, only=["vit", "8"], show_progress=False)
    assert len(grown.record.runs) == 5 and here == ["vit, 8-seed-1"], "this arm with this value alone"
    grown = smallvit.run_study(mine, data=data, out=out, seeds=2, only=["vit"], show_progress=False)
    assert sorted(grown.record.of("vit, 8")) == sorted(grown.record.of("vit, 12"))
    assert len(grown.record.of("vit, 8")) == 2 and "vit, 8-seed-0" not in here
    here.clear()
    smallvit.resume(out, show_progress=False)
    assert here == []  # all that was asked for is there


def test_a_study_of_which_nothing_was_run_begins_anew_with_the_mended_file(tmp_path: Path, here: list[str]) -> None:
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    mine.write_text(MINE.replace("vit_pico", "vit_picoo"))
    more = {"data": data, "out": out, "only": ["vit"], "show_progress": False}
    assert not smallvit.run_study(mine, **more).record.runs
    mine.write_text(MINE)
    assert sorted(smallvit.run_study(mine, **more).record.runs) == ["vit, 12/0", "vit, 8/0"]


def test_a_study_that_has_grown_goes_on_and_is_judged_as_it_is_now(tmp_path: Path, here: list[str]) -> None:
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    more = {"data": data, "out": out, "show_progress": False}
    mine.write_text(MINE)
    smallvit.run_study(mine, only=["vit, 8"], **more)
    grown = MINE.replace("A miniature", "Grown").replace("[arms]", '[arms]\nagain = { model = "vit_pico" }')
    mine.write_text(f'{grown}[[claims]]\nsays = "It is no chance."\nbetter = [["again, 8", "vit, 8"]]\n')
    smallvit.run_study(mine, only=["again, 8"], **more)
    go_on_with(out, seeds=2)
    smallvit.resume(out, show_progress=False)
    assert here == ["vit, 8-seed-0", "again, 8-seed-0", "again, 8-seed-1"]
    opened, page = smallvit.report_study(out)
    assert [claim.says for claim in opened.study.claims] == ["A CNN is better.", "It is no chance."]
    assert "It is no chance." in page.read_text() and opened.record.title == "Grown"


def test_a_file_is_not_called_as_a_study_of_ours(tmp_path: Path, here: list[str]) -> None:
    """What has its name is judged by its claims."""
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "dhvt-cifar.toml", tmp_path / "study"
    more = {"data": data, "out": out, "only": ["vit, 8"], "show_progress": False}
    mine.write_text(MINE)
    with pytest.raises(UsageError, match=r"dhvt-cifar.toml is called as a study that .* give the file another name"):
        smallvit.run_study(mine, **more)
    assert not out.exists()
    mine = mine.rename(tmp_path / "mine.toml")
    smallvit.run_study(mine, **more)
    stored = json.loads((out / "study.json").read_text())
    (out / "study.json").write_text(json.dumps({**stored, "study": "dhvt-cifar"}))  # as earlier versions called it
    assert open_study(out).study.title != "A miniature"
    smallvit.run_study(mine, **more)
    assert open_study(out).name == "mine" and open_study(out).study == read_study(mine)


def test_the_first_run_of_a_study_may_be_what_another_starts_from(tmp_path: Path, here: list[str]) -> None:
    """While it is judged and reported, no run of the group counts yet."""
    data, mine = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml"
    mine.write_text(MINE)
    opened = smallvit.run_study(mine, data=data, out=tmp_path / "study", only=["first, 8"], show_progress=False)
    assert opened.record.failed == {} and [*opened.record.runs] == ["first, 8/0"]


def test_a_killed_study_keeps_what_had_ended(tmp_path: Path, here: list[str]) -> None:
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    mine.write_text(MINE)
    smallvit.run_study(mine, data=data, out=out, only=["vit, 8", "vit, 12"], show_progress=False)
    record = json.loads((out / "study.json").read_text())
    del record["runs"]["vit, 12/0"]  # as if it had been killed before this was written
    (out / "study.json").write_text(json.dumps(record))
    here.clear()
    smallvit.resume(out, show_progress=False)
    assert here == [] and "vit, 12/0" in read_record(out / "study.json").runs


def test_a_study_goes_on_with_the_images_that_it_had(
    tmp_path: Path, here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    other, more = make_set(tmp_path / "other.npz", side=12), {"only": ["vit, 8"], "out": out, "show_progress": False}
    mine.write_text(MINE)
    smallvit.run_study(mine, data=data, **more)
    asked = (out / "asked.json").read_bytes()
    with pytest.raises(UsageError, match=r"--data \S+other.npz: \S+ was run on \S+set.npz, and these are other images"):
        smallvit.run_study(mine, data=other, seeds=2, **more)
    assert (out / "asked.json").read_bytes() == asked and len(here) == 1
    monkeypatch.chdir(tmp_path)
    assert smallvit.run_study(mine, data="set.npz", **more).record.data == {"": "set.npz"}
    smallvit.run_study(mine, seeds=2, **more)  # where nothing is said, as it was
    assert RunFolder(out / "vit, 8-seed-1").recipe.data.source == str(data)
    (out / "asked.json").unlink()
    smallvit.run_study(mine, seeds=2, **more)
    assert json.loads((out / "asked.json").read_text())["data"] == {"": str(data)}
    moved = data.rename(tmp_path / "moved.npz")
    grown = smallvit.run_study(mine, data=moved, seeds=3, **more)
    assert grown.record.failed == {} and len(grown.record.runs) == 3 and grown.record.data == {"": "moved.npz"}
    assert json.loads((out / "vit, 8-seed-0" / "moved.json").read_text()) == {"source": str(moved)}


def go_on_with(out: Path, **changes: object) -> None:
    """As if the last command had asked for something else, and had been killed."""
    asked = json.loads((out / "asked.json").read_text())
    (out / "asked.json").write_text(json.dumps({**asked, **changes}))


def test_runs_to_come_are_told_where_images_were_moved_to(tmp_path: Path, here: list[str]) -> None:
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    other = make_set(tmp_path / "other.npz", side=12)
    mine.write_text(MINE)
    smallvit.run_study(mine, data=data, only=["vit, 8"], out=out, show_progress=False)
    go_on_with(out, seeds=2)
    asked, moved = (out / "asked.json").read_bytes(), data.rename(tmp_path / "moved.npz")
    with pytest.raises(UsageError, match=r"other.npz: \S+ was run on \S+set.npz, and these are other images"):
        smallvit.resume(out, data=other, show_progress=False)
    assert (out / "asked.json").read_bytes() == asked
    smallvit.resume(out, data=moved, show_progress=False)
    assert json.loads((out / "vit, 8-seed-0" / "moved.json").read_text()) == {"source": str(moved)}
    go_on_with(out, seeds=3)
    smallvit.resume(out, show_progress=False)  # it is remembered
    record = read_record(out / "study.json")
    assert record.failed == {} and len(record.runs) == 3 and record.data == {"": "moved.npz"}


def test_of_several_sets_each_is_moved_by_the_command_that_began_it(tmp_path: Path, here: list[str]) -> None:
    one, two = make_set(tmp_path / "one.npz"), make_set(tmp_path / "two.npz", side=12)
    mine, out = tmp_path / "mine.toml", tmp_path / "study"
    mine.write_text(
        'title = "t"\nseeds = 1\nepochs = 1\n[shared]\nmodel = "vit_pico"\nval = "none"\nbatch_size = 4\n'
        '[arms]\na = { data = "one" }\nb = { data = "two" }\n'
    )
    smallvit.run_study(mine, data={"one": one, "two": two}, out=out, show_progress=False)
    moved = one.rename(tmp_path / "moved.npz")
    with pytest.raises(UsageError, match=r"has several sets: give the `smallvit study run` .*SET=SOURCE .*: one, two"):
        smallvit.resume(out, data=moved, show_progress=False)
    record = smallvit.run_study(mine, data={"one": moved}, seeds=2, out=out, show_progress=False).record
    assert record.failed == {} and len(record.runs) == 4 and record.data == {"one": "moved.npz", "two": "two.npz"}


def test_the_folder_of_a_named_set_may_be_moved(
    tmp_path: Path, here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = np.random.default_rng(0).integers(0, 255, (20, 3073), dtype=np.uint8)
    rows[:, 0] = np.arange(20) % 10
    (tmp_path / "old" / "cifar-10-batches-bin").mkdir(parents=True)
    for name in (*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"):
        (tmp_path / "old" / "cifar-10-batches-bin" / f"{name}.bin").write_bytes(rows.tobytes())
    mine, out = tmp_path / "mine.toml", tmp_path / "study"
    mine.write_text(MINE.replace("[shared]", '[shared]\ndata = "cifar10"\nsettings = { "data.incomplete" = true }'))
    monkeypatch.setenv("SMALLVIT_DATA", str(tmp_path / "old"))
    smallvit.run_study(mine, only=["vit, 8"], out=out, show_progress=False)
    (out / "vit, 8-seed-0" / "results.json").unlink()
    stored = json.loads((out / "study.json").read_text())
    (out / "study.json").write_text(json.dumps({**stored, "runs": {}}))  # it was killed on its way
    go_on_with(out, seeds=2)
    new = (tmp_path / "old").rename(tmp_path / "new")
    with pytest.raises(UsageError, match=r"look for cifar10 in \S+old, where it is not: say SMALLVIT_DATA=\S+new, too"):
        smallvit.resume(out, data=new, show_progress=False)
    monkeypatch.setenv("SMALLVIT_DATA", str(new))
    smallvit.resume(out, data=new, show_progress=False)
    record = read_record(out / "study.json")
    assert record.failed == {} and len(record.runs) == 2 and record.data == {}


def test_a_set_that_nobody_placed_is_placed_later(tmp_path: Path, here: list[str]) -> None:
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    mine.write_text(MINE.replace("[shared]", '[shared]\ndata = "cub200"'))
    more = {"only": ["vit, 8"], "out": out, "show_progress": False}
    with pytest.raises(DataError, match=r"the study needs cub200, and nothing of it is in .*give --data cub200=SOURCE"):
        smallvit.run_study(mine, **more)
    placed = smallvit.run_study(mine, data={"cub200": data}, **more)
    assert placed.record.failed == {} and placed.record.data == {"cub200": "set.npz"}
    shutil.rmtree(out / "vit, 8-seed-0")  # the record alone is left, as where another study's runs count
    (out / "group.json").write_text(json.dumps({"members": [], "axes": {}}))
    with pytest.raises(UsageError, match=r"--data cub200=\S+other.npz: \S+ was run on \S+set.npz"):
        smallvit.run_study(mine, data={"cub200": make_set(tmp_path / "other.npz")}, **more)


def test_draws_are_other_training_images_and_the_same_test(tmp_path: Path, here: list[str]) -> None:
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    mine.write_text(MINE)
    opened = smallvit.run_study(mine, data=data, out=out, only=["vit, 8"], draws=2, show_progress=False)
    assert len({run.judged for run in opened.record.runs.values()}) == 1
    rows = [json.loads(path.read_text())["parts"]["train"]["rows"] for path in sorted(out.glob("vit*/split.json"))]
    assert len(rows) == 2 and rows[0] != rows[1]


def test_growing_by_draws_counts_no_run_twice(tmp_path: Path, here: list[str]) -> None:
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    mine.write_text(MINE)
    more = {"data": data, "out": out, "only": ["vit, 8"], "show_progress": False}
    smallvit.run_study(mine, **more)
    here.clear()
    grown = smallvit.run_study(mine, draws=2, **more)
    assert here == ["vit, 8-seed-0-draw-1"] and [*grown.record.runs] == ["vit, 8/0", "vit, 8/0-1"]
    assert {place.draw for place in grown.record.of("vit, 8")} == {None, 1}


def test_a_folder_whose_first_draw_has_a_number_goes_on(tmp_path: Path, here: list[str]) -> None:
    """As version 0.2 left it: one run has ended and stands in the record, the other was killed before it could."""
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    mine.write_text(MINE)
    more = {"data": data, "out": out, "only": ["vit"], "show_progress": False}
    opened = smallvit.run_study(mine, **more)
    for name in ("study.json", "group.json"):
        text = (out / name).read_text().replace('/0": {', '/0-0": {').replace("-seed-0", "-seed-0-draw-0")
        (out / name).write_text(text.replace('"seed": 0', '"seed": 0, "draw": 0'))
    stored = json.loads((out / "study.json").read_text())
    del stored["runs"]["vit, 12/0-0"]
    (out / "study.json").write_text(json.dumps(stored))
    for path in out.glob("vit*"):
        path.rename(path.with_name(f"{path.name}-draw-0"))
    here.clear()
    grown = smallvit.run_study(mine, draws=2, **more)
    assert sorted(here) == ["vit, 12-seed-0-draw-1", "vit, 8-seed-0-draw-1"]
    assert {key: grown.record.runs[key].right for key in opened.record.runs} == {
        key: run.right for key, run in opened.record.runs.items()
    }
    assert len(grown.record.runs) == 4


def test_a_record_with_a_run_under_both_names_has_it_once(tmp_path: Path) -> None:
    run = {"accuracy": 0.5, "right": "ff", "train_seconds": 1.0, "parameters": 1}
    runs = {"a/0": run, "a/0-0": {**run, "accuracy": 0.9}, "a/0-1": run, "a/10-0": run, "b/0-0": run}
    (tmp_path / "x.json").write_text(json.dumps({"title": "old", "runs": runs, "spent": {"b/1-0": 2.0}}))
    record = read_record(tmp_path / "x.json")
    assert [*record.runs] == ["a/0", "a/0-1", "a/10", "b/0"] and record.runs["a/0"].accuracy == 0.5
    assert record.spent == {"b/1": 2.0} and {place.draw for place in record.of("a")} == {None, 1}


def test_draws_of_an_arm_with_its_own_split_are_others(tmp_path: Path, here: list[str]) -> None:
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    mine.write_text(
        MINE.replace(
            'vit = { model = "vit_pico" }', 'vit = { model = "vit_pico", settings = { "data.split_seed" = 1 } }'
        )
    )
    smallvit.run_study(mine, data=data, out=out, only=["vit, 8"], draws=2, show_progress=False)
    rows = [json.loads(path.read_text())["parts"]["train"]["rows"] for path in sorted(out.glob("vit*/split.json"))]
    assert len(rows) == 2 and rows[0] != rows[1]


def test_equal_time_measures_first_and_equal_steps_count_them(tmp_path: Path, here: list[str]) -> None:
    data, mine = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml"
    mine.write_text(MINE.replace("epochs = 1\nx", "cpu_seconds = 0.05\nx").replace("epochs = 1 }", "share = 0.5 }"))
    facts = smallvit.run_study(mine, data=data, out=tmp_path / "t", only=["first, 8"], show_progress=False).record.arms
    assert all(stage.step_ms and stage.epochs >= 1 for stage in facts["first, 8"].stages)
    mine.write_text(MINE.replace("epochs = 1\nx", "steps = 3\nx"))
    opened = smallvit.run_study(mine, data=data, out=tmp_path / "s", only=["vit"], show_progress=False)
    assert {arm: (own.steps, own.epochs) for arm, own in opened.record.arms.items()} == {
        "vit, 8": (3, 2),
        "vit, 12": (3, 1),
    }
    last = [(tmp_path / "s" / f"vit, {n}-seed-0" / "metrics.jsonl").read_text().splitlines()[-1] for n in (8, 12)]
    assert [json.loads(line)["step"] for line in last] == [3, 3]


def test_images_that_judge_nothing_are_refused_before_anything_is_trained(tmp_path: Path, here: list[str]) -> None:
    data, mine = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml"
    arrays = {name: array for name, array in np.load(data).items() if "test" not in name}
    np.savez(data, **arrays)
    mine.write_text(MINE)
    opened = smallvit.run_study(mine, data=data, out=tmp_path / "study", only=["vit, 8"], show_progress=False)
    assert here == [] and "give the source a test part" in opened.record.failed["vit, 8/0"]


def test_answers_that_are_gone_are_a_failed_run(tmp_path: Path, here: list[str]) -> None:
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    mine.write_text(MINE)
    smallvit.run_study(mine, data=data, out=out, only=["vit, 8"], show_progress=False)
    change(out / "study.json", "runs", to={})
    (out / "vit, 8-seed-0" / "predictions.safetensors").unlink()
    opened = smallvit.run_study(mine, data=data, out=out, only=["vit"], show_progress=False)
    assert "has no predictions" in opened.record.failed["vit, 8/0"] and [*opened.record.runs] == ["vit, 12/0"]


def test_the_time_of_a_run_that_outlived_its_study_is_not_known(tmp_path: Path, here: list[str]) -> None:
    """Its first stage was counted, its second ended after the study was killed."""
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    mine.write_text(MINE)
    more = {"data": data, "out": out, "only": ["first, 8"], "show_progress": False}
    assert smallvit.run_study(mine, **more).record.runs["first, 8/0"].cpu_seconds > 0
    assert read_record(out / "study.json").under_way == []
    change(out / "study.json", "runs", to={})
    change(out / "study.json", "spent", to={"first, 8/0": 1.0})
    change(out / "study.json", "under_way", to=["first, 8/0"])
    record = smallvit.run_study(mine, **more).record
    assert record.runs["first, 8/0"].cpu_seconds == 0.0 and record.under_way == []


def test_a_budget_counts_what_comes_first(tmp_path: Path, here: list[str]) -> None:
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    mine.write_text(MINE)
    more = {"data": data, "out": out, "show_progress": False}
    smallvit.run_study(mine, only=["first, 8"], **more)
    change(out / "study.json", "runs", "first, 8/0", "cpu_seconds", to=3600.0)
    here.clear()
    grown = smallvit.run_study(mine, only=["first"], seeds=2, budget="10m", **more)
    assert here == [] and len(grown.record.runs) == 1, (
        "nor begins an arm of which nothing is known but the longest of the others"
    )


def test_a_measure_that_cannot_be_read_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(MINE.replace("[[claims]]", '[measures]\nnear = "Locality.near"\n[[claims]]'))
    outcome = run_here("study", "run", mine, "--data", "x.npz", "--out", tmp_path / "study")
    assert outcome.status and "write it as finding.number" in outcome.err and not (tmp_path / "study").exists()


def test_layers_are_compared_when_the_other_run_has_come_to_its_end(tmp_path: Path, here: list[str]) -> None:
    data, mine, out = make_set(tmp_path / "set.npz", each=24), tmp_path / "mine.toml", tmp_path / "study"
    measures = '[measures]\nalike = "similarity.mean"\n[against]\nvit = "cnn"\n[[claims]]'
    able = MINE.replace(', settings = { "model.kwargs.widths" = [4, 4, 4] }', "")
    mine.write_text(able.replace("[[claims]]", measures))
    more = {"data": data, "out": out, "show_progress": False}
    assert smallvit.run_study(mine, only=["vit, 8"], **more).record.runs["vit, 8/0"].measured == {}
    record = smallvit.run_study(mine, only=["vit", "cnn", "8"], **more).record
    assert record.failed == {}
    assert 0 < record.runs["vit, 8/0"].measured["alike"] <= 1


def test_what_cannot_be_asked_is_named(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(MINE)
    for words, said in (
        (["run", mine, "--only", "vot"], "--only vot: no such arm: did you mean vit"),
        (["run", "efficiency", "--scale", "paper"], "efficiency has laptop"),
        (["run", mine, "--scale", "huge"], "choices: paper, laptop"),
        (["run", "zhu2023-table1", "--data", "x.npz"], "several sets: give --data cifar10=SOURCE"),
        (["run", "zhu2023-table1", "--data", "mars=x.npz"], "the study has the sets cifar10, svhn"),
        (["report", "lu2022-table5", "--scale", "paper"], "has not been run at paper scale"),
        (["report", "drloc-cifar", "--scale", "paper"], "has not been run at paper scale"),
        (["run", mine, "--seeds", "1001"], "seeds"),
        (
            ["run", "cao2022-sizes", "--seeds", "1", "--out", tmp_path / "no"],
            "give --data flowers102=SOURCE",
        ),
    ):
        outcome = run_here("study", *words)
        assert outcome.status and said in outcome.err, outcome.err


# ---- one arm, trained alike ----------------------------------------------------------------------------


def change(file: Path, *path: str, to: object) -> None:
    """A value in a JSON file, as if an earlier version had written it; None takes it out."""
    tree = inner = json.loads(file.read_text())
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = to
    if to is None:
        del inner[path[-1]]
    file.write_text(json.dumps(tree))


def test_seeds_that_another_version_would_train_otherwise_are_not_mixed(tmp_path: Path, here: list[str]) -> None:
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    more = {"data": data, "out": out, "only": ["vit, 8", "first, 8"], "show_progress": False}
    mine.write_text(MINE)
    record = smallvit.run_study(mine, draws=2, **more).record  # a draw has its own split, a seed its own weights
    rate = record.arms["vit, 8"].resolved["optimizer.lr"]
    assert record.failed == {} and str(tmp_path) not in (out / "study.json").read_text()
    change(out / "study.json", "arms", "vit, 8", "resolved", "optimizer.lr", to=0.02)
    change(out / "study.json", "arms", "first, 8", "first", "resolved", "batch_size", to=8)
    record = smallvit.run_study(mine, seeds=2, **more).record
    said = record.failed["vit, 8/1"]
    assert f"optimizer.lr (0.02 in its runs, {rate:g} now)" in said, said
    assert "finish the study with the smallvit" in said and "--overwrite or another --out" in said
    assert "batch_size (8 in its runs, 4 now)" in record.failed["first, 8/1"], "of what comes first, too"
    assert sorted(record.runs) == ["first, 8/0", "first, 8/0-1", "vit, 8/0", "vit, 8/0-1"]
    change(out / "study.json", "arms", "vit, 8", "resolved", "optimizer.lr", to=rate)
    change(out / "study.json", "arms", "first, 8", "first", "resolved", "batch_size", to=4)
    smallvit.resume(out, show_progress=False)
    assert read_record(out / "study.json").failed == {} and len(read_record(out / "study.json").runs) == 6


def test_a_record_without_recipes_is_compared_with_the_folders_of_its_runs(
    tmp_path: Path, here: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """As an earlier version left it: the folder of a run has its recipe, without a key that is new since."""
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    more = {"data": data, "out": out, "only": ["vit, 8"]}
    mine.write_text(MINE)
    smallvit.run_study(mine, **more)
    recipe, stored = out / "vit, 8-seed-0" / "recipe.json", json.loads((out / "study.json").read_text())
    change(out / "study.json", "arms", "vit, 8", "resolved", to=None)
    change(recipe, "resolved", "augment", "blur", to=None)
    change(recipe, "resolved", "ema", to=0.9)
    assert "ema (0.9 in its runs, 0 now)" in smallvit.run_study(mine, seeds=2, **more).record.failed["vit, 8/1"]
    change(recipe, "resolved", "ema", to=0.0)
    grown = smallvit.run_study(mine, seeds=2, **more).record
    assert grown.failed == {} and grown.arms["vit, 8"].resolved.get("ema") == 0.0
    assert "is not checked" not in capsys.readouterr().err

    del stored["arms"]["vit, 8"]["resolved"]
    (out / "study.json").write_text(json.dumps(stored))
    shutil.rmtree(out / "vit, 8-seed-1")
    (out / "group.json").write_text(json.dumps({"members": [], "axes": {}}))
    grown = smallvit.run_study(mine, seeds=3, **more).record
    assert grown.failed == {} and len(grown.runs) == 3, "nobody knows how the first was trained"
    assert capsys.readouterr().err.count("more seeds of an arm are trained as those were is not checked") == 1


def test_all_seeds_of_an_arm_have_the_precision_of_its_first(tmp_path: Path, here: list[str]) -> None:
    """Where it is left open, it may be measured, and two measurements may end differently."""
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    more = {"data": data, "out": out, "only": ["vit, 8"], "show_progress": False}
    mine.write_text(MINE)
    smallvit.run_study(mine, **more)
    change(out / "study.json", "arms", "vit, 8", "resolved", "precision", to="bf16")
    assert smallvit.run_study(mine, seeds=2, **more).record.failed == {}
    assert RunFolder(out / "vit, 8-seed-1").recipe.precision == "bf16"
    mine.write_text(MINE.replace("batch_size = 4", 'batch_size = 4\nprecision = "fp32"'))
    smallvit.run_study(mine, **(more | {"out": tmp_path / "given"}))
    change(tmp_path / "given" / "study.json", "arms", "vit, 8", "resolved", "precision", to="bf16")
    given = smallvit.run_study(mine, seeds=2, **(more | {"out": tmp_path / "given"})).record
    assert "precision (bf16 in its runs, fp32 now)" in given.failed["vit, 8/1"]


def test_a_precision_is_that_of_all_runs_from_the_first_on(tmp_path: Path, here: list[str]) -> None:
    data, mine, out = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml", tmp_path / "study"
    more = {"data": data, "out": out, "only": ["vit, 8"], "show_progress": False}
    mine.write_text(MINE)
    smallvit.run_study(mine, precision="bf16", **more)
    assert smallvit.run_study(mine, seeds=2, **more).record.failed == {}, "the same command without it goes on"
    assert [RunFolder(out / f"vit, 8-seed-{seed}").recipe.precision for seed in (0, 1)] == ["bf16", "bf16"]
    with pytest.raises(UsageError, match="was begun with --precision bf16"):
        smallvit.run_study(mine, precision="fp32", **more)
    with pytest.raises(UsageError, match="--precision fp16: should be fp32 or bf16"):
        smallvit.run_study(mine, precision="fp16", **(more | {"out": tmp_path / "other"}))
    smallvit.run_study(mine, **(more | {"out": tmp_path / "open"}))
    with pytest.raises(UsageError, match="was begun with no precision given"):
        smallvit.run_study(mine, precision="bf16", **(more | {"out": tmp_path / "open"}))
    with pytest.raises(UsageError, match="--precision fp32: precision itself says bf16"):
        smallvit.run_study("precision", data=data, precision="fp32", out=tmp_path / "said")


@pytest.mark.slow
def test_arms_of_equal_length_do_not_differ_by_what_a_processor_is_fast_at(
    tmp_path: Path, here: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tryout, "has_fast_bf16", lambda device: True)
    monkeypatch.setattr(tryout, "TINY", 1)  # px
    monkeypatch.setattr(tryout, "step_seconds", lambda training, threads, how: 0.001 if how == "bf16" else 0.01)
    data, mine = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml"
    for length, precision in (("epochs = 1", "fp32"), ("steps = 2", "fp32"), ("cpu_seconds = 0.05", "bf16")):
        mine.write_text(MINE.replace("epochs = 1\nx", f"{length}\nx"))
        out = tmp_path / length.split()[0]
        smallvit.run_study(mine, data=data, out=out, only=["vit, 8"], show_progress=False)
        assert RunFolder(out / "vit, 8-seed-0").recipe.precision == precision, length


def test_the_command_in_processes_of_its_own(tmp_path: Path) -> None:
    data, mine = make_set(tmp_path / "set.npz"), tmp_path / "mine.toml"
    mine.write_text(MINE)
    words = [
        "study",
        "run",
        str(mine),
        "--data",
        str(data),
        "--only",
        "vit, 8",
        "--seeds",
        "2",
        "--out",
        str(tmp_path / "o"),
    ]
    done = run_cli(*words)
    assert done.returncode == 0 and "| vit, 8 |" in done.stdout and (tmp_path / "o" / "report.html").is_file()


# ---- those that come along -----------------------------------------------------------------------------


@pytest.fixture
def few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step costs is measured by as few as can be, and only the first run of a study has a page."""
    import smallvit.api
    import smallvit.opened
    import smallvit.runs.stages  # noqa: F401  (they take the page's function by its name, and must not take the one below)
    from smallvit.runs import execution
    from smallvit.studies import costs

    monkeypatch.setattr(costs, "ROUNDS", 1)
    monkeypatch.setattr(costs, "STEPS", 1)
    for module in ("smallvit.training.budget", "smallvit.planning.tryout"):
        monkeypatch.setattr(f"{module}.MEASURED_SECONDS", 0.0)
    write, written = execution.report_runs, []

    def write_the_first(runs: Sequence[RunFolder], out: Path) -> Path:
        if not written:
            written.append(write(runs, out))
        return out

    monkeypatch.setattr(execution, "report_runs", write_the_first)


@pytest.mark.slow
@pytest.mark.parametrize("name", study_names())
def test_every_study_of_ours_runs_in_miniature(
    name: str, tmp_path: Path, here: list[str], few_steps: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a laptop's scale, end to end: every arm one epoch on a few images, measures and claims included."""
    monkeypatch.setenv("SMALLVIT_MOST_EPOCHS", "1")
    monkeypatch.setenv("SMALLVIT_MOST_IMAGES", "16")
    data = make_set(tmp_path / "set.npz", side=32, classes=4, each=20, judged=6)  # a batch of 64, and some to validate
    study = read_study(name)
    sources = dict.fromkeys(sets_of(study, "laptop"), data) or {"": data}
    opened = smallvit.run_study(name, data=sources, seeds=1, draws=1, out=tmp_path / "study", show_progress=False)
    assert opened.record.failed == {}
    assert set(opened.record.arms) == set(study.asked("laptop"))
    if study.measures:
        assert any(run.measured for run in opened.record.runs.values())


PAPER = [name for name in study_names() if SCALES[0] in read_study(name).scales]


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPER)
def test_every_kind_of_arm_trains_a_step_at_the_scale_of_its_paper(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One value of each axis: the recipe is the same on every set. What planning tries out on a copy is left out."""
    from smallvit.planning.plan import settle
    from smallvit.planning.resolve import longest
    from smallvit.studies.costs import asked_recipe
    from smallvit.training.build import build_training
    from smallvit.training.loop import take_step

    monkeypatch.setenv("SMALLVIT_MOST_EPOCHS", "1")
    study, done = read_study(name), set()
    data = make_set(tmp_path / "set.npz", side=32, classes=2, each=4)
    for arm, asked in study.asked("paper").items():
        for stage in stages(study.scales["paper"].shared, asked):
            own = {key: value for key, value in stage.items() if key not in ("data", "train_on", "init", "share")}
            if (kind := json.dumps(own, sort_keys=True)) in done:
                continue
            done.add(kind)
            recipe = asked_recipe(own, {"": str(data)}, threads=1, batch_size=2, settings={"precision": "fp32"})
            choices, images, split = settle(recipe)
            training = build_training(longest(choices.recipe), images, split)
            take_step(training, 0, 0, 1e-6)
            assert all(bool(p.isfinite().all()) for p in training.step.parameters()), arm


def test_runs_of_another_study_count_on_the_same_images_only(tmp_path: Path, here: list[str]) -> None:
    """Two files of one name are not one set."""
    text = 'title = "t"\nseeds = 1\nepochs = 1\n[shared]\nval = "none"\nbatch_size = 4\n[arms]\nvit = { model = "vit_pico" }\n'
    (tmp_path / "one.toml").write_text(text)
    (tmp_path / "two.toml").write_text(f'{text}[reuse]\nvit = "one"\n')
    for name, side in (("a", 16), ("b", 12)):
        (tmp_path / name).mkdir()
        make_set(tmp_path / name / "set.npz", side=side)

    def run(study: str, images: str, out: str) -> int:
        here.clear()
        data = tmp_path / images / "set.npz"
        smallvit.run_study(
            tmp_path / f"{study}.toml", data=data, out=tmp_path / out / f"{study}-laptop", show_progress=False
        )
        return len(here)

    assert run("one", "a", "runs") == 1
    assert run("two", "a", "runs") == 0, "they are there"
    shutil.rmtree(tmp_path / "runs" / "two-laptop")
    assert run("two", "b", "runs") == 1


def test_a_study_of_which_no_set_is_there_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SMALLVIT_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"needs cifar10, and nothing of it is in .*: `smallvit check cifar10`"):
        smallvit.run_study("lu2022-table5", out=tmp_path / "study", show_progress=False)
    with pytest.raises(UsageError, match=r"the study names no set: say what to train on, --data SOURCE"):
        smallvit.run_study("dhvt-cifar", out=tmp_path / "study", show_progress=False)
    assert not (tmp_path / "study").exists()

"""The commands as they are typed: what they print, what they leave on disk, and how they end."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer

from helpers import Outcome, make_folder, noise_image, run_cli, run_here, truncate, write_npz
from smallvit import Run
from smallvit.cli import app
from smallvit.recipe import preset_names

QUICK = ("--epochs", "1", "--threads", "1", "--model", "vit_pico")


def ends_well(outcome: Outcome) -> Outcome:
    assert outcome.status == 0, outcome.err
    return outcome


def fails(outcome: Outcome, status: int, *phrases: str) -> None:
    """One message, no traceback, the right exit status."""
    assert outcome.status == status, outcome
    assert "Traceback" not in outcome.out + outcome.err
    assert outcome.err.count("smallvit: ") == 1, outcome.err
    for phrase in phrases:
        assert phrase in outcome.err


# ---- help, and what it costs -------------------------------------------------------------------------


def all_commands() -> dict[str, Any]:
    root: Any = typer.main.get_command(app)
    found = {name: command for name, command in root.commands.items() if name != "recipe"}
    return {**found, "recipe show": root.commands["recipe"].commands["show"]}


def test_the_commands() -> None:
    assert {"demo", "train", "resume", "evaluate", "predict", "report", "list", "recipe show"} <= set(all_commands())


@pytest.mark.parametrize("name", ["", "recipe", *all_commands()])
def test_every_command_has_help(name: str) -> None:
    outcome = ends_well(run_here(*name.split(), "--help"))
    assert "Usage: " in outcome.out
    assert outcome.err == ""


@pytest.mark.parametrize("name", all_commands())
def test_every_command_and_option_says_what_it_does(name: str) -> None:
    command = all_commands()[name]
    assert command.help
    assert [option.name for option in command.params if not getattr(option, "help", None)] == []


HEAVY = ("torch", "torchvision", "timm", "numpy", "pydantic", "PIL", "sklearn", "scipy", "matplotlib", "mlxtend")


@pytest.mark.parametrize("code", ["import smallvit", "import smallvit.cli", "--help"])
def test_nothing_heavy_is_imported_for_help(code: str) -> None:
    if code == "--help":
        code = "import sys; sys.argv = ['smallvit', '--help']\nfrom smallvit.cli import main\ntry: main()\nexcept SystemExit: pass"
    check = f"{code}\nimport sys; print('loaded:', *[name for name in {HEAVY} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "loaded:"


def test_help_costs_little_more_than_the_library_that_prints_it() -> None:
    def seconds(*words: str) -> float:
        """The best of five: a busy machine only ever slows things down."""
        times = []
        for _ in range(5):
            started = time.perf_counter()
            subprocess.run([sys.executable, *words], capture_output=True, check=True)
            times.append(time.perf_counter() - started)
        return min(times)

    assert seconds("-m", "smallvit", "--help") < 2 * seconds("-c", "import typer.main, typer.core")


@pytest.mark.parametrize("words", [(), ("recipe",)])
def test_without_a_command_there_is_help_and_status_2(words: tuple[str, ...]) -> None:
    outcome = run_here(*words)
    assert outcome.status == 2
    assert "Usage: smallvit" in outcome.out + outcome.err


# ---- list, recipe show, --print-recipe ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("models", ["vit_nano", "vit_pico", "resnet_nano", "resnet18_32", "resnet50_32", "deit_tiny", "swin_tiny"]),
        ("recipes", preset_names()),
        ("methods", ["supervised"]),
        ("datasets", ["mnist5k", "digits", "FOLDER", "FILE.npz"]),
    ],
)
def test_list(what: str, names: list[str]) -> None:
    lines = ends_well(run_here("list", what)).out.splitlines()
    described = {line.split()[0]: line.split()[1:] for line in lines}
    for name in names:
        assert described[name], f"{name} is not described"


def test_list_models_by_pattern() -> None:
    names = ends_well(run_here("list", "models", "resnet1?")).out.split()
    assert "resnet18" in names
    fails(run_here("list", "models", "nothing_of_this_name"), 2, "no timm model matches 'nothing_of_this_name'")


def test_list_of_something_else() -> None:
    fails(run_here("list", "model"), 2, "cannot list 'model': did you mean models")


@pytest.mark.skipif(sys.platform == "win32", reason="no such shell")
def test_output_into_a_closed_pipe_ends_without_a_word() -> None:
    command = f"{sys.executable} -m smallvit recipe show | true"
    found = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert found.stderr == ""


def test_recipe_show(tmp_path: Path) -> None:
    page = ends_well(run_here("recipe", "show", "default")).out
    assert page.startswith("# description: ")
    assert "optimizer.clip = 1.0" in page
    (tmp_path / "mine.toml").write_text(page)
    again = ends_well(run_here("recipe", "show", tmp_path / "mine.toml")).out
    assert tomllib.loads(again) == tomllib.loads(page), "what is shown is a recipe file, and shows itself"
    fails(run_here("recipe", "show", "defaul"), 2, "unknown recipe 'defaul': did you mean default?")


def test_print_recipe_writes_nothing_and_can_be_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    asked = ("train", "digits", *QUICK, "--per-class", "5", "--lr", "0.01", "--set", "optimizer.clip=0.5")
    printed = ends_well(run_here(*asked, "--print-recipe")).out
    assert list(tmp_path.iterdir()) == []
    lines = printed.splitlines()
    assert 'data.source = "digits"' in lines
    assert "optimizer.lr = 0.01" in lines
    assert "optimizer.clip = 0.5" in lines
    assert "data.img_size = 8  # auto: the images are typically 8 px on their shorter side" in lines

    Path("mine.toml").write_text(printed)
    again = ends_well(run_here("train", "--recipe", "mine.toml", "--print-recipe")).out
    values = [line.partition("  #")[0] for line in lines]
    assert again.splitlines() == values


# ---- train, then everything a run is for -------------------------------------------------------------


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/ of three classes, and runs/a trained on it in a process of its own, both under one folder."""
    root = tmp_path_factory.mktemp("place")
    make_folder(root / "photos", {"cat": 20, "dog": 20, "owl [x]": 20})
    (root / "photos" / "cat" / "broken.png").touch()
    done = run_cli("train", "photos", *QUICK, "--out", "runs/a", cwd=root)
    assert done.returncode == 0, done.stderr
    (root / "train.out").write_text(done.stdout)
    (root / "train.err").write_text(done.stderr)
    return root


@pytest.fixture
def run_copy(place: Path, tmp_path: Path) -> Path:
    """The finished run, to be spoiled."""
    return shutil.copytree(place / "runs" / "a", tmp_path / "copy")


def test_train_says_what_it_chose_and_ends_with_the_floors_and_the_report(place: Path) -> None:
    told, answer = (place / "train.err").read_text(), (place / "train.out").read_text()
    assert "3 classes, 42 train, 6 val, 12 test" in told
    assert "data.img_size = 12  (the images are typically 12 px on their shorter side)" in told
    assert "skipped 1 of 61 files" in told
    assert "broken.png (the file is empty)" in told
    assert "to beat: majority class 33.3%" in told
    for phrase in ("accuracy on the test part (12 images)", "vit_pico", "majority class", "k-NN on pixels"):
        assert phrase in answer
    assert answer.splitlines()[-1] == f"report: {Path('runs', 'a', 'report.html')}"


def test_the_folder_holds_everything(place: Path) -> None:
    run = Run(place / "runs" / "a")
    assert {path.name for path in run.path.iterdir()} >= {
        "recipe.json", "env.json", "split.json", "floors.json", "metrics.jsonl", "model.safetensors", "results.json",
        "predictions.safetensors", "images.safetensors", "report.html",
    }  # fmt: skip
    assert run.finished
    assert (
        run.read("recipe.json")["command"]
        == "smallvit train photos --epochs 1 --threads 1 --model vit_pico --out runs/a"
    )
    assert run.read("recipe.json")["asked"]["epochs"] == 1
    split = run.read("split.json")
    assert split["class_names"] == ["cat", "dog", "owl [x]"]
    assert {name: part["counts"] for name, part in split["parts"].items()} == {
        "train": [14, 14, 14], "val": [2, 2, 2], "test": [4, 4, 4],
    }  # fmt: skip
    assert split["skipped"] == [{"file": str(Path("cat", "broken.png")), "why": "the file is empty"}]
    assert run.results["parts"]["test"]["n"] == 12
    assert set(run.results["floors"]) == {"majority", "knn", "logistic"}
    assert run.metrics[-1]["epoch"] == 0
    assert (run.path / "report.html").stat().st_size > 10_000


def test_evaluate(place: Path) -> None:
    run = Run(place / "runs" / "a")
    shown = ends_well(run_here("evaluate", run.path)).out
    assert "accuracy on test (12 images)" in shown
    assert "majority class" in shown
    assert f"{run.results['parts']['test']['accuracy']:.1%}" in shown
    found = json.loads(ends_well(run_here("evaluate", run.path, "--json")).out)
    assert found["confusion"] == run.results["parts"]["test"]["confusion"]
    on_train = json.loads(ends_well(run_here("evaluate", run.path, "--part", "train", "--json")).out)
    assert on_train["n"] == 42


def test_evaluate_other_images_by_class_name(place: Path, tmp_path: Path) -> None:
    run = place / "runs" / "a"
    make_folder(tmp_path / "more", {"dog": 2, "cat": 3})
    found = json.loads(ends_well(run_here("evaluate", run, "--data", tmp_path / "more", "--json")).out)
    assert {row["name"]: row["n"] for row in found["per_class"]} == {"cat": 3, "dog": 2, "owl [x]": 0}
    make_folder(tmp_path / "more", {"zebra": 1})
    fails(run_here("evaluate", run, "--data", tmp_path / "more"), 1, "classes the model does not know: zebra")
    fails(run_here("evaluate", run, "--data", tmp_path / "none"), 1, "no such folder or file")
    fails(run_here("evaluate", run, "--part", "tset"), 2, "part 'tset'", "choices: train, val, test")


def test_predict_with_good_missing_and_broken_files_and_a_folder(place: Path, tmp_path: Path) -> None:
    make_folder(tmp_path, {"new/a": 2, "new/b": 1, "new/.hidden": 1})
    (tmp_path / "new" / "notes.txt").write_text("no image")
    noise_image("x").save(tmp_path / "one.jpg")
    noise_image("y", (64, 64)).save(tmp_path / "broken.png")
    truncate(tmp_path / "broken.png")
    table = tmp_path / "out.csv"
    words = ["one.jpg", "missing.png", "broken.png", "new"]
    outcome = run_here("predict", place / "runs" / "a", *(tmp_path / word for word in words), "--csv", table)
    assert outcome.status == 1
    assert outcome.out == ""
    said = outcome.err.splitlines()
    assert said[0] == f"4 predictions in {table}"
    assert said[1] == "2 files could not be read:"
    assert said[2] == f"  {tmp_path / 'missing.png'}: No such file or directory"
    assert said[3].startswith(f"  {tmp_path / 'broken.png'}: damaged: ")
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["file"] for row in rows] == [
        str(tmp_path / name) for name in ("one.jpg", "new/a/000.png", "new/a/001.png", "new/b/000.png")
    ]
    assert {row["label"] for row in rows} <= {"cat", "dog", "owl [x]"}
    assert all(1 / 3 <= float(row["probability"]) <= 1 for row in rows)


def test_predict_prints_csv_where_no_file_is_named(place: Path) -> None:
    image = place / "photos" / "cat" / "000.png"
    outcome = ends_well(run_here("predict", place / "runs" / "a", image))
    assert outcome.err == ""
    assert "\r" not in outcome.out
    (row,) = csv.DictReader(io.StringIO(outcome.out))
    assert list(row) == ["label", "probability", "file"]
    assert row["file"] == str(image)
    from_file = ends_well(run_here("predict", place / "runs" / "a" / "model.safetensors", image))
    assert from_file.out == outcome.out


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux takes any bytes as a file name")
def test_predict_file_names_of_any_bytes(place: Path, tmp_path: Path) -> None:
    name = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9, new.png"))
    noise_image("x").save(tmp_path / "plain.png")
    (tmp_path / "plain.png").rename(name)
    assert "caf\\xe9, new.png" in ends_well(run_here("predict", place / "runs" / "a", name)).out
    table = tmp_path / "out.csv"
    ends_well(run_here("predict", place / "runs" / "a", name, "--csv", table))
    with table.open(newline="", encoding="utf-8", errors="surrogateescape") as file:
        (row,) = csv.DictReader(file)
    assert Path(row["file"]).is_file()


def test_predict_cannot_write_its_table(place: Path, tmp_path: Path) -> None:
    image = place / "photos" / "cat" / "000.png"
    (tmp_path / "file").touch()
    for table in (tmp_path / "no" / "folder.csv", tmp_path / "file" / "below.csv", tmp_path):
        fails(run_here("predict", place / "runs" / "a", image, "--csv", table), 1, f"cannot write {table}: ")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_predict_on_a_folder_without_images(place: Path, tmp_path: Path) -> None:
    fails(run_here("predict", place / "runs" / "a", tmp_path), 1, f"no images below {tmp_path}")


def test_report_is_written_anew_and_for_two_runs(run_copy: Path, place: Path, tmp_path: Path) -> None:
    before = (run_copy / "report.html").read_text()
    (run_copy / "report.html").unlink()
    assert ends_well(run_here("report", run_copy)).out == f"{run_copy / 'report.html'}\n"
    assert len((run_copy / "report.html").read_text()) > 0.9 * len(before)
    both = tmp_path / "both.html"
    ends_well(run_here("report", place / "runs" / "a", run_copy, "--out", both))
    assert both.stat().st_size > 10_000


def test_resume_of_a_finished_run_changes_nothing(run_copy: Path) -> None:
    before = {path.name: path.read_bytes() for path in run_copy.iterdir() if path.is_file()}
    outcome = ends_well(run_here("resume", run_copy))
    assert "is already finished" in outcome.err
    assert "vit_pico" in outcome.out
    assert {path.name: path.read_bytes() for path in run_copy.iterdir() if path.is_file()} == before


def test_quiet_with_a_log_into_an_empty_folder(tmp_path: Path) -> None:
    words = ("train", "digits", *QUICK, "--per-class", "5", "--out", tmp_path, "--quiet")
    fails(run_here(*words, "--log", "tensorbord"), 2, "unknown log 'tensorbord': did you mean tensorboard?")
    assert run_here(*words, "--log", "tensorboard") == Outcome(0, "", "")
    assert Run(tmp_path).finished
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_train_on_npz_into_the_next_free_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_npz(tmp_path / "set.npz", n=60, classes=3)
    Path("runs", "set-vit_pico-1").mkdir(parents=True)
    outcome = ends_well(run_here("train", "set.npz", *QUICK))
    assert outcome.out.splitlines()[-1] == f"report: {Path('runs', 'set-vit_pico-2', 'report.html')}"
    monkeypatch.chdir(tmp_path / "runs")  # the run knows its data wherever it is called from
    ends_well(run_here("evaluate", "set-vit_pico-2"))


def test_without_test_and_validation_part(tmp_path: Path) -> None:
    words = ("train", "digits", *QUICK, "--per-class", "5", "--val", "none", "--test", "none", "--out", tmp_path / "a")
    outcome = ends_well(run_here(*words))
    assert "nothing was evaluated" in outcome.out
    fails(run_here("evaluate", tmp_path / "a"), 2, "part 'test'", "holds no images: choices: train")


# ---- several seeds -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Outcome]:
    path = tmp_path_factory.mktemp("seeds") / "group"
    words = ("train", "digits", *QUICK, "--per-class", "5", "--seeds", "2", "--jobs", "2", "--out", path)
    return path, run_here(*words)


def test_seeds(group: tuple[Path, Outcome]) -> None:
    path, outcome = group
    ends_well(outcome)
    runs = [Run(path / f"seed-{seed}") for seed in (0, 1)]
    assert [run.recipe.seed for run in runs] == [0, 1]
    assert runs[0].read("split.json") == runs[1].read("split.json")
    weights = [(run.path / "model.safetensors").read_bytes() for run in runs]
    assert weights[0] != weights[1]
    assert "mean of 2 seeds" in outcome.out
    assert outcome.out.splitlines()[-1] == f"report: {path / 'report.html'}"


def test_a_group_is_no_run_but_says_where_they_are(group: tuple[Path, Outcome]) -> None:
    path, _ = group
    fails(run_here("evaluate", path), 1, "is not a run folder", "it holds the runs seed-0, seed-1")
    ends_well(run_here("evaluate", path / "seed-1"))
    ends_well(run_here("report", path))
    ends_well(run_here("resume", path))


def test_group_is_overwritten_whole_or_not_at_all(group: tuple[Path, Outcome], tmp_path: Path) -> None:
    path = shutil.copytree(group[0], tmp_path / "group")
    words = ("train", "digits", *QUICK, "--per-class", "5", "--out", path, "--overwrite", "-q")
    (path / "seed-1" / "mine.txt").touch()
    fails(run_here(*words), 1, f"{path} holds what no run wrote (seed-1/mine.txt): nothing was deleted")
    assert (path / "seed-0" / "model.safetensors").is_file()
    (path / "seed-1" / "mine.txt").unlink()
    ends_well(run_here(*words))
    assert not (path / "seed-0").exists()
    assert Run(path).finished


@pytest.mark.parametrize(("words", "message"), [
    (("--seeds", "1"), "--seeds 1: give at least 2"),
    (("--seeds", "2", "--log", "tensorboard"), "--log works with a single run"),
])  # fmt: skip
def test_seeds_that_cannot_be(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    fails(run_here("train", "digits", *QUICK, *words, "--out", tmp_path / "a"), 2, message)
    assert not (tmp_path / "a").exists()


# ---- on which device ---------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["evaluate", "predict", "probe", "diagnose"])
def test_a_device_that_is_not_there(command: str, place: Path) -> None:
    files = [place / "photos" / "dog"] if command == "predict" else []
    outcome = run_here(command, place / "runs" / "a", *files, "--device", "toaster")
    fails(outcome, 2, "device 'toaster' cannot be used here", "choices: auto, cpu, cuda")


# ---- a used --out ------------------------------------------------------------------------------------


def test_used_out_is_refused_at_once_and_left_as_it_is(run_copy: Path, tmp_path: Path) -> None:
    before = {path.name: path.stat().st_mtime_ns for path in run_copy.iterdir()}
    outcome = run_here("train", tmp_path / "no data is looked at", "--out", run_copy)
    fails(outcome, 1, f"{run_copy} is already used", "--overwrite", f"smallvit resume {run_copy}")
    assert {path.name: path.stat().st_mtime_ns for path in run_copy.iterdir()} == before


def test_overwrite_replaces_the_run(run_copy: Path) -> None:
    (run_copy / ".results.json.1234.part").touch()  # left by a kill in the middle of a write
    words = ("train", "digits", *QUICK, "--per-class", "5", "--out", run_copy, "--overwrite", "-q")
    ends_well(run_here(*words))
    assert Run(run_copy).recipe.data.source == "digits"
    assert not (run_copy / ".results.json.1234.part").exists()


def test_overwrite_keeps_the_old_run_where_the_new_one_cannot_start(run_copy: Path) -> None:
    before = (run_copy / "model.safetensors").read_bytes()
    fails(run_here("train", "digits", "--model", "nonsense", "--out", run_copy, "--overwrite"), 2, "unknown model")
    assert (run_copy / "model.safetensors").read_bytes() == before


def foreign_file(folder: Path) -> None:
    (folder / "thesis.tex").write_text("mine")


def other_run(folder: Path) -> None:
    """`--out runs --overwrite` must not delete the runs below it."""
    shutil.copytree(folder, folder / "other")


def not_a_run(folder: Path) -> None:
    """Names that a run uses too, but no run wrote them."""
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    (folder / "report.html").write_text("mine")
    (folder / "findings").mkdir()


@pytest.mark.parametrize("spoil", [foreign_file, other_run, not_a_run])
def test_overwrite_deletes_nothing_but_a_run(run_copy: Path, spoil: Callable[[Path], None]) -> None:
    spoil(run_copy)
    before = sorted(run_copy.rglob("*"))
    outcome = run_here("train", "digits", *QUICK, "--per-class", "5", "--out", run_copy, "--overwrite")
    fails(outcome, 1, "holds what no run wrote", "nothing was deleted")
    assert sorted(run_copy.rglob("*")) == before


# ---- bad input ---------------------------------------------------------------------------------------


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    return make_folder(tmp_path / "photos", {"cat": 10, "dog": 10})


def missing(root: Path) -> Path:
    return root / "nowhere"


def empty(root: Path) -> Path:
    (root / "empty").mkdir()
    return root / "empty"


def one_class(root: Path) -> Path:
    return make_folder(root / "one", {"cat": 10})


def lonely(root: Path) -> Path:
    return make_folder(root / "lonely", {"cat": 10, "dog": 1})


def loose(root: Path) -> Path:
    return make_folder(root / "loose", {".": 3})


def rotten(root: Path) -> Path:
    make_folder(root / "rotten", {"cat": 10, "dog": 10})
    for number in range(2):
        (root / "rotten" / "dog" / f"00{number}.png").write_text("rotten")
    return root / "rotten"


def text_file(root: Path) -> Path:
    (root / "list.txt").write_text("a b c")
    return root / "list.txt"


@pytest.mark.parametrize(
    ("make", "phrases"),
    [
        (missing, ["no such folder or file: ", "nowhere"]),
        (empty, ["empty holds no folders and no images", "put the images of each class into a folder of its own"]),
        (one_class, ["one has one class only (cat): there is nothing to tell apart"]),
        (lonely, ["one image only is left of class 'dog'", "--test none"]),
        (loose, ["images, but no class folders"]),
        (rotten, ["2 of 20 images of", "dog/000.png: not a readable image", "dog/001.png"]),
        (
            text_file,
            [
                "list.txt: data is a folder of class folders, a .csv file of path,label, an .npz file, or one of mnist5k, digits"
            ],
        ),
    ],
)
def test_data_that_cannot_be_used(tmp_path: Path, make: Callable[[Path], Path], phrases: list[str]) -> None:
    out = tmp_path / "out"
    fails(run_here("train", make(tmp_path), *QUICK, "--out", out), 1, *phrases)
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "phrases"),
    [
        (["--batch-size", "64"], ["batch_size 64 is larger than the 14 training images", "--batch-size 14 or less"]),
        (["--model", "vit_nanno"], ["unknown model 'vit_nanno': did you mean vit_nano", "smallvit list models"]),
        (["--recipe", "defalt"], ["unknown recipe 'defalt': did you mean default?"]),
        (["--recipe", "mine.toml"], ["cannot read recipe file mine.toml: No such file or directory"]),
        (["--set", "optimizer.lr=abc"], ["smallvit: optimizer.lr = 'abc': should be a number or 'auto'"]),
        (["--lr", "1", "--set", "optimizer.lr=-1"], ["smallvit: optimizer.lr = -1: should be more than 0"]),
        (["--set", "optimizer.lrr=1"], ["smallvit: unknown key 'optimizer.lrr': did you mean optimizer.lr?"]),
        (["--set", "objective.mixupp=1"], ["unknown key 'objective.mixupp': did you mean objective.mixup, "]),
        (["--set", "objective.name=simclrr"], ["unknown objective 'simclrr'"]),
        (["--set", "aux.drlok.weight=1"], ["unknown aux 'drlok'"]),
        (["--set", "epochs"], ["--set 'epochs': write it as section.key=value"]),
        (["--set", "model.kwargs.depht=3"], ["model vit_pico (", "depht=3", "cannot be used for 3 channels of 12 px"]),
        (["--epochs", "0"], ["smallvit: --epochs 0: should be at least 1 or leave it out"]),
        (["--lr", "-1"], ["smallvit: --lr -1.0: should be more than 0"]),
        (["--lr", "nan"], ["smallvit: --lr nan: should be a finite number"]),
        (["--mixup", "-1"], ["objective supervised: --mixup -1.0: should be at least 0"]),
        (["--img-size", "3"], ["smallvit: --img-size 3: should be at least 4"]),
        (
            ["--set", "model.kwargs.num_heads=5"],
            ["model vit_pico (num_heads=5, ", "cannot be used for 3 channels of 12 px"],
        ),
        (["--in-chans", "4"], ["--in-chans 4: the images of", "only grey and RGB, 1 and 3"]),
        (["--fit", "stretch"], ["smallvit: --fit stretch: should be 'crop', 'squash' or 'pad'"]),
        (["--budget", "soon"], ["smallvit: --budget soon: 'soon' is no duration: write 90s, 3m or 1.5h"]),
        (["--budget", "3m", "--epochs", "3"], ["budget and epochs", "exclude each other"]),
        (["--val", "1.5"], ["smallvit: --val 1.5: should be none, a share between 0 and 1, or the name of a part"]),
        (["--val", "test"], ["--val test: the test part never selects anything"]),
        (["--val", "dev"], ["--val dev: the source has no such part (it has no parts)"]),
        (["--train-on", "val"], ["smallvit: --train-on val: should be 'train' or 'train+val'"]),
        (["--train-on", "train+val"], ["has no validation part"]),
        (["--per-class", "50"], ["--per-class 50: class 'cat' has 7 images left for training"]),
        (["--per-class", "5", "--fraction", "0.5"], ["--per-class and --fraction exclude each other"]),
        (["--device", "toaster"], ["device 'toaster' cannot be used here"]),
        (["--precision", "fp8"], ["smallvit: --precision fp8: should be 'fp32' or 'bf16'"]),
        (["--threads", "0"], ["smallvit: --threads 0: should be at least 1"]),
        (["--set", "data.mean=[0.5, 0.5]"], ["data.mean = [0.5, 0.5]: give 3 numbers, one for each channel"]),
        (["--set", "data.cache_size=8"], ["data.cache_size = 8 is smaller than data.img_size = 12"]),
        (["--val", "none", "--set", "select=best"], ["select = best needs a validation part"]),
        (["--log", "mlflow"], ["unknown log 'mlflow': choices: tensorboard, wandb"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_wrong_use(photos: Path, tmp_path: Path, words: list[str], phrases: list[str]) -> None:
    quick = ["--threads", "1", *([] if "--epochs" in words or "--budget" in words else ["--epochs", "1"])]
    model = [] if "--model" in words else ["--model", "vit_pico"]
    outcome = run_here("train", photos, *quick, *model, *words, "--out", tmp_path / "out")
    fails(outcome, 2, *phrases)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "phrase"),
    [
        (["nonsense"], "No such command 'nonsense'"),
        (["train", "--nonsense"], "No such option: --nonsense"),
        (["train", "--epochs", "many"], "Invalid value for '--epochs'"),
        (["train", "a", "b"], "unexpected extra argument"),
        (["predict", "runs/a"], "Missing argument"),
        (["evaluate"], "Missing argument"),
        (["resume", "runs/a", "--jobs", "0"], "Invalid value for '--jobs'"),
    ],
)
def test_words_that_no_command_takes(words: list[str], phrase: str) -> None:
    outcome = run_here(*words)
    assert outcome.status == 2
    assert phrase in outcome.err
    assert "Usage: " in outcome.err
    assert "Traceback" not in outcome.err


def test_out_that_cannot_be_written(photos: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    fails(run_here("train", photos, *QUICK, "--out", tmp_path / "file"), 1, "file is a file; --out takes a folder")
    below = tmp_path / "file" / "run"
    fails(run_here("train", photos, *QUICK, "--out", below), 1, f"cannot write to {below}: ")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("command", ["evaluate", "resume", "report", "predict"])
def test_folder_that_is_no_run(tmp_path: Path, command: str) -> None:
    more = ["x.png"] if command == "predict" else []
    for folder, why in ((tmp_path, "it has no recipe.json"), (tmp_path / "nowhere", "there is no such folder")):
        fails(run_here(command, folder, *more), 1, f"{folder} is not a run folder: {why}")


@pytest.mark.parametrize("command", ["evaluate", "report", "predict"])
def test_unfinished_run_says_how_to_go_on(run_copy: Path, command: str) -> None:
    (run_copy / "results.json").unlink()
    (run_copy / "model.safetensors").unlink()
    more = ["x.png"] if command == "predict" else []
    fails(run_here(command, run_copy, *more), 1, f"smallvit resume {run_copy}")


@pytest.mark.parametrize(
    ("name", "content", "phrase"),
    [
        ("model.safetensors", b"", "cannot read"),
        ("model.safetensors", b"not safetensors at all", "cannot read"),
        ("recipe.json", b"{", "cannot read"),
        ("recipe.json", b"[]", "does not hold a JSON object"),
        ("recipe.json", b"{}", "recipe.json"),
        ("split.json", b"{}", "split.json"),
        ("recipe.json", b'{"resolved": {"epochs": 0}, "choices": []}', "epochs = 0: should be at least 1"),
    ],
)
def test_damaged_run(run_copy: Path, name: str, content: bytes, phrase: str) -> None:
    (run_copy / name).write_bytes(content)
    outcome = run_here("evaluate", run_copy)
    fails(outcome, outcome.status, phrase, name)
    assert outcome.status in (1, 2)


def test_weights_of_something_else(run_copy: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(2)}, run_copy / "model.safetensors")
    image = tmp_path / "x.png"
    noise_image("x").save(image)
    fails(run_here("predict", run_copy, image), 1, "does not hold a smallvit model")
    fails(run_here("predict", tmp_path / "none.safetensors", image), 1, "no such file: ")


def test_images_that_changed_since_training(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_folder(tmp_path / "photos", {"cat": 10, "dog": 10})
    ends_well(run_here("train", "photos", *QUICK, "--out", "a", "-q"))
    noise_image("another").save(tmp_path / "photos" / "cat" / "000.png")
    fails(run_here("evaluate", "a"), 1, "are not those that a was trained on", "put them back")
    shutil.rmtree("photos")
    fails(run_here("evaluate", "a"), 1, "no such folder or file")
    ends_well(run_here("predict", "a", place / "photos" / "cat" / "000.png"))  # needs the images no more

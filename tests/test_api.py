"""The same from Python: runs, predictions and errors as objects, and the caller's torch left as it was."""

from __future__ import annotations

import json
import platform
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image

import smallvit
from helpers import make_folder, noise_image
from smallvit.data.images import read_image
from smallvit.errors import DataError, RunError
from smallvit.evaluation.model_file import load_model
from smallvit.runs.inference import device_for

QUICK: dict[str, Any] = {"epochs": 1, "threads": 1, "model": "vit_pico", "show_progress": False}


def weights(run: smallvit.Run) -> bytes:
    return (run.path / "model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images larger than the training size, and not square: prediction must fit them as training did."""
    return make_folder(tmp_path_factory.mktemp("photos"), {"cat": 20, "dog": 20}, size=(48, 36))


@pytest.fixture(scope="module")
def run(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> smallvit.Run:
    out = tmp_path_factory.mktemp("runs") / "a"
    settings = {"augment.crop": "resized", "select": "best"}
    return smallvit.train(photos, out=out, img_size=16, val=0.15, settings=settings, **QUICK)


# ---- import ------------------------------------------------------------------------------------------


def test_import_is_lazy_and_every_public_name_is_there() -> None:
    code = (
        "import sys, smallvit\n"
        "assert not {'torch', 'numpy', 'pydantic'} & set(sys.modules)\n"
        "smallvit.UsageError, smallvit.SmallvitError\n"
        "assert not {'torch', 'numpy', 'pydantic'} & set(sys.modules)\n"
        "for _ in range(2):\n"  # a module of the same name would take the place of a function after the first import
        "    for name in smallvit.__all__: assert callable(getattr(smallvit, name)), name\n"
        "assert set(smallvit.__all__) <= set(dir(smallvit))\n"
        "assert 'torch' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_unknown_name() -> None:
    with pytest.raises(AttributeError, match="module 'smallvit' has no attribute 'trian'"):
        smallvit.trian  # noqa: B018


def test_version_is_the_installed_one() -> None:
    from importlib.metadata import version

    assert smallvit.__version__ == version("smallvit")


# ---- a run -------------------------------------------------------------------------------------------


def test_train_returns_the_finished_run(run: smallvit.Run, photos: Path) -> None:
    assert isinstance(run, smallvit.Run)
    assert run.finished
    assert run.recipe.epochs == 1
    assert run.recipe.data.source == str(photos.resolve())
    assert run.read("recipe.json")["command"] == "smallvit.train(...)"
    assert run.results["parts"]["test"]["n"] == 8
    assert repr(run) == f"Run({str(run.path)!r})"


def test_environment_is_stored(run: smallvit.Run) -> None:
    found = run.read("env.json")
    assert found["torch"] == torch.__version__
    assert found["smallvit"] == smallvit.__version__
    assert (found["threads"], found["device"]) == (1, run.recipe.device)
    assert found["cpu"]
    if platform.system() == "Linux" and platform.machine() == "x86_64":
        assert re.search(r"\(family \d+, model \d+\)$", found["cpu"]), (
            "one name stands for processors of very different speed"
        )


@pytest.mark.parametrize("part", ["test", "val"])
def test_evaluate_agrees_with_the_stored_results(run: smallvit.Run, part: str) -> None:
    found = json.loads(json.dumps(run.evaluate(part)))
    stored = run.results["parts"][part]
    assert found.pop("loss") == pytest.approx(stored.pop("loss"), rel=1e-5)
    assert found == stored
    assert smallvit.evaluate(run.path, part)["accuracy"] == stored["accuracy"]


def test_stored_probabilities_are_those_of_the_model(run: smallvit.Run, photos: Path) -> None:
    """Files -> predict, and cached images -> training's own evaluation, are the same way."""
    from safetensors.torch import load_file

    stored = load_file(run.path / "predictions.safetensors")
    files = sorted(photos.rglob("*.png"))
    predictions = run.predict(*(files[row] for row in stored["rows"]))
    assert [p.probability for p in predictions] == pytest.approx(stored["probabilities"].amax(1).tolist(), abs=2e-6)
    names = run.read("split.json")["class_names"]
    assert [p.label for p in predictions] == [names[index] for index in stored["probabilities"].argmax(1)]


def test_evaluate_on_the_training_folder_again(run: smallvit.Run, photos: Path) -> None:
    whole = smallvit.evaluate(run.path, "all", data=photos)
    parts = [run.evaluate(part)["confusion"] for part in ("train", "val", "test")]
    assert whole["confusion"] == sum(torch.tensor(part) for part in parts).tolist()  # type: ignore[union-attr]


def test_model_is_a_timm_model_with_the_same_logits(run: smallvit.Run, photos: Path) -> None:
    model = run.model()
    assert type(model) is type(timm.create_model("vit_pico", img_size=16))
    assert not model.training
    recipe = run.recipe
    file = photos / "cat" / "003.png"
    pixels = read_image(file, recipe.data.cache_size, recipe.data.fit, 3)  # type: ignore[arg-type]
    margin = (recipe.data.cache_size - 16) // 2  # type: ignore[operator]
    centre = pixels[:, margin : margin + 16, margin : margin + 16].float() / 255
    mean, std = (torch.tensor(values)[:, None, None] for values in (recipe.data.mean, recipe.data.std))
    image = ((centre - mean) / std)[None]
    assert recipe.data.flips is True
    with torch.no_grad():  # by hand, without our code
        probability, index = ((model(image) + model(image.flip(3))) / 2).softmax(1).max(1)
    (answer,) = run.predict(file)
    assert answer.probability == pytest.approx(float(probability), abs=2e-6)
    assert answer.label == ["cat", "dog"][int(index)]


def test_predictor_takes_what_python_has(run: smallvit.Run, photos: Path) -> None:
    """Pictures and arrays get the probability that the file gets."""
    predictor, file = run.predictor(device="cpu"), photos / "cat" / "003.png"
    assert predictor.class_names == ("cat", "dog") and predictor.device == torch.device("cpu")
    (answer,) = run.predict(file)
    picture = Image.open(file)
    array = np.asarray(picture)
    for images in (file, picture, [array], array[None], torch.tensor(array).permute(2, 0, 1)[None]):
        (probabilities_K,) = predictor.probabilities(images)
        assert round(float(probabilities_K.max()), 6) == answer.probability
        assert predictor.class_names[int(probabilities_K.argmax())] == answer.label
    assert predictor.features([file, picture]).shape == (2, run.model().num_features)


def test_evaluation_is_the_validation_of_training(run: smallvit.Run) -> None:
    for part in ("val", "test"):
        assert run.evaluate(part)["confusion"] == run.results["parts"][part]["confusion"]
        assert run.evaluate(part)["loss"] == pytest.approx(run.results["parts"][part]["loss"], rel=1e-5)


def test_model_file_says_what_it_holds(run: smallvit.Run) -> None:
    header = load_model(run.path / "model.safetensors").header
    assert header["class_names"] == ["cat", "dog"]
    assert header["model"] == "vit_pico"
    assert header["weights"] == {"which": "best", "ema": False, "epoch": 1}
    assert (header["img_size"], header["fit"]) == (16, "crop")


@pytest.mark.parametrize(
    "work",
    [
        lambda run, photos, **more: smallvit.evaluate(run.path, **more),
        lambda run, photos, **more: smallvit.predict(run.path, photos / "cat" / "000.png", **more),
        lambda run, photos, **more: smallvit.probe(run.path, linear=False, **more),
        lambda run, photos, **more: smallvit.diagnose(run.path, images=8, show_progress=False, **more),
    ],
    ids=["evaluate", "predict", "probe", "diagnose"],
)
def test_threads_are_those_asked_for(
    run: smallvit.Run, photos: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[..., Any]
) -> None:
    """And afterwards as many as before."""
    before, asked = torch.get_num_threads(), []
    really = torch.set_num_threads
    monkeypatch.setattr(torch, "set_num_threads", lambda count: (asked.append(count), really(count)))
    work(run, photos, threads=3)
    assert asked[0] == 3 and torch.get_num_threads() == before
    asked.clear()
    work(run, photos)
    assert 3 not in asked


LOOKS: list[Callable[..., Any]] = [
    lambda run, photos, device: smallvit.evaluate(run.path, device=device),
    lambda run, photos, device: smallvit.predict(run.path, photos / "cat" / "000.png", device=device),
    lambda run, photos, device: smallvit.probe(run.path, linear=False, device=device),
    lambda run, photos, device: smallvit.diagnose(run.path, images=8, show_progress=False, device=device),
    lambda run, photos, device: run.predictor(device),
]


@pytest.mark.parametrize("look", LOOKS, ids=["evaluate", "predict", "probe", "diagnose", "predictor"])
def test_a_device_that_is_not_there_is_an_error_where_it_is_asked_for(
    run: smallvit.Run, photos: Path, look: Callable[..., Any]
) -> None:
    with pytest.raises(
        smallvit.UsageError, match=r"device 'toaster' cannot be used here: .* \(choices: auto, cpu, cuda"
    ):
        look(run, photos, "toaster")


def test_auto_is_the_kind_of_device_of_the_run_or_the_cpu(run: smallvit.Run, tmp_path: Path) -> None:
    assert device_for("auto", run) == torch.device("cpu")
    elsewhere = smallvit.Run(shutil.copytree(run.path, tmp_path / "b"))
    tree = elsewhere.read("env.json")
    for trained_on in ("cuda:1", "meta"):
        elsewhere.write("env.json", tree | {"device": trained_on})
        kind = trained_on.partition(":")[0]
        is_here = kind != "cuda" or torch.cuda.is_available()
        assert device_for("auto", elsewhere) == torch.device(kind if is_here else "cpu")
    assert device_for("cpu", elsewhere) == torch.device("cpu")


# ---- predict -----------------------------------------------------------------------------------------


def test_one_file_as_text_as_path_and_in_a_list(run: smallvit.Run, photos: Path) -> None:
    file = photos / "dog" / "001.png"
    (expected,) = run.predict(file)
    assert expected.file == str(file)
    assert run.predict(str(file)) == [expected]
    assert smallvit.predict(run.path, str(file)) == [expected]
    assert smallvit.predict(run.path, [file]) == [expected]
    assert smallvit.predict(run.path / "model.safetensors", file) == [expected]


def test_permuting_the_files_only_permutes_the_answers(run: smallvit.Run, photos: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.png").touch()
    files = [*sorted(photos.rglob("*.png")), tmp_path / "broken.png", tmp_path / "missing.png"] * 2  # over one batch
    answers = {str(file): answer for file, answer in zip(files, run.predict(*files), strict=True)}
    random.Random(0).shuffle(files)
    for file, answer in zip(files, run.predict(*files), strict=True):
        expected = answers[str(file)]
        assert (answer.file, answer.label, answer.problem) == (str(file), expected.label, expected.problem)
        assert answer.probability == pytest.approx(expected.probability, abs=2e-6)


def test_unreadable_files_are_answers_too(run: smallvit.Run, photos: Path, tmp_path: Path) -> None:
    bad, good, missing = run.predict(__file__, photos / "cat" / "000.png", tmp_path / "missing.png")
    assert (bad.label, bad.probability) == (None, None)
    assert bad.problem.startswith("not a readable image")
    assert missing.problem == "No such file or directory"
    assert good.problem == ""
    assert good.label in {"cat", "dog"}


def test_only_unreadable_files(run: smallvit.Run, tmp_path: Path) -> None:
    assert [answer.label for answer in run.predict(tmp_path / "a.png", tmp_path / "b.png")] == [None, None]


def test_folders_are_searched_and_hidden_files_left_out(run: smallvit.Run, tmp_path: Path) -> None:
    make_folder(tmp_path, {"b": 2, "a/deep": 1, ".thumbs": 1})
    noise_image("x").save(tmp_path / ".x.png")
    names = [Path(answer.file).relative_to(tmp_path).as_posix() for answer in run.predict(tmp_path)]
    assert names == ["a/deep/000.png", "b/000.png", "b/001.png"]
    with pytest.raises(DataError, match="no images below"):
        run.predict(make_folder(tmp_path / "empty", {"x": 0}))


def test_grey_files_for_a_colour_model(run: smallvit.Run, tmp_path: Path) -> None:
    Image.new("L", (40, 40), 90).save(tmp_path / "grey.png")
    Image.new("RGB", (40, 40), (90, 90, 90)).save(tmp_path / "colour.png")
    grey, colour = run.predict(tmp_path / "grey.png", tmp_path / "colour.png")
    assert (grey.label, grey.probability) == (colour.label, colour.probability)


# ---- errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: smallvit.train("digits", modle="x"), smallvit.UsageError, "unknown argument 'modle': did you mean model"),
        (lambda: smallvit.train("digits", model="vit_nanno"), smallvit.UsageError, "unknown model 'vit_nanno'"),
        (lambda: smallvit.train("digits", epochs=0), smallvit.UsageError, "--epochs 0: should be at least 1"),
        (lambda: smallvit.train("digits", budget="soon"), smallvit.UsageError, "'soon' is no duration"),
        (lambda: smallvit.train("digits", settings={"optimizer.lrr": 1}), smallvit.UsageError, "unknown key"),
        (lambda: smallvit.train("digits", val="test"), smallvit.UsageError, "never selects anything"),
        (lambda: smallvit.train("no/such/folder"), DataError, "no such folder or file"),
        (lambda: smallvit.train("digits", out=__file__), RunError, "is a file; --out takes a folder"),
        (lambda: smallvit.train_seeds("digits", seeds=1), smallvit.UsageError, "give at least 2"),
        (lambda: smallvit.Run("no/such/run"), RunError, "is not a run folder"),
        (lambda: smallvit.predict("no/such/run", "x.png"), RunError, "is not a run folder"),
        (lambda: smallvit.evaluate("no/such/run"), RunError, "is not a run folder"),
        (lambda: smallvit.resume("no/such/run"), RunError, "is not a run folder"),
    ],
)  # fmt: skip
def test_errors(
    call: Callable[[], object], error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(error, match=message) as caught:
        call()
    assert isinstance(caught.value, smallvit.SmallvitError)
    assert list(tmp_path.iterdir()) == []


def test_usage_error_is_a_value_error(run: smallvit.Run) -> None:
    with pytest.raises(ValueError, match=r"part 'dev' of .* holds no images: choices: train, val, test"):
        run.evaluate("dev")


# ---- the caller's process ----------------------------------------------------------------------------


@contextmanager
def nothing_global_changes() -> Iterator[None]:
    """Random streams of torch, numpy and Python, threads, default dtype, gradients, working folder."""

    def state() -> tuple[Any, ...]:
        return (
            torch.get_rng_state().tolist(), random.getstate(), [str(part) for part in np.random.get_state()],  # noqa: NPY002
            torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(),
            torch.are_deterministic_algorithms_enabled(), Path.cwd(),
        )  # fmt: skip

    before = state()
    yield
    assert state() == before


@pytest.fixture
def odd_state() -> Iterator[None]:
    """Nothing that a careless `manual_seed(0)` or `set_num_threads(1)` would leave behind."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(987654)
        torch.set_num_threads(3)
        yield
        torch.set_num_threads(threads)


@pytest.mark.usefixtures("odd_state")
def test_training_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    with nothing_global_changes():
        smallvit.train("digits", per_class=5, out=tmp_path / "a", **QUICK)


@pytest.mark.usefixtures("odd_state")
def test_using_a_run_leaves_the_process_as_it_was(run: smallvit.Run, photos: Path, tmp_path: Path) -> None:
    for use in (
        lambda: run.predict(photos / "cat"),
        lambda: run.evaluate(),
        lambda: smallvit.evaluate(run.path, data=photos),
        lambda: run.model(),
        lambda: run.predictor().probabilities(photos / "cat" / "000.png"),
        lambda: smallvit.resume(run.path, show_progress=False),
        lambda: smallvit.write_report([run], tmp_path / "report.html"),
    ):
        with nothing_global_changes():
            use()


@pytest.mark.usefixtures("odd_state")
def test_failing_leaves_the_process_as_it_was(tmp_path: Path) -> None:
    with nothing_global_changes(), pytest.raises(smallvit.UsageError):
        smallvit.train("digits", per_class=5, batch_size=400, out=tmp_path / "a", **QUICK)


# ---- the same again ----------------------------------------------------------------------------------


def test_the_seed_decides_every_bit_and_the_caller_decides_none(tmp_path: Path) -> None:
    def train(name: str, **more: Any) -> smallvit.Run:
        torch.manual_seed(len(name) + torch.initial_seed() % 1000)  # another stream each time
        return smallvit.train(
            "digits", per_class=5, out=tmp_path / name, mixup=0.5, drop_path=0.1, **{**QUICK, "epochs": 2}, **more
        )

    first, again, other = train("first"), train("again", seed=0), train("other", seed=1)
    assert weights(first) == weights(again)
    assert weights(first) != weights(other)
    assert first.results["parts"] == again.results["parts"]
    assert first.read("split.json") == other.read("split.json")  # the split has a seed of its own


def test_a_run_can_be_trained_again_from_its_folder(run: smallvit.Run, tmp_path: Path) -> None:
    from smallvit.listing.catalog import toml_page

    (tmp_path / "again.toml").write_text(toml_page(run.recipe, {}), encoding="utf-8")
    again = smallvit.train(recipe=tmp_path / "again.toml", out=tmp_path / "b", show_progress=False)
    assert again.recipe == run.recipe
    assert weights(again) == weights(run)

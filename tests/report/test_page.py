"""The page's content, through `write_report`, as a reader of the html sees it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from fabricated import DIGITS, HOSTILE
from safetensors.numpy import save_file

from smallvit import Run
from smallvit.errors import RunError
from smallvit.report import page as page_module
from smallvit.report.page import write_report
from smallvit.report.verdict import Verdict

MakeRun = Callable[..., Run]


class Reader(HTMLParser):
    """Tags with their attributes, and the visible text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(text)
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def read(runs: list[Run], out: Path, title: str = "My run") -> Reader:
    return Reader(write_report(runs, out, title).read_text(encoding="utf-8"))


def rewrite(run: Run, name: str, **changes: object) -> None:
    run.write(name, run.read(name) | changes)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "report.html"


def test_one_run_says_what_it_reached_and_how(make_run: MakeRun, out: Path) -> None:
    run = make_run()
    seen = read([run], out)
    result = run.results["parts"]["test"]
    assert f"vit_nano labels {100 * result['accuracy']:.1f}% of the 1,500 test images correctly" in seen.text
    assert "Beats the floors." in seen.text
    assert "points above the best simple method, k-NN on pixels (88.5%)" in seen.text
    for words in (
        "about 16 steps an epoch",
        "smallvit train photos/ --model vit_nano",
        "2.9.0",
        "2 files skipped",
    ):
        assert words in seen.text
    ids = {attributes["id"] for _, attributes in seen.tags if "id" in attributes}
    assert {"accuracy", "images", "training", "confusion", "classes", "mistakes", "recipe", "data"} <= ids
    assert {str(link["href"])[1:] for link in seen.all("a")} <= ids


@pytest.mark.parametrize(
    ("floors", "words"),
    [
        ((0.1, 0.97), "Does not beat the floors."),
        ((0.1, 0.93), "Too close to call."),
        ((0.1, 0.80), "Beats the floors."),
        ((), "No floors."),
    ],
)
def test_the_verdict_is_honest(make_run: MakeRun, out: Path, floors: tuple[float, ...], words: str) -> None:
    verdicts = ("Does not beat the floors.", "Too close to call.", "Beats the floors.", "No floors.")
    text = read([make_run(floors=floors)], out).text
    assert [verdict for verdict in verdicts if verdict in text] == [words]


def test_floors_of_the_same_images_are_drawn_once(make_run: MakeRun, out: Path) -> None:
    """Though each run is told how often it alone is right, and the floor alone."""
    runs = [make_run("a"), make_run("b")]
    for number, run in enumerate(runs):
        results = run.results
        for floor in results["floors"].values():
            floor |= {"n": 1500, "only_model": 100 + number, "only_floor": 10}
        (run.path / "results.json").write_text(json.dumps(results))
    text = read(runs, out).text
    assert "Beats the floors." in text and "k-NN on pixels (" not in text.replace("k-NN on pixels (88.5%)", "")


def test_a_floor_that_was_not_computed_is_named_and_does_not_count(make_run: MakeRun, out: Path) -> None:
    run = make_run(floors=(0.1,))
    floors = run.results["floors"] | {"knn": {"label": "k-NN on pixels", "accuracy": None, "why": "too many images"}}
    rewrite(run, "results.json", floors=floors)
    seen = read([run], out)
    assert "k-NN on pixels: not computed, too many images" in seen.text
    assert "the best simple method, majority class (10.0%)" in seen.text


@pytest.mark.parametrize(
    ("part", "words"), [("val", "Measured on validation images."), ("train", "Measured on training images.")]
)
def test_accuracy_on_seen_images_is_called_that(make_run: MakeRun, out: Path, part: str, words: str) -> None:
    assert words in read([make_run(part=part)], out).text


def test_a_run_that_nothing_judged_says_so(make_run: MakeRun, out: Path) -> None:
    run = make_run(val=False)
    rewrite(run, "results.json", evaluated_part=None, parts={}, floors={}, mistakes=[])
    seen = read([run], out)
    assert "Not measured. There was neither a test nor a validation part" in seen.text
    assert "1 min 31 s" in seen.text and "Class by class" not in seen.text


def test_the_kept_weights_are_marked_where_they_were_validated(make_run: MakeRun, out: Path) -> None:
    assert "weights that were kept" in read([make_run("a")], out).text
    run = make_run("b")
    rewrite(run, "results.json", weights={"which": "last", "ema": True, "epoch": 99})
    seen = read([run], out)
    assert "weights that were kept" not in seen.text
    assert "last, epoch 99, averaged" in seen.text


def test_a_comparison_speaks_instead_of_two_intervals(make_run: MakeRun, out: Path) -> None:
    """A paired test may find what overlapping intervals cannot: both on one page would contradict each other."""
    runs = [make_run("a", accuracy=0.9), make_run("b", model="resnet_nano", accuracy=0.97)]
    write_report(runs, out, "two", [Verdict("note", "Not decided", "Paired, they do not differ.")])
    text = out.read_text(encoding="utf-8")
    assert "Paired, they do not differ." in text and "is ahead." not in text and "No clear winner" not in text


def test_pretraining_below_the_floors_and_a_collapse(make_run: MakeRun, out: Path) -> None:
    run = make_run(floors=(0.1, 0.97))
    rewrite(run, "results.json", judged_by="k-NN", collapse="all features became alike")
    text = read([run], out).text
    assert "Features do not beat the floors." in text and "the simple method is the better choice" not in text
    assert "Collapsed." in text and "all features became alike." in text


def test_runs_on_other_images_have_no_winner(make_run: MakeRun, out: Path) -> None:
    other = make_run("b", model="resnet_nano", accuracy=0.97, names=[f"other {number}" for number in range(10)])
    text = read([make_run("a", accuracy=0.9), other], out).text
    assert "is ahead" not in text and "were not judged on the same images" in text


def test_two_models_share_what_they_share(make_run: MakeRun, out: Path) -> None:
    seen = read([make_run("a", accuracy=0.9), make_run("b", model="resnet_nano", accuracy=0.97)], out)
    assert "resnet_nano is ahead." in seen.text
    assert seen.text.count("about 16 steps an epoch") == 1
    assert sum("Example of class" in str(image["alt"]) for image in seen.all("img")) == 20
    labels = [str(svg["aria-label"]) for svg in seen.all("svg")]
    assert sum(label.startswith("Confusion matrix") for label in labels) == 2
    assert sum(label.startswith("Bar chart of accuracy") for label in labels) == 1
    assert sum(label.startswith("Bar chart of images per class") for label in labels) == 1


def test_what_was_said_before_the_start_is_said_again(make_run: MakeRun, out: Path) -> None:
    run = make_run("a")
    rewrite(run, "recipe.json", cautions=["300 training images: try <folds>"])
    assert "Said before the start. 300 training images: try <folds>." in read([run], out).text


def test_seeds_are_summed_up_by_their_mean(make_run: MakeRun, out: Path) -> None:
    runs = [make_run(f"s{seed}", seed=seed) for seed in range(3)]
    for run, accuracy in zip(runs, (0.90, 0.92, 0.94), strict=True):
        result = run.results["parts"]["test"] | {
            "accuracy": accuracy,
            "interval": [accuracy - 0.01, accuracy + 0.01],
        }
        rewrite(run, "results.json", parts={"test": result})
    seen = read(runs, out)
    # t(2 degrees of freedom, 97.5%) = 4.3027; 4.3027 * 0.02 / sqrt(3) = 0.0497
    assert "Over 3 seeds, vit_nano labels 92.0% of the 1,500 test images correctly on average" in seen.text
    assert "95% t-interval 87.0% to 97.0%" in seen.text
    assert "Too close to call." in seen.text  # each run alone would beat the floor of 88.5%
    for name in ("seed 0", "seed 1", "seed 2"):
        assert name in seen.text


def test_many_classes_list_the_worst_first(make_run: MakeRun, out: Path) -> None:
    names = [f"flower {number:03d}" for number in range(102)]
    run = make_run(names=names, accuracy=0.6)
    seen = read([run], out)
    per_class = run.results["parts"]["test"]["per_class"]
    worst = min(per_class, key=lambda entry: entry["accuracy"])["accuracy"]
    table = seen.text[seen.text.index("Class by class") :]
    first = re.search(r"flower \d+ 14 ([\d.]+)%", table)
    assert first and first[1] == f"{100 * worst:.1f}"
    assert "82 more classes" in seen.text
    assert out.stat().st_size < 2_000_000


def test_a_class_without_images_has_no_accuracy(make_run: MakeRun, out: Path) -> None:
    run = make_run()
    result = run.results["parts"]["test"]
    result["per_class"][3] |= {"n": 0, "accuracy": None, "interval": [0.0, 1.0]}
    result["confusion"][3] = [0] * 10
    rewrite(run, "results.json", parts={"test": result})
    assert "3 0 –" in read([run], out).text


def test_hostile_names_stay_text(make_run: MakeRun, out: Path) -> None:
    run = make_run(names=HOSTILE, accuracy=0.7)
    rewrite(run, "recipe.json", command='smallvit train "</pre><script>alert(3)</script>"')
    seen = read([run], out, title="<script>alert(4)</script>")
    assert not seen.all("script")
    assert not [attributes for _, attributes in seen.tags if any(name.startswith("on") for name in attributes)]
    for name in HOSTILE[:3]:
        assert name in seen.text
    assert "$x_1$" in seen.text
    svg_text = out.read_text(encoding="utf-8").split("<svg")[1:]
    assert any("&lt;script&gt;" in svg and "$x_1$" in svg for svg in svg_text)


def test_a_zero_byte_in_a_name_makes_no_page_unreadable(make_run: MakeRun, out: Path) -> None:
    assert "ok" in read([make_run(names=["ok", "bad\x00 name"])], out).text


def test_text_that_no_file_can_hold_is_refused(make_run: MakeRun, out: Path) -> None:
    with pytest.raises(RunError, match=r"split\.json"):
        read([make_run(names=["ok", "bad\udcff name"])], out)


@pytest.mark.parametrize("about", [{}, {"names": HOSTILE}, {"channels": 3, "side": 96}])
def test_the_page_stands_alone(make_run: MakeRun, out: Path, about: dict[str, object]) -> None:
    seen = read([make_run(**about)], out)
    for _, attributes in seen.tags:
        for name, value in attributes.items():
            if name in ("src", "href", "xlink:href", "srcset", "data", "action"):
                assert str(value).startswith(("data:image/png;base64,", "#")), (name, value)
    assert not {"script", "link", "iframe", "object", "base"} & {tag for tag, _ in seen.tags}
    assert "http://" not in out.read_text(encoding="utf-8") and "https://" not in out.read_text(encoding="utf-8")
    assert "@import" not in out.read_text(encoding="utf-8")


def test_figures_and_images_are_described_and_ids_are_unique(make_run: MakeRun, out: Path) -> None:
    seen = read([make_run("a"), make_run("b", model="resnet_nano")], out)
    assert all(svg.get("role") == "img" and svg.get("aria-label") for svg in seen.all("svg"))
    assert all(image.get("alt") for image in seen.all("img"))
    ids = [attributes["id"] for _, attributes in seen.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_the_same_folder_gives_the_same_page(make_run: MakeRun, tmp_path: Path) -> None:
    runs = [make_run()]
    first, second = (write_report(runs, tmp_path / name, "x").read_bytes() for name in ("1.html", "2.html"))
    assert first == second


@pytest.mark.parametrize("keep", ["none", "empty", "no file"])
def test_a_run_without_images_has_a_page(make_run: MakeRun, out: Path, keep: str) -> None:
    run = make_run(images=keep == "none")
    if keep == "empty":
        save_file({"examples": np.zeros((0, 1, 8, 8), np.uint8)}, run.path / "images.safetensors")
    if keep == "none":
        rewrite(run, "results.json", mistakes=[], examples=[])
    seen = read([run], out)
    assert not seen.all("img")
    assert "The worst mistakes" not in seen.text


def test_a_broken_image_file_is_an_error_with_its_name(make_run: MakeRun, out: Path) -> None:
    run = make_run()
    (run.path / "images.safetensors").write_bytes(b"no tensors")
    with pytest.raises(RunError, match=r"images\.safetensors"):
        write_report([run], out, "x")


def test_no_validation_part_and_no_metrics(make_run: MakeRun, out: Path) -> None:
    run = make_run(val=False)
    assert "Without a validation part" in read([run], out).text
    (run.path / "metrics.jsonl").unlink()
    assert "How training went" not in read([run], out).text


def test_large_images_are_dropped_before_the_page_grows(
    make_run: MakeRun, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(channels=3, side=200)
    noise = np.random.default_rng(0).integers(0, 256, (20, 3, 200, 200), dtype=np.uint8)
    save_file({"examples": noise, "mistakes": noise}, run.path / "images.safetensors")
    monkeypatch.setattr(page_module, "IMAGE_BYTES", 600_000)
    seen = read([run], out)
    assert 0 < len(seen.all("img")) < 40
    assert "more left out to keep this page small" in seen.text
    assert out.stat().st_size < 900_000
    monkeypatch.setattr(page_module, "PAGE_BYTES", 300_000)
    assert not read([run], out).all("img")


def test_a_resumed_run_is_drawn_once(make_run: MakeRun, out: Path) -> None:
    """Steps logged a second time after a crash replace the first ones; a line cut short ends the file."""
    run = make_run()
    before = write_report([run], out, "x").read_text()
    lines = (run.path / "metrics.jsonl").read_text().splitlines()
    (run.path / "metrics.jsonl").write_text("\n".join([*lines, *lines[-9:], lines[0][:20]]))
    assert write_report([run], out, "x").read_text() == before


def test_runs_in_folders_of_the_same_name_can_be_told_apart(make_run: MakeRun, tmp_path: Path, out: Path) -> None:
    run = make_run("x/a")
    shutil.copytree(run.path, tmp_path / "y/a")
    text = read([run, Run(tmp_path / "y/a")], out).text
    assert "a (1)" in text and "a (2)" in text


def test_seeds_of_two_ways_to_train_one_model_go_by_their_folders(make_run: MakeRun, out: Path) -> None:
    runs = [
        make_run(f"{way}/seed-{seed}", seed=seed, epochs=epochs)
        for way, epochs in (("short", 20), ("long", 40))
        for seed in (0, 1)
    ]
    text = read(runs, out).text
    for way in ("short", "long"):
        assert f"{way}, mean of 2 seeds" in text and f"Over 2 seeds, {way} labels" in text
        assert f"{way}, seed 0" in text and f"{way}, seed 1" in text


def test_arms_and_folds_of_a_group_are_summed_up(make_run: MakeRun, tmp_path: Path, out: Path) -> None:
    axes = {f"{arm}-{fold}": {"arm": arm, "fold": fold} for arm in ("mild", "strong") for fold in (0, 1)}
    runs = [make_run(f"study/{name}", epochs=20 + number) for number, name in enumerate(axes)]
    (tmp_path / "study" / "group.json").write_text(json.dumps({"members": list(axes), "axes": axes}))
    text = read(runs, out).text
    for arm in ("mild", "strong"):
        assert f"{arm}, mean of 2 folds" in text and f"Over 2 folds, {arm} labels" in text
        assert f"{arm}, fold 0" in text and f"{arm}, fold 1" in text


def test_an_unfinished_run_is_refused(make_run: MakeRun, out: Path) -> None:
    run = make_run()
    (run.path / "results.json").unlink()
    with pytest.raises(RunError, match="no results yet"):
        write_report([run], out, "x")
    with pytest.raises(RunError, match="at least one run"):
        write_report([], out, "x")
    assert not out.exists()


def test_reading_needs_no_torch_and_importing_nothing_heavy(make_run: MakeRun, out: Path) -> None:
    run = make_run(names=DIGITS)
    code = (
        "import sys, json; from pathlib import Path; from smallvit.report.page import write_report\n"
        "early = {'matplotlib', 'jinja2', 'scipy', 'PIL', 'torch'} & set(sys.modules)\n"
        f"from smallvit.runs.folder import RunFolder; write_report([RunFolder({str(run.path)!r})], Path({str(out)!r}), 'x')\n"
        "print(json.dumps([sorted(early), 'torch' in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [[], False]

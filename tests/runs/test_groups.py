"""A run whose images come in groups: its intervals know of them, and all that tells of them says so."""

from __future__ import annotations

import html
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file

import smallvit
from helpers import ends_well, noise_image, run_here
from smallvit.evaluation.statistics import clustered_difference, clustered_interval, mcnemar, paired_share, wilson
from smallvit.runs.comparison import GROUPED, compare, open_sides

PATIENTS, EACH = 12, 5


def draw_patients(root: Path, first: int = 0) -> Path:
    """Each patient is one picture several times over: what is said of one image is said of all."""
    for patient in range(first, first + PATIENTS):
        folder = root / ("cat" if patient % 2 else "dog")
        folder.mkdir(parents=True, exist_ok=True)
        for number in range(EACH):
            noise_image(f"patient {patient}").save(folder / f"p{patient}_{number}.png")
    return root


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos, and a run on them with its test part in whole groups."""
    home = tmp_path_factory.mktemp("groups")
    smallvit.train(
        draw_patients(home / "photos"), out=home / "run", groups=r"p(\d+)_", test=0.5, model="vit_pico", epochs=1,
        threads=1, show_progress=False,
    )  # fmt: skip
    return home


def groups_and_right(run: smallvit.Run) -> tuple[np.ndarray, np.ndarray]:
    """Of the test images: the patient of each, and whether it is labelled correctly."""
    from safetensors.torch import load_file

    stored = load_file(run.path / "predictions.safetensors")
    files = sorted((run.path.parent / "photos").rglob("*.png"), key=lambda file: (file.parent.name, file.name))
    patients = np.array([int(files[row].name[1:].split("_")[0]) for row in stored["rows"].tolist()])
    return patients, (stored["probabilities"].argmax(1) == stored["labels"]).double().numpy()


def test_the_interval_of_a_run_is_that_of_its_groups(home: Path) -> None:
    run = smallvit.Run(home / "run")
    judged = run.results["parts"]["test"]
    patients, right = groups_and_right(run)
    assert 0 < judged["accuracy"] < 1, "else there is nothing to vary"
    assert judged["groups"] == len(set(patients)) < judged["n"]
    low, high = wilson(int(right.sum()), len(right))
    assert judged["interval"] == pytest.approx(clustered_interval(right, patients))
    assert judged["interval"][0] < low and high < judged["interval"][1], "images of a patient count as independent"
    told = smallvit.evaluate(run.path)
    assert told["interval"] == pytest.approx(judged["interval"]) and told["groups"] == judged["groups"]
    for row in told["per_class"]:
        plain = wilson(round(row["accuracy"] * row["n"]), row["n"])
        assert row["interval"][1] - row["interval"][0] >= plain[1] - plain[0] - 1e-9


def test_terminal_report_and_card_say_so(home: Path, tmp_path: Path) -> None:
    run = smallvit.Run(home / "run")
    judged = run.results["parts"]["test"]
    said = f"its {judged['n']} images come in {judged['groups']} groups"
    assert said in " ".join(ends_well(run_here("evaluate", run.path)).out.split())
    assert said in " ".join(ends_well(run_here("resume", run.path)).out.split())
    page = html.unescape((run.path / "report.html").read_text(encoding="utf-8"))
    assert "Those of models also know that images of one group are not independent." in page
    assert f"{judged['n']} test images of {judged['groups']} groups" in page
    card = (run.export("timm", tmp_path / "timm").path / "README.md").read_text(encoding="utf-8")
    assert said in card


def test_other_images_are_grouped_by_their_names_where_these_fit(home: Path, tmp_path: Path) -> None:
    others = draw_patients(tmp_path / "others", first=PATIENTS)
    assert smallvit.evaluate(home / "run", data=others)["groups"] == PATIENTS
    for file in others.rglob("*.png"):
        file.rename(file.with_name(file.name.replace("_", "-")))
    told = ends_well(run_here("evaluate", home / "run", "--data", others))
    assert "of the run does not fit the names of these files" in told.err and "groups, and that" not in told.out


def without_groups(run: Path) -> None:
    """As a run of an earlier version stored its answers, and its floors."""
    file = run / "predictions.safetensors"
    with safe_open(file, "np") as stored:
        metadata, tensors = (
            stored.metadata(),
            {name: stored.get_tensor(name) for name in ("rows", "labels", "probabilities")},
        )
    save_file(tensors, file, metadata)
    results = smallvit.Run(run).results
    for floor in results["floors"].values():
        del floor["ahead_over_groups"], floor["p_over_groups"]
    (run / "results.json").write_text(json.dumps(results))


def test_a_comparison_by_images_counts_groups(home: Path, tmp_path: Path) -> None:
    run = smallvit.Run(home / "run")
    patients, right = groups_and_right(run)
    shutil.copytree(run.path, tmp_path / "other")
    file = tmp_path / "other" / "predictions.safetensors"
    with safe_open(file, "np") as stored:
        metadata, tensors = stored.metadata(), {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    one = patients == patients[right.astype(bool)][0]
    tensors["probabilities"][one] = (
        1 - np.eye(tensors["probabilities"].shape[1])[tensors["labels"][one]]
    )  # wrong of one patient
    save_file(tensors, file, metadata)
    told = " ".join(ends_well(run_here("compare", run.path, tmp_path / "other")).out.split())
    assert f"t test over their {len(set(patients))} groups, p" in told and "come in groups" not in told
    (found,) = compare(open_sides([run.path, tmp_path / "other"]))
    assert found.difference > 0 and found.p > 0.05, "one patient tells nothing, whatever the number of images"
    page = html.unescape((run.path / "report.html").read_text(encoding="utf-8"))
    assert "McNemar" not in page


def test_a_comparison_of_older_runs_says_what_it_does_not_know(home: Path, tmp_path: Path) -> None:
    for name in ("one", "other"):
        without_groups(Path(shutil.copytree(home / "run", tmp_path / name)))
    told = ends_well(run_here("compare", tmp_path / "one", tmp_path / "other", "-o", tmp_path / "c.html")).out
    assert GROUPED in " ".join(told.split())
    assert GROUPED in html.unescape((tmp_path / "c.html").read_text(encoding="utf-8"))
    (found,) = compare(open_sides([tmp_path / "one", tmp_path / "other"]))
    assert found.caution == GROUPED


def test_groups_of_a_simulated_set_are_held_as_often_as_promised() -> None:
    """Patients differ, and a model is right about all images of one or about hardly any."""
    from smallvit.evaluation.metrics import summary

    draw, held = np.random.default_rng(0), {"groups": 0, "images": 0}
    labels, groups = torch.arange(400) % 2, np.arange(400) // 20
    for _ in range(200):
        right = draw.random(400) < np.repeat(draw.beta(1.4, 0.6, 20), 20)
        logits = torch.nn.functional.one_hot(torch.where(torch.from_numpy(right), labels, 1 - labels), 2).float()
        for name, groups_N in (("groups", groups), ("images", None)):
            low, high = summary(logits, labels, ("cat", "dog"), groups_N=groups_N)["interval"]
            held[name] += low <= 0.7 <= high
    assert held["groups"] > 180 > 140 > held["images"]


def test_two_models_that_are_equally_good_are_rarely_told_apart() -> None:
    """Which of the two is right depends on the patient."""
    draw, told = np.random.default_rng(0), {"groups": 0, "images": 0}
    groups = np.arange(400) // 20
    for _ in range(300):
        first, second = (draw.random(400) < np.repeat(draw.beta(2, 1, 20), 20) for _ in range(2))
        difference, low, high, p = clustered_difference(first, second, groups)
        assert low <= difference <= high and (p < 0.05) == (low > 0 or high < 0)
        told["groups"] += p < 0.05
        told["images"] += mcnemar(int((first & ~second).sum()), int((second & ~first).sum())) < 0.05
    assert told["groups"] < 27 < 90 < told["images"]  # 15 of 300 are promised


def test_what_varies_nowhere_is_known_as_well_as_by_so_many_images() -> None:
    right, wrong, groups = np.ones(40, bool), np.zeros(40, bool), np.arange(40) // 10
    assert clustered_difference(right, right, groups) == (*paired_share(0, 0, 4), 1.0)
    assert clustered_difference(right, wrong, groups) == (*paired_share(4, 0, 4), mcnemar(4, 0))
    assert clustered_difference(wrong, right, groups) == (*paired_share(0, 4, 4), mcnemar(0, 4))
    assert clustered_difference(right, wrong, np.zeros(40, int)) == (1.0, -1.0, 1.0, 1.0)

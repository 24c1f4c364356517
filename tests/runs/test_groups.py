"""A run whose images come in groups: its intervals know of them, and all that tells of them says so."""

from __future__ import annotations

import html
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import smallvit
from helpers import ends_well, noise_image, run_here
from smallvit.evaluation.statistics import clustered_interval, wilson
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


def test_a_comparison_by_images_says_what_it_does_not_know(home: Path, tmp_path: Path) -> None:
    shutil.copytree(home / "run", tmp_path / "other")
    told = ends_well(run_here("compare", home / "run", tmp_path / "other", "-o", tmp_path / "c.html")).out
    assert GROUPED in " ".join(told.split())
    assert GROUPED in html.unescape((tmp_path / "c.html").read_text(encoding="utf-8"))
    (found,) = compare(open_sides([home / "run", tmp_path / "other"]))
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

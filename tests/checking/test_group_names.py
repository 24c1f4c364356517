"""Names that look like groups: several schemes that are, and many that are not."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from helpers import ends_well, make_folder, run_here
from smallvit.checking.check import check
from smallvit.checking.group_names import look_for_groups

Scheme = Callable[[str, int], str]  # of class and number of the image in it, to a path
CLASSES = ("cat", "dog", "owl")


def named(scheme: Scheme, each: int = 24) -> tuple[list[str], list[str]]:
    pairs = [(scheme(klass, number), klass) for klass in CLASSES for number in range(each)]
    return [name for name, _ in pairs], [klass for _, klass in pairs]


GROUPED: dict[str, tuple[Scheme, int]] = {  # and how many groups there are
    "patient01_003": (lambda c, i: f"{c}/patient{i // 4:02d}_{i % 4:03d}.png", 6),
    "Patient-7-scan2": (lambda c, i: f"{c}/Patient-{i // 4}-scan{i % 4}.png", 6),
    "videoA_frame12": (lambda c, i: f"{c}/video{'ABCD'[i // 6]}_frame{i}.jpg", 4),
    "sceneX-1": (lambda c, i: f"{c}/scene{'WXYZ'[i // 6]}-{i % 6}.jpg", 4),
    "sub-01_ses": (lambda c, i: f"{c}/sub-{i // 3:02d}_run-{i % 3}_bold.png", 8),
    "subject12 among parts": (lambda c, i: f"train/{c}/subject{i // 3}/{i}.png", 8),
    "p01_3": (lambda c, i: f"{c}/p{i // 4:02d}_{i % 4}.png", 6),
    "0012-04": (lambda c, i: f"{c}/{CLASSES.index(c) * 100 + i // 4:04d}-{i % 4:02d}.png", 18),
    "copies of an image": (lambda c, i: f"{c}/{c}{i // 4:03d}_aug{i % 4}.png", 18),
    "folders below the class": (lambda c, i: f"{c}/{CLASSES.index(c)}{i // 4:03d}/{i % 4}.png", 18),
}
PLAIN: dict[str, Scheme] = {
    "img_0001": lambda c, i: f"{c}/img_{i:04d}.jpg",
    "numbers over all classes": lambda c, i: f"{c}/img_{24 * CLASSES.index(c) + i:04d}.jpg",
    "cat.12": lambda c, i: f"{c}/{c}.{i}.jpg",
    "001": lambda c, i: f"{c}/{i:03d}.png",
    "DSC01234": lambda c, i: f"{c}/DSC{1000 + 7 * i}.JPG",
    "a date and a time": lambda c, i: f"{c}/IMG_202301{1 + i % 4:02d}_{100000 + 61 * i + 7919 * CLASSES.index(c)}.jpg",
    "the class in the name": lambda c, i: f"{c}/n0144{CLASSES.index(c)}764_{i}.JPEG",
    "a word of ours as the class": lambda c, i: f"{c}/scene_{c}_{i}.jpg",
    "a word of ours, each once": lambda c, i: f"{c}/sample/subject_{c[0]}{i}.jpg",
    "frames of one film": lambda c, i: f"{c}/frame_{i:05d}.png",
    "hashes": lambda c, i: f"{c}/{sha256(f'{c}{i}'.encode()).hexdigest()[:8]}.png",
    "breeds": lambda c, i: f"{c}/{('Abyssinian', 'Bengal', 'Birman', 'Bombay', 'Sphynx', 'Pug')[i % 6]}_{i // 6}.jpg",
    "parts of a set": lambda c, i: f"{c}/batch{i // 4}_{i % 4}.png",
    "suitcase12": lambda c, i: f"{c}/suitcase{i}.png",
    "sizes": lambda c, i: f"{c}/32x32_{i:03d}.png",
}


@pytest.mark.parametrize("scheme", GROUPED)
def test_groups_are_seen_and_the_expression_finds_them(scheme: str) -> None:
    make, groups = GROUPED[scheme]
    names, labels = named(make)
    found = look_for_groups(names, labels)
    assert found, scheme
    assert len(set(found.groups_N)) == groups
    assert [m and m[1] for m in (re.search(found.pattern, name) for name in names)] == found.groups_N


@pytest.mark.parametrize("scheme", PLAIN)
def test_numbering_is_no_group(scheme: str) -> None:
    assert look_for_groups(*named(PLAIN[scheme])) is None


def test_check_warns_unless_groups_are_given(tmp_path: Path) -> None:
    make_folder(tmp_path / "scans", {"ill": 24, "well": 24})
    for number, path in enumerate(sorted((tmp_path / "scans").rglob("*.png"))):
        path.rename(path.with_name(f"patient{number // 4:02d}_{number % 4}.png"))
    report = check(str(tmp_path / "scans"), fast=True, model="vit_pico", epochs=1, show_progress=False)
    (warning,) = [problem for problem in report.problems if problem.code == "groups-in-names"]
    assert "12 groups of up to 4 images" in warning.message and warning.severity == "warning"
    (pattern,) = re.findall(r"--groups '(.*?)'", warning.advice)
    words = ("check", tmp_path / "scans", "--fast", "--model", "vit_pico", "--epochs", "1", "--groups", pattern)
    assert "groups-in-names" not in ends_well(run_here(*words)).out

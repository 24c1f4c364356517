"""Bad images and fuzzed files: every one is used, or refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from bad_images import build, drop_other_channels, read_all, through_app, through_commands
from corpus import corpus
from fuzz import fuzz
from page import PAGE, renewed
from readers import READERS


def test_the_page_has_the_figures_that_are_stored() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert renewed(text) == text, "python benchmarks/reliability/page.py writes them"


def test_every_bad_image_is_used_as_pillow_reads_it_or_listed(tmp_path: Path) -> None:
    paths = list(corpus(tmp_path))
    counts = read_all(paths)
    assert len(paths) >= 300
    assert {outcome for kinds in counts.values() for outcome in kinds} == {"used", "listed"}, counts


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", READERS)
def test_a_reader_ends_in_its_own_kind_of_error(name: str, tmp_path: Path) -> None:
    found = fuzz(name, 40, 0, tmp_path)
    assert found["cases"] >= 40 and found["wrong"] == {}


@pytest.mark.slow
def test_bad_images_through_the_commands(tmp_path: Path) -> None:
    paths = build(tmp_path / "photos", 3500)
    drop_other_channels(paths)
    told = through_commands(tmp_path / "photos", tmp_path)
    assert not any(found["crashed"] for found in told.values()), told
    assert told["train"]["status"] == told["pretrain"]["status"] == 0 and told["train"]["listed"] > 300
    assert told["predict"]["listed"] >= told["train"]["listed"]
    shown = through_app(tmp_path / "run", paths)
    assert not shown["crashed"] and shown["listed"] > 300 and shown["answered"] > 100, shown

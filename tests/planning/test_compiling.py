"""torch.compile by itself: tried where it is a small part of the run, kept where a measured step shows that it pays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import smallvit
from smallvit.planning import compiling
from smallvit.planning.choices import Choices
from smallvit.planning.compiling import resolve_compile
from smallvit.planning.plan import Prepared, prepare
from smallvit.training.budget import StepCost
from smallvit.training.compiled import COMPILERS, TORCHS_FOLDER

SMALL: dict[str, Any] = {
    "data": "digits", "per_class": 4, "threads": 1, "model": "vit_pico", "epochs": 1, "settings": {"precision": "fp32"},
}  # fmt: skip
needs_compiler = pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="torch.compile needs a compiler")
PLAIN = StepCost((1, 1), (0.1, 0.1))
LONG = 3600.0


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("SMALLVIT_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "compiled").mkdir(parents=True)
    before = os.environ.pop(TORCHS_FOLDER, None)
    yield
    os.environ.pop(TORCHS_FOLDER, None)
    if before is not None:
        os.environ[TORCHS_FOLDER] = before


@pytest.fixture(scope="module")
def prepared() -> Prepared:
    return prepare(smallvit.make_recipe(**SMALL))


def opened(prepared: Prepared, **changed: Any) -> Choices:
    """The choices of a plan with `compile` still open."""
    return Choices(prepared.plan.recipe.model_copy(update={"compile": "auto", **changed}))


def steps_take(monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[str]:
    """Compiled ones, as they would be measured; returns what was tried."""
    tried: list[str] = []

    def measured(training: Any, *_: Any) -> float:
        assert training.recipe.compile is True
        tried.append("compiled")
        return seconds

    monkeypatch.setattr(compiling, "measure_step", measured)
    monkeypatch.setattr(compiling, "has_compiler", lambda: True)
    return tried


def why(choices: Choices) -> str:
    [said] = [choice.why for choice in choices.made if choice.key == "compile"]
    return said


def test_a_short_run_is_not_compiled_and_a_given_value_stays(prepared: Prepared) -> None:
    assert prepared.plan.recipe.compile is False
    assert not [choice for choice in prepared.plan.choices if choice.key == "compile"], "nobody asked"
    short = prepare(smallvit.make_recipe(**{**SMALL, "settings": {"precision": "fp32", "compile": "auto"}}))
    assert short.plan.recipe.compile is False
    [said] = [choice.why for choice in short.plan.choices if choice.key == "compile"]
    assert "too much of about" in said or "needs a C++ compiler" in said


@pytest.mark.parametrize(("compiled", "pays"), [(0.08, True), (0.095, False)])
def test_a_long_run_keeps_what_pays(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, compiled: float, pays: bool
) -> None:
    steps_take(monkeypatch, compiled)
    choices = opened(prepared)
    cost = resolve_compile(choices, prepared.training, PLAIN, LONG)
    assert choices["compile"] is pays and cost.seconds[1] == (compiled if pays else 0.1)
    assert f"{1000 * compiled:.0f} ms compiled, 100 ms as it is" in why(choices)


def test_what_was_kept_is_tried_in_shorter_runs_of_the_same_kind(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = steps_take(monkeypatch, 0.05)
    minutes = 200.0  # the try may be a twentieth of them
    first = opened(prepared)
    resolve_compile(first, prepared.training, PLAIN, minutes)
    assert not tried and first["compile"] is False and "60 s, too much" in why(first)
    resolve_compile(opened(prepared), prepared.training, PLAIN, LONG)
    again = opened(prepared)
    resolve_compile(again, prepared.training, PLAIN, minutes)
    assert len(tried) == 2 and again["compile"] is True
    other = opened(prepared, batch_size=12)
    resolve_compile(other, prepared.training, PLAIN, minutes)
    assert len(tried) == 2 and other["compile"] is False, "another batch is compiled anew"


def test_a_compiler_that_fails_is_told_and_the_run_goes_on(prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> None:
    steps_take(monkeypatch, 0.05)

    def fails(*_: Any) -> float:
        raise RuntimeError("C++ compile error\nand much more")

    monkeypatch.setattr(compiling, "measure_step", fails)
    choices = opened(prepared)
    assert resolve_compile(choices, prepared.training, PLAIN, LONG) == PLAIN
    assert choices["compile"] is False and why(choices) == "it does not work here: C++ compile error"
    monkeypatch.setattr(compiling, "has_compiler", lambda: False)
    without = opened(prepared)
    resolve_compile(without, prepared.training, PLAIN, LONG)
    assert without["compile"] is False and "needs a C++ compiler" in why(without)


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache" / "compiled").chmod(0o777)
    with pytest.raises(smallvit.UsageError, match="others than you may write to it"):
        prepare(smallvit.make_recipe(**{**SMALL, "settings": {"precision": "fp32", "compile": True}}))


@needs_compiler
@pytest.mark.slow
def test_a_compiled_run_is_judged_uncompiled_and_is_the_same_when_it_is_trained_again(tmp_path: Path) -> None:
    flags = {**SMALL, "settings": {"precision": "fp32", "compile": True, "model.kwargs.depth": 1}}
    for name in ("first", "again"):
        smallvit.train(**flags, out=tmp_path / name)
    first, again = (load_file(tmp_path / name / "model.safetensors") for name in ("first", "again"))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any((tmp_path / "cache" / "compiled").rglob("*.so")), "what was compiled is kept"


def test_a_folder_of_torchs_own_needs_none_of_ours(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    steps_take(monkeypatch, 0.05)
    (tmp_path / "cache" / "compiled").rmdir()
    monkeypatch.setenv(TORCHS_FOLDER, str(tmp_path / "inductor"))
    choices = opened(prepared)
    resolve_compile(choices, prepared.training, PLAIN, LONG)
    assert choices["compile"] is True, why(choices)

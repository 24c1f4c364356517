"""A machine that announces units for bf16 and does not let them be used ends the process: that is found out, and told."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import smallvit
from smallvit.doctor import doctor
from smallvit.errors import UsageError
from smallvit.planning.tryout import step_seconds
from smallvit.training import bf16

SET: dict[str, Any] = {
    "data": "digits",
    "model": "conv_nano",
    "img_size": 16,
    "per_class": 4,
    "epochs": 1,
    "batch_size": 8,
    "threads": 1,
}
ENDED = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")


@pytest.fixture
def announced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    """A processor that says that it has the units; whether the system lets them be used is up to the test."""
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: True)
    monkeypatch.setattr(bf16, "LIMIT", "LIMIT_OF_THE_TESTS")  # the true one protects this process
    monkeypatch.setenv("SMALLVIT_CACHE", str(tmp_path / "cache"))
    bf16._ends_a_process.cache_clear()
    yield monkeypatch
    bf16._ends_a_process.cache_clear()


def test_a_processor_that_ends_the_process_is_not_asked_for_bf16(announced: pytest.MonkeyPatch, tmp_path: Path) -> None:
    announced.setattr(bf16, "TRY", ENDED)
    assert bf16.why_not("cpu") and not bf16.has_fast_bf16("cpu")
    assert bf16.why_not("cuda:0") == "", "of the CPU alone"
    tried: list[str] = []

    def step(training: Any, threads: int, precision: str) -> float:
        tried.append(precision)
        return step_seconds(training, threads, precision)

    announced.setattr("smallvit.planning.tryout.step_seconds", step)
    run = smallvit.train(**SET, out=tmp_path / "run", show_progress=False)
    why = {choice["key"]: choice["why"] for choice in run.read("recipe.json")["choices"]}
    assert run.recipe.precision == "fp32" and set(tried) == {"fp32"}
    assert "does not let them be used" in why["precision"] and "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16" in why["precision"]
    with pytest.raises(UsageError, match=r"ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 .*--precision fp32"):
        smallvit.train(**SET, precision="bf16", out=tmp_path / "asked", show_progress=False)
    found = {finding.topic: finding for finding in doctor.doctor(show_progress=False).findings}
    assert found["bf16"].state == "note" and "AMX" in found["bf16"].why


def test_a_run_in_bf16_does_not_go_on_where_it_would_end_the_process(
    announced: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    announced.setattr(bf16, "TRY", "pass")
    run = smallvit.train(**SET, precision="bf16", out=tmp_path / "run", show_progress=False)
    (run.path / "results.json").unlink()
    announced.setattr(bf16, "TRY", ENDED)
    bf16._ends_a_process.cache_clear()
    (tmp_path / "cache" / bf16.FILE).unlink()
    with pytest.raises(UsageError, match="does not let them be used"):
        smallvit.resume(run.path, show_progress=False)


def test_the_answer_is_kept_until_the_machine_is_started_anew(announced: pytest.MonkeyPatch, tmp_path: Path) -> None:
    boot, kept = tmp_path / "boot_id", tmp_path / "cache" / bf16.FILE
    announced.setattr(bf16, "BOOT", boot)

    def asked(code: str) -> bool:
        bf16._ends_a_process.cache_clear()
        announced.setattr(bf16, "TRY", code)
        return bool(bf16.why_not("cpu"))

    assert asked(ENDED) and not kept.exists(), "without a name for this start of the machine nothing is kept"
    boot.write_text("first\n")
    assert asked(ENDED) and json.loads(kept.read_text())["ends"] is True
    assert asked("pass"), "kept"
    boot.write_text("second\n")
    assert not asked("pass") and not asked(ENDED)
    for broken in ("[]", "{", json.dumps({"machine": 3}), json.dumps({"ends": "no"})):
        kept.write_text(broken)
        assert asked(ENDED)


@pytest.mark.parametrize("code", ["raise MemoryError", "pass"])
def test_an_error_is_not_the_processors(announced: pytest.MonkeyPatch, code: str) -> None:
    announced.setattr(bf16, "TRY", code)
    assert bf16.why_not("cpu") == "" and bf16.has_fast_bf16("cpu")


@pytest.mark.parametrize(
    ("limit", "tried", "fast"),
    [
        ("AVX512_CORE_FP16", False, True), ("AVX512_CORE_BF16", False, True), ("AVX512_CORE_VNNI", False, False), ("avx2", False, False),
        ("AVX512_CORE_AMX", True, False), ("DEFAULT", True, False),
    ],
)  # fmt: skip
def test_a_limit_without_the_units_needs_no_try_and_leaves_those_below_it(
    announced: pytest.MonkeyPatch, limit: str, tried: bool, fast: bool
) -> None:
    announced.setattr(bf16, "TRY", ENDED)
    announced.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    announced.setenv(bf16.LIMIT, limit)
    assert bool(bf16.why_not("cpu")) is tried and bf16.has_fast_bf16("cpu") is fast


@pytest.mark.parametrize("units", [False, True])
def test_without_tiles_the_products_of_vectors_count(monkeypatch: pytest.MonkeyPatch, units: bool) -> None:
    monkeypatch.delenv(bf16.LIMIT, raising=False)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: units)
    assert bf16.has_fast_bf16("cpu") is units


def test_this_machine_is_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product itself, in a process of its own, with what conftest.py may have set taken back."""
    monkeypatch.delenv(bf16.LIMIT, raising=False)
    ask = "from smallvit.training.bf16 import why_not; print(bool(why_not('cpu')))"
    said = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout.strip()
    ended = subprocess.run([sys.executable, "-c", bf16.TRY], capture_output=True, check=False).returncode
    assert said == str(ended < 0)

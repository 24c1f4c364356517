"""A run with stages before it is killed in every one of them, and ends as the run that was never killed."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from processes import Moment, Warm
from tiny_runs import assert_same_run

WORDS = (
    "train", "digits", "--model", "vit_pico", "--per-class", "4", "--batch-size", "8", "--epochs", "2", "--threads", "1",
    "--pretrain", "simclr", "--teacher", "conv_nano", "--set", "checkpoint_seconds=0",
)  # fmt: skip
# Each is the end of one life: before the first stage, within it, before its report, when both have ended, and in the last run.
MOMENTS: list[Moment] = [
    ("enter", "write_plan", 1),
    ("leave", "save_state", 2),
    ("enter", "report_runs", 1),
    ("enter", "handed_on", 1),
    ("leave", "save_state", 5),
]


@pytest.mark.timeout(180)
def test_killed_in_every_stage(smallvit_command: Warm, tmp_path: Path) -> None:
    expected, folder = tmp_path / "expected", tmp_path / "run"
    smallvit_command.run(*WORDS, "--out", expected)
    words: list[str | Path] = [*WORDS, "--out", folder]
    stood = []
    for moment in MOMENTS:
        killed = smallvit_command.start(*words, moment=moment)
        assert killed.wait() == -signal.SIGKILL, f"{moment} never came:\n{killed.output}"
        stood.append([(folder / name / "results.json").is_file() for name in ("pretraining", "teacher", ".")])
        words = ["resume", folder]
    assert stood == [
        [False, False, False],
        [False, False, False],
        [True, False, False],
        [True, True, False],
        [True, True, False],
    ]
    smallvit_command.run(*words)
    for stage in ("pretraining", "teacher"):
        assert_same_run(folder / stage, expected / stage)
    assert_same_run(folder, expected)


def test_a_stop_names_the_run_and_not_the_stage(smallvit_command: Warm, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    stopped = smallvit_command.start(*WORDS, "--out", folder, moment=("enter", "append_line", 1), number=signal.SIGTERM)
    assert stopped.wait() == 1
    assert f"stopped in the stage pretraining; go on with `smallvit resume {folder}`" in stopped.output

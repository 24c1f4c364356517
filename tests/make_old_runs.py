"""Run folders of this version, for the tests of later ones: python tests/make_old_runs.py tests/runs_0_2

Four small ones, as in tests/runs_0_1; the README there says what each is. Reports and empty files are left out.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "training"))

from processes import Warm  # noqa: E402

TINY = (
    "digits", "--per-class", "6", "--epochs", "2", "--batch-size", "16", "--threads", "1", "--model", "vit_pico", "--test", "0.06", "--quiet",
    "--set", "model.kwargs.depth=1", "--set", "model.kwargs.embed_dim=12", "--set", "model.kwargs.num_heads=1",
)  # fmt: skip
LEFT_OUT = ("report.html", "log.txt", "lock", "nearest.safetensors")


def make(place: Path, warm: Warm) -> None:
    """`place` is the working directory of the commands: what they store of themselves names no folder of this machine."""
    warm.run("train", *TINY, "--out", "finished")
    warm.run("diagnose", "finished", "--images", "32", "--threads", "1", "--quiet")
    fifth = ("enter", "take_step", 5)
    stopped = warm.start("train", *TINY, "--out", "stopped", moment=fifth, number=signal.SIGTERM)
    assert stopped.wait() == 1 and not (place / "stopped" / "results.json").exists(), stopped.output
    seeds = warm.start("train", *TINY, "--seeds", "2", "--jobs", "1", "--out", "seeds")
    seeds.wait_until((place / "seeds" / "seed-0" / "report.html").is_file)
    seeds.send(signal.SIGTERM)
    assert seeds.wait() == 1 and not (place / "seeds" / "seed-1" / "results.json").exists(), seeds.output
    method = ("--method", "simclr", "--set", "objective.hidden=16", "--set", "objective.width=8")
    warm.run("pretrain", *TINY, *method, "--out", "pretrained")


def tidy(place: Path) -> None:
    for path in sorted(place.rglob("*"), reverse=True):
        if path.is_file() and (path.name in LEFT_OUT or path.stat().st_size == 0):
            path.unlink()
        elif path.is_dir() and not any(path.iterdir()):
            path.rmdir()


def main() -> None:
    out = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        warm = Warm(place)
        try:
            make(place, warm)
        finally:
            warm.close()
        tidy(place)
        for folder in (entry for entry in place.iterdir() if entry.is_dir()):
            shutil.rmtree(out / folder.name, ignore_errors=True)
            shutil.copytree(folder, out / folder.name)
    print(f"{out}: {sum(path.stat().st_size for path in out.rglob('*') if path.is_file()):,} bytes")


if __name__ == "__main__":
    main()

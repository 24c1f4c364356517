"""One run from where it stands to its last step: iterates over the loop and writes the folder."""

from __future__ import annotations

import json
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, Protocol

import torch
from torch import Tensor

from smallvit.console import bar, say
from smallvit.errors import Collapsed, Diverged, Interrupted
from smallvit.recipe import resolved
from smallvit.runs.atomic import append_line, write_text
from smallvit.runs.stored import read_records
from smallvit.training.attention import quick_attention
from smallvit.training.checkpoint import load_state, save_model, save_state
from smallvit.training.heap import freed_memory_kept
from smallvit.training.loop import Tick, Training, train
from smallvit.training.replan import decide, is_due, read_decision, write_decision
from smallvit.training.together import any_of, as_first

LATEST_FROM = 0.6  # of the steps before a budget's steps are counted anew: the speed is that of the rest
LEAST_LATEST = 3  # steps of that rest that tell a speed: of fewer a pause, or nothing, would be taken for it
LOG_STEPS = 10  # steps between two records; reading the loss waits for the device, so not at every step


class Log(Protocol):
    """Where records go besides metrics.jsonl."""

    def add(self, record: dict[str, Any]) -> None: ...

    def close(self) -> None: ...


def state_file(folder: Path) -> Path:
    return folder / "state" / "latest.safetensors"


def run_session(folder: Path, t: Training, logs: list[Log], spent: float = 0.0) -> None:
    """Train until the last step. A kill at any moment loses at most `checkpoint_seconds` of work.

    `spent` are the seconds of a budget that are gone when a new run begins.
    """
    state = state_file(folder)
    recorder = Recorder(folder, t, logs, spent)
    if state.exists():
        t.decision = read_decision(folder)
        recorder.restore(load_state(state, t))
        say(f"going on after step {t.done:,} of {t.total:,}")
    else:
        save_state(state, t)
    if t.world.writes:
        _forget_after(folder / "metrics.jsonl", t.done)
        recorder.trained_before = train_seconds(folder)
    saved = time.monotonic()
    with computing(resolved(t.recipe.threads)), stop_signals() as stop, bar("training", t.total, t.done) as advance:
        for tick in train(t):
            recorder.add(tick)
            if t.recipe.replan and t.decision is None:
                spent, trained = as_first(recorder.clock(), t.world)
                if is_due(t, spent):
                    t.decision = decide(t, spent, trained)
                    if t.world.writes:
                        write_decision(folder, t.decision, t.planned)
            advance(1, note=recorder.note, total=t.decision.total if t.decision else t.total)
            if tick.kept and t.recipe.select == "best" and t.world.writes:
                save_model(folder / "state" / "best.safetensors", t.evaluated, {"epoch": tick.epoch, "step": tick.step})
            stopping = any_of(stop.is_set(), t.world)
            if stopping or tick.step == t.total or time.monotonic() - saved >= t.recipe.checkpoint_seconds:
                recorder.check()  # what is saved can be gone on with
                save_state(state, t, recorder.state())
                saved = time.monotonic()
            if stopping:
                raise Interrupted(
                    f"stopped after step {t.done:,} of {t.total:,}; go on with `smallvit resume {folder}`"
                )


class Recorder:
    """Gathers steps and writes a record every few; a loss that is no number stops the run here.

    Where several processes train together each of them checks its steps, and one writes.
    """

    def __init__(self, folder: Path, t: Training, logs: list[Log], spent: float = 0.0) -> None:
        self.folder = folder
        self.before = (spent, 0.0)  # seconds before this session: of the budget, and of those in training
        self.t = t
        self.logs = logs
        self.window: list[dict[str, Tensor]] = []  # steps that no record tells of yet
        self.checked = t.done  # all steps up to this one were finite
        self.epoch_loss, self.epoch_steps = 0.0, 0  # sum over the recorded steps of this epoch
        self.mark: tuple[int, float] | None = (
            None  # steps, and the seconds they took, from which on the speed is measured
        )
        self.val: float | None = None  # accuracy at the last look, where images are held out
        self.note = ""
        self.trained_before = 0.0  # seconds of the records that earlier sessions wrote
        self.since = self.started = time.monotonic()

    def state(self) -> dict[str, Any]:
        """What a later session needs to write the records that this one would have written."""
        window = [{name: float(value) for name, value in step.items()} for step in self.window]
        clock = {"clock": list(self.seconds()), "mark": self.mark} if self.t.recipe.replan else {}
        return {"window": window, "epoch_loss": self.epoch_loss, "epoch_steps": self.epoch_steps, **clock}

    def seconds(self) -> tuple[float, float]:
        """Of the budget that are gone, and those of them that went into steps, over all sessions."""
        spent, trained = self.before
        here = time.monotonic() - self.started
        return spent + here, trained + here

    def clock(self) -> tuple[float, float]:
        """Seconds of the budget that are gone, and what the steps so far would have taken at the speed of the latest.

        What slows them down may have begun on the way. Where views grow, the latest are not like those before.
        """
        spent, trained = self.seconds()
        done, then = self.mark or (0, 0.0)
        if self.t.done < done + LEAST_LATEST:
            done, then = 0, 0.0
        return spent, (trained - then) / max(1, self.t.done - done) * self.t.done

    def _set_mark(self) -> None:
        replan = self.t.recipe.replan
        if replan and replan.dearer == 1 and self.mark is None and self.t.done >= LATEST_FROM * replan.at:
            self.mark = (self.t.done, self.seconds()[1])

    def restore(self, state: dict[str, Any]) -> None:
        self.checked = self.t.done
        if state:
            self.window = [
                {name: torch.tensor(value, device=self.t.device) for name, value in step.items()}
                for step in state["window"]
            ]
            self.epoch_loss, self.epoch_steps = state["epoch_loss"], state["epoch_steps"]
            spent, trained = state.get("clock", self.before)
            self.before = (spent, trained)
            self.mark = tuple(state["mark"]) if state.get("mark") else None

    def add(self, tick: Tick) -> None:
        self._set_mark()
        self.window.append({"loss": tick.loss, "grad_norm": tick.grad_norm, **tick.parts})
        if tick.step % LOG_STEPS == 0 or tick.ends_epoch:
            self._flush(tick)
        if tick.validation is not None and not tick.validation.is_finite:
            raise Diverged(self._divergence())
        if tick.ends_epoch:
            self._epoch(tick)
        if tick.validation is not None and tick.validation.collapse:
            raise Collapsed(self._collapse(tick, tick.validation.collapse))

    def check(self) -> None:
        """Losses, gradients and weights are finite up to here, or the run has diverged."""
        if self.window:
            self._means()
        if not all_finite(self.t.step):
            raise Diverged(self._divergence())
        self.checked = self.t.done

    def _flush(self, tick: Tick) -> None:
        means = self._means()
        speed = len(self.window) * self.t.loader.batch_size / max(tick.stepped - self.since, 1e-9)
        self.since = time.monotonic()  # what was looked at in between is not training
        self.checked = tick.step
        self.epoch_loss += means["loss"] * len(self.window)
        self.epoch_steps += len(self.window)
        parts = {key: value for key, value in means.items() if key not in ("loss", "grad_norm")}
        self._write({
            "kind": "train", "epoch": tick.epoch, "step": tick.step, "steps": self.t.total, "loss": means["loss"],
            "parts": parts, "lr": tick.lr, "grad_norm": means["grad_norm"], "images_per_second": round(speed, 1),
        })  # fmt: skip
        self.window.clear()
        self._show(tick, means["loss"])

    def _means(self) -> dict[str, float]:
        """Mean of loss, gradient norm and parts over the window, read from the device in one go."""
        columns = [torch.stack([step[name].detach().float() for step in self.window]) for name in self.window[0]]
        means = dict(zip(self.window[0], torch.stack(columns).mean(1).tolist(), strict=True))
        if not (math.isfinite(means["loss"]) and math.isfinite(means["grad_norm"])):
            raise Diverged(self._divergence())
        return means

    def _epoch(self, tick: Tick) -> None:
        record: dict[str, Any] = {
            "kind": "epoch",
            "epoch": tick.epoch,
            "step": tick.step,
            "train_loss": self.epoch_loss / self.epoch_steps,
        }
        if tick.validation is not None:
            record |= {**tick.validation.numbers, "best": tick.kept}
            self.val = tick.validation.accuracy
        self._show(tick, record["train_loss"])
        self._write(record)
        self.epoch_loss, self.epoch_steps = 0.0, 0

    def _show(self, tick: Tick, loss: float) -> None:
        """What stands beside the bar."""
        self.note = f"epoch {tick.epoch + 1}/{self.t.epochs} loss {loss:.3f}"
        if self.t.recipe.select == "best" and self.t.best.epoch >= 0:
            self.note += f" best val {self.t.best.accuracy:.1%}"
        elif self.val is not None:
            self.note += f" val {self.val:.1%}"

    def _write(self, record: dict[str, Any]) -> None:
        if not self.t.world.writes:
            return
        record["seconds"] = round(self.trained_before + time.monotonic() - self.started, 3)
        append_line(self.folder / "metrics.jsonl", record)
        for log in self.logs:
            log.add(record)

    def _collapse(self, tick: Tick, what: str) -> str:
        return (
            f"the pretraining collapsed: after epoch {tick.epoch + 1} of {self.t.epochs} {what}, so the model "
            f"hardly tells images apart. Try a new run with {self._slower()}, a longer warm-up or a larger batch; "
            "a run with --set objective.allow_collapse=true goes on all the same"
        )

    def _divergence(self) -> str:
        last_good = min(self.checked, self.t.done - 1)
        # Muon moves the filters by the same length however large their gradient is: clipping changes nothing.
        muon = self.t.recipe.optimizer.name == "muon"
        others = " or a longer warm-up" if muon else ", a longer warm-up or stronger clipping"
        return (
            f"the loss or its gradient became NaN or infinite between steps {last_good:,} and {self.t.done:,}. "
            f"The last good weights are in {self.folder / 'state' / 'latest.safetensors'}. "
            f"Try a new run with {self._slower()}{others}"
        )

    def _slower(self) -> str:
        """With Muon --lr leaves the rate of the filters as it is; in a continued run it takes it along."""
        recipe = self.t.recipe
        if recipe.optimizer.name == "muon" and not recipe.continued.file:
            return "smaller learning rates (--set optimizer.rate_factor=0.25, or a quarter of the one that was given)"
        return f"a smaller learning rate (--lr {resolved(recipe.optimizer.lr) / 4:.2g})"


def train_seconds(folder: Path) -> float:
    """Time spent in training, over all sessions. In records of earlier versions each session began at 0 again."""
    total = last = 0.0
    for record in read_records(folder / "metrics.jsonl"):
        total += record["seconds"] - last if record["seconds"] >= last else record["seconds"]
        last = record["seconds"]
    return round(total, 2)


def all_finite(module: torch.nn.Module) -> bool:
    flags = [tensor.isfinite().all() for tensor in module.state_dict().values()]
    return bool(torch.stack(flags).all())


def _forget_after(path: Path, step: int) -> None:
    """Drop records of steps that will be taken again."""
    kept = [record for record in read_records(path) if record["step"] <= step]
    write_text(path, "".join(json.dumps(record) + "\n" for record in kept))


@contextmanager
def computing(threads: int) -> Iterator[None]:
    """With so many threads (another count gives other last bits, so it is part of the recipe), with the memory of the batch
    before and with attention that is quick in 16 bits. The caller's random state stays.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with freed_memory_kept(), quick_attention(), torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        torch.set_num_threads(before)


def heeded_signals() -> list[signal.Signals]:
    """Those that ask for a stop; not what somebody (nohup) wants ignored."""
    names = [name for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    return [number for name in names if signal.getsignal(number := signal.Signals[name]) is not signal.SIG_IGN]


@contextmanager
def stop_signals() -> Iterator[threading.Event]:
    """Ctrl-C, SIGTERM and a terminal that is closed ask for a stop after the step under way; a second one stops at once."""
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        with suppress(OSError):  # the terminal may be gone
            say("stopping after this step (once more to stop at once)")

    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, handle) for number in heeded_signals()}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

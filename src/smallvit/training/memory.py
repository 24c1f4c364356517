"""What a run will need of memory, reckoned before its first whole step, and how much there is.

Two steps of a few images are taken on a copy of the training, and every tensor that they make is counted while it lives: so
the need of a step is a straight line in the images of a batch (losses that compare all images with all others grow faster,
but are small). To it come what is there already, the state of the optimizer, and the batches that augmentation makes.
"""

from __future__ import annotations

import copy
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from smallvit.recipe import resolved
from smallvit.training.loop import Training, take_step
from smallvit.training.machine_memory import used_bytes
from smallvit.training.optimizer import make_optimizer
from smallvit.training.step import wrap
from smallvit.types import View

FEW = (2, 4)  # images of the steps that are counted
MADE = 4  # times an image in floats: itself, and what augmentation makes it from
ROUGH = 1.1  # allocators keep some of what is freed, kernels have room of their own
LATER = 170e6  # bytes: floors, judgement, report, and the code that they need (Linux, torch 2.15)


class Need(NamedTuple):
    """Bytes. What a batch takes is by image, so that another batch, or other pieces of it, can be reckoned."""

    here: int  # that the process has: code, decoded images, weights and what follows them (averages, teachers)
    weights: int  # of these; planning takes its steps on a copy
    state: int  # of the optimizer
    gradients: int  # and all else of a step that does not grow with the batch
    activations: int  # of an image: what the model keeps for its backward pass
    outside: int  # of an image: its views, made and being made
    update: int  # the most that the optimizer's step has at once

    def step(self, batch: int, pieces: int = 1) -> int:
        """Beyond what is here while a step is under way."""
        whole = self.gradients + self.outside * batch + self.activations * -(-batch // pieces)
        return self.weights + self.state + int(ROUGH * max(whole, self.update))

    def more(self, batch: int, pieces: int = 1) -> int:
        """Than is here now."""
        return self.step(batch, pieces) + int(LATER)

    def peak(self, batch: int, pieces: int = 1) -> int:
        return self.here + self.more(batch, pieces)


def measure_need(t: Training, views: Sequence[View]) -> Need:
    """Of a training before its first step, in the precision of its recipe, with these views."""
    trial = trial_of(t, views)
    trial.wrapped = trial.step  # whole: pieces are reckoned
    counted = FEW if len(t.loader.rows) >= FEW[1] else FEW[:1]
    peaks = []
    for images in counted:
        trial.loader = t.loader.showing(views)
        trial.loader.batch_size, trial.loader.at_once = images, 1
        trial.loader.batch(0, 0)
        trial.optimizer.zero_grad(set_to_none=True)
        with Living(trial) as living:
            take_step(trial, 0, 0, resolved(t.recipe.optimizer.lr) * 0.01)
        peaks.append(living.peak)
    activations = max(0, peaks[1] - peaks[0]) // (FEW[1] - FEW[0]) if len(peaks) > 1 else peaks[0] // FEW[0]
    gradients = bytes_of(parameter.grad for parameter in trial.step.parameters())  # those of the step before, too
    return Need(
        here=used_bytes(t.device),
        weights=bytes_of([*t.step.parameters(), *t.step.buffers()]),
        state=bytes_of(value for slots in trial.optimizer.state.values() for value in slots.values()),
        gradients=gradients + max(0, peaks[0] - FEW[0] * activations - gradients),
        activations=activations,
        outside=4 * MADE * t.loader.images.augmenter.channels * sum(view.copies * view.size**2 for view in views),
        update=living.peak_of_update,
    )


def trial_of(t: Training, views: Sequence[View]) -> Training:
    """A copy on which steps can be taken."""
    trial = copy.copy(t)
    trial.loader = t.loader.showing(views)
    trial.step = copy.deepcopy(t.step)
    trial.wrapped = wrap(trial.step, t.recipe)
    trial.ema = copy.deepcopy(t.ema)
    trial.optimizer = make_optimizer(trial.step, t.recipe.optimizer, t.device)
    return trial


class Living(TorchDispatchMode):
    """Counts the bytes of all tensors that are made inside while they live; those that were there count for nothing.

    What the optimizer's step needs is counted apart.
    """

    def __init__(self, t: Training) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = self.peak_of_update = 0
        self.updating = False
        self.living: dict[int, weakref.ref[Any]] = {}  # address of a storage -> itself, which is told of when it goes
        there: list[Tensor] = [*t.step.parameters(), *t.step.buffers(), *(t.ema.parameters() if t.ema else [])]
        there += [
            value for slots in t.optimizer.state.values() for value in slots.values() if isinstance(value, Tensor)
        ]
        for tensor in there:
            self._watch(tensor.untyped_storage(), 0)
        self.hooks = [
            t.optimizer.register_step_pre_hook(lambda *_: self._update(True)),
            t.optimizer.register_step_post_hook(lambda *_: self._update(False)),
        ]

    def __exit__(self, *error: Any) -> None:
        for hook in self.hooks:
            hook.remove()
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        if isinstance(
            made, Tensor
        ):  # nearly always: walking through trees of results takes longer than most operations
            self._count(made)
        elif made is not None:
            for tensor in tree_leaves(made):
                if isinstance(tensor, Tensor):
                    self._count(tensor)
        return made

    def _update(self, begins: bool) -> None:
        self.updating = begins

    def _count(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage._cdata in self.living:
            return
        size = storage.nbytes()
        self._watch(storage, size)
        self.now += size
        if self.updating:
            self.peak_of_update = max(self.peak_of_update, self.now)
        else:
            self.peak = max(self.peak, self.now)

    def _watch(self, storage: Any, size: int) -> None:
        address = storage._cdata

        def forget(_: Any) -> None:
            del self.living[address]  # another one may come to lie there
            self.now -= size

        self.living[address] = weakref.ref(storage, forget)


def bytes_of(tensors: Iterable[Any]) -> int:
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, Tensor))

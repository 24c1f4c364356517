"""Looking into a model while it runs: the attention of every layer, the output of every layer.

Whatever is attached to the model or to torch for that is taken off again at the end of the `with` block, after an
exception too. B images (or windows of them), M heads, Q queries, K keys, E width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from smallvit.evaluation.predictor import evaluating


class Frame(NamedTuple):
    """A module at work: its name in the model, and what it was called with; of tensors only the shapes are kept."""

    name: str
    module: nn.Module
    shapes: tuple[torch.Size, ...]
    others: tuple[Any, ...]


class AttentionCall(NamedTuple):
    """One use of attention: who asked for it (the outermost module first), and the probabilities."""

    frames: tuple[Frame, ...]
    weights_BMQK: Tensor

    @property
    def layer(self) -> str:
        return self.frames[-1].name


@contextmanager
def recorded_attention(model: nn.Module) -> Iterator[list[AttentionCall]]:
    """A list to which every attention of the model is added while the block runs.

    torch's fused attention never shows its probabilities: they are computed a second time from the same queries and
    keys. Models that would not use it are told to, since there the probabilities cannot be reached.
    """
    calls: list[AttentionCall] = []
    fused = F.scaled_dot_product_attention

    with evaluating(model), ExitStack() as undo:
        frames = _frames(model, undo)

        def recorder(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
            if frames:  # of this model; another one may be at work inside the same block
                calls.append(AttentionCall(tuple(frames), attention_weights(query, key, *args, **kwargs).cpu()))
            return fused(query, key, value, *args, **kwargs)

        F.scaled_dot_product_attention = recorder
        undo.callback(setattr, F, "scaled_dot_product_attention", fused)
        for module in model.modules():
            flags = vars(module)
            if flags.get("fused_attn") is False:
                flags["fused_attn"] = True
                undo.callback(flags.update, fused_attn=False)
        yield calls


def attention_weights(
    query: Tensor,
    key: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The probabilities of `scaled_dot_product_attention`, in float32: each row sums to 1. Dropout is left out."""
    q_BMQE, k_BMKE = query.detach().float(), key.detach().float()
    if enable_gqa:
        k_BMKE = k_BMKE.repeat_interleave(q_BMQE.shape[-3] // k_BMKE.shape[-3], dim=-3)
    with torch.autocast(query.device.type, enabled=False):
        scores_BMQK = q_BMQE @ k_BMKE.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        later = torch.ones(scores_BMQK.shape[-2:], dtype=torch.bool, device=query.device).triu(1)
        scores_BMQK = scores_BMQK.masked_fill(later, float("-inf"))
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores_BMQK = scores_BMQK.masked_fill(~attn_mask, float("-inf"))
        else:
            scores_BMQK = scores_BMQK + attn_mask.detach().float()
    return scores_BMQK.softmax(dim=-1)


@contextmanager
def watched_outputs(model: nn.Module, watch: Callable[[str, nn.Module, Tensor], None]) -> Iterator[None]:
    """Call `watch(name, module, output)` whenever a module has given a tensor, in the order in which they do.

    The tensor is the model's own, and later layers may overwrite it: clone it or use it at once.
    """

    def hook(name: str) -> Callable[..., None]:
        def look(module: nn.Module, _inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor):
                watch(name, module, output)

        return look

    with evaluating(model), ExitStack() as undo:
        for name, module in model.named_modules():
            undo.callback(module.register_forward_hook(hook(name)).remove)
        yield


def _frames(model: nn.Module, undo: ExitStack) -> list[Frame]:
    """The modules that are at work at any moment, kept up to date by hooks until `undo`."""
    frames: list[Frame] = []

    def enter(name: str) -> Callable[..., None]:
        def push(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            given = (*args, *kwargs.values())
            shapes = tuple(argument.shape for argument in given if isinstance(argument, Tensor))
            frames.append(
                Frame(name, module, shapes, tuple(argument for argument in given if not isinstance(argument, Tensor)))
            )

        return push

    def leave(_module: nn.Module, _inputs: Any, _output: Any) -> None:
        frames.pop()

    for name, module in model.named_modules():
        undo.callback(module.register_forward_pre_hook(enter(name), with_kwargs=True).remove)
        undo.callback(module.register_forward_hook(leave, always_call=True).remove)
    return frames

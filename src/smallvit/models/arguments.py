"""What a model's constructor may be given: plain values within bounds, nothing that makes timm load, fetch or wrap.

Arguments come from flags and recipes, but also from the header of a model file and from the recipe of a run folder,
which may be a stranger's.
"""

from __future__ import annotations

import inspect
import re
import reprlib
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import timm
from timm.models import build_model_with_cfg
from torch import nn
from torch.nn.modules.module import (
    register_module_module_registration_hook,
    register_module_parameter_registration_hook,
)

from smallvit.errors import UsageError

MOST_LAYERS = 10_000  # timm's deepest model has 2,500
MOST_PARAMETERS = 2_000_000_000  # with arguments; a name alone is timm's to answer for
LARGEST_WHOLE, LARGEST_FRACTION = 16_384, 1e6
LARGEST_BY_NAME = {"window": 64, "img_size": 2048}  # tables of these grow with the fourth power, and with the square
MOST_VALUES = 256  # of one argument, those of inner lists included
DEEPEST_LIST = 4
WORD = re.compile(r"[\w-]{0,40}")  # neither a path, nor an address, nor something to import

ACTIVATIONS = (
    "celu", "elu", "gelu", "gelu_tanh", "hard_mish", "hard_sigmoid", "hard_swish", "hardsigmoid", "hardswish", "identity",
    "leaky_relu", "mish", "prelu", "quick_gelu", "relu", "relu6", "selu", "sigmoid", "silu", "swish", "tanh",
)  # fmt: skip
NORMS = (
    "batchnorm", "batchnorm1d", "batchnorm2d", "evonormb0", "evonormb1", "evonormb2", "evonorms0", "evonorms0a",
    "evonorms1", "evonorms1a", "evonorms2", "evonorms2a", "frn", "frntlu", "frozenbatchnorm2d", "groupnorm",
    "groupnorm1", "layernorm", "layernorm2d", "layernorm2dfp32", "layernormfp32", "rmsnorm", "rmsnorm2d",
    "rmsnorm2dfp32", "rmsnormfp32", "simplenorm", "simplenorm2d", "simplenorm2dfp32", "simplenormfp32",
)  # fmt: skip
# The layers that timm finds by a name, by the end of the argument's name: dw_act_layer takes what act_layer takes.
LAYERS = {
    "act_layer": ACTIVATIONS,
    "norm_layer": NORMS,
    "norm_layer_cl": NORMS,
    "attn_layer": ("attn", "diff"),
    "se_layer": ("ceca", "eca", "ese", "gc", "ge", "se"),
    "aa_layer": ("avg", "blur", "blurpc"),
}

# What the factories take for themselves, whatever else later versions of them add, and what they take out of the rest.
NOT_THE_MODELS = {
    *inspect.signature(timm.create_model).parameters, *inspect.signature(build_model_with_cfg).parameters,
    "features_only", "feature_cls", "pruned", "device", "dtype",
}  # fmt: skip


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Refuse, by a UsageError, what is more than a plain value for the model itself."""
    for key, value in arguments.items():
        if key in NOT_THE_MODELS or key.startswith("pretrained"):
            raise _refused(
                key, value, "only arguments of the model's own constructor are passed on, none of timm's factory"
            )
        if not WORD.fullmatch(key):
            raise _refused(key, value, "no constructor has such an argument")
        values = list(_plain_values(key, value))
        if len(values) > MOST_VALUES:
            raise _refused(key, value, f"should hold at most {MOST_VALUES} values")
        for plain in values:
            _check_value(key, plain)


def _plain_values(key: str, value: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(value, list | tuple) and depth < DEEPEST_LIST:
        for inner in value:
            yield from _plain_values(key, inner, depth + 1)
    elif value is None or isinstance(value, bool | int | float | str):
        yield value
    else:
        raise _refused(key, value, "should be a number, true or false, a word, or a list of these")


def _check_value(key: str, value: Any) -> None:
    if isinstance(value, str):
        _check_word(key, value)
    elif isinstance(value, int | float):
        of_kind = LARGEST_WHOLE if isinstance(value, int) else LARGEST_FRACTION
        largest = next((most for part, most in LARGEST_BY_NAME.items() if part in key), of_kind)
        if not abs(value) <= largest:  # also where it is no number
            raise _refused(key, value, f"should be at most {largest:,.0f}")


def _check_word(key: str, value: str) -> None:
    if value and key.endswith(("_layer", *LAYERS)):
        choices = next((names for end, names in LAYERS.items() if f"_{key}".endswith(f"_{end}")), ())
        if not choices:
            raise _refused(key, value, f"no name stands for such a layer, only for {', '.join(LAYERS)}")
        if value.lower().replace("_", "") not in {name.replace("_", "") for name in choices}:
            raise _refused(key, value, f"unknown layer; choices: {', '.join(choices)}")
    elif not WORD.fullmatch(value):
        raise _refused(key, value, "should be a word of letters, digits, _ and -")


def _refused(key: str, value: Any, why: str) -> UsageError:
    return UsageError(f"model.kwargs.{reprlib.repr(key)[1:-1]} = {reprlib.repr(value)}: {why}")


@contextmanager
def bounded(most_parameters: float) -> Iterator[None]:
    """Stop a constructor that builds something absurd. A parameter is counted before its memory is filled."""
    thread, layers, parameters = threading.get_ident(), 0, 0

    def count_layer(*registered: Any) -> None:
        nonlocal layers
        layers += threading.get_ident() == thread
        if layers > MOST_LAYERS:
            raise ValueError(f"it has more than {MOST_LAYERS:,} layers")

    def count_parameter(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        nonlocal parameters
        if parameter is not None and threading.get_ident() == thread:
            parameters += parameter.numel()
        if parameters > most_parameters:
            raise ValueError(f"it has more than {most_parameters:,.0f} parameters")

    hooks = [
        register_module_module_registration_hook(count_layer),
        register_module_parameter_registration_hook(count_parameter),
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()

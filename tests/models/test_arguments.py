"""Constructors get plain values within bounds; whatever makes timm load, fetch or wrap is refused by name."""

from __future__ import annotations

import inspect
import time
from pathlib import Path
from typing import Any

import pytest
import timm
from timm.layers import DropPath, create_aa, get_act_layer, get_attn, get_norm_act_layer, get_norm_layer
from torch import nn

from helpers import run_here
from smallvit.errors import UsageError
from smallvit.models.arguments import LAYERS
from smallvit.models.features import Backbone, count_parameters, create_backbone


def build(arguments: dict[str, Any], name: str = "vit_pico", **more: Any) -> Backbone:
    return create_backbone(name, arguments, num_classes=2, in_chans=3, img_size=8, **more)


def rates(backbone: Backbone) -> set[float]:
    return {module.drop_prob for module in backbone.modules() if isinstance(module, DropPath)}


# ---- a rate of stochastic depth ----------------------------------------------------------------------


def test_a_rate_that_is_given_to_the_constructor_holds() -> None:
    assert max(rates(build({"drop_path_rate": 0.2}))) == pytest.approx(0.2)
    assert max(rates(build({"drop_path_rate": 0.2}, drop_path=0.1))) == pytest.approx(0.1), (
        "that of the recipe goes first"
    )


def test_where_none_is_given_a_model_has_none_of_its_own() -> None:
    arguments = {"patch_size": 2, "window_size": 4, "embed_dim": 24, "depths": [2], "num_heads": [2]}
    swin = create_backbone("swin_tiny_patch4_window7_224", arguments, num_classes=2, in_chans=3, img_size=8)
    assert rates(swin) == {0.0}


# ---- what is not the model's -------------------------------------------------------------------------


@pytest.mark.parametrize("key", list(inspect.signature(timm.create_model).parameters))
def test_what_the_factory_takes_is_refused(key: str) -> None:
    with pytest.raises(UsageError, match=rf"model\.kwargs\.{key} = 'x'.*only arguments of the model's own constructor"):
        build({key: "x"})


@pytest.mark.parametrize(
    "arguments",
    [
        {"pretrained": True},
        {"pretrained": False},
        {"pretrained_cfg": {"url": "http://127.0.0.1:9/x.pth"}},
        {"pretrained_cfg_overlay": {"hf_hub_id": "a/b"}},
        {"pretrained_strict": False},
        {"pretrained_of_tomorrow": True},
        {"checkpoint_path": "weights.pth"},
        {"cache_dir": "here"},
        {"scriptable": True},
        {"features_only": True},
        {"feature_cfg": {"out_indices": [0]}},
        {"feature_cls": "hook"},
        {"model_cls": "x"},
        {"pruned": True},
        {"device": "meta"},
        {"dtype": "float16"},
    ],
)
def test_what_loads_or_wraps_is_refused(arguments: dict[str, Any]) -> None:
    (key,) = arguments
    with pytest.raises(UsageError, match=rf"model\.kwargs\.{key} = .*own constructor"):
        build(arguments)


@pytest.mark.parametrize(
    "name", ["hf-hub:timm/resnet18.a1_in1k", "hf_hub:a/b", "local-dir:/etc", "a/vit_pico", "C:\\x"]
)
def test_models_of_elsewhere_are_unknown(name: str) -> None:
    with pytest.raises(UsageError, match="unknown model"):
        build({}, name)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--set", "model.kwargs.pretrained=true"], "model.kwargs.pretrained = True"),
        (["--set", "model.kwargs.checkpoint_path=x.pth"], "model.kwargs.checkpoint_path = 'x.pth'"),
        (["--set", "model.kwargs.depth=100000"], "model.kwargs.depth = 100000: should be at most 16,384"),
        (["--set", "model.kwargs.act_layer=os.system"], "model.kwargs.act_layer = 'os.system'"),
        (["--model", "hf-hub:timm/resnet18.a1_in1k"], "unknown model 'hf-hub:timm/resnet18.a1_in1k'"),
        (["--set", "model.timm_name=local-dir:/etc"], "unknown model 'local-dir:/etc'"),
    ],
)
def test_flags(words: list[str], part: str, tmp_path: Path) -> None:
    base = ("train", "digits", "--model", "vit_pico", "--per-class", "5", "--epochs", "1", "--out", tmp_path / "run")
    outcome = run_here(*base, *words)
    assert outcome.status == 2 and part in outcome.err, outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "run").exists()


# ---- values ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"depth": 100_000}, r"depth = 100000: should be at most 16,384"),
        ({"depth": -(10**30)}, "should be at most 16,384"),
        ({"mlp_ratio": 1e9}, r"mlp_ratio = 1000000000\.0: should be at most 1,000,000"),
        ({"mlp_ratio": float("nan")}, "mlp_ratio = nan: should be at most"),
        ({"mlp_ratio": float("inf")}, "mlp_ratio = inf: should be at most"),
        ({"window_size": 256}, "window_size = 256: should be at most 64"),
        ({"img_size": [8, 4096]}, "img_size = 4096: should be at most 2,048"),
        ({"depths": [2] * 300}, "should hold at most 256 values"),
        ({"depths": [[[[[2]]]]]}, "should be a number, true or false, a word, or a list of these"),
        ({"depths": {"a": 1}}, "should be a number, true or false, a word, or a list of these"),
        ({"norm_layer": nn.LayerNorm}, "should be a number, true or false, a word, or a list of these"),
        ({"global_pool": "../x"}, "should be a word"),
        ({"global_pool": "http://a"}, "should be a word"),
        ({"global_pool": "a.b"}, "should be a word"),
        ({"weight_init": "x" * 41}, "should be a word"),
        ({"token_mixers": ["os.system"]}, r"token_mixers = 'os\.system': should be a word"),
        ({"a b": 1}, r"model\.kwargs\.a b = 1: no constructor has such an argument"),
    ],
)
def test_values_are_plain_and_within_bounds(arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        build(arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("vit_pico", {"patch_size": 0}, "ZeroDivisionError|by zero"),
        ("vit_pico", {"num_heads": 0}, "by zero"),
        ("vit_pico", {"norm_layer": "frn"}, "frn"),  # timm knows it for other models
        ("resnet_nano", {"depth": 2}, "depth"),
    ],
)
def test_what_a_constructor_cannot_use_is_told_not_raised(name: str, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be used.*({reason})"):
        build(arguments, name)


# ---- layers by name ----------------------------------------------------------------------------------


def test_layers_by_name_are_taken() -> None:
    layers = {type(module) for module in build({"act_layer": "ReLU", "norm_layer": "rms_norm"}).modules()}
    assert nn.ReLU in layers and get_norm_layer("rmsnorm") in layers
    assert not layers & {nn.GELU, nn.LayerNorm, get_norm_layer("layernorm")}


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("act_layer", "torch.nn.ReLU", "unknown layer; choices: celu, elu, gelu"),
        ("act_layer", "eval", "unknown layer; choices: celu, elu, gelu"),
        ("embed_norm_layer", "relu", "unknown layer; choices: batchnorm,"),
        ("norm_layer_cl", "eval", "unknown layer; choices: batchnorm,"),
        ("attn_layer", "lambda", "unknown layer; choices: attn, diff"),
        ("mlp_layer", "relu", "no name stands for such a layer, only for act_layer, norm_layer"),
    ],
)
def test_unknown_layers_are_refused_with_the_choices(key: str, value: str, reason: str) -> None:
    with pytest.raises(UsageError, match=rf"model\.kwargs\.{key} = '{value}': {reason}"):
        build({key: value})


def test_every_name_is_one_of_timms() -> None:
    for name in LAYERS["act_layer"]:
        assert issubclass(get_act_layer(name), nn.Module)
    for name in LAYERS["norm_layer"]:
        try:
            assert get_norm_layer(name) is not None
        except KeyError:
            assert get_norm_act_layer(name, act_layer="relu") is not None
    for name in LAYERS["se_layer"]:
        assert get_attn(name) is not None
    for name in LAYERS["aa_layer"]:
        assert isinstance(create_aa(name, 8), nn.Module)
    for name in LAYERS["attn_layer"]:
        assert build({"attn_layer": name, "depth": 2}).width


# ---- how much is built -------------------------------------------------------------------------------


def test_absurd_depth_ends_soon() -> None:
    started = time.process_time()
    with pytest.raises(UsageError, match=r"depth=16000.*it has more than 10,000 layers"):
        build({"depth": 16_000})
    assert time.process_time() - started < 30  # all of it would take minutes


def test_parameters_are_counted_while_a_model_is_built() -> None:
    whole = build({})
    built = count_parameters(whole)
    assert count_parameters(build({}, most_parameters=built)) == built
    with pytest.raises(UsageError, match=f"it has more than {built - 1:,} parameters"):
        build({}, most_parameters=built - 1)
    assert isinstance(nn.Linear(10_000, 1_000), nn.Linear)  # nothing is counted any more


def test_arguments_are_bounded_where_a_name_alone_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("smallvit.models.features.MOST_PARAMETERS", 10_000)
    with pytest.raises(UsageError, match="it has more than 10,000 parameters"):
        build({"depth": 2})
    assert count_parameters(build({})) > 10_000

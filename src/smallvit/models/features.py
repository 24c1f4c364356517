"""Any timm model -> Features. B images, C channels, S side, D width, H by W grid, K classes."""

from __future__ import annotations

import math
from typing import Any

import timm
import torch
from timm.layers import DropPath
from torch import Tensor, nn

import smallvit.models  # noqa: F401  (registers our own models with timm)
from smallvit.console import several
from smallvit.errors import OutOfMemory, UsageError, nearest, ran_out, what_ran_out
from smallvit.models.aliases import ALIASES
from smallvit.models.arguments import MOST_PARAMETERS, bounded, check_arguments
from smallvit.models.sharing import shared
from smallvit.types import Features


class Backbone(nn.Module):
    """A timm model that returns its pooled vector and its grids in one pass.

    timm's classifier stays inside the model: `classify` applies it to the pooled vector, so that an objective
    sees features and logits of the same forward pass.
    """

    def __init__(self, model: nn.Module, img_size: int, in_chans: int) -> None:
        super().__init__()
        self.model = model
        self.img_size = img_size
        self.in_chans = in_chans
        self.grid_indices = _stage_indices(model)
        self.memory_format = _memory_format(model)
        self.width = 0  # of the pooled vector, known once the model was tried
        self.grid_shapes: tuple[tuple[int, int, int], ...] = ()  # D, H, W of each grid, known once the model was tried

    def forward(self, images_BCSS: Tensor) -> Features:
        """In a training of several processes this one looks at its part of the images, and gets the features of all."""
        return shared(self._features, images_BCSS)

    def _features(self, images_BCSS: Tensor) -> Features:
        model: Any = self.model
        images_BCSS = images_BCSS.contiguous(memory_format=self.memory_format)
        if self.grid_indices is None:
            final = model.forward_features(images_BCSS)
            if not isinstance(final, Tensor):
                raise TypeError("it gives several feature tensors instead of one")
            grids = (final,) if final.ndim == 4 else ()
        else:
            final, stages = model.forward_intermediates(
                images_BCSS, indices=self.grid_indices, norm=False, output_fmt="NCHW"
            )
            grids = tuple(stages)
        return Features(model.forward_head(final, pre_logits=True), grids)

    @property
    def final_grid(self) -> tuple[int, ...]:
        """Rows and columns of the last grid."""
        return self.grid_shapes[-1][1:] if self.grid_shapes else ()

    def normed(self, last_BDHW: Tensor) -> Tensor:
        """The last grid as the model's final norm leaves it; as it is where the model has none (a ResNet)."""
        norms = [getattr(self.model, name, None) for name in ("norm", "norm_pre")]
        norm = next((module for module in norms if isinstance(module, nn.Module)), None)
        if norm is None or self.grid_indices is None:
            return last_BDHW
        if isinstance(norm, nn.LayerNorm | nn.RMSNorm) and not type(norm).__name__.endswith("2d"):
            return norm(last_BDHW.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).contiguous()
        return norm(last_BDHW)

    def classify(self, pooled_BD: Tensor) -> Tensor:
        classifier: Any = self.model.get_classifier()  # type: ignore[operator]
        if isinstance(classifier, nn.Conv2d):  # DLA and DPN: 1x1, on a grid of one cell
            return classifier(pooled_BD[:, :, None, None])[:, :, 0, 0]
        return classifier(pooled_BD)


def _memory_format(model: nn.Module) -> torch.memory_format:
    """Convolutions are faster on channels-last images, on CPUs too; attention does not mind.

    Except where a 1x1 convolution with a stride looks at 2 to 7 channels (the stems of RepVGG, MobileOne, FastViT):
    in torch 2.15 its backward pass on such images writes beyond its memory, and the process dies.
    """
    broken = any(
        module.kernel_size == (1, 1) and max(module.stride) > 1 and 1 < module.in_channels < 8
        for module in model.modules()
        if isinstance(module, nn.Conv2d)
    )
    return torch.contiguous_format if broken else torch.channels_last


def _stage_indices(model: Any) -> list[int] | None:
    """All stages of a hierarchical model; the last block of one whose blocks all have the same grid.

    None where timm gives no intermediates (VGG, DenseNet): the last feature map is then the only grid.
    """
    if not callable(getattr(model, "forward_intermediates", None)):
        return None
    reductions = [info["reduction"] for info in getattr(model, "feature_info", [])]
    same_grid = len(set(reductions)) == 1
    return [len(reductions) - 1] if same_grid else list(range(len(reductions)))


# What timm's constructors and layers raise where arguments or images do not suit them.
BUILD_ERRORS = (
    TypeError, ValueError, RuntimeError, AssertionError, AttributeError, LookupError, ArithmeticError, NameError, MemoryError
)  # fmt: skip


def create_backbone(
    timm_name: str, kwargs: dict[str, Any], *, num_classes: int, in_chans: int, img_size: int, drop_path: float = 0.0,
    most_parameters: float | None = None,
) -> Backbone:  # fmt: skip
    """Build and try the model: one that cannot take these images is refused here, with the reason."""
    check_model_name(timm_name)
    check_arguments(kwargs)
    if most_parameters is None:
        most_parameters = MOST_PARAMETERS if kwargs else math.inf
    arguments = dict(kwargs)
    if drop_path:
        arguments["drop_path_rate"] = drop_path
    try:
        if _wants_size(timm_name):
            arguments["img_size"] = img_size
        with bounded(most_parameters):
            model = timm.create_model(timm_name, num_classes=num_classes, in_chans=in_chans, **arguments)
        if "drop_path_rate" not in arguments:
            _never_drop(model)
        backbone = Backbone(model, img_size, in_chans)
        features = _try(backbone)
    except BUILD_ERRORS as error:
        shown = ", ".join(f"{key}={value}" for key, value in arguments.items()) or "no arguments"
        shape = f"{several(in_chans, 'channel')} of {img_size} px"
        if ran_out(error):
            raise OutOfMemory(
                f"out of memory: model {timm_name} ({shown}) for {shape} does not fit: try a smaller model, or a smaller --img-size "
                f"({what_ran_out(error)})"
            ) from None
        why = str(error) or f"timm gives no reason ({type(error).__name__})"
        raise UsageError(f"model {timm_name} ({shown}) cannot be used for {shape}: {why}") from None
    backbone.width = features.pooled_BD.shape[1]
    backbone.grid_shapes = tuple((grid.shape[1], grid.shape[2], grid.shape[3]) for grid in features.grids)
    return backbone


def _never_drop(model: nn.Module) -> None:
    """Where no rate is given it is 0: some of timm's models have another one of their own (Swin 0.1)."""
    for module in model.modules():
        if isinstance(module, DropPath):
            module.drop_prob = 0.0


@torch.no_grad()
def check_size(backbone: Backbone, name: str, size: int) -> None:
    """A model may take images of its own size only; crops of another one are refused here, with the reason."""
    if size == backbone.img_size:
        return
    backbone.eval()
    try:
        backbone(made_up_images(backbone, size))
    except (TypeError, ValueError, RuntimeError, AssertionError, IndexError) as error:
        raise UsageError(
            f"model {name} for images of {backbone.img_size} px cannot take crops of {size} px: {str(error).rstrip('.')}. "
            f"Give crops of {backbone.img_size} px (growing images: objective.grow=0), or a model that takes any size: conv_nano, "
            "hybrid_nano, dhvt_nano, cvt_nano, a ResNet, or a plain ViT (vit_nano, deit_tiny) with "
            "--set model.kwargs.dynamic_img_size=true"
        ) from None


@torch.no_grad()
def check_normed(backbone: Backbone, wish: str) -> None:
    """`Backbone.normed` is what the model itself calls its normed grid, or the wish for it is refused."""
    if backbone.grid_indices is None:
        return
    backbone.eval()
    images, model = made_up_images(backbone, backbone.img_size), backbone.model
    try:
        grids: list[Tensor] = model.forward_intermediates(  # type: ignore[operator]
            images, indices=backbone.grid_indices, norm=True, output_fmt="NCHW", intermediates_only=True
        )
        agrees = torch.allclose(backbone.normed(backbone(images).grids[-1]), grids[-1], atol=1e-4)
    except (AssertionError, RuntimeError):  # it has no normed grid, or a norm of another layout
        agrees = False
    if not agrees:
        raise UsageError(f"{wish}: the last grid of {type(model).__name__} is not known after its norm; choose before")


def made_up_images(backbone: Backbone, size: int) -> Tensor:
    """Two, drawn from nothing: what a model can take is tried on them."""
    images = torch.linspace(-1, 1, backbone.in_chans * size**2)
    images = images.reshape(1, backbone.in_chans, size, size).repeat(2, 1, 1, 1)
    return images.contiguous(memory_format=backbone.memory_format)


@torch.no_grad()
def _try(backbone: Backbone) -> Features:
    """The features of a made-up image, whose logits must be timm's. The global random stream is left as it was."""
    backbone.eval()
    images = made_up_images(backbone, backbone.img_size)
    features = backbone(images)
    if isinstance(getattr(backbone.model, "get_classifier")(), tuple):  # noqa: B009
        raise ValueError("it has more than one classifier; smallvit trains models with one")
    if not torch.allclose(backbone.classify(features.pooled_BD), backbone.model(images), atol=1e-4):
        raise ValueError("its classifier does not stand on its pooled features alone")
    return features


def _wants_size(timm_name: str) -> bool:
    """Whether the constructor fixes the image size (position tables, windows) or takes any."""
    configuration = timm.models.get_pretrained_cfg(timm_name, allow_unregistered=True)
    return bool(configuration and configuration.fixed_input_size)


def check_model_name(name: str) -> None:
    # A colon or a slash means a model of elsewhere to timm: hf-hub:..., local-dir:...
    if name not in ALIASES and (any(mark in name for mark in ":/\\") or not timm.is_model(name)):
        choices = [*ALIASES, *timm.list_models()]
        raise UsageError(f"unknown model {name!r}: {nearest(name, choices)} (see `smallvit list models`)")


def count_parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())

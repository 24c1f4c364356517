"""The header of a model file, checked before anything is built of it: the file may be a stranger's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator

from smallvit.data.images import FULL_WHITE
from smallvit.errors import RunError, UsageError
from smallvit.mistakes import mistakes_in_words
from smallvit.models.arguments import check_arguments
from smallvit.models.features import check_model_name
from smallvit.recipe import CacheSize, Channels, Fit, ImageSize, Shift, White


class ModelHeader(BaseModel):
    """What is used of it; the rest is kept as it is."""

    model_config = ConfigDict(extra="allow", allow_inf_nan=False)

    model: Annotated[str, Field(max_length=100)]
    kwargs: dict[str, Any]
    class_names: list[str]  # empty after pretraining
    img_size: ImageSize
    cache_size: CacheSize
    in_chans: Channels
    fit: Fit
    mean: list[float]
    std: list[Annotated[float, Field(gt=0)]]
    white: White = FULL_WHITE
    flips: bool = False
    shifts: Shift = 0
    few_looks: bool = False
    calibrate: bool = False  # files of 0.1 have a temperature that is used where it is asked for
    temperature: Annotated[float, Field(gt=0)] | None = None

    @field_validator("mean", "std")
    @classmethod
    def _one_for_each_channel(cls, numbers: list[float], info: ValidationInfo) -> list[float]:
        if len(numbers) != (channels := info.data.get("in_chans", len(numbers))):
            raise ValueError(f"should hold {channels} numbers, one for each channel")
        return numbers


def has_model(header: Mapping[str, Any]) -> bool:
    """Whether it is the header of a model file at all, and not of a state or of somebody else's tensors."""
    return {name for name, field in ModelHeader.model_fields.items() if field.is_required()} <= header.keys()


def checked_header(path: Path, header: Mapping[str, Any]) -> dict[str, Any]:
    if not has_model(header):
        raise RunError(f"{path} does not hold a smallvit model: its header does not say which")
    try:
        checked = ModelHeader.model_validate(header)
        check_model_name(checked.model)
        check_arguments(checked.kwargs)
    except ValidationError as error:
        raise RunError(
            f"{path} does not hold a smallvit model: {mistakes_in_words(error, ModelHeader, header)}"
        ) from None
    except UsageError as error:
        raise RunError(f"{path} does not hold a smallvit model: {error}") from None
    return checked.model_dump(exclude_unset=True)

"""What a run found, as results.json and probe.json hold it."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from smallvit.runs.shapes import Count, Interval, Seconds, Share, Stored


class StoredFloor(Stored):
    label: str
    accuracy: Share | None = None  # None: it was not computed, and `why` says why
    interval: Interval | None = None
    balanced_accuracy: Share | None = None
    ahead_over_groups: float | None = None  # by how much the model is better at the least, where images come in groups
    p_over_groups: Share | None = None
    only_model: Count | None = None  # images that it alone has right
    only_floor: Count | None = None
    n: Count | None = None
    why: str = ""


class StoredClass(Stored):
    name: str
    n: Count
    accuracy: Share | None
    interval: Interval


class StoredScores(Stored):
    """Of a part that was judged."""

    n: Annotated[int, Field(ge=1, le=1 << 53)]
    accuracy: Share
    interval: Interval
    loss: float
    groups: Annotated[int, Field(ge=1, le=1 << 53)] | None = None  # that the images come in; None: they have none
    balanced_accuracy: Share | None = None
    balanced_interval: Interval | None = None
    macro_f1: Share | None = None
    macro_f1_interval: Interval | None = None
    auroc: Share | None = None
    auroc_interval: Interval | None = None
    per_class: list[StoredClass] = Field(default_factory=list)
    confusion: list[list[Count]] = Field(default_factory=list)
    of_fold: dict[str, Share] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _square(self) -> StoredScores:
        if self.confusion and any(len(row) != len(self.confusion) for row in self.confusion):
            raise ValueError("confusion should have as many columns as rows")
        return self


class StoredWeights(Stored):
    which: str
    ema: bool
    epoch: Count


class StoredTiming(Stored):
    train_seconds: Seconds


class StoredModel(Stored):
    name: str
    parameters: Count
    grid: list[Count] = Field(default_factory=list)


class StoredBin(Stored):
    n: Count
    confidence: Share
    accuracy: Share


class StoredReliability(Stored):
    ece: float
    ece_if_perfect: float
    loss: float
    bins: list[StoredBin]

    @model_validator(mode="after")
    def _of_images(self) -> StoredReliability:
        if not any(one.n for one in self.bins):
            raise ValueError("its bins hold no images")
        return self


class StoredFit(Stored):
    n: Count


class StoredCalibration(Stored):
    part: str
    bins: str
    before: StoredReliability
    after: StoredReliability | None = None
    temperature: Annotated[float, Field(gt=0)] | None = None
    fitted_on: StoredFit | None = None
    not_fitted: str = ""
    used: bool = False

    @model_validator(mode="after")
    def _says_on_what(self) -> StoredCalibration:
        if self.temperature is not None and self.fitted_on is None:
            raise ValueError("it has a temperature and does not say what it was fitted on")
        return self


class StoredExample(Stored):
    label: str
    file: str


class StoredMistake(Stored):
    file: str
    true: str
    predicted: str
    probability: Share
    true_probability: Share


class StoredSuspect(Stored):
    file: str
    given: str
    said: str
    probability: Share
    given_probability: Share


class StoredShown(Stored):
    title: str
    words: str
    columns: Annotated[list[str], Field(min_length=1)]


class NoCalibration(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ResultsFile(Stored):
    """Of a run, or of folds together."""

    evaluated_part: str | None
    parts: dict[str, StoredScores]
    weights: StoredWeights
    timing: StoredTiming
    model: StoredModel
    judged_by: str = "classifier"
    floors: dict[str, StoredFloor] = Field(default_factory=dict)
    calibration: StoredCalibration | NoCalibration = NoCalibration()
    examples: list[StoredExample] = Field(default_factory=list)
    mistakes: list[StoredMistake] = Field(default_factory=list)
    label_errors: list[StoredSuspect] = Field(default_factory=list)
    suspected_labels: Count = 0
    shown: StoredShown | None = None
    collapse: str = ""
    folds: Annotated[int, Field(ge=2, le=1000)] | None = None
    runs: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _judged(self) -> ResultsFile:
        if self.evaluated_part is not None and self.evaluated_part not in self.parts:
            raise ValueError(f"it was judged on the part {self.evaluated_part!r} and says nothing of it")
        return self


class StoredProbe(StoredFloor):
    n: Count


class ProbeFile(Stored):
    part: str
    knn: StoredProbe | None = None
    linear: StoredProbe | None = None
    floors: dict[str, StoredFloor] = Field(default_factory=dict)

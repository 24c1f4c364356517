"""Whether the position embeddings of neighbouring cells are alike: how much of the image's geometry was learned."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smallvit.diagnosis.findings import Finding
from smallvit.diagnosis.measurements.base import Measurement

if TYPE_CHECKING:
    from smallvit.diagnosis.inputs import Inputs


class PositionLikeness(Measurement):
    name = "positions"
    place = 60
    label = "positions"

    def measure(self, inputs: Inputs) -> Finding | None:
        from smallvit.diagnosis.layer_features import position_similarity

        places, before = position_similarity(inputs.model), position_similarity(inputs.untrained.model)
        if places is None or before is None:
            return None
        numbers = {"correlation": places.correlation, "correlation_initial": before.correlation}
        return Finding("positions", {"similarity": places.similarity_NN.numpy()}, numbers)

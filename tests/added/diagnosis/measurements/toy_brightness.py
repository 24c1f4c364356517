"""How bright the judged images are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smallvit.diagnosis.findings import Finding
from smallvit.diagnosis.measurements.base import Canvas, Findings, Measurement, Panel, Said, StoredFindings
from smallvit.drawing.figures import Curve, curve_panel

if TYPE_CHECKING:
    from smallvit.diagnosis.inputs import Inputs


class ToyBrightness(Measurement):
    name = "toy_brightness"
    place = 120
    label = "brightness"

    def measure(self, inputs: Inputs) -> Finding:
        brightness_N = inputs.judged.images_NCHW.mean((1, 2, 3)).sort().values
        return Finding(self.name, {"brightness": brightness_N.numpy()}, {"mean": float(brightness_N.mean())})

    def say(self, findings: Findings) -> Said:
        return Said("its images were looked at", "a toy says that they are bright", 0.01)

    def panel(self, findings: StoredFindings, canvas: Canvas) -> Panel:
        values = [float(value) for value in findings[self.name].arrays["brightness"]]
        curve = Curve([float(place) for place in range(len(values))], values, canvas.series)
        drawn = curve_panel([curve], f"toy-{canvas.series}", "Brightness of images", "image", from_zero=False)
        return Panel(80, "How bright the images are", "A toy measured it.", (("Brightness", drawn),))

"""What an answer hangs on: parts of an image are hidden one after the other, and the answer is asked for again.

It asks nothing of the model, so CNNs and transformers can be told apart by it (Zeiler and Fergus, 2014).
C channels, S side, K classes, G places in a row.
"""

from __future__ import annotations

import torch
from torch import Tensor

from smallvit.evaluation.predictor import Predictor

PLACES = 8  # in a row and in a column
SIDE = 0.25  # of what is hidden, as a share of the image's side


def hangs_on(predictor: Predictor, image_CSS: Tensor, places: int = PLACES) -> Tensor:
    """(G, G): by how much the probability of the model's answer falls when the square around each place is hidden.

    The image is as the model takes it; what is hidden is grey, the mean of the training images. Below 0 the model is surer
    without the part.
    """
    hidden_XCSS = image_CSS.repeat(places**2, 1, 1, 1)
    size = image_CSS.shape[-1]
    reach = max(1, round(SIDE * size / 2))
    middles = ((torch.arange(places) + 0.5) * size / places).round().int().tolist()
    for number, (row, column) in enumerate((row, column) for row in middles for column in middles):
        rows, columns = (slice(max(0, middle - reach), middle + reach) for middle in (row, column))
        hidden_XCSS[number, :, rows, columns] = 0.0
    logits_XK = predictor.logits_of([image_CSS[None], *hidden_XCSS.split(32)])
    sure_X = logits_XK.softmax(1)[:, int(logits_XK[0].argmax())]
    return (sure_X[0] - sure_X[1:]).view(places, places)

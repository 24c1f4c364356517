"""Histograms of oriented gradients (scikit-image) and a linear support vector machine (scikit-learn): no network.

`cells` is how many cells an image is wide; `colour` adds the mean colour of each; `mirrored` trains on mirror images,
too.
"""

from __future__ import annotations

import numpy as np
from entry import enter
from numpy.typing import NDArray
from skimage.feature import hog
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC


def features(images: NDArray[np.uint8], cells: int, colour: bool) -> NDArray[np.float32]:
    size = images.shape[1] // cells
    found = [
        hog(image, orientations=9, pixels_per_cell=(size, size), cells_per_block=(2, 2), channel_axis=-1)
        for image in images
    ]
    if colour:
        means = images.reshape(len(images), cells, size, cells, size, 3).mean((2, 4)) / 255
        return np.concatenate([np.stack(found), means.reshape(len(images), -1)], axis=1).astype(np.float32)
    return np.stack(found).astype(np.float32)


def main() -> None:
    entry = enter(__doc__, cells=8, c=5e-4, colour=1, mirrored=0)
    settings = entry.settings
    images, labels = entry.x_train, entry.y_train
    if settings["mirrored"] and entry.mirrors:
        images, labels = np.concatenate([images, images[:, :, ::-1]]), np.concatenate([labels, labels])
    train, test = (features(x, settings["cells"], bool(settings["colour"])) for x in (images, entry.x_test))
    machine = LinearSVC(C=settings["c"], random_state=entry.seed, max_iter=300)
    model = make_pipeline(StandardScaler(), machine).fit(train, labels)
    entry.finish(model.predict(test), epochs=1, parameters=machine.coef_.size + machine.intercept_.size)


if __name__ == "__main__":
    main()

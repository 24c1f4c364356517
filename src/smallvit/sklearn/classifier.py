"""ViTClassifier: a scikit-learn estimator whose fit is `smallvit.train` on all images that it is given.

Splitting is the caller's (cross_val_score, GridSearchCV): no image is held out. Images are uint8, N x H x W or N x H x W x C, or
flat rows with `image_shape`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from smallvit.api import train
from smallvit.errors import DataError, UsageError
from smallvit.opened import Run
from smallvit.runs.prediction import embed, predict_proba
from smallvit.sklearn.keeping import (
    About,
    copied,
    lasting,
    new_folder,
    packed,
    read_about,
    storable,
    unpacked,
    write_about,
)


class ViTClassifier(ClassifierMixin, TransformerMixin, ClassNamePrefixFeaturesOutMixin, BaseEstimator):  # type: ignore[misc]
    """Train an image classifier from scratch. `epochs` replaces the budget; other settings are as for `smallvit.train`.

    After `fit`: `classes_`, and `run_`, the run with its report, in a folder that is removed with the estimator; `save` keeps
    it. A pickled estimator carries the files of its run, without the images.
    """

    def __init__(
        self, model: str = "auto", budget: str | float | None = "2m", *, epochs: int | None = None,
        img_size: int | None = None, image_shape: tuple[int, ...] | None = None, recipe: str | Path = "default",
        settings: Mapping[str, Any] | None = None, random_state: int = 0, threads: int | None = None,
        device: str = "auto", verbose: bool = False,
    ) -> None:  # fmt: skip
        self.model = model
        self.budget = budget
        self.epochs = epochs
        self.img_size = img_size
        self.image_shape = image_shape
        self.recipe = recipe
        self.settings = settings
        self.random_state = random_state
        self.threads = threads
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> Self:
        """Train on all images of X. `y` are numbers or class names."""
        images, n_features = self._images(X)
        labels = column_or_1d(y, warn=True)
        labels = np.array(labels.tolist()) if labels.dtype == object else labels
        check_classification_targets(labels)
        if len(labels) != len(images):
            raise ValueError(f"X holds {len(images)} images, y {len(labels)} labels")
        classes, numbers = np.unique(labels, return_inverse=True)
        # What a run can call by the same name, it does; signs, fractions and truths it cannot.
        nameable = classes.dtype.kind == "U" or (classes.dtype.kind in "iu" and classes[0] >= 0)
        storable(self.get_params())  # what cannot be kept is told before it is trained with
        with new_folder() as folder:
            run = lasting(self._train(images, labels if nameable else numbers, folder / "run"), folder)
            write_about(run, About(self.get_params(), classes, n_features))
        return self._with(run)

    def _train(self, images: np.ndarray, labels: np.ndarray, out: Path) -> Run:
        try:
            return train(
                (images, labels), out=out, recipe=self.recipe, settings=self.settings, model=self.model,
                img_size=self.img_size, epochs=self.epochs, budget=self.budget if self.epochs is None else None,
                seed=self.random_state, threads=self.threads, device=self.device, val="none", test="none",
                show_progress=self.verbose,
            )  # fmt: skip
        except DataError as error:  # what scikit-learn expects of data that cannot be used
            raise ValueError(str(error)) from error

    def predict(self, X: Any) -> np.ndarray:
        likeliest = self.predict_proba(X).argmax(1)
        return self.classes_[likeliest]

    def predict_proba(self, X: Any) -> np.ndarray:
        """(N, K): the probabilities of `classes_`."""
        return self._ask(predict_proba, X)

    def transform(self, X: Any) -> np.ndarray:
        """(N, D): the features that the classifier stands on."""
        return self._ask(embed, X)

    def save(self, folder: str | Path, overwrite: bool = False) -> Run:
        """Keep the run: a folder that `load` and every command of smallvit take. Its images lie beside it."""
        check_is_fitted(self)
        return copied(self.run_, Path(folder), overwrite)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """A saved estimator, or any finished run of a classifier."""
        run = Run(folder)
        parameters = read_about(run).parameters
        if shape := parameters.get("image_shape"):
            parameters["image_shape"] = tuple(shape)
        try:
            return cls(**parameters)._with(run)
        except TypeError as error:
            raise UsageError(f"{folder} is of another version of {cls.__name__}: {error}") from None

    # ---- how it works --------------------------------------------------------------------------------

    def _with(self, run: Run) -> Self:
        """Fitted, with this run."""
        about = read_about(run)
        self.run_, self.classes_ = run, about.classes
        if about.n_features_in is not None:
            self.n_features_in_ = about.n_features_in
        elif hasattr(self, "n_features_in_"):
            del self.n_features_in_
        return self

    def _images(self, X: Any) -> tuple[np.ndarray, int | None]:
        """The images, and how many features each has where they are flat."""
        images = X.detach().cpu().numpy() if hasattr(X, "detach") else np.asarray(X)
        if not len(images):
            raise ValueError(f"Found array with 0 sample(s) (shape={images.shape}) while a minimum of 1 is required.")
        n_features = None
        if images.ndim == 2:
            n_features = images.shape[1]
            images = images.reshape(-1, *self._shape_of_flat(n_features))
        if images.dtype.kind in "iu" and images.dtype != np.uint8 and images.min() >= 0 and images.max() <= 255:
            images = images.astype(np.uint8)
        if images.ndim not in (3, 4) or images.dtype != np.uint8:
            raise ValueError(
                f"X is {images.dtype} {images.shape}: images are uint8, N x H x W or N x H x W x C; where white is 1, that "
                "is (255 * X).round().astype('uint8')"
            )
        return (images[..., None] if images.ndim == 3 else images), n_features

    def _shape_of_flat(self, n_features: int) -> tuple[int, ...]:
        if self.image_shape is None:
            raise ValueError(
                f"X has {n_features} features: images are N x H x W x C; of flat ones say image_shape=(H, W)"
            )
        if math.prod(self.image_shape) != n_features:
            raise ValueError(
                f"X has {n_features} features, but {type(self).__name__} is expecting {math.prod(self.image_shape)} "
                f"features as input: image_shape is {tuple(self.image_shape)}"
            )
        return tuple(self.image_shape)

    def _ask(self, question: Any, X: Any) -> np.ndarray:
        check_is_fitted(self)
        images, _ = self._images(X)
        channels = self.run_.recipe.data.in_chans
        if np.ndim(X) == 3 and channels != 1 and images.shape[2] == channels:  # else it would be a stack of grey ones
            raise ValueError(f"X is one image, {images.shape[:3]}: give several, N x H x W x {channels}, or X[None]")
        return question(self.run_.path, images, threads=self.threads, device=self.device)

    @property
    def _n_features_out(self) -> int:
        return int(self.run_.model().num_features)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "run_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.image_shape is not None
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = []
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """In another process there is another folder: the files go along."""
        state = dict(super().__getstate__())
        if "run_" in state:
            state["run_"] = packed(state["run_"])
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "run_" in state:
            self.run_ = unpacked(state["run_"])

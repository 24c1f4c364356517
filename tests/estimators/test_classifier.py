"""ViTClassifier among scikit-learn's own: their checks one by one, cross-validation, pipelines, saving."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks as checks

import smallvit
from helpers import ends_well, make_folder, run_here
from smallvit.errors import RunError
from smallvit.sklearn import ViTClassifier

QUICK: dict[str, Any] = {"model": "vit_pico", "epochs": 1, "threads": 1, "img_size": 8}


def shades(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Dark and light images, whose labels are 3 and 7."""
    draw = np.random.default_rng(seed)
    labels = draw.permutation(np.arange(count) % 2)
    pixels = draw.integers(0, 100, (count, 8, 8, 1)) + 150 * labels[:, None, None, None]
    return pixels.astype(np.uint8), 4 * labels + 3


X, Y = shades(24)


@pytest.fixture(scope="module")
def fitted() -> ViTClassifier:
    return ViTClassifier(**QUICK).fit(X, Y)


# ---- scikit-learn's checks ---------------------------------------------------------------------------

# check_estimator runs none of its checks on an estimator that takes images, so those that apply are named here.
# They need no data:
OF_THE_INTERFACE = [
    checks.check_no_attributes_set_in_init,
    checks.check_get_params_invariance,
    checks.check_set_params,
    checks.check_parameters_default_constructible,
]
if tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 6):  # 1.5 has not got these
    OF_THE_INTERFACE += [
        checks.check_estimator_cloneable,
        checks.check_estimator_tags_renamed,
        checks.check_valid_tag_types,
        checks.check_estimator_repr,
        checks.check_do_not_raise_errors_in_init_or_set_params,
        checks.check_mixin_order,
    ]
# These bring tables of fractions, which `OfTables` makes images of. Each trains at least one model:
OF_TABLES = [
    checks.check_estimators_unfitted,
    checks.check_fit_score_takes_y,
    checks.check_estimators_fit_returns_self,
    checks.check_estimators_overwrite_params,
    checks.check_dont_overwrite_parameters,
    checks.check_dict_unchanged,
    checks.check_estimators_pickle,
]


class OfTables(ViTClassifier):
    """A row of any numbers as an image of 4 px: of the checks' tables only, the rest is the estimator's own."""

    def _images(self, X: Any) -> tuple[np.ndarray, int | None]:
        table = np.asarray(X, dtype=float)
        spread = np.resize(255 / (1 + np.exp(-table)), (len(table), 4, 4, 1))
        return super()._images(spread.astype(np.uint8))[0], table.shape[1]


@pytest.mark.parametrize("check", OF_THE_INTERFACE, ids=lambda check: check.__name__)
def test_check_of_the_interface(check: Any) -> None:
    check("ViTClassifier", ViTClassifier())


@pytest.mark.parametrize("check", OF_TABLES, ids=lambda check: check.__name__)
def test_check_with_data(check: Any) -> None:
    check("OfTables", OfTables(**QUICK | {"img_size": 4}))


# ---- fitting and asking ------------------------------------------------------------------------------


def test_what_a_fitted_one_says(fitted: ViTClassifier) -> None:
    assert fitted.classes_.tolist() == [3, 7]
    probabilities = fitted.predict_proba(X)
    assert probabilities.shape == (24, 2) and np.allclose(probabilities.sum(1), 1)
    assert fitted.predict(X).tolist() == fitted.classes_[probabilities.argmax(1)].tolist()
    assert fitted.score(X, Y) == np.mean(fitted.predict(X) == Y)
    assert fitted.transform(X).shape == (24, len(fitted.get_feature_names_out()))
    assert fitted.run_.read("split.json")["parts"]["train"]["n"] == 24, "nothing is held out"
    assert fitted.run_.recipe.epochs == 1 and fitted.run_.recipe.budget is None


def test_its_run_calls_the_classes_by_the_same_numbers(fitted: ViTClassifier) -> None:
    assert fitted.run_.classes == ("3", "7")
    assert [int(answer.label) for answer in fitted.run_.predict(list(X[:5]))] == fitted.predict(X[:5]).tolist()
    assert ViTClassifier(**QUICK).fit(X, Y - 5).run_.classes == ("0", "1"), "a run knows no negative numbers"


def test_it_learns() -> None:
    estimator = ViTClassifier(**QUICK | {"epochs": 8}).fit(X, Y)
    assert estimator.score(*shades(40, 1)) > 0.9


@pytest.mark.parametrize("labels", [np.where(Y > 5, "light", "dark"), Y > 5, Y / 2 * 2], ids=["text", "bool", "float"])
def test_labels_come_back_as_they_were(labels: np.ndarray) -> None:
    estimator = ViTClassifier(**QUICK).fit(X, labels)
    assert estimator.classes_.tolist() == np.unique(labels).tolist()
    assert estimator.predict(X).dtype == labels.dtype


def test_flat_images_are_the_same_images(fitted: ViTClassifier) -> None:
    flat = X.reshape(24, 64)
    estimator = ViTClassifier(**QUICK, image_shape=(8, 8)).fit(flat.astype(np.int64), Y)
    assert estimator.n_features_in_ == 64 and not hasattr(fitted, "n_features_in_")
    assert np.array_equal(estimator.predict_proba(flat), fitted.predict_proba(X))
    with pytest.raises(ValueError, match=r"X has 60 features, but ViTClassifier is expecting 64 features as input"):
        estimator.predict(flat[:, :60])


@pytest.mark.parametrize(
    ("images", "labels", "message"),
    [
        (X / 255, Y, r"X is float64 .* uint8.*\(255 \* X\)"),
        (X.reshape(24, 64), Y, r"say image_shape=\(H, W\)"),
        (X[:0], Y[:0], r"0 sample\(s\)"),
        (X, Y[:5], "X holds 24 images, y 5 labels"),
        (X, np.zeros(24, int), "one class only"),
        (X, np.linspace(0, 1, 24), "continuous"),
    ],
)
def test_what_is_refused(images: np.ndarray, labels: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ViTClassifier(**QUICK).fit(images, labels)


# ---- among scikit-learn's tools ----------------------------------------------------------------------


def test_one_image_is_not_taken_for_many(fitted: ViTClassifier) -> None:
    """In colour; a stack of grey ones has the same number of axes."""
    images = np.random.default_rng(0).integers(0, 256, (8, 8, 8, 3), dtype=np.uint8)
    in_colour = clone(fitted).set_params(image_shape=None).fit(images, np.arange(8) % 2)
    assert in_colour.predict(images[:1]).shape == (1,)
    with pytest.raises(ValueError, match=r"X is one image, \(8, 8, 3\): give several, N x H x W x 3, or X\[None\]"):
        in_colour.predict(images[0])


def test_pipeline_search_and_clone(fitted: ViTClassifier) -> None:
    scaled = make_pipeline(FunctionTransformer(lambda unit: (255 * unit).round().astype(np.uint8)), clone(fitted))
    assert np.array_equal(scaled.fit(X / 255, Y).predict_proba(X / 255), fitted.predict_proba(X))
    search = GridSearchCV(clone(fitted), {"random_state": [0, 1]}, cv=2, refit=False).fit(X, Y)
    assert len(search.cv_results_["mean_test_score"]) == 2
    on_features = make_pipeline(clone(fitted), LogisticRegression()).fit(X, Y)
    assert on_features.score(X, Y) > 0.5


@pytest.mark.slow  # two processes import torch
def test_cross_validation_in_processes() -> None:
    estimator = ViTClassifier(**QUICK)
    alone, beside = (cross_val_score(estimator, X, Y, cv=2, n_jobs=jobs, error_score="raise") for jobs in (1, 2))
    assert beside.tolist() == alone.tolist()


# ---- keeping it --------------------------------------------------------------------------------------


def test_a_copy_has_a_run_of_its_own(fitted: ViTClassifier) -> None:
    for other in (pickle.loads(pickle.dumps(fitted)), copy.deepcopy(fitted)):
        assert other.run_.path != fitted.run_.path
        assert np.array_equal(other.predict_proba(X), fitted.predict_proba(X))
        assert other.get_params() == fitted.get_params()


def test_the_folder_lives_as_long_as_the_run() -> None:
    estimator = ViTClassifier(**QUICK).fit(X, Y)
    run = estimator.run_
    folder = run.path
    del estimator
    assert folder.is_dir()
    del run
    assert not folder.parent.exists()


def test_saved_and_loaded(fitted: ViTClassifier, tmp_path: Path) -> None:
    run = fitted.save(tmp_path / "kept")
    with pytest.raises(RunError, match="already used"):
        fitted.save(tmp_path / "kept")
    fitted.save(tmp_path / "kept", overwrite=True)
    loaded = ViTClassifier.load(tmp_path / "kept")
    assert loaded.get_params() == fitted.get_params()
    assert loaded.classes_.dtype == fitted.classes_.dtype
    assert np.array_equal(loaded.predict_proba(X), fitted.predict_proba(X))
    assert pickle.loads(pickle.dumps(fitted)).save(tmp_path / "from-bytes").classes == run.classes
    # It is a run like any other, with its images beside it.
    ends_well(run_here("evaluate", tmp_path / "kept", "--part", "train"))
    loaded.save(tmp_path / "kept", overwrite=True)  # onto itself
    assert np.array_equal(ViTClassifier.load(tmp_path / "kept").predict_proba(X), fitted.predict_proba(X))


def test_numbers_of_numpy_are_parameters_and_what_cannot_be_kept_is_told_at_once() -> None:
    ViTClassifier(**{**QUICK, "epochs": np.int64(1), "settings": {"batch_size": np.int64(8)}}).fit(X, Y)
    with pytest.raises(RunError, match="cannot be kept"):
        ViTClassifier(**{**QUICK, "settings": {"batch_size": {1, 2}}}).fit(X, Y)


def test_a_run_on_a_table_keeps_its_files_where_they_are(tmp_path: Path) -> None:
    make_folder(tmp_path / "photos", {"a": 8, "b": 8})
    files = sorted((tmp_path / "photos").rglob("*.png"))
    table = tmp_path / "photos" / "table.csv"
    table.write_text("path,label\n" + "".join(f"{file.parent.name}/{file.name},{file.parent.name}\n" for file in files))
    run = smallvit.train(table, out=tmp_path / "a", show_progress=False, **QUICK)
    saved = ViTClassifier.load(run.path).save(tmp_path / "out" / "m")
    assert saved.recipe.data.source == str(table) and not (tmp_path / "out" / "table.csv").exists()
    ends_well(run_here("evaluate", tmp_path / "out" / "m"))


def test_any_run_can_be_loaded(tmp_path: Path) -> None:
    run = smallvit.train((X, Y), out=tmp_path / "a", show_progress=False, **QUICK)
    loaded = ViTClassifier.load(run.path)
    assert loaded.classes_.tolist() == ["3", "7"]
    assert np.array_equal(loaded.predict_proba(X), run.predict_proba(X))
    with pytest.raises(RunError, match="is not a run folder"):
        ViTClassifier.load(tmp_path)
    (run.path / "estimator.json").write_text(
        json.dumps({"parameters": {}, "classes": {"values": [1], "dtype": "O"}, "n_features_in": None})
    )
    with pytest.raises(RunError, match=r"estimator.json is damaged"):
        ViTClassifier.load(run.path)


def test_unfitted() -> None:
    for ask in ("predict", "predict_proba", "transform"):
        with pytest.raises(NotFittedError):
            getattr(ViTClassifier(), ask)(X)
    with pytest.raises(NotFittedError):
        ViTClassifier().save("nowhere")


def test_smallvit_itself_needs_no_sklearn() -> None:
    code = "import sys, smallvit; assert not {'sklearn', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

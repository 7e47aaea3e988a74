"""`CentroidEncoder`: conventions of scikit-learn, reproducibility, interruption, errors."""

from __future__ import annotations

import copy
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import torch
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks

import centroid_encoder as ce
from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.core.settings import resolved
from centroid_encoder.core.splits import stratified_holdout
from centroid_encoder.errors import InputTypeError
from centroid_encoder.recipes import RECIPES

Data = tuple[NDArray[Any], NDArray[Any]]


def quick(**params: Any) -> ce.CentroidEncoder:
    defaults = {"hidden": (32, 16), "max_epochs": 15, "random_state": 0}
    return ce.CentroidEncoder(**(defaults | params))


@pytest.fixture(scope="module")
def iris() -> Data:
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


@pytest.fixture(scope="module")
def models(iris: Data) -> dict[str, ce.CentroidEncoder]:
    """Fitted models of each placement. A test must copy a model before it changes the model."""
    options: dict[str, Any] = {
        "voronoi": {},
        "bottleneck": {"placement": "bottleneck", "scale": "feature", "clip": None},
    }
    return {name: quick(**params).fit(*iris) for name, params in options.items()}


def expected_failures(estimator: ce.CentroidEncoder) -> dict[str, str]:
    """Checks of scikit-learn that must fail, and the reasons."""
    if estimator.placement == "bottleneck":
        return {}
    cross_fitted = "fit_transform places each sample by a network that has not seen it"
    names = "check_transformer_general", "check_transformer_data_not_an_array"
    weighted = "predict gives small classes more weight than predict_proba"
    return dict.fromkeys(names, cross_fitted) | {"check_classifiers_train": weighted}


@pytest.mark.slow
@parametrize_with_checks(
    [
        ce.CentroidEncoder(hidden=(16,), max_epochs=15, placement="bottleneck"),
        ce.CentroidEncoder(hidden=(8,), max_epochs=10),
    ],
    expected_failed_checks=expected_failures,
)
def test_scikit_learn_checks(estimator: ce.CentroidEncoder, check: Any) -> None:
    with warnings.catch_warnings():
        # Some checks expect a warning for column vectors, single features or unseen names.
        warnings.simplefilter("ignore")
        check(estimator)


# Results


@pytest.mark.slow
def test_default_classifies_held_out_digits() -> None:
    X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
    model = ce.CentroidEncoder(random_state=0).fit(X, y)
    # With 10 classes, a linear map to the plane has a score of about 40 %, and chance is 10 %.
    assert model.score(X_test, y_test) > 0.93
    assert np.mean(model.predict_voronoi(X_test) == y_test) > 0.90
    draft = ce.CentroidEncoder.from_recipe("draft", random_state=0).fit(X, y)
    assert draft.n_epochs_ == 8
    assert (draft.predict_voronoi(X_test) == y_test).mean() > 0.9


def test_attributes_and_decisions_follow_their_formulas(iris: Data, models: Any) -> None:
    (X, y), model = iris, models["bottleneck"]
    embedding, distances = model.transform(X), model.decoder_distances(model.transform(X))
    assert embedding.dtype == np.float32
    for attribute, rows in ((model.centroids_, X), (model.centers_, embedding)):
        expected = [rows[y == name].mean(axis=0) for name in model.classes_]
        assert_allclose(attribute, expected, rtol=1e-4, atol=1e-6)
    assert model.n_epochs_ == 15 == len(pd.DataFrame(model.history_))
    assert model.history_["loss"][-1] < model.history_["loss"][0]
    assert_array_equal(model.get_feature_names_out(), ["centroidencoder0", "centroidencoder1"])
    # The distances are those of the reconstructions to the centroids, up to one factor.
    back, centroids = (
        (values - X.mean(axis=0)) / X.std(axis=0)
        for values in (model.inverse_transform(embedding), model.centroids_)
    )
    expected = np.linalg.norm(back[:, None] - centroids, axis=2)
    ratio = distances / expected
    assert_allclose(ratio, ratio[0, 0], rtol=1e-3)
    assert_array_equal(model.predict(X), model.classes_[expected.argmin(axis=1)])
    assert_allclose(
        model.fitted_map.standardizer(X), (X - X.mean(axis=0)) / X.std(axis=0), atol=1e-5
    )


@pytest.mark.parametrize("placement", ["voronoi", "bottleneck"])
def test_all_methods_give_the_same_decision(iris: Data, models: Any, placement: str) -> None:
    (X, y), model = iris, models[placement]
    probabilities, predicted = model.predict_proba(X), model.predict(X)
    assert_array_equal(model.classes_[probabilities.argmax(axis=1)], predicted)
    assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-5)
    assert (predicted == y).mean() > 0.85
    if placement == "voronoi":
        assert_array_equal(model.predict_voronoi(X), predicted)
        nearest = model.decoder_distances(model.transform(X)).argmin(axis=1)
        assert_array_equal(model.classes_[nearest], predicted)


def test_features_without_relation_to_the_classes_get_little_weight() -> None:
    rng, y = np.random.default_rng(0), np.repeat([0, 1, 2], 200)
    X = np.column_stack([rng.normal(size=(600, 50)), 3.0 * y + rng.normal(size=600)])
    weights = quick(n_networks=1).fit(X, y).feature_weights_
    assert weights[-1] > 5 * weights[:-1].max()
    assert (weights[:-1] == 0).mean() > 0.3  # ε² is negative for about half of the noisy features
    one = quick(max_features=1).fit(X, y)
    assert_array_equal(np.flatnonzero(one.feature_weights_), [50])
    changed = X.copy()
    changed[:, :50] = 1e3
    assert_array_equal(one.transform(changed), one.transform(X))


def test_units_of_the_features_do_not_matter(iris: Data, models: Any) -> None:
    X, y = iris
    units = np.array([1.0, 1e-6, 1e4, 30.0])
    found = quick().fit(X * units, y).transform(X * units)
    assert_allclose(found, models["voronoi"].transform(X), atol=1e-3)


@pytest.mark.parametrize("container", [sparse.csc_array, pd.DataFrame, torch.tensor])
def test_same_map_from_any_container(container: Any, iris: Data, models: Any) -> None:
    X, y = iris
    columns = {"columns": list("abcd")} if container is pd.DataFrame else {}
    model = quick().fit(container(X, **columns), y)
    found = model.transform(container(X, **columns))
    assert_allclose(found, models["voronoi"].transform(X), atol=2e-3)


def test_pipeline_grid_search_and_cross_validation(iris: Data) -> None:
    X, y = iris
    pipeline = make_pipeline(FunctionTransformer(np.log1p), quick(max_epochs=60))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.85
    search = GridSearchCV(quick(), {"n_components": [1, 3]}, cv=2).fit(X, y)
    assert search.best_estimator_.transform(X).shape[1] in (1, 3)
    frame = quick().set_output(transform="pandas").fit_transform(X, y)
    assert list(frame.columns) == ["centroidencoder0", "centroidencoder1"]


@pytest.mark.parametrize("labels", [[3, 7], [False, True], ["b", "a"]])
def test_classes_keep_their_type_and_their_order_does_not_matter(labels: list[Any]) -> None:
    rng, codes = np.random.default_rng(0), np.repeat([0, 1], 30)
    X, y = rng.normal(size=(60, 4)) + 4 * codes[:, None], np.array(labels)[codes]
    model = quick(max_epochs=40).fit(X, y)
    assert model.predict(X).dtype == y.dtype
    assert np.mean(model.predict(X) == y) > 0.95
    assert model.classes_.tolist() == sorted(labels)
    categories = pd.Categorical(y, categories=labels[::-1])
    other = quick(max_epochs=40).fit(X, categories)
    assert_array_equal(other.transform(X), model.transform(X))


def test_compactness_reduces_the_spread_within_classes(iris: Data) -> None:
    (X, y), shares = iris, []
    for compactness in (0.0, 1.0):
        z = quick(placement="bottleneck", compactness=compactness).fit(X, y).transform(X)
        within = sum(((z[y == c] - z[y == c].mean(axis=0)) ** 2).sum() for c in np.unique(y))
        shares.append(within / ((z - z.mean(axis=0)) ** 2).sum())
    assert shares[1] < 0.7 * shares[0]


def test_validation_samples_only_calibrate(iris: Data) -> None:
    X, y = iris
    validates = stratified_holdout(np.unique(y, return_inverse=True)[1], 0.2, seed=0)
    changed = X.copy()
    changed[validates] *= -3
    one, other = (
        quick(placement="bottleneck", validation_fraction=0.2).fit(data, y) for data in (X, changed)
    )
    assert_array_equal(other.feature_weights_, one.feature_weights_)
    assert_array_equal(other.centroids_, one.centroids_)
    assert one.history_["loss"] == other.history_["loss"]
    assert one.history_["validation_loss"] != other.history_["validation_loss"]
    again = copy.deepcopy(one).calibrate(X[validates], y[validates])
    assert one.calibration_ == again.calibration_


def test_calibrated_probabilities_match_the_accuracy_on_new_samples() -> None:
    rng, codes = np.random.default_rng(0), np.arange(6000) % 2
    X, y = rng.normal(size=(6000, 4)) + codes[:, None], np.where(codes, "b", "a")
    model = quick(n_networks=1, dropout=0.0, weight_decay=0.0, max_epochs=60).fit(X[:150], y[:150])
    embedding, predicted = model.transform(X), model.predict(X)

    def gap() -> float:
        confidence = model.predict_proba(X[2000:]).max(axis=1)
        return abs(float(confidence.mean() - (predicted[2000:] == y[2000:]).mean()))

    before = gap()
    assert model.calibrate(X[150:2000], y[150:2000]) is model
    assert gap() < min(0.03, before / 2)
    assert_array_equal(model.transform(X), embedding)
    assert_array_equal(model.predict(X), predicted)


def test_novelty(iris: Data, models: Any) -> None:
    X, y = iris
    model = copy.deepcopy(models["voronoi"]).fit_novelty(X, y)
    assert (model.novelty(X + 100) == 1).all()
    assert 0.3 < model.novelty(X).mean() < 0.6
    with pytest.raises(NotFittedError, match="call fit_novelty"):
        models["voronoi"].novelty(X)


# Reproducibility

SCRIPT = """
import hashlib, centroid_encoder as ce
from sklearn.datasets import load_iris
X, y = load_iris(return_X_y=True)
for options in ({}, {"placement": "bottleneck", "pretrain_epochs": 1, "batch_norm": True}):
    model = ce.CentroidEncoder(max_epochs=3, random_state=0, **options).fit(X, y)
    results = model.transform(X).tobytes() + model.predict_proba(X).tobytes()
    print(hashlib.sha256(results).hexdigest())
"""


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_in_this_and_other_processes(
    iris: Data, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    exec(SCRIPT, {})
    assert capsys.readouterr().out == done.stdout
    X, y = iris
    one, again, other = (quick(random_state=seed).fit_transform(X, y) for seed in (1, 1, 2))
    assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    by_generator = quick(random_state=np.random.default_rng(1))
    assert not np.array_equal(by_generator.fit_transform(X, y), by_generator.fit_transform(X, y))


def global_states() -> tuple[bytes, ...]:
    return (
        pickle.dumps(random.getstate()),
        pickle.dumps(np.random.get_state()),  # noqa: NPY002 - it must not change
        torch.get_rng_state().numpy().tobytes(),
    )


@pytest.mark.parametrize(
    ("seed", "params"),
    [
        (None, {}),
        (0, {"placement": "bottleneck", "pretrain_epochs": 1, "merge_epochs": 1}),
        (np.random.default_rng(0), {}),
        (np.random.RandomState(0), {}),
    ],
)
def test_global_random_states_do_not_change(
    seed: Any, params: Any, iris: Data, tmp_path: Any
) -> None:
    before = global_states()
    X, y = iris
    model = quick(validation_fraction=0.2, max_epochs=2, random_state=seed, **params).fit(X, y)
    for Z in (model.transform(X), model.fit_novelty(X, y).transform(X)):
        model.inverse_transform(Z)
        model.decoder_distances(Z)
    for method in (model.predict, model.predict_proba, model.predict_voronoi, model.novelty):
        method(X)
    model.save(tmp_path / "map.safetensors")
    ce.load(tmp_path / "map.safetensors")
    assert global_states() == before


# Stop and Ctrl-C


@pytest.mark.parametrize("placement", ["voronoi", "bottleneck"])
def test_a_stop_after_an_epoch_keeps_the_best_state(iris: Data, placement: str) -> None:
    def stop(report: Report | None) -> bool:
        return report is not None and report.epoch == 3

    def interrupt(report: Report | None) -> bool:
        if stop(report):
            raise KeyboardInterrupt
        return False

    stopped, interrupted = (quick(placement=placement) for _ in range(2))
    stopped.fit(*iris, callback=stop)
    with pytest.warns(ConvergenceWarning, match="after 3 of 15 epochs"):
        interrupted.fit(*iris, callback=interrupt)
    assert stopped.n_epochs_ == interrupted.n_epochs_ == 3
    assert_array_equal(stopped.transform(iris[0]), interrupted.transform(iris[0]))


@pytest.mark.parametrize("error", [StoppedTooEarly, KeyboardInterrupt])
@pytest.mark.parametrize("placement", ["voronoi", "bottleneck"])
def test_a_stop_before_the_end_of_the_first_epoch_changes_nothing(
    iris: Data, models: Any, placement: str, error: Any
) -> None:
    X, y = iris

    def end(report: Report | None) -> bool:
        if report is None and error is KeyboardInterrupt:
            raise KeyboardInterrupt
        return report is None

    fresh, fitted = quick(placement=placement), copy.deepcopy(models[placement])
    with pytest.raises(error):
        fresh.fit(X, y, callback=end)
    assert not hasattr(fresh, "n_features_in_")
    with pytest.raises(error):
        fitted.fit(X[:, :3], y, callback=end)
    assert_array_equal(fitted.transform(X), models[placement].transform(X))


# Errors


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"n_components": 0}, "n_components must be at least 1 and below 65536; got 0"),
        ({"hidden": (10, 0)}, r"hidden\[1\] must be at least 1"),
        ({"hidden": "500"}, 'hidden must be "auto" or a sequence'),
        ({"scale": "minmax"}, "scale must be one of auto, supervised"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"clip": -1}, "clip must be above 0"),
        ({"max_epochs": "many"}, "max_epochs must be an integer"),
        ({"patience": 3}, "need a validation_fraction"),
        ({"pretrain_epochs": 3}, "pretrain_epochs=3 has no effect with placement='voronoi'"),
        ({"validation_fraction": 0.001}, "no class has the 1000 samples"),
        ({"class_weight": {"setosa": -1.0}}, "class_weight must be above 0"),
        ({"device": "quantum"}, "device 'quantum' is not available"),
        (
            {"placement": "bottleneck", "batch_norm": True, "batch_size": 2},
            "batch_norm needs a batch_size of at least 3",
        ),
    ],
)
def test_errors_name_the_wrong_parameter(params: Any, words: str, iris: Data) -> None:
    with pytest.raises(ValueError, match=words):
        quick(**params).fit(*iris)


def test_an_anndata_is_refused_with_a_hint(iris: Data, models: Any) -> None:
    adata, model = ad.AnnData(iris[0]), models["voronoi"]
    calls: list[Callable[[], Any]] = [
        lambda: model.transform(adata),
        lambda: model.predict(adata),
        lambda: model.predict_proba(adata),
        lambda: model.fit(adata, iris[1]),
        lambda: model.fit(adata, "species"),
        lambda: model.fit_transform(adata, iris[1]),
    ]
    words = r"not AnnData; pass adata\.X, or call ce\.tl\.centroid_encoder .* ce\.tl\.ingest"
    for call in calls:
        with pytest.raises(InputTypeError, match=words):
            call()


def test_labels_that_do_not_fit_the_data_or_the_map_are_errors(iris: Data, models: Any) -> None:
    (X, y), model = iris, copy.deepcopy(models["voronoi"])
    for dtype in ("string", "category", object):
        labels = pd.Series(y, dtype=dtype)
        labels[[3, 5]] = None
        with pytest.raises(ValueError, match="y has 2 missing labels"):
            quick().fit(X, labels)
    for swapped in ((y, X), (pd.Series(y), pd.DataFrame(X))):
        with pytest.raises(ValueError, match="X comes first"):
            quick().fit(*swapped)
    before = model.calibration_
    for arguments, words in (
        ((X[:2], ["setosa", "rose"]), "'rose', which is not among the classes"),
        ((X[:2], ["setosa"]), "inconsistent numbers of samples"),
        ((X[:2, :3], ["setosa", "setosa"]), "3 features"),
    ):
        for method in (model.calibrate, model.fit_novelty):
            with pytest.raises(ValueError, match=words):
                method(*arguments)
    assert model.calibration_ is before
    with pytest.raises(ValueError, match="at least 10 samples, but got 9"):
        model.fit_novelty(X[:9], y[:9])
    with pytest.raises(ValueError, match="lacks classes of the map"):
        model.fit_novelty(X[:100], y[:100])
    with pytest.raises(NotFittedError):
        quick().transform(X)


# Recipes and defaults


@pytest.mark.parametrize("name", [name for name in RECIPES if name.startswith("paper-")])
def test_recipes_have_the_papers_constants_and_stages(name: str, iris: Data) -> None:
    full = ce.CentroidEncoder.from_recipe(name)
    constants = {"output": "full", "scale": "feature", "optimizer": "amsgrad", "weight_decay": 2e-5}
    constants |= {"placement": "bottleneck", "class_weight": None, "pretrain_epochs": 25}
    assert constants.items() <= full.get_params().items()
    params = {"hidden": (8,), "pretrain_epochs": 2, "max_epochs": 6, "random_state": 0}
    model = ce.CentroidEncoder.from_recipe(name, **params).fit(*iris)
    stages = pd.Series(model.history_["stage"]).value_counts(sort=False).to_dict()
    merged = {"merge": full.merge_epochs} if full.merge_epochs else {}
    assert stages == {"pretrain 1": 2, "pretrain 2": 2, "train": 6} | merged
    assert model.n_epochs_ == 6 + full.merge_epochs
    assert clone(model).get_params() == model.get_params()
    with pytest.raises(ValueError, match="draft, paper-mnist, paper-usps"):
        ce.CentroidEncoder.from_recipe("paper-cifar")


BOTTLENECK = {"placement": "bottleneck"}


@pytest.mark.parametrize(
    ("params", "sizes", "expected"),
    [
        *(({}, (n, 50, 3), {"max_epochs": e}) for n, e in ((100, 60), (10_000, 30), (10**7, 5))),
        (BOTTLENECK, (10_000, 50, 16), {"max_epochs": 60, "pretrain_epochs": 30}),
        (BOTTLENECK, (10_000, 50, 15), {"max_epochs": 30, "pretrain_epochs": 0}),
        *(({"max_epochs": "few"}, (n, 50, 3), {"max_epochs": e}) for n, e in ((99, 8), (10**6, 2))),
        ({}, (2000, 16, 26), {"dropout": 0.02, "weight_decay": 16 / 52}),
        ({}, (2000, 200, 5), {"dropout": 0.25, "weight_decay": 1}),
        ({}, (60_000, 784, 10), {"weight_decay": 1 / 3, "batch_size": 256, "learning_rate": 7e-3}),
        (BOTTLENECK, (3_999, 50, 4), {"batch_norm": False, "hidden": (500, 250, 125)}),
        (BOTTLENECK | {"batch_size": 2}, (60_000, 50, 4), {"batch_norm": False}),
        ({}, (5_000, 100, 4), {"n_networks": 4, "hidden": (300, 200, 100)}),
        ({}, (5_000, 101, 4), {"n_networks": 4, "hidden": (250, 150, 75)}),
        ({}, (5_001, 50, 4), {"n_networks": 3, "hidden": (500, 250, 125)}),
        *(
            ({name: 7}, (5_001, 50, 4), {name: 7})
            for name in ("batch_size", "max_epochs", "hidden")
        ),
    ],
)
def test_defaults_follow_the_size_of_the_problem(
    params: Any, sizes: tuple[int, int, int], expected: dict[str, Any]
) -> None:
    settings = resolved(ce.CentroidEncoder(**params).get_params(), *sizes)
    for name, value in expected.items():
        assert settings[name] == pytest.approx(value), name

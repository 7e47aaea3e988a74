"""`CentroidEncoder`: scikit-learn's conventions, state on disk, interruption."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

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
from centroid_encoder.core.objective import CentroidTargets
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.core.saved import InvalidStateError
from centroid_encoder.core.splits import stratified_holdout
from centroid_encoder.recipes import RECIPES, resolved


def quick(**params: object) -> ce.CentroidEncoder:
    return ce.CentroidEncoder(
        **({"hidden": (32, 16), "max_epochs": 15, "random_state": 0} | params)
    )


@pytest.fixture(scope="module")
def iris() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_iris(return_X_y=True)
    return X, np.array(["setosa", "versicolor", "virginica"])[y]


@parametrize_with_checks(
    [
        ce.CentroidEncoder(hidden=(32,), max_epochs=25),
        ce.CentroidEncoder(hidden=(32,), max_epochs=25, placement="voronoi"),
    ]
)
def test_scikit_learn_checks(estimator: ce.CentroidEncoder, check: object) -> None:
    with warnings.catch_warnings():
        # Some checks pass column vectors, single features or unseen names, and expect a warning.
        warnings.simplefilter("ignore")
        check(estimator)


@pytest.mark.slow
def test_default_learns_digits_it_has_not_seen() -> None:
    X, y = load_digits(return_X_y=True)
    X_train, X_test, y_train, y_test = train_test_split(
        X, y, test_size=0.3, random_state=0, stratify=y
    )
    model = ce.CentroidEncoder(random_state=0).fit(X_train, y_train)
    # 10 classes on 64 pixels in the plane; a linear map reaches about 40 %, chance is 10 %.
    assert model.score(X_test, y_test) > 0.93
    assert np.mean(model.predict_voronoi(X_test) == y_test) > 0.90


def test_attributes_after_fit(iris: tuple) -> None:
    X, y = iris
    model = quick(scale="feature", placement="bottleneck").fit(X, y)
    assert_array_equal(model.classes_, ["setosa", "versicolor", "virginica"])
    assert_allclose(
        model.centroids_, [X[y == name].mean(axis=0) for name in model.classes_], rtol=1e-5
    )
    embedding = model.transform(X)
    assert embedding.shape == (150, 2)
    assert embedding.dtype == np.float32
    assert_allclose(
        model.centers_, [embedding[y == name].mean(axis=0) for name in model.classes_], rtol=1e-5
    )
    assert model.n_epochs_ == 15 == len(pd.DataFrame(model.history_))
    assert model.history_["loss"][-1] < model.history_["loss"][0]
    assert_array_equal(model.get_feature_names_out(), ["centroidencoder0", "centroidencoder1"])


def test_predict_is_the_nearest_centroid_of_the_reconstruction(iris: tuple) -> None:
    X, y = iris
    model = quick(scale="feature", clip=None, placement="bottleneck").fit(X, y)
    reconstruction = model.inverse_transform(model.transform(X))
    z = (reconstruction - X.mean(axis=0)) / X.std(axis=0)
    centroids = (model.centroids_ - X.mean(axis=0)) / X.std(axis=0)
    distances = np.linalg.norm(z[:, None] - centroids, axis=2)
    assert_array_equal(model.predict(X), model.classes_[distances.argmin(axis=1)])
    # The reported distances are these up to one factor.
    ratio = model.decoder_distances(model.transform(X)) / distances
    assert_allclose(ratio, ratio[0, 0], rtol=1e-3)


def test_features_without_relation_to_the_classes_get_little_weight() -> None:
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 200)
    noise = rng.normal(size=(600, 50))
    X = np.column_stack([noise, 3.0 * y + rng.normal(size=600)])
    # Of several networks each has its own weights, and those that are stored are their means.
    weights = quick(n_networks=1).fit(X, y).feature_weights_
    assert weights[-1] > 5 * weights[:-1].max()
    assert (weights[:-1] == 0).mean() > 0.3  # ε² is negative for about half the noise
    one = quick(max_features=1).fit(X, y)
    assert_array_equal(np.flatnonzero(one.feature_weights_), [50])
    # A feature left out cannot change anything, and comes back as its mean.
    changed = X.copy()
    changed[:, :50] = 1e3
    assert_array_equal(one.transform(changed), one.transform(X))
    back = one.inverse_transform(one.transform(X))
    assert_allclose(back[:, :50], np.broadcast_to(X[:, :50].mean(axis=0), (600, 50)), atol=1e-5)


def test_supervised_scale_does_not_depend_on_units(iris: tuple) -> None:
    X, y = iris
    units = np.array([1.0, 1e-6, 1e4, 30.0])
    assert_allclose(
        quick().fit(X, y).transform(X), quick().fit(X * units, y).transform(X * units), atol=1e-3
    )


@pytest.mark.parametrize("container", [sparse.csr_matrix, sparse.csc_array, pd.DataFrame])
@pytest.mark.parametrize("max_features", [None, 20])
def test_same_map_from_any_container(container: type, max_features: int | None) -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    dense = quick(max_features=max_features).fit(X, y)
    columns = [f"pixel {i}" for i in range(64)] if container is pd.DataFrame else None
    held = container(X) if columns is None else container(X, columns=columns)
    other = quick(max_features=max_features).fit(held, y)
    assert_allclose(other.transform(held), dense.transform(X), atol=2e-3)


def test_entries_of_one_sparse_cell_are_summed(iris: tuple) -> None:
    X, y = sparse.csr_array(iris[0]), iris[1]
    halves = sparse.csr_array(
        (np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), X.indptr * 2), shape=X.shape
    )
    model = quick().fit(halves, y)
    assert halves.nnz == 2 * X.nnz
    assert_array_equal(model.transform(halves), quick().fit(X, y).transform(X))


def test_works_in_pipeline_grid_search_and_cross_validation(iris: tuple) -> None:
    X, y = iris
    pipeline = make_pipeline(FunctionTransformer(np.log1p), quick(max_epochs=60))
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.85
    search = GridSearchCV(quick(), {"n_components": [1, 3]}, cv=2).fit(X, y)
    assert search.best_estimator_.transform(X).shape[1] in (1, 3)
    frame = quick().set_output(transform="pandas").fit_transform(X, y)
    assert list(frame.columns) == ["centroidencoder0", "centroidencoder1"]
    wrapped = quick().set_output(transform="pandas").fit(X, y)
    assert_array_equal(wrapped.predict(X), quick().fit(X, y).predict(X))


@pytest.mark.parametrize("labels", [[3, 7], [False, True], ["b", "a"]])
def test_classes_keep_their_type(labels: list) -> None:
    rng = np.random.default_rng(0)
    y = np.repeat(labels, 30)
    X = rng.normal(size=(60, 4)) + 4 * np.repeat([0, 1], 30)[:, None]
    predicted = quick(max_epochs=40).fit(X, y).predict(X)
    assert predicted.dtype == y.dtype
    assert np.mean(predicted == y) > 0.95


def test_class_weights_by_label(iris: tuple) -> None:
    X, y = iris
    rare = np.concatenate([np.arange(100), np.arange(100, 110)])

    def recall(class_weight: object) -> float:
        model = quick(class_weight=class_weight, batch_size=16, max_epochs=40)
        predicted = model.fit(X[rare], y[rare]).predict(X[y == "virginica"])
        return float(np.mean(predicted == "virginica"))

    assert recall({"virginica": 30.0}) > recall(None)
    assert recall("balanced") > recall("sqrt") > recall(None)


@pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
def test_class_weights_by_the_root_of_the_number(iris: tuple, placement: str) -> None:
    X, y = iris
    rare = np.concatenate([np.arange(100), np.arange(100, 110)])
    by_hand = {name: 1 / np.sqrt((y[rare] == name).sum()) for name in np.unique(y)}
    # Five times less often, and half as much for it.
    assert by_hand["virginica"] / by_hand["setosa"] == pytest.approx(np.sqrt(5))
    models = [
        quick(placement=placement, class_weight=weight).fit(X[rare], y[rare])
        for weight in ("sqrt", by_hand, None)
    ]
    embeddings = [model.transform(X) for model in models]
    assert_allclose(embeddings[0], embeddings[1], atol=1e-4)
    assert np.abs(embeddings[0] - embeddings[2]).max() > 0.01
    assert ce.CentroidEncoder().class_weight == "sqrt"


def test_same_seed_same_bits_and_other_seed_other_bits(iris: tuple) -> None:
    X, y = iris
    embeddings = [quick(random_state=seed).fit_transform(X, y) for seed in (1, 1, 2)]
    assert_array_equal(embeddings[0], embeddings[1])
    assert not np.array_equal(embeddings[0], embeddings[2])
    by_generator = quick(random_state=np.random.default_rng(1))
    assert not np.array_equal(by_generator.fit_transform(X, y), by_generator.fit_transform(X, y))


PAPERS = [name for name in RECIPES if name.startswith("paper-")]


def test_a_draft_is_quick_and_tells_classes_apart() -> None:
    X, X_test, y, y_test = train_test_split(*load_digits(return_X_y=True), random_state=0)
    model = ce.CentroidEncoder.from_recipe("draft", random_state=0).fit(X, y)
    assert model.n_epochs_ == 8
    assert (model.predict_voronoi(X_test) == y_test).mean() > 0.9


@pytest.mark.parametrize(("n_train", "n_epochs"), [(100, 8), (30_000, 4), (10**6, 2)])
def test_few_epochs_are_fewer_of_many_samples(n_train: int, n_epochs: int) -> None:
    params = ce.CentroidEncoder(max_epochs="few").get_params()
    assert resolved(params, n_train, 50, 3)["max_epochs"] == n_epochs


@pytest.mark.parametrize("name", PAPERS)
def test_recipes_are_valid_and_carry_the_papers_constants(name: str, iris: tuple) -> None:
    X, y = iris
    model = ce.CentroidEncoder.from_recipe(
        name, hidden=(8,), pretrain_epochs=1, max_epochs=2, random_state=0
    ).fit(X, y)
    assert model.transform(X).shape == (150, 2)
    full = ce.CentroidEncoder.from_recipe(name)
    assert full.placement == "bottleneck"
    assert full.class_weight is None
    assert full.output == "full"
    assert full.scale == "feature"
    assert full.clip is None
    assert full.optimizer == "amsgrad"
    assert full.pretrain_epochs == 25
    assert full.weight_decay == 2e-5


def test_unknown_recipe_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="draft, paper-mnist, paper-usps"):
        ce.CentroidEncoder.from_recipe("paper-cifar")


def test_paper_recipe_stages(iris: tuple) -> None:
    X, y = iris
    model = ce.CentroidEncoder.from_recipe(
        "paper-iris", pretrain_epochs=2, max_epochs=6, patience=None, merge_epochs=3, random_state=0
    ).fit(X, y)
    stages = pd.Series(model.history_["stage"]).value_counts(sort=False).to_dict()
    assert stages == {"pretrain 1": 2, "pretrain 2": 2, "train": 6, "merge": 3}
    assert model.n_epochs_ == 9


@pytest.mark.parametrize(
    "params",
    [
        {},
        {
            "placement": "bottleneck",
            "output": "full",
            "scale": "global",
            "activation": "tanh",
        },
        {"n_components": 3, "hidden": (), "scale": "none"},
        {"max_features": 2, "class_weight": {"setosa": 2.0}},
    ],
)
def test_saved_map_gives_the_same_bits(params: dict, iris: tuple, tmp_path: object) -> None:
    X, y = iris
    model = quick(**params).fit(pd.DataFrame(X, columns=list("abcd")), y)
    model.save(tmp_path / "map.safetensors")
    loaded = ce.load(tmp_path / "map.safetensors")
    frame = pd.DataFrame(X, columns=list("abcd"))
    embedding = model.transform(frame)
    assert_array_equal(loaded.transform(frame), embedding)
    assert_array_equal(loaded.predict(frame), model.predict(frame))
    assert_array_equal(loaded.inverse_transform(embedding), model.inverse_transform(embedding))
    assert_array_equal(loaded.predict_voronoi(frame), model.predict_voronoi(frame))
    assert_array_equal(loaded.predict_proba(frame), model.predict_proba(frame))
    with pytest.raises(NotFittedError, match="call fit_novelty"):
        loaded.novelty(frame)
    model.fit_novelty(frame, y).save(tmp_path / "map.safetensors")
    again = ce.load(tmp_path / "map.safetensors")
    assert_array_equal(again.novelty(frame), model.novelty(frame))
    assert_array_equal(loaded.classes_, model.classes_)
    assert loaded.classes_.dtype == model.classes_.dtype
    assert loaded.get_params() == model.get_params()
    assert_array_equal(loaded.feature_names_in_, list("abcd"))
    assert loaded.n_epochs_ == model.n_epochs_
    assert loaded.history_["loss"] == model.history_["loss"]
    assert clone(loaded).get_params() == model.get_params()


class TestCalibrate:
    def test_makes_probabilities_hold(self) -> None:
        rng = np.random.default_rng(0)
        X = rng.normal(size=(6000, 4)) + np.arange(6000)[:, None] % 2
        y = np.where(np.arange(6000) % 2, "b", "a")
        model = quick(dropout=0.0, weight_decay=0.0, max_epochs=60).fit(X[:150], y[:150])
        embedding, predicted = model.transform(X), model.predict(X)

        def gap() -> float:
            confidence = model.predict_proba(X[2000:]).max(axis=1)
            return abs(float(confidence.mean() - (predicted[2000:] == y[2000:]).mean()))

        before = gap()
        assert model.calibrate(X[150:2000], y[150:2000]) is model
        assert gap() < min(0.03, before / 2)
        assert_array_equal(model.transform(X), embedding)
        assert_array_equal(model.predict(X), predicted)
        assert_array_equal(model.classes_[model.predict_proba(X).argmax(axis=1)], predicted)

    def test_validation_samples_are_taken_where_there_are_some(self, iris: tuple) -> None:
        with_some = quick(validation_fraction=0.3).fit(*iris)
        held_out = stratified_holdout(np.arange(150) // 50, 0.3, 0)
        expected = clone(with_some).fit(*iris).calibrate(iris[0][held_out], iris[1][held_out])
        assert with_some.calibration_ == expected.calibration_

    @pytest.mark.parametrize(
        ("X", "y", "words"),
        [
            (np.ones((2, 4)), ["setosa", "rose"], "'rose', which is not among the classes"),
            (np.ones((2, 4)), ["setosa"], "2 samples, but y has 1"),
            (np.ones((2, 3)), ["setosa", "setosa"], "3 features"),
        ],
    )
    def test_bad_input_changes_nothing(
        self, iris: tuple, X: np.ndarray, y: list, words: str
    ) -> None:
        model = quick().fit(*iris)
        before = model.calibration_
        with pytest.raises(ValueError, match=words):
            model.calibrate(X, y)
        assert model.calibration_ is before


class TestNovelty:
    def test_far_away_is_new(self, iris: tuple) -> None:
        X, y = iris
        model = quick().fit(X, y).fit_novelty(X, y)
        assert (model.novelty(X + 100) == 1).all()
        assert 0.3 < model.novelty(X).mean() < 0.6

    def test_only_the_subset_is_known(self, iris: tuple) -> None:
        X, y = iris
        model = quick().fit(X, y)
        subset = np.arange(150) % 3 > 0
        other = X.copy()
        other[~subset] = 1e3
        model.fit_novelty(other, y, subset=subset)
        found = model.novelty(X)
        assert_array_equal(found, model.fit_novelty(X[subset], y[subset]).novelty(X))

    def test_bad_input(self, iris: tuple) -> None:
        X, y = iris
        model = quick().fit(X, y)
        with pytest.raises(ValueError, match="at least 10 samples, but got 9"):
            model.fit_novelty(X, y, subset=np.arange(150) < 9)
        with pytest.raises(ValueError, match="lacks classes of the map"):
            model.fit_novelty(X[:100], y[:100])
        with pytest.raises(NotFittedError):
            quick().fit_novelty(X, y)


def test_standardize_is_what_the_formula_says(iris: tuple) -> None:
    X, y = iris
    model = quick(clip=1.5).fit(X, y)
    z = np.clip((X - X.mean(axis=0)) / X.std(axis=0), -1.5, 1.5)
    expected = z * model.feature_weights_
    assert_allclose(model.standardize(X), expected, atol=1e-6)
    assert_allclose(model.standardize(sparse.csr_matrix(X)), expected, atol=1e-6)


def test_config_of_a_saved_map_is_strict_json(iris: tuple) -> None:
    config, _ = quick().fit(*iris).to_state()
    json.dumps(config, allow_nan=False)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda config: config.pop("estimator"), "estimator"),
        (lambda config: config["estimator"].update(params=None), "damaged"),
        (lambda config: config["estimator"]["params"].update(shrinkage=1), "parameter 'shrinkage'"),
        (lambda config: config["estimator"].update(classes=["a"]), "labels"),
        (lambda config: config["estimator"].update(classes=["a", 1, "c"]), "damaged|labels"),
        (lambda config: config["estimator"].update(classes_dtype="|V8"), "damaged|labels"),
        (lambda config: config["estimator"].update(feature_names=["a"]), "names"),
        (lambda config: config["estimator"]["history"].update(loss=[]), "history"),
        (lambda config: config["estimator"].update(history=3), "damaged"),
    ],
)
def test_damaged_config_is_refused(damage: object, words: str, iris: tuple) -> None:
    config, arrays = quick().fit(*iris).to_state()
    damage(config)
    with pytest.raises(InvalidStateError, match=words):
        ce.CentroidEncoder.from_state(config, arrays)


def test_a_parameter_that_an_older_file_lacks_has_its_default(iris: tuple) -> None:
    X, y = iris
    model = quick(placement="bottleneck").fit(X, y)
    config, arrays = model.to_state()
    del config["estimator"]["params"]["compactness"]
    del config["estimator"]["params"]["hidden"]
    old = ce.CentroidEncoder.from_state(config, arrays)
    assert old.get_params() == model.get_params() | {"hidden": "auto"}
    assert_array_equal(old.transform(X), model.transform(X))


def test_not_fitted(iris: tuple, tmp_path: object) -> None:
    for use in (
        lambda: quick().transform(iris[0]),
        lambda: quick().predict(iris[0]),
        lambda: quick().save(tmp_path / "map.safetensors"),
    ):
        with pytest.raises(NotFittedError):
            use()
    assert not any(tmp_path.iterdir())


def interrupt_after(n_batches: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make Ctrl-C arrive in the middle of the arithmetic."""
    loss, count = CentroidTargets.loss, 0

    def interrupted(self: CentroidTargets, batch: object) -> torch.Tensor:
        nonlocal count
        count += 1
        if count == n_batches:
            raise KeyboardInterrupt
        return loss(self, batch)

    monkeypatch.setattr(CentroidTargets, "loss", interrupted)


@pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
def test_interrupt_keeps_the_best_state_with_a_warning(
    iris: tuple, monkeypatch: pytest.MonkeyPatch, placement: str
) -> None:
    X, y = iris
    # Batches of an epoch: 5, and 4 of networks that see four fifths each. In the fourth epoch:
    interrupt_after({"bottleneck": 18, "voronoi": 14}[placement], monkeypatch)
    with pytest.warns(ConvergenceWarning, match="after 3 of 15 epochs"):
        model = quick(batch_size=30, placement=placement).fit(X, y)
    assert model.n_epochs_ == 3
    assert np.isfinite(model.transform(X)).all()


@pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
def test_interrupt_in_the_first_epoch_leaves_the_estimator_as_it_was(
    iris: tuple, monkeypatch: pytest.MonkeyPatch, placement: str
) -> None:
    X, y = iris
    fresh, fitted = quick(placement=placement), quick(placement=placement).fit(X, y)
    before = fitted.transform(X)
    interrupt_after(3, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fresh.fit(X, y)
    assert not hasattr(fresh, "n_features_in_")
    with pytest.raises(NotFittedError):
        fresh.transform(X)
    monkeypatch.undo()
    interrupt_after(3, monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X[:, :3], y)
    assert_array_equal(fitted.transform(X), before)


def test_stop_and_close(iris: tuple) -> None:
    X, y = iris
    model, seen = quick(), []
    seen.extend(model.fit_reports(X, y, stop=lambda: len(seen) == 4))
    assert model.n_epochs_ == 4 == len(seen)
    closed = quick()
    reports = closed.fit_reports(X, y)
    next(reports)
    reports.close()
    with pytest.raises(NotFittedError):
        closed.transform(X)
    with pytest.raises(StoppedTooEarly):
        list(quick().fit_reports(X, y, stop=lambda: True))


def test_subset_trains_on_it_alone_and_reports_all(iris: tuple) -> None:
    X, y = iris
    subset = np.arange(150) % 3 > 0
    model = quick()
    reports = list(model.fit_reports(X, y, subset=subset, snapshot=lambda: True))
    other = X.copy()
    other[~subset] += 100
    labels = np.where(subset, y, "never seen")
    again = quick()
    list(again.fit_reports(other, labels, subset=subset))
    assert_array_equal(again.transform(X), model.transform(X))
    assert reports[-1].embedding.shape == (150, 2)
    # Training samples may be placed by the network that has not seen them: `transform` has no such.
    assert_allclose(reports[-1].embedding[~subset], model.transform(X[~subset]), atol=1e-5)


def test_validation_samples_shape_nothing_that_is_fitted(iris: tuple) -> None:
    X, y = iris
    validates = stratified_holdout(np.unique(y, return_inverse=True)[1], 0.2, seed=0)
    changed = X.copy()
    changed[validates] *= -3
    one, other = (quick(validation_fraction=0.2).fit(data, y) for data in (X, changed))
    assert_array_equal(other.feature_weights_, one.feature_weights_)
    assert_array_equal(other.centroids_, one.centroids_)
    assert one.history_["loss"] == other.history_["loss"]
    assert one.history_["validation_loss"] != other.history_["validation_loss"]


@pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
def test_out_of_memory_halves_the_batch_and_says_so(
    iris: tuple, monkeypatch: pytest.MonkeyPatch, placement: str
) -> None:
    loss = CentroidTargets.loss

    def greedy(self: CentroidTargets, batch: object) -> torch.Tensor:
        if batch.rows.shape[-1] > 20:
            raise torch.OutOfMemoryError
        return loss(self, batch)

    monkeypatch.setattr(CentroidTargets, "loss", greedy)
    with pytest.warns(ResourceWarning, match="batch size of"):
        model = quick(batch_size=64, placement=placement).fit(*iris)
    assert np.isfinite(model.transform(iris[0])).all()


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"n_components": 0}, "n_components must be at least 1 and below 65536; got 0"),
        ({"n_components": 2.5}, "n_components must be an integer"),
        ({"hidden": (10, 0)}, r"hidden\[1\] must be at least 1"),
        ({"hidden": "500"}, 'hidden must be "auto" or a sequence'),
        ({"activation": "gelu"}, "activation must be one of relu"),
        ({"scale": "minmax"}, "scale must be one of supervised, feature"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
        ({"learning_rate": 0}, "learning_rate must be above 0"),
        ({"clip": -1}, "clip must be above 0"),
        ({"max_epochs": "many"}, "max_epochs must be an integer"),
        ({"patience": 3}, "need a validation_fraction"),
        ({"placement": "voronoi", "pretrain_epochs": 3}, "or choose placement='bottleneck'"),
        ({"validation_fraction": 0.001}, "no class has the 1000 samples"),
        ({"random_state": -1}, "random_state must be"),
        ({"random_state": "seed"}, "random_state must be"),
        ({"device": "quantum"}, "device 'quantum' is not available"),
    ],
)
def test_wrong_parameters_are_named(params: dict, words: str, iris: tuple) -> None:
    with pytest.raises(ValueError, match=words):
        quick(**params).fit(*iris)


@pytest.mark.parametrize("missing", [None, np.nan])
def test_missing_labels_are_counted(missing: object, iris: tuple) -> None:
    X, y = iris
    y = y.astype(object)
    y[[3, 5]] = missing
    with pytest.raises(ValueError, match="y has 2 missing labels"):
        quick().fit(X, y)


def test_default_device_is_the_best_there_is(iris: tuple) -> None:
    expected = (
        "cuda"
        if torch.cuda.is_available()
        else "mps"
        if torch.backends.mps.is_available()
        else "cpu"
    )
    assert quick().fit(*iris)._map.device.type == expected


@pytest.mark.parametrize(
    ("n_train", "n_epochs"),
    [(100, 60), (5_000, 60), (10_000, 30), (60_000, 20), (120_000, 10), (10_000_000, 5)],
)
def test_epochs_by_the_number_of_samples(n_train: int, n_epochs: int) -> None:
    assert resolved(ce.CentroidEncoder().get_params(), n_train, 50, 3)["max_epochs"] == n_epochs


@pytest.mark.parametrize(
    ("n_train", "n_epochs"),
    [(100, 120), (10_000, 60), (30_000, 40), (60_000, 20), (120_000, 10)],
)
def test_many_classes_take_twice_the_epochs(n_train: int, n_epochs: int) -> None:
    model = ce.CentroidEncoder(placement="bottleneck")
    settings = resolved(model.get_params(), n_train, 50, 16)
    assert (settings["max_epochs"], settings["pretrain_epochs"]) == (n_epochs, n_epochs // 2)


@pytest.mark.parametrize(
    ("n_features", "n_classes", "dropout", "weight_decay"),
    [(1, 2, 0.02, 0.25), (16, 26, 0.02, 16 / 52), (100, 10, 0.02, 1), (200, 5, 0.25, 1)],
)
def test_regularisation_by_features_and_classes(
    n_features: int, n_classes: int, dropout: float, weight_decay: float
) -> None:
    settings = resolved(ce.CentroidEncoder().get_params(), 2000, n_features, n_classes)
    assert settings["dropout"] == dropout
    assert settings["weight_decay"] == pytest.approx(weight_decay)


@pytest.mark.parametrize(
    ("n_train", "n_features", "dropout"),
    [(20, 4, 0.15), (250, 4, 0.1), (1250, 4, 0.02), (250, 200, 0.25)],
)
def test_few_samples_get_more_dropout(n_train: int, n_features: int, dropout: float) -> None:
    settings = resolved(ce.CentroidEncoder().get_params(), n_train, n_features, 3)
    assert settings["dropout"] == pytest.approx(dropout)


@pytest.mark.parametrize(("n_train", "weight_decay"), [(20_000, 1), (60_000, 1 / 3)])
def test_many_samples_need_less_decay(n_train: int, weight_decay: float) -> None:
    settings = resolved(ce.CentroidEncoder().get_params(), n_train, 784, 10)
    assert settings["weight_decay"] == pytest.approx(weight_decay)


@pytest.mark.parametrize(
    ("batch_norm", "batch_size", "learning_rate"), [(False, 256, 3e-3), (True, 512, 6e-3)]
)
def test_steps_with_and_without_batch_norm(
    batch_norm: bool, batch_size: int, learning_rate: float
) -> None:
    model = ce.CentroidEncoder(placement="bottleneck", batch_norm=batch_norm)
    settings = resolved(model.get_params(), 60_000, 784, 10)
    assert (settings["batch_size"], settings["learning_rate"]) == (batch_size, learning_rate)


@pytest.mark.parametrize(("n", "batch_size"), [(700, 43), (60_000, 256)])
def test_steps_without_the_squeeze_are_fewer(n: int, batch_size: int) -> None:
    settings = resolved(ce.CentroidEncoder().get_params(), n, 784, 10)
    assert (settings["batch_size"], settings["learning_rate"]) == (batch_size, 7e-3)


def test_what_is_given_is_kept() -> None:
    given = {
        "placement": "bottleneck",
        "batch_norm": False,
        "batch_size": 7,
        "max_epochs": 8,
        "pretrain_epochs": 9,
        "dropout": 0.25,
        "weight_decay": 0.125,
        "learning_rate": 0.5,
    }
    settings = resolved(ce.CentroidEncoder(**given).get_params(), 60_000, 784, 20)
    assert given.items() <= settings.items()


@pytest.mark.parametrize(("n", "normalizes"), [(3_999, False), (4_000, True)])
def test_many_samples_are_normalised(n: int, normalizes: bool) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(n) % 3
    X = rng.normal(size=(3, 5))[y] + rng.normal(size=(n, 5))
    settings: dict[str, Any] = {"hidden": (8, 4), "max_epochs": 1, "random_state": 0}
    settings["placement"] = "bottleneck"
    auto, plain, normalized = (
        ce.CentroidEncoder(batch_norm=batch_norm, **settings).fit(X, y).transform(X)
        for batch_norm in ("auto", False, True)
    )
    np.testing.assert_array_equal(auto, normalized if normalizes else plain)
    assert not np.array_equal(plain, normalized)


def test_a_normalised_map_is_saved_with_plain_layers(
    iris: tuple[NDArray[Any], NDArray[Any]], tmp_path: Path
) -> None:
    X, y = iris
    model = ce.CentroidEncoder(placement="bottleneck", batch_norm=True, random_state=0).fit(X, y)
    assert (model.predict(X) == y).mean() > 0.9
    model.save(tmp_path / "map.safetensors")
    back = ce.load(tmp_path / "map.safetensors")
    np.testing.assert_array_equal(back.transform(X), model.transform(X))
    assert back.get_params()["batch_norm"] is True


@pytest.mark.parametrize("batch_size", [1, 2])
def test_batches_too_small_to_normalise(
    iris: tuple[NDArray[Any], NDArray[Any]], batch_size: int
) -> None:
    with pytest.raises(ValueError, match="batch_norm needs a batch_size of at least 3"):
        ce.CentroidEncoder(placement="bottleneck", batch_norm=True, batch_size=batch_size).fit(
            *iris
        )
    # Where nobody asked for it, it is left out.
    ce.CentroidEncoder(batch_size=batch_size, max_epochs=1).fit(*iris)


@pytest.mark.parametrize(("n_classes", "stages"), [(15, {"train"}), (16, None)])
def test_many_classes_are_pretrained(n_classes: int, stages: set[str] | None) -> None:
    rng = np.random.default_rng(0)
    y = np.arange(10 * n_classes) % n_classes
    X = rng.normal(size=(n_classes, 5))[y] + 0.1 * rng.normal(size=(len(y), 5))
    settings: dict[str, Any] = {"hidden": (8, 4), "max_epochs": 4, "random_state": 0}
    model = ce.CentroidEncoder(placement="bottleneck", **settings).fit(X, y)
    found = model.history_["stage"]
    assert set(found) == (stages or {"pretrain 1", "pretrain 2", "pretrain 3", "train"})
    assert found.count("pretrain 1") == (0 if stages else 2)


def test_compactness_keeps_classes_together() -> None:
    X, y = load_iris(return_X_y=True)
    shares = []
    for compactness in (0.0, 1.0):
        settings: dict[str, Any] = {"compactness": compactness, "random_state": 0}
        model = ce.CentroidEncoder(placement="bottleneck", **settings).fit(X, y)
        z = model.transform(X)
        within = sum(((z[y == c] - z[y == c].mean(axis=0)) ** 2).sum() for c in range(3))
        shares.append(within / ((z - z.mean(axis=0)) ** 2).sum())
    assert shares[1] < 0.7 * shares[0]


class TestWhatIsRefused:
    def test_lengths_that_differ(self, iris: tuple) -> None:
        X, y = iris
        model = quick().fit(X, y)
        with pytest.raises(ValueError, match="X has 150 samples, but y has 140 labels"):
            model.fit_novelty(X, y[:140])
        with pytest.raises(ValueError, match="subset has 40 entries"):
            model.fit_novelty(X, y, subset=np.ones(40, dtype=bool))
        with pytest.raises(ValueError, match="subset has 40 entries"):
            next(quick().fit_reports(X, y, subset=np.ones(40, dtype=bool)))

    def test_missing_labels_of_any_kind(self, iris: tuple) -> None:
        X, y = iris
        for dtype in ("string", "category", object):
            labels = pd.Series(y, dtype=dtype)
            labels[3] = None
            with pytest.raises(ValueError, match="y has 1 missing labels"):
                quick().fit(X, labels)

    def test_values_too_large_for_a_network(self, iris: tuple) -> None:
        X, y = iris
        with pytest.raises(ValueError, match="values too large"):
            quick(scale="none").fit(X * 1e200, y)

    @pytest.mark.parametrize("weight", [0, -1.0])
    def test_weights_that_are_none(self, iris: tuple, weight: float) -> None:
        X, y = iris
        with pytest.raises(ValueError, match="class_weight must be above 0"):
            quick(class_weight={"setosa": weight}).fit(X, y)


def test_a_device_need_not_be_a_word(iris: tuple, tmp_path: Path) -> None:
    X, y = iris
    model = quick(device=torch.device("cpu")).fit(X, y)
    model.save(tmp_path / "map.safetensors")
    assert ce.load(tmp_path / "map.safetensors").device == "cpu"


def test_a_table_is_no_map(tmp_path):
    (tmp_path / "map.h5ad").write_bytes(b"\x89HDF\r\n\x1a\n")
    (tmp_path / "map.zarr").mkdir()
    for name in ("map.h5ad", "map.zarr"):
        with pytest.raises(ValueError, match=r"is a table of cells; .* ce\.tl\.fitted_model"):
            ce.load(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        ce.load(tmp_path / "none.h5ad")


@pytest.mark.parametrize(
    ("placement", "n", "widths"),
    [
        ("bottleneck", 1_000, (500, 250, 125)),
        ("voronoi", 5_000, (300, 200, 100)),
        ("voronoi", 5_001, (500, 250, 125)),
    ],
)
def test_few_samples_without_a_bottleneck_take_narrower_layers(
    placement: str, n: int, widths: tuple[int, ...]
) -> None:
    params = ce.CentroidEncoder(placement=placement).get_params()
    assert resolved(params, n, 50, 4)["hidden"] == widths

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.rivals.forests import ForestPHATE, GapProximities, knee
from benchmarks.rivals.selection import embed, knn_error
from benchmarks.tests.test_rivals_classical import blobs


@pytest.fixture(scope="module")
def found() -> tuple[GapProximities, np.ndarray, np.ndarray]:
    X, y = blobs(90, distance=0.7)
    return GapProximities(60, random_state=0).fit(X, y), X, y


def test_proximities_are_those_of_two_loops(found) -> None:
    model, X, _ = found
    p = model.training()
    leaves = model.forest.apply(X)
    times = [np.bincount(rows, minlength=90) for rows in model.forest.estimators_samples_]
    for i in (0, 17):
        trees = [t for t in range(60) if times[t][i] == 0]
        expected = np.zeros(90)
        for t in trees:
            inside = times[t] * (leaves[:, t] == leaves[i, t])
            expected += inside / inside.sum() / len(trees)
        np.testing.assert_allclose(p[i], expected, atol=1e-12)


def test_rows_sum_to_one_and_give_the_votes_of_the_forest(found) -> None:
    model, X, y = found
    p = model.training()
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_array_equal(np.diag(p), 0)
    onehot = y[:, None] == np.unique(y)
    np.testing.assert_allclose(p @ onehot, model.forest.oob_decision_function_, atol=1e-12)
    rng = np.random.default_rng(3)
    new = X[:20] + rng.normal(size=(20, 10))
    np.testing.assert_allclose(model.new(new) @ onehot, model.forest.predict_proba(new), atol=1e-12)


def test_the_knee_is_at_the_change_of_the_slope() -> None:
    values = np.concatenate([np.linspace(10, 2, 9), np.linspace(2, 1, 30)[1:]])
    assert knee(values) == 8


def test_rf_phate_places_new_samples_in_their_class() -> None:
    X, y = blobs()
    train, test = embed(ForestPHATE(random_state=0), X[:90], y[:90], X[90:])
    assert knn_error(train, y[:90], test, y[90:]) < 0.05

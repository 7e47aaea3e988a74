"""Missing values are counted and filled in the same way in dense and sparse rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.core.gaps import Imputed, count_gaps, dense, fill, means_without_gaps


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((60, 8)) < 0.5, 0, rng.normal(3, 1, (60, 8)))
    X[rng.random(X.shape) < 0.1] = np.nan
    X[3, 2] = np.inf
    return X


@pytest.mark.parametrize("kind", [np.array, sparse.csr_matrix])
def test_gaps_are_counted_and_get_the_means_of_other_rows(rows, kind):
    X, train = kind(rows), np.arange(60) < 40
    known = np.where(np.isfinite(rows), rows, np.nan)
    assert_array_equal(count_gaps(X), np.isnan(known).sum(axis=1))
    means = means_without_gaps(X, train)
    assert_allclose(means, np.nanmean(known[:40], axis=0))
    assert_allclose(dense(fill(X, means)), np.where(np.isnan(known), means, known))
    assert np.isnan(dense(X)).any()  # X is not changed.


@pytest.mark.parametrize("kind", [np.array, sparse.csr_matrix])
def test_rows_without_gaps_are_judged_as_ever_and_absent_values_have_no_effect(rows, kind):
    X = np.nan_to_num(rows, posinf=0)
    labels = np.where(X[:, 0] + X[:, 1] > 3, "a", "b")
    model = ce.CentroidEncoder(hidden=(8,), max_epochs=5, random_state=0).fit(X, labels)
    model.fit_novelty(X, labels)
    nothing, absent = np.zeros(8, dtype=bool), np.arange(8) == 5
    cells = Imputed(model.fitted_map, kind(X), nothing)
    assert_allclose(cells.judge()[0], model.transform(X), atol=1e-5)
    assert_allclose(cells.novelty(), model.novelty(X), atol=1e-6)
    assert_array_equal(dense(cells.expected()), X)
    others = X.copy()
    others[:, 5] = 7
    found, same = (Imputed(model.fitted_map, kind(x), absent) for x in (X, others))
    assert_allclose(found.judge()[0], same.judge()[0], atol=1e-6)
    assert_allclose(found.expected(), same.expected())
    gaps = kind(np.where(absent | (np.arange(60)[:, None] < 2), np.nan, X))
    cells = Imputed(model.fitted_map, gaps, nothing, allowed=0.5)
    assert_array_equal(np.flatnonzero(cells.unusable), [0, 1])
    assert_allclose(cells.judge()[0][2:], found.judge()[0][2:], atol=1e-5)

"""Effect sizes of groups: scikit-learn's and NumPy's values, in every storage."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.metrics import roc_auc_score

from centroid_encoder.core import effects as module
from centroid_encoder.core.effects import effects
from centroid_encoder.core.matrix import Lazy


@pytest.fixture
def rows():
    """Rows with ties, zeros, negative values and gaps, and their groups; some have none."""
    rng = np.random.default_rng(0)
    X = np.maximum(rng.normal(size=(400, 15)), 0).round(1)
    X[rng.random(X.shape) < 0.1] = -0.5
    X[rng.random(X.shape) < 0.05] = np.nan
    codes = rng.integers(-1, 4, 400)
    X[codes == 1] *= 2
    return X, codes


@pytest.mark.parametrize("reference", [None, 2])
def test_values_are_those_of_scikit_learn_and_numpy(rows, reference):
    X, codes = rows
    found = effects(X, codes, 4, reference)
    for j in range(4):
        if j == reference:
            continue
        others = (codes >= 0) & (codes != j) if reference is None else codes == reference
        for k, column in enumerate(X.T):
            a, b = (column[mask & ~np.isnan(column)] for mask in (codes == j, others))
            both, is_own = np.append(a, b), np.arange(len(a) + len(b)) < len(a)
            assert_allclose(found["auroc"][j, k], roc_auc_score(is_own, both))
            within = [(len(x) - 1) * x.var(ddof=1) for x in (a, b)]
            deviation = np.sqrt(sum(within) / (len(both) - 2))
            assert_allclose(found["difference"][j, k], (a.mean() - b.mean()) / deviation)
            assert_allclose(found["mean_rest"][j, k], b.mean())
            assert found["positive"][j, k] == (a > 0).mean()
            assert found["positive_rest"][j, k] == (b > 0).mean()


@given(seed=st.integers(0, 1000))
def test_storage_order_and_copies_of_rows_change_nothing(seed):
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.5, (60, 4)).astype(np.float32) - (rng.random((60, 4)) < 0.1)
    codes = rng.integers(0, 3, 60)
    found, order = effects(X, codes, 3), rng.permutation(60)
    twice = sparse.csr_matrix(np.hstack([X, X]) / 2)
    twice = sparse.csr_matrix((twice.data, twice.indices % 4, twice.indptr), shape=X.shape)
    kinds = [
        effects(sparse.csr_matrix(X), codes, 3),
        effects(twice, codes, 3),
        effects(X[order], codes[order], 3),
        effects(np.repeat(X, 2, axis=0), np.repeat(codes, 2), 3),
        effects(np.vstack([X, X[:5]]), np.append(codes, [-1] * 5), 3),
    ]
    for kind in kinds:
        assert_allclose(kind["auroc"], found["auroc"])
        assert_allclose(kind["positive_rest"], found["positive_rest"])
    # What increases all values leaves the ranks.
    assert_allclose(effects(np.exp(X), codes, 3)["auroc"], found["auroc"])
    assert_allclose(effects(-X, codes, 3)["auroc"], 1 - found["auroc"])


def test_large_values_of_one_group_and_constant_features():
    X = np.column_stack([np.full(20, 7.0), np.arange(20.0) + 1e8])
    codes = np.arange(20) // 10
    found = effects(X, codes, 2)
    assert_allclose(found["auroc"][0], [0.5, 0])
    assert found["difference"][0, 0] == 0
    assert_allclose(found["difference"][0, 1], -10 / np.arange(10).std(ddof=1), rtol=1e-6)


class Stored(Lazy):
    """Rows of a file; counts the rows that are read."""

    def __init__(self, X):
        self.X, self.shape, self.dtype, self.n_read = X, X.shape, X.dtype, 0
        self.is_sparse = sparse.issparse(X)

    def __getitem__(self, rows):
        found = self.X[rows]
        self.n_read += found.shape[0]
        return found


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("reference", [None, 2])
def test_a_file_is_read_once_for_all_groups_or_in_parts(rows, kind, reference, monkeypatch):
    X, codes = rows
    expected = effects(X, codes, 4, reference)
    for limit, n_parts in ((2**32, 1), (15 * 400 * 8 // 3, 3)):
        monkeypatch.setattr(module, "BYTES_AT_ONCE", limit)
        file = Stored(kind(X))
        found = effects(file, codes, 4, reference)
        for name in expected:
            assert_allclose(found[name], expected[name])
        if kind is np.asarray:
            assert file.n_read == n_parts * (codes >= 0).sum()
        else:
            assert file.n_read <= (n_parts + 6) * 400


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_half_of_a_matrix_in_memory_is_copied_at_most(kind):
    X = kind(sparse.random(30_000, 100, 0.3, "csr", random_state=0).toarray())
    size = X.nbytes if kind is np.asarray else X.data.nbytes + X.indices.nbytes
    tracemalloc.start()
    effects(X, np.arange(30_000) % 3, 3)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 0.6 * size

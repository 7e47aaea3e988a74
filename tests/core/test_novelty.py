"""Novelty of samples of known and unknown classes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy import sparse
from sklearn.metrics import roc_auc_score

from centroid_encoder.core import matrix
from centroid_encoder.core.features import Standardizer, fit_standardizer
from centroid_encoder.core.novelty import Novelty
from centroid_encoder.core.splits import representatives

MEANS = 2.0 * np.random.default_rng(7).normal(size=(5, 30))


def drawn(n: int, classes: range, seed: int) -> tuple[NDArray[np.float32], NDArray[np.intp]]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(len(classes), size=n)
    X = MEANS[list(classes)][codes] + rng.normal(size=(n, 30))
    return np.maximum(X, 0).astype(np.float32), codes


def fitted(X: object, codes: NDArray[np.intp]) -> tuple[Novelty, Standardizer]:
    index = np.arange(len(codes))
    standardizer = fit_standardizer(X, index, codes, "supervised", 10.0, 2000)[0]
    return Novelty.fit(X, index, codes, standardizer)[0], standardizer


@pytest.mark.parametrize("n", [60, 400, 3000])
def test_quantiles_of_known_classes_are_uniform(n: int) -> None:
    X, codes = drawn(n, range(4), 0)
    model, standardizer = fitted(X, codes)
    found = np.sort(model.quantiles(drawn(4000, range(4), 1)[0], standardizer))
    uniform = (np.arange(4000) + 0.5) / 4000
    # Kolmogorov's distance.
    assert np.abs(found - uniform).max() < 1.9 / np.sqrt(min(n, 2000))
    assert (found > 0.95).mean() == pytest.approx(0.05, abs=0.08 if n < 100 else 0.02)


def test_an_unknown_class_is_novel() -> None:
    X, codes = drawn(800, range(4), 0)
    model, standardizer = fitted(X, codes)
    known = model.quantiles(drawn(400, range(4), 1)[0], standardizer)
    unknown = model.quantiles(drawn(400, range(4, 5), 1)[0], standardizer)
    assert roc_auc_score(np.repeat([0, 1], 400), np.concatenate([known, unknown])) > 0.97


def test_features_without_a_weight_count() -> None:
    X, codes = drawn(800, range(2), 0)
    standardizer = fit_standardizer(X, np.arange(800), codes, "supervised", 10.0, 5)[0]
    model, *_ = Novelty.fit(X, np.arange(800), codes, standardizer)
    other = drawn(200, range(2), 1)[0]
    other[:, np.flatnonzero(standardizer.weight == 0)] += 3
    assert np.median(model.quantiles(other, standardizer)) > 0.99


@pytest.mark.parametrize("rank", [1, 7])
def test_dependent_features_have_fewer_axes(rank: int) -> None:
    rng = np.random.default_rng(0)
    codes = np.arange(300) % 3
    base = rng.normal(size=(300, rank)) + 3 * codes[:, None]
    mixing = rng.normal(size=(rank, 60))
    model, standardizer = fitted(base @ mixing, codes)
    assert model.axes.shape == (60, rank)
    found = model.quantiles((rng.normal(size=(300, rank)) + 3) @ mixing, standardizer)
    assert (found > 0.95).mean() < 0.12


def test_duplicates_are_not_novel() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=600)
    X = (rng.random((600, 2)) < np.array([0.2, 0.5, 0.8])[codes][:, None]).astype(np.float32)
    model, standardizer = fitted(X[:300], codes[:300])
    assert (model.quantiles(X[300:], standardizer) > 0.95).mean() <= 0.05


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_data_and_batches_give_the_same(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    X, codes = drawn(400, range(4), 0)
    query = drawn(50, range(5), 1)[0]
    dense, standardizer = fitted(X, codes)
    expected = dense.quantiles(query, standardizer)
    monkeypatch.setattr(matrix, "VALUES_AT_ONCE", 2900)
    found, _ = fitted(kind(X), codes)
    for asked in (kind(query), query):
        assert_allclose(found.quantiles(asked, standardizer), expected, atol=2 / 400)
        assert_allclose(dense.quantiles(asked, standardizer), expected, atol=2 / 400)


def test_the_reference_is_small_and_has_every_class() -> None:
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2, 3], [9000, 900, 30, 5])
    X = rng.normal(size=(len(codes), 6)) + codes[:, None]
    model, _ = fitted(X, codes)
    assert 1900 < len(model.known) < 2100
    assert_array_equal(np.bincount(model.codes)[2:], [20, 5])
    assert len(representatives(np.arange(12_000) % 3000, 2000, 20, rng)) == 3000


@pytest.mark.parametrize(
    "X",
    [
        np.ones((12, 3)),
        np.repeat(np.eye(3), 4, axis=0),
        np.random.default_rng(0).normal(size=(10, 1)),
        np.random.default_rng(0).normal(size=(11, 50)),
        1e30 * np.random.default_rng(0).normal(size=(40, 4)),
    ],
    ids=["constant", "duplicates", "one feature", "more features than samples", "huge"],
)
@pytest.mark.filterwarnings("error")
def test_odd_data(X: NDArray[np.float64]) -> None:
    model, standardizer = fitted(X, np.arange(len(X)) % 2)
    found = model.quantiles(X, standardizer)
    assert ((found >= 0) & (found <= 1)).all()

"""Novelty of samples of known and unknown classes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.neighbors import NearestNeighbors

from centroid_encoder.core import matrix
from centroid_encoder.core.features import Standardizer, fit_standardizer
from centroid_encoder.core.novelty import Novelty, Surroundings
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


def test_features_of_weight_zero_affect_novelty() -> None:
    X, codes = drawn(800, range(2), 0)
    standardizer = fit_standardizer(X, np.arange(800), codes, "supervised", 10.0, 5)[0]
    model, *_ = Novelty.fit(X, np.arange(800), codes, standardizer)
    other = drawn(200, range(2), 1)[0]
    other[:, np.flatnonzero(standardizer.weight == 0)] += 3
    assert np.median(model.quantiles(other, standardizer)) > 0.99


@pytest.mark.parametrize(("n", "d"), [(700, 400), (150, 1000)])
def test_leading_axes_are_those_of_a_pca(n: int, d: int) -> None:
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(n, 6)) @ rng.normal(size=(6, d)) + rng.normal(size=(n, d))).astype("f4")
    model, standardizer = fitted(X, np.arange(n) % 3)
    z = np.clip((X - standardizer.mean) / standardizer.scale, -10, 10)
    pca = PCA(20, svd_solver="full").fit(z)
    cosines = np.linalg.svd(pca.components_[:6] @ model.axes[:, :6], compute_uv=False)
    assert_allclose(cosines, 1, atol=1e-4)
    assert_allclose(model.axes.T @ model.axes, np.eye(20), atol=2e-3)


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


def test_logarithms_are_those_of_the_formulas() -> None:
    X, codes = drawn(300, range(3), 0)
    model, _ = fitted(X, codes)
    reference, K = model.reference.astype(np.float64), 20
    query = np.random.default_rng(1).normal(scale=3, size=(7, K))
    found = Surroundings(model.reference, model.codes)(query)
    neighbors = NearestNeighbors(n_neighbors=10, algorithm="kd_tree").fit(reference)
    own, _ = neighbors.kneighbors()
    distance, index = neighbors.kneighbors(query)
    floor = 0.01 * np.sqrt(np.square(reference).sum(axis=1).mean())
    near = np.log(distance.mean(axis=1) + floor)
    near -= 0.5 * np.log(own.mean(axis=1) + floor)[index].mean(axis=1)
    assert_allclose(found[:, 0], near, atol=1e-4)

    inside = [reference[codes == c] for c in range(3)]
    common = sum(np.cov(own.T) * (len(own) - 1) for own in inside) / 297
    least = np.full(7, np.inf)
    for own in inside:
        shrinkage = K / (K + len(own))
        covariance = (1 - shrinkage) * np.cov(own.T) + shrinkage * common
        covariance = 0.95 * covariance + 0.05 * np.trace(covariance) / K * np.eye(K)
        away = query - own.mean(axis=0)
        least = np.minimum(least, (away * np.linalg.solve(covariance, away.T).T).sum(axis=1))
    assert_allclose(found[:, 1], np.log(least + 0.01 * K), rtol=1e-4, atol=1e-4)


def test_duplicates_are_not_novel() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(3, size=600)
    X = (rng.random((600, 2)) < np.array([0.2, 0.5, 0.8])[codes][:, None]).astype(np.float32)
    model, standardizer = fitted(X[:300], codes[:300])
    assert (model.quantiles(X[300:], standardizer) > 0.95).mean() <= 0.05


@pytest.mark.parametrize("kind", [sparse.csr_matrix, sparse.csr_array])
def test_sparse_data_and_batches_give_the_same_novelty(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
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
def test_degenerate_data_have_a_novelty(X: NDArray[np.float64]) -> None:
    model, standardizer = fitted(X, np.arange(len(X)) % 2)
    found = model.quantiles(X, standardizer)
    assert ((found >= 0) & (found <= 1)).all()

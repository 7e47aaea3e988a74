from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.optimize import approx_fprime, check_grad, minimize

from benchmarks.rivals.linear import (
    LinearCentroidEncoder,
    LocalFisher,
    RelevanceLVQ,
    ScreenedPCA,
    margin_cost,
    relevance_cost,
    scatters,
)
from benchmarks.tests.test_rivals_classical import blobs

Array = NDArray[np.float64]


def test_the_linear_centroid_encoder_is_the_maximum_margin_criterion() -> None:
    X, y = blobs(60)
    X = X - X.mean(axis=0)
    centroids = np.array([X[y == name].mean(axis=0) for name in y])

    def loss(flat: Array) -> float:
        A = linalg.qr(flat.reshape(10, 2), mode="economic")[0]
        return float(np.sum((centroids - X @ A @ A.T) ** 2))

    starts = np.random.default_rng(0).normal(size=(5, 20))
    best = min(minimize(loss, start).fun for start in starts)
    model = LinearCentroidEncoder().fit(X, y)
    between, within = scatters(X, y)
    criterion = np.trace(model.directions_.T @ (between - within) @ model.directions_)
    np.testing.assert_allclose(criterion, linalg.eigvalsh(between - within)[-2:].sum())
    np.testing.assert_allclose(loss(model.directions_.ravel()), best, rtol=1e-4)


def test_local_fisher_solves_its_problem() -> None:
    X, y = blobs(40)
    n, d = X.shape
    affinity = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if y[i] == y[j]:
                sigma = [np.sort(np.linalg.norm(X[y == y[k]] - X[k], axis=1))[7] for k in (i, j)]
                affinity[i, j] = np.exp(-np.sum((X[i] - X[j]) ** 2) / np.prod(sigma))
    within, between = np.zeros((d, d)), np.zeros((d, d))
    for i in range(n):
        for j in range(n):
            outer = np.outer(X[i] - X[j], X[i] - X[j]) / 2
            count = np.sum(y == y[i])
            if y[i] == y[j]:
                within += affinity[i, j] / count * outer
                between += affinity[i, j] * (1 / n - 1 / count) * outer
            else:
                between += outer / n
    within += LocalFisher.ridge * np.trace(within) / d * np.eye(d)
    values = linalg.eigh(between, within)[0][:-3:-1]
    L = LocalFisher().fit(X, y).directions_
    np.testing.assert_allclose(between @ L, within @ L * values, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(np.diag(L.T @ within @ L), values, rtol=1e-6)


def test_the_cost_of_lmnn_is_that_of_two_loops(rng: np.random.Generator) -> None:
    X, L = rng.normal(size=(12, 4)), rng.normal(size=(4, 2))
    targets = rng.integers(12, size=(12, 3))
    rows, others = np.repeat(np.arange(12), 2), rng.integers(12, size=24)

    def squared(i: int, j: int) -> float:
        return float(np.sum(((X[i] - X[j]) @ L) ** 2))

    expected = 0.0
    for i in range(12):
        for j in targets[i]:
            expected += 0.7 * squared(i, j)
            for other in others[rows == i]:
                expected += 0.3 * max(0, 1 + squared(i, j) - squared(i, other))
    cost, gradient = margin_cost(L.ravel(), X, targets, (rows, others), 0.3)
    np.testing.assert_allclose(cost, expected / 12)
    numeric = approx_fprime(
        L.ravel(), lambda flat: margin_cost(flat, X, targets, (rows, others), 0.3)[0]
    )
    np.testing.assert_allclose(gradient, numeric, rtol=1e-4, atol=1e-5)


def test_gmlvq_compares_distances_to_prototypes(rng: np.random.Generator) -> None:
    X, codes = rng.normal(size=(20, 4)), np.arange(20) % 3
    flat = rng.normal(size=4 * 2 + 3 * 4)
    omega, W = flat[:8].reshape(4, 2), flat[8:].reshape(3, 4)
    expected = []
    for x, c in zip(X, codes, strict=True):
        squared = np.sum(((x - W) @ omega) ** 2, axis=1)
        other = np.delete(squared, c).min()
        expected.append((squared[c] - other) / (squared[c] + other))
    arguments = X, codes, (4, 2), 0.0
    np.testing.assert_allclose(relevance_cost(flat, *arguments)[0], np.mean(expected))
    assert (
        check_grad(*(lambda v, k=k: relevance_cost(v, *arguments)[k] for k in (0, 1)), flat) < 1e-6
    )


def test_gmlvq_decides_by_the_nearest_prototype_in_the_plane() -> None:
    X, y = blobs()
    model = RelevanceLVQ().fit(X[:90], y[:90])
    assert np.mean(np.unique(y)[model.predict(X[90:])] == y[90:]) > 0.95


def test_screened_pca_leaves_noisy_features_out(rng: np.random.Generator) -> None:
    X, y = blobs()
    X = np.hstack([X, 20 * rng.normal(size=(120, 10))])
    kept = ScreenedPCA(random_state=0).fit(X, y).model_[0].get_support()
    assert kept[:10].any()
    assert not kept[10:].any()

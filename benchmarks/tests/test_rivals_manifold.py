from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.manifold import LocallyLinearEmbedding

from benchmarks.rivals.manifold import (
    MetricMDS,
    SelfOrganizingMap,
    SupervisedLaplacian,
    SupervisedLLE,
    bottom_eigenvectors,
    enhanced_dissimilarity,
    laplacian_problem,
    nearest,
    reconstruction_weights,
)
from benchmarks.tests.test_rivals_classical import blobs, up_to_signs


def test_weights_reconstruct_a_point_between_its_neighbors(rng: np.random.Generator) -> None:
    basis = rng.normal(size=(3, 5))
    shares = np.array([[0.2, 0.5, 0.3], [-0.5, 1.0, 0.5]])
    found = reconstruction_weights(shares @ basis, basis, np.tile(np.arange(3), (2, 1)))
    np.testing.assert_allclose(found, shares, atol=0.01)


def test_without_labels_supervised_lle_is_lle() -> None:
    X, _ = blobs(60, 1)
    columns = nearest(np.where(np.eye(60), np.inf, cdist(X, X)), 8)
    ours = bottom_eigenvectors(reconstruction_weights(X, X, columns), columns, 2)
    theirs = LocallyLinearEmbedding(n_neighbors=8, eigen_solver="dense").fit_transform(X)
    up_to_signs(ours, theirs * np.sqrt(60))
    model = SupervisedLLE(n_neighbors=8, alpha=0.0).fit(X, np.zeros(60))
    np.testing.assert_allclose(np.abs(model.embedding_), np.abs(ours), atol=1e-6)


def test_dissimilarity_is_smaller_within_a_class(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(6, 3)), np.array([0, 0, 0, 1, 1, 1])
    distances = cdist(X, X)
    beta = distances[~np.eye(6, dtype=bool)].mean()
    found = enhanced_dissimilarity(X, y, 0.5)
    for i in range(6):
        for j in range(6):
            ratio = np.exp(distances[i, j] ** 2 / beta)
            expected = np.sqrt(1 - 1 / ratio) if y[i] == y[j] else np.sqrt(ratio) - 0.5
            assert found[i, j] == pytest.approx(expected, abs=1e-7)


def test_mds_places_a_point_at_its_least_stress() -> None:
    X, y = blobs(60)
    model = MetricMDS().fit(X[:50], y[:50])
    placed, distances = model.transform(X[50:]), cdist(X[50:], X[:50])
    for at, wanted in zip(placed, distances, strict=True):

        def stress(z: np.ndarray, wanted: np.ndarray = wanted) -> float:
            return float(np.sum((np.linalg.norm(z - model.embedding_, axis=1) - wanted) ** 2))

        assert stress(at) <= minimize(stress, at).fun * (1 + 1e-4)


def test_supervised_laplacian_eigenmaps_solve_their_problem(rng: np.random.Generator) -> None:
    X, y = blobs(30)
    squared = cdist(X, X, "sqeuclidean")
    similarity = np.exp(-squared / squared.mean())
    within, between = np.zeros((30, 30)), np.zeros((30, 30))
    means = similarity.mean(axis=1)
    for i in range(30):
        for j in range(30):
            if similarity[i, j] > min(means[i], means[j]):
                if y[i] == y[j]:
                    within[i, j] = similarity[i, j]
                else:
                    between[i, j] = 1
    B, D = laplacian_problem(similarity, y, 0.3)
    np.testing.assert_allclose(D, np.diag(within.sum(axis=0)))
    np.testing.assert_allclose(B, 0.3 * (np.diag(between.sum(axis=0)) - between) + 0.7 * within)
    Z = SupervisedLaplacian(gamma=0.3, beta=1.0).fit(X, y).embedding_
    values = np.sum(Z * (B @ Z), axis=0) / np.sum(Z * (D @ Z), axis=0)
    np.testing.assert_allclose(B @ Z, D @ Z * values, atol=1e-6)
    # The largest eigenvalues, without that of the constant vector.
    everything = np.sort(np.linalg.eigvals(np.linalg.solve(D, B)).real)
    others = np.delete(everything, np.abs(everything - 0.7).argmin())
    np.testing.assert_allclose(np.sort(values), others[-2:], atol=1e-6)


def test_a_self_organizing_map_fills_its_grid() -> None:
    X, _ = blobs()
    model = SelfOrganizingMap(random_state=0).fit(X[:90])
    Z = model.transform(X[90:])
    side = model.grid_.max()
    assert Z.min() >= 0
    assert Z.max() <= side
    # The grid position nearest to each place is that of the best unit or of a neighbour of it.
    best = model.grid_[cdist(X[90:], model.units_).argmin(axis=1)]
    assert np.median(np.linalg.norm(Z - best, axis=1)) < 1

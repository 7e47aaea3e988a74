from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import linalg
from scipy.optimize import check_grad
from scipy.spatial.distance import cdist
from scipy.special import rel_entr
from sklearn.base import BaseEstimator

from benchmarks.rivals.classical import SUPERVISED, UNSUPERVISED
from benchmarks.rivals.contrastive import Cebra
from benchmarks.rivals.neighbors import (
    map_cost,
    neighbor_probabilities,
    relational_cost,
    retrieval_cost,
)
from benchmarks.rivals.posteriors import ParzenPosterior, embedding_cost, fisher_distances
from benchmarks.rivals.regression import KernelRegression
from benchmarks.rivals.selection import best_setting, embed, knn_error
from benchmarks.rivals.spectral import (
    KernelSupervisedPCA,
    SupervisedPCA,
    classical_mds,
    supervised_dissimilarity,
    unfold,
)

Array = NDArray[np.float64]
Labels = NDArray[np.generic]

RIVALS = UNSUPERVISED | SUPERVISED


def blobs(n: int = 120, n_classes: int = 3, distance: float = 3.0) -> tuple[Array, Labels]:
    """Return Gaussian groups in ten dimensions, and their names."""
    rng = np.random.default_rng(0)
    codes = np.arange(n) % n_classes
    means = distance * rng.normal(size=(n_classes, 10))
    return means[codes] + rng.normal(size=(n, 10)), np.array(list("abcdefgh"))[codes]


# UMAP and PaCMAP are compiled at their first use, and CEBRA takes minutes.
LONG = "UMAP", "supervised UMAP", "PaCMAP", "CEBRA"
SLOW = {name: [pytest.mark.slow] if name in LONG else [] for name in RIVALS}


@pytest.mark.parametrize("name", [pytest.param(name, marks=SLOW[name]) for name in RIVALS])
def test_a_rival_separates_blobs_and_repeats_itself(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Cebra, "n_steps", 300)
    X, y = blobs()
    first, second = (embed(RIVALS[name](3), X[:90], y[:90], X[90:]) for _ in range(2))
    for part, again, n in zip(first, second, (90, 30), strict=True):
        assert (part.shape, part.dtype) == ((n, 2), np.float64)
        assert np.isfinite(part).all()
        np.testing.assert_array_equal(part, again)
    assert knn_error(first[0], y[:90], first[1], y[90:]) < 0.1


class Ruler(BaseEstimator):
    """An embedding with one feature of the data."""

    def __init__(self, axis: int = 0) -> None:
        self.axis = axis

    def fit_transform(self, X: Array, y: Labels) -> Array:
        assert len(X) == 40
        return self.transform(X)

    def transform(self, X: Array) -> Array:
        return X[:, [self.axis]]


def test_a_setting_is_chosen_on_a_fifth_of_the_training_data(rng: np.random.Generator) -> None:
    y = np.arange(50) % 2
    X = rng.normal(size=(50, 3))
    X[:, 2] += 10 * y
    candidates = [{"axis": axis} for axis in (0, 1, 2)]
    assert best_setting(Ruler(), candidates, X, y, 0) == {"axis": 2}
    # A class with one sample cannot be in both parts.
    y[0] = 2
    assert best_setting(Ruler(), candidates, X, y, 0) == {"axis": 2}


def test_knn_error_is_the_share_of_wrong_majority_votes() -> None:
    Z = np.array([[0.0], [1], [2], [3], [4], [100]])
    y = np.array(["a", "a", "a", "b", "b", "b"])
    assert knn_error(Z, y, np.array([[2.0], [98.0]]), np.array(["a", "a"])) == 0.5


def up_to_signs(A: Array, B: Array) -> None:
    np.testing.assert_allclose(np.abs(A), np.abs(B), rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(cdist(A, A), cdist(B, B), rtol=1e-6, atol=1e-9)


def test_supervised_pca_has_the_leading_eigenvectors_of_its_definition() -> None:
    X, y = blobs(60, 4)
    H = np.eye(60) - 1 / 60
    L = (y[:, None] == y[None, :]).astype(float)
    vectors = np.linalg.eigh(X.T @ H @ L @ H @ X)[1][:, :-3:-1]
    up_to_signs(SupervisedPCA().fit_transform(X, y), (X - X.mean(axis=0)) @ vectors)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_kernel_supervised_pca_is_supervised_pca_if_its_kernel_is_linear(n_classes: int) -> None:
    X, y = blobs(60, n_classes)
    X -= X[:40].mean(axis=0)
    plain = SupervisedPCA().fit(X[:40], y[:40])
    kernel = KernelSupervisedPCA(kernel="linear").fit(X[:40], y[:40])
    up_to_signs(kernel.transform(X), plain.transform(X))


def test_dissimilarity_follows_the_formula_of_the_paper(rng: np.random.Generator) -> None:
    X, y = rng.normal(size=(5, 3)), np.array([0, 0, 1, 1, 1])
    d = np.exp(cdist(X, X, "sqeuclidean") / 2)
    expected = np.where(np.equal.outer(y, y), np.sqrt(1 - 1 / d), np.sqrt(d) - 0.5)
    np.testing.assert_allclose(supervised_dissimilarity(X, y, 0.5, 2.0), expected, atol=1e-7)


def test_classical_scaling_recovers_points_of_a_plane(rng: np.random.Generator) -> None:
    Z = rng.normal(size=(30, 2))
    np.testing.assert_allclose(cdist(*[classical_mds(cdist(Z, Z), 2)] * 2), cdist(Z, Z))


def test_unfolding_satisfies_the_conditions_of_an_optimum(rng: np.random.Generator) -> None:
    differences = rng.normal(size=(60, 4))
    squared = rng.uniform(0.5, 1.5, 60)
    pull = np.cov(rng.normal(size=(4, 9)))
    A = unfold(pull, differences, squared, 1.0)
    lengths = np.sum(differences**2, axis=1)
    unit = np.trace(pull) * (lengths @ squared) / (lengths @ lengths)
    errors = np.einsum("ei,ij,ej->e", differences, A, differences) - squared
    slope = pull / unit - 2 * np.einsum("e,ei,ej->ij", errors, differences, differences) / 60
    # At the optimum of a concave function on the cone, the slope has no positive eigenvalue.
    assert linalg.eigvalsh(A)[0] > -1e-9
    assert linalg.eigvalsh(slope)[-1] < 1e-3
    np.testing.assert_allclose(slope @ A, 0, atol=1e-3)


def test_regression_is_the_weighted_mean() -> None:
    X, y = blobs(30)
    Z = X[:, :2]
    model = KernelRegression().fit(X, Z, y)
    weights = np.exp(-cdist(X[:3] + 1, X, "sqeuclidean") / (2 * model.width**2))
    expected = weights @ Z / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict(X[:3] + 1), expected)
    assert np.isfinite(model.predict(X + 1e4)).all()


def test_posteriors_of_a_training_point_leave_it_out() -> None:
    X, y = blobs(30, distance=1.0)
    model = ParzenPosterior().fit(X, y)
    k = np.exp(-cdist(X, X, "sqeuclidean") / (2 * model.width**2))
    np.fill_diagonal(k, 0)
    expected = k @ np.equal.outer(y, np.unique(y)) / k.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_proba(), 0.999 * expected + 0.001 / 3)


def gradient_error(cost: Callable[..., tuple[Any, ...]], *parts: Array) -> float:
    """Return the error of the gradients that a cost returns with its value, one for each part."""

    def value(flat: Array) -> Any:
        return cost(*split(flat))[0]

    def slope(flat: Array) -> Array:
        return np.concatenate([np.ravel(part) for part in cost(*split(flat))[1:]])

    def split(flat: Array) -> list[Array]:
        ends = np.cumsum([part.size for part in parts])[:-1]
        pieces = np.split(flat, ends)
        return [piece.reshape(part.shape) for piece, part in zip(pieces, parts, strict=True)]

    return float(check_grad(value, slope, np.concatenate([part.ravel() for part in parts])))


def test_cost_of_parametric_embedding_is_that_of_two_loops(rng: np.random.Generator) -> None:
    points, centers = rng.normal(size=(6, 2)), rng.normal(size=(4, 2))
    p = rng.dirichlet(np.ones(4), 6)
    prior = rng.dirichlet(np.ones(4))
    cost = 0.1 * 6 / 4 * np.sum(centers**2)
    for n in range(6):
        q = [prior[c] * np.exp(-0.5 * np.sum((points[n] - centers[c]) ** 2)) for c in range(4)]
        cost += sum(p[n, c] * np.log(p[n, c] / (q[c] / sum(q))) for c in range(4))
        cost += 0.1 * np.sum(points[n] ** 2)
    args = (p, np.log(prior), 0.1)
    assert embedding_cost(points, centers, *args)[0] == pytest.approx(cost / 6)
    assert gradient_error(lambda *both: embedding_cost(*both, *args), points, centers) < 1e-6


def test_fisher_distance_is_the_length_in_the_metric_of_the_posteriors() -> None:
    X, y = blobs(40, distance=1.0)
    model = ParzenPosterior().fit(X, y)
    a, b = X[0] + 0.3, X[1] - 0.2

    def log_posterior(x: Array) -> Array:
        mass = np.exp(model.log_kernel(x[None])[0]) @ model.indicators
        return np.asarray(np.log(mass / mass.sum()))

    length, steps, h = 0.0, 1000, 1e-6
    for t in (np.arange(steps) + 0.5) / steps:
        x = a + t * (b - a)
        change = (log_posterior(x + h * (b - a)) - log_posterior(x - h * (b - a))) / (2 * h)
        length += np.sqrt(np.exp(log_posterior(x)) @ change**2) / steps
    kernels = model.log_kernel(a[None]), model.log_kernel(b[None])
    assert fisher_distances(*kernels, model.codes, 200)[0, 0] == pytest.approx(length, rel=1e-3)
    # With fewer steps, the path takes shortcuts through the simplex and is shorter.
    assert fisher_distances(*kernels, model.codes, 5)[0, 0] <= length


def test_neighbour_probabilities_have_the_given_perplexity() -> None:
    X, _ = blobs(60)
    squared = cdist(X, X, "sqeuclidean")
    np.fill_diagonal(squared, np.inf)
    p, scales = neighbor_probabilities(squared, 12)
    entropy = -np.sum(p * np.log(np.where(p > 0, p, 1)), axis=1)
    np.testing.assert_allclose(np.exp(entropy), 12, rtol=1e-3)
    expected = np.exp(-scales[:, None] * squared)
    np.testing.assert_allclose(p, expected / expected.sum(axis=1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_cost_and_gradient_of_nerv(share: float, rng: np.random.Generator) -> None:
    Z = rng.normal(size=(8, 2))
    p = rng.dirichlet(np.ones(8), 8)
    np.fill_diagonal(p, 0)
    p /= p.sum(axis=1, keepdims=True)
    w = rng.uniform(0.5, 2, 8)
    scaled = cdist(Z, Z, "sqeuclidean") * w[:, None]
    np.fill_diagonal(scaled, np.inf)
    q = np.exp(-scaled)
    q /= q.sum(axis=1, keepdims=True)
    expected = share * rel_entr(p, q).sum(axis=1) + (1 - share) * rel_entr(q, p).sum(axis=1)
    log_p = np.log(np.where(p > 0, p, 1))
    np.testing.assert_allclose(retrieval_cost(scaled, p, log_p, share)[0], expected)
    assert gradient_error(lambda Z: map_cost(Z, p, w, share), Z) < 1e-6


def test_gradients_of_multiple_relational_embedding(rng: np.random.Generator) -> None:
    alike = np.equal.outer(np.arange(8) % 4, np.arange(8) % 4) * 1.0
    alike[0] = alike[:, 0] = 0  # a class with one sample
    alike[4] = alike[:, 4] = 0
    near = rng.dirichlet(np.ones(8), 8)
    for p in (alike, near):
        np.fill_diagonal(p, 0)
    relations = near / near.sum(axis=1, keepdims=True), alike
    Z, scales = rng.normal(size=(8, 2)), rng.uniform(0.5, 2, (2, 2))
    assert gradient_error(lambda *both: relational_cost(*both, relations), Z, scales) < 1e-6
    scaled = cdist(Z * scales[0], Z * scales[0], "sqeuclidean")
    np.fill_diagonal(scaled, np.inf)
    q = np.exp(-scaled)
    q /= q.sum(axis=1, keepdims=True)
    only_near = relational_cost(Z, scales, relations[:1])[0]
    assert only_near == pytest.approx(rel_entr(relations[0], q).sum() / 8)

"""Linear rivals, written from their papers: projections of the features on the plane."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline

from benchmarks.rivals.selection import Array, Labels, best_setting

Indices = NDArray[np.intp]


class Linear(BaseEstimator):
    """Base of the projections; ``mean_`` is (d,) and ``directions_`` is (d, n_components)."""

    mean_: Array
    directions_: Array

    def __init__(self, n_components: int = 2, random_state: int | None = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        raise NotImplementedError

    def transform(self, X: Array) -> Array:
        """Return the (n, n_components) projection of (n, d) samples."""
        return np.asarray((X - self.mean_) @ self.directions_)

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Fit and project the training data."""
        return self.fit(X, y).transform(X)


class ScreenedPCA(BaseEstimator):
    """Supervised principal components of Bair, Hastie, Paul & Tibshirani (2006), JASA 101.

    These are the principal components of the features with the largest scores. In the paper, the
    score measures the relation to a number or a survival time; for classes, it is the F statistic
    of the analysis of variance.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    share
        Share of the features that is kept. If None, the best of five shares on held-out training
        data is used.
    random_state
        Seed of the held-out part.
    """

    def __init__(
        self, n_components: int = 2, share: float | None = None, random_state: int | None = None
    ) -> None:
        self.n_components = n_components
        self.share = share
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        share = self.share
        if share is None:
            candidates = [{"share": part} for part in (0.1, 0.2, 0.4, 0.7, 1.0)]
            share = best_setting(self, candidates, X, y, self.random_state)["share"]
        n_kept = min(X.shape[1], max(self.n_components, round(share * X.shape[1])))
        with np.errstate(divide="ignore", invalid="ignore"):
            self.model_ = make_pipeline(
                SelectKBest(f_classif, k=n_kept), PCA(self.n_components, random_state=0)
            ).fit(X, y)
        return self

    def transform(self, X: Array) -> Array:
        """Return the (n, n_components) projection of (n, d) samples."""
        return np.asarray(self.model_.transform(X))

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Fit and project the training data."""
        return self.fit(X, y).transform(X)


def scatters(X: Array, y: Labels) -> tuple[Array, Array]:
    """Return the (d, d) scatters between the classes and within them, both divided by n."""
    codes = np.unique(y, return_inverse=True)[1]
    members = np.eye(codes.max() + 1)[codes]
    means = members.T @ X / members.sum(axis=0)[:, None]
    centered, residual = means[codes] - X.mean(axis=0), X - means[codes]
    return centered.T @ centered / len(X), residual.T @ residual / len(X)


def discriminants(X: Array, y: Labels, n_components: int) -> Array:
    """Return (d, n_components) discriminant directions, the start of other methods."""
    between, within = scatters(X, y)
    d = X.shape[1]
    within += 1e-2 * np.trace(within) / d * np.eye(d)
    return np.asarray(linalg.eigh(between, within, subset_by_index=[d - n_components, d - 1])[1])


class LinearCentroidEncoder(Linear):
    """The linear centroid-encoder, which is the maximum margin criterion.

    Ghosh & Kirby (2023), arXiv 2306.04622: A with AᵀA = I minimises Σ_i ‖c_i − A Aᵀx_i‖² for
    centred x, where c_i is the centroid of the class of x_i. The sum is a constant minus
    tr Aᵀ(C Xᵀ + X Cᵀ − X Xᵀ)A, and C Xᵀ = n S_B. Therefore A has the leading eigenvectors of
    S_B − S_W, as the criterion of Li, Jiang & Zhang (2003), NIPS 16.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    random_state
        Not used: nothing is random.
    """

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        self.mean_ = X.mean(axis=0)
        between, within = scatters(X, y)
        last = X.shape[1] - 1
        found = linalg.eigh(between - within, subset_by_index=[last + 1 - self.n_components, last])
        self.directions_ = found[1][:, ::-1]
        return self


class LocalFisher(Linear):
    """Local Fisher discriminant analysis (Sugiyama 2007), JMLR 8.

    Pairs within a class have the weight exp(−d²/σ_iσ_j), where σ_i is the distance to the seventh
    neighbour in the class; pairs of different classes have equal weights. The directions are scaled
    by their eigenvalues, as the paper advises. The matrices are those of the author's program.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    random_state
        Not used: nothing is random.
    """

    n_neighbors = 7
    ridge = 1e-3
    """Regularisation of the scatter within classes, as a share of its mean variance."""

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        self.mean_ = X.mean(axis=0)
        X = X - self.mean_
        n, d = X.shape
        within = np.zeros((d, d))
        total = X.T @ X / n
        between = np.zeros((d, d))
        for name in np.unique(y):
            members = X[y == name]
            count = len(members)
            squared = cdist(members, members, "sqeuclidean")
            kth = min(self.n_neighbors, count - 1)
            sigma = np.sqrt(np.partition(squared, kth, axis=1)[:, kth])
            affinity = np.exp(-squared / np.maximum(np.outer(sigma, sigma), 1e-12))
            local = members.T @ (affinity.sum(axis=1)[:, None] * members)
            local -= members.T @ affinity @ members
            within += local / count
            # In the scatter between classes, pairs within a class have the weight A (1/n − 1/n_c),
            # all others 1/n.
            spread = count * members.T @ members - np.outer(members.sum(0), members.sum(0))
            between += local * (1 / n - 1 / count) - spread / n
        between += n * total
        within += self.ridge * np.trace(within) / d * np.eye(d)
        values, vectors = linalg.eigh(
            between, within, subset_by_index=[d - self.n_components, d - 1]
        )
        self.directions_ = (vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1]
        return self


def margin_cost(
    flat: Array, X: Array, targets: Indices, impostors: tuple[Indices, Indices], weight: float
) -> tuple[float, Array]:
    """Return the cost of LMNN for the projection L = ``flat``, and its gradient.

    The cost is (1 − μ) Σ_i Σ_j d²(i, j) + μ Σ_i Σ_j Σ_l max(0, 1 + d²(i, j) − d²(i, l)), divided by
    n, with μ = ``weight``. The sums are over the target neighbours j of i in the (n, k)
    ``targets``, and over the pairs (i, l) in ``impostors``.
    """
    L = flat.reshape(X.shape[1], -1)
    pull = X[:, None] - X[targets]
    near = np.sum((pull @ L) ** 2, axis=2)
    rows, others = impostors
    push = X[rows] - X[others]
    far = np.sum((push @ L) ** 2, axis=1)
    active = 1 + near[rows] - far[:, None]
    is_active = active > 0
    cost = (1 - weight) * near.sum() + weight * active[is_active].sum()
    counts = np.full(targets.shape, 1.0 - weight)
    np.add.at(counts, rows, weight * is_active)
    flat_pull = pull.reshape(-1, X.shape[1])
    gradient = (flat_pull * counts.ravel()[:, None]).T @ (flat_pull @ L)
    gradient -= (push * (weight * is_active.sum(axis=1))[:, None]).T @ (push @ L)
    return float(cost / len(X)), 2 * gradient.ravel() / len(X)


class LargeMargin(Linear):
    """Large margin nearest neighbours (Weinberger & Saul 2009), JMLR 10, of rank two.

    The cost is `margin_cost`, with μ = ½ and three target neighbours as in the paper. The
    projection itself is optimised, starting from the discriminant directions. There are
    ``n_rounds`` rounds of L-BFGS; before each, the nearest ``n_impostors`` samples of other classes
    are found for each sample.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    random_state
        Not used: nothing is random.
    """

    n_targets = 3
    n_impostors = 15
    n_rounds = 6
    weight = 0.5

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        self.mean_ = X.mean(axis=0)
        X = X - self.mean_
        d = X.shape[1]
        L = discriminants(X, y, self.n_components)
        classes = {name: np.flatnonzero(y == name) for name in np.unique(y)}
        n_targets = min([self.n_targets, *(len(rows) - 1 for rows in classes.values())])
        targets = np.empty((len(X), n_targets), dtype=np.intp)
        for rows in classes.values():
            found = NearestNeighbors(n_neighbors=n_targets).fit(X[rows])
            targets[rows] = rows[found.kneighbors(return_distance=False)]
        for _ in range(self.n_rounds):
            Z = X @ L
            pairs = []
            for rows in classes.values():
                others = np.setdiff1d(np.arange(len(X)), rows)
                k = min(self.n_impostors, len(others))
                near = NearestNeighbors(n_neighbors=k).fit(Z[others])
                columns = near.kneighbors(Z[rows], return_distance=False)
                pairs.append((np.repeat(rows, k), others[columns].ravel()))
            impostors = tuple(np.concatenate(part) for part in zip(*pairs, strict=True))
            found = minimize(
                margin_cost, L.ravel(), (X, targets, impostors, self.weight), jac=True,
                method="L-BFGS-B", options={"maxiter": 50},
            )  # fmt: skip
            L = found.x.reshape(d, -1)
        self.directions_ = L
        return self


def relevance_cost(
    flat: Array, X: Array, codes: Indices, shape: tuple[int, int], ridge: float
) -> tuple[float, Array]:
    """Return the cost of GMLVQ and its gradient; ``flat`` has Ω and the prototypes.

    The cost is 1/n Σ_i μ_i with μ_i = (d⁺ − d⁻) / (d⁺ + d⁻) of Sato & Yamada (1996). d⁺ and d⁻ are
    the squared distances ‖Ω(x − w)‖² to the nearest prototype of the sample's class and of another
    class. ``ridge`` keeps the denominator above 0. Ω is scaled to tr ΩᵀΩ = 1, because its size does
    not change μ_i.
    """
    d, m = shape
    omega, prototypes = flat[: d * m].reshape(d, m), flat[d * m :].reshape(-1, d)
    norm = np.sqrt(np.sum(omega**2))
    unit = omega / norm
    Z, W = X @ unit, prototypes @ unit
    squared = cdist(Z, W, "sqeuclidean")
    rows = np.arange(len(X))
    right = squared[rows, codes]
    others = squared.copy()
    others[rows, codes] = np.inf
    nearest = others.argmin(axis=1)
    wrong = others[rows, nearest]
    total = right + wrong + ridge
    cost = np.mean((right - wrong) / total)
    # Derivatives of the relative difference with respect to both distances.
    by_right, by_wrong = 2 * (wrong + ridge / 2) / total**2, -2 * (right + ridge / 2) / total**2
    slope = np.zeros_like(squared)
    slope[rows, codes] = by_right
    slope[rows, nearest] += by_wrong
    slope /= len(X)
    by_row, by_column = slope.sum(axis=1), slope.sum(axis=0)
    by_unit = 2 * (
        X.T @ (by_row[:, None] * Z - slope @ W)
        + prototypes.T @ (by_column[:, None] * W - slope.T @ Z)
    )
    by_prototypes = 2 * (by_column[:, None] * W - slope.T @ Z) @ unit.T
    by_omega = (by_unit - unit * np.sum(by_unit * unit)) / norm
    return float(cost), np.concatenate([by_omega.ravel(), by_prototypes.ravel()])


class RelevanceLVQ(Linear):
    """Generalised matrix learning vector quantisation with a relevance matrix of rank two.

    Schneider, Biehl & Hammer (2009), "Adaptive relevance matrices in learning vector quantization",
    Neural Computation 21; limited rank: Bunte et al. (2012), Neural Networks 26. The cost is
    `relevance_cost`. Each class has one prototype, which starts at its centroid; Ω starts from the
    discriminant directions; L-BFGS optimises both together. The method decides for the class of the
    nearest prototype in the plane, which are the Voronoi cells of the prototypes.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    random_state
        Not used: nothing is random.
    """

    ridge = 1e-9

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        self.mean_ = X.mean(axis=0)
        X = X - self.mean_
        d = X.shape[1]
        codes = np.unique(y, return_inverse=True)[1]
        members = np.eye(codes.max() + 1)[codes]
        omega = discriminants(X, y, self.n_components)
        start = np.concatenate(
            [omega[:, ::-1].ravel(), (members.T @ X / members.sum(axis=0)[:, None]).ravel()]
        )
        found = minimize(
            relevance_cost, start, (X, codes, (d, self.n_components), self.ridge), jac=True,
            method="L-BFGS-B", options={"maxiter": 500},
        )  # fmt: skip
        size = d * self.n_components
        self.directions_ = found.x[:size].reshape(d, -1)
        self.directions_ /= np.sqrt(np.sum(self.directions_**2))
        self.prototypes_ = found.x[size:].reshape(-1, d) @ self.directions_
        return self

    def predict(self, X: Array) -> Indices:
        """Return the class indices of the nearest prototypes."""
        return np.asarray(cdist(self.transform(X), self.prototypes_).argmin(axis=1))

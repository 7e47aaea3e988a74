"""Rivals whose embedding solves an eigenvalue problem, written from their papers."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy import linalg, sparse
from scipy.sparse.csgraph import minimum_spanning_tree, shortest_path
from scipy.sparse.linalg import eigsh
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator

from benchmarks.rivals.regression import KernelRegression
from benchmarks.rivals.selection import Array, Labels, best_setting


def label_factor(y: Labels, n_components: int) -> Array:
    """Return the centred D with D Dᵀ = H L H for the delta kernel L of the labels.

    H L H has rank M − 1. If that is less than ``n_components``, the identity is added to L; then
    the remaining dimensions become principal components.
    """
    codes = np.unique(y, return_inverse=True)[1]
    factor = np.eye(codes.max() + 1)[codes]
    if factor.shape[1] <= n_components:
        factor = np.hstack([factor, np.eye(len(y))])
    return np.asarray(factor - factor.mean(axis=0))


class SupervisedPCA(BaseEstimator):
    """Supervised PCA.

    Barshan, Ghodsi, Azimifar & Zolghadri Jahromi (2011), "Supervised principal component analysis:
    visualization, classification and regression on subspaces and submanifolds", Pattern
    Recognition 44: the orthonormal U maximises tr(Uᵀ X H L H Xᵀ U), the Hilbert-Schmidt dependence
    of projection and labels.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    random_state
        Not used: nothing is random.
    """

    def __init__(self, n_components: int = 2, random_state: int | None = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        self.mean_ = X.mean(axis=0)
        factor = (X - self.mean_).T @ label_factor(y, self.n_components)
        self.directions_ = linalg.svd(factor, full_matrices=False)[0][:, : self.n_components]
        return self

    def transform(self, X: Array) -> Array:
        """Return the (n, n_components) projection of (n, d) samples."""
        return np.asarray((X - self.mean_) @ self.directions_)

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Fit and project the training data."""
        return self.fit(X, y).transform(X)


class KernelSupervisedPCA(BaseEstimator):
    """Kernel supervised PCA with a Gaussian kernel.

    Barshan et al. (2011): β are the eigenvectors of K H L H K β = λ K β with the largest λ. With
    H L H = D Dᵀ, they are β = D v / √λ for the eigenvectors v of the small matrix Dᵀ K D. A new
    point is placed at βᵀ k(X, x).

    Parameters
    ----------
    n_components
        Columns of the embedding.
    kernel
        ``"rbf"`` or ``"linear"``.
    gamma
        The kernel is exp(−gamma ‖x − x'‖²), with gamma in units of 1 / median squared distance. If
        None, the best of seven values on held-out training data is used.
    random_state
        Seed of the held-out part.
    """

    def __init__(
        self,
        n_components: int = 2,
        kernel: str = "rbf",
        gamma: float | None = None,
        random_state: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.gamma = gamma
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        self.gamma_ = self.gamma or 0.0
        if self.kernel == "rbf" and self.gamma is None:
            candidates = [{"gamma": gamma} for gamma in (1, 0.3, 3, 0.1, 10, 0.03, 30)]
            self.gamma_ = best_setting(self, candidates, X, y, self.random_state)["gamma"]
        self.X_ = X
        squared = cdist(X, X, "sqeuclidean")
        self.unit_ = np.median(squared[~np.eye(len(X), dtype=bool)])
        factor = label_factor(y, self.n_components)
        small = factor.T @ self._kernel(X) @ factor
        last = len(small) - 1
        values, vectors = linalg.eigh(small, subset_by_index=[last + 1 - self.n_components, last])
        self.coefficients_ = factor @ (vectors / np.sqrt(values))[:, ::-1]
        return self

    def _kernel(self, X: Array) -> Array:
        """Return the (n, n_train) kernels between samples and training points."""
        if self.kernel == "linear":
            return X @ self.X_.T
        return np.asarray(np.exp(-self.gamma_ / self.unit_ * cdist(X, self.X_, "sqeuclidean")))

    def transform(self, X: Array) -> Array:
        """Return the (n, n_components) projection of (n, d) samples."""
        return np.asarray(self._kernel(X) @ self.coefficients_)

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Fit and project the training data."""
        return self.fit(X, y).transform(X)


def connected_graph(distances: Array, n_neighbors: int) -> sparse.csr_matrix:
    """Return the symmetric neighbour graph; a minimum spanning tree connects its parts.

    Distances of 0 are replaced by very small ones, because 0 means "no edge".
    """
    # They are relative to the median, because the largest dissimilarity may be too large by
    # hundreds of orders of magnitude.
    distances = np.maximum(distances, 1e-12 * np.median(distances))
    n = len(distances)
    ranked = distances.copy()
    np.fill_diagonal(ranked, np.inf)
    n_neighbors = min(n_neighbors, n - 1)
    columns = np.argpartition(ranked, n_neighbors - 1, axis=1)[:, :n_neighbors].ravel()
    rows = np.repeat(np.arange(n), n_neighbors)
    edges = sparse.csr_matrix((distances[rows, columns], (rows, columns)), shape=(n, n))
    np.fill_diagonal(ranked, 0)
    tree = minimum_spanning_tree(ranked)
    return edges.maximum(edges.T).maximum(tree).maximum(tree.T).tocsr()


def classical_mds(distances: Array, n_components: int) -> Array:
    """Return the (n, n_components) coordinates of classical scaling of (n, n) distances."""
    gram = -0.5 * distances**2
    gram = gram - gram.mean(axis=0) - gram.mean(axis=1, keepdims=True) + gram.mean()
    last = len(gram) - 1
    values, vectors = linalg.eigh(gram, subset_by_index=[last + 1 - n_components, last])
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0)))[:, ::-1])


def supervised_dissimilarity(X: Array, y: Labels, alpha: float, beta: float) -> Array:
    """Return the (n, n) dissimilarities D(x, x') of Geng et al. (2005)."""
    exponent = cdist(X, X, "sqeuclidean") / beta
    within = np.sqrt(-np.expm1(-exponent))
    # The limit prevents overflow; beyond it, all distances are large.
    between = np.sqrt(np.exp(np.minimum(exponent, 300))) - alpha
    return np.asarray(np.where(y[:, None] == y[None, :], within, between))


class SupervisedIsomap(BaseEstimator):
    """S-Isomap: Isomap on a dissimilarity that depends on the classes.

    Geng, Zhan & Zhou (2005), "Supervised nonlinear dimensionality reduction for visualization and
    classification", IEEE Transactions on SMC B 35. The dissimilarity is √(1 − exp(−d²/β)) within a
    class and √exp(d²/β) − α between classes. Classical scaling embeds the geodesic distances in its
    neighbour graph; a minimum spanning tree connects the parts of the graph. β is the mean distance
    of all pairs, as the paper advises. The paper trains a regression network to place new points;
    here it is a `KernelRegression`.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    n_neighbors
        If None, the best of 10, 5 and 40 on held-out training data is used; it is chosen together
        with ``alpha``.
    alpha
        How much the dissimilarity of different classes is reduced. The paper has 0.5; the errors
        depend much on it. If None, the best of 0.5, 0.25 and 0 is used.
    random_state
        Seed of the held-out part.
    """

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int | None = None,
        alpha: float | None = None,
        random_state: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.alpha = alpha
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        n_neighbors, alpha = self.n_neighbors, self.alpha
        if n_neighbors is None or alpha is None:
            candidates = [
                {"alpha": a, "n_neighbors": k}
                for a in ((0.5, 0.25, 0.0) if alpha is None else (alpha,))
                for k in ((10, 5, 40) if n_neighbors is None else (n_neighbors,))
            ]
            setting = best_setting(self, candidates, X, y, self.random_state)
            n_neighbors, alpha = int(setting["n_neighbors"]), setting["alpha"]
        distances = cdist(X, X)
        beta = float(distances[~np.eye(len(X), dtype=bool)].mean())
        graph = connected_graph(supervised_dissimilarity(X, y, alpha, beta), n_neighbors)
        geodesics = shortest_path(graph, directed=False)
        self.embedding_ = classical_mds(geodesics, self.n_components)
        self.map_ = KernelRegression().fit(X, self.embedding_, y)
        return self

    def transform(self, X: Array) -> Array:
        """Place new points by kernel regression."""
        return self.map_.predict(X)

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Fit, and return the embedding of the training points."""
        return self.fit(X, y).embedding_


def nearest_semidefinite(A: Array) -> Array:
    """Return the projection of a symmetric matrix on the cone of semidefinite matrices."""
    values, vectors = linalg.eigh(A)
    return np.asarray((vectors * np.maximum(values, 0)) @ vectors.T)


def unfold(pull: Array, differences: Array, squared: Array, penalty: float) -> Array:
    """Return the semidefinite A that maximises tr(A pull) − penalty · mean_e (v_eᵀ A v_e − d_e²)².

    The problem is concave, so it has one optimum. Accelerated projected gradient steps find it
    (Beck & Teboulle 2009). ``differences`` are the v_e, and ``squared`` the d_e² with a mean of 1.
    The steps start from the multiple of the identity with the best distances, for which ``pull`` is
    scaled to tr(A pull) = 1.
    """
    m = len(pull)
    outer = (differences[:, :, None] * differences[:, None, :]).reshape(len(differences), m * m)
    quadratic = outer.T @ outer / len(outer)
    linear = outer.T @ squared / len(outer)
    identity = np.eye(m).ravel()
    start = (identity @ linear) / (identity @ quadratic @ identity)
    pull = pull / (start * np.trace(pull))
    curvature = float(eigsh(quadratic, 1, v0=identity, return_eigenvectors=False)[0])
    step = 1 / (2 * penalty * curvature)
    metric: Array = start * np.eye(m)
    ahead: Array = metric
    momentum = 1.0
    for _ in range(500):
        slope = pull - 2 * penalty * (quadratic @ ahead.ravel() - linear).reshape(m, m)
        new = nearest_semidefinite(ahead + step * (slope + slope.T) / 2)
        # The momentum is reset if it no longer points uphill (O'Donoghue & Candès 2015).
        if np.sum((ahead - new) * (new - metric)) > 0:
            momentum = 1.0
        faster = (1 + np.sqrt(1 + 4 * momentum**2)) / 2
        ahead = new + (momentum - 1) / faster * (new - metric)
        moved = linalg.norm(new - metric)
        metric, momentum = new, faster
        if moved < 1e-5 * linalg.norm(metric):
            break
    return np.asarray(metric)


class ColoredMVU(BaseEstimator):
    """MUHSIC, or coloured maximum variance unfolding, in its Laplacian-reduced form.

    Song, Smola, Borgwardt & Gretton (2007), "Colored maximum variance unfolding", NIPS 20: the
    kernel K of the embedding maximises tr(H K H L), its dependence on the delta kernel L of the
    labels, and preserves the distances of neighbours.

    Simplifications: K = V A Vᵀ, where V has the bottom eigenvectors of the Laplacian of the
    neighbour graph, as the paper proposes for large n after Weinberger et al. (2006). The
    constraints are a quadratic penalty. `unfold` solves this small problem. The last step of the
    paper, gradient steps on all coordinates, is left out. The embedding has the leading
    eigenvectors of K. A `KernelRegression` places new points, because the paper has no map.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    n_eigenvectors
        Columns of V. If None, the better of 10 and 30 is used; it is chosen together with
        ``penalty``.
    penalty
        Weight of the constraints. With 1, an error of 100 % in all distances costs as much as the
        dependence on the labels before the optimisation. If None, the best of 1, 10 and 100 on
        held-out training data is used.
    random_state
        Seed of the held-out part.
    """

    n_neighbors = 5
    """Neighbours whose distances are preserved."""

    def __init__(
        self,
        n_components: int = 2,
        n_eigenvectors: int | None = None,
        penalty: float | None = None,
        random_state: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_eigenvectors = n_eigenvectors
        self.penalty = penalty
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        n_eigenvectors, penalty = self.n_eigenvectors, self.penalty
        if n_eigenvectors is None or penalty is None:
            candidates = [
                {"n_eigenvectors": size, "penalty": weight}
                for size in ((10, 30) if n_eigenvectors is None else (n_eigenvectors,))
                for weight in ((10.0, 1.0, 100.0) if penalty is None else (penalty,))
            ]
            setting = best_setting(self, candidates, X, y, self.random_state)
            n_eigenvectors = int(setting["n_eigenvectors"])
            penalty = setting["penalty"]
        graph = connected_graph(cdist(X, X), self.n_neighbors).tocoo()
        weights = np.zeros(graph.shape)
        weights[graph.row, graph.col] = 1
        laplacian = np.diag(weights.sum(axis=1)) - weights
        # The first eigenvector is constant, and is left out.
        last = min(n_eigenvectors, len(X) - 1)
        basis = np.sqrt(len(X)) * linalg.eigh(laplacian, subset_by_index=[1, last])[1]
        squared = graph.data**2 / np.mean(graph.data**2)
        differences = basis[graph.row] - basis[graph.col]
        metric = unfold(self._pull(basis, y), differences, squared, penalty)
        values, vectors = linalg.eigh(metric)
        leading = np.s_[: -self.n_components - 1 : -1]
        coordinates = (vectors * np.sqrt(np.maximum(values, 0)))[:, leading]
        self.embedding_: Array = basis @ coordinates
        self.map_ = KernelRegression().fit(X, self.embedding_, y)
        return self

    def _pull(self, basis: Array, y: Labels) -> Array:
        """Return Vᵀ H L H V; the trace of its product with A is maximised."""
        factor = basis.T @ label_factor(y, 1)
        return np.asarray(factor @ factor.T)

    def transform(self, X: Array) -> Array:
        """Place new points by kernel regression."""
        return self.map_.predict(X)

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Fit, and return the embedding of the training points."""
        return self.fit(X, y).embedding_


class MVU(ColoredMVU):
    """Maximum variance unfolding, in its Laplacian-reduced form.

    Weinberger & Saul (2006), "Unsupervised learning of image manifolds by semidefinite
    programming", IJCV 70; the reduction is that of Weinberger, Sha, Zhu & Saul (2006), NIPS 19.
    It differs from `ColoredMVU` in that it maximises the variance tr(K), not the dependence on the
    labels. The labels only serve to choose the settings and the width of the regression.
    """

    def _pull(self, basis: Array, y: Labels) -> Array:
        return np.asarray(basis.T @ basis)

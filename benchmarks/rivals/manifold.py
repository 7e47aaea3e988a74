"""Rivals that preserve distances or neighbours of the input, from libraries or from their papers.

Their papers have no map for new points. The docstring of each class describes how new points are
placed here, without their labels.
"""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.manifold import LocallyLinearEmbedding, smacof

from benchmarks.rivals.selection import Array, Labels, best_setting

Indices = NDArray[np.intp]

N_NEIGHBORS = (10, 5, 20, 40)
"""Candidate numbers of neighbours."""
RIDGE = 1e-3
"""Regularisation of reconstruction weights, as a share of the trace, as in scikit-learn."""


def nearest(dissimilarity: Array, n_neighbors: int) -> Indices:
    """Return the (n, k) columns of the smallest entries of each row, in any order."""
    k = min(n_neighbors, dissimilarity.shape[1] - 1)
    return np.argpartition(dissimilarity, k, axis=1)[:, :k]


def reconstruction_weights(X: Array, basis: Array, columns: Indices) -> Array:
    """Return the (n, k) weights of Roweis & Saul (2000), which sum to 1 in each row.

    They minimise ‖x_i − Σ_j w_ij b_j‖² over the points b_j of ``basis`` in ``columns[i]``.
    """
    edges = basis[columns] - X[:, None]
    gram = edges @ edges.transpose(0, 2, 1)
    trace = np.trace(gram, axis1=1, axis2=2)
    ridge = RIDGE * np.where(trace > 0, trace, 1)
    gram += ridge[:, None, None] * np.eye(columns.shape[1])
    weights = np.linalg.solve(gram, np.ones((*columns.shape, 1)))[..., 0]
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def bottom_eigenvectors(weights: Array, columns: Indices, n_components: int) -> Array:
    """Return the embedding of LLE: eigenvectors of (I − W)ᵀ(I − W), without the constant one."""
    residual = np.eye(len(weights))
    np.subtract.at(residual, (np.arange(len(weights))[:, None], columns), weights)
    embedding = linalg.eigh(residual.T @ residual, subset_by_index=[1, n_components])[1]
    return np.asarray(np.sqrt(len(weights)) * embedding)


class MetricMDS(BaseEstimator):
    """Metric multidimensional scaling by SMACOF of scikit-learn, unsupervised.

    A new point is placed where its stress Σ_j (‖z − z_j‖ − d_j)² is smallest, with the training
    points fixed. The same majorisation (de Leeuw 1977) finds this place, starting from the mean of
    the five nearest training points.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    random_state
        Not used: the start is classical scaling.
    """

    n_iterations = 300

    def __init__(self, n_components: int = 2, random_state: int | None = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, y: Labels | None = None) -> Self:
        """Fit to data; labels are ignored."""
        # Principal components are the classical scaling of Euclidean distances.
        start = PCA(self.n_components, svd_solver="full").fit_transform(X)
        options = {"n_init": 1, "normalized_stress": "auto"}
        found = smacof(cdist(X, X), n_components=self.n_components, init=start, **options)
        self.X_, self.embedding_ = X, np.asarray(found[0])
        return self

    def transform(self, X: Array) -> Array:
        """Place new points where their stress is smallest."""
        fixed, distances = self.embedding_, cdist(X, self.X_)
        at = fixed[nearest(distances, 5)].mean(axis=1)
        for _ in range(self.n_iterations):
            pull = distances / np.maximum(cdist(at, fixed), 1e-12)
            mean = pull.mean(axis=1, keepdims=True)
            at = fixed.mean(axis=0) + mean * at - pull @ fixed / len(fixed)
        return np.asarray(at)

    def fit_transform(self, X: Array, y: Labels | None = None) -> Array:
        """Return the embedding of the training points."""
        return self.fit(X).embedding_


class LocallyLinear(BaseEstimator):
    """Locally linear embedding (Roweis & Saul 2000) of scikit-learn, unsupervised.

    scikit-learn places new points by their reconstruction weights.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    n_neighbors
        If None, the best of `N_NEIGHBORS` on held-out training data is used.
    random_state
        Seed of the held-out part.
    """

    def __init__(
        self,
        n_components: int = 2,
        n_neighbors: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to data; the labels only serve to choose the number of neighbours."""
        n_neighbors = self.n_neighbors
        if n_neighbors is None:
            candidates = [{"n_neighbors": k} for k in N_NEIGHBORS]
            setting = best_setting(self, candidates, X, y, self.random_state)
            n_neighbors = int(setting["n_neighbors"])
        # ARPACK fails if the matrix is nearly singular.
        self.model_ = LocallyLinearEmbedding(
            n_neighbors=min(n_neighbors, len(X) - 1),
            n_components=self.n_components,
            eigen_solver="dense",
        ).fit(X)
        return self

    def transform(self, X: Array) -> Array:
        """Place new points by the weights that reconstruct them from their neighbours."""
        return np.asarray(self.model_.transform(X), dtype=np.float64)

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Return the embedding of the training points."""
        return np.asarray(self.fit(X, y).model_.embedding_, dtype=np.float64)


def enhanced_dissimilarity(X: Array, y: Labels, alpha: float) -> Array:
    """Return the (n, n) Δ′ of Zhang (2009).

    It is √(1 − exp(−d²/β)) within a class and √exp(d²/β) − α between classes.
    """
    distances = cdist(X, X)
    # The limit prevents overflow; beyond it, all distances are large.
    exponent = np.minimum(distances**2 / distances[~np.eye(len(X), dtype=bool)].mean(), 300)
    within = np.sqrt(-np.expm1(-exponent))
    between = np.sqrt(np.exp(exponent)) - alpha
    return np.asarray(np.where(y[:, None] == y[None, :], within, between))


class SupervisedLLE(BaseEstimator):
    """Enhanced supervised locally linear embedding.

    Zhang (2009), "Enhanced supervised locally linear embedding", Pattern Recognition Letters 30:
    the neighbours are chosen by a dissimilarity that is smaller within a class; the weights
    reconstruct the samples as in LLE. β is the mean distance of all pairs.

    The neighbours of a new point are the nearest training points in the input, because it has no
    label. It is placed by the weights that reconstruct it.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    n_neighbors, alpha
        If None, the best of `N_NEIGHBORS` and the best of 0.2, 0.5 and 0 on held-out training data
        are used.
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
        self.n_neighbors_, alpha = self.n_neighbors or 0, self.alpha
        if self.n_neighbors is None or alpha is None:
            candidates = [
                {"alpha": a, "n_neighbors": k}
                for a in ((0.2, 0.5, 0.0) if alpha is None else (alpha,))
                for k in (N_NEIGHBORS if self.n_neighbors is None else (self.n_neighbors,))
            ]
            setting = best_setting(self, candidates, X, y, self.random_state)
            self.n_neighbors_, alpha = int(setting["n_neighbors"]), setting["alpha"]
        dissimilarity = enhanced_dissimilarity(X, y, alpha)
        np.fill_diagonal(dissimilarity, np.inf)
        columns = nearest(dissimilarity, self.n_neighbors_)
        weights = reconstruction_weights(X, X, columns)
        self.X_ = X
        self.embedding_ = bottom_eigenvectors(weights, columns, self.n_components)
        return self

    def transform(self, X: Array) -> Array:
        """Place new points by the weights that reconstruct them from their neighbours."""
        columns = nearest(cdist(X, self.X_), self.n_neighbors_)
        weights = reconstruction_weights(X, self.X_, columns)
        return np.asarray(np.einsum("ik,ikm->im", weights, self.embedding_[columns]))

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Return the embedding of the training points."""
        return self.fit(X, y).embedding_


def laplacian_problem(similarity: Array, y: Labels, gamma: float) -> tuple[Array, Array]:
    """Return the (n, n) matrices B and D of S-LE.

    The embedding has the generalised eigenvectors B z = λ D z with the largest eigenvalues. Two
    samples are neighbours if their similarity is above the mean similarity of one of them. W_w has
    the similarities of neighbours within a class; W_b has 1 for neighbours of different classes,
    and L_b is its Laplacian. B = γ L_b + (1 − γ) W_w, and D is the degree matrix of W_w.
    """
    above = similarity > similarity.mean(axis=1, keepdims=True)
    near = above | above.T
    same = y[:, None] == y[None, :]
    within = np.where(near & same, similarity, 0)
    between = (near & ~same).astype(np.float64)
    laplacian = np.diag(between.sum(axis=1)) - between
    return gamma * laplacian + (1 - gamma) * within, np.diag(within.sum(axis=1))


class SupervisedLaplacian(BaseEstimator):
    """Supervised Laplacian eigenmaps.

    Raducanu & Dornaika (2012), "A supervised non-linear dimensionality reduction approach for
    manifold learning", Pattern Recognition 45; see `laplacian_problem`. The similarities are
    exp(−d²/β). They include the similarity of a sample to itself, so that no degree is 0.

    A new point is placed at the mean of its five nearest training points, weighted by the
    similarities.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    gamma
        Weight of the pairs between classes. If None, the best of 0.5, 0.1 and 0.9 on held-out
        training data is used; it is chosen together with ``beta``.
    beta
        β as a multiple of the mean squared distance. If None, the best of 1, 0.3, 0.1 and 3 is
        used.
    random_state
        Seed of the held-out part.
    """

    def __init__(
        self,
        n_components: int = 2,
        gamma: float | None = None,
        beta: float | None = None,
        random_state: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.gamma = gamma
        self.beta = beta
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        gamma, beta = self.gamma, self.beta
        if gamma is None or beta is None:
            candidates = [
                {"gamma": g, "beta": b}
                for g in ((0.5, 0.1, 0.9) if gamma is None else (gamma,))
                for b in ((1.0, 0.3, 0.1, 3.0) if beta is None else (beta,))
            ]
            setting = best_setting(self, candidates, X, y, self.random_state)
            gamma, beta = setting["gamma"], setting["beta"]
        squared = cdist(X, X, "sqeuclidean")
        self.X_, self.width_ = X, beta * squared.mean()
        B, D = laplacian_problem(np.exp(-squared / self.width_), y, gamma)
        # The constant eigenvector has the eigenvalue 1 − γ. It is useless for an embedding, so its
        # eigenvalue is set to 0.
        degrees = np.diag(D)
        B = B - (1 - gamma) * np.outer(degrees, degrees) / degrees.sum()
        last = len(X) - 1
        vectors = linalg.eigh(B, D, subset_by_index=[last + 1 - self.n_components, last])[1]
        self.embedding_ = np.asarray(vectors[:, ::-1] / vectors.std(axis=0)[::-1])
        return self

    def transform(self, X: Array) -> Array:
        """Return the weighted means of the nearest training points."""
        squared = cdist(X, self.X_, "sqeuclidean")
        columns = nearest(squared, 5)
        chosen = np.take_along_axis(squared, columns, axis=1)
        weights = np.exp((chosen.min(axis=1, keepdims=True) - chosen) / self.width_)
        weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("ik,ikm->im", weights, self.embedding_[columns]))

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Return the embedding of the training points."""
        return self.fit(X, y).embedding_


class StochasticNeighbors(BaseEstimator):
    """Stochastic neighbour embedding with a Gaussian kernel, of openTSNE, unsupervised.

    Hinton & Roweis (2002), in the symmetric form of Cook et al. (2007). It is computed as t-SNE
    with 100 degrees of freedom, whose Student's t differs from a Gaussian by one percent. openTSNE
    places new points with the training points fixed.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    random_state
        Seed.
    """

    dof = 100.0
    perplexity = 30

    def __init__(self, n_components: int = 2, random_state: int | None = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, y: Labels | None = None) -> Self:
        """Fit to data; labels are ignored."""
        from openTSNE import TSNE  # slow to import

        self.model_ = TSNE(
            self.n_components,
            perplexity=min(self.perplexity, (len(X) - 1) / 3),
            dof=self.dof,
            random_state=self.random_state,
            n_jobs=1,
        ).fit(X)
        return self

    def transform(self, X: Array) -> Array:
        """Place new points; the training points do not move."""
        return np.asarray(self.model_.transform(X), dtype=np.float64)

    def fit_transform(self, X: Array, y: Labels | None = None) -> Array:
        """Return the embedding of the training points."""
        return np.asarray(self.fit(X).model_, dtype=np.float64)


class PairwiseControlled(BaseEstimator):
    """PaCMAP (Wang et al. 2021) of the library `pacmap` with default settings, unsupervised.

    The library places new points near their neighbours, with the training points fixed.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    random_state
        Seed.
    """

    def __init__(self, n_components: int = 2, random_state: int | None = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, y: Labels | None = None) -> Self:
        """Fit to data; labels are ignored."""
        from pacmap import PaCMAP  # slow to import

        self.X_ = X
        self.model_ = PaCMAP(self.n_components, random_state=self.random_state)
        self.embedding_ = np.asarray(self.model_.fit_transform(X), dtype=np.float64)
        return self

    def transform(self, X: Array) -> Array:
        """Place new points; the training points do not move."""
        return np.asarray(self.model_.transform(X, basis=self.X_), dtype=np.float64)

    def fit_transform(self, X: Array, y: Labels | None = None) -> Array:
        """Return the embedding of the training points."""
        return self.fit(X).embedding_


class SelfOrganizingMap(BaseEstimator):
    """Self-organising map (Kohonen 1982) of the library `minisom`, unsupervised.

    The map is a square grid of about 5 √n units, which start in the plane of the first two
    principal components. A sample is placed at the mean of the grid positions of its four nearest
    units, with the weights 1 / d². At the position of the nearest unit alone, up to a hundred
    samples would share one place, and their five nearest samples would not be defined.

    Parameters
    ----------
    n_components
        Columns of the embedding; always 2.
    random_state
        Seed of the order of the samples.
    """

    n_nearest = 4
    n_epochs = 20

    def __init__(self, n_components: int = 2, random_state: int | None = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, y: Labels | None = None) -> Self:
        """Fit to data; labels are ignored."""
        from minisom import MiniSom

        side = max(3, round(np.sqrt(5 * np.sqrt(len(X)))))
        model = MiniSom(side, side, X.shape[1], sigma=side / 4, random_seed=self.random_state)
        model.pca_weights_init(X)
        model.train(X, self.n_epochs * len(X), random_order=True)
        self.units_ = np.asarray(model.get_weights()).reshape(side * side, -1)
        self.grid_ = np.array([(i, j) for i in range(side) for j in range(side)], dtype=float)
        return self

    def transform(self, X: Array) -> Array:
        """Return the weighted means of the grid positions of the nearest units."""
        squared = cdist(X, self.units_, "sqeuclidean")
        columns = nearest(squared, self.n_nearest)
        weights = 1 / np.maximum(np.take_along_axis(squared, columns, axis=1), 1e-12)
        weights /= weights.sum(axis=1, keepdims=True)
        return np.asarray(np.einsum("ik,ikm->im", weights, self.grid_[columns]))

    def fit_transform(self, X: Array, y: Labels | None = None) -> Array:
        """Fit and embed the training data."""
        return self.fit(X).transform(X)

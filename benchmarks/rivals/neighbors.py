"""Rivals that fit neighbour probabilities in the embedding to those in the input.

They are written from their papers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA

from benchmarks.rivals.posteriors import ParzenPosterior, fisher_distances
from benchmarks.rivals.selection import Array, Labels, best_setting
from benchmarks.rivals.spectral import classical_mds

FLOOR = 1e-8
"""Smallest neighbour probability. With 0, the cost of a false neighbour would be infinite."""


def neighbor_probabilities(squared: Array, perplexity: float) -> tuple[Array, Array]:
    """Return (n, m) p_ij ∝ exp(−w_i d²_ij) and (n,) w, with the given perplexity in each row.

    p is 0 if the distance is infinite; the diagonal of ``squared`` is infinite for training points.
    """
    perplexity = min(perplexity, squared.shape[1] / 3)
    relative = squared - squared.min(axis=1, keepdims=True)
    allowed = np.isfinite(relative)
    finite = np.where(allowed, relative, 0)
    # The bisection is for log(w · mean).
    unit = finite.mean(axis=1) + np.finfo(float).tiny
    low, high = np.full(len(squared), -10.0), np.full(len(squared), 40.0)
    for _ in range(40):
        middle = (low + high) / 2
        weights = np.exp(-(np.exp(middle) / unit)[:, None] * relative)
        total = weights.sum(axis=1)
        spread = np.exp(middle) / unit * (weights * finite).sum(axis=1) / total
        too_wide = np.log(total) + spread > np.log(perplexity)
        low, high = np.where(too_wide, middle, low), np.where(too_wide, high, middle)
    p = np.where(allowed, np.maximum(weights / total[:, None], FLOOR), 0)
    return p / p.sum(axis=1, keepdims=True), np.exp(middle) / unit


def retrieval_cost(scaled: Array, p: Array, log_p: Array, share: float) -> tuple[Array, Array]:
    """Return the (n,) cost of NeRV for each row, and its (n, m) derivative by ``scaled``.

    The cost of Venna et al. (2010) is λ KL(p_i ‖ q_i) + (1 − λ) KL(q_i ‖ p_i) with λ = ``share``
    and q_ij ∝ exp(−scaled_ij), where ``scaled`` are the scaled squared distances. If one is
    infinite, q is 0; p must be 0, too, and ``log_p`` any finite number.
    """
    relative = scaled - scaled.min(axis=1, keepdims=True)
    q = np.exp(-relative)
    total = q.sum(axis=1, keepdims=True)
    q /= total
    log_ratio = np.where(np.isfinite(relative), -relative - np.log(total) - log_p, 0)
    smooth = np.sum(q * log_ratio, axis=1, keepdims=True)
    cost = (1 - share) * smooth[:, 0] - share * np.sum(p * log_ratio, axis=1)
    return cost, share * (p - q) - (1 - share) * q * (log_ratio - smooth)


def map_cost(points: Array, p: Array, scales: Array, share: float) -> tuple[float, Array]:
    """Return the mean cost of NeRV over (n, m) points, and its (n, m) gradient.

    ``scales`` has the w of each row of ``p``, which `neighbor_probabilities` returns.
    """
    scaled = cdist(points, points, "sqeuclidean").astype(p.dtype) * scales[:, None]
    np.fill_diagonal(scaled, np.inf)
    costs, slope = retrieval_cost(scaled, p, np.log(np.where(p > 0, p, 1)), share)
    slope = slope * scales[:, None]
    slope = slope + slope.T
    gradient = 2 * (slope.sum(axis=1)[:, None] * points - slope @ points)
    return float(costs.mean()), gradient / len(points)


def place(fixed: Array, p: Array, scales: Array, share: float, stretch: Array) -> Array:
    """Return the places of new points that minimise their cost, with all other points fixed.

    The cost has many minima. A point starts from its most likely neighbour and from the weighted
    mean of all neighbours, and the result with the smaller cost is used. ``stretch`` has the
    weights of the axes of the embedding.
    """
    log_p = np.log(p)

    def each(at: Array) -> tuple[Array, Array]:
        scaled = cdist(at * stretch, fixed * stretch, "sqeuclidean") * scales[:, None]
        costs, slope = retrieval_cost(scaled, p, log_p, share)
        slope = slope * scales[:, None]
        gradient = 2 * stretch**2 * (slope.sum(axis=1)[:, None] * at - slope @ fixed)
        return costs, gradient

    def total(flat: Array) -> tuple[float, Array]:
        costs, gradient = each(flat.reshape(len(p), -1))
        return float(costs.sum()), gradient.ravel()

    ends = []
    for start in (fixed[p.argmax(axis=1)], p @ fixed):
        found = minimize(
            total, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 300}
        )
        ends.append(found.x.reshape(len(p), -1))
    first_is_better = each(ends[0])[0] <= each(ends[1])[0]
    return np.where(first_is_better[:, None], *ends)


class NeRV(BaseEstimator):
    """NeRV, the neighbour retrieval visualiser, unsupervised. The labels only serve to choose λ.

    Venna, Peltonen, Nybo, Aidos & Kaski (2010), "Information retrieval perspective to nonlinear
    dimensionality reduction for data visualization", JMLR 11: the embedding minimises
    Σ_i λ KL(p_i ‖ q_i) + (1 − λ) KL(q_i ‖ p_i). q has the widths of p, as in the paper.

    Choices of this implementation: the start is classical scaling of the distances, and the
    perplexity decreases in four stages. A new point is placed where its cost is smallest, with the
    training points fixed.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    trade_off
        λ. If None, the best of 0.1, 0.5 and 0.9 on held-out training data is used.
    random_state
        Seed of the held-out part.
    """

    perplexity = 20
    """Effective number of neighbours."""

    def __init__(
        self, n_components: int = 2, trade_off: float | None = None, random_state: int | None = None
    ) -> None:
        self.n_components = n_components
        self.trade_off = trade_off
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to data."""
        self.trade_off_ = self.trade_off or 0.0
        if self.trade_off is None:
            candidates = [{"trade_off": share} for share in (0.1, 0.5, 0.9)]
            self.trade_off_ = best_setting(self, candidates, X, y, self.random_state)["trade_off"]
        self.X_ = X
        self._unfold(self._squared(X))
        return self

    def _squared(self, X: Array) -> Array:
        """Return the squared distances to the training points."""
        return np.asarray(cdist(X, self.X_, "sqeuclidean"))

    def _unfold(self, squared: Array) -> None:
        """Embed the training points from their (n, n) squared distances."""
        self.embedding_ = classical_mds(np.sqrt(squared), self.n_components)
        np.fill_diagonal(squared, np.inf)
        for factor, max_iter in ((8, 40), (4, 40), (2, 40), (1, 150)):
            p, scales = neighbor_probabilities(squared, factor * self.perplexity)
            self._descend(p, scales, max_iter)

    def _descend(self, p: Array, scales: Array, max_iter: int) -> None:
        # Single precision halves the time, and the line search still converges.
        p, scales = p.astype(np.float32), scales.astype(np.float32)
        shape = self.embedding_.shape

        def cost(flat: Array) -> tuple[float, Array]:
            value, slope = map_cost(
                flat.reshape(shape).astype(np.float32), p, scales, self.trade_off_
            )
            return value, slope.ravel().astype(np.float64)

        found = minimize(
            cost,
            self.embedding_.ravel(),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": max_iter},
        )
        self.embedding_ = found.x.reshape(shape)

    def transform(self, X: Array) -> Array:
        """Place new points; the training points do not move."""
        p, scales = neighbor_probabilities(self._squared(X), self.perplexity)
        return place(self.embedding_, p, scales, self.trade_off_, np.ones(self.n_components))

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Fit, and return the embedding of the training points."""
        return self.fit(X, y).embedding_


class SupervisedNeRV(NeRV):
    """Supervised NeRV: `NeRV` with distances in a metric of the class posteriors.

    Peltonen, Aidos & Kaski (2009), "Supervised nonlinear dimensionality reduction by neighbor
    retrieval", ICASSP: the neighbour probabilities of the input come from distances in the Fisher
    metric of p(c | x), along straight lines (`fisher_distances`).

    Choices of this implementation: p(c | x) is a `ParzenPosterior`. The ends of a line do not count
    in the posteriors along it, so that distances between training points and distances from new
    points have the same distribution. A small multiple of the Euclidean distance is added, which
    separates points with equal posteriors. The distances of a new point do not need its label.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    trade_off
        λ; the best published errors are those of 0.1.
    n_steps
        Steps of the straight lines. If None, the better of 5 and 1 on held-out training data is
        used.
    random_state
        Seed of the held-out part.
    """

    trade_off: float
    euclidean = 1e-3
    """Weight of the squared Euclidean distance, in units of its mean."""

    def __init__(
        self,
        n_components: int = 2,
        trade_off: float = 0.1,
        n_steps: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.n_components = n_components
        self.trade_off = trade_off
        self.n_steps = n_steps
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        self.n_steps_ = self.n_steps or 0
        if self.n_steps is None:
            candidates = [{"n_steps": 5}, {"n_steps": 1}]
            setting = best_setting(self, candidates, X, y, self.random_state)
            self.n_steps_ = int(setting["n_steps"])
        self.trade_off_ = self.trade_off
        self.posterior_ = ParzenPosterior().fit(X, y)
        self.unit_ = cdist(X, X, "sqeuclidean").mean()
        self._unfold(self._squared(X))
        return self

    def _squared(self, X: Array) -> Array:
        """Return the squared distances to the training points."""
        posterior = self.posterior_
        log_kernel = posterior.log_kernel_ if X is posterior.X else posterior.log_kernel(X)
        fisher = fisher_distances(log_kernel, posterior.log_kernel_, posterior.codes, self.n_steps_)
        plain = cdist(X, posterior.X, "sqeuclidean") / self.unit_
        return np.asarray(fisher**2 + self.euclidean * plain)


def relational_cost(
    points: Array, stretches: Array, relations: Sequence[Array]
) -> tuple[float, Array, Array]:
    """Return Σ_r mean_i KL(p^r_i ‖ q^r_i), and its gradients.

    This is the objective of Memisevic & Hinton (2005) with diagonal R^r = diag(``stretches[r]``).
    The gradients are those with respect to the points and to the stretches.
    """
    cost, slope_points, slope_stretches = 0.0, np.zeros_like(points), np.zeros_like(stretches)
    for r, p in enumerate(relations):
        stretched = points * stretches[r]
        scaled = cdist(stretched, stretched, "sqeuclidean").astype(p.dtype)
        np.fill_diagonal(scaled, np.inf)
        costs, slope = retrieval_cost(scaled, p, np.log(np.where(p > 0, p, 1)), 1.0)
        # A row without neighbours does not count. The only sample of a class has such a row.
        slope[p.sum(axis=1) == 0] = 0
        cost += float(costs.mean())
        slope = (slope + slope.T) / len(points)
        pull = slope.sum(axis=1)[:, None] * points - slope @ points
        slope_points += 2 * stretches[r] ** 2 * pull
        # On each axis, Σ_ij slope_ij (z_i − z_j)² is twice the scalar product of z and the pull.
        slope_stretches[r] = 2 * stretches[r] * np.sum(points * pull, axis=0)
    return cost, slope_points, slope_stretches


class MultipleRelationalEmbedding(BaseEstimator):
    """Multiple relational embedding of two relations: neighbours in the input, and same class.

    Memisevic & Hinton (2005), "Multiple relational embedding", NIPS 17: the points z and, for each
    relation r, a diagonal matrix R^r of weights of the axes minimise Σ KL(p ‖ q) between the p^r_ij
    of the relation and q^r_ij ∝ exp(−‖R^r (z_i − z_j)‖²). The first p is that of stochastic
    neighbour embedding, with a fixed perplexity; the second is uniform over the other points of the
    class. The space of z is the plane.

    The paper has no map for new points. Here a new point is placed where its cost is smallest, with
    all other points and R fixed. It has the first relation alone, because its class is unknown.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    random_state
        Not used: nothing is random.
    """

    perplexity = 20
    """Effective number of neighbours in the input."""

    def __init__(self, n_components: int = 2, random_state: int | None = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        self.X_ = X
        squared = cdist(X, X, "sqeuclidean")
        np.fill_diagonal(squared, np.inf)
        near, _ = neighbor_probabilities(squared, self.perplexity)
        alike = (y[:, None] == y[None, :]).astype(np.float64)
        np.fill_diagonal(alike, 0)
        alike /= np.maximum(alike.sum(axis=1, keepdims=True), 1)
        # Single precision halves the time, and the line search still converges.
        relations = near.astype(np.float32), alike.astype(np.float32)
        size = X.shape[0] * self.n_components

        def cost(flat: Array) -> tuple[float, Array]:
            small = flat.astype(np.float32)
            value, *slopes = relational_cost(
                small[:size].reshape(-1, self.n_components),
                small[size:].reshape(2, self.n_components),
                relations,
            )
            return value, np.concatenate([slope.ravel() for slope in slopes]).astype(np.float64)

        start = PCA(self.n_components).fit_transform(X)
        start /= start.std()
        found = minimize(
            cost,
            np.concatenate([start.ravel(), np.ones(2 * self.n_components)]),
            jac=True,
            method="L-BFGS-B",
            options={"maxiter": 300},
        )
        self.embedding_ = found.x[:size].reshape(-1, self.n_components)
        self.stretches_ = found.x[size:].reshape(2, self.n_components)
        return self

    def transform(self, X: Array) -> Array:
        """Place new points where the cost of the first relation is smallest."""
        p, _ = neighbor_probabilities(cdist(X, self.X_, "sqeuclidean"), self.perplexity)
        return place(self.embedding_, p, np.ones(len(X)), 1.0, self.stretches_[0])

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Fit, and return the embedding of the training points."""
        return self.fit(X, y).embedding_

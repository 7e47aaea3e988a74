"""Class posteriors of a kernel density estimate, and rivals that use them."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.optimize import minimize
from scipy.spatial.distance import cdist
from scipy.special import logsumexp, softmax
from sklearn.base import BaseEstimator

from benchmarks.rivals.selection import Array, Labels, best_setting


class ParzenPosterior:
    """p(c | x) by Gaussian kernels on the labelled points, as in Peltonen et al. (2009).

    Each training point is predicted from the others; otherwise its posterior would be closer to 0
    or 1 than that of a new point. The width with the highest likelihood of these predictions is
    used.
    """

    factors = (0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)
    """Candidate widths, in units of the median distance to the nearest neighbour."""

    def fit(self, X: Array, y: Labels) -> Self:
        """Keep the data and choose the width."""
        self.X = X
        self.codes = np.unique(y, return_inverse=True)[1]
        self.indicators = np.eye(self.codes.max() + 1)[self.codes]
        squared = cdist(X, X, "sqeuclidean")
        np.fill_diagonal(squared, np.inf)
        nearest = squared.min(axis=1)
        unit = np.median(nearest[nearest > 0]) if (nearest > 0).any() else 1.0
        likelihoods = []
        for factor in self.factors:
            proba = self._proba(-squared / (2 * factor**2 * unit))
            likelihoods.append(np.log(proba[np.arange(len(X)), self.codes]).mean())
        self.width = float(self.factors[int(np.argmax(likelihoods))] * np.sqrt(unit))
        self.log_kernel_ = -squared / (2 * self.width**2)
        return self

    def log_kernel(self, X: Array) -> Array:
        """Return the (n, n_train) logarithms of the kernels at new points."""
        return -cdist(X, self.X, "sqeuclidean") / (2 * self.width**2)

    def predict_proba(self, X: Array | None = None) -> Array:
        """Return p(c | x) of new points, or of each training point from the others."""
        return self._proba(self.log_kernel_ if X is None else self.log_kernel(X))

    def _proba(self, log_kernel: Array) -> Array:
        proba = softmax(log_kernel, axis=1) @ self.indicators
        # This is the posterior if one sample in a thousand has a random label. It is never 0.
        return np.asarray(0.999 * proba + 0.001 / proba.shape[1])


def fisher_distances(left: Array, right: Array, codes: Labels, n_steps: int) -> Array:
    """Return the (n, m) lengths of straight lines in the Fisher metric of p(c | x).

    This is the T-point approximation of Venna et al. (2010): the metric
    J(x) = E_c [∇ log p(c|x) ∇ log p(c|x)ᵀ] is integrated along the line between two points, in
    ``n_steps`` steps. The length of a step is that of the shortest path between the posteriors at
    its ends in the simplex, which is twice their Bhattacharyya angle; J is the second derivative of
    this angle.

    ``left`` (n, N) and ``right`` (m, N) are logarithms of Gaussian kernels between the ends of the
    lines and N labelled points. At the fraction t of a line, the kernel is proportional to
    left^(1 − t) right^t, so one matrix product for each class and step serves all lines. A labelled
    point does not count if its logarithm is infinite at either end.
    """
    left = left - left.max(axis=1, keepdims=True)
    right = right - right.max(axis=1, keepdims=True)
    fractions = np.linspace(0, 1, n_steps + 1)
    shape = (len(left), len(right))
    total = np.zeros((n_steps + 1, *shape))
    overlap = np.zeros((n_steps, *shape))
    before = np.zeros(shape)
    for code in np.unique(codes):
        a, b = left[:, codes == code], right[:, codes == code]
        seen_a, seen_b = np.isfinite(a), np.isfinite(b)
        a, b = np.where(seen_a, a, 0), np.where(seen_b, b, 0)
        for step, t in enumerate(fractions):
            mass = (np.exp((1 - t) * a) * seen_a) @ (np.exp(t * b) * seen_b).T
            # If all kernels underflow to 0, all classes have equal posteriors.
            mass += 1e-200
            total[step] += mass
            root = np.sqrt(mass)
            if step > 0:
                overlap[step - 1] += before * root
            before = root
    length = np.zeros(shape)
    for step in range(n_steps):
        cosine = overlap[step] / np.sqrt(total[step]) / np.sqrt(total[step + 1])
        length += 2 * np.arccos(np.clip(cosine, -1, 1))
    return length


def embedding_cost(
    points: Array, centers: Array, posteriors: Array, log_prior: Array, decay: float
) -> tuple[float, Array, Array]:
    """Return Σ_n KL(p(·|x_n) ‖ q(·|r_n)) plus the penalty, and its gradients.

    This is the objective of Iwata et al. (2007), divided by the number of points. The gradients are
    those with respect to the points r_n and to the class centers.
    """
    n = len(points)
    logits = log_prior - 0.5 * cdist(points, centers, "sqeuclidean")
    log_q = logits - logsumexp(logits, axis=1, keepdims=True)
    # p log p does not depend on the embedding; with it, the smallest possible cost is 0.
    cost = np.sum(posteriors * (np.log(posteriors) - log_q))
    cost += decay * (np.sum(points**2) + n / len(centers) * np.sum(centers**2))
    pull = posteriors - np.exp(log_q)
    # Σ_c (p − q) (r − φ_c) = −(p − q) φ, because p and q have the same sum.
    slope = -pull @ centers + 2 * decay * points
    slope_centers = pull.sum(axis=0)[:, None] * centers - pull.T @ points
    slope_centers += 2 * decay * n / len(centers) * centers
    return float(cost) / n, slope / n, slope_centers / n


class ParametricEmbedding(BaseEstimator):
    """Parametric embedding of class posteriors.

    Iwata, Saito, Ueda, Stromsten, Griffiths & Tenenbaum (2007), "Parametric embedding for class
    visualization", Neural Computation 19: points r_n and class centers φ_c in the plane minimise
    KL(p ‖ q) between the posteriors p(c | x) of a model, here a `ParzenPosterior`, and
    q(c | r) ∝ p(c) exp(−½‖r − φ_c‖²). A new point is embedded from its posteriors with the centers
    fixed, which is a convex problem.

    Parameters
    ----------
    n_components
        Columns of the embedding.
    decay
        Weight of ‖r‖², which keeps points with posteriors near 0 and 1 from moving to infinity. If
        None, the best of 0.001, 0.0001 and 0.01 on held-out training data is used.
    random_state
        Seed.
    """

    n_starts = 3
    """Random starts; the result with the smallest cost is used."""

    def __init__(
        self, n_components: int = 2, decay: float | None = None, random_state: int | None = None
    ) -> None:
        self.n_components = n_components
        self.decay = decay
        self.random_state = random_state

    def fit(self, X: Array, y: Labels) -> Self:
        """Fit to labelled data."""
        self.decay_ = self.decay or 0.0
        if self.decay is None:
            candidates = [{"decay": decay} for decay in (1e-3, 1e-4, 1e-2)]
            self.decay_ = best_setting(self, candidates, X, y, self.random_state)["decay"]
        self.posterior_ = ParzenPosterior().fit(X, y)
        posteriors = self.posterior_.predict_proba()
        self.log_prior_ = np.log(posteriors.mean(axis=0))
        n, n_classes = posteriors.shape

        def cost(flat: Array) -> tuple[float, Array]:
            both = flat.reshape(-1, self.n_components)
            value, slope, slope_centers = embedding_cost(
                both[:n], both[n:], posteriors, self.log_prior_, self.decay_
            )
            return value, np.vstack([slope, slope_centers]).ravel()

        rng = np.random.default_rng(self.random_state)
        best = np.inf
        for _ in range(self.n_starts):
            centers = rng.normal(size=(n_classes, self.n_components))
            # A point starts at the mean of the centers, weighted by its posteriors.
            start = np.vstack([posteriors @ centers, centers]).ravel()
            found = minimize(cost, start, jac=True, method="L-BFGS-B", options={"maxiter": 500})
            if found.fun < best:
                best = found.fun
                self.centers_ = found.x.reshape(-1, self.n_components)[n:]
        self.embedding_ = self._place(posteriors)
        return self

    def _place(self, posteriors: Array) -> Array:
        """Return the embedding of (n, M) posteriors, with the centers fixed."""

        def cost(flat: Array) -> tuple[float, Array]:
            value, slope, _ = embedding_cost(
                flat.reshape(-1, self.n_components),
                self.centers_,
                posteriors,
                self.log_prior_,
                self.decay_,
            )
            return value * len(posteriors), slope.ravel() * len(posteriors)

        start = (posteriors @ self.centers_).ravel()
        found = minimize(cost, start, jac=True, method="L-BFGS-B", options={"maxiter": 2000})
        return np.asarray(found.x.reshape(-1, self.n_components))

    def transform(self, X: Array) -> Array:
        """Embed new points by their posteriors."""
        return self._place(self.posterior_.predict_proba(X))

    def fit_transform(self, X: Array, y: Labels) -> Array:
        """Fit, and return the embedding of the training points."""
        return self.fit(X, y).embedding_

"""Regression that places new points, for methods that embed only the training points."""

from __future__ import annotations

from typing import Self

import numpy as np
from scipy.spatial.distance import cdist

from benchmarks.rivals.selection import Array, Labels


class KernelRegression:
    """Generalised regression network (Specht 1991), from the input to an embedding.

    A new point is placed at the mean of the embedded training points, weighted by a Gaussian of the
    distance in the input. The width of the Gaussian is chosen on the training points: each is
    predicted from the others, and classified by its 5 nearest neighbours among the embeddings of
    the others. The width with the smallest error is used.
    """

    factors = (0.15, 0.25, 0.5, 0.75, 1.0, 1.5)
    """Candidate widths, in units of the median distance to the nearest neighbour."""

    def fit(self, X: Array, Z: Array, y: Labels) -> Self:
        """Keep the data and choose the width."""
        self.X, self.Z = X, Z
        codes = np.unique(y, return_inverse=True)[1]
        distances = cdist(X, X, "sqeuclidean")
        np.fill_diagonal(distances, np.inf)
        # Distances of 0, between equal points, do not count in the median.
        nearest = distances.min(axis=1)
        unit = np.median(nearest[nearest > 0]) if (nearest > 0).any() else 1.0
        errors = []
        for factor in self.factors:
            others = cdist(self._mean(distances, factor**2 * unit), Z)
            np.fill_diagonal(others, np.inf)
            votes = np.eye(codes.max() + 1)[codes[np.argsort(others, axis=1)[:, :5]]].sum(axis=1)
            errors.append(float(np.mean(votes.argmax(axis=1) != codes)))
        self.width = float(np.sqrt(unit) * self.factors[int(np.argmin(errors))])
        return self

    def predict(self, X: Array) -> Array:
        """Return the weighted means for new points."""
        return self._mean(cdist(X, self.X, "sqeuclidean"), self.width**2)

    def _mean(self, squared: Array, width: float) -> Array:
        # The smallest distance is subtracted; otherwise all weights of a far point would be 0.
        weights = np.exp((squared.min(axis=1, keepdims=True) - squared) / (2 * width))
        return np.asarray(weights @ self.Z / weights.sum(axis=1, keepdims=True))

"""The surroundings of a point among training samples: how sparse they are, how far a class is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

from centroid_encoder.core.quality import without_limits

N_NEIGHBORS = 10
LOCAL = 0.5
"""How much of the usual distance at the neighbours is taken off, on a logarithmic scale."""
RIDGE = 0.05
"""Share of the mean variance in each class covariance."""
FLOOR = 0.01
"""Keeps duplicates from a logarithm of 0."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Surroundings:
    """Training samples on some axes, and their classes."""

    neighbors: NearestNeighbors
    usual: Floats
    """(n,) logarithm of each sample's own mean distance to its neighbours."""
    means: Floats
    """(M, K) class means."""
    whitening: Floats
    """(M, K, K) square roots of the inverse class covariances, shrunk towards the common one."""
    floor: float

    @classmethod
    def fit(cls, reference: NDArray[np.floating], codes: NDArray[np.integer]) -> Self:
        """Learn from (n, K) points of the classes `codes`; n is above 1."""
        points = np.asarray(reference, dtype=np.float64)
        n, K = points.shape
        n_neighbors = max(1, min(N_NEIGHBORS, n // 5))
        neighbors = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute")
        neighbors.fit(np.asarray(reference, dtype=np.float32))
        floor = FLOOR * (float(np.sqrt(np.square(points).sum(axis=1).mean())) or 1.0)
        # Without points, scikit-learn leaves each sample out of its own neighbours.
        with without_limits():
            distance = neighbors.kneighbors()[0].mean(axis=1)
        classes, index = np.unique(codes, return_inverse=True)
        means = np.array([points[index == i].mean(axis=0) for i in range(len(classes))])
        inside = points - means[index]
        common = inside.T @ inside / max(n - len(classes), 1)
        whitening = np.empty((len(classes), K, K))
        for i in range(len(classes)):
            own = inside[index == i]
            shrinkage = K / (K + len(own))
            covariance = own.T @ own / max(len(own) - 1, 1)
            covariance = (1 - shrinkage) * covariance + shrinkage * common
            mean_variance = np.trace(covariance) / K or 1.0
            covariance = (1 - RIDGE) * covariance + RIDGE * mean_variance * np.eye(K)
            whitening[i] = np.linalg.cholesky(np.linalg.inv(covariance))
        return cls(neighbors, np.log(distance + floor), means, whitening, floor)

    def __call__(self, points: NDArray[np.floating]) -> Floats:
        """Return two logarithms for (q, K) points, as (q, 2).

        The mean distance to the nearest samples, less a half of what is usual at these; and the
        distance to the nearest class in units of its own spread.
        """
        with without_limits():
            distance, neighbor = self.neighbors.kneighbors(np.asarray(points, dtype=np.float32))
        near = np.log(distance.mean(axis=1) + self.floor)
        near -= LOCAL * self.usual[neighbor].mean(axis=1)
        least = np.full(len(points), np.inf)
        for mean, whitening in zip(self.means, self.whitening, strict=True):
            least = np.minimum(least, np.square((points - mean) @ whitening).sum(axis=1))
        return np.stack([near, np.log(least + FLOOR * points.shape[1])], axis=1)

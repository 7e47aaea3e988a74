"""What there is around a point among training samples: how sparse it is, how far a class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from sklearn.neighbors import NearestNeighbors

SCALES = (5, 10, 20, 50)
"""Numbers of principal components: a new class may differ in a few of them, or in many."""
N_NEIGHBORS = 10
LOCAL = 0.5
"""How much of what is usual around the neighbours is taken off, on a logarithmic scale."""
RIDGE = 0.05
"""Share of the mean variance in each class covariance."""
FLOOR = 0.01
"""Keeps duplicates from a logarithm of 0."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Neighbors:
    """Which points are nearest to each of some, the nearest first."""

    distance: Floats
    """(n, m)"""
    neighbor: NDArray[np.intp]
    """(n, m) rows of the points."""

    @classmethod
    def of(cls, points: NDArray[np.float32], n_neighbors: int = 2 * N_NEIGHBORS) -> Self:
        """Find them for (n, K) points, as many as there are at most; n is above 1."""
        # Without points, scikit-learn leaves each sample out of its own neighbours.
        return cls(*_neighbors(points, min(n_neighbors, len(points) - 1)).kneighbors())

    def distance_in(self, part: NDArray[np.integer]) -> Floats:
        """(p,) mean distances of the points at (p,) rows to the nearest ones among these.

        Of a part that is most of the whole, so that enough of the neighbours are in it.
        """
        inside = np.zeros(len(self.distance), dtype=bool)
        inside[part] = True
        counts = inside[self.neighbor[part]]
        counts &= counts.cumsum(axis=1) <= _n_neighbors(len(part))
        return np.asarray(np.average(self.distance[part], axis=1, weights=counts))


@dataclass(frozen=True)
class Surroundings:
    """Training samples in some principal components: what there is around a point.

    Two numbers are asked of it: the mean distance to the nearest training samples, next to what is
    usual around these; and the distance to the nearest class in units of its own spread.
    """

    reference: NDArray[np.float32]
    """(n, K) training samples."""
    usual: Floats
    """(n,) logarithm of each one's own mean distance to its neighbours."""
    means: Floats
    """(M, K) class means."""
    whitening: Floats
    """(M, K, K) square roots of the inverse class covariances, shrunk towards the common one."""
    n_neighbors: int
    floor: float

    @classmethod
    def fit(
        cls,
        reference: NDArray[np.float32],
        codes: NDArray[np.integer],
        distance: Floats | None = None,
    ) -> Self:
        """Learn from (n, K) points of the classes `codes`.

        With (n,) mean distances of each to its neighbours, these are not looked for.
        """
        points = reference.astype(np.float64)
        n, K = points.shape
        n_neighbors = _n_neighbors(n)
        floor = FLOOR * (float(np.sqrt(np.square(points).sum(axis=1).mean())) or 1.0)
        if distance is None:
            distance = Neighbors.of(reference, n_neighbors).distance.mean(axis=1)
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
        usual = np.log(distance + floor)
        return cls(reference, usual, means, whitening, n_neighbors, floor)

    def around(self, points: NDArray[np.float32]) -> Floats:
        """Return the two logarithms for (q, K) points, as (q, 2)."""
        distance, neighbor = _neighbors(self.reference, self.n_neighbors).kneighbors(points)
        near = np.log(distance.mean(axis=1) + self.floor)
        near -= LOCAL * self.usual[neighbor].mean(axis=1)
        least = np.full(len(points), np.inf)
        for mean, whitening in zip(self.means, self.whitening, strict=True):
            least = np.minimum(least, np.square((points - mean) @ whitening).sum(axis=1))
        return np.stack([near, np.log(least + FLOOR * points.shape[1])], axis=1)


def scales(n_axes: int) -> list[int]:
    """Numbers of components to look at, where there are only so many."""
    return sorted({min(k, n_axes) for k in SCALES})


def around(
    reference: NDArray[np.float32],
    codes: NDArray[np.integer],
    points: NDArray[np.float32],
) -> Floats:
    """(q, S, 2) the two numbers of (q, K) points in each number of components."""
    found = [
        Surroundings.fit(reference[:, :k], codes).around(points[:, :k])
        for k in scales(points.shape[1])
    ]
    return np.stack(found, axis=1)


def _n_neighbors(n: int) -> int:
    """How many neighbours count among n points."""
    return max(1, min(N_NEIGHBORS, n // 5))


def _neighbors(reference: NDArray[np.float32], n_neighbors: int) -> NearestNeighbors:
    return NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(reference)

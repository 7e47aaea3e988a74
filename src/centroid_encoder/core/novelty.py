"""How unlike anything seen in training a sample is: sparse surroundings, far from every class.

Doubt between classes is another thing, and says nothing about it: to a cell of an unknown type the
decoder may be as sure of a class as to a known one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh
from sklearn.neighbors import NearestNeighbors

from centroid_encoder.core.batches import Matrix, Standardizer

LEAST = 10
"""Samples below which nothing can be said."""
N_REFERENCE = 2_000
"""Training samples that are kept, about."""
N_OF_CLASS = 20
"""Of each class at least that many, where there are as many and classes are few."""
N_COMPONENTS = 20
N_NEIGHBORS = 10
N_FOLDS = 5
LOCAL = 0.5
"""How much of what is usual around the neighbours is taken off, on a logarithmic scale."""
RIDGE = 0.05
"""Share of the mean variance in each class covariance."""
FLOOR = 0.01
"""Keeps duplicates from a logarithm of 0."""
CELLS_AT_ONCE = 2**24
"""Values of a matrix that are dense at once."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Surroundings:
    """Training samples in their principal components: what there is around a point.

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
    def fit(cls, points: Floats, codes: NDArray[np.integer], n_neighbors: int) -> Self:
        """Learn from (n, K) points of the classes `codes`."""
        n, K = points.shape
        reference = points.astype(np.float32)
        rms = float(np.sqrt(np.square(reference).sum(axis=1).mean())) or 1.0
        # Of itself a sample is no neighbour.
        distance, _ = _neighbors(reference, n_neighbors).kneighbors()
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
        usual = np.log(distance.mean(axis=1) + FLOOR * rms)
        return cls(reference, usual, means, whitening, n_neighbors, FLOOR * rms)

    def around(self, points: Floats) -> Floats:
        """Return the two logarithms for (q, K) points, as (q, 2)."""
        distance, neighbor = _neighbors(self.reference, self.n_neighbors).kneighbors(
            points.astype(np.float32)
        )
        near = np.log(distance.mean(axis=1) + self.floor)
        near -= LOCAL * self.usual[neighbor].mean(axis=1)
        least = np.full(len(points), np.inf)
        for mean, whitening in zip(self.means, self.whitening, strict=True):
            least = np.minimum(least, np.square((points - mean) @ whitening).sum(axis=1))
        return np.stack([near, np.log(least + FLOOR * points.shape[1])], axis=1)


@dataclass(frozen=True)
class Novelty:
    """Score of samples by their surroundings, as a quantile among known samples."""

    axes: NDArray[np.float32]
    """(d, K) principal axes of the z-scored training samples, all features counting the same."""
    offset: Floats
    """(K,) where the mean of the training samples comes to lie on these axes."""
    surroundings: Surroundings
    location: Floats
    """(2,) means of the two numbers over samples that were left out of the surroundings."""
    spread: Floats
    """(2,) their standard deviations."""
    known: Floats
    """(n,) sorted scores of the training samples, each left out of what scored it."""

    @classmethod
    def fit(
        cls,
        X: Matrix,
        index: NDArray[np.integer],
        codes: NDArray[np.integer],
        standardizer: Standardizer,
    ) -> Self:
        """Learn from about 2,000 of the rows `index`.

        Parameters
        ----------
        X
            (n, d) data, dense or CSR.
        index
            (n_train,) rows that count; at least `LEAST`.
        codes
            (n_train,) their class indices.
        standardizer
            That of the map; its weights are left aside, since what a new class differs in need not
            be what the known ones differ in.
        """
        rng = np.random.default_rng(0)
        chosen = _representatives(codes, rng)
        X, codes = X[index[chosen]], codes[chosen]
        n, d = X.shape
        n_components = max(1, min(N_COMPONENTS, d, n // 3))
        n_neighbors = max(1, min(N_NEIGHBORS, n // 5))
        gram = np.zeros((n, n))
        for _, z in _blocks(X, standardizer):
            block: Any = z @ z.T
            gram += block if isinstance(block, np.ndarray) else block.toarray()

        # Samples find themselves among the reference, and axes and covariances fit them too well:
        # what is usual must come from samples left out. The Gram matrix holds all of it.
        fold = np.empty(n, dtype=np.intp)
        fold[np.lexsort((rng.random(n), codes))] = np.arange(n) % N_FOLDS
        around = np.empty((n, 2))
        for i in range(N_FOLDS):
            rest, out = np.flatnonzero(fold != i), np.flatnonzero(fold == i)
            among = gram[np.ix_(rest, rest)]
            column_mean = among.mean(axis=0)
            vectors, values = _principal(_centered(among), n_components)
            across = gram[np.ix_(out, rest)]
            across = across - across.mean(axis=1, keepdims=True) - column_mean + column_mean.mean()
            surroundings = Surroundings.fit(vectors * values, codes[rest], n_neighbors)
            around[out] = surroundings.around(across @ (vectors / values))
        location, spread = around.mean(axis=0), around.std(axis=0)
        spread[spread == 0] = 1.0

        vectors, values = _principal(_centered(gram), n_components)
        axes, offset = np.empty((d, len(values))), np.zeros(len(values))
        for columns, z in _blocks(X, standardizer):
            axes[columns] = z.T @ (vectors / values)
            offset += np.ravel(z.mean(axis=0)) @ axes[columns]
        return cls(
            axes=axes.astype(np.float32),
            offset=offset,
            surroundings=Surroundings.fit(vectors * values, codes, n_neighbors),
            location=location,
            spread=spread,
            known=np.sort(((around - location) / spread).sum(axis=1)),
        )

    def quantiles(self, X: Matrix, standardizer: Standardizer) -> NDArray[np.float32]:
        """(n,) share of known samples that are less novel than each row of X, in [0, 1]."""
        n, d = X.shape
        quantiles = np.empty(n, dtype=np.float32)
        rows_at_once = max(1, CELLS_AT_ONCE // d)
        axes = self.axes.astype(np.float64)
        for start in range(0, n, rows_at_once):
            part = slice(start, start + rows_at_once)
            points = _z_scores(X[part], standardizer) @ axes - self.offset
            around = self.surroundings.around(points)
            score = ((around - self.location) / self.spread).sum(axis=1)
            # Equal scores count half.
            below = np.searchsorted(self.known, score, side="left")
            upto = np.searchsorted(self.known, score, side="right")
            quantiles[part] = (below + upto) / (2 * len(self.known))
        return quantiles

    @staticmethod
    def shapes(
        n_features: int, n_known: int, n_axes: int, n_classes: int
    ) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays of `to_arrays`."""
        return {
            "axes": (n_features, n_axes),
            "offset": (n_axes,),
            "reference": (n_known, n_axes),
            "usual": (n_known,),
            "means": (n_classes, n_axes),
            "whitening": (n_classes, n_axes, n_axes),
            "location": (2,),
            "spread": (2,),
            "known": (n_known,),
        }

    def to_arrays(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """Return a JSON-able config and plain arrays; `from_arrays` takes them."""
        around = self.surroundings
        return {"n_neighbors": around.n_neighbors, "floor": around.floor}, {
            "axes": self.axes,
            "offset": self.offset,
            "reference": around.reference,
            "usual": around.usual,
            "means": around.means,
            "whitening": around.whitening,
            "location": self.location,
            "spread": self.spread,
            "known": self.known,
        }

    @classmethod
    def from_arrays(cls, n_neighbors: int, floor: float, arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild it; the inverse of `to_arrays`."""
        surroundings = Surroundings(
            reference=arrays["reference"],
            usual=arrays["usual"],
            means=arrays["means"],
            whitening=arrays["whitening"],
            n_neighbors=n_neighbors,
            floor=floor,
        )
        return cls(
            axes=arrays["axes"],
            offset=arrays["offset"],
            surroundings=surroundings,
            location=arrays["location"],
            spread=arrays["spread"],
            known=arrays["known"],
        )


def _representatives(codes: NDArray[np.integer], rng: np.random.Generator) -> NDArray[np.intp]:
    """Rows of a sample in which every class has its share, and small ones somewhat more."""
    if len(codes) <= N_REFERENCE:
        return np.arange(len(codes))
    classes, counts = np.unique(codes, return_counts=True)
    least = max(1, min(N_OF_CLASS, N_REFERENCE // len(classes)))
    shares = np.maximum(least, np.round(N_REFERENCE * counts / len(codes)).astype(np.intp))
    return np.sort(
        np.concatenate(
            [
                rng.choice(np.flatnonzero(codes == code), min(share, count), replace=False)
                for code, share, count in zip(classes, shares, counts, strict=True)
            ]
        )
    )


def _z_scores(X: Matrix, standardizer: Standardizer, columns: slice = slice(None)) -> Any:
    """z-scores without weights; of CSR all columns, less the z-score of zero: zeros stay zeros.

    A constant shift of all samples vanishes when their mean is taken off.
    """
    mean, scale, clip = standardizer.mean, standardizer.scale, standardizer.clip
    if not sparse.issparse(X):
        return np.clip((X[:, columns] - mean[columns]) / scale[columns], -clip, clip)
    z = sparse.csr_matrix(X, dtype=np.float64, copy=True)
    z.sum_duplicates()
    of_zero = np.clip(-mean / scale, -clip, clip)
    column = z.indices
    z.data = np.clip((z.data - mean[column]) / scale[column], -clip, clip) - of_zero[column]
    return z


def _blocks(X: Matrix, standardizer: Standardizer) -> Iterator[tuple[slice, Any]]:
    """Columns and their z-scores; of dense data some at a time."""
    n, d = X.shape
    width = d if sparse.issparse(X) else max(1, CELLS_AT_ONCE // n)
    for start in range(0, d, width):
        columns = slice(start, start + width)
        yield columns, _z_scores(X, standardizer, columns)


def _centered(gram: Floats) -> Floats:
    mean = gram.mean(axis=0)
    centered: Floats = gram - mean - mean[:, None] + mean.mean()
    return centered


def _principal(gram: Floats, n_components: int) -> tuple[Floats, Floats]:
    """Eigenvectors of largest eigenvalue of a centred Gram matrix, and singular values."""
    n = len(gram)
    if n <= 300:
        values, vectors = eigh(gram)
    else:
        # A start of its own, or the result would differ from call to call.
        values, vectors = eigsh(gram, n_components, v0=np.ones(n) + np.arange(n) % 7)
    order = np.argsort(-values)[:n_components]
    values, vectors = values[order], vectors[:, order]
    told = values > 1e-9 * max(values[0], 1e-9)
    if not told.any():
        # All samples are the same: one axis, on which they lie in one point.
        return np.zeros((n, 1)), np.ones(1)
    return vectors[:, told], np.sqrt(values[told])


def _neighbors(reference: NDArray[np.float32], n_neighbors: int) -> NearestNeighbors:
    return NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(reference)

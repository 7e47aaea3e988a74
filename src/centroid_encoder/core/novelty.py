"""How unlike anything seen in training a sample is: sparse surroundings, far from every class.

The confidence in a class does not tell: the decoder may be as sure about a cell of an unknown type
as about one of a known type.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches

from centroid_encoder.core.rows import Matrix, Standardizer

LEAST = 10
"""Samples below which nothing can be said."""
N_REFERENCE = 2_000
"""Training samples that are kept, about."""
N_OF_CLASS = 20
"""Of each class at least that many, where there are as many and classes are few."""
SCALES = (5, 10, 20, 50)
"""Numbers of principal components: a new class may differ in a few of them, or in many."""
N_NEIGHBORS = 10
N_FOLDS = 5
LOCAL = 0.5
"""How much of what is usual around the neighbours is taken off, on a logarithmic scale."""
RIDGE = 0.05
"""Share of the mean variance in each class covariance."""
FLOOR = 0.01
"""Keeps duplicates from a logarithm of 0."""
LEAST_SPREAD = 0.05
"""A logarithm that varies less, as where most samples are duplicates, tells nothing."""
EQUAL = 0.02
"""Scores, in standard deviations, that are no further apart are taken for the same."""
CELLS_AT_ONCE = 2**23
"""Values of a matrix that are dense at once."""
ROWS_AT_ONCE = 2**14
"""Samples whose neighbours are looked for at once."""

Floats = NDArray[np.float64]


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
    def fit(cls, reference: NDArray[np.float32], codes: NDArray[np.integer]) -> Self:
        """Learn from (n, K) points of the classes `codes`."""
        points = reference.astype(np.float64)
        n, K = points.shape
        n_neighbors = max(1, min(N_NEIGHBORS, n // 5))
        floor = FLOOR * (float(np.sqrt(np.square(points).sum(axis=1).mean())) or 1.0)
        # Without points, scikit-learn leaves each sample out of its own neighbours.
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
        usual = np.log(distance.mean(axis=1) + floor)
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


@dataclass(frozen=True)
class Novelty:
    """Score of samples by their surroundings, as a quantile among known samples.

    The surroundings are looked at in 5, 10, 20 and 50 principal components. In each both numbers
    are standardised and added, and the largest of the four sums is the score.
    """

    axes: NDArray[np.float32]
    """(d, K) principal axes of the z-scored training samples, all features counting the same."""
    offset: Floats
    """(K,) where the mean of the training samples comes to lie on these axes."""
    reference: NDArray[np.float32]
    """(n, K) training samples on these axes."""
    codes: NDArray[np.intp]
    """(n,) their class indices."""
    location: Floats
    """(S, 2) means of the two numbers over samples that were left out of the surroundings."""
    spread: Floats
    """(S, 2) their standard deviations."""
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
        n_components = max(1, min(SCALES[-1], d, n // 3))
        gram = np.zeros((n, n))
        for _, z in _blocks(X, standardizer):
            gram += z @ z.T

        # Samples would find themselves in the reference, and axes and covariances fit them too
        # well, so what is usual comes from samples left out. The Gram matrix is enough for it.
        fold = np.empty(n, dtype=np.intp)
        fold[np.lexsort((rng.random(n), codes))] = np.arange(n) % N_FOLDS
        around = np.empty((n, len(_scales(n_components)), 2))
        for i in range(N_FOLDS):
            rest, out = np.flatnonzero(fold != i), np.flatnonzero(fold == i)
            among = gram[np.ix_(rest, rest)]
            column_mean = among.mean(axis=0)
            vectors, values = _principal(_centered(among), n_components)
            across = gram[np.ix_(out, rest)]
            across = across - across.mean(axis=1, keepdims=True) - column_mean + column_mean.mean()
            reference = (vectors * values).astype(np.float32)
            points = (across @ (vectors / values)).astype(np.float32)
            for j, k in enumerate(_scales(n_components)):
                surroundings = Surroundings.fit(reference[:, :k], codes[rest])
                around[out, j] = surroundings.around(points[:, :k])

        vectors, values = _principal(_centered(gram), n_components)
        scales = len(_scales(len(values)))
        around = around[:, :scales]
        location, spread = around.mean(axis=0), around.std(axis=0)
        spread = np.maximum(spread, LEAST_SPREAD)
        axes, offset = np.empty((d, len(values)), dtype=np.float32), np.zeros(len(values))
        for columns, z in _blocks(X, standardizer):
            mean = z.mean(axis=0, dtype=np.float64)
            axes[columns] = (z - mean).astype(np.float32).T @ (vectors / values).astype(np.float32)
            offset += mean @ axes[columns].astype(np.float64)
        return cls(
            axes=axes,
            offset=offset,
            reference=(vectors * values).astype(np.float32),
            codes=codes.astype(np.intp),
            location=location,
            spread=spread,
            known=np.sort(_score(around, location, spread)),
        )

    @cached_property
    def surroundings(self) -> tuple[Surroundings, ...]:
        """One for each number of components, found anew from the reference."""
        return tuple(
            Surroundings.fit(self.reference[:, :k], self.codes)
            for k in _scales(self.reference.shape[1])
        )

    def quantiles(self, X: Matrix, standardizer: Standardizer) -> NDArray[np.float32]:
        """(n,) share of known samples that are less novel than each row of X, in [0, 1]."""
        n, d = X.shape
        points = np.empty((n, len(self.offset)), dtype=np.float32)
        for part in gen_batches(n, max(1, CELLS_AT_ONCE // d)):
            points[part] = self._points(X[part], standardizer)
        quantiles = np.empty(n, dtype=np.float32)
        for part in gen_batches(n, ROWS_AT_ONCE):
            around = [
                known.around(points[part, : known.reference.shape[1]])
                for known in self.surroundings
            ]
            score = _score(np.stack(around, axis=1), self.location, self.spread)
            # Scores that are the same but for the choice of the samples left out count half.
            below = np.searchsorted(self.known, score - EQUAL, side="left")
            upto = np.searchsorted(self.known, score + EQUAL, side="right")
            quantiles[part] = (below + upto) / (2 * len(self.known))
        return quantiles

    def _points(self, X: Matrix, standardizer: Standardizer) -> NDArray[np.float32]:
        """(q, K) rows of X on the axes. Sparse ones stay sparse: zeros share what a zero adds."""
        mean, scale, clip = standardizer.mean, standardizer.scale, standardizer.clip
        if not sparse.issparse(X):
            z = np.clip((X - mean) / scale, -clip, clip).astype(np.float32)
            return (z @ self.axes - self.offset).astype(np.float32)
        of_zero = np.clip(-mean / scale, -clip, clip)
        x = sparse.csr_matrix(X, dtype=np.float64, copy=True)
        x.sum_duplicates()
        column = x.indices
        x.data = np.clip((x.data - mean[column]) / scale[column], -clip, clip) - of_zero[column]
        return (x @ self.axes + (of_zero @ self.axes - self.offset)).astype(np.float32)

    @staticmethod
    def shapes(n_features: int, n_known: int, n_axes: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays of `to_arrays`."""
        n_scales = len(_scales(n_axes))
        return {
            "axes": (n_features, n_axes),
            "offset": (n_axes,),
            "reference": (n_known, n_axes),
            "codes": (n_known,),
            "location": (n_scales, 2),
            "spread": (n_scales, 2),
            "known": (n_known,),
        }

    def to_arrays(self) -> dict[str, NDArray[np.floating]]:
        """Return plain arrays of floats; `from_arrays` takes them."""
        return {name: getattr(self, name) for name in self.shapes(0, 0, 1)} | {
            "codes": self.codes.astype(np.float64)
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild it; the inverse of `to_arrays`."""
        return cls(**arrays | {"codes": arrays["codes"].astype(np.intp)})


def _scales(n_axes: int) -> list[int]:
    """Numbers of components to look at, where there are only so many."""
    return sorted({min(k, n_axes) for k in SCALES})


def _score(around: Floats, location: Floats, spread: Floats) -> Floats:
    """(n,) scores of (n, S, 2) numbers: in which of the scales a sample stands out most."""
    score: Floats = ((around - location) / spread).sum(axis=2).max(axis=1)
    return score


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


def _blocks(X: Matrix, standardizer: Standardizer) -> Iterator[tuple[slice, NDArray[np.float32]]]:
    """Columns and their z-scores without weights, dense, some columns at a time."""
    n, d = X.shape
    mean, scale, clip = standardizer.mean, standardizer.scale, standardizer.clip
    by_column: Any = X.tocsc() if sparse.issparse(X) else X
    width = max(1, CELLS_AT_ONCE // n)
    for columns in gen_batches(d, width):
        x: Any = by_column[:, columns]
        if sparse.issparse(X):
            x = x.toarray()
        z = np.clip((x - mean[columns]) / scale[columns], -clip, clip)
        yield columns, z.astype(np.float32)


def _centered(gram: Floats) -> Floats:
    mean = gram.mean(axis=0)
    centered: Floats = gram - mean - mean[:, None] + mean.mean()
    return centered


def _principal(gram: Floats, n_components: int) -> tuple[Floats, Floats]:
    """Eigenvectors of largest eigenvalue of a centred Gram matrix, and singular values."""
    n = len(gram)
    if np.trace(gram) < 1e-12:
        # All samples are the same: one axis, on which they lie in one point.
        return np.zeros((n, 1)), np.ones(1)
    if n <= 300:
        values, vectors = eigh(gram)
    else:
        # A start of its own, or the result would differ from call to call.
        values, vectors = eigsh(gram, n_components, v0=np.ones(n) + np.arange(n) % 7)
    order = np.argsort(-values)[:n_components]
    values, vectors = values[order], vectors[:, order]
    # Products are of single precision.
    told = values > 1e-6 * values[0]
    return vectors[:, told], np.sqrt(values[told])


def _neighbors(reference: NDArray[np.float32], n_neighbors: int) -> NearestNeighbors:
    return NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute").fit(reference)

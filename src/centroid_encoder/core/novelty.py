"""Novelty: how far a sample is from the training samples and from every class.

It complements the confidence: networks can be as sure of a cell of an unknown type as of one of a
known type.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches

from centroid_encoder.core.axes import principal_axes
from centroid_encoder.core.features import Standardizer
from centroid_encoder.core.matrix import Lazy, Matrix
from centroid_encoder.core.quality import class_centers, without_limits
from centroid_encoder.core.splits import representatives

LEAST = 10  # samples that are needed to learn novelty
N_REFERENCE = 2_000  # training samples that are kept, about
N_OF_CLASS = 20  # samples of each class, where there are as many and classes are few
N_AXES = 20
N_FOLDS = 5
N_NEIGHBORS = 10
LOCAL = 0.5  # share of the log distance usual at the neighbours that is subtracted
RIDGE = 0.05  # share of the mean variance in each class covariance
FLOOR = 0.01  # keeps the logarithm of the distance of duplicates finite
LEAST_SPREAD = 0.05  # smallest standard deviation of a logarithm, for data with many duplicates
EQUAL = 0.02  # scores that differ by less count as equal
VALUES_AT_ONCE = 2**21  # of a dense matrix
ROWS_AT_ONCE = 2**12

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Points = NDArray[np.floating]
Codes = NDArray[np.integer]


class Scored(NamedTuple):
    """Rows of the training data that novelty was learned from, and their cross-fitted scores."""

    rows: Codes
    scores: Floats


@dataclass(frozen=True)
class Novelty:
    """Score of samples by their surroundings, as a quantile among training samples.

    Distances are those between principal components of the z-scores, in which all features have the
    same weight: a new class can differ in features in which the known ones do not. The score is the
    sum of the two logarithms of `Surroundings`, each standardised.
    """

    axes: Points  # (d, K) principal axes of n training samples
    offset: Floats  # (K,) mean of the samples on the axes
    reference: Points  # (n, K) samples on the axes
    held_out: Points  # (n, K) the same samples on axes of the other folds, rotated to `axes`
    codes: Codes  # (n,) classes of the samples
    noise: Floats  # (d,) variance of independent noise that leaves the variance beyond the axes
    location: Floats  # (2,) means of the logarithms of held-out samples
    spread: Floats  # (2,) standard deviations of the logarithms of held-out samples
    known: Floats  # (n,) sorted scores of held-out samples

    @classmethod
    def fit(
        cls, X: Matrix | Lazy, index: Codes, codes: Codes, standardizer: Standardizer
    ) -> tuple[Self, Scored]:
        """Learn from about 2,000 of the (n_train,) rows `index` of (n_rows, d) data.

        `codes` holds their (n_train,) classes. The weights of the standardizer are ignored.
        """
        chosen = representatives(codes, N_REFERENCE, N_OF_CLASS, np.random.default_rng(0))
        rows, codes = index[chosen], codes[chosen]
        z = _z_scores(X[rows], standardizer)
        center = z.mean(axis=0)
        z -= center
        axes = _axes(z, max(1, min(N_AXES, z.shape[1], len(z) // 3)))
        folds = list(_folds(codes))
        # All axes come first: threads of NumPy that wait for work slow down those of torch.
        of_folds = [_axes(z[~out] - z[~out].mean(axis=0), axes.shape[1]) for out in folds]
        reference, logarithms = z @ axes, np.empty((len(z), 2))
        held_out = np.empty_like(reference)
        for out, own in zip(folds, of_folds, strict=True):
            mean = z[~out].mean(axis=0)
            inside, points = (z[~out] - mean) @ own, (z[out] - mean) @ own
            logarithms[out] = Surroundings(inside, codes[~out])(points)
            # The nearest rotation to the axes of all samples keeps distances.
            left, _, right = np.linalg.svd(own.T @ axes, full_matrices=False)
            held_out[out] = points @ left @ right + mean @ axes
        on_axes = np.square(axes, dtype=np.float64)
        noise = np.maximum(z.var(axis=0) - on_axes @ held_out.var(axis=0), 0)
        noise /= 1 - np.minimum(on_axes.sum(axis=1), 0.95)
        location, spread, scores = _standardized(logarithms)
        arrays = axes, center.astype(np.float64) @ axes, reference, held_out, codes, noise
        return cls(*arrays, location, spread, np.sort(scores)), Scored(rows, scores)

    def restricted(self, present: NDArray[np.bool_]) -> Self:
        """Return it for the (d,) features that are present, nearly as if learned from these alone.

        The parts of the training samples beyond the axes are not kept, but drawn at random.
        """
        if present.all() or not present.any():
            return self
        axes = np.where(present[:, None], self.axes, 0)
        overlap = self.axes.T @ axes
        beyond = axes - self.axes @ overlap
        covariance = (beyond.T * self.noise) @ beyond
        rng, origin = np.random.default_rng(0), np.zeros(len(covariance))
        drawn = rng.multivariate_normal(origin, covariance, len(self.codes), method="eigh")
        reference, held_out = self.reference @ overlap + drawn, self.held_out @ overlap + drawn
        logarithms = np.empty((len(drawn), 2))
        for out in _folds(self.codes):
            logarithms[out] = Surroundings(reference[~out], self.codes[~out])(held_out[out])
        arrays = axes, self.offset @ overlap, reference, held_out, self.codes, self.noise
        location, spread, scores = _standardized(logarithms)
        return type(self)(*arrays, location, spread, np.sort(scores))

    @cached_property
    def surroundings(self) -> Surroundings:
        """Surroundings of all training samples."""
        return Surroundings(self.reference, self.codes)

    def quantiles(self, X: Matrix | Lazy, standardizer: Standardizer) -> Singles:
        """(n,) shares of the training samples that are less novel than each row of (n, d) data."""
        quantiles = np.empty(X.shape[0], dtype=np.float32)
        n_at_once = max(1, min(ROWS_AT_ONCE, VALUES_AT_ONCE // max(X.shape[1], 1)))
        for part in gen_batches(X.shape[0], n_at_once):
            logarithms = self.surroundings(self._points(X[part], standardizer))
            quantiles[part] = self.ranks(((logarithms - self.location) / self.spread).sum(axis=1))
        return quantiles

    def ranks(self, scores: Floats) -> Singles:
        """(n,) shares of the training samples with smaller scores; equal ones count half."""
        below = np.searchsorted(self.known, scores - EQUAL, side="left")
        upto = np.searchsorted(self.known, scores + EQUAL, side="right")
        return ((below + upto) / (2 * len(self.known))).astype(np.float32)

    def _points(self, X: Matrix, standardizer: Standardizer) -> Points:
        """(n, K) rows of X on the axes; a sparse matrix stays sparse."""
        if not sparse.issparse(X):
            return np.asarray(_z_scores(X, standardizer) @ self.axes - self.offset)
        mean, scale, clip = standardizer.mean, standardizer.scale, standardizer.clip
        of_zero = np.clip(-mean / scale, -clip, clip)
        x = sparse.csr_matrix(X, dtype=np.float64, copy=True)
        x.sum_duplicates()
        column = x.indices
        x.data = np.clip((x.data - mean[column]) / scale[column], -clip, clip) - of_zero[column]
        return np.asarray(x @ self.axes + (of_zero @ self.axes - self.offset))

    @staticmethod
    def shapes(n_features: int, n_known: int, n_axes: int) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays of `to_arrays`."""
        d, n, K = n_features, n_known, n_axes
        shapes: dict[str, tuple[int, ...]] = {"axes": (d, K), "offset": (K,), "noise": (d,)}
        shapes |= {"reference": (n, K), "held_out": (n, K), "codes": (n,), "known": (n,)}
        return shapes | {"location": (2,), "spread": (2,)}

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return arrays of floats, from which `from_arrays` rebuilds the object."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return arrays | {"codes": self.codes.astype(np.float64)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild the object; the inverse of `to_arrays`."""
        return cls(**arrays | {"codes": arrays["codes"].astype(np.intp)})


class Surroundings:
    """Distances of points to the nearest of (n, K) training samples, and to the nearest class."""

    def __init__(self, points: Points, codes: Codes) -> None:
        n, K = points.shape
        n_neighbors = max(1, min(N_NEIGHBORS, n // 5))
        self.neighbors = NearestNeighbors(n_neighbors=n_neighbors, algorithm="brute")
        # Without points, scikit-learn leaves each sample out of its own neighbours.
        with without_limits():
            distance, _ = self.neighbors.fit(points.astype(np.float32)).kneighbors()
        points = points.astype(np.float64)
        self.floor = FLOOR * (float(np.sqrt(np.square(points).sum(axis=1).mean())) or 1.0)
        self.usual = np.log(distance.mean(axis=1) + self.floor)
        classes, index = np.unique(codes, return_inverse=True)
        self.means = class_centers(points, index, len(classes))
        inside = points - self.means[index]
        common = inside.T @ inside / max(n - len(classes), 1)
        self.whitening = []
        for i in range(len(classes)):
            own = inside[index == i]
            shrinkage = K / (K + len(own))
            covariance = (1 - shrinkage) * own.T @ own / max(len(own) - 1, 1) + shrinkage * common
            ridge = RIDGE * (np.trace(covariance) / K or 1.0) * np.eye(K)
            inverse = np.linalg.inv((1 - RIDGE) * covariance + ridge)
            self.whitening.append(np.linalg.cholesky(inverse))

    def __call__(self, points: Points) -> Floats:
        """(q, 2) logarithms of two distances of (q, K) points.

        The mean distance to the nearest samples relative to that of these samples, and the squared
        distance to the nearest class in units of its spread.
        """
        with without_limits():
            distance, neighbor = self.neighbors.kneighbors(points.astype(np.float32))
        near = np.log(distance.mean(axis=1) + self.floor)
        near -= LOCAL * self.usual[neighbor].mean(axis=1)
        least = np.full(len(points), np.inf)
        for mean, whitening in zip(self.means, self.whitening, strict=True):
            least = np.minimum(least, np.square((points - mean) @ whitening).sum(axis=1))
        return np.stack([near, np.log(least + FLOOR * points.shape[1])], axis=1)


def _folds(codes: Codes) -> Iterator[NDArray[np.bool_]]:
    """(n,) masks of a fifth of the samples of each class at a time."""
    fold = np.empty(len(codes), dtype=np.intp)
    fold[np.lexsort((np.random.default_rng(0).random(len(codes)), codes))] = np.arange(len(codes))
    return (fold % N_FOLDS == i for i in range(N_FOLDS))


def _standardized(logarithms: Floats) -> tuple[Floats, Floats, Floats]:
    """Means and standard deviations of (n, 2) logarithms, and (n,) sums of the z-scores."""
    location, spread = logarithms.mean(axis=0), logarithms.std(axis=0)
    spread = np.maximum(spread, LEAST_SPREAD)
    return location, spread, ((logarithms - location) / spread).sum(axis=1)


def _z_scores(X: Matrix, standardizer: Standardizer) -> Singles:
    """(n, d) dense z-scores without weights."""
    n, d = X.shape
    z = np.empty((n, d), dtype=np.float32)
    mean, scale, clip = standardizer.mean, standardizer.scale, standardizer.clip
    for part in gen_batches(n, max(1, VALUES_AT_ONCE // max(d, 1))):
        x: Any = X[part]
        x = x if isinstance(x, np.ndarray) else x.toarray()
        z[part] = np.clip((x - mean) / scale, -clip, clip)
    return z


def _axes(centered: Singles, n_axes: int) -> Singles:
    """(d, K) principal axes of (n, d) samples: `n_axes`, or as many as there are."""
    axes, values = principal_axes(torch.from_numpy(centered), n_axes)
    # Smaller singular values are rounding errors of single precision.
    there = (values > 1e-3 * values[0]) | (torch.arange(len(values)) == 0)
    return np.asarray(axes[there].T)

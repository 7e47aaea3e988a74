"""How unlike anything seen in training a sample is: sparse surroundings, far from every class.

The confidence in a class does not show it: the networks can be as sure of a cell of an unknown type
as of one of a known type.
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
from scipy.linalg import eigh
from sklearn.utils import gen_batches

from centroid_encoder.core.axes import principal_axes
from centroid_encoder.core.features import Standardizer
from centroid_encoder.core.matrix import Lazy, Matrix
from centroid_encoder.core.splits import representatives
from centroid_encoder.core.surroundings import Surroundings

LEAST = 10
"""Samples below which nothing is learned."""
N_REFERENCE = 2_000
"""Training samples that are kept, about."""
N_OF_CLASS = 20
"""Of each class at least that many, where there are as many and classes are few."""
N_AXES = 20
"""Principal components in which the surroundings are measured, at most."""
N_FOLDS = 5
LEAST_SPREAD = 0.05
"""Smallest standard deviation of a logarithm: it varies less where most samples are duplicates."""
EQUAL = 0.02
"""Scores, in standard deviations, that are no further apart count as the same."""
VALUES_AT_ONCE = 2**21
"""Values of a matrix that are dense at once."""
ROWS_AT_ONCE = 2**12
"""Samples whose neighbours are searched at once."""
MOST_ON_AXES = 0.95
"""Largest share of a feature's noise that is taken to lie on the axes."""
JITTER = 1e-4
"""Added to the diagonal of a matrix of cosines, which rounding can make indefinite."""

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]


class Scored(NamedTuple):
    """Training samples that a `Novelty` was learned from, each scored by the other folds."""

    rows: NDArray[np.intp]
    """(n,) rows of the training data."""
    scores: Floats
    """(n,)"""


@dataclass(frozen=True)
class Novelty:
    """Score of samples by their surroundings, as a quantile among training samples.

    In principal components of the z-scores, all features counting the same: the logarithm of the
    distance to the nearest training samples and that of the distance to the nearest class are
    standardised and added.
    """

    axes: Singles
    """(d, K) principal axes of the z-scored training samples."""
    offset: Floats
    """(K,) mean of the training samples on these axes."""
    reference: Singles
    """(n, K) training samples on these axes."""
    codes: NDArray[np.intp]
    """(n,) their class indices."""
    location: Floats
    """(2,) means of the two logarithms over samples that were left out of the surroundings."""
    spread: Floats
    """(2,) their standard deviations."""
    known: Floats
    """(n,) sorted scores of the training samples, each scored by axes and surroundings of the
    other folds."""
    held_out: Singles
    """(n, K) the training samples again, where axes of the other folds place them."""
    residual: Floats
    """(d,) variance of each z-score beyond the axes."""
    unrest: Floats
    """(n,) variance of each training sample beyond the axes, divided by the mean over samples."""

    @classmethod
    def fit(
        cls,
        X: Matrix | Lazy,
        index: NDArray[np.integer],
        codes: NDArray[np.integer],
        standardizer: Standardizer,
    ) -> tuple[Self, Scored]:
        """Learn from about 2,000 of the rows `index`.

        Parameters
        ----------
        X
            (n_rows, d) data, dense or CSR.
        index
            (n_train,) rows that count; at least `LEAST`.
        codes
            (n_train,) their class indices.
        standardizer
            That of the map; its weights are left aside, since a new class can differ in features in
            which the known classes do not.
        """
        rng = np.random.default_rng(0)
        chosen = representatives(codes, N_REFERENCE, N_OF_CLASS, rng)
        rows, own_codes = index[chosen].astype(np.intp), codes[chosen].astype(np.intp)
        some = X[rows]
        places = _condensed(some, standardizer)
        n, n_axes = len(places), max(1, min(N_AXES, some.shape[1], len(places) // 3))
        center = places.mean(axis=0)
        points = places - center
        coefficients, vectors = _principal(points, n_axes)
        n_axes = vectors.shape[1]

        logarithms, held_out = np.empty((n, 2)), np.empty((n, n_axes))
        for rest, out in _folds(own_codes, rng):
            inside = places[rest]
            mean = inside.mean(axis=0)
            inside -= mean
            _, own = _principal(inside, n_axes)
            around = Surroundings.fit(inside @ own, own_codes[rest])
            asked = (places[out] - mean) @ own
            logarithms[out] = around(asked)
            # An orthogonal matrix from these axes to those of all samples: lengths stay.
            left, _, right = np.linalg.svd(own.T @ vectors, full_matrices=False)
            held_out[out] = asked @ left @ right + (mean - center) @ vectors

        axes, offset = np.empty((some.shape[1], n_axes), np.float32), np.zeros(n_axes)
        residual, scatter = np.empty(some.shape[1]), held_out.var(axis=0)
        for columns, z in _blocks(some, standardizer):
            mean = z.mean(axis=0)
            axes[columns] = (z - mean).T @ coefficients
            along = axes[columns].astype(np.float64)
            offset += mean @ along
            variance = np.square(z - mean).mean(axis=0, dtype=np.float64)
            residual[columns] = np.maximum(variance - np.square(along) @ scatter, 0)
        beyond = np.square(points).sum(axis=1, dtype=np.float64)
        beyond = np.maximum(beyond - np.square(held_out).sum(axis=1), 0)
        location, spread, scores = _scored(logarithms)
        learned = cls(
            axes=axes,
            offset=offset,
            reference=points @ vectors,
            codes=own_codes,
            location=location,
            spread=spread,
            known=np.sort(scores),
            held_out=held_out.astype(np.float32),
            residual=residual,
            unrest=beyond / max(beyond.mean(), 1e-12),
        )
        return learned, Scored(rows, scores)

    def restricted(self, present: NDArray[np.bool_]) -> Novelty:
        """Return it for a part of the features, nearly as if it were learned from these alone.

        The training samples are not kept, but their places on the axes are. Their part beyond the
        axes is drawn at random, independent between features and of the variance that was found
        there. The scores of the training samples are found anew from both.

        Parameters
        ----------
        present
            (d,) which features there are.
        """
        if present.all() or not present.any():
            return self
        axes = self.axes.astype(np.float64)
        basis, from_axes = np.linalg.qr(axes[present])
        # The part beyond the axes is noise less its projection on them, which takes a share of the
        # variance of each feature.
        beyond = -axes @ (axes[present].T @ basis)
        beyond[present] += basis
        share = np.minimum(np.square(axes).sum(axis=1), MOST_ON_AXES)
        variance, directions = eigh((beyond.T * (self.residual / (1 - share))) @ beyond)
        rng = np.random.default_rng(0)
        noise = rng.normal(size=(len(self.codes), len(variance)))
        noise *= np.sqrt(np.maximum(variance, 0))
        noise = noise @ directions.T * np.sqrt(self.unrest)[:, None]
        reference = self.reference @ from_axes.T + noise
        held_out = self.held_out @ from_axes.T + noise
        logarithms = np.empty((len(held_out), 2))
        for rest, out in _folds(self.codes, rng):
            around = Surroundings.fit(reference[rest], self.codes[rest])
            logarithms[out] = around(held_out[out])
        location, spread, scores = _scored(logarithms)
        own_axes = np.zeros((len(axes), basis.shape[1]), dtype=np.float32)
        own_axes[present] = basis
        offset = (axes @ self.offset)[present] @ basis
        return Novelty(
            axes=own_axes,
            offset=offset,
            reference=reference.astype(np.float32),
            codes=self.codes,
            location=location,
            spread=spread,
            known=np.sort(scores),
            held_out=held_out.astype(np.float32),
            residual=self.residual,
            unrest=self.unrest,
        )

    @cached_property
    def surroundings(self) -> Surroundings:
        """Those of all reference samples."""
        return Surroundings.fit(self.reference, self.codes)

    def quantiles(self, X: Matrix | Lazy, standardizer: Standardizer) -> Singles:
        """(n,) shares of the training samples that are less novel than each row of X.

        Parameters
        ----------
        X
            (n, d) finite data.
        standardizer
            That of the map.
        """
        quantiles = np.empty(X.shape[0], dtype=np.float32)
        n_at_once = max(1, min(ROWS_AT_ONCE, VALUES_AT_ONCE // max(X.shape[1], 1)))
        for part in gen_batches(X.shape[0], n_at_once):
            logarithms = self.surroundings(self._points(X[part], standardizer))
            scores = ((logarithms - self.location) / self.spread).sum(axis=1)
            quantiles[part] = self.ranks(scores)
        return quantiles

    def ranks(self, scores: Floats) -> Singles:
        """(n,) shares of the training samples with smaller scores; equal ones count half."""
        below = np.searchsorted(self.known, scores - EQUAL, side="left")
        upto = np.searchsorted(self.known, scores + EQUAL, side="right")
        return ((below + upto) / (2 * len(self.known))).astype(np.float32)

    def _points(self, X: Matrix, standardizer: Standardizer) -> Singles:
        """(n, K) rows of X on the axes. Sparse ones stay sparse: all zeros add the same."""
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
        on_axes, of_samples = (n_known, n_axes), (n_known,)
        return {
            "axes": (n_features, n_axes),
            "offset": (n_axes,),
            "reference": on_axes,
            "codes": of_samples,
            "location": (2,),
            "spread": (2,),
            "known": of_samples,
            "held_out": on_axes,
            "residual": (n_features,),
            "unrest": of_samples,
        }

    def to_arrays(self) -> dict[str, NDArray[np.floating]]:
        """Return plain arrays of floats; `from_arrays` takes them."""
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return arrays | {"codes": self.codes.astype(np.float64)}

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild it; the inverse of `to_arrays`."""
        return cls(**arrays | {"codes": arrays["codes"].astype(np.intp)})


def _scored(logarithms: Floats) -> tuple[Floats, Floats, Floats]:
    """Means and standard deviations of (n, 2) logarithms, and the (n,) scores that follow."""
    location, spread = logarithms.mean(axis=0), logarithms.std(axis=0)
    spread = np.maximum(spread, LEAST_SPREAD)
    return location, spread, ((logarithms - location) / spread).sum(axis=1)


def _folds(
    codes: NDArray[np.integer], rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Rows that stay and rows that are left out, a fifth of each class at a time."""
    n = len(codes)
    fold = np.empty(n, dtype=np.intp)
    fold[np.lexsort((rng.random(n), codes))] = np.arange(n) % N_FOLDS
    for i in range(N_FOLDS):
        yield np.flatnonzero(fold != i), np.flatnonzero(fold == i)


def _blocks(X: Matrix, standardizer: Standardizer) -> Iterator[tuple[slice, Singles]]:
    """Columns and their z-scores without weights, dense, some columns at a time."""
    n, d = X.shape
    mean, scale, clip = standardizer.mean, standardizer.scale, standardizer.clip
    by_column: Any = X.tocsc() if sparse.issparse(X) else X
    for columns in gen_batches(d, max(1, VALUES_AT_ONCE // n)):
        x: Any = by_column[:, columns]
        if sparse.issparse(X):
            x = x.toarray()
        z = np.clip((x - mean[columns]) / scale[columns], -clip, clip)
        yield columns, z.astype(np.float32)


def _condensed(X: Matrix, standardizer: Standardizer) -> Singles:
    """(n, k) points as far from each other as the z-scores of (n, d) data, where k ≤ n or k = d."""
    n, d = X.shape
    if d <= 2 * n:
        return np.concatenate([z for _, z in _blocks(X, standardizer)], axis=1)
    gram = np.zeros((n, n))
    for _, z in _blocks(X, standardizer):
        centered = z - z.mean(axis=0)
        gram += centered @ centered.T
    length = np.sqrt(np.maximum(np.diag(gram), 1e-12))[:, None]
    gram /= length * length.T
    gram[np.diag_indices(n)] += JITTER
    return np.asarray(length * np.linalg.cholesky(gram), dtype=np.float32)


def _principal(points: Singles, n_axes: int) -> tuple[Singles, Singles]:
    """Find the K principal axes of (n, k) centred points, `n_axes` or as many as there are.

    Returns
    -------
    (n, K) coefficients by which the points add up to the axes, and (k, K) the axes.
    """
    found = principal_axes(torch.from_numpy(points), n_axes)
    axes, values, left = (tensor.numpy() for tensor in found)
    # Singular values below are rounding errors of single precision. One axis there always is.
    there = (values > 1e-3 * values[0]) | (np.arange(len(values)) == 0)
    return left[:, there] / np.maximum(values[there], 1e-12), axes[there].T

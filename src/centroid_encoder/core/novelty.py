"""How unlike anything seen in training a sample is: sparse surroundings, far from every class.

The confidence in a class does not tell: the decoder may be as sure about a cell of an unknown type
as about one of a known type.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.linalg import eigh
from sklearn.utils import gen_batches
from sklearn.utils.extmath import randomized_svd
from threadpoolctl import threadpool_limits

from centroid_encoder.core.matrix import Lazy, Matrix
from centroid_encoder.core.splits import representatives
from centroid_encoder.core.standardization import Standardizer
from centroid_encoder.core.surroundings import SCALES, Neighbors, Surroundings, around, scales

LEAST = 10
"""Samples below which nothing can be said."""
N_REFERENCE = 2_000
"""Training samples that are kept, about."""
N_OF_CLASS = 20
"""Of each class at least that many, where there are as many and classes are few."""
N_FOLDS = 5
LEAST_SPREAD = 0.05
"""A logarithm that varies less, as where most samples are duplicates, tells nothing."""
EQUAL = 0.02
"""Scores, in standard deviations, that are no further apart are taken for the same."""
QUARTER = 0.25
LEAST_KNOWN = 0.5
"""Share of a batch that is taken to be of known kinds, at least."""
N_ROUNDS = 8
N_PARTS = 16
"""Combinations of missing features that get quantiles of their own, at most."""
CELLS_AT_ONCE = 2**21
"""Values of a matrix that are dense at once."""
ROWS_AT_ONCE = 2**14
"""Samples whose neighbours are looked for at once."""

EXACT = 300
"""Samples or dimensions up to which all principal axes are as quickly found as some."""
N_ITERATIONS = 4
"""Of the search for principal axes otherwise: those of noise need not be the very largest."""
WIDE = 2
"""Features for each sample up to which the z-scores of all are held at once."""
SLACK = 1e-4
"""What is added to cosines so that rounding leaves them cosines; a sample to itself has 1."""

Floats = NDArray[np.float64]
Part = tuple[slice, NDArray[np.float32]]
"""Some columns of a matrix, and what is in them."""


@dataclass(frozen=True)
class Novelty:
    """Score of samples by their surroundings, as a quantile among known samples.

    The surroundings are looked at in 5, 10, 20 and 50 principal components. In each both numbers
    are standardised and added, and the largest of the four sums is the score.
    """

    OF_PARTS: ClassVar = ("held_out", "residual", "unrest")
    """Fields without which only all features count."""
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
    held_out: NDArray[np.float32] | None = None
    """(n, K) the training samples again, each where it would lie had it not shaped the axes. None
    in maps of the first releases, and where a part of the features counts."""
    residual: Floats | None = None
    """(d,) variance of each z-score beyond the axes; None as above."""
    unrest: Floats | None = None
    """(n,) variance of each training sample beyond the axes, next to their mean; None as above."""

    @classmethod
    def fit(
        cls,
        X: Matrix | Lazy,
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
        # Of a few thousand rows, which threads are longer in dividing than in computing.
        with threadpool_limits(1):
            return cls._fit(X, index, codes, standardizer)

    @classmethod
    def _fit(
        cls,
        X: Matrix | Lazy,
        index: NDArray[np.integer],
        codes: NDArray[np.integer],
        standardizer: Standardizer,
    ) -> Self:
        rng = np.random.default_rng(0)
        chosen = representatives(codes, N_REFERENCE, N_OF_CLASS, rng)
        some, codes = X[index[chosen]], codes[chosen]
        n, d = some.shape
        n_components = max(1, min(SCALES[-1], d, n // 3))
        if d <= WIDE * n:
            places = np.concatenate([z for _, z in _blocks(some, standardizer)], axis=1)
        else:
            places = _condensed(_blocks(some, standardizer), n)
        center = places.mean(axis=0)
        points = places - center
        coefficients, vectors = _principal(points, n_components)
        on_axes = points @ vectors
        n_components = on_axes.shape[1]
        neighbors = [Neighbors.of(on_axes[:, :k]) for k in scales(n_components)]

        # Samples would find themselves in the reference, and axes and covariances fit them too
        # well, so what is usual comes from samples that were left out.
        numbers = np.empty((n, len(neighbors), 2))
        held_out = np.empty(on_axes.shape)
        for rest, out in _folds(codes, rng):
            inside = places[rest]
            mean = inside.mean(axis=0)
            inside -= mean
            _, own_vectors = _principal(inside, n_components)
            reference, asked = inside @ own_vectors, (places[out] - mean) @ own_vectors
            for i, (k, known) in enumerate(zip(scales(n_components), neighbors, strict=True)):
                own = Surroundings.fit(reference[:, :k], codes[rest], known.distance_in(rest))
                numbers[out, i] = own.around(asked[:, :k])
            # From one set of axes to the other by a turn: it leaves lengths as they are.
            turn, _, back = np.linalg.svd(own_vectors.T @ vectors, full_matrices=False)
            held_out[out] = asked @ turn @ back + (mean - center) @ vectors

        beyond = np.square(points).sum(axis=1, dtype=np.float64)
        beyond = np.maximum(beyond - np.square(held_out).sum(axis=1), 0)
        location, spread = numbers.mean(axis=0), numbers.std(axis=0)
        spread = np.maximum(spread, LEAST_SPREAD)
        axes, offset = np.empty((d, n_components), dtype=np.float32), np.zeros(n_components)
        residual, scatter = np.empty(d), held_out.var(axis=0)
        blocks = [(slice(None), places)] if d <= WIDE * n else _blocks(some, standardizer)
        for columns, z in blocks:
            mean = z.mean(axis=0)
            axes[columns] = (z - mean).T @ coefficients
            along = axes[columns].astype(np.float64)
            offset += mean @ along
            variance = np.square(z - mean).mean(axis=0, dtype=np.float64)
            residual[columns] = np.maximum(variance - np.square(along) @ scatter, 0)
        return cls(
            axes=axes,
            offset=offset,
            reference=on_axes,
            codes=codes.astype(np.intp),
            location=location,
            spread=spread,
            known=np.sort(_score(numbers, location, spread)),
            held_out=held_out.astype(np.float32),
            residual=residual,
            unrest=beyond / max(beyond.mean(), 1e-12),
        )

    def restricted(self, present: NDArray[np.bool_]) -> Novelty:
        """Judge by a part of the features, nearly as if it had been learned from these alone.

        The training samples are not kept, but their places on the axes are. What a new sample has
        beyond the axes is drawn at random, independent between features and of the variance that
        was found there, larger for samples that had more of it: a part of the features sees some
        of it. Quantiles are found anew from this.

        Parameters
        ----------
        present
            (d,) whether each feature is there; at least one is.

        Raises
        ------
        ValueError
            If a map of the first releases lacks what this needs.
        """
        if self.held_out is None or self.residual is None or self.unrest is None:
            raise ValueError("the map cannot judge by a part of the features")
        axes = self.axes.astype(np.float64)
        basis, from_axes = np.linalg.qr(axes[present])
        reference = self.reference.astype(np.float64) @ from_axes.T
        points = self.held_out.astype(np.float64) @ from_axes.T
        # Noise is without the part along the axes: those of all features would have seen that.
        seen = -axes @ (axes[present].T @ basis)
        seen[present] += basis
        variance, direction = eigh((seen.T * self.residual) @ seen)
        rng = np.random.default_rng(0)
        noise = rng.normal(size=points.shape) * np.sqrt(np.maximum(variance, 0))
        points = points + noise @ direction.T * np.sqrt(self.unrest)[:, None]

        center = reference.mean(axis=0)
        variance, turn = eigh(np.cov(reference - center, rowvar=False).reshape(2 * [len(center)]))
        turn = turn[:, ::-1][:, variance[::-1] > 1e-6 * max(variance[-1], 1e-12)]
        if not turn.shape[1]:
            turn = np.eye(len(center))[:, :1]
        reference, points = (
            ((places - center) @ turn).astype(np.float32) for places in (reference, points)
        )
        numbers = np.empty((len(points), len(scales(turn.shape[1])), 2))
        for rest, out in _folds(self.codes, rng):
            numbers[out] = around(reference[rest], self.codes[rest], points[out])
        location = numbers.mean(axis=0)
        spread = np.maximum(numbers.std(axis=0), LEAST_SPREAD)
        own_axes = np.zeros((len(axes), turn.shape[1]), dtype=np.float32)
        own_axes[present] = basis @ turn
        return Novelty(
            axes=own_axes,
            offset=(center + (axes @ self.offset)[present] @ basis) @ turn,
            reference=reference,
            codes=self.codes,
            location=location,
            spread=spread,
            known=np.sort(_score(numbers, location, spread)),
        )

    def prepare(self) -> None:
        """Find, ahead of the first samples, what they are compared with."""
        self.surroundings  # noqa: B018

    @cached_property
    def surroundings(self) -> tuple[Surroundings, ...]:
        """One for each number of components, found anew from the reference."""
        return tuple(
            Surroundings.fit(self.reference[:, :k], self.codes)
            for k in scales(self.reference.shape[1])
        )

    def quantiles(
        self,
        X: Matrix | Lazy,
        standardizer: Standardizer,
        missing: NDArray[np.bool_] | None = None,
        excess: float = 0.0,
    ) -> NDArray[np.float32]:
        """Tell how many known samples are less novel than each row of X.

        Parameters
        ----------
        X
            (n, d) data, with any finite value where a feature is missing.
        standardizer
            That of the map.
        missing
            Which features are missing, of all rows (d,) or of each (n, d). They do not count, but
            in rows that miss others than most do, or if the map `counts_parts` not.
        excess
            What to take off every score; see `excess`.

        Returns
        -------
        (n,) shares in [0, 1].
        """
        quantiles = np.empty(X.shape[0], dtype=np.float32)
        for judge, rows in self._judges(X.shape[0], missing):
            # All rows of what is not in memory would come into it.
            asked = X if isinstance(rows, slice) else X[rows]
            score = judge._scores(asked, standardizer) - excess
            # Scores that are the same but for the choice of the samples left out count half.
            below = np.searchsorted(judge.known, score - EQUAL, side="left")
            upto = np.searchsorted(judge.known, score + EQUAL, side="right")
            quantiles[rows] = (below + upto) / (2 * len(judge.known))
        return quantiles

    def excess(
        self,
        X: Matrix,
        standardizer: Standardizer,
        missing: NDArray[np.bool_] | None = None,
    ) -> float:
        """How much higher known samples score in this batch than in the training; at least 0.

        Most of the samples are taken to be of known kinds, the less novel ones among them. What is
        looked at is a quarter of these, and how many they are follows from what it says.

        Parameters
        ----------
        X, standardizer
            As for `quantiles`.
        missing
            (d,) which features are missing.
        """
        ((judge, _),) = self._judges(X.shape[0], missing)
        scores = judge._scores(X, standardizer)
        usual, high = np.quantile(judge.known, [QUARTER, 1 - QUARTER])
        share, excess = 1.0, 0.0
        for _ in range(N_ROUNDS):
            excess = float(np.quantile(scores, share * QUARTER) - usual)
            below = float((scores - excess < high).mean()) / (1 - QUARTER)
            share = min(max(below, LEAST_KNOWN), 1.0)
        return max(excess, 0.0)

    @property
    def counts_parts(self) -> bool:
        """Whether features that are missing can be left out of the count."""
        return self.unrest is not None

    def _judges(
        self, n: int, missing: NDArray[np.bool_] | None
    ) -> Iterator[tuple[Novelty, slice | NDArray[np.intp]]]:
        """Who judges which of n rows, by the features that each of them has."""
        if missing is None or not missing.any() or not self.counts_parts:
            yield self, slice(None)
        elif missing.ndim == 1:
            yield self._without(missing), slice(None)
        else:
            packed = np.packbits(missing, axis=1)
            _, first, kind = np.unique(packed, axis=0, return_index=True, return_inverse=True)
            n_of_kind = np.bincount(kind.ravel())
            everywhere = np.all(missing, axis=0)
            for i in np.argsort(-n_of_kind, kind="stable"):
                lacking = missing[first[i]] if n_of_kind[i] >= LEAST else everywhere
                yield self._without(lacking), np.flatnonzero(kind.ravel() == i)

    def _without(self, missing: NDArray[np.bool_]) -> Novelty:
        """The judge where these features are missing: made once, as long as there are few."""
        if not missing.any() or missing.all():
            return self
        name = missing.tobytes()
        if name not in self._parts:
            if len(self._parts) >= N_PARTS:
                return self
            self._parts[name] = self.restricted(~missing)
        return self._parts[name]

    @cached_property
    def _parts(self) -> dict[bytes, Novelty]:
        return {}

    def _scores(self, X: Matrix | Lazy, standardizer: Standardizer) -> Floats:
        """(n,) how much rows of X stand out, in no unit."""
        n, d = X.shape
        scores = np.empty(n)
        for start in range(0, n, ROWS_AT_ONCE):
            stop = min(n, start + ROWS_AT_ONCE)
            few = max(1, CELLS_AT_ONCE // d)
            points = np.concatenate(
                [
                    self._points(X[first : min(stop, first + few)], standardizer)
                    for first in range(start, stop, few)
                ]
            )
            numbers = [
                known.around(points[:, : known.reference.shape[1]]) for known in self.surroundings
            ]
            scores[start:stop] = _score(np.stack(numbers, axis=1), self.location, self.spread)
        return scores

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
    def shapes(
        n_features: int, n_known: int, n_axes: int, *, counts_parts: bool
    ) -> dict[str, tuple[int, ...]]:
        """Shapes of the arrays of `to_arrays`."""
        n_scales = len(scales(n_axes))
        parts: dict[str, tuple[int, ...]]
        parts = {"held_out": (n_known, n_axes), "residual": (n_features,), "unrest": (n_known,)}
        return (parts if counts_parts else {}) | {
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
        names = self.shapes(0, 0, 1, counts_parts=self.counts_parts)
        return {name: getattr(self, name) for name in names} | {
            "codes": self.codes.astype(np.float64)
        }

    @classmethod
    def from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Self:
        """Rebuild it; the inverse of `to_arrays`."""
        return cls(**arrays | {"codes": arrays["codes"].astype(np.intp)})


def _score(numbers: Floats, location: Floats, spread: Floats) -> Floats:
    """(n,) scores of (n, S, 2) numbers: in which of the scales a sample stands out most."""
    score: Floats = ((numbers - location) / spread).sum(axis=2).max(axis=1)
    return score


def _folds(
    codes: NDArray[np.integer], rng: np.random.Generator
) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Rows that stay and rows that are left out, a fifth of each class at a time."""
    n = len(codes)
    fold = np.empty(n, dtype=np.intp)
    fold[np.lexsort((rng.random(n), codes))] = np.arange(n) % N_FOLDS
    for i in range(N_FOLDS):
        yield np.flatnonzero(fold != i), np.flatnonzero(fold == i)


def _blocks(X: Matrix, standardizer: Standardizer) -> Iterator[Part]:
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


def _condensed(blocks: Iterable[Part], n: int) -> NDArray[np.float32]:
    """(n, n) points as far from each other as n samples of more features, given in blocks."""
    gram = np.zeros((n, n))
    for _, z in blocks:
        centered = z - z.mean(axis=0)
        gram += centered @ centered.T
    length = np.sqrt(np.maximum(np.diag(gram), 1e-12))[:, None]
    gram /= length * length.T
    gram[np.diag_indices(n)] += SLACK
    return np.asarray(length * np.linalg.cholesky(gram), dtype=np.float32)


def _principal(
    points: NDArray[np.float32], n_components: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Find the K principal axes of (n, k) centred points, `n_components` or as many as there are.

    Returns
    -------
    (n, K) coefficients by which the points add up to the axes, and (k, K) the axes.
    """
    n, k = points.shape
    if np.vdot(points, points) < 1e-12:
        # All samples are the same: one axis, on which they lie in one point.
        return np.zeros((n, 1), dtype=np.float32), np.zeros((k, 1), dtype=np.float32)
    if min(n, k) > EXACT:
        left, values, axes = randomized_svd(
            points, n_components, n_iter=N_ITERATIONS, random_state=0
        )
        axes = axes.T
    else:
        tall = points if k <= n else points.T
        squared, axes = eigh((tall.T @ tall).astype(np.float64))
        order = np.flatnonzero(squared[::-1] > 0)[:n_components]
        values, axes = np.sqrt(squared[::-1][order]), axes[:, ::-1][:, order]
        left = tall @ axes / values
        left, axes = (left, axes) if k <= n else (axes, left)
    # Products are of single precision.
    told = values > 1e-3 * values[0]
    coefficients = left[:, told] / values[told]
    return coefficients.astype(np.float32), axes[:, told].astype(np.float32)

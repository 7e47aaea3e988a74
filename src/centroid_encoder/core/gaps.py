"""Missing values, NaN or infinite: counted, filled, and estimated in rows that a map judges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from centroid_encoder.core.arrays import Codes, Doubles, Floats, Mask
from centroid_encoder.core.matrix import Lazy, Matrix, row_chunks

if TYPE_CHECKING:
    from centroid_encoder.core.map import FittedMap


def values_of(x: Any) -> NDArray[Any]:
    """Return the stored values of a sparse matrix, or all values of a dense one."""
    return np.asarray(x if isinstance(x, np.ndarray) else x.data)


def dense(x: Any) -> NDArray[Any]:
    """Return a dense array of a dense or sparse matrix."""
    return x if isinstance(x, np.ndarray) else np.asarray(x.toarray())


def is_gap(x: Any) -> Any:
    """Return a matrix that is True where `x` is NaN or infinite, sparse if `x` is."""
    if isinstance(x, np.ndarray):
        return ~np.isfinite(x)
    return sparse.csr_array((~np.isfinite(x.data), x.indices, x.indptr), shape=x.shape)


def count_gaps(X: Matrix | Lazy) -> Codes:
    """Return the number of NaN and infinite values of each row, in one pass."""
    counts = np.zeros(X.shape[0], dtype=np.intp)
    for part, x in row_chunks(X) if X.dtype.kind == "f" else ():
        if not np.isfinite(values_of(x)).all():
            counts[part] = is_gap(x).sum(axis=1)
    return counts


def fill(x: Any, values: Floats) -> Any:
    """Replace NaN and inf by the value of their column; return a copy if there are any."""
    bad = ~np.isfinite(values_of(x))
    if bad.any():
        x = x.copy()
        columns = np.nonzero(bad)[1] if isinstance(x, np.ndarray) else x.indices[bad]
        values_of(x)[bad] = values[columns]
    return x


def means_without_gaps(X: Matrix | Lazy, rows: Mask) -> Doubles:
    """(d,) means of the finite values of the rows in a mask; 0 for a feature without any."""
    sums, counts = np.zeros(X.shape[1]), np.full(X.shape[1], rows.sum())
    for part, chunk in row_chunks(X):
        x: Any = chunk[rows[part]]
        counts -= is_gap(x).sum(axis=0)
        sums += np.asarray(fill(x, np.zeros(len(sums))).sum(axis=0, dtype=np.float64)).ravel()
    return np.asarray(sums / np.maximum(counts, 1))


class Imputed:
    """Rows as a map judges them, with estimates of the missing values that its networks use.

    Parameters
    ----------
    map_
        The map.
    X
        (n, d) values in the order of the map's features.
    absent
        (d,) mask of the features that all rows lack. Their values in X have no meaning.
    allowed
        Share of the features of the networks that a row may lack.
    """

    def __init__(self, map_: FittedMap, X: Matrix, absent: Mask, allowed: float = 1.0) -> None:
        self._map, self._absent, used = map_, absent, map_.standardizer.weight > 0
        self.n_gaps = count_gaps(X[:, ~absent] if absent.any() else X)
        """(n,) numbers of missing values without those of absent features."""
        n, lacks_used = len(self.n_gaps), absent[used].any()
        rows = np.arange(n) if lacks_used else np.flatnonzero(self.n_gaps)
        gaps = dense(is_gap(X[rows])) | absent
        share = gaps[:, used].mean(axis=1)
        self.unusable = np.zeros(n, dtype=bool)
        """(n,) mask of the rows that lack too many values."""
        self.unusable[rows] = (share > allowed) | (share == 1)
        means, weights = map_.standardizer.mean, np.ones(len(used))
        if map_.novelty is not None:
            axes = map_.novelty.axes
            means = means + map_.standardizer.scale * (axes @ map_.novelty.offset)
            weights = np.square(axes).sum(axis=1)
        lost = np.full(n, weights @ absent)
        lost[rows] = gaps @ weights
        self._lost = lost / weights.sum()
        kept = (share > 0) & ~self.unusable[rows]
        self._rows, self._gaps = rows[kept], gaps[kept]
        self.x = fill(X, means)
        """(n, d) values with a mean for each missing one, sparse if X is."""

    def _estimates(self) -> Iterator[Doubles]:
        """Yield the rows whose values are estimated: expected values, and then random ones."""
        x = np.array(dense(self.x[self._rows]), np.float64)
        if self._map.novelty is None:
            return iter([np.where(self._gaps, self._map.standardizer.mean, x)])
        return self._map.novelty.estimates(x, self._gaps)

    def expected(self) -> Any:
        """(n, d) values with expected ones in the gaps, dense if there are any."""
        if not len(self._rows):
            return self.x
        x = np.array(dense(self.x), np.float64)
        x[self._rows] = next(self._estimates())
        return x

    def judge(self) -> tuple[Floats, Floats, Codes]:
        """(n, m) places, (n, M) probabilities of the classes, and (n,) predictions."""
        map_, rows = self._map, self._rows
        places, distances = (np.concatenate(x) for x in zip(*map_.judge(self.x), strict=True))
        probabilities = map_.calibration.probabilities(distances)
        if len(rows):
            expected, *draws = self._estimates()
            of_rows = map_.judge_draws(expected, draws or [expected])
            places[rows], distances[rows], probabilities[rows] = of_rows
        return places, probabilities, distances.argmin(axis=1)

    def novelty(self) -> Floats:
        """(n,) novelty; NaN if the map has none."""
        novelty, lost = self._map.novelty, self._lost
        if novelty is None:
            return np.full(len(lost), np.nan)
        found = novelty.quantiles(self.x, self._absent, lost)
        if len(rows := self._rows):
            found[rows] = novelty.quantiles(next(self._estimates()), lost=lost[rows])
        return found

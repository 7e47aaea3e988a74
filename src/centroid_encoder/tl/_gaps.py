"""NaN and infinite values of a matrix: their numbers, their first place, and what fills them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from centroid_encoder.core.matrix import Lazy, Matrix, row_chunks
from centroid_encoder.tl._lazy import LazyMatrix, fill, stored


def _is_gap(x: Any) -> Any:
    """Return a matrix that is True where `x` is NaN or infinite, sparse if `x` is."""
    if isinstance(x, np.ndarray):
        return ~np.isfinite(x)
    return sparse.csr_array((~np.isfinite(x.data), x.indices, x.indptr), shape=x.shape)


def count_gaps(X: Matrix | Lazy) -> NDArray[np.intp]:
    """Return the number of NaN and infinite values of each row, in one pass."""
    counts = np.zeros(X.shape[0], dtype=np.intp)
    for part, x in row_chunks(X) if X.dtype.kind == "f" else ():
        if not np.isfinite(stored(x)).all():
            counts[part] = _is_gap(x).sum(axis=1)
    return counts


def describe_gaps(
    X: Matrix | Lazy, counts: NDArray[np.intp], where: str, obs_names: pd.Index, names: Any
) -> str:
    """Return a sentence with the number of gaps and the place of the first one."""
    row = int(np.argmax(counts > 0))
    column = _is_gap(X[row : row + 1]).nonzero()[1].min()
    feature = f"column {column}" if names is None else repr(names[column])
    return (
        f"{where} has {counts.sum()} NaN or infinite values in {(counts > 0).sum()} of "
        f"{len(counts)} cells; the first is {feature} of cell {obs_names[row]!r}"
    )


def fill_missing(X: Matrix | Lazy, train: NDArray[np.bool_]) -> Matrix | Lazy:
    """Replace NaN and inf by the mean of the feature's finite training values.

    X is copied only if there is something to fill. A feature without any finite training value
    becomes 0.
    """
    if X.is_finite if isinstance(X, LazyMatrix) else not count_gaps(X).any():
        return X
    sums, counts = np.zeros(X.shape[1]), np.full(X.shape[1], train.sum())
    for part, rows in row_chunks(X):
        x: Any = rows[train[part]]
        counts -= _is_gap(x).sum(axis=0)
        sums += np.asarray(fill(x, np.zeros(len(sums))).sum(axis=0, dtype=np.float64)).ravel()
    means = sums / np.maximum(counts, 1)
    return replace(X, means=means) if isinstance(X, LazyMatrix) else fill(X, means)

"""What is kept of data for a training: in memory or, of much that is not there, in a file."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import gen_batches

from centroid_encoder.core.matrix import (
    VALUES_AT_ONCE,
    Lazy,
    Matrix,
    is_sparse,
    without_duplicates,
)
from centroid_encoder.core.pieces import Pieces, Stored
from centroid_encoder.core.standardization import Standardizer

COPY_LIMIT, COPY_SHARE = 2**28, 1 / 8
"""Bytes that a copy of CSR data without the features left out may take, and its share of the data:
it is made if it is within one of them."""
LOOKED_AT = 4096
"""Rows that tell how many values are 0."""
DENSE = 0.5
"""Share of values other than 0 from which on dense data take less memory than CSR."""


class Entries(NamedTuple):
    """The arrays of CSR; scipy would want larger indices for more than 2³¹ entries."""

    indptr: NDArray[np.integer]
    indices: NDArray[np.integer] | Stored
    data: NDArray[Any] | Stored


def held(
    X: Matrix | Lazy, standardizer: Standardizer
) -> tuple[NDArray[Any] | Lazy | Entries, Standardizer]:
    """What is to be in memory of the data, and the standardisation of that."""
    kept = standardizer.kept
    if isinstance(X, Lazy):
        if is_sparse(X) or _share_of_values(X, kept) < DENSE:
            return _read_kept(X, kept), standardizer.of_kept
        return X, standardizer
    if not sparse.issparse(X):
        return X, standardizer
    csr = without_duplicates(X)
    if len(kept) < X.shape[1]:
        n_bytes = csr.data.nbytes + csr.indices.nbytes
        if _share_kept(csr, kept) * n_bytes <= max(COPY_LIMIT, COPY_SHARE * n_bytes):
            # Without the features left out, each batch is made in a fraction of the time.
            csr, standardizer = csr[:, kept], standardizer.of_kept
    return Entries(csr.indptr, csr.indices, csr.data), standardizer


def _share_kept(csr: Any, kept: NDArray[np.intp]) -> float:
    """Share of the entries that are in some columns."""
    n_of_column = np.zeros(csr.shape[1], np.int64)
    for part in gen_batches(csr.nnz, VALUES_AT_ONCE // 8):
        n_of_column += np.bincount(csr.indices[part], minlength=len(n_of_column))
    return float(n_of_column[kept].sum() / max(csr.nnz, 1))


def _share_of_values(X: Lazy, kept: NDArray[np.intp]) -> float:
    """Share of values other than 0 in the first rows of the columns that are kept."""
    _, rows = next(X.blocks())
    return float((np.asarray(rows)[:LOOKED_AT, kept] != 0).mean())


def _read_kept(X: Lazy, kept: NDArray[np.intp]) -> Entries:
    """Read some columns as CSR, into memory or, of more than the matrix says, into a file.

    Beside what comes of it, no more is in memory than one piece.
    """
    counts, dtype = [np.zeros(1, np.int64)], stored_as(X.dtype)
    limit = X.memory_limit / (4 + np.dtype(dtype).itemsize)
    for part, rows in X.blocks():
        csr = without_duplicates(sparse.csr_array(rows[:, kept]))
        if part.start == 0:
            # What will be too much in the end need not be in memory before.
            limit = limit if csr.nnz / csr.shape[0] * X.shape[0] <= limit else 0
            indices, data = Pieces(np.int32, limit), Pieces(dtype, limit)
        counts.append(np.diff(csr.indptr))
        indices.add(csr.indices)
        data.add(csr.data)
    return Entries(np.concatenate(counts).cumsum(), indices.joined(), data.joined())


def stored_as(dtype: np.dtype[Any]) -> type[np.floating]:
    """Return what values of a dtype are kept as, without loss."""
    return np.float32 if np.can_cast(dtype, np.float32) else np.float64

"""The part of the data that a training holds in memory."""

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
    indices: NDArray[np.integer]
    data: NDArray[Any]


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
    """Read some columns into memory, as CSR."""
    counts, n = [np.zeros(1, np.int64)], 0
    indices, data = np.empty(0, np.int32), np.empty(0, stored_as(X.dtype))
    for _, rows in X.blocks():
        csr = without_duplicates(sparse.csr_array(rows[:, kept]))
        counts.append(np.diff(csr.indptr))
        for array, part in ((indices, csr.indices), (data, csr.data)):
            if n + len(part) > len(array):
                # Resizing enlarges the memory in place where the system can: joining a list of
                # arrays would need all of it twice.
                array.resize(9 * (n + len(part)) // 8, refcheck=False)
            array[n : n + len(part)] = part
        n += csr.nnz
    for array in (indices, data):
        array.resize(n, refcheck=False)
    return Entries(np.concatenate(counts).cumsum(), indices, data)


def stored_as(dtype: np.dtype[Any]) -> type[np.floating]:
    """Return what values of a dtype are kept as, without loss."""
    return np.float32 if np.can_cast(dtype, np.float32) else np.float64

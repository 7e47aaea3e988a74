"""Matrices of the data: dense or CSR, in memory or read by rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from centroid_encoder.core.arrays import Codes

# Strings, because scipy's matrix classes cannot be subscripted before scipy 1.16.
CSR: TypeAlias = "sparse.csr_matrix[Any] | sparse.csr_array[Any]"
Matrix: TypeAlias = "NDArray[Any] | CSR"

CHUNK = 4096  # largest number of rows that are processed at once
VALUES_AT_ONCE = 2**24  # largest number of values of dense rows that are processed at once


class Lazy(ABC):
    """An (n, d) matrix that is not in memory: its rows are read when they are indexed."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    is_sparse: bool
    """Whether the rows that are read are CSR; otherwise they are dense."""

    @abstractmethod
    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Matrix:
        """Read the rows of a slice without a step, or those of (b,) sorted indices."""


def is_sparse(X: Matrix | Lazy) -> bool:
    """Return whether the rows of a matrix are CSR."""
    return X.is_sparse if isinstance(X, Lazy) else bool(sparse.issparse(X))


def chunks(n: int, size: int = CHUNK) -> Iterator[slice]:
    """Yield slices of at most `size` that divide n rows; none for 0 rows."""
    for start in range(0, n, size):
        yield slice(start, min(start + size, n))


def row_chunks(X: Matrix | Lazy, rows: Codes | None = None) -> Iterator[tuple[slice, Matrix]]:
    """Read the rows of X, or those of sorted indices `rows`, in chunks.

    Yields the rows of a chunk, preceded by the slice of their positions among all rows to be read.
    """
    n = X.shape[0] if rows is None else len(rows)
    values = VALUES_AT_ONCE * (8 if is_sparse(X) else 1)
    for part in chunks(n, max(1, min(CHUNK, values // max(X.shape[1], 1)))):
        yield part, X[part] if rows is None or n == X.shape[0] else X[rows[part]]


def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """(n, m) matrix product of (n, k) and (k, m) arrays, computed by torch.

    After a product, the threads of NumPy wait actively and slow down those of torch.
    """
    # Imported here because it is slow, and functions that read results do not need it.
    import torch

    left, right = (torch.from_numpy(np.asarray(x, dtype=np.float64)) for x in (a, b))
    return np.asarray(left @ right)


def looks_whole(X: Matrix | Lazy, above: float = 0) -> bool:
    """Return whether data are whole numbers of at least 0, except for a few imputed values.

    Only values of the first 200 rows that are not zero are tested: zeros are whole in
    log-normalised data, too. The largest must be above `above`: raw counts have values above 20.
    """
    rows = X[:200]
    values = rows.data if sparse.issparse(rows) else np.ravel(rows)
    values = values[np.isfinite(values) & (values != 0)]
    whole = (values % 1 == 0).mean() > 0.95 if len(values) else False
    return bool(whole and values.min() > 0 and values.max() > above)

"""Data that maps are trained on and applied to: dense or CSR, in memory or read by rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import gen_batches

# As text: scipy's matrices have no parameters at run time before scipy 1.16.
CSR: TypeAlias = "sparse.csr_matrix[Any] | sparse.csr_array[Any]"
Matrix: TypeAlias = "NDArray[Any] | CSR"
Codes: TypeAlias = NDArray[np.intp]

CHUNK = 4096
"""Rows that are processed together."""
VALUES_AT_ONCE = 2**24
"""Values of dense rows that are in memory together in float64, about."""
LOOKED_AT = 100_000
"""Values from which counts are recognised."""


class Lazy(ABC):
    """An (n, d) matrix that is not in memory: its rows are read when they are indexed."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    is_sparse: bool
    """Whether rows come as CSR; else they are dense."""

    @abstractmethod
    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Matrix:
        """Read the rows of a slice without a step, or those at (b,) sorted indices."""


def is_sparse(X: Matrix | Lazy) -> bool:
    """Return whether the rows of a matrix are CSR."""
    return X.is_sparse if isinstance(X, Lazy) else bool(sparse.issparse(X))


def row_chunks(X: Matrix | Lazy, rows: Codes | None = None) -> Iterator[tuple[slice, Matrix]]:
    """Read the rows of X, all or those at sorted indices, in chunks.

    Yields
    ------
    part
        Positions of the chunk's rows among the rows that are read.
    chunk
        The rows.
    """
    n = X.shape[0] if rows is None else len(rows)
    values = VALUES_AT_ONCE * (8 if is_sparse(X) else 1)
    for part in gen_batches(n, max(1, min(CHUNK, values // max(X.shape[1], 1)))):
        yield part, X[part] if rows is None or n == X.shape[0] else X[rows[part]]


def looks_like_counts(X: Matrix | Lazy) -> bool:
    """Return whether data look like raw counts: the first values are integers, some above 20."""
    values = _first_values(X)
    return _whole(values) and bool(values.max() > 20)


def looks_whole(X: Matrix | Lazy) -> bool:
    """Return whether data are whole numbers of at least 0, except for a few filled gaps."""
    return _whole(_first_values(X))


def _first_values(X: Matrix | Lazy) -> NDArray[Any]:
    """Nonzero finite values of the first rows: zeros are whole in log-normalised data, too."""
    found: list[NDArray[Any]] = [np.empty(0)]
    for _, rows in row_chunks(X):
        values = rows.data if sparse.issparse(rows) else np.ravel(rows)
        found.append(values[:LOOKED_AT])
        if sum(map(len, found)) >= LOOKED_AT:
            break
    values = np.concatenate(found)[:LOOKED_AT]
    return np.asarray(values[np.isfinite(values) & (values != 0)])


def _whole(values: NDArray[Any]) -> bool:
    return len(values) > 0 and bool((values > 0).all() and (values % 1 == 0).mean() > 0.95)


def without_duplicates(X: Matrix) -> Any:
    """Return CSR with one entry for each cell; several entries are legal and mean their sum."""
    if isinstance(X, np.ndarray) or X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X

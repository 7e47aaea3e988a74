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
LOOKED_AT = 200
"""Rows from which counts are recognised."""


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

    Yields the positions of the chunk's rows among the rows that are read, and the rows.
    """
    n = X.shape[0] if rows is None else len(rows)
    values = VALUES_AT_ONCE * (8 if is_sparse(X) else 1)
    n_rows = max(1, min(CHUNK, values // max(X.shape[1], 1)))
    for part in gen_batches(n, n_rows) if n else ():
        yield part, X[part] if rows is None or n == X.shape[0] else X[rows[part]]


def product(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.float64]:
    """(n, m) product of (n, k) and (k, m) arrays, by torch.

    After a product by NumPy, its threads wait for more work and take the processors from torch.
    """
    # Imported here, since it takes long, and readers of results do not need it.
    import torch

    left, right = (torch.from_numpy(np.asarray(x, dtype=np.float64)) for x in (a, b))
    return np.asarray(left @ right)


def looks_like_counts(X: Matrix | Lazy) -> bool:
    """Return whether data look like raw counts: the first values are integers, some above 20."""
    return looks_whole(X, above=20)


def looks_whole(X: Matrix | Lazy, above: float = 0) -> bool:
    """Return whether data are whole numbers of at least 0, except for a few filled gaps.

    Only the values of the first rows count that are not zero: zeros are whole in log-normalised
    data, too. At least one must be larger than `above`.
    """
    rows = X[:LOOKED_AT]
    values = rows.data if sparse.issparse(rows) else np.ravel(rows)
    values = values[np.isfinite(values) & (values != 0)]
    whole = (values % 1 == 0).mean() > 0.95 if len(values) else False
    return bool(whole and values.min() > 0 and values.max() > above)

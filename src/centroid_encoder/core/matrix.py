"""What a map is trained on and asked about: dense or CSR, in memory or read a part at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

# As text: scipy's matrices have no parameters at run time before scipy 1.16.
CSR: TypeAlias = "sparse.csr_matrix[Any] | sparse.csr_array[Any]"
Matrix: TypeAlias = "NDArray[Any] | CSR"

LOOKED_AT = 100_000
"""Values that tell whether they are counts."""
VALUES_AT_ONCE = 2**24
"""Values of dense rows that are read together, at most."""


class Lazy(ABC):
    """An (n, d) matrix that is not in memory: rows are read whenever they are asked for."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    is_sparse: bool
    """Whether rows come as CSR; else they are dense."""

    @abstractmethod
    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Matrix:
        """Read rows: those of a slice without a step, or those at (b,) indices in any order."""

    @abstractmethod
    def blocks(self) -> Iterator[tuple[slice, Matrix]]:
        """Read all rows in order, as many at once as are quickly read."""


def is_sparse(X: Matrix | Lazy) -> bool:
    """Tell whether the rows of a matrix are CSR."""
    return X.is_sparse if isinstance(X, Lazy) else bool(sparse.issparse(X))


def looks_like_counts(X: Matrix | Lazy) -> bool:
    """Tell whether data are raw counts, by their first values: integers, some of them large."""
    values = _first_values(X)
    return _whole(values) and bool(values.max() > 20)


def looks_whole(X: Matrix | Lazy) -> bool:
    """Tell whether data are whole numbers of at least 0, but for a few filled gaps."""
    return _whole(_first_values(X))


def _first_values(X: Matrix | Lazy) -> NDArray[Any]:
    # Enough to tell, and no copy of all. Zeros are whole whatever has been done to counts.
    if isinstance(X, Lazy):
        values, blocks = np.empty(0, X.dtype), X.blocks()
        while len(values) < LOOKED_AT and (block := next(blocks, None)) is not None:
            values = np.append(values, _stored(block[1])[:LOOKED_AT])
    else:
        values = _stored(X)
    values = values[:LOOKED_AT]
    found: NDArray[Any] = values[np.isfinite(values) & (values != 0)]
    return found


def _stored(X: Matrix) -> NDArray[Any]:
    """Return values in row order, of CSR those that are stored, of dense data some of the first."""
    if sparse.issparse(X):
        return X.data
    return np.ravel(X[: LOOKED_AT // X.shape[1] + 1])


def _whole(values: NDArray[Any]) -> bool:
    return len(values) > 0 and bool((values > 0).all() and (values % 1 == 0).mean() > 0.95)


def without_duplicates(X: Matrix) -> Any:
    """Return CSR with one entry for each cell; several, which are legal, stand for their sum."""
    if isinstance(X, np.ndarray) or X.has_canonical_format:
        return X
    X = X.copy()
    X.sum_duplicates()
    return X

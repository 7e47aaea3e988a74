"""A matrix that is read by rows, like data on disk."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from centroid_encoder.core.matrix import Lazy, Matrix


class StoredRows(Lazy):
    """A dense or CSR matrix that accepts only the indices of `Lazy`, and counts the rows read."""

    def __init__(self, X: Matrix) -> None:
        self.X, self.shape, self.dtype = X, X.shape, X.dtype
        self.is_sparse = sparse.issparse(X)
        self.n_read = 0

    def __getitem__(self, rows: Any) -> Matrix:
        if isinstance(rows, slice):
            assert rows.step is None
        else:
            assert (np.diff(rows) > 0).all(), "an index must be sorted"
        found = self.X[rows]
        self.n_read += found.shape[0]
        return found

"""A matrix that is read by rows, as data on disk are."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from centroid_encoder.core.matrix import Lazy, Matrix


class StoredRows(Lazy):
    """Rows of a dense or CSR matrix; it accepts only what `Lazy` allows as an index."""

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

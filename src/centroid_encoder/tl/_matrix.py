"""Matrices of an AnnData: loaded or read by parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from centroid_encoder.core.arrays import Codes, Doubles, Mask
from centroid_encoder.core.gaps import count_gaps, fill, means_without_gaps
from centroid_encoder.core.matrix import Lazy, Matrix
from centroid_encoder.errors import InputError, check

issparse: Callable[[Any], bool] = sparse.issparse

BLOCK = 2**25
"""Approximate size, in bytes, of the rows that are read together; chunks of dask are not cut."""


def usable(X: Any) -> Any:
    """Return sparse data that scipy can slice; anything else is returned as it is."""
    if not issparse(X) or X.format not in ("csr", "csc"):
        return X
    # scipy cannot slice half precision. If the dtypes of indices and pointers differ, as in some
    # files, it converts all indices for each slice; the constructor converts them once.
    data = X.data.astype(np.float32) if X.dtype == np.float16 else X.data
    copy = type(X)((data, X.indices, X.indptr), shape=X.shape)
    try:
        # scipy would read and write outside its arrays.
        copy.check_format(full_check=True)
    except ValueError as error:
        raise InputError(f"a sparse matrix is damaged: {error}") from error
    return copy


def in_memory(X: Any) -> Matrix:
    """Return a dense or CSR matrix from a view, a file, a dask array or a DataFrame."""
    for method in ("compute", "to_memory"):
        X = getattr(X, method)() if hasattr(X, method) else X
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X.astype(np.float64), np.nan)
    if isinstance(X, pd.DataFrame) and np.asarray(X).dtype == object:
        # Nullable numbers, or numbers and booleans.
        numbers = X.convert_dtypes()
        if all(map(pd.api.types.is_numeric_dtype, numbers.dtypes)):
            return np.asarray(numbers.to_numpy(dtype=np.float64, na_value=np.nan))
    return usable(X).tocsr() if issparse(X) else np.asarray(X)


@dataclass
class LazyMatrix(Lazy):
    """Rows and columns of a matrix that is not in memory, read in blocks of consecutive rows.

    The last block is kept in memory, so that slices in increasing order read each block once. An
    InputError is raised for data that cannot be read by rows: CSC, or dask chunks of columns.
    """

    X: Any
    where: str = "X"
    """Name of the matrix."""
    rows: Codes | None = None
    """(n,) sorted rows to use; None for all."""
    columns: Codes | None = None
    """(d,) columns to use; None for all."""
    means: Doubles | None = None
    """(d,) values that replace NaN and inf in each column; None to keep NaN and inf."""
    _kept: tuple[int, Any] = field(default=(-1, None), init=False, repr=False)

    def __post_init__(self) -> None:
        X, is_stored = self.X, hasattr(self.X, "to_memory")
        text = f"{self.where} is a dask array whose chunks hold some of the columns; chunk it by"
        cure = "rows first, e.g. adata.X = adata.X.rechunk((4096, -1))"
        check(not hasattr(X, "dask") or X.numblocks[1] == 1, f"{text} {cure}")
        text = f"{self.where} is stored by columns (CSC); store it by rows first: read all into"
        cure = "memory, convert it, e.g. adata.X = adata.X.tocsr(), and write it again"
        check(not is_stored or X.format != "csc", f"{text} {cure}")
        n, d = X.shape
        self.is_sparse = is_stored or issparse(getattr(X, "_meta", None))
        half = self.is_sparse and X.dtype == np.float16
        self.dtype = np.dtype(np.float32 if half else X.dtype)
        # CSR has an index for each value. A sparse dask array is assumed to store a tenth of them.
        n_values = d / 5 if self.is_sparse else d
        if is_stored:
            n_values = 2 * X.group["data"].shape[0] / max(n, 1)
        n_rows = int(BLOCK / max(1, n_values * self.dtype.itemsize))
        self._bounds = _block_bounds(X, max(1, n_rows))
        self.shape = (
            n if self.rows is None else len(self.rows),
            d if self.columns is None else len(self.columns),
        )

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Matrix:
        """Read the rows of a slice, or those at sorted indices."""
        index = np.arange(*rows.indices(self.shape[0])) if isinstance(rows, slice) else rows
        if self.rows is not None:
            index = self.rows[index]
        cuts = np.searchsorted(index, self._bounds)
        parts: list[Any] = [
            self._block(i)[index[cuts[i] : cuts[i + 1]] - self._bounds[i]]
            for i in np.flatnonzero(np.diff(cuts)).tolist()
        ] or [self._block(0)[:0]]
        if len(parts) > 1:
            parts = [sparse.vstack(parts, "csr") if self.is_sparse else np.concatenate(parts)]
        found: Matrix = parts[0]
        return found

    def _block(self, i: int) -> Any:
        kept, block = self._kept  # Another thread can replace it at any time.
        if kept != i:
            self._kept, block = (-1, None), None  # Free the memory before the next block is read.
            block = in_memory(self.X[self._bounds[i] : self._bounds[i + 1]])
            if self.columns is not None:
                block = block[:, self.columns]
            if self.means is not None:
                block = fill(block, self.means)
            self._kept = i, block
        return block


def _block_bounds(X: Any, n_rows: int) -> Codes:
    """Return the first rows of blocks of about `n_rows`, and the number of all rows.

    The blocks begin at borders of chunks of the file or dask array.
    """
    n = int(X.shape[0])
    chunk = (getattr(X, "chunks", None) or (1,))[0]
    if isinstance(chunk, tuple):
        ends = np.cumsum(chunk)
        starts = ends[np.searchsorted(ends, np.arange(n_rows, n, n_rows))]
    else:
        # A chunk that is far larger than a block is read several times, to save memory.
        starts = np.arange(0, n, n_rows if chunk > 4 * n_rows else -(-n_rows // chunk) * chunk)
    return np.unique(np.r_[0, starts, n])


def fill_missing(X: Matrix | Lazy, train: Mask) -> Matrix | Lazy:
    """Replace NaN and inf by the mean of the feature's finite values in the training cells.

    `train` is an (n,) mask. X is copied only if there is something to fill. A feature without any
    finite training value is filled with 0.
    """
    if not isinstance(X, LazyMatrix) and not count_gaps(X).any():
        return X
    means = means_without_gaps(X, train)
    return replace(X, means=means) if isinstance(X, LazyMatrix) else fill(X, means)

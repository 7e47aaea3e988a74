"""Matrices of an AnnData that are not in memory: in files, zarr stores and dask arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from centroid_encoder.core.matrix import Lazy, Matrix, is_sparse
from centroid_encoder.errors import InputError

BLOCK = 2**25
"""Bytes of rows that are read together, about; dask's chunks and zarr's are read as they are."""
LARGEST_BLOCK = 2**27
"""Bytes of the rows of a dask array that are read together, at most, where its chunks hold some of
the columns."""
FULL = 0.1
"""Share of values other than 0 that is supposed where a sparse matrix does not tell how many."""


def is_lazy(X: Any) -> bool:
    """Tell whether a matrix is not in memory: of dask, or in an HDF5 file or a zarr store."""
    # Arrays of dask, h5py and zarr have chunks; sparse ones of AnnData go to memory.
    return hasattr(X, "chunks") or hasattr(X, "to_memory")


def is_by_columns(X: Any) -> bool:
    """Tell whether the rows of a dask array's chunks are too many to be put together whole."""
    return bool(X.numblocks[1] > 1 and max(X.chunks[0]) * _row_bytes(X) > LARGEST_BLOCK)


def bytes_in_memory(X: Any) -> int:
    """Bytes that what `is_lazy` would take in memory; of sparse dask arrays, about."""
    if hasattr(X, "compute"):
        return _row_bytes(X) * int(X.shape[0])
    if hasattr(X, "to_memory"):
        return _n_bytes(X.group["data"]) + _n_bytes(X.group["indices"])
    return int(X.dtype.itemsize * X.shape[0] * X.shape[1])


def in_memory(X: Any) -> Matrix:
    """Return a dense or CSR matrix, whatever AnnData holds: views, backed, dask, frames."""
    if hasattr(X, "compute") or hasattr(X, "to_memory"):
        X = X.compute() if hasattr(X, "compute") else X.to_memory()
    if sparse.issparse(X):
        return cast("sparse.csr_array[Any]", usable(cast(Any, X).tocsr()))
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X.astype(np.float64), np.nan)
    return np.asarray(X)


def is_half(X: Any) -> bool:
    """Tell whether a matrix is sparse and of half precision: scipy takes no rows, nor copies it."""
    return sparse.issparse(X) and cast(Any, X).dtype == np.float16


def usable(X: Any) -> Any:
    """Return a sparse matrix in single precision if it is in half, and with indices of one type.

    Files may have two types of indices; scipy would then convert all of them at each look at some
    rows.
    """
    if is_half(X):
        X = X.astype(np.float32)
    if sparse.issparse(X) and cast(Any, X).format in ("csr", "csc"):
        compressed = cast(Any, X)
        if compressed.indices.dtype != compressed.indptr.dtype:
            parts = compressed.data, compressed.indices, compressed.indptr
            return type(compressed)(parts, compressed.shape)
    return X


@dataclass
class LazyMatrix(Lazy):
    """Some rows and columns of a matrix that is not in memory.

    The block that was read last is kept: whoever reads on finds the next rows in it.
    """

    source: Rows
    rows: NDArray[np.intp] | None = None
    """(n,) sorted rows that it consists of; None for all."""
    columns: NDArray[np.intp] | None = None
    """(d,) columns that it consists of; None for all."""
    fill: NDArray[np.float64] | None = None
    """(d,) what is put in the place of NaN and inf; None for nothing."""
    _kept: tuple[int, Matrix] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        n, d = self.source.shape
        self.shape = (
            n if self.rows is None else len(self.rows),
            d if self.columns is None else len(self.columns),
        )
        first = self._block(0)
        self.dtype, self.is_sparse = first.dtype, is_sparse(first)

    @classmethod
    def of(cls, X: Any, where: str) -> LazyMatrix:
        """Prepare to read a matrix that is not in memory.

        Parameters
        ----------
        X
            A matrix for which `is_lazy` is true.
        where
            Its name in the AnnData, for the message.

        Raises
        ------
        InputError
            If it is stored by columns.
        """
        if hasattr(X, "compute"):
            if is_by_columns(X):
                raise InputError(
                    f"{where} is a dask array whose chunks hold some of the columns; chunk it by "
                    "rows first, e.g. adata.X = adata.X.rechunk((4096, -1))"
                )
            return cls(_of_dask(X))
        n_bytes = bytes_in_memory(X)
        if hasattr(X, "to_memory"):
            if X.format == "csc":
                raise InputError(
                    f"{where} is stored by columns (CSC); store it by rows first: read all into "
                    "memory, convert it, e.g. adata.X = adata.X.tocsr(), and write it again"
                )
            return cls(Rows(X, _regular(X.shape[0], n_bytes)))
        return cls(Rows(X, _regular(X.shape[0], n_bytes, X.chunks[0] if X.chunks else 1)))

    def selected(
        self, *, rows: NDArray[np.intp] | None = None, columns: NDArray[np.intp] | None = None
    ) -> LazyMatrix:
        """Return some of the rows, in their order, or some of the columns."""
        if rows is not None:
            return replace(self, rows=rows if self.rows is None else self.rows[rows])
        return replace(self, columns=columns if self.columns is None else self.columns[columns])

    def filled(self, values: NDArray[np.float64]) -> LazyMatrix:
        """Return the same with (d,) values in the place of NaN and inf."""
        return replace(self, fill=values)

    def blocks(self) -> Iterator[tuple[slice, Matrix]]:
        """Read all rows in order, as many at once as are quickly read."""
        bounds = self.source.bounds
        first = bounds if self.rows is None else np.searchsorted(self.rows, bounds)
        for i, (start, stop) in enumerate(pairwise(first.tolist())):
            if start == stop:
                continue
            block = self._block(i)
            if self.rows is not None:
                block = block[self.rows[start:stop] - bounds[i]]
            yield slice(start, stop), block

    def __getitem__(self, rows: slice | NDArray[np.integer]) -> Matrix:
        """Read rows: those of a slice without a step, or those at (b,) indices in any order."""
        if isinstance(rows, slice):
            rows = np.arange(*rows.indices(self.shape[0]))
        index = np.asarray(rows) if self.rows is None else self.rows[rows]
        order = None
        if (np.diff(index) < 0).any():
            order = np.argsort(index, kind="stable")
            index = index[order]
        bounds = self.source.bounds
        cuts = np.searchsorted(index, bounds)
        parts = []
        for i in np.flatnonzero(np.diff(cuts)).tolist():
            inside = index[cuts[i] : cuts[i + 1]] - bounds[i]
            block = self._block(i)
            together = bool((np.diff(inside) == 1).all())
            parts.append(block[inside[0] : inside[-1] + 1] if together else block[inside])
        found: Matrix = _stacked(parts or [self._block(0)[:0]])
        if order is not None:
            back = np.empty_like(order)
            back[order] = np.arange(len(order))
            found = found[back]
        return found

    def _block(self, i: int) -> Matrix:
        if self._kept is None or self._kept[0] != i:
            # The old one must not be in memory together with the new one.
            self._kept = None
            start, stop = self.source.bounds[i : i + 2].tolist()
            block: Any = usable(self.source.read(start, stop))
            if self.columns is not None:
                block = block[:, self.columns]
            self._kept = i, block if self.fill is None else _filled(block, self.fill)
        return self._kept[1]


@dataclass(frozen=True)
class Rows:
    """A matrix that can be read by rows, and the blocks of rows that are quickly read."""

    X: Any
    bounds: NDArray[np.intp]
    """(n_blocks + 1,) first row of each block, and the number of rows."""

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix."""
        return cast(tuple[int, int], self.X.shape)

    def read(self, start: int, stop: int) -> Matrix:
        """Read rows."""
        return in_memory(self.X[start:stop])


def _of_dask(X: Any) -> Rows:
    rows, size = np.cumsum([0, *X.chunks[0]]), _row_bytes(X)
    # Several chunks together, as long as they are small.
    wanted = np.arange(0, rows[-1] + 1, max(1, BLOCK // max(1, size)))
    at = np.unique(rows[np.searchsorted(rows, wanted, side="right") - 1])
    return Rows(X, np.unique(np.append(at, rows[-1])))


def _row_bytes(X: Any) -> int:
    """Bytes of a row of a dask array, about."""
    size = int(X.dtype.itemsize * X.shape[1])
    # An entry takes its column as well.
    return int(FULL * size * (1 + 4 / X.dtype.itemsize)) if sparse.issparse(X._meta) else size


def _n_bytes(array: Any) -> int:
    return int(array.dtype.itemsize) * int(array.shape[0])


def _regular(n_rows: int, n_bytes: int, multiple: int = 1) -> NDArray[np.intp]:
    """Bounds of blocks of as many rows each, a multiple if they are not much larger for it."""
    n = max(1, BLOCK * n_rows // max(n_bytes, 1))
    if multiple <= 4 * n:
        n = max(1, n // multiple) * multiple
    return np.append(np.arange(0, n_rows, n), n_rows)


def _stacked(parts: Sequence[Any]) -> Any:
    if len(parts) == 1:
        return parts[0]
    return (
        np.concatenate(parts)
        if isinstance(parts[0], np.ndarray)
        else sparse.vstack(parts, format="csr")
    )


def _filled(block: Any, values: NDArray[np.float64]) -> Any:
    stored = block.data if is_sparse(block) else block
    bad = ~np.isfinite(stored) if stored.dtype.kind == "f" else np.zeros(1, bool)
    if not bad.any():
        return block
    # It may be the caller's own.
    block = block.copy()
    if is_sparse(block):
        block.data[bad] = values[block.indices[bad]]
    else:
        block[bad] = values[np.nonzero(bad)[1]]
    return block

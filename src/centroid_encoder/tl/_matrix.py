"""Matrices as AnnData holds them: in memory, numbers, without gaps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import gen_batches

from centroid_encoder.core.rows import Matrix
from centroid_encoder.errors import InputError, InputTypeError, Message, Setting

ROWS = 64
"""Rows that are looked at together to see whether they differ."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Cells that a job reads."""

    X: Any
    """(n, d) matrix, as the AnnData has it until it is `detached`."""
    obs_names: pd.Index

    def detached(self) -> Self:
        """Return the same with a matrix of their own, in memory."""
        return replace(self, X=in_memory(self.X) if is_lazy(self.X) else self.X.copy())


def is_lazy(X: Any) -> bool:
    """Tell whether a matrix is a dask array or on disk."""
    return hasattr(X, "compute") or hasattr(X, "to_memory")


def in_memory(X: Any) -> Matrix:
    """Return a dense or CSR matrix, whatever AnnData holds: views, backed, dask, frames."""
    if is_lazy(X):
        X = X.compute() if hasattr(X, "compute") else X.to_memory()
    if sparse.issparse(X):
        return cast("sparse.csr_array[Any]", cast(Any, X).tocsr())
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X.astype(np.float64), np.nan)
    return np.asarray(X)


def is_half(X: Any) -> bool:
    """Tell whether a matrix is sparse and of half precision: scipy takes no rows, nor copies it."""
    return sparse.issparse(X) and cast(Any, X).dtype == np.float16


def in_single(X: Any) -> Any:
    """Return a sparse matrix of half precision in single."""
    return X.astype(np.float32) if is_half(X) else X


def check_real(X: Matrix, where: str) -> None:
    """Raise a TypeError for what holds no real numbers."""
    if X.dtype.kind not in "biuf":
        raise InputTypeError(f"{where} holds values of dtype {X.dtype}, not real numbers")


def has_gaps(X: Matrix) -> bool:
    """Tell whether there is NaN or inf."""
    values = X.data if sparse.issparse(X) else X
    return values.dtype.kind == "f" and not bool(np.isfinite(values).all())


def check_finite(
    X: Matrix,
    where: str,
    obs_names: pd.Index,
    names: NDArray[np.object_] | None,
    advice: Message,
) -> None:
    """Raise a ValueError that counts NaN and infinite values and names the first, if any.

    Parameters
    ----------
    X, where
        The matrix, and what it is called.
    obs_names, names
        Names of rows and columns.
    advice
        What to do about them.
    """
    if not has_gaps(X):
        return
    rows, columns = not_finite(X)
    n_nan = int(np.isnan(X.data if sparse.issparse(X) else X).sum())
    raise InputError(
        "{} has {} NaN and {} infinite values in {} of {} cells; the first is {} of cell {!r}{}",
        where,
        n_nan,
        len(rows) - n_nan,
        len(np.unique(rows)),
        X.shape[0],
        repr(names[columns[0]]) if names is not None else f"column {columns[0]}",
        obs_names[rows[0]],
        advice,
    )


def check_varied(X: Matrix, where: str) -> None:
    """Raise a ValueError if all rows are the same, such as zeros; mostly the first few tell."""
    for part in gen_batches(X.shape[0], ROWS):
        rows: Any = X[part]
        rows = rows.toarray() if sparse.issparse(X) else rows
        if part.start == 0:
            first = rows[:1]
        if (rows != first).any():
            return
    raise InputError(
        "{} has the same values in all cells{}: there is nothing to learn from; name the {}, {} or "
        "{} where the values are",
        where,
        "" if first.any() else ", zeros",
        Setting("layer"),
        Setting("use_rep"),
        Setting("use_raw"),
    )


def fill_missing(X: Matrix, train: NDArray[np.bool_]) -> Matrix:
    """Put the mean of the feature's finite training values in place of NaN and inf.

    A copy is made only if there is something to fill. A feature without any finite training value
    becomes 0.
    """
    if not has_gaps(X):
        return X
    X = X.copy()
    rows, columns = not_finite(X)
    for column in np.unique(columns):
        known: Any = X[train, column]
        known = known.toarray() if sparse.issparse(X) else known
        known = known[np.isfinite(known)]
        mean = known.mean(dtype=np.float64) if len(known) else 0.0
        X[rows[columns == column], column] = mean
    return X


def not_finite(X: Matrix) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the values that are NaN or inf, in row order."""
    if not sparse.issparse(X):
        return cast(tuple[NDArray[np.intp], NDArray[np.intp]], np.nonzero(~np.isfinite(X)))
    stored = np.flatnonzero(~np.isfinite(X.data))
    rows = np.searchsorted(X.indptr, stored, side="right") - 1
    return rows, X.indices[stored].astype(np.intp)

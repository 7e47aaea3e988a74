"""Matrices that are read of an AnnData: numbers, without gaps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils import gen_batches

from centroid_encoder.core.matrix import Lazy, Matrix, is_sparse
from centroid_encoder.errors import InputError, InputTypeError, Message, Setting
from centroid_encoder.tl._lazy import LazyMatrix

ROWS = 64
"""Rows that are looked at together to see whether they differ."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Cells that a job reads."""

    X: Any
    """(n, d) matrix; what is in memory is the AnnData's own until it is `detached`."""
    obs_names: pd.Index

    def detached(self) -> Self:
        """Return the same with a matrix of their own; what is not in memory stays where it is."""
        return self if isinstance(self.X, Lazy) else replace(self, X=self.X.copy())


def parts(X: Matrix | Lazy) -> Iterator[tuple[slice, Matrix]]:
    """Take a matrix as it is or, of what is not in memory, a part after the other."""
    if isinstance(X, Lazy):
        yield from X.blocks()
    else:
        yield slice(0, X.shape[0]), X


def check_real(X: Matrix | Lazy, where: str) -> None:
    """Raise a TypeError for what holds no real numbers."""
    if X.dtype.kind not in "biuf":
        raise InputTypeError(f"{where} holds values of dtype {X.dtype}, not real numbers")


def has_gaps(X: Matrix | Lazy) -> bool:
    """Tell whether there is NaN or inf."""
    return X.dtype.kind == "f" and any(_has_gaps(rows) for _, rows in parts(X))


def _has_gaps(X: Matrix) -> bool:
    return not bool(np.isfinite(X.data if sparse.issparse(X) else X).all())


def check_finite(
    X: Matrix | Lazy,
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
    first, n_values, n_nan, n_rows = None, 0, 0, 0
    for part, x in parts(X) if X.dtype.kind == "f" else ():
        if _has_gaps(x):
            rows, columns = _not_finite(x)
            first = (part.start + rows[0], columns[0]) if first is None else first
            n_values += len(rows)
            n_nan += int(np.isnan(x.data if sparse.issparse(x) else x).sum())
            n_rows += len(np.unique(rows))
    if first is None:
        return
    row, column = first
    raise InputError(
        "{} has {} NaN and {} infinite values in {} of {} cells; the first is {} of cell {!r}{}",
        where,
        n_nan,
        n_values - n_nan,
        n_rows,
        X.shape[0],
        repr(names[column]) if names is not None else f"column {column}",
        obs_names[row],
        advice,
    )


def check_varied(X: Matrix | Lazy, where: str) -> None:
    """Raise a ValueError if all rows are the same, such as zeros; mostly the first few tell."""
    for part in gen_batches(X.shape[0], ROWS):
        rows: Any = X[part]
        rows = rows.toarray() if is_sparse(X) else rows
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


def fill_missing(X: Matrix | Lazy, train: NDArray[np.bool_]) -> Matrix | Lazy:
    """Put the mean of the feature's finite training values in place of NaN and inf.

    A copy is made only if there is something to fill. A feature without any finite training value
    becomes 0.
    """
    gaps = columns_with_gaps(X)
    if not gaps.any():
        return X
    means = _known_means(X, train, gaps)
    if isinstance(X, LazyMatrix):
        return X.filled(means)
    filled: Any = cast(Matrix, X).copy()
    rows, columns = _not_finite(filled)
    if is_sparse(filled):
        filled.data[~np.isfinite(filled.data)] = means[columns]
    else:
        filled[rows, columns] = means[columns]
    return cast(Matrix, filled)


def columns_with_gaps(X: Matrix | Lazy) -> NDArray[np.bool_]:
    """(d,) columns with NaN or inf."""
    found = np.zeros(X.shape[1], dtype=bool)
    if X.dtype.kind == "f":
        for _, rows in parts(X):
            if _has_gaps(rows):
                found[_not_finite(rows)[1]] = True
    return found


def _known_means(
    X: Matrix | Lazy, train: NDArray[np.bool_], columns: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """(d,) means of the finite training values of some columns; 0 for the others."""
    sums, n_missing = np.zeros(X.shape[1]), np.zeros(X.shape[1], dtype=np.intp)
    n_train = int(train.sum())
    for part, rows in parts(X):
        x: Any = rows[train[part]]
        if is_sparse(x):
            of_columns = columns[x.indices]
            values, at = x.data[of_columns], x.indices[of_columns]
        else:
            x = x[:, columns]
            values, at = x.ravel(), np.tile(np.flatnonzero(columns), len(x))
        known = np.isfinite(values)
        # One after the other, so that sums are the same whatever the parts are.
        np.add.at(sums, at[known], values[known].astype(np.float64))
        n_missing += np.bincount(at[~known], minlength=len(sums))
    return np.asarray(np.where(n_missing < n_train, sums / np.maximum(n_train - n_missing, 1), 0))


def rows_with_gaps(X: Matrix | Lazy, least: int) -> NDArray[np.bool_]:
    """(n,) rows with at least so many values that are NaN or inf."""
    n_gaps = np.zeros(X.shape[0], dtype=np.intp)
    if X.dtype.kind == "f":
        for part, rows in parts(X):
            if _has_gaps(rows):
                n_gaps[part] += np.bincount(_not_finite(rows)[0], minlength=rows.shape[0])
    return n_gaps >= least


def _not_finite(X: Matrix) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the values that are NaN or inf, in row order."""
    if not sparse.issparse(X):
        return cast(tuple[NDArray[np.intp], NDArray[np.intp]], np.nonzero(~np.isfinite(X)))
    stored = np.flatnonzero(~np.isfinite(X.data))
    rows = np.searchsorted(X.indptr, stored, side="right") - 1
    return rows, X.indices[stored].astype(np.intp)

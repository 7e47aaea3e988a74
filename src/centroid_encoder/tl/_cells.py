"""What is read from an AnnData, checked before anything is computed."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from centroid_encoder.core.rows import Matrix, looks_like_counts
from centroid_encoder.errors import Message

if TYPE_CHECKING:
    from anndata import AnnData

Missing = Literal["error", "drop", "mean"]

logger = logging.getLogger("centroid_encoder")


@dataclass(frozen=True)
class Labels:
    """A label column as class indices."""

    codes: NDArray[np.intp]
    """(n_obs,) index into `classes`; −1 for unlabeled cells."""
    classes: pd.Index
    """Classes with at least one cell, in category order."""
    categories: pd.Index
    """All categories of the column, empty ones included."""


@dataclass(frozen=True)
class Features:
    """The matrix to learn from."""

    X: Matrix
    """(n_obs, d), dense or CSR, as it is in the AnnData."""
    names: NDArray[np.object_] | None
    """(d,) names of the variables; None for a representation in `obsm`."""
    left_out: NDArray[np.bool_]
    """(n_obs,) cells to leave out, since they have missing values."""
    notices: tuple[Message, ...] = ()
    """What to warn of."""


def read_labels(adata: AnnData, label_key: str, unlabeled_category: str | None) -> Labels:
    """Read an `obs` column as classes.

    Raises
    ------
    KeyError
        If there is no such column; near matches are named.
    TypeError
        If the column holds measurements rather than classes.
    ValueError
        If there are no cells, if fewer than two classes have some, or if `unlabeled_category` does
        not occur.
    """
    if not adata.n_obs:
        raise ValueError("adata has no cells")
    column = obs_column(adata, label_key)
    if not isinstance(column.dtype, pd.CategoricalDtype):
        values = column.dropna()
        if pd.api.types.is_float_dtype(column.dtype) and (values % 1 != 0).any():
            raise TypeError(
                f"obs[{label_key!r}] holds fractional numbers ({values.nunique()} different "
                "ones), not classes; to use bins of it, cut it first, e.g. with pandas.cut"
            )
        if pd.api.types.is_numeric_dtype(column.dtype) and values.nunique() > max(
            10, len(values) / 10
        ):
            raise TypeError(
                f"obs[{label_key!r}] has {values.nunique()} different numbers in {len(values)} "
                "cells; this looks like a measurement or an identifier, not like classes"
            )
        if pd.api.types.is_float_dtype(column.dtype):
            column = column.astype("Int64")
        column = column.astype("category")
    categories = column.cat.categories
    if unlabeled_category is not None:
        if unlabeled_category not in categories:
            raise ValueError(
                f"unlabeled_category {unlabeled_category!r} does not occur in obs[{label_key!r}]"
                + _near(unlabeled_category, map(str, categories))
            )
        # remove_categories would sort those that stay.
        labels = [name for name in categories if name != unlabeled_category]
        column = column.cat.set_categories(labels)
    used = column.cat.remove_unused_categories()
    if not len(used.cat.categories):
        raise ValueError(f"no cell has a label in obs[{label_key!r}]")
    if len(used.cat.categories) == 1:
        raise ValueError(
            f"obs[{label_key!r}] has one class only ({used.cat.categories[0]!r}); "
            "a supervised embedding needs two or more"
        )
    # The subclass np.str_ is a string as well, and a bool is an int.
    kinds = {
        next((kind for kind in (str, bool, int) if isinstance(name, kind)), type(name))
        for name in used.cat.categories.tolist()
    }
    if len(kinds) > 1 or not kinds <= {str, int, bool}:
        raise TypeError(
            f"the classes in obs[{label_key!r}] are of type "
            f"{' and '.join(sorted(kind.__name__ for kind in kinds))}; make them strings, e.g. "
            f"adata.obs[{label_key!r}].astype(str)"
        )
    codes = used.cat.codes.to_numpy().astype(np.intp)
    return Labels(codes, used.cat.categories, categories)


def read_groups(adata: AnnData, group_key: str, labeled: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Read an `obs` column as (n_obs,) group indices.

    Raises
    ------
    KeyError
        If there is no such column.
    ValueError
        If a labeled cell has no group, or if there is only one group.
    """
    codes, _ = pd.factorize(obs_column(adata, group_key))
    n_missing = int((codes[labeled] < 0).sum())
    if n_missing:
        raise ValueError(f"{n_missing} labeled cells have no value in obs[{group_key!r}]")
    if len(np.unique(codes[labeled])) < 2:
        raise ValueError(
            f"all labeled cells are in one group of obs[{group_key!r}]: none can be held out"
        )
    return np.asarray(codes, dtype=np.intp)


def read_features(
    adata: AnnData,
    *,
    use_rep: str | None,
    layer: str | None,
    mask_var: NDArray[np.bool_] | str | None,
    missing: Missing,
) -> Features:
    """Read the matrix to learn from; `adata` and its arrays stay as they are.

    Raises
    ------
    KeyError
        If a key does not exist; near matches are named.
    ValueError
        If there are no features, if names are not unique, or if values are missing and `missing`
        is ``"error"``.
    """
    if missing not in get_args(Missing):
        raise ValueError(f"missing must be 'error', 'drop' or 'mean'; got {missing!r}")
    if not adata.obs_names.is_unique:
        raise ValueError("obs_names are not unique; call adata.obs_names_make_unique() first")
    if use_rep is not None and use_rep != "X" and not (mask_var is None or _is_auto(mask_var)):
        raise ValueError("use_rep excludes layer and mask_var: a representation has neither")
    X, where, names = read_matrix(adata, use_rep=use_rep, layer=layer)
    of_variables = use_rep is None or use_rep == "X"
    if names is not None and of_variables:
        if not adata.var_names.is_unique:
            raise ValueError("var_names are not unique; call adata.var_names_make_unique() first")
        mask = _read_mask(adata, mask_var)
        if mask is not None:
            X, names = X[:, mask], names[mask]
    elif names is not None and len(set(names)) < len(names):
        raise ValueError(f"the columns of {where} have names that are not unique")
    if hasattr(X, "compute") or hasattr(X, "to_memory"):
        logger.info("    loading %s into memory", where)
    X = in_memory(X)
    if not X.shape[1]:
        raise ValueError(f"{where} has no features")
    if X.dtype.kind not in "biuf":
        raise TypeError(f"{where} holds values of dtype {X.dtype}, not real numbers")
    left_out = _find_missing(X, where, missing, adata.obs_names, names)
    notices: tuple[Message, ...] = ()
    if of_variables and looks_like_counts(X):
        counts = (
            "{} looks like raw counts; log-normalise first "
            "(sc.pp.normalize_total, sc.pp.log1p) unless you mean it"
        )
        notices = (Message(counts, where),)
    return Features(X, names, left_out, notices)


def read_matrix(
    adata: AnnData, *, use_rep: str | None, layer: str | None
) -> tuple[Any, str, NDArray[np.object_] | None]:
    """Return X, a layer or a representation as it is, what it is called, and its columns' names.

    Raises
    ------
    KeyError
        If a key does not exist; near matches are named.
    ValueError
        If both are given, or if there is no X.
    """
    if use_rep is not None and use_rep != "X":
        if layer is not None:
            raise ValueError("use_rep excludes layer and mask_var: a representation has neither")
        X = _entry(adata.obsm, use_rep, "obsm")
        names = None
        if isinstance(X, pd.DataFrame):
            names = X.columns.astype(str).to_numpy().astype(object)
        return X, f"obsm[{use_rep!r}]", names
    X = adata.X if layer is None else _entry(adata.layers, layer, "layers")
    if X is None:
        raise ValueError("adata.X is empty; name a layer or use_rep")
    where = "X" if layer is None else f"layers[{layer!r}]"
    return X, where, adata.var_names.to_numpy().astype(object)


def obs_column(adata: AnnData, key: str) -> pd.Series:
    """Return ``adata.obs[key]``, or raise a KeyError that names near matches."""
    if not isinstance(key, Hashable):
        raise TypeError(f"one column of obs is needed; got {key!r}")
    if key not in adata.obs:
        raise KeyError(f"obs has no column {key!r}" + _near(key, map(str, adata.obs.columns)))
    column = adata.obs[key]
    if isinstance(column, pd.DataFrame):
        raise ValueError(f"obs has {column.shape[1]} columns {key!r}; rename or drop all but one")
    return column


def _entry(mapping: Any, key: str, name: str) -> Any:
    if key not in mapping:
        raise KeyError(f"{name} has no {key!r}" + _near(key, mapping))
    return mapping[key]


def _near(word: object, others: Iterable[str]) -> str:
    others = list(others)
    near = difflib.get_close_matches(str(word), others, n=3, cutoff=0.5)
    if near:
        return "; did you mean " + " or ".join(map(repr, near)) + "?"
    if not others:
        return "; there are none"
    return "; there are " + ", ".join(others[:10]) + (" …" if len(others) > 10 else "")


def _read_mask(
    adata: AnnData, mask_var: NDArray[np.bool_] | str | None
) -> NDArray[np.bool_] | None:
    if mask_var is None:
        return None
    automatic = _is_auto(mask_var)
    if isinstance(mask_var, str):
        if automatic:
            if "highly_variable" not in adata.var:
                return None
            mask_var = "highly_variable"
        mask = np.asarray(_entry(adata.var, mask_var, "var"))
        name = f"var[{mask_var!r}]"
    else:
        if isinstance(mask_var, pd.Series) and not isinstance(mask_var.index, pd.RangeIndex):
            missing = adata.var_names.difference(mask_var.index)
            if len(missing) or not mask_var.index.is_unique:
                raise ValueError(
                    "mask_var is a Series whose index is not var_names"
                    + (f": it lacks {missing[0]!r}" if len(missing) else "")
                )
            mask_var = mask_var.reindex(adata.var_names)
        mask, name = np.asarray(mask_var), "mask_var"
    if mask.dtype != bool or mask.shape != (adata.n_vars,):
        raise ValueError(f"{name} must hold one bool for each of the {adata.n_vars} variables")
    if adata.n_vars and not mask.any():
        raise ValueError(f"{name} selects none of the {adata.n_vars} variables")
    if automatic:
        logger.info("    on the %d genes of %s (mask_var=None takes all)", int(mask.sum()), name)
    return mask


def _is_auto(mask_var: object) -> bool:
    return isinstance(mask_var, str) and mask_var == "auto"


def in_memory(X: Any) -> Matrix:
    """Return a dense or CSR matrix, whatever AnnData holds: views, backed, dask, frames."""
    if hasattr(X, "compute"):
        X = X.compute()
    elif hasattr(X, "to_memory"):
        X = X.to_memory()
    if sparse.issparse(X):
        return cast("sparse.csr_array[Any]", cast(Any, X).tocsr())
    if isinstance(X, np.ma.MaskedArray):
        return np.ma.filled(X.astype(np.float64), np.nan)
    return np.asarray(X)


def _find_missing(
    X: Matrix,
    where: str,
    missing: Missing,
    obs_names: pd.Index,
    names: NDArray[np.object_] | None,
) -> NDArray[np.bool_]:
    """(n_obs,) mask of the cells to leave out; an error that names the first bad value."""
    left_out = np.zeros(X.shape[0], dtype=bool)
    values = X.data if sparse.issparse(X) else X
    if missing == "mean" or values.dtype.kind != "f" or np.isfinite(values).all():
        return left_out
    if missing == "drop":
        rows, _ = _not_finite(X)
        left_out[rows] = True
        logger.info("    leaving out %d cells with NaN or inf", int(left_out.sum()))
        return left_out
    try:
        raise_not_finite(X, where, obs_names, names)
    except ValueError as error:
        raise ValueError(
            f"{error}. Pass missing='drop' to leave these cells out or missing='mean' to put the "
            "feature's mean in their place"
        ) from None
    return left_out


def raise_not_finite(
    X: Matrix, where: str, obs_names: pd.Index, names: NDArray[np.object_] | None
) -> None:
    """Raise a ValueError that counts NaN and infinite values and names the first, if any."""
    values = X.data if sparse.issparse(X) else X
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return
    rows, columns = _not_finite(X)
    n_nan = int(np.isnan(values).sum())
    feature = repr(names[columns[0]]) if names is not None else f"column {columns[0]}"
    raise ValueError(
        f"{where} has {n_nan} NaN and {len(rows) - n_nan} infinite values in "
        f"{len(np.unique(rows))} of {X.shape[0]} cells; the first is {feature} of cell "
        f"{obs_names[rows[0]]!r}"
    )


def fill_missing(X: Matrix, train: NDArray[np.bool_]) -> Matrix:
    """Put the mean of the feature's finite training values in place of NaN and inf.

    A copy is made only if there is something to fill. A feature without any finite training value
    becomes 0.
    """
    values = X.data if sparse.issparse(X) else X
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return X
    X = X.copy()
    rows, columns = _not_finite(X)
    for column in np.unique(columns):
        known: Any = X[train, column]
        known = known.toarray() if sparse.issparse(X) else known
        known = known[np.isfinite(known)]
        mean = known.mean(dtype=np.float64) if len(known) else 0.0
        X[rows[columns == column], column] = mean
    return X


def _not_finite(X: Matrix) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows and columns of the values that are NaN or inf, in row order."""
    if not sparse.issparse(X):
        return cast(tuple[NDArray[np.intp], NDArray[np.intp]], np.nonzero(~np.isfinite(X)))
    stored = np.flatnonzero(~np.isfinite(X.data))
    rows = np.searchsorted(X.indptr, stored, side="right") - 1
    return rows, X.indices[stored].astype(np.intp)

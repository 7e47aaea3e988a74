"""Columns, masks and names that users give: they are read and checked, with words for errors."""

from __future__ import annotations

import difflib
import logging
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any, get_args

import numpy as np
import pandas as pd
from anndata import AnnData

from centroid_encoder.core.arrays import Mask
from centroid_encoder.errors import InputError, InputTypeError, MissingKeyError, check, check_name
from centroid_encoder.tables import is_key, result_columns

BOOLEANS = {"false": 0, "0": 0, "0.0": 0, "true": 1, "1": 1, "1.0": 1}

logger = logging.getLogger("centroid_encoder")
# Without a handler, Python would print each warning a second time.
logger.addHandler(logging.NullHandler())


def obs_column(
    adata: AnnData, key: str, parameter: str | None = None, *, may_be_result: bool = True
) -> pd.Series:
    """Return ``adata.obs[key]``; `parameter` is the parameter that an error blames.

    Unless it `may_be_result`, an error offers no columns of results instead.
    """
    if parameter is not None:
        check_name(key, parameter, "a column of obs")
    check_read(adata)
    if key not in adata.obs:
        results = set() if may_be_result else result_columns(adata.obs)
        offered = [name for name in adata.obs if name not in results]
        check_known(key, offered, f"obs has no column {key!r}", parameter, MissingKeyError)
    column = adata.obs[key]
    text = f"obs has {column.shape[-1]} columns {key!r}; rename or drop all but one"
    check(isinstance(column, pd.Series), text, parameter)
    if column.dtype == object:
        try:
            column.unique()
        except TypeError as error:  # such as "unhashable type: 'list'"
            text = f"obs[{key!r}] holds no names or numbers ({error})"
            raise InputError(text, parameter=parameter) from error
    return column


def check_read(adata: AnnData) -> None:
    """Raise an InputError if `adata` is no AnnData, or if its columns are still in a file."""
    if not hasattr(adata, "obs_names"):
        remedy = "for arrays and tables there is CentroidEncoder().fit(X, y)"
        if isinstance(adata, str | os.PathLike):
            remedy = "read a file with anndata.read_h5ad (or read_zarr) first"
        raise InputTypeError(f"an AnnData is needed, not {type(adata).__name__}; {remedy}")
    text = "the columns of adata are not in memory, as after anndata.experimental.read_lazy; call"
    check(isinstance(adata.obs, pd.DataFrame), f"{text} adata = adata.to_memory() first", "adata")


def entry_of(mapping: Any, key: Any, slot: str, parameter: str | None, what: str = "") -> Any:
    """Return an entry of a slot of an AnnData; raise a KeyError if there is none."""
    check_known(key, mapping, f"{slot} has no {what}{key!r}", parameter, MissingKeyError)
    return mapping[key]


def check_known(
    name: object,
    names: Collection[Any],
    text: str,
    parameter: str | None = None,
    kind: type[Any] = InputError,
) -> None:
    """Raise an error with a text and similar names for a name that is not among others."""
    if name not in names:
        raise kind(text + near_matches(name, names), parameter)


def check_choice(parameter: str, value: object, choices: Any) -> None:
    """Raise an InputError for a value that is not among those of a Literal type."""
    text = f"{parameter} must be {' or '.join(map(repr, get_args(choices)))}; got {value!r}"
    check(value in get_args(choices), text, parameter)


def near_matches(word: object, names: Iterable[object]) -> str:
    """Return the end of a message about a missing name: similar names, or those that exist."""
    # In anndata 0.13, the layers contain X under the name None.
    others = [str(name) for name in names if name is not None]
    if near := difflib.get_close_matches(str(word), others, n=3, cutoff=0.5):
        return "; did you mean " + " or ".join(map(repr, near)) + "?"
    if not others:
        return "; there are none"
    return "; there are " + ", ".join(others[:10]) + (" …" if len(others) > 10 else "")


def listed(classes: pd.Index) -> str:
    """Return the names of up to ten classes, and the number of the others, as text."""
    names = ", ".join(repr(name) for name in classes[:10].tolist())
    return f"{names} and {len(classes) - 10} more" if len(classes) > 10 else names


def check_key(name: str, parameter: str) -> None:
    """Raise an InputError for a name that cannot be a key in ``.h5ad`` files and zarr stores."""
    check(is_key(name), f"{parameter} must not be {name!r}: files cannot hold that", parameter)


def read_mask(table: pd.DataFrame, slot: str, value: Any, parameter: str) -> Mask:
    """Return the rows of ``obs`` or ``var`` that a column, or a value for each row, selects."""
    name = parameter
    if isinstance(value, str):
        name, value = f"{slot}[{value!r}]", entry_of(table, value, slot, parameter)
    elif isinstance(value, pd.Series):
        names = f"{slot}_names"
        text = f"the index of {name} is not {names}; pass {name}.reindex(adata.{names})"
        check(value.index.equals(table.index), text, parameter)
    mask = as_mask(value)
    text = f"{name} must hold True or False for each of the {len(table)} rows of {slot}"
    if mask is None or len(mask) != len(table):
        raise InputError(f"{text}, True for some", parameter)
    return mask


def as_mask(values: Any) -> Mask | None:
    """Return a mask, False where a value is missing; None if it is none, or True nowhere.

    The values are booleans, the numbers 0 and 1, or text of these, in any type of column.
    """
    if np.ndim(values) != 1:
        return None
    found = as_booleans(pd.Series(values).reset_index(drop=True), {})
    return (found == 1).to_numpy() if (found != -1).all() and (found == 1).any() else None


def as_booleans(column: pd.Series, words: Mapping[str, int]) -> pd.Series:
    """Return 1 and 0 for the values of a mask, NaN where one is missing, and −1 for all others.

    `words` are further texts that stand for 0 and 1.
    """
    given = column.dropna()
    if given.dtype.kind not in "biuf":
        given = given.astype(str).str.lower().map({**BOOLEANS, **words})
    given = given.astype(float)
    return given.where(given.isin((0, 1)), -1).reindex(column.index)

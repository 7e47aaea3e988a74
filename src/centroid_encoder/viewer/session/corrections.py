"""Columns of labels by hand and of corrections, and the maps of labels that changed since."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
from anndata import AnnData
from numpy.typing import NDArray

from centroid_encoder.pl._colors import label_colors
from centroid_encoder.tables import obs_key
from centroid_encoder.tl._result import QUERY, Result, read_result

SUFFIX = "_relabeled"
RIGHT = "_right"
"""Ends the name in ``uns`` of the labels that were found right: a column ``label``, by cell."""
CHANGED = (
    "Labels in the column {!r} were renamed or removed after this map was trained; press Train for "
    "a map of the current labels."
)


def mark_key(column: str) -> str:
    """Name in ``uns`` of the entry that marks a column as labelled by hand."""
    return f"{column}_by_hand"


def corrected(adata: AnnData, label_key: str) -> str:
    """Return the column with the corrections of a label column, or the column itself."""
    while (column := f"{label_key}{SUFFIX}") in adata.obs and not has_fractions(adata.obs[column]):
        label_key = column
    return label_key


def corrected_colors(adata: AnnData, label_key: str) -> dict[object, str]:
    """Return the colours of the corrected labels; a class that was there before keeps its own."""
    before, now = (label_colors(adata, x) for x in (label_key, corrected(adata, label_key)))
    return {name: before.get(name, color) for name, color in now.items()}


def correction_column(adata: AnnData, label_key: str) -> tuple[str, str]:
    """Return the column that further corrections are written to, and the one that they correct.

    A column that a map was trained on does not change: its corrections have a column of their own.
    """
    column = corrected(adata, label_key)
    original = column.removesuffix(SUFFIX)
    results = [value for value in adata.uns.values() if isinstance(value, Mapping)]
    trained_on = [result["params"].get("label_key") for result in results if "params" in result]
    if original == column or original not in adata.obs or column in trained_on:
        return f"{column}{SUFFIX}", column
    return column, original


def labels_found_right(adata: AnnData, label_key: str) -> pd.Series:
    """Return the labels that were found right in a column or in what it corrects, by cell."""
    found = adata.uns.get(_right_key(label_key))
    is_there = isinstance(found, pd.DataFrame) and "label" in found
    return found["label"].astype(str) if is_there else pd.Series(dtype=object)


def note_right(adata: AnnData, label_key: str, labels: pd.Series, *, on: bool) -> None:
    """Note that the labels of cells are right, or take the note back."""
    found = labels_found_right(adata, label_key).drop(labels.index, errors="ignore")
    found = pd.concat([found, labels]) if on else found
    if len(found):
        adata.uns[_right_key(label_key)] = found.astype(object).to_frame("label")
    else:
        adata.uns.pop(_right_key(label_key), None)


def are_right(adata: AnnData, label_key: str) -> NDArray[np.bool_]:
    """(n_obs,) mask of the cells whose current label was found right."""
    found = labels_found_right(adata, label_key)
    right, rows = np.zeros(adata.n_obs, dtype=bool), adata.obs_names.isin(found.index)
    now = as_categories(adata.obs[corrected(adata, label_key)])[rows].astype(str)
    right[rows] = now == found.reindex(adata.obs_names[rows]).to_numpy()
    return right


def _right_key(label_key: str) -> str:
    """Return the name in ``uns`` for a column and all that correct it."""
    while label_key.endswith(SUFFIX):
        label_key = label_key.removesuffix(SUFFIX)
    return f"{label_key}{RIGHT}"


def has_fractions(column: pd.Series) -> bool:
    """Whether a column holds measurements; integers with missing values are floats, too."""
    return pd.api.types.is_float_dtype(column.dtype) and bool((column.dropna() % 1 != 0).any())


def as_categories(column: pd.Series) -> pd.Categorical:
    """Return labels with the categories that `tl.centroid_encoder` gives them."""
    if isinstance(column.dtype, pd.CategoricalDtype):
        return column.array
    if has_fractions(column):
        raise TypeError(f"the column {column.name!r} holds fractional numbers, not labels")
    if pd.api.types.is_float_dtype(column.dtype):
        column = column.astype("Int64")
    return column.astype("category").array


def codes_in(classes: pd.Index, column: pd.Series) -> NDArray[np.intp]:
    """(n_obs,) index of each label of a column in `classes`; −1 for none."""
    labels = as_categories(column)
    return np.asarray(np.append(classes.get_indexer(labels.categories), -1)[labels.codes])


def read_stored(adata: AnnData, key: str) -> tuple[Result, str]:
    """Return a map, and a remark if its labels by hand have changed since its training."""
    try:
        return read_result(adata, key), ""
    except ValueError:
        found = read_result(adata, key, changed=True)
        if mark_key(found.label_key) not in adata.uns:
            raise
        return found, CHANGED.format(found.label_key)


def current_classes(
    adata: AnnData, result: Result, *, is_draft: bool = False
) -> tuple[pd.Index, NDArray[np.intp]]:
    """Return the classes of a map and those added since, and the codes of the current labels.

    A stored map lacks labels that were given or renamed by hand since, and a draft those of
    held-out cells. The classes of a draft or of labels by hand are those of the column or of its
    corrections.
    """
    classes, codes, label_key = result.classes, result.codes, result.label_key
    own = result.split.isna()
    if label_key != obs_key(result.key, "label"):
        own |= result.split == QUERY
    if own.any():
        # Cells with missing values are not in the map, and ingested cells have predicted classes,
        # but they have labels of their own.
        codes = np.where(own, codes_in(classes, adata.obs[label_key]), codes)
    column = corrected(adata, label_key)
    by_hand = (is_draft or mark_key(label_key) in adata.uns) and label_key in adata.obs
    if column == label_key and not by_hand:
        return classes, codes
    now, moved = as_categories(adata.obs[column]), np.ones(adata.n_obs, dtype=bool)
    if not by_hand:
        was = as_categories(adata.obs[label_key])
        moved = np.append(now.categories.get_indexer(was.categories), -1)[was.codes] != now.codes
    named = now[moved].remove_unused_categories().categories
    classes = classes.append(named.difference(classes))
    return classes, np.where(moved, codes_in(classes, adata.obs[column]), codes)

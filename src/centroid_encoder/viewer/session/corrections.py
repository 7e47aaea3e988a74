"""The columns that hold the corrections of a label column."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
from anndata import AnnData

SUFFIX = "_relabeled"


def corrected(adata: AnnData, label_key: str) -> str:
    """Return the column with the corrections of a label column, or the column itself."""
    while (column := f"{label_key}{SUFFIX}") in adata.obs and not has_fractions(adata.obs[column]):
        label_key = column
    return label_key


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


def has_fractions(column: pd.Series) -> bool:
    """Whether a column holds measurements; integers with missing values are floats, too."""
    return pd.api.types.is_float_dtype(column.dtype) and bool((column.dropna() % 1 != 0).any())


def as_categories(column: pd.Series) -> pd.Categorical:
    """Return labels with the categories that `tl.centroid_encoder` gives them."""
    if has_fractions(column):
        raise TypeError(f"obs[{column.name!r}] holds fractional numbers, not labels")
    if pd.api.types.is_float_dtype(column.dtype):
        column = column.astype("Int64")
    return column.astype("category").array

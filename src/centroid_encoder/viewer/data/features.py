"""A layer's `features` as an AnnData, and results back into them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from centroid_encoder.tl._result import cv_key, embedding_key, keys_in, obs_key
from centroid_encoder.viewer.data.ids import ID_NAMES, are_ids, named
from centroid_encoder.viewer.data.positions import axis

if TYPE_CHECKING:
    from anndata import AnnData


WITH_POSITIONS = "with positions"
"""Key in ``obsm`` of all numbers of a layer's features, positions included."""


def measured(features: pd.DataFrame) -> list[Any]:
    """Columns to learn from: numbers that are no ids, no results and no positions.

    Without other columns, positions are returned.
    """
    numbers = _numbers(features)
    return [name for name in numbers if axis(name) is None] or numbers


def _numbers(features: pd.DataFrame) -> list[Any]:
    ids = named(features, ID_NAMES)
    return [
        name
        for name, dtype in features.dtypes.items()
        if dtype.kind in "iuf" and name not in ids and not _is_result(str(name), features)
    ]


def features_to_anndata(features: pd.DataFrame, *, of_labels: bool) -> AnnData:
    """Return a layer's features as cells.

    Measurements become ``X``; everything else, and whole numbers too, since they may be classes,
    becomes ``obs``. All numbers, positions included, are in ``obsm``. Features of labels without
    ids get a column ``"index"`` by napari's rule: the first row is label 0, the second label 1, and
    so on.
    """
    names, numbers = measured(features), _numbers(features)
    obs = {
        str(name): _categorical(column)
        for name, column in features.items()
        if name not in names or column.dtype.kind in "iu"
    }
    if of_labels and "index" not in obs and not are_ids(features):
        obs["index"] = pd.Series(np.arange(len(features)), index=features.index)
    index = pd.RangeIndex(len(features)).astype(str)
    if "index" in obs and obs["index"].notna().all() and obs["index"].is_unique:
        index = pd.Index(obs["index"]).astype(str).rename(None)
    single = all(features[name].dtype == np.float32 for name in names)
    from anndata import AnnData

    dtype = np.float32 if single else np.float64
    obsm = {}
    if names != numbers:
        obsm[WITH_POSITIONS] = features[numbers].to_numpy(dtype, na_value=np.nan)
    return AnnData(
        features[names].to_numpy(dtype, na_value=np.nan),
        obs=pd.DataFrame(obs, index=features.index).set_axis(index),
        var=pd.DataFrame(index=[str(name) for name in names]),
        obsm=obsm,
    )


def with_result(features: pd.DataFrame, adata: AnnData, key: str) -> pd.DataFrame:
    """Return features with the columns of a result; the features themselves do not change.

    Parameters
    ----------
    features
        The layer's features, a row for each row of `adata`.
    adata, key
        The table with the result, and its name.
    """
    names = obs_key(key, "split"), obs_key(key, "label"), obs_key(cv_key(key), "label")
    columns = {name: adata.obs[name].array for name in names if name in adata.obs}
    # After a cross-validation alone there is no embedding.
    embedding = adata.obsm.get(embedding_key(key), np.empty((len(features), 0)))
    for i, values in enumerate(embedding.T, start=1):
        # A measurement of the same name is not replaced.
        if (name := f"{_axis(key)}{i}") not in adata.var_names:
            columns[name] = values
    return features.assign(**columns)


def _axis(key: str) -> str:
    return "CE" if key == "ce" else key


def _is_result(name: str, features: pd.DataFrame) -> bool:
    """Tell whether a column is an axis of an embedding: to learn from it would be circular."""
    return any(
        re.fullmatch(re.escape(_axis(key)) + r"\d+", name) for key in keys_in(features.columns)
    )


def _categorical(column: pd.Series) -> pd.Series:
    """Text as categories, as AnnData has it; other columns as they are."""
    column = column.infer_objects()
    # Dates, among others, cannot be saved.
    if column.dtype.kind in "biuf" or isinstance(column.dtype, pd.CategoricalDtype):
        return column
    return column.astype(str).where(column.notna()).astype("category")

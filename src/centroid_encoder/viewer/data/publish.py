"""Results where other plugins look for them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from centroid_encoder.tl._result import Column, colors_key, cv_key, embedding_key, obs_key
from centroid_encoder.viewer.data.features import with_result
from centroid_encoder.viewer.data.guesses import guess
from centroid_encoder.viewer.data.ids import CellLayer, ItemLayer, are_ids, whole_numbers
from centroid_encoder.viewer.data.tables import Table, is_anndata, table_of_features

if TYPE_CHECKING:
    from anndata import AnnData

logger = logging.getLogger("centroid_encoder")


def publish(table: Table, key: str) -> None:
    """Show a result that was written to a table to other plugins, where they would look for it.

    That is the copies that napari-spatialdata keeps of a SpatialData table, and the features of
    the layer, if it is they that the table was made of. Nothing else of them changes.

    Parameters
    ----------
    table
        The table with the result.
    key
        Name of the result: ``uns[key]``, ``obs[f"{key}_…"]``.
    """
    if table.origin == "spatialdata":
        for layer in table.others:
            copy = layer.metadata.get("adata")
            if layer.metadata.get("sdata") is table.sdata and _is_copy(copy, table.adata):
                layer.metadata["adata"] = _with_result(copy, table.adata, key)
    elif table.origin == "features" and isinstance(table.layer, CellLayer):
        rows = _rows_of_features(table, table.layer)
        if rows is None:
            logger.warning(
                "the features of %s are no longer those that were learned from: they do not get "
                "the result",
                table.layer.name,
            )
            return
        embedding = table.adata.obsm.get(embedding_key(key))
        features = with_result(table.layer.features, table.adata, key, embedding, rows)
        _assign(table.layer, features)


def _rows_of_features(table: Table, layer: CellLayer) -> NDArray[np.intp] | None:
    """Row of the table of each row of the layer's features, −1 for none; None if unknown."""
    features = layer.features
    if table.is_made_of(features):
        return np.arange(table.adata.n_obs)
    try:
        if isinstance(layer, ItemLayer):
            return guess(table, layer).make().rows(np.arange(len(features)))
        ids, known = np.arange(len(features)), np.ones(len(features), dtype=bool)
        name = next(iter([*are_ids(table.adata.obs), "index"]))
        if name in features:
            ids, known = whole_numbers(features[name], "features")
        rows = pd.Index(whole_numbers(table.adata.obs[name], "obs")[0]).get_indexer(ids)
    except (ValueError, pd.errors.InvalidIndexError):
        return None
    return np.where(known, rows, -1)


def _assign(layer: CellLayer, features: pd.DataFrame) -> None:
    """Replace the features of a layer by more of them."""
    before, table = layer.features, table_of_features(layer)
    defaults = layer.feature_defaults if isinstance(layer, ItemLayer) else None
    layer.features = features
    if defaults is not None:
        # napari forgets what the user has set for the next point.
        layer.feature_defaults = layer.feature_defaults.assign(**defaults)
    if table is not None and table.is_made_of(before):
        table.follow(layer.features)


def _is_copy(copy: object, adata: AnnData) -> bool:
    """Tell whether an AnnData is made of rows of another one."""
    if not is_anndata(copy) or copy is adata or not adata.obs_names.is_unique:
        return False
    rows = adata.obs_names.get_indexer(copy.obs_names)
    if (rows < 0).any() or not copy.var_names.equals(adata.var_names):
        return False
    # Names of cells are often mere numbers.
    key = adata.uns["spatialdata_attrs"].get("instance_key")
    return key in copy.obs and np.array_equal(copy.obs[key], adata.obs[key].iloc[rows])


def _with_result(copy: AnnData, adata: AnnData, key: str) -> AnnData:
    """Bring a result into a copy of some of the rows."""
    rows = adata.obs_names.get_indexer(copy.obs_names)
    if copy.is_view:
        copy = copy.copy()
    for name in (obs_key(k, column) for k in (key, cv_key(key)) for column in get_args(Column)):
        if name in adata.obs:
            copy.obs[name] = adata.obs[name].array.take(rows)
    if embedding_key(key) in adata.obsm:
        copy.obsm[embedding_key(key)] = adata.obsm[embedding_key(key)][rows]
    for result in (key, cv_key(key)):
        stored = adata.uns.get(result)
        if isinstance(stored, Mapping) and "params" in stored:
            columns = stored["params"]["label_key"], obs_key(result, "label")
            for name in (result, *map(colors_key, columns)):
                if name in adata.uns:
                    copy.uns[name] = deepcopy(adata.uns[name])
    return copy

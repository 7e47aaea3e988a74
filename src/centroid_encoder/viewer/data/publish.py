"""Results in the features of the layer that a table was made of."""

from __future__ import annotations

import logging

from centroid_encoder.viewer.data.features import with_result
from centroid_encoder.viewer.data.ids import CellLayer, ItemLayer
from centroid_encoder.viewer.data.tables import Table

logger = logging.getLogger("centroid_encoder")


def publish(table: Table, key: str) -> None:
    """Add a result to the features that a table was made of; other columns do not change.

    Parameters
    ----------
    table
        The table with the result.
    key
        Name of the result: ``uns[key]``, ``obs[f"{key}_…"]``.
    """
    layer = table.layer
    if table.origin != "features" or not isinstance(layer, CellLayer):
        return
    if not table.is_made_of(layer.features):
        logger.warning(
            "the features of %s have changed since the training began: they do not get the result",
            layer.name,
        )
        return
    defaults = layer.feature_defaults if isinstance(layer, ItemLayer) else None
    layer.features = with_result(layer.features, table.adata, key)
    table.follow(layer.features)
    if defaults is not None:
        # napari resets the values for the next point.
        layer.feature_defaults = layer.feature_defaults.assign(**defaults)

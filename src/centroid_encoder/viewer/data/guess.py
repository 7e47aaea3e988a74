"""Guess the column of ids and the layer that shows a table; both can be changed by the user."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import pandas as pd
from napari.layers import Labels, Layer

from centroid_encoder.viewer.data.ids import ID_NAMES, ItemLayer, named, whole_numbers
from centroid_encoder.viewer.data.join import OBS_NAMES, Join

if TYPE_CHECKING:
    from centroid_encoder.viewer.data.tables import Table


def id_columns(table: Table, image_column: str | None) -> list[str]:
    """Columns of ids, the likeliest first.

    The column that SpatialData declares in ``uns["spatialdata_attrs"]`` comes first; then the usual
    names, and before the others one whose values are whole numbers that differ in each image.
    """
    obs, declared = table.adata.obs, table.declared.get("instance_key")
    names = named(obs, ID_NAMES)
    if declared in obs:
        return [str(declared), *names]
    likely = (name for name in names if _are_labels(table, name, image_column))
    return [*islice(likely, 1), *names]


def id_column(table: Table, layer: Layer, columns: Sequence[str]) -> str | None:
    """Return the first of the columns that can hold the ids of a layer.

    Points and shapes must have the same column among their features, or an index; otherwise the
    names of the cells are compared with their feature ``"cell"``.
    """
    own = layer.metadata.get("instance_key")
    if own in table.adata.obs:
        columns = [str(own), *columns]
    if not isinstance(layer, ItemLayer):
        return next(iter(columns), None)
    has_index = "index" in layer.features or "indices" in layer.metadata
    return next((x for x in columns if has_index or x in layer.features), OBS_NAMES)


def _are_labels(table: Table, name: str, image_column: str | None) -> bool:
    obs = table.adata.obs
    try:
        numbers, there = whole_numbers(obs[name], name)
    except ValueError:
        return False
    if name == "index" and table.origin != "features" and (numbers == range(len(obs))).all():
        # pandas also calls the numbers of rows so.
        return False
    ids = pd.DataFrame({"id": numbers[there]})
    if image_column is not None:
        ids["image"] = obs[image_column].to_numpy()[there]
    return not ids[ids["id"] != 0].duplicated().any()


def best_layer(
    table: Table,
    layers: Iterable[Layer],
    join: Callable[[Layer], Join | None],
) -> Layer | None:
    """Return the layer that the table was found on, else the one with most of its cells.

    Points that were made of the table come last: where the image is, there are labels.

    Parameters
    ----------
    table
        The table.
    layers
        Layers of cells.
    join
        Joins the table to a layer; None if that is not possible.
    """
    layers = list(layers)
    own = table.layer if table.layer in layers else None
    if own is not None and (table.origin == "features" or isinstance(own, Labels)):
        return own
    # Fewer than half of the cells are no reason to leave the layer that the table came with.
    best = (0 if own is None else table.adata.n_obs // 2, -sys.maxsize if own is None else 0)
    found = own
    for layer in layers:
        made = join(layer) if own is None or isinstance(layer, Labels) else None
        if made is None or not made.n_joined:
            continue
        # With as many cells in several layers, the one with the fewest labels of no cell.
        fit = made.n_joined, -made.n_unmatched_ids
        if 2 * made.n_joined >= min(made.n_rows, len(made.of.ids)) and fit > best:
            best, found = fit, layer
    return found

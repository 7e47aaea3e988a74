"""Find the cell under the mouse, move the camera to cells, and compare the places of layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from napari.components import ViewerModel
from napari.layers import Layer, Points, Shapes
from numpy.typing import NDArray

from centroid_encoder.viewer.data.ids import CellLayer, ItemLayer
from centroid_encoder.viewer.data.join import Join
from centroid_encoder.viewer.data.thumbnail import to_world


def row_at(layer: CellLayer, join: Join, event: Any) -> int | None:
    """Return the row of the cell under the mouse; None without one or in a hidden layer."""
    value = layer.get_value(
        event.position,
        view_direction=event.view_direction,
        dims_displayed=event.dims_displayed,
        world=True,
    )
    if isinstance(value, tuple):
        # (shape, vertex) of Shapes, or (level, label) of a multiscale image
        value = value[0 if isinstance(layer, Shapes) else -1]
    row = -1 if value is None else int(join.rows(value))
    return None if row < 0 else row


def look_at(
    viewer: ViewerModel,
    layer: CellLayer,
    join: Join,
    rows: NDArray[np.intp],
    *,
    steady: bool = False,
) -> None:
    """Move the camera to cells; if `steady`, keep the zoom if it shows them well."""
    rows = present(layer, join, rows)
    if not len(rows):  # The user has erased the labels.
        return
    places, cell = _places(layer, join, rows)
    low, middle, high = np.percentile(places, (0, 50, 100), axis=0, method="nearest")
    dims, camera, (matrix, origin) = viewer.dims, viewer.scene.camera, to_world(layer)
    # The axes of a layer are the last ones of the viewer.
    first, middle = dims.ndim - layer.ndim, matrix @ middle + origin
    for axis in dims.not_displayed:
        if axis >= first:
            dims.set_point(axis, middle[axis - first])
    # Show the neighbourhood as well: at least 12 diameters of a cell.
    box = np.maximum(1.5 * (high - low), 12 * cell)
    displayed = [axis - first for axis in dims.displayed if axis >= first]
    center = (matrix @ ((low + high) / 2) + origin)[displayed]
    size = (np.abs(matrix) @ box)[displayed]
    camera.center = tuple(np.pad(center, (3 - len(center), 0)))
    canvas = np.array(viewer.canvas.size)
    # In three dimensions, the box must fit from each side.
    share = canvas.min() / size.max() if len(size) > 2 else (canvas / size).min()
    if not (steady and share / 4 <= camera.zoom <= 3 * share):
        camera.zoom = float(share)


def present(layer: CellLayer, join: Join, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return those of the rows that are in the layer and that the user has not removed."""
    rows = rows[join.joined[rows]]
    return rows[join.ids[rows] < len(layer.data)] if isinstance(layer, ItemLayer) else rows


def lie_on_each_other(one: Layer, other: Layer) -> bool:
    """Return whether two layers share most of the smaller one, along each of their common axes."""
    n = min(one.ndim, other.ndim)
    first, second = (np.asarray(layer.extent.world)[:, -n:] for layer in (one, other))
    shared = np.minimum(first[1], second[1]) - np.maximum(first[0], second[0])
    return bool((shared > np.minimum(np.ptp(first, axis=0), np.ptp(second, axis=0)) / 2).all())


def _places(layer: CellLayer, join: Join, rows: NDArray[np.intp]) -> tuple[NDArray[Any], float]:
    """Return (n, ndim) places of cells and the diameter of one cell in pixels of the layer."""
    ids, centers = join.ids[rows], join.centers(rows)
    if isinstance(layer, Points):
        return centers, float(np.median(layer.size))
    if isinstance(layer, Shapes):
        return centers, float(np.median([np.ptp(layer.data[i], axis=0).max() for i in ids]))
    boxes = join.of.boxes_of(ids)
    places = np.concatenate([boxes[:, 0], centers, boxes[:, 1] - 1])
    return places, float(np.prod(boxes[0, 1] - boxes[0, 0]) ** (1 / layer.ndim))

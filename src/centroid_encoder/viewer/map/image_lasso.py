"""Cells are selected by drawing around them in the image."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.path import Path
from napari.components import ViewerModel
from napari.layers import Labels, Layer, Shapes
from napari.layers.base import ActionType
from numpy.typing import NDArray

from centroid_encoder.viewer.data.ids import CellLayer, label_ids, pixels
from centroid_encoder.viewer.data.join import Join
from centroid_encoder.viewer.data.tables import DRAWN

NAME = "draw around cells"


class Lasso:
    """A layer of Shapes with napari's own lasso, from `start` to `stop` or until it is removed.

    `drawn` is called with the (n, ndim) vertices of a closed line in world coordinates, and
    `stopped` when the layer was removed.
    """

    def __init__(
        self,
        viewer: ViewerModel,
        drawn: Callable[[NDArray[np.float64]], object],
        stopped: Callable[[], object],
    ) -> None:
        self._viewer, self._drawn, self._stopped = viewer, drawn, stopped
        self._layer: Shapes | None = None
        self._before: tuple[set[Layer], Layer | None, Any] = set(), None, 2
        """The chosen layers, the active one, and the number of displayed axes before `start`."""
        viewer.layers.events.removed.connect(self._on_removed)

    def start(self, over: CellLayer) -> None:
        """Let the user draw in two dimensions, in the pixels of the layer of the cells."""
        self.stop()
        layers, dims = self._viewer.layers, self._viewer.dims
        self._before = set(layers.selection), layers.selection.active, dims.ndisplay
        dims.ndisplay = 2
        self._layer = layer = Shapes(
            ndim=over.ndim,
            scale=over.scale,
            units=over.units,
            name=NAME,
            metadata={DRAWN: True},
            face_color="transparent",
            edge_color="white",
        )
        layers.append(layer)
        layers.selection.active = layer
        layer.mode = "add_polygon_lasso"
        layer.events.data.connect(self._on_data)

    def stop(self) -> None:
        """Remove the layer; the view and the chosen layers are those of before again."""
        if self._layer is not None:
            self._viewer.layers.remove(self._layer)

    def clear(self) -> None:
        """Remove the lines that were drawn."""
        if self._layer is not None:
            self._layer.data = []

    def _on_data(self, event: Any) -> None:
        # napari drops a line that is too short.
        if event.action == ActionType.ADDED and self._layer is not None and self._layer.data:
            vertices = self._layer.data[-1]
            self._drawn(np.array([self._layer.data_to_world(one) for one in vertices]))

    def _on_removed(self, event: Any) -> None:
        if event.value is self._layer:
            self._layer = None
            layers, (selection, active, ndisplay) = self._viewer.layers, self._before
            if not layers.selection:  # The user has chosen no other layer since.
                layers.selection = selection & set(layers)
                layers.selection.active = active if active in layers else None
            self._viewer.dims.ndisplay = ndisplay
            self._stopped()


def rows_inside(
    line: NDArray[np.float64], displayed: tuple[int, ...], layer: CellLayer, join: Join
) -> NDArray[np.intp]:
    """Return the rows of the cells whose centers are inside a closed line.

    `line` has (n, ndim) vertices in world coordinates; `displayed` are two of these axes. In a
    stack, labels are cut by the plane of the line, and these parts of them have the centers. Points
    and shapes must be within half a pixel of that plane.
    """
    rows = np.flatnonzero(join.joined)
    drawn = np.array([layer.world_to_data(vertex) for vertex in line[:, -layer.ndim :]])
    # The axes of a layer are the last ones of the viewer.
    shown = [axis - line.shape[1] for axis in displayed]
    hidden = [axis for axis in range(-layer.ndim, 0) if axis not in shown]
    centers = join.centers(rows)
    if isinstance(layer, Labels) and hidden:
        low, high = drawn.min(axis=0), drawn.max(axis=0)
        low[hidden] = high[hidden] = plane = np.rint(drawn[0, hidden])
        boxes = join.of.boxes_of(join.ids[rows])
        rows = rows[((boxes[:, 0] <= high) & (low < boxes[:, 1])).all(axis=1)]
        if not len(rows):
            return np.asarray(rows)
        # Read the plane around these labels only.
        box = list(join.of.box(join.ids[rows]))
        for axis, at in zip(hidden, plane.astype(int).tolist(), strict=True):
            box[axis] = slice(at, at + 1)
        found = label_ids(pixels(layer)[tuple(box)])
        rows, centers = join.rows(found.ids), found.centers + [side.start for side in box]
        centers[:, hidden] = drawn[0, hidden]
    inside = (rows >= 0) & Path(drawn[:, shown]).contains_points(centers[:, shown])
    inside &= (np.abs(centers[:, hidden] - drawn[0, hidden]) <= 0.5).all(axis=1)
    return np.asarray(rows[inside])

"""Cells are selected by drawing around them in the image."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.path import Path
from napari.components import ViewerModel
from napari.layers import Shapes
from napari.layers.base import ActionType
from numpy.typing import NDArray
from psygnal import Signal

from centroid_encoder.viewer.data.ids import CellLayer
from centroid_encoder.viewer.data.join import Join
from centroid_encoder.viewer.data.tables import DRAWN
from centroid_encoder.viewer.data.thumbnail import to_world

NAME = "draw around cells"


class Lasso:
    """A layer of Shapes with napari's own lasso, from `start` to `stop` or until it is removed."""

    drawn = Signal(object)
    """(n, ndim) vertices of a closed line in world coordinates."""
    stopped = Signal()

    def __init__(self, viewer: ViewerModel) -> None:
        self._viewer = viewer
        self._layer: Shapes | None = None
        viewer.layers.events.removed.connect(self._on_removed)

    def start(self, over: CellLayer) -> None:
        """Let the user draw, in the pixels of the layer of the cells."""
        self.stop()
        self._layer = layer = Shapes(
            ndim=over.ndim,
            scale=over.scale,
            units=over.units,
            name=NAME,
            metadata={DRAWN: True},
            face_color="transparent",
            edge_color="white",
        )
        layers = self._viewer.layers
        layers.append(layer)
        layers.selection.active = layer
        layer.mode = "add_polygon_lasso"
        layer.events.data.connect(self._on_data)

    def stop(self) -> None:
        """Remove the layer."""
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
            self.drawn.emit(np.array([self._layer.data_to_world(one) for one in vertices]))

    def _on_removed(self, event: Any) -> None:
        if event.value is self._layer:
            self._layer = None
            self.stopped.emit()


def rows_inside(
    line: NDArray[np.float64], displayed: tuple[int, ...], layer: CellLayer, join: Join
) -> NDArray[np.intp]:
    """Return the rows of the cells whose centers are inside a closed line.

    `line` has (n, ndim) vertices in world coordinates; `displayed` are two of these axes. Along all
    others, the centers must be within half a pixel of the plane of the line.
    """
    rows = np.flatnonzero(join.joined)
    matrix, offset = to_world(layer)
    world = join.centers(rows) @ matrix.T + offset
    # The axes of a layer are the last ones of the viewer.
    shown = [axis - line.shape[1] for axis in displayed]
    hidden = [axis for axis in range(-layer.ndim, 0) if axis not in shown]
    inside = Path(line[:, shown]).contains_points(world[:, shown])
    apart = np.abs(world[:, hidden] - line[0, hidden])
    inside &= (apart <= np.abs(layer.scale[hidden]) / 2).all(axis=1)
    return np.asarray(rows[inside])

"""What a layer shows of the cells that are joined to it, all of it undone by `close`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from itertools import product
from typing import Any
from weakref import WeakSet

import numpy as np
from matplotlib.colors import to_rgba
from napari.components import ViewerModel
from napari.layers import Labels, Points, Shapes
from numpy.typing import ArrayLike, NDArray
from psygnal import Signal

from centroid_encoder.viewer.data.ids import CellLayer, ItemLayer
from centroid_encoder.viewer.data.join import Join
from centroid_encoder.viewer.map.drawing import (
    OUTLINE,
    TRANSPARENT,
    Drawing,
    NoColors,
    get_ready,
    label_colormap,
    outlines,
)
from centroid_encoder.viewer.map.images import ImageLayers, value_at
from centroid_encoder.viewer.map.lent_colors import lend, take_back

DIRECT = 20_000
"""Labels above which a colour for each makes napari slow; an image of the classes does not."""
TABLE = 2**24
"""Ids below which a table of all of them is the quickest way from labels to values."""
HIGHLIGHT = "selected cells"
OTHER_BUTTONS = (2, 3)
"""The right and the middle one."""
WHITE = (1.0, 1.0, 1.0, 1.0)

_OPEN: WeakSet[LayerLink] = WeakSet()
"""Links that were not closed: of images that lie on each other, one answers a click."""


class LayerLink:
    """Colour, highlight, show and pick the cells of one Labels, Points or Shapes layer.

    Parameters
    ----------
    viewer
        The viewer.
    layer
        Layer whose labels, points or shapes are cells.
    join
        Which rows of the table they are; all other rows are none of its business.
    image
        Name of the image that the layer shows, in a table of several.

    Attributes
    ----------
    classes, marks
        What is drawn above a layer of many labels, and above selected cells of any.
    """

    picked = Signal(object)
    """Rows that the user picked in the layer."""

    def __init__(self, viewer: ViewerModel, layer: CellLayer, join: Join, image: str = "") -> None:
        self.viewer = viewer
        self.layer = layer
        self.join = join
        self.image = ImageLayers(viewer, layer, image)
        self._quiet = False
        self._lent: Any = None
        self._open = True
        self._colors: tuple[NDArray[np.intp], Sequence[str]] | None = None
        """Codes and colours of the cells, where each label or shape has a colour."""
        self._selected = np.empty(0, dtype=np.intp)
        self.classes = Drawing(viewer)
        self.marks = Drawing(viewer)
        _OPEN.add(self)
        viewer.mouse_drag_callbacks.append(self._on_press)
        viewer.layers.events.removed.connect(self._on_removed)
        viewer.canvas.grid.events.enabled.connect(self._on_grid)
        layer.events.visible.connect(self._on_visible)
        if isinstance(layer, ItemLayer):
            layer.selected_data.events.items_changed.connect(self._on_items_selected)
        elif not self._has_few:
            get_ready()

    def close(self) -> None:
        """Leave the layer and the viewer as they were before."""
        if not self._open:
            return
        self._open = False
        _OPEN.discard(self)
        self.viewer.canvas.grid.events.enabled.disconnect(self._on_grid)
        self.layer.events.visible.disconnect(self._on_visible)
        if self._on_press in self.viewer.mouse_drag_callbacks:
            self.viewer.mouse_drag_callbacks.remove(self._on_press)
        self.viewer.layers.events.removed.disconnect(self._on_removed)
        if isinstance(self.layer, ItemLayer):
            self.layer.selected_data.events.items_changed.disconnect(self._on_items_selected)
        # Marks first: see `uncolor`.
        self.highlight(np.empty(0, dtype=np.intp))
        self.uncolor()

    # -- colours ---------------------------------------------------------------------------------

    def color(self, name: str, codes: NDArray[np.intp], colors: Sequence[str]) -> None:
        """Colour each cell.

        Parameters
        ----------
        name
            What the colours stand for.
        codes
            (n_obs,) index into `colors`; −1 for cells that are not to be seen.
        colors
            The colours.
        """
        if self.layer not in self.viewer.layers:
            return
        self._colors = None
        if isinstance(self.layer, ItemLayer):
            self._colors = codes, colors
            self._color_items()
        elif self._has_few:
            self.classes.remove()
            self._colors = codes, colors
            self._color_labels()
        else:
            self._color_above(name, codes, colors)

    def uncolor(self) -> None:
        """Give the layer its own colours back."""
        # In this order: new colours of a layer and then another one gone before it was drawn, that
        # ends the process in OpenGL if it was the only other one.
        self.classes.remove()
        take_back(self.layer, self._lent)
        self._lent = self._colors = None
        if self._is_marked_by_color:
            self._color_labels()

    @property
    def _has_few(self) -> bool:
        return int(self.join.joined.sum()) <= DIRECT

    @property
    def _is_marked_by_color(self) -> bool:
        """Whether selected cells are white, for a layer of marks would get a place in the grid."""
        labels = isinstance(self.layer, Labels) and self._has_few
        return labels and self.viewer.canvas.grid.enabled and bool(len(self._selected))

    def _color_labels(self) -> None:
        if self._colors is None:
            labels = self.join.known
            colors = dict(zip(labels.tolist(), self.layer.colormap.map(labels), strict=True))
        else:
            codes, names = self._colors
            palette, joined = [*map(to_rgba, names), TRANSPARENT], self.join.joined
            known = zip(self.join.ids[joined].tolist(), codes[joined].tolist(), strict=True)
            colors = {label: palette[code] for label, code in known}
        if self._is_marked_by_color:
            colors |= dict.fromkeys(self.join.ids[self._selected].tolist(), WHITE)
        self._lent = lend(self.layer, label_colormap(colors))

    def _color_above(self, name: str, codes: NDArray[np.intp], colors: Sequence[str]) -> None:
        """Put an image of the classes above the labels, whose own colours would shine through."""
        palette: dict[int | None, Any] = {i + 1: to_rgba(c) for i, c in enumerate(colors)}
        painted, name = self._painted(codes + 1), f"{self.layer.name} · {name}"
        self._lent = lend(self.layer, NoColors())
        self.classes.show(painted, name, palette, self.layer, self.layer.opacity)
        self._on_visible()

    def _color_items(self) -> None:
        if self._colors is None:
            return
        codes, colors = self._colors
        palette = np.array([*map(to_rgba, colors), TRANSPARENT])
        face = np.zeros((len(self.layer.data), 4))
        rows = self._present(np.flatnonzero(self.join.joined))
        face[self.join.ids[rows]] = palette[codes[rows]]
        if isinstance(self.layer, Shapes):
            # The line that napari draws around them is thin, and not to be seen among others.
            face[self.join.ids[self._present(self._selected)]] = WHITE
        self._lent = lend(self.layer, face)

    # -- selection -------------------------------------------------------------------------------

    def highlight(self, rows: NDArray[np.intp]) -> None:
        """Mark cells in the layer; none takes the marks away."""
        rows = self._present(rows)
        if not len(rows) and not len(self._selected) and isinstance(self.layer, Labels):
            return
        if isinstance(self.layer, ItemLayer):
            self._quiet = True
            try:
                self.layer.selected_data = set(self.join.ids[rows].tolist())
            finally:
                self._quiet = False
            before, self._selected = self._selected, rows
            if isinstance(self.layer, Shapes) and not np.array_equal(before, rows):
                self._color_items()
            return
        self._recolor_marked(rows)
        if not len(rows) or self.layer not in self.viewer.layers or self._is_marked_by_color:
            self.marks.remove()
            return
        # Above the classes, and outlined: who goes to a cell wants to see its stains.
        above = self.classes.layer if self.classes.is_shown else self.layer
        marked, contour = self._marked(rows), OUTLINE
        if isinstance(marked, np.ndarray) and marked.ndim == 2:
            # napari takes twenty times as long, for what may have more axes than are seen.
            marked, contour = outlines(marked), 0
        self.marks.show(marked, HIGHLIGHT, {1: WHITE}, above, contour=contour)
        self._on_visible()

    def _recolor_marked(self, rows: NDArray[np.intp]) -> None:
        """Colour selected cells white, or no longer."""
        before, self._selected = self._is_marked_by_color, rows
        if self._is_marked_by_color:
            # First, the colours without marks.
            if before and self._colors is None:
                take_back(self.layer, self._lent)
            self._color_labels()
        elif before and self._colors is not None:
            self._color_labels()
        elif before:
            take_back(self.layer, self._lent)
            self._lent = None

    def _on_grid(self, _: Any = None) -> None:
        rows, self._selected = self._selected, np.empty(0, dtype=np.intp)
        if isinstance(self.layer, Labels) and self._has_few:
            if self._colors is not None:
                self._color_labels()
            elif not self.viewer.canvas.grid.enabled:
                take_back(self.layer, self._lent)
                self._lent = None
        self.highlight(rows)

    def _on_visible(self, _: Any = None) -> None:
        """Hide what is drawn of a layer that is hidden: it may lie on the image of another."""
        for drawing in (self.classes, self.marks):
            drawing.set_visible(self.layer.visible)

    def show(self, rows: NDArray[np.intp]) -> None:
        """Move the camera to cells."""
        rows = self._present(rows)
        extent = self._extent(rows)
        if extent is None:
            return
        (low, middle, high), cell = extent
        ends = zip(low, high, strict=True)
        corners = [self.layer.data_to_world(corner) for corner in product(*ends)]
        low, high = np.min(corners, axis=0), np.max(corners, axis=0)
        middle = self.layer.data_to_world(middle)
        dims = self.viewer.dims
        offset = dims.ndim - len(low)
        for axis in dims.not_displayed:
            if axis >= offset:
                dims.set_point(axis, middle[axis - offset])
        displayed = [axis - offset for axis in dims.displayed if axis >= offset]
        center, size = (low + high)[displayed] / 2, (high - low)[displayed]
        camera = self.viewer.scene.camera
        camera.center = tuple(np.pad(center, (3 - len(center), 0)))
        canvas = np.array(self.viewer.canvas.size)[-len(size) :]
        # A cell in its neighbourhood, not filling the window.
        room = np.maximum(size * 1.5, 12 * cell * np.max(self.layer.scale))
        camera.zoom = (
            float(canvas.min() / room.max()) if len(size) > 2 else float((canvas / room).min())
        )

    # -- picking ---------------------------------------------------------------------------------

    def _on_press(self, viewer: ViewerModel, event: Any) -> Iterator[None]:
        """Pick the cell on which the mouse was clicked, not dragged."""
        if isinstance(self.layer, Points) or event.button in OTHER_BUTTONS:
            return
        start, dragged = _place(event), False
        yield
        while event.type == "mouse_move":
            dragged = dragged or bool(np.abs(_place(event) - start).max() > 3)
            yield
        is_seen = self.layer in viewer.layers and self.layer.visible and not self._is_below(event)
        if dragged or not self._open or not is_seen:
            return
        # Who paints or draws, in whatever layer, is not picking.
        tools = {str(layer.mode) for layer in (self.layer, viewer.layers.selection.active) if layer}
        if not tools <= {"pan_zoom", "pick"}:
            return
        value = value_at(self.layer, event)
        rows = self.join.rows(np.array([] if value is None else [value]))
        # A click beside the cells, as when moving the image, keeps the selection.
        if (rows >= 0).any():
            self.picked.emit(rows)

    def _is_below(self, event: Any) -> bool:
        """Tell whether another image is seen here, or another part of the grid was clicked."""
        if self.image.is_elsewhere(event):
            return True
        others = [link for link in _OPEN if link is not self and link.viewer is self.viewer]
        return any(
            not link.image.is_elsewhere(event) and self.image.is_covered(link.image, event)
            for link in others
        )

    def _on_items_selected(self, *_: Any) -> None:
        if not self._quiet:
            items = np.fromiter(self.layer.selected_data, dtype=np.intp)
            rows = self.join.rows(items)
            self.picked.emit(rows[rows >= 0])

    def _present(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of the rows that are in the layer, from which some may have been removed."""
        rows = rows[self.join.joined[rows]]
        if isinstance(self.layer, ItemLayer):
            rows = rows[self.join.ids[rows] < len(self.layer.data)]
        return rows

    # -- layers of our own -----------------------------------------------------------------------

    def _painted(self, values: NDArray[np.intp]) -> Any:
        """Image, or multiscale images, with the value of the cell in place of each label."""
        skimage: Any = import_module("skimage.util")
        ids, values = self.join.ids[self.join.joined], values[self.join.joined]
        values = values.astype(np.min_scalar_type(int(values.max(initial=0))))
        first, last = int(ids.min(initial=0)), int(ids.max(initial=0))
        table = np.zeros(last + 2, dtype=values.dtype) if first >= 0 and last < TABLE else None
        if table is not None:
            table[ids] = values

        def paint(block: ArrayLike) -> Any:
            if table is not None:
                return _taken(table, np.asarray(block))
            # The ids are of this type, which holds all that images of labels do.
            return skimage.map_array(np.asarray(block, dtype=np.int64), ids, values)

        def painted(data: Any) -> Any:
            lazy = hasattr(data, "map_blocks")
            return data.map_blocks(paint, dtype=values.dtype) if lazy else paint(data)

        data = self.layer.data
        return [painted(level) for level in data] if self.layer.multiscale else painted(data)

    def _marked(self, rows: NDArray[np.intp]) -> Any:
        """Image, or multiscale images, of these cells alone."""
        selected = np.zeros(len(self.join.joined), dtype=np.intp)
        selected[rows] = 1
        return self._painted(selected)

    def _on_removed(self, event: Any) -> None:
        if event.value is self.classes.layer:
            self.uncolor()

    def _extent(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.floating], float] | None:
        """Where cells are and how large one is, in pixels of the layer; None for no cells.

        Returns
        -------
        where
            (3, ndim) lowest corner, a place in their midst, highest corner. Along each axis the
            place in their midst is one where there is a cell.
        cell
            Width of a cell, roughly.
        """
        if isinstance(self.layer, Points):
            found = list(np.sort(self.layer.data[self.join.ids[rows]], axis=0).T)
            cell = float(np.median(self.layer.size))
        elif isinstance(self.layer, Shapes):
            outlines = [self.layer.data[i] for i in self.join.ids[rows]]
            vertices = np.concatenate([*outlines, np.empty((0, self.layer.ndim))])
            found = list(np.sort(vertices, axis=0).T)
            cell = float(np.median([np.ptp(outline, axis=0).max() for outline in outlines] or [0]))
        else:
            painted = self._marked(rows)
            image = np.asarray(painted[0] if self.layer.multiscale else painted)
            axes = set(range(image.ndim))
            found = [np.flatnonzero(image.any(axis=tuple(axes - {axis}))) for axis in axes]
            cell = float((np.count_nonzero(image) / max(len(rows), 1)) ** (1 / image.ndim))
        # Labels, too, may have been erased.
        if not len(found[0]):
            return None
        return np.array([(f[0], f[len(f) // 2], f[-1]) for f in found], dtype=float).T, cell


def _taken(table: NDArray[Any], labels: NDArray[np.integer]) -> NDArray[Any]:
    """Entry of a table for each label; the last entry, 0, where there is none.

    Row after row, as wider integers of all labels would not be near the processor.
    """
    if labels.ndim < 2:
        return table.take(labels, mode="clip")
    values = np.empty(labels.shape, dtype=table.dtype)
    for row, into in zip(labels, values, strict=True):
        # Not left to numpy: before 2.0 it refuses unsigned integers of 64 bits.
        np.take(table, row.astype(np.intp), mode="clip", out=into)
    return values


def _place(event: Any) -> NDArray[np.floating]:
    """Where the mouse is on the canvas."""
    return np.asarray(event.pos if hasattr(event, "pos") else event.position)

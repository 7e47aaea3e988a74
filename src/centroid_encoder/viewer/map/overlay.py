"""Colour and mark the cells of one layer, find the cell under the mouse, and zoom to cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product, takewhile
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba
from napari.components import ViewerModel
from napari.experimental import link_layers, unlink_layers
from napari.layers import Image, Labels, Points, Shapes
from napari.utils.colormaps import DirectLabelColormap
from napari.utils.theme import get_theme
from numpy.typing import ArrayLike, NDArray
from psygnal import Signal
from scipy.ndimage import find_objects
from skimage.util import map_array

from centroid_encoder.viewer.data.ids import CellLayer, ItemLayer
from centroid_encoder.viewer.data.join import Join
from centroid_encoder.viewer.data.tables import DRAWN
from centroid_encoder.viewer.data.thumbnail import label_window

TRANSPARENT = (0.0, 0.0, 0.0, 0.0)
HIGHLIGHT = "selected cells"
OUTLINE = 2
"""Width of the outline of a selected cell in pixels of the image."""
SMALL_CELL = 12
"""Below this diameter in pixels of the image, an outline is one pixel wide."""
MIN_OPACITY = 0.7
"""Least opacity of coloured labels, so that colours can be distinguished over an image."""
LINKED = ("scale", "translate", "rotate", "shear", "affine", "units")
"""Attributes that a layer has in common with those drawn above it, also after changes."""


class LayerLink:
    """The cells of one Labels, Points or Shapes layer.

    For a Labels layer, colours (`classes`) and outlines of selected cells (`marks`) are drawn in
    layers above it; while the cells are coloured, the opacity of the Labels layer is 0. Points and
    shapes get other face colours, and marked ones are selected in their layer. `join` links the ids
    of the layer to rows of the table.
    """

    picked = Signal(object)
    """Rows of the points or shapes that the user has selected in the layer."""

    def __init__(self, viewer: ViewerModel, layer: CellLayer, join: Join) -> None:
        self.viewer = viewer
        self.layer = layer
        self.join = join
        self.classes: Labels | None = None
        self.marks: Labels | None = None
        self._shown: Any = None
        """The colours of the cells; None if the layer has its own."""
        self._before: Any = None
        """Opacity (Labels) or colours (Points, Shapes) of the layer before it was coloured."""
        self._marking = False
        self._callbacks: list[tuple[Any, Any]] = [
            (viewer.events.theme, self._on_viewer),
            (viewer.layers.events, self._on_viewer),
            (layer.events.visible, self._on_visible),
        ]
        if isinstance(layer, ItemLayer):
            self._callbacks.append((layer.selected_data.events.items_changed, self._on_selected))
        for event, callback in self._callbacks:
            event.connect(callback)

    def close(self) -> None:
        """Restore the look of the layer, and disconnect from it."""
        self.highlight(np.empty(0, dtype=np.intp))
        self.uncolor()
        for event, callback in self._callbacks:
            event.disconnect(callback)

    def color(self, name: str, codes: NDArray[np.intp], colors: Sequence[str]) -> None:
        """Colour each cell.

        `name` says what the colours mean; `codes` are (n_obs,) indices into `colors`, −1 for
        invisible cells.
        """
        layer = self.layer
        shown = name, codes.tobytes(), list(colors), len(layer.data)
        if layer not in self.viewer.layers or shown == self._shown:
            return
        if isinstance(layer, ItemLayer):
            if self._shown is None:
                mode = str(layer.face_color_mode)
                self._before = mode, layer.face_color.copy(), layer.current_face_color
            palette = np.array([*map(to_rgba, colors), TRANSPARENT])
            face = np.zeros((len(layer.data), 4))
            rows = self._present(np.flatnonzero(self.join.joined))
            face[self.join.ids[rows]] = palette[codes[rows]]
            layer.face_color = face
        else:
            if self._shown is None:
                self._before = layer.opacity
            of_value = {i + 1: to_rgba(color) for i, color in enumerate(colors)}
            title, opacity = f"{layer.name} · {name}", max(self._before, MIN_OPACITY)
            painted = self._painted(codes + 1)
            self.classes = self._draw(self.classes, painted, title, of_value, opacity=opacity)
            layer.opacity = 0
        self._shown = shown

    def uncolor(self) -> None:
        """Restore the colours of the layer."""
        if self._shown is None:
            return
        self._shown = None
        remove(self.viewer, [self.classes])
        if not isinstance(self.layer, ItemLayer):
            # Keep an opacity that the user has chosen since.
            self.layer.opacity = self.layer.opacity or self._before
            return
        mode, face, current = self._before
        with self.layer.block_update_properties():
            self.layer.current_face_color = current
        n = min(len(face), len(self.layer.data))
        self.layer.face_color = np.concatenate([face[:n], self.layer.face_color[n:]])
        # Setting `face_color` has changed the mode; the layer has kept the old colour map.
        self.layer.face_color_mode = mode

    def highlight(self, rows: NDArray[np.intp]) -> None:
        """Mark cells in the layer instead of those marked before."""
        rows = self._present(rows)
        if isinstance(self.layer, ItemLayer):
            self._marking = True
            self.layer.selected_data = set(self.join.ids[rows].tolist())
            self._marking = False
            return
        if not len(rows) or self.layer not in self.viewer.layers:
            remove(self.viewer, [self.marks])
            return
        marked, contour = self._marked(rows), OUTLINE
        if isinstance(marked, np.ndarray) and marked.ndim == 2:
            marked, contour = outlines(self.layer.data, marked, len(rows)), 0
        colors = self._outline_colors
        self.marks = self._draw(self.marks, marked, HIGHLIGHT, colors, contour=contour, opacity=1)

    def _draw(
        self, drawn: Labels | None, data: Any, name: str, colors: dict[int, Any], **look: float
    ) -> Labels:
        """Show data in a drawn layer, or else in a new one above the cells that looks like this."""
        if drawn is not None:
            drawn.data, drawn.name, drawn.colormap = data, name, _colormap(colors)
            return drawn
        same = {key: getattr(self.layer, key) for key in (*LINKED, "multiscale", "visible")}
        same |= {"name": name, "colormap": _colormap(colors), "metadata": {DRAWN: True}}
        drawn = Labels(data, **same)
        link_layers([self.layer, drawn], LINKED)
        layers = self.viewer.layers
        # Inserting a layer selects it; restore the layers that the user has selected.
        selection, active = set(layers.selection), layers.selection.active
        layers.insert(layers.index(self.classes or self.layer) + 1, drawn)
        layers.selection = selection
        layers.selection.active = active
        # Set after the insertion, since napari would otherwise compute outlines twice.
        for key, value in look.items():
            setattr(drawn, key, value)
        return drawn

    @property
    def _outline_colors(self) -> dict[int, Any]:
        """Colours of outlines (1) and of their inner rims (2), which are seen on any image.

        Outlines are black on a light canvas without an image, and otherwise white.
        """
        below = takewhile(lambda layer: layer is not self.layer, self.viewer.layers)
        over_image = any(isinstance(layer, Image) and layer.visible for layer in below)
        is_dark = sum(get_theme(self.viewer.theme).canvas.as_rgb_tuple()[:3]) < 3 * 128
        inks = ("white", "black") if over_image or is_dark else ("black", "white")
        return dict(enumerate(map(to_rgba, inks), start=1))

    def show(self, rows: NDArray[np.intp], *, steady: bool = False) -> None:
        """Move the camera to cells; if `steady`, keep the zoom if it shows them well."""
        rows = self._present(rows)
        places, cell = self._places(rows) if len(rows) else (rows, 0)
        if not len(places):  # The user has erased the labels.
            return
        quantiles = np.percentile(places, (0, 50, 100), axis=0, method="nearest")
        low, middle, high = quantiles.astype(float)
        dims, camera = self.viewer.dims, self.viewer.scene.camera
        offset, middle = dims.ndim - len(low), self.layer.data_to_world(middle)
        for axis in dims.not_displayed:
            if axis >= offset:
                dims.set_point(axis, middle[axis - offset])
        # Show the neighbourhood as well: at least 12 diameters of a cell.
        center, half = (low + high) / 2, np.maximum(1.5 * (high - low), 12 * cell) / 2
        box = product(*zip(center - half, center + half, strict=True))
        displayed = [axis - offset for axis in dims.displayed if axis >= offset]
        world = np.array([self.layer.data_to_world(corner) for corner in box])[:, displayed]
        center, size = (world.max(axis=0) + world.min(axis=0)) / 2, np.ptp(world, axis=0)
        camera.center = tuple(np.pad(center, (3 - len(center), 0)))
        canvas = np.array(self.viewer.canvas.size)
        # In three dimensions, the box must fit from each side.
        share = canvas.min() / size.max() if len(size) > 2 else (canvas / size).min()
        if not (steady and share / 4 <= camera.zoom <= 3 * share):
            camera.zoom = float(share)

    def row_at(self, event: Any) -> int | None:
        """Return the row of the cell under the mouse; None without one or in a hidden layer."""
        value = self.layer.get_value(
            event.position,
            view_direction=event.view_direction,
            dims_displayed=event.dims_displayed,
            world=True,
        )
        if isinstance(value, tuple):
            # (shape, vertex) of Shapes, or (level, label) of a multiscale image
            value = value[0 if isinstance(self.layer, Shapes) else -1]
        row = -1 if value is None else int(self.join.rows(value))
        return None if row < 0 else row

    def _on_selected(self, _: Any) -> None:
        if not self._marking:
            rows = self.join.rows(np.fromiter(self.layer.selected_data, dtype=np.intp))
            self.picked.emit(rows[rows >= 0])

    def _on_visible(self, _: Any) -> None:
        for drawn in filter(None, (self.classes, self.marks)):
            drawn.visible = self.layer.visible

    def _on_viewer(self, event: Any) -> None:
        if event.type == "removed" and event.value in (self.classes, self.marks):
            unlink_layers([event.value])
            if event.value is self.marks:
                self.marks = None
            else:
                self.classes = None
                self.uncolor()  # The user may have deleted the colours.
        is_seen = event.type in ("theme", "inserted", "removed", "reordered", "visible")
        if self.marks is not None and is_seen:
            colors = self._outline_colors
            if tuple(self.marks.colormap.map(1)) != colors[1]:  # Each assignment redraws it.
                self.marks.colormap = _colormap(colors)

    def _present(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return those of the rows that are in the layer and that the user has not removed."""
        rows = rows[self.join.joined[rows]]
        if isinstance(self.layer, ItemLayer):
            rows = rows[self.join.ids[rows] < len(self.layer.data)]
        return rows

    def _marked(self, rows: NDArray[np.intp]) -> Any:
        """Return an image that is 1 at the cells of the rows and 0 elsewhere; see `_painted`."""
        if len(rows) == 1 and isinstance(self.layer.data, np.ndarray):
            # One comparison is several times faster than `map_array`.
            return (self.layer.data == self.join.ids[rows[0]]).view(np.uint8)
        values = np.zeros(len(self.join.joined), dtype=np.intp)
        values[rows] = 1
        return self._painted(values)

    def _painted(self, values: NDArray[np.intp]) -> Any:
        """Replace each label by the value of its row, and labels without a row by 0.

        `values`, (n_obs,), are not negative. Returns an image, or a list of images for a
        multiscale layer; they are lazy if the layer's data are.
        """
        ids, of_id = self.join.ids[self.join.joined], values[self.join.joined]
        of_id = of_id.astype(np.min_scalar_type(int(of_id.max(initial=0))))

        def paint(block: ArrayLike) -> Any:
            return map_array(np.asarray(block), ids, of_id)  # type: ignore[no-untyped-call]

        def painted(data: Any) -> Any:
            lazy = hasattr(data, "map_blocks")
            return data.map_blocks(paint, dtype=of_id.dtype) if lazy else paint(data)

        data = self.layer.data
        return [painted(level) for level in data] if self.layer.multiscale else painted(data)

    def _places(self, rows: NDArray[np.intp]) -> tuple[NDArray[Any], float]:
        """Return (n, ndim) places of cells and the diameter of one cell in pixels of the layer."""
        ids, centers = self.join.ids[rows], self.join.centers(rows)
        if isinstance(self.layer, Points):
            return centers, float(np.median(self.layer.size))
        if isinstance(self.layer, Shapes):
            return centers, float(
                np.median([np.ptp(self.layer.data[i], axis=0).max() for i in ids])
            )
        mask, low = label_window(self.layer, self.join, int(ids[0]))
        pixels = np.argwhere(mask) + low
        known = centers[np.isfinite(centers).all(axis=1)]
        places = np.concatenate([pixels, known]) if len(rows) > 1 else pixels
        return places, len(pixels) ** (1 / self.layer.ndim)


def remove(viewer: ViewerModel, drawn: Iterable[Labels | None]) -> None:
    """Remove several drawn layers at once, since napari takes long for each removal."""
    if shown := [layer for layer in drawn if layer is not None]:
        with viewer.layers.batched_update():
            for layer in shown:
                viewer.layers.remove(layer)


def outlines(labels: NDArray[Any], marked: NDArray[np.uint8], n_cells: int) -> NDArray[np.uint8]:
    """Return the outlines of the marked cells in a 2-D image of labels, and their inner rims.

    The values are 1 within the width of an outline from other pixels or another cell, 2 for the rim
    one pixel farther inside, and 0 elsewhere. Napari's contours equal the pixels with value 1, but
    take much longer.
    """
    found = np.zeros_like(marked)
    diameter = (np.count_nonzero(marked) / n_cells * 4 / np.pi) ** 0.5
    width = OUTLINE if diameter >= SMALL_CELL else 1
    for y, x in find_objects(marked):
        box = slice(max(y.start - 1, 0), y.stop + 1), slice(max(x.start - 1, 0), x.stop + 1)
        cells = labels[box] * marked[box]
        for value in (*[1] * width, 2):
            around = np.pad(cells, 1, mode="edge")
            sides = around[2:, 1:-1], around[:-2, 1:-1], around[1:-1, 2:], around[1:-1, :-2]
            border = (cells != 0) & np.any([side != cells for side in sides], axis=0)
            found[box][border] = value
            cells = np.where(border, 0, cells)
    return found


def _colormap(colors: dict[int, Any]) -> DirectLabelColormap:
    """Return a colour map in which all values without a colour are transparent."""
    return DirectLabelColormap(color_dict=colors | {None: TRANSPARENT, 0: TRANSPARENT})

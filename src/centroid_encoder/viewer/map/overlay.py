"""Colour and mark the cells of one layer, find the cell under the mouse, and zoom to cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from itertools import product
from typing import Any

import numpy as np
from matplotlib.colors import to_rgba
from napari.components import ViewerModel
from napari.layers import Image, Labels, Layer, Points, Shapes
from napari.utils.colormaps import DirectLabelColormap
from napari.utils.theme import get_theme
from numpy.typing import ArrayLike, NDArray
from psygnal import Signal
from scipy.ndimage import binary_erosion
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
        self.classes = Drawing(viewer)
        self.marks = Drawing(viewer)
        self._before: Any = None
        """Opacity (Labels) or colours (Points, Shapes) of the layer before it was coloured."""
        self._marking = False
        self._callbacks = [
            (viewer.events.theme, self._on_theme),
            (viewer.layers.events, self._on_layers),
            (layer.events.visible, self._on_visible),
        ]
        if isinstance(layer, ItemLayer):
            self._callbacks.append((layer.selected_data.events.items_changed, self._on_selected))
        for event, callback in self._callbacks:
            event.connect(callback)

    def close(self) -> None:
        """Restore the look of the layer, and disconnect from it."""
        for event, callback in self._callbacks:
            event.disconnect(callback)
        self.highlight(np.empty(0, dtype=np.intp))
        self.uncolor()

    def color(self, name: str, codes: NDArray[np.intp], colors: Sequence[str]) -> None:
        """Colour each cell.

        `name` says what the colours mean; `codes` are (n_obs,) indices into `colors`, −1 for
        invisible cells.
        """
        if self.layer not in self.viewer.layers:
            return
        if isinstance(self.layer, ItemLayer):
            self._color_items(codes, colors)
            return
        # An opacity of 0 means that another widget colours the layer.
        if self._before is None and self.layer.opacity:
            self._before = self.layer.opacity
        opacity = max(self._before or 0, MIN_OPACITY)
        palette = {i + 1: to_rgba(color) for i, color in enumerate(colors)}
        name = f"{self.layer.name} · {name}"
        self.classes.show(self._painted(codes + 1), name, palette, self.layer, opacity)
        if self.layer.opacity:
            self.layer.opacity = 0

    def uncolor(self) -> None:
        """Restore the colours of the layer."""
        remove([self.classes])
        before, self._before = self._before, None
        if before is None:
            return
        if not isinstance(self.layer, ItemLayer):
            # Keep an opacity that the user has chosen since.
            self.layer.opacity = self.layer.opacity or before
            return
        mode, face, current = before
        with self.layer.block_update_properties():
            self.layer.current_face_color = current
        n = min(len(face), len(self.layer.data))
        self.layer.face_color = np.concatenate([face[:n], self.layer.face_color[n:]])
        # Setting `face_color` has changed the mode; the layer has kept the old colour map.
        self.layer.face_color_mode = mode

    def _color_items(self, codes: NDArray[np.intp], colors: Sequence[str]) -> None:
        layer = self.layer
        if self._before is None:
            face, current = layer.face_color.copy(), layer.current_face_color
            self._before = str(layer.face_color_mode), face, current
        palette = np.array([*map(to_rgba, colors), TRANSPARENT])
        face = np.zeros((len(layer.data), 4))
        rows = self._present(np.flatnonzero(self.join.joined))
        face[self.join.ids[rows]] = palette[codes[rows]]
        layer.face_color = face

    def highlight(self, rows: NDArray[np.intp]) -> None:
        """Mark cells in the layer instead of those marked before."""
        rows = self._present(rows)
        if isinstance(self.layer, ItemLayer):
            self._marking = True
            self.layer.selected_data = set(self.join.ids[rows].tolist())
            self._marking = False
            return
        if not len(rows) or self.layer not in self.viewer.layers:
            remove([self.marks])
            return
        marked, contour = self._marked(rows), OUTLINE
        if isinstance(marked, np.ndarray) and marked.ndim == 2:
            diameter = (np.count_nonzero(marked) / len(rows) * 4 / np.pi) ** 0.5
            marked, contour = outlines(marked, OUTLINE if diameter >= SMALL_CELL else 1), 0
        above = self.classes.layer or self.layer
        self.marks.show(marked, HIGHLIGHT, self._outline_colors, above, contour=contour)

    @property
    def _outline_colors(self) -> dict[int, Any]:
        """Colours of outlines (1) and of their inner rims (2), which are seen on any image.

        Outlines are black on a light canvas without an image, and otherwise white.
        """
        layers = list(self.viewer.layers)
        below = layers[: layers.index(self.layer)] if self.layer in layers else []
        over_image = any(isinstance(layer, Image) and layer.visible for layer in below)
        is_dark = sum(get_theme(self.viewer.theme).canvas.as_rgb_tuple()[:3]) < 3 * 128
        inks = ("white", "black") if over_image or is_dark else ("black", "white")
        return dict(enumerate(map(to_rgba, inks), start=1))

    def show(self, rows: NDArray[np.intp], *, steady: bool = False) -> None:
        """Move the camera to cells; if `steady`, keep the zoom if it shows them well."""
        places, cell = self._places(self._present(rows))
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

    def _on_selected(self, *_: Any) -> None:
        if not self._marking:
            rows = self.join.rows(np.fromiter(self.layer.selected_data, dtype=np.intp))
            self.picked.emit(rows[rows >= 0])

    def _on_visible(self, _: Any) -> None:
        for layer in (self.classes.layer, self.marks.layer):
            if layer is not None:
                layer.visible = self.layer.visible

    def _on_theme(self, _: Any) -> None:
        self.marks.recolor(self._outline_colors)

    def _on_layers(self, event: Any) -> None:
        is_labels = not isinstance(self.layer, ItemLayer)
        if event.type == "removed" and is_labels and self.classes.layer is None:
            self.uncolor()
        if event.type in ("inserted", "removed", "reordered", "visible"):
            self._on_theme(event)

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
        if isinstance(self.layer, Points):
            return self.layer.data[self.join.ids[rows]], float(np.median(self.layer.size))
        if isinstance(self.layer, Shapes):
            polygons = [self.layer.data[i] for i in self.join.ids[rows]]
            sizes = [np.ptp(polygon, axis=0).max() for polygon in polygons] or [0]
            vertices = np.concatenate([*polygons, np.empty((0, self.layer.ndim))])
            return vertices, float(np.median(sizes))
        if len(rows) == 1:
            mask, low = label_window(self.layer, self.join, int(self.join.ids[rows[0]]))
            pixels = np.argwhere(mask) + low
        else:
            painted = self._marked(rows)
            pixels = np.argwhere(np.asarray(painted[0] if self.layer.multiscale else painted))
        return pixels, (len(pixels) / max(len(rows), 1)) ** (1 / pixels.shape[1])


class Drawing:
    """A Labels layer that the widget draws; it is in the viewer only while it shows something."""

    def __init__(self, viewer: ViewerModel) -> None:
        self.viewer = viewer
        self._layer: Labels | None = None
        self._colors: dict[int, Any] = {}

    @property
    def layer(self) -> Labels | None:
        """The layer, or None if it is not in the viewer; the user can also remove it."""
        return self._layer if self._layer in self.viewer.layers else None

    def show(
        self,
        data: Any,
        name: str,
        colors: dict[int, Any],
        above: Layer,
        opacity: float = 1.0,
        contour: int = 0,
    ) -> None:
        """Show data above a layer, or replace the data that are shown."""
        if (layer := self.layer) is not None:
            _replace(layer, data)
            layer.name = name
            if layer.contour != contour:
                layer.contour = contour
            self.recolor(colors)
            return
        same = ("multiscale", "scale", "translate", "rotate", "shear", "affine", "units", "visible")
        options = {name: getattr(above, name) for name in same}
        options |= {"colormap": _colormap(colors), "metadata": {DRAWN: True}}
        self._colors = colors
        self._layer = Labels(data, name=name, opacity=opacity, **options)
        layers = self.viewer.layers
        # Inserting a layer selects it; restore the layers that the user has selected.
        selection, active = set(layers.selection), layers.selection.active
        layers.insert(layers.index(above) + 1, self._layer)
        layers.selection = selection
        layers.selection.active = active
        # Set after the insertion, since napari would otherwise compute the outlines twice.
        self._layer.contour = contour

    def recolor(self, colors: dict[int, Any]) -> None:
        """Change the colours of the values in the image."""
        # Each assignment redraws the layer.
        if self.layer is not None and colors != self._colors:
            self.layer.colormap, self._colors = _colormap(colors), colors


def _replace(layer: Labels, data: Any) -> None:
    """Show other data in a layer; if they fit, write them into its array, which is faster."""
    arrays = (layer.data, data)
    same = all(type(array) is np.ndarray for array in arrays)
    if same and (layer.data.shape, layer.data.dtype) == (data.shape, data.dtype):
        np.copyto(layer.data, data)
        layer.refresh(extent=False)
    else:
        layer.data = data


def remove(drawings: Iterable[Drawing]) -> None:
    """Remove several drawings at once, since napari takes long for each removal."""
    shown = [drawing for drawing in drawings if drawing.layer is not None]
    together = shown[0].viewer.layers.batched_update() if len(shown) > 1 else nullcontext()
    with together:
        for drawing in shown:
            drawing.viewer.layers.remove(drawing.layer)


def outlines(marked: NDArray[np.integer], width: int) -> NDArray[np.integer]:
    """Return the outlines of marked pixels in a 2-D image, and their inner rims.

    The values are 1 for marked pixels within `width` of an unmarked one, 2 for the rim one pixel
    farther inside, and 0 elsewhere. Napari's contours equal the pixels with value 1, but take much
    longer.
    """
    found = np.zeros_like(marked)
    ends = [np.flatnonzero(marked.any(axis=axis))[[0, -1]] for axis in (1, 0)]
    box = tuple(slice(max(first - 1, 0), last + 2) for first, last in ends)
    part = marked[box] > 0
    inside = binary_erosion(part, iterations=width, border_value=1)
    found[box] = part.astype(marked.dtype) + inside - 2 * binary_erosion(inside, border_value=1)
    return found


def _colormap(colors: dict[int, Any]) -> DirectLabelColormap:
    """Return a colour map in which all values without a colour are transparent."""
    return DirectLabelColormap(color_dict=colors | {None: TRANSPARENT, 0: TRANSPARENT})

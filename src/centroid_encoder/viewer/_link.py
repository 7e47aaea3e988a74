"""What a layer shows of the cells that are joined to it, all of it undone by `close`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib.colors import to_rgba
from napari.components import ViewerModel
from napari.layers import Labels, Layer, Points
from napari.utils.colormaps import DirectLabelColormap
from numpy.typing import NDArray

from centroid_encoder.viewer._join import Join

DIRECT = 20_000
"""Labels above which a colour for each makes napari slow; an image of the classes does not."""
HIGHLIGHT = "selected cells"
DRAWN = "centroid_encoder_drawn"
TRANSPARENT = (0.0, 0.0, 0.0, 0.0)

_ORIGINALS: WeakKeyDictionary[Layer, Any] = WeakKeyDictionary()
"""Colours of the layers that are coloured now, shared by all widgets: what one of them finds may be
what another has put there."""


def is_drawn(layer: Layer) -> bool:
    """Tell whether a layer is one that a link has drawn."""
    return DRAWN in layer.metadata


class LayerLink:
    """Colour, highlight, show and pick the cells of one Labels or Points layer.

    Parameters
    ----------
    viewer
        The viewer.
    layer
        Layer whose labels or points are cells.
    join
        Which rows of the table they are.
    picked
        Called with the rows that the user picked in the layer.
    """

    def __init__(
        self,
        viewer: ViewerModel,
        layer: Labels | Points,
        join: Join,
        picked: Callable[[NDArray[np.intp]], None],
    ) -> None:
        self.viewer = viewer
        self.layer = layer
        self.join = join
        self._picked = picked
        self._quiet = False
        self._ours: Any = None
        self._classes: Labels | None = None
        self._highlight: Labels | None = None
        viewer.mouse_drag_callbacks.append(self._on_press)
        if isinstance(layer, Points):
            layer.selected_data.events.items_changed.connect(self._on_points_selected)

    def close(self) -> None:
        """Leave the layer and the viewer as they were before."""
        if self._on_press in self.viewer.mouse_drag_callbacks:
            self.viewer.mouse_drag_callbacks.remove(self._on_press)
        if isinstance(self.layer, Points):
            self.layer.selected_data.events.items_changed.disconnect(self._on_points_selected)
        self.uncolor()
        self.highlight(np.empty(0, dtype=np.intp))

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
        if isinstance(self.layer, Points):
            self._color_points(codes, colors)
        elif self.join.joined.sum() <= DIRECT:
            self._drop("_classes")
            self._color_labels(codes, colors)
        else:
            self._color_above(name, codes, colors)

    def uncolor(self) -> None:
        """Give the layer its own colours back."""
        ours, self._ours = self._ours, None
        if ours is not None and self.layer in _ORIGINALS:
            original = _ORIGINALS.pop(self.layer)
            if isinstance(self.layer, Points):
                _restore_points(self.layer, original)
            # A colour map that the user has chosen meanwhile stays.
            elif isinstance(self.layer.colormap, DirectLabelColormap):
                self.layer.colormap = original
        self._drop("_classes")

    def _color_labels(self, codes: NDArray[np.intp], colors: Sequence[str]) -> None:
        _ORIGINALS.setdefault(self.layer, self.layer.colormap)
        palette = [*map(to_rgba, colors), TRANSPARENT]
        joined = self.join.joined
        known = zip(self.join.ids[joined].tolist(), codes[joined].tolist(), strict=True)
        table: dict[int | None, Any] = {label: palette[code] for label, code in known}
        self._ours = DirectLabelColormap(color_dict=table | {None: TRANSPARENT, 0: TRANSPARENT})
        self.layer.colormap = self._ours

    def _color_above(self, name: str, codes: NDArray[np.intp], colors: Sequence[str]) -> None:
        """Put an image of the classes above the labels."""
        painted = self._painted(codes + 1)
        table: dict[int | None, Any] = {i + 1: to_rgba(color) for i, color in enumerate(colors)}
        colormap = DirectLabelColormap(color_dict=table | {None: TRANSPARENT, 0: TRANSPARENT})
        if self._is_here(self._classes):
            assert self._classes is not None
            self._classes.data = painted
            self._classes.colormap = colormap
            self._classes.name = f"{self.layer.name} · {name}"
        else:
            self._classes = self._add(painted, f"{self.layer.name} · {name}", colormap, opacity=0.7)

    def _color_points(self, codes: NDArray[np.intp], colors: Sequence[str]) -> None:
        layer = self.layer
        if layer not in _ORIGINALS:
            _ORIGINALS[layer] = _points_colors(layer)
        palette = np.array([*map(to_rgba, colors), TRANSPARENT])
        face = np.zeros((len(layer.data), 4))
        joined = self.join.joined
        face[self.join.ids[joined]] = palette[codes[joined]]
        layer.face_color = self._ours = face

    # -- selection -------------------------------------------------------------------------------

    def highlight(self, rows: NDArray[np.intp]) -> None:
        """Mark cells in the layer; none takes the marks away."""
        rows = rows[self.join.joined[rows]]
        if isinstance(self.layer, Points):
            self._quiet = True
            try:
                self.layer.selected_data = set(self.join.ids[rows].tolist())
            finally:
                self._quiet = False
            return
        if not len(rows):
            self._drop("_highlight")
            return
        selected = np.zeros(len(self.join.joined), dtype=np.intp)
        selected[rows] = 1
        painted = self._painted(selected)
        if self._is_here(self._highlight):
            assert self._highlight is not None
            self._highlight.data = painted
        else:
            colormap = DirectLabelColormap(color_dict={None: TRANSPARENT, 0: TRANSPARENT, 1: "w"})
            self._highlight = self._add(painted, HIGHLIGHT, colormap, opacity=1.0)

    def show(self, rows: NDArray[np.intp]) -> None:
        """Move the camera to cells."""
        rows = rows[self.join.joined[rows]]
        if not len(rows):
            return
        low, high = self._extent(rows)
        world = [np.asarray(self.layer.data_to_world(corner)) for corner in (low, high)]
        low, high = np.min(world, axis=0), np.max(world, axis=0)
        dims = self.viewer.dims
        offset = dims.ndim - len(low)
        for axis in dims.not_displayed:
            if axis >= offset:
                dims.set_point(axis, (low[axis - offset] + high[axis - offset]) / 2)
        displayed = [axis - offset for axis in dims.displayed if axis >= offset]
        center, size = (low + high)[displayed] / 2, (high - low)[displayed]
        camera = self.viewer.scene.camera
        camera.center = tuple(np.pad(center, (3 - len(center), 0)))
        canvas = np.array(self.viewer.canvas.size)[-len(size) :]
        # A cell in its neighbourhood, not filling the window.
        room = np.maximum(size * 1.5, 12 * np.median(self._cell_size(rows)))
        camera.zoom = (
            float(canvas.min() / room.max()) if len(size) > 2 else float((canvas / room).min())
        )

    # -- picking ---------------------------------------------------------------------------------

    def _on_press(self, viewer: ViewerModel, event: Any) -> Iterator[None]:
        """Pick the cell on which the mouse was clicked, not dragged."""
        start = np.asarray(event.pos if hasattr(event, "pos") else event.position)
        dragged = False
        yield
        while event.type == "mouse_move":
            here = np.asarray(event.pos if hasattr(event, "pos") else event.position)
            dragged = dragged or bool(np.abs(here - start).max() > 3)
            yield
        if dragged or not isinstance(self.layer, Labels) or self.layer not in viewer.layers:
            return
        if str(self.layer.mode) not in ("pan_zoom", "pick") or not self.layer.visible:
            return
        value = self.layer.get_value(
            event.position,
            view_direction=event.view_direction,
            dims_displayed=event.dims_displayed,
            world=True,
        )
        if isinstance(value, tuple):  # (level, label) of a multiscale image
            value = value[-1]
        rows = self.join.rows(np.array([value or 0]))
        # A click beside the cells, as when moving the image, keeps the selection.
        if (rows >= 0).any():
            self._picked(rows)

    def _on_points_selected(self, *_: Any) -> None:
        if not self._quiet:
            points = np.fromiter(self.layer.selected_data, dtype=np.intp)
            rows = self.join.rows(points)
            self._picked(rows[rows >= 0])

    # -- layers of our own -----------------------------------------------------------------------

    def _painted(self, values: NDArray[np.intp]) -> Any:
        """Image, or multiscale images, with the value of the cell in place of each label."""
        joined = self.join.joined
        ids, values = self.join.ids[joined], values[joined]
        dtype = np.min_scalar_type(int(values.max(initial=0)))
        order = np.argsort(ids)
        ids, values = ids[order], values[order].astype(dtype)

        def paint(block: NDArray[np.integer]) -> NDArray[np.integer]:
            return _looked_up(block, ids, values)

        if not self.layer.multiscale:
            return _mapped(paint, self.layer.data, dtype)
        return [_mapped(paint, level, dtype) for level in self.layer.data]

    def _add(self, data: Any, name: str, colormap: Any, opacity: float) -> Labels:
        layer = Labels(
            data,
            name=name,
            colormap=colormap,
            opacity=opacity,
            multiscale=self.layer.multiscale,
            metadata={DRAWN: True},
            **{
                name: getattr(self.layer, name)
                for name in ("scale", "translate", "rotate", "shear", "affine", "units")
            },
        )
        layers = self.viewer.layers
        # The user's choice of layers stays as it is.
        selection, active = set(layers.selection), layers.selection.active
        layers.insert(layers.index(self.layer) + 1, layer)
        layers.selection = selection
        layers.selection.active = active
        return layer

    def _is_here(self, layer: Layer | None) -> bool:
        return layer is not None and layer in self.viewer.layers

    def _drop(self, name: str) -> None:
        layer = getattr(self, name)
        setattr(self, name, None)
        if self._is_here(layer):
            self.viewer.layers.remove(layer)

    def _extent(self, rows: NDArray[np.intp]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Lowest and highest corner of cells, in pixels of the layer."""
        if isinstance(self.layer, Points):
            points = self.layer.data[self.join.ids[rows]]
            return points.min(axis=0), points.max(axis=0)
        selected = np.zeros(len(self.join.joined), dtype=np.intp)
        selected[rows] = 1
        painted = self._painted(selected)
        image = np.asarray(painted[0] if self.layer.multiscale else painted)
        found = [np.flatnonzero(image.any(axis=_others(image.ndim, i))) for i in range(image.ndim)]
        return np.array([f[0] for f in found]), np.array([f[-1] for f in found])

    def _cell_size(self, rows: NDArray[np.intp]) -> float:
        """Size of a cell in world units, roughly."""
        if isinstance(self.layer, Points):
            return float(np.median(self.layer.size) * np.max(self.layer.scale))
        data = self.layer.data[0] if self.layer.multiscale else self.layer.data
        n_pixels = float(np.prod(data.shape)) / max(len(self.join.joined), 1)
        return float(n_pixels ** (1 / data.ndim) * np.max(self.layer.scale))


def _others(ndim: int, axis: int) -> tuple[int, ...]:
    return tuple(i for i in range(ndim) if i != axis)


def _mapped(paint: Callable[..., Any], data: Any, dtype: np.dtype[Any]) -> Any:
    if hasattr(data, "map_blocks"):
        return data.map_blocks(paint, dtype=dtype)
    return paint(np.asarray(data))


def _looked_up(
    block: NDArray[np.integer], ids: NDArray[np.integer], values: NDArray[np.integer]
) -> NDArray[np.integer]:
    """Value of each label; 0 for labels that are not among the sorted `ids`."""
    if not len(ids):
        return np.zeros(block.shape, dtype=values.dtype)
    if ids[0] >= 0 and ids[-1] < 1 << 26:
        # One look into a table a pixel.
        table = np.zeros(int(ids[-1]) + 2, dtype=values.dtype)
        table[ids] = values
        painted: NDArray[np.integer] = table[np.clip(block, -1, len(table) - 1).astype(np.intp)]
        return painted
    at = np.minimum(np.searchsorted(ids, block), len(ids) - 1)
    return np.where(ids[at] == block, values[at], 0).astype(values.dtype)


def _points_colors(layer: Points) -> dict[str, Any]:
    face = layer._face
    return {
        "mode": str(layer.face_color_mode),
        "colors": layer.face_color.copy(),
        "property": face.color_properties.name if face.color_properties is not None else None,
    }


def _restore_points(layer: Points, before: dict[str, Any]) -> None:
    if before["property"] is not None and before["property"] in layer.features:
        layer.face_color = before["property"]
        layer.face_color_mode = before["mode"]
    elif len(before["colors"]) == len(layer.data):
        layer.face_color = before["colors"]

"""Colour and mark the cells of one layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias

import dask.array as da
import numpy as np
from matplotlib.colors import to_rgba
from napari.components import ViewerModel
from napari.layers import Image, Labels
from napari.utils.colormaps import DirectLabelColormap
from napari.utils.transforms import Affine
from numpy.typing import ArrayLike, NDArray
from skimage.util import map_array

from centroid_encoder.viewer.data.ids import (
    MAX_PIXELS_AT_ONCE,
    PLACE,
    SIDE_OF_BLOCK,
    ItemLayer,
    lazily,
    pixels,
)
from centroid_encoder.viewer.data.join import Join
from centroid_encoder.viewer.data.tables import DRAWN, is_drawn
from centroid_encoder.viewer.data.thumbnail import to_world
from centroid_encoder.viewer.map.camera import present

TRANSPARENT = (0.0, 0.0, 0.0, 0.0)
HIGHLIGHT = "selected cells"
OUTLINE = 2
"""Width of the outline of a selected cell in pixels of the image."""
INKS = {1: to_rgba("white"), 2: to_rgba("black")}
"""Colours of outlines and of their inner rims; one of them is seen on any image and canvas."""
SMALL_CELL = 12
"""Below this diameter in pixels of the image, an outline is one pixel wide."""
MIN_OPACITY = 0.7
"""Least opacity of coloured labels, so that colours can be distinguished over an image."""
EDITING = ("paint", "erase", "fill", "polygon")
"""Modes in which the labels of the active layer are shown in place of the colours of its cells."""
MAX_TABLE = 2**25
"""Largest label with which colours are looked up in a table, the fastest way."""
Paint: TypeAlias = Callable[[ArrayLike], NDArray[Any]]


class ItemsLink:
    """The cells of a Points or Shapes layer: they get other face colours; marked ones are selected.

    `join` links the indices of the items to rows of the table, and can be replaced. `pick` is
    called with the rows of the items that the user selects in the layer.
    """

    drawn: Sequence[Labels] = ()

    def __init__(
        self, layer: ItemLayer, join: Join, pick: Callable[[NDArray[np.intp]], object]
    ) -> None:
        self.layer, self.join, self._pick = layer, join, pick
        self._own: tuple[str, NDArray[np.floating], Any] | None = None
        """Mode, colours and current colour of the layer while it has those of the cells."""
        self._marking = False
        layer.selected_data.events.items_changed.connect(self._on_selected)

    def close(self) -> None:
        """Restore the look of the layer, and disconnect from it."""
        self.highlight(np.empty(0, dtype=np.intp))
        self.uncolor()
        self.layer.selected_data.events.items_changed.disconnect(self._on_selected)

    def color(
        self, _: str, codes: NDArray[np.intp], colors: Sequence[str], hollow: int | None = None
    ) -> None:
        """Colour each cell; see `LabelsLink.color`."""
        layer = self.layer
        if self._own is None:
            mode = str(layer.face_color_mode)
            self._own = mode, layer.face_color.copy(), layer.current_face_color
        palette = np.array([*map(to_rgba, colors), TRANSPARENT], dtype=np.float32)
        face = np.zeros((len(layer.data), 4), dtype=np.float32)
        rows = present(layer, self.join, np.flatnonzero(self.join.joined))
        face[self.join.ids[rows]] = palette[codes[rows]]
        if not np.array_equal(face, layer.face_color):
            layer.face_color = face

    def uncolor(self) -> None:
        """Restore the colours of the layer."""
        if self._own is None:
            return
        (mode, face, current), self._own = self._own, None
        with self.layer.block_update_properties():
            self.layer.current_face_color = current
        # If the user has added or removed items, colours cannot be assigned to the others.
        self.layer.face_color = face if len(face) == len(self.layer.data) else current
        # Setting `face_color` has changed the mode; the layer has kept the old colour map.
        self.layer.face_color_mode = mode
        # If items were removed, napari has kept their values for the colours.
        self.layer.refresh_colors()

    def highlight(self, rows: NDArray[np.intp]) -> None:
        """Select cells in the layer."""
        rows = present(self.layer, self.join, rows)
        self._marking = True
        try:
            self.layer.selected_data = set(self.join.ids[rows].tolist())
        finally:
            self._marking = False

    def _on_selected(self, _: Any) -> None:
        if not self._marking:
            rows = self.join.rows(np.fromiter(self.layer.selected_data, dtype=np.intp))
            self._pick(rows[rows >= 0])


class LabelsLink:
    """The cells of a Labels layer: colours and outlines are drawn above it and all images.

    While the colours are seen, the opacity of the Labels layer is 0; one that the user chooses then
    is that of the colours. The drawn layers are hidden while the user edits the labels, and in
    napari's grid, where each layer has a tile of its own. `join` links the labels to rows of the
    table, and can be replaced; `move` also replaces the layer.
    """

    def __init__(self, viewer: ViewerModel, layer: Labels, join: Join) -> None:
        self.viewer, self.layer, self.join = viewer, layer, join
        self.classes: Labels | None = None
        """The layer of the colours."""
        self.marks: Labels | None = None
        """The layer of the outlines."""
        self._painted: tuple[str, NDArray[np.intp], int | None, Join] | None = None
        """Meaning of the colours that are painted, the codes, `hollow` and the join."""
        self._opacity = 1.0
        """Opacity of the labels when they are not covered."""
        self._own_colormap: Any = None
        """Colour map of the labels before they had the colours of their classes; None otherwise."""
        active, grid = viewer.layers.selection.events.active, viewer.canvas.grid.events.enabled
        # The list of layers also emits the events of each layer.
        self._events = viewer.layers.events, active, grid
        for event in self._events:
            event.connect(self._on_event)

    @property
    def drawn(self) -> list[Labels]:
        """The layers of the colours and of the outlines, as far as they are there."""
        return [layer for layer in (self.classes, self.marks) if layer is not None]

    def close(self) -> None:
        """Remove what is drawn, restore the look of the layer, and disconnect from it."""
        remove(self.viewer, self.drawn)
        self.uncolor()
        for event in self._events:
            event.disconnect(self._on_event)

    def move(self, layer: Labels, join: Join) -> None:
        """Draw the cells of another label image of as many dimensions.

        napari takes long to add and remove layers, so the drawn ones stay. Their pixels are those
        of the last image until `color` and `highlight` are called.
        """
        self._color_labels(False)
        before, self.layer, self.join = self.layer, layer, join
        if self._painted is not None:
            before.opacity = before.opacity or self._opacity
        self._painted = None
        self._follow_place()
        self.stay_on_top()

    def color(
        self, name: str, codes: NDArray[np.intp], colors: Sequence[str], hollow: int | None = None
    ) -> None:
        """Colour each cell.

        `name` says what the colours mean; `codes` are (n_obs,) indices into `colors`, −1 for
        invisible cells. Labels with the code `hollow` are outlined.
        """
        layer, before = self.layer, self._painted
        if layer not in self.viewer.layers:
            return
        of_value = {i + 1: to_rgba(color) for i, color in enumerate(colors)}
        if hollow is not None:
            of_value[hollow + 1] = to_rgba(colors[hollow], 1)  # A thin line must be opaque.
        border, data = None if hollow is None else hollow + 1, None
        if before is not None and (hollow, self.join) == before[2:]:
            rows = np.flatnonzero((codes != before[1]) & self.join.joined)
            data = self._repainted(rows, codes + 1, border)
        if data is None:
            data = self._all_painted(codes + 1, border)
        title, old = f"{layer.name} · {name}", self.classes
        self.classes = self._draw(old, data, title, of_value, [0] * layer.ndim)
        self._painted = name, codes, hollow, self.join
        if before is None or self.classes is not old:
            self._opacity = layer.opacity
            self.classes.opacity = max(layer.opacity, MIN_OPACITY)
        self._color_labels(False)
        self._hide_or_show()

    def uncolor(self) -> None:
        """Restore the colours of the layer."""
        is_colored, self._painted = self._painted is not None, None
        remove(self.viewer, [self.classes])
        if is_colored:
            self._color_labels(False)
            # Keep an opacity that the user has chosen since.
            self.layer.opacity = self.layer.opacity or self._opacity

    def highlight(self, rows: NDArray[np.intp]) -> None:
        """Outline cells instead of those outlined before."""
        layer, rows = self.layer, present(self.layer, self.join, rows)
        if layer not in self.viewer.layers or (self.marks is None and not len(rows)):
            return
        # napari takes long to remove a layer, so it stays when no cell is selected.
        nothing = [np.zeros((side,) * layer.ndim, dtype=np.uint8) for side in (2, 1)]
        corner, data = self._outlined(rows) if len(rows) else ([0] * layer.ndim, nothing)
        # napari reads only the visible part of a multiscale image.
        is_large = math.prod(pixels(layer).shape) > MAX_PIXELS_AT_ONCE
        self.marks = self._draw(self.marks, data if is_large else data[0], HIGHLIGHT, INKS, corner)
        self._hide_or_show()

    def _outlined(self, rows: NDArray[np.intp]) -> tuple[list[int], Any]:
        """Return the first pixel and the levels of an image of the outlines of cells."""
        ids = self.join.ids[rows]
        sizes = np.diff(self.join.of.boxes_of(ids)[..., -2:], axis=1)
        paint = _lookup(ids, 1 + np.arange(len(ids)))

        def outlined(block: ArrayLike, step: int) -> NDArray[np.uint8]:
            wide = np.median(sizes) >= SMALL_CELL * step
            return outlines(paint(block), OUTLINE if wide else 1)

        box = self.join.of.box(ids, margin=1)
        levels, first = self._levels, [side.start for side in box]
        if math.prod(side.stop - side.start for side in box) <= MAX_PIXELS_AT_ONCE:
            window = levels[0][box]
            if type(window) is np.ndarray:
                return first, [outlined(window, 1), outlined(window[..., ::2, ::2], 2)]
            # Only planes that are seen are read; an outline must not end at the border of a block.
            window = da.asarray(window).rechunk((*(1,) * (len(box) - 2), -1, -1))
            halves = enumerate((window, window[..., ::2, ::2]), start=1)
            return first, [da.map_blocks(outlined, x, step=i, dtype=np.uint8) for i, x in halves]
        while max((last := levels[-1]).shape[-2:]) >= 2 * SIDE_OF_BLOCK:
            last = last if isinstance(last, np.ndarray) else lazily(last)
            levels.append(last[..., ::2, ::2])
        return [0] * self.layer.ndim, [
            da.map_blocks(
                outlined,
                lazily(level),
                step=round(levels[0].shape[-1] / level.shape[-1]),
                dtype=np.uint8,
            )
            for level in levels
        ]

    @property
    def _levels(self) -> list[Any]:
        """The labels, and smaller images of them if there are any."""
        data, overview = self.layer.data, self.join.of.overview
        if self.layer.multiscale:
            return list(data)
        is_whole = overview is not None and overview.shape == data.shape
        return ([] if is_whole else [data]) + ([] if overview is None else [overview])

    def stay_on_top(self) -> None:
        """Move the drawn layers above this layer and all images, if the user has moved these."""
        for drawn in self.drawn:
            if (at := self.viewer.layers.index(drawn)) < (top := self._top(drawn.name)):
                self.viewer.layers.move(at, top)

    def _top(self, name: str) -> int:
        """Return the number of layers up to the uppermost that a drawn layer must not be below."""
        top = 0
        for i, other in enumerate(self.viewer.layers, start=1):
            is_colors = is_drawn(other) and other.name != HIGHLIGHT
            below_marks = name == HIGHLIGHT and is_colors
            if isinstance(other, Image) or other is self.layer or below_marks:
                top = i
        return top

    def _draw(
        self,
        drawn: Labels | None,
        data: Any,
        name: str,
        colors: dict[int, Any],
        corner: Sequence[int],
    ) -> Labels:
        """Show an image, or a list of levels, in a drawn layer or in a new one above the cells.

        `corner` is the pixel of the layer of the cells where the data begin.
        """
        is_multiscale = isinstance(data, list)
        if drawn is not None and data is not drawn.data and drawn.multiscale != is_multiscale:
            remove(self.viewer, [drawn])
            drawn = None
        if drawn is None:
            look = {"opacity": 1, "visible": self.layer.visible, "colormap": _colormap(colors)}
            look |= {"name": name, "metadata": {DRAWN: colors}, "translate": corner}
            new = Labels(data, multiscale=is_multiscale, **look, **self._place)
            layers = self.viewer.layers
            # Inserting a layer selects it; restore the layers that the user has selected.
            selection, active = set(layers.selection), layers.selection.active
            layers.insert(self._top(name), new)
            layers.selection = selection
            layers.selection.active = active
            return new
        # Each assignment redraws the layer; that of the place also updates napari's extent.
        if data is not drawn.data:
            is_there = not is_multiscale and drawn.data.shape == data.shape
            is_there &= np.array_equal(drawn.translate, corner)
            if is_multiscale:
                # napari would read the part that it has read of the last pixels.
                ends = np.array(data[-1].shape) - 1
                drawn.corner_pixels = np.stack([np.zeros_like(ends), ends])
            drawn.data = data
            if not is_there:
                drawn.translate = corner
        if drawn.name != name:
            drawn.name = name
        if drawn.metadata[DRAWN] != colors:
            drawn.metadata[DRAWN], drawn.colormap = colors, _colormap(colors)
        return drawn

    @property
    def _place(self) -> dict[str, Any]:
        """Attributes of a layer whose world coordinates are the pixels of this one."""
        matrix, offset = to_world(self.layer)
        affine = Affine(linear_matrix=matrix, translate=offset)
        return {"affine": affine, "units": self.layer.units}

    def _follow_place(self) -> None:
        for drawn in self.drawn:
            drawn.affine, drawn.units = self._place.values()

    def _on_event(self, event: Any) -> None:
        """Follow the layer of the cells, the list of layers and the grid."""
        kind, own, colors = event.type, event.sources[0] is self.layer, self.classes
        if kind == "removed" and event.value is self.marks:
            self.marks = None
        elif kind == "removed" and event.value is colors:
            self.classes = None
            self.uncolor()  # The user may have deleted the colours.
        elif own and kind in PLACE:
            self._follow_place()
        elif own and kind == "name" and colors is not None and self._painted is not None:
            colors.name = f"{self.layer.name} · {self._painted[0]}"
        elif own and kind == "opacity" and colors is not None and colors.visible:
            if self.layer.opacity:
                colors.opacity = self.layer.opacity
                self._hide_or_show()
        elif kind in ("active", "enabled") or (own and kind in ("visible", "mode")):
            self._hide_or_show()

    def _hide_or_show(self) -> None:
        """Show the colours, or the labels themselves while the user edits them."""
        layer, is_grid = self.layer, self.viewer.canvas.grid.enabled
        is_active = layer is self.viewer.layers.selection.active
        is_edited = is_active and str(layer.mode) in EDITING
        is_own = is_grid or is_edited
        for drawn, is_hidden in ((self.marks, is_grid), (self.classes, is_own)):
            # Each assignment redraws the layer.
            if drawn is not None and drawn.visible != (layer.visible and not is_hidden):
                drawn.visible = not drawn.visible
        if self.classes is not None:
            self._opacity = layer.opacity or self._opacity
            layer.opacity = self._opacity if is_own else 0
            self._color_labels(is_grid and not is_edited)

    def _color_labels(self, on: bool) -> None:
        """Give the labels the colours of their classes while the grid hides what is drawn."""
        if not on and self._own_colormap is not None:
            self.layer.colormap, self._own_colormap = self._own_colormap, None
        elif on and self._own_colormap is None and self.classes is not None and self._painted:
            self._own_colormap = self.layer.colormap
            joined, of_value = self.join.joined, self.classes.metadata[DRAWN]
            codes, ids = self._painted[1][joined].tolist(), self.join.ids[joined].tolist()
            colors = [of_value.get(code + 1, TRANSPARENT) for code in codes]
            self.layer.colormap = _colormap(dict(zip(ids, colors, strict=True)))

    def _repainted(
        self, rows: NDArray[np.intp], values: NDArray[np.intp], hollow: int | None
    ) -> Any:
        """Paint the cells of some rows again; None if they are many, or the image is lazy."""
        image, drawn, ids = pixels(self.layer), self.classes, self.join.ids[rows]
        if drawn is None or not len(rows):
            return None if drawn is None else drawn.data
        if not (type(image) is type(drawn.data) is np.ndarray):
            return None
        box, dtype = self.join.of.box(ids, margin=1), _dtype_of(values)
        is_large = 4 * math.prod(x.stop - x.start for x in box) > image.size
        if is_large or drawn.data.dtype != dtype:
            return None
        part = image[box]
        changed = np.isin(part, ids)
        paint = _painter(ids, values[rows].astype(dtype), hollow)
        drawn.data[box][changed] = paint(part)[changed]
        drawn.refresh(extent=False)
        return drawn.data

    def _all_painted(self, values: NDArray[np.intp], hollow: int | None) -> Any:
        """Replace each label by the value of its row, and labels without a row by 0.

        `values`, (n_obs,), are not negative. Labels with the value `hollow` are outlined. Returns
        an image, or a list of levels; they are lazy if the labels are.
        """
        joined, dtype = self.join.joined, _dtype_of(values)
        painted = _painter(self.join.ids[joined], values[joined].astype(dtype), hollow)

        def drawn(data: Any) -> Any:
            lazy = da.map_blocks(painted, lazily(data), dtype=dtype)
            return lazy.compute() if type(data) is np.ndarray else lazy

        levels = [drawn(level) for level in self._levels]
        return levels if self.layer.multiscale or len(levels) > 1 else levels[0]


def remove(viewer: ViewerModel, drawn: Iterable[Labels | None]) -> None:
    """Remove several drawn layers at once, since napari takes long for each removal."""
    if shown := [layer for layer in drawn if layer is not None]:
        with viewer.layers.batched_update():
            for layer in shown:
                viewer.layers.remove(layer)


def _lookup(ids: NDArray[np.int64], values: NDArray[Any]) -> Paint:
    """Return a function that replaces labels by their values, and all other labels by 0."""
    if len(ids) and not 0 < ids.min() <= ids.max() < MAX_TABLE:
        return lambda block: map_array(np.asarray(block), ids, values)  # type: ignore[no-untyped-call]
    table = np.zeros(ids.max(initial=0) + 2, dtype=values.dtype)
    table[ids] = values
    # Negative labels become 0, and those beyond the table its last value, which is 0.
    return lambda block: table.take(np.asarray(block).astype(np.intp, copy=False), mode="clip")


def _painter(ids: NDArray[np.int64], values: NDArray[Any], hollow: int | None) -> Paint:
    """Return a function as `_lookup` does; labels with the value `hollow` are outlined."""
    paint = _lookup(ids, values)

    def painted(block: ArrayLike) -> NDArray[Any]:
        found = paint(block)
        if hollow is not None and (inside := found == hollow).any():
            found[inside & ~_borders(np.asarray(block))] = 0
        return found

    return painted


def _dtype_of(values: NDArray[np.intp]) -> np.dtype[Any]:
    """Return the smallest type of these values, which are not negative."""
    return np.min_scalar_type(int(values.max(initial=0)))


def _borders(cells: NDArray[Any]) -> NDArray[np.bool_]:
    """Return which pixels differ from one of their four neighbours in the plane."""
    found = np.zeros(cells.shape, dtype=bool)
    for axis in (-2, -1):
        differs = np.diff(cells, axis=axis) != 0
        low, high = (np.moveaxis(found, axis, 0)[part] for part in (slice(-1), slice(1, None)))
        low |= np.moveaxis(differs, axis, 0)
        high |= np.moveaxis(differs, axis, 0)
    return found


def outlines(cells: NDArray[Any], width: int) -> NDArray[np.uint8]:
    """Return the outlines of the marked cells in planes of labels, and their inner rims.

    `cells` has the labels of the marked cells, and 0 elsewhere. The values are 1 within the width
    of an outline from other pixels or another cell, 2 for the rim one pixel farther inside, and 0
    elsewhere. Napari's contours equal the pixels with value 1, but take much longer.
    """
    found = np.zeros(cells.shape, dtype=np.uint8)
    for value in (*[1] * width, 2):
        border = _borders(cells) & (cells != 0)
        found[border] = value
        cells = np.where(border, 0, cells)
    return found


def compile_colors() -> None:
    """Let Numba compile what napari needs for the first colours; it takes more than a second."""
    _colormap({1: TRANSPARENT}).map(np.zeros((1, 1), _dtype_of(np.zeros(1, np.intp))))


def _colormap(colors: dict[int, Any]) -> DirectLabelColormap:
    """Return a colour map in which all values without a colour are transparent."""
    return DirectLabelColormap(color_dict=colors | {None: TRANSPARENT, 0: TRANSPARENT})

"""The cells in the viewer: their colours, outlines and images, the mouse and the camera."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import call
from typing import Any
from weakref import WeakSet

import numpy as np
from napari.components import ViewerModel
from napari.layers import Image, Labels, Layer, Points
from numpy.typing import NDArray
from qtpy.QtCore import QObject, Qt, QTimer
from qtpy.QtWidgets import QApplication

from centroid_encoder.tl._positions import positions
from centroid_encoder.viewer.data.columns import image_of, image_stem
from centroid_encoder.viewer.data.ids import CellLayer
from centroid_encoder.viewer.data.join import Join, TableImage
from centroid_encoder.viewer.data.tables import is_drawn
from centroid_encoder.viewer.data.thumbnail import LOOKS, layers_of_cell
from centroid_encoder.viewer.map import colorings
from centroid_encoder.viewer.map.camera import lie_on_each_other, look_at, row_at
from centroid_encoder.viewer.map.image_lasso import Lasso, rows_inside
from centroid_encoder.viewer.map.overlay import ItemsLink, LabelsLink, remove
from centroid_encoder.viewer.panels.map import describe
from centroid_encoder.viewer.session.session import SelectionMode, Session
from centroid_encoder.viewer.session.state import CONTENT, State, Version

OTHER_BUTTONS = (2, 3)
"""The right and the middle button of the mouse."""
MAX_MOVED = 3
"""If the mouse moves over more pixels, it is not a click."""
LISTS = ("inserted", "removed", "reordered")
"""Events of the list of layers after which pictures of cells may be others."""


class Tissue:
    """Shows the selection and the colours of the session in the layers of the cells.

    It ends with `close`; no delayed step outlives `parent`.
    """

    def __init__(self, session: Session, viewer: ViewerModel, parent: QObject) -> None:
        self._session, self._viewer = session, viewer
        self._links: list[LabelsLink | ItemsLink] = []
        self._left: WeakSet[Layer] = WeakSet()
        """Layers of the table that was chosen before."""
        self._seen: WeakSet[Layer] = WeakSet()
        """Layers that were in the viewer when it was last decided which image is shown."""
        self._hovered = ""
        """Name, label and prediction of the cell under the mouse."""
        self._lasso = Lasso(viewer, self._on_drawn, partial(session.set, lasso=False))
        self.due: list[Callable[[], object]] = []
        """The next steps; each one is an event of its own."""
        self._next = QTimer(parent, interval=0, singleShot=True)
        self._next.timeout.connect(self._on_next)
        viewer.mouse_drag_callbacks.append(self._on_press)
        viewer.mouse_move_callbacks.append(self._on_move)
        viewer.events.status.connect(self._on_status)
        viewer.layers.events.connect(self._on_layers)
        session.show_in(self.show_state)

    def show_state(self, before: State, now: State) -> None:
        """Show other colours and another selection, in the layers that are linked now."""
        if now.differs(before, "cells"):
            self.unlink()
        is_linked = now.differs(before, "links")
        if is_linked:
            self._hide_others()
            self._link(self._joins)
        elif now.differs(before, "tables"):
            self._on_listed()
        # Separate events, since labels, camera and colours together would block the window.
        do = self._soon if now.labeling is not None and not is_linked else call
        if is_linked or now.differs(before, "coloring", "regions", "hidden", *CONTENT):
            do(self.paint)
        if is_linked or now.differs(before, "group", "cells"):
            do(self._mark)
        if now.zoomed is not None and now.differs(before, "zoomed"):
            self._soon(self.zoom)
        if now.differs(before, "lasso"):
            self._draw_lasso(now.lasso)

    def _soon(self, act: Callable[[], object]) -> None:
        self.due = [*(other for other in self.due if other != act), act]
        self._next.start()

    def _on_next(self) -> None:
        if self.due:
            act, *self.due = self.due
            self._next.start()
            act()

    def unlink(self) -> None:
        """Restore the look of all layers."""
        self._left = WeakSet(link.layer for link in self._links)
        self._seen.clear()
        self._link({})

    def close(self) -> None:
        """Restore the look of all layers, and follow neither the mouse nor the layers."""
        viewer, self.due = self._viewer, []
        for callbacks in (viewer.mouse_drag_callbacks, viewer.mouse_move_callbacks):
            callbacks[:] = [x for x in callbacks if x not in (self._on_press, self._on_move)]
        viewer.events.status.disconnect(self._on_status)
        viewer.layers.events.disconnect(self._on_layers)
        self.unlink()
        self.show_image(None)

    @property
    def _rows(self) -> NDArray[np.intp]:
        """Rows of the selected cells."""
        return np.flatnonzero(self._session.state.selected)

    @property
    def _joins(self) -> dict[CellLayer, Join]:
        """The join of each layer of the viewer that shows cells of the table."""
        joins, layers = self._session.catalog.joins, self._viewer.layers
        return {link.layer: join for link, join in joins.items() if link.layer in layers}

    @property
    def _visible(self) -> list[tuple[CellLayer, Join]]:
        """Those of these layers that are visible with their joins, the topmost one first."""
        at = self._viewer.layers.index
        shown = [pair for pair in self._joins.items() if pair[0].visible]
        return sorted(shown, key=lambda pair: at(pair[0]), reverse=True)

    def _link(self, joins: dict[CellLayer, Join]) -> None:
        """Link the layers to the cells; label images only if they are shown.

        An image that is shown takes the drawn layers of a hidden one. Those that are left over are
        removed, but while no image is shown, they stay.
        """
        if not joins:
            self._lasso.stop()
        links = {link.layer: link for link in self._links}
        idle = [x for x in links if x not in joins or _is_hidden(x)]
        for layer, join in joins.items():
            if layer in links:
                links[layer].join = join
            elif not isinstance(layer, Labels):
                links[layer] = ItemsLink(layer, join, self._session.select)
            elif layer.visible:
                free = [x for x in idle if isinstance(x, Labels) and x.ndim == layer.ndim]
                link = links.pop(free[0]) if free else None
                if isinstance(link, LabelsLink):
                    idle.remove(free[0])
                    link.move(layer, join)
                links[layer] = link or LabelsLink(self._viewer, layer, join)
        is_shown = not all(map(_is_hidden, set(links) & set(joins)))
        gone = [links.pop(x) for x in idle if x not in joins or is_shown]
        remove(self._viewer, [x for link in gone for x in link.drawn])
        for link in gone:
            link.close()
        self._links = list(links.values())

    def _on_layers(self, event: Any) -> None:
        """Colour and mark the cells of a layer that is shown; note which images are, and how."""
        kind, layer = event.type, event.sources[0]
        # Each selection adds or removes Labels layers that are drawn.
        is_image = kind in LISTS and not isinstance(getattr(event, "value", None), Labels)
        is_image |= kind in LOOKS and isinstance(layer, Image)
        if kind == "visible" and layer in (joins := self._joins):
            is_image = True
            if layer.visible:
                self._link(joins)
                self.paint()
                self._mark()
        if is_image:
            self._session.set(looks=Version())

    def _on_listed(self) -> None:
        """Keep colours and outlines above layers that were added or moved; colour new masks."""
        self._hide_others()
        before = [link.layer for link in self._links]
        self._link(self._joins)
        if [link.layer for link in self._links] != before:
            self._soon(self.paint)
            self._soon(self._mark)
        for link in self._links:
            if isinstance(link, LabelsLink):
                link.stay_on_top()

    def paint(self) -> None:
        """Colour the cells in the layers, except those of hidden classes."""
        session, colors = self._session, colorings.shown_colors(self._session)
        if colors is None:
            links = [link for link in self._links if isinstance(link, LabelsLink)]
            remove(self._viewer, [link.classes for link in links])
            codes = np.empty(0, dtype=np.intp)
        else:
            codes = colors.codes if colors.seen is None else np.where(colors.seen, colors.codes, -1)
            gone = [str(name) in session.state.hidden for name in session.class_colors]
            if any(gone):
                codes = np.where(np.append(gone, False)[session.shown_codes], -1, codes)
        name = colorings.to_choose(session)[colorings.chosen(session)]
        for link in self._links:
            # Somebody may have removed cells from the table.
            if colors is None or len(codes) != len(link.join.joined):
                link.uncolor()
            else:
                link.color(name, codes, colors.colors, colors.hollow)

    def _mark(self) -> None:
        """Mark the selected cells in their layers."""
        for link in self._links:
            link.highlight(self._rows)

    def zoom(self, *, steady: bool = True) -> None:
        """Move the camera to the selected cells, if possible in an image that is shown.

        If `steady`, keep the zoom while the user goes through a list of cells.
        """
        rows = self._rows
        there = {x: join for x, join in self._joins.items() if join.joined[rows].any()}
        if there:
            layer, join = max(there.items(), key=lambda pair: pair[0].visible)
            self._show_rows(layer, join, rows[join.joined[rows]], steady=steady)

    def show_image(self, image: TableImage | None) -> None:
        """Show one image alone; None shows all images."""
        put_away = self._session.catalog.put_away
        if image is None:
            with self._session.changing():
                for layer in list(put_away):
                    layer.visible = True
            put_away.clear()
        elif image.link is not None and image.join is not None and image.join.n_joined:
            rows = np.flatnonzero(image.join.joined)
            self._show_rows(image.link.layer, image.join, rows, steady=True)

    def _show_rows(
        self, layer: CellLayer, join: Join, rows: NDArray[np.intp], *, steady: bool
    ) -> None:
        """Move the camera to cells of a layer, which is shown in place of those of other images."""
        with self._session.changing():
            self._show_image_of(int(rows[0]))
            if not layer.visible:  # Each assignment redraws the layer.
                layer.visible = True
            self._link(self._joins)
        look_at(self._viewer, layer, join, rows, steady=steady)

    def _hide_others(self) -> None:
        """Show one image alone if another table or layers of others at its place were opened."""
        new = [x for x in self._viewer.layers if x not in self._seen and not is_drawn(x)]
        self._seen.update(new)
        joins = {x: join for x, join in self._joins.items() if join.joined.any()} if new else {}
        # They were put away when the user chose another table.
        put_away = self._session.catalog.put_away
        there = [x for x in joins if x.visible] or [x for x in joins if x in put_away]
        for layer in there[:1]:
            row = int(joins[layer].joined.argmax())
            others = [x for x in self._by_image(row)[1] if x.visible]
            is_new = layer in new or not set(new).isdisjoint(others)
            is_beneath = is_new and any(lie_on_each_other(layer, other) for other in others)
            if is_beneath or not layer.visible:
                self._show_image_of(row)

    def _by_image(self, row: int) -> tuple[list[Layer], list[Layer]]:
        """Return the layers of the image of a cell, and those of others; both empty in a grid."""
        catalog, layers = self._session.catalog, [x for x in self._viewer.layers if not is_drawn(x)]
        adata, column, joins = self._session.adata, catalog.image_column, self._joins
        if adata is None or self._viewer.canvas.grid.enabled:
            return [], []
        own = layers_of_cell(layers, adata.obs, column, row)
        # The user may have joined a layer whose name fits another image, or none.
        elsewhere = [x for x, join in joins.items() if not join.joined[row]]
        # Labels of the last table, and of images that this table lacks.
        names = [] if column is None else adata.obs[column].dropna().unique()
        free = [
            x
            for x in own
            if isinstance(x, Labels)
            and x not in joins
            and (x in self._left or (column and image_stem(x.name) and image_of(x, names) is None))
        ]
        stems = {image_stem(x.name) for x in free} - {image_stem(x.name) for x in joins}
        elsewhere += free
        elsewhere += [
            x for x in own if isinstance(x, Image) and image_of(x, [*filter(None, stems)])
        ]
        own = [x for x in own if x not in elsewhere]
        return own, [x for x in layers if x not in own]

    def _show_image_of(self, row: int) -> None:
        """Hide the layers of other images, and show those of the cell's image that were hidden."""
        put_away, (own, others) = self._session.catalog.put_away, self._by_image(row)
        others = [x for x in others if x.visible]
        for layer in others:
            layer.visible = False
        for layer in put_away.intersection(own):
            layer.visible = True
        put_away.update(others)
        put_away.difference_update(own)

    def _draw_lasso(self, on: bool) -> None:
        """Start or stop drawing around cells in the image."""
        layer = next(iter(self._joins), None)
        if not on:
            self._lasso.stop()
        elif layer is None:
            self._session.set(lasso=False)  # There is no image to draw in.
        else:
            self._lasso.start(layer)

    def _on_drawn(self, line: NDArray[np.float64]) -> None:
        """Select the cells inside a line."""
        held = QApplication.keyboardModifiers()
        mode: SelectionMode = "replace"
        if held & Qt.KeyboardModifier.ShiftModifier:
            mode = "add"
        elif held & Qt.KeyboardModifier.ControlModifier:
            mode = "remove"
        displayed, shown = self._viewer.dims.displayed, self._visible
        inside = [rows_inside(line, displayed, *pair) for pair in shown]
        adata = self._session.adata
        # Points without positions are drawn in an embedding.
        is_flat = any(isinstance(layer, Points) for layer, _ in shown)
        is_flat = is_flat and adata is not None and positions(adata) is None
        rows = np.concatenate([np.empty(0, dtype=np.intp), *inside])
        self._session.select(rows, mode, how="lasso in the image", uses_features=is_flat)
        # Clear later, since napari still uses the line.
        self._soon(self._lasso.clear)

    def _on_press(self, viewer: ViewerModel, event: Any) -> Iterator[None]:
        """Select the clicked cell of the topmost visible layer; Shift adds it, Ctrl removes it.

        A drag does not change the selection, and neither does a click beside the cells; but while
        one labels by hand, such a click selects no cell.
        """
        if event.button in OTHER_BUTTONS:
            return
        start, is_drag = np.asarray(event.pos), False
        modes: dict[str, SelectionMode] = {"Shift": "add", "Control": "remove"}
        held = [mode for key, mode in modes.items() if key in event.modifiers]
        yield
        while event.type == "mouse_move":
            is_drag = is_drag or np.abs(np.asarray(event.pos) - start).max() > MAX_MOVED
            yield
        session, shown, active = self._session, self._visible, viewer.layers.selection.active
        # Ignore clicks while the user paints or draws in a layer.
        used = {str(layer.mode) for layer in (active, *(x for x, _ in shown)) if layer is not None}
        if is_drag or not shown or not used <= {"pan_zoom", "pick"}:
            return
        for layer, join in shown:
            if (row := row_at(layer, join, event)) is not None:
                mode: SelectionMode = next(iter(held), "replace")
                found = np.array([row])
                session.select(found, mode, how="click in the image", uses_features=False)
                return
        if session.state.labeling is not None and not held:
            # The next key would label cells that the user no longer looks at.
            session.select(np.empty(0, dtype=np.intp))

    def _on_move(self, viewer: ViewerModel, event: Any) -> None:
        """Note what is known of the cell under the mouse, for napari's status line."""
        self._hovered = ""
        # Rows of a table that has changed in place would be those of other cells.
        for layer, join in self._visible if self._session.catalog.check_cells() else ():
            # Lazy pixels would be read in this thread.
            can_read = isinstance(layer.data, np.ndarray | list)
            if can_read and (row := row_at(layer, join, event)) is not None:
                known = describe(self._session, row, self._session.state.drawn)
                self._hovered = " · ".join(known)
                return

    def _on_status(self, event: Any) -> None:
        """Add what is known of the cell to napari's status."""
        status, text = event.value, self._hovered
        if isinstance(status, dict) and text and not status["coordinates"].endswith(text):
            more = {"coordinates": f"{status['coordinates']} · {text}"}
            self._viewer.status = status | more


def _is_hidden(layer: CellLayer) -> bool:
    """Return whether a layer is a label image that is not shown."""
    return isinstance(layer, Labels) and not layer.visible

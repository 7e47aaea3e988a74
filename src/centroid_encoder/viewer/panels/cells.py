"""Select and colour cells in their layers, and say which ones are selected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from weakref import WeakSet

import numpy as np
from napari.components import ViewerModel
from napari.layers import Image, Labels, Layer, Points
from numpy.typing import NDArray
from qtpy.QtCore import QModelIndex, Qt, QTimer
from qtpy.QtWidgets import QApplication, QLabel, QTabBar, QWidget

from centroid_encoder.viewer.data.columns import coordinates, image_of, image_stem, name_of
from centroid_encoder.viewer.data.ids import CellLayer
from centroid_encoder.viewer.data.join import Join, TableImage
from centroid_encoder.viewer.data.tables import is_drawn
from centroid_encoder.viewer.data.thumbnail import layers_of_cell
from centroid_encoder.viewer.map import colorings
from centroid_encoder.viewer.map.lasso import Lasso, rows_inside
from centroid_encoder.viewer.map.overlay import LayerLink, lie_on_each_other, remove
from centroid_encoder.viewer.panels.effects import EffectsPanel
from centroid_encoder.viewer.panels.fields import Search, button, column, delayed, side_by_side
from centroid_encoder.viewer.panels.gate import Gate
from centroid_encoder.viewer.panels.label_menu import LabelMenu
from centroid_encoder.viewer.panels.map import describe
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.panels.strip import Caption, Strip
from centroid_encoder.viewer.panels.why import WhyPanel
from centroid_encoder.viewer.session.session import SelectionMode, Session
from centroid_encoder.viewer.session.state import State

OTHER_BUTTONS = (2, 3)
"""The right and the middle button of the mouse."""
N_PICTURES = 4
AFTER = 10
"""Milliseconds between a request to zoom and the move of the camera."""
MAX_MOVED = 3
"""If the mouse moves over more pixels, it is not a click."""


class CellsPanel(QWidget):
    """Shows the selection and the colours of the session in the layers of the cells.

    `colors` are the controls of the colours, which the parent lays out; the rest is the card of
    the selection.
    """

    def __init__(self, session: Session, viewer: ViewerModel) -> None:
        super().__init__()
        self._session = session
        self._viewer = viewer
        self._links: list[LayerLink] = []
        self._left: WeakSet[Layer] = WeakSet()
        """Layers of the table that was chosen before."""
        tip = "What the colours mean, in the map and in the image; type a part of a name"
        self.color_box = Search("Colour by", tip)
        self._seen: WeakSet[Layer] = WeakSet()
        """Layers that were in the viewer when it was last decided which image is shown."""
        self._some: list[int] = []
        """Rows of the pictures that are shown."""
        self._hovered = ""
        """Name, label and prediction of the cell under the mouse."""
        self.gate = Gate(self._on_gate)
        self.color_text = Message()
        self.color_text.setTextFormat(Qt.TextFormat.RichText)
        self.colors = QWidget()
        # The row keeps its height, and so the map its size; a long legend is in the tooltip, too.
        self.color_text.setStyleSheet("font-size: 10px")
        self.colors.setFixedHeight(self.color_box.sizeHint().height())
        box = (self.color_box, 3), (self.color_text, 4), (self.gate, 4)
        self.colors.setLayout(side_by_side(QLabel("Colour by"), *box))
        self.images = QTabBar()
        """The images of the table; the parent lays it out."""
        self.images.setAccessibleName("Images")
        self.images.setExpanding(False)
        self.images.setDrawBase(False)
        self.images.tabBarClicked.connect(self.show_image)
        self.images.hide()
        self.selection_text, self.unseen_text = Message(wraps=False), Message()
        self.show_button = button("Zoom to", "Move the camera to the selected cells", self.zoom)
        self._lasso = Lasso(viewer)
        self._lasso.drawn.connect(self._on_drawn)
        self.lasso_stopped = self._lasso.stopped
        tip = "Give the selected cells a label, in a copy of the column; the original stays"
        self.label_button = button("Label as", tip, LabelMenu(session, self))
        self.why = WhyPanel(session, viewer)
        self.some = Strip(session, viewer, N_PICTURES)
        """Pictures of a few of the selected cells."""
        self.some.hide()
        self.some.clicked.connect(self._on_picture)
        self.effects = EffectsPanel(session)
        self.effects.feature_clicked.connect(self.show_column)
        cells = side_by_side((self.selection_text, 1), self.label_button, self.show_button)
        seen = side_by_side((self.effects.view, 5), (self.some, 4))
        column(self, cells, self.unseen_text, self.why, self.effects, seen)
        self._coloring = delayed(self, 0, self._paint)
        self._marking = delayed(self, 0, self._mark)
        self._zooming = delayed(self, AFTER, self._zoom_steadily)
        self.color_box.currentIndexChanged.connect(self._on_coloring)
        # The user may choose the same colours again, after deleting their layer.
        self.color_box.activated.connect(self._paint)
        self._offer_colorings()
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
        parts = "cells", "result", "draft", "check", "labels", "label_key", "labeling"
        is_other = now.differs(before, "columns", *parts)
        if is_other or now.differs(before, "coloring", "regions"):
            self._offer_colorings()
        if is_other or is_linked or now.differs(before, "coloring", "regions", "hidden"):
            # Separate events, since labels, camera and colours together would block the window.
            if now.labeling is None or is_linked:
                self._paint()
            else:
                self._coloring.start()
            self._show_gate(before)
        if now.differs(before, "cells", "links", "tables", "columns", "group"):
            self._show_images()
        if is_linked or now.differs(before, "group", "cells"):
            self._show_marks()
        if is_other or is_linked or now.differs(before, "group", "mode"):
            self._show_selection()
        if now.zoomed is not None and now.differs(before, "zoomed"):
            self._zooming.start()

    def unlink(self) -> None:
        """Restore the look of all layers."""
        self._left = WeakSet(link.layer for link in self._links)
        self._seen.clear()
        self._link({})

    @property
    def _joins(self) -> dict[CellLayer, Join]:
        """The join of each layer of the viewer that shows cells of the table."""
        joins, layers = self._session.catalog.joins, self._viewer.layers
        return {link.layer: join for link, join in joins.items() if link.layer in layers}

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
            elif not _is_hidden(layer):
                free = [x for x in idle if isinstance(x, Labels) and x.ndim == layer.ndim]
                if free and isinstance(layer, Labels):
                    idle.remove(free[0])
                    links[layer] = links.pop(free[0])
                    links[layer].move(layer, join)
                else:
                    links[layer] = LayerLink(self._viewer, layer, join, self._session.select)
        is_shown = not all(map(_is_hidden, set(links) & set(joins)))
        gone = [links.pop(x) for x in idle if x not in joins or is_shown]
        remove(self._viewer, [x for link in gone for x in (link.marks, link.classes)])
        for link in gone:
            link.close()
        self._links = list(links.values())
        viewer = self._viewer
        for callbacks, own in (
            (viewer.mouse_drag_callbacks, self._on_press),
            (viewer.mouse_move_callbacks, self._on_move),
        ):
            others = [callback for callback in callbacks if callback != own]
            callbacks[:] = [*others, own] if joins else others
        for event, act in (
            (viewer.events.status, self._on_status),
            (viewer.layers.events, self._on_visible),
        ):
            event.disconnect(act)
            if joins:
                event.connect(act)

    def _on_visible(self, event: Any) -> None:
        """Colour and mark the cells of a layer that is shown."""
        layer = event.sources[0]
        if event.type == "visible":
            self._show_images()
        if event.type == "visible" and layer.visible and layer in (joins := self._joins):
            self._link(joins)
            self._paint()
            for link in self._links:
                if link.layer is layer:
                    link.highlight(self._rows)

    def _on_listed(self) -> None:
        """Keep colours and outlines above layers that were added or moved; colour new masks."""
        self._hide_others()
        before = [link.layer for link in self._links]
        self._link(self._joins)
        if [link.layer for link in self._links] != before:
            self._coloring.start()
            self._marking.start()
        for link in self._links:
            link.stay_on_top()

    def zoom(self, *, steady: bool = False) -> None:
        """Move the camera to the selected cells, if possible in an image that is shown."""
        rows = self._rows
        there = {x: join.joined[rows] for x, join in self._joins.items() if join.joined[rows].any()}
        if not there:
            return
        layer = max(there, key=lambda x: x.visible)
        self._show_image_of(int(rows[there[layer]][0]))
        if not layer.visible:  # Each assignment redraws the layer.
            layer.visible = True
        self._link(self._joins)
        for link in self._links:
            if link.layer is layer:
                link.show(rows, steady=steady)

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
            if is_new and any(lie_on_each_other(layer, other) for other in others):
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
        catalog, (own, others) = self._session.catalog, self._by_image(row)
        others = [x for x in others if x.visible]
        for layer in others:
            layer.visible = False
        for layer in catalog.put_away.intersection(own):
            layer.visible = True
        catalog.put_away.update(others)
        catalog.put_away.difference_update(own)

    @property
    def _images(self) -> list[TableImage]:
        return [image for image in self._session.catalog.images() if image.value is not None]

    def _show_images(self) -> None:
        """Show a tab for each image, with the number of selected cells in it."""
        images, catalog = self._images, self._session.catalog
        bar, adata, column = self.images, self._session.adata, catalog.image_column
        bar.setVisible(bool(images))
        if not images or adata is None or column is None:
            return
        counts = adata.obs[column][self._session.state.selected].map(name_of).value_counts()
        while bar.count() <= len(images):
            bar.addTab("")
        while bar.count() > len(images) + 1:
            bar.removeTab(bar.count() - 1)
        layers = [None if image.link is None else image.link.layer for image in images]
        bar.setTabText(0, "all images")
        for i, (image, layer) in enumerate(zip(images, layers, strict=True), start=1):
            n = int(counts.get(image.name, 0))
            bar.setTabText(i, f"{image.name}: {n:,}" if n else image.name)
            bar.setTabEnabled(i, layer is not None)
            of_all = f"{image.n_cells:,} cells, {n:,} of them selected"
            bar.setTabToolTip(i, of_all if layer is not None else f"{of_all}; not open")
        shown = [
            i for i, layer in enumerate(layers, start=1) if layer is not None and layer.visible
        ]
        bar.setCurrentIndex(shown[0] if len(shown) == 1 else 0)

    def show_image(self, place: int) -> None:
        """Show one image alone, or all of them if `place` is 0."""
        catalog = self._session.catalog
        if place <= 0:
            for layer in list(catalog.put_away):
                layer.visible = True
            catalog.put_away.clear()
            return
        image = self._images[place - 1]
        if image.link is not None and image.join is not None and image.join.n_joined:
            rows = np.flatnonzero(image.join.joined)
            self._show_image_of(int(rows[0]))
            image.link.layer.visible = True
            self._link(self._joins)
            for link in self._links:
                if link.layer is image.link.layer:
                    link.show(rows, steady=True)

    def _zoom_steadily(self) -> None:
        # Keep the zoom while the user goes through a list of cells.
        self.zoom(steady=True)

    def show_column(self, name: str) -> None:
        """Colour the cells by a column of ``obs`` or a variable."""
        self.color_box.choose(("", name))

    def draw_lasso(self, on: bool) -> None:
        """Start or stop drawing around cells in the image."""
        layer = next(iter(self._joins), None)
        if on and layer is not None:
            self._lasso.start(layer)
        elif on:
            self._lasso.stopped.emit()  # There is no image to draw in.
        else:
            self._lasso.stop()

    def _on_drawn(self, line: NDArray[np.float64]) -> None:
        """Select the cells inside a line."""
        held = QApplication.keyboardModifiers()
        mode: SelectionMode = "replace"
        if held & Qt.KeyboardModifier.ShiftModifier:
            mode = "add"
        elif held & Qt.KeyboardModifier.ControlModifier:
            mode = "remove"
        displayed = self._viewer.dims.displayed
        seen = [link for link in self._links if link.layer.visible]
        inside = [rows_inside(line, displayed, link.layer, link.join) for link in seen]
        adata = self._session.adata
        # Points without positions are drawn in an embedding.
        is_flat = any(isinstance(link.layer, Points) for link in seen)
        is_flat = is_flat and adata is not None and coordinates(adata) is None
        rows = np.concatenate([np.empty(0, dtype=np.intp), *inside])
        self._session.select(rows, mode, how="lasso in the image", uses_features=is_flat)
        # Clear later, since napari still uses the line.
        QTimer.singleShot(0, self._lasso.clear)

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
        layers = viewer.layers
        # Ignore clicks while the user paints or draws in a layer.
        used = {str(layer.mode) for layer in (layers.selection.active,) if layer is not None}
        used |= {str(link.layer.mode) for link in self._links}
        if is_drag or not used <= {"pan_zoom", "pick"}:
            return
        for link in self._topmost():
            if (row := link.row_at(event)) is not None:
                mode: SelectionMode = next(iter(held), "replace")
                found = np.array([row])
                self._session.select(found, mode, how="click in the image", uses_features=False)
                return
        if self._session.state.labeling is not None and not held:
            # The next key would label cells that the user no longer looks at.
            self._session.select(np.empty(0, dtype=np.intp))

    def _topmost(self) -> list[LayerLink]:
        """Return the links whose layers are in the viewer, the topmost one first."""
        layers = self._viewer.layers
        links = [link for link in self._links if link.layer in layers]
        return sorted(links, key=lambda link: layers.index(link.layer), reverse=True)

    def _on_move(self, viewer: ViewerModel, event: Any) -> None:
        """Note what is known of the cell under the mouse, for napari's status line."""
        self._hovered = ""
        # Rows of a table that has changed in place would be those of other cells.
        for link in self._topmost() if self._session.catalog.check_cells() else ():
            # Lazy pixels would be read in this thread.
            can_read = link.layer.visible and isinstance(link.layer.data, np.ndarray | list)
            row = link.row_at(event) if can_read and not self._hovered else None
            if row is not None:
                self._hovered = " · ".join(describe(self._session, row, self._session.state.drawn))

    def _on_status(self, event: Any) -> None:
        """Add what is known of the cell to napari's status."""
        status, text = event.value, self._hovered
        if isinstance(status, dict) and text and not status["coordinates"].endswith(text):
            more = {"coordinates": f"{status['coordinates']} · {text}"}
            self._viewer.status = status | more

    @property
    def _rows(self) -> NDArray[np.intp]:
        """Rows of the selected cells."""
        return np.flatnonzero(self._session.state.selected)

    def _show_marks(self) -> None:
        """Mark the selected cells, while one labels in an event of its own."""
        if self._session.state.labeling is None:
            self._mark()
        else:
            self._marking.start()

    def _show_selection(self) -> None:
        """Describe the selected cells, and offer what can be done with them."""
        chosen = self._rows
        if self._session.state.mode != "Explore":
            return
        self._describe()
        unseen = self._session.catalog.unseen(chosen)
        self.unseen_text.say(unseen)
        self.show_button.setVisible(len(chosen) > 0 and not unseen)
        self.label_button.setVisible(len(chosen) > 0 and self._session.editable is not None)

    def _mark(self) -> None:
        """Mark the selected cells in their layers."""
        for link in self._links:
            link.highlight(self._rows)

    def _describe(self) -> None:
        """Say what the selected cells are, and show pictures of a few of several, at random."""
        session, rows = self._session, self._rows
        self.selection_text.say(self._composition(rows))
        joins = [join.joined[rows] for join in self._joins.values()]
        rows = rows[np.logical_or.reduce(joins)] if joins and len(rows) > 1 else rows[:0]
        rows = np.random.default_rng(0).permutation(rows)[:N_PICTURES]
        self.some.setVisible(len(rows) > 0 and self.some.has_images)
        if not self.some.isHidden():
            names, palette = [*map(str, session.class_colors), "no label"], session.class_colors
            colors = [*palette.values(), colorings.GREY]
            captions = [
                Caption(names[i], colors[i], is_given=True) for i in session.shown_codes[rows]
            ]
            tips = [" · ".join(describe(session, int(row), session.state.drawn)) for row in rows]
            self._some = rows.tolist()
            self.some.show_cells(self._some, captions, tips)

    def _on_picture(self, index: QModelIndex) -> None:
        """Select a cell whose picture was clicked, and show it in its image."""
        self._session.select(np.array([self._some[index.row()]]), zoom=True)

    def _composition(self, rows: NDArray[np.intp]) -> str:
        """Describe the selected cells: one by what is known of it, several by their classes."""
        session = self._session
        if len(rows) == 0:
            return "No cell selected"
        if len(rows) == 1:
            return " · ".join(describe(session, int(rows[0]), session.state.drawn))
        names = [str(name) for name in session.class_colors]
        counts = np.bincount(session.shown_codes[rows] + 1, minlength=len(names) + 1)
        parts = [f"{counts[i + 1]:,} {names[i]}" for i in np.argsort(-counts[1:], kind="stable")]
        parts = [part for part in parts if not part.startswith("0 ")]
        parts += [f"{counts[0]:,} without a label"] * bool(counts[0] and names)
        return f"{len(rows):,} cells selected" + (f": {', '.join(parts)}" if parts else "")

    def _offer_colorings(self) -> None:
        """Offer the colourings that are possible now, and show the chosen one."""
        ways = colorings.to_choose(self._session)
        entries = [(text, way) for way, text in ways.items()]
        self.color_box.offer(entries, colorings.chosen(self._session))
        self.color_box.setEnabled(self._session.adata is not None)

    def _on_coloring(self) -> None:
        if self._session.catalog.check_cells():
            self._session.set(coloring=self.color_box.value)

    def _paint(self) -> None:
        """Colour the cells in the layers, except those of hidden classes."""
        session, colors = self._session, colorings.shown_colors(self._session)
        codes, hidden = None if colors is None else colors.codes, session.state.hidden
        if colors is not None and colors.seen is not None:
            codes = np.where(colors.seen, colors.codes, -1)
        if codes is not None and hidden:
            gone = [i for i, name in enumerate(session.class_colors) if str(name) in hidden]
            codes = np.where(np.isin(session.shown_codes, gone), -1, codes)
        if colors is None:
            remove(self._viewer, [link.classes for link in self._links])
        name = colorings.to_choose(session)[colorings.chosen(session)]
        for link in self._links:
            # Somebody may have removed cells from the table.
            if colors is None or codes is None or len(codes) != len(link.join.joined):
                link.uncolor()
            else:
                link.color(name, codes, colors.colors, colors.hollow)

    def _show_gate(self, before: State) -> None:
        """Explain the colours, and show the gate for numbers; in another column, all are in it."""
        colors = colorings.shown_colors(self._session)
        self.color_text.say("" if colors is None else colors.meaning)
        is_other = self._session.state.differs(before, "coloring", "cells")
        self.gate.show_scale(colors, is_other=is_other)

    def _on_gate(self, ends: tuple[float, float]) -> None:
        """Select the cells in the gate; a handle at the end of the scale excludes none."""
        colors = colorings.shown_colors(self._session)
        if colors is not None and colors.values is not None:
            values, (low, high) = colors.values, ends
            rows = np.flatnonzero((values >= low) & (values <= high))
            self._session.select(rows, how=f"gate on {self.color_box.currentText()}")


def _is_hidden(layer: CellLayer) -> bool:
    """Return whether a layer is a label image that is not shown."""
    return isinstance(layer, Labels) and not layer.visible

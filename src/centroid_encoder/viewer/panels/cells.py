"""The selected cells, the layers that show them, and their colours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from anndata import AnnData
from napari.components import ViewerModel
from numpy.typing import NDArray
from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import QApplication, QComboBox, QLabel, QWidget
from superqt import QSearchableComboBox
from superqt.utils import signals_blocked

from centroid_encoder.pl._values import variable_source
from centroid_encoder.viewer.data.ids import CellLayer
from centroid_encoder.viewer.data.join import Join
from centroid_encoder.viewer.map import colorings
from centroid_encoder.viewer.map.lasso import Lasso, rows_inside
from centroid_encoder.viewer.map.overlay import LayerLink, remove
from centroid_encoder.viewer.panels.fields import Choice, button, column, keep_narrow, side_by_side
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.panels.why import WhyPanel
from centroid_encoder.viewer.session.session import SelectionMode, Session

NO_COLORS = "as it was"
ANY_VALUES = "column or variable …"
OTHER_BUTTONS = (2, 3)
"""The right and the middle button of the mouse."""
AFTER = 10
"""Milliseconds after which the camera moves to cells that were asked for."""
MAX_MOVED = 3
"""Pixels that the mouse may move during a click."""


class CellsPanel(QWidget):
    """The selected cells, and the layers of the session's links."""

    def __init__(self, session: Session, viewer: ViewerModel) -> None:
        super().__init__()
        self._session = session
        self._viewer = viewer
        self._links: dict[LayerLink, tuple[str, colorings.Colors] | None] = {}
        """The links, and the name and the colours of what their layers show."""
        self.color_box = Choice(
            "Colour by", "What the colours of the cells in the map and the layer mean"
        )
        self.color_box.offer([(name, name) for name in (NO_COLORS, ANY_VALUES)], NO_COLORS)
        self.value_box: QComboBox = QSearchableComboBox()
        self.value_box.setToolTip("A column of obs, or a variable; type a part of its name")
        self.value_box.setAccessibleName("Column or variable")
        keep_narrow(self.value_box)
        self.value_box.hide()
        self._values: list[str] = []
        """Names of the columns, then of the variables, of the table that is chosen."""
        self.color_text = Message()
        self.color_text.setTextFormat(Qt.TextFormat.RichText)
        self.selection_text = QLabel()
        self.unseen_text = Message()
        self.show_button = button("Zoom to", "Move the camera to the selected cells", self.zoom)
        self.clear_button = button("Clear", "Select no cells", self.clear)
        tip = (
            "Select cells by drawing around them in the image: all whose center is inside. "
            "Shift adds them, Ctrl removes them"
        )
        self.lasso_button = button("Lasso", tip, self._on_lasso)
        self.lasso_button.setCheckable(True)
        self._lasso = Lasso(viewer)
        self._lasso.drawn.connect(self._on_drawn)
        self._lasso.stopped.connect(self._on_lasso_stopped)
        self.why = WhyPanel(session, viewer)
        buttons = self.lasso_button, self.show_button, self.clear_button
        column(
            self,
            side_by_side(QLabel("Colour by"), (self.color_box, 1)),
            self.value_box,
            self.color_text,
            side_by_side(self.why.arrow, (self.selection_text, 1), *buttons),
            self.unseen_text,
            self.why,
        )
        # One event for labels, camera and colours together would stop the window for too long.
        self._coloring = QTimer(self, interval=0, singleShot=True)
        self._coloring.timeout.connect(self._recolor)
        self._zooming = QTimer(self, interval=AFTER, singleShot=True)
        self._zooming.timeout.connect(self._on_zoom_requested)
        self.color_box.currentIndexChanged.connect(self._recolor)
        self.value_box.currentIndexChanged.connect(self._recolor)
        session.table_changed.connect(self.unlink)
        session.catalog.link_changed.connect(self.link)
        session.result_changed.connect(self._offer_colorings)
        session.draft_changed.connect(self._offer_colorings)
        session.check_changed.connect(self._offer_colorings)
        session.columns_changed.connect(self._offer_values)
        session.label_key_changed.connect(self._offer_colorings)
        session.regions_changed.connect(self._recolor)
        session.colors_changed.connect(self._recolor)
        session.labels_changed.connect(self._color_later)
        session.selection_changed.connect(self._on_selection)
        session.zoom_requested.connect(self._zoom_later)

    def unlink(self) -> None:
        """Leave the layers as they were."""
        self._link([])

    def link(self) -> None:
        """Show the cells in the layers of the session's links; what is shown already stays."""
        self._link([(link.layer, join) for link, join in self._session.catalog.joins.items()])
        self._offer_colorings()
        self._on_selection()

    def _link(self, wanted: list[tuple[CellLayer, Join]]) -> None:
        known = {(link.layer, link.join): link for link in self._links}
        gone = [link for key, link in known.items() if key not in wanted]
        if not wanted:
            self._lasso.stop()
        remove(link.marks for link in gone)
        remove(link.classes for link in gone)
        for link in gone:
            link.close()
        links = [known.get(key) or LayerLink(self._viewer, *key) for key in wanted]
        for link in links:
            link.picked.connect(self._session.select, unique=True)
        self._links = {link: self._links.get(link) for link in links}
        self.why.follow(bool(links))
        callbacks = self._viewer.mouse_drag_callbacks
        others = [callback for callback in callbacks if callback != self._on_press]
        callbacks[:] = [*others, self._on_press] if links else others

    def zoom(self, *, steady: bool = False) -> None:
        """Go to the selected cells, in the layer that is chosen if they are there."""
        rows = np.flatnonzero(self._session.selected)
        there = [link for link in self._links if link.join.joined[rows].any()]
        there.sort(key=lambda link: link.layer is not self._session.catalog.layer)
        for link in there[:1]:
            # napari draws the layer again at each assignment.
            if not link.layer.visible:
                link.layer.visible = True
            link.show(rows, steady=steady)

    def _color_later(self) -> None:
        self._coloring.start()

    def _zoom_later(self) -> None:
        self._zooming.start()

    def _on_zoom_requested(self) -> None:
        """Go from one cell to the next, without jumps of the zoom."""
        self.zoom(steady=True)

    def show_column(self, name: str) -> None:
        """Colour the cells by a column of ``obs``."""
        self.color_box.choose(ANY_VALUES)
        self.value_box.setCurrentText(name)

    def clear(self) -> None:
        """Select no cells."""
        self._session.select(np.empty(0, dtype=np.intp))

    def _on_lasso(self) -> None:
        """Begin to draw around cells, or end that."""
        layer = self._session.catalog.layer or next((x.layer for x in self._links), None)
        if self.lasso_button.isChecked() and layer is not None:
            self._viewer.dims.ndisplay = 2
            self._lasso.start(layer)
        else:
            self._lasso.stop()

    def _on_drawn(self, line: NDArray[np.float64]) -> None:
        """Select the cells inside of a line."""
        held = QApplication.keyboardModifiers()
        mode: SelectionMode = "replace"
        if held & Qt.KeyboardModifier.ShiftModifier:
            mode = "add"
        elif held & Qt.KeyboardModifier.ControlModifier:
            mode = "remove"
        displayed = self._viewer.dims.displayed
        rows = [
            rows_inside(line, displayed, link.layer, link.join)
            for link in self._links
            if link.layer.visible
        ]
        self._session.select(np.concatenate([np.empty(0, dtype=np.intp), *rows]), mode)
        # napari is not done with the line yet.
        QTimer.singleShot(0, self._lasso.clear)

    def _on_lasso_stopped(self) -> None:
        self.lasso_button.setChecked(False)

    def _on_press(self, viewer: ViewerModel, event: Any) -> Iterator[None]:
        """Select the cell that is clicked; a drag moves the image and selects nothing.

        With Shift, the cell is added to those that are selected; with Ctrl, it is removed.

        The topmost visible layer with a cell under the mouse counts. A click beside the cells
        keeps the selection, and ends it while one labels by hand.
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
        links = [link for link in self._links if link.layer in layers]
        # A layer that is painted on or drawn in keeps its clicks.
        used = {str(layer.mode) for layer in (layers.selection.active,) if layer is not None}
        used |= {str(link.layer.mode) for link in links}
        if is_drag or not used <= {"pan_zoom", "pick"}:
            return
        for link in sorted(links, key=lambda link: layers.index(link.layer), reverse=True):
            if (row := link.row_at(event)) is not None:
                self._session.select(np.array([row]), next(iter(held), "replace"))
                return
        if self._session.labeling is not None and links and not held:
            # The next key would label cells that the user no longer looks at.
            self.clear()

    def _on_selection(self) -> None:
        chosen = np.flatnonzero(self._session.selected)
        remove(link.marks for link in self._links if not link.join.joined[chosen].any())
        for link in self._links:
            link.highlight(chosen)
        n = len(chosen)
        text = f"{n:,} {'cell' if n == 1 else 'cells'} selected" if n else "No cell selected"
        self.selection_text.setText(text)
        self.clear_button.setEnabled(n > 0)
        unseen = self._session.catalog.unseen(chosen)
        self.unseen_text.say(unseen)
        self.show_button.setEnabled(n > 0 and not unseen)
        self.lasso_button.setEnabled(bool(self._links))

    def _offer_colorings(self) -> None:
        """Offer what the colours can stand for; keep what is chosen, where that is possible."""
        before = self.color_box.value
        names = [NO_COLORS, *colorings.offered(self._session), ANY_VALUES]
        chosen = before if before in names else NO_COLORS
        self.color_box.offer(zip(names, names, strict=True), chosen)
        # Without a layer, there is the map.
        self.color_box.setEnabled(bool(self._links) or self._session.drawn is not None)
        self._offer_values()
        self._recolor()

    def _offer_values(self) -> None:
        """Offer the columns and variables; keep what is chosen, else choose the labels."""
        adata, before = self._session.adata, self.value_box.currentText()
        variables = [] if adata is None else variable_source(adata).var_names
        names = [] if adata is None else [*map(str, adata.obs.columns), *map(str, variables)]
        chosen = before if before in names else str(self._session.shown_labels)
        with signals_blocked(self.value_box):
            if names != self._values:
                self._values = names
                self.value_box.clear()
                self.value_box.addItems(names)
            # −1, for no column, if the labels are not there.
            self.value_box.setCurrentIndex(names.index(chosen) if chosen in names else -1)

    def _recolor(self) -> None:
        """Give the cells the colours that are chosen; without them, layers get their own back."""
        colors, mode, adata = None, self.color_box.value, self._session.adata
        self.value_box.setVisible(mode == ANY_VALUES)
        try:
            if adata is not None and mode == ANY_VALUES:
                mode, colors = self._colors_of_values(adata)
            elif mode != NO_COLORS:
                colors = colorings.color_cells(mode, self._session)
        except KeyError as error:
            self._session.failed.emit(error)
        if colors is None:
            remove(link.classes for link in self._links)
            for link in self._links:
                link.uncolor()
            self._links = dict.fromkeys(self._links)
        else:
            for link, shown in self._links.items():
                if shown is None or shown[0] != mode or not colors.looks_like(shown[1]):
                    link.color(mode, colors.codes, colors.colors)
                    self._links[link] = mode, colors
        # The map shows the labels that it was trained on in the colours of its regions.
        own = mode == colorings.LABEL and self._session.shown_labels == self._session.label_key
        values = None if colors is None or own else (colors.codes, colors.colors)
        self._session.color_cells(values)
        self.color_text.say("" if colors is None else colors.meaning)

    def _colors_of_values(self, adata: AnnData) -> tuple[str, colorings.Colors | None]:
        """Return the name and the colours of the column or variable that is chosen."""
        i, columns = self.value_box.currentIndex(), adata.obs.columns
        if i < 0 or len(self._values) != len(columns) + variable_source(adata).n_vars:
            return ANY_VALUES, None
        if (line := self.value_box.lineEdit()) is not None:
            # Show the beginning of a long name.
            line.setCursorPosition(0)
        if i < len(columns):
            return self._values[i], colorings.color_column(adata, columns[i])
        return self._values[i], colorings.color_variable(adata, i - len(columns))

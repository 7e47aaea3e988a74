"""Select and colour cells in their layers, and say which ones are selected."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
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
from centroid_encoder.viewer.session.labeling import mark_key
from centroid_encoder.viewer.session.session import SelectionMode, Session

NO_COLORS = "original colours"
ANY_VALUES = "column or variable …"
OTHER_BUTTONS = (2, 3)
"""The right and the middle button of the mouse."""
AFTER = 10
"""Milliseconds between a request to zoom and the move of the camera."""
MAX_MOVED = 3
"""If the mouse moves over more pixels, it is not a click."""


class CellsPanel(QWidget):
    """Shows the selection and the colours of the session in the layers of the cells."""

    def __init__(self, session: Session, viewer: ViewerModel) -> None:
        super().__init__()
        self._session = session
        self._viewer = viewer
        self._links: list[LayerLink] = []
        self.color_box = Choice("Colour by", "Meaning of the colours in the map and in the layer")
        self.color_box.offer([(name, name) for name in (NO_COLORS, ANY_VALUES)], NO_COLORS)
        self.value_box: QComboBox = QSearchableComboBox()
        self.value_box.setToolTip("A column of obs, or a variable; type a part of its name")
        self.value_box.setAccessibleName("Column or variable")
        keep_narrow(self.value_box)
        self.value_box.hide()
        self._label_key: str | None = None
        self._values: list[str] = []
        """Names of the columns and, after them, of the variables of the table."""
        self.color_text = Message()
        self.color_text.setTextFormat(Qt.TextFormat.RichText)
        self.selection_text = QLabel()
        self.unseen_text = Message()
        self.show_button = button("Zoom to", "Move the camera to the selected cells", self.zoom)
        tip = (
            "Draw around cells in the image to select those whose center is inside. Shift adds "
            "them, Ctrl removes them"
        )
        self.lasso_button = button("Lasso", tip, self._on_lasso)
        self.lasso_button.setCheckable(True)
        self._lasso = Lasso(viewer)
        self._lasso.drawn.connect(self._on_drawn)
        self._lasso.stopped.connect(self._on_lasso_stopped)
        self.why = WhyPanel(session, viewer)
        colors = side_by_side(QLabel("Colour by"), (self.color_box, 1))
        buttons = self.lasso_button, self.show_button
        cells = side_by_side(self.why.arrow, (self.selection_text, 1), *buttons)
        below = self.color_text, cells, self.unseen_text, self.why
        column(self, colors, self.value_box, *below)
        # Separate events, since labels, camera and colours together would block the window.
        self._coloring = QTimer(self, interval=0, singleShot=True)
        self._coloring.timeout.connect(self._recolor)
        self._zooming = QTimer(self, interval=AFTER, singleShot=True)
        self._zooming.timeout.connect(self._zoom_steadily)
        # The user may choose the same colours again, after deleting their layer.
        for chosen in (self.color_box.currentIndexChanged, self.color_box.activated):
            chosen.connect(self._recolor)
        self.value_box.currentIndexChanged.connect(self._recolor)
        session.table_changed.connect(self.unlink)
        session.catalog.link_changed.connect(self.link)
        session.catalog.listed.connect(self._on_listed)
        session.shown_changed.connect(self._on_shown)
        session.selection_changed.connect(self._on_selection)

    def unlink(self) -> None:
        """Restore the look of all layers."""
        self._link([])

    def link(self) -> None:
        """Show colours and selection in the layers that are joined to the table now."""
        self._link([(link.layer, join) for link, join in self._session.catalog.joins.items()])
        self._offer_colorings()
        self._recolor()
        self._on_selection()

    def _link(self, wanted: list[tuple[CellLayer, Join]]) -> None:
        known = {link.layer: link for link in self._links}
        joins = dict(wanted)
        gone = [link for layer, link in known.items() if layer not in joins]
        if not wanted:
            self._lasso.stop()
        remove(self._viewer, [x for link in gone for x in (link.marks, link.classes)])
        for link in gone:
            link.close()
        self._links = links = [known.get(key[0]) or LayerLink(self._viewer, *key) for key in wanted]
        for link in links:
            link.join = joins[link.layer]
            link.picked.connect(self._session.select, unique=True)
        self.why.follow(bool(links))
        callbacks = self._viewer.mouse_drag_callbacks
        others = [callback for callback in callbacks if callback != self._on_press]
        callbacks[:] = [*others, self._on_press] if links else others

    def _on_listed(self) -> None:
        """Keep colours and outlines above layers that were added or moved."""
        for link in self._links:
            link.stay_on_top()

    def zoom(self, *, steady: bool = False) -> None:
        """Move the camera to the selected cells, if possible in the chosen layer."""
        rows = np.flatnonzero(self._session.selected)
        there = [link for link in self._links if link.join.joined[rows].any()]
        there.sort(key=lambda link: link.layer is not self._session.catalog.layer)
        for link in there[:1]:
            if not link.layer.visible:  # Each assignment redraws the layer.
                link.layer.visible = True
            link.show(rows, steady=steady)

    def _zoom_steadily(self) -> None:
        # Keep the zoom while the user goes through a list of cells.
        self.zoom(steady=True)

    def show_column(self, name: str) -> None:
        """Colour the cells by a column of ``obs``."""
        self.value_box.setCurrentIndex(self._values.index(name))
        self.color_box.choose(ANY_VALUES)

    def _on_lasso(self) -> None:
        """Start or stop drawing around cells."""
        layer = self._session.catalog.layer or next((x.layer for x in self._links), None)
        if self.lasso_button.isChecked() and layer is not None:
            self._lasso.start(layer)
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
        rows = [rows_inside(line, displayed, link.layer, link.join) for link in seen]
        self._session.select(np.concatenate([np.empty(0, dtype=np.intp), *rows]), mode)
        # Clear later, since napari still uses the line.
        QTimer.singleShot(0, self._lasso.clear)

    def _on_lasso_stopped(self) -> None:
        self.lasso_button.setChecked(False)

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
        links = [link for link in self._links if link.layer in layers]
        # Ignore clicks while the user paints or draws in a layer.
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
            self._session.select(np.empty(0, dtype=np.intp))

    def _on_selection(self, zoom: bool = False) -> None:
        chosen = np.flatnonzero(self._session.selected)
        unmarked = [link.marks for link in self._links if not link.join.joined[chosen].any()]
        remove(self._viewer, unmarked)
        for link in self._links:
            link.highlight(chosen)
        n = len(chosen)
        text = f"{n:,} {'cell' if n == 1 else 'cells'} selected" if n else "No cell selected"
        self.selection_text.setText(text)
        unseen = self._session.catalog.unseen(chosen)
        self.unseen_text.say(unseen)
        self.show_button.setEnabled(n > 0 and not unseen)
        self.lasso_button.setEnabled(bool(self._links))
        if zoom:
            self._zooming.start()

    def _on_shown(self) -> None:
        self._offer_colorings()
        if self._session.labeling is None:
            self._recolor()
        else:
            self._coloring.start()

    def _offer_colorings(self) -> None:
        """Offer the colourings that are possible now, and keep the chosen one if it is."""
        before, adata = self.color_box.value, self._session.adata
        names = [NO_COLORS, *colorings.offered(self._session), ANY_VALUES]
        chosen, label_key = before if before in names else NO_COLORS, self._session.label_key
        if label_key != self._label_key and chosen == NO_COLORS and adata is not None:
            # Show labels that are given by hand in the image, unless it has other colours.
            chosen = colorings.LABEL if mark_key(str(label_key)) in adata.uns else chosen
        self._label_key = label_key
        self.color_box.offer(zip(names, names, strict=True), chosen)
        self.color_box.setEnabled(bool(self._links) or self._session.drawn is not None)
        self._offer_values()

    def _offer_values(self) -> None:
        """Offer the columns and variables; keep the chosen one, or else choose the labels."""
        adata, before = self._session.adata, self.value_box.currentText()
        variables = [] if adata is None else variable_source(adata).var_names
        names = [] if adata is None else [*map(str, adata.obs.columns), *map(str, variables)]
        chosen = before if before in names else str(self._session.shown_labels)
        with signals_blocked(self.value_box):
            if names != self._values:
                self._values = names
                self.value_box.clear()
                self.value_box.addItems(names)
            self.value_box.setCurrentIndex(names.index(chosen) if chosen in names else -1)

    def _recolor(self) -> None:
        """Show the chosen colours, or the own colours of the layers if none are chosen."""
        colors, mode, adata = None, self.color_box.value, self._session.adata
        # The map already colours its own labels, like its regions.
        own = mode == colorings.LABEL and self._session.shown_labels == self._session.label_key
        self.value_box.setVisible(mode == ANY_VALUES)
        try:
            if mode == ANY_VALUES:
                mode = self.value_box.itemText(self.value_box.currentIndex())
                if (line := self.value_box.lineEdit()) is not None:
                    line.setCursorPosition(0)  # Show the beginning of a long name.
                colors = colorings.color_values(adata, mode) if adata is not None and mode else None
            elif mode != NO_COLORS:
                colors = colorings.color_cells(mode, self._session)
        except (KeyError, ValueError) as error:
            self._session.say(error, "error")
        if colors is None:
            remove(self._viewer, [link.classes for link in self._links])
        for link in self._links:
            if colors is None:
                link.uncolor()
            else:
                link.color(mode, colors.codes, colors.colors, colors.hollow)
        values = None if colors is None or own else (colors.codes, colors.colors)
        self._session.color_cells(values)
        self.color_text.say("" if colors is None else colors.meaning)

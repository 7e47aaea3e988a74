"""The images of a table, and the layer that shows each of them."""

from __future__ import annotations

from collections.abc import Sequence

from napari.layers import Layer
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import QAbstractItemView, QHeaderView, QMenu, QTableWidget, QTableWidgetItem

from centroid_encoder.viewer.data.join import TableImage
from centroid_encoder.viewer.panels.fields import ROW, plain_table

COLUMNS = ("image", "cells", "in layer", "missing")
LAYER = 2
VISIBLE_ROWS = 4


class ImageTable(QTableWidget):
    """A row for each image; a click, or Enter, on its layer offers others."""

    layer_chosen = Signal(object, object)
    """The value of an image, None for all, and the layer that is to show it, or None."""

    def __init__(self) -> None:
        super().__init__(0, len(COLUMNS))
        self.images: list[TableImage] = []
        self._layers: list[Layer] = []
        self.setHorizontalHeaderLabels(COLUMNS)
        plain_table(self)
        self.setAccessibleName("Images of the table")
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        # The Tab key moves on to the next control.
        self.setTabKeyNavigation(False)
        modes = QHeaderView.ResizeMode
        for i in range(len(COLUMNS)):
            mode = modes.Stretch if i in (0, LAYER) else modes.ResizeToContents
            self.horizontalHeader().setSectionResizeMode(i, mode)
        self.cellClicked.connect(self._on_clicked)
        self.cellActivated.connect(self._on_clicked)

    def show_images(self, images: Sequence[TableImage], layers: Sequence[Layer]) -> None:
        """Show other images, and offer these layers for them."""
        self.images, self._layers = list(images), list(layers)
        self.setRowCount(len(images))
        for row, image in enumerate(images):
            where = "–" if image.link is None else image.link.layer.name
            missing = "" if image.join is None else f"{image.join.n_rows - image.join.n_joined:,}"
            mark = "⚠ " if image.remark else ""
            for i, text in enumerate((image.name, f"{image.n_cells:,}", mark + where, missing)):
                item = QTableWidgetItem(text)
                item.setToolTip(image.remark or str(image.join or text))
                self.setItem(row, i, item)
        header = self.horizontalHeader().sizeHint().height()
        self.setFixedHeight(header + min(max(len(images), 2), VISIBLE_ROWS) * ROW + 2)

    def menu(self, row: int) -> QMenu:
        """Return the layers that are offered for an image."""
        image, menu = self.images[row], QMenu(self)
        shown = None if image.link is None else image.link.layer
        for name, layer in [("in no layer", None), *((x.name, x) for x in self._layers)]:
            action = menu.addAction(name)
            action.setCheckable(True)
            action.setChecked(layer is shown)
            action.setData((image.value, layer))
        menu.triggered.connect(lambda action: self.layer_chosen.emit(*action.data()))
        return menu

    def _on_clicked(self, row: int, section: int) -> None:
        if section == LAYER:
            menu = self.menu(row)
            menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            below = self.visualRect(self.model().index(row, section)).bottomLeft()
            menu.popup(self.viewport().mapToGlobal(below))

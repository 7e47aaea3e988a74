"""The images of a table, and the layer that shows each of them."""

from __future__ import annotations

from collections.abc import Sequence

from napari.layers import Layer
from qtpy.QtCore import Qt, Signal
from qtpy.QtGui import QAction
from qtpy.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QMenu,
    QTableWidget,
    QTableWidgetItem,
    QWidget,
)

from centroid_encoder.viewer.data.images import TableImage
from centroid_encoder.viewer.panels.fields import ROW, plain_table

IMAGE, CELLS, LAYER, MISSING = range(4)
COLUMNS = {
    "image": "What the table calls the image",
    "cells": "Cells of the image in the table",
    "in layer": "Layer that shows them; a click changes it",
    "missing": "Cells that have no label or point there",
}
ROWS = 4
"""Images that are seen without scrolling."""
NOT_OPEN = "–"


class ImageTable(QTableWidget):
    """A row for each image; a click, or Enter, on its layer offers others.

    Attributes
    ----------
    images
        What the rows are.
    """

    layer_chosen = Signal(object, object)
    """The value of an image, None for all, and the layer that is to show it, None for none."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(0, len(COLUMNS), parent)
        self.images: list[TableImage] = []
        self._layers: list[Layer] = []
        for section, (name, tip) in enumerate(COLUMNS.items()):
            head = QTableWidgetItem(name)
            head.setToolTip(tip)
            self.setHorizontalHeaderItem(section, head)
        plain_table(self)
        self.setAccessibleName("Images of the table")
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        # The key Tab goes on to the next control.
        self.setTabKeyNavigation(False)
        modes = QHeaderView.ResizeMode
        for section in (IMAGE, LAYER):
            self.horizontalHeader().setSectionResizeMode(section, modes.Stretch)
        for section in (CELLS, MISSING):
            self.horizontalHeader().setSectionResizeMode(section, modes.ResizeToContents)
        self.cellClicked.connect(self._on_clicked)
        self.cellActivated.connect(self._on_clicked)

    def show_images(self, images: Sequence[TableImage], layers: Sequence[Layer]) -> None:
        """Show other images, and offer these layers for them."""
        self.images, self._layers = list(images), list(layers)
        at = self.currentRow()
        self.setRowCount(len(self.images))
        for row, image in enumerate(self.images):
            for section, item in enumerate(_items(image)):
                self.setItem(row, section, item)
        if 0 <= at < len(self.images):
            self.setCurrentCell(at, LAYER)
        header = self.horizontalHeader().sizeHint().height()
        self.setFixedHeight(header + min(max(len(images), 2), ROWS) * ROW + 2)

    def menu(self, row: int) -> QMenu:
        """Return the layers that are offered for an image."""
        image = self.images[row]
        shown = None if image.link is None else image.link.layer
        menu = QMenu(self)
        for name, layer in [("in no layer", None), *((x.name, x) for x in self._layers)]:
            action = QAction(name, menu)
            action.setCheckable(True)
            action.setChecked(layer is shown)
            action.setData((image.region, layer))
            menu.addAction(action)
        menu.triggered.connect(self._on_chosen)
        return menu

    def _on_clicked(self, row: int, section: int) -> None:
        if section != LAYER or not 0 <= row < len(self.images):
            return
        menu = self.menu(row)
        # Not for ever: each click makes one.
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        below = self.visualRect(self.model().index(row, section)).bottomLeft()
        menu.popup(self.viewport().mapToGlobal(below))

    def _on_chosen(self, action: QAction) -> None:
        region, layer = action.data()
        self.layer_chosen.emit(region, layer)


def _items(image: TableImage) -> list[QTableWidgetItem]:
    """Return what the table shows of an image."""
    where = NOT_OPEN if image.link is None else image.link.layer.name
    missing = "" if image.join is None else f"{image.join.n_rows - image.join.n_joined:,}"
    if image.remark:
        where = f"⚠ {where}"
    items = [QTableWidgetItem(text) for text in (image.name, f"{image.n_cells:,}", where, missing)]
    for section in (CELLS, MISSING):
        items[section].setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
    tip = image.remark or ("" if image.join is None else str(image.join))
    for item in items:
        item.setToolTip(tip or item.text())
    return items

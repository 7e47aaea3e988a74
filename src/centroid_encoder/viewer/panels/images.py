"""Show the images of a table, and let the user choose the layer of each image."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pandas as pd
from napari.layers import Layer
from qtpy.QtCore import QModelIndex
from qtpy.QtWidgets import QMenu

from centroid_encoder.viewer.data.join import TableImage
from centroid_encoder.viewer.panels.table_model import TableView

COLUMNS = ("image", "cells", "in layer", "missing")
LAYER = 2
VISIBLE_ROWS = 4


class ImageTable(TableView):
    """A row for each image; a click or Enter on its layer opens a menu of layers.

    `choose` is called with the value of an image (None for all images), and the layer that is to
    show it, or None.
    """

    def __init__(self, choose: Callable[[object, Any], object]) -> None:
        super().__init__("Images of the table")
        self._choose = choose
        self.images: list[TableImage] = []
        self._layers: list[Layer] = []
        # The Tab key moves to the next control instead of the next cell.
        self.setTabKeyNavigation(False)
        self.clicked.connect(self._on_clicked)
        self.activated.connect(self._on_clicked)

    def show_images(self, images: Sequence[TableImage], layers: Sequence[Layer]) -> None:
        """Show images, and offer these layers for them."""
        self.images, self._layers = list(images), list(layers)
        rows = []
        for image in images:
            layer, join = "–" if image.link is None else image.link.layer.name, image.join
            missing = "" if join is None else f"{join.n_rows - join.n_joined:,}"
            cells = image.name, f"{image.n_cells:,}", "⚠ " * bool(image.remark) + layer, missing
            rows.append((*cells, image.remark or str(join or "")))
        table = pd.DataFrame(rows, columns=[*COLUMNS, "tip"])
        self.set_table(table, [(name, "") for name in COLUMNS], [0, LAYER])
        self.setFixedHeight(self.height_of(min(max(len(images), 2), VISIBLE_ROWS)))

    def menu(self, row: int) -> QMenu:
        """Return the menu of layers for an image."""
        image, menu = self.images[row], QMenu(self)
        shown = None if image.link is None else image.link.layer
        for name, layer in [("in no layer", None), *((x.name, x) for x in self._layers)]:
            action = menu.addAction(name, partial(self._choose, image.value, layer))
            action.setCheckable(True)
            action.setChecked(layer is shown)
        return menu

    def _on_clicked(self, index: QModelIndex) -> None:
        if index.column() == LAYER:
            self.open_menu(self.menu(index.row()), index)

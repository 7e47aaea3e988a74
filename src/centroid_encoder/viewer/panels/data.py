"""Which table, which layer, and how the two are joined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from qtpy.QtCore import Qt, QTimer
from qtpy.QtWidgets import QFileDialog, QHBoxLayout, QLabel, QPushButton, QVBoxLayout, QWidget

from centroid_encoder.viewer.data.ids import may_be_ids
from centroid_encoder.viewer.panels.choice import Choice
from centroid_encoder.viewer.panels.fields import form_label, form_layout
from centroid_encoder.viewer.panels.message import Lines, Message, sentence

if TYPE_CHECKING:
    from centroid_encoder.viewer.data.catalog import Catalog
    from centroid_encoder.viewer.data.join import Link
    from centroid_encoder.viewer.data.tables import Table

EMPTY = "Open a .h5ad, or attach an AnnData to a layer (layer.metadata['adata'] = adata)."
NO_LAYER = "none"
ALL = "all"
PAUSE = 300
"""Milliseconds without a stroke after which painted labels are joined anew."""


class DataPanel(QWidget):
    """Pick a table, the layer whose labels or points are its cells, and the columns that join them.

    Parameters
    ----------
    catalog
        What there is to choose from, and what is chosen.
    """

    def __init__(self, catalog: Catalog, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.catalog = catalog
        self._refresh = QTimer(self, interval=0, singleShot=True)
        self._refresh.timeout.connect(catalog.refresh)
        self._rejoin = QTimer(self, interval=PAUSE, singleShot=True)
        self._rejoin.timeout.connect(catalog.join_again)

        self.table_box = Choice("Tables of cells that were found in napari")
        self.table_box.currentIndexChanged.connect(self._on_table)
        self.open_button = QPushButton("Open …")
        self.open_button.setToolTip("Read a .h5ad")
        self.open_button.clicked.connect(self._ask_file)
        self.layer_box = Choice("Layer whose labels or points are the cells of the table")
        self.layer_box.currentIndexChanged.connect(self._on_layer)
        self.instance_box = Choice("Column of obs that holds each cell's id in the layer")
        self.instance_box.currentIndexChanged.connect(self._on_keys)
        self.region_box = Choice("Which part of the table the layer shows")
        self.region_box.currentIndexChanged.connect(self._on_keys)
        self.joined_text = Lines()
        self.joined_text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.message = Message()

        self._by, self._in = QLabel("by"), QLabel("in")
        form = form_layout()
        form.addRow(form_label("Table"), _row((self.table_box, 1), (self.open_button, 0)))
        form.addRow(
            form_label("Cells in"),
            _row(
                (self.layer_box, 3),
                (self._by, 0),
                (self.instance_box, 2),
                (self._in, 0),
                (self.region_box, 2),
            ),
        )
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(form)
        layout.addWidget(self.joined_text)
        layout.addWidget(self.message)
        catalog.listed.connect(self._show_lists)
        catalog.link_changed.connect(self._show_link)
        catalog.stirred.connect(self._on_stirred)
        catalog.painted.connect(self._on_painted)

    def stop(self) -> None:
        """Put nothing more off: the viewer is followed no longer."""
        self._refresh.stop()
        self._rejoin.stop()

    def open_file(self, path: Path) -> Table | None:
        """Read a .h5ad and choose it; what goes wrong is said in the panel."""
        self.message.say("")
        try:
            table = self.catalog.open(path)
        except OSError as error:
            self.message.say(sentence(error), "error")
            return None
        self.catalog.choose(table)
        return table

    # -- what the user chooses -------------------------------------------------------------------

    def _ask_file(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self, "Open a table", "", "AnnData (*.h5ad)")
        if name:
            self.open_file(Path(name))

    def _on_table(self, _: int) -> None:
        self.catalog.choose(self.table_box.value)

    def _on_layer(self, _: int) -> None:
        self.catalog.choose_layer(self.layer_box.value)

    def _on_keys(self, _: int) -> None:
        link = self.catalog.link
        if link is None:
            return
        region = link.region and link.region._replace(value=self.region_box.value)
        id_column = self.instance_box.value
        self.catalog.choose_link(replace(link, region=region, id_column=id_column))

    def _on_stirred(self) -> None:
        self._refresh.start()

    def _on_painted(self) -> None:
        self._rejoin.start()

    # -- what is chosen --------------------------------------------------------------------------

    def _show_lists(self) -> None:
        catalog = self.catalog
        tables = [(table.name, table) for table in catalog.tables]
        self.table_box.offer(tables, catalog.table)
        self.table_box.setEnabled(bool(tables))
        layers = [(layer.name, layer) for layer in catalog.layers]
        self.layer_box.offer([(NO_LAYER, None), *layers], catalog.layer)
        self.layer_box.setEnabled(catalog.table is not None)
        if not tables:
            self.table_box.setPlaceholderText("no table found")
            self.message.say(EMPTY)
        elif self.message.text() == EMPTY:
            self.message.say("")

    def _show_link(self) -> None:
        self._rejoin.stop()
        catalog = self.catalog
        self._offer_keys(catalog.link)
        text = ""
        if catalog.join is not None:
            text = str(catalog.join)
        elif catalog.table is not None and catalog.link is None:
            text = f"{catalog.table.adata.n_obs:,} cells; no layer to show them in."
        self.joined_text.setText(text)
        self.joined_text.setVisible(bool(text))
        if catalog.problem is None:
            self.message.say("")
        else:
            self.message.say(sentence(catalog.problem), "error")
        self._show_lists()

    def _offer_keys(self, link: Link | None) -> None:
        """Offer the columns that may hold ids, and the regions that the layer may show."""
        ids: dict[str, str | None] = {}
        regions: dict[str, object] = {}
        if link is not None:
            obs, region = link.table.adata.obs, link.region
            ids = {str(name): str(name) for name in obs if may_be_ids(obs[name])}
            if link.id_column is None:
                ids = {"choose …": None, **ids}
            else:
                ids.setdefault(link.id_column, link.id_column)
            if region is not None and region.column in obs:
                regions = {str(name): name for name in pd.unique(obs[region.column].dropna())}
            self.instance_box.offer(ids.items(), link.id_column)
            self.region_box.offer([(ALL, None), *regions.items()], region and region.value)
        for widget in (self._by, self.instance_box):
            widget.setVisible(link is not None)
        for widget in (self._in, self.region_box):
            widget.setVisible(len(regions) > 1)


def _row(*widgets: tuple[QWidget, int]) -> QHBoxLayout:
    row = QHBoxLayout()
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(4)
    for widget, stretch in widgets:
        row.addWidget(widget, stretch)
    return row

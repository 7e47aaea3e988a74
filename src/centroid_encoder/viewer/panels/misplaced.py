"""Cells that may be mislabelled: a list of them, and a row to label cells."""

from __future__ import annotations

import pandas as pd
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QLabel, QRadioButton, QVBoxLayout, QWidget

from centroid_encoder.viewer.panels.fields import page, side_by_side
from centroid_encoder.viewer.panels.message import Message, sentence
from centroid_encoder.viewer.panels.relabel import LabelRow
from centroid_encoder.viewer.panels.table_model import TableView
from centroid_encoder.viewer.session.misplaced import (
    REGIONS,
    SOURCES,
    Source,
    available,
    list_cells,
)
from centroid_encoder.viewer.session.session import Session


class MisplacedTable(QWidget):
    """Sortable list of cells that may be mislabelled, worst first, and a row to label cells.

    `source` is how the listed cells were found, `summary` the sentence above them.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self.source = self._wanted = REGIONS
        self.view = TableView("Misplaced cells")
        self.model = self.view.frame
        self._keep_order()
        self.view.setSortingEnabled(True)
        self.view.setMinimumHeight(self.view.height_of(4))
        self.view.selectionModel().selectionChanged.connect(self._on_row)
        self.source_buttons = {source: QRadioButton(source.name) for source in SOURCES}
        for source, choice in self.source_buttons.items():
            choice.setToolTip(source.tip)
            choice.clicked.connect(self._on_source)
        self.summary = Message()

        self.label_row = LabelRow(session, "Change to")
        self.label_box, self.label_button = self.label_row.label_box, self.label_row.label_button
        sources = side_by_side(QLabel("Found by"), *self.source_buttons.values())
        sources.addStretch()
        self.top = QVBoxLayout()
        """For more texts."""
        page(self, self.top, sources, self.summary, self.view, self.label_row)
        session.shown_changed.connect(self._on_cells)
        self._on_cells()

    def choose(self, source: Source) -> None:
        """Choose how cells are found; the choice is kept while there is no such result."""
        self._wanted = source
        self._on_cells()

    def _on_source(self) -> None:
        self.choose(next(s for s, choice in self.source_buttons.items() if choice.isChecked()))

    def _on_cells(self) -> None:
        """List the cells again, in the order that the user has chosen."""
        there = available(self._session)
        source = self._wanted if self._wanted in there or not there else there[0]
        for offered, choice in self.source_buttons.items():
            choice.setEnabled(offered in there)
        self.source_buttons[source].setChecked(True)
        if source is not self.source:
            self.source = source
            self._keep_order()
        try:
            summary, cells = list_cells(self._session, source)
        except (KeyError, ValueError) as error:
            summary, cells = sentence(error), pd.DataFrame(columns=list(source.columns))
        self.summary.say(summary)
        classes = [i for i, name in enumerate(source.columns) if name in ("label", source.found)]
        self.view.set_table(cells, list(source.columns.values()), classes)
        header = self.view.horizontalHeader()
        self.model.sort(header.sortIndicatorSection(), header.sortIndicatorOrder())

    def _keep_order(self) -> None:
        """Keep the order of a list, worst first, until the user sorts it."""
        self.view.horizontalHeader().setSortIndicator(-1, Qt.SortOrder.DescendingOrder)

    def _on_row(self) -> None:
        chosen = [index.row() for index in self.view.selectionModel().selectedRows()]
        if chosen:
            cells = self.model.table.iloc[chosen]
            self.label_box.setCurrentText(str(cells[self.source.found].iloc[0]))
            self._session.select(cells.index.to_numpy(), zoom=True)

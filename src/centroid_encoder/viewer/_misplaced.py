"""Cells that lie in another class's region: look at them, and relabel them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from qtpy.QtCore import QAbstractTableModel, Qt, Signal
from qtpy.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QHBoxLayout,
    QHeaderView,
    QLabel,
    QPushButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

HEADERS = {
    "cell": "cell",
    "label": "label",
    "region": "lies in",
    "split": "split",
    "depth": "depth",
}
TIPS = {
    "cell": "Name of the cell; a click goes to it",
    "label": "Class that the cell is labelled as",
    "region": "Class in whose region the cell lies",
    "split": "train: the cell shaped the map; test: it was held out",
    "depth": "How far in: 0 on the border of its own class's region, 1 at the other class's center",
}


class MisplacedTable(QWidget):
    """Sortable table of misplaced cells, worst first, and a row to relabel cells."""

    cells_chosen = Signal(object)
    """Rows of the AnnData that were selected in the table."""
    relabel_requested = Signal(str)
    """New label for the selected cells; an empty text takes their label away."""
    undo_requested = Signal()
    redo_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.model = _Model(self)
        self.view = QTableView()
        self.view.setModel(self.model)
        self.view.setSortingEnabled(True)
        self.view.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.view.setShowGrid(False)
        self.view.setWordWrap(False)
        self.view.verticalHeader().hide()
        self.view.verticalHeader().setDefaultSectionSize(22)
        header = self.view.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.Stretch)
        header.setSortIndicator(len(HEADERS) - 1, Qt.SortOrder.DescendingOrder)
        self.view.selectionModel().selectionChanged.connect(self._on_selection)
        self.summary = QLabel()
        self.summary.setWordWrap(True)

        self.label_box = QComboBox()
        self.label_box.setEditable(True)
        self.label_box.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.label_box.setToolTip("A class, or the name of a new one")
        self.relabel_button = QPushButton("Relabel selection")
        self.relabel_button.setToolTip(
            "Give the selected cells this label, in a new column; the original stays as it is"
        )
        self.undo_button = QPushButton("Undo")
        self.redo_button = QPushButton("Redo")
        self.relabel_button.clicked.connect(
            lambda: self.relabel_requested.emit(self.label_box.currentText())
        )
        self.undo_button.clicked.connect(self.undo_requested)
        self.redo_button.clicked.connect(self.redo_requested)
        row = QHBoxLayout()
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.label_box, stretch=1)
        for button in (self.relabel_button, self.undo_button, self.redo_button):
            row.addWidget(button)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.summary)
        layout.addWidget(self.view, stretch=1)
        layout.addLayout(row)
        self.set_steps(relabel=False, undo="", redo="")

    def set_cells(
        self,
        table: pd.DataFrame,
        rows: NDArray[np.intp],
        labels: pd.Categorical | None = None,
    ) -> None:
        """Show other cells.

        Parameters
        ----------
        table
            What `tl.misplaced` returned.
        rows
            Row of each of these cells in the AnnData.
        labels
            (n_obs,) labels after relabelling.
        """
        if labels is not None and len(table):
            before, after = table["label"].astype(str), np.asarray(labels[rows].astype(str))
            changed = np.asarray(before != after)
            table = table.assign(label=before.where(~changed, before + " → " + after))
        self.model.set_cells(table, rows)
        header = self.view.horizontalHeader()
        self.model.sort(header.sortIndicatorSection(), header.sortIndicatorOrder())

    def set_labels(self, labels: list[str]) -> None:
        """Offer these labels."""
        text = self.label_box.currentText()
        self.label_box.clear()
        self.label_box.addItems(labels)
        self.label_box.setCurrentText(text if text in labels else (labels[0] if labels else ""))

    def set_steps(self, *, relabel: bool, undo: str, redo: str) -> None:
        """Say what can be done now: the steps' descriptions, empty for none."""
        self.relabel_button.setEnabled(relabel)
        for button, text in ((self.undo_button, undo), (self.redo_button, redo)):
            button.setEnabled(bool(text))
            button.setToolTip(text)

    def _on_selection(self, *_: Any) -> None:
        chosen = [index.row() for index in self.view.selectionModel().selectedRows()]
        if chosen:
            # Where a cell lies is the first guess at what it is.
            self.label_box.setCurrentText(str(self.model.table["region"].iloc[chosen[0]]))
            self.cells_chosen.emit(self.model.rows[chosen])


class _Model(QAbstractTableModel):
    """A data frame; sorted by the frame, which takes 10⁵ cells without a pause."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.table = pd.DataFrame(columns=list(HEADERS))
        self.rows = np.empty(0, dtype=np.intp)

    def set_cells(self, table: pd.DataFrame, rows: NDArray[np.intp]) -> None:
        self.beginResetModel()
        self.table = table.rename_axis("cell").reset_index()[list(HEADERS)]
        self.rows = rows
        self.endResetModel()

    def sort(self, column: int, order: Any = Qt.SortOrder.AscendingOrder) -> None:
        if not 0 <= column < len(HEADERS):
            return
        self.beginResetModel()
        name = list(HEADERS)[column]
        keys = self.table[name].astype(str) if name != "depth" else self.table[name]
        by = keys.sort_values(
            ascending=order == Qt.SortOrder.AscendingOrder, kind="stable"
        ).index.to_numpy()
        self.table = self.table.iloc[by].reset_index(drop=True)
        self.rows = self.rows[by]
        self.endResetModel()

    def rowCount(self, parent: Any = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.table)

    def columnCount(self, parent: Any = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(HEADERS)

    def headerData(self, section: int, orientation: Any, role: int = 0) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        name = list(HEADERS)[section]
        if role == Qt.ItemDataRole.DisplayRole:
            return HEADERS[name]
        return TIPS[name] if role == Qt.ItemDataRole.ToolTipRole else None

    def data(self, index: Any, role: int = 0) -> Any:
        value = self.table.iat[index.row(), index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return f"{value:.2f}" if isinstance(value, float) else str(value)
        if role == Qt.ItemDataRole.ToolTipRole:
            return str(value)
        return None

"""Cells that may be mislabelled: look at them, and relabel them."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
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
    QRadioButton,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from centroid_encoder.viewer.panels.message import Lines
from centroid_encoder.viewer.session.misplaced import REGIONS, SOURCES, Source

ROW = 22
"""Height in pixels."""


class MisplacedTable(QWidget):
    """Sortable table of suspect cells, worst first, and a row to relabel cells.

    Attributes
    ----------
    source
        Where the cells that are listed come from.
    summary
        What is said above them.
    """

    source_changed = Signal()
    """The user chose where the cells come from; `set_cells` shows them."""
    cells_chosen = Signal(object)
    """Rows of the AnnData that were selected in the table."""
    relabel_requested = Signal(str)
    """New label for the selected cells; an empty text takes their label away."""
    undo_requested = Signal()
    redo_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.source = self._wanted = REGIONS
        self.model = _Model(self)
        self.view = QTableView()
        self.view.setModel(self.model)
        self.view.setSortingEnabled(True)
        self.view.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.view.setShowGrid(False)
        self.view.setWordWrap(False)
        self.view.verticalHeader().hide()
        self.view.verticalHeader().setDefaultSectionSize(ROW)
        # A list of one is none.
        self.view.setMinimumHeight(5 * ROW)
        header = self.view.horizontalHeader()
        # In bold, the longer names would be cut off.
        header.setHighlightSections(False)
        self.view.selectionModel().selectionChanged.connect(self._on_selection)
        self.source_buttons = {source: QRadioButton(source.name) for source in SOURCES}
        sources = QHBoxLayout()
        sources.setContentsMargins(0, 2, 0, 0)
        sources.addWidget(QLabel("Found by"))
        for source, choice in self.source_buttons.items():
            choice.setToolTip(source.tip)
            sources.addWidget(choice)
            choice.clicked.connect(partial(self.choose, source))
        sources.addStretch()
        self.summary = Lines()

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
        layout.addLayout(sources)
        layout.addWidget(self.summary)
        layout.addWidget(self.view, stretch=1)
        layout.addLayout(row)
        self._sort_as_listed()
        self.offer([])
        self.set_steps(relabel=False, undo="", redo="")

    def offer(self, sources: Collection[Source]) -> None:
        """Say where cells can come from; what the user chose is kept, where it is possible."""
        if self._wanted in sources or not sources:
            self._show_source(self._wanted)
        else:
            self._show_source(next(source for source in SOURCES if source in sources))
        for source, button in self.source_buttons.items():
            button.setEnabled(source in sources)

    def choose(self, source: Source, *_: Any) -> None:
        """Choose where the cells come from."""
        self._wanted = source
        if source is not self.source:
            self._show_source(source)
            self.source_changed.emit()

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
            What `tl.misplaced` or `tl.mislabeled` returned, as the source says.
        rows
            Row of each of these cells in the AnnData.
        labels
            (n_obs,) labels after relabelling.
        """
        if labels is not None and len(table):
            before, after = table["label"].astype(str), np.asarray(labels[rows].astype(str))
            changed = np.asarray(before != after)
            table = table.assign(label=before.where(~changed, before + " → " + after))
        self.model.set_cells(table, rows, self.source)
        header = self.view.horizontalHeader()
        # Names get what numbers leave.
        modes = QHeaderView.ResizeMode
        for section, column in enumerate(self.source.columns):
            is_class = column in ("label", self.source.found)
            header.setSectionResizeMode(
                section, modes.Stretch if is_class else modes.ResizeToContents
            )
        self.model.sort(header.sortIndicatorSection(), header.sortIndicatorOrder())

    def set_labels(self, labels: list[str]) -> None:
        """Offer these labels; what was typed stays, unless they are those of something else."""
        box = self.label_box
        text, before = box.currentText(), {box.itemText(i) for i in range(box.count())}
        box.clear()
        box.addItems(labels)
        box.setCurrentText(text if before & set(labels) else (labels[0] if labels else ""))

    def set_steps(self, *, relabel: bool, undo: str, redo: str) -> None:
        """Say what can be done now: the steps' descriptions, empty for none."""
        self.relabel_button.setEnabled(relabel)
        for button, text in ((self.undo_button, undo), (self.redo_button, redo)):
            button.setEnabled(bool(text))
            button.setToolTip(text)

    def _show_source(self, source: Source) -> None:
        self.source_buttons[source].setChecked(True)
        if source is not self.source:
            self.source = source
            self._sort_as_listed()

    def _sort_as_listed(self) -> None:
        """Show where the worst come first, and sort new cells by that."""
        columns, by = list(self.source.columns), self.source.sorted_by
        at = -1 if by is None else columns.index(by)
        header = self.view.horizontalHeader()
        # The cells that are still listed may be of another source.
        blocked = header.blockSignals(True)
        header.setSortIndicator(at, Qt.SortOrder.DescendingOrder)
        header.blockSignals(blocked)

    def _on_selection(self, *_: Any) -> None:
        chosen = [index.row() for index in self.view.selectionModel().selectedRows()]
        if chosen:
            # What it was found to be is the first guess at what it is.
            found = self.model.table[self.model.source.found]
            self.label_box.setCurrentText(str(found.iloc[chosen[0]]))
            self.cells_chosen.emit(self.model.rows[chosen])


class _Model(QAbstractTableModel):
    """A data frame; sorted by the frame, which takes 10⁵ cells without a pause."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.source = REGIONS
        self.table = pd.DataFrame(columns=list(REGIONS.columns))
        self.rows = np.empty(0, dtype=np.intp)

    def set_cells(self, table: pd.DataFrame, rows: NDArray[np.intp], source: Source) -> None:
        self.beginResetModel()
        self.source = source
        self.table = table.rename_axis("cell").reset_index()[list(source.columns)]
        self.rows = rows
        self.endResetModel()

    def sort(self, column: int, order: Any = Qt.SortOrder.AscendingOrder) -> None:
        if not 0 <= column < self.columnCount():
            return
        self.beginResetModel()
        keys = self.table.iloc[:, column]
        if not pd.api.types.is_float_dtype(keys.dtype):
            keys = keys.astype(str)
        by = keys.sort_values(
            ascending=order == Qt.SortOrder.AscendingOrder, kind="stable"
        ).index.to_numpy()
        self.table = self.table.iloc[by].reset_index(drop=True)
        self.rows = self.rows[by]
        self.endResetModel()

    def rowCount(self, parent: Any = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.table)

    def columnCount(self, parent: Any = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.source.columns)

    def headerData(self, section: int, orientation: Any, role: int = 0) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        name = list(self.source.columns)[section]
        if role == Qt.ItemDataRole.DisplayRole:
            return self.source.columns[name].header
        return self.source.columns[name].tip if role == Qt.ItemDataRole.ToolTipRole else None

    def data(self, index: Any, role: int = 0) -> Any:
        value = self.table.iat[index.row(), index.column()]
        if role == Qt.ItemDataRole.DisplayRole:
            return f"{value:.2f}" if isinstance(value, float | np.floating) else str(value)
        if role == Qt.ItemDataRole.ToolTipRole:
            return str(value)
        return None

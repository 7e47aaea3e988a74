"""Cells that may be mislabelled: look at them, and relabel them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from qtpy.QtCore import QAbstractTableModel, Qt
from qtpy.QtWidgets import (
    QAbstractItemView,
    QComboBox,
    QHeaderView,
    QLabel,
    QPushButton,
    QRadioButton,
    QSizePolicy,
    QTableView,
    QWidget,
)
from superqt.utils import signals_blocked

from centroid_encoder.viewer.panels.fields import PAGE, ROW, column, plain_table, side_by_side
from centroid_encoder.viewer.panels.message import Lines, sentence
from centroid_encoder.viewer.session.misplaced import (
    REGIONS,
    SOURCES,
    Listing,
    Source,
    list_misplaced,
)
from centroid_encoder.viewer.session.session import Session


class MisplacedTable(QWidget):
    """Sortable list of cells that may be mislabelled, worst first, and a row to relabel cells.

    Attributes
    ----------
    source
        How the cells that are listed were found.
    summary
        What is said above them.
    """

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.source = self._wanted = REGIONS
        self.model = _Model(self)
        self.view = QTableView()
        self.view.setModel(self.model)
        self.view.setSortingEnabled(True)
        self.view.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        plain_table(self.view)
        # In fewer rows, cells cannot be compared.
        header = self.view.horizontalHeader().sizeHint().height()
        self.view.setMinimumHeight(header + 4 * ROW + 2)
        self.view.setAccessibleName("Misplaced cells")
        self.view.selectionModel().selectionChanged.connect(self._on_row)
        self.source_buttons = {source: QRadioButton(source.name) for source in SOURCES}
        for source, button in self.source_buttons.items():
            button.setToolTip(source.tip)
            button.clicked.connect(self._on_source)
        self.summary = Lines()

        self.label_box = QComboBox()
        self.label_box.setEditable(True)
        self.label_box.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        # Long names of classes must not make the dock wide.
        self.label_box.setSizeAdjustPolicy(
            QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
        )
        self.label_box.setInsertPolicy(QComboBox.InsertPolicy.NoInsert)
        self.label_box.setAccessibleName("New label")
        self.label_box.setToolTip("A class, or the name of a new one")
        self.relabel_button = QPushButton("Relabel selection")
        self.relabel_button.setToolTip(
            "Give the selected cells this label, in a new column; the original stays as it is"
        )
        self.undo_button = QPushButton("Undo")
        self.redo_button = QPushButton("Redo")
        self.relabel_button.clicked.connect(self._on_relabel)
        self.undo_button.clicked.connect(self._on_undo)
        self.redo_button.clicked.connect(self._on_redo)
        sources = side_by_side(QLabel("Found by"), *self.source_buttons.values())
        sources.addStretch()
        steps = side_by_side(
            self.label_box, self.relabel_button, self.undo_button, self.redo_button
        )
        layout = column(self, sources, self.summary, self.view, steps)
        layout.setContentsMargins(*PAGE)
        layout.setStretchFactor(self.view, 1)

        for event in (
            session.result_changed,
            session.check_changed,
            session.labels_changed,
            session.regions_changed,
        ):
            event.connect(self._on_cells)
        for event in (
            session.result_changed,
            session.labels_changed,
            session.label_key_changed,
            session.selection_changed,
        ):
            event.connect(self._on_steps)
        self._sort_as_listed()
        self._on_cells()
        self._on_steps()

    def choose(self, source: Source) -> None:
        """Choose how cells are found; what the user chose is kept as long as it is possible."""
        self._wanted = source
        self._on_cells()

    def _on_source(self) -> None:
        chosen = next(s for s, button in self.source_buttons.items() if button.isChecked())
        if not self._session.reread():
            self.choose(chosen)

    def _on_cells(self) -> None:
        """List the cells anew."""
        self.offer([source for source in SOURCES if source.is_there(self._session)])
        self.show_listing(list_misplaced(self._session, self.source))

    def offer(self, sources: Collection[Source]) -> None:
        """Offer ways to find cells; what the user chose is kept, where that is possible."""
        source = self._wanted
        if sources and source not in sources:
            source = next(offered for offered in SOURCES if offered in sources)
        for offered, button in self.source_buttons.items():
            button.setEnabled(offered in sources)
        self.source_buttons[source].setChecked(True)
        if source is not self.source:
            self.source = source
            self._sort_as_listed()

    def show_listing(self, listing: Listing) -> None:
        """Show other cells, sorted as the user wants."""
        said = listing.summary
        self.summary.setText(said if isinstance(said, str) else sentence(said))
        table = listing.cells
        if listing.labels is not None and len(table):
            before = table["label"].astype(str)
            after = np.asarray(listing.labels[listing.rows].astype(str))
            same = np.asarray(before == after)
            table = table.assign(label=before.where(same, before + " → " + after))
        self.model.set_cells(table, listing.rows, self.source)
        header = self.view.horizontalHeader()
        # Names get the room that numbers leave.
        modes = QHeaderView.ResizeMode
        for section, name in enumerate(self.source.columns):
            is_class = name in ("label", self.source.found)
            header.setSectionResizeMode(
                section, modes.Stretch if is_class else modes.ResizeToContents
            )
        self.model.sort(header.sortIndicatorSection(), header.sortIndicatorOrder())

    def _on_steps(self) -> None:
        """Offer the labels and the steps that there are now."""
        relabeling = self._session.relabeling
        self.offer_labels(self._session.new_labels)
        can_relabel = relabeling is not None and bool(self._session.selected.any())
        self.relabel_button.setEnabled(can_relabel)
        steps = ("", "") if relabeling is None else relabeling.steps
        for button, step in zip((self.undo_button, self.redo_button), steps, strict=True):
            button.setEnabled(bool(step))
            button.setToolTip(step)

    def offer_labels(self, labels: Sequence[str]) -> None:
        """Offer labels; what was typed stays, unless they are those of something else."""
        box = self.label_box
        text, before = box.currentText(), {box.itemText(i) for i in range(box.count())}
        box.clear()
        box.addItems(labels)
        box.setCurrentText(text if before & set(labels) else (labels[0] if labels else ""))

    def _sort_as_listed(self) -> None:
        """Show which column the worst come first by, and sort other cells by it."""
        columns, by = list(self.source.columns), self.source.sorted_by
        # The cells that are still listed may be of another source.
        with signals_blocked(self.view.horizontalHeader()):
            self.view.horizontalHeader().setSortIndicator(
                -1 if by is None else columns.index(by), Qt.SortOrder.DescendingOrder
            )

    def _on_row(self) -> None:
        chosen = [index.row() for index in self.view.selectionModel().selectedRows()]
        if chosen:
            # What it was found to be is the first guess at what it is.
            found = self.model.table[self.model.source.found]
            self.label_box.setCurrentText(str(found.iloc[chosen[0]]))
            self._session.go_to(self.model.rows[chosen])

    def _on_relabel(self) -> None:
        self._session.relabel(self.label_box.currentText())

    def _on_undo(self) -> None:
        self._session.undo()

    def _on_redo(self) -> None:
        self._session.redo()


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
        if role == Qt.ItemDataRole.TextAlignmentRole and isinstance(value, float | np.floating):
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None

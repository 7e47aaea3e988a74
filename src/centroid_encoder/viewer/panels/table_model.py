"""Show data frames as tables in Qt."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import pandas as pd
from qtpy.QtCore import QAbstractTableModel, QModelIndex, Qt
from qtpy.QtWidgets import QHeaderView, QMenu, QTableView, QWidget

ROW = 22
"""Height of a row in pixels."""
MEASURED = 30
"""Number of rows whose texts determine the width of a column."""


class TableView(QTableView):
    """A table with low rows, without a grid and row numbers; `frame` is its model.

    `name` is for screen readers.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.frame = TableModel(self)
        self.setModel(self.frame)
        self.setAccessibleName(name)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setSelectionBehavior(QTableView.SelectionBehavior.SelectRows)
        self.horizontalHeader().setMinimumSectionSize(14)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(ROW)
        # Qt would otherwise measure a thousand rows at each change, also of a hidden table.
        self.horizontalHeader().setResizeContentsPrecision(MEASURED)
        # A bold header would cut off long names.
        self.horizontalHeader().setHighlightSections(False)

    def set_table(
        self, table: pd.DataFrame, headers: list[tuple[str, str]], wide: Collection[int]
    ) -> None:
        """Show another data frame; see `TableModel`. The `wide` columns share the space left."""
        self.frame.set_table(table, headers)
        modes = QHeaderView.ResizeMode
        for i in range(len(headers)):
            mode = modes.Stretch if i in wide else modes.ResizeToContents
            self.horizontalHeader().setSectionResizeMode(i, mode)

    def open_menu(self, menu: QMenu, index: QModelIndex) -> None:
        """Open a menu below a cell."""
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(self.viewport().mapToGlobal(self.visualRect(index).bottomLeft()))

    def height_of(self, n_rows: int) -> int:
        """Return the height of the table with so many visible rows."""
        return int(self.horizontalHeader().sizeHint().height()) + n_rows * ROW + 2


class TableModel(QAbstractTableModel):
    """Rows of a data frame, sorted by pandas, which is fast even for 100,000 rows.

    `table` is the data frame in the shown order.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.set_table(pd.DataFrame(), [])

    def set_table(self, table: pd.DataFrame, headers: list[tuple[str, str]]) -> None:
        """Show another data frame, with a (header, tooltip) pair for each column.

        A column ``"tip"`` after these columns holds the tooltips of the rows.
        """
        self.beginResetModel()
        self.table, self._headers = table, headers
        # Access to a value of a data frame copies its attributes, which takes 0.2 ms.
        self._columns = [column.array for _, column in table.items()]
        self.endResetModel()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Sort the rows by a column; values that are not numbers are sorted as text."""
        if 0 <= column < self.columnCount():
            keys = self.table.iloc[:, column]
            if not pd.api.types.is_numeric_dtype(keys.dtype):
                keys = keys.astype(str)
            ascending = order == Qt.SortOrder.AscendingOrder
            places = keys.reset_index(drop=True).sort_values(ascending=ascending, kind="stable")
            self.set_table(self.table.iloc[places.index], self._headers)

    def rowCount(self, parent: Any = None) -> int:
        """Return the number of rows."""
        return 0 if parent is not None and parent.isValid() else len(self.table)

    def columnCount(self, parent: Any = None) -> int:
        """Return the number of columns."""
        return 0 if parent is not None and parent.isValid() else len(self._headers)

    def headerData(self, section: int, orientation: Any, role: int = 0) -> Any:
        """Return the header of a column, or its tooltip."""
        roles = (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole)
        if orientation != Qt.Orientation.Horizontal or role not in roles:
            return None
        return self._headers[section][roles.index(Qt.ItemDataRole(role))]

    def data(self, index: Any, role: int = 0) -> Any:
        """Return the text of a cell."""
        value = self._columns[index.column()][index.row()]
        is_number = isinstance(value, float | np.floating)
        if role == Qt.ItemDataRole.DisplayRole:
            if pd.isna(value):
                return "–"
            return f"{value:.2f}" if is_number else str(value)
        if role == Qt.ItemDataRole.ToolTipRole:
            tip = self.table["tip"].array[index.row()] if "tip" in self.table else ""
            return tip or str(value)
        if role == Qt.ItemDataRole.TextAlignmentRole and is_number:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        return None

"""The legend: classes with their colours, cells and errors; each can be switched off."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import QAbstractTableModel, QModelIndex, QRect, QSize, Qt, Signal
from qtpy.QtGui import QColor, QCursor, QIcon, QPixmap
from qtpy.QtWidgets import (
    QAbstractItemView,
    QColorDialog,
    QHeaderView,
    QStyle,
    QStyleOptionViewItem,
    QTableView,
    QVBoxLayout,
    QWidget,
)

from centroid_encoder.viewer.session.classes import ClassRow, class_rows
from centroid_encoder.viewer.session.session import Session

COLUMNS = ("class", "cells", "held-out error", "out of fold")
TIPS = (
    "The box switches a class on and off; a double click on its name shows it alone, "
    "on its colour changes the colour everywhere",
    "Labelled cells",
    "Share of held-out cells of this class whose five nearest training cells say another class",
    "The same for all its cells, each by a network that has not seen it (Check labels)",
)
SWATCH = 14


class ClassTable(QWidget):
    """Legend with a row for each class of the session."""

    shown_changed = Signal(object)
    """(n_classes,) mask of the classes that are switched on."""

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.model = _Model(self)
        self.view = QTableView()
        self.view.setModel(self.model)
        self.view.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.view.setShowGrid(False)
        self.view.verticalHeader().hide()
        self.view.verticalHeader().setDefaultSectionSize(22)
        header = self.view.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
        self.view.doubleClicked.connect(self._on_double_click)
        self.model.shown_changed.connect(self.shown_changed)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.view)
        for event in (
            session.result_changed,
            session.check_changed,
            session.label_key_changed,
            session.colors_changed,
        ):
            event.connect(self._on_classes)

    @property
    def shown(self) -> NDArray[np.bool_]:
        """(n_classes,) mask of the classes that are switched on."""
        return self.model.shown

    def _on_classes(self) -> None:
        self.set_classes(class_rows(self._session))
        self.shown_changed.emit(self.shown)

    def set_classes(self, rows: list[ClassRow]) -> None:
        """Show other classes, or other colours and numbers of the same ones."""
        self.model.set_rows(rows)
        unknown = all(np.isnan(row.out_of_fold) for row in rows)
        self.view.setColumnHidden(COLUMNS.index("out of fold"), unknown)

    def isolate(self, code: int) -> None:
        """Show one class alone; once more, and all are back."""
        alone = np.arange(len(self.shown)) == code
        self.model.set_shown(np.ones_like(alone) if (self.shown == alone).all() else alone)

    def _on_double_click(self, index: QModelIndex) -> None:
        at = self.view.viewport().mapFromGlobal(QCursor.pos())
        if index.column() == 0:
            if self._part(index, QStyle.SubElement.SE_ItemViewItemDecoration).contains(at):
                self._pick_color(index.row())
                return
            # The box has heard of it already.
            if self._part(index, QStyle.SubElement.SE_ItemViewItemCheckIndicator).contains(at):
                return
        self.isolate(index.row())

    def _part(self, index: QModelIndex, part: QStyle.SubElement) -> QRect:
        """Where the style draws the box or the swatch of a class."""
        feature = QStyleOptionViewItem.ViewItemFeature
        option = QStyleOptionViewItem()
        option.initFrom(self.view)
        option.rect = self.view.visualRect(index)
        option.features = feature.HasCheckIndicator | feature.HasDecoration | feature.HasDisplay
        option.decorationSize = QSize(SWATCH, SWATCH)
        option.text = self.model.rows[index.row()].name
        return self.view.style().subElementRect(part, option, self.view)

    def _pick_color(self, code: int) -> None:
        row = self.model.rows[code]
        color = QColorDialog.getColor(QColor(row.color), self, f"Colour of {row.name}")
        if color.isValid():
            self._session.recolor_class(code, color.name())


class _Model(QAbstractTableModel):
    shown_changed = Signal(object)

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.rows: list[ClassRow] = []
        self.shown = np.empty(0, dtype=bool)

    def set_rows(self, rows: list[ClassRow]) -> None:
        self.beginResetModel()
        if [row.name for row in rows] != [row.name for row in self.rows]:
            self.shown = np.ones(len(rows), dtype=bool)
        self.rows = rows
        self.endResetModel()

    def set_shown(self, shown: NDArray[np.bool_]) -> None:
        self.shown = shown.copy()
        if self.rows:
            self.dataChanged.emit(self.index(0, 0), self.index(len(self.rows) - 1, 0))
        self.shown_changed.emit(self.shown)

    def rowCount(self, parent: Any = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self.rows)

    def columnCount(self, parent: Any = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(COLUMNS)

    def flags(self, index: Any) -> Any:
        flags = Qt.ItemFlag.ItemIsEnabled
        return flags | Qt.ItemFlag.ItemIsUserCheckable if index.column() == 0 else flags

    def headerData(self, section: int, orientation: Any, role: int = 0) -> Any:
        if orientation != Qt.Orientation.Horizontal:
            return None
        if role == Qt.ItemDataRole.DisplayRole:
            return COLUMNS[section]
        return TIPS[section] if role == Qt.ItemDataRole.ToolTipRole else None

    def data(self, index: Any, role: int = 0) -> Any:
        row, column = self.rows[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return (row.name, f"{row.n:,}", _percent(row.error), _percent(row.out_of_fold))[column]
        if role == Qt.ItemDataRole.TextAlignmentRole and column:
            return Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        if role == Qt.ItemDataRole.ToolTipRole:
            return row.name if column == 0 else TIPS[column]
        if column == 0 and role == Qt.ItemDataRole.DecorationRole:
            return _swatch(row.color)
        if column == 0 and role == Qt.ItemDataRole.CheckStateRole:
            checked = self.shown[index.row()]
            return Qt.CheckState.Checked if checked else Qt.CheckState.Unchecked
        return None

    def setData(self, index: Any, value: Any, role: int = 0) -> bool:
        if role != Qt.ItemDataRole.CheckStateRole:
            return False
        shown = self.shown.copy()
        shown[index.row()] = Qt.CheckState(value) == Qt.CheckState.Checked
        self.set_shown(shown)
        return True


def _percent(error: float) -> str:
    return "–" if np.isnan(error) else f"{100 * error:.1f} %"


def _swatch(color: str) -> QIcon:
    pixmap = QPixmap(SWATCH, SWATCH)
    pixmap.fill(QColor(color))
    return QIcon(pixmap)

"""The legend: what it shows, and what the mouse does to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from qtpy.QtCore import QPoint, Qt, QTimer
from qtpy.QtGui import QColor
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication, QColorDialog, QStyle, QStyleOptionViewItem

from centroid_encoder.viewer.panels.classes import BOX, COLOR, COLUMNS, NAME, ClassTable
from centroid_encoder.viewer.session.classes import ClassRow
from centroid_encoder.viewer.session.session import Session

ROWS = [
    ClassRow("B cells", "#ff0000", 1234, 0.125, 0.25),
    ClassRow("NK", "#00ff00", 7, np.nan),
    ClassRow("T cells", "#0000ff", 0, 0.0),
]
LEFT, NO_KEYS = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
Role = Qt.ItemDataRole


class Legend:
    """A legend, and the mouse on it."""

    def __init__(
        self, table: ClassTable, monkeypatch: pytest.MonkeyPatch, session: Session
    ) -> None:
        self.table, self.session = table, session
        self.model = table.view.model()
        self.shown: list[list[bool]] = []
        self.colors: list[tuple[int, str]] = []
        session.hidden_changed.connect(self.hear)
        monkeypatch.setattr(session, "recolor_class", lambda *color: self.colors.append(color))

    def hear(self) -> None:
        """Note what the map is to show."""
        shown = [row.name not in self.session.hidden for row in self.table.rows]
        if shown != [True] * len(shown) or self.shown:
            self.shown.append(shown)

    def text(self, row: int, column: int, role: Any = Role.DisplayRole) -> Any:
        return self.model.data(self.model.index(row, column), role)

    def part(self, row: int, column: int) -> QPoint:
        """Middle of the check box, the swatch or the name."""
        rect = self.table.view.visualRect(self.model.index(row, column))
        if column != BOX:
            return rect.center()
        view, option = self.table.view, QStyleOptionViewItem()
        view.initViewItemOption(option)
        option.rect = rect
        option.features |= QStyleOptionViewItem.ViewItemFeature.HasCheckIndicator
        box = QStyle.SubElement.SE_ItemViewItemCheckIndicator
        return view.style().subElementRect(box, option, view).center()

    def click(self, at: QPoint) -> None:
        QTest.mouseClick(self.table.view.viewport(), LEFT, NO_KEYS, at)

    def double_click(self, at: QPoint) -> None:
        viewport = self.table.view.viewport()
        QTest.mouseClick(viewport, LEFT, NO_KEYS, at)
        QTest.mouseDClick(viewport, LEFT, NO_KEYS, at)


@pytest.fixture
def legend(qtbot: Any, monkeypatch: pytest.MonkeyPatch) -> Legend:
    session = Session()
    table = ClassTable(session)
    qtbot.addWidget(table)
    table.resize(420, 200)
    with qtbot.waitExposed(table):
        table.show()
    table.set_classes(ROWS)
    return Legend(table, monkeypatch, session)


def test_names_colors_numbers_and_errors(legend: Legend) -> None:
    model = legend.model
    assert (model.rowCount(), model.columnCount()) == (3, 6)
    assert [model.headerData(i, Qt.Orientation.Horizontal) for i in range(6)] == list(COLUMNS)
    texts = [[legend.text(row, column) for column in range(NAME, 6)] for row in range(3)]
    assert texts == [
        ["B cells", "1,234", "12.5 %", "25.0 %"],
        ["NK", "7", "–", "–"],
        ["T cells", "0", "0.0 %", "–"],
    ]
    for row, wanted in enumerate(ROWS):
        icon = legend.text(row, COLOR, Role.DecorationRole)
        assert icon.pixmap(14, 14).toImage().pixelColor(7, 7) == QColor(wanted.color)
        assert Qt.CheckState(legend.text(row, 0, Role.CheckStateRole)) == Qt.CheckState.Checked
        assert legend.text(row, 1, Role.CheckStateRole) is None
    for column in range(6):
        tip = model.headerData(column, Qt.Orientation.Horizontal, Role.ToolTipRole)
        assert len(tip) > 10


def test_without_a_check_there_is_no_column_for_it(legend: Legend) -> None:
    assert not legend.table.view.isColumnHidden(5)
    legend.table.set_classes(ROWS[1:])
    assert legend.table.view.isColumnHidden(5)


def test_the_box_switches_a_class_off_and_on(legend: Legend) -> None:
    legend.click(legend.part(1, BOX))
    assert legend.shown == [[True, False, True]]
    assert legend.table.shown.tolist() == [True, False, True]
    assert Qt.CheckState(legend.text(1, 0, Role.CheckStateRole)) == Qt.CheckState.Unchecked
    legend.click(legend.part(2, BOX))
    legend.click(legend.part(1, BOX))
    assert legend.shown[1:] == [[True, False, False], [True, True, False]]
    legend.click(legend.part(0, NAME))
    legend.click(legend.part(0, COLOR))
    assert len(legend.shown) == 3


def test_a_double_click_on_the_name_shows_a_class_alone(legend: Legend) -> None:
    legend.double_click(legend.part(1, NAME))
    assert legend.shown == [[False, True, False]]
    legend.double_click(legend.part(2, NAME))
    assert legend.shown[1:] == [[False, False, True]]
    legend.double_click(legend.part(2, NAME))
    assert legend.shown[2:] == [[True, True, True]]
    other = legend.table.view.visualRect(legend.model.index(0, 3)).center()
    legend.double_click(other)
    assert legend.shown[3:] == [[True, False, False]]
    assert not legend.colors


@pytest.mark.parametrize("accepted", [True, False])
def test_a_double_click_on_the_color_asks_for_another(legend: Legend, accepted: bool) -> None:
    asked: list[tuple[str, str]] = []

    def answer() -> None:
        dialog = QApplication.activeModalWidget()
        assert isinstance(dialog, QColorDialog)
        asked.append((dialog.windowTitle(), dialog.currentColor().name()))
        dialog.setCurrentColor(QColor("#123456"))
        dialog.accept() if accepted else dialog.reject()

    QTimer.singleShot(200, answer)
    legend.double_click(legend.part(2, COLOR))
    assert asked == [("Colour of T cells", "#0000ff")]
    assert legend.colors == ([(2, "#123456")] if accepted else [])
    assert not legend.shown
    # The legend waits to be told, like everybody else.
    swatch = legend.text(2, COLOR, Role.DecorationRole).pixmap(9, 9).toImage()
    assert swatch.pixelColor(4, 4) == QColor("#0000ff")


def test_other_numbers_keep_what_is_switched_off_and_other_classes_do_not(legend: Legend) -> None:
    legend.table.isolate(1)
    legend.table.set_classes([ClassRow(row.name, "#111111", 3, 0.5) for row in ROWS])
    assert legend.table.shown.tolist() == [False, True, False]
    assert legend.text(0, 4) == "50.0 %"
    legend.table.set_classes([*ROWS[:2], ClassRow("other", "#0000ff", 1, 0.5)])
    assert legend.table.shown.tolist() == [True, True, True]
    legend.table.set_classes([])
    assert legend.model.rowCount() == 0
    assert legend.table.shown.tolist() == []
    legend.table.isolate(0)

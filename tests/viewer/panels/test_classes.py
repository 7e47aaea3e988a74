"""The legend: what it shows, and what the mouse does to it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from qtpy.QtCore import QPoint, Qt, QTimer
from qtpy.QtGui import QColor, QCursor
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication, QColorDialog, QStyle, QStyleOptionViewItem

from centroid_encoder.viewer.panels.classes import COLUMNS, ClassTable
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
        self.table = table
        self.shown: list[list[bool]] = []
        self.colors: list[tuple[int, str]] = []
        table.shown_changed.connect(lambda shown: self.shown.append(shown.tolist()))
        monkeypatch.setattr(session, "recolor_class", lambda *color: self.colors.append(color))

    def text(self, row: int, column: int, role: Any = Role.DisplayRole) -> Any:
        return self.table.model.data(self.table.model.index(row, column), role)

    def part(self, row: int, part: Any) -> QPoint:
        """Middle of the check box, the swatch or the name, as the style draws them."""
        view, index = self.table.view, self.table.model.index(row, 0)
        option = QStyleOptionViewItem()
        view.initViewItemOption(option)
        option.rect = view.visualRect(index)
        view.itemDelegate().initStyleOption(option, index)
        return view.style().subElementRect(part, option, view).center()

    def click(self, at: QPoint) -> None:
        QTest.mouseClick(self.table.view.viewport(), LEFT, NO_KEYS, at)

    def double_click(self, at: QPoint) -> None:
        viewport = self.table.view.viewport()
        QCursor.setPos(viewport.mapToGlobal(at))
        QApplication.processEvents()
        QTest.mouseClick(viewport, LEFT, NO_KEYS, at)
        QTest.mouseDClick(viewport, LEFT, NO_KEYS, at)


BOX = QStyle.SubElement.SE_ItemViewItemCheckIndicator
SWATCH = QStyle.SubElement.SE_ItemViewItemDecoration
NAME = QStyle.SubElement.SE_ItemViewItemText


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
    model = legend.table.model
    assert (model.rowCount(), model.columnCount()) == (3, 4)
    assert [model.headerData(i, Qt.Orientation.Horizontal) for i in range(4)] == list(COLUMNS)
    texts = [[legend.text(row, column) for column in range(4)] for row in range(3)]
    assert texts == [
        ["B cells", "1,234", "12.5 %", "25.0 %"],
        ["NK", "7", "–", "–"],
        ["T cells", "0", "0.0 %", "–"],
    ]
    for row, wanted in enumerate(ROWS):
        icon = legend.text(row, 0, Role.DecorationRole)
        assert icon.pixmap(14, 14).toImage().pixelColor(7, 7) == QColor(wanted.color)
        assert legend.text(row, 0, Role.CheckStateRole) == Qt.CheckState.Checked
        assert legend.text(row, 1, Role.CheckStateRole) is None
    for column in range(4):
        tip = model.headerData(column, Qt.Orientation.Horizontal, Role.ToolTipRole)
        assert len(tip) > 10


def test_without_a_check_there_is_no_column_for_it(legend: Legend) -> None:
    assert not legend.table.view.isColumnHidden(3)
    legend.table.set_classes(ROWS[1:])
    assert legend.table.view.isColumnHidden(3)


def test_what_cannot_be_seen_in_full_is_in_the_tooltip(legend: Legend) -> None:
    assert legend.text(1, 0, Role.ToolTipRole) == "NK"


def test_the_box_switches_a_class_off_and_on(legend: Legend) -> None:
    legend.click(legend.part(1, BOX))
    assert legend.shown == [[True, False, True]]
    assert legend.table.shown.tolist() == [True, False, True]
    assert legend.text(1, 0, Role.CheckStateRole) == Qt.CheckState.Unchecked
    legend.click(legend.part(2, BOX))
    legend.click(legend.part(1, BOX))
    assert legend.shown[1:] == [[True, False, False], [True, True, False]]
    legend.click(legend.part(0, NAME))
    legend.click(legend.part(0, SWATCH))
    assert len(legend.shown) == 3


def test_masks_that_were_sent_do_not_change(legend: Legend) -> None:
    sent: list[Any] = []
    legend.table.shown_changed.connect(sent.append)
    legend.table.isolate(0)
    legend.click(legend.part(1, BOX))
    assert [mask.tolist() for mask in sent] == [[True, False, False], [True, True, False]]


def test_a_double_click_on_the_name_shows_a_class_alone(legend: Legend) -> None:
    legend.double_click(legend.part(1, NAME))
    assert legend.shown == [[False, True, False]]
    legend.double_click(legend.part(2, NAME))
    assert legend.shown[1:] == [[False, False, True]]
    legend.double_click(legend.part(2, NAME))
    assert legend.shown[2:] == [[True, True, True]]
    other = legend.table.view.visualRect(legend.table.model.index(0, 1)).center()
    legend.double_click(other)
    assert legend.shown[3:] == [[True, False, False]]
    assert not legend.colors


def test_a_double_click_on_the_box_is_a_click(legend: Legend) -> None:
    legend.double_click(legend.part(1, BOX))
    assert [dialog for dialog in QApplication.topLevelWidgets() if dialog.isModal()] == []
    assert legend.shown == [[True, False, True]]


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
    legend.double_click(legend.part(2, SWATCH))
    assert asked == [("Colour of T cells", "#0000ff")]
    assert legend.colors == ([(2, "#123456")] if accepted else [])
    assert not legend.shown
    # The legend waits to be told, like everybody else.
    assert legend.text(2, 0, Role.DecorationRole).pixmap(9, 9).toImage().pixelColor(4, 4) == QColor(
        "#0000ff"
    )


def test_other_numbers_keep_what_is_switched_off_and_other_classes_do_not(legend: Legend) -> None:
    legend.table.isolate(1)
    legend.table.set_classes([ClassRow(row.name, "#111111", 3, 0.5) for row in ROWS])
    assert legend.table.shown.tolist() == [False, True, False]
    assert legend.text(0, 2) == "50.0 %"
    legend.table.set_classes([*ROWS[:2], ClassRow("other", "#0000ff", 1, 0.5)])
    assert legend.table.shown.tolist() == [True, True, True]
    legend.table.set_classes([])
    assert legend.table.model.rowCount() == 0
    assert legend.table.shown.tolist() == []
    legend.table.isolate(0)


def test_one_class_alone_is_all(legend: Legend) -> None:
    legend.table.set_classes(ROWS[:1])
    legend.table.isolate(0)
    assert legend.table.shown.tolist() == [True]

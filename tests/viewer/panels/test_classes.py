"""The table of classes: its content, and clicks on it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from qtpy.QtCore import Qt
from qtpy.QtGui import QColor
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QApplication, QColorDialog

from centroid_encoder.viewer.panels.classes import BOX, COLOR, HEADERS, NAME, ClassTable
from centroid_encoder.viewer.session.session import Session

CLASSES = pd.DataFrame(
    {
        "name": ["B cells", "NK", "T cells"],
        "color": ["#ff0000", "#00ff00", "#0000ff"],
        "n": [1234, 7, 0],
        "error": [0.125, np.nan, 0.0],
        "out_of_fold": [0.25, np.nan, np.nan],
    }
)
LEFT, NO_KEYS = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
Role = Qt.ItemDataRole


class Legend:
    """A table of these classes, and clicks on it."""

    def __init__(self, table: ClassTable, session: Session) -> None:
        self.table, self.session, self.model = table, session, table.model
        self.show = table.set_classes
        self.show(CLASSES)

    def text(self, row: int, column: int, role: Any = Role.DisplayRole) -> Any:
        return self.model.data(self.model.index(row, column), role)

    def boxes(self) -> list[bool]:
        states = [self.text(row, BOX, Role.CheckStateRole) for row in range(self.model.rowCount())]
        return [Qt.CheckState(state) == Qt.CheckState.Checked for state in states]

    def click(self, row: int, column: int, *, twice: bool = False) -> None:
        at = self.table.view.visualRect(self.model.index(row, column)).center()
        QTest.mouseClick(self.table.view.viewport(), LEFT, NO_KEYS, at)
        if twice:
            QTest.mouseDClick(self.table.view.viewport(), LEFT, NO_KEYS, at)


@pytest.fixture
def legend(qtbot: Any) -> Legend:
    session = Session()
    table = ClassTable(session)
    qtbot.addWidget(table)
    table.resize(420, 200)
    with qtbot.waitExposed(table):
        table.show()
    return Legend(table, session)


def test_names_colors_numbers_and_errors(legend: Legend) -> None:
    model = legend.model
    assert (model.rowCount(), model.columnCount()) == (3, 6)
    for i, (name, tip) in enumerate(HEADERS):
        assert model.headerData(i, Qt.Orientation.Horizontal) == name
        assert model.headerData(i, Qt.Orientation.Horizontal, Role.ToolTipRole) == tip
    texts = [[legend.text(row, column) for column in range(NAME, 6)] for row in range(3)]
    assert texts == [
        ["B cells", "1,234", "12.5 %", "25.0 %"],
        ["NK", "7", "–", "–"],
        ["T cells", "0", "0.0 %", "–"],
    ]
    for row, color in enumerate(CLASSES["color"]):
        assert legend.text(row, COLOR, Role.DecorationRole) == QColor(color)
        assert legend.text(row, COLOR) is None
    # Without a check, its column is hidden.
    assert not legend.table.view.isColumnHidden(5)
    legend.show(CLASSES[1:])
    assert legend.table.view.isColumnHidden(5)


def test_the_mouse_switches_classes_off_and_on(legend: Legend) -> None:
    legend.click(1, NAME)
    legend.click(1, COLOR)
    assert legend.boxes() == [True, True, True]
    for row, shown in ((1, [1, 0, 1]), (2, [1, 0, 0]), (1, [1, 1, 0])):
        legend.click(row, BOX)
        assert legend.boxes() == [bool(on) for on in shown]
        assert legend.session.hidden == set(CLASSES["name"][[not on for on in shown]])
    # A double click shows the class alone, and another one shows all classes.
    for row, column, shown in ((1, NAME, [0, 1, 0]), (2, 3, [0, 0, 1]), (2, NAME, [1, 1, 1])):
        legend.click(row, column, twice=True)
        assert legend.boxes() == [bool(on) for on in shown]


def test_a_double_click_on_the_color_opens_a_dialog(
    legend: Legend, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen: list[tuple[int, str]] = []
    monkeypatch.setattr(legend.session, "recolor_class", lambda *color: chosen.append(color))
    # Cancel the dialog first, then accept it.
    answers = [QColor("#123456"), QColor()]
    monkeypatch.setattr(QColorDialog, "getColor", lambda *_: answers.pop())
    for expected in ([], [(2, "#123456")]):
        legend.click(2, COLOR, twice=True)
        assert chosen == expected
    assert legend.boxes() == [True, True, True]


def test_check_boxes_are_kept_unless_there_are_other_classes(legend: Legend) -> None:
    legend.click(1, BOX)
    legend.show(CLASSES.assign(color="#111111", error=0.5))
    assert legend.boxes() == [True, False, True]
    assert legend.text(0, 4) == "50.0 %"
    legend.show(CLASSES.assign(name=["B cells", "NK", "other"]))
    assert legend.boxes() == [True, True, True]
    legend.show(CLASSES[:0])
    assert legend.boxes() == []


def test_a_long_table_keeps_its_scroll_position(legend: Legend) -> None:
    legend.show(pd.concat(50 * [CLASSES]).assign(name=[f"class {i}" for i in range(150)]))
    QApplication.processEvents()
    legend.table.view.scrollTo(legend.model.index(120, NAME))
    before = legend.table.view.verticalScrollBar().value()
    legend.click(119, BOX)
    assert legend.boxes().count(False) == 1
    assert legend.table.view.verticalScrollBar().value() == before > 0

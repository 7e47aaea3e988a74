"""The table of misplaced cells: order, choice, and the row to relabel them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from qtpy.QtCore import Qt
from qtpy.QtTest import QTest

import centroid_encoder as ce
from centroid_encoder.viewer.panels.misplaced import MisplacedTable
from centroid_encoder.viewer.session.misplaced import OUT_OF_FOLD, REGIONS, Listing
from centroid_encoder.viewer.session.session import Session

LEFT = Qt.MouseButton.LeftButton
NONE = Qt.KeyboardModifier.NoModifier
ALIGNMENT = Qt.ItemDataRole.TextAlignmentRole
LEFT_OF, RIGHT = Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight
CTRL, SHIFT = Qt.KeyboardModifier.ControlModifier, Qt.KeyboardModifier.ShiftModifier


def make_cells() -> tuple[pd.DataFrame, Any]:
    """Cells as `tl.misplaced` lists them, and their rows in a table that is in another order."""
    classes = ["T", "B", "NK"]
    table = pd.DataFrame(
        {
            "label": pd.Categorical(["T", "T", "B", "NK", "B"], classes),
            "region": pd.Categorical(["B", "NK", "NK", "T", "T"], classes),
            "split": pd.Categorical(["train", "test", "test", "train", "test"]),
            "depth": [0.9, 0.7, 0.5, 0.5, 0.04],
        },
        index=["cell10", "cell2", "cell7", "cell3", "cell1"],
    )
    return table, np.array([40, 3, 18, 7, 22])


class Table:
    """A table of misplaced cells, and the mouse on it."""

    def __init__(
        self, widget: MisplacedTable, session: Session, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.widget, self.model, self.view = widget, widget.model, widget.view
        self.chosen: list[list[int]] = []
        self.asked: list[Any] = []
        monkeypatch.setattr(session, "go_to", lambda rows: self.chosen.append(rows.tolist()))
        monkeypatch.setattr(session, "relabel", self.asked.append)
        for step in ("undo", "redo"):
            monkeypatch.setattr(session, step, partial(self.asked.append, (step,)))

    def column(self, name: str) -> list[str]:
        at = list(self.model.source.columns).index(name)
        return [self.model.data(self.model.index(i, at)) for i in range(self.model.rowCount())]

    def click(self, row: int, keys: Any = NONE) -> None:
        at = self.view.visualRect(self.model.index(row, 0)).center()
        QTest.mouseClick(self.view.viewport(), LEFT, keys, at)

    def click_header(self, name: str) -> None:
        header = self.view.horizontalHeader()
        at = list(self.model.source.columns).index(name)
        x = header.sectionViewportPosition(at) + header.sectionSize(at) // 2
        point = header.rect().center()
        point.setX(x)
        QTest.mouseClick(header.viewport(), LEFT, NONE, point)


@pytest.fixture
def table(qtbot: Any, monkeypatch: pytest.MonkeyPatch) -> Table:
    session = Session()
    widget = MisplacedTable(session)
    qtbot.addWidget(widget)
    widget.resize(500, 300)
    with qtbot.waitExposed(widget):
        widget.show()
    show(widget, *make_cells())
    return Table(widget, session, monkeypatch)


def show(widget: MisplacedTable, cells: pd.DataFrame, rows: Any) -> None:
    """Show cells as the session would list them."""
    widget.show_listing(Listing(f"{len(cells)} cells", cells, rows))


def test_cells_are_listed_worst_first(table: Table) -> None:
    assert table.column("cell") == ["cell10", "cell2", "cell7", "cell3", "cell1"]
    assert table.column("label") == ["T", "T", "B", "NK", "B"]
    assert table.column("region") == ["B", "NK", "NK", "T", "T"]
    assert table.column("split") == ["train", "test", "test", "train", "test"]
    assert table.column("depth") == ["0.90", "0.70", "0.50", "0.50", "0.04"]
    is_right = [
        bool((table.model.data(table.model.index(0, i), ALIGNMENT) or LEFT_OF) & RIGHT)
        for i in range(table.model.columnCount())
    ]
    assert is_right == [False, False, False, False, True]
    horizontal = Qt.Orientation.Horizontal
    heads = [table.model.headerData(i, horizontal) for i in range(table.model.columnCount())]
    assert heads == ["cell", "label", "lies in", "split", "depth"]
    for i in range(len(heads)):
        assert len(table.model.headerData(i, horizontal, Qt.ItemDataRole.ToolTipRole)) > 10


def test_what_the_tool_lists(embed: Callable[..., ad.AnnData], table: Table) -> None:
    adata = embed(3)
    cells = ce.tl.misplaced(adata)
    assert len(cells) > 3
    show(table.widget, cells, adata.obs_names.get_indexer(cells.index))
    assert table.column("cell") == list(cells.index)
    assert table.column("region") == list(cells["region"])
    table.click(2)
    assert [adata.obs_names[row] for row in table.chosen[-1]] == [cells.index[2]]


@pytest.mark.parametrize("name", ["cell", "label", "region", "split", "depth"])
def test_a_click_on_a_header_sorts(table: Table, name: str) -> None:
    cells, rows = make_cells()
    rows_of = dict(zip(cells.index, rows.tolist(), strict=True))
    for _ in range(2):
        table.click_header(name)
        order = table.view.horizontalHeader().sortIndicatorOrder()
        down = order == Qt.SortOrder.DescendingOrder
        keys = [float(key) if name == "depth" else key for key in table.column(name)]
        assert keys == sorted(keys, reverse=down)
        # Cells stay together with their rows.
        assert [rows_of[cell] for cell in table.column("cell")] == table.model.rows.tolist()
        for cell, label in zip(table.column("cell"), table.column("label"), strict=True):
            assert cells.loc[cell, "label"] == label
        table.click(1)
        assert table.chosen.pop() == [rows_of[table.column("cell")[1]]]


def test_other_cells_come_in_the_order_that_was_chosen(table: Table) -> None:
    table.click_header("cell")
    table.click_header("cell")
    down = table.column("cell")
    cells, rows = make_cells()
    show(table.widget, cells[1:], rows[1:])
    assert table.column("cell") == [cell for cell in down if cell != "cell10"]
    show(table.widget, cells[:0], rows[:0])
    assert table.column("cell") == []
    assert not table.chosen


def test_chosen_cells_are_rows_of_the_table_they_came_from(table: Table) -> None:
    table.click(1)
    assert table.chosen == [[3]]
    table.click(3, CTRL)
    assert sorted(table.chosen[-1]) == [3, 7]
    table.click(3)
    table.click(1, SHIFT)
    assert sorted(table.chosen[-1]) == [3, 7, 18]
    n = len(table.chosen)
    table.view.clearSelection()
    assert len(table.chosen) == n  # nothing to go to


def test_the_class_in_whose_region_a_cell_lies_is_suggested(table: Table) -> None:
    table.widget.offer_labels(["T", "B", "NK"])
    table.widget.relabel_button.setEnabled(True)
    table.click(1)
    assert table.widget.label_box.currentText() == "NK"
    QTest.mouseClick(table.widget.relabel_button, LEFT)
    table.click(4)
    QTest.mouseClick(table.widget.relabel_button, LEFT)
    # A new class can be written, and no class.
    for text in ("new class", ""):
        table.widget.label_box.setFocus()
        table.widget.label_box.lineEdit().selectAll()
        QTest.keyClick(table.widget.label_box, Qt.Key.Key_Delete)
        QTest.keyClicks(table.widget.label_box, text)
        QTest.mouseClick(table.widget.relabel_button, LEFT)
    assert table.asked == ["NK", "T", "new class", ""]
    assert table.widget.label_box.count() == 3


def test_offering_labels_again_keeps_the_one_that_was_chosen(table: Table) -> None:
    box = table.widget.label_box
    table.widget.offer_labels(["T", "B", "NK"])
    assert box.currentText() == "T"
    box.setCurrentText("B")
    table.widget.offer_labels(["A", "B"])
    assert box.currentText() == "B"
    assert [box.itemText(i) for i in range(box.count())] == ["A", "B"]
    table.widget.offer_labels(["X", "Y"])
    assert box.currentText() == "X"
    table.widget.offer_labels([])
    assert box.currentText() == ""


def test_steps_that_can_be_taken(qtbot: Any, cells: ad.AnnData) -> None:
    session = Session()
    widget = MisplacedTable(session)
    qtbot.addWidget(widget)
    buttons = widget.relabel_button, widget.undo_button, widget.redo_button
    assert not any(button.isEnabled() for button in buttons)
    session.catalog.choose(session.catalog.add(cells, "cells"))
    session.choose_labels("cell_type")
    assert not any(button.isEnabled() for button in buttons)
    session.select(np.array([0, 3, 6]))
    assert [button.isEnabled() for button in buttons] == [True, False, False]
    widget.label_box.setCurrentText("type 1")
    QTest.mouseClick(widget.relabel_button, LEFT)
    assert [button.isEnabled() for button in buttons] == [True, True, False]
    assert widget.undo_button.toolTip() == "Relabel 3 cells as type 1"
    QTest.mouseClick(widget.undo_button, LEFT)
    assert [button.isEnabled() for button in buttons] == [True, False, True]
    assert widget.redo_button.toolTip() == "Relabel 3 cells as type 1"
    QTest.mouseClick(widget.redo_button, LEFT)
    assert (cells.obs["cell_type_relabeled"].iloc[[0, 3, 6]] == "type 1").all()
    assert "original stays" in widget.relabel_button.toolTip()


def test_many_cells(table: Table) -> None:
    n = 100_000
    cells = pd.DataFrame(
        {
            "label": pd.Categorical(["T"] * n),
            "region": pd.Categorical.from_codes(np.arange(n) % 3, ["B", "NK", "T"]),
            "split": pd.Categorical(["test"] * n),
            "depth": np.linspace(1, 0, n),
        },
        index=[f"cell{i}" for i in range(n)],
    )
    show(table.widget, cells, np.arange(n))
    table.click_header("region")
    assert table.model.rows[:3].tolist() == [0, 3, 6]
    table.click(0)
    assert table.chosen == [[0]]


# -- where they come from ------------------------------------------------------------------------


def make_suspects() -> tuple[pd.DataFrame, Any]:
    """Cells as `tl.mislabeled` lists them: by how many times more probable the other class is."""
    table = pd.DataFrame(
        {
            "label": pd.Categorical(["T", "B", "NK"]),
            "predicted": pd.Categorical(["B", "T", "T"]),
            "confidence": np.array([0.9, 0.98, 0.6], dtype=np.float32),
            "own": np.array([0.001, 0.015, 0.3], dtype=np.float32),
        },
        index=["cell5", "cell9", "cell4"],
    )
    return table, np.array([5, 9, 4])


def test_suspects_of_another_source(table: Table) -> None:
    widget = table.widget
    widget.offer([REGIONS, OUT_OF_FOLD])
    table.click_header("label")
    QTest.mouseClick(widget.source_buttons[OUT_OF_FOLD], LEFT)
    assert widget.source is OUT_OF_FOLD
    widget.offer([REGIONS, OUT_OF_FOLD])
    show(widget, *make_suspects())
    assert table.column("cell") == ["cell5", "cell9", "cell4"]
    assert table.column("confidence") == ["0.90", "0.98", "0.60"]
    assert table.column("own") == ["0.00", "0.01", "0.30"]
    heads = [table.model.headerData(i, Qt.Orientation.Horizontal) for i in range(5)]
    assert heads == ["cell", "label", "predicted", "probability", "of its label"]
    table.click(1)
    assert table.chosen == [[9]]
    assert widget.label_box.currentText() == "T"
    table.click_header("confidence")
    assert sorted(table.column("confidence")) in (
        table.column("confidence"),
        table.column("confidence")[::-1],
    )
    QTest.mouseClick(widget.source_buttons[REGIONS], LEFT)
    show(widget, *make_cells())
    assert table.column("depth") == ["0.90", "0.70", "0.50", "0.50", "0.04"]
    assert widget.source is REGIONS


def test_the_source_is_one_that_there_is(table: Table) -> None:
    widget = table.widget
    buttons = widget.source_buttons
    assert not any(button.isEnabled() for button in buttons.values())
    widget.offer([OUT_OF_FOLD])
    assert widget.source is OUT_OF_FOLD
    assert not buttons[REGIONS].isEnabled()
    # What was never chosen gives way.
    widget.offer([REGIONS, OUT_OF_FOLD])
    assert widget.source is REGIONS
    widget.choose(OUT_OF_FOLD)
    widget.offer([REGIONS])
    assert widget.source is REGIONS
    widget.offer([REGIONS, OUT_OF_FOLD])
    assert widget.source is OUT_OF_FOLD
    assert [source for source, button in buttons.items() if button.isChecked()] == [OUT_OF_FOLD]


def test_long_names_of_classes_do_not_make_it_wide(qtbot: Any) -> None:
    widths = []
    for name in ("B", "CD4+/CD45RA+/CD25- Naive T" * 3):
        # Another one for each: a box keeps the size of what it was shown with first.
        widget = MisplacedTable(Session())
        qtbot.addWidget(widget)
        widget.offer_labels([name])
        with qtbot.waitExposed(widget):
            widget.show()
        widths.append(widget.minimumSizeHint().width())
    assert widths[0] == widths[1]

"""The list of misplaced cells: order, selection and corrections."""

import anndata as ad
import pytest
from pytestqt.qtbot import QtBot
from qtpy.QtCore import Qt
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QWidget

import centroid_encoder as ce
from centroid_encoder.viewer.panels.misplaced import MisplacedTable
from centroid_encoder.viewer.panels.save import SaveRow
from centroid_encoder.viewer.session.session import Session
from tests.viewer.seen import give_label

LEFT = Qt.MouseButton.LeftButton
NONE = Qt.KeyboardModifier.NoModifier
TEXT = Qt.ItemDataRole.DisplayRole


class List:
    """A list of misplaced cells, and clicks on it."""

    def __init__(self, adata: ad.AnnData, qtbot: QtBot) -> None:
        self.adata, self.session = adata, Session()
        self.session.set(mode="Review")
        self.widget, self.keep = MisplacedTable(self.session), SaveRow(self.session)
        for widget in (self.widget, self.keep):
            qtbot.addWidget(widget)
        self.widget.resize(500, 300)
        with qtbot.waitExposed(self.widget):
            self.widget.show()
        self.session.catalog.choose(self.session.catalog.add(adata, "cells"))
        self.session.choose_labels(self.session.shown_labels)
        self.model, self.view = self.widget.model, self.widget.view

    def column(self, name: str) -> list[str]:
        at = list(self.widget.source.columns).index(name)
        return [
            self.model.data(self.model.index(i, at), TEXT) for i in range(len(self.model.table))
        ]

    def selected(self) -> list[str]:
        return self.adata.obs_names[self.session.state.selected].tolist()

    def click(self, row: int) -> None:
        at = self.view.visualRect(self.model.index(row, 0)).center()
        QTest.mouseClick(self.view.viewport(), LEFT, NONE, at)

    def click_header(self, name: str) -> None:
        header = self.view.horizontalHeader()
        at = list(self.widget.source.columns).index(name)
        point = header.rect().center()
        point.setX(header.sectionViewportPosition(at) + header.sectionSize(at) // 2)
        QTest.mouseClick(header.viewport(), LEFT, NONE, point)


@pytest.fixture
def cells(embed, qtbot) -> List:
    """Cells of overlapping classes, with a map."""
    return List(embed(3), qtbot)


def test_cells_are_listed_worst_first_until_a_header_is_clicked(cells):
    expected = ce.tl.misplaced(cells.adata)
    assert len(expected) > 3
    assert cells.column("cell") == list(expected.index)
    for name in ("label", "region"):
        assert cells.column(name) == expected[name].tolist()
    words = {"train": "training", "test": "held out", "unused": "unused"}
    assert cells.column("split") == [words[split] for split in expected["split"]]
    assert cells.column("depth") == [f"{depth:.2f}" for depth in expected["depth"]]
    heads = [cells.model.headerData(i, Qt.Orientation.Horizontal) for i in range(5)]
    assert heads == ["cell", "label", "lies in", "split", "depth"]
    for name in ("cell", "region", "depth", "depth"):
        cells.click_header(name)
        order = cells.view.horizontalHeader().sortIndicatorOrder()
        keys = [float(key) if name == "depth" else key for key in cells.column(name)]
        assert keys == sorted(keys, reverse=order == Qt.SortOrder.DescendingOrder)
        listed = cells.adata.obs["cell_type"][cells.column("cell")]
        assert cells.column("label") == listed.tolist()
        cells.click(1)
        assert cells.selected() == [cells.column("cell")[1]]
    # Another list is sorted in the same order.
    before = cells.column("cell")
    cells.session.read()
    assert cells.column("cell") == before


def test_the_class_of_the_region_is_proposed_and_the_list_shows_corrections(cells):
    widget, obs = cells.widget, cells.adata.obs
    assert not widget.label_button.isEnabled()
    cells.click(1)
    name, following = cells.column("cell")[1:3]
    assert widget.label_button.text() == f"Change to {cells.column('region')[1]}"
    give_label(widget.label_button, "new class")
    assert obs.loc[name, "cell_type_relabeled"] == "new class"
    # A decided cell leaves the list, and the next one is selected.
    assert name not in cells.column("cell")
    assert cells.selected() == [following]
    assert widget.label_button.isEnabled()
    assert "new class" in cells.session.new_labels
    keep = cells.keep
    assert [x.isHidden() for x in (keep.undo_button, keep.redo_button)] == [False, True]
    keep.undo_button.click()
    assert cells.column("cell")[1] == name
    assert keep.redo_button.toolTip() == "Label 1 cell as new class"
    keep.redo_button.click()
    assert name not in cells.column("cell")
    cells.click(2)
    give_label(widget.label_button, "")
    assert obs["cell_type_relabeled"].isna().sum() == 1


@pytest.mark.parametrize("key", [Qt.Key.Key_Return, Qt.Key.Key_K])
def test_undo_goes_back_to_the_cell_and_its_evidence(cells, key):
    widget, listed = cells.widget, cells.column("cell")
    widget.evidence = evidence = QWidget()
    evidence.installEventFilter(widget)
    widget.pages.addWidget(evidence)
    cells.click(1)
    for _ in range(2):
        QTest.keyClick(evidence, key)
    assert cells.selected() == listed[3:4]
    for name in (listed[2], listed[1]):
        QTest.keyClick(evidence, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
        assert cells.selected() == [name]
        assert widget.pages.currentWidget() is evidence
    assert widget.label_button.text() == f"Change to {cells.column('region')[1]}"
    # Another colour of a class changes nothing.
    cells.session.recolor_class(0, "#123456")
    assert cells.selected() == [listed[1]]
    assert widget.pages.currentWidget() is evidence


def test_a_decision_survives_a_new_map_and_is_undone_by_keys(cells, embed, qtbot):
    listed = cells.column("cell")
    for _ in range(2):
        cells.click(0)
        QTest.keyClick(cells.view, Qt.Key.Key_K)
    assert not set(listed[:2]) & set(cells.column("cell"))
    new = embed(3, random_state=1)
    for part in ("obs", "obsm"):
        setattr(cells.adata, part, getattr(new, part))
    cells.adata.uns["ce"] = new.uns["ce"]
    cells.session.read()
    assert set(ce.tl.misplaced(cells.adata).index) & set(listed[:2])
    assert not set(listed[:2]) & set(cells.column("cell"))
    # The keys serve in the list and beside it.
    for place in (cells.view, cells.widget.right_button):
        QTest.keyClick(place, Qt.Key.Key_Z, Qt.KeyboardModifier.ControlModifier)
    assert set(ce.tl.misplaced(cells.adata).index) == set(cells.column("cell"))

"""The list of classes: its content, and clicks on it."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from qtpy.QtCore import QPoint, Qt
from qtpy.QtGui import QColor
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QColorDialog, QInputDialog

from centroid_encoder.viewer.panels.classes import ClassList
from centroid_encoder.viewer.session.session import Session
from tests.viewer.seen import marked, seen_colors

CLASSES = pd.DataFrame(
    {
        "name": ["B cells", "NK", "T cells"],
        "color": ["#ff0000", "#00ff00", "#0000ff"],
        "key": "",
        "n": [1234, 7, 0],
        "is_gone": False,
        "error": [0.125, np.nan, 0.0],
        "out_of_fold": [0.25, 0.5, np.nan],
    }
)
LEFT, NO_KEYS = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
CTRL = Qt.KeyboardModifier.ControlModifier


class Legend:
    """A list of classes, and clicks on it."""

    def __init__(self, classes: ClassList, session: Session) -> None:
        self.list, self.session, self.view = classes, session, classes.view
        self.show = classes.set_classes

    @property
    def items(self) -> list[Any]:
        return [self.view.item(i) for i in range(self.view.count())]

    def boxes(self) -> list[bool]:
        return [item.checkState() == Qt.CheckState.Checked for item in self.items]

    def click(self, row: int, keys: Any = NO_KEYS, *, twice: bool = False) -> None:
        at = self.view.visualItemRect(self.view.item(row)).center()
        QTest.mouseClick(self.view.viewport(), LEFT, keys, at)
        if twice:
            QTest.mouseDClick(self.view.viewport(), LEFT, keys, at)

    def tick(self, row: int) -> None:
        box = self.view.visualItemRect(self.view.item(row))
        at = QPoint(box.left() + 10, box.center().y())
        QTest.mouseClick(self.view.viewport(), LEFT, NO_KEYS, at)

    def choose(self, row: int, entry: str) -> None:
        """Choose an entry of the menu of a class, or of its part "Merge into"."""
        actions = self.list.menu(row).actions()
        actions += [a for one in actions if one.menu() for a in one.menu().actions()]
        next(action for action in actions if action.text() == entry).trigger()


@pytest.fixture
def legend(qtbot) -> Legend:
    session = Session()
    classes = ClassList(session)
    qtbot.addWidget(classes)
    classes.resize(420, 200)
    legend = Legend(classes, session)
    legend.show(CLASSES)
    with qtbot.waitExposed(classes):
        classes.show()
    return legend


def test_names_colors_numbers_and_errors(legend):
    shown = [item.text().split("  ") for item in legend.items]
    assert shown == [["B cells", "1,234", "12 %"], ["NK", "7", "50 %"], ["T cells", "0", "0 %"]]
    for item, color in zip(legend.items, CLASSES["color"], strict=True):
        assert item.icon().pixmap(12, 12).toImage().pixelColor(6, 6) == QColor(color)
    assert "the same by Check labels: 25.0 %" in legend.items[0].toolTip()


def test_the_mouse_switches_classes_off_and_on(legend):
    group = legend.session.state.group
    for row, shown in ((1, [1, 0, 1]), (2, [1, 0, 0]), (1, [1, 1, 0])):
        legend.tick(row)
        assert legend.boxes() == [bool(on) for on in shown]
        assert legend.session.state.hidden == set(CLASSES["name"][[not on for on in shown]])
    assert legend.session.state.group is group
    # A double click shows the class alone, and another one shows all classes.
    for row, shown in ((1, [0, 1, 0]), (2, [0, 0, 1]), (2, [1, 1, 1])):
        legend.click(row, twice=True)
        assert legend.boxes() == [bool(on) for on in shown]


def test_the_menu_of_a_class(legend, monkeypatch):
    done: list[Any] = []
    for name in ("recolor_class", "rename_class", "merge_class"):
        monkeypatch.setattr(legend.session, name, lambda *how: done.append(how))
    # Cancel the dialogs first, then accept them.
    colors, names = [QColor("#123456"), QColor()], [("plasma", True), ("", False)]
    monkeypatch.setattr(QColorDialog, "getColor", lambda *_: colors.pop())
    monkeypatch.setattr(QInputDialog, "getText", lambda *_, **__: names.pop())
    for expected in ([], [(2, "#123456"), ("B cells", "plasma")]):
        legend.choose(2, "Colour …")
        legend.choose(0, "Rename …")
        assert done == expected
    legend.choose(0, "T cells")
    assert done.pop() == ("B cells", "T cells")
    legend.choose(1, "Show alone, or all")
    assert legend.boxes() == [False, True, False]


def test_check_boxes_are_kept_unless_there_are_other_classes(legend):
    legend.tick(1)
    legend.show(CLASSES.assign(color="#111111", error=0.5))
    assert legend.boxes() == [True, False, True]
    legend.show(CLASSES.assign(name=["B cells", "NK", "other"]))
    assert legend.boxes() == [True, True, True]


def test_clicks_select_classes_or_show_them_alone_in_map_and_tissue(viewer, open_on, embed):
    cells = embed(3)
    widget = open_on(cells)
    layer = viewer.layers["nuclei"]
    legend, figure = Legend(widget.classes, widget.session), widget.map.canvas.map
    codes, ids = cells.obs["cell_type"].cat.codes.to_numpy(), cells.obs["cell_id"].to_numpy()
    for row, keys, classes in ((1, NO_KEYS, [1]), (2, CTRL, [1, 2]), (0, NO_KEYS, [0])):
        legend.click(row, keys)
        rows = np.flatnonzero(np.isin(codes, classes))
        assert sorted(figure.selected) == rows.tolist()
        assert marked(viewer, layer) == set(ids[rows])
        assert [item.isSelected() for item in legend.items] == np.isin(range(3), classes).tolist()
    for shown in (codes == 1, codes >= 0):
        legend.click(1, twice=True)
        assert sorted(figure.rows) == np.flatnonzero(shown).tolist()
        assert np.array_equal(seen_colors(viewer, layer, ids)[:, 3] > 0, shown)
    # The chips are no longer those of the selection.
    widget.select(np.array([3]))
    assert not any(item.isSelected() for item in legend.items)


def test_a_class_without_cells_leaves_the_list_and_a_first_map(viewer, open_on, cells, qtbot):
    widget = open_on(cells)
    session, legend = widget.session, Legend(widget.classes, widget.session)

    def shown() -> dict[str, int]:
        pairs = zip(legend.list.rows, legend.items, strict=True)
        return {row.name: row.n for row, item in pairs if not item.isHidden()}

    def named() -> set[str]:
        return set(widget.map.canvas.map.scene.names)

    qtbot.waitUntil(lambda: session.state.draft is not None, timeout=30_000)
    session.rename_class("type 0", "T cell")
    assert shown() == {"T cell": 40, "type 1": 40, "type 2": 40}
    qtbot.waitUntil(lambda: named() == {*shown()}, timeout=30_000)
    assert widget.map.canvas.title.text().startswith("draft")
    assert "none held out" not in widget.map.canvas.title.text()
    session.undo()
    assert shown() == {f"type {i}": 40 for i in range(3)}
    qtbot.waitUntil(lambda: named() == {*shown()}, timeout=30_000)


def test_a_merged_class_leaves_the_list_with_its_error(viewer, open_on, embed):
    widget = open_on(embed(3))
    legend, session = Legend(widget.classes, widget.session), widget.session
    review = list(widget.modes).index("Review")
    before = widget.tabs.tabText(review)
    session.merge_class("type 1", "type 0")
    assert [item.isHidden() for item in legend.items] == [False, True, False]
    # The numbers at the tab are those of the list, which is not shown yet.
    n = len(widget.misplaced.model.table)
    assert widget.tabs.tabText(review) == f"Review {n}" != before
    session.undo()
    assert widget.tabs.tabText(review) == before
    assert not any(item.isHidden() for item in legend.items)

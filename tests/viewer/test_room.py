"""The size that the widget needs, and its use with the keyboard."""

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from napari.utils.theme import get_theme
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSpinBox,
    QComboBox,
    QLabel,
    QLineEdit,
    QScrollArea,
    QWidget,
)

from centroid_encoder.viewer import _widget
from centroid_encoder.viewer.map.scene import contrast
from centroid_encoder.viewer.panels import notes
from centroid_encoder.viewer.panels.table_model import ROW

LONG = "a_name_that_somebody_has_made_up_to_tell_everything_at_once_and_then_some"


def controls(widget: QWidget) -> list[QWidget]:
    """Return the visible controls."""
    kinds = QLabel, QAbstractButton, QComboBox, QAbstractSpinBox, QLineEdit, QAbstractItemView
    return [one for kind in kinds for one in widget.findChildren(kind) if one.isVisible()]


def cut_off(widget: QWidget) -> list[str]:
    """Return the controls that are partly outside the widget or narrower than their least width."""
    found = []
    for one in controls(widget):
        left = one.mapTo(widget, QPoint(0, 0)).x()
        inside = left >= 0 and left + one.width() <= widget.width()
        if not inside or one.width() < min(one.minimumSizeHint().width(), 60):
            found.append(f"{type(one).__name__} {one.accessibleName() or one.toolTip():.20}")
    return found


def reached(widget: QWidget) -> list[QWidget]:
    """Return the widgets that the Tab key reaches, in its order."""
    # Do not call `focusProxy`: with PySide6 6.11.3, it deletes widgets that are in use.
    compound = [*widget.findChildren(QComboBox), *widget.findChildren(QAbstractSpinBox)]
    parts = {part for one in compound for part in one.findChildren(QWidget)}
    chain, one = [], widget.nextInFocusChain()
    while one is not widget:
        takes = bool(one.focusPolicy().value & Qt.FocusPolicy.TabFocus.value)
        if widget.isAncestorOf(one) and one.isVisible() and takes and one not in parts:
            chain.append(one)
        one = one.nextInFocusChain()
    return chain


def test_all_controls_fit_and_have_a_name_and_can_be_reached_by_keyboard(
    open_on, viewer, embed, qtbot
):
    cells = embed(names=[f"{LONG} {i}" for i in range(3)])
    cells.obs["slide"] = pd.Categorical.from_codes(np.arange(cells.n_obs) % 2, ["a", "b"])
    window = viewer.window._qt_window
    window.resize(1440, 900)
    widget = open_on(cells)
    widget.label.start_button.click()
    scrolled = widget.findChild(QScrollArea)
    least = scrolled.widget().minimumSizeHint()
    assert least.width() <= scrolled.viewport().width() <= 0.38 * window.width()
    assert least.height() <= 680
    for card in widget.modes.values():
        widget.show_mode(card)
        assert not cut_off(widget)
        chain = reached(widget)
        assert len(chain) > 8
        buddies = {label.buddy() for label in widget.findChildren(QLabel)}
        for one in chain:
            named = one.accessibleName() or (isinstance(one, QAbstractButton) and one.text())
            assert named or one in buddies, (card, one)
        places = [one.mapTo(widget, one.rect().center()) for one in chain]
        for (first, before), (second, after) in pairwise(zip(chain, places, strict=True)):
            follows = after.y() > before.y() + 8
            follows |= abs(after.y() - before.y()) <= 8 and after.x() > before.x()
            assert follows, (card, first, second, first.text(), second.text())


def settle(qtbot) -> None:
    """Wait until all is laid out."""
    qtbot.wait(200)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "least"), [((1500, 950), 540), ((1280, 780), 440)])
def test_the_map_keeps_its_size(open_on, viewer, cells, train, check, qtbot, size, least):
    window = viewer.window._qt_window
    window.resize(*size)
    widget = open_on(cells)
    train(widget)
    window.resizeDocks(
        [widget.parentWidget()], [round(_widget.SHARE * size[0])], Qt.Orientation.Horizontal
    )
    canvas = widget.map.canvas
    qtbot.waitUntil(lambda: min(canvas.width(), canvas.height()) >= least)
    settle(qtbot)
    before = canvas.size()

    def same() -> bool:
        settle(qtbot)
        return canvas.size() == before

    check(widget)
    assert same()
    long = "A message of several lines. " * 20
    messages = widget.message, widget.save_row.message, widget.new_data.message, widget.data.message
    rows = np.arange(20)
    for card in widget.modes.values():
        widget.show_mode(card)
        for selected in (rows[:0], rows[:1], rows):
            widget.select(selected)
            assert same(), card
        for message in messages:
            message.say(long, "warning")
            assert same(), message
            assert message.isVisible()
            assert canvas.rect().contains(message.mapTo(widget.map, message.rect().center()))
    for column in ("label", "confidence", ("", cells.var_names[0]), ("", "cell_type")):
        widget.cells.color_box.choose(column)
        assert same(), column
    widget.data.toggle()
    assert same()
    widget.label.toggle()
    widget.show_mode(widget.label)
    widget.queue.suggest_button.click()
    for i in range(12):
        widget.label.name_line.setText(f"class {i}")
        widget.label.add_class()
    assert same()
    # The card of a high window does not keep a window from becoming low.
    for height in (1000, size[1]):
        window.resize(size[0], height)
        settle(qtbot)
    assert window.height() == size[1]
    assert same()
    for part in (widget.label.name_line, widget.label.start_button):
        assert part.visibleRegion().boundingRect() == part.rect()


@pytest.mark.parametrize(("size", "n_rows"), [((1500, 950), 4), ((1280, 780), 2)])
def test_the_list_to_review_has_the_free_height(open_on, viewer, embed, qtbot, size, n_rows):
    window = viewer.window._qt_window
    window.resize(*size)
    widget = open_on(embed(3))
    width = round(_widget.SHARE * size[0])
    window.resizeDocks([widget.parentWidget()], [width], Qt.Orientation.Horizontal)
    widget.show_mode(widget.misplaced)
    part, bar = widget.misplaced, widget.cards.verticalScrollBar()
    part.view.selectRow(0)
    part.change()
    settle(qtbot)
    assert part.view.viewport().height() >= (n_rows - 0.5) * ROW
    button = part.train_button
    for _ in range(2):  # The list, and the evidence.
        assert button.visibleRegion().boundingRect() == button.rect()
        assert not bar.maximum() or size[1] < 950
        part.turn()
        settle(qtbot)


def test_tabs_of_images_with_long_names_are_in_sight(viewer, open_widget, cells, qtbot):
    viewer.window._qt_window.resize(1280, 780)
    names = ["biopsy_before", "biopsy_after"]
    cells.obs["image"] = pd.Categorical.from_codes(np.arange(120) % 2, names)
    cells.obs["cell_id"] = 1 + np.arange(120) // 2
    for name in names:
        viewer.add_labels(1 + np.arange(60).reshape(6, 10), name=name)
    widget = open_widget()
    bar = widget.cells.images
    widget.show_table(cells, name="cells.h5ad", label_key="cell_type")
    widget.select(np.arange(60))
    assert bar.tabText(1) == "biopsy_before: 30"
    qtbot.waitUntil(lambda: widget.width() < 500)
    qtbot.waitUntil(lambda: bar.rect().contains(bar.tabRect(2)))
    assert bar.tabToolTip(2) == "biopsy_after: 60 cells, 30 of them selected"


def test_messages_fade_but_warnings_stay_until_a_click(open_on, viewer, cells, qtbot, monkeypatch):
    monkeypatch.setattr(notes, "FADES", 50)
    widget = open_on(cells)
    widget.session.say("Only for a while.")
    assert widget.message.isVisible()
    qtbot.waitUntil(lambda: not widget.message.isVisible())
    widget.new_data.say_notices(["3 of 9 cells are odd: look at them. There is more to say"])
    settle(qtbot)
    qtbot.wait(100)
    message = widget.new_data.message
    assert message.isVisible()
    assert message.text() == "3 of 9 cells are odd."
    assert "There is more to say." in message.toolTip()
    qtbot.mouseClick(message, Qt.MouseButton.LeftButton)
    assert not message.isVisible()
    # A message takes the place of the one before.
    widget.save_row.message.say("A warning.", "warning")
    widget.session.say("Another one.", "warning")
    assert not widget.save_row.message.isVisible()
    widget.log_button.click()
    lines = widget.notes.log.toPlainText()
    assert widget.notes.log.isVisible()
    widget.notes.log.hide()
    for text in ("Only for a while.", "There is more to say.", "A warning.", "Another one."):
        assert lines.count(text) == 1


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["dark", "light"])
def test_warnings_can_be_read(open_on, viewer, cells, qtbot, theme):
    viewer.theme = theme
    widget = open_on(cells)
    grounds = [getattr(get_theme(theme), x).as_hex("long") for x in ("background", "foreground")]
    for kind in ("warning", "error"):
        widget.message.say("Read me.", kind)
        settle(qtbot)
        color = widget.message.palette().windowText().color().name()
        drawn = widget.message.grab().toImage()
        assert drawn.pixelColor(1, 1).name() == grounds[0]
        assert all(contrast(color, ground) >= 4.5 for ground in grounds)
    widget.data.fold.say("Look here", "")
    fold = widget.data.fold.palette().buttonText().color().name()
    assert all(contrast(fold, ground) >= 4.5 for ground in grounds)

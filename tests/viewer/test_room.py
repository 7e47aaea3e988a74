"""The size that the widget needs, and its use with the keyboard."""

from itertools import pairwise

import numpy as np
import pandas as pd
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

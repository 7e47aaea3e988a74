"""The size that the widget needs, and its use with the keyboard."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from napari import Viewer
from pytestqt.qtbot import QtBot
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

from centroid_encoder.viewer import CentroidEncoderWidget

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
    open_widget: Callable[[], CentroidEncoderWidget],
    viewer: Viewer,
    make_cells: Callable[..., AnnData],
    image_of: Any,
    train: Callable[[CentroidEncoderWidget], None],
):
    cells = make_cells()
    cells.obs["slide"] = pd.Categorical.from_codes(np.arange(cells.n_obs) % 2, ["a", "b"])
    cells.obs = cells.obs.rename(columns={"cell_type": LONG})
    names = cells.obs[LONG].cat.categories
    cells.obs[LONG] = cells.obs[LONG].cat.rename_categories([f"{LONG} {name}" for name in names])
    viewer.add_labels(image_of(cells), name="nuclei", metadata={"adata": cells})
    window = viewer.window._qt_window
    window.resize(1440, 900)
    widget = open_widget()
    widget.form.label_key.value = LONG
    train(widget)
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


@pytest.mark.parametrize(("size", "least"), [((1280, 780), 300), ((1500, 950), 380)])
def test_the_map_stays_large_while_one_labels(
    size: tuple[int, int],
    least: int,
    open_widget: Callable[[], CentroidEncoderWidget],
    viewer: Viewer,
    qtbot: QtBot,
) -> None:
    viewer.window._qt_window.resize(*size)
    viewer.open_sample("centroid-encoder", "tissue")
    widget = open_widget()
    session, panel, queue, canvas = widget.session, widget.label, widget.queue, widget.map.canvas
    qtbot.waitUntil(lambda: widget.catalog.join is not None)
    scrolled = widget.findChild(QScrollArea)

    def settle() -> None:
        qtbot.waitUntil(lambda: not (panel.live.is_due or queue.is_searching), timeout=60_000)
        qtbot.wait(100)

    def check() -> None:
        assert not cut_off(widget)
        assert scrolled.verticalScrollBar().maximum() == 0
        assert widget.map.height() >= least
        assert panel.keys_text.height() < 3 * panel.keys_text.fontMetrics().height()

    widget.show_mode(panel)
    panel.start_button.click()
    kinds = session.adata.obs["true_type"].astype(str).to_numpy()
    for name in np.unique(kinds)[:7]:
        panel.name_line.setText(name)
        panel.add_class()
    settle()
    check()
    for name in np.unique(kinds)[:3]:
        widget.select(np.flatnonzero(kinds == name)[:5])
        panel.label(name)
    settle()
    check()
    assert canvas.title.text() == "live map: 0 of 2 wrong (too few)"
    assert canvas.title.fontMetrics().horizontalAdvance(canvas.title.text()) < canvas.title.width()
    queue.suggest_button.click()
    settle()
    check()
    assert queue.strip.isVisible()

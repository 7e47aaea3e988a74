"""The room that the widget needs: in every state, in windows of three sizes.

With the variable SHOTS, a folder, a screenshot of each state is written there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
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

from centroid_encoder.viewer.panels.fields import ROW

if TYPE_CHECKING:
    from anndata import AnnData
    from napari import Viewer
    from pytestqt.qtbot import QtBot

    from centroid_encoder.viewer import CentroidEncoderWidget


SIZES = ((1280, 780), (1440, 900), (2560, 1400))
LONG = "a_name_that_somebody_has_made_up_to_tell_everything_at_once_and_then_some"


class States:
    """A user who goes through all that the widget can show."""

    def __init__(
        self, viewer: Viewer, qtbot: QtBot, make_cells: Callable[..., AnnData], image_of: Any
    ) -> None:
        self.viewer, self.qtbot, self.make_cells, self.image_of = (
            viewer, qtbot, make_cells, image_of,
        )  # fmt: skip
        _, self.widget = viewer.window.add_plugin_dock_widget("centroid-encoder")
        qtbot.waitUntil(self.widget.isVisible)

    def add(self, name: str, adata: AnnData) -> Any:
        layer = self.viewer.add_labels(self.image_of(adata), name=name, metadata={"adata": adata})
        self.widget.catalog.refresh()
        return layer

    def over(self) -> None:
        widget = self.widget
        self.qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
        self.qtbot.waitUntil(lambda: widget.new_data.task is None, timeout=60_000)

    def walk(self) -> Iterator[str]:
        """Go to one state after the other, and tell its name."""
        widget = self.widget
        tabs, form = widget.tabs, widget.form
        yield "empty"
        cells = self.make_cells(n_obs=400, distance=1.0)
        cells.obs["slide"] = pd.Categorical.from_codes(np.arange(400) % 2, ["left", "right"])
        layer = self.add("nuclei", cells)
        yield "table"
        cells.uns["spatialdata_attrs"] = {
            "region": ["left", "right"], "region_key": "slide", "instance_key": "cell_id",
        }  # fmt: skip
        layer.name = "left"
        widget.catalog.refresh()
        widget.catalog.choose_layer(layer)
        yield "region"
        tabs.setCurrentWidget(form.advanced)
        yield "advanced"
        value = float(cells.X[3, 2])
        cells.X[3, 2] = np.nan
        tabs.setCurrentWidget(widget.train_page)
        widget.train()
        yield "error"
        cells.X[3, 2] = value
        form.max_epochs.value = 100_000
        tabs.setCurrentWidget(widget.train_page)
        widget.train()
        self.qtbot.waitUntil(lambda: widget.map.canvas.map.scene is not None, timeout=60_000)
        yield "training"
        widget.cancel()
        form.max_epochs.value = 3
        widget.train()
        self.over()
        widget.cells.color_box.setCurrentText("label")
        yield "trained"
        tabs.setCurrentWidget(widget.classes)
        yield "classes"
        form.n_folds.value = 2
        widget.check()
        self.over()
        yield "checked"
        tabs.setCurrentWidget(widget.train_page)
        yield "checked_train"
        widget.cells.color_box.setCurrentText("out-of-fold probability")
        tabs.setCurrentWidget(widget.misplaced)
        for button in widget.misplaced.source_buttons.values():
            button.click()
        widget.misplaced.view.selectRow(0)
        widget.misplaced.label_box.setCurrentText(LONG)
        widget.misplaced.relabel_button.click()
        yield "relabelled"
        tabs.setCurrentWidget(widget.new_data)
        others = self.make_cells(n_obs=200, distance=1.0)
        others.obs_names = [f"new{i}" for i in range(200)]
        self.add("others", others)
        yield "new_data"
        others._inplace_subset_var(np.arange(8) < 7)
        widget.new_data.form.missing.value = "mean"
        widget.new_data.form.min_confidence.value = 0.7
        widget.new_data.map_cells()
        self.over()
        yield "mapped"
        counts = self.make_cells(n_obs=400, distance=1.0)
        counts.X = np.random.default_rng(0).poisson(30, counts.shape).astype(np.float32)
        counts.obs["donor"] = pd.Categorical.from_codes(np.arange(400) % 3, list("abc"))
        self.add("counts", counts)
        widget.catalog.choose(next(t for t in widget.catalog.tables if t.adata is counts))
        tabs.setCurrentWidget(widget.train_page)
        widget.train()
        self.over()
        yield "notice"
        widget.check()
        self.over()
        yield "doubts"
        named = self.make_cells(n_obs=400, distance=1.0)
        names = named.obs["cell_type"].cat.categories
        named.obs[LONG] = named.obs["cell_type"].cat.rename_categories(
            [f"{LONG} {name}" for name in names]
        )
        self.add(LONG, named)
        widget.catalog.choose(next(t for t in widget.catalog.tables if t.adata is named))
        form.label_key.value = LONG
        widget.train()
        self.over()
        for tab in range(tabs.count()):
            tabs.setCurrentIndex(tab)
            yield f"long_{tab}"


def controls(widget: QWidget) -> list[QWidget]:
    """What is to be seen and has a size of its own."""
    kinds = QLabel, QAbstractButton, QComboBox, QAbstractSpinBox, QLineEdit, QAbstractItemView
    return [one for kind in kinds for one in widget.findChildren(kind) if one.isVisible()]


def cut_off(widget: QWidget) -> list[str]:
    """Controls that are not inside of the widget, or narrower than their least width."""
    found = []
    for one in controls(widget):
        left = one.mapTo(widget, QPoint(0, 0)).x()
        inside = left >= 0 and left + one.width() <= widget.width()
        if not inside or one.width() < min(one.minimumSizeHint().width(), 60):
            found.append(f"{type(one).__name__} {one.accessibleName() or one.toolTip():.20}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_all_states_fit(
    viewer: Viewer,
    qtbot: QtBot,
    make_cells: Callable[..., AnnData],
    image_of: Any,
    size: tuple[int, int],
):
    folder = os.environ.get("SHOTS")
    window = viewer.window._qt_window
    before = window.size()
    window.resize(*size)
    try:
        states = States(viewer, qtbot, make_cells, image_of)
        widget = states.widget
        scrolled = widget.findChild(QScrollArea)
        problems = []
        for state in states.walk():
            qtbot.wait(150)
            if folder:
                path = Path(folder) / f"{size[0]}_{state}.png"
                viewer.screenshot(str(path), canvas_only=False, flash=False)
            content = scrolled.widget()
            least, room = content.minimumSizeHint(), scrolled.viewport().size()
            checks = {
                f"is {least.width()} wide in {room.width()}": least.width() <= room.width(),
                f"is wider than {widget.minimumWidth()}": (
                    least.width() <= widget.minimumWidth() - 12
                ),
                f"is {least.height()} high in {room.height()}": least.height() <= room.height(),
                f"the map is {widget.map.height()} high": widget.map.height() >= 200,
                f"{cut_off(widget)} cut off": not cut_off(widget),
                f"the window is {window.size()}": (window.width(), window.height()) == size,
            }
            if size[1] > 1000:
                share = widget.map.height() / content.height()
                checks[f"the map has {share:.2f} of the height"] = share > 0.5
            if widget.tabs.currentWidget() is widget.misplaced:
                view = widget.misplaced.view
                n = view.viewport().height() / ROW
                checks[f"{n} rows are seen"] = n >= 4
            problems += [f"{state}: {said}" for said, holds in checks.items() if not holds]
        assert not problems, "\n".join(problems)
    finally:
        window.resize(before)


def reached(widget: QWidget) -> list[QWidget]:
    """What the key Tab goes to, in its order, from the first in the widget."""
    compound = QComboBox, QAbstractSpinBox
    chain, one = [], widget.nextInFocusChain()
    while one is not widget:
        part = isinstance(one.parentWidget(), compound) or one.focusProxy() is not None
        takes = bool(one.focusPolicy().value & Qt.FocusPolicy.TabFocus.value)
        if widget.isAncestorOf(one) and one.isVisible() and takes and not part:
            chain.append(one)
        one = one.nextInFocusChain()
    return chain


def test_the_keyboard_goes_from_control_to_control_and_each_has_a_name(
    open_widget: Callable[[], CentroidEncoderWidget],
    viewer: Viewer,
    make_cells: Callable[..., AnnData],
    image_of: Any,
    train: Callable[[CentroidEncoderWidget], None],
):
    cells = make_cells()
    cells.obs["slide"] = pd.Categorical.from_codes(np.arange(cells.n_obs) % 2, ["a", "b"])
    viewer.add_labels(image_of(cells), name="nuclei", metadata={"adata": cells})
    window = viewer.window._qt_window
    window.resize(*SIZES[1])
    widget = open_widget()
    train(widget)
    # The other states are for `make test-all`.
    least = widget.findChild(QScrollArea).widget().minimumSizeHint()
    assert least.width() <= widget.minimumWidth() - 12
    assert least.height() <= 680
    for tab in range(widget.tabs.count()):
        widget.tabs.setCurrentIndex(tab)
        chain = reached(widget)
        assert len(chain) > 8
        buddies = {label.buddy() for label in widget.findChildren(QLabel)}
        for one in chain:
            named = one.accessibleName() or (isinstance(one, QAbstractButton) and one.text())
            assert named or one in buddies, (widget.tabs.tabText(tab), one)
        places = [one.mapTo(widget, one.rect().center()) for one in chain]
        for (first, before), (second, after) in pairwise(zip(chain, places, strict=True)):
            follows = after.y() > before.y() + 8
            follows |= abs(after.y() - before.y()) <= 8 and after.x() > before.x()
            assert follows, (widget.tabs.tabText(tab), first, second)

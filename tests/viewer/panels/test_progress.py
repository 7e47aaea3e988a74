"""How far a training is, as the user reads it."""

from __future__ import annotations

import gc
import math
import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from napari import Viewer
from napari.utils import progress
from qtpy.QtCore import Qt
from qtpy.QtTest import QTest
from qtpy.QtWidgets import QLabel, QProgressBar, QPushButton

from centroid_encoder.core.reports import Report
from centroid_encoder.viewer.panels.progress import STILL, ProgressRow, _duration


def report(step: int = 4, **changes: Any) -> Report:
    values = {
        "stage": "train",
        "epoch": step,
        "n_epochs": 40,
        "step": step,
        "n_steps": 40,
        "loss": 0.12345,
        "validation_loss": 0.2,
        "validation_error": 0.0512,
    }
    return Report(**(values | changes))


class Row:
    """A row, and what can be seen of it."""

    def __init__(self, row: ProgressRow) -> None:
        self.row = row
        self.stop, self.cancel = row.findChildren(QPushButton)
        (self.bar,) = row.findChildren(QProgressBar)
        self.asked: list[str] = []
        row.stop_requested.connect(lambda: self.asked.append("stop"))
        row.cancel_requested.connect(lambda: self.asked.append("cancel"))

    @property
    def text(self) -> str:
        (label,) = self.row.findChildren(QLabel)
        return str(label.text())

    def click(self, button: Any) -> None:
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)


@pytest.fixture
def row(qtbot: Any) -> Iterator[Row]:
    widget = ProgressRow()
    qtbot.addWidget(widget)
    yield Row(widget)
    widget.end()
    assert not progress._all_instances


def test_no_share_is_said_before_something_is_counted(row: Row) -> None:
    row.row.begin("cell type")
    assert not row.bar.isTextVisible()
    row.row.report(report(4))
    assert row.bar.isTextVisible()
    assert row.bar.text() == "10%"
    row.row.begin("cell type")
    assert not row.bar.isTextVisible()


def test_hidden_until_something_begins(row: Row) -> None:
    assert not row.row.isVisible()
    # What a training that was cancelled has to say comes too late.
    row.row.report(report())
    assert not row.row.isVisible()
    row.row.end()
    row.row.begin("cells.h5ad, phenotype")
    assert row.row.isVisible()
    assert (row.bar.value(), row.bar.maximum()) == (0, 1)
    assert row.text == "cells.h5ad, phenotype: reading"
    row.row.end()
    assert not row.row.isVisible()


def test_it_moves_where_nothing_is_heard_for_long(row: Row, qtbot: Any) -> None:
    def moves() -> bool:
        return (row.bar.minimum(), row.bar.maximum()) == (0, 0)

    row.row.begin("cells")
    assert not moves()
    qtbot.waitUntil(moves, timeout=2 * STILL)
    row.row.report(report(0, stage="start"))
    assert (row.bar.value(), row.bar.maximum()) == (0, 40)
    assert row.text == "cells: first epoch"
    qtbot.wait(STILL + 200)
    assert not moves()
    # It has been heard of since, or is over.
    row.row.begin("cells")
    row.row.report(report())
    qtbot.wait(STILL + 200)
    assert not moves()
    row.row.begin("cells")
    row.row.end()
    qtbot.wait(STILL + 200)
    assert not moves()


def test_stage_epoch_loss_and_error(row: Row) -> None:
    row.row.begin("cells, phenotype")
    row.row.report(report())
    assert (row.bar.value(), row.bar.maximum()) == (4, 40)
    assert row.text == (
        "cells, phenotype: train, epoch 4 of 40, loss 0.123, validation error 5.1 %"
    )
    row.row.begin("cells, phenotype")
    row.row.report(report(stage="merge", epoch=1, n_epochs=5, validation_error=math.nan))
    assert row.text == "cells, phenotype: merge, epoch 1 of 5, loss 0.123"
    row.row.report(report(40))
    assert (row.bar.value(), row.bar.maximum()) == (40, 40)
    assert row.text == "cells, phenotype: counting errors"


def test_what_cannot_be_stopped_can_be_cancelled(row: Row) -> None:
    row.row.begin("cells, phenotype", stoppable=False)
    assert row.stop.isHidden()
    assert not row.cancel.isHidden()
    row.row.report(report(stage="fold 2 of 5", epoch=3))
    assert not row.stop.isEnabled()
    assert row.text == "cells, phenotype: fold 2 of 5, epoch 3 of 40"
    row.row.begin("cells, phenotype")
    assert not row.stop.isHidden()
    row.row.report(report())
    assert row.stop.isEnabled()


def test_the_time_left_counts_training_only(row: Row) -> None:
    row.row.begin("cells")
    time.sleep(0.3)  # reading
    start = time.perf_counter()
    row.row.report(report(1, n_steps=1001))
    assert "left" not in row.text
    time.sleep(0.12)
    row.row.report(report(3, n_steps=1001))
    elapsed = time.perf_counter() - start
    match = re.search(r", (\d+) (s|min) left$", row.text)
    assert match is not None
    left = int(match[1]) * (60 if match[2] == "min" else 1)
    assert 0.12 / 2 * 998 - 31 <= left <= elapsed / 2 * 998 + 31
    # The next training starts anew.
    row.row.begin("cells")
    row.row.report(report(1, n_steps=1001))
    assert "left" not in row.text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "0 s"),
        (41.6, "42 s"),
        (60, "1 min"),
        (599, "10 min"),
        (3600, "1.0 h"),
        (5400, "1.5 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert _duration(seconds) == text


def test_stop_is_possible_at_once_and_keeps_what_there_is(row: Row) -> None:
    row.row.begin("cells")
    assert row.stop.isEnabled()
    assert not row.row.has_begun
    row.row.report(report(0, stage="start"))
    row.row.report(report(stage="pretrain 1"))
    assert not row.row.has_begun
    row.row.report(report())
    assert row.row.has_begun
    row.click(row.stop)
    assert row.asked == ["stop"]
    assert (row.stop.text(), row.stop.isEnabled()) == ("Stopping …", False)
    assert row.text == "cells: keeping the best map so far"
    # What is still on its way does not take it back.
    row.row.report(report(5))
    assert (row.stop.text(), row.stop.isEnabled()) == ("Stopping …", False)
    assert row.text == "cells: keeping the best map so far"
    row.click(row.stop)
    assert row.asked == ["stop"]
    row.row.begin("cells")
    row.row.report(report())
    assert (row.stop.text(), row.stop.isEnabled()) == ("Stop", True)


def test_cancel_is_always_possible(row: Row) -> None:
    row.row.begin("cells")
    row.click(row.cancel)
    row.row.report(report(stage="pretrain 1"))
    row.click(row.cancel)
    row.row.report(report())
    row.click(row.stop)
    row.click(row.cancel)
    assert row.asked == ["cancel", "cancel", "stop", "cancel"]
    assert "leave everything as it was" in row.cancel.toolTip()
    assert "keep the best" in row.stop.toolTip()


def test_napari_hears_of_it_where_it_is_out_of_sight(row: Row, qtbot: Any) -> None:
    row.row.begin("cells")
    qtbot.wait(50)
    assert not progress._all_instances
    row.row.report(report(4))
    row.row.hide()
    qtbot.waitUntil(lambda: bool(progress._all_instances))
    (activity,) = progress._all_instances
    assert activity.desc.startswith("Centroid-Encoder: cells")
    assert (activity.n, activity.total) == (4, 40)
    row.row.report(report(9))
    assert (activity.n, activity.total) == (9, 40)
    row.row.show()
    qtbot.waitUntil(lambda: not progress._all_instances)
    row.row.hide()
    qtbot.waitUntil(lambda: bool(progress._all_instances))
    row.row.end()
    row.row.end()
    assert not progress._all_instances
    # Nothing is left to tell.
    row.row.show()
    row.row.hide()
    qtbot.wait(50)
    assert not progress._all_instances


def test_the_activity_dock(viewer: Viewer, qtbot: Any) -> None:
    dialog: Any = viewer.window._qt_window._activity_dialog
    widget = ProgressRow()
    dock = viewer.window.add_dock_widget(widget)
    qtbot.waitUntil(dock.isVisible)
    row = Row(widget)

    def bars() -> list[Any]:
        from napari._qt.widgets.qt_progress_bar import QtLabeledProgressBar

        return list(dialog.findChildren(QtLabeledProgressBar))

    # Those of the tests before go when Qt has time.
    qtbot.waitUntil(lambda: not bars())
    row.row.begin("cells")
    assert not bars()
    # As behind another dock, in tabs.
    dock.hide()
    qtbot.waitUntil(lambda: bool(bars()))
    (bar,) = bars()
    assert bar.description_label.text().startswith("Centroid-Encoder: cells")
    # Nothing was heard of yet.
    assert (bar.qt_progress_bar.value(), bar.qt_progress_bar.maximum()) == (0, 1)
    row.row.report(report(8))
    assert (bar.qt_progress_bar.value(), bar.qt_progress_bar.maximum()) == (8, 40)
    row.row.end()
    qtbot.waitUntil(lambda: not bars())
    # Begun there.
    row.row.begin("cells")
    assert len(bars()) == 1
    dock.show()
    qtbot.waitUntil(lambda: not bars())
    # napari ends it itself when the window is closed.
    dock.hide()
    qtbot.waitUntil(lambda: bool(progress._all_instances))
    for activity in list(progress._all_instances):
        activity.close()
    row.row.report(report())
    row.row.end()
    gc.collect()
    assert not progress._all_instances

"""The progress of a task, and the buttons that end it early."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from threading import Event
from typing import Any

import pytest
from pytestqt.qtbot import QtBot
from qtpy.QtWidgets import QLabel, QProgressBar, QPushButton

from centroid_encoder.core.reports import Report
from centroid_encoder.tl._run import Progress
from centroid_encoder.viewer.panels.progress import TaskRow
from centroid_encoder.viewer.task import run_job


class Steps:
    """A job that waits before each step until the test allows it; `stopped` is the last answer."""

    def __init__(self, *steps: Report | Progress) -> None:
        self.steps, self.allowed = steps, [Event() for _ in (*steps, None)]

    def run(self, callback: Callable[[Any], bool]) -> None:
        for step, allowed in zip((*self.steps, None), self.allowed, strict=True):
            allowed.wait(30)
            self.stopped = callback(step)


@pytest.fixture
def row(qtbot: QtBot) -> Iterator[TaskRow]:
    row = TaskRow()
    qtbot.addWidget(row)
    yield row
    row.cancel()


def text(row: TaskRow) -> str:
    (label,) = row.findChildren(QLabel)
    return str(label.text())


def report(step: int, stage: str = "train") -> Report:
    return Report(stage=stage, epoch=step, n_epochs=40, step=step, n_steps=40, loss=0.12345)


def test_a_training_shows_its_steps_and_can_be_stopped(row: TaskRow, qtbot: QtBot) -> None:
    (bar,) = row.findChildren(QProgressBar)
    stop, _ = row.findChildren(QPushButton)
    job = Steps(report(0, "start"), report(1, "pretrain 1"), report(4))
    assert row.isHidden()
    ends: list[object] = []
    work = partial(run_job, lambda: job)
    row.begin(work, "cells", lambda *end: ends.append(end), stoppable=True)
    assert not row.isHidden()
    # The bar is busy while the data are read.
    assert (bar.minimum(), bar.maximum()) == (0, 0)
    shown = (
        "cells: first epoch",
        "cells: pretrain 1, epoch 1 of 40, loss 0.123",
        "cells: train, epoch 4 of 40, loss 0.123",
    )
    for allowed, start in zip(job.allowed, shown, strict=False):
        qtbot.wait(60)
        allowed.set()
        qtbot.waitUntil(lambda start=start: text(row).startswith(start))
    assert (bar.value(), bar.maximum()) == (4, 40)
    assert text(row).endswith("left")
    stop.click()
    assert not stop.isEnabled()
    job.allowed[-1].set()
    qtbot.waitUntil(lambda: bool(ends))
    assert ends == [(job, None)]
    assert job.stopped
    assert row.isHidden()
    assert row.task is None


def test_other_jobs_can_only_be_cancelled(row: TaskRow, qtbot: QtBot) -> None:
    (bar,) = row.findChildren(QProgressBar)
    stop, cancel = row.findChildren(QPushButton)
    job = Steps(Progress(3, 12))
    ends: list[object] = []
    row.begin(partial(run_job, lambda: job), "cells", lambda *end: ends.append(end))
    assert stop.isHidden()
    row.stop()
    job.allowed[0].set()
    qtbot.waitUntil(lambda: text(row) == "cells: 3 of 12 cells")
    assert (bar.value(), bar.maximum()) == (3, 12)
    with qtbot.waitSignal(row.cancelled):
        cancel.click()
        job.allowed[-1].set()
    qtbot.wait(100)
    assert not ends
    assert row.isHidden()

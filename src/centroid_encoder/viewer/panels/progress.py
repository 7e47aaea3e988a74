"""How far a job is: in the widget or, while it is out of sight, in napari's activity dock."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from napari.utils import progress
from qtpy.QtCore import QTimer, Signal
from qtpy.QtGui import QHideEvent, QShowEvent
from qtpy.QtWidgets import QProgressBar, QPushButton, QWidget

from centroid_encoder.viewer.panels.fields import column, side_by_side
from centroid_encoder.viewer.panels.message import Lines

if TYPE_CHECKING:
    from centroid_encoder.core.reports import Report
    from centroid_encoder.tl._run import Progress

COUNTING = "counting errors"
STILL = 1000
"""Milliseconds without a report after which the bar moves to show that something goes on."""


class ProgressRow(QWidget):
    """A bar, what it says, and the two ways to end a job early.

    Nothing in it moves by itself if it can be helped, and napari's activity dock, which has a
    picture that does, is told only where the row is out of sight: for every picture of a movement
    the whole window is composed again, which without a graphics card takes as much of the
    processors as a training does.
    """

    stop_requested = Signal()
    cancel_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bar = QProgressBar()
        self._stop = QPushButton("Stop")
        self._stop.setToolTip("End the training now and keep the best map so far")
        self._stop.clicked.connect(self._on_stop)
        self._cancel = QPushButton("Cancel")
        self._cancel.setObjectName("cancel")
        self._cancel.setToolTip("End it now and leave everything as it was")
        self._cancel.clicked.connect(self.cancel_requested)
        self._text = Lines()
        row = side_by_side(self._bar, self._stop, self._cancel)
        column(self, row, self._text)
        self._activity: Any = None
        self._telling = False
        self._runs = False
        self._still = QTimer(self)
        self._still.setSingleShot(True)
        self._still.setInterval(STILL)
        self._still.timeout.connect(self._move)
        self._later = QTimer(self)
        self._later.setSingleShot(True)
        self._later.timeout.connect(self._tell_napari)
        self._name = ""
        self._stoppable = True
        self._first: tuple[float, int] | None = None
        self.has_begun = False
        """Whether there is a part of it that could be kept: not before the first epoch."""
        self.hide()

    def begin(self, name: str, *, stoppable: bool = True) -> None:
        """Show what has just begun.

        Parameters
        ----------
        name
            What it is done for.
        stoppable
            Whether a part of it can be kept, as of a training.
        """
        self.end()
        self._first = None
        self._stoppable = stoppable
        self._stop.setVisible(stoppable)
        self._bar.setRange(0, 1)
        self._bar.setValue(0)
        self._bar.setTextVisible(False)
        self.has_begun = False
        self._stop.setEnabled(stoppable)
        self._stop.setText("Stop")
        self._text.setText(f"{name}: reading")
        self._name = name
        self._runs = True
        self._still.start()
        self.show()
        self._tell_napari()

    def report(self, step: Report | Progress) -> None:
        """Show where the job is."""
        # Whoever reports has imported it; the row alone shall not bring PyTorch.
        from centroid_encoder.tl._run import Progress

        if isinstance(step, Progress):
            done = f"{step.n_done:,} of {step.n_total:,} {step.unit}s"
            if step.n_done == step.n_total and step.unit == "training":
                done = COUNTING
            self._advance(step.n_done, step.n_total, done)
            return
        if step.epoch == 0:
            # The first frame is on the screen; a bar that moved would slow the first epoch down.
            self._advance(0, step.n_steps, "first epoch")
            return
        self.has_begun = self._stoppable and not step.stage.startswith("pretrain")
        described = _described(step) if self._stoppable else _place(step)
        if step.step == step.n_steps:
            described = COUNTING
        self._advance(step.step, step.n_steps, described)

    def end(self) -> None:
        """Hide."""
        self._runs = False
        self._still.stop()
        self._tell_napari()
        self.hide()

    def showEvent(self, event: QShowEvent) -> None:
        """Tell it here."""
        super().showEvent(event)
        # napari lets Qt go on when it is told; a window that is just being closed must not.
        self._later.start()

    def hideEvent(self, event: QHideEvent) -> None:
        """Tell it in napari's activity dock."""
        super().hideEvent(event)
        self._later.start()

    def _tell_napari(self) -> None:
        """Begin or end what napari's activity dock shows."""
        if self._telling:
            return
        wanted = self._runs and not self.isVisible()
        if wanted and self._activity is None:
            # Meanwhile Qt goes on, and what is wanted may be another thing afterwards.
            self._telling = True
            # Without a total it would count as done from the start.
            self._activity = progress(total=1, desc=f"Centroid-Encoder: {self._name}")
            self._telling = False
            self._count()
            self._tell_napari()
        elif not wanted and self._activity is not None:
            self._activity.close()
            self._activity = None

    def _count(self) -> None:
        if self._activity is not None and self._bar.maximum():
            self._activity.total = self._bar.maximum()
            self._activity.update(self._bar.value() - self._activity.n)

    def _move(self) -> None:
        self._bar.setRange(0, 0)

    def _advance(self, n_done: int, n_steps: int, described: str) -> None:
        if not self._runs:
            return
        self._still.stop()
        # Or else the bar is painted at once, and the text, with the map, once more.
        self._bar.setUpdatesEnabled(False)
        self._bar.setRange(0, n_steps)
        self._bar.setValue(n_done)
        self._bar.setTextVisible(True)
        self._bar.setUpdatesEnabled(True)
        if self._stop.text() == "Stop":
            self._text.setText(f"{self._name}: {described}{self._left(n_done, n_steps)}")
        self._count()

    def _on_stop(self) -> None:
        self._stop.setText("Stopping …")
        self._stop.setEnabled(False)
        if self.has_begun:
            self._text.setText(f"{self._name}: keeping the best map so far")
        self.stop_requested.emit()

    def _left(self, step: int, n_steps: int) -> str:
        """Tell how long the rest will take; before the first step, data are read."""
        now = time.perf_counter()
        if self._first is None or step <= self._first[1]:
            self._first = now, step
            return ""
        if step == n_steps:
            return ""
        since, first = self._first
        return f", {_duration((now - since) / (step - first) * (n_steps - step))} left"


def _described(report: Report) -> str:
    parts = [_place(report), f"loss {report.loss:.3f}"]
    if not math.isnan(report.validation_error):
        parts.append(f"validation error {100 * report.validation_error:.1f} %")
    return ", ".join(parts)


def _place(report: Report) -> str:
    return f"{report.stage}, epoch {report.epoch} of {report.n_epochs}"


def _duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"

"""How far the training is: in the widget and in napari's activity dock."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from napari.utils import progress
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QHBoxLayout, QProgressBar, QPushButton, QVBoxLayout, QWidget

from centroid_encoder.viewer.panels.message import Lines

if TYPE_CHECKING:
    from centroid_encoder.core.training import Report


class ProgressRow(QWidget):
    """A bar, what it says, and the two ways to end a training early."""

    stop_requested = Signal()
    cancel_requested = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._bar = QProgressBar()
        self._bar.setTextVisible(True)
        self._stop = QPushButton("Stop")
        self._stop.setToolTip("End the training now and keep the best map so far")
        self._stop.clicked.connect(self._on_stop)
        self._cancel = QPushButton("Cancel")
        self._cancel.setObjectName("cancel")
        self._cancel.setToolTip("End it now and leave everything as it was")
        self._cancel.clicked.connect(self.cancel_requested)
        self._text = Lines()
        row = QHBoxLayout()
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self._bar, stretch=1)
        row.addWidget(self._stop)
        row.addWidget(self._cancel)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addLayout(row)
        layout.addWidget(self._text)
        self._activity: Any = None
        self._name = ""
        self._stoppable = True
        self._first: tuple[float, int] | None = None
        self.hide()

    @property
    def can_stop(self) -> bool:
        """Whether there is something that could be kept."""
        return self._stop.isEnabled()

    def begin(self, name: str, *, stoppable: bool = True) -> None:
        """Show what has just begun: a training, or something of which no half can be kept."""
        self.end()
        self._first = None
        self._stoppable = stoppable
        self._stop.setVisible(stoppable)
        self._bar.setRange(0, 0)
        self._stop.setEnabled(False)
        self._stop.setText("Stop")
        self._text.setText(f"{name}: reading")
        self._name = name
        # Without a total it would count as done from the start.
        self._activity = progress(total=1, desc=f"Centroid-Encoder: {name}")
        self.show()

    def report(self, report: Report) -> None:
        """Show where the training is."""
        # Before the first epoch of training there is nothing that could be kept.
        self._stop.setEnabled(
            self._stoppable
            and not report.stage.startswith("pretrain")
            and self._stop.text() == "Stop"
        )
        last = report.step == report.n_steps
        described = _described(report) if self._stoppable else _place(report)
        self.advance(report.step, report.n_steps, "counting errors" if last else described)

    def advance(self, step: int, n_steps: int, described: str) -> None:
        """Show how many steps are done, and what is to be said of it."""
        if self._activity is None:
            return
        self._bar.setRange(0, n_steps)
        self._bar.setValue(step)
        if self._stop.text() == "Stop":
            self._text.setText(f"{self._name}: {described}{self._left(step, n_steps)}")
        self._activity.total = n_steps
        self._activity.update(step - self._activity.n)

    def end(self) -> None:
        """Hide."""
        if self._activity is not None:
            self._activity.close()
            self._activity = None
        self.hide()

    def _on_stop(self) -> None:
        self._stop.setText("Stopping …")
        self._stop.setEnabled(False)
        self._text.setText(f"{self._name}: keeping the best map so far")
        self.stop_requested.emit()

    def _left(self, step: int, n_steps: int) -> str:
        """Tell how long the rest will take; what came before the first step was something else."""
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

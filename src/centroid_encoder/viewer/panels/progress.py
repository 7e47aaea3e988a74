"""One task at a time: its progress, and the buttons that end it early."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from napari.utils.notifications import show_warning
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QFileDialog, QProgressBar, QWidget

from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.viewer.panels.fields import button, column, side_by_side
from centroid_encoder.viewer.panels.message import Message

if TYPE_CHECKING:
    from centroid_encoder.tl._run import Progress
    from centroid_encoder.viewer.data.reader import Reading
    from centroid_encoder.viewer.task import Runnable, Task

TABLES = "Tables of cells (*.h5ad *.csv)"
"""Files of a dialog."""


class TaskRow(QWidget):
    """Runs `task` and shows a bar, what is done, Stop and Cancel; hidden if `task` is None."""

    finished = Signal(object)
    """The job of a task that has ended."""
    failed = Signal(object)
    """The exception that ended a task; `StoppedTooEarly` if `stop` left nothing to keep."""
    cancelled = Signal()
    """A task was ended without any result."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.task: Task | None = None
        self._name = ""
        self._has_begun = False
        self._first: tuple[float, int] | None = None
        self._bar = QProgressBar()
        self._stop = button("Stop", "End the training now and keep the best map so far", self.stop)
        self._cancel = button("Cancel", "End it now and leave everything as it was", self.cancel)
        self._text = Message()
        column(self, side_by_side(self._bar, self._stop, self._cancel), self._text)
        self.hide()

    def begin(self, make: Callable[[], Runnable], name: str, *, stoppable: bool = False) -> Task:
        """Begin a task in place of the one that runs; a stoppable one is a training."""
        # It imports PyTorch, which the widget does not need before.
        from centroid_encoder.viewer.task import Task

        TaskRow.cancel(self)
        self.task = Task(make, self, live=stoppable)
        self.task.reported.connect(self._on_reported)
        for ended in (self.task.finished, self.task.failed):
            ended.connect(self._end)
        self.task.finished.connect(self.finished)
        self.task.failed.connect(self.failed)
        self._name, self._first, self._has_begun = name, None, False
        self._stop.setVisible(stoppable)
        self._stop.setEnabled(stoppable)
        self._stop.setText("Stop")
        self._bar.setRange(0, 0)
        self._text.say(name)
        self.show()
        self.task.start()
        return self.task

    def stop(self) -> None:
        """End a training and keep its best state; other tasks go on."""
        if self.task is None or not self._stop.isEnabled():
            return
        self._stop.setText("Stopping …")
        self._stop.setEnabled(False)
        if self._has_begun:
            self.task.stop()
        else:
            # The thread may still read the data, which it does not interrupt.
            self.task.cancel()
            self._end()
            self.failed.emit(StoppedTooEarly())

    def cancel(self) -> None:
        """End the task without any result; the thread ends after its current step."""
        if self.task is not None:
            self.task.cancel()
            self._end()
            self.cancelled.emit()

    def _on_reported(self, step: Report | Progress) -> None:
        if isinstance(step, Report):
            done, total = step.step, step.n_steps
            text = f"{step.stage}, epoch {step.epoch} of {step.n_epochs}"
            if step.epoch:
                text += "" if self._stop.isHidden() else f", loss {step.loss:.3f}"
                # The epochs of the pretraining leave no map to keep.
                self._has_begun = not step.stage.startswith("pretrain")
            else:
                text = "first epoch"
        else:
            done, total = step.n_done, step.n_total
            text = f"{done:,} of {total:,} {step.unit}s"
        self._bar.setRange(0, total)
        self._bar.setValue(done)
        text += self._time_left(done, total) if done < total else ""
        self._text.say(f"{self._name}: {text}")

    def _time_left(self, done: int, total: int) -> str:
        """Return how long the rest will take; the data are read before the first step."""
        now = time.perf_counter()
        if self._first is None or done <= self._first[1]:
            self._first = now, done
            return ""
        since, first = self._first
        seconds = (now - since) / (done - first) * (total - done)
        return f", {seconds:.0f} s left" if seconds < 100 else f", {seconds / 60:.0f} min left"

    def _end(self) -> None:
        task, self.task = self.task, None
        if task is not None:
            task.deleteLater()
        self.hide()


class Opening(TaskRow):
    """Reads one file after another; hidden while there is none to read."""

    opened = Signal(object, object)
    """An `AnnData`, and the `Path` that it was read from; `failed` if it cannot be read."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._waiting: list[Path] = []
        self.finished.connect(self._on_read)
        self.failed.connect(self._next)

    def ask(self) -> None:
        """Read a file that the user chooses."""
        name, _ = QFileDialog.getOpenFileName(self, "Open a table", "", TABLES)
        if name:
            self.read(Path(name))

    def ask_folder(self) -> None:
        """Read a zarr store that the user chooses."""
        name = QFileDialog.getExistingDirectory(self, "Open a table: choose its .zarr folder")
        if name:
            self.read(Path(name))

    def read(self, *paths: Path) -> None:
        """Read files, after those that are being read."""
        self._waiting += paths
        if self.task is None:
            self._next()

    def cancel(self) -> None:
        """Read no further; a file that is being read is dropped."""
        self._waiting.clear()
        super().cancel()

    def _next(self, _: object = None) -> None:
        from centroid_encoder.viewer.data.reader import Reading

        if self._waiting:
            path = self._waiting.pop(0)
            self.begin(partial(Reading, path), f"Reading {path.name}")

    def _on_read(self, reading: Reading) -> None:
        self._next()
        if reading.notice:
            show_warning(reading.notice)
        self.opened.emit(reading.adata, reading.path)

"""Show the progress of one task, with buttons that end it early."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from napari.utils.notifications import show_warning
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QFileDialog, QProgressBar, QWidget

from centroid_encoder.core.reports import Report
from centroid_encoder.tables import PARQUET, TEXT
from centroid_encoder.viewer.panels.fields import button, side_by_side
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.task import Steps, Task

TABLES = f"Tables of cells (*.h5ad *{PARQUET} {' '.join(f'*{x} *{x}.gz' for x in TEXT)})"
"""Filter of the dialog that opens a file."""


class TaskRow(QWidget):
    """Runs `task` and shows its progress, Stop and Cancel; hidden while `task` is None."""

    cancelled = Signal()
    """The user cancelled the task."""

    def __init__(self) -> None:
        super().__init__()
        self.task: Task | None = None
        self._name = ""
        self._first: tuple[float, int] | None = None
        self._bar = QProgressBar()
        self._stop = button("Stop", "End the training now and keep the best map so far", self.stop)
        self._cancel = button("Cancel", "End it now; nothing is changed", self.cancel)
        self._text = Message()
        self.setLayout(side_by_side((self._text, 3), (self._bar, 1), self._stop, self._cancel))
        self.hide()

    def begin(
        self,
        work: Callable[[Steps], Any],
        name: str,
        ended: Callable[[Any, Exception | None], None],
        *,
        stoppable: bool = False,
        daemon: bool = False,
    ) -> Task:
        """Start a `Task` in place of the running one; a `stoppable` one is a training."""

        def on_end(result: Any, error: Exception | None) -> None:
            self._end()
            ended(result, error)

        TaskRow.cancel(self)
        self.task = Task(work, on_end, self, live=stoppable, daemon=daemon)
        self.task.news.connect(self._on_news)
        self._name, self._first = name, None
        self._stop.setVisible(stoppable)
        self._stop.setEnabled(stoppable)
        self._stop.setText("Stop")
        self._bar.setRange(0, 0)
        self._text.say(name)
        self.show()
        return self.task

    def stop(self) -> None:
        """End a training and keep its best state; do nothing for other tasks."""
        if self.task is not None and self._stop.isEnabled():
            self._stop.setText("Stopping …")
            self._stop.setEnabled(False)
            self.task.stop()

    def cancel(self) -> None:
        """End the task without a result; its thread ends after the current step."""
        if self.task is not None:
            self.task.cancel()
            self._end()
            self.cancelled.emit()

    def _on_news(self, kind: str, step: Any) -> None:
        if kind != "reported":
            return
        if isinstance(step, Report):
            done, total = step.step, step.n_steps
            text = f"{step.stage}, epoch {step.epoch} of {step.n_epochs}"
            text += "" if self._stop.isHidden() else f", loss {step.loss:.3f}"
            text = text if step.epoch else "first epoch"
        else:
            done, total = step.n_done, step.n_total
            text = f"{done:,} of {total:,} {step.unit}s"
        self._bar.setRange(0, total)
        self._bar.setValue(done)
        text += self._time_left(done, total) if done < total else ""
        self._text.say(f"{self._name}: {text}")

    def _time_left(self, done: int, total: int) -> str:
        """Return the time that is left, measured since the first step."""
        now = time.perf_counter()
        if self._first is None or done <= self._first[1]:
            self._first = now, done
            return ""
        since, first = self._first
        seconds = (now - since) / (done - first) * (total - done)
        return f", {seconds:.0f} s left" if seconds < 100 else f", {seconds / 60:.0f} min left"

    def _end(self) -> None:
        self.task = None
        self.hide()


class Opening(TaskRow):
    """Reads tables one after another.

    `opened` is called with each AnnData, its name and ``path=``, `failed` with the exception that
    ended a reading.
    """

    def __init__(
        self, opened: Callable[..., object], failed: Callable[[Exception], object]
    ) -> None:
        super().__init__()
        self._opened, self._failed = opened, failed
        self._waiting: list[Path] = []

    def ask(self) -> None:
        """Let the user choose a file, and read it."""
        name, _ = QFileDialog.getOpenFileName(self, "Open a table", "", TABLES)
        if name:
            self.read(Path(name))

    def ask_folder(self) -> None:
        """Let the user choose a zarr store, and read it."""
        name = QFileDialog.getExistingDirectory(self, "Open a table: choose its .zarr folder")
        if name:
            self.read(Path(name))

    def read(self, *paths: Path) -> None:
        """Read files after those that are waiting."""
        self._waiting += paths
        if self.task is None:
            self._next()

    def cancel(self) -> None:
        """Stop reading, and forget the waiting files."""
        self._waiting.clear()
        super().cancel()

    def _next(self) -> None:
        from centroid_encoder.viewer.data.reader import read_table

        if self._waiting:
            path = self._waiting.pop(0)
            ended = partial(self._on_read, path)
            self.begin(lambda _: read_table(path), f"Reading {path.name}", ended, daemon=True)

    def _on_read(self, path: Path, found: Any, error: Exception | None) -> None:
        self._next()
        if error is not None:
            self._failed(error)
            return
        adata, notice = found
        if notice:
            show_warning(notice)
        self._opened(adata, path.name, path=path)

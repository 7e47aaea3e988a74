"""Run tasks one after another, and show their progress, with buttons that end them early."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napari.utils.notifications import show_warning
from qtpy.QtWidgets import QFileDialog, QProgressBar, QWidget

from centroid_encoder.core.reports import Report
from centroid_encoder.tables import PARQUET, TEXT
from centroid_encoder.viewer.panels.fields import button, side_by_side
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.task import Steps, Task

if TYPE_CHECKING:
    from centroid_encoder.tl._run import Progress

TABLES = f"Tables of cells (*.h5ad *{PARQUET} {' '.join(f'*{x} *{x}.gz' for x in TEXT)})"
"""Filter of the dialog that opens a file."""


class TaskRow(QWidget):
    """Runs `task` and shows its progress, Stop and Cancel; hidden while `task` is None.

    `cancelled` is called when the user cancels the task.
    """

    def __init__(self, cancelled: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.task: Task | None = None
        self._cancelled = cancelled
        self._waiting: list[Callable[[], None]] = []
        self._name = ""
        self._first = 0.0, 0
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
        ended: Callable[[Any, Exception | None], object],
        *,
        begun: Callable[[Task], object] = lambda _: None,
        stoppable: bool = False,
        daemon: bool = False,
    ) -> None:
        """Run a `Task` after those before; `begun` gets it. A `stoppable` one is a training."""

        def on_end(result: Any, error: Exception | None) -> None:
            self._next()
            ended(result, error)

        def start() -> None:
            self.task = task = Task(work, on_end, self, live=stoppable, daemon=daemon)
            task.reported.connect(self._on_reported)
            self._name, self._first = name, (0.0, 0)
            self._stop.setVisible(stoppable)
            self._stop.setEnabled(stoppable)
            self._stop.setText("Stop")
            self._bar.setRange(0, 0)
            self._text.say(name)
            begun(task)

        self._waiting.append(start)
        if self.task is None:
            self._next()

    def stop(self) -> None:
        """End a training and keep its best state; do nothing for other tasks."""
        if self.task is not None and self._stop.isEnabled():
            self._stop.setText("Stopping …")
            self._stop.setEnabled(False)
            self.task.stop()

    def cancel(self) -> None:
        """End the task without a result, and run no other; a thread ends after its step."""
        self._waiting.clear()
        if self.task is not None:
            self.task.cancel()
            self._next()
            self._cancelled()

    def _next(self) -> None:
        """Run the task that waits, if there is one."""
        self.task = None
        if self._waiting:
            self._waiting.pop(0)()
        self.setVisible(self.task is not None)

    def _on_reported(self, step: Report | Progress) -> None:
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
        now, (since, first) = time.perf_counter(), self._first
        if not since or done <= first:
            self._first = now, done
            return ""
        seconds = (now - since) / (done - first) * (total - done)
        return f", {seconds:.0f} s left" if seconds < 100 else f", {seconds / 60:.0f} min left"


def read_tables(
    row: TaskRow,
    *paths: Path,
    opened: Callable[..., object],
    failed: Callable[[Exception], object],
) -> None:
    """Read tables in a row.

    `opened` is called with each AnnData, its name and ``path=``, `failed` with the exception that
    ended a reading.
    """
    from centroid_encoder.viewer.data.reader import read_table

    def on_end(path: Path, found: Any, error: Exception | None) -> None:
        if error is not None:
            failed(error)
            return
        adata, notice = found
        if notice:
            show_warning(notice)
        opened(adata, path.name, path=path)

    for path in paths:
        work, ended = lambda _, path=path: read_table(path), partial(on_end, path)
        row.begin(work, f"Reading {path.name}", ended, daemon=True)


def ask_table(parent: QWidget) -> list[Path]:
    """Let the user choose the file of a table; return nothing if there is none."""
    name, _ = QFileDialog.getOpenFileName(parent, "Open a table", "", TABLES)
    return [Path(name)] if name else []

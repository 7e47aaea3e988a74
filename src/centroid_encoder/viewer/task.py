"""Run a job in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import Any

from qtpy.QtCore import QObject, QTimer, Signal
from superqt.utils import create_worker

from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.tl._run import Progress

FRAME_PAUSE = 200
"""Milliseconds between two live frames, so that the GUI has time for other events."""
REPORT_INTERVAL = 0.05
"""Least number of seconds between two reports."""


class _Thread(QObject):
    """Events and a signal that the thread uses; unlike the `Task`, they exist until it ends."""

    emitted = Signal(str, object)
    """Name of a signal of the `Task`, and its value."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped, self.cancelled, self.wants_frame = Event(), Event(), Event()


class Task(QObject):
    """Makes and runs a job in a thread; do not use the job before the task has ended.

    All signals are emitted in the GUI thread, and none after `finished`, `failed` or `cancel`.

    `make` returns the job: an object with a method `run`, such as that of `tl._run.Job`. The thread
    calls it, since it may read a large matrix. A `live` job is a training whose frames are shown.
    """

    begun = Signal(object)
    """The job; its input has been read and checked."""
    reported = Signal(object)
    """A `Report` or `Progress`, at most every 50 ms."""
    framed = Signal(object)
    """A live frame, see `Report.frame`; the thread waits until the GUI has drawn the last one."""
    finished = Signal(object)
    """The job with its results."""
    failed = Signal(object)
    """The exception that ended the job: `StoppedTooEarly` if there was nothing to keep."""

    def __init__(
        self, make: Callable[[], Any], parent: QObject | None = None, *, live: bool = False
    ) -> None:
        super().__init__(parent)
        self._over = False
        self._thread = thread = _Thread()
        if live:
            thread.wants_frame.set()
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.timeout.connect(thread.wants_frame.set)
        worker: Any = create_worker(_work, make, thread, _start_thread=False, _ignore_errors=True)
        # Qt disconnects bound methods of a QObject when the object is deleted.
        thread.emitted.connect(self._pass_on)
        worker.returned.connect(self._end)
        # The thread must also end when Qt deletes the window, and this object with it.
        self.destroyed.connect(thread.cancelled.set)
        self._worker = worker

    @property
    def is_running(self) -> bool:
        """Whether the thread is running; after `cancel` it ends with the current step."""
        return bool(self._worker.is_running)

    def start(self) -> None:
        """Start the thread."""
        self._worker.start()

    def stop(self) -> None:
        """End the job early and keep the best state so far; `finished` follows."""
        self._thread.stopped.set()

    def cancel(self) -> None:
        """End the job without any further signal."""
        self._over = True
        self._thread.cancelled.set()
        self._worker.quit()

    def _pass_on(self, name: str, value: object) -> None:
        if self._over:
            return
        getattr(self, name).emit(value)
        if name == "framed":
            # Qt handles the timer only after it has painted the frame.
            self._pause.start(FRAME_PAUSE)

    def _end(self, result: tuple[Any, Exception | None]) -> None:
        if self._over:
            return
        self._over = True
        job, error = result
        if error is None:
            self.finished.emit(job)
        else:
            self.failed.emit(error)


def _work(make: Callable[[], Any], thread: _Thread) -> tuple[Any, Exception | None]:
    """Make the job and run it in the thread; return it and the exception that ended it.

    The exception is not raised, since superqt ignores every RuntimeError.
    """
    last_report = 0.0

    def report(step: Report | Progress | None) -> bool:
        nonlocal last_report
        if thread.cancelled.is_set():
            raise StoppedTooEarly
        now = time.perf_counter()
        if step is not None and now - last_report >= REPORT_INTERVAL:
            last_report = now
            thread.emitted.emit("reported", step)
        if thread.wants_frame.is_set() and isinstance(step, Report):
            frame = step.frame()
            if frame is not None:
                thread.wants_frame.clear()
                thread.emitted.emit("framed", frame)
        return thread.stopped.is_set()

    job = None
    try:
        job = make()
        thread.emitted.emit("begun", job)
        job.run(report)
    except Exception as error:  # The GUI thread shows it.
        return job, error
    return job, None

"""A job in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import Any, Protocol

from qtpy.QtCore import QObject, QTimer, Signal
from superqt.utils import create_worker

from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.tl._run import Callback, Progress

FRAME_PAUSE = 200
"""Milliseconds between two live frames, since drawing slows the GUI down."""
REPORT_INTERVAL = 0.05
"""Least seconds between two reports."""


class Runnable(Protocol):
    """What a task does: a job of `tl`, the measuring of layers, the reading of a file."""

    def run(self, callback: Callback, /) -> object:
        """Do it; see `tl._run.Job.run`."""


class _Signals(QObject):
    """Signals of the thread, which may outlive the `Task`."""

    emitted = Signal(str, object)
    """Name of a signal of the `Task`, and its value."""


class Task(QObject):
    """A job that is made and run in a thread; do not use it before the task has ended.

    All signals are emitted in the GUI thread, and none after `finished`, `failed` or `cancel`.

    `make` returns the job; it is called in the thread, since it may read a large matrix. A `live`
    job is a training whose frames are shown.
    """

    begun = Signal(object)
    """The job, whose input was read and checked."""
    reported = Signal(object)
    """A `Report` or `Progress`, at most every 50 ms."""
    framed = Signal(object)
    """A live frame; see `Report.frame`. At most one waits while the GUI thread is busy."""
    finished = Signal(object)
    """The job, whose results can be used."""
    failed = Signal(object)
    """The exception that ended it; `StoppedTooEarly` if `stop` left nothing to keep."""

    def __init__(
        self, make: Callable[[], Runnable], parent: QObject | None = None, *, live: bool = False
    ) -> None:
        super().__init__(parent)
        self._stop, self._cancelled, self._wants_frame = Event(), Event(), Event()
        if live:
            self._wants_frame.set()
        self._over = False
        self._pause = QTimer(self)
        self._pause.setSingleShot(True)
        self._pause.timeout.connect(self._wants_frame.set)
        signals = _Signals()
        events = self._stop, self._cancelled, self._wants_frame
        worker: Any = create_worker(
            _work, make, signals, *events, _start_thread=False, _ignore_errors=True
        )
        # Qt disconnects bound methods of a QObject when the object is deleted.
        signals.emitted.connect(self._pass_on)
        worker.returned.connect(self._end)
        # When Qt deletes the window with this object, the thread must end.
        self.destroyed.connect(self._cancelled.set)
        self._worker = worker

    @property
    def is_running(self) -> bool:
        """Whether the thread is at work; a cancelled one ends after its current step."""
        return bool(self._worker.is_running)

    def start(self) -> None:
        """Begin."""
        self._worker.start()

    def stop(self) -> None:
        """End the job and keep the best state so far; `finished` follows."""
        self._stop.set()

    def cancel(self) -> None:
        """End the job without any further signal."""
        self._over = True
        self._cancelled.set()
        self._worker.quit()

    def _pass_on(self, name: str, value: object) -> None:
        if self._over:
            return
        getattr(self, name).emit(value)
        if name == "framed":
            # The timer runs after the painting of the frame, which may take long.
            self._pause.start(FRAME_PAUSE)

    def _end(self, result: tuple[Runnable | None, Exception | None]) -> None:
        if self._over:
            return
        self._over = True
        job, error = result
        if error is None:
            self.finished.emit(job)
        else:
            self.failed.emit(error)


def _work(
    make: Callable[[], Runnable],
    signals: _Signals,
    stopped: Event,
    cancelled: Event,
    wants_frame: Event,
) -> tuple[Runnable | None, Exception | None]:
    """Make the job and run it in the thread; return it and the exception that ended it.

    The exception is not raised, since superqt ignores each RuntimeError.
    """
    last_report = 0.0

    def report(step: Report | Progress | None) -> bool:
        nonlocal last_report
        if cancelled.is_set():
            raise StoppedTooEarly
        now = time.perf_counter()
        if step is not None and (now - last_report >= REPORT_INTERVAL or _is_last(step)):
            last_report = now
            signals.emitted.emit("reported", step)
        if wants_frame.is_set() and isinstance(step, Report):
            frame = step.frame()
            if frame is not None:
                wants_frame.clear()
                signals.emitted.emit("framed", frame)
        return stopped.is_set()

    job = None
    try:
        job = make()
        signals.emitted.emit("begun", job)
        job.run(report)
    except Exception as error:  # The GUI thread shows it.
        return job, error
    return job, None


def _is_last(step: Report | Progress) -> bool:
    if isinstance(step, Progress):
        return step.n_done == step.n_total
    return step.step >= step.n_steps

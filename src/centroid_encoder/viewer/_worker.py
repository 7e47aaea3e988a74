"""One job in a worker thread."""

from __future__ import annotations

import time
from threading import Event
from typing import TYPE_CHECKING, Any, cast

from qtpy.QtCore import QObject, Signal
from superqt.utils import create_worker

from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.tl._centroid_encoder import Training
from centroid_encoder.tl._run import Job, Progress

if TYPE_CHECKING:
    from centroid_encoder.viewer.data.measuring import Measuring

FRAME_INTERVAL = 0.2
"""Least seconds between two live frames, since drawing slows the GUI down."""
REPORT_INTERVAL = 0.05
"""Least seconds between two reports."""


class _Signals(QObject):
    """Signals of the thread, which may outlive the `Worker`."""

    reported = Signal(object)
    framed = Signal(object)


class Worker(QObject):
    """A job in a thread; the job must not be used before it has ended.

    All signals are emitted in the GUI thread, and none after `finished`, `failed` or `cancel`.
    """

    reported = Signal(object)
    """A `Report` or `Progress`, at most every 50 ms."""
    framed = Signal(object)
    """A live frame, at most every 200 ms: embedding and centers; see `Report.frame`."""
    finished = Signal()
    """The job can be written."""
    failed = Signal(object)
    """The exception that ended the job; `StoppedTooEarly` if `stop` left nothing to keep."""

    def __init__(self, job: Job | Measuring, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.job = job
        self._stop, self._cancelled, self._drawn = Event(), Event(), Event()
        self._drawn.set()
        self._over = False
        signals = _Signals()
        events = self._stop, self._cancelled, self._drawn
        worker: Any = create_worker(
            _work, job, signals, *events, _start_thread=False, _ignore_errors=True
        )
        # Qt disconnects bound methods of a QObject when the object is deleted.
        signals.reported.connect(self._report)
        signals.framed.connect(self._frame)
        worker.returned.connect(self._end)
        # When Qt deletes the window with this object, the thread must end.
        self.destroyed.connect(self._cancelled.set)
        self._worker = worker

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

    def drawn(self) -> None:
        """Allow the next frame, since the last one is drawn."""
        self._drawn.set()

    def _report(self, step: Report | Progress) -> None:
        if not self._over:
            self.reported.emit(step)

    def _frame(self, frame: object) -> None:
        if not self._over:
            self.framed.emit(frame)

    def _end(self, errors: tuple[Exception, ...]) -> None:
        if not self._over:
            self._over = True
            if errors:
                self.failed.emit(*errors)
            else:
                self.finished.emit()


def _work(
    job: Job | Measuring, signals: _Signals, stopped: Event, cancelled: Event, drawn: Event
) -> tuple[Exception, ...]:
    """Run the job in the thread; return the exception that ended it, if there was one.

    It is not raised, since superqt ignores each RuntimeError.
    """
    last_report = last_frame = 0.0
    # The trainings of a cross-validation have no live frames.
    is_live = isinstance(job, Training)

    def report(step: Report | Progress | None) -> bool:
        nonlocal last_report, last_frame
        if cancelled.is_set():
            raise StoppedTooEarly
        now = time.perf_counter()
        if step is not None and (now - last_report >= REPORT_INTERVAL or _is_last(step)):
            last_report = now
            signals.reported.emit(step)
        if is_live and step is not None and drawn.is_set() and now - last_frame >= FRAME_INTERVAL:
            frame = cast(Report, step).frame()
            if frame is not None:
                last_frame = now
                drawn.clear()
                signals.framed.emit(frame)
        return stopped.is_set()

    try:
        job.detach()
        job.run(report)
    except Exception as error:  # The GUI thread shows it.
        return (error,)
    return ()


def _is_last(step: Report | Progress) -> bool:
    if isinstance(step, Progress):
        return step.n_done == step.n_total
    return step.step >= step.n_steps

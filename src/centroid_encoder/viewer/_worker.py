"""One job in a worker thread."""

from __future__ import annotations

import time
from collections.abc import Generator
from threading import Event, get_ident
from typing import Any

from qtpy.QtCore import QObject, Signal
from superqt.utils import create_worker

from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.tl._jobs import Progress, Steps

SNAPSHOT_INTERVAL = 0.2
"""Seconds between two embeddings to be drawn: drawing, not training, is what holds the GUI up."""
REPORT_INTERVAL = 0.05
"""Seconds between two reports without one."""

Step = Report | Progress


class Worker(QObject):
    """A job in a thread: nothing of it may be touched until it has ended.

    Every signal comes in the GUI thread. After `finished`, `failed` or `cancel` there are none.
    Without the worker, the thread ends by itself.
    """

    reported = Signal(object)
    """A `Report` or a `Progress`, at most every 50 ms; with an embedding at most every 200 ms."""
    finished = Signal()
    """The job can be written."""
    failed = Signal(object)
    """The exception that ended it; `StoppedTooEarly` if `stop` left nothing to keep."""

    def __init__(self, job: Steps, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.job = job
        self._stop, self._cancelled = Event(), Event()
        self._drawn = Event()
        self._drawn.set()
        self._over = False
        worker: Any = create_worker(
            _work,
            job,
            self._stop,
            self._cancelled,
            self._drawn,
            _start_thread=False,
            _ignore_errors=True,
        )
        # Bound methods of a QObject: Qt drops the connection with the object.
        worker.yielded.connect(self._pass_on)
        worker.returned.connect(self._finish)
        worker.errored.connect(self._fail)
        # Qt takes this away with the window, unasked; a thread must not go on for nobody.
        self.destroyed.connect(self._cancelled.set)
        self._worker = worker

    def start(self) -> None:
        """Begin."""
        self._worker.start()

    def stop(self) -> None:
        """End the job and keep the best so far; `finished` follows."""
        self._stop.set()

    def cancel(self) -> None:
        """Forget the job: the thread ends by itself, unheard."""
        self._over = True
        self._cancelled.set()
        self._worker.quit()

    def drawn(self) -> None:
        """Say that the last embedding is on the screen: the next one may come."""
        self._drawn.set()

    def _pass_on(self, item: Step | Exception) -> None:
        if isinstance(item, Exception):
            self._fail(item)
        elif not self._over:
            self.reported.emit(item)

    def _finish(self, complete: object) -> None:
        if complete and not self._over:
            self._over = True
            self.finished.emit()

    def _fail(self, error: Exception) -> None:
        if not self._over:
            self._over = True
            self.failed.emit(error)


def _work(
    job: Steps, stopped: Event, cancelled: Event, drawn: Event
) -> Generator[Step | Exception, None, bool]:
    """Do the job; runs in the thread. Returns True when it is complete.

    What fails is handed over as a value: a worker takes a RuntimeError, which most of PyTorch's
    are, for a sign that it was deleted.
    """
    last_snapshot = last_report = 0.0
    thread = get_ident()

    def stop() -> bool:
        # To complete what nobody keeps may take as long as it took to learn it. Another thread that
        # asks does so to end the processes of the job, and has to be told.
        if cancelled.is_set() and get_ident() == thread:
            raise StoppedTooEarly
        return cancelled.is_set() or stopped.is_set()

    def snapshot() -> bool:
        nonlocal last_snapshot
        now = time.perf_counter()
        if not drawn.is_set() or now - last_snapshot < SNAPSHOT_INTERVAL:
            return False
        last_snapshot = now
        return True

    try:
        job.detach()
        for step in job.steps(stop=stop, snapshot=snapshot):
            now = time.perf_counter()
            if isinstance(step, Progress):
                shown, last = False, step.n_done == step.n_total
            else:
                shown, last = step.embedding is not None, step.step >= step.n_steps
            if shown:
                drawn.clear()
            elif not last and now - last_report < REPORT_INTERVAL:
                continue
            last_report = now
            yield step
    except Exception as error:  # Whatever it is, the GUI thread has to say it.
        yield error
        return False
    return True

"""One training, or one check of the labels, in a worker thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from threading import Event
from typing import Any

from qtpy.QtCore import QObject, Signal
from superqt.utils import create_worker

from centroid_encoder.core.training import Report
from centroid_encoder.tl._jobs import Job, Progress

SNAPSHOT_INTERVAL = 0.2
"""Seconds between two embeddings to be drawn: drawing, not training, is what holds the GUI up."""
REPORT_INTERVAL = 0.05
"""Seconds between two reports without one."""


@dataclass(frozen=True)
class Failure:
    """What went wrong in the thread."""

    error: Exception


class Training(QObject):
    """A `Job` in a worker thread: nothing of it is touched here until it has ended.

    Every signal comes in the GUI thread. After `finished`, `failed` or `cancel` there are none.
    """

    reported = Signal(object)
    """A `Report`, at most every 50 ms; with an embedding at most every 200 ms."""
    finished = Signal()
    """The job can be written."""
    failed = Signal(object)
    """The exception that ended it; `StoppedTooEarly` if `stop` left nothing to keep."""

    def __init__(self, run: Job) -> None:
        super().__init__()
        self.run = run
        self.started_at = time.perf_counter()
        self._stop = Event()
        self._drawn = Event()
        self._drawn.set()
        self._cancelled = False
        worker: Any = create_worker(
            _work, run, self._stop.is_set, self._drawn, _start_thread=False, _ignore_errors=True
        )
        # Bound methods of a QObject: Qt drops the connection with the object.
        worker.yielded.connect(self._pass_on)
        worker.returned.connect(self._finish)
        worker.errored.connect(self._fail)
        self._worker = worker

    @property
    def alive(self) -> bool:
        """Whether the thread is still at work, be it unheard."""
        return bool(self._worker.is_running)

    def start(self) -> None:
        """Begin."""
        self._worker.start()

    def stop(self) -> None:
        """End the training and keep the best so far; `finished` follows."""
        self._stop.set()

    def cancel(self) -> None:
        """Forget the training: the thread ends by itself, unheard."""
        self._cancelled = True
        self._stop.set()
        self._worker.quit()

    def drawn(self) -> None:
        """Say that the last embedding is on the screen: the next one may come."""
        self._drawn.set()

    def _pass_on(self, item: Report | Failure) -> None:
        if self._cancelled:
            return
        if isinstance(item, Failure):
            self._cancelled = True
            self.failed.emit(item.error)
        else:
            self.reported.emit(item)

    def _finish(self, complete: object) -> None:
        if complete and not self._cancelled:
            self._cancelled = True
            self.finished.emit()

    def _fail(self, error: Exception) -> None:
        self._pass_on(Failure(error))


def _work(
    run: Job, stop: Callable[[], bool], drawn: Event
) -> Generator[Report | Failure, None, bool]:
    """Do the job; runs in the thread. Returns True when it is complete.

    What fails is handed over as a value: a worker takes a RuntimeError, which most of PyTorch's
    are, for a sign that it was deleted.
    """
    last_snapshot = last_report = 0.0

    def snapshot() -> bool:
        nonlocal last_snapshot
        now = time.perf_counter()
        if not drawn.is_set() or now - last_snapshot < SNAPSHOT_INTERVAL:
            return False
        last_snapshot = now
        return True

    try:
        run.detach()
        for report in run.steps(stop=stop, snapshot=snapshot):
            now = time.perf_counter()
            if isinstance(report, Progress):
                continue
            if report.embedding is not None:
                drawn.clear()
            elif now - last_report < REPORT_INTERVAL and report.step < report.n_steps:
                continue
            last_report = now
            yield report
    except Exception as error:  # Whatever it is, the GUI thread has to say it.
        yield Failure(error)
        return False
    return True

"""Run a function in a thread."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from importlib import import_module
from threading import Event, Thread, main_thread
from typing import TYPE_CHECKING, Any

from qtpy.QtCore import QObject, QTimer, Signal

from centroid_encoder import tl
from centroid_encoder.core.reports import Report, StoppedTooEarly

if TYPE_CHECKING:
    from centroid_encoder.tl._run import Progress

INTERVAL = 50
"""Milliseconds between two checks of the thread."""
FRAME_PAUSE = 200
"""Milliseconds between two live frames, so that the GUI has time for other events."""


class Steps:
    """The callback of a job in a thread; it stores what is new until the `Task` emits it.

    It is no object of Qt: the thread may end after the window was deleted.
    """

    def __init__(self) -> None:
        self.stopped, self.cancelled, self.wants_frame = Event(), Event(), Event()
        self.job: Any = None
        """The job, once its input has been read and checked."""
        self.news: dict[str, Any] = {}
        """What the task is to emit next: the last of each kind."""
        self.may_go_on = Event()
        """Not set while the GUI draws a frame, which would take it twice as long beside the job."""
        self.may_go_on.set()
        self.has_torch, self.may_begin = Event(), Event()
        self.failure: Exception | None = None
        """Why that cannot be imported which jobs need."""

    def __call__(self, step: Report | Progress | None) -> bool:
        """Store a step; return whether the job must stop."""
        self.may_go_on.wait(timeout=FRAME_PAUSE / 1000)
        if self.cancelled.is_set():
            raise StoppedTooEarly
        if step is not None:
            self.news["reported"] = step
        if self.wants_frame.is_set() and isinstance(step, Report):
            frame = step.frame()
            if frame is not None:
                self.wants_frame.clear()
                self.news["framed"] = frame
        return self.stopped.is_set()


class Task(QObject):
    """Calls `work` in a thread, and then `ended` in the GUI thread, unless it was cancelled.

    `work` gets a callback for the steps of a job, see `make_and_run`. `ended` gets the result and
    None, or None and the exception: `StoppedTooEarly` if there was nothing to keep. `news` are
    emitted in the GUI thread, and before that call. The task is deleted after its end.

    With `live`, the frames of a training are shown. A `daemon` only reads: it does not keep the
    process alive after the window was closed. With `needs_jobs`, a task that is no daemon begins
    once PyTorch was imported, in the thread, since that takes a second.
    """

    _can_run_jobs = False
    """Whether all is imported that jobs need."""

    news = Signal(str, object)
    """A kind and an object: the job that has ``"begun"``, once its input was read and checked; the
    last `Report` or `Progress`, ``"reported"`` at most every 50 ms; or a live frame, ``"framed"``,
    see `Report.frame`. The thread waits until the GUI has drawn it."""

    def __init__(
        self,
        work: Callable[[Steps], Any],
        ended: Callable[[Any, Exception | None], None],
        parent: QObject | None = None,
        *,
        live: bool = False,
        daemon: bool = False,
        needs_jobs: bool = True,
    ) -> None:
        super().__init__(parent)
        self._steps = steps = Steps()
        self._ended, self._has_ended = ended, False
        # A connection keeps a lambda, but not the object of a bound method: PySide breaks that
        # connection where the object dies, and a crash follows if that is in the thread.
        self._drawn = QTimer(self, interval=0, singleShot=True)
        self._drawn.timeout.connect(lambda: steps.may_go_on.set())
        self._next_frame = math.inf
        if live:
            steps.wants_frame.set()
        # The thread must also end when Qt deletes the window, and this object with it.
        self.destroyed.connect(lambda: steps.cancelled.set())
        self._timer = QTimer(self, interval=INTERVAL)
        self._timer.timeout.connect(self._check)
        self._result: Any = Future()
        if daemon or not needs_jobs or Task._can_run_jobs:
            steps.may_begin.set()
        self._timer.start()
        Thread(target=_run, args=(work, steps, self._result), daemon=daemon).start()

    @property
    def job(self) -> Any:
        """The job of `make_and_run` after `begun`; the thread is using it."""
        return self._steps.job

    @property
    def is_running(self) -> bool:
        """Whether the thread is running; after `cancel` it ends with the current step."""
        return not self._result.done()

    @property
    def wait(self) -> Callable[[], None]:
        """A function that returns after the end of the thread; it does not keep the task alive."""
        return partial(_wait, self._steps, self._result)

    def stop(self) -> None:
        """End a job early and keep its best state so far."""
        self._steps.stopped.set()

    def cancel(self) -> None:
        """End the job without any further signal or call; do nothing after its end."""
        self._steps.cancelled.set()
        if not self._has_ended:
            self._timer.stop()
            self.deleteLater()

    def _check(self) -> None:
        """Emit what the thread has stored; a slot may cancel the task."""
        if self._steps.has_torch.is_set() and not self._steps.may_begin.is_set():
            _begin(self._steps)
        # The thread stores nothing after its end.
        has_ended = self._result.done()
        for name in ("begun", "reported", "framed"):
            new = self._steps.news.pop(name, None)
            if new is not None and self._timer.isActive():
                if name == "framed":
                    self._steps.may_go_on.clear()
                    # Qt handles the timer only after it has painted the frame.
                    self._drawn.start()
                self.news.emit(name, new)
                if name == "framed":
                    self._next_frame = time.monotonic() + FRAME_PAUSE / 1000
        if time.monotonic() >= self._next_frame:
            self._next_frame = math.inf
            self._steps.wants_frame.set()
        if has_ended and self._timer.isActive():
            self._has_ended = True
            self._timer.stop()
            self.deleteLater()
            error = self._result.exception()
            self._ended(None if error else self._result.result(), error)


def _begin(steps: Steps) -> None:
    """Import what jobs need, and let the thread begin; an error ends it."""
    try:
        _import_jobs()
        Task._can_run_jobs = True
    except Exception as error:
        steps.failure = error
    steps.may_begin.set()


def _wait(steps: Steps, result: Future[Any]) -> None:
    """Return after the end of a thread, which may need this one before it can begin."""
    if not steps.may_begin.is_set():
        _begin(steps)
    result.exception()


def _run(work: Callable[[Steps], Any], steps: Steps, result: Future[Any]) -> None:
    """Call `work`, and store its result or its exception."""
    try:
        if not steps.may_begin.is_set():
            import_module("torch")
            steps.has_torch.set()
        while not steps.may_begin.wait(INTERVAL / 1000):
            if steps.cancelled.is_set() or not main_thread().is_alive():
                raise StoppedTooEarly
        if steps.failure is not None:
            raise steps.failure
        result.set_result(work(steps))
    except BaseException as error:
        result.set_exception(error)


def _import_jobs() -> None:
    """Import what jobs need, but for PyTorch, in the GUI thread: two threads could collide."""
    for name in tl.__all__:
        getattr(tl, name)
    import_module("sklearn.manifold")


def make_and_run(make: Callable[[], Any], steps: Steps) -> Any:
    """Make a job, such as a `tl._run.Job`, and run it; `make` may read a large matrix."""
    steps.job = steps.news["begun"] = job = make()
    job.run(steps)
    return job

"""Run only the last of several requests, in a thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qtpy.QtCore import QObject, QTimer

from centroid_encoder.viewer.task import Task

Then = Callable[[Any, Exception | None], None]


class Latest(QObject):
    """Runs one request at a time; a newer one replaces that which waits, and drops its answer.

    A request begins after `pause` milliseconds without another one.
    """

    def __init__(self, parent: QObject, pause: int = 0) -> None:
        super().__init__(parent)
        self._waiting: tuple[Callable[[], Any], Then] | None = None
        self._then: Then | None = None
        self._task: Task | None = None
        self._timer = QTimer(self, interval=pause, singleShot=True)
        self._timer.timeout.connect(self._begin)

    @property
    def is_due(self) -> bool:
        """Whether an answer is to come."""
        return self._waiting is not None or self._then is not None

    def request(self, work: Callable[[], Any], then: Then) -> None:
        """Call `work` in a thread, and then `then` with its result or its exception."""
        self._waiting, self._then = (work, then), None
        self._timer.start()

    def drop(self) -> None:
        """Drop all requests; a thread that runs ends without an answer."""
        self._timer.stop()
        self._waiting = self._then = None

    def _begin(self) -> None:
        if self._task is None and self._waiting is not None:
            (work, self._then), self._waiting = self._waiting, None
            self._task = Task(lambda _: work(), self._on_end, self)

    def _on_end(self, found: Any, error: Exception | None) -> None:
        self._task, then, self._then = None, self._then, None
        if self._waiting is None and then is not None:
            then(found, error)
        elif not self._timer.isActive():
            self._begin()

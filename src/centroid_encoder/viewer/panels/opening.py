"""Read files of tables in a thread, and show how far it is."""

from __future__ import annotations

import math
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from napari.utils.notifications import show_warning
from qtpy.QtCore import QTimer, Signal
from qtpy.QtWidgets import QLabel, QProgressBar, QPushButton, QSizePolicy, QWidget
from superqt.utils import create_worker

from centroid_encoder.viewer.panels.fields import column, side_by_side

if TYPE_CHECKING:
    from anndata import AnnData

INTERVAL = 100
"""Milliseconds between two looks at how far it is."""


class Opening(QWidget):
    """Reads one file after another; hidden while there is none to read."""

    opened = Signal(object, object)
    """An `AnnData`, and the `Path` that it was read from."""
    failed = Signal(object)
    """The exception that ended the reading of a file; the others are read."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._waiting: list[Path] = []
        self._reading: _Reading | None = None
        self._worker: Any = None
        self.text = QLabel()
        # Long names must not make the widget wide.
        self.text.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.bar = QProgressBar()
        self.bar.setTextVisible(False)
        self.cancel_button = QPushButton("Cancel")
        self.cancel_button.setToolTip("Read no further; what is open stays as it is")
        self.cancel_button.clicked.connect(self.cancel)
        column(self, side_by_side((self.text, 2), (self.bar, 1), self.cancel_button))
        self._timer = QTimer(self, interval=INTERVAL)
        self._timer.timeout.connect(self._look)
        self.hide()

    def begin(self, *paths: Path) -> None:
        """Read files, after those that are being read."""
        self._waiting += paths
        if self._reading is None:
            self._next()

    def cancel(self) -> None:
        """Read no further; the thread ends by itself, unheard."""
        self._waiting.clear()
        if self._reading is not None:
            self._reading.stopped.set()
        self._next()

    def _next(self) -> None:
        self._reading = self._worker = None
        if not self._waiting:
            self._timer.stop()
            self.hide()
            return
        self._reading = _Reading(self._waiting.pop(0))
        self.destroyed.connect(self._reading.stopped.set)
        self.text.setText(f"Reading {self._reading.path.name}")
        self.bar.setRange(0, 0)
        self.show()
        self._timer.start()
        self._worker = create_worker(self._reading.read, _start_thread=False, _ignore_errors=True)
        self._worker.returned.connect(self._on_read)
        self._worker.warned.connect(self._on_warned)
        self._worker.start()

    def _look(self) -> None:
        if self._reading is not None and self._reading.share > 0:
            self.bar.setRange(0, 100)
            self.bar.setValue(math.floor(100 * self._reading.share))

    def _on_read(self, read: tuple[_Reading, AnnData | Exception]) -> None:
        reading, result = read
        if reading is not self._reading:
            return
        self._next()
        if isinstance(result, Exception):
            self.failed.emit(result)
        else:
            self.opened.emit(result, reading.path)

    def _on_warned(self, warned: tuple[Any, ...]) -> None:
        from centroid_encoder.viewer.data.reader import RepeatedNames

        # Those of others are about code, and superqt shows each of them.
        if issubclass(warned[1], RepeatedNames):
            show_warning(str(warned[0]))


class _Reading:
    """A file that is read in a thread."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.share = 0.0
        """How much of it is read, if that is known."""
        self.stopped = Event()

    def read(self) -> tuple[_Reading, AnnData | Exception]:
        """Read it; runs in the thread. What fails is handed over as a value."""
        from centroid_encoder.viewer.data.reader import read_adata

        try:
            return self, read_adata(self.path, self._on_share)
        except Exception as error:  # Whatever it is, the GUI thread has to say it.
            return self, error

    def _on_share(self, share: float) -> None:
        if self.stopped.is_set():
            raise InterruptedError(f"{self.path.name} was not read: cancelled")
        self.share = share

"""Messages and running jobs over the map, and a log of all messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial

from qtpy.QtCore import QEvent, QObject, Qt
from qtpy.QtWidgets import QPlainTextEdit, QWidget

from centroid_encoder.viewer.panels.fields import column, delayed
from centroid_encoder.viewer.panels.message import Message

FADES = 6_000
"""Milliseconds after which a message that is no warning is hidden."""


class Notes(QWidget):
    """Rows of running jobs, and the last of several messages; a click hides it.

    `cures` are the messages, each with the buttons that belong to it.
    """

    def __init__(self, jobs: Iterable[QWidget], cures: Mapping[Message, QWidget]) -> None:
        super().__init__()
        self._cures = cures
        self.log = QPlainTextEdit(self)
        """All messages, in a window of its own."""
        self.log.setWindowFlags(Qt.WindowType.Dialog)
        self.log.setWindowTitle("Centroid-Encoder: messages")
        self.log.setReadOnly(True)
        self._fading = delayed(self, FADES, self._fade)
        for job in (jobs := list(jobs)):
            job.setObjectName("over")
        column(self, *jobs, *cures, *cures.values()).setSpacing(0)
        for message in cures:
            message.said.connect(partial(self._on_said, message))
            message.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Hide a message after a click, and its buttons."""
        is_click = event.type() == QEvent.Type.MouseButtonRelease
        if is_click and isinstance(watched, Message) and not watched.hasSelectedText():
            self._dismiss(watched)
        return super().eventFilter(watched, event)

    def _on_said(self, message: Message, text: str) -> None:
        """Show a message alone, and write it into the log."""
        self.log.appendPlainText(f"{datetime.now():%H:%M}  {text}")
        for other in self._cures:
            if other is not message:
                self._dismiss(other)
        self._fading.start()

    def _fade(self) -> None:
        """Hide the messages that are no warnings."""
        for message in self._cures:
            if message.kind == "info":
                message.hide()

    def _dismiss(self, message: Message) -> None:
        message.hide()
        self._cures[message].hide()

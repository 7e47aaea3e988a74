"""Show messages."""

from __future__ import annotations

import re

from qtpy.QtCore import QSize, Qt, Signal
from qtpy.QtGui import QPainter, QPaintEvent, QResizeEvent
from qtpy.QtWidgets import QLabel, QSizePolicy

from centroid_encoder.viewer.session.state import Kind


class Message(QLabel):
    """A text that wraps and can be selected; hidden if empty.

    It does not make the dock wider. Style sheets can refer to its `kind`. If it does not wrap, a
    text that is too long ends with an ellipsis.
    """

    said = Signal(str)
    """There is another text; this is all of it."""

    def __init__(self, *, wraps: bool = True) -> None:
        super().__init__()
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.setWordWrap(wraps)
        # A word that is too long, such as a file name, is cut off.
        self.setMinimumWidth(1)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.kind: Kind = "info"
        self.hide()

    def minimumSizeHint(self) -> QSize:
        """Return the height of all lines; outer layouts do not use `heightForWidth`."""
        height = self.heightForWidth(self.width())
        return QSize(1, max(0, height) if self.wordWrap() else super().minimumSizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw all lines, or as much of the only line as there is room for."""
        if self.wordWrap():
            super().paintEvent(event)
            return
        painter, end = QPainter(self), Qt.TextElideMode.ElideRight
        text = self.fontMetrics().elidedText(self.text(), end, self.width())
        line, role = Qt.AlignmentFlag.AlignVCenter.value, self.foregroundRole()
        self.style().drawItemText(painter, self.rect(), line, self.palette(), True, text, role)
        painter.end()

    def sizeHint(self) -> QSize:
        """Return the same height; Qt's own is that of a narrower text."""
        return self.minimumSizeHint()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Update the height for the new width."""
        super().resizeEvent(event)
        self.updateGeometry()

    def say(self, said: str | Exception, kind: Kind = "info", full: str = "") -> None:
        """Show a text or an exception, and `full` in the tooltip; an empty text hides the label."""
        text = in_words(said) if isinstance(said, str) else sentence(said)
        self.setText(text)
        self.setToolTip(full or text)
        self.setVisible(bool(text))
        if kind != self.kind:
            self.kind = kind
            self.setProperty("kind", kind)
            self.style().polish(self)
        if text:
            self.said.emit(self.toolTip())


FOR_NOTEBOOKS = re.compile(r"[;:] pass [a-z_]+=.*$| \([a-z]+_key\)$")
"""Advice on parameters: the widget has fields and buttons instead."""
PART = re.compile(r"\b(obs|uns|obsm|layers)\[(['\"])(.*?)\2\]")
WORDS = {
    "obs": "column {!r}",
    "uns": "entry {!r} (uns)",
    "obsm": "obsm: {}",
    "layers": "layers: {}",
}
"""The parts of an AnnData, as the fields of the widget call them."""


def gist(text: str) -> str:
    """Return the beginning of a notice, up to the end of the clause with its first number."""
    found = re.match(r".*?(?<!\w)\d.*?(?=[.:]( |$)|$)|.*?(?=\. |$)", text)
    return sentence(text if found is None else found[0])


def in_words(text: str) -> str:
    """Return a text in which parts of an AnnData have the names that the fields give them."""
    text = text.replace("Run ce.tl.centroid_encoder again", "Train again")
    return PART.sub(lambda part: WORDS[part[1]].format(part[3]), text)


def sentence(said: Exception | str) -> str:
    """Return the text of an exception or a warning with a capital letter and a full stop.

    It names columns as the fields of the widget do, and no parameters.
    """
    # `str` of a KeyError has quotation marks.
    text = str(said.args[0]) if isinstance(said, KeyError) and said.args else str(said)
    text = in_words(FOR_NOTEBOOKS.sub("", text or type(said).__name__))
    # Names of parameters and of parts of an AnnData keep their small letter.
    if re.match(r"(?!adata|obs|obsm|uns|var|layers)[a-z]+[\s,;]", text):
        text = text[0].upper() + text[1:]
    return text + ("" if text.endswith((".", "?", "!", "…")) else ".")

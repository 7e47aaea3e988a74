"""Labels for messages."""

from __future__ import annotations

import re
from typing import Literal

from qtpy.QtCore import QSize, Qt
from qtpy.QtGui import QMouseEvent, QResizeEvent
from qtpy.QtWidgets import QLabel, QWidget
from superqt import QElidingLabel

Kind = Literal["info", "warning", "error"]

MORE = "(more)"
"""End of a text whose last lines are hidden until a click."""


class Lines(QLabel):
    """Text in as many lines as there is room for, one at least; the tooltip has all of it.

    Rich text has all its lines always.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self._text = ""
        self._most: int | None = None
        """Lines that are shown, whatever room there is; None for all."""

    def text(self) -> str:
        """All of the text."""
        return self._text

    def setText(self, text: str | None) -> None:
        """Show a text."""
        self._text = text or ""
        self._take_room()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Break the lines anew."""
        super().resizeEvent(event)
        self._take_room()

    def hasHeightForWidth(self) -> bool:
        """Let layouts take lines away: with a height for its width it would insist on all."""
        return False

    def sizeHint(self) -> QSize:
        """Room for all lines."""
        n = len(self._lines)
        return QSize(0, self._height(n if self._most is None else min(n, self._most)))

    def minimumSizeHint(self) -> QSize:
        """Room for one line."""
        return QSize(0, self._height(1))

    @property
    def _lines(self) -> list[str]:
        parts = self._text.split("\n")
        return [
            line
            for part in parts
            for line in QElidingLabel.wrapText(part, self._width, self.font())
        ]

    @property
    def _width(self) -> int:
        # Style sheets may take some pixels of it.
        return max(self.width() - 8, 40)

    @property
    def _line(self) -> int:
        """Height of a line as it is drawn: where fonts are fractional, more than their spacing."""
        one, two = (self.fontMetrics().size(0, text).height() for text in ("A", "A\nA"))
        return max(one, two - one)

    def _height(self, n_lines: int) -> int:
        if self.wordWrap():
            return self.heightForWidth(self.width())
        return n_lines * self._line + 2

    def _take_room(self) -> None:
        is_rich = self.textFormat() == Qt.TextFormat.RichText
        self.setWordWrap(is_rich)
        lines, text = self._lines, self._text
        n = max(1, self.height() // self._line)
        more = ""
        if self._most is not None and n >= self._most:
            n, more = self._most, f" {MORE}"
        if not is_rich:
            rest = " ".join(line.strip() for line in lines[n - 1 :])
            metrics = self.fontMetrics()
            width = self._width - metrics.horizontalAdvance(more)
            last = metrics.elidedText(rest, Qt.TextElideMode.ElideRight, width) + more
            text = "\n".join(lines if len(lines) <= n else [*lines[: n - 1], last])
        super().setText(text)
        self.setToolTip("" if is_rich or len(lines) <= n else self._text)
        self.updateGeometry()


class Message(Lines):
    """Text below a part of the widget; hidden if empty.

    Parameters
    ----------
    folded
        Lines that are shown of a text that is no error, until a click shows all; None for all.

    Attributes
    ----------
    kind
        ``"info"``, ``"warning"`` or ``"error"``.
    """

    def __init__(self, parent: QWidget | None = None, *, folded: int | None = None) -> None:
        super().__init__(parent)
        self._folded = folded
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.kind: Kind = "info"
        self._colors: dict[str, str] = {}
        self.hide()

    def say(self, text: str, kind: Kind = "info") -> None:
        """Show a text, or nothing."""
        self.kind = kind
        # An error is never folded.
        self._most = None if kind == "error" else self._folded
        self.setText(text)
        self.setVisible(bool(text))
        self._paint()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        """Show all of the text, or less again."""
        super().mouseReleaseEvent(event)
        # A user who selects text may want to copy it.
        if self._folded is not None and self.kind != "error" and not self.hasSelectedText():
            self._most = self._folded if self._most is None else None
            self._take_room()

    @property
    def colors(self) -> dict[str, str]:
        """Colours by kind."""
        return self._colors

    def set_colors(self, colors: dict[str, str]) -> None:
        """Follow a theme: colours by kind."""
        self._colors = colors
        self._paint()

    def _paint(self) -> None:
        color = self._colors.get(self.kind)
        self.setStyleSheet(f"color: {color};" if color else "")


def sentence(said: Exception | str) -> str:
    """Return the text of an exception or a warning with a capital and a full stop."""
    # A plain KeyError quotes its text.
    text = str(said.args[0]) if isinstance(said, KeyError) and said.args else str(said)
    text = text or type(said).__name__
    # Parameters and parts of an AnnData keep their small letter.
    if re.match(r"(?!adata|obs|obsm|uns|var|layers)[a-z]+[\s,;]", text):
        text = text[0].upper() + text[1:]
    return text + ("" if text.endswith((".", "?", "!", "…")) else ".")

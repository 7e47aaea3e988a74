"""Text that says what is wrong, at the place where it can be mended."""

from __future__ import annotations

import re
from typing import Literal

from qtpy.QtCore import Qt
from qtpy.QtGui import QResizeEvent
from qtpy.QtWidgets import QLabel, QWidget

from centroid_encoder import errors

Kind = Literal["info", "warning", "error"]


class Lines(QLabel):
    """Text that takes as many lines as it needs in the width that it gets."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWordWrap(True)

    def setText(self, text: str | None) -> None:
        """Show a text."""
        super().setText(text or "")
        self._take_room()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Break the lines anew."""
        super().resizeEvent(event)
        self._take_room()

    def _take_room(self) -> None:
        # Left to itself, a label asks for the lines that it would need if it were wide.
        self.setMinimumHeight(0)
        if self.text():
            self.setMinimumHeight(self.heightForWidth(self.width()))


class Message(Lines):
    """Text below a part of the widget; gone when there is nothing to say.

    Attributes
    ----------
    kind
        ``"info"``, ``"warning"`` or ``"error"``.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setTextFormat(Qt.TextFormat.PlainText)
        self.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.kind: Kind = "info"
        self._colors: dict[str, str] = {}
        self.hide()

    def say(self, text: str, kind: Kind = "info") -> None:
        """Show a text, or nothing."""
        self.kind = kind
        self.setText(text)
        self.setVisible(bool(text))
        self._paint()

    def set_colors(self, colors: dict[str, str]) -> None:
        """Follow a theme: colours by kind."""
        self._colors = colors
        self._paint()

    def _paint(self) -> None:
        color = self._colors.get(self.kind)
        self.setStyleSheet(f"color: {color};" if color else "")


def sentence(said: Exception | errors.Message | str, face: errors.Face = str) -> str:
    """Return what an exception or a warning says as a sentence: with a capital and a full stop.

    Parameters
    ----------
    said
        What is to be said.
    face
        How to write parameters, advice and functions; by default in the words of Python.
    """
    match said:
        case errors.Problem():
            text = said.message.words(face)
        case errors.Message():
            text = said.words(face)
        case KeyError(args=[first, *_]):
            # Its own text is quoted.
            text = str(first)
        case _:
            text = str(said)
    text = text or type(said).__name__
    # The name of a part of an AnnData stays as it is.
    if re.match(r"(?!adata|obs|obsm|uns|var|layers)[a-z]+[\s,;]", text):
        text = text[0].upper() + text[1:]
    return text + ("" if text.endswith((".", "?", "!", "…")) else ".")

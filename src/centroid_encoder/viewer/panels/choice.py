"""A box to choose one of several Python objects in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from qtpy.QtWidgets import QComboBox, QSizePolicy, QWidget
from superqt.utils import signals_blocked


class Choice(QComboBox):
    """Combobox whose entries stand for objects, which Qt never sees.

    Parameters
    ----------
    name, tip
        What is chosen here, in a word and in a sentence.
    """

    def __init__(self, name: str, tip: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._values: list[object] = []
        self.setAccessibleName(name)
        self.setToolTip(tip)
        # Long names must not make the widget wide.
        self.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.setMinimumContentsLength(5)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def offer(self, entries: Iterable[tuple[str, object]], chosen: object) -> None:
        """Replace the entries, a text and an object each, and what is chosen; nobody is told."""
        entries = list(entries)
        self._values = [value for _, value in entries]
        with signals_blocked(self):
            self.clear()
            self.addItems([text for text, _ in entries])
            self.setCurrentIndex(self._values.index(chosen) if chosen in self._values else -1)

    @property
    def value(self) -> Any:
        """The object that is chosen, or None."""
        index = self.currentIndex()
        return self._values[index] if index >= 0 else None

    def choose(self, value: object) -> None:
        """Choose one of the objects, as the user would; nothing happens if it is not offered."""
        if value in self._values:
            self.setCurrentIndex(self._values.index(value))

"""A wheel that is turned over a panel scrolls it, whatever field happens to be beneath."""

from __future__ import annotations

from qtpy.QtCore import QEvent, QObject, Qt
from qtpy.QtWidgets import QAbstractSpinBox, QComboBox, QWidget


class WheelGuard(QObject):
    """Keeps the wheel from changing fields of a panel that do not have the focus."""

    def __init__(self, panel: QWidget) -> None:
        super().__init__(panel)
        for kind in (QComboBox, QAbstractSpinBox):
            for field in panel.findChildren(kind):
                # Else the wheel itself would give it the focus.
                field.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
                field.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Leave the event to what is around the field."""
        wheel = event.type() == QEvent.Type.Wheel
        if wheel and isinstance(watched, QWidget) and not watched.hasFocus():
            event.ignore()
            return True
        return super().eventFilter(watched, event)

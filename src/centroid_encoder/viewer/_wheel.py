"""The mouse wheel scrolls a panel and changes no field under the mouse."""

from __future__ import annotations

from qtpy.QtCore import QEvent, QObject, Qt
from qtpy.QtWidgets import QAbstractSpinBox, QComboBox, QWidget


class WheelGuard(QObject):
    """Keeps the wheel from changing fields of a panel that do not have the focus."""

    def __init__(self, panel: QWidget) -> None:
        super().__init__(panel)
        for kind in (QComboBox, QAbstractSpinBox):
            for field in panel.findChildren(kind):
                # Otherwise the wheel itself gives the field the focus.
                field.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
                field.installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Leave the wheel to the parent of a field without the focus."""
        wheel = event.type() == QEvent.Type.Wheel
        if wheel and isinstance(watched, QWidget) and not watched.hasFocus():
            event.ignore()
            return True
        return super().eventFilter(watched, event)

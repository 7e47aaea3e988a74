"""The keys of a labelling, in the image, in the map and in the dock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from napari.components import ViewerModel
from qtpy.QtCore import QEvent, QObject, Qt
from qtpy.QtGui import QKeyEvent
from qtpy.QtWidgets import QDockWidget, QMainWindow, QWidget

from centroid_encoder.viewer.data.tables import is_drawn

Act = Callable[[], object]


FIXED = {
    "0": "no label",
    "Ctrl+Z": "undo",
    "Ctrl+Shift+Z": "redo",
    "Enter": "accept",
    "N": "skip",
}
"""What keys do in every labelling."""
NAMES = {
    Qt.Key.Key_Return.value: "Enter",
    Qt.Key.Key_Enter.value: "Enter",
    Qt.Key.Key_Backspace.value: "Backspace",
    Qt.Key.Key_Delete.value: "Delete",
}
USELESS = {
    "Backspace",
    "Delete",
    *(f"Ctrl+{key}" for key in ("A", "C", "V", "X", "Delete", "Backspace")),
}
"""Keys of napari that do nothing meanwhile, as do letters and digits: they change layers. Only V,
which shows and hides the active layer, keeps its meaning."""


class Keys(QObject):
    """Handles keys in the window of a panel, before napari and the widgets do.

    Keys are handled in the window, its canvas, all docks, and the widgets of `watch`. `acts` has
    a function for each value of `FIXED`; `label` is called with the name of a class when its key
    is pressed. Other keys that switch tools of a layer, or delete what is selected, do nothing from
    `bind` to `release`. While the active layer is being edited, all keys are those of napari:
    Ctrl+Z undoes a brush stroke then.
    """

    def __init__(self, viewer: ViewerModel, panel: QWidget, label: Callable[[str], object]) -> None:
        super().__init__()
        self.acts: dict[str, Act] = {}
        self._viewer = viewer
        self._panel = panel
        self._label = label
        self._began_in_field = False
        """Whether the focus was in a field when the last key was pressed."""
        self._names: Mapping[str, str] | None = None
        """Names of the classes by their keys; None while nobody labels."""

    def watch(self, *widgets: QWidget) -> None:
        """Handle the keys that are pressed in widgets."""
        for widget in widgets:
            widget.installEventFilter(self)

    def bind(self, names: Mapping[str, str]) -> None:
        """Handle all keys, and those of the classes, in place of those before."""
        if self._names is None:  # Docks may have been added.
            window: QWidget | None = self._panel.window()
            if isinstance(window, QDockWidget):  # The dock of the panel floats.
                window = window.parentWidget()
            if isinstance(window, QMainWindow) and (image := window.centralWidget()) is not None:
                self.watch(window, *window.findChildren(QDockWidget), *image.findChildren(QWidget))
        self._names = names

    def release(self) -> None:
        """Give all keys back."""
        self._names = None

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Handle a key that is pressed in a widget, or claim it as no shortcut of a menu."""
        if isinstance(event, QKeyEvent) and isinstance(watched, QWidget) and self._is_on:
            # A field ignores Enter after its own action, and may give up the focus before the press
            # arrives here; it is no Enter for the widgets around it.
            focus, is_first = watched.focusWidget(), event.type() == QEvent.Type.ShortcutOverride
            enabled = Qt.InputMethodQuery.ImEnabled
            is_written = focus is not None and bool(focus.inputMethodQuery(enabled))
            if is_first:
                self._began_in_field = is_written
            is_written |= self._began_in_field
            if not is_written and (act := self._act(event)) is not None:
                if is_first:
                    event.accept()
                elif event.type() == QEvent.Type.KeyPress and not event.isAutoRepeat():
                    act()
                return True
        return bool(super().eventFilter(watched, event))

    @property
    def _is_on(self) -> bool:
        # The lasso of the widget leaves the keys to the labels.
        active = self._viewer.layers.selection.active
        edits = active is not None and str(active.mode) != "pan_zoom" and not is_drawn(active)
        return self._names is not None and not edits

    def _act(self, event: QKeyEvent) -> Act | None:
        """Return what a key does; None if it has no meaning here."""
        modifiers, name = event.modifiers(), NAMES.get(event.key(), event.text().upper())
        if modifiers & Qt.KeyboardModifier.AltModifier:
            return None
        if modifiers & Qt.KeyboardModifier.ControlModifier:
            shift = "Shift+" if modifiers & Qt.KeyboardModifier.ShiftModifier else ""
            name = f"Ctrl+{shift}{chr(event.key()) if event.key() < 128 else name}"
        if name in FIXED:
            return self.acts[FIXED[name]]
        if self._names is not None and name in self._names:
            return partial(self._label, self._names[name])
        is_useless = name in USELESS or (len(name) == 1 and name.isalnum() and name != "V")
        return (lambda: None) if is_useless else None

"""The keys of a labelling, in the image, in the map and in the dock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from app_model.types import KeyCode, KeyMod
from napari.components import ViewerModel
from napari.layers import Layer
from napari.utils.key_bindings import coerce_keybinding
from qtpy.QtCore import QEvent, QObject, Qt
from qtpy.QtGui import QKeyEvent
from qtpy.QtWidgets import QWidget

from centroid_encoder.viewer.data.tables import is_drawn

Act = Callable[[], object]


class Key(NamedTuple):
    """A key that has the same meaning in every labelling: its name here and in napari."""

    shown: str
    in_napari: Any
    meaning: str


FIXED = {
    "unlabel": Key("0", "0", "no label"),
    "undo": Key("Ctrl+Z", KeyMod.CtrlCmd | KeyCode.KeyZ, "undo"),
    "redo": Key("Ctrl+Shift+Z", KeyMod.CtrlCmd | KeyMod.Shift | KeyCode.KeyZ, "redo"),
    "accept": Key("Enter", "Enter", "accept"),
    "skip": Key("N", "N", "skip"),
    "back": Key("Backspace", "Backspace", "back"),
}
"""Keys by what they do."""
NAMES = {
    Qt.Key.Key_Return: "Enter",
    Qt.Key.Key_Enter: "Enter",
    Qt.Key.Key_Backspace: "Backspace",
    Qt.Key.Key_Delete: "Delete",
}


class Keys(QObject):
    """Binds keys in the active layer and the viewer, and in `watched` widgets of Qt.

    `label` is called with the name of a class when its key is pressed. `acts` has the functions of
    `FIXED` by their names. Other keys of the layer, which switch its tools or delete what is
    selected, do nothing from `bind` to `release`. All bindings of the user come back after that,
    and while the active layer is being edited: Ctrl+Z undoes a brush stroke then.
    """

    def __init__(self, viewer: ViewerModel, label: Callable[[str], object]) -> None:
        super().__init__()
        self.acts: dict[str, Act] = {}
        self._viewer = viewer
        self._label = label
        self._names: dict[str, str] = {}
        """Names of the classes by their keys."""
        self._is_on = False
        self._followed: Layer | None = None
        """The active layer, whose mode decides whether keys are bound."""
        self._bound: list[tuple[Layer | ViewerModel, Any, Any]] = []
        """Layer or viewer, a key, and the user's function that had it before, or None."""

    def watch(self, *widgets: QWidget) -> None:
        """Handle the keys that are pressed in widgets, too."""
        for widget in widgets:
            widget.installEventFilter(self)

    def bind(self, names: Mapping[str, str]) -> None:
        """Bind all keys, and those of the classes, in place of those bound before."""
        if self._is_on and names == self._names:
            return
        self._names = dict(names)
        if not self._is_on:
            self._is_on = True
            self._viewer.layers.selection.events.active.connect(self._on_active)
        self._on_active()

    def release(self) -> None:
        """Give all keys back."""
        if self._is_on:
            self._is_on = False
            self._viewer.layers.selection.events.active.disconnect(self._on_active)
            self._unbind()

    def press(self, event: QKeyEvent) -> bool:
        """Handle a key of Qt; return whether it has a meaning now."""
        if not self._is_on:
            return False
        modifiers, name = event.modifiers(), NAMES.get(Qt.Key(event.key()), event.text().upper())
        if modifiers & Qt.KeyboardModifier.ControlModifier:
            shift = "Shift+" if modifiers & Qt.KeyboardModifier.ShiftModifier else ""
            name = f"Ctrl+{shift}{chr(event.key()) if event.key() < 128 else ''}"
        acts = {key.shown: self.acts[x] for x, key in FIXED.items() if x in self.acts}
        act = (self._classes() | acts).get(name)
        if act is not None and not event.isAutoRepeat():
            act()
        return act is not None

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """Handle a key that is pressed in a widget."""
        if event.type() == QEvent.Type.KeyPress and isinstance(event, QKeyEvent):
            return self.press(event)
        return bool(super().eventFilter(watched, event))

    def _classes(self) -> dict[str, Act]:
        return {key: partial(self._label, name) for key, name in self._names.items()}

    def _on_active(self, _: object = None) -> None:
        self._unbind()
        active = self._viewer.layers.selection.active
        if active is not None:
            active.events.mode.connect(self._on_active)
            self._followed = active
            # The lasso of the widget leaves the keys to the labels.
            if str(active.mode) != "pan_zoom" and not is_drawn(active):
                return
        # napari looks for a key in the active layer first, and that need not be the layer of cells.
        for place in (self._viewer, *((active,) if isinstance(active, Layer) else ())):
            own = [key for kind in type(place).__mro__ for key in getattr(kind, "class_keymap", ())]
            if place is self._viewer:
                own = [key for key in own if {"Delete", "Backspace"} & set(str(key).split("+"))]
            acts: dict[Any, Act] = dict.fromkeys(map(coerce_keybinding, own), _do_nothing)
            acts |= {coerce_keybinding(key): act for key, act in self._classes().items()}
            for name, fixed in FIXED.items():
                acts[coerce_keybinding(fixed.in_napari)] = self.acts.get(name, _do_nothing)
            for key, act in acts.items():
                before = place.bind_key(key, _without_layer(act), overwrite=True)
                self._bound.append((place, key, before))

    def _unbind(self) -> None:
        if self._followed is not None:
            self._followed.events.mode.disconnect(self._on_active)
            self._followed = None
        for place, key, before in self._bound:
            place.bind_key(key, before, overwrite=True)
        self._bound.clear()


def _do_nothing() -> None:
    """Stand for a key that is out of use."""


def _without_layer(act: Act) -> Callable[[object], None]:
    def pressed(_: object) -> None:
        act()

    return pressed

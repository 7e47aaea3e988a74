"""Following the layers of a viewer, and what of them may change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from napari.layers import Layer
from psygnal import Signal

if TYPE_CHECKING:
    from napari.components import LayerList

LAYERS = ("inserted", "removed", "reordered")
"""Events of the list of layers after which tables and layers are looked for again."""
PLACES = ("name", "features", "metadata")
"""Events of a layer after which they are, too; a change inside of the metadata tells nobody."""
IDS = ("data", "labels_update")
"""Events of a layer that may have other ids now."""
SCALE = ("scale",)
"""Event of a layer whose pixels are of another size now."""


class LayerWatch:
    """Tells when layers come, go or change, from `connect` to `disconnect`.

    Parameters
    ----------
    layers
        The viewer's layers.
    """

    stirred = Signal()
    """Layers have come, gone or changed."""
    ids_changed = Signal(object)
    """A layer may have other ids now."""
    scaled = Signal(object)
    """A layer's pixels are of another size now."""

    def __init__(self, layers: LayerList) -> None:
        self._all = layers
        self._watched: list[Layer] = []

    def connect(self) -> None:
        """Listen to the list of layers; to each of them after `follow`."""
        for name in LAYERS:
            self._all.events[name].connect(self._on_layers)

    def disconnect(self) -> None:
        """Listen no longer."""
        for name in LAYERS:
            self._all.events[name].disconnect(self._on_layers)
        self.follow([])

    def follow(self, layers: Iterable[Layer]) -> None:
        """Listen to these layers, and to no others."""
        layers = list(layers)
        for layer in self._watched:
            if layer not in layers:
                self._each(layer, "disconnect")
        for layer in layers:
            if layer not in self._watched:
                self._each(layer, "connect")
        self._watched = layers

    def _each(self, layer: Layer, do: str) -> None:
        slots = (PLACES, self._on_layers), (IDS, self._on_ids), (SCALE, self._on_scale)
        for names, slot in slots:
            for name in names:
                if name in layer.events:
                    getattr(layer.events[name], do)(slot)

    def _on_layers(self, _: Any) -> None:
        self.stirred.emit()

    def _on_ids(self, event: Any) -> None:
        self.ids_changed.emit(event.source)

    def _on_scale(self, event: Any) -> None:
        self.scaled.emit(event.source)

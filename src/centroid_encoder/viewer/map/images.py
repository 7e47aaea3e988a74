"""The layers of one image among those of others, which may lie in the same place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import numpy as np
from napari.layers import Image, Labels, Layer, Shapes

from centroid_encoder.viewer.data.images import specific_words
from centroid_encoder.viewer.data.tables import is_drawn

if TYPE_CHECKING:
    from napari.components import ViewerModel

_HIDDEN: WeakSet[Layer] = WeakSet()
"""Layers that were hidden to show others in the same place."""


class ImageLayers:
    """The layer of the cells of an image, and the Image layers that have its name.

    Parameters
    ----------
    viewer
        The viewer.
    layer
        The layer of the cells.
    name
        What the table calls the image; empty if there is only one.
    """

    def __init__(self, viewer: ViewerModel, layer: Layer, name: str) -> None:
        self.viewer = viewer
        self.layer = layer
        self.name = name

    @property
    def stains(self) -> list[Layer]:
        """The Image layers."""
        names = (self.name, self.layer.name) if self.name else ()
        words = [w for w in map(specific_words, names) if w]
        layers = self.viewer.layers
        return [
            x
            for x in layers
            if isinstance(x, Image) and any(map(specific_words(x.name).issuperset, words))
        ]

    def is_elsewhere(self, event: Any) -> bool:
        """Tell whether the mouse is in a part of napari's grid that does not show the layer."""
        grid, layers = self.viewer.canvas.grid, self.viewer.layers
        if not grid.enabled or self.layer not in layers:
            return False
        shown = [self.layer, *self.stains]
        places = [grid.position(layers.index(layer), layers) for layer in shown]
        return getattr(event, "viewbox", None) not in places

    def is_covered(self, other: ImageLayers, event: Any) -> bool:
        """Tell whether another image is seen where the mouse is, above this one."""
        layers = self.viewer.layers
        if other.layer not in layers:
            return False
        own = layers.index(self.layer)
        above = [x for x in (other.layer, *other.stains) if x.visible and layers.index(x) > own]
        return any(
            value_at(layer, event) not in (None, 0) if isinstance(layer, Labels) else
            _hides(layer) and value_at(layer, event) is not None and layer not in self.stains
            for layer in above
        )  # fmt: skip

    def reveal(self, others: list[ImageLayers]) -> None:
        """Make the image visible, and hide others that lie in the same place."""
        shown = [self.layer, *self.stains]
        in_grid = self.viewer.canvas.grid.enabled
        for other in [] if in_grid else others:
            for layer in (other.layer, *other.stains):
                if layer.visible and layer not in shown and _overlap(self.layer, layer):
                    layer.visible = False
                    _HIDDEN.add(layer)
        for layer in shown:
            if layer in _HIDDEN:
                layer.visible = True
                _HIDDEN.discard(layer)
        self.layer.visible = True
        if self.stains and not any(layer.visible for layer in self.stains):
            for layer in self.stains:
                layer.visible = True
        if not in_grid:
            self._lift(shown)

    def _lift(self, shown: list[Layer]) -> None:
        """Put the image above others that would hide it."""
        layers = self.viewer.layers
        above = list(layers)[layers.index(self.layer) + 1 :]
        hiding = [x for x in above if isinstance(x, Image) and x.visible and _hides(x)]
        if self.name and any(x not in shown and _overlap(self.layer, x) for x in hiding):
            drawn = [x for x in above[:2] if is_drawn(x)]
            moved = sorted(map(layers.index, [*shown, *drawn]))
            layers.move_multiple(moved, len(layers))


def bring_back(viewer: ViewerModel) -> None:
    """Show again what was hidden to show others."""
    for layer in [layer for layer in viewer.layers if layer in _HIDDEN]:
        layer.visible = True
        _HIDDEN.discard(layer)


def value_at(layer: Layer, event: Any) -> Any:
    """Value of a layer where the mouse is; None outside."""
    value = layer.get_value(
        event.position,
        view_direction=event.view_direction,
        dims_displayed=event.dims_displayed,
        world=True,
    )
    if not isinstance(value, tuple):
        return value
    # (shape, vertex), or (level, value) of a multiscale image
    return value[0 if isinstance(layer, Shapes) else -1]


def _hides(layer: Layer) -> bool:
    """Tell whether what lies beneath an image is not seen."""
    return layer.opacity == 1 and str(layer.blending) not in ("additive", "minimum")


def _overlap(one: Layer, other: Layer) -> bool:
    """Tell whether two layers lie in the same place, also along axes with a slider."""
    (low, high), (bottom, top) = one.extent.world, other.extent.world
    n = min(len(low), len(bottom))
    return bool(np.all((low[-n:] <= top[-n:]) & (bottom[-n:] <= high[-n:])))

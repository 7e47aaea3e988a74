"""Colours that are lent to a layer, which gets its own back in the end.

Not a layer of our own above it: the layer's own colours would shine through, and a layer that is
hidden can neither be painted on nor picked from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from napari.layers import Labels, Layer
from napari.utils.colormaps.standardize_color import transform_color
from numpy.typing import NDArray

from centroid_encoder.viewer.data.ids import CellLayer, ItemLayer

Give = Callable[[Any, Any], None]
"""Gives a layer its own colours in place of those that it was lent. It does not hold the layer."""

CLEAR = 0.7
"""Opacity of labels below which colours cannot be told apart over an image."""

_LENT: WeakKeyDictionary[Layer, tuple[Any, Give, float]] = WeakKeyDictionary()
"""What each layer has been lent last, how it gets its own back, and its own opacity. Shared by all
widgets: the colours that one of them finds may be those that another has lent."""


def lend(layer: CellLayer, colors: Any) -> Any:
    """Give a layer other colours: a colour map for labels, (n, 4) face colours for others.

    Labels that are too pale for colours to be told apart become clearer.

    Returns
    -------
    Any
        What `take_back` wants.
    """
    lent, give, opacity = _LENT.get(layer, (None, None, layer.opacity))
    # Colours that the user has chosen meanwhile are the layer's own now.
    if give is None or not _shows(layer, lent):
        give = _item_colors(layer) if isinstance(layer, ItemLayer) else _label_colors(layer)
    if isinstance(layer, ItemLayer):
        layer.face_color = colors
        lent = layer.face_color.copy()
    else:
        layer.colormap = lent = colors
        if layer not in _LENT:
            layer.opacity = max(opacity, CLEAR)
    _LENT[layer] = lent, give, opacity
    return lent


def take_back(layer: CellLayer, lent: Any) -> None:
    """Give a layer its own colours and opacity, unless others have been lent or chosen since."""
    latest, give, opacity = _LENT.get(layer, (None, None, layer.opacity))
    if give is None or lent is None or lent is not latest:
        return
    del _LENT[layer]
    if isinstance(layer, Labels) and layer.opacity == max(opacity, CLEAR):
        layer.opacity = opacity
    if _shows(layer, lent):
        give(layer, lent)


def _label_colors(layer: Labels) -> Give:
    shown = layer.colormap
    # What "direct" in the layer's controls means, shown or not: napari has no public name for it,
    # and replaces it when another one is shown.
    direct = getattr(layer, "_direct_colormap", shown)

    def give(layer: Labels, _: object) -> None:
        layer.colormap = direct
        if layer.show_selected_label:
            # It may be another one by now.
            shown.selection = layer.selected_label
        shown.use_selection = layer.show_selected_label
        layer.colormap = shown

    return give


def _item_colors(layer: ItemLayer) -> Give:
    mode, colors = str(layer.face_color_mode), layer.face_color.copy()
    current, features = layer.current_face_color, set(layer.features)

    def give(layer: ItemLayer, lent: NDArray[np.floating]) -> None:
        # Items that are added take the colour of those that were selected last.
        if _among(transform_color(layer.current_face_color), lent):
            with layer.block_update_properties():
                layer.current_face_color = current
        # Items are added at the end; which ones were removed, nothing tells.
        n = min(len(colors), len(layer.data))
        face = layer.face_color.copy()
        face[:n] = colors[:n]
        layer.face_color = face
        # The layer still knows which feature its colours stood for, unless that is gone.
        if mode != "direct" and features <= set(layer.features):
            layer.face_color_mode = mode
            layer.refresh_colors()

    return give


def _shows(layer: CellLayer, lent: Any) -> bool:
    """Whether a layer still has the colours that it was lent."""
    if not isinstance(layer, ItemLayer):
        return layer.colormap is lent
    # Some items may have been added, removed or painted.
    return str(layer.face_color_mode) == "direct" and _among(layer.face_color, lent)


def _among(colors: NDArray[np.floating], lent: NDArray[np.floating]) -> bool:
    return bool(np.isin(_packed(colors), _packed(lent)).any())


def _packed(colors: NDArray[np.floating]) -> NDArray[np.int64]:
    """One number for each colour."""
    numbers: NDArray[np.int64] = np.rint(colors * 255).astype(np.int64) @ 256 ** np.arange(4)
    return numbers

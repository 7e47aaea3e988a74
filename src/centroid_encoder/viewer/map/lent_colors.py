"""Colours that are lent to a layer, which gets its own back in the end."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from napari.layers import Labels, Layer, Points
from numpy.typing import NDArray

_LENT: WeakKeyDictionary[Layer, tuple[Any, Any]] = WeakKeyDictionary()
"""What each layer has been lent last, and its own. Shared by all widgets: the colours that one of
them finds may be those that another has lent."""


def lend(layer: Labels | Points, colors: Any) -> Any:
    """Give a layer other colours: a colour map for labels, (n, 4) face colours for points.

    Returns
    -------
    Any
        What `take_back` wants.
    """
    lent, own = _LENT.get(layer, (None, None))
    # Colours that the user has chosen meanwhile are the layer's own now.
    if lent is None or not _shows(layer, lent):
        own = _own(layer)
    if isinstance(layer, Points):
        layer.face_color = colors
        lent = layer.face_color.copy()
    else:
        layer.colormap = lent = colors
    _LENT[layer] = lent, own
    return lent


def take_back(layer: Labels | Points, lent: Any) -> None:
    """Give a layer its own colours, unless others have been lent or chosen since."""
    latest, own = _LENT.get(layer, (None, None))
    if lent is None or lent is not latest:
        return
    del _LENT[layer]
    if not _shows(layer, lent):
        return
    if isinstance(layer, Points):
        _restore_points(layer, lent, **own)
    else:
        direct, colormap = own
        layer.colormap = direct
        if layer.show_selected_label:
            # It may be another one by now.
            colormap.selection = layer.selected_label
        colormap.use_selection = layer.show_selected_label
        layer.colormap = colormap


def _shows(layer: Labels | Points, lent: Any) -> bool:
    """Whether a layer still has the colours that it was lent."""
    if not isinstance(layer, Points):
        return layer.colormap is lent
    # Some points may have been added, removed or painted.
    return str(layer.face_color_mode) == "direct" and _among(layer.face_color, lent)


def _among(colors: NDArray[np.floating], lent: NDArray[np.floating]) -> bool:
    return bool(np.isin(_packed(colors), _packed(lent)).any())


def _packed(colors: NDArray[np.floating]) -> NDArray[np.int64]:
    """One number for each colour."""
    numbers: NDArray[np.int64] = np.rint(colors * 255).astype(np.int64) @ 256 ** np.arange(4)
    return numbers


def _own(layer: Labels | Points) -> Any:
    if isinstance(layer, Points):
        face = layer._face
        return {
            "mode": str(layer.face_color_mode),
            "colors": layer.face_color.copy(),
            "properties": face.color_properties,
            "current": face.current_color,
        }
    # The one that "direct" in the layer's controls means is replaced, too.
    return layer._direct_colormap, layer.colormap


def _restore_points(
    layer: Points,
    lent: NDArray[np.floating],
    *,
    mode: str,
    colors: NDArray[np.floating],
    properties: Any,
    current: Any,
) -> None:
    # Points that are added take the colour of those that were selected last.
    if current is not None and _among(layer._face.current_color[None], lent):
        with layer.block_update_properties():
            layer.current_face_color = current
    if mode != "direct" and properties.name in layer.features:
        values = layer.features[properties.name].to_numpy()
        layer._face.color_properties = {
            "name": properties.name,
            "values": values,
            "current_value": properties.current_value,
        }
        layer.face_color_mode = mode
        return
    # Points are added at the end; which ones were removed, nothing tells.
    n = min(len(colors), len(layer.data))
    face = layer.face_color.copy()
    face[:n] = colors[:n]
    layer.face_color = face

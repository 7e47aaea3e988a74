"""Colours and opacity that are lent to a layer, which gets its own back in the end.

A layer that is not visible could neither be painted on nor picked from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
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


class _Loan(NamedTuple):
    """What a layer has been lent last, and what is its own."""

    token: Any
    """What the last borrower was given."""
    colors: Any
    """The colours that were lent; None if it has its own."""
    give: Give
    own_opacity: float
    opacity: float
    """The one that was lent."""


_LENT: WeakKeyDictionary[Layer, _Loan] = WeakKeyDictionary()
"""Shared by all widgets: the colours that one of them finds may be those that another has lent."""


def lend(layer: CellLayer, colors: Any) -> Any:
    """Give a layer other colours: a colour map for labels, (n, 4) face colours for others.

    Labels that are too pale for colours to be told apart become clearer.

    Returns
    -------
    Any
        What `take_back` wants.
    """
    loan = _LENT.get(layer)
    # Colours that the user has chosen meanwhile are the layer's own now.
    if loan is not None and loan.colors is not None and _shows(layer, loan.colors):
        give = loan.give
    else:
        give = _item_colors(layer) if isinstance(layer, ItemLayer) else _label_colors(layer)
    if isinstance(layer, ItemLayer):
        layer.face_color = colors
        lent = layer.face_color.copy()
        _LENT[layer] = _Loan(lent, lent, give, layer.opacity, layer.opacity)
    else:
        layer.colormap = lent = colors
        own, opacity = _lend_opacity(layer, loan, at_least=CLEAR)
        _LENT[layer] = _Loan(lent, lent, give, own, opacity)
    return lent


def hide(layer: Labels) -> tuple[Any, float]:
    """Make labels transparent, as they are then as quick to draw as before, and can be picked.

    Returns
    -------
    lent
        What `take_back` wants.
    opacity
        Of what is shown in their place.
    """
    loan, token = _LENT.get(layer), object()
    own, opacity = _lend_opacity(layer, loan, at_most=0.0)
    colors, give = (None, _keep) if loan is None else (loan.colors, loan.give)
    _LENT[layer] = _Loan(token, colors, give, own, opacity)
    return token, max(own, CLEAR)


def take_back(layer: CellLayer, lent: Any) -> None:
    """Give a layer its own colours and opacity, unless others have been lent or chosen since."""
    loan = _LENT.get(layer)
    if loan is None or lent is None or lent is not loan.token:
        return
    del _LENT[layer]
    if layer.opacity == loan.opacity != loan.own_opacity:
        layer.opacity = loan.own_opacity
    if loan.colors is not None and _shows(layer, loan.colors):
        loan.give(layer, loan.colors)


def _lend_opacity(
    layer: Labels, loan: _Loan | None, at_least: float = 0.0, at_most: float = 1.0
) -> tuple[float, float]:
    """Return the layer's own opacity and the one that is lent, unless the user has chosen one."""
    if loan is not None and layer.opacity != loan.opacity:
        return loan.own_opacity, loan.opacity
    own = layer.opacity if loan is None else loan.own_opacity
    layer.opacity = min(max(own, at_least), at_most)
    return own, layer.opacity


def _keep(layer: Any, colors: Any) -> None:
    """Leave a layer as it is."""


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

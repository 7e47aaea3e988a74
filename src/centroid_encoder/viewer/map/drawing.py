"""Layers of our own above those of the cells."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from functools import cache
from threading import Thread
from typing import Any

import numpy as np
from napari.components import ViewerModel
from napari.layers import Labels, Layer
from napari.utils.colormaps import DirectLabelColormap
from numpy.typing import ArrayLike, NDArray

from centroid_encoder.viewer.data.tables import DRAWN

OUTLINE = 2
"""Width of the outline of selected cells in pixels of the image: seen from afar, too."""
TRANSPARENT = (0.0, 0.0, 0.0, 0.0)


class Drawing:
    """A Labels layer of our own, in the viewer while there is something to show."""

    def __init__(self, viewer: ViewerModel) -> None:
        self.viewer = viewer
        self.layer: Labels | None = None
        self._colors: dict[int | None, Any] = {}

    @property
    def is_shown(self) -> bool:
        """Whether it is in the viewer, from which the user may remove it."""
        return self.layer is not None and self.layer in self.viewer.layers

    def show(
        self,
        data: Any,
        name: str,
        colors: dict[int | None, Any],
        above: Layer,
        opacity: float = 1.0,
        contour: int = 0,
    ) -> None:
        """Show data in place of what was shown before, else above a layer that it lies on."""
        if self.layer is not None and self.is_shown:
            self.layer.data, self.layer.name = data, name
            # Each change is drawn, and outlines are then found anew.
            if colors != self._colors:
                self.layer.colormap, self._colors = label_colormap(colors), colors
            return
        same = ("multiscale", "scale", "translate", "rotate", "shear", "affine", "units")
        self._colors = colors
        self.layer = Labels(
            data,
            name=name,
            colormap=label_colormap(colors),
            opacity=opacity,
            metadata={DRAWN: True},
            **{attribute: getattr(above, attribute) for attribute in same},
        )
        layers = self.viewer.layers
        # The user's choice of layers stays as it is.
        selection, active = set(layers.selection), layers.selection.active
        layers.insert(layers.index(above) + 1, self.layer)
        layers.selection = selection
        layers.selection.active = active
        # Not before: outlines would be found twice.
        self.layer.contour = contour

    def set_visible(self, visible: bool) -> None:
        """Hide the layer, or show it again."""
        if self.layer is not None and self.layer.visible != visible:
            self.layer.visible = visible

    def remove(self) -> None:
        """Show nothing."""
        layer, self.layer = self.layer, None
        if layer is not None and layer in self.viewer.layers:
            self.viewer.layers.remove(layer)


def remove(drawings: Iterable[Drawing]) -> None:
    """Show none of these any longer.

    After each layer that goes napari tidies up for a third of a second; of several at once, after
    all of them. It must have done so before others get new colours.
    """
    shown = [drawing for drawing in drawings if drawing.is_shown]
    together = shown[0].viewer.layers.batched_update() if len(shown) > 1 else nullcontext()
    with together:
        for drawing in shown:
            drawing.remove()


def outlines(marked: NDArray[np.integer]) -> NDArray[np.integer]:
    """Those of the marked pixels of a 2-D image that are at most `OUTLINE` from one that is not.

    What is beyond the rim is taken for what is at it, as in napari's own outlines.
    """
    inside = marked > 0
    for _ in range(OUTLINE):
        within = inside.copy()
        within[1:] &= inside[:-1]
        within[:-1] &= inside[1:]
        within[:, 1:] &= inside[:, :-1]
        within[:, :-1] &= inside[:, 1:]
        inside = within
    return np.where(inside, 0, marked)


def label_colormap(colors: dict[int | None, Any]) -> DirectLabelColormap:
    """Colours of some labels; all others cannot be seen."""
    return DirectLabelColormap(color_dict=colors | {None: TRANSPARENT, 0: TRANSPARENT})


class NoColors(DirectLabelColormap):  # type: ignore[misc]
    """No label can be seen.

    napari would look up each pixel of the image to find that out.
    """

    def __init__(self) -> None:
        super().__init__(color_dict={None: TRANSPARENT, 0: TRANSPARENT})

    def map(self, values: ArrayLike) -> NDArray[np.float32]:
        """Return the colours of labels."""
        return np.zeros((*np.shape(values), 4), dtype=np.float32)

    def _data_to_texture(self, values: Any) -> Any:
        # Types of up to two bytes go to the graphics card as they are.
        if isinstance(values, np.ndarray) and values.dtype.itemsize > 2:
            return np.zeros(values.shape, dtype=np.uint8)
        return super()._data_to_texture(values)


@cache
def get_ready() -> None:
    """Have napari compile in a thread what maps labels to colours: it takes a second, once."""
    colors, labels = label_colormap({1: TRANSPARENT}), np.zeros(1, dtype=np.uint8)
    Thread(target=colors.map, args=(labels,), daemon=True).start()

"""One figure of the image and the map, as they are on the screen."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from napari import Viewer

from centroid_encoder.viewer.map.canvas import MapCanvas
from centroid_encoder.viewer.session.session import Session

INCHES = 4.5
"""Height of the figure."""


def on_screen(viewer: Viewer, canvas: MapCanvas, session: Session) -> Figure:
    """Return a figure of the image with a scale bar, and the map with the classes."""
    drawn = np.array(canvas.canvas.buffer_rgba())  # type: ignore[no-untyped-call]
    left, bottom, right, top = np.rint(canvas.map.ax.bbox.extents).astype(int)
    drawn = drawn[len(drawn) - top : len(drawn) - bottom, left:right]
    bar = viewer.canvas.overlays.scale_bar
    before, bar.visible = bar.visible, True
    try:
        image = viewer.screenshot(canvas_only=True, flash=False)
    finally:
        bar.visible = before
    ratios = [pixels.shape[1] / pixels.shape[0] for pixels in (image, drawn)]
    figure = Figure(figsize=(INCHES * sum(ratios), INCHES))
    places: Any = figure.subplots(1, 2, gridspec_kw={"width_ratios": ratios, "wspace": 0.02})
    for ax, pixels in zip(places, (image, drawn), strict=True):
        ax.imshow(pixels)
        ax.set_axis_off()
    places[1].set_title(canvas.title.text(), fontsize=9, parse_math=False)
    colors = session.class_colors
    marks = [Line2D([], [], ls="", marker="o", color=color) for color in colors.values()]
    figure.legend(
        marks, list(map(str, colors)), loc="center left", bbox_to_anchor=(0.91, 0.5), frameon=False
    )
    return figure

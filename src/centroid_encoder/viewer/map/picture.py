"""One figure of the image and the map, as they are on the screen."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from napari import Viewer

from centroid_encoder.viewer.map import colorings
from centroid_encoder.viewer.map.canvas import MapCanvas
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import LABEL

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
    _explain(figure, places[1], session)
    return figure


def _explain(figure: Figure, ax: Any, session: Session) -> None:
    """Add a legend of the colours that are shown, or a scale of the numbers."""
    way, colors = colorings.chosen(session), colorings.shown_colors(session)
    title = "" if way == LABEL else colorings.to_choose(session)[way]
    if colors is not None and colors.values is not None:
        shades = ScalarMappable(Normalize(*colors.scale), ListedColormap(colors.colors))
        figure.colorbar(shades, ax=ax, label=title, fraction=0.05)
        return
    key = [] if colors is None else [(text, color) for color, text in colors.key]
    if way in (LABEL, colorings.PREDICTED, colorings.NO_COLORS):
        key = [*((str(name), color) for name, color in session.class_colors.items()), *key]
    marks = [Line2D([], [], ls="", marker="o" if color else "", color=color) for _, color in key]
    names, beside = [text for text, _ in key], (0.91, 0.5)
    figure.legend(
        marks, names, title=title, loc="center left", bbox_to_anchor=beside, frameon=False
    )

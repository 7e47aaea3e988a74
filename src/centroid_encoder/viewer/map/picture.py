"""One figure of the image and the map, as they are on the screen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from napari import Viewer
from numpy.typing import NDArray

INCHES = 4.5
"""Height of the figure."""


def picture(
    viewer: Viewer, drawn: NDArray[np.uint8], title: str, colors: Mapping[str, str]
) -> Figure:
    """Return a figure of the viewer's canvas with a scale bar, and the drawn map with a legend."""
    bar = viewer.scale_bar
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
    places[1].set_title(title, fontsize=9, parse_math=False)
    marks = [Line2D([], [], ls="", marker="o", color=color) for color in colors.values()]
    figure.legend(marks, list(colors), loc="center left", bbox_to_anchor=(0.91, 0.5), frameon=False)
    return figure

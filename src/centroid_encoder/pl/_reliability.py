"""The reliability page: the map beside all figures and numbers that evaluate it."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from anndata import AnnData
from matplotlib.figure import Figure

from centroid_encoder.errors import InputError, MissingKeyError
from centroid_encoder.pl._axes import Save, check_save, finish
from centroid_encoder.pl._calibration import calibration
from centroid_encoder.pl._colors import Palette
from centroid_encoder.pl._confusion import confusion
from centroid_encoder.pl._permutation_test import permutation_test
from centroid_encoder.pl._regions import Drawn
from centroid_encoder.pl._voronoi import SPLITS, voronoi
from centroid_encoder.tl import _result
from centroid_encoder.tl._result import Result
from centroid_encoder.tl._summary import summary

PYTHON = re.compile("[;:] (run|pass|train) .*", re.DOTALL)
"""Advice for notebooks, which does not belong on a page."""
MAX_ENTRIES = 45  # classes in a legend; with more there is no room for the map
MAX_LETTERS = 66  # in a line of a title, which would otherwise reach the next figure


def reliability(
    adata: AnnData,
    *,
    key: str = "ce",
    regions: Drawn | None = "soft",
    palette: Palette | None = None,
    show: bool | None = None,
    save: Save = None,
    dpi: float | None = None,
) -> Figure | None:
    """Draw one page with the map and everything that shows how reliable it is.

    The upper half has `voronoi` and a text with the numbers, the lower half `confusion`,
    `calibration` and `permutation_test`. A text replaces a figure that cannot be drawn. The page is
    returned, or None if it was shown. Errors are as in `voronoi`.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.centroid_encoder`, `ce.tl.cross_validate` or, best, both.
    key, regions, palette, show, save, dpi
        As in `voronoi`.
    """
    path = check_save("reliability", save, dpi, own=True)
    result, is_validated = None, _result.StoredCrossValidation.read(adata, key) is not None
    if not is_validated or _result.StoredMap.read(adata, key) is not None:
        result = _result.read_result(adata, key, trained=True)
    # In inches for a font of ten points.
    size = np.multiply((15, 9.6), plt.rcParams["font.size"] / 10)
    figure: Any = plt.figure(figsize=tuple(size), layout="constrained")
    above, beneath = figure.add_gridspec(2, 1, hspace=0.08)
    try:
        words = _draw_map(figure, above, adata, result, regions=regions, palette=palette)
        # Separate grids, so that long names of classes do not make other figures smaller.
        left, right = beneath.subgridspec(1, 2, wspace=0.04, width_ratios=(1.3, 2))
        plots: tuple[Any, ...] = confusion, calibration, permutation_test
        for place, plot in zip((left, *right.subgridspec(1, 2)), plots, strict=True):
            ax = figure.add_subplot(place)
            try:
                plot(adata, key=key, ax=ax, show=False, save=False)
            except (InputError, MissingKeyError) as error:
                _replace(ax, PYTHON.sub("", str(error)))
            else:
                lines = [textwrap.fill(x, MAX_LETTERS) for x in ax.get_title().split("\n")]
                ax.title.set_text("\n".join(lines))
        _write(figure.add_subplot(words), summary(adata, key))
    except BaseException:
        plt.close(figure)
        raise
    return finish(figure, show=show, path=path, dpi=dpi, own=True)


def _draw_map(
    figure: Any, place: Any, adata: AnnData, result: Result | None, **options: Any
) -> Any:
    """Draw the panels of `voronoi`, or a text instead; return the grid cell beside them."""
    if result is None or result.embedding.shape[1] > 2:
        places = place.subgridspec(1, 3)
        absent = "There is no map yet." if result is None else "Only 1-D and 2-D maps are drawn."
        _replace(figure.add_subplot(places[:2]), absent)
        return places[2]
    n_panels = sum((result.split == panel).any() for panel in SPLITS)
    *places, beside = place.subgridspec(1, n_panels + 1, wspace=0.04)
    axes = [figure.add_subplot(one) for one in places]
    options["legend_loc"] = "on data" if len(result.classes) > MAX_ENTRIES else "right margin"
    voronoi(adata, key=result.key, ax=axes, show=False, save=False, **options)
    return beside


def _replace(ax: Any, text: str) -> None:
    """Write a text instead of a figure."""
    ax.clear()
    ax.set(xticks=[], yticks=[])
    ax.spines[:].set(linestyle=":", color="0.5")
    style = {"ha": "center", "va": "center", "color": "0.5", "linespacing": 1.5}
    ax.text(0.5, 0.5, textwrap.fill(text, 40), transform=ax.transAxes, parse_math=False, **style)


def _write(ax: Any, sentences: list[str]) -> None:
    """Write sentences instead of a figure, in the largest font in which they fit."""
    ax.set_axis_off()
    # A space that keeps a number and its unit in one line.
    words = "\n\n".join(sentences).replace(" %", "\u00a0%")
    style = {"linespacing": 1.35, "va": "center", "in_layout": False, "parse_math": False}
    text = ax.text(0, 0.5, words, transform=ax.transAxes, wrap=True, **style)
    ax.figure.draw_without_rendering()
    while text.get_window_extent().height > ax.get_window_extent().height:
        text.set_fontsize(0.9 * text.get_fontsize())

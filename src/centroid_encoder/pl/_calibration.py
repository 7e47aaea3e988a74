"""Reliability diagram: how often a prediction is right against how confident it is."""

from __future__ import annotations

import numbers
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray
from scipy.stats import binomtest

from centroid_encoder.core.calibration import calibration_bins
from centroid_encoder.errors import InputError
from centroid_encoder.pl._axes import (
    Save,
    count_words,
    figure_writer,
    finish,
    new_axes,
    write_title,
)
from centroid_encoder.pl._colors import unlabeled_color
from centroid_encoder.tl._result import HeldOut, read_held_out
from centroid_encoder.tl._summary import interval_words

if TYPE_CHECKING:
    from anndata import AnnData
    from matplotlib.axes import Axes

STRIP = 0.2
"""Height of the histogram, as a share of the diagram above it."""
MOST_BINS = 1000
"""More points than the page has dots beside each other."""


def calibration(
    adata: AnnData,
    *,
    key: str = "ce",
    n_bins: int = 10,
    title: str | None = None,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
    dpi: float | None = None,
) -> Axes | None:
    """Plot how often a prediction is right against how confident it is: a reliability diagram.

    Points on the diagonal mean what they say: of the cells with confidence 80 %, 80 % are right.
    Bars are 95 % intervals (Wilson), the histogram beneath shows where the cells are. From the
    out-of-fold predictions where there has been a cross-validation, else from the held-out cells.
    The error in the title, with its 95 % interval, is the one that was stored when the confidences
    were computed.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.cross_validate` or `ce.tl.centroid_encoder`.
    key
        Name of the results, as given to `key_added`.
    n_bins
        Number of points, from 1 to 1000. Each stands for equally many cells: confidences crowd near
        100 %, and bins of equal width would leave most points to a handful of cells.
    title
        In place of the default.
    ax, show, save, dpi
        As in `voronoi`.

    Returns
    -------
    Axes | None
        None if shown; else the axes.

    Raises
    ------
    KeyError
        If there is no result under that key, or if a column that belongs to it is gone.
    ValueError
        If there is no cell with a confidence, if the labels are no longer those of the result, or
        if an argument is not valid.
    """
    if not (isinstance(n_bins, numbers.Integral) and 1 <= n_bins <= MOST_BINS):
        wanted = f"a whole number from 1 to {MOST_BINS}"
        raise InputError(f"n_bins must be {wanted}; got {n_bins!r}", "n_bins")
    write = figure_writer("calibration", save, dpi, own=ax is None)
    cells = read_held_out(adata, key)
    known = np.isfinite(cells.confidence)
    if not known.any():
        raise InputError(
            f"no cell among the {cells.words} has a confidence; run ce.tl.cross_validate or "
            "ce.tl.centroid_encoder again"
        )
    # Rounding in float32 makes some of them larger than 1.
    confidence = 100 * cells.confidence[known].clip(0, 1)
    right = (cells.own == cells.predicted)[known]
    mean, share, count = calibration_bins(confidence, right, n_bins)
    low, high = 100 * _intervals(share, count)

    target: Any = new_axes(4.2, 4.8) if ax is None else ax
    start = 10 * np.floor(min(confidence.min(), low.min(), 90) / 10)
    _page(target, start)
    _strip(target, confidence, start)
    target.errorbar(
        mean,
        100 * share,
        yerr=[100 * share - low, high - 100 * share],
        fmt="o",
        markersize=5,
        linewidth=1.2,
        color="C0",
        # Draw a point at 100 % whole, beyond the edge of the axes.
        clip_on=False,
        zorder=3,
    )
    write_title(target, title, _title(cells, int(known.sum())))
    return finish(target, show=show, write=write, own=ax is None)


def _intervals(share: NDArray[np.float64], count: NDArray[np.intp]) -> NDArray[np.float64]:
    """(2, b) ends of the 95 % intervals; at 0 and at 1 they have a length as well."""
    ends = [
        binomtest(round(part * n), n).proportion_ci(method="wilson")
        for part, n in zip(share.tolist(), count.tolist(), strict=True)
    ]
    return np.array([[end.low for end in ends], [end.high for end in ends]])


def _page(ax: Any, start: float) -> None:
    """Set up the axes and draw the diagonal."""
    length = 100 - start
    ax.set_xlim(start, 100)
    ax.set_ylim(start - STRIP * length, 100)
    ticks = np.asarray(MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(start, 100))
    ticks = ticks[(ticks >= start) & (ticks <= 100)]
    ax.set_xticks(ticks)
    ax.set_yticks(ticks)
    ax.set_xlabel("confidence (%)")
    ax.set_ylabel("cells that are right (%)")
    grey = unlabeled_color(ax)
    ax.plot([start, 100], [start, 100], color="0.5", linewidth=1, linestyle="--", zorder=1)
    ax.axhline(start, color=plt.rcParams["axes.edgecolor"], linewidth=0.8)
    for x, y, text, side in (
        (0.03, 0.96, "too modest", "left"),
        (0.97, 0.05, "too confident", "right"),
    ):
        ax.text(
            start + x * length,
            start + y * length,
            text,
            ha=side,
            va="top" if side == "left" else "bottom",
            fontsize="small",
            color="0.5",
        )
    ax.grid(color=grey, linewidth=0.4, zorder=0)
    ax.set_axisbelow(True)


def _strip(ax: Any, confidence: NDArray[np.float64], start: float) -> None:
    """Histogram of the confidences, beneath the diagram."""
    number, edges = np.histogram(confidence, bins=20, range=(start, 100))
    bottom, height = start - STRIP * (100 - start), 0.8 * STRIP * (100 - start)
    ax.bar(
        edges[:-1],
        height * number / number.max(),
        np.diff(edges),
        bottom,
        align="edge",
        color="0.6",
    )
    ax.text(
        start + 0.03 * (100 - start),
        bottom + height,
        f"cells (highest bar: {number.max():,})",
        va="top",
        fontsize="small",
        color="0.5",
    )


def _title(cells: HeldOut, n_shown: int) -> str:
    text = f"{cells.words}, {count_words(cells.n, n_shown)}"
    error = float(cells.quality.get("calibration_error", np.nan))
    if np.isfinite(error):
        text += f"\nexpected calibration error {100 * error:.1f} points"
        if interval := interval_words(cells.quality):
            text += f" ({interval})"
    return text

"""Reliability diagram: how often a prediction is right against how confident it is."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from centroid_encoder.core.calibration import calibration_bins
from centroid_encoder.core.quality import share_intervals
from centroid_encoder.errors import check
from centroid_encoder.pl._axes import Save, check_save, count_words, finish, new_axes, write_title
from centroid_encoder.pl._colors import unlabeled_color
from centroid_encoder.tl._evaluation import read_held_out
from centroid_encoder.tl._result import stored_column
from centroid_encoder.tl._summary import range_words


def calibration(
    adata: AnnData,
    *,
    key: str = "ce",
    title: str | None = None,
    n_bins: int = 10,
    ax: Axes | None = None,
    show: bool | None = None,
    save: Save = None,
    dpi: float | None = None,
) -> Axes | None:
    """Plot how often predictions are right, against their confidence: a reliability diagram.

    If the points lie on the diagonal, the confidences are right: 80 % of the predictions with a
    confidence of 80 % are right. Bars are 95 % intervals: Wilson's, or over groups with
    `group_key`. The histogram below counts the cells. The predictions are those of a
    cross-validation (out-of-fold) if there is one, and otherwise those of the held-out cells or,
    with `group_key`, of all cells. The error in the title, with its 95 % interval, was stored when
    the confidences were computed: the root mean square of the differences, less that of chance.
    Return values and errors are as in `voronoi`.

    Parameters
    ----------
    adata
        Annotated data after `ce.tl.cross_validate` or `ce.tl.centroid_encoder`.
    n_bins
        Number of points, from 1 to 1000. Each stands for the same number of cells: most confidences
        are near 100 %, so that most bins of equal width would have only a few cells.
    key, title, ax, show, save, dpi
        As in `voronoi`.
    """
    text = f"n_bins must be a whole number from 1 to 1000; got {n_bins!r}"
    check(n_bins in range(1, 1001), text, "n_bins")
    path = check_save("calibration", save, dpi, own=ax is None)
    cells = read_held_out(adata, key)
    known = np.isfinite(cells.confidence)
    check(known.any(), f"no cell among the {cells.words} has a confidence")
    # Clipped, because rounding in float32 makes some confidences larger than 1.
    confidence = 100 * cells.confidence[known].clip(0, 1)
    right = (cells.own == cells.predicted)[known]
    mean, share, bins = calibration_bins(confidence, right, n_bins)
    groups = None
    if cells.group_key is not None:
        column = stored_column(adata, cells.group_key, "the groups that were held out")
        groups = pd.factorize(column)[0][cells.rows[known]]
    ends = 100 * np.array(share_intervals(right.astype(float), bins, len(mean), groups))[:, 2:]

    target: Any = new_axes(3.5, 4) if ax is None else ax
    start = 10 * np.floor(min(confidence.min(), np.nanmin(ends, initial=90)) / 10)
    # The height of the histogram is a fifth of that of the diagram above it.
    bottom = start - 0.2 * (100 - start)
    target.set(xlim=(start, 100), ylim=(bottom, 100))
    target.set(xlabel="confidence (%)", ylabel="cells that are right (%)")
    ticks = MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(start, 100)
    ticks = [tick for tick in ticks if start <= tick <= 100]
    target.set(xticks=ticks, yticks=ticks, axisbelow=True)
    target.grid(color=unlabeled_color(target), linewidth=0.4, zorder=0)
    target.plot([start, 100], [start, 100], color="0.5", linewidth=1, linestyle="--", zorder=1)
    target.axhline(start, color=plt.rcParams["axes.edgecolor"], linewidth=0.8)
    number, edges = np.histogram(confidence, bins=20, range=(start, 100))
    heights = 0.8 * (start - bottom) * number / number.max()
    target.bar(edges[:-1], heights, np.diff(edges), bottom, align="edge", color="0.6")
    note: dict[str, Any] = {"transform": target.transAxes, "fontsize": "small", "color": "0.5"}
    target.text(0.03, 0.97, "underconfident", va="top", **note)
    target.text(0.97, 0.21, "overconfident", ha="right", **note)
    target.text(0.03, 0.13, f"cells (highest bar: {number.max():,})", va="top", **note)
    gaps = np.abs(ends - 100 * share)
    style: dict[str, Any] = {"fmt": "o", "markersize": 5, "linewidth": 1.2, "color": "C0"}
    # Without clipping at the axes, a point at 100 % is drawn completely.
    target.errorbar(mean, 100 * share, yerr=gaps, clip_on=False, zorder=3, **style)
    text = f"{cells.words}, {count_words(cells.quality['n'], len(right))}"
    error = float(cells.quality.get("calibration_error", np.nan))
    if np.isfinite(error):
        text += f"\ncalibration error {100 * error:.1f} points"
        if interval := range_words(cells.quality, "calibration_error", ""):
            text += f" ({interval})"
    write_title(target, title, text)
    return finish(target, show=show, path=path, dpi=dpi, own=ax is None)

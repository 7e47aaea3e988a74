"""Cells as points or contour lines, in the colours of their values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.colors import Colormap, Normalize
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from centroid_encoder.pl._colors import unlabeled_color
from centroid_encoder.pl._regions import Points
from centroid_encoder.pl._values import Values

N_PARTS = 128
"""The classes are drawn in so many parts, in turns, so that none lies on top of the others."""
MASSES = 0.5, 0.9
"""Shares of the cells of a class within its contour lines."""


@dataclass(frozen=True)
class Look:
    """How points are drawn."""

    area: float
    alpha: float | None
    cmap: str | Colormap
    na_color: str | None
    contours: bool

    def opacity(self, n: int) -> float:
        """Return the opacity of the n points of a class."""
        return float(opacities(np.array(n))) if self.alpha is None else self.alpha


def opacities(sizes: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the opacity of the points of each class: the more points, the more transparent."""
    return np.clip(np.sqrt(500 / np.maximum(sizes, 1)), 0.06, 1)


def draw_cells(
    ax: Any,
    points: Points,
    shown: NDArray[np.bool_],
    values: Values,
    norm: Normalize | None,
    hollow: NDArray[np.bool_],
    look: Look,
) -> None:
    """Draw cells in the colours of their values; those without a value are grey and below."""
    size, grey = np.sqrt(look.area), points[shown & ~values.known]
    color = look.na_color or unlabeled_color(ax)
    _dots(ax, grey, size, color, zorder=1.5, alpha=look.opacity(len(grey)))
    known = np.flatnonzero(shown & values.known)
    points, found, hollow = points[known], values.values[known], hollow[known]
    if values.colors is None:
        order = np.argsort(found, kind="stable")  # the largest values are on top
        style: dict[str, Any] = {"s": look.area, "linewidths": 0, "rasterized": True, "zorder": 2}
        style |= {"c": found[order], "cmap": look.cmap, "norm": norm, "alpha": look.alpha}
        ax.scatter(*points[order].T, **style)
        return
    colors = list(values.colors.values())
    sizes = np.bincount(found, minlength=len(colors))
    if look.contours:
        for code, color in enumerate(colors):
            _draw_contours(ax, points[found == code], color)
        return
    # One Line2D for many points is by far the fastest way to draw them.
    for code, rows in _rounds(found, len(colors)):
        style = {"zorder": 2, "alpha": look.opacity(sizes[code])}
        rim = {"markeredgecolor": colors[code], "markeredgewidth": max(0.6, size / 6)}
        _dots(ax, points[rows[~hollow[rows]]], size, colors[code], **style)
        _dots(ax, points[rows[hollow[rows]]], size, "none", **style, **rim)


def _rounds(codes: NDArray[np.intp], n_classes: int) -> Iterator[tuple[int, NDArray[np.intp]]]:
    """Yield a class and some of its rows, in turns, so that no class lies on top of another."""
    order = np.random.default_rng(0).permutation(len(codes))
    n_rounds = int(np.clip(N_PARTS // n_classes, 2, 8))
    for i, part in enumerate(np.array_split(order, n_rounds)):
        for j in range(n_classes):
            code = (j + i * n_classes // n_rounds) % n_classes
            rows = part[codes[part] == code]
            if len(rows):
                yield code, rows


def _draw_contours(ax: Any, points: Points, color: str) -> None:
    """Draw lines within which half and 90 % of the points of a class lie."""
    edges: Any = [np.linspace(limit[0], limit[1], 151) for limit in (ax.get_xlim(), ax.get_ylim())]
    density = gaussian_filter(np.histogram2d(points[:, 0], points[:, 1], bins=edges)[0], 2)
    ordered = np.sort(density.ravel())[::-1]
    inside = np.searchsorted(ordered.cumsum(), np.multiply(MASSES, ordered.sum()))
    levels = np.unique(ordered[inside])
    if levels[0] > 0:
        x, y = ((edge[1:] + edge[:-1]) / 2 for edge in edges)
        ax.contour(x, y, density.T, levels=levels, colors=color, linewidths=1, zorder=2)


def medians(points: Points, shown: NDArray[np.bool_], values: Values) -> Points:
    """(M, 2) middles of the cells of each category; NaN for a category without cells."""
    codes = [shown & (values.values == code) for code in range(len(values.colors or ()))]
    return np.array([np.median(points[c], axis=0) if c.any() else [np.nan] * 2 for c in codes])


def draw_circles(ax: Any, points: Points, area: float) -> None:
    """Draw circles around points of an area."""
    rim = {"markeredgecolor": plt.rcParams["text.color"], "markeredgewidth": 0.8}
    _dots(ax, points, np.sqrt(area) + 2.5, "none", zorder=2.5, **rim)


def _dots(ax: Any, points: Points, size: float, color: str, **style: Any) -> None:
    """Draw points of a diameter in points."""
    style = {"markeredgewidth": 0} | style
    ax.plot(*points.T, "o", markersize=size, color=color, rasterized=True, **style)

"""Cells as points or contour lines, in the colours of their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from centroid_encoder.pl._regions import Points
from centroid_encoder.pl._values import Values

N_PARTS = 128
"""The classes are drawn in so many parts, in turns, so that none lies on top of the others."""
MASSES = 0.5, 0.9
"""Shares of the cells of a class within its contour lines."""


def opacities(sizes: NDArray[np.intp]) -> NDArray[np.float64]:
    """Return the opacity of the points of each class: the more points, the more transparent."""
    return np.clip(np.sqrt(500 / np.maximum(sizes, 1)), 0.06, 1)


def draw_dots(ax: Any, points: Points, size: float, color: str, **style: Any) -> None:
    """Draw points of a diameter in points, for which one Line2D is by far the fastest way."""
    if style.get("alpha") is None:
        style["alpha"] = float(opacities(np.array(len(points))))
    style = {"markeredgewidth": 0, "rasterized": True} | style
    ax.plot(*points.T, "o", markersize=size, color=color, **style)


def draw_cells(
    ax: Any,
    points: Points,
    shown: NDArray[np.bool_],
    values: Values,
    hollow: NDArray[np.bool_],
    *,
    size: float,
    alpha: float | None,
    grey: str,
    contours: bool,
) -> None:
    """Draw cells in the colours of their values; those without a value are grey and below.

    Cells of categories are rings if they are `hollow`.
    """
    draw_dots(ax, points[shown & ~values.known], size, grey, alpha=alpha, zorder=1.5)
    known = np.flatnonzero(shown & values.known)
    points, found, hollow = points[known], values.values[known], hollow[known]
    if (scale := values.scale) is not None:
        order = np.argsort(found, kind="stable")  # the largest values are on top
        style: dict[str, Any] = {"s": size**2, "linewidths": 0, "rasterized": True, "zorder": 2}
        style |= {"c": found[order], "cmap": scale.cmap, "norm": scale.norm, "alpha": alpha}
        ax.scatter(*points[order].T, **style)
        return
    colors = list((values.colors or {}).values())
    if contours:
        for code, color in enumerate(colors):
            _draw_contours(ax, points[found == code], color)
        return
    alphas = opacities(np.bincount(found, minlength=len(colors))).tolist()
    for code, rows in _rounds(found, len(colors)):
        style = {"zorder": 2, "alpha": alphas[code] if alpha is None else alpha}
        rim = {"markeredgecolor": colors[code], "markeredgewidth": max(0.6, size / 6)}
        draw_dots(ax, points[rows[~hollow[rows]]], size, colors[code], **style)
        draw_dots(ax, points[rows[hollow[rows]]], size, "none", **style, **rim)


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

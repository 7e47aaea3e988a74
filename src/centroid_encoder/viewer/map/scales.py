"""Colours of numbers: of places in the plane of an embedding, and of shares."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex, to_rgb
from numpy.typing import ArrayLike, NDArray
from scipy.stats import rankdata

GRID = 24
"""Steps along each side: neighbours can just be told apart, and a layer's colours stay few."""
STEPS = 20
"""Colours of a scale: as many as can be told apart."""

# Lower left, lower right, upper left, upper right. All differ in hue and, for those who see fewer
# hues, in lightness; none is so dark or so pale as to be lost on an image.
_CORNERS = ["#555de3", "#f63d70", "#00d4c3", "#f0e331"]


def plane_colors(points: NDArray[np.floating]) -> tuple[NDArray[np.intp], list[str]]:
    """Colour points by where they are: cells of like colour are neighbours in the plane.

    Each coordinate counts by rank: where most points huddle in the middle of the map, position
    alone would give them all one colour.

    Parameters
    ----------
    points
        (n, 2) points; of three coordinates the first two count.

    Returns
    -------
    codes
        (n,) index of each point's colour; −1 for points that are not finite.
    colors
        ``GRID * GRID`` hex colours, row by row from the bottom.
    """
    from skimage.color import lab2rgb, rgb2lab

    codes = np.full(len(points), -1, dtype=np.intp)
    placed = np.isfinite(points[:, :2]).all(axis=1)
    ranks = rankdata(points[placed, :2], axis=0) - 1
    x, y = (ranks / max(len(ranks) - 1, 1) * GRID).clip(0, GRID - 1).astype(np.intp).T
    codes[placed] = y * GRID + x
    # Mixed in a space in which equal steps look equal: no edges where the map has none.
    corners = rgb2lab(np.reshape([to_rgb(corner) for corner in _CORNERS], (2, 2, 3)))
    shares = np.linspace([1, 0], [0, 1], GRID)
    mixed = lab2rgb(np.einsum("yi,xj,ijc->yxc", shares, shares, corners))
    return codes, [to_hex(color) for color in mixed.reshape(-1, 3).clip(0, 1)]


def scale_colors(
    shares: ArrayLike, *, reverse: bool = False, colormap: str = "inferno"
) -> tuple[NDArray[np.intp], list[str]]:
    """Colour shares in [0, 1] from dark to bright.

    Parameters
    ----------
    shares
        (n,) values.
    reverse
        From bright to dark.
    colormap
        Name of a colour map of matplotlib that begins dark.

    Returns
    -------
    codes
        (n,) index of each colour; −1 where there is no value.
    colors
        ``STEPS`` hex colours, that of 0 first.
    """
    values = np.asarray(shares, dtype=np.float64)
    there = np.isfinite(values)
    codes = np.full(len(values), -1, dtype=np.intp)
    codes[there] = (values[there] * STEPS).clip(0, STEPS - 1).astype(np.intp)
    # The darkest would be lost on an image.
    colors = mpl.colormaps[colormap](np.linspace(0.25, 1, STEPS)[:: -1 if reverse else 1])
    return codes, [to_hex(color) for color in colors]

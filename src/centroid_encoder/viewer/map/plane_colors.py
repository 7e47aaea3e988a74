"""Colours by position: a colour map over the plane of an embedding."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_hex
from numpy.typing import NDArray
from scipy.stats import rankdata

GRID = 24
"""Steps along each side: neighbours can just be told apart, and a layer's colours stay few."""

# (lightness, chroma, hue in degrees) at the corners of the plane. All differ in hue and, for those
# who see fewer hues, in lightness; none is so dark or so pale as to be lost on an image.
_CORNERS = {
    "lower left": (0.55, 0.20, 275.0),
    "lower right": (0.65, 0.22, 10.0),
    "upper left": (0.78, 0.14, 185.0),
    "upper right": (0.90, 0.18, 105.0),
}
# Björn Ottosson's OKLab: from its axes to cone responses, from their cubes to linear sRGB.
_TO_CONES = np.array(
    [
        [1.0, 0.3963377774, 0.2158037573],
        [1.0, -0.1055613458, -0.0638541728],
        [1.0, -0.0894841775, -1.2914855480],
    ]
)
_TO_RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


def plane_colors(
    points: NDArray[np.floating], limits: NDArray[np.floating]
) -> tuple[NDArray[np.intp], list[str]]:
    """Colour points by where they are: cells of like colour are neighbours in the plane.

    Parameters
    ----------
    points
        (n, 2) points; of three coordinates the first two count.
    limits
        (2, 2) or (2, 3) lower and upper ends of the map; points beyond take the colour of its edge.

    Returns
    -------
    codes
        (n,) index of each point's colour; −1 for points that are not finite.
    colors
        ``GRID * GRID`` hex colours, row by row from the bottom.
    """
    low, high = limits[:, :2].astype(np.float64)
    placed = np.isfinite(points[:, :2]).all(axis=1)
    codes = np.full(len(points), -1, dtype=np.intp)
    steps = ((points[placed, :2] - low) / (high - low) * GRID).clip(0, GRID - 1).astype(np.intp)
    codes[placed] = steps[:, 1] * GRID + steps[:, 0]
    return codes, _colors()


def spread_out(points: NDArray[np.floating]) -> NDArray[np.float64]:
    """Spread points over the unit square, each coordinate by rank; NaN stays NaN.

    Where most points huddle in the middle of the map, position alone would give them all one
    colour.
    """
    ranks = rankdata(points[:, :2], axis=0, nan_policy="omit")
    return np.asarray((ranks - 1) / max(len(points) - 1, 1))


def _colors() -> list[str]:
    # Mixed in a space in which equal steps look equal: no edges where the map has none.
    corners = {name: _oklab(*color) for name, color in _CORNERS.items()}
    share = np.linspace(0, 1, GRID)[:, None]
    lower = corners["lower left"] * (1 - share) + corners["lower right"] * share
    upper = corners["upper left"] * (1 - share) + corners["upper right"] * share
    mixed = lower * (1 - share[:, None]) + upper * share[:, None]
    return [to_hex(color) for color in _srgb(mixed.reshape(-1, 3))]


def _oklab(lightness: float, chroma: float, hue: float) -> NDArray[np.float64]:
    angle = np.radians(hue)
    return np.array([lightness, chroma * np.cos(angle), chroma * np.sin(angle)])


def _srgb(oklab: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n, 3) colours as sRGB, the nearest displayable values where there is no such colour."""
    linear = np.clip((oklab @ _TO_CONES.T) ** 3 @ _TO_RGB.T, 0, 1)
    rgb: NDArray[np.float64] = np.where(
        linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055
    )
    return rgb

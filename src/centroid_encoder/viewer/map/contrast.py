"""Colours that stand out from the ground beneath them."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_hex, to_rgb
from numpy.typing import NDArray

CONTRAST = 3.0
"""Least contrast of points and their regions: that of WCAG 2 for graphics."""


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21, by WCAG 2."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def blend(color: str, ground: str, alpha: float) -> str:
    """Return the colour of a translucent colour over a ground."""
    red, green, blue = alpha * np.array(to_rgb(color)) + (1 - alpha) * np.array(to_rgb(ground))
    return to_hex((red, green, blue))


def readable(color: str, ground: str, ink: str) -> str:
    """Mix a colour with ink, as little as is needed for it to stand out from a ground."""
    mixes = (blend(ink, color, share) for share in np.linspace(0, 1, 21))
    return next((mixed for mixed in mixes if contrast(mixed, ground) >= CONTRAST), ink)


def _luminance(color: str) -> float:
    rgb: NDArray[np.float64] = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])

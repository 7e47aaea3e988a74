"""Colours of numbers."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex
from numpy.typing import ArrayLike, NDArray

STEPS = 20
"""Colours of a scale: as many as can be told apart."""


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

"""Colours of numbers: brighter is more."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import to_rgb

from centroid_encoder.viewer.map.scales import STEPS, scale_colors


def test_brighter_is_more() -> None:
    codes, colors = scale_colors([0, 0.2, 0.5, 0.99, 1, np.nan])
    assert codes.tolist() == [0, STEPS // 5, STEPS // 2, STEPS - 1, STEPS - 1, -1]
    shades = [np.dot(to_rgb(color), (0.2126, 0.7152, 0.0722)) for color in colors]
    assert shades == sorted(shades)
    assert len(set(colors)) == STEPS


def test_reversed() -> None:
    codes, colors = scale_colors(np.array([0.32, 0.92], dtype=np.float32), reverse=True)
    assert codes.tolist() == [6, 18]
    assert colors == scale_colors([])[1][::-1]

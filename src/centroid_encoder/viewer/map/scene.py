"""The content and the colours of the map, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.path import Path
from numpy.typing import NDArray

CONTRAST = 3.0
"""Least contrast of points and their regions: that of WCAG 2 for graphics."""


@dataclass(frozen=True)
class Panel:
    """Cells that are drawn in one panel, and its title."""

    title: str
    rows: NDArray[np.intp]


@dataclass(frozen=True)
class Scene:
    """Cells and regions of the classes; without arguments, nothing."""

    points: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 2)))
    """(n_obs, 2); NaN for cells that were left out."""
    codes: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    """(n_obs,) class of each cell, −1 for unlabeled ones."""
    panels: tuple[Panel, ...] = ()
    shapes: Sequence[Path] = ()
    """Region of each class; empty to draw none."""
    limits: NDArray[np.floating] = field(default_factory=lambda: np.zeros((2, 2)))
    """(2, 2) lower left and upper right corner of the panels."""
    names: tuple[str, ...] = ()
    """Names of the classes."""
    centers: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 2)))
    """(n_classes, 2) places of the names."""
    reference: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 2)))
    """(n, 2) reference cells, pale behind the cells of the scene."""
    bold: bool = False
    """Whether cells with a class are drawn larger than the others, as far as there is room."""


@dataclass(frozen=True)
class Style:
    """Colours that follow napari's theme."""

    page: str = "#262930"
    panel: str = "#1c1e24"
    ink: str = "#f0f1f2"
    unlabeled: str = "#7a7d85"

    @property
    def dark(self) -> bool:
        """Whether ink is lighter than the page."""
        return sum(to_rgb(self.ink)) > sum(to_rgb(self.page))


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

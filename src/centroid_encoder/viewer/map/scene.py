"""The content of the map and its colours, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.colors import to_hex, to_rgb
from matplotlib.path import Path
from numpy.typing import NDArray

CONTRAST = 3.0
"""Least contrast between a point and its region, as WCAG 2 requires for graphics."""


@dataclass(frozen=True)
class Scene:
    """Cells and the regions of their classes; empty by default."""

    points: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 2)))
    """(n_obs, 2) position of each cell; NaN if it has none."""
    codes: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    """(n_obs,) class of each cell; −1 if it has no label."""
    rows: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    """(n,) rows of the cells that are drawn."""
    shapes: Sequence[Path] = ()
    """Region of each class, or none."""
    limits: NDArray[np.floating] = field(default_factory=lambda: np.array([[0.0, 0.0], [1.0, 1.0]]))
    """(2, 2) lower left and upper right corner of the map."""
    names: tuple[str, ...] = ()
    """Name of each class."""
    centers: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 2)))
    """(n_classes, 2) positions of the names."""
    reference: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 2)))
    """(n, 2) positions of reference cells, drawn pale behind the other cells."""
    hollow: NDArray[np.intp] = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    """(n,) rows of cells that are drawn as rings: those that are held out."""
    soft: bool = False
    """Whether the colours of the regions blend at their borders."""
    live: bool = False
    """Whether other scenes of the same cells will follow: frames of a training, or live maps."""
    bold: bool = False
    """Whether cells with a class are drawn again in front, the larger the fewer they are."""


@dataclass(frozen=True)
class Colors:
    """A colour for every cell."""

    codes: NDArray[np.intp]
    """(n_obs,) index into `colors`; −1 for invisible cells."""
    colors: list[str]
    meaning: str
    """A text that explains the colours."""
    values: NDArray[np.floating] | None = None
    """(n_obs,) numbers that the colours stand for, if they stand for numbers."""
    scale: tuple[float, float] = 0, 1
    """The numbers of the first and the last colour."""
    seen: NDArray[np.bool_] | None = None
    """(n_obs,) cells that are coloured in the image, too; None for all."""
    hollow: int | None = None
    """Code of the labels that are outlined in the image, and not filled."""
    key: tuple[tuple[str, str], ...] = ()
    """Colours and what each one means; without a colour, a text that ends the list."""


@dataclass(frozen=True)
class Style:
    """Colours of the map that depend on napari's theme."""

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
    """Return how a colour with opacity `alpha` appears on top of another one."""
    red, green, blue = alpha * np.array(to_rgb(color)) + (1 - alpha) * np.array(to_rgb(ground))
    return to_hex((red, green, blue))


def readable(color: str, ground: str, ink: str, least: float = CONTRAST) -> str:
    """Mix a colour with as little ink as gives it enough contrast to a ground."""
    mixes = (blend(ink, color, share) for share in np.linspace(0, 1, 21))
    return next((mixed for mixed in mixes if contrast(mixed, ground) >= least), ink)


def _luminance(color: str) -> float:
    rgb: NDArray[np.float64] = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])

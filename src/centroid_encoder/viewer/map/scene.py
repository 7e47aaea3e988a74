"""The content and the colours of the map, as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.path import Path
from numpy.typing import NDArray


@dataclass(frozen=True)
class Panel:
    """Cells that are drawn in one panel, and its title."""

    title: str
    rows: NDArray[np.intp]


@dataclass(frozen=True)
class Scene:
    """Cells and regions of the classes."""

    points: NDArray[np.floating]
    """(n_obs, 2); NaN for cells that were left out."""
    codes: NDArray[np.intp]
    """(n_obs,) class of each cell, −1 for unlabeled ones."""
    panels: tuple[Panel, ...]
    shapes: Sequence[Path]
    """Region of each class; empty to draw none."""
    limits: NDArray[np.floating]
    """(2, 2) lower left and upper right corner of the panels."""
    names: tuple[str, ...]
    """Names of the classes."""
    centers: NDArray[np.floating]
    """(n_classes, 2) places of the names."""
    reference: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 2)))
    """(n, 2) reference cells, pale behind the cells of the scene."""


NOTHING = Scene(
    np.empty((0, 2)), np.empty(0, dtype=np.intp), (), (), np.zeros((2, 2)), (), np.empty((0, 2))
)


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

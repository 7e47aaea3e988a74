"""Where cells are on the screen, and which of them are outlined there."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

WHITE = 225
"""Least red, green and blue of an outline; no other pixels of the tissue are as bright."""
OUTLINED = 0.06
"""Least share of white pixels of a cell that is outlined."""
IN_VIEW = 0.8
"""Least share of a cell's pixels that must be in view."""


class View:
    """The part of an image that is in view: `tissue` is the answer of `driven_napari.tissue`."""

    def __init__(self, mask: NDArray[np.int32], tissue: dict[str, Any]) -> None:
        self.mask, self.zoom = mask, tissue["zoom"]
        self._middle, self._center = np.array(tissue["middle"]), np.array(tissue["center"])
        half = np.array(tissue["size"]) // 2 - 1
        self.window = tuple(
            slice(middle - side, middle + side)
            for middle, side in zip(tissue["middle"], half, strict=True)
        )
        screen = np.mgrid[self.window].reshape(2, -1)
        inside = np.rint((screen.T - self._middle) / self.zoom + self._center).astype(int)
        on = ((inside >= 0) & (inside < mask.shape)).all(axis=1)
        self.ids = np.where(on, mask[tuple(inside.T % np.array(mask.shape)[:, None])], 0)
        seen = np.bincount(self.ids, minlength=mask.max() + 1)
        whole = np.bincount(mask.ravel()) * self.zoom**2
        self.cells = {i for i in np.flatnonzero(seen > IN_VIEW * whole).tolist() if i}
        """Ids of the cells in view."""

    def place(self, cell: int) -> tuple[float, float]:
        """Return a place of the screen on a cell, as x and y."""
        pixels = np.argwhere(self.mask == cell)
        middle = pixels[np.argmin(np.linalg.norm(pixels - pixels.mean(axis=0), axis=1))]
        y, x = (middle - self._center) * self.zoom + self._middle
        return x, y

    def mean_of(self, values: NDArray[Any]) -> dict[int, float]:
        """Return the mean of a value of each pixel of the screen over each cell in view."""
        seen = values[self.window].ravel()
        sums, numbers = np.bincount(self.ids, weights=seen), np.bincount(self.ids)
        return {cell: float(sums[cell] / numbers[cell]) for cell in self.cells}

    def outlined(self, screen: NDArray[np.uint8]) -> set[int]:
        """Return the ids of the cells that are outlined."""
        white = self.mean_of((screen > WHITE).all(axis=-1))
        return {cell for cell in self.cells if white[cell] > OUTLINED}

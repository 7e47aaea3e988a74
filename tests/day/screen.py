"""Where the cells of an image are on the screen, and which of them are outlined there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from tests.day.data import Files
from tests.day.user import User

WHITE = 225
"""Least red, green and blue of an outline; no other pixels of the tissue are as bright."""
OUTLINED = 0.06
"""Least share of white pixels of a cell that is outlined."""
IN_VIEW = 0.8
"""Least share of a cell's pixels that must be in view."""


class View:
    """The part of an image that is in view, and `cells`, the rows of the cells in it."""

    def __init__(self, user: User, files: Files, image: str) -> None:
        self._user, self._mask, found = user, files.masks[image], user.ask("tissue")
        self._zoom, self._center = found["zoom"], np.array(found["center"])
        self._middle, half = np.array(found["middle"]), np.array(found["size"]) // 2 - 1
        first, last = self._middle - half, self._middle + half
        self._window = tuple(map(slice, first, last))
        places = np.mgrid[self._window].reshape(2, -1).T
        inside = np.rint((places - self._middle) / self._zoom + self._center).astype(int)
        on = ((inside >= 0) & (inside < self._mask.shape)).all(axis=1)
        self._ids = np.where(on, self._mask[tuple((inside % self._mask.shape).T)], 0)
        self._seen = np.bincount(self._ids, minlength=self._mask.max() + 1)
        self.cells = files.cells[files.cells["image"] == image]
        of_cell = self.cells["cell_id"].to_numpy()
        least = IN_VIEW * np.bincount(self._mask.ravel())[of_cell] * self._zoom**2
        self.cells = self.cells[self._seen[of_cell] > np.maximum(least, 1)]
        assert len(self.cells) > 100

    def place(self, cell: int) -> NDArray[np.floating]:
        """Return a place of the screen on a cell, as x and y."""
        pixels = np.argwhere(self._mask == cell)
        middle = pixels[np.argmin(np.linalg.norm(pixels - pixels.mean(axis=0), axis=1))]
        return ((middle - self._center) * self._zoom + self._middle)[::-1]

    def mean_of(self, values: NDArray[Any]) -> pd.Series:
        """Return the mean of a value of each pixel of the screen over each cell in view."""
        sums = np.bincount(self._ids, weights=values[self._window].ravel())
        return self.cells["cell_id"].map(lambda cell: sums[cell] / self._seen[cell])

    def check_outlines(self) -> None:
        """Check that the outlined cells are the selected ones."""
        selected = self.cells.index.isin(self._user.selected())

        def are_outlined() -> bool:
            white = self.mean_of((self._user.screen() > WHITE).all(axis=-1))
            return np.array_equal(white > OUTLINED, selected)

        self._user.wait_until(are_outlined, f"outlines of {selected.sum()} cells")

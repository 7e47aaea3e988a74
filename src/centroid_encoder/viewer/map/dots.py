"""A million points as one image, and which of them lie within an outline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.artist import Artist
from matplotlib.colors import to_rgb
from matplotlib.path import Path
from numpy.typing import NDArray
from scipy.ndimage import binary_dilation

EDGE = 3
"""Diameter in pixels, at 96 dots per inch, up to which a dot has the colour of its edge alone."""
GRID = 128
"""Squares along each side of an outline's box."""


class Dots(Artist):
    """Round points, each a stamp in an image of the panel: faster than matplotlib's markers.

    Attributes
    ----------
    points, codes
        (n, 2) points, the last on top, and (n,) index of each one's colour.
    size
        Diameter in points.
    """

    def __init__(self, ax: Any, zorder: float) -> None:
        super().__init__()
        self.set_zorder(zorder)
        ax.add_artist(self)
        self.size = 2.0
        self.points: NDArray[np.floating] = np.empty((0, 2))
        self.codes = np.empty(0, dtype=np.intp)
        self._colors = np.zeros((2, 1, 3), dtype=np.uint8)

    @property
    def colors(self) -> NDArray[np.uint8]:
        """(n, 3) fill colour of each point."""
        return np.asarray(self._colors[0][self.codes])

    def set_colors(self, fills: Sequence[str], edges: Sequence[str]) -> None:
        """Change the colours of the points and of their edges."""
        colors = [[to_rgb(color) for color in kind] for kind in (fills, edges)]
        self._colors = np.rint(255 * np.array(colors)).astype(np.uint8)

    def draw(self, renderer: Any) -> None:
        """Draw the points."""
        if not len(self.points) or self.axes is None:
            return
        dpi = self.axes.figure.dpi
        size = max(round(self.size / 72 * dpi), 1)
        left, bottom, right, top = np.rint(self.axes.bbox.extents).astype(int).tolist()
        # With a margin for dots that are cut off by the rim.
        shape = max(top - bottom, 1) + 2 * size, max(right - left, 1) + 2 * size
        places = self.axes.transData.transform(self.points) - (left, bottom) + size / 2
        column, row = np.rint(places).astype(np.intp).T
        inside = (row >= 0) & (row <= shape[0] - size)
        inside &= (column >= 0) & (column <= shape[1] - size)
        at, codes = (row * shape[1] + column)[inside], self.codes[inside]
        y, x = np.indices((size, size)) - (size - 1) / 2
        distances = np.hypot(x, y)
        stamp = np.argwhere(distances < size / 2 + 0.7)
        distances = distances[tuple(stamp.T)]
        # The last point on a pixel is seen; of the same pass, numpy keeps the last assignment.
        uppermost = np.zeros(shape[0] * shape[1], dtype=np.int64)
        order = len(stamp) * np.arange(1, len(at) + 1)
        for k, (i, j) in enumerate(stamp.tolist()):
            pixels = at + i * shape[1] + j
            uppermost[pixels] = np.maximum(uppermost[pixels], order + k)
        painted = np.flatnonzero(uppermost)
        point, place = np.divmod(uppermost[painted], len(stamp))
        is_edge = (distances > (size - 1) / 2 - dpi / 96) | (size <= EDGE * dpi / 96)
        opacity = np.rint(255 * np.clip(size / 2 + 0.7 - distances, 0, 1)).astype(np.uint8)
        image = np.zeros((len(uppermost), 4), dtype=np.uint8)
        image[painted, :3] = self._colors[is_edge[place].astype(np.intp), codes[point - 1]]
        image[painted, 3] = opacity[place]
        image = image.reshape(*shape, 4)[size:-size, size:-size]
        gc = renderer.new_gc()
        renderer.draw_image(gc, left, bottom, np.ascontiguousarray(image))
        gc.restore()


def contained(outline: Path, points: NDArray[np.floating]) -> NDArray[np.bool_]:
    """Return a mask of the points that lie within an outline.

    The squares of a grid that are far from all edges are inside or outside as a whole; only the
    points of the other squares are tested one by one.
    """
    vertices = np.asarray(outline.vertices, dtype=np.float64)
    vertices = np.vstack([vertices, vertices[:1]])
    low, high = vertices.min(axis=0), vertices.max(axis=0)
    scale = GRID / np.maximum(high - low, 1e-30)
    shares = np.linspace(0, 1, 2 * GRID)[:, None, None]
    edges = (vertices[:-1] + shares * np.diff(vertices, axis=0) - low) * scale
    near = np.zeros((GRID + 1, GRID + 1), dtype=bool)
    near[tuple(edges.astype(np.intp).reshape(-1, 2).T)] = True
    near = binary_dilation(near, np.ones((3, 3), dtype=bool))
    middles = low + (np.indices(near.shape).reshape(2, -1).T + 0.5) / scale
    whole = outline.contains_points(middles).reshape(near.shape)
    x, y = (points.T - low[:, None].astype(points.dtype)) * scale[:, None].astype(points.dtype)
    boxed = np.flatnonzero((x >= 0) & (x <= GRID) & (y >= 0) & (y <= GRID))
    square = x[boxed].astype(np.intp), y[boxed].astype(np.intp)
    found = np.zeros(len(points), dtype=bool)
    found[boxed] = whole[square]
    unsure = boxed[near[square]]
    found[unsure] = outline.contains_points(points[unsure])
    return found

"""Artists of images, a million points and many names, which are faster than matplotlib's own."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox, IdentityTransform
from numpy.typing import NDArray
from PIL import Image

from centroid_encoder.pl._legend import move_apart, wrapped

EDGE = 3
"""Largest diameter, in pixels at 96 dpi, of dots that are drawn in the colour of their edge."""
SIDE = 405
"""Side of a map in points from which on the dots grow with it, to twice their size."""


class Ground(Artist):
    """A smooth image beneath the points.

    matplotlib's own image computes with floating-point numbers, for 60 ms at 540 × 540 pixels; its
    `PcolorImage` is quick, but is drawn one pixel too high.
    """

    def __init__(self, zorder: float) -> None:
        super().__init__()
        self.zorder = zorder
        self.limits: NDArray[np.floating] = np.array([[0.0, 0.0], [1.0, 1.0]])
        self.image = Image.new("RGB", (1, 1))

    def set_content(self, rgb: NDArray[np.floating], limits: NDArray[np.floating]) -> None:
        """Replace the image, lowest row first, and its limits."""
        self.image = Image.fromarray(np.rint(255 * rgb).astype(np.uint8))
        self.limits = limits

    def draw(self, renderer: Any) -> None:
        """Draw the part of the image that the panel shows."""
        if not self.get_visible():
            return
        ax: Any = self.axes
        extents = ax.bbox.extents.reshape(2, 2)
        seen = ax.transData.inverted().transform(extents)
        low, high = self.limits
        box = np.clip((seen - low) / (high - low) * self.image.size, 0, self.image.size)
        part = ax.transData.transform(box / self.image.size * (high - low) + low)
        (left, bottom), (width, height) = np.rint([part[0], part[1] - part[0]]).astype(int).tolist()
        if min(width, height) > 0:
            pixels = self.image.resize((width, height), Image.Resampling.BILINEAR, box.ravel())
            gc = renderer.new_gc()
            renderer.draw_image(gc, left, bottom, np.array(pixels.convert("RGBA")))
            gc.restore()


class Dots(Artist):
    """Round points that are stamped into one image of the panel.

    The last of the (n, 2) `points` is on top. `codes` are the (n,) indices of their colours and
    opacities, and `size` is their diameter in points on a map of the side `SIDE`. A pixel is as
    opaque as all its points together, so that their density is visible.
    """

    def __init__(self, zorder: float) -> None:
        super().__init__()
        self.zorder = zorder
        self.size = 2.0
        self.points: NDArray[np.floating] = np.empty((0, 2))
        self.codes = np.empty(0, dtype=np.intp)
        self.palette = np.zeros((2, 1, 3), dtype=np.uint8)
        """Fills and edges in red, green and blue."""
        self.opacities: NDArray[np.floating] = np.ones(1)

    def set_content(
        self,
        points: NDArray[np.floating],
        codes: NDArray[np.intp],
        size: float,
        fills: Sequence[str],
        edges: Sequence[str],
        opacities: NDArray[np.floating] | None = None,
    ) -> None:
        """Replace the points, their size, and the colours and opacities to which `codes` refer."""
        self.points, self.codes, self.size = points, codes, size
        self.opacities = np.ones(len(fills)) if opacities is None else opacities
        colors = [[to_rgb(color) for color in kind] for kind in (fills, edges)]
        self.palette = np.rint(255 * np.array(colors)).astype(np.uint8)

    def draw(self, renderer: Any) -> None:
        """Stamp the points into an image and draw it."""
        if not len(self.points):
            return
        ax: Any = self.axes
        dpi = ax.figure.dpi
        side = min(ax.bbox.width, ax.bbox.height) / dpi * 72
        size = max(round(self.size * np.clip(side / SIDE, 1, 2) / 72 * dpi), 1)
        left, bottom, right, top = np.rint(ax.bbox.extents).astype(int).tolist()
        # The margin takes the parts of dots beyond the border of the panel.
        shape = max(top - bottom, 1) + 2 * size, max(right - left, 1) + 2 * size
        places = ax.transData.transform(self.points) - (left, bottom) + size / 2
        column, row = np.rint(places).astype(np.intp).T
        inside = (row >= 0) & (row <= shape[0] - size)
        inside &= (column >= 0) & (column <= shape[1] - size)
        at, codes = (row * shape[1] + column)[inside], self.codes[inside]
        y, x = np.indices((size, size)) - (size - 1) / 2
        distances = np.hypot(x, y)
        stamp = np.argwhere(distances < size / 2 + 0.7)
        distances = distances[tuple(stamp.T)]
        # On each pixel the last point is visible. Within a pass, NumPy keeps the last assignment.
        uppermost = np.zeros(shape[0] * shape[1], dtype=np.int64)
        order = len(stamp) * np.arange(1, len(at) + 1)
        transparent = np.zeros(len(uppermost))  # logarithm of the share of light that passes
        light = np.log1p(-np.minimum(self.opacities, 1 - 1e-6))
        for k, (i, j) in enumerate(stamp.tolist()):
            pixels = at + i * shape[1] + j
            uppermost[pixels] = np.maximum(uppermost[pixels], order + k)
            if (self.opacities < 1).any():
                transparent += np.bincount(pixels, light[codes], len(uppermost))
        painted = np.flatnonzero(uppermost)
        point, place = np.divmod(uppermost[painted], len(stamp))
        is_edge = (distances > (size - 1) / 2 - dpi / 96) | (size <= EDGE * dpi / 96)
        opacity = np.clip(size / 2 + 0.7 - distances, 0, 1)
        image = np.zeros((len(uppermost), 4), dtype=np.uint8)
        image[painted, :3] = self.palette[is_edge[place].astype(np.intp), codes[point - 1]]
        opaque = -np.expm1(transparent[painted]) if (self.opacities < 1).any() else 1
        image[painted, 3] = np.rint(255 * opacity[place] * opaque)
        image = image.reshape(*shape, 4)[size:-size, size:-size]
        gc = renderer.new_gc()
        renderer.draw_image(gc, left, bottom, np.ascontiguousarray(image))
        gc.restore()


class Written(NamedTuple):
    """A name on the figure."""

    text: str
    picture: NDArray[np.uint8]
    box: Bbox
    """Position of the picture in pixels of the figure."""


class Names(Artist):
    """The names of the classes at their (n, 2) `centers`.

    Names that would overlap are moved apart; those whose center is out of view are left out. The
    letters have the colour `ink`. The halo makes names readable on top of points.

    Each name is drawn once into an image that is cached. Matplotlib's texts would lay out each
    letter and its halo again in each frame of a training.
    """

    zorder = 4

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.centers: NDArray[np.floating] = np.empty((0, 2))
        self.ink = self.halo = "black"

    def written_names(self) -> tuple[list[Written], NDArray[np.floating]]:
        """Return the names in view, and the (n, 2, 2) ends of lines from centers to moved names."""
        ax: Any = self.axes
        panel, dpi = ax.bbox, ax.figure.dpi
        places = ax.transData.transform(self.centers)
        seen = np.flatnonzero(((places > panel.min) & (places < panel.max)).all(axis=1))
        # Large letters would hide the cells of a small panel.
        size = float(np.clip(panel.width / dpi * 3, 6, 9))
        names = [wrapped(self.names[i]) for i in seen.tolist()]
        pictures = [_picture(name, size, self.ink, self.halo, dpi) for name in names]
        sizes = np.reshape([picture.shape[1::-1] for picture in pictures], (-1, 2))
        middles, has_left = move_apart(places[seen], sizes, panel.padded(-2 * dpi / 96))
        boxes = map(Bbox.from_extents, np.hstack([middles - sizes / 2, middles + sizes / 2]))
        written = list(map(Written, names, pictures, boxes))
        return written, np.stack([places[seen], middles], axis=1)[has_left]

    def draw(self, renderer: Any) -> None:
        """Draw the lines and the names."""
        names, lines = self.written_names()
        gc = renderer.new_gc()
        gc.set_foreground(self.ink)
        gc.set_linewidth(renderer.points_to_pixels(0.6))
        for line in lines:
            renderer.draw_path(gc, Path(line), IdentityTransform())
        for _, picture, box in names:
            renderer.draw_image(gc, round(box.x0), round(box.y0), picture)
        gc.restore()


@lru_cache(maxsize=1000)
def _picture(text: str, size: float, ink: str, halo: str, dpi: float) -> NDArray[np.uint8]:
    """Return a (height, width, 4) image of a text; `size` is in points."""
    figure = Figure(dpi=dpi, facecolor="none")
    canvas = FigureCanvasAgg(figure)
    letters = figure.text(0.5, 0.5, text, ha="center", va="center", color=ink, parse_math=False)
    letters.set(fontsize=size, fontweight="bold" if size > 7 else "normal")
    letters.set_path_effects([withStroke(linewidth=size / 4, foreground=halo)])
    box, margin = letters.get_window_extent(), size / 4 * dpi / 72 + 1
    figure.set_size_inches((box.width + margin) / dpi, (box.height + margin) / dpi)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.array(canvas.buffer_rgba())[::-1].copy()  # type: ignore[no-untyped-call]

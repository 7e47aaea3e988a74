"""Title of a panel of the map, and the names of the classes on it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from matplotlib.artist import Artist
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.path import Path
from matplotlib.patheffects import withStroke
from matplotlib.transforms import Bbox, IdentityTransform
from numpy.typing import NDArray

from centroid_encoder.pl._legend import move_apart, wrapped

TITLE_SIZE = 9
"""Points."""
TITLE_GAP = 3
"""Points between a panel and its title."""


class Written(NamedTuple):
    """A text on the figure."""

    text: str
    picture: NDArray[np.uint8]
    box: Bbox
    """Place of the picture, in pixels of the figure."""


class Texts(Artist):
    """A title, and names at the centers of their classes, moved apart where they would overlap.

    Each text is an image that is made once: matplotlib would lay out every letter again, and draw
    its halo as a path, in every frame of a training.

    Attributes
    ----------
    title
        Text above the panel.
    names, centers
        Names of the classes, and their (n, 2) places; those out of view are not written.
    ink, halo
        Colours of the letters, and of the halo that keeps names readable over points.
    """

    def __init__(self, ax: Any, zorder: float) -> None:
        super().__init__()
        self.set_zorder(zorder)
        ax.add_artist(self)
        self._ax = ax
        self.title = ""
        self.names: list[str] = []
        self.centers: NDArray[np.floating] = np.empty((0, 2))
        self.ink = self.halo = "black"

    def written_title(self) -> Written:
        """Return the title and its place."""
        panel, dpi = self._ax.bbox, self._ax.figure.dpi
        picture = _picture(self.title, TITLE_SIZE, "normal", self.ink, None, dpi)
        height, width, _ = picture.shape
        left, bottom = (panel.x0 + panel.x1 - width) / 2, panel.y1 + TITLE_GAP / 72 * dpi
        return Written(self.title, picture, Bbox.from_bounds(left, bottom, width, height))

    def written_names(self) -> tuple[list[Written], NDArray[np.floating]]:
        """Return the names that are in view, and the (n, 2, 2) ends of their lines.

        A line leads from the center of a class to its name, if the name had to move away.
        """
        panel, dpi = self._ax.bbox, self._ax.figure.dpi
        places = self._ax.transData.transform(self.centers)
        seen = np.flatnonzero(((places > panel.min) & (places < panel.max)).all(axis=1))
        # In a small panel, large letters would hide the cells.
        size = float(np.clip(panel.width / dpi * 3, 6, 9))
        style = size, "bold" if size > 7 else "normal", self.ink, self.halo, dpi
        names = [wrapped(self.names[i]) for i in seen.tolist()]
        pictures = [_picture(name, *style) for name in names]
        sizes = np.reshape([picture.shape[1::-1] for picture in pictures], (-1, 2))
        middles, has_left = move_apart(places[seen], sizes, panel.padded(-2 * dpi / 96))
        boxes = map(Bbox.from_extents, np.hstack([middles - sizes / 2, middles + sizes / 2]))
        written = list(map(Written, names, pictures, boxes))
        return written, np.stack([places[seen], middles], axis=1)[has_left]

    def draw(self, renderer: Any) -> None:
        """Draw title, lines and names."""
        names, lines = self.written_names()
        gc = renderer.new_gc()
        gc.set_foreground(self.ink)
        gc.set_linewidth(renderer.points_to_pixels(0.6))
        for line in lines:
            renderer.draw_path(gc, Path(line), IdentityTransform())
        for _, picture, box in (self.written_title(), *names):
            renderer.draw_image(gc, round(box.x0), round(box.y0), picture)
        gc.restore()


@lru_cache(maxsize=1000)
def _picture(
    text: str, size: float, weight: str, ink: str, halo: str | None, dpi: float
) -> NDArray[np.uint8]:
    """Return a (height, width, 4) image of a text, whose size is in points."""
    figure = Figure(dpi=dpi, facecolor="none")
    canvas = FigureCanvasAgg(figure)
    letters = figure.text(0.5, 0.5, text, ha="center", va="center", color=ink, parse_math=False)
    letters.set(fontsize=size, fontweight=weight)
    border = 0.0
    if halo is not None:
        border = size / 4
        letters.set_path_effects([withStroke(linewidth=border, foreground=halo)])
    box, margin = letters.get_window_extent(), border * dpi / 72 + 1
    figure.set_size_inches((box.width + margin) / dpi, (box.height + margin) / dpi)
    canvas.draw()  # type: ignore[no-untyped-call]
    return np.array(canvas.buffer_rgba())[::-1].copy()  # type: ignore[no-untyped-call]

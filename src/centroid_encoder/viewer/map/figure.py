"""The map as matplotlib artists, which each new frame updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.path import Path
from matplotlib.transforms import IdentityTransform
from numpy.typing import NDArray

from centroid_encoder.core.regions import blended_colors
from centroid_encoder.pl._points import opacities
from centroid_encoder.pl._regions import REGION_ALPHA
from centroid_encoder.viewer.map.artists import Dots, Ground, Names
from centroid_encoder.viewer.map.scene import Colors, Scene, Style, blend, readable

MAX_NAMES = 20
"""With more classes, their names would hide the map; they are written if the user wants them."""
FEW, LARGEST_DOT = 20, 8
"""If fewer cells are selected, their dots have this diameter in points."""
N_PIXELS = 160
"""Width and height of the picture of soft regions, which are twice as wide as the map."""
FADED, LESS_FADED = 0.55, 0.3
"""Opacity of the veil over the cells that are not selected, and while cells are labelled."""


class MapFigure:
    """Cells over the regions of their classes; held-out cells are rings.

    Call `update` after a change of these attributes.

    Attributes
    ----------
    style
        Colours of napari's theme.
    colors
        Colour of each class.
    hidden
        Names of the classes whose points are not drawn; their regions are.
    values
        The colours of the points if these are not those of their classes; grey for the code −1.
    """

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self._canvas: Any = figure.canvas
        self._background: Any = None
        """Pixels of the figure without selection, hover and outline."""
        self._canvas.mpl_connect("draw_event", self._on_draw)
        self.scene = Scene()
        self.style = Style()
        self.colors: Sequence[str] = ()
        self.hidden: frozenset[str] = frozenset()
        self.values: Colors | None = None
        self._selected: NDArray[np.bool_] | None = None
        self._named: bool | None = None
        self._outline = Line2D([], [], lw=1, ls="--", transform=IdentityTransform())
        self.ax: Any = figure.add_axes((0, 0, 1, 1))
        self.ax.set(xticks=[], yticks=[], autoscale_on=False, aspect="equal")
        # Visible axes take a fifth of the drawing time, even without ticks.
        self.ax.xaxis.set_visible(False)
        self.ax.yaxis.set_visible(False)
        self.ax.spines[:].set_visible(False)
        self.rows = np.empty(0, dtype=np.intp)
        """Rows of the drawn cells; the last one is on top."""
        self._codes, self._fills, self._edges = self.rows, [""], [""]
        self._regions = PathCollection([], linewidths=1)
        self.ax.add_collection(self._regions, autolim=False)
        self._blend = Ground(zorder=0.5)
        self._blended: tuple[Any, ...] = ()
        """Centers, colours and limits of the picture of soft regions."""
        self._veil = Rectangle((0, 0), 1, 1, animated=True, transform=self.ax.transAxes)
        dots = [Dots(zorder) for zorder in (1.5, 2, 2.5, 3)]
        self._reference, self._cells, self._bold, self._chosen = dots
        self._chosen.set_animated(True)
        self._names = Names()
        for artist in (self._blend, *dots, self._veil, self._names):
            self.ax.add_artist(artist)
        ring: dict[str, Any] = {"ls": "none", "marker": "o", "mfc": "none", "animated": True}
        (self._hovered,) = self.ax.plot([], [], mew=1.6, markersize=10, zorder=5, **ring)

    @property
    def shown(self) -> NDArray[np.bool_]:
        """(n_classes,) mask of the classes whose cells are drawn."""
        return np.array([name not in self.hidden for name in self.scene.names], dtype=bool)

    @property
    def named(self) -> bool:
        """Whether the names of the classes are written on the map."""
        few = len(self.scene.names) <= MAX_NAMES
        return few if self._named is None else self._named

    @property
    def _colored(self) -> tuple[NDArray[np.intp], Sequence[str]]:
        """Index of each point's colour, and the colours."""
        own = self.scene.codes, self.colors
        return own if self.values is None else (self.values.codes, self.values.colors)

    def set_named(self, named: bool) -> None:
        """Show or hide the names of the classes, whatever their number is."""
        self._named = named
        self.update()

    def show(
        self, scene: Scene, colors: Sequence[str], selected: NDArray[np.bool_] | None = None
    ) -> None:
        """Draw a scene with a colour for each class; keep the view if the limits are the same.

        The cells of the mask `selected`, (n_obs,), keep their colours, while all others fade.
        """
        before, self.scene, self.colors = self.scene, scene, colors
        if selected is not None or len(before.points) != len(scene.points):
            self._selected = selected
        self._regions.set_paths(scene.shapes)
        # The cell under the mouse has moved or is another one.
        self._hovered.set_data([], [])
        self.update()
        if len(scene.points) and not np.array_equal(before.limits, scene.limits):
            self.home()

    def home(self) -> None:
        """Show the whole map."""
        self.look_at(self.scene.limits)

    def look_at(self, view: NDArray[np.floating]) -> None:
        """Show the part between two corners, (2, 2): lower left and upper right."""
        self.ax.set(xlim=view[:, 0], ylim=view[:, 1])
        self.ax.apply_aspect()
        self._canvas.draw_idle()

    @property
    def selected(self) -> NDArray[np.intp]:
        """Rows of the selected cells that are drawn; the last one is on top."""
        return self.rows[:0] if self._selected is None else self.rows[self._selected[self.rows]]

    def select(self, selected: NDArray[np.bool_] | None) -> None:
        """Let the cells of an (n_obs,) mask keep their colours, while all others fade."""
        self._selected = selected
        self._mark()
        self._refresh()

    def hover(self, row: int | None) -> None:
        """Draw a ring around the cell under the mouse."""
        self._hovered.set_data(*self.scene.points[self.rows[self.rows == row]].T)
        self._refresh()

    def trace(self, outline: Sequence[tuple[float, float]]) -> None:
        """Draw an outline, in pixels of the figure; an empty one removes the last."""
        self._outline.set_data(*np.reshape([*outline, *outline[:1]], (-1, 2)).T)
        self._refresh()

    def within(self, outline: Path) -> NDArray[np.intp]:
        """Return the rows of the cells within an outline."""
        return np.sort(self.rows[outline.contains_points(self._cells.points)])

    def nearest(self, x: float, y: float, radius: float) -> int | None:
        """Return the row of the cell nearest to a place, or None; all lengths are in pixels."""
        to_data = self.ax.transData.inverted().transform
        at, (beside, _) = to_data([(x, y), (x + radius, y)])
        # A search tree would have to be built again in each frame of a training.
        near = np.flatnonzero((np.abs(self._cells.points - at) < beside - at[0]).all(axis=1))
        distances = np.linalg.norm(self._cells.points[near] - at, axis=1)
        if not (distances < beside - at[0]).any():
            return None
        return int(self.rows[near[distances.argmin()]])

    def _on_draw(self, _: object) -> None:
        self._background = self._canvas.copy_from_bbox(self.figure.bbox)
        self._draw_overlays()

    def _draw_overlays(self) -> None:
        """Draw selection, hover and outline on top of all else."""
        artists: list[Any] = [self._hovered]
        if n := len(self.selected):
            # A name must not hide one selected cell, nor many cells a name.
            above = [self._chosen, self._names] if n >= FEW else [self._names, self._chosen]
            artists = [self._veil, *above, self._hovered]
        for artist in artists:
            self.ax.draw_artist(artist)
        self.figure.draw_artist(self._outline)

    def _refresh(self) -> None:
        """Draw selection, hover and outline again, but not the points."""
        if self._background is None:
            self._canvas.draw_idle()
            return
        self._canvas.restore_region(self._background)
        self._draw_overlays()
        self._canvas.blit()

    def update(self) -> None:
        """Set the content and the colours of all artists."""
        scene, style, shown = self.scene, self.style, self.shown
        alpha = REGION_ALPHA + 0.1 * style.dark
        codes, colors = self._colored
        has_regions = len(scene.shapes) > 0 and self.values is None
        fills = [*colors, style.unlabeled]
        grounds = [blend(fill, style.panel, alpha * has_regions) for fill in fills]
        edges = [readable(*pair, style.ink) for pair in zip(fills, grounds, strict=True)]
        # Rings have the edge of their class, and the codes after those of the classes.
        self._fills = [*colors, *[style.panel] * len(colors), style.unlabeled]
        self._edges = [*edges[:-1], *edges]
        self._codes = codes.copy()
        self._codes[scene.hollow] += len(colors) * (codes[scene.hollow] >= 0)
        pale = [blend(style.ink, style.panel, 0.35)]
        behind = np.zeros(len(scene.reference), dtype=np.intp)
        size = _size_of(len(scene.points))
        self.figure.set_facecolor(style.page)
        self._outline.set_color(style.ink)
        self.ax.set_facecolor(style.panel)
        self._blend.set_visible(scene.soft and len(scene.shapes) > 0)
        if self._blend.get_visible():
            self._draw_blend(alpha)
            self._regions.set(facecolor="none", edgecolor=blend(style.ink, style.panel, 0.35))
            self._regions.set_linewidth(0.5)
        else:
            self._regions.set_facecolor([to_rgba(color, alpha) for color in self.colors])
            self._regions.set(edgecolor=style.panel, linewidth=1)
        self.rows = _drawn(scene, shown, codes)
        bold = self.rows[((scene.codes >= 0) & scene.bold)[self.rows]]
        self._stamp(self._cells, self.rows, size)
        self._stamp(self._bold, bold, _size_of(len(bold)))
        self._reference.set_content(scene.reference, behind, size, pale, pale)
        self._veil.set(facecolor=style.panel, alpha=LESS_FADED if scene.bold else FADED)
        self._hovered.set_markeredgecolor(style.ink)
        named = np.flatnonzero(shown & self.named)
        self._names.names = [scene.names[code] for code in named]
        self._names.centers = scene.centers[named]
        self._names.ink, self._names.halo = style.ink, style.panel
        self._mark()
        # A selection before the next drawing need not draw on top of the last one.
        self._background = None
        self._canvas.draw_idle()

    def _draw_blend(self, alpha: float) -> None:
        """Compute the colours of soft regions, if they differ from the last ones."""
        n = len(self.scene.shapes)
        middle, half = self.scene.limits.mean(axis=0), np.ptp(self.scene.limits, axis=0)
        limits, centers = np.array([middle - half, middle + half]), self.scene.centers[:n]
        shades = [blend(color, self.style.panel, alpha) for color in self.colors[:n]]
        wanted = centers.tobytes(), limits.tobytes(), tuple(shades)
        if wanted != self._blended:
            self._blended = wanted
            rgb = blended_colors(centers, np.array([*map(to_rgb, shades)]), limits, N_PIXELS)
            self._blend.set_content(rgb, limits)

    def _stamp(self, dots: Dots, rows: NDArray[np.intp], size: float) -> None:
        codes, fills = self._codes[rows], self._fills
        opaque = opacities(np.bincount(codes % len(fills), minlength=len(fills)))
        dots.set_content(self.scene.points[rows], codes, size, fills, self._edges, opaque)

    def _mark(self) -> None:
        """Draw the selected cells on top, filled and somewhat larger than all others."""
        if len(points := self.scene.points):
            rows, ink = self.selected, self.style.ink
            codes, colors = self._colored
            few = len(rows) < FEW
            size = max(_size_of(len(points)) + 1, LARGEST_DOT * few)
            fills = [*colors, self.style.unlabeled]
            edges = [ink] * len(fills) if few else fills
            self._chosen.set_content(points[rows], codes[rows], size, fills, edges)


def _size_of(n: int) -> float:
    """Return the diameter in points with which n dots are drawn."""
    return float(np.clip(8_000 / max(n, 1), 2, 30) ** 0.5)


def _drawn(scene: Scene, shown: NDArray[np.bool_], codes: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the rows of the cells that are embedded and whose class is shown, the last on top.

    Cells with the code −1 come first. No class lies on top of the others.
    """
    rows = scene.rows
    rows = rows[np.append(shown, True)[scene.codes[rows]] & ~np.isnan(scene.points[rows, 0])]
    rows = rows[np.random.default_rng(0).permutation(len(rows))]
    has_color = codes[rows] >= 0
    return np.concatenate([rows[~has_color], rows[has_color]])

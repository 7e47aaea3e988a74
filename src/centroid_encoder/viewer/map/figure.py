"""The map as matplotlib artists, which are updated from frame to frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.transforms import IdentityTransform
from numpy.typing import NDArray
from psygnal import Signal

from centroid_encoder.pl._regions import REGION_ALPHA, add_image, paint_image, region_paths
from centroid_encoder.viewer.map.contrast import blend, readable
from centroid_encoder.viewer.map.dots import Dots, contained
from centroid_encoder.viewer.map.names import write_names
from centroid_encoder.viewer.map.scene import NOTHING, Scene, Style

MAX_NAMES = 20
"""Classes whose names are written unless the user wants otherwise: more hide the map."""
MAX_BOLD = 200
"""Selected cells with bold rings: more would hide what they mark."""
MAX_RINGS = 20_000
"""Selected cells with rings; of more, some evenly spaced ones have rings."""
TITLE_SIZE = 9
"""Points."""
LINE = 1.4 * TITLE_SIZE / 72
"""Height of a line of a title in inches."""
GAP = 0.06
"""Inches between panels and around them."""


@dataclass
class _Artists:
    """One panel on the figure."""

    ax: Any
    reference: Dots
    regions: PathCollection
    """One for each class."""
    image: AxesImage
    """Regions that are not polygons."""
    cells: Dots
    selected: Line2D
    hovered: Line2D
    names: list[Any] = field(default_factory=list)


class MapFigure:
    """Panels of cells over the regions of their classes."""

    changed = Signal()
    """The figure has to be drawn."""
    marked = Signal()
    """Only selection, hover or outline changed; `draw_overlays` draws them without the points."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self._scene = NOTHING
        self._style = Style()
        self._colors: list[str] = []
        self._hidden: frozenset[str] = frozenset()
        self._selected: NDArray[np.bool_] | None = None
        self._panels: list[_Artists] = []
        self._named: bool | None = None
        self._values: tuple[NDArray[np.intp], list[str]] | None = None
        self._outline = Line2D([], [], lw=1, ls="--", transform=IdentityTransform())

    @property
    def scene(self) -> Scene | None:
        """The scene that is drawn, or None."""
        return self._scene if self._panels else None

    @property
    def axes(self) -> list[Any]:
        """The panels' axes."""
        return [panel.ax for panel in self._panels]

    @property
    def shown(self) -> NDArray[np.bool_]:
        """(n_classes,) mask of the classes whose cells are drawn."""
        return np.array([name not in self._hidden for name in self._scene.names], dtype=bool)

    @property
    def named(self) -> bool:
        """Whether the names of the classes are written on the map."""
        few = len(self._scene.names) <= MAX_NAMES
        return few if self._named is None else self._named

    def set_named(self, named: bool) -> None:
        """Write the names of the classes or not, however many they are."""
        self._named = named
        self.place_names()
        self.changed.emit()

    def clear(self) -> None:
        """Take everything off the figure."""
        self.show(NOTHING, [])

    def show(self, scene: Scene, colors: Sequence[str]) -> None:
        """Draw a scene.

        Parameters
        ----------
        scene
            What to draw.
        colors
            Colour of each class.
        """
        before, self._scene, self._colors = self._scene, scene, list(colors)
        if len(before.points) != len(scene.points):
            self._selected = self._values = None
        if len(self._panels) != len(scene.panels):
            self._build()
        for panel in self._panels:
            panel.regions.set_paths(region_paths(scene.shapes, len(scene.names)))
            # The cell under the mouse may have moved.
            panel.hovered.set_data([], [])
        self.arrange(*self.figure.bbox.size)
        self._set_points()
        self._paint()
        self.home()

    def home(self) -> None:
        """Show all of the map."""
        self.look_at(self._scene.limits)

    def look_at(self, view: NDArray[np.floating]) -> None:
        """Show the part between two corners: (2, 2) lower left and upper right."""
        for ax in self.axes:
            ax.set(xlim=view[:, 0], ylim=view[:, 1])
        self.place_names()
        self.changed.emit()

    def set_style(self, style: Style) -> None:
        """Follow a theme."""
        self._style = style
        self.figure.set_facecolor(style.page)
        self._paint()
        self.place_names()
        self.changed.emit()

    def set_colors(self, colors: Sequence[str]) -> None:
        """Colour the classes."""
        self._colors = list(colors)
        self._paint()
        self.changed.emit()

    def set_values(self, values: tuple[NDArray[np.intp], list[str]] | None) -> None:
        """Colour the points by something else than their classes; None takes that back.

        Values are an index (n_obs,) of each point's colour, −1 for grey, and the colours.
        """
        if values is not self._values:
            self._values = values
            self._set_points()
            self._paint()
            self.changed.emit()

    def hide(self, names: frozenset[str]) -> None:
        """Leave out the points of these classes; their regions stay."""
        if names != self._hidden:
            self._hidden = names
            self._set_points()
            self.place_names()
            self.changed.emit()

    def select(self, selected: NDArray[np.bool_] | None) -> None:
        """Mark the cells of a (n_obs,) mask."""
        self._selected = selected
        self._mark()
        self.marked.emit()

    def hover(self, row: int | None) -> None:
        """Ring one cell, in the panels that show it."""
        for panel, content in zip(self._panels, self._scene.panels, strict=True):
            at = [] if row is None or row not in content.rows else [row]
            panel.hovered.set_data(*self._scene.points[at].T)
        self.marked.emit()

    def trace(self, outline: Sequence[tuple[float, float]]) -> None:
        """Draw an outline, in pixels of the figure; an empty one removes it."""
        self._outline.set_data(*np.reshape([*outline, *outline[:1]], (-1, 2)).T)
        self.marked.emit()

    def within(self, ax: Any, outline: Path) -> NDArray[np.intp]:
        """Rows of a panel's cells within an outline."""
        rows = self._visible(self._scene.panels[self.axes.index(ax)].rows)
        return np.asarray(rows[contained(outline, self._scene.points[rows])])

    def nearest(self, ax: Any, at: NDArray[np.floating], radius: float) -> int | None:
        """Row of the cell of a panel that is nearest to a place, or None if none is near.

        A search tree would have to be built for each frame of a training.
        """
        points = self._scene.points
        (x, y), (x_at, y_at) = points.T, at.tolist()
        near = np.flatnonzero((np.abs(x - x_at) < radius) & (np.abs(y - y_at) < radius))
        near = self._visible(np.intersect1d(near, self._scene.panels[self.axes.index(ax)].rows))
        distances = np.linalg.norm(points[near] - at, axis=1)
        if not (distances < radius).any():
            return None
        return int(near[distances.argmin()])

    def _visible(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of the rows that are embedded, and of a class that is switched on."""
        shown = np.append(self.shown, True)[self._scene.codes[rows]]
        return np.asarray(rows[shown & ~np.isnan(self._scene.points[rows, 0])])

    def draw_overlays(self) -> None:
        """Draw selection, hover and outline on top of the canvas."""
        for panel in self._panels:
            panel.ax.draw_artist(panel.selected)
            panel.ax.draw_artist(panel.hovered)
        if self._panels:
            self.figure.draw_artist(self._outline)

    def arrange(self, width: float, height: float) -> None:
        """Place square panels beside or above each other, whichever makes them larger.

        Parameters
        ----------
        width, height
            Size of the figure in pixels.
        """
        n = len(self._panels)
        if not n:
            return
        # The number of cells has a line of its own: small panels have no room for longer lines.
        titles = [panel.title.replace(" (n", "\n(n", 1) for panel in self._scene.panels]
        n_lines = max(title.count("\n") for title in titles) + 1
        heading, gap = n_lines * LINE * self.figure.dpi, GAP * self.figure.dpi

        def side(columns: int, rows: int) -> float:
            across = (width - gap * (columns + 1)) / columns
            return max(min(across, (height - gap) / rows - heading - gap), 1.0)

        columns, rows = max((n, 1), (1, n), key=lambda grid: side(*grid))
        size = side(columns, rows)
        left = (width - columns * size - (columns - 1) * gap) / 2
        top = (height - rows * (size + heading) - (rows - 1) * gap) / 2
        for i, (ax, title) in enumerate(zip(self.axes, titles, strict=True)):
            row, column = divmod(i, columns)
            x = left + column * (size + gap)
            y = height - top - (row + 1) * (size + heading) - row * gap
            ax.set_position((x / width, y / height, size / width, size / height))
            ax.title.set_text(title)

    def place_names(self) -> None:
        """Write the names of the classes that are shown where the panels have room for them."""
        scene, style = self._scene, self._style
        written = np.flatnonzero(self.shown & self.named)
        names = [scene.names[code] for code in written]
        for panel in self._panels:
            for artist in panel.names:
                artist.remove()
            panel.names = write_names(
                panel.ax, names, scene.centers[written], ink=style.ink, halo=style.panel
            )

    @property
    def _groups(self) -> tuple[NDArray[np.intp], list[str]]:
        """Which points have a colour in common, −1 for grey, and the colours."""
        return self._values or (self._scene.codes, self._colors)

    def _build(self) -> None:
        self.figure.clear()
        self._panels = []
        for _ in self._scene.panels:
            share = self.axes[0] if self._panels else None
            ax = self.figure.add_axes((0, 0, 1, 1), sharex=share, sharey=share)
            ax.set(xticks=[], yticks=[], autoscale_on=False)
            ax.set_aspect("equal")
            # Axes without ticks would still cost a fifth of a frame, and so would a title that
            # looks for room among them.
            ax.xaxis.set_visible(False)
            ax.yaxis.set_visible(False)
            ax.set_title("", y=1, fontsize=TITLE_SIZE, parse_math=False)
            artists = _Artists(
                ax,
                Dots(ax, 1.5),
                PathCollection([], linewidths=1),
                add_image(ax),
                Dots(ax, 2),
                _ring(ax, zorder=3),
                _ring(ax, mew=1.6, markersize=10, zorder=4),
            )
            ax.add_collection(artists.regions, autolim=False)
            self._panels.append(artists)

    def _set_points(self) -> None:
        scene, (codes_of, colors) = self._scene, self._groups
        size = float(np.clip(8_000 / max(len(scene.points), 1), 2, 30)) ** 0.5
        for panel, content in zip(self._panels, scene.panels, strict=True):
            rows = self._visible(content.rows)
            counts = np.bincount(codes_of[rows] + 1, minlength=len(colors) + 1)
            # Unlabeled cells at the bottom, the smallest class on top.
            depth = np.where(np.arange(len(counts)), counts, len(rows) + 1)
            rows = rows[np.argsort(-depth[codes_of[rows] + 1], kind="stable")]
            panel.cells.set_points(scene.points[rows], codes_of[rows])
            panel.cells.size = panel.reference.size = size
            panel.reference.set_points(scene.reference, np.zeros(len(scene.reference), np.intp))
            panel.selected.set_markersize(size + 2.5)
        self._mark()

    def _mark(self) -> None:
        """Ring the selected cells."""
        for panel, content in zip(self._panels, self._scene.panels, strict=True):
            rows = content.rows[:0]
            if self._selected is not None:
                rows = self._visible(content.rows[self._selected[content.rows]])
            bold = len(rows) < MAX_BOLD
            rows = rows[:: len(rows) // MAX_RINGS + 1]
            panel.selected.set_data(*self._scene.points[rows].T)
            panel.selected.set_markeredgewidth(1.2 if bold else 0.5)

    def _paint(self) -> None:
        """Give every artist its colour."""
        scene, style = self._scene, self._style
        alpha = REGION_ALPHA + 0.1 * style.dark
        colors = [*self._groups[1], style.unlabeled]
        has_regions = len(scene.shapes) > 0 and self._values is None
        grounds = [blend(c, style.panel, alpha * has_regions) for c in colors]
        edges = [readable(c, g, style.ink) for c, g in zip(colors, grounds, strict=True)]
        self._outline.set_color(style.ink)
        for panel in self._panels:
            panel.ax.set_facecolor(style.panel)
            panel.ax.title.set_color(style.ink)
            panel.ax.spines[:].set_visible(False)
            panel.regions.set_facecolor([to_rgba(color, alpha) for color in self._colors])
            panel.regions.set_edgecolor(style.panel)
            paint_image(panel.image, scene.shapes, scene.limits, self._colors, alpha)
            panel.cells.set_colors(colors, edges)
            pale = [blend(style.ink, style.panel, 0.35)]
            panel.reference.set_colors(pale, pale)
            for overlay in (panel.selected, panel.hovered):
                overlay.set(markerfacecolor="none", markeredgecolor=style.ink)


def _ring(ax: Any, **style: Any) -> Line2D:
    ring: Line2D = ax.plot([], [], ls="none", marker="o", animated=True, **style)[0]
    return ring

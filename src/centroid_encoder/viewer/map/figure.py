"""The map as matplotlib artists, which are updated from frame to frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.transforms import IdentityTransform
from numpy.typing import NDArray
from psygnal import Signal

from centroid_encoder.pl._regions import (
    REGION_ALPHA,
    Shapes,
    add_image,
    paint_image,
    region_paths,
)
from centroid_encoder.viewer.map.contrast import blend, readable
from centroid_encoder.viewer.map.dots import Dots, contained
from centroid_encoder.viewer.map.names import write_names

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


@dataclass(frozen=True)
class Panel:
    """Cells that are drawn in one panel, and its title."""

    title: str
    rows: NDArray[np.intp]


@dataclass(frozen=True)
class Scene:
    """What there is to draw."""

    points: NDArray[np.floating]
    """(n_obs, 2); NaN for cells that were left out."""
    codes: NDArray[np.intp]
    """(n_obs,) class of each cell, −1 for unlabeled ones."""
    panels: tuple[Panel, ...]
    shapes: Shapes
    """Regions of the classes; empty to draw none."""
    limits: NDArray[np.floating]
    """(2, 2) lower left and upper right corner of the panels."""
    n_classes: int
    names: tuple[str, ...] = ()
    """Names of the classes, to be written at their `centers`; empty for none."""
    centers: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 2)))
    """(n_classes, 2), or as many as there are names."""
    reference: NDArray[np.floating] = field(default_factory=lambda: np.empty((0, 2)))
    """(n, 2) reference cells, pale behind the cells of the scene."""


NOTHING = Scene(np.empty((0, 2)), np.empty(0, dtype=np.intp), (), (), np.zeros((2, 2)), 0)


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
        self._shown = np.empty(0, dtype=bool)
        self._selected: NDArray[np.bool_] | None = None
        self._panels: list[_Artists] = []
        self._named: bool | None = None
        self._values: tuple[NDArray[np.intp], list[str]] | None = None
        self._outline = Line2D([], [], lw=1, ls="--", transform=IdentityTransform())

    @property
    def scene(self) -> Scene | None:
        """What is drawn."""
        return self._scene if self._panels else None

    @property
    def axes(self) -> list[Any]:
        """The panels' axes."""
        return [panel.ax for panel in self._panels]

    @property
    def shown(self) -> NDArray[np.bool_]:
        """(n_classes,) mask of the classes that are drawn."""
        return self._shown

    @property
    def named(self) -> bool:
        """Whether the names of the classes are written on the map."""
        few = self._scene.n_classes <= MAX_NAMES
        return few if self._named is None else self._named

    def set_named(self, named: bool) -> None:
        """Write the names of the classes or not, however many they are."""
        self._named = named
        self.place_names()
        self.changed.emit()

    def clear(self) -> None:
        """Take everything off the figure."""
        self.figure.clear()
        self._scene, self._panels, self._selected, self._values = NOTHING, [], None, None
        self._colors, self._shown = [], np.empty(0, dtype=bool)
        self.changed.emit()

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
        if before.n_classes != scene.n_classes:
            self._shown = np.ones(scene.n_classes, dtype=bool)
        if len(before.points) != len(scene.points):
            self._selected = self._values = None
        if len(self._panels) != len(scene.panels):
            self._build()
        for panel in self._panels:
            panel.regions.set_paths(region_paths(scene.shapes, scene.n_classes))
        self.arrange(*self.figure.bbox.size)
        self._set_points()
        # The cell under the mouse may have moved.
        self._ring(None)
        self._paint()
        self.home()

    def home(self) -> None:
        """Show all of the map."""
        (x_min, y_min), (x_max, y_max) = self._scene.limits.tolist()
        for ax in self.axes:
            ax.set(xlim=(x_min, x_max), ylim=(y_min, y_max))
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
        self._values = values
        self._set_points()
        self._paint()
        self.changed.emit()

    def set_shown(self, shown: NDArray[np.bool_]) -> None:
        """Show the points of some classes only; all regions stay."""
        self._shown = shown
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
        self._ring(row)
        self.marked.emit()

    def trace(self, outline: Sequence[tuple[float, float]]) -> None:
        """Draw an outline, in pixels of the figure; an empty one removes it."""
        self._outline.set_data(*np.reshape([*outline, *outline[:1]], (-1, 2)).T)
        self.marked.emit()

    def within(self, ax: Any, outline: Path) -> NDArray[np.intp]:
        """Rows of a panel's cells within an outline."""
        rows = self._visible(self._rows_in(ax))
        within: NDArray[np.intp] = rows[contained(outline, self._scene.points[rows])]
        return within

    def nearest(self, ax: Any, at: NDArray[np.floating], radius: float) -> int | None:
        """Row of the cell of a panel that is nearest to a place, or None if none is near.

        A search tree would have to be built for each frame of a training.
        """
        points = self._scene.points
        (x, y), (x_at, y_at) = points.T, at.tolist()
        near = np.flatnonzero((np.abs(x - x_at) < radius) & (np.abs(y - y_at) < radius))
        near = self._visible(near[np.isin(near, self._rows_in(ax))])
        distances = np.linalg.norm(points[near] - at, axis=1)
        if not (distances < radius).any():
            return None
        return int(near[distances.argmin()])

    def _rows_in(self, ax: Any) -> NDArray[np.intp]:
        return self._scene.panels[self.axes.index(ax)].rows

    def _visible(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of the rows that are embedded, and of a class that is switched on."""
        shown = np.append(self._shown, True)[self._scene.codes[rows]]
        visible: NDArray[np.intp] = rows[shown & ~np.isnan(self._scene.points[rows, 0])]
        return visible

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
        titles = [panel.title for panel in self._scene.panels]
        for ax, text in zip(self.axes, titles, strict=True):
            ax.title.set_text(text)
        longest = max(ax.title.get_window_extent().width for ax in self.axes)
        n_lines = 1 + max(text.count("\n") for text in titles)
        line, gap = LINE * self.figure.dpi, GAP * self.figure.dpi

        def place(columns: int, rows: int) -> tuple[float, float, bool, int, int]:
            """Side of a panel, height of its title, whether that is split, columns and rows."""
            across = (width - gap * (columns + 1)) / columns
            title = line * (n_lines + (longest > across))
            side = min(across, (height - gap) / rows - title - gap)
            return max(side, 1.0), title, longest > across, columns, rows

        size, title, is_split, columns, rows = max(place(n, 1), place(1, n))
        left = (width - columns * size - (columns - 1) * gap) / 2
        top = (height - rows * (size + title) - (rows - 1) * gap) / 2
        for i, ax in enumerate(self.axes):
            row, column = divmod(i, columns)
            x = left + column * (size + gap)
            y = height - top - (row + 1) * (size + title) - row * gap
            ax.set_position((x / width, y / height, size / width, size / height))
            if is_split:
                ax.title.set_text(titles[i].replace(" (n", "\n(n"))

    def place_names(self) -> None:
        """Write the names of the classes that are shown where the panels have room for them."""
        scene, style = self._scene, self._style
        shown = self._shown & (self.named and bool(scene.names))
        names = [name for name, on in zip(scene.names, shown, strict=False) if on]
        for panel in self._panels:
            for artist in panel.names:
                artist.remove()
            centers = scene.centers[shown] if names else scene.centers[:0]
            colors = {"ink": style.ink, "halo": style.panel}
            panel.names = write_names(panel.ax, names, centers, **colors)

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
            grey = np.zeros(len(scene.reference), dtype=np.intp)
            panel.reference.set_points(scene.reference, grey)
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

    def _ring(self, row: int | None) -> None:
        """Ring one cell, in the panels that show it."""
        for panel, content in zip(self._panels, self._scene.panels, strict=True):
            at = [] if row is None or row not in content.rows else [row]
            panel.hovered.set_data(*self._scene.points[at].T)

    def _paint(self) -> None:
        """Give every artist its colour."""
        style, scene = self._style, self._scene
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
    (line,) = ax.plot([], [], ls="none", marker="o", animated=True, **style)
    assert isinstance(line, Line2D)
    return line

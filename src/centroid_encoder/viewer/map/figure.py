"""The plot as matplotlib artists that are updated, not made anew, from frame to frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray
from psygnal import Signal

from centroid_encoder.core.quality import class_centers
from centroid_encoder.core.regions import Region, voronoi_regions
from centroid_encoder.pl._regions import REGION_ALPHA, region_path

DRAFT = 50_000
"""Points that are drawn while something moves; at rest all are."""
LINE = 17
"""Height in pixels that is kept for a line of a panel's title, at 96 dots per inch."""
LETTER = 6
"""Width in pixels of a letter of a title."""
GAP = 6
FEW = 200
"""Selected cells that can be ringed boldly."""


@dataclass(frozen=True)
class Panel:
    """Which cells are drawn side by side, and what is written above them."""

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
    outlines: Sequence[Region]
    """The regions of the classes; empty to draw none."""
    limits: NDArray[np.floating]
    """(2, 2) lower left and upper right corner of the panels."""
    n_classes: int


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
    fills: list[PathPatch]
    borders: list[PathPatch]
    lines: list[Line2D]
    """One for each class and one for unlabeled cells: by far the fastest way to draw points."""
    selected: Line2D
    hovered: Line2D

    @property
    def overlays(self) -> tuple[Line2D, Line2D]:
        return self.selected, self.hovered


class MapFigure:
    """Panels of cells over the regions of their classes."""

    changed = Signal()
    """The figure has to be drawn."""
    marked = Signal()
    """Only selection or hover, which are drawn without the points (`draw_overlays`)."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self._scene = NOTHING
        self._style = Style()
        self._colors: list[str] = []
        self._shown = np.empty(0, dtype=bool)
        self._selected: NDArray[np.bool_] | None = None
        self._panels: list[_Artists] = []
        self._beside = True
        self._detailed = True

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

    def clear(self) -> None:
        """Take everything off the figure."""
        self.figure.clear()
        self._scene, self._panels, self._selected = NOTHING, [], None
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
        same_classes = before.n_classes == scene.n_classes
        if not same_classes:
            self._shown = np.ones(scene.n_classes, dtype=bool)
        if len(before.points) != len(scene.points):
            self._selected = None
        if len(self._panels) != len(scene.panels) or not same_classes:
            self._build()
        paths = [region_path(region) for region in scene.outlines]
        for panel in self._panels:
            for code, (fill, border) in enumerate(zip(panel.fills, panel.borders, strict=True)):
                path = paths[code] if code < len(paths) else None
                for patch in (fill, border):
                    patch.set_visible(path is not None)
                    if path is not None:
                        patch.set_path(path)
        self.arrange(*self.figure.get_size_inches() * self.figure.dpi)
        self._set_points()
        # The cell under the mouse may be elsewhere now.
        self._ring(None)
        self._paint()
        self.home()

    def home(self) -> None:
        """Show all of the map."""
        (x_min, y_min), (x_max, y_max) = self._scene.limits.tolist()
        for ax in self.axes:
            ax.set(xlim=(x_min, x_max), ylim=(y_min, y_max))
        self.changed.emit()

    def set_style(self, style: Style) -> None:
        """Follow a theme."""
        self._style = style
        self.figure.set_facecolor(style.page)
        self._paint()
        self.changed.emit()

    def set_colors(self, colors: Sequence[str]) -> None:
        """Colour the classes."""
        self._colors = list(colors)
        self._paint()
        self.changed.emit()

    def set_shown(self, shown: NDArray[np.bool_]) -> None:
        """Show the points of some classes only; all regions stay, as the ground they stand on."""
        self._shown = shown
        self._paint()
        self._mark()
        self.changed.emit()

    def set_detailed(self, detailed: bool) -> bool:
        """Draw all points, or, for speed, a part of them; tell whether that makes a difference."""
        n = max((len(panel.rows) for panel in self._scene.panels), default=0)
        differs = detailed != self._detailed and n > DRAFT
        self._detailed = detailed
        if differs:
            self._set_points()
            self.changed.emit()
        return differs

    def select(self, selected: NDArray[np.bool_] | None) -> None:
        """Mark the cells of a (n_obs,) mask."""
        self._selected = selected
        self._mark()
        self.marked.emit()

    def hover(self, row: int | None) -> None:
        """Ring one cell, in the panels that show it."""
        self._ring(row)
        self.marked.emit()

    def within(self, ax: Any, outline: Path) -> NDArray[np.intp]:
        """Rows of a panel's cells within an outline; cells that only the draft leaves out, too."""
        rows = self._visible(self._rows_in(ax))
        within: NDArray[np.intp] = rows[outline.contains_points(self._scene.points[rows])]
        return within

    def nearest(self, ax: Any, at: NDArray[np.floating], reach: float) -> int | None:
        """Row of the cell of a panel that is nearest to a place, or None if none is within reach.

        There is no tree to search in: it would be built anew for each frame of a training.
        """
        points = self._scene.points
        (x, y), (x_at, y_at) = points.T, at.tolist()
        near = np.flatnonzero((np.abs(x - x_at) < reach) & (np.abs(y - y_at) < reach))
        near = self._visible(near[np.isin(near, self._rows_in(ax))])
        distances = np.linalg.norm(points[near] - at, axis=1)
        if not (distances < reach).any():
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
        """Draw selection and hover on top of what the canvas shows."""
        for panel in self._panels:
            for overlay in panel.overlays:
                panel.ax.draw_artist(overlay)

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
        dpi = self.figure.dpi / 96
        # Where there is little room, a line of each title becomes two.
        n_lines = 2 + max(panel.title.count("\n") for panel in self._scene.panels)
        title, gap = n_lines * LINE * dpi, GAP * dpi

        def side(columns: int, rows: int) -> float:
            across = (width - gap * (columns + 1)) / columns
            return min(across, (height - gap) / rows - title - gap)

        self._beside = side(n, 1) >= side(1, n)
        columns, rows = (n, 1) if self._beside else (1, n)
        size = max(side(columns, rows), 1.0)
        left = (width - columns * size - (columns - 1) * gap) / 2
        top = (height - rows * (size + title) - (rows - 1) * gap) / 2
        for i, ax in enumerate(self.axes):
            column, row = (i, 0) if self._beside else (0, i)
            x = left + column * (size + gap)
            y = height - top - (row + 1) * (size + title) - row * gap
            ax.set_position((x / width, y / height, size / width, size / height))
        self._write_titles()

    def _write_titles(self) -> None:
        """Write what is above the panels, in two lines where one would be too long."""
        lines = [line for panel in self._scene.panels for line in panel.title.split("\n")]
        longest = max(map(len, lines), default=0)
        for ax, panel in zip(self.axes, self._scene.panels, strict=True):
            width = ax.get_position().width * self.figure.bbox.width
            narrow = longest * LETTER * self.figure.dpi / 96 > width
            ax.title.set_text(panel.title.replace(" (n", "\n(n") if narrow else panel.title)

    def _build(self) -> None:
        self.figure.clear()
        self._panels = []
        for _ in self._scene.panels:
            share = self.axes[0] if self._panels else None
            ax = self.figure.add_axes((0, 0, 1, 1), sharex=share, sharey=share)
            ax.set(xticks=[], yticks=[], autoscale_on=False)
            ax.set_aspect("equal")
            # What cannot be seen costs a fifth of a frame all the same: axes without ticks, and a
            # title that looks for room among them.
            ax.xaxis.set_visible(False)
            ax.yaxis.set_visible(False)
            ax.set_title("", y=1, fontsize=9, parse_math=False)
            classes = range(self._scene.n_classes)
            self._panels.append(
                _Artists(
                    ax,
                    fills=[_region(ax, alpha=REGION_ALPHA, linewidth=0) for _ in classes],
                    borders=[_region(ax, facecolor="none", linewidth=1) for _ in classes],
                    lines=[_points(ax, zorder=2) for _ in (*classes, None)],
                    selected=_points(ax, animated=True, markeredgewidth=1.2, zorder=3),
                    hovered=_points(
                        ax, animated=True, markeredgewidth=1.6, markersize=10, zorder=4
                    ),
                )
            )

    def _thinned(self, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        if self._detailed or len(rows) <= DRAFT:
            return rows
        # Evenly spaced, not drawn by lot: points that stay from frame to frame do not flicker.
        return rows[:: -(-len(rows) // DRAFT)]

    def _set_points(self) -> None:
        scene = self._scene
        area = np.clip(8_000 / max(len(scene.points), 1), 2, 30)
        for panel, content in zip(self._panels, scene.panels, strict=True):
            rows = self._thinned(content.rows)
            codes = scene.codes[rows]
            counts = np.bincount(codes + 1, minlength=scene.n_classes + 1)
            for code, line in enumerate(panel.lines):
                is_class = code < scene.n_classes
                members = scene.points[rows[codes == (code if is_class else -1)]]
                line.set_data(*members.T)
                line.set_markersize(np.sqrt(area))
                # The smallest class on top, unlabeled cells beneath all.
                below = (counts[1:] > counts[code + 1]).sum() if is_class else -1
                line.set_zorder(2 + below / (scene.n_classes + 1))
            panel.selected.set_markersize(np.sqrt(area) + 2.5)
        self._mark()

    def _mark(self) -> None:
        """Ring the selected cells."""
        for panel, content in zip(self._panels, self._scene.panels, strict=True):
            rows = content.rows[:0]
            if self._selected is not None:
                rows = self._visible(content.rows[self._selected[content.rows]])
            rows = self._thinned(rows)
            panel.selected.set_data(*self._scene.points[rows].T)
            # Many thick rings would hide what they mark.
            panel.selected.set_markeredgewidth(1.2 if len(rows) < FEW else 0.5)

    def _ring(self, row: int | None) -> None:
        """Ring one cell, in the panels that show it."""
        for panel, content in zip(self._panels, self._scene.panels, strict=True):
            at = [] if row is None or row not in content.rows else [row]
            panel.hovered.set_data(*self._scene.points[at].T)

    def _paint(self) -> None:
        """Give every artist its colour."""
        style = self._style
        for panel in self._panels:
            panel.ax.set_facecolor(style.panel)
            panel.ax.title.set_color(style.ink)
            panel.ax.spines[:].set_visible(False)
            for fill, border, color in zip(panel.fills, panel.borders, self._colors, strict=True):
                fill.set_facecolor(color)
                fill.set_alpha(REGION_ALPHA + 0.1 * style.dark)
                border.set_edgecolor(style.panel)
            for line, color, shown in zip(
                panel.lines,
                [*self._colors, style.unlabeled],
                [*self._shown, True],
                strict=True,
            ):
                line.set_color(color)
                line.set_visible(shown)
            for overlay in panel.overlays:
                overlay.set(markerfacecolor="none", markeredgecolor=style.ink)


def live_outlines(
    embedding: NDArray[np.floating],
    codes: NDArray[np.integer],
    train: NDArray[np.bool_],
    n_classes: int,
    limits: NDArray[np.floating],
) -> list[Region]:
    """Voronoi cell of each class while a training goes on, before there is a result.

    Parameters
    ----------
    embedding
        (n, 2) embedding after an epoch.
    codes
        (n,) classes; −1 for none.
    train
        (n,) mask of the training cells, whose means are the centers.
    n_classes
        Number of classes. One without training cells owns nothing.
    limits
        (2, 2) what `panel_limits` gave for the points.
    """
    (x_min, y_min), (x_max, y_max) = limits.tolist()
    centers = class_centers(embedding[train], codes[train], n_classes)
    return voronoi_regions(centers, (x_min, y_min, x_max, y_max))


def _region(ax: Any, **style: Any) -> PathPatch:
    patch = PathPatch(Path([(0.0, 0.0)]), visible=False, **style)
    ax.add_patch(patch)
    return patch


def _points(ax: Any, **style: Any) -> Line2D:
    (line,) = ax.plot([], [], **({"ls": "none", "marker": "o", "markeredgewidth": 0} | style))
    assert isinstance(line, Line2D)
    return line

"""The plot as matplotlib artists that are updated, not made anew, from frame to frame."""

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
from numpy.typing import NDArray
from psygnal import Signal

from centroid_encoder.pl._regions import (
    REGION_ALPHA,
    Shapes,
    add_image,
    paint_image,
    region_paths,
)
from centroid_encoder.viewer.map.names import MANY, explain_dots, write_names

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
    """(n, 2) cells of others to which those of the scene are compared, grey behind them."""


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
    reference: Line2D
    regions: PathCollection
    """One for each class."""
    image: AxesImage
    """Regions that are not polygons."""
    lines: list[Line2D]
    """One for each class and one for unlabeled cells: by far the fastest way to draw points."""
    selected: Line2D
    hovered: Line2D
    names: list[Any] = field(default_factory=list)

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
        self._named: bool | None = None
        self._values: tuple[NDArray[np.intp], list[str]] | None = None

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
        few = self._scene.n_classes <= MANY
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
        same_classes = before.n_classes == scene.n_classes
        if not same_classes:
            self._shown = np.ones(scene.n_classes, dtype=bool)
        if len(before.points) != len(scene.points):
            self._selected = self._values = None
        same_lines = all(len(p.lines) == len(self._groups[1]) + 1 for p in self._panels)
        if len(self._panels) != len(scene.panels) or not same_classes or not same_lines:
            self._build()
        for panel in self._panels:
            panel.regions.set_paths(region_paths(scene.shapes, scene.n_classes))
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
        self.place_names()
        self.changed.emit()

    def set_style(self, style: Style) -> None:
        """Follow a theme."""
        self._style = style
        self.figure.set_facecolor(style.page)
        self._paint()
        self._explain()
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
        view = [(ax.get_xlim(), ax.get_ylim()) for ax in self.axes]
        self.show(self._scene, self._colors)
        for ax, (x, y) in zip(self.axes, view, strict=True):
            ax.set(xlim=x, ylim=y)
        self.place_names()

    def set_shown(self, shown: NDArray[np.bool_]) -> None:
        """Show the points of some classes only; all regions stay, as the ground they stand on."""
        self._shown = shown
        self._set_points()
        self._paint()
        self.place_names()
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
        n_lines += bool(len(self._scene.reference))
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

    def _write_titles(self) -> None:
        """Write what is above the panels, in two lines where one would be too long."""
        lines = [line for panel in self._scene.panels for line in panel.title.split("\n")]
        longest = max(map(len, lines), default=0)
        for ax, panel in zip(self.axes, self._scene.panels, strict=True):
            width = ax.get_position().width * self.figure.bbox.width
            narrow = longest * LETTER * self.figure.dpi / 96 > width
            ax.title.set_text(panel.title.replace(" (n", "\n(n") if narrow else panel.title)
        self._explain()

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
            # What cannot be seen costs a fifth of a frame all the same: axes without ticks, and a
            # title that looks for room among them.
            ax.xaxis.set_visible(False)
            ax.yaxis.set_visible(False)
            ax.set_title("", y=1, fontsize=9, parse_math=False)
            regions = PathCollection([], linewidths=1)
            ax.add_collection(regions, autolim=False)
            image = add_image(ax)
            self._panels.append(
                _Artists(
                    ax,
                    _points(ax, zorder=1.5, alpha=0.35),
                    regions,
                    image,
                    lines=[_points(ax, zorder=2) for _ in (*self._groups[1], None)],
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
        scene, (codes_of, colors) = self._scene, self._groups
        every = np.arange(len(scene.reference))
        area = np.clip(8_000 / max(len(scene.points), len(every), 1), 2, 30)
        for panel, content in zip(self._panels, scene.panels, strict=True):
            rows = self._thinned(content.rows)
            if self._values is not None:
                rows = self._visible(rows)
            codes = codes_of[rows]
            counts = np.bincount(codes + 1, minlength=len(colors) + 1)
            for code, line in enumerate(panel.lines):
                is_class = code < len(colors)
                members = scene.points[rows[codes == (code if is_class else -1)]]
                line.set_data(*members.T)
                line.set_markersize(np.sqrt(area))
                # The smallest class on top, unlabeled cells beneath all.
                below = (counts[1:] > counts[code + 1]).sum() if is_class else -1
                line.set_zorder(2 + below / (len(colors) + 1))
            panel.reference.set_data(*scene.reference[self._thinned(every)].T)
            panel.reference.set_markersize(np.sqrt(area))
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
            alpha = REGION_ALPHA + 0.1 * style.dark
            panel.regions.set_facecolor([to_rgba(color, alpha) for color in self._colors])
            panel.regions.set_edgecolor(style.panel)
            scene = self._scene
            paint_image(panel.image, scene.shapes, scene.limits, self._colors, alpha)
            for line, color in zip(panel.lines, [*self._groups[1], style.unlabeled], strict=True):
                line.set_color(color)
            for line, shown in zip(panel.lines, self._shown, strict=False):
                line.set_visible(shown or self._values is not None)
            panel.reference.set_color(style.ink)
            for overlay in panel.overlays:
                overlay.set(markerfacecolor="none", markeredgecolor=style.ink)

    def _explain(self) -> None:
        """Say above the titles what is grey."""
        n = len(self._scene.reference)
        text = f"reference cells (n = {n:,})" if n else ""
        for ax in self.axes:
            place = LINE / 96 * (1 + ax.title.get_text().count("\n"))
            explain_dots(ax, text, place, color=self._style.ink)


def _points(ax: Any, **style: Any) -> Line2D:
    (line,) = ax.plot([], [], **({"ls": "none", "marker": "o", "markeredgewidth": 0} | style))
    assert isinstance(line, Line2D)
    return line

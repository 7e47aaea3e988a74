"""The map as matplotlib artists, which each new frame updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.path import Path
from matplotlib.transforms import IdentityTransform
from numpy.typing import NDArray
from psygnal import Signal

from centroid_encoder.pl._regions import REGION_ALPHA
from centroid_encoder.viewer.map.artists import Dots, Names
from centroid_encoder.viewer.map.scene import Panel, Scene, Style, blend, readable

MAX_NAMES = 20
"""With more classes, their names would hide the map; they are written if the user wants them."""
MAX_BOLD = 200
"""With more selected cells, the rings around them are thin."""
MAX_RINGS = 20_000
"""If more cells are selected, only every n-th one has a ring."""
TITLE_SIZE = 9
"""Size of a title in points."""
LINE = 1.4 * TITLE_SIZE / 72
"""Height of a line of a title in inches."""
GAP = 0.06
"""Distance between panels and around them in inches."""


class _Panel:
    """The artists of one panel."""

    def __init__(self, figure: Figure, share: Any) -> None:
        self.ax: Any = figure.add_axes((0, 0, 1, 1), sharex=share, sharey=share)
        self.ax.set(xticks=[], yticks=[], autoscale_on=False, aspect="equal")
        # Visible axes take a fifth of the drawing time, even without ticks.
        self.ax.xaxis.set_visible(False)
        self.ax.yaxis.set_visible(False)
        self.ax.spines[:].set_visible(False)
        self.rows = np.empty(0, dtype=np.intp)
        """Rows of the drawn cells; the last one is on top."""
        self.regions = PathCollection([], linewidths=1)
        """One region for each class."""
        self.ax.add_collection(self.regions, autolim=False)
        self.reference, self.cells = Dots(self.ax, 1.5), Dots(self.ax, 2)
        self.bold = Dots(self.ax, 2.5)
        ring: dict[str, Any] = {"ls": "none", "marker": "o", "mfc": "none", "animated": True}
        (self.selected,) = self.ax.plot([], [], zorder=3, **ring)
        (self.hovered,) = self.ax.plot([], [], mew=1.6, markersize=10, zorder=4, **ring)
        self.names = Names(self.ax, 4)
        self.title = self.ax.set_title("", fontsize=TITLE_SIZE, pad=5, parse_math=False)


class MapFigure:
    """Panels of cells over the regions of their classes.

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
        If points are not coloured by class: the (n_obs,) index of each point's colour, −1 for
        grey, and the colours.
    """

    changed = Signal()
    """The whole figure must be drawn."""
    marked = Signal()
    """Selection, hover or outline changed; it is enough to call `draw_overlays`."""

    def __init__(self, figure: Figure) -> None:
        self.figure = figure
        self.scene = Scene()
        self.style = Style()
        self.colors: Sequence[str] = ()
        self.hidden: frozenset[str] = frozenset()
        self.values: tuple[NDArray[np.intp], list[str]] | None = None
        self._selected: NDArray[np.bool_] | None = None
        self._panels: list[_Panel] = []
        self._named: bool | None = None
        self._outline = Line2D([], [], lw=1, ls="--", transform=IdentityTransform())

    @property
    def axes(self) -> list[Any]:
        """The axes of the panels."""
        return [panel.ax for panel in self._panels]

    @property
    def shown(self) -> NDArray[np.bool_]:
        """(n_classes,) mask of the classes whose cells are drawn."""
        return np.array([name not in self.hidden for name in self.scene.names], dtype=bool)

    @property
    def named(self) -> bool:
        """Whether the names of the classes are written on the map."""
        few = len(self.scene.names) <= MAX_NAMES
        return few if self._named is None else self._named

    def set_named(self, named: bool) -> None:
        """Show or hide the names of the classes, whatever their number is."""
        self._named = named
        self.update()

    def show(self, scene: Scene, colors: Sequence[str]) -> None:
        """Draw a scene with a colour for each class; keep the view if the limits are the same."""
        before, self.scene, self.colors = self.scene, scene, colors
        moved = not np.array_equal(before.limits, scene.limits)
        if len(before.points) != len(scene.points):
            self._selected = None
        if len(self._panels) != len(scene.panels):
            self.figure.clear()
            self._panels, moved = [], True
            for _ in scene.panels:
                share = self.axes[0] if self._panels else None
                self._panels.append(_Panel(self.figure, share))
        for panel in self._panels:
            panel.regions.set_paths(scene.shapes)
            # The cell under the mouse has moved or is another one.
            panel.hovered.set_data([], [])
        self.arrange()
        self.update()
        if moved:
            self.home()

    def home(self) -> None:
        """Show the whole map."""
        self.look_at(self.scene.limits)

    def look_at(self, view: NDArray[np.floating]) -> None:
        """Show the part between two corners, (2, 2): lower left and upper right."""
        for ax in self.axes:
            ax.set(xlim=view[:, 0], ylim=view[:, 1])
        self.changed.emit()

    def select(self, selected: NDArray[np.bool_] | None) -> None:
        """Draw a ring around each cell of an (n_obs,) mask."""
        self._selected = selected
        self._mark()
        self.marked.emit()

    def hover(self, row: int | None) -> None:
        """Draw a ring around the cell under the mouse, in the panels that show it."""
        for panel in self._panels:
            at = panel.rows[panel.rows == row]
            panel.hovered.set_data(*self.scene.points[at].T)
        self.marked.emit()

    def trace(self, outline: Sequence[tuple[float, float]]) -> None:
        """Draw an outline, in pixels of the figure; an empty one removes the last."""
        self._outline.set_data(*np.reshape([*outline, *outline[:1]], (-1, 2)).T)
        self.marked.emit()

    def within(self, ax: Any, outline: Path) -> NDArray[np.intp]:
        """Return the rows of a panel's cells within an outline."""
        panel = self._panels[self.axes.index(ax)]
        return np.sort(panel.rows[outline.contains_points(panel.cells.points)])

    def nearest(self, ax: Any, x: float, y: float, radius: float) -> int | None:
        """Return the row of the cell nearest to a place, or None; all lengths are in pixels."""
        if ax not in self.axes:
            return None
        panel, to_data = self._panels[self.axes.index(ax)], ax.transData.inverted().transform
        at, (beside, _) = to_data([(x, y), (x + radius, y)])
        # A search tree would have to be built again in each frame of a training.
        near = np.flatnonzero((np.abs(panel.cells.points - at) < beside - at[0]).all(axis=1))
        distances = np.linalg.norm(panel.cells.points[near] - at, axis=1)
        if not (distances < beside - at[0]).any():
            return None
        return int(panel.rows[near[distances.argmin()]])

    def draw_overlays(self) -> None:
        """Draw selection, hover and outline on top of all else."""
        for panel in self._panels:
            panel.ax.draw_artist(panel.selected)
            panel.ax.draw_artist(panel.hovered)
        if self._panels:
            self.figure.draw_artist(self._outline)

    def arrange(self, _: object = None) -> None:
        """Arrange square panels in a row or in a column, whichever makes them larger."""
        n = len(self._panels)
        if not n:
            return
        # Put the number of cells on a second line, since small panels have no room beside.
        titles = [panel.title.replace(" (n", "\n(n", 1) for panel in self.scene.panels]
        n_lines = max(title.count("\n") for title in titles) + 1
        heading, gap = n_lines * LINE * self.figure.dpi, GAP * self.figure.dpi
        width, height = self.figure.bbox.size

        beside = min((width - gap * (n + 1)) / n, height - heading - 2 * gap)
        above = min(width - 2 * gap, (height - gap) / n - heading - gap)
        columns, rows = (n, 1) if beside >= above else (1, n)
        size = max(beside, above, 1.0)
        left = (width - columns * size - (columns - 1) * gap) / 2
        top = (height - rows * (size + heading) - (rows - 1) * gap) / 2
        for i, (panel, title) in enumerate(zip(self._panels, titles, strict=True)):
            row, column = divmod(i, columns)
            x = left + column * (size + gap)
            y = height - top - (row + 1) * (size + heading) - row * gap
            panel.ax.set_position((x / width, y / height, size / width, size / height))
            panel.title.set_text(title)

    def update(self) -> None:
        """Set the content and the colours of all artists."""
        scene, style, shown = self.scene, self.style, self.shown
        alpha = REGION_ALPHA + 0.1 * style.dark
        codes, colors = self.values or (scene.codes, self.colors)
        has_regions = len(scene.shapes) > 0 and self.values is None
        fills = [*colors, style.unlabeled]
        grounds = [blend(fill, style.panel, alpha * has_regions) for fill in fills]
        edges = [readable(*pair, style.ink) for pair in zip(fills, grounds, strict=True)]
        # Hollow cells have the edge of their class, and the codes after those of the classes.
        fills = [*colors, *[style.panel] * len(colors), style.unlabeled]
        edges = [*edges[:-1], *edges]
        drawn_codes = codes.copy()
        drawn_codes[scene.hollow] += len(colors) * (codes[scene.hollow] >= 0)
        pale = [blend(style.ink, style.panel, 0.35)]
        behind = np.zeros(len(scene.reference), dtype=np.intp)
        size, is_bold = _size_of(len(scene.points)), (scene.codes >= 0) & scene.bold
        named = np.flatnonzero(shown & self.named)
        self.figure.set_facecolor(style.page)
        self._outline.set_color(style.ink)
        for panel, content in zip(self._panels, scene.panels, strict=True):
            panel.ax.set_facecolor(style.panel)
            panel.regions.set_facecolor([to_rgba(color, alpha) for color in self.colors])
            panel.regions.set_edgecolor(style.panel)
            panel.rows = rows = _drawn(scene, content, shown, codes)
            bold = rows[is_bold[rows]]
            panel.cells.set_content(scene.points[rows], drawn_codes[rows], size, fills, edges)
            large = scene.points[bold], drawn_codes[bold], _size_of(len(bold))
            panel.bold.set_content(*large, fills, edges)
            panel.reference.set_content(scene.reference, behind, size, pale, pale)
            panel.selected.set(markersize=size + 2.5, markeredgecolor=style.ink)
            panel.hovered.set_markeredgecolor(style.ink)
            panel.title.set_color(style.ink)
            panel.names.names = [scene.names[code] for code in named]
            panel.names.centers = scene.centers[named]
            panel.names.ink, panel.names.halo = style.ink, style.panel
        self._mark()
        self.changed.emit()

    def _mark(self) -> None:
        """Draw the rings of the selected cells."""
        for panel in self._panels:
            rows = panel.rows[:0]
            if self._selected is not None:
                rows = panel.rows[self._selected[panel.rows]]
            bold = len(rows) < MAX_BOLD
            rows = rows[:: len(rows) // MAX_RINGS + 1]
            panel.selected.set_data(*self.scene.points[rows].T)
            panel.selected.set_markeredgewidth(1.2 if bold else 0.5)


def _size_of(n: int) -> float:
    """Return the diameter in points with which n dots are drawn."""
    return float(np.clip(8_000 / max(n, 1), 2, 30) ** 0.5)


def _drawn(
    scene: Scene, panel: Panel, shown: NDArray[np.bool_], codes: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Return the rows of a panel that are embedded and whose class is shown, the last on top.

    Cells with the code −1 come first, and those with the rarest code come last.
    """
    rows = panel.rows
    rows = rows[np.append(shown, True)[scene.codes[rows]] & ~np.isnan(scene.points[rows, 0])]
    counts = np.bincount(codes[rows] + 1, minlength=1)
    counts[0] = len(rows) + 1
    return np.asarray(rows[np.argsort(-counts[codes[rows] + 1], kind="stable")])

"""The plot in Qt: look around, select, hover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.backend_bases import MouseButton, NavigationToolbar2
from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
from matplotlib.figure import Figure
from matplotlib.path import Path as Outline
from numpy.typing import NDArray
from qtpy.QtCore import QPointF, QSize, Qt, QTimer, Signal
from qtpy.QtGui import QColor, QPainter, QPen, QPolygonF
from qtpy.QtWidgets import (
    QButtonGroup,
    QHBoxLayout,
    QSizePolicy,
    QToolButton,
    QToolTip,
    QVBoxLayout,
    QWidget,
)
from scipy.spatial import cKDTree

from centroid_encoder.viewer._icons import themed_icon
from centroid_encoder.viewer.map.figure import MapFigure, Scene, Style

Tool = Literal["lasso", "rectangle", "pan", "zoom"]
Mode = Literal["replace", "add", "remove"]

REACH = 8
"""Pixels between the mouse and a point that is still meant."""
SETTLE = 150
"""Milliseconds of rest after which all points are drawn again."""
ZOOM_STEP = 1.25

TOOLS: tuple[tuple[Tool, str, str], ...] = (
    ("lasso", "polygon_lasso", "Lasso cells. Shift adds, Ctrl removes; a click picks one cell"),
    ("rectangle", "rectangle", "Select a rectangle. Shift adds, Ctrl removes"),
    ("pan", "pan_arrows", "Drag to move the map. With any tool: drag the right mouse button"),
    ("zoom", "zoom", "Drag a rectangle to zoom in. With any tool: turn the mouse wheel"),
)


class MapCanvas(QWidget):
    """The map with its tools.

    Attributes
    ----------
    map
        What is drawn.
    tools
        Layout of the tool row, to which others may add.
    """

    selection_made = Signal(object, str)
    """Rows, and what to do with them: replace, add or remove."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.describe: Callable[[int], str] = str
        """What to say about a cell under the mouse."""
        figure = Figure()
        self.map = MapFigure(figure)
        self.canvas = _Canvas(figure)
        self._navigation = _Navigation(self.canvas)
        self._background: Any = None
        self._tool: Tool = "lasso"
        self._trace: list[tuple[float, float]] | None = None
        self._grip: tuple[Any, float, float] | None = None
        self._trees: dict[int, tuple[Any, NDArray[np.intp]] | None] = {}
        self._settle = QTimer(self, interval=SETTLE, singleShot=True)
        self._settle.timeout.connect(self._rest)

        self.tools = QHBoxLayout()
        self.tools.setContentsMargins(0, 0, 0, 0)
        self.tools.setSpacing(2)
        self._buttons: dict[str, QToolButton] = {}
        group = QButtonGroup(self)
        for name, _, tip in TOOLS:
            button = self._add_button(name, tip)
            button.setCheckable(True)
            button.clicked.connect(lambda _=False, name=name: self.set_tool(name))
            group.addButton(button)
        self._add_button("home", "Show the whole map").clicked.connect(self.home)
        self._buttons["lasso"].setChecked(True)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addLayout(self.tools)
        layout.addWidget(self.canvas, stretch=1)

        slots: tuple[tuple[Any, Callable[[Any], None]], ...] = (
            ("draw_event", self._on_draw),
            ("resize_event", self._on_resize),
            ("button_press_event", self._on_press),
            ("motion_notify_event", self._on_move),
            ("button_release_event", self._on_release),
            ("scroll_event", self._on_scroll),
            ("figure_leave_event", self._on_leave),
        )
        for event, slot in slots:
            self.canvas.mpl_connect(event, slot)

    def show_scene(self, scene: Scene, colors: Sequence[str], *, keep_view: bool = False) -> None:
        """Draw a scene; see `MapFigure.show`."""
        self._trees.clear()
        self.map.show(scene, colors, keep_view=keep_view)
        self._navigation.update()
        self.canvas.draw_idle()

    def clear(self) -> None:
        """Empty the map."""
        self._trees.clear()
        self._trace = self._grip = None
        self.canvas.trace = []
        self.map.clear()
        self.canvas.draw_idle()

    def set_style(self, style: Style, icon_color: str) -> None:
        """Follow a theme."""
        self.map.set_style(style)
        icons = {name: icon for name, icon, _ in TOOLS} | {"home": "home"}
        for name, button in self._buttons.items():
            button.setIcon(themed_icon(icons[name], icon_color))
        self.canvas.draw_idle()

    def set_colors(self, colors: Sequence[str]) -> None:
        """Colour the classes."""
        self.map.set_colors(colors)
        self.canvas.draw_idle()

    def set_shown(self, shown: NDArray[np.bool_]) -> None:
        """Show the points of some classes only."""
        self._trees.clear()
        self.map.set_shown(shown)
        self.canvas.draw_idle()

    def set_detailed(self, detailed: bool) -> None:
        """Draw all points, or fewer while frames follow each other."""
        if self.map.set_detailed(detailed):
            self.canvas.draw_idle()

    def select(self, selected: NDArray[np.bool_] | None) -> None:
        """Mark the cells of a (n_obs,) mask."""
        self.map.select(selected)
        self._refresh_overlays()

    def set_tool(self, tool: Tool) -> None:
        """Choose what dragging the left mouse button does."""
        self._tool = tool
        self._buttons[tool].setChecked(True)
        self._navigation.use(tool)
        self.canvas.setCursor(
            Qt.CursorShape.OpenHandCursor if tool == "pan" else Qt.CursorShape.CrossCursor
        )

    def home(self) -> None:
        """Show the whole map."""
        self.map.home()
        self.canvas.draw_idle()

    def nearest(self, ax: Any, x: float, y: float) -> int | None:
        """Row of the cell that is drawn within reach of a point in pixels, or None."""
        scene = self.map.scene
        if scene is None:
            return None
        panel = self.map.axes.index(ax)
        if panel not in self._trees:
            rows = scene.panels[panel].rows
            rows = rows[self.map.visible(rows)]
            # Rougher, but built several times as fast, and searched nearly as fast.
            tree: Any = cKDTree(scene.points[rows], compact_nodes=False, balanced_tree=False)
            self._trees[panel] = (tree, rows) if len(rows) else None
        found = self._trees[panel]
        if found is None:
            return None
        tree, rows = found
        to_data = ax.transData.inverted()
        at, beside = to_data.transform([(x, y), (x + REACH * self._ratio(), y)])
        distance, index = tree.query(at, distance_upper_bound=beside[0] - at[0])
        return int(rows[index]) if np.isfinite(distance) else None

    def _add_button(self, name: str, tip: str) -> QToolButton:
        button = QToolButton(self)
        button.setAutoRaise(True)
        button.setIconSize(QSize(18, 18))
        button.setToolTip(tip)
        button.setAccessibleName(name)
        self._buttons[name] = button
        self.tools.addWidget(button)
        return button

    def _ratio(self) -> float:
        return float(self.canvas.device_pixel_ratio)

    def _on_resize(self, event: Any) -> None:
        self.map.arrange(event.width, event.height)

    def _on_draw(self, event: Any) -> None:
        self._background = self.canvas.copy_from_bbox(self.map.figure.bbox)
        self.map.draw_overlays()

    def _refresh_overlays(self) -> None:
        """Change selection and hover without a redraw of the points."""
        if self._background is None or not self.map.axes:
            self.canvas.draw_idle()
            return
        self.canvas.restore_region(self._background)
        self.map.draw_overlays()
        # Not `blit`, which repaints at once: with it napari's canvas, in the middle of a change.
        self.canvas.update()

    def _rest(self) -> None:
        if self.map.set_detailed(True):
            self.canvas.draw_idle()

    def _moving(self) -> None:
        """Draw fewer points until the mouse rests."""
        if self.map.set_detailed(False) or self._settle.isActive():
            self._settle.start()
        self.canvas.draw_idle()

    def _on_press(self, event: Any) -> None:
        if event.inaxes not in self.map.axes:
            return
        if event.button in (MouseButton.RIGHT, MouseButton.MIDDLE):
            self._grip = event.inaxes, event.x, event.y
        elif event.button == MouseButton.LEFT and self._tool in ("lasso", "rectangle"):
            self._trace = [(event.x, event.y)]
            self._traced_in = event.inaxes

    def _on_move(self, event: Any) -> None:
        if self._grip is not None:
            ax, x, y = self._grip
            to_data = ax.transData.inverted()
            (x0, y0), (x1, y1) = to_data.transform([(x, y), (event.x, event.y)])
            left, right = ax.get_xlim()
            low, high = ax.get_ylim()
            ax.set(xlim=(left + x0 - x1, right + x0 - x1), ylim=(low + y0 - y1, high + y0 - y1))
            self._grip = ax, event.x, event.y
            self._moving()
        elif self._trace is not None:
            self._trace.append((event.x, event.y))
            self.canvas.trace = self._outline()
            self.canvas.update()
        elif self._navigation.busy:
            self._moving()
        else:
            self._hover(event)

    def _on_release(self, event: Any) -> None:
        if event.button in (MouseButton.RIGHT, MouseButton.MIDDLE):
            self._grip = None
        elif self._trace is not None and event.button == MouseButton.LEFT:
            self._trace.append((event.x, event.y))
            outline, self._trace, self.canvas.trace = self._outline(), None, []
            self.canvas.update()
            if self._traced_in in self.map.axes:
                self._select_within(np.array(outline), _mode(event))

    def _on_scroll(self, event: Any) -> None:
        if event.inaxes not in self.map.axes:
            return
        ax, factor = event.inaxes, ZOOM_STEP**-event.step
        for axis, at in (("x", event.xdata), ("y", event.ydata)):
            low, high = getattr(ax, f"get_{axis}lim")()
            ax.set(**{f"{axis}lim": (at + (low - at) * factor, at + (high - at) * factor)})
        self._moving()

    def _on_leave(self, event: Any) -> None:
        self.map.hover(None)
        QToolTip.hideText()
        self._refresh_overlays()

    def _hover(self, event: Any) -> None:
        row = None
        if event.inaxes in self.map.axes:
            row = self.nearest(event.inaxes, event.x, event.y)
        self.map.hover(row)
        self._refresh_overlays()
        if row is None:
            QToolTip.hideText()
        elif event.guiEvent is not None:
            QToolTip.showText(
                event.guiEvent.globalPosition().toPoint(), self.describe(row), self.canvas
            )

    def _outline(self) -> list[tuple[float, float]]:
        assert self._trace is not None
        if self._tool == "lasso":
            return self._trace
        (x0, y0), (x1, y1) = self._trace[0], self._trace[-1]
        return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]

    def _select_within(self, outline: NDArray[np.floating], mode: Mode) -> None:
        ax, scene = self._traced_in, self.map.scene
        assert scene is not None
        if np.ptp(outline, axis=0).max() < 3 * self._ratio():
            row = self.nearest(ax, *outline[0])
            rows = np.array([] if row is None else [row], dtype=np.intp)
        else:
            rows = scene.panels[self.map.axes.index(ax)].rows
            rows = rows[self.map.visible(rows)]
            within = Outline(ax.transData.inverted().transform(outline), closed=False)
            rows = rows[within.contains_points(scene.points[rows])]
        self.selection_made.emit(rows, mode)


class _Canvas(FigureCanvasQTAgg):
    """A canvas on which an outline can be drawn without touching the figure."""

    def __init__(self, figure: Figure) -> None:
        super().__init__(figure)
        self.trace: list[tuple[float, float]] = []
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(160, 260)
        self.setMouseTracking(True)

    def sizeHint(self) -> QSize:
        return QSize(440, 280)

    def paintEvent(self, event: Any) -> None:
        super().paintEvent(event)
        if len(self.trace) < 2:
            return
        ratio = self.device_pixel_ratio
        points = [QPointF(x / ratio, self.height() - y / ratio) for x, y in self.trace]
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for color, style in (("black", Qt.PenStyle.SolidLine), ("white", Qt.PenStyle.DashLine)):
            painter.setPen(QPen(QColor(color), 1.2, style))
            painter.drawPolygon(QPolygonF(points))
        painter.end()


class _Navigation(NavigationToolbar2):
    """Matplotlib's pan and zoom, without its toolbar."""

    canvas: _Canvas

    @property
    def busy(self) -> bool:
        """Whether the user is moving the map."""
        return self._moving

    def press_pan(self, event: Any) -> None:
        # The right button moves the map with any tool, and matplotlib would zoom as well.
        if event.button == MouseButton.LEFT:
            super().press_pan(event)
            self._moving = True

    def press_zoom(self, event: Any) -> None:
        if event.button == MouseButton.LEFT:
            super().press_zoom(event)

    def release_pan(self, event: Any) -> None:
        super().release_pan(event)
        self._moving = False

    _moving = False

    def use(self, tool: Tool) -> None:
        """Switch pan or zoom on, the other off."""
        for name, toggle in (("pan/zoom", self.pan), ("zoom rect", self.zoom)):
            wanted = {"pan": "pan/zoom", "zoom": "zoom rect"}.get(tool) == name
            if wanted != (self.mode == name):
                toggle()

    def draw_rubberband(self, event: Any, x0: float, y0: float, x1: float, y1: float) -> None:
        self.canvas.trace = [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]
        self.canvas.update()

    def remove_rubberband(self) -> None:
        self.canvas.trace = []
        self.canvas.update()


def _mode(event: Any) -> Mode:
    if "shift" in event.modifiers:
        return "add"
    return "remove" if {"ctrl", "cmd", "alt"} & event.modifiers else "replace"

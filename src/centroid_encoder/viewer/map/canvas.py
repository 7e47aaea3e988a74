"""The map in Qt: select, hover, pan and zoom."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from matplotlib.backend_bases import MouseButton
from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
from matplotlib.figure import Figure
from matplotlib.path import Path
from napari.resources import get_colorized_svg, get_icon_path
from numpy.typing import NDArray
from qtpy.compat import isalive
from qtpy.QtCore import QSize, Qt, Signal
from qtpy.QtGui import QCursor, QIcon, QPixmap
from qtpy.QtWidgets import (
    QButtonGroup,
    QHBoxLayout,
    QSizePolicy,
    QToolButton,
    QToolTip,
    QVBoxLayout,
    QWidget,
)

from centroid_encoder.viewer.map.figure import MapFigure
from centroid_encoder.viewer.map.scene import Style

Tool = Literal["lasso", "rectangle", "pan", "zoom"]

PICK_RADIUS = 8
"""Greatest distance, in pixels, between the mouse and the point that it picks."""
CLICK = 3
"""Pixels below which a drag is a click."""
ZOOM_STEP = 1.25

BUTTONS = {
    "lasso": ("polygon_lasso", "Lasso cells. Shift adds, Ctrl removes; a click picks one cell"),
    "rectangle": ("rectangle", "Select a rectangle. Shift adds, Ctrl removes"),
    "pan": ("pan_arrows", "Drag to move the map. With any tool: drag the right mouse button"),
    "zoom": ("zoom", "Drag a rectangle to zoom in. With any tool: turn the mouse wheel"),
    "home": ("home", "Show the whole map"),
    "names": ("", "Write the names of the classes at their centers"),
    "window": ("pop_out", "Show the map in a window of its own, or bring it back"),
}
"""Icon and tip of each button; the first ones are the tools."""
TOOLS: tuple[Tool, ...] = get_args(Tool)


class _Drag(NamedTuple):
    """A drag from the press of a button to its release."""

    ax: Any
    button: MouseButton
    tool: Tool
    path: list[tuple[float, float]]
    """Places of the mouse, in pixels of the figure."""

    @property
    def outline(self) -> list[tuple[float, float]]:
        """The lasso, or the corners of the rectangle."""
        if self.tool == "lasso":
            return self.path
        (x0, y0), (x1, y1) = self.path[0], self.path[-1]
        return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


class MapCanvas(QWidget):
    """The map with its tools.

    `map` is the figure, `tools` the layout of the row of tools, and `buttons` has their buttons by
    name; the owner of the canvas connects ``"window"``.
    """

    selection_made = Signal(object, str)
    """Rows, and what to do with them: replace, add or remove."""
    cell_hovered = Signal(int)
    """Row of the cell under the mouse; `show_tip` describes it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        figure = Figure()
        self.map = MapFigure(figure)
        self.canvas = _Canvas(figure)
        self._background: Any = None
        self._drag: _Drag | None = None

        self.tools = QHBoxLayout()
        self.tools.setContentsMargins(0, 0, 0, 0)
        self.tools.setSpacing(2)
        self.buttons: dict[str, QToolButton] = {}
        self._group = QButtonGroup(self)
        for name, (_, tip) in BUTTONS.items():
            button = QToolButton(self)
            button.setAutoRaise(True)
            button.setIconSize(QSize(18, 18))
            button.setToolTip(tip)
            button.setAccessibleName(name)
            button.setCheckable(name in (*TOOLS, "names"))
            if name in TOOLS:
                self._group.addButton(button)
            self.tools.addWidget(button)
            self.buttons[name] = button
        self.buttons["names"].setText("Abc")
        self._group.buttonClicked.connect(self._on_tool)
        self.buttons["home"].clicked.connect(self.map.home)
        self.buttons["names"].clicked.connect(self.map.set_named)
        self.buttons["lasso"].click()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addLayout(self.tools)
        layout.addWidget(self.canvas, stretch=1)
        self.map.changed.connect(self._on_changed)
        self.map.marked.connect(self._refresh_overlays)
        # Matplotlib and psygnal hold methods weakly. A function that holds this widget would be a
        # cycle, and PyQt6 does not survive it when Python collects it.
        self.canvas.mpl_connect("draw_event", self._on_draw)
        self.canvas.mpl_connect("resize_event", self.map.arrange)
        self.canvas.mpl_connect("button_press_event", self._on_press)
        self.canvas.mpl_connect("motion_notify_event", self._on_move)
        self.canvas.mpl_connect("button_release_event", self._on_release)
        self.canvas.mpl_connect("scroll_event", self._on_scroll)
        self.canvas.mpl_connect("figure_leave_event", self._on_move)

    def set_style(self, style: Style, icon_color: str) -> None:
        """Follow a theme."""
        self.map.style = style
        self.map.update()
        for name, (icon, _) in BUTTONS.items():
            if icon:
                image = QPixmap()
                image.loadFromData(
                    get_colorized_svg(get_icon_path(icon), icon_color).encode(), "SVG"
                )
                self.buttons[name].setIcon(QIcon(image))

    def show_tip(self, text: str) -> None:
        """Describe the cell under the mouse."""
        QToolTip.showText(QCursor.pos(), text, self.canvas)

    def nearest(self, ax: Any, x: float, y: float) -> int | None:
        """Row of the cell that is drawn nearest to a place in pixels, or None if none is near."""
        if ax not in self.map.axes:
            return None
        radius = PICK_RADIUS * self.canvas.device_pixel_ratio
        at, beside = ax.transData.inverted().transform([(x, y), (x + radius, y)])
        return self.map.nearest(ax, at, beside[0] - at[0])

    def _on_tool(self, button: QToolButton) -> None:
        shapes, is_pan = Qt.CursorShape, button is self.buttons["pan"]
        self.canvas.setCursor(shapes.OpenHandCursor if is_pan else shapes.CrossCursor)

    def _on_draw(self, _: Any) -> None:
        self._background = self.canvas.copy_from_bbox(self.map.figure.bbox)
        self.map.draw_overlays()

    def _on_changed(self) -> None:
        self.buttons["names"].setChecked(self.map.named)
        if self._drag is not None and self._drag.ax not in self.map.axes:
            self._drag = None
            self.map.trace([])
        self.canvas.draw_idle()

    def _refresh_overlays(self) -> None:
        """Draw selection and hover without drawing the points again."""
        if self._background is None or not self.map.axes:
            self.canvas.draw_idle()
            return
        self.canvas.restore_region(self._background)
        self.map.draw_overlays()
        # `blit` would repaint at once, and napari's canvas with it, in the middle of a change.
        self.canvas.update()

    def _on_press(self, event: Any) -> None:
        if event.inaxes in self.map.axes and self._drag is None:
            chosen = next(name for name in TOOLS if self.buttons[name].isChecked())
            tool: Tool = chosen if event.button == MouseButton.LEFT else "pan"
            self._drag = _Drag(event.inaxes, event.button, tool, [(event.x, event.y)])

    def _on_move(self, event: Any) -> None:
        drag = self._drag
        if drag is None:
            row = self.nearest(event.inaxes, event.x, event.y)
            self.map.hover(row)
            if row is None:
                QToolTip.hideText()
            else:
                self.cell_hovered.emit(row)
            return
        drag.path.append((event.x, event.y))
        if drag.tool != "pan":
            self.map.trace(drag.outline)
        else:
            start, end = drag.ax.transData.inverted().transform(drag.path[-2:])
            self.map.look_at(_view(drag.ax) + start - end)

    def _on_release(self, event: Any) -> None:
        drag = self._drag
        if drag is None or event.button != drag.button:
            return
        self._drag = None
        self.map.trace([])
        drag.path.append((event.x, event.y))
        corners = drag.ax.transData.inverted().transform(drag.outline)
        moved = np.ptp(drag.path, axis=0) >= CLICK * self.canvas.device_pixel_ratio
        if drag.tool == "zoom" and moved.all():
            self.map.look_at(np.sort(corners[[0, 2]], axis=0))
        elif drag.tool in ("lasso", "rectangle"):
            rows = self.map.within(drag.ax, Path(corners, closed=False))
            if not moved.any():
                row = self.nearest(drag.ax, *drag.path[0])
                rows = np.array([] if row is None else [row], dtype=np.intp)
            self.selection_made.emit(rows, _mode(event))

    def _on_scroll(self, event: Any) -> None:
        if event.inaxes in self.map.axes:
            at = np.array([event.xdata, event.ydata])
            self.map.look_at(at + (_view(event.inaxes) - at) * ZOOM_STEP**-event.step)


class _Canvas(FigureCanvasQTAgg):
    """Canvas that takes the room there is."""

    def __init__(self, figure: Figure) -> None:
        super().__init__(figure)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(160, 200)
        # A click gives the map the keys of a labelling.
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setAccessibleName("Map")

    def sizeHint(self) -> QSize:
        return QSize(440, 280)

    def _draw_idle(self) -> None:
        # Before 3.11, matplotlib draws on a canvas that was deleted meanwhile.
        if isalive(self):
            super()._draw_idle()


def _view(ax: Any) -> NDArray[np.floating]:
    """(2, 2) lower left and upper right corner of the part that is seen."""
    return np.transpose([ax.get_xlim(), ax.get_ylim()])


def _mode(event: Any) -> str:
    if "shift" in event.modifiers:
        return "add"
    return "remove" if {"ctrl", "cmd", "alt"} & event.modifiers else "replace"

"""The map as a Qt widget: select cells, describe the cell under the mouse, pan and zoom."""

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
"""Largest distance in pixels between the mouse and the point that it picks."""
CLICK = 3
"""A drag over fewer pixels is a click."""
ZOOM_STEP = 1.25
"""Magnification for each step of the mouse wheel."""

BUTTONS = {
    "lasso": ("polygon_lasso", "Lasso cells. Shift adds, Ctrl removes; a click picks one cell"),
    "rectangle": ("rectangle", "Select a rectangle. Shift adds, Ctrl removes"),
    "pan": ("pan_arrows", "Drag to move the map. With any tool: drag with the right button"),
    "zoom": ("zoom", "Drag a rectangle to zoom in. With any tool: turn the mouse wheel"),
    "home": ("home", "Show the whole map"),
    "names": ("", "Show the names of the classes at their centers"),
    "window": ("pop_out", "Show the map in its own window, or bring it back"),
}
"""Icon and tooltip of each button; the first four are the tools."""
TOOLS: tuple[Tool, ...] = get_args(Tool)


class _Drag(NamedTuple):
    """A drag of the mouse with a button pressed."""

    ax: Any
    button: MouseButton
    tool: Tool
    path: list[tuple[float, float]]
    """Positions of the mouse in pixels of the figure."""

    @property
    def outline(self) -> list[tuple[float, float]]:
        """The lasso, or the corners of the rectangle."""
        if self.tool == "lasso":
            return self.path
        (x0, y0), (x1, y1) = self.path[0], self.path[-1]
        return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


class MapCanvas(QWidget):
    """The map, `map`, below a row of tools, `tools`.

    `buttons` has the buttons of the tools by name. The parent connects the button ``"window"``.
    """

    selection_made = Signal(object, str)
    """Rows, and the mode of the selection: replace, add or remove."""
    cell_hovered = Signal(int)
    """Row of the cell under the mouse; the receiver calls `show_tip`."""

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
        # Connect methods only: matplotlib and psygnal refer to them weakly. A function that refers
        # to this widget would make a reference cycle, and PyQt6 crashes when that is collected.
        self.canvas.mpl_connect("draw_event", self._on_draw)
        self.canvas.mpl_connect("resize_event", self.map.arrange)
        self.canvas.mpl_connect("button_press_event", self._on_press)
        self.canvas.mpl_connect("motion_notify_event", self._on_move)
        self.canvas.mpl_connect("button_release_event", self._on_release)
        self.canvas.mpl_connect("scroll_event", self._on_scroll)
        self.canvas.mpl_connect("figure_leave_event", self._on_move)

    def set_style(self, style: Style, icon_color: str) -> None:
        """Set the colours of the map and of the icons."""
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
        """Show a description of the cell under the mouse."""
        QToolTip.showText(QCursor.pos(), text, self.canvas)

    def _nearest(self, ax: Any, x: float, y: float) -> int | None:
        return self.map.nearest(ax, x, y, PICK_RADIUS * self.canvas.device_pixel_ratio)

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
        """Draw selection, hover and outline without drawing the points again."""
        if self._background is None or not self.map.axes:
            self.canvas.draw_idle()
            return
        self.canvas.restore_region(self._background)
        self.map.draw_overlays()
        # Not `blit`: it repaints at once, together with napari's canvas, which may be changing.
        self.canvas.update()

    def _on_press(self, event: Any) -> None:
        if event.inaxes in self.map.axes and self._drag is None:
            chosen = next(name for name in TOOLS if self.buttons[name].isChecked())
            tool: Tool = chosen if event.button == MouseButton.LEFT else "pan"
            self._drag = _Drag(event.inaxes, event.button, tool, [(event.x, event.y)])

    def _on_move(self, event: Any) -> None:
        drag = self._drag
        if drag is None:
            row = self._nearest(event.inaxes, event.x, event.y)
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
                row = self._nearest(drag.ax, *drag.path[0])
                rows = np.array([] if row is None else [row], dtype=np.intp)
            keys = event.modifiers
            removed = "remove" if {"ctrl", "cmd", "alt"} & keys else "replace"
            self.selection_made.emit(rows, "add" if "shift" in keys else removed)

    def _on_scroll(self, event: Any) -> None:
        if event.inaxes in self.map.axes:
            at = np.array([event.xdata, event.ydata])
            self.map.look_at(at + (_view(event.inaxes) - at) * ZOOM_STEP**-event.step)


class _Canvas(FigureCanvasQTAgg):
    """Canvas that fills the space that is left."""

    def __init__(self, figure: Figure) -> None:
        super().__init__(figure)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(160, 200)
        # After a click on the map, it receives the keys for labelling.
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setAccessibleName("Map")

    def sizeHint(self) -> QSize:
        return QSize(440, 280)

    def _draw_idle(self) -> None:
        # Before version 3.11, matplotlib also draws on a canvas that has been deleted.
        if isalive(self):
            super()._draw_idle()


def _view(ax: Any) -> NDArray[np.floating]:
    """Return the (2, 2) lower left and upper right corner of the visible part."""
    return np.transpose([ax.get_xlim(), ax.get_ylim()])

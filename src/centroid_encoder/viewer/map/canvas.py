"""The map in Qt: select, hover, pan and zoom."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np
from matplotlib.backend_bases import MouseButton
from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
from matplotlib.figure import Figure
from matplotlib.path import Path
from numpy.typing import NDArray
from qtpy.compat import isalive
from qtpy.QtCore import QSize, Qt, Signal
from qtpy.QtGui import QCursor
from qtpy.QtWidgets import (
    QButtonGroup,
    QHBoxLayout,
    QSizePolicy,
    QToolButton,
    QToolTip,
    QVBoxLayout,
    QWidget,
)

from centroid_encoder.viewer._icons import themed_icon
from centroid_encoder.viewer.map.figure import MapFigure
from centroid_encoder.viewer.map.scene import Style

Tool = Literal["lasso", "rectangle", "pan", "zoom"]
Mode = Literal["replace", "add", "remove"]

PICK_RADIUS = 8
"""Greatest distance, in pixels, between the mouse and the point that it picks."""
CLICK = 3
"""Pixels below which a drag is a click."""
ZOOM_STEP = 1.25

TOOLS: dict[Tool, tuple[str, str]] = {
    "lasso": ("polygon_lasso", "Lasso cells. Shift adds, Ctrl removes; a click picks one cell"),
    "rectangle": ("rectangle", "Select a rectangle. Shift adds, Ctrl removes"),
    "pan": ("pan_arrows", "Drag to move the map. With any tool: drag the right mouse button"),
    "zoom": ("zoom", "Drag a rectangle to zoom in. With any tool: turn the mouse wheel"),
}
"""Icon and tip of each tool."""
ICONS = {"home": "home", "window": "pop_out"} | {name: icon for name, (icon, _) in TOOLS.items()}


@dataclass
class _Drag:
    """A drag from the press of a button to its release."""

    ax: Any
    button: MouseButton
    tool: Tool
    path: list[tuple[float, float]] = field(default_factory=list)
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

    Attributes
    ----------
    map
        The figure.
    tools
        Layout of the row of tools.
    buttons
        Buttons of the tools by name; the owner of the canvas connects ``"window"``.
    """

    selection_made = Signal(object, str)
    """Rows, and what to do with them: replace, add or remove."""
    cell_hovered = Signal(int)
    """Row of the cell under the mouse; `show_tip` describes it."""
    drawn = Signal()
    """All of the figure was drawn."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        figure = Figure()
        self.map = MapFigure(figure)
        self.canvas = _Canvas(figure)
        self._background: Any = None
        self._tool: Tool = "lasso"
        self._drag: _Drag | None = None

        self.tools = QHBoxLayout()
        self.tools.setContentsMargins(0, 0, 0, 0)
        self.tools.setSpacing(2)
        self.buttons: dict[str, QToolButton] = {}
        self._group = QButtonGroup(self)
        for name, (_, tip) in TOOLS.items():
            button = self._add_button(name, tip)
            button.setCheckable(True)
            self._group.addButton(button)
        self._group.buttonClicked.connect(self._on_tool)
        self._add_button("home", "Show the whole map").clicked.connect(self.map.home)
        names = self._add_button("names", "Write the names of the classes at their centers")
        names.setCheckable(True)
        names.setText("Abc")
        names.clicked.connect(self.map.set_named)
        self._add_button("window", "Show the map in a window of its own, or bring it back")
        self.set_tool("lasso")
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addLayout(self.tools)
        layout.addWidget(self.canvas, stretch=1)
        self.map.changed.connect(self._on_changed)
        self.map.marked.connect(self._refresh_overlays)
        # Matplotlib and psygnal hold methods weakly. A function that holds this widget would be a
        # cycle, and PyQt6 does not survive it when Python collects it.
        self.canvas.mpl_connect("draw_event", self._on_draw)
        self.canvas.mpl_connect("resize_event", self._on_resize)
        self.canvas.mpl_connect("button_press_event", self._on_press)
        self.canvas.mpl_connect("motion_notify_event", self._on_move)
        self.canvas.mpl_connect("button_release_event", self._on_release)
        self.canvas.mpl_connect("scroll_event", self._on_scroll)
        self.canvas.mpl_connect("figure_leave_event", self._on_leave)

    def set_style(self, style: Style, icon_color: str) -> None:
        """Follow a theme."""
        self.map.set_style(style)
        for name, icon in ICONS.items():
            self.buttons[name].setIcon(themed_icon(icon, icon_color))

    def set_tool(self, tool: Tool) -> None:
        """Choose what dragging the left mouse button does."""
        self._tool = tool
        self.buttons[tool].setChecked(True)
        self.canvas.setCursor(
            Qt.CursorShape.OpenHandCursor if tool == "pan" else Qt.CursorShape.CrossCursor
        )

    def show_tip(self, text: str) -> None:
        """Describe the cell under the mouse."""
        QToolTip.showText(QCursor.pos(), text, self.canvas)

    def nearest(self, ax: Any, x: float, y: float) -> int | None:
        """Row of the cell that is drawn nearest to a place in pixels, or None if none is near."""
        to_data = ax.transData.inverted()
        at, beside = to_data.transform([(x, y), (x + PICK_RADIUS * self._ratio(), y)])
        return self.map.nearest(ax, at, beside[0] - at[0])

    def _add_button(self, name: str, tip: str) -> QToolButton:
        button = QToolButton(self)
        button.setAutoRaise(True)
        button.setIconSize(QSize(18, 18))
        button.setToolTip(tip)
        button.setAccessibleName(name)
        self.buttons[name] = button
        self.tools.addWidget(button)
        return button

    def _on_tool(self, button: QToolButton) -> None:
        self.set_tool(cast("Tool", button.accessibleName()))

    def _ratio(self) -> float:
        return float(self.canvas.device_pixel_ratio)

    # -- drawing ---------------------------------------------------------------------------------

    def _on_resize(self, event: Any) -> None:
        self.map.arrange(event.width, event.height)
        self.map.place_names()

    def _on_draw(self, _: Any) -> None:
        self._background = self.canvas.copy_from_bbox(self.map.figure.bbox)
        self.map.draw_overlays()
        self.drawn.emit()

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

    def _look_at(self, ax: Any, view: NDArray[np.floating]) -> None:
        """Show other limits, (2, 2) of x and y."""
        ax.set(xlim=view[0], ylim=view[1])
        self.map.place_names()
        self.canvas.draw_idle()

    # -- mouse -----------------------------------------------------------------------------------

    def _on_press(self, event: Any) -> None:
        if event.inaxes in self.map.axes and self._drag is None:
            tool: Tool = self._tool if event.button == MouseButton.LEFT else "pan"
            self._drag = _Drag(event.inaxes, event.button, tool, [(event.x, event.y)])

    def _on_move(self, event: Any) -> None:
        drag = self._drag
        if drag is None:
            self._hover(event)
            return
        drag.path.append((event.x, event.y))
        if drag.tool != "pan":
            self.map.trace(drag.outline)
        else:
            start, end = drag.ax.transData.inverted().transform(drag.path[-2:])
            view = np.array([drag.ax.get_xlim(), drag.ax.get_ylim()])
            self._look_at(drag.ax, view + (start - end)[:, None])

    def _on_release(self, event: Any) -> None:
        drag = self._drag
        if drag is None or event.button != drag.button:
            return
        self._drag = None
        self.map.trace([])
        drag.path.append((event.x, event.y))
        corners = drag.ax.transData.inverted().transform(drag.outline)
        click = CLICK * self._ratio()
        if drag.tool == "pan":
            pass
        elif drag.tool == "zoom":
            if np.ptp(drag.outline, axis=0).min() >= click:
                self._look_at(drag.ax, np.sort(corners[[0, 2]], axis=0).T)
        elif np.ptp(drag.path, axis=0).max() < click:
            row = self.nearest(drag.ax, *drag.path[0])
            rows = np.array([] if row is None else [row], dtype=np.intp)
            self.selection_made.emit(rows, _mode(event))
        else:
            rows = self.map.within(drag.ax, Path(corners, closed=False))
            self.selection_made.emit(rows, _mode(event))

    def _on_scroll(self, event: Any) -> None:
        if event.inaxes in self.map.axes:
            ax, at = event.inaxes, np.array([[event.xdata], [event.ydata]])
            view = np.array([ax.get_xlim(), ax.get_ylim()])
            self._look_at(ax, at + (view - at) * ZOOM_STEP**-event.step)

    def _on_leave(self, _: Any) -> None:
        self.map.hover(None)
        QToolTip.hideText()

    def _hover(self, event: Any) -> None:
        row = None
        if event.inaxes in self.map.axes:
            row = self.nearest(event.inaxes, event.x, event.y)
        self.map.hover(row)
        if row is None:
            QToolTip.hideText()
        else:
            self.cell_hovered.emit(row)


class _Canvas(FigureCanvasQTAgg):
    """Canvas that takes the room there is."""

    def __init__(self, figure: Figure) -> None:
        super().__init__(figure)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(160, 200)
        self.setMouseTracking(True)

    def sizeHint(self) -> QSize:
        return QSize(440, 280)

    def _draw_idle(self) -> None:
        # Before 3.11, matplotlib draws on a canvas that was deleted meanwhile.
        if isalive(self):
            super()._draw_idle()


def _mode(event: Any) -> Mode:
    if "shift" in event.modifiers:
        return "add"
    return "remove" if {"ctrl", "cmd", "alt"} & event.modifiers else "replace"

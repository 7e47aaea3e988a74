"""The map as a Qt widget: select cells, describe the cell under the mouse, pan and zoom."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from matplotlib.backend_bases import MouseButton
from matplotlib.backends.backend_qtagg import FigureCanvasQTAgg
from matplotlib.figure import Figure
from matplotlib.path import Path
from napari.resources import get_colorized_svg, get_icon_path
from numpy.typing import NDArray
from qtpy.compat import isalive
from qtpy.QtCore import QSize, Qt
from qtpy.QtGui import QAction, QActionGroup, QCursor, QIcon, QPixmap
from qtpy.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QSizePolicy,
    QToolButton,
    QToolTip,
    QVBoxLayout,
    QWidget,
)

from centroid_encoder.viewer.map.figure import MapFigure
from centroid_encoder.viewer.map.scene import Style
from centroid_encoder.viewer.session.session import SelectionMode

Tool = Literal["lasso", "rectangle", "pan", "zoom"]

PICK_RADIUS = 8
"""Largest distance in pixels between the mouse and the point that it picks."""
CLICK = 3
"""A drag over fewer pixels is a click."""
ZOOM_STEP = 1.25
"""Magnification for each step of the mouse wheel."""

BUTTONS = {
    "lasso": "Draw around cells, here or in the image, to select them. Shift adds, Ctrl removes",
    "home": "Show the whole map",
    "held-out": "Show only the cells that the networks have not seen (rings)",
    "full": "Show the map in a large dock of its own, or bring it back",
    "map": "Show the map, or a picture that was made without labels",
}
"""Tooltip of each button."""
ICONS = {"lasso": "polygon_lasso", "home": "home", "full": "pop_out"}
TEXTS = {"held-out": "○", "map": "▾"}
TOOLS: dict[Tool, str] = {
    "lasso": "Lasso: drag around cells to select them",
    "rectangle": "Rectangle: drag a rectangle to select cells",
    "pan": "Pan: drag to move the map; with any tool, drag with the right button",
    "zoom": "Zoom: drag a rectangle to zoom in; with any tool, turn the mouse wheel",
}
"""What a drag with the left button does, with the text of the menu."""


class MapCanvas(QWidget):
    """The map, `map`, with buttons and `title` on top of it.

    `tool` is what a drag with the left button does. `select` is called with the rows that the user
    selects, the mode of the selection (replace, add or remove) and the tool; `describe` returns
    what is known of the cell under the mouse. The parent connects the buttons ``"lasso"``,
    ``"held-out"`` and ``"full"``, and shows `tools` and `names_action` in a menu.
    """

    def __init__(
        self,
        select: Callable[[NDArray[np.intp], SelectionMode, Tool], object],
        describe: Callable[[int], str],
    ) -> None:
        super().__init__()
        self.select, self._describe = select, describe
        figure = Figure()
        self.canvas = _Canvas(figure)
        self.map = MapFigure(figure)
        self._pressed: MouseButton | None = None
        """The button of the drag that goes on, or None."""
        self._dragging: Tool = "lasso"
        self._path: list[tuple[float, float]] = []
        """Positions of the mouse during the drag, in pixels of the figure."""
        self.title = QLabel()
        self.title.setAccessibleName("What the map shows")
        self.title.setObjectName("headline")
        self.title.setAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
        self.title.setWordWrap(True)
        self.buttons = {name: _tool_button(name, tip) for name, tip in BUTTONS.items()}
        self.buttons["home"].clicked.connect(self.map.home)
        self.names_action = QAction("Names of the classes", self)
        self.names_action.setCheckable(True)
        self.names_action.triggered.connect(self.map.set_named)
        self.tools = QActionGroup(self)
        for tool, text in TOOLS.items():
            action = self.tools.addAction(text)
            action.setData(tool)
            action.setCheckable(True)
            action.setChecked(tool == "lasso")
        self.tools.triggered.connect(self._on_tool)
        self.canvas.setCursor(Qt.CursorShape.CrossCursor)
        row = QHBoxLayout()
        row.setSpacing(0)
        for button in self.buttons.values():
            row.addWidget(button)
        row.addWidget(self.title, 1)
        # The buttons lie on the map, so that it can be larger.
        above = QVBoxLayout(self.canvas)
        above.setContentsMargins(2, 2, 6, 2)
        above.addLayout(row)
        above.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.addWidget(self.canvas)
        # Connect methods only: matplotlib refers to them weakly. A function that refers to this
        # widget would make a reference cycle, and PyQt6 crashes when that is collected.
        self.canvas.mpl_connect("button_press_event", self._on_press)
        self.canvas.mpl_connect("motion_notify_event", self._on_move)
        self.canvas.mpl_connect("button_release_event", self._on_release)
        self.canvas.mpl_connect("scroll_event", self._on_scroll)
        self.canvas.mpl_connect("figure_leave_event", self._on_move)

    @property
    def tool(self) -> Tool:
        """What a drag with the left button does."""
        chosen: Tool = self.tools.checkedAction().data()
        return chosen

    def set_style(self, style: Style, icon_color: str) -> None:
        """Set the colours of the map and of the icons."""
        self.map.style = style
        self.map.update()
        for name, icon in ICONS.items():
            image = QPixmap()
            image.loadFromData(get_colorized_svg(get_icon_path(icon), icon_color).encode(), "SVG")
            self.buttons[name].setIcon(QIcon(image))

    def _nearest(self, x: float, y: float) -> int | None:
        return self.map.nearest(x, y, PICK_RADIUS * self.canvas.device_pixel_ratio)

    def _on_tool(self) -> None:
        shapes = Qt.CursorShape
        self.canvas.setCursor(shapes.OpenHandCursor if self.tool == "pan" else shapes.CrossCursor)

    def _on_press(self, event: Any) -> None:
        if event.inaxes is self.map.ax and self._pressed is None:
            self._pressed, self._path = event.button, [(event.x, event.y)]
            self._dragging = self.tool if event.button == MouseButton.LEFT else "pan"

    def _on_move(self, event: Any) -> None:
        if self._pressed is None:
            is_inside = event.inaxes is self.map.ax
            row = self._nearest(event.x, event.y) if is_inside else None
            self.map.hover(row)
            # An empty text hides the last one.
            text = "" if row is None else self._describe(row)
            QToolTip.showText(QCursor.pos(), text, self.canvas)
            return
        self._path.append((event.x, event.y))
        if self._dragging != "pan":
            self.map.trace(self._outline)
        else:
            start, end = self.map.ax.transData.inverted().transform(self._path[-2:])
            self.map.look_at(self._view + start - end)

    def _on_release(self, event: Any) -> None:
        if self._pressed is None or event.button != self._pressed:
            return
        self._pressed = None
        self.map.trace([])
        self._path.append((event.x, event.y))
        corners = self.map.ax.transData.inverted().transform(self._outline)
        moved = np.ptp(self._path, axis=0) >= CLICK * self.canvas.device_pixel_ratio
        if self._dragging == "zoom" and moved.all():
            self.map.look_at(np.sort(corners[[0, 2]], axis=0))
        elif self._dragging in ("lasso", "rectangle"):
            rows = self.map.within(Path(corners, closed=False))
            if not moved.any():
                row = self._nearest(*self._path[0])
                rows = np.array([] if row is None else [row], dtype=np.intp)
            keys = event.modifiers
            mode: SelectionMode = "remove" if {"ctrl", "cmd", "alt"} & keys else "replace"
            self.select(rows, "add" if "shift" in keys else mode, self._dragging)

    @property
    def _outline(self) -> list[tuple[float, float]]:
        """The lasso, or the corners of the rectangle."""
        if self._dragging == "lasso":
            return self._path
        (x0, y0), (x1, y1) = self._path[0], self._path[-1]
        return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]

    def _on_scroll(self, event: Any) -> None:
        if event.inaxes is self.map.ax:
            at = np.array([event.xdata, event.ydata])
            self.map.look_at(at + (self._view - at) * ZOOM_STEP**-event.step)

    @property
    def _view(self) -> NDArray[np.floating]:
        """The (2, 2) lower left and upper right corner of the visible part."""
        return np.transpose([self.map.ax.get_xlim(), self.map.ax.get_ylim()])


def _tool_button(name: str, tip: str) -> QToolButton:
    button = QToolButton()
    button.setAutoRaise(True)
    button.setIconSize(QSize(18, 18))
    button.setToolTip(tip)
    button.setAccessibleName(name)
    button.setText(TEXTS.get(name, ""))
    button.setCheckable(name in ("lasso", "held-out"))
    return button


class _Canvas(FigureCanvasQTAgg):
    """Canvas that fills the space that is left."""

    def __init__(self, figure: Figure) -> None:
        super().__init__(figure)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setMinimumSize(160, 300)
        # After a click on the map, it receives the keys for labelling.
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setAccessibleName("Map")

    def sizeHint(self) -> QSize:
        return QSize(440, 300)

    def blit(self, bbox: object = None) -> None:
        # Not at once, together with napari's canvas, which may be changing.
        self.update()

    def _draw_idle(self) -> None:
        # Before version 3.11, matplotlib also draws on a canvas that has been deleted.
        if isalive(self):
            super()._draw_idle()

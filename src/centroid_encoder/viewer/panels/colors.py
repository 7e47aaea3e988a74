"""What the cells are coloured by, what the colours mean, and a gate on numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape
from typing import Any

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QDoubleSpinBox, QLabel, QWidget
from superqt import QDoubleRangeSlider
from superqt.utils import signals_blocked

from centroid_encoder.viewer.map import colorings
from centroid_encoder.viewer.map.scene import Colors
from centroid_encoder.viewer.panels.fields import Search, side_by_side
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import CONTENT, State

GROOVE = """
QSlider::groove:horizontal {{
    height: 8px; border-radius: 4px;
    background: qlineargradient(x1:0, y1:0, x2:1, y2:0, {stops});
}}
QRangeSlider {{ qproperty-barColor: transparent; }}
"""
# napari's style sheet sets a larger least width and two buttons. With `NoButtons`, Qt 6.11.3 would
# leave no room for the number.
BOX = """
    QDoubleSpinBox { min-width: 56px; max-width: 56px; padding: 1px; }
    QDoubleSpinBox::up-button, QDoubleSpinBox::down-button { width: 0px; }
    QDoubleSpinBox::up-arrow, QDoubleSpinBox::down-arrow { image: none; }
"""
N_STOPS = 6
DIGITS = 3
"""Significant digits of the numbers at the ends of a scale from 0 to 1."""


class ColorRow(QWidget):
    """A box to choose the colours of the cells, their meaning, and a gate if they are numbers."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        tip = "What the colours mean, in the map and in the image; type a part of a name"
        self.box = Search("Colour by", tip, partial(_color_by, session))
        self.text = Message()
        self.text.setTextFormat(Qt.TextFormat.RichText)
        self.text.setStyleSheet("font-size: 10px")
        self.gate = Gate(partial(_select_between, session))
        row = (self.box, 4), (self.text, 3), (self.gate, 5)
        self.setLayout(side_by_side(QLabel("Colour by"), *row))
        # The row keeps its height, and so the map its size; a long legend is in the tooltip, too.
        self.setFixedHeight(self.box.sizeHint().height())
        session.show_in(self.show_state)
        self._offer()

    def show_state(self, before: State, now: State) -> None:
        """Offer other colours, and explain those that are chosen."""
        if now.differs(before, "coloring", "regions", *CONTENT):
            self._offer()
            colors = colorings.shown_colors(self._session)
            self.text.say("" if colors is None else _html(colors))
            # In another column, all cells are in the gate.
            self.gate.show_scale(colors, is_other=now.differs(before, "coloring", "cells"))

    def _offer(self) -> None:
        entries = [(text, way) for way, text in colorings.to_choose(self._session).items()]
        self.box.offer(entries, colorings.chosen(self._session))
        self.box.setEnabled(self._session.adata is not None)


class Gate(QWidget):
    """The colours of numbers as a scale with two handles, and the numbers at the handles.

    `act` is called with both numbers when the user has moved a handle or typed a number. A handle
    at the end of the scale excludes no cell.
    """

    def __init__(self, act: Callable[[float, float], object]) -> None:
        super().__init__()
        self._act = act
        tip = "Cells with values in between are selected"
        self.slider: Any = QDoubleRangeSlider(Qt.Orientation.Horizontal)  # type: ignore[no-untyped-call]
        self.boxes = QDoubleSpinBox(), QDoubleSpinBox()
        low, high = self.boxes
        for part, name in ((self.slider, "Gate"), (low, "Least value"), (high, "Largest value")):
            part.setAccessibleName(name)
            part.setToolTip(tip)
        for box in self.boxes:
            box.setKeyboardTracking(False)
            box.setStyleSheet(BOX)
            box.valueChanged.connect(self._on_typed)
        self.slider.valueChanged.connect(self._on_moved)
        self.setLayout(side_by_side(low, (self.slider, 1), high))
        self.hide()

    @property
    def _ends(self) -> tuple[float, float]:
        return self.slider.minimum(), self.slider.maximum()

    def show_scale(self, colors: Colors | None, *, is_other: bool) -> None:
        """Show the scale of colours; if it is another one, all cells are in the gate."""
        values = None if colors is None else colors.values
        there = np.zeros(0) if values is None else values[np.isfinite(values)]
        self.setVisible(len(there) > 0)
        if colors is None or not len(there):
            return
        ends = float(there.min()), float(there.max())
        if not is_other and ends == self._ends:
            return
        extent = ends[1] - ends[0] or 1.0
        low, high = (np.clip((x - ends[0]) / extent, 0, 1) for x in colors.scale)
        shown = colors.colors[:: max(1, len(colors.colors) // N_STOPS)]
        places = np.linspace(low, max(high, low + 1e-3), len(shown)).clip(0, 1)
        stops = (f"stop:{x:.4f} {color}" for x, color in zip(places, shown, strict=True))
        digits = int(np.clip(DIGITS - np.floor(np.log10(extent)) - 1, 0, 6))
        with signals_blocked(self.slider):
            self.slider.setStyleSheet(GROOVE.format(stops=", ".join(stops)))
            self.slider.setRange(*ends)
            self.slider.setValue(ends)
        for box, end in zip(self.boxes, ends, strict=True):
            with signals_blocked(box):
                box.setDecimals(digits)
                box.setRange(*ends)
                box.setSingleStep(extent / 100)
                box.setValue(end)

    def _on_moved(self, values: tuple[float, float]) -> None:
        for box, value in zip(self.boxes, values, strict=True):
            with signals_blocked(box):
                box.setValue(value)
        (low, high), (least, most) = values, self._ends
        step = 1e-6 * (most - least)
        low = -np.inf if low <= least + step else low
        self._act(low, np.inf if high >= most - step else high)

    def _on_typed(self, _: float) -> None:
        # The boxes hold fewer digits than the ends of the scale.
        values = [
            end if box.value() in (box.minimum(), box.maximum()) else box.value()
            for box, end in zip(self.boxes, self._ends, strict=True)
        ]
        with signals_blocked(self.slider):
            self.slider.setValue(sorted(values))
        self._on_moved(self.slider.value())


def _html(colors: Colors) -> str:
    """Return the meaning of colours in one line."""
    dots = ((f'<span style="color:{color}">●</span> ' if color else "") for color, _ in colors.key)
    key = (f"{dot}{escape(text)}" for dot, (_, text) in zip(dots, colors.key, strict=True))
    return " ".join(filter(None, [escape(colors.meaning), *key]))


def _color_by(session: Session, coloring: colorings.Coloring) -> None:
    if session.catalog.check_cells():
        session.set(coloring=coloring)


def _select_between(session: Session, low: float, high: float) -> None:
    """Select the cells in the gate."""
    colors = colorings.shown_colors(session)
    if colors is not None and colors.values is not None:
        rows = np.flatnonzero((colors.values >= low) & (colors.values <= high))
        name = colorings.to_choose(session)[colorings.chosen(session)]
        session.select(rows, how=f"gate on {name}")

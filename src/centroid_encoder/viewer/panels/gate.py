"""The scale of the colours, on which a range of values is chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QDoubleSpinBox, QWidget
from superqt import QDoubleRangeSlider
from superqt.utils import signals_blocked

from centroid_encoder.viewer.map.colorings import Colors
from centroid_encoder.viewer.panels.fields import side_by_side

GROOVE = """
QSlider::groove:horizontal {{
    height: 8px; border-radius: 4px;
    background: qlineargradient(x1:0, y1:0, x2:1, y2:0, {stops});
}}
QRangeSlider {{ qproperty-barColor: transparent; }}
"""
WIDTH = 56
"""Width of a number in pixels."""
N_STOPS = 6
DIGITS = 3
"""Significant digits of the numbers at the ends of a scale from 0 to 1."""


class Gate(QWidget):
    """The colours of numbers as a scale with two handles, and the numbers at the handles.

    `act` is called with both numbers when the user has moved a handle or typed a number. A handle
    at the end of the scale excludes no cell.
    """

    def __init__(self, act: Callable[[tuple[float, float]], None]) -> None:
        super().__init__()
        self._act = act
        self._ends = (0.0, 1.0)
        tip = "Cells with values in between are selected"
        self.slider: Any = QDoubleRangeSlider(Qt.Orientation.Horizontal)  # type: ignore[no-untyped-call]
        self.boxes = QDoubleSpinBox(), QDoubleSpinBox()
        for part, name in (
            (self.slider, "Gate"),
            *zip(self.boxes, ("Least value", "Largest value"), strict=True),
        ):
            part.setAccessibleName(name)
            part.setToolTip(tip)
        for box in self.boxes:
            box.setButtonSymbols(QDoubleSpinBox.ButtonSymbols.NoButtons)
            box.setKeyboardTracking(False)
            # napari's style sheet sets a larger least width.
            box.setStyleSheet(f"min-width: {WIDTH}px; max-width: {WIDTH}px; padding: 1px;")
            box.valueChanged.connect(self._on_typed)
        self.slider.valueChanged.connect(self._on_moved)
        low, high = self.boxes
        self.setLayout(side_by_side(low, (self.slider, 1), high))
        self.hide()

    @property
    def value(self) -> tuple[float, float]:
        """The numbers at the handles; the ends of the scale are all values beyond."""
        values = self.slider.value()
        step = 1e-6 * (self._ends[1] - self._ends[0])
        low = -np.inf if values[0] <= self._ends[0] + step else values[0]
        return low, np.inf if values[1] >= self._ends[1] - step else values[1]

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
        self._ends = ends
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
        self._act(self.value)

    def _on_typed(self, _: float) -> None:
        # The boxes hold fewer digits than the ends of the scale.
        typed = [box.value() for box in self.boxes]
        low, high = (
            end if box.value() in (box.minimum(), box.maximum()) else x
            for box, x, end in zip(self.boxes, typed, self._ends, strict=True)
        )
        with signals_blocked(self.slider):
            self.slider.setValue((min(low, high), max(low, high)))
        self._act(self.value)

"""Why a cell is where it is in the map: the features that separate classes."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from anndata import AnnData
from napari.components import ViewerModel
from napari.utils.theme import get_theme
from qtpy.QtCore import QRectF, Qt
from qtpy.QtGui import QColor, QPainter, QPaintEvent
from qtpy.QtWidgets import QSizePolicy, QWidget

from centroid_encoder.tl._result import Result
from centroid_encoder.viewer.map.colorings import GREY
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.task import Steps, Task

if TYPE_CHECKING:
    from centroid_encoder.tl._telling_features import TellingFeatures

HEIGHT, LINE = 104, 20
"""Height of the panel, and of a line in it."""
N_FEATURES = 4


class WhyPanel(QWidget):
    """The features that separate the class of the selected cell from another.

    Hidden unless one cell is selected. `table` is what is shown, see `tl.telling_features`, or
    None.
    """

    def __init__(self, session: Session, viewer: ViewerModel) -> None:
        super().__init__()
        self._session, self._viewer = session, viewer
        self.table: pd.DataFrame | None = None
        self._task: Task | None = None
        self._kinds = ("", "")
        """What the two classes are to the cell."""
        self._drawn: Result | None = None
        self._features: tuple[Result, TellingFeatures] | None = None
        self._lock = Lock()
        self.setFixedHeight(HEIGHT)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        session.selection_changed.connect(self._on_cell)
        session.shown_changed.connect(self._on_shown)
        self._on_cell()

    def _on_cell(self) -> None:
        """Read the features of the selected cell, if it is one."""
        if self._task is not None:
            self._task.cancel()
        self._task = self.table = None
        rows, self._drawn = np.flatnonzero(self._session.selected), self._session.drawn
        adata, result = self._session.drawn_adata, self._drawn
        if len(rows) == 1 and adata is not None and result is not None:
            self._read(int(rows[0]), adata, result)
        self._show()

    def _on_shown(self) -> None:
        """Read the evidence of another map on the cell; the classes may also have other colours."""
        if self._session.drawn is not self._drawn:
            self._on_cell()
        self.update()

    def _read(self, row: int, adata: AnnData, result: Result) -> None:
        """Read the features in a thread; there are none if that fails."""
        differs = result.codes[row] not in (-1, result.predicted[row])
        self._kinds = ("label", "predicted") if differs else ("predicted", "next")

        def read(_: Steps) -> pd.DataFrame:
            from centroid_encoder.tl._telling_features import TellingFeatures

            with self._lock:
                if self._features is None or self._features[0] is not result:
                    self._features = result, TellingFeatures(adata, result)
                return self._features[1].of_cell(row, N_FEATURES)

        def on_end(found: pd.DataFrame | None, _: Exception | None) -> None:
            self._task, self.table = None, found
            self._show()

        self._task = Task(read, on_end, self)

    def _show(self) -> None:
        """Show what was found; keep the height while an answer is to come."""
        table = self.table
        if table is not None or self._task is None:
            self.setVisible(table is not None)
        self.setToolTip("" if table is None else "\n".join(map(_line, table.itertuples())))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw a line for each feature."""
        if self.table is not None:
            painter = QPainter(self)
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            self._draw_features(painter, self.table)
            painter.end()

    def _draw_features(self, painter: QPainter, table: pd.DataFrame) -> None:
        """Draw a line for each feature: the ranges of both classes, and the value of the cell."""
        theme, palette = get_theme(self._viewer.theme), self._session.class_colors
        ink, page = (QColor(c.as_hex("long")) for c in (theme.text, theme.background))
        names = [table[column].iloc[0] for column in ("class", "other")]
        colors = [QColor(palette.get(name, GREY)) for name in names]
        width = self.width()

        def write(text: object, x: float, y: float, width: float) -> None:
            elided = Qt.TextElideMode.ElideMiddle
            text = painter.fontMetrics().elidedText(str(text), elided, int(width))
            painter.drawText(QRectF(x, y, width, LINE), Qt.AlignmentFlag.AlignVCenter, text)

        font = painter.font()
        font.setPixelSize(min(round(0.9 * self.fontInfo().pixelSize()), LINE - 5))
        painter.setFont(font)
        painter.setPen(ink)
        for x, kind, name, color in zip((0, 0.4), self._kinds, names, colors, strict=True):
            painter.fillRect(QRectF(x * width, 6, 9, 9), color)
            write(f"{kind}: {name}", x * width + 13, 0, 0.4 * width - 19)
        painter.fillRect(QRectF(0.8 * width, 3, 2, 15), ink)
        write("this cell", 0.8 * width + 7, 0, 0.2 * width - 7)
        start, length = 0.58 * width, 0.42 * width - 2
        for i, one in enumerate(table.itertuples()):
            y = LINE * (i + 1)
            write(one.Index, 0, y, 0.58 * width - 6)
            ranges = np.array(
                [[one.low, one.median, one.high], [one.other_low, one.other_median, one.other_high]]
            )
            # A third of the length is left for values beyond the ranges.
            share = (np.append(ranges, one.value) - ranges.min()) / (np.ptp(ranges) or 1.0)
            *ends, value = start + length * (1 / 6 + share * 2 / 3).clip(0, 1)
            for j, color in enumerate(colors):
                (a, middle, b), top = ends[3 * j : 3 * j + 3], y + 4 + 6 * j
                painter.fillRect(QRectF(a, top, max(b - a, 2), 5), color)
                painter.fillRect(QRectF(middle - 1, top, 2, 5), page)
            if np.isfinite(value):
                painter.fillRect(QRectF(value - 1, y + 1, 2, 17), ink)


def _line(one: Any) -> str:
    """Describe a feature in a line."""
    return (
        f"{one.Index}: {one.value:.3g}; {one[1]}: {one.low:.3g} to {one.high:.3g}, {one.other}: "
        f"{one.other_low:.3g} to {one.other_high:.3g} (80 % of the cells); AUROC {one.auroc:.2f}"
    )

"""Why a cell is where it is in the map: its picture, and the features that separate classes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from napari.components import ViewerModel
from napari.utils.theme import get_theme
from qtpy.QtCore import QRectF, Qt
from qtpy.QtGui import QColor, QPainter, QPaintEvent
from qtpy.QtWidgets import QSizePolicy, QWidget

from centroid_encoder.tl._result import Result
from centroid_encoder.viewer.data.thumbnail import Thumbnail
from centroid_encoder.viewer.latest import Latest
from centroid_encoder.viewer.map.colorings import GREY
from centroid_encoder.viewer.panels.strip import draw_picture, picture_job
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import Mode, State

if TYPE_CHECKING:
    from centroid_encoder.tl._telling_features import TellingFeatures

HEIGHT, LINE = 85, 16
"""Height of the panel under Explore, and of a line in it."""
N_FEATURES = 4
PAUSE = 100
"""Milliseconds without a change of the layers after which the picture is drawn again."""


class WhyPanel(QWidget):
    """The picture of the selected cell beside the features that separate its class from another.

    It is empty unless one cell is selected and the card `mode` is shown; under Explore, it is
    hidden then. `thumbnail` and `table` are what is shown, see `tl.telling_features`; None for what
    there is not.
    """

    def __init__(self, session: Session, viewer: ViewerModel, mode: Mode = "Explore") -> None:
        super().__init__()
        self._session, self._viewer, self._mode = session, viewer, mode
        self.thumbnail: Thumbnail | None = None
        self.table: pd.DataFrame | None = None
        self._pixels, self._evidence = Latest(self, PAUSE), Latest(self)
        self._kinds = ("", "")
        """What the two classes are to the cell."""
        self._features: tuple[Result, TellingFeatures] | None = None
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Ignored)
        if mode == "Explore":
            self.setFixedHeight(HEIGHT)
        session.show_in(self.show_state)
        self._on_cell()

    def show_state(self, before: State, now: State) -> None:
        """Show another cell, or the evidence of another map; the classes may have other colours."""
        if now.differs(before, "cells"):
            self._features = None
        if now.mode != self._mode:
            return
        if now.differs(before, "group", "links", "mode", "drawn"):
            self._on_cell()
        elif now.differs(before, "looks"):
            self._read_pixels()
        elif now.differs(before, "labels"):
            self.update()

    @property
    def _row(self) -> int | None:
        """Row of the cell that is selected, if it is one."""
        rows = np.flatnonzero(self._session.state.selected)
        return int(rows[0]) if len(rows) == 1 else None

    def _on_cell(self) -> None:
        """Read what there is about the selected cell."""
        self.thumbnail = self.table = None
        self._read_pixels()
        self._read_features()
        self._show()

    @property
    def is_due(self) -> bool:
        """Whether something about the cell is still being read."""
        return self._pixels.is_due or self._evidence.is_due

    def _read_pixels(self) -> None:
        self._pixels.drop()
        if (row := self._row) is not None:
            job = picture_job(self._session, self._viewer, row)
            self._pixels.request(job, partial(self._on_found, "thumbnail"))

    def _read_features(self) -> None:
        now, row = self._session.state, self._row
        adata, result = now.drawn_adata, now.drawn
        self._evidence.drop()
        if row is None or adata is None or result is None:
            return
        differs = result.codes[row] not in (-1, result.predicted[row])
        self._kinds = ("label", "predicted") if differs else ("predicted", "next")

        def read() -> pd.DataFrame:
            from centroid_encoder.tl._telling_features import TellingFeatures

            if self._features is None or self._features[0] is not result:
                self._features = result, TellingFeatures(adata, result)
            return self._features[1].of_cell(row, N_FEATURES)

        self._evidence.request(read, partial(self._on_found, "table"))

    def _on_found(self, name: str, found: Any, _: Exception | None) -> None:
        # What cannot be read is not shown.
        setattr(self, name, found)
        self._show()

    def _show(self) -> None:
        """Show what was found; keep the height while an answer is to come."""
        table = self.table
        is_empty = self.thumbnail is None and table is None
        if self._mode == "Explore" and not (is_empty and self.is_due):
            self.setVisible(not is_empty)
        self.setToolTip("" if table is None else "\n".join(map(_line, table.itertuples())))
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the picture, and beside it a line for each feature."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        left = 0.0
        if self.thumbnail is not None:
            side = min(HEIGHT, self.height())
            draw_picture(painter, self.thumbnail, side)
            left = side + 8.0
        if self.table is not None:
            self._draw_features(painter, self.table, left)
        painter.end()

    def _draw_features(self, painter: QPainter, table: pd.DataFrame, left: float) -> None:
        """Draw a line for each feature: the ranges of both classes, and the value of the cell.

        A low panel shows the first features; the tooltip has all of them.
        """
        table = table.head(round(self.height() / LINE) - 1)
        theme, palette = get_theme(self._viewer.theme), self._session.class_colors
        ink, page = (QColor(c.as_hex("long")) for c in (theme.text, theme.background))
        names = [table[column].iloc[0] for column in ("class", "other")]
        colors = [QColor(palette.get(name, GREY)) for name in names]
        width = self.width() - left

        def write(text: object, x: float, y: float, width: float) -> None:
            elided = Qt.TextElideMode.ElideMiddle
            text = painter.fontMetrics().elidedText(str(text), elided, int(width))
            painter.drawText(QRectF(x, y, width, LINE), Qt.AlignmentFlag.AlignVCenter, text)

        font = painter.font()
        font.setPixelSize(min(round(0.9 * self.fontInfo().pixelSize()), LINE - 4))
        painter.setFont(font)
        painter.setPen(ink)
        for x, kind, name, color in zip((0, 0.4), self._kinds, names, colors, strict=True):
            painter.fillRect(QRectF(left + x * width, 6, 9, 9), color)
            write(f"{kind}: {name}", left + x * width + 13, 0, 0.4 * width - 19)
        painter.fillRect(QRectF(left + 0.8 * width, 3, 2, 15), ink)
        write("this cell", left + 0.8 * width + 7, 0, 0.2 * width - 7)
        longest = max(map(painter.fontMetrics().horizontalAdvance, map(str, table.index)))
        of_names = min(longest + 12, 0.58 * width)
        start, length = left + of_names, width - of_names - 2
        for i, one in enumerate(table.itertuples()):
            y = LINE * (i + 1)
            write(one.Index, left, y, of_names - 6)
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
                painter.fillRect(QRectF(value - 1, y + 1, 2, LINE - 2), ink)


def _line(one: Any) -> str:
    """Describe a feature in a line."""
    return (
        f"{one.Index}: {one.value:.3g}; {one[1]}: {one.low:.3g} to {one.high:.3g}, {one.other}: "
        f"{one.other_low:.3g} to {one.other_high:.3g} (80 % of the cells); AUROC {one.auroc:.2f}"
    )

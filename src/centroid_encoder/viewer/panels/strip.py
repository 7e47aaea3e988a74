"""A film strip: pictures of some cells, with given or proposed labels below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from napari.components import ViewerModel
from napari.layers import Image
from qtpy.QtCore import QPointF, QRectF, QSize, Qt
from qtpy.QtGui import (
    QColor,
    QIcon,
    QImage,
    QPainter,
    QPen,
    QPixmap,
    QPolygonF,
    QResizeEvent,
    QShowEvent,
)
from qtpy.QtWidgets import QListWidget

from centroid_encoder.viewer.data.thumbnail import Thumbnail, layers_of_cell, make_thumbnail
from centroid_encoder.viewer.latest import Latest
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import State

N_THUMBNAILS = 8
SIDE, BAR = 48, 14
"""Side of a picture, and height of the label below it."""
SHARP = 2
"""Pixels of a picture in one of a common screen."""
DARK = 0.5
"""Lightness below which the text on a colour is white."""
PAUSE = 150
"""Milliseconds without a change of the images after which the pictures are read again."""


class Caption(NamedTuple):
    """The text below a picture, its colour, and whether it is a label or a proposal."""

    text: str
    color: str
    is_given: bool


class Strip(QListWidget):
    """A list of pictures of `n` cells at most; the present cell has a frame.

    The label below a picture is filled with the colour of its class; a proposal is framed with it.
    """

    def __init__(self, session: Session, viewer: ViewerModel, n: int = N_THUMBNAILS) -> None:
        super().__init__()
        self._session = session
        self._viewer = viewer
        self._n = n
        self.rows: list[int] = []
        """Rows of the cells whose pictures are shown."""
        self._current, self._is_old = -1, False
        self.pictures: list[Thumbnail | None] = []
        self.captions: list[Caption] = []
        self._reading = Latest(self, PAUSE)
        self.setAccessibleName("Pictures of cells")
        self.setViewMode(QListWidget.ViewMode.IconMode)
        self.setMovement(QListWidget.Movement.Static)
        self.setSelectionMode(QListWidget.SelectionMode.NoSelection)
        self.setFrameShape(QListWidget.Shape.NoFrame)
        self.setWrapping(False)
        for scroll in (self.setHorizontalScrollBarPolicy, self.setVerticalScrollBarPolicy):
            scroll(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFixedHeight(SIDE + BAR + 6)
        session.show_in(self.show_state)

    def show_state(self, before: State, now: State) -> None:
        """Read the pictures again if images look otherwise; a hidden strip does so when shown."""
        if now.differs(before, "cells"):
            self.show_cells([], [], [])
        elif self.rows and now.differs(before, "links", "looks"):
            self._is_old = not self.isVisible()
            if not self._is_old:
                self._read()

    def showEvent(self, event: QShowEvent) -> None:
        """Read the pictures again if images have changed meanwhile."""
        super().showEvent(event)
        if self._is_old:
            self._is_old = False
            self._read()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Show smaller pictures in a narrow dock."""
        super().resizeEvent(event)
        self._draw()

    @property
    def has_images(self) -> bool:
        """Whether there is an image to take pictures from."""
        return any(isinstance(layer, Image) for layer in self._viewer.layers)

    def show_cells(
        self, rows: list[int], captions: list[Caption], tips: list[str], current: int = -1
    ) -> None:
        """Show the cells of some rows."""
        self.captions, self._current = captions, current
        while self.count() > len(rows):
            self.takeItem(self.count() - 1)
        for i, (caption, tip) in enumerate(zip(captions, tips, strict=True)):
            if i == self.count():
                self.addItem("")
            item = self.item(i)
            item.setToolTip(f"{caption.text}\n{tip}")
            item.setData(Qt.ItemDataRole.AccessibleTextRole, caption.text)
        if rows != self.rows:
            self.rows, self.pictures = rows, [None] * len(rows)
            self._read()
        self._draw()

    def _read(self) -> None:
        """Read the pictures in a thread."""
        n = SHARP * SIDE
        jobs = [picture_job(self._session, self._viewer, row, n) for row in self.rows]
        self._reading.request(partial(_read, jobs), self._on_read)

    def _on_read(self, pictures: list[Thumbnail | None], _: Exception | None) -> None:
        self.pictures = pictures
        self._draw()

    def _draw(self) -> None:
        step = self.viewport().width() // self._n
        side = max(min(SIDE, step - 2), 1)
        # Qt leaves a margin above an icon.
        self.setGridSize(QSize(step, SIDE + BAR + 4))
        self.setIconSize(QSize(side, side + BAR))
        shown = zip(self.captions, self.pictures, strict=True)
        for i, (caption, picture) in enumerate(shown):
            self.item(i).setIcon(QIcon(self._pixmap(picture, caption, side, i == self._current)))

    def _pixmap(
        self, picture: Thumbnail | None, caption: Caption, side: int, is_current: bool
    ) -> QPixmap:
        """Draw a picture, the outline of its cell, and its caption below."""
        ratio = self.devicePixelRatioF()
        drawn = QPixmap(round(ratio * side), round(ratio * (side + BAR)))
        drawn.setDevicePixelRatio(ratio)
        drawn.fill(Qt.GlobalColor.transparent)
        painter = QPainter(drawn)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if picture is not None:
            draw_picture(painter, picture, side)
        if is_current:
            painter.setPen(QPen(QColor("white"), 3))
            painter.drawRect(QRectF(1, 1, side - 2, side - 2))
        color, bar = QColor(caption.color), QRectF(0.5, side + 1, side - 1, BAR - 1.5)
        ink = self.palette().text().color()
        if caption.is_given:
            painter.fillRect(bar, color)
            ink = QColor("white" if color.lightnessF() < DARK else "black")
        painter.setPen(color)
        painter.drawRect(bar)
        painter.setPen(ink)
        font = painter.font()
        font.setPixelSize(10)
        painter.setFont(font)
        right = Qt.TextElideMode.ElideRight
        text = painter.fontMetrics().elidedText(caption.text, right, side - 4)
        painter.drawText(bar, Qt.AlignmentFlag.AlignCenter, text)
        painter.end()
        return drawn


def picture_job(
    session: Session, viewer: ViewerModel, row: int, side: int = 160
) -> Callable[[], Thumbnail | None]:
    """Return a function that draws a cell; it may take long."""
    catalog, adata = session.catalog, session.adata
    for link, join in catalog.joins.items():
        if adata is not None and join.joined[row]:
            layers = layers_of_cell(viewer.layers, adata.obs, catalog.image_column, row)
            layers = [layer for layer in layers if layer.visible or layer in catalog.put_away]
            return partial(make_thumbnail, layers, viewer.dims.point, link.layer, join, row, side)
    return lambda: None


def _read(jobs: Sequence[Callable[[], Thumbnail | None]]) -> list[Thumbnail | None]:
    """Read pictures; None for a picture whose pixels cannot be read, whatever the exception."""
    found: list[Thumbnail | None] = []
    for job in jobs:
        try:
            found.append(job())
        except Exception:
            found.append(None)
    return found


def draw_picture(painter: QPainter, picture: Thumbnail, side: float) -> None:
    """Draw a picture and the outline of its cell."""
    n = picture.pixels.shape[0]
    image = QImage(picture.pixels.tobytes(), n, n, 3 * n, QImage.Format.Format_RGB888)
    painter.setRenderHint(QPainter.RenderHint.SmoothPixmapTransform)
    painter.drawImage(QRectF(0, 0, side, side), image)
    vertices = QPolygonF([QPointF(x * side, y * side) for y, x in picture.outline])
    # A dark and a white line are visible on all pixels.
    for color, width in ((QColor(0, 0, 0, 160), 3), (QColor("white"), 1)):
        painter.setPen(QPen(color, width))
        painter.drawPolygon(vertices)

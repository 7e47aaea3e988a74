"""The picture of a cell, drawn by Qt."""

from __future__ import annotations

from qtpy.QtCore import QPointF, QRectF
from qtpy.QtGui import QColor, QImage, QPainter, QPen, QPolygonF

from centroid_encoder.viewer.data.thumbnail import Thumbnail


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

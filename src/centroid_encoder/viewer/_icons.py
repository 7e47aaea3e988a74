"""napari's icons in the colour of its theme."""

from __future__ import annotations

from napari.resources import get_colorized_svg, get_icon_path
from qtpy.QtGui import QIcon, QPixmap


def themed_icon(name: str, color: str) -> QIcon:
    """Return one of napari's icons in a colour."""
    pixmap = QPixmap()
    pixmap.loadFromData(get_colorized_svg(get_icon_path(name), color).encode(), "SVG")
    return QIcon(pixmap)

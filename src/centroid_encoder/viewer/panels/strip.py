"""A film strip: pictures of some cells, with given or proposed labels below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from napari.components import ViewerModel
from napari.layers import Image
from qtpy.QtCore import QPointF, QRectF, Qt, QTimer, Signal
from qtpy.QtGui import (
    QColor,
    QHideEvent,
    QImage,
    QPainter,
    QPaintEvent,
    QPen,
    QPolygonF,
    QShowEvent,
)
from qtpy.QtWidgets import QAbstractButton, QGridLayout, QSizePolicy, QWidget

from centroid_encoder.viewer.data.thumbnail import (
    LOOKS,
    Thumbnail,
    is_slow,
    layers_of_cell,
    make_thumbnail,
)
from centroid_encoder.viewer.map.colorings import GREY
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.task import Steps, Task

N_COLUMNS = N_THUMBNAILS = 8
SIDE, BAR = 60, 14
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


class _Picture(QAbstractButton):
    """A button that is the picture of a cell above its caption."""

    def __init__(self) -> None:
        super().__init__()
        self._picture: Thumbnail | None = None
        self._caption = Caption("", GREY, is_given=False)
        self._is_current = False
        self.setFixedHeight(SIDE + BAR)
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def show_cell(self, picture: Thumbnail | None, caption: Caption, *, is_current: bool) -> None:
        """Show a cell; the present one has a frame."""
        self._picture, self._caption, self._is_current = picture, caption, is_current
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        """Draw the picture, the outline of its cell, and its caption in the middle."""
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        # A narrow dock has smaller pictures.
        side = min(SIDE, self.width())
        painter.translate((self.width() - side) // 2, SIDE - side)
        if self._picture is not None:
            draw_picture(painter, self._picture, side)
        if self._is_current:
            painter.setPen(QPen(QColor("white"), 3))
            painter.drawRect(QRectF(1, 1, side - 2, side - 2))
        color, bar = QColor(self._caption.color), QRectF(0.5, side + 1, side - 1, BAR - 1.5)
        ink = self.palette().text().color()
        if self._caption.is_given:
            painter.fillRect(bar, color)
            ink = QColor("white" if color.lightnessF() < DARK else "black")
        painter.setPen(color)
        painter.drawRect(bar)
        painter.setPen(ink)
        font = painter.font()
        font.setPixelSize(10)
        painter.setFont(font)
        right = Qt.TextElideMode.ElideRight
        text = painter.fontMetrics().elidedText(self._caption.text, right, side - 4)
        painter.drawText(bar, Qt.AlignmentFlag.AlignCenter, text)
        painter.end()


class Strip(QWidget):
    """A button with a picture for each of some cells; the present cell has a frame.

    The label below a picture is filled with the colour of its class; a proposal is framed with it.
    """

    chosen = Signal(int)
    """Place of a picture that was clicked."""

    def __init__(self, session: Session, viewer: ViewerModel) -> None:
        super().__init__()
        self._session = session
        self._viewer = viewer
        self._rows: list[int] = []
        self._current = -1
        self.pictures: list[Thumbnail | None] = []
        self.captions: list[Caption] = []
        self._again = QTimer(self, interval=PAUSE, singleShot=True)
        self._again.timeout.connect(self.read)
        self._task: Task | None = None
        self.buttons = [_Picture() for _ in range(N_THUMBNAILS)]
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setSpacing(2)
        for i, one in enumerate(self.buttons):
            one.clicked.connect(partial(self.chosen.emit, i))
            grid.addWidget(one, *divmod(i, N_COLUMNS))

    def showEvent(self, event: QShowEvent) -> None:
        """Follow the images while the strip is shown."""
        super().showEvent(event)
        self._viewer.layers.events.connect(self._on_layers)

    def hideEvent(self, event: QHideEvent) -> None:
        """Ignore the images, and read the pictures again when the strip is shown."""
        super().hideEvent(event)
        self._viewer.layers.events.disconnect(self._on_layers)
        self._rows = []

    @property
    def has_images(self) -> bool:
        """Whether there is an image to take pictures from."""
        return any(isinstance(layer, Image) for layer in self._viewer.layers)

    def show_cells(
        self, rows: list[int], captions: list[Caption], tips: list[str], current: int = -1
    ) -> None:
        """Show the cells of some rows, `N_THUMBNAILS` at most."""
        self.captions, self._current = captions, current
        for i, one in enumerate(self.buttons):
            one.setVisible(i < len(rows))
            if i < len(rows):
                one.setToolTip(f"{captions[i].text}\n{tips[i]}")
                one.setAccessibleName(captions[i].text)
        if rows != self._rows:
            self._rows, self.pictures = rows, [None] * len(rows)
            self.read()
        self._draw()

    def read(self) -> None:
        """Read the pictures again, in a thread."""
        if self._task is not None:
            self._task.cancel()
        side = SHARP * SIDE
        jobs = [picture_job(self._session, self._viewer, row, side)[0] for row in self._rows]
        self._task = Task(partial(_read, jobs), self._on_read, self)

    def _on_read(self, pictures: list[Thumbnail | None], _: Exception | None) -> None:
        self._task, self.pictures = None, pictures
        self._draw()

    def _on_layers(self, event: Any) -> None:
        if isinstance(event.sources[0], Image) and event.type in LOOKS:
            self._again.start()

    def _draw(self) -> None:
        shown = zip(self.buttons, self.pictures, self.captions, strict=False)
        for i, (one, picture, caption) in enumerate(shown):
            one.show_cell(picture, caption, is_current=i == self._current)


def picture_job(
    session: Session, viewer: ViewerModel, row: int, side: int = 160
) -> tuple[Callable[[], Thumbnail | None], bool]:
    """Return a function that draws a cell, and whether it takes long."""
    catalog, adata = session.catalog, session.adata
    for link, join in catalog.joins.items():
        if adata is not None and join.joined[row]:
            layers = layers_of_cell(viewer.layers, adata.obs, catalog.image_column, row)
            job = partial(make_thumbnail, layers, viewer.dims.point, link.layer, join, row, side)
            return job, is_slow(layers, link.layer)
    return lambda: None, False


def _read(jobs: Sequence[Callable[[], Thumbnail | None]], steps: Steps) -> list[Thumbnail | None]:
    """Read pictures; None for a picture whose pixels cannot be read, whatever the exception."""
    found: list[Thumbnail | None] = []
    for job in jobs:
        steps(None)
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

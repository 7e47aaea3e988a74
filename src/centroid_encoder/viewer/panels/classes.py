"""The legend: classes with their colours, cells and errors; each can be switched off."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from qtpy.QtCore import Qt
from qtpy.QtGui import QColor, QIcon, QPixmap
from qtpy.QtWidgets import (
    QAbstractItemView,
    QColorDialog,
    QFileDialog,
    QHeaderView,
    QLabel,
    QPushButton,
    QTableWidget,
    QTableWidgetItem,
    QWidget,
)
from superqt.utils import signals_blocked

from centroid_encoder.files import check_target, replacing
from centroid_encoder.tl._composition import composition
from centroid_encoder.viewer.panels.fields import Choice, column, plain_table, side_by_side
from centroid_encoder.viewer.session.classes import ClassRow, class_rows
from centroid_encoder.viewer.session.session import Session

COLUMNS = ("", "", "class", "cells", "held-out error", "out of fold")
BOX, COLOR, NAME = range(3)
TIPS = (
    "Switches the class on and off",
    "A double click changes the colour everywhere",
    "A double click shows a class alone",
    "Labelled cells",
    "Share of held-out cells of this class that are wrong by the rule in the title of the map",
    "The same for all its cells, each placed by a network that has not seen it (Check labels)",
)
SWATCH = 14
ALL = "all images"


class ClassTable(QWidget):
    """Legend with a row for each class of the session.

    Attributes
    ----------
    rows
        The classes.
    shown
        (n_classes,) mask of those that are switched on.
    """

    def __init__(self, session: Session, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._session = session
        self.rows: list[ClassRow] = []
        self.shown: NDArray[np.bool_] = np.empty(0, dtype=bool)
        self.view = QTableWidget(0, len(COLUMNS))
        for section, (name, tip) in enumerate(zip(COLUMNS, TIPS, strict=True)):
            head = QTableWidgetItem(name)
            head.setToolTip(tip)
            self.view.setHorizontalHeaderItem(section, head)
        self.view.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        plain_table(self.view)
        header = self.view.horizontalHeader()
        header.setSectionResizeMode(QHeaderView.ResizeMode.ResizeToContents)
        header.setMinimumSectionSize(SWATCH)
        header.setSectionResizeMode(NAME, QHeaderView.ResizeMode.Stretch)
        self.view.itemDoubleClicked.connect(self._on_double_click)
        self.view.itemChanged.connect(self._on_box)
        self.view.setAccessibleName("Classes")
        self.image_box = Choice("Image whose cells are counted", "Count the cells of one image")
        self.image_box.currentIndexChanged.connect(self._on_classes)
        self.save_button = QPushButton("Save counts …")
        self.save_button.setToolTip("Write the cells of each class in each image into a .csv")
        self.save_button.clicked.connect(self._ask_file)
        self._of_images = QWidget()
        row = side_by_side(QLabel("Cells of"), (self.image_box, 1), self.save_button)
        self._of_images.setLayout(row)
        column(self, self._of_images, self.view)
        for event in (
            session.result_changed,
            session.check_changed,
            session.label_key_changed,
            session.colors_changed,
            session.labels_changed,
            session.regions_changed,
        ):
            event.connect(self._on_classes)
        for event in (session.links_changed, session.table_changed):
            event.connect(self._on_images)
        self._on_images()

    def _on_images(self) -> None:
        """Offer the images that there are now."""
        images = [image for image in self._session.catalog.images() if image.value is not None]
        before = self.image_box.value
        values = [image.value for image in images]
        offered = [(ALL, None), *((image.name, image.value) for image in images)]
        self.image_box.offer(offered, before if before in values else None)
        self._of_images.setVisible(bool(images))
        if before is not None and before not in values:
            self._on_classes()

    def _ask_file(self) -> None:
        name, _ = QFileDialog.getSaveFileName(self, "Save counts", "composition.csv", "*.csv")
        if name:
            self.save_counts(Path(name))

    def save_counts(self, path: Path) -> None:
        """Write the table of `tl.composition`; the session shows errors."""
        session = self._session
        image_column, label_key = session.catalog.image_column, session.shown_labels
        if session.adata is None or image_column is None or label_key is None:
            return
        try:
            check_target(path, ".csv")
            table = composition(session.adata, image_column, label_key=label_key)
            with replacing(path) as beside:
                table.to_csv(beside)
        except (OSError, KeyError, ValueError) as error:
            session.failed.emit(error)
        else:
            session.say(f"Saved {path.name}.")

    def _on_classes(self, _: object = None) -> None:
        self.set_classes(class_rows(self._session, self.image_box.value))

    def set_classes(self, rows: list[ClassRow]) -> None:
        """Show other classes, or other colours and numbers of the same ones."""
        same = [row.name for row in rows] == [row.name for row in self.rows]
        self.rows = rows
        unknown = all(np.isnan(row.out_of_fold) for row in rows)
        self.view.setColumnHidden(COLUMNS.index("out of fold"), unknown)
        with signals_blocked(self.view):
            self.view.setRowCount(len(rows))
            for i, row in enumerate(rows):
                for section, item in enumerate(_items(row)):
                    self.view.setItem(i, section, item)
        self.show_classes(self.shown if same else np.ones(len(rows), dtype=bool))

    def show_classes(self, shown: NDArray[np.bool_]) -> None:
        """Switch classes on and off: (n_classes,) mask of those that are shown."""
        self.shown = shown
        with signals_blocked(self.view):
            for i, on in enumerate(shown):
                if (item := self.view.item(i, BOX)) is not None:
                    item.setCheckState(Qt.CheckState.Checked if on else Qt.CheckState.Unchecked)
        hidden = [row.name for row, on in zip(self.rows, shown, strict=True) if not on]
        self._session.hide_classes(frozenset(hidden))

    def isolate(self, code: int) -> None:
        """Show one class alone; once more, and all are back."""
        alone = np.arange(len(self.shown)) == code
        self.show_classes(np.ones_like(alone) if (self.shown == alone).all() else alone)

    def _on_box(self, item: QTableWidgetItem) -> None:
        shown = self.shown.copy()
        shown[item.row()] = item.checkState() == Qt.CheckState.Checked
        self.show_classes(shown)

    def _on_double_click(self, item: QTableWidgetItem) -> None:
        if item.column() == COLOR:
            self._pick_color(item.row())
        elif item.column() != BOX:
            self.isolate(item.row())

    def _pick_color(self, code: int) -> None:
        row = self.rows[code]
        color = QColorDialog.getColor(QColor(row.color), self, f"Colour of {row.name}")
        if color.isValid():
            self._session.recolor_class(code, color.name())


def _items(row: ClassRow) -> list[QTableWidgetItem]:
    """Return what the table shows of a class."""
    numbers = f"{row.n:,}", _percent(row.error), _percent(row.out_of_fold)
    items = [QTableWidgetItem(text) for text in ("", "", row.name, *numbers)]
    for item, tip in zip(items, TIPS, strict=True):
        item.setToolTip(tip)
        item.setFlags(Qt.ItemFlag.ItemIsEnabled)
    for item in items[-len(numbers) :]:
        item.setTextAlignment(Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter)
    items[BOX].setFlags(Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsUserCheckable)
    items[COLOR].setIcon(_swatch(row.color))
    items[NAME].setToolTip(row.name)
    return items


def _swatch(color: str) -> QIcon:
    pixmap = QPixmap(SWATCH, SWATCH)
    pixmap.fill(QColor(color))
    return QIcon(pixmap)


def _percent(error: float) -> str:
    return "–" if np.isnan(error) else f"{100 * error:.1f} %"

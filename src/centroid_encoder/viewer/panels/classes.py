"""The legend: classes with their colours, cells and errors; each can be switched off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
from qtpy.QtCore import QModelIndex
from qtpy.QtGui import QColor
from qtpy.QtWidgets import QColorDialog, QFileDialog, QLabel, QWidget

from centroid_encoder.files import check_target, replacing
from centroid_encoder.tl._composition import composition
from centroid_encoder.viewer.panels.fields import Choice, button, column, side_by_side
from centroid_encoder.viewer.panels.table_model import TableView
from centroid_encoder.viewer.session.classes import class_table
from centroid_encoder.viewer.session.session import Session

ERROR_TIP = "Share of held-out cells of this class that are wrong by the rule in the map's title"
FOLD_TIP = "The same for all cells, each placed by a network that has not seen it (Check labels)"
HEADERS = [
    ("", "A click switches the class on and off"),
    ("", "A double click changes the colour everywhere"),
    ("class", "A double click shows a class alone"),
    ("cells", "Labelled cells"),
    ("held-out error", ERROR_TIP),
    ("out of fold", FOLD_TIP),
]
BOX, COLOR, NAME, _, _, OUT_OF_FOLD = range(6)


class ClassTable(QWidget):
    """Legend with a row for each class of the session; `rows` are those of `class_table`."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self.rows: list[Any] = []
        self.view = TableView("Classes", numbers_from=NAME + 1)
        self.model = self.view.frame
        self.view.horizontalHeader().setMinimumSectionSize(14)
        self.view.clicked.connect(self._on_click)
        self.view.doubleClicked.connect(self._on_double_click)
        self.image_box = Choice("Image whose cells are counted", "Count the cells of one image")
        self.image_box.currentIndexChanged.connect(self._on_classes)
        tip = "Write the cells of each class in each image into a .csv"
        self.save_button = button("Save counts …", tip, self._ask_file)
        self._of_images = QWidget()
        row = side_by_side(QLabel("Cells of"), (self.image_box, 1), self.save_button)
        self._of_images.setLayout(row)
        column(self, self._of_images, self.view)
        session.hidden_changed.connect(self._show)
        for event in (
            session.table_changed,
            session.catalog.link_changed,
            session.result_changed,
            session.draft_changed,
            session.check_changed,
            session.label_key_changed,
            session.colors_changed,
            session.labels_changed,
            session.regions_changed,
        ):
            event.connect(self._on_classes)
        self._on_classes()

    def _on_classes(self, _: object = None) -> None:
        """Show the images, and the classes with their colours and numbers."""
        images = [image for image in self._session.catalog.images() if image.value is not None]
        chosen = self.image_box.value
        chosen = chosen if chosen in [image.value for image in images] else None
        self.image_box.offer([("all images", None), *((i.name, i.value) for i in images)], chosen)
        self._of_images.setVisible(bool(images))
        self.set_classes(class_table(self._session, self.image_box.value))

    def set_classes(self, classes: pd.DataFrame) -> None:
        """Show other classes, or other colours and numbers of the same ones."""
        rows = list(classes.itertuples(index=False))
        same = [row.name for row in rows] == [row.name for row in self.rows]
        self.rows = rows
        self._session.hide_classes(self._session.hidden if same else frozenset())

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
            with replacing(path) as beside:
                composition(session.adata, image_column, label_key=label_key).to_csv(beside)
        except (OSError, KeyError, ValueError) as error:
            session.failed.emit(error)
        else:
            session.say(f"Saved {path.name}.")

    def _show(self) -> None:
        hidden = self._session.hidden
        cells = [
            (
                row.name not in hidden,
                QColor(row.color),
                row.name,
                f"{row.n:,}",
                _percent(row.error),
                _percent(row.out_of_fold),
            )
            for row in self.rows
        ]
        self.view.set_table(pd.DataFrame(cells, columns=range(len(HEADERS))), HEADERS, [NAME])
        self.view.setColumnHidden(OUT_OF_FOLD, all(pd.isna(row.out_of_fold) for row in self.rows))

    def _on_click(self, index: QModelIndex) -> None:
        if index.column() == BOX:
            self._session.hide_classes(self._session.hidden ^ {self.rows[index.row()].name})

    def _on_double_click(self, index: QModelIndex) -> None:
        row = self.rows[index.row()]
        if index.column() == COLOR:
            color = QColorDialog.getColor(QColor(row.color), self, f"Colour of {row.name}")
            if color.isValid():
                self._session.recolor_class(index.row(), color.name())
        elif index.column() != BOX:
            # Show the class alone; once more, and all are back.
            others = frozenset(other.name for other in self.rows) - {row.name}
            self._session.hide_classes(frozenset() if self._session.hidden == others else others)


def _percent(share: float) -> str:
    return "–" if pd.isna(share) else f"{100 * share:.1f} %"

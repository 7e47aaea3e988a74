"""The table of classes: colours, numbers of cells and errors, and a switch for each class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from qtpy.QtCore import QModelIndex
from qtpy.QtGui import QColor
from qtpy.QtWidgets import QColorDialog, QFileDialog, QLabel, QWidget

from centroid_encoder.files import check_target, replacing
from centroid_encoder.tl._composition import composition
from centroid_encoder.viewer.data.columns import name_of
from centroid_encoder.viewer.panels.fields import Choice, button, column, side_by_side
from centroid_encoder.viewer.panels.table_model import TableView
from centroid_encoder.viewer.session.session import Session

ERROR_TIP = "Error of the held-out cells of this class, by the rule in the title of the map"
FOLD_TIP = (
    "Error of all cells by Check labels, where no network has seen the cells that it predicts"
)
HEADERS = [
    ("", "Click to show or hide the class"),
    ("", "Double-click to change the colour in the map and in the layer"),
    ("class", "Double-click to show this class alone"),
    ("cells", "Labelled cells"),
    ("held-out error", ERROR_TIP),
    ("out of fold", FOLD_TIP),
]
BOX, COLOR, NAME, _, _, OUT_OF_FOLD = range(6)


class ClassTable(QWidget):
    """Table with a row for each class of the session; `rows` are those of `class_table`."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        self.rows: list[Any] = []
        self.view = TableView("Classes", numbers_from=NAME + 1)
        self.model = self.view.frame
        self.view.clicked.connect(self._on_click)
        self.view.doubleClicked.connect(self._on_double_click)
        tip = "Count the cells of one image"
        self.image_box = Choice("Image of the counted cells", tip, self._on_classes)
        tip = "Save the number of cells of each class in each image as .csv"
        self.save_button = button("Save counts …", tip, self._ask_file)
        self._of_images = QWidget()
        row = side_by_side(QLabel("Cells of"), (self.image_box, 1), self.save_button)
        self._of_images.setLayout(row)
        column(self, self._of_images, self.view)
        session.look_changed.connect(self._show)
        session.shown_changed.connect(self._on_classes)
        session.catalog.link_changed.connect(self._on_classes)
        self._on_classes()

    def _on_classes(self, _: object = None) -> None:
        """Show the images, and the classes of the chosen image."""
        images = [image for image in self._session.catalog.images() if image.value is not None]
        chosen = self.image_box.value
        chosen = chosen if chosen in [image.value for image in images] else None
        self.image_box.offer([("all images", None), *((i.name, i.value) for i in images)], chosen)
        self._of_images.setVisible(bool(images))
        self.set_classes(class_table(self._session, self.image_box.value))

    def set_classes(self, classes: pd.DataFrame) -> None:
        """Show other classes, or the same ones with other colours and numbers."""
        rows = list(classes.itertuples(index=False))
        same = [row.name for row in rows] == [row.name for row in self.rows]
        self.rows = rows
        if not same and self._session.hidden:
            # Other classes are all visible at first.
            self._session.hide_classes(frozenset())
        self._show()

    def _ask_file(self) -> None:
        name, _ = QFileDialog.getSaveFileName(self, "Save counts", "composition.csv", "*.csv")
        if name:
            self.save_counts(Path(name))

    def save_counts(self, path: Path) -> None:
        """Write the table of `tl.composition`; errors are shown as messages."""
        session = self._session
        image_column, label_key = session.catalog.image_column, session.shown_labels
        if session.adata is None or image_column is None or label_key is None:
            return
        try:
            check_target(path, ".csv")
            with replacing(path) as beside:
                composition(session.adata, image_column, label_key=label_key).to_csv(beside)
        except (OSError, KeyError, ValueError) as error:
            session.say(error, "error")
        else:
            session.say(f"Saved {path.name}.")

    def _show(self) -> None:
        hidden = self._session.hidden
        cells = []
        for row in self.rows:
            errors = _percent(row.error), _percent(row.out_of_fold)
            shown = row.name not in hidden
            cells.append((shown, QColor(row.color), row.name, f"{row.n:,}", *errors))
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
            # Show the class alone, or all classes if it is alone already.
            others = frozenset(other.name for other in self.rows) - {row.name}
            self._session.hide_classes(frozenset() if self._session.hidden == others else others)


def class_table(session: Session, image: object = None) -> pd.DataFrame:
    """Return a row for each class of the map or, without a map, of the chosen labels.

    The columns are ``name``, ``color``, ``n`` (number of cells, in one `image` or in all images),
    ``error`` (held-out error by the rule in the title of the map) and ``out_of_fold``
    (cross-validated error by the same rule). An unknown error is NaN.
    """
    adata, shown, image_column = session.adata, session.shown_labels, session.catalog.image_column
    table = pd.DataFrame({"color": pd.Series(session.class_colors, dtype=object)})
    if adata is None or not len(table):
        return pd.DataFrame(columns=["name", "color", "n", "error", "out_of_fold"])
    table.insert(0, "name", table.index.map(str))
    if session.drawn is None:
        labels = adata.obs[session.corrected(shown)].astype(object)
    else:
        labels = pd.Series([*session.classes, np.nan], dtype=object).iloc[session.codes]
    if image is not None and image_column is not None:
        labels = labels[(adata.obs[image_column].map(name_of) == name_of(image)).to_numpy()]
    counts = labels.value_counts().to_dict()
    table["n"] = [int(counts.get(name, 0)) for name in table.index]
    error, table["error"], table["out_of_fold"] = f"{session.rule[0]}_error", np.nan, np.nan
    if session.drawn is not None and (quality := session.drawn.stored.quality) is not None:
        errors = quality["per_class"][f"test_{error}"].to_numpy(float)
        table["error"] = pd.Series(errors, session.drawn.stored.classes).reindex(table.index)
    # A check of other labels has no errors of these classes.
    if session.check is not None and session.check.label_key == shown:
        errors = session.check.per_class.set_index("class")[error].astype(float)
        table["out_of_fold"] = errors.reindex(table["name"]).to_numpy()
    return table.reset_index(drop=True)


def _percent(share: float) -> str:
    return "–" if pd.isna(share) else f"{100 * share:.1f} %"

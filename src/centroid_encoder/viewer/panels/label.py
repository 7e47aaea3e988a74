"""Label cells by hand: the classes and their keys, and what the live map is worth."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pandas as pd
from napari.components import ViewerModel
from qtpy.QtCore import QModelIndex, Qt
from qtpy.QtGui import QColor, QKeyEvent
from qtpy.QtWidgets import (
    QAbstractItemView,
    QColorDialog,
    QFileDialog,
    QLabel,
    QLineEdit,
    QMenu,
    QWidget,
)

from centroid_encoder.viewer.panels.fields import button, column, side_by_side
from centroid_encoder.viewer.panels.form import TrainingForm
from centroid_encoder.viewer.panels.keys import FIXED, Keys
from centroid_encoder.viewer.panels.live_map import LiveMap
from centroid_encoder.viewer.panels.message import Message, sentence
from centroid_encoder.viewer.panels.table_model import TableView
from centroid_encoder.viewer.session.draft import is_trainable
from centroid_encoder.viewer.session.labeling import HandClass, Labeling, suggested_column
from centroid_encoder.viewer.session.session import Session

HEADERS = [
    ("", "A double click changes the colour"),
    ("class", "A double click changes the name"),
    ("key", "Labels the selected cells; a double click changes it"),
    ("cells", "Labelled cells"),
]
COLOR, NAME, KEY, CELLS = range(4)
MIN_ROWS, MAX_ROWS = 3, 6
"""Numbers of classes that are visible without scrolling, in a low and in a high window."""
HOW = (
    "Make classes, click or lasso cells in the image or in the map, and press the key of their "
    "class. The labels go into a column of their own, and a live map is trained whenever you pause."
)
TOO_FEW = "A live map appears once two classes have three cells each."
NO_CELLS = "Select cells first: click them (Shift adds another) or lasso them."


class LabelPanel(QWidget):
    """Classes that are made by hand, with keys that label the selected cells.

    `keys` binds the keys, `live` trains the live map. `body` is shown during a labelling; other
    widgets can be added to its layout.
    """

    def __init__(self, session: Session, form: TrainingForm, viewer: ViewerModel) -> None:
        super().__init__()
        self._session = session
        self.classes: tuple[HandClass, ...] = ()
        """The classes in the order of the rows."""
        self._chosen = ""
        self._n_rows = MIN_ROWS
        self.keys = Keys(viewer, self.label)
        self.live = LiveMap(session, form, self)
        self.column_line = QLineEdit()
        self.column_line.setAccessibleName("Column of the labels")
        self.column_line.setToolTip(
            "Column for the labels: a new name, or a column that was labelled here before"
        )
        self.start_button = button("Start labelling", "", self.toggle)
        # A `Message` would keep the height that it needs before the page has its width.
        self.how = QLabel(HOW)
        self.how.setWordWrap(True)
        self.how.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.view = TableView("Classes made by hand", numbers_from=CELLS)
        self.view.frame.editable = (NAME, KEY)
        self.view.setEditTriggers(QAbstractItemView.EditTrigger.DoubleClicked)
        self.view.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.view.clicked.connect(self._on_click)
        self.view.doubleClicked.connect(self._on_double_click)
        # An edit fills the table again, so it is handled once the editor is closed.
        queued = Qt.ConnectionType.QueuedConnection
        self.view.frame.edited.connect(self._on_edited, queued)
        self.name_line = QLineEdit()
        self.name_line.setPlaceholderText("name of a new class, then Enter")
        self.name_line.setAccessibleName("New class")
        self.name_line.returnPressed.connect(self.add_class)
        self.remove_button = button(
            "Remove", "Remove the class, and the labels of its cells", self.remove_class
        )
        files = QMenu(self)
        files.addAction("Import CSV …", self._ask_import)
        files.addAction("Export CSV …", self._ask_export)
        self.files_button = button(
            "CSV", "Import or export labels as CSV with the columns cell and label", files
        )
        self.lost_text = Message()
        restore = partial(session.change_labels, Labeling.restore)
        discard = partial(session.change_labels, Labeling.discard)
        self.restore_button = button("Restore", "Restore these labels, in one step", restore)
        self.discard_button = button(
            "Discard", "Delete these labels from the user data folder", discard
        )
        self._lost = QWidget()
        self._lost.setLayout(
            side_by_side((self.lost_text, 1), self.restore_button, self.discard_button)
        )
        self.count_text, self.keys_text, self.live_text = QLabel(), Message(), Message()
        # A line does not end between a key and its meaning.
        fixed = (f"{key.shown} {key.meaning}".replace(" ", "\u00a0") for key in FIXED.values())
        self.keys_text.say(f"Keys: of a class, or {', '.join(fixed)}.")
        self.body = QWidget()
        column(
            self.body,
            self._lost,
            self.view,
            side_by_side((self.name_line, 1), self.remove_button, self.files_button),
            self.keys_text,
            self.live_text,
        )
        top = side_by_side(
            QLabel("Column"), (self.column_line, 1), self.count_text, self.start_button
        )
        column(self, top, self.how, self.body)
        self.keys.watch(self.view)
        self.keys.acts |= {
            "unlabel": partial(self.label, ""),
            "undo": session.undo,
            "redo": session.redo,
        }
        session.table_changed.connect(self._on_table)
        session.shown_changed.connect(self._on_shown)
        session.selection_changed.connect(self._enable)
        self.live.failed.connect(self._on_failed)
        self._on_table()
        self._on_shown()

    def toggle(self) -> None:
        """Begin to label in the column, or end that."""
        if self._session.labeling is None:
            self._session.start_labeling(self.column_line.text())
        else:
            self.end()

    def end(self) -> None:
        """End the labelling, and give the keys back."""
        self.live.cancel()
        self._session.end_labeling()

    def add_class(self) -> None:
        """Add a class with the name that is written in the line."""
        name = self.name_line.text()
        if self._session.change_labels(lambda labeling: labeling.add_class(name)):
            self._choose(name.strip())
            self.name_line.clear()

    def remove_class(self) -> None:
        """Remove the class that is chosen."""
        self._session.change_labels(lambda labeling: labeling.remove_class(self._chosen))

    def label(self, name: str) -> None:
        """Label the selected cells; an empty name takes their labels back."""
        if not self._session.selected.any():
            self._session.say(NO_CELLS)
            return
        self._choose(name or self._chosen)
        self._session.label_selected(name)

    def set_n_rows(self, n_rows: int) -> None:
        """Set the number of classes that are visible without scrolling."""
        self._n_rows = n_rows
        self.view.setFixedHeight(self.view.height_of(min(max(len(self.classes), 2), n_rows)))

    def import_csv(self, path: Path) -> None:
        """Take over the labels of a file."""
        unknown: list[int] = []
        if self._session.change_labels(lambda labels: unknown.append(labels.read_csv(path))):
            text = f"Imported {path.name}."
            if unknown[0]:
                text += f" {unknown[0]:,} of its cells are not in the table."
            self._session.say(text, "warning" if unknown[0] else "info")

    def export_csv(self, path: Path) -> None:
        """Write the labels into a file."""
        if self._session.change_labels(lambda labeling: labeling.to_csv(path)):
            self._session.say(f"Saved {path.name}.")

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Handle the keys while a button of the panel has the focus."""
        if not self.keys.press(event):
            super().keyPressEvent(event)

    def _on_table(self) -> None:
        adata = self._session.adata
        self.column_line.setText("" if adata is None else suggested_column(adata))

    def _on_shown(self) -> None:
        """Show the parts that serve now, and bind the keys or give them back."""
        labeling = self._session.labeling
        is_on = labeling is not None
        self.column_line.setReadOnly(is_on)
        self.start_button.setEnabled(self._session.adata is not None)
        self.start_button.setText("Done" if is_on else "Start labelling")
        tip = "End the labelling; the labels stay" if is_on else "Label cells in this column"
        self.start_button.setToolTip(tip)
        self.how.setVisible(not is_on)
        self.body.setVisible(is_on)
        self.count_text.setVisible(is_on)
        self.classes = ()
        if labeling is None:
            self.keys.release()
        elif labeling.is_there:
            self.column_line.setText(labeling.column)
            self._show_classes(labeling)

    def _show_classes(self, labeling: Labeling) -> None:
        """Show the classes, their keys and their numbers of cells, and how good the live map is."""
        self.classes = labeling.classes
        self.keys.bind({one.key: one.name for one in self.classes if one.key})
        rows = [
            (QColor(one.color), one.name, one.key, f"{n:,}")
            for one, n in zip(self.classes, labeling.counts(), strict=True)
        ]
        self.view.set_table(pd.DataFrame(rows, columns=range(len(HEADERS))), HEADERS, [NAME])
        self.set_n_rows(self._n_rows)
        self._choose(self._chosen)
        n = labeling.unsaved
        lost = f"{n:,} {'label' if n == 1 else 'labels'}"
        self.lost_text.say(f"{lost} of an earlier session can be restored.")
        self._lost.setVisible(n > 0)
        self._enable()
        labels = labeling.adata.obs[labeling.column]
        self.count_text.setText(f"{labels.notna().sum():,} of {len(labels):,} labelled")
        self.live_text.say("" if is_trainable(labeling) else TOO_FEW)

    def _choose(self, name: str) -> None:
        """Choose a class, or the first one if there is none of this name."""
        names = [one.name for one in self.classes]
        self._chosen = name if name in names else "".join(names[:1])
        if names:
            self.view.selectRow(names.index(self._chosen))

    def _enable(self) -> None:
        self.remove_button.setEnabled(bool(self.classes))

    def _on_failed(self, error: Exception) -> None:
        self.live_text.say(f"No live map: {sentence(error)}", "warning")

    def _on_click(self, index: QModelIndex) -> None:
        self._chosen = self.classes[index.row()].name

    def _on_double_click(self, index: QModelIndex) -> None:
        one = self.classes[index.row()]
        if index.column() == COLOR:
            color = QColorDialog.getColor(QColor(one.color), self, f"Colour of {one.name}")
            if color.isValid():
                self._session.change_labels(
                    lambda labeling: labeling.recolor_class(one.name, color.name())
                )

    def _on_edited(self, row: int, place: int, text: str) -> None:
        name = self.classes[row].name
        if place == KEY:
            self._session.change_labels(lambda labeling: labeling.set_key(name, text))
        elif self._session.change_labels(lambda labeling: labeling.rename_class(name, text)):
            self._choose(text.strip())

    def _ask_import(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Import labels", "", "*.csv")
        if path:
            self.import_csv(Path(path))

    def _ask_export(self) -> None:
        path, _ = QFileDialog.getSaveFileName(self, "Export labels", "labels.csv", "*.csv")
        if path:
            self.export_csv(Path(path))

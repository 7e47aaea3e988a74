"""Label cells by hand: the classes and their keys, and what the live map is worth."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from anndata import AnnData
from napari.components import ViewerModel
from qtpy.QtCore import QObject, Qt
from qtpy.QtGui import QAction
from qtpy.QtWidgets import QFileDialog, QLabel, QLineEdit, QWidget

from centroid_encoder.viewer.panels.fields import button, column, delayed, side_by_side
from centroid_encoder.viewer.panels.form import TrainingForm
from centroid_encoder.viewer.panels.keys import FIXED, Keys
from centroid_encoder.viewer.panels.message import Message, sentence
from centroid_encoder.viewer.panels.queue import QueuePanel
from centroid_encoder.viewer.panels.save import ask_name
from centroid_encoder.viewer.session.corrections import as_categories, corrected
from centroid_encoder.viewer.session.draft import draft_job, first_draft, is_trainable, new_draft
from centroid_encoder.viewer.session.labeling import Labeling, suggested_column
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import State
from centroid_encoder.viewer.task import Task, make_and_run

if TYPE_CHECKING:
    from centroid_encoder.tl._centroid_encoder import Training

HOW = (
    "Make classes, click or lasso cells in the image or in the map, and press the key of their "
    "class. The labels go into a column of their own, and a live map is trained whenever you pause."
)
TOO_FEW = "A live map appears once two classes have three cells each."
NO_CELLS = "Select cells first: click them (Shift adds another) or lasso them."
PAUSE = 400
"""Milliseconds after the last change of the labels."""


class LabelPanel(QWidget):
    """Classes that are made by hand, with keys that label the selected cells.

    `keys` binds the keys, `live` trains the live map, and `queue` suggests cells. `body` is shown
    during a labelling.
    """

    def __init__(self, session: Session, form: TrainingForm, viewer: ViewerModel) -> None:
        super().__init__()
        self._session = session
        self.queue = queue = QueuePanel(session, form, viewer)
        self.keys = Keys(viewer, self, self.label)
        self.keys.acts = {"undo": session.undo, "redo": session.redo}
        self.keys.acts |= {"accept": queue.accept, "skip": queue.skip}
        self.keys.acts |= {"no label": partial(self.label, "")}
        self.live = LiveMap(session, form, self._on_failed, self)
        self.column_line, self.name_line = QLineEdit(), QLineEdit()
        self.column_line.setAccessibleName("Column of the labels")
        tip = "Column for the labels: a new name, or a column that was labelled here before"
        self.column_line.setToolTip(tip)
        self.name_line.setPlaceholderText("new class, then Enter")
        self.name_line.setAccessibleName("New class")
        self.name_line.returnPressed.connect(self.add_class)
        self.start_button = button("Start labelling", "", self.toggle)
        # A `Message` would keep the height that it needs before the page has its width.
        self.how = QLabel(HOW)
        self.how.setWordWrap(True)
        self.how.setAlignment(Qt.AlignmentFlag.AlignTop)
        self.count_text = Message(wraps=False)
        self.keys_text, self.live_text, self.lost_text = Message(), Message(), Message()
        # A line does not end between a key and its meaning.
        fixed = (f"{key} {what}".replace(" ", "\u00a0") for key, what in FIXED.items())
        self.keys_text.say(f"Keys: of a class, or {', '.join(fixed)}.")
        restore = partial(session.change_labels, Labeling.restore)
        self.restore_button = button("Restore", "Restore these labels, in one step", restore)
        tip = "Delete these labels from the user data folder"
        self.discard_button = button(
            "Discard", tip, partial(session.change_labels, Labeling.discard)
        )
        self._lost, self._naming, self.body = QWidget(), QWidget(), QWidget()
        lost = (self.lost_text, 1), self.restore_button, self.discard_button
        self._lost.setLayout(side_by_side(*lost))
        self._naming.setLayout(side_by_side((self.name_line, 1), queue.suggest_button))
        column(self.body, self._lost, queue, self.keys_text, self.live_text)
        self._column_label = QLabel("Column")
        start = self._column_label, (self.column_line, 1)
        top = side_by_side(*start, (self._naming, 3), (self.count_text, 2), self.start_button)
        column(self, top, self.how, self.body)
        self.import_action = QAction("Import labels …", self)
        self.import_action.setToolTip("Read labels from a CSV with the columns cell and label")
        self.import_action.triggered.connect(self._ask_import)
        self.export_action = QAction("Labels given by hand as .csv …", self)
        ask = partial(ask_name, self, "labels.csv", "Labels (*.csv)", self.export_csv)
        self.export_action.triggered.connect(lambda: ask())
        session.show_in(self.show_state)
        self._on_table()
        self._on_shown()

    def show_state(self, before: State, now: State) -> None:
        """Propose a column for another table, and show other labels."""
        if now.differs(before, "cells"):
            self._on_table()
        if now.differs(before, "cells", "labels", "labeling", "draft"):
            self._on_shown()

    def toggle(self) -> None:
        """Begin to label in the column, or end that."""
        if self._session.state.labeling is None:
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
            self.name_line.clear()

    def label(self, name: str) -> None:
        """Label the selected cells; an empty name takes their labels back."""
        if not self._session.state.selected.any():
            self._session.say(NO_CELLS)
            return
        self._session.label_selected(name)

    def import_csv(self, path: Path) -> None:
        """Take over the labels of a file; begin to label if necessary."""
        if self._session.state.labeling is None:
            self.toggle()
        unknown: list[int] = []
        if self._session.change_labels(lambda labels: unknown.append(labels.read_csv(path))):
            text = f"Imported {path.name}."
            if unknown[0]:
                text += f" {unknown[0]:,} of its cells are not in the table."
            self._session.say(text, "warning" if unknown[0] else "info")

    def export_csv(self, path: Path) -> None:
        """Write the labels into a file."""
        if (labeling := self._session.state.labeling) is not None:
            try:
                labeling.to_csv(path)
            except (OSError, ValueError) as error:
                self._session.say(error, "error")
            else:
                self._session.say(f"Saved {path.name}.")

    def _on_table(self) -> None:
        adata = self._session.adata
        self.column_line.setText("" if adata is None else suggested_column(adata))

    def _on_shown(self) -> None:
        """Show the parts that serve now, and bind the keys or give them back."""
        labeling = self._session.state.labeling
        is_on = labeling is not None
        while_off = self._column_label, self.column_line, self.how
        while_on = self.body, self._naming, self.count_text
        for part in (*while_off, *while_on):
            part.setVisible((part in while_on) == is_on)
        self.export_action.setVisible(is_on)
        self.import_action.setEnabled(self._session.adata is not None)
        self.start_button.setEnabled(self._session.adata is not None)
        self.start_button.setText("Done" if is_on else "Start labelling")
        tip = "End the labelling; the labels stay" if is_on else "Label cells in this column"
        self.start_button.setToolTip(tip)
        if labeling is None:
            self.keys.release()
        elif labeling.is_there:
            self.column_line.setText(labeling.column)
            self._show_labels(labeling)

    def _show_labels(self, labeling: Labeling) -> None:
        """Bind the keys, and say how many labels there are and what the live map is worth."""
        self.keys.bind({one.key: one.name for one in labeling.classes if one.key})
        n = labeling.unsaved
        lost = f"{n:,} {'label' if n == 1 else 'labels'}"
        self.lost_text.say(f"{lost} of an earlier session can be restored.")
        self._lost.setVisible(n > 0)
        labels, column = labeling.adata.obs[labeling.column], labeling.column
        self.count_text.say(f"{labels.notna().sum():,} of {len(labels):,} labelled in {column}")
        self.live_text.say("" if is_trainable(labeling) else TOO_FEW)

    def _on_failed(self, error: Exception) -> None:
        self.live_text.say(f"No live map: {sentence(error)}", "warning")

    def _ask_import(self) -> None:
        path, _ = QFileDialog.getOpenFileName(self, "Import labels", "", "*.csv")
        if path:
            self.import_csv(Path(path))


class LiveMap(QObject):
    """Trains a draft, and gives it to the session.

    While one labels by hand, it is trained whenever labels have changed; else, if the table has no
    map, when other labels were chosen. `form` has the features to learn from. `task` is the
    training that runs, or None; it is dropped when labels change again. `failed` is called with the
    exception that ended a training of labels by hand.
    """

    def __init__(
        self,
        session: Session,
        form: TrainingForm,
        failed: Callable[[Exception], object],
        parent: QObject,
    ) -> None:
        super().__init__(parent)
        self._session, self._form, self._failed = session, form, failed
        self.task: Task | None = None
        self._learned: object = None
        """What the draft has learned, or is about to learn."""
        self._timer = delayed(self, PAUSE, self._train)
        session.show_in(self.show_state)
        form.setting_changed.connect(self._on_change)

    @property
    def is_due(self) -> bool:
        """Whether a training runs or is about to begin."""
        return self.task is not None or self._timer.isActive()

    def cancel(self) -> None:
        """Drop the training that runs, and begin none."""
        self._timer.stop()
        if self.task is not None:
            self.task.cancel()
        self.task = self._learned = None

    @property
    def _labels(self) -> object:
        """What a draft is to learn; None without labels, or with a map that it would replace."""
        session, labeling = self._session, self._session.state.labeling
        if labeling is not None:
            there = labeling.is_there
            return (labeling, labeling.classes, labeling.codes.tobytes()) if there else None
        key, adata = session.label_key, session.adata
        if session.state.result is not None or key is None or adata is None:
            return None
        labels = as_categories(adata.obs[corrected(adata, key)])
        return session.state.cells, key, tuple(labels.categories), labels.codes.tobytes()

    def show_state(self, before: State, now: State) -> None:
        """Train again when labels have changed; a training of the user replaces a first map."""
        parts = "running", "cells", "labels", "label_key", "labeling", "result"
        if now.labeling is None and now.running is not None:
            self.cancel()
        elif now.differs(before, *parts) and self._labels != self._learned:
            self._on_change()

    def _on_change(self) -> None:
        self.cancel()
        self._learned = self._labels
        if self._learned is not None:
            self._timer.start()

    def _train(self) -> None:
        session, labeling = self._session, self._session.state.labeling
        adata, column = session.adata, session.label_key
        if session.state.frame is not None or adata is None or column is None:
            return
        if labeling is None:
            draft = first_draft(adata, column)
        else:
            draft, column = new_draft(labeling) if labeling.is_there else None, labeling.column
        if draft is None:
            session.show_draft(None)
            return
        parameters = self._form.parameters()
        make = partial(draft_job, draft, column, parameters, quick=labeling is None)
        self.task = Task(partial(make_and_run, make), partial(self._on_end, draft), self)

    def _on_end(self, draft: AnnData, job: Training, error: Exception | None) -> None:
        self.task = None
        if error is None:
            job.write(draft)
        self._session.show_draft(draft if error is None else None)
        if error is not None and self._session.state.labeling is not None:
            self._failed(error)

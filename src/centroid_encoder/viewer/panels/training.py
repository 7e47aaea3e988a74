"""Train a map, or check the labels by cross-validation."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any, get_args

import pandas as pd
from qtpy.compat import isalive
from qtpy.QtCore import QModelIndex, Qt
from qtpy.QtWidgets import QDialog, QLabel, QMenu, QVBoxLayout, QWidget

from centroid_encoder.errors import InputError
from centroid_encoder.tables import ROLES, Role
from centroid_encoder.viewer.data.tables import Table
from centroid_encoder.viewer.panels.fields import button, column, form_layout
from centroid_encoder.viewer.panels.form import TrainingForm
from centroid_encoder.viewer.panels.job import JobPanel, n_left_out, read_and_check
from centroid_encoder.viewer.panels.message import Message
from centroid_encoder.viewer.panels.table_model import TableView
from centroid_encoder.viewer.session.provenance import Call, Function, by_image
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import Kind, State

OTHER_LABELS = "This is the map of"
HEADERS = [
    ("column", ""),
    ("role", "What the column holds; click to change it"),
    ("reason", "Why it has this role"),
]
COLUMN, ROLE = 0, 1
HINT = (
    "Click a role to choose another one; only features are learned from. An image may also be a "
    "donor, a well or another group of cells."
)


class TrainingPanel(JobPanel):
    """The form and the buttons of a training or a check; it shows the messages of the session.

    The widget lays out `train_button`, `progress` and `message`, and shows `menu`.
    """

    form: TrainingForm

    def __init__(self, session: Session) -> None:
        super().__init__(session, TrainingForm())
        tip = "Train a map of the cells that keeps their classes together"
        self.train_button = button("Train", tip, self.run)
        self.menu = QMenu(self)
        self.menu.setToolTipsVisible(True)
        self.check_action = self.menu.addAction("Check labels", self.check)
        self.check_action.setToolTip(
            "Estimate the error of the map by cross-validation and list likely label errors. For a "
            "table of several images, also estimate the error on an image that the networks have "
            "not seen. The map does not change"
        )
        self.columns_action = self.menu.addAction("Features among the columns …", self.show_columns)
        self.settings = QDialog(self)
        self.settings.setWindowTitle("Centroid-Encoder: settings")
        self.menu.addAction("Settings …", self.settings.show)
        self.of_map = form_layout()
        """For fields on how the map is drawn."""
        self.of_new_data = QVBoxLayout()
        """For fields on how new data are mapped."""
        parts = self.of_map, self.form.advanced, QLabel("For New data"), self.of_new_data
        column(self.settings, *parts).setContentsMargins(6, 4, 6, 4)
        column(self, self.form)
        self.form.label_key.changed.connect(session.choose_labels)
        session.show_in(self.show_state)
        self.enable()

    def show_state(self, before: State, now: State) -> None:
        """Show a message, offer the columns, and say which labels the map shows."""
        self.enable()
        if now.differs(before, "message"):
            self._on_said(*now.message)
        is_other = now.label_key != self.form.label_key.value
        if is_other or now.differs(before, "columns", "cells"):
            self._on_columns()
        elif now.differs(before, "labels"):
            self.form.show_hint()
        if now.differs(before, "label_key", "result", "draft", "labeling", "columns", "cells"):
            # Other labels would not be those that one gives by hand.
            self.form.label_key.enabled = now.labeling is None and now.table is not None
            self._on_labels()

    @property
    def checking(self) -> bool:
        """Whether the running job is a check."""
        return self.call is not None and self.call.function == "cross_validate"

    def run(self) -> None:
        """Start a training on the chosen table with the settings of the form."""
        self._begin("centroid_encoder")

    def check(self) -> None:
        """Start a cross-validation of the labels of the chosen table."""
        self._begin("cross_validate")

    def show_columns(self) -> None:
        """Open a window with the roles of the columns."""
        RolesDialog(self.session, self).open()

    def enable(self) -> None:
        """Enable the buttons if a job can start."""
        for one in (self.train_button, self.check_action, self.columns_action):
            one.setEnabled(self.session.table is not None and self.task is None)

    def _begin(self, function: Function) -> None:
        if self.task is not None:
            return
        table, label_key = self.session.table, self.form.label_key.value
        if table is None or label_key is None:
            self.message.say("Choose a table and the column of its classes first.", "error")
            return
        chosen = self.form.parameters(f"tl.{function}")
        if self.session.state.key != "ce":
            chosen["key_added"] = self.session.state.key
        call = Call(function, label_key, chosen)
        make, again = partial(training_job, table, call), partial(self._begin, function)
        written = partial(self._check_images, table, call)
        self.begin(table, call, make, f"{table.name}, {label_key}", again, written=written)

    def _check_images(self, table: Table, call: Call) -> None:
        """After a check of several images, start a second one with whole images held out."""
        images = self.session.catalog.image_column if table is self.session.table else None
        if call.function != "cross_validate" or images is None or images == call.label_key:
            return
        if "group_key" in call.parameters or table.adata.obs[images].nunique() < 2:
            return
        own = ("n_folds", "n_permutations")
        parameters = {k: v for k, v in call.parameters.items() if k not in own}
        parameters |= {"group_key": images, "key_added": by_image(call.key)}
        call = Call("cross_validate", call.label_key, parameters)
        make = partial(training_job, table, call)
        missed = "The error on new images could not be estimated."
        name = f"{table.name}, {images} held out"
        self.begin(table, call, make, name, self.check, missed=missed)

    def _on_said(self, said: str | Exception, kind: Kind) -> None:
        # The buttons belong to the last message.
        self.offer_cures({})
        if isinstance(said, Exception) and kind == "error":
            self.say_error(said)
        else:
            self.message.say(said, kind)

    def _on_columns(self) -> None:
        """Offer the label columns; keep the chosen one, or else choose that of the map."""
        session = self.session
        has_roles = session.adata is not None and ROLES in session.adata.uns
        self.columns_action.setVisible(has_roles)
        self.form.set_adata(session.adata, session.label_key or session.shown_labels)
        session.choose_labels(self.form.label_key.value)

    def _on_labels(self) -> None:
        """Say so if the map shows other labels than the chosen ones."""
        chosen, shown = self.session.label_key, self.session.shown_labels
        drawn = self.session.state.drawn
        is_placed = drawn is not None and drawn.is_query
        if chosen not in (None, shown) and self.session.state.draft is None and not is_placed:
            self.session.say(f"{OTHER_LABELS} {shown}; press Train for a map of {chosen}.")
        elif self.message.text().startswith(OTHER_LABELS):
            self.session.say("")


def training_job(table: Table, call: Call) -> Any:
    """Return a training or a check; a check uses all cores where that is faster.

    Cells with missing values are left out if they are few and the call does not say otherwise.
    """
    try:
        job = read_and_check(table, call, call.label_key)
    except InputError as error:
        if error.parameter == "missing" and "missing" not in call.parameters:
            without = replace(call, parameters={**call.parameters, "missing": "drop"})
            job = training_job(table, without)
            if not (n := n_left_out(job)):
                raise
            text = f"{n:,} of {len(job.kept):,} cells are left out: values are missing"
            job.notices = [text, *job.notices]
            return job
        if error.parameter != "key_added":
            raise
        # The form has no field for `key_added`.
        text = f"the column {call.label_key!r} belongs to a result that this run would overwrite"
        raise InputError(f"{text}; choose another column under Classes", "label_key") from error
    if call.function == "cross_validate":
        job.n_jobs = job.suitable_jobs
    return job


class RolesDialog(QDialog):
    """A row for each column of the table; a click changes its role."""

    def __init__(self, session: Session, parent: QWidget) -> None:
        super().__init__(parent)
        self._session = session
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle("Centroid-Encoder: columns")
        self.resize(640, 480)
        self.view, self.text = TableView("Columns of the table"), Message()
        self.view.clicked.connect(self._on_clicked)
        self.text.say(HINT)
        column(self, self.view, self.text)
        session.show_in(self.show_state)
        self._show()

    def show_state(self, before: State, now: State) -> None:
        """Show the columns of another table."""
        if now.differs(before, "cells") and isalive(self):  # type: ignore[no-untyped-call]
            self._show()

    def _show(self) -> None:
        adata = self._session.adata
        if adata is None or ROLES not in adata.uns:
            self.close()
            return
        found = adata.uns[ROLES]
        reasons = found["reason"].where(~found["doubt"], "in doubt: " + found["reason"])
        rows = zip(found["column"], found["role"], reasons, strict=True)
        table = pd.DataFrame(list(rows), columns=range(len(HEADERS)))
        self.view.set_table(table, HEADERS, [0, 2])

    def _on_clicked(self, index: QModelIndex) -> None:
        if index.column() == ROLE:
            name = self.view.frame.table.iloc[index.row(), COLUMN]
            menu = QMenu(self)
            for other in get_args(Role):
                menu.addAction(other, partial(self._session.choose_roles, {name: other}))
            self.view.open_menu(menu, index)

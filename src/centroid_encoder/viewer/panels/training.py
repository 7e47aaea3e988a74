"""The settings of a training, and the buttons that begin one or check the labels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qtpy.QtCore import Signal
from qtpy.QtWidgets import QHBoxLayout, QPushButton, QSizePolicy, QVBoxLayout

from centroid_encoder.viewer.panels.form import TrainingForm
from centroid_encoder.viewer.panels.job import JobPanel
from centroid_encoder.viewer.session.provenance import MadeBy

if TYPE_CHECKING:
    from centroid_encoder.errors import Message as Notice
    from centroid_encoder.tl._jobs import Job
    from centroid_encoder.viewer._worker import Worker
    from centroid_encoder.viewer.data.tables import Table
    from centroid_encoder.viewer.session.provenance import Function
    from centroid_encoder.viewer.session.session import Session


class TrainingPanel(JobPanel):
    """Trains maps, and checks labels by cross-validation.

    Attributes
    ----------
    form, train_button, check_button
        Its parts.
    message
        The line below them, for whatever else is to be said of the table, too.
    """

    form: TrainingForm

    finished = Signal(object, str)
    """A map was written: the `Table` and the key."""
    checked = Signal(object, str)
    """What a check found was written: the same."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, TrainingForm())
        self.train_button = QPushButton("Train")
        self.train_button.setToolTip("Train a map of the cells that keeps their classes together")
        self.check_button = QPushButton("Check labels")
        self.check_button.setToolTip(
            "Cross-validate: ask networks about cells that they have not seen, to find out how far "
            "such a map can be believed, and which labels look wrong. Takes as long as five "
            "trainings; the map stays as it is"
        )
        buttons = QHBoxLayout()
        buttons.addWidget(self.train_button, stretch=2)
        buttons.addWidget(self.check_button, stretch=1)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(6)
        layout.addWidget(self.form)
        layout.addLayout(buttons)
        layout.addWidget(self.progress)
        layout.addWidget(self.message)
        # Where there is little room, the widget scrolls; fields that are cut in half help nobody.
        for widget in (self, self.form):
            widget.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self.enable()

    @property
    def training(self) -> Worker | None:
        """The training that runs, of one map or of all those of a check, or None."""
        return self.worker

    @property
    def checking(self) -> bool:
        """Whether what runs is a check."""
        return self.made_by is not None and self.made_by.function == "cross_validate"

    @property
    def label_key(self) -> str | None:
        """Column whose classes the training that runs learns."""
        return None if self.made_by is None else self.made_by.label_key

    def train(self) -> None:
        """Begin a training of the chosen table, with the settings of the form; one at a time."""
        self._begin("centroid_encoder", "There is no table to train on.")

    def check(self) -> None:
        """Begin a cross-validation of its labels; see `train`."""
        self._begin("cross_validate", "There is no table to check.")

    def enable(self) -> None:
        """Let the user begin what can be begun now."""
        for button in (self.train_button, self.check_button):
            button.setEnabled(self.session.table is not None and self.worker is None)

    def written(self, table: Table, made_by: MadeBy) -> None:
        """Tell of results that were written into their table."""
        checked = made_by.function == "cross_validate"
        (self.checked if checked else self.finished).emit(table, made_by.key)

    def _begin(self, function: Function, without_table: str) -> None:
        if self.worker is not None:
            return
        self.session.reread()
        table, label_key = self.session.table, self.form.label_key.value
        if table is None or label_key is None:
            text = without_table if table is None else "Choose the labels first."
            self.message.say(text, "error")
            return
        relabeling = self.session.relabeling
        corrected = relabeling is not None and relabeling.column == label_key
        chosen = self.form.parameters(f"tl.{function}")
        made_by = MadeBy(function, label_key, chosen, relabeled=corrected)
        self.begin(table, made_by, label_key, f"{table.name}, {label_key}")
        if self.worker is not None:
            self.form.fold()

    def _notices(self, job: Job) -> list[Notice]:
        """Return what is left to say; what is stored with a check is shown with it."""
        stored = getattr(job, "doubts", [])
        return [notice for notice in job.notices if notice not in stored]

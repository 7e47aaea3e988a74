"""The settings of a training, and the buttons that begin one or check the labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from qtpy.QtWidgets import QPushButton

from centroid_encoder.viewer.panels.fields import column, side_by_side
from centroid_encoder.viewer.panels.form import TrainingForm
from centroid_encoder.viewer.panels.job import JobPanel
from centroid_encoder.viewer.panels.message import sentence
from centroid_encoder.viewer.session.provenance import MadeBy

if TYPE_CHECKING:
    from centroid_encoder.tl._cross_validate import CrossValidation
    from centroid_encoder.tl._run import Job
    from centroid_encoder.viewer.data.tables import Table
    from centroid_encoder.viewer.session.provenance import Function
    from centroid_encoder.viewer.session.session import Kind, Session

OTHER_LABELS = "This is the map of"
FOLDED = 2
"""Lines of a notice above the map, which would take its room."""


class TrainingPanel(JobPanel):
    """Trains maps, checks labels by cross-validation, and says what is to be said of the table.

    Attributes
    ----------
    form, train_button, check_button
        Its parts. Whoever lays it out finds a place for its `progress`, its `message` and the
        form's `advanced` fields, too.
    """

    form: TrainingForm

    def __init__(self, session: Session) -> None:
        super().__init__(session, TrainingForm(), folded=FOLDED)
        self.train_button = QPushButton("Train")
        self.train_button.setToolTip("Train a map of the cells that keeps their classes together")
        self.check_button = QPushButton("Check labels")
        self.check_button.setToolTip(
            "Cross-validate: ask networks about cells that they have not seen, to find out how far "
            "such a map can be believed, and which labels look wrong. That is five trainings, as "
            "many at once as there are cores; the map stays as it is"
        )
        buttons = side_by_side((self.train_button, 2), (self.check_button, 1))
        column(self, self.form, buttons)
        self.train_button.clicked.connect(self.train)
        self.check_button.clicked.connect(self.check)
        self.form.label_key_changed.connect(session.choose_labels)
        self.form.key_added.changed.connect(self._on_key)
        session.said.connect(self._on_said)
        session.failed.connect(self.say_error)
        session.columns_changed.connect(self._on_columns)
        session.label_key_changed.connect(self._on_labels)
        session.result_changed.connect(self._on_result)
        self.enable()

    @property
    def checking(self) -> bool:
        """Whether what runs is a check."""
        return self.made_by is not None and self.made_by.function == "cross_validate"

    def train(self) -> None:
        """Begin a training of the chosen table, with the settings of the form; one at a time."""
        self._begin("centroid_encoder", "There is no table to train on.")

    def check(self) -> None:
        """Begin a cross-validation of its labels; see `train`."""
        self._begin("cross_validate", "There is no table to check.")

    def prepare(self, table: Table, made_by: MadeBy, source: Any) -> Job:
        """Read and check what a job needs; of a check, do as much at once as the machine can."""
        job = super().prepare(table, made_by, source)
        if made_by.function == "cross_validate" and "n_jobs" not in made_by.parameters:
            check = cast("CrossValidation", job)
            # In processes of their own, which are started anew: a fork of this one would have Qt.
            check.n_jobs = check.suitable_jobs
        return job

    def enable(self) -> None:
        """Let the user begin what can be begun now."""
        for button in (self.train_button, self.check_button):
            button.setEnabled(self.session.table is not None and self.worker is None)

    def _begin(self, function: Function, without_table: str) -> None:
        if self.worker is not None:
            return
        table, label_key = self.session.table, self.form.label_key.value
        if table is None or label_key is None:
            text = without_table if table is None else "Choose the labels first."
            self.message.say(text, "error")
            return
        made_by = MadeBy(function, label_key, self.form.parameters(f"tl.{function}"))
        self.begin(table, made_by, label_key, f"{table.name}, {label_key}")

    def _on_said(self, text: str | Exception, kind: Kind) -> None:
        self.message.say(text if isinstance(text, str) else sentence(text), kind)

    def _on_columns(self) -> None:
        """Offer the label columns; keep the chosen one, or choose that of the stored map."""
        session = self.session
        self.form.set_adata(session.adata, session.label_key or session.trained_labels)

    def _on_key(self) -> None:
        self.session.choose_key(self.form.key)

    def _on_result(self) -> None:
        if self.form.key != self.session.key:
            self.form.key_added.value = self.session.key

    def _on_labels(self) -> None:
        """Say whose map is shown if it is not that of the labels that are chosen."""
        chosen, shown = self.session.label_key, self.session.shown_labels
        if chosen not in (None, shown):
            self.session.say(f"{OTHER_LABELS} {shown}; press Train for one of {chosen}.")
        elif self.message.text().startswith(OTHER_LABELS):
            self.session.say("")

    def _notices(self, job: Job) -> list[str]:
        """Return the warnings to show, except those of a check, which are shown with it."""
        stored = getattr(job, "doubts", [])
        return [notice for notice in job.notices if notice not in stored]

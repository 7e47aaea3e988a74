"""The first map of a table and the live map of a labelling, trained after each pause."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from anndata import AnnData
from qtpy.QtCore import QObject, Signal

from centroid_encoder.viewer.panels.fields import delayed
from centroid_encoder.viewer.panels.form import TrainingForm
from centroid_encoder.viewer.session.draft import first_draft, new_draft, training_job
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.task import Task, run_job

if TYPE_CHECKING:
    from centroid_encoder.tl._centroid_encoder import Training

PAUSE = 400
"""Milliseconds after the last change of the labels."""


class LiveMap(QObject):
    """Trains a draft, and gives it to the session.

    While one labels by hand, it is trained whenever labels have changed; else, if the table has no
    map, when other labels were chosen. `form` has the features to learn from. `task` is the
    training that runs, or None; it is dropped when labels change again.
    """

    failed = Signal(object)
    """The exception that ended a training."""

    def __init__(self, session: Session, form: TrainingForm, parent: QObject) -> None:
        super().__init__(parent)
        self._session = session
        self._form = form
        self.task: Task | None = None
        self._labels: object = None
        """The classes and labels that were read last."""
        self._timer = delayed(self, PAUSE, self._train)
        session.shown_changed.connect(self._on_shown)
        session.begun.connect(self._on_begun)
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
        self.task = None

    def _on_begun(self) -> None:
        if self._session.labeling is None:
            self.cancel()
            self._labels = None

    def _on_shown(self) -> None:
        session = self._session
        labels: object = None
        labeling, table, key = session.labeling, session.table, session.label_key
        if labeling is not None and labeling.is_there:
            labels = labeling, labeling.classes, labeling.codes.tobytes()
        elif session.result is None and labeling is None and table is not None and key is not None:
            labels = table, key, session.shown_codes.tobytes()
        if labels != self._labels:
            self._labels = labels
            self._on_change()

    def _on_change(self) -> None:
        self.cancel()
        if self._labels is not None:
            self._timer.start()

    def _train(self) -> None:
        session, labeling = self._session, self._session.labeling
        adata, column = session.adata, session.label_key
        if session.frame is not None or adata is None or column is None:
            return
        if labeling is None:
            draft = first_draft(adata, column)
        else:
            draft = new_draft(labeling) if labeling.is_there else None
        if draft is None:
            session.show_draft(None)
            return
        parameters = self._form.parameters()
        make = partial(training_job, draft, column, parameters, quick=labeling is None)
        self.task = Task(partial(run_job, make), partial(self._on_end, draft), self)

    def _on_end(self, draft: AnnData, job: Training, error: Exception | None) -> None:
        self.cancel()
        if error is None:
            job.write(draft)
            self._session.show_draft(draft)
            return
        self._session.show_draft(None)
        if self._session.labeling is not None:
            self.failed.emit(error)

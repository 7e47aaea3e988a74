"""The first map of a table and the live map of a labelling, trained after each pause."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from anndata import AnnData
from qtpy.QtCore import QObject

from centroid_encoder.viewer.panels.fields import delayed
from centroid_encoder.viewer.panels.form import TrainingForm
from centroid_encoder.viewer.session.draft import first_draft, new_draft, training_job
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import State
from centroid_encoder.viewer.task import Task, run_job

if TYPE_CHECKING:
    from centroid_encoder.tl._centroid_encoder import Training

PAUSE = 400
"""Milliseconds after the last change of the labels."""


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
        if session.state.result is not None or session.label_key is None:
            return None
        return session.state.cells, session.label_key, session.shown_codes.tobytes()

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
        make = partial(training_job, draft, column, parameters, quick=labeling is None)
        self.task = Task(partial(run_job, make), partial(self._on_end, draft), self)

    def _on_end(self, draft: AnnData, job: Training, error: Exception | None) -> None:
        self.task = None
        if error is None:
            job.write(draft)
        self._session.show_draft(draft if error is None else None)
        if error is not None and self._session.state.labeling is not None:
            self._failed(error)

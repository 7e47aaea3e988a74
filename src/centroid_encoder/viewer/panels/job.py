"""Base of the panels that run a job: one job at a time, its progress and a message."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, cast

from napari.utils.notifications import show_error
from qtpy.QtWidgets import QWidget

from centroid_encoder import tl
from centroid_encoder.viewer.panels.message import Message, sentence
from centroid_encoder.viewer.panels.progress import ProgressRow

if TYPE_CHECKING:
    from centroid_encoder.core.reports import Frame
    from centroid_encoder.tl._run import Job
    from centroid_encoder.viewer._worker import Worker
    from centroid_encoder.viewer.data.tables import Table
    from centroid_encoder.viewer.panels.fields import Form
    from centroid_encoder.viewer.session.provenance import MadeBy
    from centroid_encoder.viewer.session.session import Session

TOO_EARLY = "Stopped before the first epoch was over; nothing has changed."
logger = logging.getLogger("centroid_encoder")


class JobPanel(QWidget):
    """One job at a time, on the table that was chosen when it began.

    Parameters
    ----------
    session
        Session with the table; the results are written into it.
    form
        Fields for the arguments of the job.
    folded
        Lines that its message has until a click shows all of them.

    Attributes
    ----------
    form, progress, message
        Its parts.
    worker
        Thread of the running job, or None.
    table, made_by
        Table and call of the running job, or None.
    """

    def __init__(self, session: Session, form: Form, *, folded: int | None = None) -> None:
        super().__init__()
        self.session = session
        self.form = form
        self.worker: Worker | None = None
        self.table: Table | None = None
        self.made_by: MadeBy | None = None
        self._stopped = False
        self._warned = ""
        self.progress = ProgressRow()
        self.message = Message(folded=folded)
        form.setting_changed.connect(self._on_setting)
        self.progress.stop_requested.connect(self.stop)
        self.progress.cancel_requested.connect(self.cancel)
        session.table_changed.connect(self.enable)
        session.drawn.connect(self._on_drawn)

    def stop(self) -> None:
        """End the job. A training keeps its best state, other jobs cannot be stopped."""
        if self.worker is None or not self._is_stoppable:
            return
        if self.progress.has_begun:
            self.worker.stop()
            self._stopped = True
        else:
            # The thread may still read the data, which it does not interrupt.
            self.cancel()
            self.message.say(TOO_EARLY)

    def cancel(self) -> None:
        """End the job and leave everything as it was."""
        if self.worker is not None:
            self.worker.cancel()
            self._give_up()
            self.message.say("Cancelled; nothing has changed.")

    def say_error(self, error: Exception) -> None:
        """Show an error, and give the field of the parameter at fault the focus."""
        logger.debug("failed", exc_info=error)
        parameter = getattr(error, "parameter", None)
        if parameter is not None:
            self.form.point_at(parameter)
        text = sentence(error)
        self.message.say(text, "error")
        show_error(text)

    def begin(self, table: Table, made_by: MadeBy, source: Any, name: str) -> None:
        """Do a job in a thread.

        Parameters
        ----------
        table
            Table of the cells.
        made_by
            The call of the same job in Python.
        source
            Second argument of the function: the label column or the reference.
        name
            Title of the progress bar.
        """
        from centroid_encoder.viewer._worker import Worker

        self.message.say("")
        try:
            job = self.prepare(table, made_by, source)
        except Exception as error:  # a sentence in the widget, not a traceback
            self.say_error(error)
            return
        self.table, self.made_by, self._stopped = table, made_by, False
        self._warn(job.notices)
        self.worker = Worker(job, self)
        self.worker.reported.connect(self.progress.report)
        self.worker.framed.connect(self._on_framed)
        self.worker.finished.connect(self._on_finished)
        self.worker.failed.connect(self._on_failed)
        self.enable()
        self.progress.begin(name, stoppable=self._is_stoppable)
        self.worker.start()

    def prepare(self, table: Table, made_by: MadeBy, source: Any) -> Job:
        """Read and check what a job needs."""
        return cast(
            "Job", getattr(tl, made_by.function).job(table.adata, source, **made_by.parameters)
        )

    def enable(self) -> None:
        """Enable the buttons of jobs that can begin now."""

    def written(self, table: Table, made_by: MadeBy) -> None:
        """Show results that were written into their table, if the session does not."""

    @property
    def _is_stoppable(self) -> bool:
        """Whether a part of the job can be kept."""
        return self.made_by is not None and self.made_by.function == "centroid_encoder"

    def _warn(self, notices: list[str]) -> None:
        """Show the warnings of a job."""
        self._warned = " ".join(map(sentence, notices))
        self.message.say(self._warned, "warning")

    def _notices(self, job: Job) -> list[str]:
        """Return the warnings to show once the job is written."""
        return job.notices

    def _on_setting(self) -> None:
        # The new value may be valid; the next run checks it.
        if self.message.kind == "error":
            self.message.say("")

    def _on_framed(self, frame: Frame) -> None:
        worker, table, made_by, session = self.worker, self.table, self.made_by, self.session
        if worker is None or table is None or made_by is None:
            return
        # Rows of a frame are the cells at the beginning of the training.
        job = cast("Job", worker.job)
        if table is session.table and table.adata.obs_names.equals(job.obs_names):
            session.framed.emit(job, frame, made_by.label_key)
        else:
            worker.drawn()

    def _on_drawn(self) -> None:
        if self.worker is not None:
            self.worker.drawn()

    def _on_finished(self) -> None:
        worker, table, made_by = self.worker, self.table, self.made_by
        if worker is None or table is None or made_by is None:
            return
        job = cast("Job", worker.job)
        self._end()
        try:
            self.session.write(job, table, made_by)
        except Exception as error:  # as above
            self.session.read()
            self.say_error(error)
            return
        if self.message.text() == self._warned:
            # The message is still the one from the beginning.
            self._warn(self._notices(job))
        self.written(table, made_by)

    def _on_failed(self, error: Exception) -> None:
        from centroid_encoder.core.reports import StoppedTooEarly

        self._give_up()
        if isinstance(error, StoppedTooEarly):
            self.message.say(TOO_EARLY)
        else:
            self.say_error(error)

    def _give_up(self) -> None:
        may_be_drawn = self._is_stoppable
        self._end()
        if may_be_drawn:
            # A live frame must not outlive its training.
            self.session.read()

    def _end(self) -> None:
        worker = self.worker
        self.worker = self.table = self.made_by = None
        if worker is not None:
            worker.deleteLater()
        self.progress.end()
        self.enable()

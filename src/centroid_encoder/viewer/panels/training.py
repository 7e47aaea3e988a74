"""The settings of a training, the buttons that begin one, and what is heard of it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from napari.utils.notifications import show_error
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QHBoxLayout, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from centroid_encoder.viewer.data.publish import publish
from centroid_encoder.viewer.panels.form import TrainingForm
from centroid_encoder.viewer.panels.message import Message, sentence
from centroid_encoder.viewer.panels.progress import ProgressRow
from centroid_encoder.viewer.session.provenance import MadeBy

if TYPE_CHECKING:
    from centroid_encoder.core.training import Report
    from centroid_encoder.tl._jobs import Job
    from centroid_encoder.viewer._worker import Training
    from centroid_encoder.viewer.data.tables import Table

logger = logging.getLogger("centroid_encoder")


class TrainingPanel(QWidget):
    """One training or check at a time, on the table that was chosen when it began.

    Attributes
    ----------
    form, train_button, check_button, progress
        Its parts.
    message
        The line below them, for whatever else is to be said of the table, too.
    training
        The training that runs, of one map or of all those of a check, or None.
    checking
        Whether it is a check.
    table, label_key
        What it trains on.
    """

    framed = Signal(object, object)
    """A `Run` and its `Report` with an embedding."""
    finished = Signal(object, str, object)
    """A map was written: the `Table`, the key and the `MadeBy`."""
    checked = Signal(object, str, object)
    """What a check found was written: the same."""
    ended = Signal(bool)
    """It is over, however; tells whether it was a check."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.training: Training | None = None
        self.checking = False
        self.table: Table | None = None
        self._made_by: MadeBy | None = None
        self._stopped = False
        self._warnings: list[str] = []
        self._warned = ""
        # With the window, Qt takes the panel away unasked; a thread must not train on for nobody.
        self._running: list[Training] = []
        self.destroyed.connect(partial(_cancel_all, self._running))

        self.form = TrainingForm()
        self.train_button = QPushButton("Train")
        self.train_button.setToolTip("Train a map of the cells that keeps their classes together")
        self.check_button = QPushButton("Check labels")
        self.check_button.setToolTip(
            "Cross-validate: ask networks about cells that they have not seen, to find out how far "
            "such a map can be believed, and which labels look wrong. Takes as long as five "
            "trainings; the map stays as it is"
        )
        self.progress = ProgressRow()
        self.message = Message()
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
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self.form.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self.form.setting_changed.connect(self._on_setting)
        self.progress.stop_requested.connect(self.stop)
        self.progress.cancel_requested.connect(self.cancel)

    @property
    def label_key(self) -> str | None:
        """Column whose classes the training that runs learns."""
        return None if self._made_by is None else self._made_by.label_key

    def train(self, table: Table | None, relabeled: str | None) -> None:
        """Begin a training, with the settings of the form; one at a time.

        Parameters
        ----------
        table
            What to train on.
        relabeled
            Column whose labels were corrected by hand.
        """
        from centroid_encoder import tl

        if self.training is None:
            self._begin(
                tl.centroid_encoder.job, self.form.parameters, table, relabeled, what="train on"
            )

    def check(self, table: Table | None, relabeled: str | None) -> None:
        """Begin a cross-validation, with the settings of the form; see `train`."""
        from centroid_encoder import tl

        if self.training is None:
            parameters = self.form.check_parameters
            self._begin(tl.cross_validate.job, parameters, table, relabeled, what="check")

    def set_ready(self, ready: bool) -> None:
        """Say whether there is something to train on."""
        for button in (self.train_button, self.check_button):
            button.setEnabled(ready and self.training is None)

    def stop(self) -> None:
        """End the training and keep the best map so far; of a check there is nothing to keep."""
        if self.training is not None and not self.checking:
            self.training.stop()
            self._stopped = True

    def cancel(self) -> None:
        """End it and leave everything as it was."""
        if self.training is not None:
            self.training.cancel()
            self._end()
            self.message.say("Cancelled; nothing has changed.")

    def say_error(self, error: Exception) -> None:
        """Say what went wrong, and where in the form it can be mended."""
        logger.debug("failed", exc_info=error)
        text = self.form.mend(sentence(error))
        self.message.say(text, "error")
        show_error(text)

    def _begin(
        self,
        job: Callable[..., Job],
        parameters: Callable[[], dict[str, Any]],
        table: Table | None,
        relabeled: str | None,
        *,
        what: str,
    ) -> None:
        from centroid_encoder.viewer._worker import Training

        label_key = self.form.label_key.value
        if table is None or label_key is None:
            self.message.say(
                f"There is no table to {what}." if table is None else "Choose the labels first.",
                "error",
            )
            return
        self.message.say("")
        chosen = parameters()
        warnings = _Warnings()
        logger.addHandler(warnings)
        try:
            run = job(table.adata, label_key, **chosen)
        except Exception as error:
            self.say_error(error)
            return
        finally:
            logger.removeHandler(warnings)
        self._warnings = [*warnings.texts, *map(str, run.notices)]
        self._warned = self.form.where(" ".join(map(sentence, self._warnings)))
        self.message.say(self._warned, "warning")
        self._made_by = MadeBy(
            "cross_validate" if what == "check" else "centroid_encoder",
            label_key,
            chosen,
            relabeled=relabeled == label_key,
        )
        self.table, self._stopped, self.checking = table, False, what == "check"
        self.training = Training(run)
        self._running.append(self.training)
        self.training.reported.connect(self._on_report)
        self.training.finished.connect(self._on_finished)
        self.training.failed.connect(self._on_failed)
        self.set_ready(False)
        self.form.fold()
        self.progress.begin(f"{table.name}, {label_key}", stoppable=not self.checking)
        self.training.start()

    def _on_setting(self) -> None:
        # What was wrong may be mended now; Train will tell.
        if self.message.kind == "error":
            self.message.say("")

    def _on_report(self, report: Report) -> None:
        training = self.training
        if training is None:
            return
        self.progress.report(report)
        # napari's progress lets Qt go on, and with it those who cancel.
        if training is self.training and report.embedding is not None:
            self.framed.emit(training.run, report)

    def _on_finished(self) -> None:
        training, table, made_by = self.training, self.table, self._made_by
        if training is None or table is None or made_by is None:
            return
        key, checked = training.run.key, self.checking
        try:
            training.run.write(table.adata)
            publish(table, key)
        except Exception as error:
            self._end()
            self.say_error(error)
            return
        if self._stopped:
            epochs = len(table.adata.uns[key]["history"])
            made_by = replace(made_by, stopped_after=epochs)
        self._end()
        if checked:
            if self._warned and self.message.text() == self._warned:
                # What makes a check say less than it seems to is stored, and shown with it.
                stored = list(table.adata.uns[f"{key}_cv"]["warnings"])
                rest = [sentence(text) for text in self._warnings if text not in stored]
                self.message.say(self.form.where(" ".join(rest)), "warning")
            self.checked.emit(table, key, made_by)
        else:
            self.finished.emit(table, key, made_by)

    def _on_failed(self, error: Exception) -> None:
        from centroid_encoder.core.training import StoppedTooEarly

        self._end()
        if isinstance(error, StoppedTooEarly):
            self.message.say("Stopped before the first epoch was over; nothing has changed.")
        else:
            self.say_error(error)

    def _end(self) -> None:
        checked, self.checking = self.checking, False
        self.training = self.table = self._made_by = None
        self._running.clear()
        self.progress.end()
        self.ended.emit(checked)


def _cancel_all(running: list[Training], *_: object) -> None:
    for training in running:
        training.cancel()


class _Warnings(logging.Handler):
    """What would only be read in a terminal."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())

"""The settings of a training, the button that begins it, and what is heard of it."""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from napari.utils.notifications import show_error
from qtpy.QtCore import Signal
from qtpy.QtWidgets import QPushButton, QSizePolicy, QVBoxLayout, QWidget

from centroid_encoder.viewer._form import TrainingForm
from centroid_encoder.viewer._keep import Recipe
from centroid_encoder.viewer._message import Message, sentence
from centroid_encoder.viewer._progress import ProgressRow

if TYPE_CHECKING:
    from centroid_encoder.core.training import Report
    from centroid_encoder.viewer._tables import Table
    from centroid_encoder.viewer._training import Training

logger = logging.getLogger("centroid_encoder")


class TrainingPanel(QWidget):
    """One training at a time, on the table that was chosen when it began.

    Attributes
    ----------
    form, train_button, progress
        Its parts.
    message
        The line below them, for whatever else is to be said of the table, too.
    training
        The training that runs, or None.
    table, label_key
        What it trains on.
    """

    framed = Signal(object)
    """A `Report` with an embedding."""
    finished = Signal(object, str, object)
    """Results were written: the `Table`, the key and the `Recipe`."""
    ended = Signal()
    """A training is over, however."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.training: Training | None = None
        self.table: Table | None = None
        self._recipe: Recipe | None = None
        self._stopped = False
        # With the window, Qt takes the panel away unasked; a thread must not train on for nobody.
        self._running: list[Training] = []
        self.destroyed.connect(partial(_cancel_all, self._running))

        self.form = TrainingForm()
        self.train_button = QPushButton("Train")
        self.train_button.setToolTip("Train a map of the cells that keeps their classes together")
        self.progress = ProgressRow()
        self.message = Message()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(6)
        for widget in (self.form, self.train_button, self.progress, self.message):
            layout.addWidget(widget)
        # Where there is little room, the widget scrolls; fields that are cut in half help nobody.
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self.form.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Minimum)
        self.form.setting_changed.connect(self._on_setting)
        self.progress.stop_requested.connect(self.stop)
        self.progress.cancel_requested.connect(self.cancel)

    @property
    def label_key(self) -> str | None:
        """Column whose classes the training that runs learns."""
        return None if self._recipe is None else self._recipe.label_key

    def train(self, table: Table | None, relabeled: str | None) -> None:
        """Begin, with the settings of the form; one training at a time.

        Parameters
        ----------
        table
            What to train on.
        relabeled
            Column whose labels were corrected by hand.
        """
        from centroid_encoder.tl._run import Run
        from centroid_encoder.viewer._training import Training

        if self.training is not None:
            return
        label_key = self.form.label_key.value
        if table is None or label_key is None:
            self.message.say(
                "There is no table to train on." if table is None else "Choose the labels first.",
                "error",
            )
            return
        self.message.say("")
        parameters = self.form.parameters()
        warnings = _Warnings()
        logger.addHandler(warnings)
        try:
            run = Run(table.adata, label_key, **parameters)
        except Exception as error:
            self.say_error(error)
            return
        finally:
            logger.removeHandler(warnings)
        self.message.say(" ".join(warnings.texts), "warning")
        self._recipe = Recipe(label_key, parameters, relabeled=relabeled == label_key)
        self.table, self._stopped = table, False
        self.training = Training(run)
        self._running.append(self.training)
        self.training.reported.connect(self._on_report)
        self.training.finished.connect(self._on_finished)
        self.training.failed.connect(self._on_failed)
        self.train_button.setEnabled(False)
        self.form.fold()
        self.progress.begin(f"{table.name}, {label_key}")
        self.training.start()

    def set_ready(self, ready: bool) -> None:
        """Say whether there is something to train on."""
        self.train_button.setEnabled(ready and self.training is None)

    def stop(self) -> None:
        """End the training and keep the best map so far."""
        if self.training is not None:
            self.training.stop()
            self._stopped = True

    def cancel(self) -> None:
        """End the training and leave everything as it was."""
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

    def _on_setting(self) -> None:
        # What was wrong may be mended now; Train will tell.
        if self.message.kind == "error":
            self.message.say("")

    def _on_report(self, report: Report) -> None:
        if self.training is not None:
            self.progress.report(report)
            if report.embedding is not None:
                self.framed.emit(report)

    def _on_finished(self) -> None:
        training, table, recipe = self.training, self.table, self._recipe
        if training is None or table is None or recipe is None:
            return
        key = training.run.key
        try:
            training.run.write(table.adata)
            table.publish(key)
        except Exception as error:
            self._end()
            self.say_error(error)
            return
        if self._stopped:
            epochs = len(table.adata.uns[key]["history"])
            recipe = replace(recipe, stopped_after=epochs)
        self._end()
        self.finished.emit(table, key, recipe)

    def _on_failed(self, error: Exception) -> None:
        from centroid_encoder.core.training import StoppedTooEarly

        self._end()
        if isinstance(error, StoppedTooEarly):
            self.message.say("Stopped before the first epoch was over; nothing has changed.")
        else:
            self.say_error(error)

    def _end(self) -> None:
        self.training = self.table = self._recipe = None
        self._running.clear()
        self.progress.end()
        self.ended.emit()


def _cancel_all(running: list[Training], *_: object) -> None:
    for training in running:
        training.cancel()


class _Warnings(logging.Handler):
    """What would only be read in a terminal."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        self.texts.append(text[0].upper() + text[1:] + ".")

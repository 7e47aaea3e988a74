"""Base of the panels that run a job of `tl` and show its progress and a message."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from napari.utils.notifications import show_warning
from qtpy.QtWidgets import QFileDialog, QProgressBar, QWidget

from centroid_encoder import tl
from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.tables import PARQUET, TEXT
from centroid_encoder.viewer.data.tables import Table
from centroid_encoder.viewer.panels.fields import Form, button, side_by_side
from centroid_encoder.viewer.panels.message import Message, gist, sentence
from centroid_encoder.viewer.session.provenance import Call
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.task import Steps, Task, make_and_run

if TYPE_CHECKING:
    from centroid_encoder.tl._run import Job

TABLES = f"Tables of cells (*.h5ad *{PARQUET} {' '.join(f'*{x} *{x}.gz' for x in TEXT)})"
"""Filter of the dialog that opens a file."""
N_CURES = 2
MAX_LEFT_OUT = 0.05
"""Largest share of cells with missing values that are left out unasked."""
GROUPS = re.compile(r": pass group_key=(['\"])(.+)\1$")
"""Advice of a warning to hold out whole groups."""


class TaskRow(QWidget):
    """Runs `task` and shows its progress, Stop and Cancel; hidden while `task` is None.

    `cancelled` is called when the user cancels the task.
    """

    def __init__(self, cancelled: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.task: Task | None = None
        self._cancelled = cancelled
        self._waiting: list[Callable[[], None]] = []
        self._name = ""
        self._first = 0.0, 0
        self._bar = QProgressBar()
        self._stop = button("Stop", "End the training now and keep the best map so far", self.stop)
        self._cancel = button("Cancel", "End it now; nothing is changed", self.cancel)
        self._text = Message()
        self.setLayout(side_by_side((self._text, 3), (self._bar, 1), self._stop, self._cancel))
        self.hide()

    def begin(
        self,
        work: Callable[[Steps], Any],
        name: str,
        ended: Callable[[Any, Exception | None], object],
        *,
        news: Callable[[Task, str, Any], object] = lambda *_: None,
        stoppable: bool = False,
        daemon: bool = False,
    ) -> None:
        """Run a `Task` after those before; a `stoppable` one is a training.

        `news` gets the task and the arguments of its signal.
        """

        def on_end(result: Any, error: Exception | None) -> None:
            self._next()
            ended(result, error)

        def start() -> None:
            self.task = task = Task(work, on_end, self, live=stoppable, daemon=daemon)
            task.news.connect(self._on_news)
            task.news.connect(partial(news, task))
            self._name, self._first = name, (0.0, 0)
            self._stop.setVisible(stoppable)
            self._stop.setEnabled(stoppable)
            self._stop.setText("Stop")
            self._bar.setRange(0, 0)
            self._text.say(name)

        self._waiting.append(start)
        if self.task is None:
            self._next()

    def stop(self) -> None:
        """End a training and keep its best state; do nothing for other tasks."""
        if self.task is not None and self._stop.isEnabled():
            self._stop.setText("Stopping …")
            self._stop.setEnabled(False)
            self.task.stop()

    def cancel(self) -> None:
        """End the task without a result, and run no other; a thread ends after its step."""
        self._waiting.clear()
        if self.task is not None:
            self.task.cancel()
            self._next()
            self._cancelled()

    def _next(self) -> None:
        """Run the task that waits, if there is one."""
        self.task = None
        if self._waiting:
            self._waiting.pop(0)()
        self.setVisible(self.task is not None)

    def _on_news(self, kind: str, step: Any) -> None:
        if kind != "reported":
            return
        if isinstance(step, Report):
            done, total = step.step, step.n_steps
            text = f"{step.stage}, epoch {step.epoch} of {step.n_epochs}"
            text += "" if self._stop.isHidden() else f", loss {step.loss:.3f}"
            text = text if step.epoch else "first epoch"
        else:
            done, total = step.n_done, step.n_total
            text = f"{done:,} of {total:,} {step.unit}s"
        self._bar.setRange(0, total)
        self._bar.setValue(done)
        text += self._time_left(done, total) if done < total else ""
        self._text.say(f"{self._name}: {text}")

    def _time_left(self, done: int, total: int) -> str:
        """Return the time that is left, measured since the first step."""
        now, (since, first) = time.perf_counter(), self._first
        if not since or done <= first:
            self._first = now, done
            return ""
        seconds = (now - since) / (done - first) * (total - done)
        return f", {seconds:.0f} s left" if seconds < 100 else f", {seconds / 60:.0f} min left"


def read_tables(
    row: TaskRow,
    paths: Iterable[Path],
    opened: Callable[..., object],
    failed: Callable[[Exception], object],
) -> None:
    """Read tables in a row.

    `opened` is called with each AnnData, its name and ``path=``, `failed` with the exception that
    ended a reading.
    """
    from centroid_encoder.viewer.data.reader import read_table

    def on_end(path: Path, found: Any, error: Exception | None) -> None:
        if error is not None:
            failed(error)
            return
        adata, notice = found
        if notice:
            show_warning(notice)
        opened(adata, path.name, path=path)

    for path in paths:
        work, ended = lambda _, path=path: read_table(path), partial(on_end, path)
        row.begin(work, f"Reading {path.name}", ended, daemon=True)


def ask_table(parent: QWidget, *, is_folder: bool = False) -> list[Path]:
    """Return the table that the user chooses, which may be a zarr store, or nothing."""
    if is_folder:
        name = QFileDialog.getExistingDirectory(parent, "Open a table: choose its .zarr folder")
    else:
        name, _ = QFileDialog.getOpenFileName(parent, "Open a table", "", TABLES)
    return [Path(name)] if name else []


class JobPanel(QWidget):
    """Runs one job at a time on the table that was chosen when it started.

    `form` has the fields of its arguments. `table` and `call` are the table and the call of the
    running job, or None. The session writes the results.
    """

    cures_of: ClassVar[dict[str, dict[str, dict[str, object]]]] = {
        "missing": {
            "Leave out these cells": {"missing": "drop"},
            "Use the mean of the feature": {"missing": "mean"},
        }
    }
    """Texts of buttons that cure the error of a parameter, and the arguments that they give."""

    def __init__(self, session: Session, form: Form) -> None:
        super().__init__()
        self.session = session
        self.form = form
        self.table: Table | None = None
        self.call: Call | None = None
        self.progress = TaskRow(self._on_cancelled)
        self.message = Message()
        self.cures = QWidget()
        """Buttons that do what the message advises."""
        # Made at once, so that the Tab key reaches them in their order.
        self._offered: list[tuple[Callable[..., object], Mapping[str, object]]] = []
        self._buttons = [button("", "", partial(self._cure, i)) for i in range(N_CURES)]
        self.cures.setLayout(side_by_side(*self._buttons))
        self.cures.hide()
        form.setting_changed.connect(self._on_setting)

    @property
    def task(self) -> Task | None:
        """The running task, or None."""
        return self.progress.task

    def enable(self) -> None:
        """Enable the buttons that can be used now."""

    def begin(
        self,
        table: Table,
        call: Call,
        make: Callable[[], Job],
        name: str,
        again: Callable[..., object],
        *,
        written: Callable[[], object] = lambda: None,
        missed: str = "",
    ) -> None:
        """Make a job and run it in a thread; see `read_and_check`.

        `again` starts it with other arguments. `written` is called after results were written into
        the table. `missed` is a sentence on what is missing after an error, if that is no error.
        """
        self.message.say("")
        self.offer_cures({})
        self.session.set(running=call)
        self.table, self.call = table, call

        def news(task: Task, kind: str, new: Any) -> None:
            if kind == "begun":
                self.say_notices(new.notices, again)
            # The cells of a frame are those at the start of the training.
            is_shown = table is self.session.table
            if kind == "framed" and is_shown and table.adata.obs_names.equals(task.job.obs_names):
                self.session.set(frame=(task.job, new, call.label_key))

        def ended(job: Job, error: Exception | None) -> None:
            try:
                with self.session.changing():
                    self._end()
                    if error is None:
                        self.session.write(job, table, call)
            except Exception as failure:  # Show a sentence instead of a traceback.
                self.session.read()
                error = failure
            if error is not None:
                self._on_failed(error, again, missed)
                return
            # The card of Review shows the doubts of a check.
            doubts = getattr(job, "doubts", [])
            if notices := [notice for notice in job.notices if notice not in doubts]:
                other = "" if table is self.session.table else f"{table.name}: "
                self.say_notices(notices, again, other)
            written()

        work, stoppable = partial(make_and_run, make), call.function == "centroid_encoder"
        self.progress.begin(work, name, ended, news=news, stoppable=stoppable)
        self.enable()

    def say_error(self, error: Exception) -> None:
        """Show an error, and set the focus to the field of the wrong parameter."""
        if (parameter := getattr(error, "parameter", None)) is not None:
            self.form.point_at(parameter)
        self.message.say(error, "error")

    def say_notices(
        self, notices: Sequence[str], again: Callable[..., object] = lambda: None, other: str = ""
    ) -> None:
        """Show what is most important in the warnings of a job, and all of them in the tooltip.

        A button starts the job again with whole groups held out, if a warning advises it. `other`
        is the name of a table that is not shown any more: its texts begin with it.
        """
        full = other + " ".join(map(sentence, notices))
        self.message.say(other + " ".join(map(gist, notices)), "warning", full)
        offered = getattr(self.form.fields.get("group_key"), "choices", ())
        names = [found[2] for found in map(GROUPS.search, notices) if found and not other]
        cures = {f"Hold out whole {x}s": {"group_key": x} for x in names if x in offered}
        self.offer_cures(cures, again)

    def offer_cures(
        self,
        cures: Mapping[str, Mapping[str, object]],
        again: Callable[..., object] = lambda: None,
    ) -> None:
        """Show buttons that start a job again with other arguments, in place of those before."""
        self._offered = [(again, how) for how in cures.values()]
        for one, text in zip(self._buttons, [*cures, *[""] * N_CURES], strict=False):
            one.setText(text)
            one.setVisible(bool(text))
        self.cures.setVisible(bool(cures))

    def _cure(self, i: int) -> None:
        """Give fields other values, and start a job with the arguments that have no field."""
        again, how = self._offered[i]
        for name in how.keys() & self.form.fields.keys():
            self.form.fields[name].value = how[name]
        again(**{name: value for name, value in how.items() if name not in self.form.fields})

    def _on_setting(self) -> None:
        # Remove the error message, since it may not hold for the new value.
        if self.message.kind == "error":
            self.message.say("")

    def _on_failed(self, error: Exception, again: Callable[..., object], missed: str) -> None:
        if isinstance(error, StoppedTooEarly):
            self.message.say("Stopped before the first epoch had ended; nothing has changed.")
        elif missed:
            self.message.say(f"{missed} {sentence(error)}", "warning")
        elif cures := self.cures_of.get(getattr(error, "parameter", None) or ""):
            self.message.say(error, "error")
            self.offer_cures(cures, again)
        else:
            self.say_error(error)

    def _on_cancelled(self) -> None:
        self._end()
        self.message.say("Cancelled; nothing has changed.")

    def _end(self) -> None:
        """Forget the job and its frames."""
        self.table = self.call = None
        self.session.set(frame=None, running=None)
        self.enable()


def read_and_check(table: Table, call: Call, source: Any) -> Any:
    """Return a job after its input was read and checked; `source` is a label column or a map."""
    job = getattr(tl, call.function).job(table.adata, source, **call.parameters)
    job.detach()
    return job


def n_left_out(job: Any) -> int:
    """Return how many cells a job leaves out since values are missing; 0 if they are many."""
    n = int((~job.kept).sum())
    return n if n <= MAX_LEFT_OUT * len(job.kept) else 0

"""A job in a thread: its steps, its frames and its end."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import anndata as ad
import numpy as np
import pytest
from qtpy.QtCore import QCoreApplication, QEvent

import centroid_encoder as ce
from centroid_encoder.core.reports import Report
from centroid_encoder.tl._run import Job
from centroid_encoder.viewer import task as task_module
from centroid_encoder.viewer.task import INTERVAL, Task, make_and_run

ENDLESS = 10**6


def deliver() -> None:
    """Let the GUI handle the end of a thread."""
    time.sleep(2 * INTERVAL / 1000)
    QCoreApplication.processEvents()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def training(adata: ad.AnnData, max_epochs: int = 8, **options: Any) -> Callable[[], Job]:
    """Return a function that makes a training."""
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=max_epochs, batch_size=32, **options)

    def make() -> Job:
        job = ce.tl.centroid_encoder.job(adata, "cell_type", model=model)
        job.detach()
        return job

    return make


class Listener:
    """Starts a task and records its signals."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self.jobs: list[Job] = []
        self.reports: list[Report] = []
        self.frames: list[Any] = []
        self.ends: list[Any] = []
        """Results and exceptions."""
        self.threads: set[int] = set()
        self.task = Task(partial(make_and_run, make), self._on_end, live=True)
        self.task.news.connect(self._on_news)

    def _on_end(self, job: Job | None, error: Exception | None) -> None:
        self.ends.append(job if error is None else error)

    def _on_news(self, kind: str, new: Any) -> None:
        assert not self.ends
        self.threads.add(threading.get_ident())
        {"begun": self.jobs, "reported": self.reports, "framed": self.frames}[kind].append(new)


def same_results(one: ad.AnnData, other: ad.AnnData) -> bool:
    return np.array_equal(one.obsm["X_ce"], other.obsm["X_ce"]) and one.obs.equals(other.obs)


def test_a_task_ends_once_with_the_results_of_the_function(cells, qtbot):
    expected = cells.copy()
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=8, batch_size=32)
    ce.tl.centroid_encoder(expected, "cell_type", model=model, progress=False)
    listener = Listener(training(cells))
    qtbot.waitUntil(lambda: bool(listener.ends), timeout=60_000)
    listener.task.wait()
    deliver()
    assert listener.ends == listener.jobs
    assert listener.threads == {threading.get_ident()}
    assert listener.reports[-1].n_steps == 8
    assert listener.frames
    assert "X_ce" not in cells.obsm
    listener.jobs[0].write(cells)
    assert same_results(cells, expected)


@pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
def test_stop_keeps_the_best_so_far(cells, qtbot, placement):
    make = training(cells, ENDLESS, placement=placement)
    listener = Listener(make)
    qtbot.waitUntil(lambda: any(report.step > 20 for report in listener.reports), timeout=60_000)
    listener.task.stop()
    qtbot.waitUntil(lambda: bool(listener.ends), timeout=60_000)
    stopped, again = cells.copy(), cells.copy()
    listener.jobs[0].write(stopped)
    n_epochs = len(stopped.uns["ce"]["history"])
    assert 20 < n_epochs < ENDLESS
    job = make()
    job.run(lambda step: isinstance(step, Report) and step.step == n_epochs)
    job.write(again)
    assert same_results(stopped, again)


@pytest.mark.parametrize("when", ["at once", "later", "after its end", "twice"])
def test_nothing_follows_a_cancel(cells, unchanged, qtbot, when):
    with unchanged(cells):
        listener = Listener(training(cells, 8 if when == "after its end" else ENDLESS))
        if when in ("later", "twice"):
            qtbot.waitUntil(lambda: len(listener.reports) > 3, timeout=60_000)
        if when == "after its end":
            listener.task.wait()
        if when == "twice":
            listener.task.stop()
        listener.task.cancel()
        n = len(listener.reports), len(listener.frames)
        listener.task.wait()
        deliver()
        assert (len(listener.reports), len(listener.frames)) == n
        assert not listener.ends
        assert not listener.task.is_running


@pytest.mark.parametrize("is_made", [False, True])
def test_an_error_ends_a_task(qtbot, is_made):
    error = KeyError("gone")

    def fail(*_: Any) -> None:
        raise error

    listener = Listener((lambda: SimpleNamespace(run=fail)) if is_made else fail)
    qtbot.waitUntil(lambda: bool(listener.ends), timeout=60_000)
    listener.task.wait()
    deliver()
    assert listener.ends == [error]


def test_a_reader_does_not_keep_the_process_alive():
    code = (
        "import time; from qtpy.QtCore import QCoreApplication\n"
        "from centroid_encoder.viewer.task import Task\n"
        "app = QCoreApplication([])\n"
        "task = Task(lambda _: time.sleep(600), print, daemon=True)\n"
        "assert task.is_running"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


@pytest.mark.slow
def test_threads_may_outlive_their_tasks():
    """A thread calls nothing of Qt, even where it is the last to hold an object."""
    code = (
        "import time; from qtpy.QtCore import QCoreApplication, QObject\n"
        "from centroid_encoder.viewer.task import Task\n"
        "app, parent, tasks = QCoreApplication([]), QObject(), []\n"
        "for i in range(6_000):\n"
        "    tasks.append(Task(lambda _: time.sleep(i % 7 / 700), print, parent, daemon=True))\n"
        "    if len(tasks) == 8:\n"
        "        [task.cancel() for task in tasks[i % 3 :: 2]]\n"
        "        del tasks[i % 3 :: 2]\n"
        "    app.sendPostedEvents()\n"
        "    app.sendPostedEvents(None, 52)  # `deleteLater`\n"
        "    app.processEvents()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_a_task_that_needs_no_jobs_begins_before_pytorch_is_there(qapp, monkeypatch):
    monkeypatch.setattr(Task, "_can_run_jobs", False)
    ends: list[Any] = []
    task = Task(lambda _: 1, lambda *end: ends.append(end), needs_jobs=False)
    task.wait()
    deliver()
    assert ends == [(1, None)]


@pytest.mark.parametrize("failure", [None, ImportError("it is broken")])
def test_a_task_ends_once_if_what_jobs_need_cannot_be_imported(qapp, monkeypatch, failure):
    def import_jobs() -> None:
        if failure is not None:
            raise failure

    monkeypatch.setattr(Task, "_can_run_jobs", False)
    monkeypatch.setattr(task_module, "_import_jobs", import_jobs)
    ends: list[Any] = []
    task = Task(lambda _: 1, lambda *end: ends.append(end))
    while not task._steps.has_torch.is_set():
        time.sleep(0.01)
    for _ in range(3):
        deliver()
    assert ends == [(1, None) if failure is None else (None, failure)]

"""A training in a thread: what is heard of it, when, and what is not."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Generator, Iterator
from typing import Any

import anndata as ad
import numpy as np
import pytest
import torch
from qtpy.QtCore import QCoreApplication, QEvent, QThreadPool
from superqt.utils import WorkerBase

import centroid_encoder as ce
from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.tl._jobs import Job
from centroid_encoder.viewer import _worker
from centroid_encoder.viewer._worker import SNAPSHOT_INTERVAL, Worker

MakeCells = Callable[..., ad.AnnData]
Unchanged = Callable[[ad.AnnData], Any]
ENDLESS = 10**6


@pytest.fixture(autouse=True)
def _threads_end(qapp: Any) -> Iterator[None]:
    """No test leaves a thread at work."""
    yield
    ended = QThreadPool.globalInstance().waitForDone(10_000)
    # Whatever has gone wrong, the other tests have the machine for themselves.
    WorkerBase.await_workers(20_000)
    hear()
    assert ended


def hear() -> None:
    """Deliver what threads have sent."""
    for _ in range(3):
        QCoreApplication.processEvents()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


def wait_for_thread() -> None:
    """Wait for the thread to end, without hearing of it."""
    assert QThreadPool.globalInstance().waitForDone(20_000)


def make_run(adata: ad.AnnData, max_epochs: int = 8, **options: Any) -> Job:
    model = ce.CentroidEncoder(
        hidden=(16,), max_epochs=max_epochs, batch_size=32, **options.pop("model", {})
    )
    return ce.tl.centroid_encoder.job(adata, "cell_type", model=model, **options)


class Ear:
    """All that a training says, and in which thread it is heard."""

    def __init__(self, training: Worker, *, draws: bool = True) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.threads: set[int] = set()
        self.training = training
        self.draws = draws
        training.reported.connect(self._on_report)
        training.finished.connect(lambda: self._hear("finished", None))
        training.failed.connect(lambda error: self._hear("failed", error))

    def _hear(self, what: str, value: Any) -> None:
        self.threads.add(threading.get_ident())
        self.heard.append((what, value))

    def _on_report(self, report: Report) -> None:
        self._hear("reported", report)
        if self.draws and report.embedding is not None:
            self.training.drawn()

    @property
    def reports(self) -> list[Report]:
        return [value for what, value in self.heard if what == "reported"]

    @property
    def embeddings(self) -> list[Any]:
        return [report.embedding for report in self.reports if report.embedding is not None]

    @property
    def end(self) -> list[tuple[str, Any]]:
        return [(what, value) for what, value in self.heard if what != "reported"]


def same_results(one: ad.AnnData, other: ad.AnnData) -> bool:
    arrays = [adata.uns["ce"]["model"]["arrays"] for adata in (one, other)]
    return (
        np.array_equal(one.obsm["X_ce"], other.obsm["X_ce"])
        and one.obs.equals(other.obs)
        and all(np.array_equal(arrays[0][name], arrays[1][name]) for name in arrays[0])
    )


# -- to the end ----------------------------------------------------------------------------------


def test_it_ends_once_with_what_the_function_writes(cells: ad.AnnData, qtbot: Any) -> None:
    expected = cells.copy()
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=8, batch_size=32)
    ce.tl.centroid_encoder(expected, "cell_type", model=model, progress=False)

    training = Worker(make_run(cells))
    ear = Ear(training)
    training.start()
    qtbot.waitUntil(lambda: bool(ear.end))
    wait_for_thread()
    hear()
    assert ear.end == [("finished", None)]
    assert ear.heard[-1][0] == "finished"
    assert ear.threads == {threading.get_ident()}
    assert ear.reports[-1].step == ear.reports[-1].n_steps == 8
    assert [report.step for report in ear.reports] == sorted({r.step for r in ear.reports})
    assert not training._worker.is_running
    assert "X_ce" not in cells.obsm
    training.job.write(cells)
    assert same_results(cells, expected)
    # Too late to change anything.
    training.stop()
    training.cancel()
    hear()
    assert len(ear.end) == 1


def test_the_embeddings_are_of_the_cells_that_take_part(cells: ad.AnnData, qtbot: Any) -> None:
    cells.X[:7] = np.nan
    training = Worker(make_run(cells, missing="drop"))
    ear = Ear(training)
    training.start()
    qtbot.waitUntil(lambda: bool(ear.end))
    assert ear.embeddings
    assert {embedding.shape for embedding in ear.embeddings} == {(len(cells) - 7, 2)}


def test_two_at_once_do_not_mix(make_cells: MakeCells, qtbot: Any) -> None:
    tables = [make_cells(3), make_cells(5, 200, 12)]
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=60, batch_size=32)
    expected = [adata.copy() for adata in tables]
    for adata in expected:
        ce.tl.centroid_encoder(adata, "cell_type", model=model, progress=False)
    trainings = [Worker(make_run(adata, 60)) for adata in tables]
    ears = [Ear(training) for training in trainings]
    for training in trainings:
        training.start()
    qtbot.waitUntil(lambda: all(ear.end for ear in ears), timeout=20_000)
    for adata, training, ear, wanted in zip(tables, trainings, ears, expected, strict=True):
        assert {len(embedding) for embedding in ear.embeddings} == {len(adata)}
        training.job.write(adata)
        assert same_results(adata, wanted)


def test_the_table_may_be_changed_meanwhile(cells: ad.AnnData, qtbot: Any) -> None:
    expected = cells.copy()
    run = make_run(expected, 200)
    for _ in run.steps():
        pass
    run.write(expected)

    training = Worker(make_run(cells, 200))
    ear = Ear(training)
    training.start()
    qtbot.waitUntil(lambda: bool(ear.reports))
    cells.X[:] = 0
    cells.obs["cell_type"] = cells.obs["cell_type"].cat.reorder_categories(
        cells.obs["cell_type"].cat.categories[::-1]
    )
    assert not ear.end
    qtbot.waitUntil(lambda: bool(ear.end), timeout=20_000)
    training.job.write(cells)
    assert same_results(cells, expected)


# -- stop ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        {"placement": "bottleneck"},
        {"placement": "bottleneck", "pretrain_epochs": 3},
        {"placement": "voronoi"},
    ],
)
def test_stop_keeps_the_best_so_far(cells: ad.AnnData, qtbot: Any, model: dict[str, Any]) -> None:
    options = {"model": model}
    training = Worker(make_run(cells, ENDLESS, **options))
    ear = Ear(training)
    training.start()
    qtbot.waitUntil(lambda: any(report.step > 20 for report in ear.reports))
    assert training._worker.is_running
    training.stop()
    qtbot.waitUntil(lambda: bool(ear.end))
    assert ear.end == [("finished", None)]
    stopped = cells.copy()
    training.job.write(stopped)
    n_epochs = len(stopped.uns["ce"]["history"])
    assert 20 < n_epochs < ENDLESS
    assert not np.isnan(stopped.obsm["X_ce"]).any()

    reports: list[Report] = []
    run = make_run(cells, ENDLESS, **options)
    for report in run.steps(stop=lambda: len(reports) == n_epochs):
        reports.append(report)  # noqa: PERF402 - `stop` counts them
    again = cells.copy()
    run.write(again)
    assert same_results(stopped, again)


def test_stop_before_the_first_epoch_leaves_nothing(
    cells: ad.AnnData, unchanged: Unchanged, qtbot: Any
) -> None:
    for pretrain in (0, ENDLESS):
        with unchanged(cells):
            model = {"placement": "bottleneck", "pretrain_epochs": pretrain} if pretrain else {}
            training = Worker(make_run(cells, ENDLESS, model=model))
            ear = Ear(training)
            if not pretrain:
                training.stop()
            training.start()
            if pretrain:
                qtbot.waitUntil(lambda ear=ear: bool(ear.reports))
                training.stop()
            qtbot.waitUntil(lambda ear=ear: bool(ear.end))
            wait_for_thread()
            hear()
            ((what, error),) = ear.end
            assert (what, type(error)) == ("failed", StoppedTooEarly)
            with pytest.raises(RuntimeError, match="nothing to write"):
                training.job.write(cells)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_check_is_all_or_nothing(
    cells: ad.AnnData, unchanged: Unchanged, qtbot: Any, stopped: bool
) -> None:
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=ENDLESS if stopped else 4)
    run = ce.tl.cross_validate.job(cells, "cell_type", n_folds=2, model=model)
    with unchanged(cells):
        training = Worker(run)
        ear = Ear(training)
        training.start()
        if stopped:
            qtbot.waitUntil(lambda: bool(ear.reports))
            training.stop()
        qtbot.waitUntil(lambda: bool(ear.end))
        wait_for_thread()
        hear()
    assert not ear.embeddings
    ((what, error),) = ear.end
    if stopped:
        assert (what, type(error)) == ("failed", StoppedTooEarly)
        return
    assert what == "finished"
    assert ear.reports[-1].step == ear.reports[-1].n_steps == 8
    expected = cells.copy()
    ce.tl.cross_validate(expected, "cell_type", n_folds=2, model=model, progress=False)
    run.write(cells)
    assert cells.obs.equals(expected.obs)


# -- cancel --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "when", ["before it starts", "at once", "after some reports", "unheard end"]
)
def test_nothing_is_heard_after_cancel(
    cells: ad.AnnData, unchanged: Unchanged, qtbot: Any, when: str
) -> None:
    with unchanged(cells):
        training = Worker(make_run(cells, 8 if when == "unheard end" else ENDLESS))
        ear = Ear(training)
        if when == "before it starts":
            training.cancel()
        training.start()
        if when == "after some reports":
            qtbot.waitUntil(lambda: len(ear.reports) > 3)
        if when == "unheard end":
            wait_for_thread()
        training.cancel()
        n = len(ear.heard)
        wait_for_thread()  # it ends by itself
        hear()
        assert len(ear.heard) == n
        assert not ear.end
        assert not training._worker.is_running


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_what_is_cancelled_is_not_completed(
    cells: ad.AnnData, monkeypatch: pytest.MonkeyPatch, qtbot: Any, how: str
) -> None:
    completed = []
    monkeypatch.setattr(
        "centroid_encoder.core.fit._complete", lambda *_: completed.append(True), raising=True
    )
    training = Worker(make_run(cells, ENDLESS))
    ear = Ear(training)
    training.start()
    qtbot.waitUntil(lambda: bool(ear.reports))
    getattr(training, how)()
    wait_for_thread()
    assert len(completed) == (how == "stop")


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_nobody_waits_for_the_end_of_an_epoch(make_cells: MakeCells, qtbot: Any, how: str) -> None:
    adata = make_cells(3, 4000)
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=3, batch_size=2)
    start = time.perf_counter()
    next(ce.tl.centroid_encoder.job(adata, "cell_type", model=model).steps())
    epoch = time.perf_counter() - start

    training = Worker(ce.tl.centroid_encoder.job(adata, "cell_type", model=model))
    training.start()
    qtbot.wait(round(100 * epoch))
    start = time.perf_counter()
    getattr(training, how)()
    wait_for_thread()
    assert time.perf_counter() - start < epoch / 2


def test_cancel_after_stop(cells: ad.AnnData, qtbot: Any) -> None:
    training = Worker(make_run(cells, ENDLESS))
    ear = Ear(training)
    training.start()
    qtbot.waitUntil(lambda: bool(ear.reports))
    training.stop()
    training.cancel()
    wait_for_thread()
    hear()
    assert not ear.end


def test_who_cancels_while_hearing_hears_no_more(cells: ad.AnnData, qtbot: Any) -> None:
    training = Worker(make_run(cells, ENDLESS))
    heard: list[Report] = []

    def hear_one(report: Report) -> None:
        heard.append(report)
        time.sleep(0.2)  # the thread goes on meanwhile
        training.cancel()

    training.reported.connect(hear_one)
    training.start()
    qtbot.waitUntil(lambda: bool(heard))
    wait_for_thread()
    hear()
    assert len(heard) == 1


# -- errors --------------------------------------------------------------------------------------


def break_after(run: Job, after: int, error: BaseException) -> None:
    """Let a job fail on the way."""
    steps = run.steps

    def broken(**kwargs: Any) -> Generator[Report, None, None]:
        for i, report in enumerate(steps(**kwargs)):
            if i == after:
                raise error
            yield report
        raise error

    run.steps = broken


@pytest.mark.parametrize(
    "error",
    [
        ValueError("wrong"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        torch.OutOfMemoryError("CUDA out of memory"),
        MemoryError(),
        KeyError("gone"),
        OSError("[WinError 1114] A dynamic link library initialization routine failed"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("after", [2, ENDLESS])
def test_errors_of_any_kind_arrive(
    cells: ad.AnnData, unchanged: Unchanged, qtbot: Any, error: Exception, after: int
) -> None:
    with unchanged(cells):
        model = ce.CentroidEncoder(hidden=(4,), max_epochs=6)
        run = ce.tl.centroid_encoder.job(cells, "cell_type", model=model)
        break_after(run, after, error)
        training = Worker(run)
        ear = Ear(training)
        training.start()
        qtbot.waitUntil(lambda: bool(ear.end))
        wait_for_thread()
        hear()
        assert ear.end == [("failed", error)]
        assert ear.heard[-1][0] == "failed"


def test_an_error_of_the_training_itself(cells: ad.AnnData, qtbot: Any) -> None:
    run = make_run(cells, model={"learning_rate": 1e30, "optimizer": "adam"})
    training = Worker(run)
    ear = Ear(training)
    training.start()
    qtbot.waitUntil(lambda: bool(ear.end))
    ((what, error),) = ear.end
    assert what == "failed"
    assert isinstance(error, FloatingPointError)
    assert "smaller learning_rate" in str(error)


# -- pace ----------------------------------------------------------------------------------------


def test_reports_and_snapshots_are_few_and_snapshots_wait_to_be_drawn(
    cells: ad.AnnData, qtbot: Any
) -> None:
    training = Worker(make_run(cells, ENDLESS))
    ear = Ear(training, draws=False)
    start = time.perf_counter()
    training.start()
    qtbot.waitUntil(lambda: bool(ear.embeddings))
    first = len(ear.reports)
    qtbot.waitUntil(lambda: time.perf_counter() - start > 4 * SNAPSHOT_INTERVAL)
    # None comes while the last one is not on the screen; reports do.
    assert len(ear.embeddings) == 1
    assert len(ear.reports) > first + 3
    training.drawn()
    qtbot.waitUntil(lambda: len(ear.embeddings) == 2)
    qtbot.wait(300)
    assert len(ear.embeddings) == 2
    ear.draws = True
    training.drawn()
    qtbot.waitUntil(lambda: len(ear.embeddings) > 5)
    elapsed = time.perf_counter() - start
    training.cancel()
    assert len(ear.embeddings) <= elapsed / SNAPSHOT_INTERVAL + 2
    n_others = len(ear.reports) - len(ear.embeddings)
    assert n_others <= elapsed / _worker.REPORT_INTERVAL + 2
    assert ear.reports[-1].step > len(ear.reports)  # some were left out
    assert not np.array_equal(ear.embeddings[0], ear.embeddings[-1])


# -- forgotten -----------------------------------------------------------------------------------


def test_a_training_that_nobody_keeps(cells: ad.AnnData, qtbot: Any) -> None:
    heard: list[Any] = []
    for how in ("dropped", "deleted", "deleted and cancelled"):
        training = Worker(make_run(cells, 150))
        training.reported.connect(heard.append)
        training.start()
        qtbot.waitUntil(lambda: bool(heard))
        if how != "dropped":
            training.deleteLater()
            hear()
        if how == "deleted and cancelled":
            training.stop()
            training.cancel()
        del training
        gc.collect()
        n = len(heard)
        wait_for_thread()
        hear()
        assert len(heard) == n, how
        heard.clear()

"""A training in a thread: which signals it emits, and when."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import anndata as ad
import numpy as np
import pytest
from qtpy.QtCore import QCoreApplication, QEvent, QThreadPool
from superqt.utils import WorkerBase

import centroid_encoder as ce
from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.tl._run import Job
from centroid_encoder.viewer import _worker
from centroid_encoder.viewer._worker import FRAME_INTERVAL, Worker

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


class Listener:
    """Records all signals of a worker and the threads of their slots."""

    def __init__(self, worker: Worker, *, draws: bool = True) -> None:
        self.reports: list[Any] = []
        self.frames: list[Any] = []
        self.ends: list[Any] = []
        """None for `finished`, the exception for `failed`."""
        self.threads: set[int] = set()
        self.worker, self.draws = worker, draws
        worker.reported.connect(self._on_report)
        worker.framed.connect(self._on_frame)
        worker.finished.connect(lambda: self.ends.append(None))
        worker.failed.connect(self.ends.append)

    def _on_report(self, report: Report) -> None:
        assert not self.ends
        self.threads.add(threading.get_ident())
        self.reports.append(report)

    def _on_frame(self, frame: tuple[Any, Any]) -> None:
        assert not self.ends
        self.frames.append(frame[0])
        if self.draws:
            self.worker.drawn()


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
    ear = Listener(training)
    training.start()
    qtbot.waitUntil(lambda: bool(ear.ends))
    wait_for_thread()
    hear()
    assert ear.ends == [None]
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
    assert len(ear.ends) == 1


def test_the_embeddings_are_of_the_cells_that_take_part(cells: ad.AnnData, qtbot: Any) -> None:
    cells.X[:7] = np.nan
    training = Worker(make_run(cells, missing="drop"))
    ear = Listener(training)
    training.start()
    qtbot.waitUntil(lambda: bool(ear.ends))
    assert ear.frames
    assert {embedding.shape for embedding in ear.frames} == {(len(cells) - 7, 2)}


def test_two_at_once_do_not_mix(make_cells: MakeCells, qtbot: Any) -> None:
    tables = [make_cells(3), make_cells(5, 200, 12)]
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=60, batch_size=32)
    expected = [adata.copy() for adata in tables]
    for adata in expected:
        ce.tl.centroid_encoder(adata, "cell_type", model=model, progress=False)
    trainings = [Worker(make_run(adata, 60)) for adata in tables]
    ears = [Listener(training) for training in trainings]
    for training in trainings:
        training.start()
    qtbot.waitUntil(lambda: all(ear.ends for ear in ears), timeout=20_000)
    for adata, training, ear, wanted in zip(tables, trainings, ears, expected, strict=True):
        assert {len(embedding) for embedding in ear.frames} == {len(adata)}
        training.job.write(adata)
        assert same_results(adata, wanted)


def test_the_table_may_be_changed_meanwhile(cells: ad.AnnData, qtbot: Any) -> None:
    expected = cells.copy()
    run = make_run(expected, 200)
    run.run()
    run.write(expected)

    training = Worker(make_run(cells, 200))
    ear = Listener(training)
    training.start()
    qtbot.waitUntil(lambda: bool(ear.reports))
    cells.X[:] = 0
    cells.obs["cell_type"] = cells.obs["cell_type"].cat.reorder_categories(
        cells.obs["cell_type"].cat.categories[::-1]
    )
    assert not ear.ends
    qtbot.waitUntil(lambda: bool(ear.ends), timeout=20_000)
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
    ear = Listener(training)
    training.start()
    qtbot.waitUntil(lambda: any(report.step > 20 for report in ear.reports))
    assert training._worker.is_running
    training.stop()
    qtbot.waitUntil(lambda: bool(ear.ends))
    assert ear.ends == [None]
    stopped = cells.copy()
    training.job.write(stopped)
    n_epochs = len(stopped.uns["ce"]["history"])
    assert 20 < n_epochs < ENDLESS
    assert not np.isnan(stopped.obsm["X_ce"]).any()

    reports: list[Report] = []
    run = make_run(cells, ENDLESS, **options)

    def callback(report: Report | None) -> bool:
        if report is not None and report.epoch:
            reports.append(report)
        return len(reports) == n_epochs

    run.run(callback)
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
            ear = Listener(training)
            if not pretrain:
                training.stop()
            training.start()
            if pretrain:
                qtbot.waitUntil(lambda ear=ear: bool(ear.reports))
                training.stop()
            qtbot.waitUntil(lambda ear=ear: bool(ear.ends))
            wait_for_thread()
            hear()
            assert [type(error) for error in ear.ends] == [StoppedTooEarly]
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
        ear = Listener(training)
        training.start()
        if stopped:
            qtbot.waitUntil(lambda: bool(ear.reports))
            training.stop()
        qtbot.waitUntil(lambda: bool(ear.ends))
        wait_for_thread()
        hear()
    assert not ear.frames
    if stopped:
        assert [type(error) for error in ear.ends] == [StoppedTooEarly]
        return
    assert ear.ends == [None]
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
        ear = Listener(training)
        if when == "before it starts":
            training.cancel()
        training.start()
        if when == "after some reports":
            qtbot.waitUntil(lambda: len(ear.reports) > 3)
        if when == "unheard end":
            wait_for_thread()
        training.cancel()
        n = len(ear.reports), len(ear.frames)
        wait_for_thread()  # it ends by itself
        hear()
        assert (len(ear.reports), len(ear.frames)) == n
        assert not ear.ends
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
    ear = Listener(training)
    training.start()
    qtbot.waitUntil(lambda: any(report.epoch for report in ear.reports))
    getattr(training, how)()
    wait_for_thread()
    assert len(completed) == (how == "stop")


@pytest.mark.parametrize("how", ["stop", "cancel"])
def test_nobody_waits_for_the_end_of_an_epoch(make_cells: MakeCells, qtbot: Any, how: str) -> None:
    adata = make_cells(3, 4000)
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=3, batch_size=2)
    start = time.perf_counter()
    run = ce.tl.centroid_encoder.job(adata, "cell_type", model=model)
    run.run(lambda step: step is not None and step.epoch > 0)
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
    ear = Listener(training)
    training.start()
    qtbot.waitUntil(lambda: bool(ear.reports))
    training.stop()
    training.cancel()
    wait_for_thread()
    hear()
    assert not ear.ends


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
    """Make a job fail after some epochs, or at its end."""
    work, reports = run.run, []

    def broken(callback: Callable[[Any], bool]) -> None:
        def count(step: Any) -> bool:
            reports.append(step)
            if sum(isinstance(step, Report) for step in reports) == after:
                raise error
            return callback(step)

        work(count)
        raise error

    run.run = broken


@pytest.mark.parametrize(
    "error",
    [
        ValueError("wrong"),
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
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
        ear = Listener(training)
        training.start()
        qtbot.waitUntil(lambda: bool(ear.ends))
        wait_for_thread()
        hear()
        assert ear.ends == [error]


def test_an_error_of_the_training_itself(cells: ad.AnnData, qtbot: Any) -> None:
    run = make_run(cells, model={"learning_rate": 1e30})
    training = Worker(run)
    ear = Listener(training)
    training.start()
    qtbot.waitUntil(lambda: bool(ear.ends))
    (error,) = ear.ends
    assert isinstance(error, FloatingPointError)
    assert "smaller learning_rate" in str(error)


# -- pace ----------------------------------------------------------------------------------------


def test_reports_and_frames_are_few_and_frames_wait_to_be_drawn(
    cells: ad.AnnData, qtbot: Any
) -> None:
    training = Worker(make_run(cells, ENDLESS))
    ear = Listener(training, draws=False)
    start = time.perf_counter()
    training.start()
    qtbot.waitUntil(lambda: bool(ear.frames))
    first = len(ear.reports)
    qtbot.waitUntil(lambda: time.perf_counter() - start > 4 * FRAME_INTERVAL)
    # None comes while the last one is not on the screen; reports do.
    assert len(ear.frames) == 1
    assert len(ear.reports) > first + 3
    training.drawn()
    qtbot.waitUntil(lambda: len(ear.frames) == 2)
    qtbot.wait(300)
    assert len(ear.frames) == 2
    ear.draws = True
    training.drawn()
    qtbot.waitUntil(lambda: len(ear.frames) > 5)
    elapsed = time.perf_counter() - start
    training.cancel()
    assert len(ear.frames) <= elapsed / FRAME_INTERVAL + 2
    assert len(ear.reports) <= elapsed / _worker.REPORT_INTERVAL + 2
    assert not np.array_equal(ear.frames[0], ear.frames[-1])


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

"""A training in three steps, as the viewer takes them: read, train in a thread, write."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import centroid_encoder as ce
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.errors import Advice
from centroid_encoder.tl._jobs import Progress


def test_equals_the_tool(cells, fast):
    expected = ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False, copy=True)
    run = ce.tl.centroid_encoder.job(cells, "cell_type", model=fast)
    assert len(list(run.steps())) == 5
    run.write(cells)
    assert_array_equal(cells.obsm["X_ce"], expected.obsm["X_ce"])
    assert cells.obs.equals(expected.obs)
    assert cells.uns["ce"]["model"]["config"] == expected.uns["ce"]["model"]["config"]


def test_touches_no_anndata_before_it_writes(cells, fast, unchanged):
    with unchanged(cells):
        run = ce.tl.centroid_encoder.job(cells, "cell_type", model=fast)
        list(run.steps(snapshot=lambda: True))
    assert list(cells.obsm) == []
    run.write(cells)
    assert list(cells.obsm) == ["X_ce"]


def test_reports_embed_the_cells_that_take_part(cells, fast):
    cells.X[[3, 5]] = np.nan
    run = ce.tl.centroid_encoder.job(cells, "cell_type", model=fast, missing="drop")
    *_, last = run.steps(snapshot=lambda: True)
    assert last.embedding.shape == (118, 2)
    assert_array_equal(np.flatnonzero(~run.kept), [3, 5])
    run.write(cells)
    assert_array_equal(cells.obsm["X_ce"][run.kept], last.embedding)
    assert_array_equal(cells.obs["ce_split"] == "test", run.held_out)
    assert_array_equal(cells.obs["ce_split"] == "train", run.train)


def test_says_which_class_a_cell_is_of(cells, fast):
    cells.obs.iloc[:4, 0] = np.nan
    run = ce.tl.centroid_encoder.job(cells, "cell_type", model=fast)
    assert_array_equal(run.codes[:4], -1)
    assert_array_equal(run.classes[run.codes[4:]], cells.obs["cell_type"][4:])


@pytest.mark.parametrize("end", ["not begun", "closed", "stopped too early"])
def test_has_nothing_to_write_before_the_training_has_ended(cells, fast, unchanged, end):
    run = ce.tl.centroid_encoder.job(cells, "cell_type", model=fast)
    reports = run.steps(stop=lambda: end == "stopped too early")
    if end == "closed":
        next(reports)
        reports.close()
    if end == "stopped too early":
        with pytest.raises(StoppedTooEarly):
            next(reports)
    with unchanged(cells), pytest.raises(RuntimeError, match="the job has not ended"):
        run.write(cells)


@pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
def test_stopped_keeps_the_best_state(cells, fast, placement):
    run = ce.tl.centroid_encoder.job(cells, "cell_type", model=fast, placement=placement)
    stop = threading.Event()
    for report in run.steps(stop=stop.is_set):
        if report.step == 2:
            stop.set()
    run.write(cells)
    assert list(cells.uns["ce"]["history"]["epoch"]) == [1, 2]
    # Placed training cells lie where the network puts them that has not seen them.
    same = (cells.obs["ce_split"] == "test") | (placement == "bottleneck")
    embedding = ce.tl.fitted_model(cells).transform(cells.to_df())
    assert_array_equal(embedding[same], cells.obsm["X_ce"][same])


def test_trains_in_a_thread_to_the_same_bits(cells, fast):
    expected = ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False, copy=True)
    run = ce.tl.centroid_encoder.job(cells, "cell_type", model=fast)
    failures: list[Any] = []

    def work() -> None:
        try:
            list(run.steps())
        except BaseException as error:  # to be seen outside of the thread
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert not failures
    run.write(cells)
    assert_array_equal(cells.obsm["X_ce"], expected.obsm["X_ce"])


@pytest.mark.parametrize("name", ["centroid_encoder", "cross_validate", "ingest"])
def test_a_tool_is_a_documented_function(name):
    tool = getattr(ce.tl, name)
    signature, of_job = inspect.signature(tool), inspect.signature(tool.job)
    assert inspect.isfunction(tool)
    assert tool.__name__ == name
    assert tool.__doc__ == tool.job.__doc__
    assert signature.return_annotation == "AnnData | None"
    assert signature.parameters == of_job.parameters
    assert list(signature.parameters)[-2:] == ["progress", "copy"]


def test_notices_are_data_and_logged_for_notebooks(cells, fast, caplog):
    cells.obs["donor"] = np.repeat([f"d{i}" for i in range(6)], 20)
    job = ce.tl.cross_validate.job(cells, "cell_type", model=fast)
    assert caplog.text == ""
    (notice,) = job.notices
    assert notice.settings == (Advice("group_key", "donor"),)
    assert str(notice).endswith("are likely to be larger: pass group_key='donor'")
    ce.tl.cross_validate(cells, "cell_type", model=fast, progress=False)
    assert caplog.messages == [str(notice)] == list(cells.uns["ce_cv"]["warnings"])


def test_what_comes_up_on_the_way_is_noticed_too(cells, make_cells, fast):
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
    far = make_cells(n_obs=40)
    far.X += 100
    job = ce.tl.ingest.job(far, cells)
    assert job.notices == []
    (step,) = job.steps()
    assert step == Progress(40, 40)
    assert "the query is shifted as a whole" in str(job.notices[0])


@pytest.mark.parametrize("tool", ["centroid_encoder", "cross_validate"])
def test_detached_it_does_not_see_what_is_done_to_the_cells(cells, fast, tool):
    make = getattr(ce.tl, tool)
    expected = make(cells, "cell_type", model=fast, progress=False, copy=True)
    job = make.job(cells, "cell_type", model=fast)
    job.detach()
    before, cells.X[:] = cells.X.copy(), np.nan
    for _ in job.steps():
        pass
    cells.X[:] = before
    job.write(cells)
    assert cells.obs.equals(expected.obs)


def test_detached_new_cells_are_read_now(cells, make_cells, fast):
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
    new = make_cells(n_obs=40)
    expected = ce.tl.ingest(new, cells, progress=False, copy=True)
    job = ce.tl.ingest.job(new, cells)
    job.detach()
    job.origin = "the cells of last month"
    new.X[:] = np.nan
    for _ in job.steps():
        pass
    job.write(new)
    assert_array_equal(new.obsm["X_ce"], expected.obsm["X_ce"])
    assert new.uns["ce"]["params"]["ingested_from"] == "the cells of last month"


def test_the_default_key_may_be_named(cells, fast):
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, key_added="ce", progress=False)
    assert set(cells.obsm) == {"X_ce"}
    assert ce.pl.voronoi(cells, show=False) is not None

"""The steps of a job, as the widget calls them: check the input, compute, write the results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import centroid_encoder as ce
from centroid_encoder.core.reports import Report, StoppedTooEarly
from centroid_encoder.errors import CentroidEncoderWarning
from centroid_encoder.tl._run import Progress


@pytest.fixture
def job(cells, fast):
    return ce.tl.centroid_encoder.job(cells, "cell_type", model=fast)


def run(job: Any, stop_at: int | None = None) -> list[Report | Progress]:
    """Run a job and return its reports; stop it at one of them."""
    seen: list[Report | Progress] = []

    def callback(step: Report | Progress | None) -> bool:
        if step is not None and not (isinstance(step, Report) and step.epoch == 0):
            seen.append(step)
        return stop_at is not None and len(seen) >= stop_at

    job.run(callback)
    return seen


def test_frames_of_a_training_contain_the_kept_cells(cells, fast):
    cells.X[[3, 5]] = np.nan
    job = ce.tl.centroid_encoder.job(cells, "cell_type", model=fast, missing="drop")
    frames: list[Any] = []
    job.run(lambda step: step is not None and frames.append(step.frame()) is not None)
    job.write(cells)
    assert_array_equal(np.flatnonzero(~job.kept), [3, 5])
    assert_array_equal(cells.obs["ce_split"] == "test", job.held_out)
    assert_array_equal(cells.obs["ce_split"] == "train", job.train)
    assert_array_equal(job.classes[job.codes[job.kept]], cells.obs["cell_type"][job.kept])
    embedding, centers = frames[-1]
    assert embedding.shape == (118, 2)
    assert centers.shape == (3, 2)


@pytest.mark.parametrize("stopped", [False, True])
def test_nothing_can_be_written_before_the_end(job, cells, unchanged, stopped):
    with unchanged(cells):
        if stopped:
            with pytest.raises(StoppedTooEarly):
                run(job, stop_at=0)
        with pytest.raises(RuntimeError, match="the job has not ended"):
            job.write(cells)


@pytest.mark.parametrize("tool", ["centroid_encoder", "cross_validate"])
def test_a_notice_is_a_warning_at_the_call_and_logged(cells, fast, caplog, tool):
    cells.obs["donor"] = np.repeat([f"d{i}" for i in range(6)], 20)
    job = getattr(ce.tl, tool).job(cells, "cell_type", model=fast)
    assert caplog.text == ""
    (notice,) = job.notices
    assert "pass group_key='donor'" in notice
    with pytest.warns(CentroidEncoderWarning) as caught:
        getattr(ce.tl, tool)(cells, "cell_type", model=fast, progress=False)
    assert [str(warning.message) for warning in caught] == caplog.messages == [notice]
    assert caught[0].filename == __file__


@pytest.mark.parametrize("tool", ["centroid_encoder", "cross_validate", "ingest"])
def test_changes_of_the_cells_do_not_affect_a_detached_job(cells, fast, tool):
    make, given = getattr(ce.tl, tool), {"model": fast}
    source: Any = "cell_type"
    if tool == "ingest":
        source, given = (
            ce.tl.centroid_encoder(cells, source, progress=False, copy=True, **given),
            {},
        )
    expected = make(cells, source, progress=False, copy=True, **given)
    job = make.job(cells, source, **given)
    assert tool == "ingest" or np.shares_memory(job._cells.X, cells.X)
    job.detach()
    before, cells.X[:] = cells.X.copy(), np.nan
    job.run()
    cells.X[:] = before
    job.write(cells)
    assert cells.obs.equals(expected.obs)

"""Trainings of a cross-validation in other processes: loky, and a dask cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anndata as ad
import joblib
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.errors import DivergedError, InputError
from centroid_encoder.tl._run import Progress

# A process imports all packages, which takes seconds. A fork would hang if torch has threads.
BACKENDS = ["threading", pytest.param("loky", marks=pytest.mark.slow)]


@pytest.fixture
def validated(make_cells, fast) -> Callable[..., ad.AnnData]:
    """Cross-validate sparse cells of three donors, some of them without a label."""

    def run(**arguments: Any) -> ad.AnnData:
        cells = make_cells(n_obs=90, distance=1.0)
        cells.obs["donor"] = np.resize(list("aabbc"), 90)
        cells.obs.iloc[:4, 0] = np.nan
        cells.X = sparse.csr_matrix(cells.X)
        # Workers share arrays of more than 100 bytes by memory maps, as with large data.
        with joblib.parallel_config(max_nbytes=100):
            ce.tl.cross_validate(cells, "cell_type", model=fast, progress=False, **arguments)
        return cells

    return run


def assert_same(found: ad.AnnData, expected: ad.AnnData) -> None:
    """Check that two cross-validations are equal within rounding."""
    assert_array_equal(found.obs["ce_cv_label"], expected.obs["ce_cv_label"])
    assert_allclose(found.obs["ce_cv_own"], expected.obs["ce_cv_own"], rtol=1e-4, atol=1e-5)
    one, other = found.uns["ce_cv"], expected.uns["ce_cv"]
    assert_allclose(one["errors"], other["errors"], atol=1e-6)
    if "permutation" in other:
        assert_allclose(one["permutation"]["shuffled"], other["permutation"]["shuffled"], atol=1e-6)


@pytest.mark.parametrize(
    "arguments",
    [
        {"n_folds": 2, "n_repeats": 2, "n_permutations": 1},
        {"group_key": "donor", "n_permutations": 2},
    ],
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_two_workers_give_the_same_results(validated, backend, arguments):
    with joblib.parallel_config(backend=backend):
        found = validated(**arguments, n_jobs=2)
    assert_same(found, validated(**arguments))


@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_results(validated):
    distributed = pytest.importorskip("distributed", reason="dask needs distributed")
    arguments = {"n_folds": 3, "n_permutations": 1}
    expected = validated(**arguments)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster),
        joblib.parallel_config(backend="dask"),
    ):
        found = validated(**arguments)
        tasks = {key for key, *_ in cluster.scheduler.transition_log if key.startswith("batch")}
    assert len(tasks) == 6
    assert_same(found, expected)


@pytest.mark.parametrize(
    ("config", "at_once"),
    [({}, False), ({"backend": "threading", "n_jobs": 2}, True), ({"n_jobs": 1}, False)],
)
def test_the_settings_of_joblib_give_the_number_of_jobs(cells, fast, config, at_once):
    job = ce.tl.cross_validate.job(cells, "cell_type", model=fast, n_folds=2)
    seen: list[Any] = []
    with joblib.parallel_config(**config):
        job.run(lambda step: step is not None and seen.append(step))
    if at_once:
        assert seen == [Progress(n, 2, "training") for n in range(3)]
    else:
        assert seen == [Progress(n, 10, "epoch") for n in range(1, 11)]


def test_few_cells_need_no_processes(make_cells):
    def suitable(**arguments: Any) -> int:
        model = ce.CentroidEncoder(device="cpu")
        cells = make_cells(n_obs=300)
        return ce.tl.cross_validate.job(cells, "cell_type", model=model, **arguments).suitable_jobs

    assert suitable() == 1
    assert suitable(n_permutations=3) == joblib.cpu_count()


@pytest.mark.parametrize("n_jobs", [0, 1.5, "2", True])
def test_impossible_numbers_of_jobs_are_refused(cells, n_jobs):
    with pytest.raises(InputError, match="n_jobs"):
        ce.tl.cross_validate(cells, "cell_type", n_jobs=n_jobs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_in_a_worker_is_raised(cells, unchanged, backend):
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=5, learning_rate=1e30)
    config = joblib.parallel_config(backend=backend)
    with config, unchanged(cells), pytest.raises(DivergedError, match="a smaller learning_rate"):
        ce.tl.cross_validate(cells, "cell_type", model=model, n_jobs=2, progress=False)


@pytest.mark.parametrize("backend", BACKENDS)
def test_stop_ends_the_workers_after_their_current_training(cells, fast, unchanged, backend):
    job = ce.tl.cross_validate.job(cells, "cell_type", model=fast, n_jobs=2)
    seen: list[Progress] = []

    def callback(step: Progress) -> bool:
        seen.append(step)
        return step.n_done == 2

    config = joblib.parallel_config(backend=backend)
    with config, unchanged(cells), pytest.raises(StoppedTooEarly):
        job.run(callback)
    assert [step.n_done for step in seen] == [0, 1, 2]

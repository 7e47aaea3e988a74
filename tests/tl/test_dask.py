"""New cells in dask arrays: judged where their chunks are, by threads, processes and clusters."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from numpy.testing import assert_array_equal
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.errors import InputError, WorkerError
from centroid_encoder.tl import _dask, _judge

N_CELLS, N_GENES = 330, 60
AT_ONCE = 32
"""Of the cells, so many go through at once."""


def genes(n: int) -> np.ndarray:
    """Log-normalised counts of three kinds of cells, in turn."""
    rng = np.random.default_rng(n)
    rate = np.random.default_rng(0).gamma(0.5, 1, size=(3, N_GENES))
    return np.log1p(rng.poisson(rate[np.arange(n) % 3])).astype(np.float32)


def table(X: Any) -> AnnData:
    n = X.shape[0]
    obs = pd.DataFrame({"kind": np.array(["a", "b", "c"])[np.arange(n) % 3]})
    obs.index = [f"cell {i}" for i in range(n)]
    return AnnData(X, obs=obs, var=pd.DataFrame(index=[f"gene {i}" for i in range(N_GENES)]))


@pytest.fixture(scope="module", params=["bottleneck", "voronoi"])
def known(request: pytest.FixtureRequest) -> AnnData:
    """Cells with a map."""
    adata = table(genes(200))
    model = ce.CentroidEncoder(
        placement=request.param, hidden=(16,), max_epochs=2, max_features=40, device="cpu"
    )
    ce.tl.centroid_encoder(adata, "kind", model=model, progress=False)
    return adata


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_judge, "CHUNK", AT_ONCE)


def placed(adata: AnnData, known: AnnData, **options: Any) -> dict[str, Any]:
    """All that is found of cells."""
    ce.tl.ingest(adata, known, progress=False, **options)
    found = {name: np.asarray(adata.obs[f"ce_{name}"]) for name in ("confidence", "novelty")}
    return {"embedding": adata.obsm["X_ce"], "label": adata.obs["ce_label"].to_list(), **found}


def assert_same_bits(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in one:
        assert_array_equal(one[name], other[name], err_msg=name)


def noted(X: np.ndarray, where: Path, layout: Callable[..., Any] = np.asarray) -> Callable:
    """What a chunk is read with: it leaves a file that says in which process."""

    def read(block: np.ndarray, block_info: Any = None) -> Any:
        if block_info:  # Not only asked what would come.
            place = "_".join(map(str, block_info[0]["chunk-location"]))
            with (where / place).open("a") as file:
                file.write(f"{os.getpid()}\n")
        return layout(block)

    return read


CHUNKS = [(70, 60), (AT_ONCE, 60), (9, 20), (330, 60), ((200, 0, 130), (59, 1))]


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix, sparse.csr_array])
@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_the_same_bits_from_chunks_of_any_size(layout, chunks, scheduler, known):
    X = genes(N_CELLS)
    expected = placed(table(layout(X)), known)
    adata = table(da.from_array(X, chunks=chunks).map_blocks(layout))
    with dask.config.set(scheduler=scheduler):
        assert_same_bits(placed(adata, known), expected)
    assert isinstance(adata.X, da.Array)
    assert adata.obsm["X_ce"].dtype == np.float32


def test_a_chunk_is_read_once_and_a_part_at_a_time(known, tmp_path):
    X = genes(N_CELLS)
    blocks = da.from_array(X, chunks=(2 * AT_ONCE, 60)).map_blocks(noted(X, tmp_path))
    job = ce.tl.ingest.job(table(blocks), known)
    assert not list(tmp_path.iterdir())
    with dask.config.set(scheduler="threads", num_workers=2):
        n_done = [step.n_done for step in job.steps()]
    assert n_done == [64, 128, 192, 256, 320, 330]
    read = sorted(tmp_path.iterdir())
    assert [file.name for file in read] == [f"{i}_0" for i in range(6)]
    assert all(file.read_text() == f"{os.getpid()}\n" for file in read)


def test_gaps_are_filled_alike(known):
    X = genes(N_CELLS) * 1.3
    X[[3, 200], [5, 7]] = np.nan
    X = X[:, 1:]
    columns = table(genes(1)).var_names[-X.shape[1] :]

    def of(values: Any) -> AnnData:
        return AnnData(values, obs=table(genes(N_CELLS)).obs, var=pd.DataFrame(index=columns))

    expected = placed(of(X), known, missing="mean")
    assert_same_bits(placed(of(da.from_array(X, chunks=(50, 60))), known, missing="mean"), expected)


def test_layers_and_representations_stay_in_chunks_as_well(known):
    X = genes(N_CELLS)
    expected = placed(table(X), known)
    adata = table(np.zeros_like(X))
    adata.layers["log"] = da.from_array(X, chunks=(50, 60))
    assert_same_bits(placed(adata, known, layer="log"), expected)


def test_what_is_wrong_is_said_as_of_a_matrix_in_memory(known):
    X = genes(N_CELLS)
    X[205, 7] = np.nan
    with pytest.raises(InputError) as told:
        placed(table(X), known)
    assert "of cell 'cell 205'" in str(told.value)
    adata = table(da.from_array(X, chunks=(100, 60)))
    with pytest.raises(InputError) as told_of_chunks:
        placed(adata, known)
    assert str(told_of_chunks.value) == str(told.value)
    assert "X_ce" not in adata.obsm


def test_stop_ends_it_between_chunks(known, tmp_path):
    X = genes(N_CELLS)
    blocks = da.from_array(X, chunks=(AT_ONCE, 60)).map_blocks(noted(X, tmp_path))
    job = ce.tl.ingest.job(table(blocks), known)
    with dask.config.set(scheduler="threads", num_workers=2), pytest.raises(StoppedTooEarly):
        list(job.steps(stop=lambda: len(list(tmp_path.iterdir())) >= 4))
    assert len(list(tmp_path.iterdir())) < 11


# -- processes -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two processes."""
    distributed = pytest.importorskip("distributed", reason="dask's clusters need distributed")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
def client(cluster: Any) -> Iterator[Any]:
    import distributed

    with distributed.Client(cluster) as client:
        yield client


@pytest.mark.slow
@pytest.mark.parametrize("known", ["voronoi"], indirect=True)
def test_workers_of_a_cluster_judge_the_chunks_that_they_read(known, client, tmp_path):
    X = genes(N_CELLS)
    with dask.config.set(scheduler="synchronous"):
        expected = placed(table(sparse.csr_matrix(X)), known)
    blocks = da.from_array(X, chunks=(AT_ONCE, 60)).map_blocks(
        noted(X, tmp_path, sparse.csr_matrix)
    )
    assert_same_bits(placed(table(blocks), known), expected)
    by = [file.read_text().split() for file in tmp_path.iterdir()]
    assert len(by) == 11
    assert {process for processes in by for process in processes} <= {
        str(process) for process in client.run(os.getpid).values()
    }
    assert not client.futures


@pytest.mark.slow
@pytest.mark.parametrize("known", ["voronoi"], indirect=True)
def test_stop_cancels_what_waits_on_a_cluster(known, client, tmp_path):
    X = genes(N_CELLS)

    def slow(block: np.ndarray) -> np.ndarray:
        time.sleep(0.2)
        return block

    blocks = da.from_array(X, chunks=(AT_ONCE, 60)).map_blocks(slow, dtype=X.dtype)
    done: list[int] = []
    steps = ce.tl.ingest.job(table(blocks), known).steps(stop=lambda: bool(done))
    with pytest.raises(StoppedTooEarly):
        done.extend(step.n_done for step in steps)
    assert 0 < done[-1] < N_CELLS
    assert not client.futures


@pytest.mark.slow
@pytest.mark.parametrize("known", ["voronoi"], indirect=True)
def test_what_is_wrong_on_a_cluster_names_the_cell(known, client):
    X = genes(N_CELLS)
    X[205, 7] = np.nan
    with pytest.raises(InputError, match=r"cells 192 to 223.* of cell 'cell 205'; pass missing"):
        placed(table(da.from_array(X, chunks=(100, 60))), known)


@pytest.mark.slow
@pytest.mark.parametrize("known", ["voronoi"], indirect=True)
def test_workers_that_die_are_an_error(known, client):
    X = genes(N_CELLS)

    def deadly(block: np.ndarray, block_info: Any = None) -> np.ndarray:
        if block_info and block_info[0]["chunk-location"] == (2, 0):
            os.kill(os.getpid(), 9)
        return block

    blocks = da.from_array(X, chunks=(AT_ONCE, 60)).map_blocks(deadly, dtype=X.dtype)
    adata = table(blocks)
    with pytest.raises(WorkerError, match="workers of the cluster died"):
        placed(adata, known)
    assert "X_ce" not in adata.obsm


@pytest.mark.slow
@pytest.mark.parametrize("known", ["voronoi"], indirect=True)
def test_a_cluster_that_has_lost_all_its_workers_is_an_error(known, monkeypatch):
    distributed = pytest.importorskip("distributed", reason="dask's clusters need distributed")
    monkeypatch.setattr(_dask, "ALONE", 0.5)
    X = genes(N_CELLS)

    def slow(block: np.ndarray) -> np.ndarray:
        time.sleep(0.2)
        return block

    blocks = da.from_array(X, chunks=(AT_ONCE, 60)).map_blocks(slow, dtype=X.dtype)
    with (
        # Else the block that the worker had begun may be given up first, which is another error.
        dask.config.set({"distributed.scheduler.allowed-failures": 100}),
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=1, processes=False, dashboard_address=":0"
        ) as cluster,
        distributed.Client(cluster),
    ):
        steps = ce.tl.ingest.job(table(blocks), known).steps()
        next(steps)
        cluster.scale(0)
        with pytest.raises(WorkerError, match="no workers any more"):
            list(steps)

"""Cells of dask arrays are placed by dask's schedulers: threads, processes and clusters."""

from __future__ import annotations

from typing import Any

import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.core import matrix
from centroid_encoder.core.reports import StoppedTooEarly
from centroid_encoder.tl import _new_cells

N_CELLS, N_GENES = 330, 60


def genes(n: int) -> np.ndarray:
    """Log-normalised counts of three kinds of cells, in turn."""
    rate = np.random.default_rng(0).gamma(0.5, 1, size=(3, N_GENES))
    return np.log1p(np.random.default_rng(n).poisson(rate[np.arange(n) % 3])).astype(np.float32)


def table(X: Any) -> AnnData:
    n, d = X.shape
    obs = pd.DataFrame({"kind": np.array(["a", "b", "c"])[np.arange(n) % 3]})
    obs.index = [f"cell {i}" for i in range(n)]
    return AnnData(X, obs=obs, var=pd.DataFrame(index=[f"gene {i}" for i in range(N_GENES)][-d:]))


@pytest.fixture(scope="module")
def known() -> AnnData:
    """Cells with a map."""
    adata = table(genes(200))
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=2, max_features=40, device="cpu")
    ce.tl.centroid_encoder(adata, "kind", model=model, progress=False)
    return adata


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "CHUNK", 32)
    monkeypatch.setattr(_new_cells, "BLOCKS", 2)


def placed(adata: AnnData, known: AnnData, **options: Any) -> pd.DataFrame:
    """All results of cells."""
    ce.tl.ingest(adata, known, progress=False, **options)
    found = adata.obs[["ce_label", "ce_confidence", "ce_novelty"]].copy()
    found[["x", "y"]] = adata.obsm["X_ce"]
    return found


def assert_same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    assert_array_equal(found["ce_label"], expected["ce_label"])
    numbers = ["ce_confidence", "ce_novelty", "x", "y"]
    assert_allclose(found[numbers], expected[numbers], atol=5e-3)


@pytest.mark.parametrize(
    ("layout", "chunks", "scheduler"),
    [
        (np.asarray, (70, 60), "threads"),
        (sparse.csr_matrix, ((200, 0, 130), (60,)), "threads"),
        (sparse.csc_matrix, (9, 60), "synchronous"),
    ],
)
def test_results_are_the_same_from_chunks_of_any_size(layout, chunks, scheduler, known):
    X = genes(N_CELLS)
    expected = placed(table(layout(X)), known)
    adata = table(da.from_array(X, chunks=chunks).map_blocks(layout))
    with dask.config.set(scheduler=scheduler):
        assert_same(placed(adata, known), expected)
    assert isinstance(adata.X, da.Array)
    assert adata.obsm["X_ce"].dtype == np.float32


def test_gaps_are_filled_alike(known):
    X = 1.3 * genes(N_CELLS)
    X[[3, 200], [5, 7]] = np.nan
    X = X[:, 1:]
    expected = placed(table(X), known, missing="mean")
    adata = table(da.from_array(X, chunks=(50, 59)))
    assert_same(placed(adata, known, missing="mean"), expected)


def test_a_gap_is_an_error_that_names_the_cell(known):
    X = genes(N_CELLS)
    X[205, 7] = np.nan
    adata = table(da.from_array(X, chunks=(100, 60)))
    with pytest.raises(ValueError, match=r"the first is 'gene 7' of cell 205; pass missing"):
        placed(adata, known)
    assert "X_ce" not in adata.obsm


def test_stop_ends_it_between_chunks(known):
    n_done = []
    job = ce.tl.ingest.job(table(da.from_array(genes(N_CELLS), chunks=(50, 60))), known)

    def callback(report: Any) -> bool:
        n_done.append(report.n_done)
        return report.n_done >= 200

    with pytest.raises(StoppedTooEarly):
        job.run(callback)
    assert n_done == [100, 200]


@pytest.mark.slow
def test_workers_of_a_cluster_place_the_chunks(known):
    distributed = pytest.importorskip("distributed", reason="dask's clusters need distributed")
    X = genes(N_CELLS)
    expected = placed(table(X), known)
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    )
    with cluster, distributed.Client(cluster):
        found = placed(table(da.from_array(X, chunks=(32, 60))), known)
        tasks = {str(key) for key, *_ in cluster.scheduler.transition_log}
    assert_same(found, expected)
    assert len(tasks) >= 11

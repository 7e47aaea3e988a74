"""Matrices that are not in memory give the same results in a fraction of the memory."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anndata as ad
import dask
import dask.array as da
import h5py
import numpy as np
import pandas as pd
import pytest
import zarr
from anndata import AnnData
from anndata.experimental import read_elem_lazy
from anndata.io import sparse_dataset
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.core import matrix
from centroid_encoder.errors import InputError
from centroid_encoder.tl import _cells, _matrix

N_CELLS, N_GENES = 400, 60


def genes() -> np.ndarray:
    """Log-normalised counts of three kinds of cells; about one value in ten is not zero."""
    rng = np.random.default_rng(0)
    rate = 0.1 * rng.gamma(0.5, 1, size=(3, N_GENES))
    counts = rng.poisson(rate[np.arange(N_CELLS) * 3 // N_CELLS] * rng.uniform(1, 3, (N_CELLS, 1)))
    return np.log1p(counts).astype(np.float32)


def table(X: Any) -> AnnData:
    """Return an AnnData of the cells; a tenth of them has no label."""
    kinds = np.array(["a", "b", "c"])[np.arange(N_CELLS) * 3 // N_CELLS]
    obs = pd.DataFrame({"kind": kinds}, index=[f"cell {i}" for i in range(N_CELLS)])
    obs.loc[obs.index[::10], "kind"] = None
    return AnnData(X, obs=obs, var=pd.DataFrame(index=[f"gene {i}" for i in range(N_GENES)]))


@contextmanager
def kept_in(kind: str, X: Any, folder: Path) -> Iterator[AnnData]:
    """Yield an AnnData whose X is not in memory."""
    if kind == "zarr":
        table(X).write_zarr(folder / "cells.zarr")
        stored = zarr.open_group(folder / "cells.zarr", mode="r")["X"]
        yield table(sparse_dataset(stored) if isinstance(stored, zarr.Group) else stored)
    elif kind in ("backed", "lazy"):
        table(X).write_h5ad(folder / "cells.h5ad")
        if kind == "backed":
            adata = ad.read_h5ad(folder / "cells.h5ad", backed="r")
            yield adata
            adata.file.close()
            return
        with h5py.File(folder / "cells.h5ad") as file:
            yield table(read_elem_lazy(file["X"]))
    else:
        blocks = da.from_array(np.asarray(X.todense()), chunks=eval(kind)).map_blocks(type(X))
        yield table(blocks)


KINDS = [
    (sparse.csr_matrix, "backed"),
    (np.asarray, "backed"),
    (sparse.csr_matrix, "zarr"),
    (np.asarray, "zarr"),
    (np.asarray, "lazy"),
    (sparse.csr_matrix, "(70, 60)"),
    (sparse.csc_matrix, "(33, 60)"),
]
IDS = [f"{layout.__name__} {kind}" for layout, kind in KINDS]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Make blocks so small that there are many of them."""
    monkeypatch.setattr(_matrix, "BLOCK", 2_000)


def trained(adata: AnnData, placement: str = "bottleneck", **settings: Any) -> dict[str, Any]:
    """Train, and return all arrays that were written."""
    model = ce.CentroidEncoder(
        placement=placement, hidden=(16,), max_epochs=2, max_features=25, device="cpu"
    )
    ce.tl.centroid_encoder(adata, "kind", progress=False, model=model, **settings)
    written = {"embedding": np.asarray(adata.obsm["X_ce"])}
    written |= {name: np.asarray(adata.obs[f"ce_{name}"]) for name in ("confidence", "novelty")}
    written["label"] = adata.obs["ce_label"].cat.codes.to_numpy()
    return written


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    for name in one:
        if one[name].dtype.kind == "f":
            atol = 0.01 if name == "novelty" else 1e-3
            assert_allclose(one[name], other[name], rtol=1e-3, atol=atol, err_msg=name)
        else:
            assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "kind"), KINDS, ids=IDS)
def test_a_map_is_the_same_wherever_the_matrix_is(layout, kind, tmp_path):
    X = layout(genes())
    placement = "voronoi" if kind == "backed" else "bottleneck"
    expected = trained(table(X), placement)
    with kept_in(kind, X, tmp_path) as adata:
        source = type(adata.X)
        assert_same(trained(adata, placement), expected)
        assert type(adata.X) is source


@pytest.mark.parametrize(
    ("layout", "kind", "message"),
    [
        (sparse.csc_matrix, "backed", r"X is stored by columns \(CSC\); .*tocsr"),
        (sparse.csc_matrix, "zarr", r"X is stored by columns \(CSC\); .*tocsr"),
        (sparse.csr_matrix, "(400, 7)", "chunks hold some of the columns; .*rechunk"),
    ],
)
def test_a_matrix_that_is_stored_by_columns_is_refused(layout, kind, message, tmp_path):
    known = table(genes())
    trained(known)
    with kept_in(kind, layout(genes()), tmp_path) as adata:
        with pytest.raises(InputError, match=message):
            trained(adata)
        with pytest.raises(InputError, match=message):
            ce.tl.ingest(adata, known, progress=False)
        assert not adata.obsm
        # A cross-validation loads the matrix into memory.
        ce.tl.cross_validate.job(adata, "kind")


@pytest.mark.parametrize(("layout", "kind"), [KINDS[0], KINDS[5]])
def test_missing_values_are_the_same_wherever_they_are(layout, kind, tmp_path):
    X = genes()
    X[3, 5], X[3, 7], X[200, 5], X[390, 1] = np.nan, np.inf, -np.inf, np.nan
    X = layout(X)
    with kept_in(kind, X, tmp_path) as adata:
        for cells in (table(X), adata):
            words = "4 NaN or infinite values in 3 of 400 cells; the first is 'gene 5' of cell"
            with pytest.raises(ValueError, match=f"{words} 'cell 3'"):
                trained(cells)
        for missing in ("drop", "mean"):
            expected = trained(table(X), missing=missing)
            assert_same(trained(adata, missing=missing), expected)
            assert np.isnan(expected["embedding"]).any() == (missing == "drop")


def test_layers_representations_and_raw_are_read_by_parts_as_well():
    X = genes()
    expected = trained(table(X))
    blocks = da.from_array(X, chunks=(70, 60))
    adata = table(blocks)
    adata.raw = adata
    adata.X = np.zeros_like(X)
    adata.layers["log"], adata.obsm["X_log"] = blocks, blocks
    for source in ({"layer": "log"}, {"use_raw": True}, {"use_rep": "X_log"}):
        assert_same(trained(adata, **source), expected)


def test_another_thread_can_replace_the_kept_block_at_any_time():
    class Raced(_matrix.LazyMatrix):
        def __setattr__(self, name: str, value: Any) -> None:
            # Another thread begins to read at once.
            super().__setattr__(name, (-1, None) if name == "_kept" else value)

    X = genes()
    assert_array_equal(Raced(da.from_array(X, chunks=(70, -1)))[50:200], X[50:200])


@pytest.mark.slow
@pytest.mark.parametrize(("layout", "n"), [(sparse.csr_matrix, 2_000), (np.asarray, 3_000)])
def test_the_matrix_is_never_in_memory_as_a_whole(layout, n, tmp_path, monkeypatch):
    monkeypatch.setattr(matrix, "CHUNK", 32)
    monkeypatch.setattr(_matrix, "BLOCK", 2**18)
    rng = np.random.default_rng(0)
    X = layout(rng.normal(size=(n, 4_000)).astype(np.float32))
    obs = pd.DataFrame({"kind": np.tile(["a", "b"], n // 2)}, index=list(map(str, range(n))))
    AnnData(X, obs=obs).write_h5ad(tmp_path / "cells.h5ad")
    adata = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    ce.tl.centroid_encoder.job(table(genes()), "kind")  # Imports take memory as well.
    tracemalloc.start()
    try:
        job = ce.tl.centroid_encoder.job(adata, "kind")
        job.detach()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    adata.file.close()
    assert peak < n * 4_000 * (8 if layout is sparse.csr_matrix else 4) / 3


@pytest.fixture(scope="module")
def known() -> AnnData:
    """Cells with a map."""
    adata = table(genes())
    trained(adata, "voronoi")
    return adata


@pytest.fixture
def few_at_once(monkeypatch):
    monkeypatch.setattr(matrix, "CHUNK", 32)
    monkeypatch.setattr(_cells, "BLOCKS", 2)


def placed(adata: AnnData, known: AnnData, **options: Any) -> dict[str, Any]:
    """Ingest cells, and return all results."""
    ce.tl.ingest(adata, known, progress=False, **options)
    found = {name: np.asarray(adata.obs[f"ce_{name}"]) for name in ("confidence", "novelty")}
    return found | {"embedding": adata.obsm["X_ce"], "label": adata.obs["ce_label"].cat.codes}


@pytest.mark.usefixtures("few_at_once")
class TestIngestionOfDaskArrays:
    @pytest.mark.parametrize(
        ("layout", "chunks", "scheduler"),
        [
            (np.asarray, (70, 60), "threads"),
            (sparse.csr_matrix, ((200, 0, 200), (60,)), "threads"),
            (sparse.csc_matrix, (9, 60), "synchronous"),
        ],
    )
    def test_does_not_depend_on_the_size_of_chunks(self, layout, chunks, scheduler, known):
        expected = placed(table(layout(genes())), known)
        adata = table(da.from_array(genes(), chunks=chunks).map_blocks(layout))
        with dask.config.set(scheduler=scheduler):
            assert_same(placed(adata, known), expected)
        assert isinstance(adata.X, da.Array)
        assert adata.obsm["X_ce"].dtype == np.float32

    def test_fills_gaps_and_missing_genes_alike(self, known):
        X = 1.3 * genes()
        X[[3, 200], [5, 7]] = np.nan
        one, other = (table(x)[:, 1:].copy() for x in (X, da.from_array(X, chunks=(50, 60))))
        options = {"missing": "estimate", "max_missing": 0.5}
        assert_same(placed(other, known, **options), placed(one, known, **options))

    def test_names_the_cell_of_a_gap(self, known):
        X = genes()
        X[205, 7] = np.nan
        adata = table(da.from_array(X, chunks=(100, 60)))
        with pytest.raises(ValueError, match=r"the first is 'gene 7' of cell 205; pass missing"):
            placed(adata, known)
        assert "X_ce" not in adata.obsm

    @pytest.mark.slow
    def test_runs_on_the_workers_of_a_cluster(self, known):
        distributed = pytest.importorskip("distributed", reason="clusters need distributed")
        expected = placed(table(genes()), known)
        cluster = distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        )
        with cluster, distributed.Client(cluster):
            found = placed(table(da.from_array(genes(), chunks=(40, 60))), known)
            tasks = {str(key) for key, *_ in cluster.scheduler.transition_log}
        assert_same(found, expected)
        assert len(tasks) >= 10

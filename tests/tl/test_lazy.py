"""Matrices that are not in memory: the same maps in a fraction of the memory."""

from __future__ import annotations

import logging
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import anndata as ad
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
from centroid_encoder.errors import InputError
from centroid_encoder.tl import _lazy
from centroid_encoder.tl._read import read_matrix

Kind = Callable[[Any, Path], Any]

N_CELLS, N_GENES = 400, 60


def genes() -> np.ndarray:
    """Log-normalised counts of three kinds of cells, one value in ten."""
    rng = np.random.default_rng(0)
    rate = 0.1 * rng.gamma(0.5, 1, size=(3, N_GENES))
    counts = rng.poisson(rate[np.arange(N_CELLS) * 3 // N_CELLS] * rng.uniform(1, 3, (N_CELLS, 1)))
    return np.log1p(counts).astype(np.float32)


def table(X: Any) -> AnnData:
    """The cells, a tenth without a label."""
    kinds = np.array(["a", "b", "c"])[np.arange(N_CELLS) * 3 // N_CELLS]
    obs = pd.DataFrame({"kind": kinds}, index=[f"cell {i}" for i in range(N_CELLS)])
    obs.loc[obs.index[::10], "kind"] = None
    return AnnData(X, obs=obs, var=pd.DataFrame(index=[f"gene {i}" for i in range(N_GENES)]))


@contextmanager
def kept_in(kind: str, X: Any, folder: Path) -> Iterator[AnnData]:
    """Cells whose X is not in memory."""
    where, _, how = kind.partition(" ")
    if where == "backed":
        table(X).write_h5ad(folder / "cells.h5ad")
        adata = ad.read_h5ad(folder / "cells.h5ad", backed="r")
        yield adata
        adata.file.close()
        return
    if where == "zarr":
        table(X).write_zarr(folder / "cells.zarr")
        group = zarr.open_group(folder / "cells.zarr", mode="r")
        stored = group["X"]
        yield table(sparse_dataset(stored) if isinstance(stored, zarr.Group) else stored)
        return
    if where == "lazy":
        table(X).write_h5ad(folder / "cells.h5ad")
        with h5py.File(folder / "cells.h5ad") as file:
            yield table(read_elem_lazy(file["X"], **({"chunks": eval(how)} if how else {})))
        return
    chunks = eval(how)
    if sparse.issparse(X):
        blocks = da.from_array(X.toarray(), chunks=chunks).map_blocks(type(X))
        yield table(blocks)
    else:
        yield table(da.from_array(X, chunks=chunks))


KINDS = [
    (sparse.csr_matrix, "backed"),
    (np.asarray, "backed"),
    (sparse.csr_matrix, "zarr"),
    (np.asarray, "zarr"),
    (sparse.csr_matrix, "lazy"),
    (sparse.csc_matrix, "lazy (400, 60)"),
    (np.asarray, "lazy"),
    (sparse.csr_matrix, "dask (70, 60)"),
    (sparse.csc_matrix, "dask (33, 20)"),
    (np.asarray, "dask (33, 20)"),
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """As many blocks as of a matrix that fills a disk."""
    monkeypatch.setattr(_lazy, "BLOCK", 2_000)
    monkeypatch.setattr(_lazy, "LARGEST_BLOCK", 20_000)


def model(placement: str, **settings: Any) -> ce.CentroidEncoder:
    return ce.CentroidEncoder(
        placement=placement,
        hidden=(16,),
        max_epochs=2,
        device="cpu",
        **({} if "scale" in settings else {"max_features": 25}),
        **settings,
    )


def trained(adata: AnnData, placement: str = "bottleneck", **settings: Any) -> dict[str, Any]:
    """Everything that a training writes, as arrays."""
    given = {"model": model(placement), **settings}
    ce.tl.centroid_encoder(adata, "kind", progress=False, **given)
    written = {"embedding": np.asarray(adata.obsm["X_ce"])}
    written |= {name: np.asarray(adata.obs[f"ce_{name}"]) for name in ("confidence", "novelty")}
    written["label"] = adata.obs["ce_label"].cat.codes.to_numpy()
    written |= {str(name): np.asarray(x) for name, x in adata.uns["ce"]["model"]["arrays"].items()}
    return written


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        if one[name].dtype.kind == "f":
            assert_allclose(one[name], other[name], rtol=1e-4, atol=1e-4, err_msg=name)
        else:
            assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.parametrize(("layout", "kind"), KINDS, ids=[f"{k[0].__name__} {k[1]}" for k in KINDS])
@pytest.mark.parametrize("placement", ["bottleneck", "voronoi"])
def test_a_map_is_the_same_wherever_the_matrix_is(layout, kind, placement, tmp_path, caplog):
    caplog.set_level(logging.INFO, "centroid_encoder")
    X = layout(genes())
    expected = trained(table(X), placement)
    with kept_in(kind, X, tmp_path) as adata:
        source = type(adata.X)
        assert_same(trained(adata, placement), expected)
        assert type(adata.X) is source
    assert "    reading X a part at a time" in caplog.messages


COLUMNS = "chunks hold some of the columns; .*rechunk"
BY_COLUMNS = [
    (sparse.csc_matrix, "backed", r"X is stored by columns \(CSC\); .*tocsr"),
    (sparse.csc_matrix, "zarr", r"X is stored by columns \(CSC\); .*tocsr"),
    (sparse.csr_matrix, "dask (400, 7)", COLUMNS),
    (np.asarray, "dask (400, 7)", COLUMNS),
]


@pytest.mark.parametrize(("layout", "kind", "message"), BY_COLUMNS)
def test_a_matrix_that_is_stored_by_columns_is_refused(
    layout, kind, message, tmp_path, monkeypatch
):
    monkeypatch.setattr(_lazy, "LARGEST_BLOCK", 2_000)
    known = table(genes())
    trained(known)
    with kept_in(kind, layout(genes()), tmp_path) as adata:
        with pytest.raises(InputError, match=message):
            trained(adata)
        with pytest.raises(InputError, match=message):
            ce.tl.ingest(adata, known, progress=False)
        assert not adata.obsm
        # A cross-validation reads it into memory.
        assert_same(validated(adata), validated(known, model=model("voronoi")))


def gappy(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X[3, 5], X[3, 7], X[200, 5], X[390, 1] = np.nan, np.inf, -np.inf, np.nan
    return X


GAPPY = [
    (sparse.csr_matrix, "backed"),
    (np.asarray, "zarr"),
    (np.asarray, "dask (70, 60)"),
]


@pytest.mark.parametrize(("layout", "kind"), GAPPY, ids=[f"{k[0].__name__} {k[1]}" for k in GAPPY])
def test_missing_values_are_the_same_wherever_they_are(layout, kind, tmp_path):
    # A zero that is stored as a gap stays one when the others become CSR.
    X = layout(gappy(genes()))
    with kept_in(kind, X, tmp_path) as adata:
        of_them = "2 NaN and 2 infinite values in 3 of 400 cells; the first is 'gene 5' of cell"
        with pytest.raises(ValueError, match=of_them) as told:
            trained(table(X))
        with pytest.raises(ValueError, match=of_them) as told_lazily:
            trained(adata)
        assert str(told_lazily.value) == str(told.value)
        for missing in ("drop", "mean"):
            expected = trained(table(X), missing=missing)
            assert_same(trained(adata, missing=missing), expected)
            assert np.isnan(expected["embedding"]).any() == (missing == "drop")
        assert not np.isfinite(_lazy.in_memory(adata.X[:10]).sum())


def test_some_of_the_genes_are_read_of_them_alone(tmp_path):
    X = sparse.csr_matrix(genes())
    mask = np.arange(N_GENES) % 3 == 0
    expected = trained(table(X), mask_var=mask)
    with kept_in("backed", X, tmp_path) as adata:
        assert_same(trained(adata, mask_var=mask), expected)


def test_layers_representations_and_raw_are_read_a_part_at_a_time_as_well():
    X = genes()
    adata = table(np.zeros_like(X))
    expected = trained(table(X))
    blocks = da.from_array(X, chunks=(70, 20))
    adata.layers["log"], adata.obsm["X_log"] = blocks, blocks
    assert_same(trained(adata, layer="log"), expected)
    found = trained(adata, use_rep="X_log")
    assert_array_equal(found["embedding"], expected["embedding"])
    adata = table(blocks)
    adata.raw = adata
    adata.X = np.zeros_like(X)
    assert_same(trained(adata, use_raw=True), expected)


@pytest.mark.parametrize("scale", ["feature", "global", "none"])
@pytest.mark.parametrize("layout", [sparse.csr_matrix, np.asarray])
def test_every_scale_is_the_same(layout, scale, tmp_path):
    X, settings = layout(genes()), {"model": model("bottleneck", scale=scale)}
    expected = trained(table(X), **settings)
    with kept_in("backed", X, tmp_path) as adata:
        assert_same(trained(adata, **settings), expected)


@pytest.mark.parametrize("dtype", [np.float64, np.int32, np.uint8, bool])
@pytest.mark.parametrize("layout", [sparse.csr_matrix, np.asarray])
def test_every_type_of_numbers_is_the_same(layout, dtype, tmp_path):
    X = (10 * genes()).astype(dtype)
    if layout is not np.asarray:
        X = sparse.csr_matrix((10 * genes()).astype(np.float32)).astype(dtype)
    expected = trained(table(X))
    with kept_in("zarr", X, tmp_path) as adata:
        assert_same(trained(adata), expected)


def test_entries_stored_twice_are_added_up(tmp_path):
    csr = sparse.csr_matrix(genes())
    X = sparse.csr_matrix(
        (np.repeat(csr.data / 2, 2), np.repeat(csr.indices, 2), 2 * csr.indptr), csr.shape
    )
    expected = trained(table(X))
    with kept_in("backed", X, tmp_path) as adata:
        assert_same(trained(adata), expected)


@pytest.mark.parametrize("layout", [sparse.csr_matrix, sparse.csc_matrix])
def test_indices_of_two_types_become_one_without_a_copy(layout):
    """Else scipy converts all of them at each look at some rows."""
    adata = table(layout(genes()))
    adata.X.indptr = adata.X.indptr.astype(np.int64)
    assert adata.X.indptr.dtype != adata.X.indices.dtype
    X, _, _ = read_matrix(adata, use_rep=None, layer=None, use_raw=None)
    assert X.indptr.dtype == X.indices.dtype
    assert np.shares_memory(X.data, adata.X.data)
    assert np.shares_memory(X.indices, adata.X.indices)
    assert_array_equal(X.toarray(), genes())
    assert_same(trained(adata), trained(table(layout(genes()))))


def test_rows_are_found_in_any_order(tmp_path):
    X = sparse.csr_matrix(genes())
    with kept_in("backed", X, tmp_path) as adata:
        lazy = _lazy.LazyMatrix(adata.X)
        assert len(lazy._bounds) > 5
        rng = np.random.default_rng(0)
        rows, columns = np.sort(rng.permutation(N_CELLS)[:90]), rng.permutation(N_GENES)[:30]
        part = lazy.selected(rows=rows).selected(columns=columns)
        expected = X.toarray()[rows][:, columns]
        assert part.shape == expected.shape
        index = rng.integers(90, size=200)
        assert_array_equal(part[index].toarray(), expected[index])
        assert_array_equal(part[30:50].toarray(), expected[30:50])
        assert part[5:5].shape == (0, 30)
        blocks = list(part.blocks())
        assert len(blocks) > 5
        assert_array_equal(np.concatenate([x.toarray() for _, x in blocks]), expected)
        for where, x in blocks:
            assert_array_equal(x.toarray(), expected[where])


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_tables_may_be_read_lazily_as_well(tmp_path):
    pytest.importorskip("xarray", reason="anndata's read_lazy needs xarray")
    X = sparse.csr_matrix(genes())
    adata = table(X)
    expected = trained(adata)
    adata = table(X)
    adata.obs["kind"] = adata.obs["kind"].astype("category")
    adata.write_h5ad(tmp_path / "cells.h5ad")
    lazy = ad.experimental.read_lazy(tmp_path / "cells.h5ad")
    assert_same(trained(lazy), expected)
    assert isinstance(lazy.X, da.Array)
    query = ad.experimental.read_lazy(tmp_path / "cells.h5ad")
    ce.tl.ingest(query, lazy, progress=False)
    assert_array_equal(query.obsm["X_ce"], expected["embedding"])


def validated(adata: AnnData, **settings: Any) -> dict[str, Any]:
    """Everything that a cross-validation writes, as arrays."""
    given = {"model": model("voronoi"), "n_folds": 2, "n_permutations": 1, **settings}
    ce.tl.cross_validate(adata, "kind", progress=False, **given)
    written = {name: np.asarray(adata.obs[f"ce_cv_{name}"]) for name in ("confidence", "own")}
    written["label"] = adata.obs["ce_cv_label"].cat.codes.to_numpy()
    stored = adata.uns["ce_cv"]
    written |= {
        name: stored[name].select_dtypes("number").to_numpy() for name in ("errors", "per_class")
    }
    test = stored.get("permutation", {"errors": ()})
    return written | {"permutation": np.asarray(test["errors"])}


@pytest.mark.parametrize(("layout", "kind"), KINDS[::4] + KINDS[1:3])
def test_a_cross_validation_is_the_same_wherever_the_matrix_is(layout, kind, tmp_path, caplog):
    caplog.set_level(logging.INFO, logger="centroid_encoder")
    X = layout(genes())
    expected = validated(table(X))
    with kept_in(kind, X, tmp_path) as adata:
        assert_same(validated(adata), expected)
        assert "loading X into memory" in caplog.text


@pytest.mark.parametrize("layout", [sparse.csr_matrix.tocsr, sparse.csr_matrix.toarray])
def test_a_training_never_has_the_matrix_in_memory(layout, tmp_path, monkeypatch):
    """The peak is at most two thirds of what the matrix would take: 8 MB as CSR, 10 MB dense."""
    monkeypatch.setattr("centroid_encoder.core.standardization.CHUNK", 32)
    monkeypatch.setattr("centroid_encoder.core.novelty.N_REFERENCE", 50)
    monkeypatch.setattr("centroid_encoder.core.novelty.VALUES_AT_ONCE", 2**15)
    monkeypatch.setattr(_lazy, "BLOCK", 2**18)
    rng = np.random.default_rng(0)
    X = sparse.random(600, 4_000, density=0.4, format="csr", dtype=np.float32, rng=rng)
    X = layout(sparse.csr_matrix(X))
    obs = pd.DataFrame({"kind": np.array(["a", "b"])[np.arange(600) % 2]})
    obs.index = obs.index.astype(str)
    AnnData(X, obs=obs).write_h5ad(tmp_path / "cells.h5ad")
    size = X.data.nbytes + (X.indices.nbytes if sparse.issparse(X) else 0)
    del X
    adata = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    trained(table(genes()))  # What is imported takes memory as well.
    tracemalloc.start()
    try:
        trained(adata)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    adata.file.close()
    assert peak < 2 / 3 * size

"""Saving: a file contains the saved table, and a failure leaves the old file."""

import os
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.viewer._save import save_csv, save_h5ad, save_table, save_zarr
from centroid_encoder.viewer.data.reader import read_table
from centroid_encoder.viewer.data.tables import Table

pytestmark = [
    pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part"),
    pytest.mark.filterwarnings("ignore:zarr v3 autosharding"),
]


@pytest.fixture
def trained(embed) -> ad.AnnData:
    """Cells with a result, a string column with a gap, a raw part and a layer."""
    cells = embed(placement="bottleneck")
    cells.obs["donor"] = ["one", "two", None] * 40
    cells.var["name"] = "gene"
    cells.raw = cells.copy()
    cells.layers["counts"] = sparse.csr_matrix(np.eye(cells.n_obs, cells.n_vars))
    return cells


def assert_same(a: ad.AnnData, b: ad.AnnData) -> None:
    """Compare two tables; strings may have become categories."""
    np.testing.assert_array_equal(dense(a.X), dense(b.X))
    assert list(a.obs_names) == list(b.obs_names)
    assert list(a.obs) == list(b.obs)
    for column in a.obs:
        assert values(a.obs[column]) == values(b.obs[column])
    np.testing.assert_array_equal(a.obsm["X_ce"], b.obsm["X_ce"])
    np.testing.assert_array_equal(dense(a.layers["counts"]), dense(b.layers["counts"]))
    np.testing.assert_array_equal(dense(a.raw.X), dense(b.raw.X))
    pd.testing.assert_frame_equal(a.uns["ce"]["history"], b.uns["ce"]["history"])
    for name, array in a.uns["ce"]["model"]["arrays"].items():
        np.testing.assert_array_equal(array, b.uns["ce"]["model"]["arrays"][name])


def values(column: pd.Series) -> list[Any]:
    return [None if pd.isna(value) else value for value in column]


def dense(X: Any) -> Any:
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


READ = {save_h5ad: ad.read_h5ad, save_zarr: ad.read_zarr}
SAVE = pytest.mark.parametrize(("save", "name"), [(save_h5ad, "a.h5ad"), (save_zarr, "a.zarr")])


@pytest.mark.slow
@SAVE
@pytest.mark.parametrize(
    ("format_", "rows"), [(np.asarray, slice(None)), (sparse.csr_matrix, slice(10, 70, 2))]
)
def test_a_table_or_a_view_is_read_back(save, name, format_, rows, trained, unchanged, tmp_path):
    trained.X = format_(trained.X)
    adata = trained if rows == slice(None) else trained[rows]
    with unchanged(adata), unchanged(trained):
        save(adata, tmp_path / name)
    assert_same(READ[save](tmp_path / name), adata.copy())
    assert os.listdir(tmp_path) == [name]


def test_a_backed_table_stays_on_disk(trained, tmp_path):
    save_h5ad(trained, tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    backed.obs["note"] = "new"
    save_h5ad(backed[10:70:2], tmp_path / "copy.h5ad")
    expected = trained[10:70:2].copy()
    expected.obs["note"] = "new"
    assert_same(ad.read_h5ad(tmp_path / "copy.h5ad"), expected)
    assert Path(backed.filename) == tmp_path / "cells.h5ad"
    backed.file.close()
    assert "note" not in ad.read_h5ad(tmp_path / "cells.h5ad").obs


def test_a_csv_is_read_back(trained, tmp_path):
    save_csv(trained, "ce", tmp_path / "cells.csv")
    table = pd.read_csv(tmp_path / "cells.csv", index_col=0)
    assert list(table) == [*trained.obs, *trained.var_names, "ce_1", "ce_2"]
    np.testing.assert_allclose(table[["ce_1", "ce_2"]], trained.obsm["X_ce"], rtol=1e-6)
    again = read_table(tmp_path / "cells.csv")[0]
    assert list(again.obs_names) == list(trained.obs_names)
    # Results are not features of the next training.
    assert not [name for name in again.var_names if name.startswith("ce_")]
    np.testing.assert_allclose(again[:, trained.var_names].X, trained.X, rtol=1e-6)
    trained.X = sparse.csr_matrix(trained.X)
    save_csv(trained, "none", tmp_path / "cells.csv")
    assert list(pd.read_csv(tmp_path / "cells.csv", index_col=0)) == list(trained.obs)


@pytest.mark.slow
@SAVE
def test_a_table_that_cannot_be_written_leaves_the_old_file(save, name, trained, tmp_path):
    save(trained, tmp_path / name)
    before = contents(tmp_path)
    trained.uns["odd"] = [{"a": 1}]
    with pytest.raises(ValueError, match=r"uns\['odd'\] is a list, which no file can hold"):
        save(trained, tmp_path / name)
    assert contents(tmp_path) == before


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*does not have a Zarr V3 specification")
def test_a_field_that_zarr_cannot_hold_is_named(trained, tmp_path):
    trained.obs["kind"] = pd.Categorical(["Tumor: Negative", "b"] * 60)
    ce.tl.rank_features(trained, "kind", use_raw=False)
    with pytest.raises(ValueError, match="'Tumor: Negative'") as caught:
        save_zarr(trained, tmp_path / "a.zarr")
    assert not os.listdir(tmp_path)
    part = caught.value.parameter
    assert part == "uns['rank_features']"
    save_zarr(trained, tmp_path / "a.zarr", without=[part])
    with ad.settings.override(zarr_write_format=3):
        save_zarr(trained, tmp_path / "b.zarr")
    save_h5ad(trained, tmp_path / "a.h5ad")
    for back in (ad.read_zarr(tmp_path / "b.zarr"), ad.read_h5ad(tmp_path / "a.h5ad")):
        assert back.uns["rank_features"]["scores"].dtype.names == ("Tumor: Negative", "b")


class Store:
    """The used parts of a SpatialData object: its tables and its zarr store."""

    def __init__(self, path: Path, adata: ad.AnnData, zarr_format: Any = 3) -> None:
        self.path: Any = path
        self.tables = {"cells": adata}
        keys = {"region_key": "region", "instance_key": "cell_id"}
        adata.uns["spatialdata_attrs"] = {"region": ["labels"], **keys}
        root = zarr.open_group(path, mode="w", zarr_format=zarr_format)
        root.create_group("labels").create_array("nuclei", data=np.arange(9).reshape(3, 3))
        group = root.create_group("tables").create_group("cells")
        group.attrs["spatialdata-encoding-type"] = "ngff:regions_table"
        self.write_consolidated_metadata()
        options = {"sdata": self, "table_name": "cells"}
        self.table = Table(adata, "cells", None, "spatialdata", **options)

    def has_consolidated_metadata(self) -> bool:
        return bool(zarr.open_group(self.path, mode="r").metadata.consolidated_metadata)

    def write_consolidated_metadata(self) -> None:
        zarr.consolidate_metadata(self.path)


@pytest.mark.slow
@pytest.mark.parametrize("zarr_format", [2, 3])
def test_only_the_table_in_a_store_is_replaced(zarr_format, trained, unchanged, tmp_path):
    path = tmp_path / "tissue.zarr"
    store = Store(path, trained, zarr_format)
    before = contents(path / "labels")
    trained.uns["spatialdata_attrs"]["region"] = np.array(["labels", "more"])
    with unchanged(trained):
        save_table(store.table)
    assert_same(ad.read_zarr(path / "tables" / "cells"), trained)
    group = zarr.open_group(path, mode="r")["tables/cells"]
    assert group.metadata.zarr_format == zarr_format
    assert group.attrs["spatialdata-encoding-type"] == "ngff:regions_table"
    assert group.attrs["region"] == ["labels", "more"]
    assert contents(path / "labels") == before
    assert store.has_consolidated_metadata()


@pytest.mark.parametrize("problem", ["memory", "remote", "replaced"])
def test_a_store_without_the_table_is_an_error(problem, cells, tmp_path):
    store = Store(tmp_path / "tissue.zarr", cells)
    before = contents(tmp_path)
    if problem == "replaced":
        store.tables["cells"] = cells.copy()
    else:
        store.path = None if problem == "memory" else "s3://bucket/tissue.zarr"
    with pytest.raises(ValueError, match=r"as \.h5ad"):
        save_table(store.table)
    assert contents(tmp_path) == before

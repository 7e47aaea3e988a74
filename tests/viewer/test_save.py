"""Saving: what comes back is what was there, and a failure leaves the old file and no litter."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anndata as ad
import h5py
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import zarr
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.viewer._save import (
    save_figure,
    save_h5ad,
    save_model,
    save_table,
    save_zarr,
)
from centroid_encoder.viewer.data.tables import Table

NOBODY = 65534

Unchanged = Callable[[ad.AnnData], Any]


@pytest.fixture
def trained(cells: ad.AnnData, fast: ce.CentroidEncoder) -> ad.AnnData:
    """Cells with a result, a string column with a gap, a raw part and a layer."""
    cells.obs["donor"] = ["one", "two", None] * 40
    cells.var["name"] = "gene"
    cells.raw = cells.copy()
    cells.layers["counts"] = sparse.csr_matrix(np.eye(cells.n_obs, cells.n_vars))
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
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
    pd.testing.assert_frame_equal(a.uns["ce"]["history"], b.uns["ce"]["history"])
    x = pd.DataFrame(dense(a.X), columns=a.var_names)
    np.testing.assert_array_equal(
        ce.tl.fitted_model(a, device="cpu").transform(x),
        ce.tl.fitted_model(b, device="cpu").transform(x),
    )
    assert (a.raw is None) == (b.raw is None)
    if a.raw is not None:
        np.testing.assert_array_equal(dense(a.raw.X), dense(b.raw.X))


def values(column: pd.Series) -> list[Any]:
    return [None if pd.isna(value) else value for value in column]


def dense(X: Any) -> Any:
    X = X.to_memory() if hasattr(X, "to_memory") else X[:]
    return X.toarray() if sparse.issparse(X) else X


# .h5ad


@pytest.mark.parametrize("format_", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_a_table_comes_back_and_is_not_changed_by_saving(
    format_: Callable[[Any], Any], trained: ad.AnnData, unchanged: Unchanged, tmp_path: Path
) -> None:
    trained.X = format_(trained.X)
    with unchanged(trained):
        save_h5ad(trained, str(tmp_path / "cells.h5ad"))

    assert_same(ad.read_h5ad(tmp_path / "cells.h5ad"), trained)
    assert os.listdir(tmp_path) == ["cells.h5ad"]


def test_a_view_stays_a_view(trained: ad.AnnData, unchanged: Unchanged, tmp_path: Path) -> None:
    view = trained[10:70:2]
    with unchanged(view), unchanged(trained):
        save_h5ad(view, tmp_path / "cells.h5ad")
    assert_same(ad.read_h5ad(tmp_path / "cells.h5ad"), trained[10:70:2].copy())


@pytest.mark.parametrize("format_", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("rows", [slice(None), slice(10, 70, 2)])
def test_a_table_on_disk_stays_there(
    format_: Callable[[Any], Any], rows: slice, trained: ad.AnnData, tmp_path: Path
) -> None:
    trained.X = format_(trained.X)
    save_h5ad(trained, tmp_path / "cells.h5ad")
    before = (tmp_path / "cells.h5ad").read_bytes()
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    backed.obs["note"] = "new"
    part = backed if rows == slice(None) else backed[rows]

    save_h5ad(part, tmp_path / "copy.h5ad")
    save_h5ad(part, tmp_path / "copy.h5ad")

    expected = trained[rows].copy()
    expected.obs["note"] = "new"
    assert_same(ad.read_h5ad(tmp_path / "copy.h5ad"), expected)
    assert part.isbacked
    assert Path(part.filename) == tmp_path / "cells.h5ad"
    np.testing.assert_array_equal(dense(backed.X), dense(trained.X))
    backed.file.close()
    assert (tmp_path / "cells.h5ad").read_bytes() == before


@pytest.mark.parametrize("through_link", [False, True])
def test_a_table_that_lives_in_that_file_is_an_error(
    through_link: bool, trained: ad.AnnData, tmp_path: Path
) -> None:
    path = tmp_path / "cells.h5ad"
    save_h5ad(trained, path)
    before = path.read_bytes()
    backed = ad.read_h5ad(path, backed="r")
    if through_link:
        (tmp_path / "link.h5ad").symlink_to(path)
        path = tmp_path / "link.h5ad"

    for part in (backed, backed[:5]):
        with pytest.raises(ValueError, match="itself, which can thus not be replaced"):
            save_h5ad(part, path)
    backed.file.close()
    assert (tmp_path / "cells.h5ad").read_bytes() == before


def test_a_table_without_a_matrix_can_be_saved(tmp_path: Path) -> None:
    adata = ad.AnnData(obs=pd.DataFrame({"kind": ["a", "b"]}, index=["x", "y"]))
    save_h5ad(adata, tmp_path / "cells.h5ad")
    assert list(ad.read_h5ad(tmp_path / "cells.h5ad").obs["kind"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ((1, 2), r"uns\['odd'\] \(tuple\)"),
        (Path("x"), r"uns\['odd'\] \(PosixPath\)"),
        ({"deep": {"er": {1, 2}}}, r"uns\['odd'\]\['deep'\]\['er'\] \(set\)"),
        ({"fine": 1, 5: "a"}, r"uns\['odd'\] with the key 5, which is no string"),
        ([{"a": 1}], r"uns\['odd'\] \(list\)"),
        (np.random.default_rng(0), r"uns\['odd'\] \(Generator\)"),
    ],
)
def test_what_a_file_cannot_hold_is_named(
    value: Any, where: str, trained: ad.AnnData, unchanged: Unchanged, tmp_path: Path
) -> None:
    save_h5ad(trained, tmp_path / "cells.h5ad")
    before = (tmp_path / "cells.h5ad").read_bytes()
    trained.uns["odd"] = value
    trained.uns["fine"] = {"a": [1, 2], "b": None}

    with pytest.raises(ValueError, match=f"cannot hold {where}; change or delete it"):
        save_h5ad(trained, tmp_path / "cells.h5ad")

    assert (tmp_path / "cells.h5ad").read_bytes() == before
    assert os.listdir(tmp_path) == ["cells.h5ad"]


def test_all_that_a_file_cannot_hold_is_named_at_once(trained: ad.AnnData, tmp_path: Path) -> None:
    trained.obs["mixed"] = [1, "a", None] * 40
    trained.var["mixed"] = [{1}] * trained.n_vars
    trained.uns["odd"] = (1,)
    with pytest.raises(
        ValueError, match=r"hold obs\['mixed'\], var\['mixed'\], uns\['odd'\] \(tuple\); change"
    ):
        save_h5ad(trained, tmp_path / "cells.h5ad")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "error", "words"),
    [
        ("cells.csv", ValueError, r"must end in \.h5ad; got 'cells.csv'"),
        ("nowhere/cells.h5ad", FileNotFoundError, "there is no folder .*nowhere; choose another"),
        ("folder.h5ad", IsADirectoryError, "is a folder"),
    ],
)
def test_a_name_that_cannot_be_is_an_error_at_once(
    name: str, error: type[Exception], words: str, trained: ad.AnnData, tmp_path: Path
) -> None:
    (tmp_path / "folder.h5ad").mkdir()
    with pytest.raises(error, match=words):
        save_h5ad(trained, tmp_path / name)
    assert os.listdir(tmp_path) == ["folder.h5ad"]


def test_capitals_in_the_ending_are_fine(trained: ad.AnnData, tmp_path: Path) -> None:
    save_h5ad(trained, tmp_path / "CELLS.H5AD")
    assert ad.read_h5ad(tmp_path / "CELLS.H5AD").n_obs == trained.n_obs


@pytest.fixture
def own_folder(tmp_path: Path) -> Iterator[Path]:
    """Folder of a user who may not write everywhere, even where root runs the tests."""
    if os.name == "nt":
        pytest.skip("Windows has other permissions")
    if os.geteuid():
        yield tmp_path
        return
    # pytest's own folders are closed to others.
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, 0)
        try:
            yield Path(folder)
        finally:
            os.setresuid(0, 0, 0)


def test_where_nothing_may_be_written_is_said(trained: ad.AnnData, own_folder: Path) -> None:
    path = own_folder / "cells.h5ad"
    path.touch()
    path.chmod(0o400)
    with pytest.raises(PermissionError, match="write-protected; choose another name"):
        save_h5ad(trained, path)

    own_folder.chmod(0o500)
    try:
        with pytest.raises(PermissionError, match="may not be written to; choose another folder"):
            save_h5ad(trained, own_folder / "other.h5ad")
    finally:
        own_folder.chmod(0o700)
    assert os.listdir(own_folder) == ["cells.h5ad"]


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such permissions and links")
def test_a_replaced_file_keeps_its_permissions_and_a_link_stays_one(
    trained: ad.AnnData, tmp_path: Path
) -> None:
    (tmp_path / "new").touch()
    save_h5ad(trained, tmp_path / "cells.h5ad")
    assert mode(tmp_path / "cells.h5ad") == mode(tmp_path / "new")

    (tmp_path / "cells.h5ad").chmod(0o640)
    (tmp_path / "link.h5ad").symlink_to("cells.h5ad")
    trained.obs["note"] = "second"
    save_h5ad(trained, tmp_path / "link.h5ad")

    assert (tmp_path / "link.h5ad").is_symlink()
    assert mode(tmp_path / "cells.h5ad") == 0o640
    assert "note" in ad.read_h5ad(tmp_path / "cells.h5ad").obs


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("into", ["file", "store"])
def test_a_full_disk_is_said_in_one_line_and_leaves_the_old_table(
    into: str, trained: ad.AnnData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path / "tissue.zarr", trained)
    save_h5ad(trained, tmp_path / "cells.h5ad")
    before = contents(tmp_path)
    path, table = tmp_path / "cells.h5ad", store.table()
    save = partial(save_h5ad, trained, path) if into == "file" else partial(save_table, table)

    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=1000))
    with pytest.raises(OSError, match="was not written: the disk is too full") as caught:
        save()

    assert "\n" not in str(caught.value)
    assert contents(tmp_path) == before


def contents(folder: Path) -> dict[Path, bytes | None]:
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


@pytest.mark.parametrize("error", [OSError("gone"), KeyboardInterrupt()])
@pytest.mark.parametrize("step", ["write_elem", "flush", "replace"])
def test_an_error_while_saving_leaves_the_old_file_and_no_litter(
    error: BaseException,
    step: str,
    trained: ad.AnnData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save_h5ad(trained, tmp_path / "cells.h5ad")
    before = contents(tmp_path)

    def fail(*args: Any, **kwargs: Any) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(
            {
                "write_elem": "centroid_encoder.viewer._save.write_elem",
                "flush": "centroid_encoder.files._flush",
                "replace": "os.replace",
            }[step],
            fail,
        )
        with pytest.raises(type(error)):
            save_h5ad(trained, tmp_path / "cells.h5ad")

    assert contents(tmp_path) == before


@pytest.mark.slow
def test_a_process_that_is_killed_while_saving_leaves_the_old_file(
    trained: ad.AnnData, tmp_path: Path
) -> None:
    save_h5ad(trained, tmp_path / "cells.h5ad")
    before = (tmp_path / "cells.h5ad").read_bytes()
    script = """
import os, sys, anndata
from centroid_encoder import files
from centroid_encoder.viewer._save import save_h5ad
adata = anndata.read_h5ad(sys.argv[1])
files._flush = lambda path: os._exit(9)
save_h5ad(adata, sys.argv[1])
"""
    done = subprocess.run([sys.executable, "-c", script, tmp_path / "cells.h5ad"], check=False)

    assert done.returncode == 9
    assert (tmp_path / "cells.h5ad").read_bytes() == before


# .zarr


@pytest.mark.parametrize("zarr_format", [None, pytest.param(2, marks=pytest.mark.slow), 3])
def test_a_zarr_comes_back_and_is_replaced(
    zarr_format: int | None, trained: ad.AnnData, unchanged: Unchanged, tmp_path: Path
) -> None:
    path = tmp_path / "cells.zarr"
    if zarr_format is not None:
        old = zarr.open_group(path, mode="w", zarr_format=zarr_format)
        old.attrs["encoding-type"] = "anndata"
        old.create_group("gone")
        path.chmod(0o750)
    trained.X = sparse.csr_matrix(trained.X)
    with unchanged(trained):
        save_zarr(trained, path)
    assert_same(ad.read_zarr(path), trained)
    assert os.listdir(tmp_path) == ["cells.zarr"]
    group = zarr.open_group(path, mode="r")
    assert "gone" not in group
    if zarr_format is not None:
        assert group.metadata.zarr_format == zarr_format
        assert os.name == "nt" or mode(path) == 0o750


def images(path: Path) -> None:
    zarr.open_group(path, mode="w").create_array("0", data=np.eye(3))


@pytest.mark.parametrize(
    ("make", "name", "error", "words"),
    [
        (images, "images.zarr", FileExistsError, "no zarr store of an AnnData"),
        (Path.mkdir, "empty.zarr", FileExistsError, "no zarr store of an AnnData"),
        (Path.touch, "file.zarr", FileExistsError, "no zarr store of an AnnData"),
        (None, "cells.h5", ValueError, r"must end in \.zarr"),
        (None, "gone/cells.zarr", FileNotFoundError, "there is no folder"),
    ],
)
def test_nothing_but_a_table_is_replaced_by_a_zarr(
    make: Any, name: str, error: type[Exception], words: str, cells: ad.AnnData, tmp_path: Path
) -> None:
    if make is not None:
        make(tmp_path / name)
    before = contents(tmp_path)
    with pytest.raises(error, match=words):
        save_zarr(cells, tmp_path / name)
    assert contents(tmp_path) == before


def test_what_a_zarr_cannot_hold_leaves_the_old_one(cells: ad.AnnData, tmp_path: Path) -> None:
    save_zarr(cells, tmp_path / "cells.zarr")
    before = contents(tmp_path)
    cells.uns["odd"] = {"a": (1,)}
    with pytest.raises(ValueError, match=r"cannot hold uns\['odd'\]\['a'\] \(tuple\); change"):
        save_zarr(cells, tmp_path / "cells.zarr")
    assert contents(tmp_path) == before


@pytest.mark.skipif(os.name == "nt", reason="there are no pipes in folders")
@pytest.mark.parametrize("save", [save_h5ad, save_model, save_figure], ids=lambda f: f.__name__)
def test_nothing_but_a_file_is_replaced(
    save: Callable[..., None], trained: ad.AnnData, tmp_path: Path
) -> None:
    what, name = (trained,), "out.h5ad"
    if save is save_model:
        what, name = (trained, "ce"), "out.safetensors"
    if save is save_figure:
        what, name = (plt.figure(),), "out.png"
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / name).symlink_to(tmp_path / "pipe")
    with pytest.raises(OSError, match="is a device, a pipe or a socket, not a file"):
        save(*what, tmp_path / name)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    plt.close("all")


# SpatialData


class Store:
    """What is used of a SpatialData object: tables, and the zarr folder they are in."""

    def __init__(
        self, path: Path, adata: ad.AnnData, *, zarr_format: Any = 3, consolidated: bool = True
    ) -> None:
        self.path: Path | None = path
        self.tables = {"cells": adata, "second": ad.AnnData(np.eye(3))}
        adata.obs["region"] = pd.Categorical(["labels"] * adata.n_obs)
        adata.obs["cell_id"] = np.arange(adata.n_obs) + 1
        adata.uns["spatialdata_attrs"] = {
            "region": ["labels"],
            "region_key": "region",
            "instance_key": "cell_id",
        }
        self.root = zarr.open_group(path, mode="w", zarr_format=zarr_format)
        self.root.create_group("labels").create_array("nuclei", data=np.arange(9).reshape(3, 3))
        self.root.create_group("tables")
        for name in self.tables:
            self.write_element(name)
        if consolidated:
            self.write_consolidated_metadata()

    def write_element(self, name: str) -> None:
        tables = self.root["tables"]
        assert name not in tables
        ad.io.write_elem(tables, name, self.tables[name])
        tables[name].attrs.update(
            {
                "spatialdata-encoding-type": "ngff:regions_table",
                "region": ["labels"],
                "region_key": "region",
                "instance_key": "cell_id",
                "version": "0.2",
            }
        )

    def has_consolidated_metadata(self) -> bool:
        return bool(zarr.open_group(self.path, mode="r").metadata.consolidated_metadata)

    def write_consolidated_metadata(self) -> None:
        zarr.consolidate_metadata(self.path)

    def table(self, name: str = "cells") -> Table:
        return Table(self.tables[name], name, None, "spatialdata", sdata=self, table_name=name)


pytestmark = [
    pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part"),
    pytest.mark.filterwarnings("ignore:zarr v3 autosharding"),
]


@pytest.mark.slow
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("consolidated", [True, False])
def test_a_table_in_a_store_is_updated_and_nothing_else(
    zarr_format: int,
    consolidated: bool,
    trained: ad.AnnData,
    unchanged: Unchanged,
    tmp_path: Path,
) -> None:
    path = tmp_path / "tissue.zarr"
    store = Store(path, trained, zarr_format=zarr_format, consolidated=consolidated)
    before = contents(path)
    attrs = dict(zarr.open_group(path / "tables" / "cells", mode="r").attrs)
    trained.obs["note"] = "new"
    del trained.obs["ce_split"]
    trained.uns["spatialdata_attrs"]["region"] = np.array(["labels", "more"])

    (path / "tables" / "cells").chmod(0o750)

    with unchanged(trained):
        save_table(store.table())

    assert os.name == "nt" or mode(path / "tables" / "cells") == 0o750
    group = zarr.open_group(path, mode="r")
    assert bool(group.metadata.consolidated_metadata) == consolidated
    assert set(group["tables/cells/obs"]) == {*trained.obs, "_index"}
    again = ad.read_zarr(path / "tables" / "cells")
    assert_same(again, trained)
    assert "ce_split" not in again.obs
    found = dict(zarr.open_group(path / "tables" / "cells", mode="r").attrs)
    assert found == attrs | {"region": ["labels", "more"]}
    assert group["tables/cells"].metadata.zarr_format == zarr_format
    after = contents(path)
    ours = {name for name in before | after if str(name).startswith("tables/cells")}
    changed = {name for name in before | after if before.get(name) != after.get(name)} - ours
    assert changed <= {Path("zarr.json"), Path(".zmetadata")}


@pytest.mark.slow
def test_a_table_that_is_not_in_the_store_yet_is_added(trained: ad.AnnData, tmp_path: Path) -> None:
    del trained.obs["donor"]  # whose None AnnData alone would make "None"
    store = Store(tmp_path / "tissue.zarr", trained)
    store.tables["third"] = trained.copy()
    save_table(store.table("third"))
    assert_same(ad.read_zarr(tmp_path / "tissue.zarr" / "tables" / "third"), trained)


def test_what_a_store_cannot_hold_is_named(cells: ad.AnnData, tmp_path: Path) -> None:
    store = Store(tmp_path / "tissue.zarr", cells)
    before = contents(tmp_path)
    cells.uns["odd"] = {"a": (1,)}
    with pytest.raises(ValueError, match=r"cannot hold uns\['odd'\]\['a'\] \(tuple\); change"):
        save_table(store.table())
    assert contents(tmp_path) == before


def is_new(path: Any) -> bool:
    return Path(path).name == "new"


@pytest.mark.parametrize(
    ("n_before", "error"),
    [(0, OSError("gone")), (1, OSError("gone")), (1, KeyboardInterrupt()), (None, OSError("gone"))],
)
def test_an_error_while_a_table_is_updated_leaves_the_old_one_and_no_litter(
    n_before: int | None,
    error: BaseException,
    cells: ad.AnnData,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = Store(tmp_path / "tissue.zarr", cells)
    before = contents(tmp_path)
    rename, replace, renamed = os.rename, os.replace, []

    def fail(*args: Any) -> None:
        if len(renamed) == n_before:
            renamed.append(None)
            raise error
        renamed.append(args)
        rename(*args)

    def fail_flush(path: Path) -> None:
        if n_before is None:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr("os.rename", fail)
        # zarr renames files as well.
        patch.setattr("os.replace", lambda *args: (fail if is_new(args[0]) else replace)(*args))
        patch.setattr("centroid_encoder.files._flush", fail_flush)
        with pytest.raises(type(error)):
            save_table(store.table())

    assert contents(tmp_path) == before
    save_table(store.table())


@pytest.mark.slow
def test_the_only_copy_is_never_deleted(
    trained: ad.AnnData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The disk fails after the old table was moved away, and for good.
    del trained.obs["donor"]
    store = Store(tmp_path / "tissue.zarr", trained)
    rename, replace, n = os.rename, os.replace, iter(range(10))

    def fail(*args: Any) -> None:
        if next(n):
            raise OSError("gone")
        rename(*args)

    with monkeypatch.context() as patch:
        patch.setattr("os.rename", fail)
        # zarr renames files as well.
        patch.setattr("os.replace", lambda *args: (fail if is_new(args[0]) else replace)(*args))
        with pytest.raises(OSError, match="gone"):
            save_table(store.table())

    (old,) = (tmp_path / "tissue.zarr").glob(".centroid-encoder.*/old")
    assert_same(ad.read_zarr(old), trained)


@pytest.mark.parametrize("path", [None, "s3://bucket/tissue.zarr"])
def test_a_store_that_is_no_folder_is_an_error(
    path: str | None, cells: ad.AnnData, tmp_path: Path
) -> None:
    store = Store(tmp_path / "tissue.zarr", cells)
    store.path = path  # type: ignore[assignment]
    with pytest.raises(ValueError, match=r"save the table as \.h5ad"):
        save_table(store.table())


def test_a_table_that_was_replaced_is_an_error(cells: ad.AnnData, tmp_path: Path) -> None:
    store = Store(tmp_path / "tissue.zarr", cells)
    table = store.table()
    store.tables["cells"] = cells.copy()
    before = contents(tmp_path)
    with pytest.raises(ValueError, match="no longer the table that was chosen"):
        save_table(table)
    assert contents(tmp_path) == before


def test_spatialdata_itself_reads_the_store(trained: ad.AnnData, tmp_path: Path) -> None:
    spatialdata = pytest.importorskip("spatialdata", reason="spatialdata is not installed")
    path = tmp_path / "tissue.zarr"
    labels = spatialdata.models.Labels2DModel.parse(np.arange(144).reshape(12, 12))
    Store(tmp_path / "other.zarr", trained)  # annotates the table
    model = spatialdata.models.TableModel.parse(trained)
    spatialdata.SpatialData(labels={"labels": labels}, tables={"cells": model}).write(path)
    sdata = spatialdata.read_zarr(path)
    adata = sdata.tables["cells"]
    adata.obs["note"] = "new"
    table = Table(adata, "cells", None, "spatialdata", sdata=sdata, table_name="cells")

    save_table(table)

    again = spatialdata.read_zarr(path)
    assert_same(again.tables["cells"], adata)
    assert again.tables["cells"].uns["spatialdata_attrs"]["instance_key"] == "cell_id"
    assert sdata.has_consolidated_metadata()
    again.delete_element_from_disk("cells")
    assert not spatialdata.read_zarr(path).tables


# Model and figure


def test_a_model_comes_back(trained: ad.AnnData, tmp_path: Path) -> None:
    save_model(trained, "ce", tmp_path / "map.safetensors")

    model = ce.load(tmp_path / "map.safetensors", device="cpu")
    x = pd.DataFrame(trained.X, columns=trained.var_names)
    expected = ce.tl.fitted_model(trained, device="cpu").transform(x)
    np.testing.assert_array_equal(model.transform(x), expected)
    assert list(model.feature_names_in_) == list(trained.var_names)


def test_a_model_that_cannot_be_saved_is_an_error(trained: ad.AnnData, tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="no map 'other'"):
        save_model(trained, "other", tmp_path / "map.safetensors")
    with pytest.raises(ValueError, match=r"must end in \.safetensors"):
        save_model(trained, "ce", tmp_path / "map.h5ad")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        save_model(trained, "ce", tmp_path / "nowhere" / "map.safetensors")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("name", "start"), [("map.png", b"\x89PNG"), ("map.PDF", b"%PDF"), ("map.svg", b"<?xml")]
)
def test_a_figure_has_the_format_of_its_name(name: str, start: bytes, tmp_path: Path) -> None:
    figure, _ = plt.subplots()
    save_figure(figure, tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)
    assert os.listdir(tmp_path) == [name]


def test_a_figure_in_no_format_is_an_error(tmp_path: Path) -> None:
    figure, _ = plt.subplots()
    with pytest.raises(ValueError, match=r"\.png"):
        save_figure(figure, tmp_path / "map.docx")


def test_a_file_is_complete_hdf5(trained: ad.AnnData, tmp_path: Path) -> None:
    save_h5ad(trained, tmp_path / "cells.h5ad")
    with h5py.File(tmp_path / "cells.h5ad") as file:
        assert file.attrs["encoding-type"] == "anndata"
        assert "probe" not in file

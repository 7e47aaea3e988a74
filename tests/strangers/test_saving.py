"""What people keep in their tables is saved, or its name and the cure are said."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import anndata as ad
import h5py
import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse

from centroid_encoder.tables import UnwritableError, check_writable, writable
from centroid_encoder.viewer._save import save_h5ad, save_zarr

pytestmark = [
    pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part"),
    pytest.mark.filterwarnings("ignore:zarr v3 autosharding"),
]
SAVE = {"cells.h5ad": (save_h5ad, ad.read_h5ad), "cells.zarr": (save_zarr, ad.read_zarr)}
MIXED = [1, "a", None] * 40


def put_everything(adata: ad.AnnData) -> None:
    """Add what anndata reads or holds in memory, but does not write."""
    obs, n = adata.obs, adata.n_obs
    obs["_index"] = adata.obs_names
    obs["mixed"] = pd.Series(MIXED, obs.index, dtype=object)
    obs["doublet"] = pd.Series([True, False, np.nan] * 40, obs.index, dtype=object)
    obs["day"] = pd.Timestamp("2024-01-01") + pd.to_timedelta(np.arange(n), unit="D")
    obs["bin"] = pd.cut(np.arange(n), 4)
    obs["donor"] = pd.Series(["a", None, "b"] * 40, obs.index, dtype=object)
    obs[0] = 1.0
    adata.obsm["table"] = pd.DataFrame({1: MIXED, "x": np.arange(n)}, index=obs.index)
    adata.var["gene_ids"] = [f"E{i}" for i in range(adata.n_vars)]
    adata.var.index.name = "gene_ids"
    raw = adata.copy()
    raw.var["_index"] = raw.var_names
    raw.varm["loadings"] = np.ones((adata.n_vars, 2))
    adata.raw = raw
    adata.uns["filters"] = (("min", 3), ("max", 5))
    adata.uns["colors"] = {1: "red", "a/b": "blue"}
    adata.uns["made"] = {"by": Path("run.py"), "on": datetime.date(2024, 5, 1)}
    adata.uns["means"] = pd.Series([1.5, 2.5], index=["x", "y"])


@pytest.mark.parametrize("name", SAVE)
def test_what_a_file_can_hold_in_another_form_is_converted(
    name: str, cells: ad.AnnData, unchanged: Callable[[ad.AnnData], Any], tmp_path: Path
) -> None:
    save, read = SAVE[name]
    put_everything(cells)
    with unchanged(cells):
        save(cells, tmp_path / name)
    found = read(tmp_path / name)
    assert found.obs["index"].tolist() == cells.obs_names.tolist()
    assert found.obs["mixed"].astype(object).fillna("?").tolist() == ["1", "a", "?"] * 40
    assert found.obs["doublet"].fillna(False).astype(bool).tolist() == [True, False, False] * 40
    assert found.obs["day"].astype(str).tolist()[:2] == ["2024-01-01", "2024-01-02"]
    assert found.obs["bin"].cat.ordered
    assert len(found.obs["bin"].cat.categories) == 4
    assert found.obs["donor"].astype(object).fillna("?").tolist() == ["a", "?", "b"] * 40
    assert (found.obs["0"] == 1).all()
    assert found.obsm["table"]["x"].tolist() == list(range(cells.n_obs))
    assert found.var["gene_ids"].tolist()[1] == "E1"
    assert found.raw.varm["loadings"].shape == (cells.n_vars, 2)
    assert found.uns["filters"].tolist() == [["min", "3"], ["max", "5"]]
    assert found.uns["colors"] == {"1": "red", "a|b": "blue"}
    assert found.uns["made"] == {"by": "run.py", "on": "2024-05-01"}
    assert found.uns["means"].iloc[:, 0].to_dict() == {"x": 1.5, "y": 2.5}


def put_lists(adata: ad.AnnData) -> None:
    adata.obs["polygon"] = [np.zeros((3, 2))] * adata.n_obs


def put_steps(adata: ad.AnnData) -> None:
    adata.uns["log"] = {"steps": [{"a": 1}], "n": 1}


def put(slot: str, key: Any, value: Any) -> Callable[[ad.AnnData], None]:
    def change(adata: ad.AnnData) -> None:
        getattr(adata, slot)[key] = value

    return change


def put_itself(adata: ad.AnnData) -> None:
    adata.uns["log"] = loop = {"n": 1}
    loop["self"] = loop  # type: ignore[assignment]


N = 120
UNWRITABLE: dict[str, Callable[[ad.AnnData], None]] = {
    "obs['polygon']": put_lists,
    "uns['log']['steps']": put_steps,
    "uns['log']": put_itself,
    "uns['module']": put("uns", "module", np),
    "uns['ragged']": put("uns", "ragged", [np.zeros((2, 2)), np.zeros((2, 3))]),
    "uns['text']": put("uns", "text", "a\0b"),
    "obs['text']": put("obs", "text", ["a\0b"] * N),
    "uns['codes']": put("uns", "codes", "\udc80"),
    "obs['.']": put("obs", ".", 1),
    "obs['']": put("obs", "", 1),
    "layers['..']": put("layers", "..", np.ones((N, 8))),
    "uns['a']['zarr.json']": put("uns", "a", {"zarr.json": 1}),
    "uns['a']['b|c']": put("uns", "a", {"b/c": 1, "b|c": 2}),
    "uns['a'][1]": put("uns", "a", {"1": "x", 1: "y"}),
    "obs['b|c']": lambda adata: (put("obs", "b/c", 1)(adata), put("obs", "b|c", 2)(adata))[0],
    "uns['wide']": put("uns", "wide", pd.DataFrame(np.zeros((1, 5000)))),
}


@pytest.mark.parametrize("part", UNWRITABLE)
def test_what_no_file_can_hold_is_named_and_can_be_left_out(
    part: str, cells: ad.AnnData, tmp_path: Path
) -> None:
    UNWRITABLE[part](cells)
    with pytest.raises(UnwritableError, match=r"\w; \w.* or save without it$") as e:
        check_writable(cells)
    assert e.value.parameter == part
    assert str(e.value).startswith(part)
    with pytest.raises(UnwritableError):
        save_h5ad(cells, tmp_path / "cells.h5ad")
    assert not list(tmp_path.iterdir())
    save_h5ad(cells, tmp_path / "cells.h5ad", {part})
    found = ad.read_h5ad(tmp_path / "cells.h5ad")
    assert not {"polygon", "text", "codes", ".", ""} & set(found.obs)
    assert found.uns.get("log", {"n": 1}) == {"n": 1}


DAYS = pd.date_range("2024-01-01", periods=N)
TUPLES = pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")])
CONVERTED: dict[str, tuple[str, Any, Any]] = {
    "sparse matrix": ("uns", sparse.coo_matrix(np.eye(2)), [[1, 0], [0, 1]]),
    "tensor": ("uns", torch.ones(2), [1, 1]),
    "masked": ("uns", np.ma.masked_equal([1.0, 2.0], 2), [1, np.nan]),
    "long double": ("uns", np.ones(2, dtype=np.longdouble), [1, 1]),
    "objects": ("uns", np.array([1, None], dtype=object), [1, np.nan]),
    "dates": ("uns", DAYS[:1].values, ["2024-01-01"]),
    "large": ("uns", 2**64, "18446744073709551616"),
    "columns of two levels": ("uns", pd.DataFrame([[1, 2]], columns=TUPLES), [[1, 2]]),
    "rows of two levels": ("uns", pd.DataFrame({"x": [1, 2]}, index=TUPLES), [[1], [2]]),
    "dates of rows": ("uns", pd.DataFrame({"x": [1]}, index=DAYS[:1]), [[1]]),
    "arrow": ("obs", pd.array([1] * N, dtype="int64[pyarrow]"), [1] * N),
    "arrow dates": ("obs", DAYS.astype("timestamp[ns][pyarrow]"), DAYS.strftime("%Y-%m-%d")),
    "large codes": ("obs", pd.Categorical([2**64] * N), ["18446744073709551616"] * N),
    "ids": ("obs", pd.array(DAYS.astype(str), dtype="string"), DAYS.astype(str)),
    "long doubles": ("obs", np.ones(N, dtype=np.longdouble), [1] * N),
    "numbers": ("obsm", np.ones((N, 2), dtype=object), np.ones((N, 2))),
    "counts": ("layers", np.ones((N, 8), dtype=object), np.ones((N, 8))),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, "cells.h5ad") for kind in CONVERTED),
        *((kind, "cells.zarr") for kind in ("sparse matrix", "rows of two levels", "arrow dates")),
    ],
)
def test_what_the_check_accepts_is_written_and_read(
    kind: str, name: str, cells: ad.AnnData, tmp_path: Path
) -> None:
    save, read = SAVE[name]
    slot, value, expected = CONVERTED[kind]
    getattr(cells, slot)["a/b"] = value
    cells.obs.index.name = 3  # type: ignore[assignment]
    check_writable(cells)
    save(cells, tmp_path / name)
    found = getattr(read(tmp_path / name), slot)["a|b"]
    found = found.toarray() if sparse.issparse(found) else np.asarray(found)
    if kind in ("dates", "arrow dates"):  # Their text depends on the version of pandas.
        found = [day[:10] for day in found]
    np.testing.assert_array_equal(found, np.asarray(expected))


def test_the_check_reads_no_matrix(cells: ad.AnnData, tmp_path: Path) -> None:
    cells.layers["counts"] = cells.X.copy()
    cells.write_h5ad(path := tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(path, backed="r")
    backed.file.close()
    with h5py.File(path, "a") as file:
        del file["X"]
    check_writable(backed)


def test_two_columns_of_one_name_are_named(cells: ad.AnnData) -> None:
    cells.obs = pd.concat([cells.obs, cells.obs], axis=1)
    for function in (check_writable, writable):
        with pytest.raises(ValueError, match="have one name in a file; rename or drop"):
            function(cells)


@pytest.mark.parametrize(
    "values", [[10, 9, 100], [1.5, None, 3], [Decimal("1.5"), Decimal(2), None], [2**70, 1, 2]]
)
def test_numbers_in_a_column_of_objects_stay_numbers(values: list[Any], tmp_path: Path) -> None:
    obs = pd.DataFrame({"x": pd.Series(values, ["a", "b", "c"], dtype=object)})
    adata = ad.AnnData(np.ones((3, 1)), obs=obs)
    check_writable(adata)
    writable(adata).write_h5ad(tmp_path / "new.h5ad")
    found = ad.read_h5ad(tmp_path / "new.h5ad").obs["x"]
    assert [None if pd.isna(x) else float(x) for x in found] == [x and float(x) for x in values]

"""No file outside a store is copied."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result
from sklearn.datasets import load_iris

from centroid_encoder.cli import cli

pytest.importorskip("zarr")
pytestmark = [
    pytest.mark.skipif(os.name == "nt", reason="Windows has no such links"),
    pytest.mark.filterwarnings("ignore:zarr v3 autosharding:UserWarning"),
]
LEARN = ("--label-key", "species", "--max-epochs", "1", "-q")


def irises(scale: float = 1) -> ad.AnnData:
    """Measured flowers with their species; `scale` changes all but the species."""
    iris = load_iris()
    X = (scale * iris.data).astype("f4")
    obs = pd.DataFrame(
        {"species": iris.target_names[iris.target]}, index=[f"{scale} {i}" for i in range(150)]
    )
    var = pd.DataFrame({"mean": X.mean(axis=0)}, index=["sl", "sw", "pl", "pw"])
    return ad.AnnData(X, obs=obs, var=var, layers={"squared": X**2})


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Working directory with flowers in ``in.h5ad`` and ``in.zarr``."""
    monkeypatch.chdir(tmp_path)
    irises().write_h5ad("in.h5ad")
    irises().write_zarr("in.zarr")
    return tmp_path


def run(*command: str) -> Result:
    return CliRunner().invoke(cli, list(command))


def state(folder: Path) -> dict[str, Any]:
    """Bytes, permissions and times of the files in a folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else None
        time = path.stat().st_mtime_ns if path.is_file() else None
        found[str(path)] = content, path.lstat().st_mode, time
    return found


def chunk(store: Path) -> str:
    """Where the numbers of X are, within a store."""
    files = [path for path in (store / "X").rglob("*") if path.is_file()]
    return str(max(files, key=lambda path: path.stat().st_size).relative_to(store))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "role"),
    [("layers/squared", "fit"), ("a chunk of X", "ingest"), ("layers/squared", "reference")],
)
def test_a_link_out_of_a_store_is_refused_and_nothing_is_copied(
    part: str, role: str, folder: Path
) -> None:
    if role in ("ingest", "reference"):
        assert run("fit", "in.zarr", *LEARN, "-o", "map.zarr").exit_code == 0
    shutil.copytree("map.zarr" if role == "reference" else "in.zarr", "linked.zarr")
    # The secret is in the same folder, so that a copy of it beside would be found.
    irises(scale=np.e).write_zarr("secret")
    if part == "a chunk of X":
        part = chunk(Path("linked.zarr"))
    secret, link = folder / "secret" / part, Path("linked.zarr", part)
    shutil.rmtree(link) if link.is_dir() else link.unlink()
    link.symlink_to(secret)
    before = state(folder)

    lines = {
        "fit": ("fit", "linked.zarr", *LEARN),
        "ingest": ("ingest", "linked.zarr", "--reference", "map.zarr", "-q"),
        "reference": ("ingest", "in.zarr", "--reference", "linked.zarr", "-q"),
    }
    result = run(*lines[role], "-o", "out.zarr")

    assert result.exit_code == 1, result.output
    assert (
        result.stderr
        == f"Error: {link} is a symbolic link; put a copy of its target in its place\n"
    )
    assert state(folder) == before


@pytest.mark.parametrize("part", ["", "X"])
def test_the_viewer_saves_no_table_over_one_with_a_link(part: str, folder: Path) -> None:
    import zarr

    saving = pytest.importorskip("centroid_encoder.viewer._save")
    for store in ("tissue.zarr", "secret"):
        root = zarr.open_group(store, mode="w", zarr_format=3)
        ad.io.write_elem(root.create_group("tables"), "cells", irises())
        root["tables/cells"].attrs["secret"] = store
    link = folder / "tissue.zarr/tables/cells" / part
    shutil.rmtree(link) if link.is_dir() else link.unlink()
    link.symlink_to(folder / "secret/tables/cells" / part)
    adata = irises()
    sdata = SimpleNamespace(
        path=folder / "tissue.zarr",
        tables={"cells": adata},
        has_consolidated_metadata=lambda: False,
    )
    before = state(folder)

    with pytest.raises(OSError, match=r"tables/cells.* is a symbolic link"):
        saving.save_table(SimpleNamespace(sdata=sdata, table_name="cells", adata=adata))

    assert state(folder) == before

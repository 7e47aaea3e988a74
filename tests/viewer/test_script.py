"""Copy as Python: the script runs without a viewer and makes the same results."""

import ast
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anndata as ad
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import centroid_encoder as ce
from centroid_encoder.viewer._save import save_h5ad
from centroid_encoder.viewer.data.tables import Table
from centroid_encoder.viewer.session.labeling import Labeling
from centroid_encoder.viewer.session.provenance import as_python


def run(script: str, folder: Path) -> None:
    """Run a script in another process, with one thread as here."""
    env = os.environ | {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def in_file(path: Path, adata: ad.AnnData) -> Table:
    return Table(adata, path.name, None, "file", path=path)


def calls(script: str) -> dict[str, ast.Call]:
    """Return all calls of a script by the name of the function."""
    return {
        ast.unparse(node.func): node
        for node in ast.walk(ast.parse(script))
        if isinstance(node, ast.Call)
    }


def keywords(call: ast.Call) -> dict[str, Any]:
    return {word.arg: ast.literal_eval(word.value) for word in call.keywords if word.arg}


@pytest.mark.slow
def test_the_script_makes_the_same_map_of_corrected_labels(cells, tmp_path):
    arguments = {"layer": "scaled", "mask_var": "chosen", "missing": "drop", "group_key": "donor"}
    arguments |= {"unlabeled_category": "type 2", "test_size": 0.3, "random_state": 7}
    cells.obs["donor"] = [f"donor{i % 5}" for i in range(cells.n_obs)]
    cells.var["chosen"] = [True, False] * 4
    cells.layers["scaled"] = cells.X * 2
    cells.X[3, 4] = cells.layers["scaled"][5, 1] = np.nan
    corrections = Labeling(cells, "cell_type_relabeled", "cell_type")
    corrections.assign([0, 1, 5, 7, 8, 11], "something new")
    path = tmp_path / "cells of O'Neil.h5ad"
    save_h5ad(cells, path)
    adata = ad.read_h5ad(path)
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=4, dropout=0.1, class_weight="balanced")
    ce.tl.centroid_encoder(
        adata, corrections.column, model=model, key_added="map", progress=False, **arguments
    )

    script = as_python(in_file(path, adata), "map")
    assert "made by hand" in script
    run(script, tmp_path)

    again = ad.read_h5ad(tmp_path / "cells of O'Neil_map.h5ad")
    np.testing.assert_array_equal(again.obsm["map"], adata.obsm["map"])
    assert list(again.obs["map_split"]) == list(adata.obs["map_split"])


def test_a_check_follows_the_training(cells, fast):
    weights = {"type 0": 2.0, "type 1": 1.0, "type 2": 1.0}
    model = ce.CentroidEncoder(hidden=(8,), max_epochs=1, class_weight=weights)
    ce.tl.cross_validate(cells, "cell_type", n_folds=2, model=model, progress=False)
    alone = as_python(in_file(Path("x.h5ad"), cells), "ce")
    assert set(calls(alone)) == {
        *("ad.read_h5ad", "ce.tl.cross_validate", "ce.CentroidEncoder", "adata.write_h5ad")
    }
    assert keywords(calls(alone)["ce.CentroidEncoder"])["class_weight"] == weights
    ce.tl.centroid_encoder(cells, "cell_type", n_components=4, model=fast, progress=False)
    both = as_python(in_file(Path("x.h5ad"), cells), "ce")
    assert both.index("ce.tl.centroid_encoder(") < both.index("ce.tl.cross_validate(")
    # A map with four components is not drawn.
    assert "ce.pl.voronoi" not in both


def test_the_map_of_a_placement_is_read_from_the_file_of_its_table(cells, fast):
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
    new = cells[:30].copy()
    ce.tl.ingest(new, cells, progress=False)
    new.uns["ce"]["params"]["ingested_from"] = "map.h5ad"
    tables = in_file(Path("far/away/map.h5ad"), cells), in_file(Path("new.h5ad"), new)
    assert "ce.tl.ingest(adata, 'far/away/map.h5ad'" in as_python(tables[1], "ce", tables)
    assert "insert the name of its file" in as_python(tables[1], "ce")


@pytest.mark.parametrize("store", ["tissue.zarr", None])
def test_a_table_without_a_file(store):
    sdata = SimpleNamespace(path=store and Path(store))
    table = Table(ad.AnnData(), "cells", None, "spatialdata", sdata=sdata, table_name="cells")
    script = as_python(table, "ce")
    ast.parse(script)
    assert ("sd.read_zarr('tissue.zarr').tables['cells']" in script) == (store is not None)
    assert ("# The table 'cells' is in no file" in script) == (store is None)


# Any names of files, layers and columns

names = st.text(st.characters(exclude_categories=[]), min_size=1).filter(lambda s: "\0" not in s)


@given(name=names, label=names, group=names, is_file=st.booleans())
def test_names_are_quoted(name, label, group, is_file):
    path = Path("folder") / f"x{name.replace('/', '')}.h5ad" if is_file else None
    adata = ad.AnnData(uns={"ce": {"params": {"label_key": label, "group_key": group}}})
    adata.uns["ce"] |= {"classes": ["a"], "centers": np.zeros((1, 2)), "model": MODEL}
    script = as_python(Table(adata, name, None, "file", path=path), "ce")
    found = calls(script)
    assert set(found) == {
        *("ad.read_h5ad", "ce.tl.centroid_encoder", "ce.pl.voronoi", "adata.write_h5ad")
    }
    training = found["ce.tl.centroid_encoder"]
    assert ast.literal_eval(training.args[1]) == label
    assert keywords(training) == {"group_key": group}
    if path is not None:
        assert ast.literal_eval(found["ad.read_h5ad"].args[0]) == str(path)


MODEL = {"config": '{"estimator": {"params": {}}}', "arrays": {}}


def test_the_script_places_cells_by_the_values_that_were_chosen(cells, fast, tmp_path):
    cells.obsm["X_pca"] = cells.X[:, :5].copy()
    query = cells[::2].copy()
    ce.tl.centroid_encoder(cells, "cell_type", use_rep="X_pca", model=fast, progress=False)
    ce.tl.ingest(query, cells, use_rep="X_pca", progress=False)
    ingest = calls(as_python(in_file(tmp_path / "query.h5ad", query), "ce"))["ce.tl.ingest"]
    assert keywords(ingest) == {"use_rep": "X_pca"}

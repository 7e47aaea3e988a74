"""Tables of other programs: each column has the right role, and no cell moves."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import centroid_encoder as ce
from centroid_encoder.viewer.data.reader import read_table
from tests.strangers.exporters import EXPORTERS, N


@pytest.mark.parametrize("name", EXPORTERS)
@pytest.mark.parametrize("kind", [".csv", ".csv.gz"])
def test_each_column_has_its_role(name: str, kind: str, tmp_path: Path) -> None:
    exporter, path = EXPORTERS[name], tmp_path / f"cells{kind}"
    if kind == ".csv":
        path.write_bytes(exporter.text())
    else:
        import gzip

        path.write_bytes(gzip.compress(exporter.text()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adata = ce.read_table(path)
    found = adata.uns["column_roles"].set_index("column")["role"].to_dict()
    roles = {column.strip(): role for column, role in exporter.roles.items()}
    roles = {column or "Unnamed: 0": role for column, role in roles.items()}
    # A first column of unique texts has the names of the cells.
    names = roles.keys() - found.keys()
    assert found == {column: role for column, role in roles.items() if column not in names}
    features = [column for column, role in roles.items() if role == "feature"]
    assert adata.var_names.tolist() == features
    table = exporter.table().rename(columns=str.strip)
    assert_allclose(adata.X, table[features].to_numpy(float))
    for column in names:
        assert adata.obs_names.tolist() == table[column].tolist()
    seen, _ = read_table(path)
    assert seen.var_names.tolist() == features
    pd.testing.assert_frame_equal(seen.obs, adata.obs)


def test_roles_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_bytes(EXPORTERS["CellProfiler"].text())
    adata = ce.read_table(path, roles={"ImageNumber": "feature", "AreaShape_Area": "class"})
    assert "ImageNumber" in adata.var_names
    assert "AreaShape_Area" not in adata.var_names
    assert "AreaShape_Area" in adata.obs
    for roles, words in [
        ({"Image": "id"}, "no column 'Image'"),
        ({"ImageNumber": "measurement"}, "'measurement' is no role"),
        ({"Metadata_Well": "feature"}, "holds no numbers"),
    ]:
        with pytest.raises(ValueError, match=words):
            ce.read_table(path, roles=roles)


ROW = np.arange(300)
NO_MEASUREMENT = {
    "Unnamed: 0": ROW,
    "number": ROW + 7,
    "ImageNumber": ROW // 100 + 1,
    "tile": ROW // 10,
    "mystery": ROW // 60,
    "Parent_Cells": ROW % 100,
    "track_id": ROW // 5,
    "code": (ROW // 100 + 1) % 3,
    "EntityID": 1650610800000 + 3 * ROW,
    "x": ROW / 3,
    "Centroid X µm": ROW / 9,
    "leiden": (ROW // 100 + 1) % 3,
    "patient": ROW // 100 * 1.0,
    "Time": ROW / 300,
    "UMAP_1": ROW / 30,
    "Probability of B": (ROW < 100) * 0.9,
}


@pytest.mark.parametrize("name", NO_MEASUREMENT)
def test_a_column_that_is_no_measurement_is_no_feature(name: str, tmp_path: Path) -> None:
    """Cells that are sorted by class would be separated by these columns."""
    rng = np.random.default_rng(0)
    noise = pd.DataFrame(rng.normal(size=(300, 6))).add_prefix("marker")
    table = noise.assign(**{name: NO_MEASUREMENT[name]}, cell_type=np.repeat(["B", "T", "NK"], 100))
    table.to_csv(tmp_path / "cells.csv", index=False)
    adata = ce.read_table(tmp_path / "cells.csv")
    assert adata.var_names.tolist() == noise.columns.tolist()


def test_no_gene_of_a_count_matrix_is_lost(tmp_path: Path) -> None:
    """Genes may be equal, constant, whole, rare, and named like many things."""
    rng = np.random.default_rng(0)
    names = ["CD3", "T", "SET", "TMA7", "MAX", "ID1", "CLU", "AREG", "C3", "empty", "flat", "last"]
    genes = pd.DataFrame(rng.poisson(0.7, (90, len(names))), columns=names)
    genes["empty"], genes["flat"], genes["last"] = 0, 3, np.arange(90) >= 87
    genes = genes.astype(int).assign(twin=genes["CD3"])
    genes.insert(0, "cell", [f"cell{i}" for i in range(90)])
    genes["cell_type"] = np.repeat(["B", "T"], 45)
    genes.to_csv(tmp_path / "counts.csv", index=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        adata = ce.read_table(tmp_path / "counts.csv")
    assert adata.var_names.tolist() == [*names, "twin"]
    assert adata.obs_names[0] == "cell0"


def test_a_measurement_in_doubt_stays_and_is_named(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(N, 4))).add_prefix("marker")
    table["grade"] = rng.integers(0, 4, N)
    table.to_csv(tmp_path / "cells.csv", index=False)
    with pytest.warns(UserWarning, match="'grade' holds whole numbers"):
        assert "grade" in ce.read_table(tmp_path / "cells.csv").var_names

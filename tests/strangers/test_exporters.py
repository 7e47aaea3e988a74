"""Tables of other programs: each column has the right role, and no cell moves."""

from __future__ import annotations

import gzip
import warnings
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from numpy.testing import assert_allclose

import centroid_encoder as ce
from benchmarks import datasets
from centroid_encoder.errors import InputError
from centroid_encoder.tables import column_roles
from tests.strangers.exporters import EXPORTERS, N


def read(path: Path, **kwargs: object) -> AnnData:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ce.read_table(path, **kwargs)


def roles(adata: AnnData) -> dict[str, str]:
    return adata.uns["column_roles"].set_index("column")["role"].to_dict()


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPORTERS)
def test_each_column_has_its_role(name: str, tmp_path: Path) -> None:
    exporter, path = EXPORTERS[name], tmp_path / "cells.csv"
    path.write_bytes(exporter.text())
    adata = read(path)
    expected = {column.strip() or "Unnamed: 0": role for column, role in exporter.roles.items()}
    # A first column of unique texts has the names of the cells.
    names = expected.keys() - roles(adata).keys()
    assert roles(adata) == {x: role for x, role in expected.items() if x not in names}
    found = adata.uns["column_roles"]
    assert set(found["role"][found["doubt"]]) <= {"feature", "position"}
    features = [column for column, role in expected.items() if role == "feature"]
    assert adata.var_names.tolist() == features
    table = exporter.table().rename(columns=str.strip)
    assert_allclose(adata.X, table[features].to_numpy(float))
    for column in names:
        assert adata.obs_names.tolist() == table[column].tolist()


def test_the_widget_reads_the_same(tmp_path: Path) -> None:
    from centroid_encoder.viewer.data.reader import read_table

    path = tmp_path / "cells.csv.gz"
    path.write_bytes(gzip.compress(EXPORTERS["Harmony"].text()))
    seen, notice = read_table(path)
    adata = read(path)
    assert seen.var_names.tolist() == adata.var_names.tolist()
    pd.testing.assert_frame_equal(seen.obs, adata.obs)
    assert "lines above the header" in notice


def test_roles_that_are_no_mapping_are_named(tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_text("a,b\n1.5,2.5\n2.5,3.5\n")
    with pytest.raises(TypeError, match="roles must map columns to roles"):
        ce.read_table(tmp_path / "cells.csv", roles="x")  # type: ignore[arg-type]


def test_roles_can_be_chosen(tmp_path: Path) -> None:
    path = tmp_path / "cells.csv"
    path.write_bytes(EXPORTERS["CellProfiler"].text())
    adata = read(path, roles={"ImageNumber": "feature", "AreaShape_Area": "class"})
    assert "ImageNumber" in adata.var_names
    assert "AreaShape_Area" not in adata.var_names
    assert "AreaShape_Area" in adata.obs
    for chosen, words in [
        ({"Image": "id"}, "no column 'Image'"),
        ({"ImageNumber": "measurement"}, "'measurement' is no role"),
        ({"Metadata_Well": "feature"}, "holds no numbers"),
    ]:
        with pytest.raises(ValueError, match=words):
            read(path, roles=chosen)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("fov,cell_ID,Area", "squidpy.read.nanostring"),
        ("fov,volume,center_x", "squidpy.read.vizgen"),
        ("cell,Blank-1,Pdk4", "squidpy.read.vizgen"),
        ("cell_id,transcript_counts,cell_area", "spatialdata_io.xenium"),
        ("ImageNumber,Group_Index,Count_Cells", "one row per image"),
    ],
)
def test_a_part_of_an_export_names_the_reader(columns: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "part.csv"
    path.write_text(f"{columns}\n1,2,3.5\n2,1,4.5\n")
    with pytest.warns(UserWarning, match=words):
        ce.read_table(path)


# -- one column that is no measurement ---------------------------------------------------------

ROW = np.arange(300)
NO_MEASUREMENT = {
    "Unnamed: 0": ROW,
    "number": ROW + 7,
    "ImageNumber": ROW // 100 + 1,
    "tile": ROW // 10,
    "mystery": ROW // 60,
    "Parent_Cells": ROW % 100,
    "Nuclei_Parent_Cells": ROW % 100,
    "track_id": ROW // 5,
    "code": (ROW // 100 + 1) % 3,
    "dose": (ROW // 100 + 1) % 3 / 8,
    "EntityID": 1650610800000 + 3 * ROW,
    "x": ROW / 3,
    "Centroid X µm": ROW / 9,
    "Cells_Location_CenterMassIntensity_X_DNA": ROW / 9,
    "leiden": (ROW // 100 + 1) % 3,
    "patient": ROW // 100 * 1.0,
    "Time": ROW / 300,
    "UMAP_1": ROW / 30,
    "Probability of B": (ROW < 100) * 0.9,
    "Confidence": (ROW < 100) * 0.9,
    "CD3 Positive": ROW // 150,
    # These are features, and named in a warning.
    "seconds": ROW * 0.25,
    "backwards": 300 - ROW,
    "grade": ROW * 7 % 5,
    "serial": ROW * 7 % 300 + 4000,
}


@pytest.mark.parametrize("name", NO_MEASUREMENT)
def test_a_column_that_is_no_measurement_is_no_feature(name: str, tmp_path: Path) -> None:
    """Cells that are sorted by class would be separated by these columns."""
    rng = np.random.default_rng(0)
    noise = pd.DataFrame(rng.normal(size=(300, 6))).add_prefix("marker")
    table = noise.assign(**{name: NO_MEASUREMENT[name]}, cell_type=np.repeat(["B", "T", "NK"], 100))
    table.to_csv(tmp_path / "cells.csv", index=False)
    if list(NO_MEASUREMENT).index(name) < list(NO_MEASUREMENT).index("grade"):
        adata = ce.read_table(tmp_path / "cells.csv")
        assert adata.var_names.tolist() == noise.columns.tolist()
    else:
        with pytest.warns(UserWarning, match=f"no measurements, but features: {name!r}"):
            adata = ce.read_table(tmp_path / "cells.csv")
        assert name in adata.var_names


# -- no measurement is lost --------------------------------------------------------------------

PLATFORMS = {
    "CosMx": (["fov", "cell_ID"], ["AATK", "ABL1", "TMA7", "NegPrb1"]),
    "MERSCOPE": (["cell"], ["PDK4", "CX3CL1", "Blank-1"]),
    "Xenium": (["cell_id"], ["ABCC11", "ACTA2", "NegControlProbe_00042"]),
    "10x with antibodies": (["barcode"], ["MS4A1", "CD3_TotalSeqB", "HLA-DRA"]),
    "Visium": (["spot"], ["Xkr4", "mt-Nd1", "Gm1992", "Rp1"]),
}
GENES = ["T", "MAX", "ID1", "TIMELESS", "AREG", "SET", "C3", "CLU", "POS", "TAG1", "RUN", "PC"]


@pytest.mark.parametrize("name", PLATFORMS)
def test_no_gene_of_a_count_matrix_is_lost(name: str, tmp_path: Path) -> None:
    """Genes may be equal, constant, whole, rare, and named like many things."""
    rng = np.random.default_rng(0)
    others, genes = PLATFORMS[name]
    names = [*genes, *GENES, "empty", "flat", "last", "twin"]
    counts = pd.DataFrame(rng.poisson(0.7, (90, len(names))), columns=names)
    counts["empty"], counts["flat"], counts["last"] = 0, 3, np.arange(90) >= 87
    counts = counts.astype(int).assign(twin=counts["T"])
    ids = {x: [f"c{i}-1" for i in range(90)] for x in others}
    ids |= {
        "fov": np.arange(90) // 30 + 1,
        "cell_ID": np.arange(90) % 30 + 1,
        "cell": 6141551 + ROW[:90],
    }
    for column in others[::-1]:
        counts.insert(0, column, ids[column])
    counts["cell_type"] = np.repeat(["B", "T"], 45)
    counts.to_csv(tmp_path / "counts.csv", index=False)
    assert read(tmp_path / "counts.csv").var_names.tolist() == names


@pytest.mark.skipif(datasets.data_folder() is None, reason="NO DATA FOLDER: set CE_DATA")
def test_no_gene_of_real_data_is_lost(tmp_path: Path) -> None:
    counts = datasets.read_h5ad("pbmc_3tech/pbmc_3tech.h5ad")[:100, :1000].to_df()
    counts.to_csv(tmp_path / "counts.csv")
    assert read(tmp_path / "counts.csv").var_names.tolist() == counts.columns.tolist()


def test_a_table_in_parquet(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow, of the extra parquet, is absent")
    table = EXPORTERS["Xenium"].table()
    table["cell_id"] = table["cell_id"].str.encode("utf-8")
    table["cell_area"] = [Decimal(str(x)) for x in table["cell_area"]]
    table["vertices"] = [[1, 2]] * N
    table.to_parquet(tmp_path / "cells.parquet")
    adata = read(tmp_path / "cells.parquet")
    assert {"transcript_counts", "cell_area"} <= set(adata.var_names)
    assert adata.obs["vertices"].iloc[0] == "[1 2]"
    assert adata.var_names[0] == "transcript_counts"
    assert adata.obs_names[0] == table["cell_id"][0].decode()
    table.set_index("cell_id").to_parquet(tmp_path / "cells.parquet")
    assert read(tmp_path / "cells.parquet").obs_names.equals(adata.obs_names)
    (tmp_path / "cells.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="or damaged"):
        read(tmp_path / "cells.parquet")


def test_measurements_of_whole_numbers_are_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(N, 4))).add_prefix("marker")
    names = ["area", "n_spots", "Children_Spots_Count", "Max", "X141", "Cells - Number of Spots"]
    for name in names:
        table[name] = np.sort(rng.poisson(3, N))
    table["area"] = np.arange(N) + 40
    table["x"], table["flat"] = rng.normal(size=N), 0.5
    table["Displacement X µm"] = rng.normal(size=N)
    table.to_csv(tmp_path / "cells.csv", index=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*perhaps no measurements")
        warnings.simplefilter("error", RuntimeWarning)
        found = ce.read_table(tmp_path / "cells.csv").var_names
    assert set(table.columns) - set(found) <= {"area", "X141", "x"}


def in_doubt(table: pd.DataFrame) -> tuple[set[str], set[str]]:
    """Return the features of a table, and those of them that are in doubt."""
    found = column_roles(table)
    features = found[found["role"] == "feature"]
    return set(features["column"]), set(features["column"][features["doubt"]])


@pytest.mark.parametrize("name", ["N", "n°", "Obs n", "Count", "min", "Height"])
def test_row_numbers_have_any_name(name: str) -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.poisson(50, (300, 6))).add_prefix("m")
    assert name not in in_doubt(table.assign(**{name: ROW + 1}))[0]
    for column in (rng.permutation(300), ROW // 100):
        assert name in in_doubt(table.assign(**{name: column}))[1]


def test_codes_and_ids_among_whole_numbers_are_named_or_left_out() -> None:
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.poisson(50, (300, 6))).add_prefix("m")
    for name in ("is_B", "response", "Branch number", "Spot No"):
        assert in_doubt(table.assign(**{name: rng.integers(0, 4, 300)}))[1] == {name}
    columns = {
        "kmeans": rng.integers(0, 5, 300),
        "pseudotime": rng.random(300),
        "serial": 7 * 2**60 + rng.permutation(300),
    }
    assert in_doubt(table.assign(**columns))[0] == {*table}


def test_codes_that_equal_a_column_of_a_count_matrix_are_named_or_left_out() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 2, 300)
    table = pd.DataFrame(rng.poisson(0.7, (300, 40))).add_prefix("GENE")
    table = table.assign(arm=codes, treated=np.where(codes, "yes", "no"))
    features, doubts = in_doubt(table)
    assert doubts & {"arm"} == features & {"arm"}


FLY = "y z t by bx run bin state gate row root index stack line core slice tag path chip label max"
WORM = "pos-1 tag-1 max-1 end-1 end-3 unc-54 col-10 mass-1 box-1 axis-1 num-1 cell-1 id-1"
HUMAN = "PCA3 ID1 PATH INDEX TYPE ROOT CORE RUN CHIP SLIDE STACK LINE1 BIN UID CD3_ID CH CX XM BX"


@pytest.mark.parametrize(
    ("genes", "kind"),
    [
        (FLY, "counts"),
        (FLY, "dense logarithms"),
        (WORM, "logarithms"),
        (HUMAN, "counts"),
        (HUMAN, "dense logarithms"),
        (HUMAN.title(), "many counts"),
    ],
)
def test_genes_are_kept_whatever_their_names(genes: str, kind: str) -> None:
    rng = np.random.default_rng(0)
    others = ["Gene", "GENE", "gene"][genes.isupper() + 2 * genes.islower()]
    names = [*genes.split(), *(f"{others}{i}" for i in range(40 if kind == "counts" else 200))]
    X = rng.poisson(6 if kind == "dense logarithms" else 0.7, (90, len(names))).astype(float)
    if "logarithms" in kind:
        X = np.log1p(X * rng.uniform(0.5, 2, (90, 1)))
    table = pd.DataFrame(X, columns=names)
    table[["fov", "x", "y"]] = rng.integers(0, 900, (90, 3))
    table["leiden"] = rng.integers(1, 5, 90)
    assert in_doubt(table)[0] == set(names) - {"y"}


def test_measurements_that_are_named_like_positions_are_kept() -> None:
    rng = np.random.default_rng(0)
    # The letters of UCI, and axes of what has no place.
    table = pd.DataFrame({name: rng.integers(0, 16, 300) for name in ("x-box", "y-box", "width")})
    for name in ["z_0", "z_1", "z_2", "X.1", "Velocity X", "Velocity Y", "gyro_x", "gyro_y"]:
        table[name] = rng.normal(size=300)
    assert in_doubt(table)[0] == {*table}
    # Nothing but their names distinguishes these from axes of a place.
    for name in ("Chromosome X", "Chromosome Y"):
        table[name] = rng.normal(size=300)
    found = column_roles(table).set_index("column").loc[["Chromosome X", "Chromosome Y"]]
    assert set(found["role"]) == {"position"}
    assert found["doubt"].all()

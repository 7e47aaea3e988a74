"""Faults that a stranger found in tables, in saving and in the warning before a training."""

from __future__ import annotations

import warnings
from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose

import centroid_encoder as ce
from centroid_encoder.errors import InputError
from centroid_encoder.tables import axis, column_roles

N = 60
RNG = np.random.default_rng(0)
FRACTIONS, WHOLE = RNG.uniform(1, 900, N).round(3), RNG.integers(30, 900, N)


def roles(*names: str, values: np.ndarray = FRACTIONS) -> set[str]:
    table = pd.DataFrame({"Area µm": RNG.random(N), **dict.fromkeys(names, values)})
    return set(column_roles(table)["role"][1:])


def test_positions_of_more_programs() -> None:
    names = "C{} (pix)|absolute_{}|{}_FOV_px|{}_slide_mm|Centre{}abs [µm]|Centre{}px [px]|Stage{}"
    names += "|{} (px), Center of Geometry|Center of Image Mass {} Ch=1 Img=1|Capture {}|object_{}m"
    names += "|Center of Homogeneous Mass {}|{}min (pix)|CM {} (pix)|med_{}|General - {}|{}pos|{}"
    found = roles(*(name.format(axis) for name in names.split("|") for axis in "XY"))
    assert found == {"position"}
    names = (
        "Convex Hull Center_0|Convex Hull Center_1|pxl_row_in_fullres|pxl_col_in_fullres|Top|Left"
    )
    names += "|WeightedCentroid Dim 1|WeightedCentroid Dim 2|object_lat|object_lon"
    assert roles(*names.split("|")) == {"position"}
    assert roles("BoundingBoxAA Length X", "X-12345", "mass_100") == {"feature"}
    counted = roles("Centroid X µm", "Centroid Y µm", "pct_counts_by_cell", "signal_by_hand")
    assert counted == {"position", "feature"}
    assert axis("cell_type_by_hand") is None


def test_times_results_and_ids_of_more_programs() -> None:
    assert roles("Absolute Time [s]", "Relative time (s)", "t_begin") == {"image"}
    assert roles("viSNE1", "RNA_pca_1", "RNA_pca_2", "PC_1", "PC_2") == {"result"}
    shares = FRACTIONS / 1000
    names = "P (class=Tumor)", "posterior_probability", "doublet_score", "pred_proba_B"
    assert roles(*names, "Confidence", "B_probability", values=shares) == {"class"}
    names = "CC_Posterior", "posterior_wall_thickness", "predicted_FEV1", "PCA3", "PCA", "PC1"
    assert roles(*names) == {"feature"}
    assert roles("Mean_Foci_Number_Object_Number") == {"id"}
    assert roles("PC 34:1", "PC(16:0/18:1)", "ObjectSkeleton_NumberTrunks_s") == {"feature"}
    assert roles("ObjectSkeleton_NumberTrunks_s", values=WHOLE) == {"feature"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a,b,c\n1,2.5,x;y\n2,3.5,z;y\n", [[1, 2.5], [2, 3.5]]),
        ("a,b,c\n1,2.5,x\ty\n2,3.5,z\ty\n", [[1, 2.5], [2, 3.5]]),
        ("a,b\n\N{MINUS SIGN}1.5,2\n2.5,3\n", [[-1.5, 2], [2.5, 3]]),
        ("100.0123,101.5,203.25\n1.5,2,2\n2,5,1\n", [[1.5, 2, 2], [2, 5, 1]]),
        *(
            (
                f"a,b\n{word},1.5\n" + "3,2.5\n4,3.5\n" * 2,
                [[np.nan, 1.5], *[[3, 2.5], [4, 3.5]] * 2],
            )
            for word in ("-", "n.d.", "ND", "?")
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_text(text: str, expected: list[list[float]], tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_text(text)
    assert_allclose(ce.read_table(tmp_path / "cells.csv").X, expected)


def test_a_first_line_of_values_is_no_header(tmp_path: Path) -> None:
    (tmp_path / "cells.csv").write_text("5,3.25,0.5,T\n6,3.5,0.25,B\n")
    with pytest.raises(InputError, match=r"cells\.csv cannot be read: it has no header"):
        ce.read_table(tmp_path / "cells.csv")


def test_levels_and_bounds_are_no_features() -> None:
    rng = np.random.default_rng(0)
    names = ["z_level", "BoundsLeft", "ND.T", "BinLayer", "in_tissue", "Camera Line Number"]
    table = pd.DataFrame({name: rng.integers(0, 5, 60) for name in names})
    table["BoundsLeft"] = rng.integers(0, 900, 60)
    table[["area", "LEFTY1", "n_bins"]] = rng.normal(size=(60, 3))
    found = column_roles(table).set_index("column")["role"]
    assert found[names].tolist() == ["position"] * 2 + ["image"] * 4
    assert set(found[["area", "LEFTY1", "n_bins"]]) == {"feature"}


def test_arrays_with_three_axes_and_names_of_axes_are_refused() -> None:
    adata = ad.AnnData(np.ones((20, 3)), obs={"kind": ["a", "b"] * 10})
    adata.obsm["stack"] = np.ones((20, 3, 2))
    with pytest.raises(ValueError, match=r"obsm\['stack'\] must have the shape"):
        ce.tl.centroid_encoder(adata, "kind", use_rep="stack")
    with pytest.raises(ValueError, match="channel_axis must be the number of an axis"):
        ce.tl.measure(np.ones((4, 4), int), np.ones((4, 4)), channel_axis="c")


@pytest.mark.parametrize("first", ["Inf", "n.d.", "\N{MINUS SIGN}0.5", "0.5 %", '"1,234,567.1"'])
def test_a_first_row_of_odd_values_is_no_row_of_units(first: str, tmp_path: Path) -> None:
    rows = [f"c{i},{first if i == 0 else i * 7.25},{'ab'[i % 2]}" for i in range(30)]
    (tmp_path / "cells.csv").write_text("\n".join(["cell,ratio,type", *rows]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ce.read_table(tmp_path / "cells.csv").n_obs == 30


def test_plain_measurements_are_features_without_a_doubt() -> None:
    names = "t_max|t_half|T max|T_axis|Posterior wall thickness (mm)|NF-Y|Neuropeptide Y|H2A.X|LAT"
    names += "|STAT3_Y705|TOP1|CX43|sigma_x|sigma_y|Diameter X|Diameter Y|DAPI_x|DAPI_y|CD3_x|CD3_y"
    names += "|CD8_x|CD8_y|CD4_x|CD4_y|PXL1|Stiffness"
    rng = np.random.default_rng(0)
    table = pd.DataFrame({name: rng.uniform(1, 900, N) for name in [*names.split("|"), "x", "y"]})
    table = table.assign(RawIntDen=rng.lognormal(11, 0.6, N).astype(int))
    table["Num clusters"], table["FISH 1 Copies"] = rng.poisson(3, (2, N))
    found = column_roles(table).set_index("column")
    wrong = found[(found["role"] != "feature") | found["doubt"]].index
    assert set(wrong) == {"x", "y", "Posterior wall thickness (mm)"}
    assert found.loc["Posterior wall thickness (mm)", "doubt"]


def test_numbers_of_cells_that_were_filtered_are_in_doubt() -> None:
    kept = np.flatnonzero(np.random.default_rng(0).random(400) < 0.7)
    table = pd.DataFrame({"Area": np.random.default_rng(1).normal(size=len(kept))})
    embryo = np.repeat([3, 1, 4, 2, 6, 5, 7], len(kept) // 7 + 1)[: len(kept)]
    for name, column in [("Nr", kept % 100), ("Zelle", kept % 100), ("Embryo_Number", embryo)]:
        found = column_roles(table.assign(**{name: column})).set_index("column")
        assert found.loc[name, "role"] != "feature" or found.loc[name, "doubt"]


def test_numbers_with_a_unit_are_numbers(tmp_path: Path) -> None:
    rows = [f"{i * 1.5 + 3} kPa,{i % 3 * 10} uM,\N{EN DASH}{i}.5" for i in range(60)]
    (tmp_path / "cells.csv").write_text("\n".join(["stiffness,dose,charge", *rows]))
    adata = ce.read_table(
        tmp_path / "cells.csv", roles={"charge": "feature", "stiffness": "feature"}
    )
    assert adata[:, "charge"].X[1] == -1.5
    assert adata[:, "stiffness"].X[1] == 4.5
    assert adata.obs["dose"].nunique() == 3

"""Positions of cells are no features, whatever their names; measurements and genes are."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData

import centroid_encoder as ce
from centroid_encoder.tables import are_places, column_roles, counted, frame_to_anndata, with_roles

N = 300
PAIRS = (
    """
sdimx sdimy|imagerow imagecol|Xc Yc|cellx celly|row col|array_row array_col|xcoord ycoord|mx my
X_coord Y_coord|xcentroid ycentroid|centroidx centroidy|centroid_row centroid_col|cx cy|CX CY
adj_x adj_y|new_x new_y|pixel_x pixel_y|warped_x warped_y|imgx imgy|x_img y_img|XPOS YPOS|posx posy
Xloc Yloc|locx locy|spatial_x spatial_y|spatialx spatialy|X_tissue Y_tissue|roi_x roi_y|gx gy
tile_x tile_y|x_well y_well|x_global y_global|globalx globaly|XStart YStart|x0 y0|x1 y1|xmid ymid
x_mean y_mean|median_x median_y|nucleus_x nucleus_y|NucX NucY|spot_x spot_y|bin_x bin_y|px py
xs ys|x_um y_um|xum yum|Xmm Ymm|x_scaled y_scaled|scaled_imagerow scaled_imagecol|pxl_row pxl_col
rows cols|row_idx column_idx|RowPos ColPos|r_row r_column|Left Top|bbox_left bbox_top|lon lat
longitude latitude|Horizontal Vertical|ccf_x ccf_y|umx umy|Xstage Ystage|FeretX FeretY
max_row max_col|minrow mincol|x.cell y.cell|CoordX CoordY|X(um) Y(um)|dapi_x_center dapi_y_center
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
"""Names of positions as exporters and packages write them."""
NO_PLACES = (
    """
DDX3X DDX3Y|USP9X USP9Y|EIF1AX EIF1AY|Ddx3x Ddx3y|KDM5C KDM5D|RPS4X RPS4Y1|CD3_x CD3_y
velocity_x velocity_y|sigma_x sigma_y|Moment_X Moment_Y|orientation_x orientation_y|size_x size_y
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
MORE_GENES = ["ZFX ZFY", "UTX UTY", "PRKX PRKY", "Slx Sly"]


def markers(seed: int = 0, n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(rng.gamma(2, 100, (n, 12))).add_prefix("Mean_CD")


def found_in(table: pd.DataFrame) -> pd.DataFrame:
    return column_roles(table).set_index("column")


@pytest.mark.parametrize("is_whole", [False, True])
def test_no_pair_of_axes_becomes_features(is_whole: bool) -> None:
    rng = np.random.default_rng(0)
    wrong = []
    for pair in map(str.split, PAIRS):
        values = rng.uniform(0, 2000, (N, 2)).round(0 if is_whole else 2)
        found = found_in(markers().assign(**dict(zip(pair, values.T, strict=True))))
        wrong += [name for name in pair if found.loc[name, "role"] == "feature"]
        assert set(found["role"].drop(pair)) == {"feature"}
    assert not wrong


@pytest.mark.parametrize("kind", ["markers", "counts", "logarithms"])
def test_genes_and_measurements_in_pairs_are_features(kind: str) -> None:
    rng = np.random.default_rng(0)
    genes = pd.DataFrame(rng.poisson(1, (N, 40))).add_prefix("GENE")
    for pair in map(str.split, NO_PLACES + MORE_GENES * (kind != "markers")):
        table = markers() if kind == "markers" else genes
        values = rng.gamma(2, 100, (2, N)) if kind == "markers" else rng.poisson(1, (2, N))
        table = table.assign(**dict(zip(pair, values, strict=True)))
        if kind == "logarithms":
            table = np.log1p(table.mul(rng.uniform(0.5, 2, N), axis=0))
        found = found_in(table)
        assert set(found["role"]) == {"feature"}, pair
        assert kind == "markers" or not found["doubt"].any(), pair


def test_a_marker_in_two_tables_is_a_feature() -> None:
    """pandas adds _x and _y to the names of the columns that two tables share."""
    table, rng = markers(), np.random.default_rng(1)
    for name in ("DAPI", "tumour"):
        table[f"{name}_x"] = rng.gamma(2, 100, N)
        table[f"{name}_y"] = 0.8 * table[f"{name}_x"] + rng.normal(0, 20, N)
    assert set(found_in(table)["role"]) == {"feature"}


@pytest.mark.parametrize("pair", ["sdimx sdimy", "row col"])
def test_noise_predicts_no_place(pair: str, tmp_path: Path) -> None:
    """The class is the half of the image, and the markers are noise."""
    path, rng, names = tmp_path / "cells.csv", np.random.default_rng(0), pair.split()
    table = markers(n=600).assign(**dict(zip(names, rng.uniform(0, 2000, (2, 600)), strict=True)))
    table["type"] = np.where(table[names[0]] > 1000, "left", "right")
    table.to_csv(path, index=False)
    with pytest.warns(UserWarning, match="roles={.*: 'feature'") as seen:
        adata = ce.read_table(path)
    (text,) = [str(warning.message) for warning in seen]
    assert all(repr(name) in text for name in names)
    model = ce.CentroidEncoder.from_recipe("draft")
    ce.tl.centroid_encoder(adata, "type", model=model, progress=False)
    assert abs(adata.uns["ce"]["quality"]["test"]["voronoi_error"] - 0.5) < 0.17
    adata = ce.read_table(path, roles=dict.fromkeys(names, "feature"))
    assert set(names) < set(adata.var_names)
    assert not adata.uns["column_roles"]["doubt"].any()


def test_a_choice_of_one_axis_keeps_the_doubt_on_the_other() -> None:
    rng = np.random.default_rng(0)
    adata = frame_to_anndata(markers().assign(sdimx=rng.random(N), sdimy=rng.random(N)))
    assert counted(adata) == "12 of 14 columns are features; not 2 position"
    adata = with_roles(adata, {"sdimx": "feature"})
    found = adata.uns["column_roles"].set_index("column")
    assert found.loc["sdimx", ["role", "doubt"]].tolist() == ["feature", False]
    assert found.loc["sdimy", ["role", "doubt"]].tolist() == ["position", True]
    assert "sdimx" in adata.var_names
    assert "sdimy" in adata.obs


# -- by values -------------------------------------------------------------------------------------


def tissue(n: int = N) -> tuple[pd.DataFrame, np.ndarray]:
    """Return markers of cells, and their places in the image."""
    return markers(n=n), np.random.default_rng(2).uniform(0, 1000, (n, 2))


@pytest.mark.parametrize("names", [["X_centroid", "Y_centroid"], ["here", "there"]])
def test_what_follows_positions_is_a_position(names: list[str]) -> None:
    table, places = tissue()
    table[names] = places
    roles = dict.fromkeys(names, "position") if names[0] == "here" else {}
    size = np.random.default_rng(3).normal(10, 3, (N, 2)).clip(3)
    turned = places @ [[0.8, -0.6], [0.6, 0.8]] * 0.325 + 4000
    for pair, values in [
        (["a", "b"], places - size),
        (["c", "d"], places + size),
        (["e", "f"], 1000 - places[:, ::-1]),
        (["g", "h"], turned),
        (["i", "j"], np.where(np.random.default_rng(4).random((N, 1)) < 0.1, np.nan, turned)),
        (["k", "l"], places.astype(int)),
    ]:
        table[pair] = values
    found = column_roles(table, roles).set_index("column")
    assert set(found.loc[list("abcdefghijkl"), "role"]) == {"position"}
    assert not found["doubt"].any()
    assert (found["role"] == "feature").sum() == 12


def test_positions_of_an_image_follow_those_of_the_slide() -> None:
    table, places = tissue()
    image, origin = np.arange(N) % 10, np.random.default_rng(3).uniform(0, 1e5, (10, 2))
    for key in (image + 1, np.array([f"s{i}.tiff" for i in image])):
        table["ImageName"], table[["x", "y"]] = key, places
        table[["u", "v"]] = places[:, ::-1] * 0.5 + origin[image]
        found = found_in(table)
        assert found.loc[["u", "v"], "role"].tolist() == ["position", "position"]
        assert (found["role"] == "feature").sum() == 12


@pytest.mark.parametrize("n", [40, 300, 3000])
def test_a_measurement_in_space_is_no_place(n: int) -> None:
    rng = np.random.default_rng(0)
    places = rng.uniform(0, 1000, (n, 2))
    gradient = places @ [1, 0.3] / 300
    values = {
        "gradient": gradient + rng.normal(0, 0.3, n),
        "border": np.minimum(places, 1000 - places).min(axis=1),
        "nearest edge": np.minimum(places[:, 0], 1000 - places[:, 0]),
        "centre": np.linalg.norm(places - 500, axis=1),
        "count": rng.poisson(gradient),
        "constant": np.full(n, 0.1),
        "noise": rng.gamma(1, 1, n),
        "empty": np.full(n, np.nan),
    }
    matrix = np.stack([*values.values()], axis=1)
    assert not are_places(matrix, places).any()
    assert not are_places(matrix, places, np.arange(n) % 4).any()


def test_a_distance_that_equals_an_axis_is_a_feature_in_doubt() -> None:
    table, places = tissue()
    table[["x", "y"]], table["Distance to border"] = places, places[:, 0] * 0.5
    found = found_in(table)
    assert found.loc["Distance to border", ["role", "doubt"]].tolist() == ["feature", True]


# -- a few zeros make no count matrix --------------------------------------------------------------

PLACES = {
    "centers": ["Location_Center_X", "Location_Center_Y"],
    "boxes": ["XMin", "XMax", "YMin", "YMax"],
    "columns": ["X", "Y"],
}


@pytest.mark.slow
@pytest.mark.parametrize("n_columns", [1, 4, 20, 300])
@pytest.mark.parametrize("kind", ["fractions", "whole", "clipped"])
@pytest.mark.parametrize("zeros", [0, 0.02, 0.05, 0.2])
@pytest.mark.parametrize("style", ["CD{}", "Cd{}", "cd {}"])
def test_places_and_ids_beside_a_few_zeros(
    n_columns: int, kind: str, zeros: float, style: str
) -> None:
    rng = np.random.default_rng(0)
    values = rng.gamma(1, 400, (N, n_columns)) * (rng.random((N, n_columns)) >= zeros)
    if kind == "whole":
        values = values.astype(int)
    elif kind == "clipped":
        values = rng.normal(zeros * 400, 400, (N, n_columns)).clip(0)
    table = pd.DataFrame(values, columns=[style.format(i) for i in range(n_columns)])
    table["ObjectNumber"] = rng.permutation(N) + 1
    for names in PLACES.values():
        draw = rng.integers(1, 1000, (N, len(names))) if kind == "whole" else None
        table[names] = rng.uniform(0, 1000, (N, len(names))) if draw is None else draw
    found = found_in(table)
    names = [name for pair in PLACES.values() for name in pair]
    assert set(found.loc[names, "role"]) == {"position"}
    assert found.loc["ObjectNumber", "role"] == "id"


def test_a_table_of_features_of_a_layer_has_the_same_roles() -> None:
    adata = frame_to_anndata(markers().assign(Xc=np.random.default_rng(0).random(N)), names=False)
    assert isinstance(adata, AnnData)
    assert "Xc" in adata.var_names  # One axis alone is no place.

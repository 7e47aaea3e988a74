"""`tl.write_geojson`: outlines of cells with their classes, as QuPath reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anndata as ad
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from skimage.draw import polygon2mask

import centroid_encoder as ce
from centroid_encoder.tables import frame_to_anndata
from centroid_encoder.tl._positions import positions


@pytest.fixture
def labels() -> NDArray[np.int32]:
    """Nine discs with a pixel in two parts, a hole, and an id without a row."""
    image = np.zeros((90, 120), np.int32)
    rows, columns = np.indices(image.shape)
    for i in range(9):
        center = 15 + 30 * (i // 3), 20 + 40 * (i % 3)
        image[np.hypot(rows - center[0], columns - center[1]) < 6 + i % 3] = 10 * i + 5
    image[0, 0] = 5
    image[15, 60] = 0
    image[80:84, 0:4] = 999
    return image


@pytest.fixture
def cells(labels: NDArray[np.int32]) -> ad.AnnData:
    """These cells as after `ingest`, in another order."""
    adata = ce.tl.measure(labels, {"DAPI": labels.astype(float)}, progress=False)
    adata = adata[adata.obs["label"] != 999][::-1].copy()
    names = ["T cell", "B", "other"]
    codes = np.arange(9) % 3
    adata.obs["ce_label"] = pd.Categorical.from_codes(np.where(codes == 2, -1, codes), names)
    adata.obs["ce_confidence"] = np.linspace(0.5, 1, 9)
    adata.obs["ce_novelty"] = np.where(np.arange(9) == 4, np.nan, 0.25)
    adata.uns["ce_label_colors"] = ["#ff0000", "#0000ff", "#00ff00"]
    params = {"label_key": "ce_label", "ingested_from": "a test"}
    adata.uns["ce"] = {"params": params, "classes": sorted(names), "centers": np.zeros((3, 2))}
    return adata


def written(adata: ad.AnnData, labels: Any, path: Path, **kwargs: Any) -> dict[str, Any]:
    ce.tl.write_geojson(adata, labels, path, **kwargs)
    document = json.loads(path.read_text())
    assert document["type"] == "FeatureCollection"
    return {one["properties"]["name"]: one for one in document["features"]}


def test_outlines_enclose_the_pixels_of_the_cells(
    cells: ad.AnnData, labels: NDArray[np.int32], tmp_path: Path
) -> None:
    found = written(cells, labels, tmp_path / "cells.geojson")
    assert set(found) == set(cells.obs_names)
    for name, value in cells.obs["label"].items():
        geometry = found[str(name)]["geometry"]
        rings = geometry["coordinates"]
        rings = [rings] if geometry["type"] == "Polygon" else rings
        assert len(rings) == (2 if value == 5 else 1)
        inside = np.zeros(labels.shape, bool)
        for (ring,) in rings:
            assert ring[0] == ring[-1]
            vertices = np.array(ring)[:, ::-1] - 0.5  # to (row, column) of centers of pixels
            inside |= polygon2mask(labels.shape, vertices)
        expected = labels == value
        if value == 15:
            expected[15, 60] = True
        assert (inside == expected).all()


def test_classes_colours_and_measurements(
    cells: ad.AnnData, labels: NDArray[np.int32], tmp_path: Path
) -> None:
    found = written(cells, labels, tmp_path / "cells.geojson")
    for row, name in enumerate(cells.obs_names):
        properties = found[name]["properties"]
        assert properties["objectType"] == "detection"
        measured = {"confidence": cells.obs["ce_confidence"].iloc[row]}
        measured |= {} if row == 4 else {"novelty": 0.25}
        assert properties["measurements"] == pytest.approx(measured)
        expected = [("T cell", [255, 0, 0]), ("B", [0, 0, 255]), None][row % 3]
        if expected is None:
            assert "classification" not in properties
        else:
            assert properties["classification"] == {"name": expected[0], "color": expected[1]}


def test_without_labels_cells_are_points(cells: ad.AnnData, tmp_path: Path) -> None:
    found = written(cells, None, tmp_path / "cells.geojson", label_key="region")
    for name, center in zip(cells.obs_names, cells.obsm["spatial"], strict=True):
        assert found[name]["geometry"] == {"type": "Point", "coordinates": center.tolist()}
        assert found[name]["properties"]["classification"]["name"] == "labels"


@pytest.mark.parametrize("names", [("Centroid X", "Centroid Y"), ("Xc", "Yc"), ("col", "row")])
def test_cells_are_points_at_columns_whose_role_is_position(
    cells: ad.AnnData, tmp_path: Path, names: tuple[str, str]
) -> None:
    places = pd.DataFrame(cells.obsm["spatial"], columns=list(names))
    frame = places.assign(DAPI=np.linspace(0, 1, len(places)))[[names[1], "DAPI", names[0]]]
    table = frame_to_anndata(frame, dict.fromkeys(names, "position"))
    table.obs = table.obs.join(cells.obs.filter(like="ce_").set_axis(table.obs_names))
    table.uns |= {name: value for name, value in cells.uns.items() if name.startswith("ce")}
    found = written(table, None, tmp_path / "cells.geojson")
    for name, center in zip(table.obs_names, cells.obsm["spatial"], strict=True):
        assert found[name]["geometry"]["coordinates"] == center.tolist()
    del table.obs[names[0]]
    with pytest.raises(KeyError, match="no positions were found"):
        ce.tl.write_geojson(table, None, tmp_path / "cells.geojson")


def test_the_center_of_a_cell_counts_before_its_other_places() -> None:
    rng = np.random.default_rng(0)
    names = ["BX", "BY", "Location_Center_X", "Location_Center_Y", "area"]
    names += ["Location_CenterMassIntensity_X_DNA", "Location_CenterMassIntensity_Y_DNA"]
    frame = pd.DataFrame(rng.uniform(0, 900, size=(40, 7)), columns=names)
    where, found = positions(frame_to_anndata(frame))
    assert where == "'Location_Center_Y' and 'Location_Center_X'"
    assert np.allclose(found, frame[["Location_Center_Y", "Location_Center_X"]])


@pytest.mark.parametrize("n", [2, 3])
def test_positions_of_any_kind_are_found_in_obsm(cells: ad.AnnData, n: int) -> None:
    places = cells.obsm["spatial"]
    more = [np.full(len(places), np.nan)] * (n - 2)
    for value in (
        np.column_stack([places, *more]),
        np.column_stack([places, *more]).astype(object),
    ):
        cells.obsm["spatial"] = value
        assert np.array_equal(positions(cells)[1], places[:, ::-1])
    frame = pd.DataFrame(places, columns=["x_centroid", "y_centroid"], index=cells.obs_names)
    cells.obsm["spatial"] = frame[["y_centroid", "x_centroid"]]
    assert np.array_equal(positions(cells)[1], places[:, ::-1])
    cells.obsm["spatial"] = da.from_array(np.column_stack([places, *more]))
    cells.uns["column_roles"] = "of another program"
    assert np.array_equal(positions(cells)[1], places[:, ::-1])


def test_wrong_input_is_an_error_and_the_old_file_stays(
    cells: ad.AnnData, labels: NDArray[np.int32], tmp_path: Path
) -> None:
    path = tmp_path / "cells.geojson"
    path.write_text("old")
    twice = ad.concat([cells, cells], uns_merge="first", index_unique="-")
    other = cells.copy()
    other.obs["label"] += 1000
    for adata, image, text in (
        (twice, labels, "occur twice"),
        (cells, labels[None], "plane"),
        (cells, labels.astype(float), "whole numbers"),
        (other, labels, "hold none of the ids"),
    ):
        with pytest.raises(ValueError, match=text):
            ce.tl.write_geojson(adata, image, path)
    with pytest.raises(KeyError, match="no_such"):
        ce.tl.write_geojson(cells, labels, path, label_key="no_such")
    with pytest.raises(ValueError, match="geojson"):
        ce.tl.write_geojson(cells, labels, tmp_path / "cells.txt")
    assert path.read_text() == "old"

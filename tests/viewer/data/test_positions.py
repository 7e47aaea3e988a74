"""Cells lie where their labels are, or the user hears of it."""

from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from napari.components import LayerList
from napari.layers import Labels, Points

from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.positions import axis

N = 100


def tissue(seed: int = 0) -> tuple[np.ndarray, AnnData]:
    """Cells at random places, numbered from top to bottom, and their table."""
    rng = np.random.default_rng(seed)
    grid = rng.permutation(400)[:N]
    grid.sort()
    places = np.stack([grid // 20 * 8 + 4, grid % 20 * 8 + 4], axis=1) + rng.integers(-2, 3, (N, 2))
    image = np.zeros((168, 168), dtype=np.int32)
    for i, (y, x) in enumerate(places, start=1):
        image[y - 2 : y + 3, x - 2 : x + 3] = i
    obs = pd.DataFrame({"cell_id": np.arange(1, N + 1)}, index=[f"c{i}" for i in range(N)])
    adata = AnnData(np.ones((N, 2), np.float32), obs=obs)
    adata.obsm["spatial"] = places[:, ::-1].astype(float)
    return image, adata


def catalog_of(layer: Labels | Points, adata: AnnData) -> Catalog:
    catalog = Catalog(LayerList([layer]))
    catalog.connect()
    catalog.choose(catalog.add(adata, "cells"))
    assert catalog.join is not None
    return catalog


@pytest.mark.parametrize("shift", [-1, 1])
def test_ids_that_are_off_by_one_are_told_and_can_be_mended(shift: int) -> None:
    image, adata = tissue()
    adata.obs["cell_id"] += shift
    catalog = catalog_of(Labels(image), adata)
    assert catalog.misfit is not None
    assert 'The positions in obsm["spatial"] speak against this: ' in catalog.misfit.text
    assert f"with obs['cell_id'] {-shift:+} it would be 100 %." in catalog.misfit.text
    better = catalog.misfit.better
    assert better is not None
    catalog.choose_link(better)
    assert catalog.misfit is None
    assert catalog.join is not None
    assert catalog.join.n_joined == N
    assert catalog.join.rows([1, 50, N]).tolist() == [0, 49, N - 1]


def test_a_column_that_fits_is_offered() -> None:
    image, adata = tissue()
    adata.obs["object_id"] = adata.obs["cell_id"]
    adata.obs["cell_id"] = np.random.default_rng(1).permutation(adata.obs["cell_id"])
    layer = Labels(image, metadata={"instance_key": "cell_id"})
    misfit = catalog_of(layer, adata).misfit
    assert misfit is not None
    assert misfit.better is not None
    assert misfit.better.id_column == "object_id"


def test_ids_of_another_image_are_told() -> None:
    image, _ = tissue()
    misfit = catalog_of(Labels(image), tissue(seed=1)[1]).misfit
    assert misfit is not None
    assert misfit.text.endswith("The ids may be those of another image.")
    assert misfit.better is None


@pytest.mark.parametrize(
    "change",
    [
        lambda xy: xy * 0.325 + 4000,
        lambda xy: xy[:, ::-1] * [1, -1],
        lambda xy: np.where(np.arange(N)[:, None] < 30, np.nan, xy),
        lambda xy: np.where(np.arange(N)[:, None] % 4 == 0, 0, xy),
        lambda xy: pd.DataFrame(xy, columns=["x", "y"]).set_axis([f"c{i}" for i in range(N)]),
    ],
    ids=["microns", "turned", "missing", "partly wrong", "frame"],
)
def test_units_and_origin_do_not_matter(change: Any) -> None:
    image, adata = tissue()
    adata.obsm["spatial"] = change(adata.obsm["spatial"])
    assert catalog_of(Labels(image), adata).misfit is None
    adata.obs["cell_id"] += 1
    misfit = catalog_of(Labels(image), adata).misfit
    # With a quarter of the positions wrong, nothing fits well enough to be offered.
    assert misfit is not None


@pytest.mark.parametrize("name", ["spatial", "columns"])
@pytest.mark.parametrize(
    ("change", "scale", "size"),
    [
        (lambda xy: xy * 0.325 + 4000, (1, 1), "0.325"),
        (lambda xy: xy[:, ::-1] * [2, -2], (1, 1), "2"),
        (lambda xy: xy * 0.325, (0.65, 0.65), "0.325"),
        # x of the positions first, y of the labels first.
        (lambda xy: xy * [0.5, 2], (1, 1), "2 x 0.5"),
        (lambda xy: np.where(np.arange(N)[:, None] % 7 == 0, 0, xy * 3), (1, 1), "3"),
        (lambda xy: xy * 1.05, (1, 1), None),
        (lambda xy: xy + 300, (0.5, 0.5), None),
        (lambda xy: xy * 0.5 + 300, (0.5, 0.5), None),
        (lambda xy: xy[:, ::-1] * [-0.5, 2], (0.5, 2), None),
        (lambda xy: xy @ [[0.8, 0.6], [-0.6, 0.8]], (1, 1), None),
    ],
)
def test_another_scale_is_told(change: Any, scale: Any, size: str | None, name: str) -> None:
    image, adata = tissue()
    adata.obsm["spatial"] = change(adata.obsm["spatial"])
    if name == "columns":
        adata.obs[["x", "y"]] = adata.obsm.pop("spatial")
    catalog = catalog_of(Labels(image, scale=scale, name="nuclei"), adata)
    assert catalog.misfit is None
    (said,) = catalog.scales.values() or [None]
    if size is None:
        assert said is None
    else:
        assert said is not None
        assert f"are on another scale than nuclei: a pixel is {size} of their units, not" in said
        assert ("nor the layer's scale" in said) == (scale != (1, 1))
    # As long as the layer is joined.
    catalog.choose_layer(None)
    assert not catalog.scales


def test_a_layer_that_gets_its_scale_is_compared_anew() -> None:
    image, adata = tissue()
    adata.obsm["spatial"] = adata.obsm["spatial"] * 0.325
    layer = Labels(image)
    catalog = catalog_of(layer, adata)
    catalog.connect()
    catalog.painted.connect(catalog.join_again)
    assert catalog.scales
    layer.scale = (0.325, 0.325)
    assert not catalog.scales
    layer.scale = (2, 2)
    assert catalog.scales


def test_of_few_or_blurred_cells_no_scale_is_told() -> None:
    image, adata = tissue()
    rng = np.random.default_rng(0)
    adata.obsm["spatial"] = adata.obsm["spatial"] * 1.2 + rng.normal(0, 3, (N, 2))
    few = adata[40:60].copy()
    catalog = catalog_of(Labels(image), few)
    assert catalog.misfit is None
    assert not catalog.scales


@pytest.mark.parametrize(
    "names", [("centroid-0", "centroid-1"), ("Centroid Y µm", "Centroid X µm"), ("y", "x")]
)
def test_columns_of_positions_are_known(names: tuple[str, str]) -> None:
    image, adata = tissue()
    adata.obs[list(names)] = adata.obsm.pop("spatial")[:, ::-1]
    assert catalog_of(Labels(image), adata).misfit is None
    adata.obs["cell_id"] += 1
    misfit = catalog_of(Labels(image), adata).misfit
    assert misfit is not None
    assert f"obs[{names[0]!r}] and obs[{names[1]!r}]" in misfit.text


def test_images_of_any_kind() -> None:
    image, adata = tissue()
    adata.obs["cell_id"] += 1
    large = np.kron(image, np.ones((10, 10), dtype=np.int32))
    for data in (da.from_array(image, chunks=50), [image, image[::2, ::2]], large):
        misfit = catalog_of(Labels(data), adata).misfit
        assert misfit is not None
        assert misfit.better is not None


def test_without_positions_or_in_points_nothing_is_said() -> None:
    image, adata = tissue()
    adata.obs["cell_id"] += 1
    points = Points(np.zeros((N, 2)), features={"cell_id": adata.obs["cell_id"].to_numpy()})
    assert catalog_of(points, adata).misfit is None
    adata.obsm["spatial"] = np.zeros((N, 3))
    assert catalog_of(Labels(image), adata).misfit is None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("x", "x"),
        ("centroid-0", "0"),
        ("centroid_weighted-1", "1"),
        ("bbox-3", "3"),
        ("AreaShape_Center_X", "x"),
        ("Location_Center_Y", "y"),
        ("Centroid X µm", "x"),
        ("area", None),
        ("moment-0", None),
        ("x area", None),
        ("0", None),
        (7, None),
    ],
)
def test_names_of_positions(name: object, expected: str | None) -> None:
    assert axis(name) == expected

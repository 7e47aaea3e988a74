from __future__ import annotations

from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from napari.layers import Points

import centroid_encoder as ce
from centroid_encoder.viewer.data.tables import (
    WITH_POSITIONS,
    Table,
    features_to_anndata,
    measured,
    publish,
)


@pytest.fixture
def features() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "index": np.arange(60) * 3 + 1,
            "area": rng.normal(size=60) + 3 * (np.arange(60) % 2),
            "mean": rng.normal(size=60).astype(np.float32),
            "count": rng.integers(0, 9, 60),
            "n": pd.array([None, *range(59)], dtype="Int64"),
            "touching": np.arange(60) % 3 == 0,
            "kind": np.array(["a", "b"])[np.arange(60) % 2],
            "tissue": pd.Categorical(["x", "y", None] * 20),
            "note": [None, 1.5, "text"] * 20,
            "seen": pd.to_datetime(["2020-01-01"] * 60),
        }
    )


def test_numbers_but_ids_are_measured(features: pd.DataFrame) -> None:
    assert measured(features) == ["area", "mean", "count", "n"]
    assert measured(features[["index", "kind", "touching"]]) == []
    assert measured(pd.DataFrame({"label": [1], "cell_id": [2.0], "CellID": [3]})) == []


def test_features_become_cells(features: pd.DataFrame) -> None:
    adata = features_to_anndata(features, of_labels=True)
    assert adata.obs_names[:2].tolist() == ["1", "4"]
    assert adata.var_names.tolist() == ["area", "mean", "count", "n"]
    assert np.array_equal(adata.X[:, 0], features["area"])
    assert np.isnan(adata.X[0, 3])
    # Whole numbers are measurements, or classes.
    assert list(adata.obs) == [name for name in features if name not in ("area", "mean")]
    assert adata.obs["index"].tolist() == features["index"].tolist()
    assert adata.obs["touching"].dtype == bool
    assert adata.obs["kind"].cat.categories.tolist() == ["a", "b"]
    assert adata.obs["tissue"].isna().sum() == 20
    assert adata.obs["note"].cat.categories.tolist() == ["1.5", "text"]


def regionprops() -> pd.DataFrame:
    """As scikit-image measures it."""
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "label": np.arange(1, 41),
            "centroid-0": rng.uniform(0, 90, 40),
            "centroid-1": rng.uniform(0, 90, 40),
            "bbox-0": rng.integers(0, 90, 40),
            "area": rng.normal(size=40),
            "area_bbox": rng.normal(size=40),
        }
    )


def test_positions_are_no_measurements_but_can_be_chosen() -> None:
    features = regionprops()
    assert measured(features) == ["area", "area_bbox"]
    adata = features_to_anndata(features, of_labels=True)
    assert adata.var_names.tolist() == ["area", "area_bbox"]
    assert adata.obsm[WITH_POSITIONS].shape == (40, 5)
    positions = features[["centroid-0", "centroid-1"]]
    assert measured(positions) == list(positions)
    assert WITH_POSITIONS not in features_to_anndata(positions, of_labels=True).obsm


def test_cells_of_features_can_be_saved(features: pd.DataFrame, tmp_path: Path) -> None:
    adata = features_to_anndata(features, of_labels=True)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    assert ad.read_h5ad(tmp_path / "cells.h5ad").obs["index"].tolist() == list(adata.obs["index"])


def test_labels_without_index_are_numbered_from_the_background() -> None:
    features = pd.DataFrame({"area": [0.0, 1.0], 7: np.float32([1, 2])})
    adata = features_to_anndata(features, of_labels=True)
    assert adata.obs["index"].tolist() == [0, 1]
    assert adata.var_names.tolist() == ["area", "7"]


def test_repeated_ids_are_no_names() -> None:
    features = pd.DataFrame({"index": [4, 4], "area": [1.0, 2.0]})
    adata = features_to_anndata(features, of_labels=True)
    assert adata.obs_names.tolist() == ["0", "1"]
    assert adata.obs["index"].tolist() == [4, 4]


def test_a_measurement_keeps_its_name(fast: ce.CentroidEncoder) -> None:
    rng = np.random.default_rng(0)
    features = pd.DataFrame({"k1": rng.normal(size=40), "kind": ["a", "b"] * 20})
    layer = Points(np.zeros((40, 2)), features=features)
    adata = features_to_anndata(layer.features, of_labels=False)
    table = Table(adata, "dots", layer, "features")
    table.follow(layer.features)
    ce.tl.centroid_encoder(adata, "kind", model=fast, key_added="k", progress=False)
    publish(table, "k")
    after = layer.features
    assert np.array_equal(after["k1"], features["k1"])
    assert np.array_equal(after["k2"], adata.obsm["k"][:, 1])

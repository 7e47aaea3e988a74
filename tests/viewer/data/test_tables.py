from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from napari.components import LayerList
from napari.layers import Image, Labels, Layer, Points, Shapes

import centroid_encoder as ce
from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.publish import publish
from centroid_encoder.viewer.data.tables import Table

N = 40


@pytest.fixture
def train(fast: ce.CentroidEncoder) -> Callable[..., None]:
    """Train quickly on a table and publish the result."""

    def run(table: Table, key: str = "ce", label_key: str = "kind") -> None:
        added = None if key == "ce" else key
        ce.tl.centroid_encoder(table.adata, label_key, model=fast, key_added=added, progress=False)
        publish(table, key)

    return run


def image(**options: Any) -> Labels:
    ids = 3 * np.arange(N, dtype=np.int32) + 5
    return Labels(np.stack([ids, ids]), **options)


def features(n: int = N) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "index": 3 * np.arange(n) + 5,
            "area": rng.normal(size=n) + 2 * (np.arange(n) % 2),
            "mean": rng.normal(size=n),
            "kind": np.array(["a", "b"])[np.arange(n) % 2],
        }
    )


def points(table: pd.DataFrame, **options: Any) -> Points:
    return Points(np.random.default_rng(0).normal(size=(len(table), 2)), features=table, **options)


def shapes(table: pd.DataFrame) -> Shapes:
    triangle = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    outlines = [triangle + i for i in range(len(table))]
    return Shapes(outlines, shape_type="polygon", features=table)


def spatial_table(regions: list[str], cells: AnnData) -> AnnData:
    """Rows as SpatialData has them: each region numbers its cells."""
    cells.obs["kind"] = cells.obs["cell_type"]
    per_region = cells.n_obs // len(regions)
    cells.obs["region"] = pd.Categorical(np.repeat(regions, per_region))
    cells.obs["instance_id"] = np.tile(np.arange(1, per_region + 1), len(regions))
    cells.uns["spatialdata_attrs"] = {
        "region": regions if len(regions) > 1 else regions[0],
        "region_key": "region",
        "instance_key": "instance_id",
    }
    return cells


def spatial_layer(sdata: Any, element: str, table: str, **options: Any) -> Labels:
    """Layer as napari-spatialdata makes it, with a copy of the rows of its region."""
    adata = sdata.tables[table]
    metadata = {
        "sdata": sdata,
        "adata": adata[adata.obs["region"] == element].copy(),
        "region_key": "region",
        "instance_key": "instance_id",
        "name": element,
        "table_names": [table],
    }
    n = int((adata.obs["region"] == element).sum())
    return Labels(np.arange(n + 1)[None].repeat(2, 0), metadata=metadata, **options)


def found(catalog: Catalog) -> list[Table]:
    catalog.refresh()
    return catalog.tables


# -- finding -------------------------------------------------------------------------------------


def test_an_empty_viewer_has_no_tables() -> None:
    assert found(Catalog(LayerList())) == []


def test_tables_are_listed_by_origin(make_cells: Callable[..., AnnData], tmp_path: Path) -> None:
    sdata = SimpleNamespace(tables={"table": spatial_table(["nuclei"], make_cells())}, path=None)
    attached, read, opened, given = (make_cells() for _ in range(4))
    layers = LayerList(
        [
            image(name="measured", features=features()),
            points(pd.DataFrame({"cell": read.obs_names}), name="read", metadata={
                "adata": read, "path": tmp_path / "read.h5ad"
            }),
            image(name="attached", metadata={"adata": attached}),
            spatial_layer(sdata, "nuclei", "table", name="nuclei"),
            Labels(np.zeros((3, 3), dtype=int), name="empty"),
        ]
    )  # fmt: skip
    catalog = Catalog(layers)
    catalog.add(given, "mine")
    catalog.add(opened, "cells.h5ad", path=tmp_path / "cells.h5ad")

    tables = found(catalog)

    assert [(table.name, table.origin, table.layer and table.layer.name) for table in tables] == [
        ("table (nuclei)", "spatialdata", "nuclei"),
        ("attached: AnnData", "metadata", "attached"),
        ("read.h5ad", "file", "read"),
        ("cells.h5ad", "file", None),
        ("measured: features", "features", "measured"),
        ("mine", "notebook", None),
    ]
    expected = [sdata.tables["table"], attached, read, opened]
    assert all(table.adata is adata for table, adata in zip(tables, expected, strict=False))
    assert tables[-1].adata is given
    assert tables[0].sdata is sdata
    assert tables[0].table_name == "table"
    assert [table.path for table in tables[2:4]] == [
        tmp_path / "read.h5ad",
        tmp_path / "cells.h5ad",
    ]


def test_a_table_stays_the_same_object(cells: AnnData) -> None:
    sdata = SimpleNamespace(tables={"table": spatial_table(["nuclei"], cells)}, path=None)
    layers = LayerList(
        [image(features=features()), spatial_layer(sdata, "nuclei", "table", name="nuclei")]
    )
    catalog = Catalog(layers)
    before = found(catalog)
    layers[0].name = "renamed"
    layers.reverse()
    layers.append(image())
    after = found(catalog)
    assert [id(table) for table in after] == [id(table) for table in before]
    assert [table.name for table in after] == ["table (nuclei)", "renamed: features"]


def test_a_table_of_several_layers_is_listed_once_with_the_first_that_has_cells(
    cells: AnnData,
) -> None:
    layers = LayerList(
        [
            Image(np.zeros((3, 3)), name="photo", metadata={"adata": cells}),
            image(name="first", metadata={"adata": cells}),
            image(name="second", metadata={"adata": cells}),
        ]
    )
    catalog = Catalog(layers)
    (table,) = found(catalog)
    assert table.layer is layers["first"]
    layers.remove("first")
    assert found(catalog) == [table]
    assert table.layer is layers["second"]
    layers.remove("second")
    assert found(catalog) == [table]
    assert table.layer is layers["photo"]
    layers.clear()
    assert found(catalog) == []


def test_a_spatialdata_table_of_several_layers(cells: AnnData) -> None:
    sdata = SimpleNamespace(tables={"table": spatial_table(["left", "right"], cells)}, path=None)
    layers = LayerList(
        [spatial_layer(sdata, "left", "table"), spatial_layer(sdata, "right", "table")]
    )
    catalog = Catalog(layers)
    (table,) = found(catalog)
    assert table.adata is cells
    assert table.layer is layers[0]
    rows = range(60), range(60, 120)
    for join, its in zip(catalog.joins.values(), rows, strict=True):
        assert join.rows(range(1, 61)).tolist() == list(its)
        assert str(join).startswith("60 of 120 cells; 0 without a label in the image; 0 labels")


def test_only_tables_that_describe_the_layer_are_listed(make_cells: Callable[..., AnnData]) -> None:
    tables = {
        "other": spatial_table(["elsewhere"], make_cells()),
        "plain": make_cells(),
        "own": spatial_table(["nuclei"], make_cells()),
        "too": spatial_table(["cells", "nuclei"], make_cells()),
    }
    sdata = SimpleNamespace(tables=tables, path=None)
    # Drawn by the user and linked by napari-spatialdata, it is no element yet.
    drawn = image(metadata={"sdata": sdata, "name": None, "adata": None})
    layers = LayerList([spatial_layer(sdata, "nuclei", "own", name="layer"), drawn])
    assert [table.name for table in found(Catalog(layers))] == ["own (layer)", "too (layer)"]


def test_another_anndata_on_a_layer_is_another_table(make_cells: Callable[..., AnnData]) -> None:
    layer = image(metadata={"adata": make_cells()})
    catalog = Catalog(LayerList([layer]))
    (before,) = found(catalog)
    layer.metadata["adata"] = make_cells()
    (after,) = found(catalog)
    assert after is not before
    assert after.adata is layer.metadata["adata"]


def test_what_is_added_is_known_already(cells: AnnData, tmp_path: Path) -> None:
    layers = LayerList([image(metadata={"adata": cells})])
    catalog = Catalog(layers)
    (table,) = found(catalog)
    assert catalog.add(cells, "mine") is table
    assert catalog.add(cells, "mine", path=tmp_path / "cells.h5ad") is table
    assert table.path == tmp_path / "cells.h5ad"
    layers.clear()
    # Its file is still open.
    assert found(catalog) == [table]
    assert table.layer is None


def test_tables_of_one_name_are_numbered(
    make_cells: Callable[..., AnnData], tmp_path: Path
) -> None:
    catalog = Catalog(LayerList())
    for folder in "abc":
        catalog.add(make_cells(), "cells.h5ad", path=tmp_path / folder / "cells.h5ad")
    for _ in range(2):
        names = [table.name for table in found(catalog)]
        assert names == ["cells.h5ad", "cells.h5ad [1]", "cells.h5ad [2]"]


@pytest.mark.parametrize("metadata", [
    {"adata": None}, {"adata": "cells.h5ad"}, {"sdata": None}, {"sdata": 3}, {"path": 5},
])  # fmt: skip
def test_other_metadata_do_no_harm(metadata: dict[str, Any]) -> None:
    assert found(Catalog(LayerList([image(metadata=metadata)]))) == []


# -- features ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns", [[], ["index"], ["kind"], ["index", "kind"]], ids=lambda names: "+".join(names)
)
def test_features_without_measurements_are_not_listed(columns: list[str]) -> None:
    catalog = Catalog(LayerList([image(features=features()[columns]), points(features()[columns])]))
    assert found(catalog) == []


def test_replaced_features_are_another_table(train: Callable[..., None]) -> None:
    layer = image(features=features())
    catalog = Catalog(LayerList([layer]))
    (before,) = found(catalog)
    old = before.adata.copy()
    layer.features = layer.features.assign(added=1.0)
    (after,) = found(catalog)
    assert after is not before
    assert "added" in after.adata.var_names
    assert np.array_equal(before.adata.X, old.X)
    assert list(before.adata.obs) == list(old.obs)
    layer.features["in place"] = 2.0
    (latest,) = found(catalog)
    assert "in place" in latest.adata.var_names


def test_nothing_keeps_a_removed_layer_alive() -> None:
    layers = LayerList([image(features=features())])
    catalog = Catalog(layers)
    assert len(found(catalog)) == 1
    layer = weakref.ref(layers[0])
    # napari itself remembers what was selected.
    layers.selection.clear()
    layers.clear()
    found(catalog)
    gc.collect()
    assert layer() is None


# -- publishing ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [lambda: image(features=features()), lambda: points(features()), lambda: shapes(features())],
)
def test_results_go_to_the_features(make: Callable[[], Layer], train: Callable[..., None]) -> None:
    layer = make()
    extra = pd.DataFrame(
        {
            "nullable": pd.array([None, True] * (N // 2), dtype="boolean"),
            "category": pd.Categorical(["x", None] * (N // 2), ["y", "x"], ordered=True),
            "bool": np.arange(N) % 2 == 0,
            "small": np.arange(N, dtype=np.float32),
            "object": ["x", None] * (N // 2),
        }
    )
    layer.features = pd.concat([features(), extra], axis=1)
    before = layer.features.copy()
    catalog = Catalog(LayerList([layer]))
    (table,) = found(catalog)
    heard = []
    layer.events.features.connect(heard.append)

    train(table)

    assert heard
    pd.testing.assert_frame_equal(layer.features[list(before)], before)
    assert list(layer.features)[-4:] == ["ce_split", "ce_label", "CE1", "CE2"]
    assert np.array_equal(layer.features[["CE1", "CE2"]], table.adata.obsm["X_ce"])
    assert layer.features["ce_label"].tolist() == table.adata.obs["ce_label"].tolist()
    # It is still the same table, and a second result joins the first.
    assert found(catalog) == [table]
    train(table)
    train(table, key="again")
    assert found(catalog) == [table]
    columns = ["ce_split", "ce_label", "CE1", "CE2"]
    columns += ["again_split", "again_label", "again1", "again2"]
    assert list(layer.features) == [*before, *columns]
    pd.testing.assert_frame_equal(layer.features[list(before)], before)


@pytest.mark.parametrize("change", ["add", "remove"])
def test_features_that_were_changed_get_no_result(
    train: Callable[..., None], change: str, caplog: pytest.LogCaptureFixture
) -> None:
    layer = points(features(), name="dots")
    catalog = Catalog(LayerList([layer]))
    (table,) = found(catalog)
    table.adata  # noqa: B018 - as the form does
    if change == "add":
        layer.features = layer.features.assign(added=1.0)
    else:
        layer.selected_data = {0}
        layer.remove_selected()
    before = layer.features.copy()
    with caplog.at_level(logging.WARNING, "centroid_encoder"):
        train(table)
    pd.testing.assert_frame_equal(layer.features, before)
    assert "the features of dots have changed" in caplog.text
    assert "X_ce" in table.adata.obsm
    (after,) = found(catalog)
    assert after is not table


def test_published_results_are_not_learned_from(train: Callable[..., None]) -> None:
    layer = points(features())
    catalog = Catalog(LayerList([layer]))
    (table,) = found(catalog)
    train(table)
    layer.features = layer.features.assign(added=1.0)
    (after,) = found(catalog)
    assert after.adata.var_names.tolist() == ["area", "mean", "added"]


def test_the_next_point_is_what_it_would_have_been(train: Callable[..., None]) -> None:
    layer = points(features())
    layer.feature_defaults = {"index": 0, "area": 9.0, "mean": 8.0, "kind": "b"}
    (table,) = found(Catalog(LayerList([layer])))
    train(table)
    assert layer.feature_defaults.iloc[0][["area", "mean", "kind"]].tolist() == [9.0, 8.0, "b"]
    layer.add([[0, 0]])
    assert layer.features["area"].iloc[-1] == 9.0


def test_results_go_to_a_layer_that_was_removed_or_renamed(train: Callable[..., None]) -> None:
    layers = LayerList([image(name="a", features=features()), image(name="b")])
    catalog = Catalog(layers)
    (table,) = found(catalog)
    layer = layers[0]
    layer.name = "c"
    layers["b"].name = "a"
    train(table)
    assert "ce_label" in layer.features
    assert "ce_label" not in layers["a"].features
    layers.remove(layer)
    train(table, key="again")
    assert "again_label" in layer.features
    assert "again" in table.adata.uns

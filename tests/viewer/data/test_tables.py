"""Tables in a viewer, and features of layers as tables."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from napari.components import LayerList
from napari.layers import Image, Labels, Points

import centroid_encoder as ce
from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.tables import (
    Table,
    features_to_anndata,
    publish,
)

N = 40


@pytest.fixture
def train(fast) -> Callable[..., None]:
    """Train quickly on a table, and write the result into the features."""

    def run(table: Table, key: str = "ce", label_key: str = "kind") -> None:
        added = None if key == "ce" else key
        ce.tl.centroid_encoder(table.adata, label_key, model=fast, key_added=added, progress=False)
        publish(table, key)

    return run


def image(**options: Any) -> Labels:
    ids = 3 * np.arange(N, dtype=np.int32) + 5
    return Labels(np.stack([ids, ids]), **options)


def features() -> pd.DataFrame:
    rng, index = np.random.default_rng(0), np.arange(N)
    area, mean = rng.normal(size=(2, N)) + 2 * (index % 2)
    kind = np.array(["a", "b"])[index % 2]
    return pd.DataFrame({"index": 3 * index + 5, "area": area, "mean": mean, "kind": kind})


def points(table: pd.DataFrame, **options: Any) -> Points:
    return Points(np.random.default_rng(0).normal(size=(len(table), 2)), features=table, **options)


def spatial_table(regions: list[str], cells: AnnData) -> AnnData:
    """Rows as in SpatialData: the cells of each region are numbered."""
    cells.obs["kind"] = cells.obs["cell_type"]
    per_region = cells.n_obs // len(regions)
    cells.obs["region"] = pd.Categorical(np.repeat(regions, per_region))
    cells.obs["instance_id"] = np.tile(np.arange(1, per_region + 1), len(regions))
    declared = {"region_key": "region", "instance_key": "instance_id"}
    region = regions if len(regions) > 1 else regions[0]
    cells.uns["spatialdata_attrs"] = {"region": region} | declared
    return cells


def spatial_layer(sdata: Any, element: str, table: str, **options: Any) -> Labels:
    """Layer as napari-spatialdata makes it, with a copy of the rows of its region."""
    adata = sdata.tables[table][sdata.tables[table].obs["region"] == element].copy()
    keys = {"region_key": "region", "instance_key": "instance_id"}
    metadata = {"sdata": sdata, "adata": adata, "name": element, "table_names": [table]} | keys
    return Labels(np.arange(adata.n_obs + 1)[None].repeat(2, 0), metadata=metadata, **options)


def found(catalog: Catalog) -> list[Table]:
    catalog.refresh()
    return catalog.tables


def test_only_tables_that_describe_the_layer_are_listed(make_cells):
    tables = {
        "other": spatial_table(["elsewhere"], make_cells()),
        "plain": make_cells(),
        "own": spatial_table(["nuclei"], make_cells()),
        "too": spatial_table(["cells", "nuclei"], make_cells()),
    }
    sdata = SimpleNamespace(tables=tables, path=None)
    # A layer that the user has drawn is not an element of SpatialData yet.
    drawn = {"sdata": sdata, "name": None, "adata": None}
    others = drawn, {"adata": "cells.h5ad"}, {"sdata": None}, {"sdata": 3}, {"path": 5}
    layers = [spatial_layer(sdata, "nuclei", "own", name="layer")]
    layers += [image(metadata=metadata) for metadata in others]
    for columns in ([], ["index"], ["kind"], ["index", "kind"]):
        layers += [image(features=features()[columns]), points(features()[columns])]
    found_tables = found(Catalog(LayerList(layers)))
    assert [table.name for table in found_tables] == ["own (layer)", "too (layer)"]


def test_tables_are_listed_by_origin_and_stay_the_same_objects(make_cells, tmp_path):
    sdata = SimpleNamespace(tables={"table": spatial_table(["nuclei"], make_cells())}, path=None)
    attached, read, opened, given = (make_cells() for _ in range(4))
    of_file = {"adata": read, "path": tmp_path / "read.h5ad"}
    layers = LayerList(
        [
            image(name="measured", features=features()),
            points(pd.DataFrame({"cell": read.obs_names}), name="read", metadata=of_file),
            image(name="attached", metadata={"adata": attached}),
            spatial_layer(sdata, "nuclei", "table", name="nuclei"),
        ]
    )
    catalog = Catalog(layers)
    catalog.add(given, "mine")
    catalog.add(make_cells(), "mine")
    catalog.add(opened, "cells.h5ad", path=tmp_path / "cells.h5ad")
    tables = found(catalog)
    layers["measured"].name = "renamed"
    layers.reverse()
    assert found(catalog) == tables
    assert [(table.name, table.layer and table.layer.name, table.path) for table in tables] == [
        ("table (nuclei)", "nuclei", None),
        ("attached: AnnData", "attached", None),
        ("read.h5ad", "read", tmp_path / "read.h5ad"),
        ("cells.h5ad", None, tmp_path / "cells.h5ad"),
        ("renamed: features", "renamed", None),
        ("mine", None, None),
        ("mine [1]", None, None),
    ]
    expected = [sdata.tables["table"], attached, read, opened]
    assert [id(table.adata) for table in tables[:4]] == [id(adata) for adata in expected]
    assert (tables[0].sdata, tables[0].table_name) == (sdata, "table")


def test_a_table_of_several_layers_is_listed_once(cells, tmp_path):
    photo = Image(np.zeros((3, 3)), name="photo", metadata={"adata": cells})
    masks = [image(name=name, metadata={"adata": cells}) for name in ("first", "second")]
    layers = LayerList([photo, *masks])
    catalog = Catalog(layers)
    for name in ("first", "second", "photo"):
        (table,) = found(catalog)
        assert table.layer is layers[name]
        layers.remove(name)
    # The table stays when its last layer is removed.
    assert found(catalog) == [table]
    assert table.layer is None
    layers.append(masks[0])
    assert found(catalog) == [table]
    # The added table is the known one.
    assert catalog.add(cells, "mine", path=tmp_path / "cells.h5ad") is table
    assert table.path == tmp_path / "cells.h5ad"


def test_features_become_a_table_that_can_be_saved(tmp_path):
    columns = {
        "index": [1, 4, 7],
        "area": [0.5, 1.5, 2.5],
        "mean": np.full(3, 1.5, dtype=np.float32),
        "n": pd.array([None, 0, 1], dtype="Int64"),
        "touching": [True, False, False],
        "kind": ["a", "b", "a"],
        "tissue": pd.Categorical(["x", "y", None]),
        "note": [None, 1.5, "text"],
        "seen": pd.to_datetime(["2020-01-01"] * 3),
    }
    features_to_anndata(pd.DataFrame(columns), of_labels=True).write_h5ad(tmp_path / "cells.h5ad")
    adata = ad.read_h5ad(tmp_path / "cells.h5ad")
    assert adata.obs_names.tolist() == ["1", "4", "7"]
    assert adata.var_names.tolist() == ["area", "mean", "n"]
    np.testing.assert_array_equal(adata.X, [[0.5, 1.5, np.nan], [1.5, 1.5, 0], [2.5, 1.5, 1]])
    # Whole numbers can be measurements or classes.
    assert list(adata.obs) == [name for name in columns if name not in ("area", "mean")]
    assert adata.obs["touching"].dtype == bool
    assert adata.obs["kind"].tolist() == ["a", "b", "a"]
    assert adata.obs["tissue"].isna().tolist() == [False, False, True]
    assert adata.obs["note"].cat.categories.tolist() == ["1.5", "text"]


def test_ids_and_positions_are_not_measurements_unless_they_are_chosen():
    # These are columns of scikit-image.
    names = ["label", "centroid-0", "centroid-1", "bbox-0", "area", "area_bbox"]
    layer = image(features=pd.DataFrame(np.arange(240.0).reshape(40, 6), columns=names))
    catalog = Catalog(LayerList([layer]))
    (table,) = found(catalog)
    catalog.choose(table)
    assert table.adata.var_names.tolist() == ["area", "area_bbox"]
    table.adata.obs["own"] = "kept"
    catalog.choose_roles({"centroid-0": "feature", "area": "text"})
    assert found(catalog) == [table]
    assert table.adata.var_names.tolist() == ["centroid-0", "area_bbox"]
    assert "area" in table.adata.obs
    assert set(table.adata.obs["own"]) == {"kept"}
    # A table that has nothing but positions is learned from them.
    layer.features = layer.features[["label", "centroid-0", "centroid-1"]]
    (table,) = found(catalog)
    assert table.adata.var_names.tolist() == ["centroid-0", "centroid-1"]
    layer.features = pd.DataFrame({"label": range(40), "cell_id": range(40)})
    assert found(catalog) == []


def test_labels_without_index_are_numbered_from_the_background():
    table = pd.DataFrame({"area": [0.0, 1.0], 7: np.float32([1, 2])})
    adata = features_to_anndata(table, of_labels=True)
    assert adata.obs["index"].tolist() == [0, 1]
    assert adata.var_names.tolist() == ["area", "7"]
    # Repeated ids are not used as names.
    adata = features_to_anndata(pd.DataFrame({"index": [4, 4], "area": [1.0, 2.0]}), of_labels=True)
    assert adata.obs_names.tolist() == ["0", "1"]
    assert adata.obs["index"].tolist() == [4, 4]


@pytest.mark.parametrize("make", [lambda: image(features=features()), lambda: points(features())])
def test_results_are_added_to_the_features_and_not_learned_from(make, train):
    layer = make()
    extra = {
        "nullable": pd.array([None, True] * (N // 2), dtype="boolean"),
        "category": pd.Categorical(["x", None] * (N // 2), ["y", "x"], ordered=True),
        "small": np.linspace(0, 1, N, dtype=np.float32) ** 2,
        "object": ["x", None] * (N // 2),
    }
    layer.features = features().assign(**extra)
    before = layer.features.copy()
    catalog = Catalog(LayerList([layer]))
    (table,) = found(catalog)
    emitted = []
    layer.events.features.connect(emitted.append)
    train(table)
    assert emitted
    assert np.array_equal(layer.features[["CE1", "CE2"]], table.adata.obsm["X_ce"])
    assert layer.features["ce_label"].tolist() == table.adata.obs["ce_label"].tolist()
    # The table is still the same, and a second result is added to the first.
    train(table, key="again")
    assert found(catalog) == [table]
    columns = ["ce_split", "ce_label", "CE1", "CE2"]
    columns += ["again_split", "again_label", "again1", "again2"]
    assert list(layer.features) == [*before, *columns]
    pd.testing.assert_frame_equal(layer.features[list(before)], before)
    # Columns of others make another table if there are no unsaved results.
    layer.features["added"] = 1.0
    table.unsaved = False
    (after,) = found(catalog)
    assert after is not table
    assert after.adata.var_names.tolist() == ["area", "mean", "small", "added"]
    # A result does not replace a measurement.
    layer.features = features().rename(columns={"area": "k1"})
    (table,) = found(catalog)
    train(table, key="k")
    assert np.array_equal(layer.features["k1"], features()["area"])
    assert np.array_equal(layer.features["k2"], table.adata.obsm["k"][:, 1])


def test_features_that_were_changed_get_no_result(train):
    layer = points(features(), name="dots")
    (table,) = found(Catalog(LayerList([layer])))
    layer.selected_data = {0}
    layer.remove_selected()
    before = layer.features.copy()
    train(table)
    pd.testing.assert_frame_equal(layer.features, before)
    assert "X_ce" in table.adata.obsm


def test_labels_that_were_given_here_are_not_replaced_by_those_of_the_features():
    layer = points(features())
    catalog = Catalog(LayerList([layer]))
    [table] = found(catalog)
    table.adata.obs["by hand"], table.unsaved = pd.Categorical(["new"] * N), True
    layer.features = layer.features.assign(**{"by hand": "old", "note": 1})
    catalog.refresh()
    assert found(catalog) == [table]
    assert (table.adata.obs["by hand"] == "new").all()
    layer.features = layer.features.assign(note=2)
    catalog.refresh()
    assert (table.adata.obs["note"] == 2).all()

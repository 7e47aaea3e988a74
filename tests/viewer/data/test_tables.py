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
from centroid_encoder.viewer.data.guesses import guess
from centroid_encoder.viewer.data.publish import publish
from centroid_encoder.viewer.data.tables import Table, Tables

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


# -- finding -------------------------------------------------------------------------------------


def test_an_empty_viewer_has_no_tables() -> None:
    assert Tables(LayerList()).find() == []


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
    tables = Tables(layers)
    tables.add(given, "mine")
    tables.add(opened, "cells.h5ad", path=tmp_path / "cells.h5ad")

    found = tables.find()

    assert [(table.name, table.origin, table.layer and table.layer.name) for table in found] == [
        ("table (nuclei)", "spatialdata", "nuclei"),
        ("attached: AnnData", "metadata", "attached"),
        ("read.h5ad", "file", "read"),
        ("cells.h5ad", "file", None),
        ("measured: features", "features", "measured"),
        ("mine", "notebook", None),
    ]
    expected = [sdata.tables["table"], attached, read, opened]
    assert all(table.adata is adata for table, adata in zip(found, expected, strict=False))
    assert found[-1].adata is given
    assert found[0].sdata is sdata
    assert found[0].table_name == "table"
    assert [table.path for table in found[2:4]] == [tmp_path / "read.h5ad", tmp_path / "cells.h5ad"]


def test_a_table_stays_the_same_object(cells: AnnData) -> None:
    sdata = SimpleNamespace(tables={"table": spatial_table(["nuclei"], cells)}, path=None)
    layers = LayerList(
        [image(features=features()), spatial_layer(sdata, "nuclei", "table", name="nuclei")]
    )
    tables = Tables(layers)
    before = tables.find()
    layers[0].name = "renamed"
    layers.reverse()
    layers.append(image())
    after = tables.find()
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
    tables = Tables(layers)
    (table,) = tables.find()
    assert table.layer is layers["first"]
    layers.remove("first")
    assert tables.find() == [table]
    assert table.layer is layers["second"]
    layers.remove("second")
    assert tables.find() == [table]
    assert table.layer is layers["photo"]
    layers.clear()
    assert tables.find() == []


def test_a_spatialdata_table_of_several_layers(cells: AnnData) -> None:
    sdata = SimpleNamespace(tables={"table": spatial_table(["left", "right"], cells)}, path=None)
    layers = LayerList(
        [spatial_layer(sdata, "left", "table"), spatial_layer(sdata, "right", "table")]
    )
    (table,) = Tables(layers).find()
    assert table.adata is cells
    assert table.layer is layers[0]
    for layer, rows in zip(layers, (range(60), range(60, 120)), strict=True):
        join = guess(table, layer).make()
        assert join.rows(range(1, 61)).tolist() == list(rows)
        assert (
            str(join) == "60 of 120 cells; 0 without a label in the image; 0 labels without a row"
        )


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
    assert [table.name for table in Tables(layers).find()] == ["own (layer)", "too (layer)"]


def test_another_anndata_on_a_layer_is_another_table(make_cells: Callable[..., AnnData]) -> None:
    layer = image(metadata={"adata": make_cells()})
    tables = Tables(LayerList([layer]))
    (before,) = tables.find()
    layer.metadata["adata"] = make_cells()
    (after,) = tables.find()
    assert after is not before
    assert after.adata is layer.metadata["adata"]


def test_what_is_added_is_known_already(cells: AnnData, tmp_path: Path) -> None:
    layers = LayerList([image(metadata={"adata": cells})])
    tables = Tables(layers)
    (found,) = tables.find()
    assert tables.add(cells, "mine") is found
    assert tables.add(cells, "mine", path=tmp_path / "cells.h5ad") is found
    assert found.path == tmp_path / "cells.h5ad"
    layers.clear()
    # Its file is still open.
    assert tables.find() == [found]
    assert found.layer is None


def test_what_was_opened_stays_with_the_viewer_and_goes_with_it(
    make_cells: Callable[..., AnnData],
) -> None:
    # A function, since whoever looks at a frame's variables keeps them as they were.
    def visit() -> weakref.ref[AnnData]:
        layers = LayerList()
        cells = Tables(layers).add(make_cells(), "mine").adata
        (found,) = Tables(layers).find()
        assert found.adata is cells
        assert Tables(LayerList()).find() == []
        return weakref.ref(cells)

    cells = visit()
    gc.collect()
    assert cells() is None


def test_a_new_path_stays(cells: AnnData, tmp_path: Path) -> None:
    tables = Tables(LayerList())
    table = tables.add(cells, "cells.h5ad", path=tmp_path / "cells.h5ad")
    table.path = tmp_path / "saved.h5ad"
    tables.find()
    assert table.path == tmp_path / "saved.h5ad"


def test_tables_of_one_name_are_numbered(
    make_cells: Callable[..., AnnData], tmp_path: Path
) -> None:
    tables = Tables(LayerList())
    for folder in "abc":
        tables.add(make_cells(), "cells.h5ad", path=tmp_path / folder / "cells.h5ad")
    for _ in range(2):
        names = [table.name for table in tables.find()]
        assert names == ["cells.h5ad", "cells.h5ad [1]", "cells.h5ad [2]"]


@pytest.mark.parametrize("metadata", [
    {"adata": None}, {"adata": "cells.h5ad"}, {"sdata": None}, {"sdata": 3}, {"path": 5},
])  # fmt: skip
def test_other_metadata_do_no_harm(metadata: dict[str, Any]) -> None:
    assert Tables(LayerList([image(metadata=metadata)])).find() == []


# -- features ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "columns", [[], ["index"], ["kind"], ["index", "kind"]], ids=lambda names: "+".join(names)
)
def test_features_without_measurements_are_not_listed(columns: list[str]) -> None:
    tables = Tables(LayerList([image(features=features()[columns]), points(features()[columns])]))
    assert tables.find() == []


def test_features_are_read_when_asked_for() -> None:
    layer = image(features=features())
    (table,) = Tables(LayerList([layer])).find()
    layer.features = features().assign(area=0.0)
    # As they were when the table was found.
    assert np.array_equal(table.adata[:, "area"].X[:, 0], features()["area"])


def test_replaced_features_are_another_table(train: Callable[..., None]) -> None:
    layer = image(features=features())
    tables = Tables(LayerList([layer]))
    (before,) = tables.find()
    old = before.adata.copy()
    layer.features = layer.features.assign(added=1.0)
    (after,) = tables.find()
    assert after is not before
    assert "added" in after.adata.var_names
    assert np.array_equal(before.adata.X, old.X)
    assert list(before.adata.obs) == list(old.obs)
    layer.features["in place"] = 2.0
    (latest,) = tables.find()
    assert "in place" in latest.adata.var_names


def test_two_widgets_share_the_table_of_features() -> None:
    layers = LayerList([image(features=features())])
    (one,) = (first := Tables(layers)).find()
    (two,) = Tables(layers).find()
    assert one is two
    assert first.find() == [one]


def test_nothing_keeps_a_removed_layer_alive() -> None:
    layers = LayerList([image(features=features())])
    tables = Tables(layers)
    assert len(tables.find()) == 1
    layer = weakref.ref(layers[0])
    # napari itself remembers what was selected.
    layers.selection.clear()
    layers.clear()
    tables.find()
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
    tables = Tables(LayerList([layer]))
    (table,) = tables.find()
    heard = []
    layer.events.features.connect(heard.append)

    train(table)

    assert heard
    pd.testing.assert_frame_equal(layer.features[list(before)], before)
    assert list(layer.features)[-4:] == ["ce_split", "ce_label", "CE1", "CE2"]
    assert np.array_equal(layer.features[["CE1", "CE2"]], table.adata.obsm["X_ce"])
    assert layer.features["ce_label"].tolist() == table.adata.obs["ce_label"].tolist()
    # It is still the same table, and a second result joins the first.
    assert tables.find() == [table]
    train(table)
    train(table, key="again")
    assert tables.find() == [table]
    columns = ["ce_split", "ce_label", "CE1", "CE2"]
    columns += ["again_split", "again_label", "again1", "again2"]
    assert list(layer.features) == [*before, *columns]
    pd.testing.assert_frame_equal(layer.features[list(before)], before)


def test_published_results_are_not_learned_from(train: Callable[..., None]) -> None:
    layer = points(features())
    tables = Tables(LayerList([layer]))
    (table,) = tables.find()
    train(table)
    layer.features = layer.features.assign(added=1.0)
    (after,) = tables.find()
    assert after.adata.var_names.tolist() == ["area", "mean", "added"]


def test_results_find_their_rows_in_replaced_features(train: Callable[..., None]) -> None:
    layer = image(features=features())
    tables = Tables(LayerList([layer]))
    (table,) = tables.find()
    # While it trains, another plugin sorts them and leaves some out.
    shuffled = features().assign(added=7).sample(frac=0.5, random_state=0)
    layer.features = shuffled
    (current,) = tables.find()

    train(table)

    published = layer.features.set_index("index")
    expected = table.adata.obs.set_index("index").loc[shuffled["index"]]
    assert published["ce_label"].tolist() == expected["ce_label"].tolist()
    assert published["added"].tolist() == [7] * (N // 2)
    # The table of what the other plugin made is still that.
    assert current is not table
    assert tables.find() == [current]


def test_features_that_were_replaced_unnoticed_are_another_table(
    train: Callable[..., None],
) -> None:
    layer = image(features=features())
    tables = Tables(LayerList([layer]))
    (before,) = tables.find()
    layer.features = layer.features.assign(added=1.0)
    train(before)
    (after,) = tables.find()
    assert after is not before
    assert after.adata.var_names.tolist() == ["area", "mean", "added"]


def test_rows_without_id_get_no_result(train: Callable[..., None]) -> None:
    layer = image(features=features().assign(index=range(N)))
    (table,) = Tables(LayerList([layer])).find()
    layer.features = layer.features.assign(index=[np.nan, *range(1, N)])
    train(table)
    assert layer.features["ce_label"].isna().tolist() == [True] + [False] * (N - 1)


def test_results_of_labels_without_index_keep_napari_rule(train: Callable[..., None]) -> None:
    layer = image(features=features().drop(columns="index"))
    (table,) = Tables(LayerList([layer])).find()
    layer.features = pd.concat([layer.features, features(3)], ignore_index=True).drop(
        columns="index"
    )
    train(table)
    assert layer.features["ce_label"][:N].tolist() == table.adata.obs["ce_label"].tolist()
    assert layer.features["ce_label"][N:].isna().all()


@pytest.mark.parametrize("make", [points, shapes])
def test_results_follow_points_and_shapes_that_can_be_told(
    make: Callable[[pd.DataFrame], Points | Shapes], train: Callable[..., None]
) -> None:
    layer = make(features())
    (table,) = Tables(LayerList([layer])).find()
    table.adata  # noqa: B018 - as the form does
    layer.selected_data = {0, 7}
    layer.remove_selected()
    train(table)
    left = np.delete(np.arange(N), [0, 7])
    expected = table.adata.obs["ce_label"].iloc[left]
    assert layer.features["ce_label"].tolist() == expected.tolist()


def test_results_are_not_given_to_the_wrong_points(
    train: Callable[..., None], caplog: pytest.LogCaptureFixture
) -> None:
    layer = points(features().drop(columns="index"), name="dots")
    (table,) = Tables(LayerList([layer])).find()
    table.adata  # noqa: B018 - as the form does
    layer.selected_data = {0}
    layer.remove_selected()
    before = layer.features.copy()
    with caplog.at_level(logging.WARNING, "centroid_encoder"):
        train(table)
    pd.testing.assert_frame_equal(layer.features, before)
    assert "the features of dots are no longer those that were learned from" in caplog.text
    assert "X_ce" in table.adata.obsm


def test_results_of_unchanged_points_are_given_to_replaced_features(
    train: Callable[..., None],
) -> None:
    layer = points(features().drop(columns="index"))
    (table,) = Tables(LayerList([layer])).find()
    layer.features = layer.features.assign(added=1)
    train(table)
    assert layer.features["ce_label"].tolist() == table.adata.obs["ce_label"].tolist()


def test_the_next_point_is_what_it_would_have_been(train: Callable[..., None]) -> None:
    layer = points(features())
    layer.feature_defaults = {"index": 0, "area": 9.0, "mean": 8.0, "kind": "b"}
    (table,) = Tables(LayerList([layer])).find()
    train(table)
    assert layer.feature_defaults.iloc[0][["area", "mean", "kind"]].tolist() == [9.0, 8.0, "b"]
    layer.add([[0, 0]])
    assert layer.features["area"].iloc[-1] == 9.0


def test_results_go_to_a_layer_that_was_removed_or_renamed(train: Callable[..., None]) -> None:
    layers = LayerList([image(name="a", features=features()), image(name="b")])
    tables = Tables(layers)
    (table,) = tables.find()
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


def test_copies_of_a_spatialdata_table_are_refreshed(
    make_cells: Callable[..., AnnData], train: Callable[..., None]
) -> None:
    adata = spatial_table(["left", "right"], make_cells())
    adata.uns["kind_colors"] = ["#ff0000", "#00ff00", "#0000ff"]
    other = SimpleNamespace(tables={"table": adata.copy()}, path=None)
    sdata = SimpleNamespace(tables={"table": adata}, path=None)
    left = spatial_layer(sdata, "left", "table", name="left")
    right = spatial_layer(sdata, "right", "table", name="right")
    # napari-spatialdata leaves out rows and follows the order of the element.
    some = left.metadata["adata"][[5, 3, 50]].copy()
    some.obs["theirs"] = 1
    left.metadata["adata"] = some
    right.metadata["adata"] = right.metadata["adata"][::-1]
    assert right.metadata["adata"].is_view
    stranger = spatial_layer(other, "left", "table", name="stranger")
    layers = LayerList([left, right, stranger])
    tables = Tables(layers)
    table = tables.find()[0]

    train(table)

    assert table.adata is adata
    assert left.metadata["adata"] is some
    assert "theirs" in some.obs
    for layer in (left, right):
        copy = layer.metadata["adata"]
        expected = adata[copy.obs_names]
        assert np.array_equal(copy.obsm["X_ce"], expected.obsm["X_ce"])
        for name in ("ce_split", "ce_label"):
            assert copy.obs[name].tolist() == expected.obs[name].tolist()
            assert copy.obs[name].dtype == adata.obs[name].dtype
        assert copy.uns["kind_colors"] == adata.uns["kind_colors"]
        assert np.array_equal(copy.uns["ce"]["centers"], adata.uns["ce"]["centers"])
        assert copy.uns["ce"] is not adata.uns["ce"]
    assert "X_ce" not in stranger.metadata["adata"].obsm
    # What they show is what was stored.
    assert right.metadata["adata"].n_obs == 60
    assert tables.find()[0] is table


def test_copies_of_other_tables_stay_as_they_are(
    make_cells: Callable[..., AnnData], train: Callable[..., None], unchanged: Any
) -> None:
    tables = {name: spatial_table(["nuclei"], make_cells()) for name in ("one", "two")}
    tables["two"].obs["instance_id"] += 1
    layer = spatial_layer(SimpleNamespace(tables=tables, path=None), "nuclei", "two")
    one, _ = Tables(LayerList([layer])).find()
    with unchanged(layer.metadata["adata"]), unchanged(tables["two"]):
        train(one)


def test_results_of_an_attached_table_need_no_publishing(
    cells: AnnData, train: Callable[..., None]
) -> None:
    layer = image(metadata={"adata": cells}, features=features())
    before = layer.features
    table = Tables(LayerList([layer])).find()[0]
    train(table, label_key="cell_type")
    assert layer.metadata["adata"] is cells
    assert "X_ce" in cells.obsm
    assert layer.features is before

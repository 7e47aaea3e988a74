from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from hypothesis import given, settings
from hypothesis import strategies as st
from napari.layers import Image, Labels, Points

from centroid_encoder.viewer.data.features import features_to_anndata
from centroid_encoder.viewer.data.join import OBS_NAMES, Join, Keys, guess_keys

CELL_ID = Keys(instance_key="cell_id")


def table(ids: Any = None, **columns: Any) -> AnnData:
    obs = columns if ids is None else {"cell_id": ids, **columns}
    n_obs = len(next(iter(obs.values())))
    index = pd.Index([f"c{i}" for i in range(n_obs)])
    obs = {name: np.asarray(v) if isinstance(v, list) else v for name, v in obs.items()}
    return AnnData(np.ones((n_obs, 2), np.float32), obs=pd.DataFrame(obs).set_axis(index))


def labels(ids: Any, **options: Any) -> Labels:
    """Image with two pixels of each label, in this order, and background around them."""
    image = np.pad(np.repeat(np.asarray(ids)[None, :], 2, axis=0), 1)
    return Labels(image, **options)


def points(n: int, **options: Any) -> Points:
    return Points(np.zeros((n, 2)), **options)


# -- labels --------------------------------------------------------------------------------------


def test_rows_are_found_by_id_whatever_their_order() -> None:
    # Gaps, shuffled rows, filtered rows, a row without a label and a label without a row.
    join = Join.make(table([90, 4, 7, 55]), labels([4, 7, 8, 90]), CELL_ID)
    assert join.joined.tolist() == [True, True, True, False]
    assert join.ids[:3].tolist() == [90, 4, 7]
    assert join.rows([4, 7, 8, 90, 55]).tolist() == [1, 2, -1, 0, -1]
    assert (join.n_rows, join.n_unmatched_rows, join.n_unmatched_ids) == (4, 1, 1)


def test_background_is_no_cell() -> None:
    join = Join.make(table([0, 1]), labels([1]), CELL_ID)
    assert join.joined.tolist() == [False, True]
    assert join.rows([0, 1]).tolist() == [-1, 1]
    assert str(join) == "2 cells; 1 without a label in the image; 0 labels without a row"


def test_a_whole_image_of_ids_has_rows() -> None:
    layer = labels([5, 2])
    rows = Join.make(table([2, 5]), layer, CELL_ID).rows(layer.data)
    assert rows.tolist() == [[-1] * 4, [-1, 1, 0, -1], [-1, 1, 0, -1], [-1] * 4]


@pytest.mark.parametrize(
    "column",
    [
        [4, 7],
        [4.0, 7.0],
        ["4", "7"],
        pd.Categorical([4, 7]),
        pd.Categorical(["4", "7"], ["7", "4", "none"]),
        pd.array([4, 7], dtype="Int64"),
    ],
    ids=["int", "float", "str", "categories", "str categories", "nullable"],
)
@pytest.mark.parametrize("dtype", ["uint8", "int32", "uint64"])
def test_instances_and_images_of_any_type(column: Any, dtype: str) -> None:
    join = Join.make(table(column), labels(np.array([7, 4], dtype)), CELL_ID)
    assert join.rows([4, 7]).tolist() == [0, 1]
    # As pixels come from the image.
    assert join.rows(np.array([4, 7], dtype)).tolist() == [0, 1]


@pytest.mark.parametrize("missing", [np.nan, None])
def test_a_row_without_id_is_not_joined(missing: object) -> None:
    adata = table(pd.Series([4, missing, missing], dtype=object))
    assert Join.make(adata, labels([4]), CELL_ID).joined.tolist() == [True, False, False]


def test_ids_that_the_image_cannot_hold_are_not_joined() -> None:
    # As uint8, 260 would be 4, and −252 too.
    join = Join.make(table([260, 4, -252]), labels(np.array([4], np.uint8)), CELL_ID)
    assert join.joined.tolist() == [False, True, False]


def test_huge_ids() -> None:
    # As float32, they would be one.
    ids = [2**40, 2**40 + 1]
    join = Join.make(table(ids), labels(ids), CELL_ID)
    assert join.rows(ids).tolist() == [0, 1]
    assert join.n_unmatched_ids == 0


def test_images_of_any_kind() -> None:
    image = np.zeros((4, 6, 6), dtype=np.int32)
    image[1, 2, 2], image[3, 5, 5] = 9, 4
    pyramid = [image, image[:, ::2, ::2]]
    for data in (image, da.from_array(image, chunks=3), pyramid):
        join = Join.make(table([4, 9, 5]), Labels(data), CELL_ID)
        assert join.rows([9, 4]).tolist() == [1, 0]
        assert join.n_unmatched_ids == 0


def test_an_image_without_labels_joins_nothing() -> None:
    join = Join.make(table([1, 2]), Labels(np.zeros((4, 4), dtype=int)), CELL_ID)
    assert not join.joined.any()
    assert join.rows([0, 1]).tolist() == [-1, -1]


def test_a_table_without_cells_joins_nothing() -> None:
    join = Join.make(table([1, 2])[:0], labels([1]), CELL_ID)
    assert join.rows([1]).tolist() == [-1]
    assert str(join) == "0 cells; 0 without a label in the image; 1 label without a row"


def test_joining_changes_nothing(unchanged: Any) -> None:
    adata, layer = table([4, 7], region=["a", "b"]), labels([4])
    before = layer.data.copy()
    with unchanged(adata):
        Join.make(adata, layer, Keys("region", "a", "cell_id"))
        guess_keys(adata, layer)
    assert np.array_equal(layer.data, before)


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_joins_agree_with_a_dict(data: st.DataObject) -> None:
    number = st.integers(-3, 40)
    image = data.draw(st.lists(number, min_size=1, max_size=30))
    ids = data.draw(st.lists(number, max_size=20, unique=True))
    region = data.draw(st.lists(st.sampled_from("ab"), min_size=len(ids), max_size=len(ids)))
    adata = table(pd.Series(ids, dtype=np.int64), region=pd.Series(region, dtype=object))
    layer = labels(np.array(image, dtype=np.int32))
    only = data.draw(st.sampled_from(["a", None]))

    join = Join.make(adata, layer, Keys("region", only, "cell_id"))

    present = {label for label in image if label}
    of_region = [i for i in range(len(ids)) if only in (None, region[i])]
    row = {ids[i]: i for i in of_region if ids[i] in present}
    wanted = range(-5, 45)
    assert join.rows(wanted).tolist() == [row.get(label, -1) for label in wanted]
    assert join.joined.tolist() == [i in row.values() for i in range(len(ids))]
    assert join.ids[join.joined].tolist() == [ids[i] for i in sorted(row.values())]
    assert join.n_rows == len(of_region)
    assert join.n_unmatched_rows == len(of_region) - len(row)
    assert join.n_unmatched_ids == len(present) - len(row)


# -- regions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("regions", [["a", "a", "b"], pd.Categorical(["a", "a", "b"]), [1, 1, 2]])
def test_rows_of_other_regions_are_not_joined(regions: Any) -> None:
    adata = table([4, 7, 4], region=regions)
    first = adata.obs["region"].iloc[0]
    join = Join.make(adata, labels([4, 7]), Keys("region", first, "cell_id"))
    assert join.rows([4, 7]).tolist() == [0, 1]
    assert join.joined.tolist() == [True, True, False]
    assert str(join) == "2 of 3 cells; 0 without a label in the image; 0 labels without a row"


def test_cells_of_no_region_are_not_joined() -> None:
    adata = table([4, 7], region=pd.Categorical(["a", None]))
    join = Join.make(adata, labels([4, 7]), Keys("region", "a", "cell_id"))
    assert join.joined.tolist() == [True, False]


def test_no_region_means_all() -> None:
    adata = table([4, 7], region=["a", "b"])
    assert Join.make(adata, labels([4, 7]), Keys("region", None, "cell_id")).joined.all()


# -- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (Keys(), "choose the column that holds each cell's id"),
        (Keys(instance_key="gone"), "obs has no column 'gone'"),
        (Keys("gone", "a", "cell_id"), "obs has no column 'gone'"),
        (Keys(instance_key="area"), r"obs\['area'\] holds 3.5, which is no label"),
        (Keys(instance_key="name"), r"obs\['name'\] holds 'x'"),
        (Keys(instance_key="good"), r"obs\['good'\] holds (True|False)"),
        (Keys(instance_key=OBS_NAMES), "obs_names holds 'c0'"),
    ],
)
def test_keys_that_join_nothing_say_why(keys: Keys, message: str) -> None:
    adata = table([4, 7], area=[3.5, 1.0], name=["x", "y"], good=[True, False])
    with pytest.raises(ValueError, match=message):
        Join.make(adata, labels([4, 7]), keys)


def test_repeated_ids_are_named_with_what_to_do() -> None:
    adata = table([4, 7, 4, 7, 8, 8, 9, 9, 0, 0], region=list("aabb" + "abababa"[:6]))
    message = r"gives several cells the same label: 4, 7, 8 and 1 more; choose another column"
    with pytest.raises(ValueError, match=message + "$"):
        Join.make(adata, labels([4, 7]), CELL_ID)
    with pytest.raises(ValueError, match=message + ", or the region that the layer shows"):
        Join.make(adata, labels([4, 7]), Keys("region", None, "cell_id"))
    assert Join.make(adata, labels([4, 7]), Keys("region", "a", "cell_id")).joined.any()


def test_missing_and_background_ids_may_repeat() -> None:
    adata = table(pd.Series([0, 0, np.nan, np.nan, 4]))
    assert Join.make(adata, labels([4]), CELL_ID).joined.tolist() == [False] * 4 + [True]


def test_other_layers_have_no_cells() -> None:
    with pytest.raises(ValueError, match="photo holds neither labels nor points"):
        Join.make(table([1]), Image(np.zeros((4, 4)), name="photo"), CELL_ID)


@pytest.mark.parametrize(
    ("ids", "image", "text"),
    [
        ([1], [2], "1 cell; 1 without a label in the image; 1 label without a row"),
        ([1, 3], [2, 4], "2 cells; 2 without a label in the image; 2 labels without a row"),
        (
            range(1, 1201),
            [1, *range(1300, 3000)],
            "1,200 cells; 1,199 without a label in the image; 1,700 labels without a row",
        ),
    ],
)
def test_joins_say_what_they_are(ids: Any, image: Any, text: str) -> None:
    assert str(Join.make(table(list(ids)), labels(list(image)), CELL_ID)) == text


# -- points --------------------------------------------------------------------------------------


def test_points_by_a_column_of_the_same_name() -> None:
    layer = points(3, features={"cell_id": [7, 4, 9]})
    join = Join.make(table([4, 7, 5]), layer, CELL_ID)
    assert join.rows([0, 1, 2]).tolist() == [1, 0, -1]
    assert join.ids[:2].tolist() == [1, 0]
    assert str(join) == "3 cells; 1 without a point in the layer; 1 point without a row"


def test_points_by_napari_spatialdata_indices() -> None:
    layer = points(3, metadata={"indices": [7, 4, 9]})
    assert Join.make(table([4, 7, 5]), layer, CELL_ID).rows([0, 1, 2]).tolist() == [1, 0, -1]


def test_indices_of_points_that_are_gone_are_not_believed() -> None:
    layer = points(2, metadata={"indices": [7, 4, 9]})
    with pytest.raises(ValueError, match="give the layer a feature 'cell_id'"):
        Join.make(table([4, 7]), layer, CELL_ID)


def test_points_by_a_column_called_index() -> None:
    layer = points(2, features={"index": ["7", "4"]})
    assert Join.make(table([4, 7]), layer, CELL_ID).rows([0, 1]).tolist() == [1, 0]


def test_points_by_names() -> None:
    # As the reader makes them: cells without coordinates have no point.
    layer = points(2, features={"cell": ["c2", "c0"]})
    join = Join.make(table([4, 7, 5]), layer, Keys(instance_key=OBS_NAMES))
    assert join.rows([0, 1]).tolist() == [2, 0]
    assert join.joined.tolist() == [True, False, True]


def test_points_by_ids_that_are_no_numbers() -> None:
    layer = points(3, features={"cell_id": pd.Categorical(["b", None, "a"])})
    join = Join.make(table(["a", "b", "x"]), layer, CELL_ID)
    assert join.rows([0, 1, 2]).tolist() == [1, -1, 0]


def test_zero_is_an_id_of_points() -> None:
    layer = points(2, features={"cell_id": [0, 1]})
    assert Join.make(table([1, 0]), layer, CELL_ID).rows([0, 1]).tolist() == [1, 0]


def test_points_that_share_an_id_are_refused() -> None:
    layer = points(3, features={"cell_id": [4, 7, 4]})
    with pytest.raises(ValueError, match="several points have the id 4"):
        Join.make(table([4, 7]), layer, CELL_ID)


def test_points_that_were_deleted_are_not_joined() -> None:
    layer = points(3, features={"cell": ["c0", "c1", "c2"]})
    layer.selected_data = {0}
    layer.remove_selected()
    join = Join.make(table([4, 7, 5]), layer, Keys(instance_key=OBS_NAMES))
    assert join.rows([0, 1]).tolist() == [1, 2]
    assert join.joined.tolist() == [False, True, True]


def test_points_without_ids_are_joined_to_their_own_features_only() -> None:
    layer = points(3, features={"area": [1.0, np.nan, 3.0], "kind": ["a", "b", "a"]})
    own = features_to_anndata(layer.features, of_labels=False)
    by_name = Keys(instance_key=OBS_NAMES)
    assert guess_keys(own, layer) == by_name
    assert Join.make(own, layer, by_name).rows([0, 1, 2]).tolist() == [0, 1, 2]
    # Rows that were taken from it are still known.
    assert Join.make(own[[2, 0]].copy(), layer, by_name).rows([0, 1, 2]).tolist() == [1, -1, 0]

    other = own.copy()
    other.X[0] = 5
    with pytest.raises(ValueError, match="have changed since"):
        Join.make(other, layer, by_name)

    layer.selected_data = {0}
    layer.remove_selected()
    with pytest.raises(ValueError, match="have changed since"):
        Join.make(own, layer, by_name)
    # As many as before, but not the same ones.
    layer.add([[0, 0]])
    assert len(layer.data) == 3
    with pytest.raises(ValueError, match="have changed since"):
        Join.make(own, layer, by_name)


def test_numbered_cells_are_not_taken_for_points() -> None:
    adata = table([1, 2])
    adata.obs_names = ["0", "1"]
    with pytest.raises(ValueError, match="do not say which cell is which"):
        Join.make(adata, points(2), Keys(instance_key=OBS_NAMES))


# -- guesses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["cell_id", "label", "instance_id", "CellID", "Cell ID", "ObjectNumber", "index"]
)
def test_columns_of_ids_are_guessed(name: str) -> None:
    adata = table(area=[7, 4, 90], **{name: [90, 4, 7]})
    assert guess_keys(adata, labels([4, 7, 90])) == Keys(instance_key=name)


def test_a_column_whose_ids_are_elsewhere_is_not_guessed() -> None:
    adata = table([100, 200, 300], label=[7, 4, 90])
    assert guess_keys(adata, labels([4, 7, 90])).instance_key == "label"


def test_a_class_is_not_an_id() -> None:
    assert guess_keys(table(label=[1, 2, 1, 2]), labels([1, 2])).instance_key is None


def test_numbers_of_rows_are_not_ids() -> None:
    # All but one of them are in the image, and all of them are one off.
    assert guess_keys(table(index=range(20)), labels(range(1, 21))).instance_key is None


def test_one_id_in_common_is_no_evidence() -> None:
    assert guess_keys(table([1, 2, 3]), labels([1])).instance_key is None
    assert guess_keys(table([1]), labels([1])).instance_key == "cell_id"


def test_a_part_of_the_image_or_of_the_table_is_enough() -> None:
    assert guess_keys(table(list(range(1, 100))), labels([5, 8])).instance_key == "cell_id"
    assert guess_keys(table([5, 8]), labels(range(1, 100))).instance_key == "cell_id"


def test_spatialdata_declares_its_keys() -> None:
    adata = table([4, 7, 4], number=[4, 7, 90], part=["nuclei", "nuclei", "cells"])
    adata.uns["spatialdata_attrs"] = {
        "region": ["nuclei", "cells"],
        "region_key": "part",
        "instance_key": "number",
    }
    layer = labels([4, 7, 90], name="layer 1", metadata={"name": "nuclei"})
    assert guess_keys(adata, layer) == Keys("part", "nuclei", "number")
    layer.metadata["name"] = "cells"
    assert guess_keys(adata, layer) == Keys("part", "cells", "number")


def test_the_metadata_of_a_layer_declare_keys() -> None:
    metadata = {"region_key": "part", "instance_key": "number", "name": None}
    layer = labels([4, 7], name="nuclei", metadata=metadata)
    adata = table(number=[4, 7], part=pd.Categorical(["nuclei", "cells"]))
    assert guess_keys(adata, layer) == Keys("part", "nuclei", "number")


def test_declared_keys_are_shown_even_if_they_join_nothing() -> None:
    adata = table(number=[4, 7])
    adata.uns["spatialdata_attrs"] = {"region_key": "gone", "instance_key": "number"}
    assert guess_keys(adata, labels([1, 2])) == Keys(instance_key="number")


def test_declared_keys_that_join_nothing_give_way_to_ids_that_do() -> None:
    adata = table(number=[400, 700], label=[4, 7])
    adata.uns["spatialdata_attrs"] = {"region_key": "gone", "instance_key": "number"}
    assert guess_keys(adata, labels([4, 7])) == Keys(instance_key="label")


def test_regions_are_guessed() -> None:
    layer = labels([4, 7], name="left")
    several = table([4, 7, 4], fov=["left", "left", "right"])
    assert guess_keys(several, layer) == Keys("fov", "left", "cell_id")
    layer.name = "elsewhere"
    # Which one is for the user to say.
    assert guess_keys(several, layer).region_key == "fov"
    assert guess_keys(several, layer).region is None
    assert guess_keys(table([4, 7], fov=["x", "x"]), layer) == Keys("fov", "x", "cell_id")
    # A class of the same name as the layer is no region.
    assert guess_keys(table([4, 7], kind=["elsewhere", "x"]), layer).region_key is None


def test_features_of_labels_follow_naparis_rule() -> None:
    with_index = labels([4, 7], features={"index": [7, 4, 0], "area": [1.0, 2.0, 3.0]})
    adata = features_to_anndata(with_index.features, of_labels=True)
    assert guess_keys(adata, with_index) == Keys(instance_key="index")
    assert Join.make(adata, with_index, guess_keys(adata, with_index)).rows([4, 7, 0]).tolist() == [
        1, 0, -1,
    ]  # fmt: skip

    without = labels([1, 2], features={"area": [0.0, 1.0, 2.0]})
    adata = features_to_anndata(without.features, of_labels=True)
    assert guess_keys(adata, without) == Keys(instance_key="index")
    assert Join.make(adata, without, guess_keys(adata, without)).rows([1, 2]).tolist() == [1, 2]


def test_points_of_the_reader_are_guessed() -> None:
    layer = points(2, features={"cell": ["c2", "c0"]})
    adata = table([1, 2, 3])
    adata.uns["spatialdata_attrs"] = {"region_key": "region", "instance_key": "cell_id"}
    assert guess_keys(adata, layer).instance_key == OBS_NAMES


def test_names_of_cells_count_more_than_numbers_of_points() -> None:
    layer = points(9, features={"cell": [f"c{i}" for i in range(9)], "index": range(9)})
    assert guess_keys(table(list(range(1, 10))), layer).instance_key == OBS_NAMES


def test_ids_of_points_are_guessed() -> None:
    assert guess_keys(table([4, 7]), points(2, metadata={"indices": [7, 4]})) == CELL_ID
    assert guess_keys(table([4, 7]), points(2, features={"cell_id": [7, 4]})) == CELL_ID
    assert guess_keys(table([4, 7]), points(2)).instance_key is None


def test_real_labels_and_rows_in_any_order(cells: AnnData) -> None:
    rng = np.random.default_rng(0)
    ids = rng.choice(np.arange(1, 1000), size=cells.n_obs, replace=False)
    cells.obs["label"] = ids
    layer = labels(np.sort(ids))
    some = cells[rng.permutation(cells.n_obs)[:80]].copy()
    join = Join.make(some, layer, guess_keys(some, layer))
    assert (some.obs["label"].to_numpy()[join.rows(some.obs["label"])] == some.obs["label"]).all()
    assert str(join) == "80 cells; 0 without a label in the image; 40 labels without a row"

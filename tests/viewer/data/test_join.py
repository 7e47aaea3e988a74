from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from hypothesis import given, settings
from hypothesis import strategies as st
from napari.layers import Image, Labels, Points, Shapes

from centroid_encoder.viewer.data.features import features_to_anndata
from centroid_encoder.viewer.data.guesses import guess, guess_link
from centroid_encoder.viewer.data.join import (
    OBS_NAMES,
    Join,
    Link,
)
from centroid_encoder.viewer.data.regions import Region
from centroid_encoder.viewer.data.tables import Table


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


def shapes(n: int, **options: Any) -> Shapes:
    triangle = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    return Shapes([triangle + i for i in range(n)], shape_type="polygon", **options)


def join(
    adata: AnnData, layer: Any, id_column: str | None = "cell_id", region: Region | None = None
) -> Join:
    return Link(Table(adata, "cells"), region, layer, id_column).make()


def guessed(adata: AnnData, layer: Any) -> tuple[Region | None, str | None]:
    link = guess(Table(adata, "cells"), layer)
    return link.region, link.id_column


# -- labels --------------------------------------------------------------------------------------


def test_rows_are_found_by_id_whatever_their_order() -> None:
    # Gaps, shuffled rows, filtered rows, a row without a label and a label without a row.
    found = join(table([90, 4, 7, 55]), labels([4, 7, 8, 90]))
    assert found.joined.tolist() == [True, True, True, False]
    assert found.ids[:3].tolist() == [90, 4, 7]
    assert found.rows([4, 7, 8, 90, 55]).tolist() == [1, 2, -1, 0, -1]
    assert (found.n_rows, found.n_joined, found.n_unmatched_ids) == (4, 3, 1)


def test_background_is_no_cell() -> None:
    found = join(table([0, 1]), labels([1]))
    assert found.joined.tolist() == [False, True]
    assert found.rows([0, 1]).tolist() == [-1, 1]
    assert str(found) == "2 cells; 1 without a label in the image; 0 labels without a row"


def test_a_whole_image_of_ids_has_rows() -> None:
    layer = labels([5, 2])
    rows = join(table([2, 5]), layer).rows(layer.data)
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
    found = join(table(column), labels(np.array([7, 4], dtype)))
    assert found.rows([4, 7]).tolist() == [0, 1]
    # As pixels come from the image.
    assert found.rows(np.array([4, 7], dtype)).tolist() == [0, 1]


@pytest.mark.parametrize("missing", [np.nan, None])
def test_a_row_without_id_is_not_joined(missing: object) -> None:
    adata = table(pd.Series([4, missing, missing], dtype=object))
    assert join(adata, labels([4])).joined.tolist() == [True, False, False]


def test_ids_that_the_image_cannot_hold_are_not_joined() -> None:
    # As uint8, 260 would be 4, and −252 too.
    found = join(table([260, 4, -252]), labels(np.array([4], np.uint8)))
    assert found.joined.tolist() == [False, True, False]


def test_huge_ids() -> None:
    # As float32, they would be one.
    ids = [2**40, 2**40 + 1]
    found = join(table(ids), labels(ids))
    assert found.rows(ids).tolist() == [0, 1]
    assert found.n_unmatched_ids == 0


def test_images_of_any_kind() -> None:
    image = np.zeros((4, 6, 6), dtype=np.int32)
    image[1, 2, 2], image[3, 5, 5] = 9, 4
    pyramid = [image, image[:, ::2, ::2]]
    for data in (image, da.from_array(image, chunks=3), pyramid):
        found = join(table([4, 9, 5]), Labels(data))
        assert found.rows([9, 4]).tolist() == [1, 0]
        assert found.n_unmatched_ids == 0


def test_an_image_without_labels_joins_nothing() -> None:
    found = join(table([1, 2]), Labels(np.zeros((4, 4), dtype=int)))
    assert not found.joined.any()
    assert found.rows([0, 1]).tolist() == [-1, -1]


def test_a_table_without_cells_joins_nothing() -> None:
    found = join(table([1, 2])[:0], labels([1]))
    assert found.rows([1]).tolist() == [-1]
    assert str(found) == "0 cells; 0 without a label in the image; 1 label without a row"


def test_joining_changes_nothing(unchanged: Any) -> None:
    adata, layer = table([4, 7], region=["a", "b"]), labels([4])
    before = layer.data.copy()
    with unchanged(adata):
        join(adata, layer, region=Region("region", "a"))
        guessed(adata, layer)
    assert np.array_equal(layer.data, before)


KINDS: list[Callable[[list[int]], Any]] = [
    lambda ids: np.array(ids, dtype=np.int64),
    lambda ids: pd.Categorical([str(i) for i in ids]),
    lambda ids: np.array([i if i else np.nan for i in ids], dtype=float),
    lambda ids: pd.array([i or None for i in ids], dtype="Int64"),
]


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_a_row_is_joined_to_the_id_it_names_in_its_region_or_to_none(data: st.DataObject) -> None:
    cells = st.tuples(st.sampled_from("abc"), st.integers(0, 30))
    named = data.draw(st.lists(cells, max_size=30, unique=True), "rows: region and id")
    in_image = st.lists(st.integers(0, 40), min_size=1, max_size=30)
    images = {region: data.draw(in_image, f"image {region}") for region in "abc"}
    adata = table(
        data.draw(st.sampled_from(KINDS))([i for _, i in named]),
        region=pd.Series([region for region, _ in named], dtype=object),
    )

    for region, image in images.items():
        layers: list[Labels | Points] = [labels(np.array(image, dtype=np.int32))]
        keys = list(dict.fromkeys(i or np.nan for i in image))
        layers.append(points(len(keys), features={"cell_id": pd.Series(keys, dtype=float)}))
        for layer in layers:
            found = join(adata, layer, region=Region("region", region))

            present = {i for i in image if i}
            row = {i: at for at, (r, i) in enumerate(named) if r == region and i in present}
            assert found.joined.tolist() == [at in row.values() for at in range(len(named))]
            ids = found.ids[found.joined]
            shown = ids if isinstance(layer, Labels) else layer.features["cell_id"].to_numpy()[ids]
            assert shown.tolist() == [i for i, _ in sorted(row.items(), key=lambda item: item[1])]
            wanted = range(-2, 45) if isinstance(layer, Labels) else range(len(keys))
            keyed = wanted if isinstance(layer, Labels) else [int(np.nan_to_num(k)) for k in keys]
            assert found.rows(wanted).tolist() == [row.get(i, -1) for i in keyed]
            assert found.n_rows == sum(r == region for r, _ in named)
            assert found.n_unmatched_ids == len(
                present if isinstance(layer, Labels) else keys
            ) - len(row)


# -- regions -------------------------------------------------------------------------------------


@pytest.mark.parametrize("regions", [["a", "a", "b"], pd.Categorical(["a", "a", "b"]), [1, 1, 2]])
def test_rows_of_other_regions_are_not_joined(regions: Any) -> None:
    adata = table([4, 7, 4], region=regions)
    first = adata.obs["region"].iloc[0]
    found = join(adata, labels([4, 7]), region=Region("region", first))
    assert found.rows([4, 7]).tolist() == [0, 1]
    assert found.joined.tolist() == [True, True, False]
    assert str(found) == "2 of 3 cells; 0 without a label in the image; 0 labels without a row"


def test_cells_of_no_region_are_not_joined() -> None:
    adata = table([4, 7], region=pd.Categorical(["a", None]))
    found = join(adata, labels([4, 7]), region=Region("region", "a"))
    assert found.joined.tolist() == [True, False]


def test_no_region_means_all() -> None:
    adata = table([4, 7], region=["a", "b"])
    assert join(adata, labels([4, 7]), region=Region("region", None)).joined.all()


# -- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id_column", "region", "message"),
    [
        (None, None, "no column of the table seems to hold the layer's ids; choose one"),
        ("gone", None, "obs has no column 'gone'"),
        ("cell_id", Region("gone", "a"), "obs has no column 'gone'"),
        ("area", None, r"obs\['area'\] holds 3.5, which is no label"),
        ("name", None, r"obs\['name'\] holds 'x'"),
        ("good", None, r"obs\['good'\] holds (True|False)"),
        (OBS_NAMES, None, "obs_names holds '(a1|b1)'"),
    ],
)
def test_links_that_join_nothing_say_why(
    id_column: str | None, region: Region | None, message: str
) -> None:
    adata = table([4, 7], area=[3.5, 1.0], name=["x", "y"], good=[True, False])
    adata.obs_names = ["a1", "b1"]
    with pytest.raises(ValueError, match=message):
        join(adata, labels([4, 7], name="nuclei"), id_column, region)


def test_repeated_ids_are_named_with_what_to_do() -> None:
    adata = table([4, 7, 4, 7, 8, 8, 9, 9, 0, 0], region=list("aabb" + "abababa"[:6]))
    message = r"gives several cells the same label: 4, 7, 8 and 1 more; choose another column"
    with pytest.raises(ValueError, match=message + "$"):
        join(adata, labels([4, 7]))
    with pytest.raises(ValueError, match=message + ", or the region that the layer shows"):
        join(adata, labels([4, 7]), region=Region("region", None))
    assert join(adata, labels([4, 7]), region=Region("region", "a")).joined.any()


def test_missing_and_background_ids_may_repeat() -> None:
    adata = table(pd.Series([0, 0, np.nan, np.nan, 4]))
    assert join(adata, labels([4])).joined.tolist() == [False] * 4 + [True]


def test_other_layers_have_no_cells() -> None:
    with pytest.raises(ValueError, match="photo holds neither labels nor points"):
        join(table([1]), Image(np.zeros((4, 4)), name="photo"))


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
    assert str(join(table(list(ids)), labels(list(image)))) == text


# -- points --------------------------------------------------------------------------------------


def test_points_by_a_column_of_the_same_name() -> None:
    layer = points(3, features={"cell_id": [7, 4, 9]})
    found = join(table([4, 7, 5]), layer)
    assert found.rows([0, 1, 2]).tolist() == [1, 0, -1]
    assert found.ids[:2].tolist() == [1, 0]
    assert str(found) == "3 cells; 1 without a point in the layer; 1 point without a row"


def test_points_by_napari_spatialdata_indices() -> None:
    layer = points(3, metadata={"indices": [7, 4, 9]})
    assert join(table([4, 7, 5]), layer).rows([0, 1, 2]).tolist() == [1, 0, -1]


@pytest.mark.parametrize(
    "told", [{"features": {"cell_id": [7, 4, 9]}}, {"metadata": {"indices": [7, 4, 9]}}]
)
def test_shapes_are_joined_as_points_are(told: dict[str, Any]) -> None:
    layer = shapes(3, **told)
    found = join(table([4, 7, 5]), layer)
    assert found.rows([0, 1, 2]).tolist() == [1, 0, -1]
    assert str(found) == "3 cells; 1 without a shape in the layer; 1 shape without a row"
    assert guessed(table([4, 7]), layer) == (None, "cell_id")
    with pytest.raises(ValueError, match=r"several shapes have the id 4; give every shape its own"):
        join(table([4, 7]), shapes(3, features={"cell_id": [4, 7, 4]}))


def test_indices_of_points_that_are_gone_are_not_believed() -> None:
    layer = points(2, metadata={"indices": [7, 4, 9]})
    with pytest.raises(ValueError, match="give the layer a feature 'cell_id'"):
        join(table([4, 7]), layer)


def test_points_by_a_column_called_index() -> None:
    layer = points(2, features={"index": ["7", "4"]})
    assert join(table([4, 7]), layer).rows([0, 1]).tolist() == [1, 0]


def test_points_by_names() -> None:
    # As the reader makes them: cells without coordinates have no point.
    layer = points(2, features={"cell": ["c2", "c0"]})
    found = join(table([4, 7, 5]), layer, OBS_NAMES)
    assert found.rows([0, 1]).tolist() == [2, 0]
    assert found.joined.tolist() == [True, False, True]


def test_points_by_ids_that_are_no_numbers() -> None:
    layer = points(3, features={"cell_id": pd.Categorical(["b", None, "a"])})
    found = join(table(["a", "b", "x"]), layer)
    assert found.rows([0, 1, 2]).tolist() == [1, -1, 0]


def test_zero_is_an_id_of_points() -> None:
    layer = points(2, features={"cell_id": [0, 1]})
    assert join(table([1, 0]), layer).rows([0, 1]).tolist() == [1, 0]


def test_points_that_share_an_id_are_refused() -> None:
    layer = points(3, features={"cell_id": [4, 7, 4]})
    with pytest.raises(ValueError, match="several points have the id 4"):
        join(table([4, 7]), layer)


def test_points_that_were_deleted_are_not_joined() -> None:
    layer = points(3, features={"cell": ["c0", "c1", "c2"]})
    layer.selected_data = {0}
    layer.remove_selected()
    found = join(table([4, 7, 5]), layer, OBS_NAMES)
    assert found.rows([0, 1]).tolist() == [1, 2]
    assert found.joined.tolist() == [False, True, True]


def test_points_without_ids_are_joined_to_their_own_features_only() -> None:
    layer = points(3, features={"area": [1.0, np.nan, 3.0], "kind": ["a", "b", "a"]})
    own = features_to_anndata(layer.features, of_labels=False)
    assert guessed(own, layer) == (None, OBS_NAMES)
    assert join(own, layer, OBS_NAMES).rows([0, 1, 2]).tolist() == [0, 1, 2]
    # Rows that were taken from it are still known.
    assert join(own[[2, 0]].copy(), layer, OBS_NAMES).rows([0, 1, 2]).tolist() == [1, -1, 0]

    other = own.copy()
    other.X[0] = 5
    with pytest.raises(ValueError, match="have changed since"):
        join(other, layer, OBS_NAMES)

    layer.selected_data = {0}
    layer.remove_selected()
    with pytest.raises(ValueError, match="have changed since"):
        join(own, layer, OBS_NAMES)
    # As many as before, but not the same ones.
    layer.add([[0, 0]])
    assert len(layer.data) == 3
    with pytest.raises(ValueError, match="have changed since"):
        join(own, layer, OBS_NAMES)


def test_numbered_cells_are_not_taken_for_points() -> None:
    adata = table([1, 2])
    adata.obs_names = ["0", "1"]
    with pytest.raises(ValueError, match="do not say which cell is which"):
        join(adata, points(2), OBS_NAMES)


# -- guesses -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["cell_id", "label", "instance_id", "CellID", "Cell ID", "ObjectNumber", "index"]
)
def test_columns_of_ids_are_guessed(name: str) -> None:
    adata = table(area=[7, 4, 90], **{name: [90, 4, 7]})
    assert guessed(adata, labels([4, 7, 90])) == (None, name)


def test_a_column_whose_ids_are_elsewhere_is_not_guessed() -> None:
    adata = table([100, 200, 300], label=[7, 4, 90])
    assert guessed(adata, labels([4, 7, 90]))[1] == "label"


def test_a_class_is_not_an_id() -> None:
    assert guessed(table(label=[1, 2, 1, 2]), labels([1, 2]))[1] is None


def test_numbers_of_rows_are_not_ids() -> None:
    # All but one of them are in the image, and all of them are one off.
    assert guessed(table(index=range(20)), labels(range(1, 21)))[1] is None


def test_one_id_in_common_is_no_evidence() -> None:
    assert guessed(table([1, 2, 3]), labels([1]))[1] is None
    assert guessed(table([1]), labels([1]))[1] == "cell_id"


def test_a_part_of_the_image_or_of_the_table_is_enough() -> None:
    assert guessed(table(list(range(1, 100))), labels([5, 8]))[1] == "cell_id"
    assert guessed(table([5, 8]), labels(range(1, 100)))[1] == "cell_id"


def test_spatialdata_declares_its_keys() -> None:
    adata = table([4, 7, 4], number=[4, 7, 90], part=["nuclei", "nuclei", "cells"])
    adata.uns["spatialdata_attrs"] = {
        "region": ["nuclei", "cells"],
        "region_key": "part",
        "instance_key": "number",
    }
    layer = labels([4, 7, 90], name="layer 1", metadata={"name": "nuclei"})
    assert guessed(adata, layer) == (Region("part", "nuclei"), "number")
    layer.metadata["name"] = "cells"
    assert guessed(adata, layer) == (Region("part", "cells"), "number")


def test_the_metadata_of_a_layer_declare_keys() -> None:
    metadata = {"region_key": "part", "instance_key": "number", "name": None}
    layer = labels([4, 7], name="nuclei", metadata=metadata)
    adata = table(number=[4, 7], part=pd.Categorical(["nuclei", "cells"]))
    assert guessed(adata, layer) == (Region("part", "nuclei"), "number")


def test_declared_keys_are_shown_even_if_they_join_nothing() -> None:
    adata = table(number=[4, 7])
    adata.uns["spatialdata_attrs"] = {"region_key": "gone", "instance_key": "number"}
    assert guessed(adata, labels([1, 2])) == (None, "number")


def test_declared_keys_that_join_nothing_give_way_to_ids_that_do() -> None:
    adata = table(number=[400, 700], label=[4, 7])
    adata.uns["spatialdata_attrs"] = {"region_key": "gone", "instance_key": "number"}
    assert guessed(adata, labels([4, 7])) == (None, "label")


def test_regions_are_guessed() -> None:
    layer = labels([4, 7], name="left")
    several = table([4, 7, 4], fov=["left", "left", "right"])
    assert guessed(several, layer) == (Region("fov", "left"), "cell_id")
    layer.name = "elsewhere"
    # Which one is for the user to say.
    assert guessed(several, layer)[0] == Region("fov")
    assert guessed(table([4, 7], fov=["x", "x"]), layer) == (Region("fov", "x"), "cell_id")
    # A class of the same name as the layer is no region.
    assert guessed(table([4, 7], kind=["elsewhere", "x"]), layer)[0] is None


def test_features_of_labels_follow_naparis_rule() -> None:
    with_index = labels([4, 7], features={"index": [7, 4, 0], "area": [1.0, 2.0, 3.0]})
    adata = features_to_anndata(with_index.features, of_labels=True)
    assert guessed(adata, with_index) == (None, "index")
    assert guess(Table(adata, "cells"), with_index).make().rows([4, 7, 0]).tolist() == [
        1, 0, -1,
    ]  # fmt: skip

    without = labels([1, 2], features={"area": [0.0, 1.0, 2.0]})
    adata = features_to_anndata(without.features, of_labels=True)
    assert guessed(adata, without) == (None, "index")
    assert guess(Table(adata, "cells"), without).make().rows([1, 2]).tolist() == [1, 2]


def test_points_of_the_reader_are_guessed() -> None:
    layer = points(2, features={"cell": ["c2", "c0"]})
    adata = table([1, 2, 3])
    adata.uns["spatialdata_attrs"] = {"region_key": "region", "instance_key": "cell_id"}
    assert guessed(adata, layer)[1] == OBS_NAMES


def test_names_of_cells_count_more_than_numbers_of_points() -> None:
    layer = points(9, features={"cell": [f"c{i}" for i in range(9)], "index": range(9)})
    assert guessed(table(list(range(1, 10))), layer)[1] == OBS_NAMES


def test_ids_of_points_are_guessed() -> None:
    assert guessed(table([4, 7]), points(2, metadata={"indices": [7, 4]})) == (None, "cell_id")
    assert guessed(table([4, 7]), points(2, features={"cell_id": [7, 4]})) == (None, "cell_id")
    assert guessed(table([4, 7]), points(2))[1] is None


def test_real_labels_and_rows_in_any_order(cells: AnnData) -> None:
    rng = np.random.default_rng(0)
    ids = rng.choice(np.arange(1, 1000), size=cells.n_obs, replace=False)
    cells.obs["label"] = ids
    layer = labels(np.sort(ids))
    some = cells[rng.permutation(cells.n_obs)[:80]].copy()
    found = guess(Table(some, "cells"), layer).make()
    assert (some.obs["label"].to_numpy()[found.rows(some.obs["label"])] == some.obs["label"]).all()
    assert str(found) == "80 cells; 0 without a label in the image; 40 labels without a row"


# -- which layer -----------------------------------------------------------------------------------


def links(cells: Table, layers: Any) -> list[Link]:
    return [guess(cells, layer) for layer in layers]


def test_the_layer_with_most_of_the_cells_is_guessed() -> None:
    cells = Table(table([4, 7, 9, 12]), "cells")
    layers = [labels([4, 7]), Image(np.zeros((4, 4))), labels([4, 7, 9]), labels([30])]
    link = guess_link(cells, links(cells, layers))
    assert link == Link(cells, None, layers[2], "cell_id")
    assert guess_link(cells, links(cells, layers[3:])) is None
    assert guess_link(cells, []) is None


def test_of_layers_with_all_of_the_cells_it_is_the_one_with_few_others() -> None:
    # Cells of every image are numbered from 1.
    layers = [labels(range(1, n)) for n in (90, 41, 60)]
    cells = Table(table(list(range(1, 41))), "cells")
    link = guess_link(cells, links(cells, layers))
    assert link is not None
    assert link.layer is layers[1]


def test_points_made_of_the_table_give_way_to_labels_with_most_of_its_cells() -> None:
    adata = table([4, 7, 9, 12])
    own = points(4, features={"cell": adata.obs_names})
    cells = Table(adata, "cells", own, "file")
    few, most, others = labels([4, 7]), labels([4, 7, 9]), points(4, features={"cell_id": [4] * 4})

    def chosen(*layers: Any) -> Any:
        link = guess_link(cells, links(cells, layers))
        return link and link.layer

    assert chosen(own, few, others) is own
    assert chosen(own, few, most) is most
    # Its own image, even if it shows nothing.
    cells.layer = few
    assert chosen(most, few) is few
    # Features are of their layer only.
    made_of = Table(adata, "features", few, "features")
    assert guess_link(made_of, links(made_of, [most])) is None

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from hypothesis import given, settings
from hypothesis import strategies as st
from napari.layers import Labels, Shapes

from centroid_encoder.viewer.data.columns import OBS_NAMES
from centroid_encoder.viewer.data.ids import read_ids
from centroid_encoder.viewer.data.join import Join, Link
from centroid_encoder.viewer.data.tables import Table, find_tables
from tests.cases import cases
from tests.viewer.data.small import labels, points, table


def shapes(n: int, **options: Any) -> Shapes:
    triangle = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    return Shapes([triangle + i for i in range(n)], shape_type="polygon", **options)


def join(
    adata: AnnData,
    layer: Any,
    id_column: str | None = "cell_id",
    image: object = None,
    column: str | None = None,
) -> Join:
    return Link(Table(adata, "cells"), image, layer, id_column, 0, column).make(read_ids(layer))


def test_background_and_ids_outside_the_dtype_are_not_cells():
    # As uint8, 260 and −252 would both be 4.
    found = join(table(cell_id=[0, 260, 4, -252]), labels(np.array([4], np.uint8)))
    assert found.joined.tolist() == [False, False, True, False]
    assert found.rows([0, 4]).tolist() == [-1, 2]


KINDS: list[Callable[[list[int]], Any]] = [
    lambda ids: np.array(ids, dtype=np.int64),
    lambda ids: pd.Categorical([str(i) for i in ids]),
    lambda ids: np.array([i if i else np.nan for i in ids], dtype=float),
    lambda ids: pd.array([i or None for i in ids], dtype="Int64"),
]


@pytest.mark.slow
@settings(deadline=None, max_examples=cases(40))
@given(data=st.data())
def test_a_row_is_joined_to_its_own_id_in_its_own_image_or_not_at_all(data):
    cells = st.tuples(st.sampled_from("abc"), st.integers(0, 30))
    named = data.draw(st.lists(cells, max_size=30, unique=True), "rows: image and id")
    adata = table(
        cell_id=data.draw(st.sampled_from(KINDS))([i for _, i in named]),
        region=pd.Series([region for region, _ in named], dtype=object),
    )
    for region in "abc":
        image = data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=30), region)
        keys = list(dict.fromkeys(i or np.nan for i in image))
        dots = points(len(keys), features={"cell_id": pd.Series(keys, dtype=float)})
        layers = {labels(np.array(image, dtype=np.int32)): range(-2, 45)}
        for layer, ids in (layers | {dots: [int(np.nan_to_num(k)) for k in keys]}).items():
            found = join(adata, layer, image=region, column="region")
            row = {i: at for at, (r, i) in enumerate(named) if r == region and i in image and i}
            assert found.joined.tolist() == [at in row.values() for at in range(len(named))]
            # The id of a label is its value, and that of a point its index.
            wanted = ids if isinstance(layer, Labels) else range(len(keys))
            assert found.rows(wanted).tolist() == [row.get(i, -1) for i in ids]
            at = np.flatnonzero(found.joined)
            assert found.rows(found.ids[at]).tolist() == at.tolist()
            assert found.n_rows == sum(r == region for r, _ in named)
            n_ids = len(set(image) - {0}) if isinstance(layer, Labels) else len(keys)
            assert found.n_unmatched_ids == n_ids - len(row)


@pytest.mark.parametrize(
    ("id_column", "column", "message"),
    [
        (None, None, "no column of the table has a usual name for ids"),
        ("gone", None, "the table has no column 'gone'"),
        ("cell_id", "gone", "the table has no column 'gone'"),
        ("area", None, r"the column 'area' holds 3.5, which is no label"),
        (OBS_NAMES, None, "the names of the cells holds '(a1|b1)'"),
    ],
)
def test_an_error_says_why_a_link_has_no_ids(id_column, column, message):
    adata = table(cell_id=[4, 7], area=[3.5, 1.0])
    adata.obs_names = ["a1", "b1"]
    with pytest.raises(ValueError, match=message):
        join(adata, labels([4, 7], name="nuclei"), id_column, column and "a", column)


def test_an_error_names_repeated_ids_and_what_to_do():
    adata = table(cell_id=[4, 7, 4, 7, 8, 8, 9, 9, 0, 0], region=list("aabb" + "abababa"[:6]))
    message = (
        r"gives several cells the same label: 4, 7, 8 and 1 more; choose another column of ids"
    )
    with pytest.raises(ValueError, match=message + ", or the column of images$"):
        join(adata, labels([4, 7]))
    with pytest.raises(ValueError, match=message + ", or one image"):
        join(adata, labels([4, 7]), column="region")
    found = join(adata, labels([4, 7]), image="a", column="region")
    assert str(found).startswith("5 of 10 cells; 3 without a label in the image")


@pytest.mark.parametrize(
    "told", [{"features": {"cell_id": [7, 4, 9]}}, {"metadata": {"indices": [7, 4, 9]}}]
)
def test_shapes_are_joined_like_points(told):
    layer = shapes(3, **told)
    found = join(table(cell_id=[4, 7, 5]), layer)
    assert found.rows([0, 1, 2]).tolist() == [1, 0, -1]
    assert str(found) == "3 cells; 1 without a shape in the layer; 1 shape without a row"
    with pytest.raises(ValueError, match=r"several shapes have the id 4; give every shape its own"):
        join(table(cell_id=[4, 7]), shapes(3, features={"cell_id": [4, 7, 4]}))
    # Indices are ignored if their number is not that of the shapes.
    with pytest.raises(ValueError, match="give the layer a feature 'cell_id'"):
        join(table(cell_id=[4, 7]), shapes(2, metadata={"indices": [7, 4, 9]}))


def test_points_are_joined_by_names_and_by_ids_that_are_text():
    # The reader makes such points: cells without coordinates have none.
    found = join(table(cell_id=[4, 7, 5]), points(2, features={"cell": ["c2", "c0"]}), OBS_NAMES)
    assert found.rows([0, 1]).tolist() == [2, 0]
    assert found.joined.tolist() == [True, False, True]
    layer = points(3, features={"cell_id": pd.Categorical(["b", None, "a"])})
    assert join(table(cell_id=["a", "b", "x"]), layer).rows([0, 1, 2]).tolist() == [1, -1, 0]


def test_points_without_ids_are_joined_only_to_the_table_of_their_features():
    layer = points(3, features={"area": [1.0, np.nan, 3.0], "kind": ["a", "b", "a"]})
    (own,) = find_tables([layer], [])
    link = Link(own, None, layer, OBS_NAMES)
    assert link.make(read_ids(layer)).rows([0, 1, 2]).tolist() == [0, 1, 2]
    # After rows were removed from the table, the others keep their points.
    own.adata._inplace_subset_obs([2, 0])
    assert link.make(read_ids(layer)).rows([0, 1, 2]).tolist() == [1, -1, 0]
    layer.selected_data = {0}
    layer.remove_selected()
    with pytest.raises(ValueError, match="the points have no ids to compare"):
        link.make(read_ids(layer))
    # Names of cells that are numbers are not taken for indices of points.
    adata = table(cell_id=[1, 2])
    adata.obs_names = ["0", "1"]
    with pytest.raises(ValueError, match="the points have no ids to compare"):
        join(adata, points(2), OBS_NAMES)

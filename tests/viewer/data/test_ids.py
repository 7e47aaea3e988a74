from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import array_shapes, arrays
from napari.layers import Labels

from centroid_encoder.viewer.data.ids import named, read_ids, whole_numbers


@pytest.mark.parametrize(
    "dtype", ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
)
def test_labels_of_any_dtype(dtype: str) -> None:
    image = np.array([[0, 0, 1], [0, 1, 1]]) if dtype == "bool" else np.array([[0, 90], [7, 7]])
    expected = [1] if dtype == "bool" else [7, 90]
    ids = read_ids(Labels(image.astype(dtype))).ids
    assert ids.tolist() == expected
    assert ids.dtype == np.int64


@given(image=arrays(np.int16, array_shapes(min_dims=2, max_dims=3, max_side=9)))
@settings(deadline=None, max_examples=25)
def test_lazy_labels_are_those_of_the_array(image: np.ndarray) -> None:
    whole, lazy = read_ids(Labels(image)), read_ids(Labels(da.from_array(image, chunks=4)))
    assert whole.ids.tolist() == lazy.ids.tolist() == sorted(set(image.ravel().tolist()) - {0})
    assert whole.centers is not None
    assert np.array_equal(whole.centers, lazy.centers)
    for label, center in zip(whole.ids, whole.centers, strict=True):
        np.testing.assert_allclose(center, np.argwhere(image == label).mean(axis=0))


def test_dask_labels_are_read_chunk_by_chunk() -> None:
    read: list[tuple[int, ...]] = []

    def chunk(block: np.ndarray) -> np.ndarray:
        read.append(block.shape)
        return block

    image = np.arange(64).reshape(8, 8)
    lazy = da.from_array(image, chunks=(4, 4)).map_blocks(chunk, dtype=int, meta=image[:0, :0])
    layer = Labels(lazy)
    read.clear()
    assert read_ids(layer).ids.tolist() == list(range(1, 64))
    assert read == [(4, 4)] * 4


def test_labels_of_a_pyramid_are_those_of_its_base() -> None:
    base = np.zeros((8, 8), dtype=int)
    base[0, 1] = 5
    assert read_ids(Labels([base, base[::2, ::2]])).ids.tolist() == [5]


def test_an_image_without_labels_has_no_ids() -> None:
    assert read_ids(Labels(np.zeros((3, 4, 5), dtype=int))).ids.tolist() == []


def test_labels_beyond_64_bits_with_sign_are_refused() -> None:
    image = np.array([[0, 2**63 + 5]], dtype=np.uint64)
    with pytest.raises(ValueError, match="9223372036854775813 is too large"):
        read_ids(Labels(image))


IDS = [3, 2**40, 0, 12]


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(IDS),
        pd.Series(IDS, dtype=np.uint64),
        pd.Series(IDS, dtype=float),
        pd.Series(IDS, dtype="Int64"),
        pd.Series(IDS, dtype=object),
        pd.Series([3, np.float64(2**40), np.int8(0), "12"], dtype=object),
        pd.Series([str(i) for i in IDS]),
        pd.Series([str(i) for i in IDS], dtype="string"),
        pd.Series([f" {i}.0 " for i in IDS]),
        pd.Series(IDS).astype("category"),
        pd.Series(pd.Categorical([str(i) for i in IDS], ["no number", *map(str, IDS)])),
    ],
    ids=lambda column: str(column.dtype),
)
def test_whole_numbers_are_read_however_they_are_written(column: pd.Series) -> None:
    values, there = whole_numbers(column, "obs['id']")
    assert values.tolist() == IDS
    assert values.dtype == np.int64
    assert there.all()


@pytest.mark.parametrize(
    "column",
    [
        pd.Series([7, np.nan]),
        pd.Series([7, None], dtype="Int64"),
        pd.Series(["7", None]),
        pd.Series(["7", np.nan]).astype("category"),
    ],
    ids=lambda column: str(column.dtype),
)
def test_missing_numbers_are_told(column: pd.Series) -> None:
    values, there = whole_numbers(column, "obs['id']")
    assert values.tolist() == [7, 0]
    assert there.tolist() == [True, False]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.0, 3.5], "3.5"),
        ([1.0, np.inf], "inf"),
        ([1.0, 1e300], "1e[+]300"),
        (np.array([2**53], dtype=np.uint64), "9007199254740992"),
        (["1", "cell_12"], "'cell_12'"),
        ([True, False], "(True|False)"),
        (pd.to_datetime(["2020-01-01"]), "Timestamp"),
    ],
)
def test_what_is_no_whole_number_is_named(values: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=rf"obs\['id'\] holds {shown}"):
        whole_numbers(pd.Series(values), "obs['id']")


def test_columns_are_known_by_name_however_it_is_written() -> None:
    table = pd.DataFrame({"Cell ID": [1], "area": [2], "instance_id": [3], "CellID": [4], 5: [6]})
    assert named(table, ["instanceid", "cellid"]) == ["instance_id", "Cell ID", "CellID"]

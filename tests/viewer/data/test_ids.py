from __future__ import annotations

from typing import Any

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis.extra.numpy import array_shapes, arrays
from napari.layers import Labels

from centroid_encoder.viewer.data.columns import whole_numbers
from centroid_encoder.viewer.data.ids import label_ids, read_ids
from tests.cases import cases


def test_labels_of_any_dtype() -> None:
    for dtype in ("int8", "uint8", "uint16", "int32", "int64", "uint64"):
        ids = read_ids(Labels(np.array([[0, 90], [7, 7]], dtype))).ids
        assert ids.tolist() == [7, 90]
        assert ids.dtype == np.int64
    with pytest.raises(ValueError, match="is too large; labels must be below"):
        read_ids(Labels(np.array([[0, 2**63 + 5]], dtype=np.uint64)))


@given(image=arrays(np.int16, array_shapes(min_dims=2, max_dims=3, max_side=9)))
@settings(deadline=None, max_examples=cases(25))
def test_lazy_labels_are_those_of_the_array(image: np.ndarray) -> None:
    whole, lazy = label_ids(image), label_ids(da.from_array(image, chunks=4))
    assert whole.ids.tolist() == lazy.ids.tolist() == sorted(set(image.ravel().tolist()) - {0})
    assert whole.centers is not None
    assert np.array_equal(whole.centers, lazy.centers)
    for label, center in zip(whole.ids, whole.centers, strict=True):
        np.testing.assert_allclose(center, np.argwhere(image == label).mean(axis=0))


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


def test_missing_numbers_are_masked() -> None:
    for dtype in (float, "Int64", object, "string", "category"):
        column = pd.Series([7, None], dtype=object).astype(dtype)
        values, there = whole_numbers(column, "obs['id']")
        assert values.tolist() == [7, 0]
        assert there.tolist() == [True, False]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.0, 3.5], "3.5"),
        ([1.0, np.inf], "inf"),
        ([1.0, 1e300], "1e[+]300"),
        (np.array([2**63], dtype=np.uint64), "9223372036854775808"),
        (["1", "cell_12"], "'cell_12'"),
        ([True, False], "(True|False)"),
        (pd.to_datetime(["2020-01-01"]), "Timestamp"),
    ],
)
def test_what_is_no_whole_number_is_named(values: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=rf"obs\['id'\] holds {shown}"):
        whole_numbers(pd.Series(values), "obs['id']")

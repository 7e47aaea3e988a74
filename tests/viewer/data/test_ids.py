"""Ids of layers and tables, and guesses of columns and layers."""

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from hypothesis import given, settings
from hypothesis.extra.numpy import array_shapes, arrays
from napari.layers import Labels, Layer

from centroid_encoder.viewer.data.columns import OBS_NAMES, whole_numbers
from centroid_encoder.viewer.data.ids import label_ids, read_ids
from centroid_encoder.viewer.data.tables import features_to_anndata
from tests.cases import cases
from tests.viewer.data.small import catalog_of, labels, points, table


def test_labels_of_any_dtype():
    for dtype in ("int8", "uint8", "uint16", "int32", "int64", "uint64"):
        ids = read_ids(Labels(np.array([[0, 90], [7, 7]], dtype))).ids
        assert ids.tolist() == [7, 90]
        assert ids.dtype == np.int64
    with pytest.raises(ValueError, match="is too large; labels must be below"):
        read_ids(Labels(np.array([[0, 2**63 + 5]], dtype=np.uint64)))


@given(image=arrays(np.int16, array_shapes(min_dims=2, max_dims=3, max_side=9)))
@settings(deadline=None, max_examples=cases(25))
def test_lazy_labels_are_those_of_the_array(image):
    whole, lazy = label_ids(image), label_ids(da.from_array(image, chunks=4))
    assert whole.ids.tolist() == lazy.ids.tolist() == sorted(set(image.ravel().tolist()) - {0})
    assert np.array_equal(whole.centers, lazy.centers)
    for label, center in zip(whole.ids, whole.centers, strict=True):
        np.testing.assert_allclose(center, np.argwhere(image == label).mean(axis=0))


IDS = [3, 2**40, 0, 12]


@pytest.mark.parametrize(
    "column",
    [
        *(pd.Series(IDS, dtype=dtype) for dtype in (np.uint64, float, "Int64")),
        pd.Series([3, np.float64(2**40), np.int8(0), "12"], dtype=object),
        pd.Series([f" {i}.0 " for i in IDS]),
        pd.Series(pd.Categorical([str(i) for i in IDS], ["no number", *map(str, IDS)])),
    ],
    ids=lambda column: str(column.dtype),
)
def test_whole_numbers_of_any_type_are_read(column):
    values = whole_numbers(column, "obs['id']")
    assert values.tolist() == IDS
    assert values.dtype == "Int64"
    values = whole_numbers(column.where(column.index > 0), "obs['id']")
    assert values.isna().tolist() == [True, False, False, False]
    assert values[1:].tolist() == IDS[1:]


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([1.0, 3.5], "3.5"),
        ([1.0, 1e300], "1e[+]300"),
        (np.array([2**63], dtype=np.uint64), "9223372036854775808"),
        (["1", "cell_12"], "'cell_12'"),
        ([True, False], "(True|False)"),
    ],
)
def test_an_error_names_the_value_that_is_no_whole_number(values, shown):
    with pytest.raises(ValueError, match=rf"obs\['id'\] holds {shown}"):
        whole_numbers(pd.Series(values), "obs['id']")


def id_column(adata: AnnData, layer: Layer) -> str | None:
    catalog = catalog_of(adata, layer)
    catalog.choose_layer(layer)
    return catalog.link.id_column


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"area": [7, 4, 90], "CellID": [90, 4, 7]}, "CellID"),
        ({"number": [4, 7]}, None),
        ({"cell_id": ["aab-1", "aac-1"], "label": [4, 7]}, "label"),
        ({"label": ["B", "T"], "object_id": [4, 7]}, "object_id"),
        # Classes and row numbers are not ids.
        ({"label": [1, 2] * 20, "id": range(40)}, "id"),
        ({"index": range(3), "cell": [4, 7, 90]}, "cell"),
    ],
)
def test_columns_of_ids_have_usual_names_and_different_whole_numbers(columns, expected):
    assert id_column(table(**columns), labels([4, 7, 90])) == expected


def test_declared_columns_come_first():
    adata = table(label=[1, 2, 3], number=[4, 7, 4], part=["nuclei", "nuclei", "cells"])
    regions = {"region": ["nuclei", "cells"], "region_key": "part", "instance_key": "number"}
    adata.uns["spatialdata_attrs"] = regions
    layer = labels([4, 7, 90], name="layer 1", metadata={"name": "nuclei"})
    (link,) = catalog_of(adata, layer).joins
    assert (link.image_column, link.image, link.id_column) == ("part", "nuclei", "number")
    del adata.uns["spatialdata_attrs"]
    layer.metadata = {"name": None, "instance_key": "number"}
    assert id_column(adata, layer) == "number"


def test_ids_of_points():
    assert id_column(table(cell_id=[4, 7]), points(2, metadata={"indices": [7, 4]})) == "cell_id"
    assert id_column(table(cell_id=[4, 7]), points(2, features={"cell_id": [7, 4]})) == "cell_id"
    adata = table(cell_id=[4, 7])
    adata.uns["spatialdata_attrs"] = {"region_key": "region", "instance_key": "cell_id"}
    assert id_column(adata, points(2, features={"cell": ["c1", "c0"]})) == OBS_NAMES
    layer = points(3, features={"area": [1.0, np.nan, 3.0]})
    assert id_column(features_to_anndata(layer.features, of_labels=False), layer) == OBS_NAMES


def test_the_layer_with_most_cells_is_chosen_and_then_that_with_fewest_other_labels():
    layers = [labels([4, 7]), labels([4, 7, 9]), labels([30]), labels([4, 7, 9, 10])]
    assert catalog_of(table(cell_id=[4, 7, 9, 12]), *layers).layer is layers[1]
    # A few equal ids are not enough.
    catalog = catalog_of(table(cell_id=range(1, 31)), labels(range(28, 60)))
    assert catalog.link is None
    assert catalog.absence() == (
        "30 cells; no layer has most of their ids in the column 'cell_id'. Choose the layer, and "
        "the column of ids."
    )


def test_labels_with_most_of_the_cells_come_before_the_points_of_the_table():
    adata = table(cell_id=[4, 7, 9, 12])
    own = points(4, features={"cell": adata.obs_names}, metadata={"adata": adata})
    few, most = labels([4, 7]), labels([4, 7, 9])
    assert catalog_of(adata, own, few).layer is own
    assert catalog_of(adata, own, few, most).layer is most
    few.metadata = own.metadata
    assert catalog_of(adata, most, few).layer is few

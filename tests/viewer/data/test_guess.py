"""The columns and layers that are guessed, and what happens where the guess is not clear."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from anndata import AnnData
from napari.layers import Labels, Layer

from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.columns import OBS_NAMES, images_by_name
from centroid_encoder.viewer.data.tables import features_to_anndata
from tests.viewer.data.small import catalog_of, labels, points, table

SIZES = (30, 40, 25)


def id_column(adata: AnnData, layer: Layer) -> str | None:
    catalog = catalog_of(adata, layer)
    catalog.choose_layer(layer)
    assert catalog.link is not None
    return catalog.link.id_column


def study(names: Sequence[object], ids: str = "CellNb", key: str = "image") -> AnnData:
    """Cells of images, numbered from 1 in each."""
    numbers = np.concatenate([np.arange(1, n + 1) for n in SIZES])
    return table(**{key: np.repeat(np.array(names, dtype=object), SIZES), ids: numbers})


def masks(*names: str) -> list[Labels]:
    return [labels(range(1, n + 1), name=name) for n, name in zip(SIZES, names, strict=True)]


def shown(catalog: Catalog) -> dict[str, object]:
    return {link.layer.name: link.image for link in catalog.joins}


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"area": [7, 4, 90], "CellID": [90, 4, 7]}, "CellID"),
        ({"area": [7, 4, 90], "object number": [90, 4, 7]}, "object number"),
        ({"area": [7, 4, 90], "index": [90, 4, 7]}, "index"),
        ({"number": [4, 7]}, None),
        ({"cell_id": ["aab-1", "aac-1"], "label": [4, 7]}, "label"),
        ({"label": ["B", "T"], "object_id": [4, 7]}, "object_id"),
        # Classes are no ids, and neither are numbers of rows.
        ({"label": [1, 2] * 20, "id": range(40)}, "id"),
        ({"index": range(3), "cell": [4, 7, 90]}, "cell"),
    ],
)
def test_columns_of_ids_have_usual_names_and_different_whole_numbers(
    columns: Any, expected: str | None
) -> None:
    assert id_column(table(**columns), labels([4, 7, 90])) == expected


def test_declared_columns_come_first() -> None:
    adata = table(label=[1, 2, 3], number=[4, 7, 4], part=["nuclei", "nuclei", "cells"])
    regions = {"region": ["nuclei", "cells"], "region_key": "part", "instance_key": "number"}
    adata.uns["spatialdata_attrs"] = regions
    layer = labels([4, 7, 90], name="layer 1", metadata={"name": "nuclei"})
    (link,) = catalog_of(adata, layer).joins
    assert (link.image_column, link.image, link.id_column) == ("part", "nuclei", "number")
    del adata.uns["spatialdata_attrs"]
    layer.metadata = {"name": None, "instance_key": "number"}
    assert id_column(adata, layer) == "number"


def test_ids_of_points() -> None:
    assert id_column(table(cell_id=[4, 7]), points(2, metadata={"indices": [7, 4]})) == "cell_id"
    assert id_column(table(cell_id=[4, 7]), points(2, features={"cell_id": [7, 4]})) == "cell_id"
    adata = table(cell_id=[4, 7])
    adata.uns["spatialdata_attrs"] = {"region_key": "region", "instance_key": "cell_id"}
    assert id_column(adata, points(2, features={"cell": ["c1", "c0"]})) == OBS_NAMES
    layer = points(3, features={"area": [1.0, np.nan, 3.0]})
    assert id_column(features_to_anndata(layer.features, of_labels=False), layer) == OBS_NAMES


# -- layers ----------------------------------------------------------------------------------------


def test_the_layer_with_most_cells_is_chosen_and_then_that_with_fewest_other_labels() -> None:
    layers = [labels([4, 7]), labels([4, 7, 9]), labels([30]), labels([4, 7, 9, 10])]
    assert catalog_of(table(cell_id=[4, 7, 9, 12]), *layers).layer is layers[1]
    # A few ids that agree are no evidence.
    catalog = catalog_of(table(cell_id=range(1, 31)), labels(range(28, 60)))
    assert catalog.link is None
    assert catalog.absence() == (
        "30 cells; no layer has most of their ids. Choose the layer, and the column of ids."
    )


def test_points_of_the_table_give_way_to_labels_with_most_of_its_cells() -> None:
    adata = table(cell_id=[4, 7, 9, 12])
    own = points(4, features={"cell": adata.obs_names}, metadata={"adata": adata})
    few, most = labels([4, 7]), labels([4, 7, 9])
    assert catalog_of(adata, own, few).layer is own
    assert catalog_of(adata, own, few, most).layer is most
    few.metadata = own.metadata
    assert catalog_of(adata, most, few).layer is few


# -- images ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        *[
            (name, ["A.tiff", "AB.tiff", "B.tiff"], "A.tiff")
            for name in ("A.ome.tiff", "A_mask", "A [1]", "cell_mask A", "/data/masks/A.tif", "a")
        ],
        ("image_001", [1, 2, 12], 1),
        ("cells", ["cells", "nuclei"], "cells"),
        # Several images, or none.
        ("A_mask", ["A.tiff", "A.png"], None),
        ("A_mask", ["B.tiff", "AB.tiff"], None),
    ],
)
def test_layers_have_names_of_images(name: str, values: list[object], expected: object) -> None:
    layer = labels([1], name=name)
    assert images_by_name([layer], values) == ({} if expected is None else {layer: expected})


def test_each_image_of_a_table_finds_its_layer_and_the_user_may_choose_others() -> None:
    layers = [*masks("A_mask", "B_mask", "right"), labels(range(1, 41), name="B_cells")]
    adata = study(["A.tiff", "B.tiff", "C.tiff"], "ObjectNumber", "ImageName")
    catalog = catalog_of(adata, *layers)
    assert catalog.absence() == ""
    assert shown(catalog) == {"A_mask": "A.tiff", "B_mask": "B.tiff"}
    assert [image.link is None for image in catalog.images()] == [False, False, True]
    catalog.show_image("C.tiff", layers[2])
    assert sum(join.n_joined for join in catalog.joins.values()) == sum(SIZES)
    # An image is shown by one layer, and a layer shows one image.
    catalog.show_image("B.tiff", layers[3])
    assert shown(catalog) == {"A_mask": "A.tiff", "right": "C.tiff", "B_cells": "B.tiff"}
    catalog.show_image("C.tiff", layers[0])
    assert shown(catalog) == {"A_mask": "C.tiff", "B_cells": "B.tiff"}
    catalog.show_image("B.tiff", None)
    assert shown(catalog) == {"A_mask": "C.tiff"}
    # Ids that are in every image cannot be those of one layer.
    catalog.show_image(None, layers[1])
    assert "gives several cells the same label: 1, 2, 3" in str(catalog.faults)
    catalog.choose_layer(None)
    assert (shown(catalog), catalog.absence()) == ({}, "95 cells; shown in no layer.")


def test_one_layer_may_show_all_images_if_their_ids_differ() -> None:
    adata = study(["A", "B", "C"])
    adata.obs["CellNb"] = range(1, 96)
    catalog = catalog_of(adata, labels(range(1, 96), name="whole"))
    assert shown(catalog) == {"whole": None}
    assert [image.name for image in catalog.images()] == ["all images", "A", "B", "C"]


def test_columns_that_the_user_chooses_serve_all_layers() -> None:
    adata = study(["A", "B", "C"], ids="nummer", key="patient scan")
    catalog = catalog_of(adata, *masks("A_mask", "B_mask", "C_mask"))
    assert catalog.link is None
    catalog.choose_image_column("patient scan")
    assert "no column of the table has a name of ids" in str(catalog.faults)
    catalog.choose_ids("nummer")
    assert shown(catalog) == {"A_mask": "A", "B_mask": "B", "C_mask": "C"}
    catalog.choose_image_column("")
    assert catalog.images() == []

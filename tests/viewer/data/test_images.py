"""Several images in one table, with the same ids: each cell is joined in its own image."""

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from hypothesis import given, settings
from hypothesis import strategies as st
from napari.components import LayerList
from napari.layers import Labels

from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.columns import images_by_name
from tests.cases import cases
from tests.viewer.data.small import catalog_of, labels, table

SIZES = (30, 40, 25)


def study(*names: str) -> AnnData:
    """Cells of images, numbered from 1 in each."""
    numbers = np.concatenate([np.arange(1, n + 1) for n in SIZES])
    return table(ImageName=np.repeat(np.array(names, dtype=object), SIZES), ObjectNumber=numbers)


def shown(catalog: Catalog) -> dict[str, object]:
    return {link.layer.name: link.image for link in catalog.joins}


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        *[
            (name, ["A.tiff", "AB.tiff", "B.tiff"], "A.tiff")
            for name in ("A.ome.tiff", "A_mask", "A [1]", "cell_mask A", "/data/masks/A.tif", "a")
        ],
        ("image_001", [1, 2, 12], 1),
        ("cells", ["cells", "nuclei"], "cells"),
        # One of the names may have further words at its end, but no numbers.
        ("P1_mask", ["P1_imc.tiff", "P2_imc.tiff"], "P1_imc.tiff"),
        ("P1_overlap_mask", ["P1.tiff", "P2.tiff"], "P1.tiff"),
        ("P1_mask", ["P1_2.tiff", "P2_2.tiff"], None),
        # The name matches several images, or none.
        ("A_mask", ["A_left.tiff", "A_right.tiff"], None),
        ("A_mask", ["A.tiff", "A.png"], None),
        ("A_mask", ["B.tiff", "AB.tiff"], None),
    ],
)
def test_the_image_of_a_layer_is_found_by_its_name(name, values, expected):
    layer = labels([1], name=name)
    assert images_by_name([layer], values) == ({} if expected is None else {layer: expected})


def test_each_image_has_its_layer_and_the_user_can_choose_another():
    sizes = {"A_mask": 30, "B_mask": 40, "right": 25, "B_cells": 40}
    layers = [labels(range(1, n + 1), name=name) for name, n in sizes.items()]
    catalog = catalog_of(study("A.tiff", "B.tiff", "C.tiff"), *layers)
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
    # One layer cannot show ids that repeat in each image.
    catalog.show_image(None, layers[1])
    assert "gives several cells the same label: 1, 2, 3" in str(catalog.faults)
    catalog.choose_image_column("")
    assert catalog.images() == []
    catalog.choose_layer(None)
    assert (shown(catalog), catalog.absence()) == ({}, "95 cells; shown in no layer.")


def test_one_layer_can_show_all_images_if_their_ids_differ():
    adata = study("A", "B", "C")
    adata.obs["ObjectNumber"] = range(1, 96)
    catalog = catalog_of(adata, labels(range(1, 96), name="whole"))
    assert shown(catalog) == {"whole": None}
    assert [image.name for image in catalog.images()] == ["all images", "A", "B", "C"]


def test_all_columns_of_images_and_ids_are_tried():
    layers = [labels(range(1, n + 1), name=f"P{i}_mask") for i, n in enumerate(SIZES)]
    adata = study("x0", "x1", "x2")
    names = {f"x{i}": f"P{i}_mask.tif" for i in range(3)}
    adata.obs["MaskName"] = adata.obs["ImageName"].map(names)
    adata.obs["cell_id"] = range(1000, 1095)
    catalog = catalog_of(adata, *layers)
    assert shown(catalog) == {f"P{i}_mask": f"P{i}_mask.tif" for i in range(3)}
    assert all(join.n_joined == join.n_rows for join in catalog.joins.values())


def test_why_no_layer_shows_the_table_is_true():
    layer = labels(range(1, 31), name="mask")
    catalog = catalog_of(study("A", "B", "C"), layer)
    assert (
        "no layer has the name of an image in the column 'ImageName', such as A"
        in catalog.absence()
    )
    repeated = table(cell_id=[1, 1, 2, 3])
    assert "gives several cells the same label: 1" in catalog_of(repeated, layer).absence()
    few = catalog_of(table(cell_id=range(100, 140), label=range(200, 240)), layer)
    assert "ids in the column 'cell_id' or the column 'label'." in few.absence()
    # A column that the user has chosen stays.
    few.choose_ids("label")
    assert few.table.ids == ("label", 0)


NAMES = ["A", "B", "core 12", "s_03"]
FILES = ["{}.tiff", "{}", "{}.ome.tif", "/data/{}.png"]
LAYERS = ["{}_mask", "{}", "cell mask {}", "{}.tif [1]"]


def image_of(ids: list[int], turn: int) -> np.ndarray:
    """Image of cells; no two images have the same pixels."""
    image = np.zeros((4, 2 * len(ids) + 3), dtype=np.int32)
    image[1, 1 : 2 * len(ids) : 2] = ids
    image[2, -1 - turn :] = 0
    return np.roll(image, turn, axis=1)


class Study:
    """Images, their table, and the true image of each cell."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        names = data.draw(st.permutations(NAMES), "images")[: data.draw(st.integers(2, 4), "n")]
        form = data.draw(st.sampled_from(FILES), "names in the table")
        self.images: dict[str, np.ndarray] = {}
        rows = []
        for turn, name in enumerate(names):
            ids = st.lists(st.integers(1, 12), min_size=2, max_size=8, unique=True)
            labels, known = data.draw(ids, f"labels of {name}"), data.draw(ids, f"ids of {name}")
            if data.draw(st.booleans(), "all"):
                known = labels
            self.images[name] = image_of(labels, turn)
            # Each image has the id 1.
            rows += [(form.format(name), i) for i in sorted({1, *known})]
        self.truth = [rows[i] for i in data.draw(st.permutations(range(len(rows))), "order")]
        self.name_of = {form.format(name): name for name in names}
        column = data.draw(st.sampled_from(["ImageName", "fov", "sample_id"]), "column of images")
        key = data.draw(st.sampled_from(["CellNumber", "ObjectNumber", "cell_id"]), "of ids")
        numbers = [i for _, i in self.truth]
        obs = {
            column: pd.Categorical([image for image, _ in self.truth]),
            key: list(map(str, numbers)) if data.draw(st.booleans(), "text") else numbers,
        }
        self.shows: dict[Labels, str] = {}
        self.layers = LayerList()
        self.catalog = Catalog(self.layers)
        self.catalog.connect()
        self.catalog.choose(self.catalog.add(table(**obs), "cells"))

    def open(self) -> None:
        name = self.data.draw(st.sampled_from(list(self.images)), "open")
        layer = Labels(self.images[name].copy(), name=self.called(name))
        self.shows[layer] = name
        self.layers.append(layer)

    def change(self) -> None:
        """Change a layer, or choose what it shows."""
        layer = self.data.draw(st.sampled_from(list(self.layers)), "layer")
        how = self.data.draw(st.sampled_from(["close", "rename", "show", "choose", "paint"]))
        ids = np.unique(layer.data)[1:]
        if how == "close":
            self.layers.remove(layer)
        elif how == "rename":
            layer.name = self.called(self.shows[layer])
        elif how == "choose":
            self.catalog.choose_layer(layer)
        elif how == "show":
            value = next(v for v, name in self.name_of.items() if name == self.shows[layer])
            self.catalog.show_image(value, layer)
        elif len(ids):
            layer.data = np.where(layer.data == ids[0], 0, layer.data)

    def hide(self) -> None:
        """Choose that no layer shows an image or the table."""
        image = self.data.draw(st.sampled_from([None, *self.catalog.images()]), "hide")
        if image is None:
            self.catalog.choose_layer(None)
        else:
            self.catalog.show_image(image.value, None)

    def called(self, name: str) -> str:
        """Name of a layer, which matches its image or no image."""
        return self.data.draw(st.sampled_from([*LAYERS, "mask", "Labels"]), "name").format(name)

    def check(self) -> None:
        """Check that each joined row is joined to its own label in its own image."""
        shown: set[int] = set()
        for link, join in self.catalog.joins.items():
            assert link.layer in self.layers
            present = set(np.unique(link.layer.data).tolist()) - {0}
            rows = np.flatnonzero(join.joined)
            for row in rows:
                image, number = self.truth[row]
                assert self.name_of[image] == self.shows[link.layer]
                assert join.ids[row] == number
                assert number in present
                assert join.rows([number]).tolist() == [row]
            for number in present - set(join.ids[rows].tolist()):
                assert join.rows([number]).tolist() == [-1]
            # No cell is in two layers.
            assert not shown & set(rows.tolist())
            shown |= set(rows.tolist())
        for image in self.catalog.images():
            if image.value is not None:
                assert image.n_cells == sum(str(image.value) == r for r, _ in self.truth)


@settings(deadline=None, max_examples=cases(60))
@given(data=st.data())
def test_no_cell_is_joined_in_the_wrong_image(data):
    study = Study(data)
    for _ in range(data.draw(st.integers(1, 8), "steps")):
        steps = [study.open, study.hide, *[study.change] * (3 if study.layers else 0)]
        data.draw(st.sampled_from(steps))()
        study.catalog.refresh()
        study.catalog.join_again()
        study.check()


def one_image(column: str, value: object, *, declared: bool = False) -> AnnData:
    """Cells of one image, numbered from 1."""
    adata = table(**{column: pd.Categorical([value] * 40), "CellID": np.arange(1, 41)})
    if declared:
        attrs = {"region": str(value), "region_key": column, "instance_key": "CellID"}
        adata.uns["spatialdata_attrs"] = attrs
    return adata


NAMED = [
    ("ImageName", "B", False, "B_mask"),
    ("ImageName", "B.tiff", False, "B_mask"),
    ("sample", "B", False, "cells B"),
    ("region", "cells", True, "cells"),
    ("where", "cells", True, "cells"),
    ("file", "/data/B.ome.tif", False, "B"),
    ("ImageNumber", 2, False, "image_002"),
]


@pytest.mark.parametrize(("column", "value", "declared", "name"), NAMED)
@pytest.mark.parametrize("is_first", [True, False])
def test_cells_of_one_image_are_in_the_layer_of_its_name(column, value, declared, name, is_first):
    other = labels(range(1, 41), name="A_mask")
    layers = [other, labels(range(1, 41), name=name)][:: -1 if is_first else 1]
    catalog = catalog_of(one_image(column, value, declared=declared), *layers)
    assert list(shown(catalog)) == [name]
    assert not catalog.faults
    # It is one image: no list of images.
    assert catalog.images() == []
    # The user can choose the other layer, and no layer.
    catalog.choose_layer(other)
    assert list(shown(catalog)) == ["A_mask"]
    assert not catalog.faults
    catalog.choose_layer(None)
    assert not catalog.joins


@pytest.mark.parametrize(
    ("adata", "is_asked"),
    [
        (one_image("ImageName", "B"), True),
        (one_image("region", "nuclei", declared=True), True),
        (table(sample=["B", "C"] * 20, CellID=np.arange(1, 41)), True),
        # The number that CellProfiler gives an image is no name.
        (one_image("ImageNumber", 1), False),
        (table(CellID=np.arange(1, 41)), False),
    ],
)
def test_without_a_layer_of_its_name_the_user_is_asked(adata, is_asked):
    layer = labels(range(1, 41), name="A_mask")
    catalog = catalog_of(adata, layer)
    assert list(shown(catalog)) == ["A_mask"]
    assert bool(catalog.faults) == is_asked
    (link,) = catalog.joins
    for fault in catalog.faults.values():
        assert str(fault).endswith("Are these the cells of A_mask?")
        assert fault.better == link
    catalog.choose_layer(layer)
    assert list(shown(catalog)) == ["A_mask"]
    assert not catalog.faults


def test_positions_answer_the_question():
    adata, layer = one_image("ImageName", "B"), labels(range(1, 41), name="A_mask")
    centers = np.array([np.argwhere(layer.data == i).mean(axis=0) for i in range(1, 41)])
    adata.obsm["spatial"] = 2.0 * centers[:, ::-1] + 7
    assert not catalog_of(adata, layer).faults


def test_a_name_counts_for_one_image_only_if_the_ids_fit():
    tumor = labels(np.repeat([1, 2], 20), name="tumor")
    catalog = catalog_of(one_image("sample", "tumor"), tumor, labels(range(1, 41), name="nuclei"))
    assert list(shown(catalog)) == ["nuclei"]
    assert catalog.faults

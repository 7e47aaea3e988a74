"""Which region of a table a layer shows, and several layers at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from napari.components import LayerList
from napari.layers import Labels

from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.regions import Region, guess_region, plain

SIZES = (30, 40, 25)


def image(n: int) -> np.ndarray:
    """Cells 1 … n in a row, with background between them."""
    return np.repeat(np.stack([np.zeros(n, int), np.arange(1, n + 1)]).T.reshape(1, -1), 2, axis=0)


def cells_of(regions: Sequence[object], ids: str = "CellNb", key: str = "image") -> AnnData:
    """Cells of images, numbered from 1 in each."""
    obs = pd.DataFrame(
        {
            key: np.repeat(np.array(regions, dtype=object), SIZES),
            ids: np.concatenate([np.arange(1, n + 1) for n in SIZES]),
        }
    )
    return AnnData(np.ones((len(obs), 2), np.float32), obs=obs.set_axis(obs.index.astype(str)))


def catalog_of(adata: AnnData, names: Sequence[str]) -> Catalog:
    layers = LayerList([Labels(image(n), name=name) for n, name in zip(SIZES, names, strict=True)])
    catalog = Catalog(layers)
    catalog.connect()
    catalog.choose(catalog.add(adata, "cells"))
    return catalog


def shown(catalog: Catalog) -> dict[str, object]:
    return {link.layer.name: link.region and link.region.value for link in catalog.joins}


@pytest.mark.parametrize(
    "name",
    [
        "A", "A.tif", "A.ome.tiff", "A_mask", "A_labels", "A-segmentation", "A [1]", "A.tiff_mask",
        "cell_mask A", "/data/masks/A.tif", "a",
    ],
)  # fmt: skip
def test_names_of_layers_say_which_region_they_show(name: str) -> None:
    obs = pd.DataFrame({"ImageName": ["A.tiff", "AB.tiff", "B.tiff"]})
    assert guess_region(obs, Labels(image(2), name=name)) == Region("ImageName", "A.tiff")


@pytest.mark.parametrize(("name", "number"), [("image_001", 1), ("ROI 12 mask", 12), ("3", 3)])
def test_numbers_of_regions_are_known_with_zeros(name: str, number: int) -> None:
    obs = pd.DataFrame({"ROI": [1, 2, 3, 12], "roi_id": [1, 2, 3, 12]})
    name = name.replace("ROI", "image")
    assert guess_region(obs, Labels(image(2), name=name)) == Region("roi_id", number)


@pytest.mark.parametrize(
    "values", [["A.tiff", "A.png"], ["A_cells", "A_nuclei"], ["B.tiff", "AB.tiff"]]
)
def test_a_name_that_could_be_several_regions_or_none_is_no_answer(values: list[str]) -> None:
    obs = pd.DataFrame({"image": values})
    assert guess_region(obs, Labels(image(2), name="A_mask")) == Region("image")


def test_a_layer_that_is_called_after_nothing_keeps_its_name() -> None:
    assert (plain("cells"), plain("Nuclei_mask.tif")) == ("cells", "nuclei mask")


@pytest.mark.parametrize("ids", ["CellNb", "CellNumber", "Object", "ObjectNumber", "cell_no"])
@pytest.mark.parametrize("key", ["ImageNb", "MaskName", "ImageNumber", "image_file"])
def test_each_region_of_a_table_finds_its_layer(ids: str, key: str) -> None:
    names = [f"{name}_mask" for name in "ABC"]
    catalog = catalog_of(cells_of(["A.tiff", "B.tiff", "C.tiff"], ids, key), names)
    assert catalog.absence() == ""
    assert shown(catalog) == {"A_mask": "A.tiff", "B_mask": "B.tiff", "C_mask": "C.tiff"}
    assert sum(join.n_joined for join in catalog.joins.values()) == sum(SIZES)


def test_regions_without_names_are_known_by_exactly_their_ids() -> None:
    catalog = catalog_of(cells_of([1, 2, 3], key="ImageNumber"), ["left", "middle", "right"])
    assert shown(catalog) == {"left": 1, "middle": 2, "right": 3}


def test_without_all_of_the_ids_it_is_for_the_user_to_say_which_region() -> None:
    adata = cells_of([1, 2, 3], key="ImageNumber")
    adata = adata[adata.obs["CellNb"] != 7].copy()
    catalog = catalog_of(adata, ["left", "middle", "right"])
    assert catalog.joins == {}
    assert catalog.link is not None
    assert (catalog.link.id_column, catalog.link.region) == ("CellNb", Region("ImageNumber"))
    assert "left could show one of the images in obs['ImageNumber']" in str(catalog.problem)


def test_what_is_joined_by_hand_serves_all_layers() -> None:
    adata = cells_of(["A.tiff", "B.tiff", "C.tiff"], ids="nummer")
    catalog = catalog_of(adata, ["A_mask", "B_mask", "C_mask"])
    assert catalog.link is None
    assert catalog.absence().splitlines()[:2] == [
        "95 cells; no layer to show them in.",
        "A_mask: no column of the table seems to hold the layer's ids; choose one, or another "
        "layer.",
    ]
    catalog.choose_layer(catalog.layers[1])
    catalog.choose_ids("nummer")
    assert shown(catalog) == {"A_mask": "A.tiff", "B_mask": "B.tiff", "C_mask": "C.tiff"}
    catalog.choose_layer(catalog.layers[2])
    assert catalog.link is not None
    assert catalog.link.id_column == "nummer"


def test_a_region_is_shown_by_one_layer_the_like_of_the_one_that_is_chosen() -> None:
    adata = cells_of(["A.tiff", "B.tiff", "C.tiff"])
    catalog = catalog_of(adata, ["A_cells", "B_nuclei", "C_cells"])
    catalog._all.append(Labels(image(40), name="B_cells"))
    catalog.refresh()
    catalog.choose_layer(catalog.layers[0])
    assert set(shown(catalog)) == {"A_cells", "B_cells", "C_cells"}
    assert catalog.link is not None
    # The user says otherwise.
    catalog.choose_link(replace(catalog.link, region=Region("image", "B.tiff")))
    assert shown(catalog) == {"A_cells": "B.tiff", "C_cells": "C.tiff"}
    catalog.choose_layer(None)
    assert (shown(catalog), catalog.absence()) == ({}, "95 cells; shown in no layer.")


@pytest.mark.parametrize("form", ["cell_{}", "cell-{}", "{}.0", "cell_{}.0", " {} "])
def test_ids_that_are_text_join_by_their_number(form: str) -> None:
    adata = cells_of(["A", "B", "C"], ids="cell_id")
    adata.obs["cell_id"] = [form.format(i) for i in adata.obs["cell_id"]]
    catalog = catalog_of(adata, ["A", "B", "C"])
    assert sorted(join.n_joined for join in catalog.joins.values()) == sorted(SIZES)


@pytest.mark.parametrize("forms", [("cell_{}", "nucleus_{}"), ("3.{}", "4.{}"), ("cell_{}", "{}")])
def test_text_that_may_mean_several_numbers_joins_nothing(forms: tuple[str, str]) -> None:
    adata = cells_of(["A", "B", "C"], ids="cell_id")
    n = adata.obs["cell_id"]
    adata.obs["cell_id"] = [forms[i % 2].format(i) for i in n]
    assert catalog_of(adata, ["A", "B", "C"]).joins == {}


def test_columns_that_join_to_different_cells_are_for_the_user_to_choose_from() -> None:
    adata = cells_of(["A", "B", "C"])[:30].copy()
    adata.obs["label"] = adata.obs["CellNb"].to_numpy()[::-1]
    adata.obs["cell_id"] = adata.obs["CellNb"].astype(str)
    catalog = Catalog(LayerList([Labels(image(30), name="A")]))
    catalog.connect()
    catalog.choose(catalog.add(adata, "cells"))
    assert catalog.link is not None
    assert catalog.join is None
    assert "obs['cell_id'] and obs['label'] could all hold the layer's ids" in str(catalog.problem)
    catalog.choose_ids("label")
    assert catalog.join is not None
    # What says the same is no rival.
    del adata.obs["label"]
    catalog = Catalog(LayerList([Labels(image(30), name="A")]))
    catalog.connect()
    catalog.choose(catalog.add(adata, "cells"))
    assert catalog.link is not None
    assert catalog.link.id_column == "cell_id"


def test_a_column_of_regions_of_any_name_is_known_by_the_ids_it_tells_apart() -> None:
    adata = cells_of(["A.tiff", "B.tiff", "C.tiff"], key="patient scan")
    adata.obs["cell_type"] = [f"{'ABC'[i % 3]}_mask" for i in range(adata.n_obs)]
    catalog = catalog_of(adata, ["A_mask", "B_mask", "C_mask"])
    assert shown(catalog) == {"A_mask": "A.tiff", "B_mask": "B.tiff", "C_mask": "C.tiff"}

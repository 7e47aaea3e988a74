"""The catalog of tables and layers; no window is needed."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from anndata import AnnData
from napari.components import LayerList
from napari.layers import Image, Labels
from numpy.typing import NDArray

from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.ids import label_ids

ImageOf = Callable[..., NDArray[np.int32]]
Make = Callable[..., AnnData]


class Emitted(list[str]):
    """Names of the signals of a catalog, in the order of emission."""

    def __init__(self, catalog: Catalog) -> None:
        for name in ("listed", "table_changed", "link_changed"):
            getattr(catalog, name).connect(lambda *_, name=name: self.append(name))
        catalog.stirred.connect(lambda painted: self.append("painted" if painted else "stirred"))

    def take(self) -> list[str]:
        taken = list(self)
        self.clear()
        return taken


@pytest.fixture
def layers() -> LayerList:
    return LayerList()


@pytest.fixture
def catalog(layers: LayerList) -> Catalog:
    catalog = Catalog(layers)
    catalog.connect()
    return catalog


@pytest.fixture
def nuclei(cells: AnnData, image_of: ImageOf) -> Labels:
    """Layer with the cells and their table."""
    return Labels(image_of(cells), name="nuclei", metadata={"adata": cells})


def test_layer_events_are_handled_until_disconnect(
    layers: LayerList, catalog: Catalog, nuclei: Labels
) -> None:
    emitted = Emitted(catalog)
    layers.append(nuclei)
    assert "stirred" in emitted.take()
    catalog.refresh()
    assert emitted.take() == ["table_changed", "link_changed", "listed"]
    catalog.refresh()
    assert emitted.take() == ["listed"]
    changes = {"name": "renamed", "features": {"area": [1.0]}, "metadata": {"other": 1}}
    for name, value in changes.items():
        setattr(nuclei, name, value)
        assert set(emitted.take()) == {"stirred"}
    catalog.refresh()
    catalog.disconnect()
    emitted.take()
    layers.remove(nuclei)
    assert emitted.take() == []


def test_a_join_stays_the_same_object_until_its_layer_is_painted(
    layers: LayerList, catalog: Catalog, nuclei: Labels
) -> None:
    photo = Image(np.zeros((4, 4)))
    layers.extend([nuclei, photo])
    catalog.refresh()
    join, emitted = catalog.join, Emitted(catalog)
    assert join is not None
    assert join.joined.all()
    photo.data = np.ones((4, 4))
    assert emitted.take() == []
    catalog.join_again()
    assert catalog.join is join
    emitted.take()
    gone = int(nuclei.data[0, 0])
    nuclei.fill((0, 0), 0)
    assert "painted" in emitted.take()
    catalog.join_again()
    assert emitted.take() == ["link_changed"]
    assert catalog.join is not None
    assert catalog.join.rows([gone]).tolist() == [-1]


def test_a_removed_table_is_replaced_by_the_next_one_of_its_layer(
    layers: LayerList, catalog: Catalog, nuclei: Labels, make_cells: Make, image_of: ImageOf
) -> None:
    adata = make_cells()
    second = Labels(image_of(adata), name="second", metadata={"adata": adata})
    layers.extend([nuclei, second])
    catalog.refresh()
    catalog.choose(catalog.tables[1])
    second.metadata = {"adata": (replaced := make_cells())}
    catalog.refresh()
    assert catalog.table is not None
    assert catalog.table.adata is replaced
    layers.remove(second)
    # At the end of a task, a table can be chosen before the catalog is refreshed.
    catalog.choose(catalog.table)
    assert catalog.link is None
    catalog.refresh()
    assert catalog.table.adata is replaced
    catalog.close(catalog.table)
    assert catalog.table.adata is nuclei.metadata["adata"]


def test_a_file_stays_when_its_layer_is_closed_and_is_freed_when_it_is_closed(
    layers: LayerList, catalog: Catalog, nuclei: Labels, tmp_path: Path
) -> None:
    nuclei.metadata = {"adata": nuclei.metadata["adata"].copy(), "path": tmp_path / "cells.h5ad"}
    layers.append(nuclei)
    catalog.refresh()
    assert catalog.join is not None
    layers.clear()
    nuclei.metadata = {}
    catalog.refresh()
    assert catalog.table is not None
    assert (catalog.table.name, catalog.link) == ("cells.h5ad", None)
    adata = weakref.ref(catalog.table.adata)
    catalog.close(catalog.table)
    gc.collect()
    assert (catalog.tables, adata()) == ([], None)


def test_the_choices_for_a_table_are_kept(
    layers: LayerList, catalog: Catalog, nuclei: Labels, make_cells: Make
) -> None:
    layers.extend([nuclei, other := Labels(nuclei.data.copy(), name="other")])
    catalog.refresh()
    nuclei.metadata["adata"].obs["twice"] = [*range(60), *range(60)]
    catalog.choose_layer(other)
    catalog.choose_ids("twice")
    assert catalog.joins == {}
    assert "gives several cells the same label" in str(catalog.faults[catalog.link])
    first, second = catalog.table, catalog.add(make_cells(), "second")
    catalog.choose(second)
    assert catalog.faults == {}
    catalog.choose(first)
    assert catalog.link is not None
    assert (catalog.link.layer, catalog.link.id_column) == (other, "twice")
    catalog.choose_layer(None)
    assert (catalog.link, catalog.joins, catalog.faults) == (None, {}, {})


def test_label_pixels_are_read_once_until_they_change(
    layers: LayerList, catalog: Catalog, nuclei: Labels
) -> None:
    image, reads = nuclei.data, []

    def lazy() -> da.Array:
        def read(block: NDArray[np.int32]) -> NDArray[np.int32]:
            reads.append(block.shape)
            return block

        whole = da.from_array(image, chunks=-1)
        return whole.map_blocks(read, dtype=image.dtype, meta=image[:0, :0])

    layers.append(layer := Labels(lazy(), metadata=nuclei.metadata))
    reads.clear()
    catalog.refresh()
    catalog.choose_ids("obs_names")
    catalog.choose_ids("cell_id")
    catalog.choose_layer(None)
    catalog.choose_layer(layer)
    assert catalog.join is not None
    assert catalog.join.joined.all()
    assert len(reads) == 1
    layer.data = lazy()
    reads.clear()
    catalog.join_again()
    assert len(reads) == 1


def test_lazy_labels_are_joined_when_their_ids_have_been_read(
    layers: LayerList, catalog: Catalog, cells: AnnData, image_of: ImageOf
) -> None:
    begun: list[Any] = []
    catalog.read_later = lambda layer, ids: begun.append((layer, ids))
    image = image_of(cells)
    layers.append(layer := Labels(da.from_array(image), name="slide"))
    catalog.add(cells, "cells")
    assert (catalog.link, catalog.joins) == (None, {})
    assert catalog.absence() == "120 cells; reading the labels of slide …"
    assert [one for one, _ in begun] == [layer]
    layer.data = da.from_array(image[::-1])
    # Ids of replaced pixels are ignored.
    begun[0][1].set_result(label_ids(image))
    catalog.take_ids(begun[0][1])
    assert catalog.joins == {}
    catalog.refresh()
    begun[1][1].set_result(label_ids(image))
    catalog.take_ids(begun[1][1])
    assert catalog.join is not None
    assert catalog.join.joined.all()
    layer.data = da.from_array(image)
    catalog.join_again()
    begun[2][1].set_exception(ValueError("the disk is gone"))
    catalog.take_ids(begun[2][1])
    assert str(catalog.faults[catalog.link]) == "the disk is gone"

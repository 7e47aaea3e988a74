"""The catalog of tables and layers; no window is needed."""

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import dask.array as da
import pytest
from napari.components import LayerList
from napari.layers import Labels

from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.ids import label_ids


@pytest.fixture
def layers() -> LayerList:
    return LayerList()


@pytest.fixture
def catalog(layers) -> Catalog:
    catalog = Catalog(layers)
    catalog.connect()
    return catalog


@pytest.fixture
def nuclei(cells, image_of) -> Labels:
    """Layer with the cells and their table."""
    return Labels(image_of(cells), name="nuclei", metadata={"adata": cells})


def test_a_join_stays_the_same_object_until_its_layer_is_painted(layers, catalog, nuclei):
    layers.append(nuclei)
    catalog.refresh()
    join, changed = catalog.join, []
    catalog.changed.connect(changed.append)
    catalog.join_again()
    assert catalog.join is join
    changed.clear()
    gone = int(nuclei.data[0, 0])
    nuclei.fill((0, 0), 0)
    catalog.join_again()
    assert changed == ["links"]
    assert catalog.join.rows([gone]).tolist() == [-1]
    catalog.disconnect()
    layers.remove(nuclei)
    assert changed == ["links"]


def test_a_removed_table_is_replaced_by_the_next_one_of_its_layer(
    layers, catalog, nuclei, make_cells, image_of
):
    adata = make_cells()
    second = Labels(image_of(adata), name="second", metadata={"adata": adata})
    layers.extend([nuclei, second])
    catalog.refresh()
    catalog.choose(catalog.tables[1])
    second.metadata = {"adata": (replaced := make_cells())}
    catalog.refresh()
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
    layers, catalog, nuclei, tmp_path
):
    nuclei.metadata = {"adata": nuclei.metadata["adata"].copy(), "path": tmp_path / "cells.h5ad"}
    layers.append(nuclei)
    catalog.refresh()
    layers.clear()
    nuclei.metadata = {}
    catalog.refresh()
    assert (catalog.table.name, catalog.link) == ("cells.h5ad", None)
    adata = weakref.ref(catalog.table.adata)
    catalog.close(catalog.table)
    gc.collect()
    assert (catalog.tables, adata()) == ([], None)


def test_the_choices_for_a_table_are_kept(layers, catalog, nuclei, make_cells):
    layers.extend([nuclei, other := Labels(nuclei.data.copy(), name="other")])
    catalog.refresh()
    nuclei.metadata["adata"].obs["twice"] = [*range(60), *range(60)]
    catalog.choose_layer(other)
    catalog.choose_ids("twice")
    assert catalog.joins == {}
    assert "gives several cells the same label" in str(catalog.faults[catalog.link])
    first = catalog.table
    catalog.choose(catalog.add(make_cells(), "second"))
    assert catalog.faults == {}
    catalog.choose(first)
    assert (catalog.link.layer, catalog.link.id_column) == (other, "twice")


def test_lazy_labels_are_joined_when_their_ids_have_been_read(layers, catalog, cells, image_of):
    begun: list[Future[Any]] = []

    def in_thread(_: Any, then: Callable[[Future[Any]], None]) -> Future[Any]:
        begun.append(Future())
        begun[-1].add_done_callback(then)
        return begun[-1]

    catalog.in_thread = in_thread
    image = image_of(cells)
    layers.append(layer := Labels(da.from_array(image), name="slide"))
    catalog.add(cells, "cells")
    assert catalog.joins == {}
    assert catalog.absence() == "120 cells; reading the labels of slide …"
    layer.data = da.from_array(image[::-1])
    # Ids of replaced pixels are ignored.
    begun[0].set_result(label_ids(image))
    assert catalog.joins == {}
    catalog.refresh()
    begun[1].set_result(label_ids(image))
    assert catalog.join.joined.all()
    layer.data = da.from_array(image)
    catalog.join_again()
    begun[2].set_exception(ValueError("the disk is gone"))
    assert str(catalog.faults[catalog.link]) == "the disk is gone"

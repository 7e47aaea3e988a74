"""The panel of tables and layers, without a napari window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from napari.components import LayerList
from napari.layers import Labels
from numpy.typing import NDArray
from pytestqt.qtbot import QtBot
from qtpy.QtWidgets import QComboBox

from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.join import Region
from centroid_encoder.viewer.panels.data import EMPTY, DataPanel

ImageOf = Callable[..., NDArray[np.int32]]


@pytest.fixture
def panel(qtbot: QtBot) -> DataPanel:
    """Panel of a viewer without layers."""
    panel = DataPanel(Catalog(layers := LayerList()))
    qtbot.addWidget(panel)
    panel.layers = layers  # type: ignore[attr-defined]
    panel.catalog.connect()
    panel.show()
    return panel


@pytest.fixture
def layers(panel: DataPanel) -> LayerList:
    return panel.layers  # type: ignore[attr-defined, no-any-return]


def entries(box: QComboBox) -> list[str]:
    return [box.itemText(i) for i in range(box.count())]


def test_without_tables_it_says_what_to_do(
    panel: DataPanel, layers: LayerList, cells: AnnData, image_of: ImageOf, qtbot: QtBot
) -> None:
    assert panel.message.text() == EMPTY
    assert panel.table_box.placeholderText() == "no table found"
    assert not panel.table_box.isEnabled()
    layers.append(Labels(image_of(cells), name="nuclei", metadata={"adata": cells}))
    qtbot.waitUntil(panel.table_box.isEnabled)
    assert panel.message.isHidden()
    assert panel.joined_text.text() == (
        "120 cells; 0 without a label in the image; 0 labels without a row"
    )


def test_tables_are_offered_in_order(
    panel: DataPanel, layers: LayerList, make_cells: Callable[..., AnnData], tmp_path: Path
) -> None:
    opened, given, attached, stored = (make_cells() for _ in range(4))
    opened.write_h5ad(tmp_path / "cells.h5ad")
    stored.uns["spatialdata_attrs"] = {"region": "element"}
    sdata = SimpleNamespace(tables={"table": stored}, path=None)
    blank, features = np.zeros((4, 4), dtype=int), pd.DataFrame({"area": np.arange(5.0)})
    panel.catalog.add(given, "given")
    panel.open_file(tmp_path / "cells.h5ad")
    layers.append(Labels(blank, name="measured", features=features))
    layers.append(Labels(blank, name="attached", metadata={"adata": attached}))
    layers.append(Labels(blank, name="layer", metadata={"sdata": sdata, "name": "element"}))
    panel.catalog.refresh()
    assert entries(panel.table_box) == [
        "table (layer)", "attached: AnnData", "cells.h5ad", "measured: features", "given",
    ]  # fmt: skip
    assert panel.table_box.currentText() == "cells.h5ad"
    panel.table_box.setCurrentText("attached: AnnData")
    assert panel.catalog.table is not None
    assert panel.catalog.table.adata is attached


def test_a_burst_of_events_is_answered_once(
    panel: DataPanel, layers: LayerList, cells: AnnData, image_of: ImageOf, qtbot: QtBot
) -> None:
    listed: list[None] = []
    panel.catalog.listed.connect(lambda: listed.append(None))
    layer = Labels(image_of(cells), name="nuclei", metadata={"adata": cells})
    layers.append(layer)
    for i in range(5):
        layer.name = f"nuclei {i}"
    qtbot.waitUntil(lambda: bool(listed))
    assert len(listed) == 1
    assert entries(panel.layer_box) == ["none", "nuclei 4"]

    joined: list[None] = []
    panel.catalog.link_changed.connect(lambda: joined.append(None))
    first, second = np.unique(layer.data)[1:3]
    for label in (first, second):
        layer.data_setitem(np.nonzero(layer.data == label), 0)
    qtbot.waitUntil(lambda: bool(joined))
    assert len(joined) == 1
    assert "2 without a label" in panel.joined_text.text()


def test_columns_and_regions_are_chosen(
    panel: DataPanel, layers: LayerList, cells: AnnData, image_of: ImageOf
) -> None:
    image = image_of(cells)
    cells.obs["fov"] = pd.Categorical(["left", "right"] * 60)
    cells.obs["twice"] = [*range(60), *range(60)]
    cells.obs["share"] = np.linspace(0, 1, 120)
    layers.append(Labels(image, name="nuclei", metadata={"adata": cells}))
    panel.catalog.refresh()
    assert entries(panel.region_box) == ["all", "left", "right"]
    assert {"cell_id", "twice"} <= set(entries(panel.instance_box))
    assert "share" not in entries(panel.instance_box)

    panel.region_box.setCurrentText("left")
    assert panel.joined_text.text().startswith("60 of 120 cells; 0 without")
    panel.instance_box.setCurrentText("twice")
    assert panel.catalog.link is not None
    assert panel.catalog.link.region == Region("fov", "left")
    panel.region_box.setCurrentText("all")
    assert panel.message.text().startswith("obs['twice'] gives several cells the same label")
    assert panel.joined_text.isHidden()
    panel.layer_box.setCurrentText("none")
    assert panel.joined_text.text() == "120 cells; no layer to show them in."
    assert panel.message.isHidden()
    for box in (panel.instance_box, panel.region_box):
        assert box.isHidden()


def test_a_table_without_ids_asks_for_them(
    panel: DataPanel, layers: LayerList, cells: AnnData, image_of: ImageOf
) -> None:
    layer = Labels(image_of(cells), name="nuclei")
    cells.obs = cells.obs.rename(columns={"cell_id": "number"})
    layer.metadata["adata"] = cells
    layers.append(layer)
    panel.catalog.refresh()
    assert panel.instance_box.currentText() == "choose …"
    assert "no column of the table seems to hold the ids of nuclei" in panel.message.text().lower()
    panel.instance_box.setCurrentText("number")
    assert panel.joined_text.text().startswith("120 cells; 0 without a label")
    assert "choose …" not in entries(panel.instance_box)


def test_a_file_that_is_no_table_is_said_there(panel: DataPanel, tmp_path: Path) -> None:
    (tmp_path / "text.h5ad").write_text("no table")
    assert panel.open_file(tmp_path / "text.h5ad") is None
    assert panel.message.text().startswith("text.h5ad cannot be read")
    assert panel.message.kind == "error"

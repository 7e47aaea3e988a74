"""The panel of tables and layers, without a napari window."""

import threading
import warnings
from pathlib import Path

import dask.array as da
import numpy as np
import pandas as pd
import pytest
import zarr
from napari.components import LayerList
from napari.layers import Image, Labels
from napari.utils.notifications import notification_manager
from numpy.typing import NDArray
from qtpy.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from qtpy.QtGui import QDragEnterEvent, QDropEvent
from qtpy.QtWidgets import QPushButton

import centroid_encoder as ce
from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.panels.data import DataPanel
from centroid_encoder.viewer.session.session import Session
from tests.viewer.seen import entries


@pytest.fixture
def panel(qtbot) -> DataPanel:
    """Panel of a viewer without layers."""
    panel = DataPanel(Session(layers := LayerList()))
    qtbot.addWidget(panel)
    panel.layers = layers  # type: ignore[attr-defined]
    panel.catalog.connect()
    panel.show()
    return panel


@pytest.fixture
def layers(panel) -> LayerList:
    return panel.layers  # type: ignore[attr-defined, no-any-return]


def test_details_are_closed_where_they_are(panel):
    panel.toggle()
    panel.toggle()
    assert panel.isVisible()
    (close_button,) = (x for x in panel.findChildren(QPushButton) if x.text() == "×")
    close_button.click()
    assert panel.isHidden()


def test_many_events_cause_one_update(panel, layers, cells, image_of, qtbot):
    changed: list[str] = []
    panel.catalog.changed.connect(changed.append)
    layer = Labels(image_of(cells), name="nuclei", metadata={"adata": cells})
    layers.append(layer)
    for i in range(5):
        layer.name = f"nuclei {i}"
    qtbot.waitUntil(lambda: bool(changed))
    assert changed.count("tables") == 1
    assert entries(panel.layer_box) == ["none", "nuclei 4"]

    changed.clear()
    for label in np.unique(layer.data)[1:3]:
        layer.data_setitem(np.nonzero(layer.data == label), 0)
    qtbot.waitUntil(lambda: bool(changed))
    assert changed.count("links") == 1
    assert "2 without a label" in panel.joined_text.text()


def test_without_a_column_of_ids_the_user_must_choose_one(panel, layers, cells, image_of):
    layer = Labels(image_of(cells), name="nuclei")
    cells.obs = cells.obs.rename(columns={"cell_id": "number"})
    layer.metadata["adata"] = cells
    layers.append(layer)
    panel.catalog.refresh()
    assert panel.instance_box.currentText() == "choose …"
    assert "no column of the table has a usual name for ids" in panel.message.text().lower()
    panel.instance_box.setCurrentText("number")
    assert panel.joined_text.text().startswith("120 cells; 0 without a label")
    assert "choose …" not in entries(panel.instance_box)


def test_the_column_of_ids_can_be_chosen_before_a_layer(panel, layers, cells, image_of):
    layers.append(Labels(image_of(cells), name="nuclei"))
    cells.obs = cells.obs.rename(columns={"cell_id": "number"})
    panel.catalog.choose(panel.catalog.add(cells, "cells"))
    assert panel.joined_text.text().endswith("such as cell_id; choose the column.")
    assert not panel.instance_box.isHidden()
    panel.instance_box.setCurrentText("number")
    assert panel.joined_text.text().startswith("120 cells; 0 without a label")


def test_columns_of_ids_and_images_are_chosen(panel, layers, cells, image_of):
    cells.obs["fov"] = pd.Categorical(["left", "right"] * 60)
    cells.obs["twice"] = [*range(60), *range(60)]
    cells.obs["share"] = np.linspace(0, 1, 120)
    layers.append(Labels(image_of(cells), name="nuclei", metadata={"adata": cells}))
    panel.catalog.refresh()
    assert entries(panel.image_box)[:2] == ["one image", "fov"]
    assert {"cell_id", "twice"} <= set(entries(panel.instance_box))
    assert "share" not in entries(panel.instance_box)
    panel.catalog.show_image("left", layers[0])
    assert panel.joined_text.text().startswith("120 cells in 2 images, 1 of them open; in these, 0")
    panel.image_box.setCurrentText("one image")
    assert panel.joined_text.text().startswith("120 cells; 0 without")
    panel.instance_box.setCurrentText("twice")
    assert panel.message.text().startswith("The column 'twice' gives several cells the same label")
    assert panel.joined_text.isHidden()
    panel.layer_box.setCurrentText("none")
    assert panel.joined_text.text() == "120 cells; shown in no layer."
    assert panel.message.isHidden()
    assert panel.instance_box.isHidden()


def test_a_button_corrects_ids_that_are_off_by_one(panel, layers, cells, image_of):
    image = image_of(cells)
    ids = np.unique(image)[1:]
    # Ids without gaps, as most programs give them.
    image = np.searchsorted(ids, image, side="right").astype(np.int32)
    cells.obs["cell_id"] = np.searchsorted(ids, cells.obs["cell_id"])
    layers.append(Labels(image, name="nuclei", metadata={"adata": cells}))
    panel.catalog.refresh()
    assert panel.message.kind == "warning"
    assert panel.mend_button.text() == "Join by the column 'cell_id' +1"
    panel.mend_button.click()
    assert panel.mend_button.isHidden()
    assert panel.instance_box.currentText() == "cell_id +1"
    assert panel.joined_text.text().startswith("120 cells; 0 without a label in the image; 0")
    panel.instance_box.setCurrentText("cell_id")
    assert not panel.mend_button.isHidden()


def test_lazy_labels_are_read_in_a_thread(panel, layers, cells, image_of, qtbot):
    image, threads, allowed = image_of(cells), set(), threading.Event()
    allowed.set()

    def read(block: NDArray[np.int32]) -> NDArray[np.int32]:
        allowed.wait(30)
        threads.add(threading.current_thread())
        return block

    lazy = da.from_array(image).map_blocks(read, dtype=image.dtype, meta=image[:0, :0])
    layers.append(Labels(lazy, name="slide", metadata={"adata": cells}))
    threads.clear()
    allowed.clear()
    panel.catalog.refresh()
    assert panel.joined_text.text() == "120 cells; reading the labels of slide …"
    allowed.set()
    qtbot.waitUntil(lambda: panel.joined_text.text().startswith("120 cells; 0 without a label"))
    assert threading.main_thread() not in threads


def test_a_button_shows_positions_if_there_is_no_layer(panel, layers, cells):
    assert panel.positions_button.isHidden()
    places = cells.obsm["spatial"] = np.random.default_rng(0).uniform(0, 99, (cells.n_obs, 2))
    panel.catalog.choose(panel.catalog.add(cells, "cells"))
    panel.positions_button.click()
    assert np.array_equal(layers["cells"].data, places[:, ::-1])
    assert panel.positions_button.isHidden()
    assert panel.joined_text.text().startswith("120 cells; 0 without a point in the layer")


def test_positions_in_pixels_have_the_place_of_the_image(panel, layers):
    labels = np.kron(np.arange(1, 31).reshape(5, 6), np.pad(np.ones((4, 4), int), (0, 1)))
    place = {"scale": (0.5, 0.25), "translate": (3, 4), "units": ("um", "um")}
    layers.append(Image(labels * 0.1, name="DAPI", **place))
    notification_manager.records.clear()
    for options in ({}, {"spacing": (0.5, 0.25), "unit": "um"}):
        adata = ce.tl.measure(labels, progress=False, **options)
        panel.catalog.choose(panel.catalog.add(adata, "cells"))
        panel.positions_button.click()
        shown = layers[-1].data_to_world(layers[-1].data[1]), layers[-1].units
        assert shown == (layers[0].data_to_world((1.5, 6.5)), layers[0].units)
    assert not notification_manager.records


def test_positions_of_unknown_unit_are_drawn_in_world_coordinates_and_a_message_says_so(
    panel, layers, cells
):
    layers.append(Image(np.zeros((9, 9)), name="DAPI", scale=(0.5, 0.5), units=("um", "um")))
    cells.obsm["spatial"] = np.random.default_rng(0).uniform(0, 99, (cells.n_obs, 2))
    panel.catalog.choose(panel.catalog.add(cells, "cells"))
    notification_manager.records.clear()
    panel.positions_button.click()
    assert np.array_equal(layers["cells"].scale, [1, 1])
    assert layers["cells"].units == layers["DAPI"].units
    (said,) = [record.message for record in notification_manager.records]
    assert said.endswith("drawn in the world coordinates of DAPI, in micrometers.")


def test_cells_of_a_movie_are_shown_in_their_frames(panel, layers):
    labels = np.stack([np.kron(np.arange(1, 31).reshape(5, 6), np.ones((4, 4), int))] * 3)
    layers.append(Image(labels * 0.1, name="DAPI", scale=(1, 0.5, 0.5)))
    adata = ce.tl.measure(labels, time_series=True, progress=False)
    panel.catalog.choose(panel.catalog.add(adata, "cells"))
    notification_manager.records.clear()
    panel.positions_button.click()
    points = layers["cells"]
    assert np.array_equal(points.data[:, 0], adata.obs["frame"])
    assert np.array_equal(points.data[:, 1:], adata.obsm["spatial"][:, ::-1])
    assert points.scale.tolist() == [1, 0.5, 0.5]
    assert set(np.ravel(points.size)) == {4}
    (said,) = [record.message for record in notification_manager.records]
    assert said == "The frames are those of the column 'frame', and the first one is 0."
    assert panel.joined_text.text().startswith("90 cells; 0 without a point in the layer")


def dropped(widget: CentroidEncoderWidget, *paths: Path) -> bool:
    """Drag files over the widget and drop them; return whether it takes them."""
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths])
    how = (Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier(0))
    with warnings.catch_warnings():
        # PySide6 6.12 takes a QPointF here, and the others do not.
        warnings.simplefilter("ignore", DeprecationWarning)
        enter = QDragEnterEvent(QPoint(5, 5), *how)
    widget.dragEnterEvent(enter)
    if enter.isAccepted():
        widget.dropEvent(QDropEvent(QPointF(5, 5), *how))
    return enter.isAccepted()


def test_tables_are_dropped(open_widget, cells, tmp_path, qtbot):
    widget = open_widget()
    panel = widget.data
    cells.write_zarr(tmp_path / "cells.zarr")
    cells.obs_names = [*cells.obs_names[1:], cells.obs_names[1]]
    cells.write_h5ad(tmp_path / "cells.h5ad")
    notification_manager.records.clear()
    assert not dropped(widget, tmp_path / "photo.tif")
    assert panel.catalog.tables == []
    (tmp_path / "text.h5ad").write_text("no table")
    assert dropped(widget, *(tmp_path / name for name in ("cells.zarr", "text.h5ad", "cells.h5ad")))
    assert panel.opening.isVisible()
    qtbot.waitUntil(lambda: len(panel.catalog.tables) == 2)
    assert panel.opening.isHidden()
    assert panel.table_box.currentText() == "cells.h5ad"
    assert panel.catalog.tables[0].path == tmp_path / "cells.zarr"
    # Cells of the same name get other names.
    said = [record.message for record in notification_manager.records]
    assert any("was appended to 1 name" in text for text in said)


def test_the_panel_says_why_a_folder_is_no_table(panel, tmp_path, qtbot):
    zarr.open_group(tmp_path / "images.zarr", mode="w").create_group("tables/cells")
    for folder, text in (
        (tmp_path, "it is a folder, but no zarr store"),
        (tmp_path / "images.zarr", "one of its tables here: tables/cells"),
    ):
        panel.read(folder)
        qtbot.waitUntil(lambda text=text: text in panel.message.text())

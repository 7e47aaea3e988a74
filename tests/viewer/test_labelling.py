"""The page on labels by hand, from an image and its label image to a saved and reopened table."""

from typing import Any

import numpy as np
import pandas as pd
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QApplication
from scipy import ndimage
from skimage import data, filters, measure

from centroid_encoder.viewer import CentroidEncoderWidget
from tests.viewer.seen import open_table

KEY, LEFT = Qt.Key, Qt.MouseButton.LeftButton
CLASSES = ("gland", "edge", "stroma")


def tissue() -> tuple[Any, Any]:
    """A sample that scikit-image ships, and the labels of its nuclei."""
    image = data.immunohistochemistry()
    red, _, blue = np.moveaxis(filters.gaussian(image, sigma=1.5, channel_axis=-1), -1, 0)
    bluer = blue - red > filters.threshold_local(blue - red, block_size=51)
    mask = bluer & (red < filters.threshold_otsu(red))
    return image, measure.label(ndimage.binary_opening(mask, iterations=2))


def test_from_an_image_to_labels_a_map_and_back(
    viewer, qtbot, tmp_path, open_widget, train, check, save
):
    image, labels = tissue()

    def open_layers() -> CentroidEncoderWidget:
        viewer.add_image(image, rgb=True, name="tissue")
        layer = viewer.add_labels(labels, name="nuclei")
        widget = open_widget()
        widget.show_mode(widget.label)
        viewer.layers.selection.active = layer
        return widget

    viewer.window._qt_window.resize(1280, 780)
    widget = open_layers()
    widget.data.measure_action.trigger()
    widget.data._dialog.measure_button.click()
    session, panel, queue = widget.session, widget.label, widget.queue
    qtbot.waitUntil(lambda: widget.catalog.join is not None, timeout=60_000)
    adata, native = session.adata, viewer.window._qt_viewer.canvas.native
    truth = pd.qcut(adata.to_df()["tissue_blue_mean"], [0, 0.4, 0.8, 1], labels=False).to_numpy()

    def settle() -> None:
        qtbot.waitUntil(lambda: not (panel.live.is_due or queue.is_searching), timeout=60_000)

    def click(row: int) -> None:
        QApplication.processEvents()  # The canvas has another size when the dock has a scroll bar.
        center, zoom = np.array(viewer.scene.camera.center[1:]), viewer.scene.camera.zoom
        # The pixel farthest from the border, since a pixel of the screen is larger than one here.
        depth = ndimage.distance_transform_edt(labels == adata.obs["label"].iloc[row])
        pixel = np.array(np.unravel_index(depth.argmax(), depth.shape))
        y, x = (pixel + 0.5 - center) * zoom / native.devicePixelRatioF()
        qtbot.mouseClick(native, LEFT, pos=QPoint(round(x), round(y)) + native.rect().center())

    def n_labels() -> int:
        return int(adata.obs["cell_type"].notna().sum())

    # Classes and cells, with keys in the image.
    panel.start_button.click()
    for name in CLASSES:
        qtbot.keyClicks(panel.name_line, name)
        qtbot.keyClick(panel.name_line, KEY.Key_Return)
    viewer.reset_view()
    inside = np.flatnonzero((np.abs(adata.obsm["spatial"] - 256) < 200).all(axis=1))
    for row in (row for i in range(3) for row in inside[truth[inside] == i][:8]):
        click(row)
        assert np.flatnonzero(session.selected).tolist() == [row]
        qtbot.keyClick(native, KEY(KEY.Key_1 + int(truth[row])))
    settle()
    assert widget.map.result is session.drawn is not None

    # The queue, with proposals of the live map.
    queue.suggest_button.click()
    settle()
    for key, n in ((KEY.Key_Return, 25), (KEY.Key_Backspace, 24), (KEY.Key_N, 24)):
        qtbot.keyClick(native, key)
        assert n_labels() == n
    while n_labels() < 30:
        qtbot.keyClick(native, KEY(KEY.Key_1 + int(truth[queue.queue.current.row])))
        if queue.queue.current is None:
            settle()
    queue.agree_button.click()
    settle()
    assert 30 < n_labels() <= 42

    # All other cells, a map, a check, and the file.
    queue.apply_button.click()
    predicted = adata.obs["cell_type_predicted"].astype(str)
    assert (predicted == np.array(CLASSES)[truth]).mean() > 0.6
    panel.start_button.click()
    train(widget)
    assert set(widget.result.classes) == set(CLASSES)
    check(widget)
    assert "error" in widget.misplaced.found.text()
    save(widget, tmp_path / "cells.h5ad")
    viewer.window.remove_dock_widget("all")
    viewer.layers.clear()

    # Another day.
    before = adata.obs["cell_type"].astype(object)
    again = open_layers()
    open_table(again.catalog, tmp_path / "cells.h5ad")
    again.label.start_button.click()
    assert again.session.adata.obs["cell_type"].astype(object).equals(before)

"""Labels by hand: the widget on a table without labels, keys, and the wait for the live map."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from qtpy.QtCore import Qt

from centroid_encoder.viewer import CentroidEncoderWidget


@pytest.fixture
def label(viewer, open_widget, table, image_of) -> Callable[..., CentroidEncoderWidget]:
    """Open the widget on the table in a layer of Labels or Points, and begin to label."""

    def open_(kind: str = "labels", classes: tuple[str, ...] = ("a", "b")) -> CentroidEncoderWidget:
        image = image_of(table)
        if kind == "labels":
            layer = viewer.add_labels(image, name="cells")
        else:
            places = [np.argwhere(image == i).mean(axis=0) for i in table.obs["cell_id"]]
            features = {"cell_id": table.obs["cell_id"].to_numpy()}
            layer = viewer.add_points(places, features=features, name="cells", size=4)
        widget = open_widget()
        widget.show_table(table, layer=layer, instance_key="cell_id")
        widget.show_mode(widget.label)
        widget.label.start_button.click()
        for name in classes:
            widget.label.name_line.setText(name)
            widget.label.name_line.returnPressed.emit()
        viewer.layers.selection.active = layer
        return widget

    return open_


@pytest.fixture
def strike(viewer, qtbot) -> Callable[..., None]:
    """Press a key on the canvas of napari, which dispatches it."""

    def run(key: Any, modifier: Any = Qt.KeyboardModifier.NoModifier) -> None:
        qtbot.keyClick(viewer.window._qt_viewer.canvas.native, key, modifier)

    return run


@pytest.fixture
def settled(qtbot) -> Callable[[CentroidEncoderWidget], None]:
    """Wait until the live map is trained and the queue is made."""

    def wait(widget: CentroidEncoderWidget) -> None:
        live, queue = widget.label.live, widget.queue
        qtbot.waitUntil(lambda: not (live.is_due or queue.is_searching), timeout=60_000)

    return wait

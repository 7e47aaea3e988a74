"""Colours and outlines after what the user does to layers in napari."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from anndata import AnnData
from napari import Viewer
from napari.layers import Labels
from pytestqt.qtbot import QtBot

from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.data.tables import is_drawn
from tests.viewer.seen import is_colored, outlined


@pytest.fixture
def nuclei(viewer: Viewer, cells: AnnData, image_of: Any) -> Labels:
    layer: Labels = viewer.add_labels(image_of(cells), name="nuclei", metadata={"adata": cells})
    return layer


@pytest.fixture
def widget(
    nuclei: Labels, open_widget: Callable[[], CentroidEncoderWidget]
) -> CentroidEncoderWidget:
    widget = open_widget()
    widget.cells.color_box.setCurrentText("label")
    widget.select(np.array([5]))
    return widget


def drawn(viewer: Viewer) -> list[str]:
    return [layer.name for layer in viewer.layers if is_drawn(layer)]


def test_drawn_layers_follow_the_name_and_the_order(
    widget: CentroidEncoderWidget, nuclei: Labels, viewer: Viewer, qtbot: QtBot
) -> None:
    nuclei.name = "cells"
    qtbot.waitUntil(lambda: drawn(viewer) == ["cells · label", "selected cells"])
    viewer.layers.move(0, len(viewer.layers))
    qtbot.waitUntil(lambda: viewer.layers.index(nuclei) == 0)
    assert drawn(viewer) == ["cells · label", "selected cells"]


def test_colors_that_were_deleted_can_be_chosen_again(
    widget: CentroidEncoderWidget, nuclei: Labels, viewer: Viewer, qtbot: QtBot
) -> None:
    viewer.layers.remove("nuclei · label")
    qtbot.wait(50)
    assert not is_colored(viewer, nuclei)
    box = widget.cells.color_box
    box.activated.emit(box.currentIndex())  # as a click on the entry does
    assert is_colored(viewer, nuclei)


def test_strokes_are_seen_at_once_and_have_their_colors_afterwards(
    widget: CentroidEncoderWidget, nuclei: Labels, viewer: Viewer, cells: AnnData, qtbot: QtBot
) -> None:
    viewer.layers.selection.active = nuclei
    nuclei.mode, nuclei.brush_size = "fill", 3  # the circle of the brush crashes Xvfb later
    assert nuclei.opacity > 0.5
    new, own = int(nuclei.data.max()) + 1, int(cells.obs["cell_id"].iloc[5])
    colors = viewer.layers["nuclei · label"]
    assert not colors.visible
    nuclei.paint((2, 2), new)
    nuclei.paint((12, 12), own)
    nuclei.mode = "pan_zoom"
    # The same layers show the new pixels.
    code = colors.data[
        np.argwhere(nuclei.data == own)[-1][0], np.argwhere(nuclei.data == own)[-1][1]
    ]
    qtbot.waitUntil(lambda: colors.data[12, 12] == code > 0)
    qtbot.waitUntil(lambda: outlined(viewer, nuclei)[11, 11] == 1)
    assert colors.data[2, 2] == 0
    assert colors in viewer.layers
    assert nuclei.opacity == 0

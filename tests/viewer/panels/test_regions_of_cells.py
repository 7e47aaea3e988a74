"""Cells of several images, each in a layer of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import pytest
from anndata import AnnData
from napari import Viewer
from napari.layers import Labels
from numpy.typing import NDArray

from centroid_encoder.viewer.data.tables import is_drawn

if TYPE_CHECKING:
    from centroid_encoder.viewer import CentroidEncoderWidget

HALF = 60


@pytest.fixture
def widget(
    cells: AnnData,
    image_of: Callable[..., NDArray[np.int32]],
    viewer: Viewer,
    open_widget: Callable[[], CentroidEncoderWidget],
) -> CentroidEncoderWidget:
    """Two images of sixty cells each, side by side."""
    image = image_of(cells)
    cells.obs["image"] = np.repeat(["A.tiff", "B.tiff"], HALF)
    for i, name in enumerate("AB"):
        ids = cells.obs["cell_id"].iloc[i * HALF : (i + 1) * HALF]
        mask = Labels(np.where(np.isin(image, ids), image, 0), name=f"{name}_mask")
        mask.translate = (0, i * 200)
        viewer.add_layer(mask)
    widget = open_widget()
    widget.show_table(cells, label_key="cell_type")
    return widget


def test_all_layers_are_coloured_and_stay_so(widget: CentroidEncoderWidget, viewer: Viewer) -> None:
    first, second = viewer.layers["A_mask"], viewer.layers["B_mask"]
    own = first.colormap, second.colormap
    assert "Other regions are shown in B_mask." in widget.data.joined_text.text()
    widget.cells.color_box.setCurrentText("label")
    for layer in (second, first):
        widget.catalog.choose_layer(layer)
        assert first.colormap is not own[0]
        assert second.colormap is not own[1]
    widget.catalog.choose_layer(None)
    assert (first.colormap, second.colormap) == own
    # Coming back brings the colours again.
    widget.catalog.choose_layer(first)
    assert widget.cells.color_box.currentText() == "label"
    assert first.colormap is not own[0]


def test_zoom_goes_to_the_image_that_the_cell_is_in(
    widget: CentroidEncoderWidget, viewer: Viewer
) -> None:
    assert widget.catalog.layer is viewer.layers["A_mask"]
    viewer.layers["B_mask"].visible = False
    widget.select(np.array([HALF + 3]))
    assert widget.cells.unseen_text.isHidden()
    assert sum(map(is_drawn, viewer.layers)) == 1
    widget.cells.show_button.click()
    assert viewer.scene.camera.center[2] > 190
    assert viewer.layers["B_mask"].visible
    # Of cells in both, those in the layer that is chosen.
    widget.select(np.array([3, HALF + 3]))
    widget.cells.show_button.click()
    assert viewer.scene.camera.center[2] < 190


def test_a_cell_of_an_image_that_is_not_open_is_said_to_be_there(
    widget: CentroidEncoderWidget, viewer: Viewer
) -> None:
    viewer.layers.remove("B_mask")
    widget.catalog.refresh()
    widget.select(np.array([HALF + 3]))
    assert widget.cells.selection_text.text() == "1 cell selected"
    assert widget.cells.unseen_text.text() == "In B.tiff: no layer of that image is joined."
    assert not widget.cells.unseen_text.isHidden()
    assert not widget.cells.show_button.isEnabled()
    widget.select(np.array([3, HALF + 3]))
    assert widget.cells.unseen_text.isHidden()
    assert widget.cells.show_button.isEnabled()
    widget.catalog.choose_layer(None)
    assert widget.cells.unseen_text.text() == "No layer shows the cells of this table."

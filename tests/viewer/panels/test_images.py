"""The list of images of a table, and their layers."""

import numpy as np
import pytest
from napari.layers import Labels
from qtpy.QtGui import QAction
from qtpy.QtWidgets import QMenu

from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.panels.data import ImageTable
from tests.viewer.seen import is_colored

HALF = 60
WHOLE = ["all images", "120", "–", ""]


def rows(table: ImageTable) -> list[list[str]]:
    """Return the texts of a table."""
    return table.frame.table.iloc[:, :4].to_numpy().tolist()


def action(table: ImageTable, row: int, layer: str) -> QAction:
    """Return an entry of the menu of an image."""
    return next(one for one in table.menu(row).actions() if one.text() == layer)


@pytest.fixture
def widget(cells, image_of, viewer, open_widget) -> CentroidEncoderWidget:
    """The widget with two images of sixty cells, side by side."""
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


@pytest.mark.slow
def test_all_layers_are_coloured_and_the_list_names_them(widget, viewer, qtbot):
    first, second = viewer.layers["A_mask"], viewer.layers["B_mask"]
    table, catalog = widget.data.images_table, widget.catalog
    assert rows(table) == [["A.tiff", "60", "A_mask", "0"], ["B.tiff", "60", "B_mask", "0"], WHOLE]
    widget.cells.color_box.choose("label")
    # The colours are removed with the layer, and come back with it.
    for layer, colored in ((second, True), (first, True), (None, False), (first, True)):
        catalog.choose_layer(layer)
        assert [is_colored(viewer, first), is_colored(viewer, second)] == [colored, colored]
    # A click on a layer opens a menu of layers.
    table.activated.emit(table.frame.index(0, 0))
    assert not table.findChildren(QMenu)
    table.activated.emit(table.frame.index(0, 2))
    (menu,) = table.findChildren(QMenu)
    assert [a.text() for a in menu.actions()] == ["in no layer", "A_mask", "B_mask"]
    menu.close()
    qtbot.waitUntil(lambda: not table.findChildren(QMenu))
    for row, layer, shown in (
        (1, "in no layer", ["A_mask", "–", "–"]),
        (1, "B_mask", ["A_mask", "B_mask", "–"]),
        (2, "A_mask", ["A_mask", "–", "–"]),
    ):
        action(table, row, layer).trigger()
        assert [row[2] for row in rows(table)] == shown
        assert is_colored(viewer, second) == ("B_mask" in shown)
    # The user chooses that there is one image, and then the column of images again.
    widget.data.image_box.setCurrentText("one image")
    assert table.isHidden()
    assert not widget.data.layer_box.isHidden()


@pytest.mark.slow
def test_zoom_goes_to_the_image_of_the_cell(widget, viewer):
    cells = widget.cells
    viewer.layers["B_mask"].visible = False
    # The second time, the image that is shown comes first.
    for rows in ([HALF + 3], [3, HALF + 3]):
        widget.select(np.array(rows))
        cells.show_button.click()
        assert viewer.scene.camera.center[2] > 190
        assert viewer.layers["B_mask"].visible
    assert not viewer.layers["A_mask"].visible
    # The widget names an image that is not open.
    viewer.layers.remove("B_mask")
    widget.catalog.refresh()
    for selected, unseen in (([HALF + 3], "In B.tiff, which is not open."), ([3, HALF + 3], "")):
        widget.select(np.array(selected))
        assert cells.unseen_text.text() == unseen
        assert cells.show_button.isVisible() == (not unseen)
    widget.catalog.choose_layer(None)
    assert cells.unseen_text.text() == "No layer shows the cells of this table."

"""Cells are selected by drawing around them in the image, with the mouse."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QApplication

SHIFT, CTRL = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.ControlModifier
NONE, LEFT = Qt.KeyboardModifier.NoModifier, Qt.MouseButton.LeftButton
Draw = Callable[..., None]


@pytest.fixture
def draw(viewer, qtbot) -> Draw:
    """Drag the mouse around a box of world coordinates along the last two axes."""
    native = viewer.window._qt_viewer.canvas.native

    def place(world: Any) -> QPoint:
        center, zoom = np.array(viewer.scene.camera.center[1:]), viewer.scene.camera.zoom
        y, x = (np.array(world) - center) * zoom / native.devicePixelRatioF()
        return QPoint(round(x), round(y)) + native.rect().center()

    def around(top: float, left: float, bottom: float, right: float, keys: Any = NONE) -> None:
        corners = [(top, left), (top, right), (bottom, right), (bottom, left), (top, left)]
        line = [x for ends in pairwise(corners) for x in np.linspace(*ends, 2)]
        qtbot.mousePress(native, LEFT, keys, place(line[0]))
        for point in line[1:]:
            qtbot.mouseMove(native, place(point))
            QApplication.processEvents()
        qtbot.mouseRelease(native, LEFT, keys, place(line[-1]))
        qtbot.wait(1)

    return around


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["labels", "points", "frames"])
def test_cells_inside_of_a_line_are_selected(
    kind, viewer, cells, image_of, draw, open_widget, qtbot
):
    labels, scale = image_of(cells), (0.5, 0.5)
    centers = np.array([np.argwhere(labels == i).mean(axis=0) for i in cells.obs["cell_id"]])
    is_first = np.ones(cells.n_obs, dtype=bool)
    if kind == "frames":
        is_first = centers[:, 0] < labels.shape[0] / 2
        first = np.isin(labels, cells.obs["cell_id"][is_first])
        labels, scale = np.stack([labels * first, labels * ~first]), (1, 0.5, 0.5)
    if kind == "points":
        features = {"cell_id": cells.obs["cell_id"].to_numpy()}
        layer = viewer.add_points(centers, features=features, size=3, scale=scale, name="cells")
    else:
        layer = viewer.add_labels(labels, scale=scale, name="cells")
    widget = open_widget()
    widget.show_table(cells, layer=layer, instance_key="cell_id")
    viewer.dims.set_point(0, 0)
    viewer.reset_view()
    viewer.scene.camera.zoom *= 0.7
    button, layers = widget.map.canvas.buttons["lasso"], list(viewer.layers)
    height, middle = labels.shape[-2] * 0.5, labels.shape[-1] * 0.25

    def left_of(x: float) -> set[int]:
        return set(np.flatnonzero(is_first & (centers[:, 1] * 0.5 < x)).tolist())

    button.click()
    for left, right, keys, expected in (
        (-2, middle, NONE, left_of(middle)),
        (-2, middle / 2, NONE, left_of(middle / 2)),
        (middle / 4, middle, SHIFT, left_of(middle)),
        (-2, middle / 2, CTRL, left_of(middle) - left_of(middle / 2)),
    ):
        draw(-2, left, height + 2, right, keys)
        assert set(np.flatnonzero(widget.session.state.selected).tolist()) == expected != set()
    # The table has no positions: points could be those of an embedding.
    assert widget.session.state.group.uses_features == (kind == "points")
    button.click()
    assert [x for x in viewer.layers if x.name != "selected cells"] == layers
    # A lasso ends with its layer, and needs a layer of cells.
    for gone in ("draw around cells", "cells"):
        button.click()
        assert button.isChecked()
        viewer.layers.remove(gone)
        qtbot.waitUntil(lambda: not button.isChecked())
    button.click()
    assert not button.isChecked()
    assert not len(viewer.layers)


@pytest.mark.slow
def test_every_cell_of_a_plane_is_selected(viewer, make_cells, draw, open_widget):
    """Spheres whose centers are in other planes, and the view of before comes back."""
    stack, n = np.zeros((30, 60, 60), dtype=np.int32), 27
    rng, at = np.random.default_rng(0), np.indices(stack.shape)
    for i, corner in enumerate(np.ndindex(3, 3, 3), start=1):
        center = np.array(corner) * (10, 20, 20) + (5 + rng.integers(-3, 4), 10, 10)
        stack[((at - center[:, None, None, None]) ** 2).sum(axis=0) <= 36] = i
    cells = make_cells(n_obs=n)
    cells.obs["cell_id"] = np.arange(1, n + 1)
    layer = viewer.add_labels(stack, name="cells")
    widget = open_widget()
    widget.show_table(cells, layer=layer, instance_key="cell_id")
    button = widget.map.canvas.buttons["lasso"]
    viewer.dims.set_point(0, 15)
    viewer.reset_view()
    viewer.scene.camera.zoom *= 0.7
    viewer.layers.selection.active = layer
    button.click()
    draw(-2, -2, 62, 35)
    selected = 1 + np.flatnonzero(widget.session.state.selected)
    seen = np.unique(stack[15])[1:]
    assert selected.tolist() == [i for i in seen if np.argwhere(stack[15] == i)[:, 1].mean() < 35]
    assert len(selected) > 5
    button.click()
    assert viewer.layers.selection.active is layer
    viewer.dims.ndisplay = 3
    for ndisplay in (2, 3):
        button.click()
        assert viewer.dims.ndisplay == ndisplay


@pytest.mark.slow
def test_no_small_cell_of_a_large_image_is_missed(viewer, make_cells, draw, open_widget, qtbot):
    image = np.zeros((4100, 4100), dtype=np.int32)
    cells = make_cells(n_obs=400)
    cells.obs["cell_id"] = np.arange(1, 401)
    corners = 205 * np.argwhere(np.ones((20, 20)))
    places = corners + np.random.default_rng(0).integers(0, 200, (400, 2))
    image[tuple(places.T)] = cells.obs["cell_id"]
    layer = viewer.add_labels(image, name="cells")
    widget = open_widget()
    widget.show_table(cells, layer=layer, instance_key="cell_id")
    qtbot.waitUntil(lambda: widget.catalog.join is not None, timeout=20_000)
    viewer.reset_view()
    viewer.scene.camera.zoom *= 0.7
    widget.map.canvas.buttons["lasso"].click()
    draw(-300, -300, 4400, 4400)
    assert widget.session.state.selected.all()

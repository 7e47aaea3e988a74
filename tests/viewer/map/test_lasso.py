"""Cells are selected by drawing around them in the image, with the mouse."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import anndata as ad
import numpy as np
import pytest
from napari import Viewer
from pytestqt.qtbot import QtBot
from qtpy.QtCore import QPoint, Qt
from qtpy.QtWidgets import QApplication

from centroid_encoder.viewer import CentroidEncoderWidget

SHIFT, CTRL = Qt.KeyboardModifier.ShiftModifier, Qt.KeyboardModifier.ControlModifier
NONE, LEFT = Qt.KeyboardModifier.NoModifier, Qt.MouseButton.LeftButton
Draw = Callable[..., None]


@pytest.fixture
def draw(viewer: Viewer, qtbot: QtBot) -> Draw:
    """Drag the mouse around a box of world coordinates along the last two axes."""
    native = viewer.window._qt_viewer.canvas.native

    def place(world: tuple[float, float]) -> QPoint:
        center, zoom = np.array(viewer.scene.camera.center[1:]), viewer.scene.camera.zoom
        y, x = (np.array(world) - center) * zoom / native.devicePixelRatioF()
        return QPoint(round(x), round(y)) + native.rect().center()

    def around(top: float, left: float, bottom: float, right: float, keys: Any = NONE) -> None:
        corners = [(top, left), (top, right), (bottom, right), (bottom, left), (top, left)]
        line = [
            tuple(np.array(a) + (np.array(b) - a) * share)
            for a, b in pairwise(corners)
            for share in np.linspace(0, 1, 4)
        ]
        qtbot.mousePress(native, LEFT, keys, place(line[0]))
        for point in line[1:]:
            qtbot.mouseMove(native, place(point))
            QApplication.processEvents()
        qtbot.mouseRelease(native, LEFT, keys, place(line[-1]))
        qtbot.wait(1)

    return around


@pytest.mark.parametrize("kind", ["labels", "points", "frames"])
def test_cells_inside_of_a_line_are_selected(
    kind: str, viewer: Viewer, cells: ad.AnnData, image_of: Any, draw: Draw,
    open_widget: Callable[[], CentroidEncoderWidget], qtbot: QtBot,
) -> None:  # fmt: skip
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

    def selected() -> set[int]:
        return set(np.flatnonzero(widget.session.selected).tolist())

    button.click()
    draw(-2, -2, height + 2, middle)
    assert selected() == left_of(middle) != set()
    assert widget.session.group.how == "lasso in the image"
    # The table has no positions: points could be those of an embedding.
    assert widget.session.group.uses_features == (kind == "points")
    draw(-2, -2, height + 2, middle / 2)
    assert selected() == left_of(middle / 2) != set()
    draw(-2, middle / 4, height + 2, middle, SHIFT)
    assert selected() == left_of(middle)
    draw(-2, -2, height + 2, middle / 2, CTRL)
    assert selected() == left_of(middle) - left_of(middle / 2)
    button.click()
    assert [x for x in viewer.layers if x.name != "selected cells"] == layers


def test_a_lasso_ends_with_its_layer(
    viewer: Viewer, cells: ad.AnnData, image_of: Any,
    open_widget: Callable[[], CentroidEncoderWidget], qtbot: QtBot,
) -> None:  # fmt: skip
    layer = viewer.add_labels(image_of(cells), name="cells")
    widget = open_widget()
    widget.show_table(cells, layer=layer, instance_key="cell_id")
    button = widget.map.canvas.buttons["lasso"]
    button.click()
    viewer.layers.remove("draw around cells")
    qtbot.wait(1)
    assert not button.isChecked()
    button.click()
    viewer.layers.remove("cells")
    qtbot.wait(1)
    assert not button.isChecked()
    # Without a layer, the lasso is only in the map.
    button.click()
    assert not button.isChecked()
    assert not len(viewer.layers)


def test_every_cell_of_a_plane_is_selected(
    viewer: Viewer, make_cells: Callable[..., ad.AnnData], draw: Draw,
    open_widget: Callable[[], CentroidEncoderWidget],
) -> None:  # fmt: skip
    """Spheres whose centers are in other planes, and the view of before comes back."""
    stack, n = np.zeros((30, 60, 60), dtype=np.int32), 0
    rng, at = np.random.default_rng(0), np.indices(stack.shape)
    for corner in np.ndindex(3, 3, 3):
        n += 1
        center = np.array(corner) * (10, 20, 20) + (5 + rng.integers(-3, 4), 10, 10)
        stack[((at - center[:, None, None, None]) ** 2).sum(axis=0) <= 36] = n
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
    selected = 1 + np.flatnonzero(widget.session.selected)
    seen = [i for i in range(1, n + 1) if (stack[15] == i).any()]
    assert selected.tolist() == [i for i in seen if np.argwhere(stack[15] == i)[:, 1].mean() < 35]
    assert len(selected) > 5
    button.click()
    assert viewer.layers.selection.active is layer
    viewer.dims.ndisplay = 3
    button.click()
    assert viewer.dims.ndisplay == 2
    button.click()
    assert viewer.dims.ndisplay == 3


def test_no_small_cell_of_a_large_image_is_missed(
    viewer: Viewer, make_cells: Callable[..., ad.AnnData], draw: Draw,
    open_widget: Callable[[], CentroidEncoderWidget], qtbot: QtBot,
) -> None:  # fmt: skip
    image = np.zeros((4100, 4100), dtype=np.int32)
    cells = make_cells(n_obs=400)
    cells.obs["cell_id"] = np.arange(1, 401)
    rng = np.random.default_rng(0)
    for i, corner in enumerate(
        rng.integers(0, 200, (400, 2)) + 205 * np.argwhere(np.ones((20, 20)))
    ):
        image[tuple(corner)] = i + 1
    layer = viewer.add_labels(image, name="cells")
    widget = open_widget()
    widget.show_table(cells, layer=layer, instance_key="cell_id")
    qtbot.waitUntil(lambda: widget.catalog.join is not None, timeout=20_000)
    viewer.reset_view()
    viewer.scene.camera.zoom *= 0.7
    widget.map.canvas.buttons["lasso"].click()
    draw(-300, -300, 4400, 4400)
    assert widget.session.selected.all()

"""The picture and the features of the selected cell: there when they help, and in nobody's way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dask.array as da
import numpy as np
import pytest
from anndata import AnnData
from napari import Viewer
from pandas.testing import assert_frame_equal
from pytestqt.qtbot import QtBot

import centroid_encoder as ce
from centroid_encoder.viewer import CentroidEncoderWidget


@pytest.fixture
def cells(make_cells: Callable[..., AnnData]) -> AnnData:
    """Cells with a map, some of them misplaced."""
    cells = make_cells(distance=1.0)
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=5, device="cpu")
    ce.tl.centroid_encoder(cells, "cell_type", model=model, progress=False)
    return cells


@pytest.fixture
def widget(
    cells: AnnData,
    viewer: Viewer,
    open_widget: Callable[[], CentroidEncoderWidget],
    image_of: Any,
) -> CentroidEncoderWidget:
    image = image_of(cells)
    options = {"colormap": "red", "contrast_limits": (0, 1), "blending": "additive"}
    viewer.add_image((image > 0).astype(np.float32), name="red", **options)
    viewer.add_labels(image, name="nuclei", metadata={"adata": cells})
    return open_widget()


def select(widget: CentroidEncoderWidget, rows: list[int], qtbot: QtBot) -> None:
    """Select cells, and wait for what there is about them."""
    widget.select(np.array(rows))
    why = widget.cells.why
    qtbot.waitUntil(lambda: why.table is not None and not why._tasks)


def test_one_cell_has_its_picture_and_the_features_of_its_classes(widget, cells, qtbot):
    why = widget.cells.why
    assert not why.isVisible()
    for row in (3, 40):
        select(widget, [row], qtbot)
        assert why.isVisible()
        assert why.height() <= 130
        expected = ce.tl.telling_features(cells, cells.obs_names[row], n_features=4)
        assert_frame_equal(why.table, expected)
        middle = why.thumbnail.pixels.shape[0] // 2
        assert (why.thumbnail.pixels[middle, middle] == (255, 0, 0)).all()
        assert all(name in why.toolTip() for name in expected.index)
    widget.select(np.array([3, 40]))
    assert not why.isVisible()


def test_the_colors_of_both_classes_are_drawn(widget, qtbot):
    select(widget, [3], qtbot)
    why = widget.cells.why
    colors = widget.session.class_colors
    image = why.grab().toImage()
    # Without the picture.
    seen = {
        image.pixelColor(x, y).name()
        for x in range(image.width() // 2, image.width())
        for y in range(image.height())
    }
    assert {colors[why.table[column].iloc[0]] for column in ("class", "other")} <= seen


def test_a_click_on_a_misplaced_cell_shows_it(widget, cells, qtbot):
    widget.show_mode(widget.misplaced)
    view, why, worst = widget.misplaced.view, widget.cells.why, ce.tl.misplaced(cells).iloc[0]

    def is_shown() -> bool:
        # The list may be filled again after the click, and a user then clicks again.
        if not why._tasks and why.table is None:
            view.clearSelection()
            view.selectRow(0)
        return why.table is not None

    qtbot.waitUntil(is_shown, timeout=20_000)
    assert tuple(why.table[["class", "other"]].iloc[0]) == (worst["label"], worst["region"])


def test_the_picture_follows_the_layers(widget, viewer, qtbot):
    select(widget, [3], qtbot)
    why = widget.cells.why
    viewer.layers["red"].colormap = "green"
    qtbot.waitUntil(lambda: why.thumbnail.pixels[..., 1].max() == 255)
    viewer.layers["red"].visible = False
    qtbot.waitUntil(lambda: why.thumbnail is None)
    assert why.isVisible()
    viewer.layers["red"].visible = True
    qtbot.waitUntil(lambda: why.thumbnail is not None)


def test_only_the_last_cell_of_a_slow_image_is_shown(widget, viewer, cells, qtbot):
    red = viewer.layers.pop("red")
    places = np.indices(red.data.shape)[1] / red.data.shape[1]
    slow = da.from_array(places, (8, 8))
    viewer.add_image(slow, name="slow", colormap="gray", contrast_limits=(0, 1))
    viewer.layers.move(1, 0)
    rows = [3, 40, 41, 77]
    for row in rows:
        widget.select(np.array([row]))
    why = widget.cells.why
    qtbot.waitUntil(lambda: why.table is not None and why.thumbnail is not None)
    expected = ce.tl.telling_features(cells, cells.obs_names[rows[-1]], n_features=4)
    assert_frame_equal(why.table, expected)
    labels = viewer.layers["nuclei"].data
    x = np.argwhere(labels == cells.obs["cell_id"].iloc[rows[-1]])[:, 1].mean()
    middle = why.thumbnail.pixels.shape[0] // 2
    assert why.thumbnail.pixels[middle, middle, 0] / 255 == pytest.approx(
        x / labels.shape[1], abs=0.02
    )


def test_a_click_raises_nothing_where_pixels_or_features_are_damaged(widget, viewer, cells, qtbot):
    damaged = []

    def pixels(block):
        if damaged:
            raise OSError("damaged")
        return block

    lazy = da.ones(viewer.layers["nuclei"].data.shape, chunks=(8, 8)).map_blocks(
        pixels, dtype=float, meta=np.empty((0, 0))
    )
    viewer.layers.remove("red")
    viewer.add_image(lazy, name="lazy", contrast_limits=(0, 1))
    why = widget.cells.why
    select(widget, [3], qtbot)
    qtbot.waitUntil(lambda: why.thumbnail is not None)
    damaged.append(True)
    select(widget, [40], qtbot)
    qtbot.waitUntil(lambda: why.thumbnail is None)
    assert why.isVisible()
    del cells.obsm["X_ce"]
    widget.session.read()
    qtbot.waitUntil(lambda: not why.isVisible())
    assert why.table is None

"""The picture and the features of the selected cell: there when they help, and in nobody's way."""

import dask.array as da
import numpy as np
import pytest
from anndata import AnnData
from pandas.testing import assert_frame_equal
from pytestqt.qtbot import QtBot

import centroid_encoder as ce
from centroid_encoder.viewer import CentroidEncoderWidget


@pytest.fixture
def cells(embed) -> AnnData:
    """Cells with a map, some of them misplaced."""
    return embed()


@pytest.fixture
def widget(cells, viewer, open_on) -> CentroidEncoderWidget:
    widget = open_on(cells)
    options = {"colormap": "red", "contrast_limits": (0, 1), "blending": "additive"}
    viewer.add_image((viewer.layers["nuclei"].data > 0).astype(float), name="red", **options)
    viewer.layers.move(viewer.layers.index("red"), 0)
    return widget


def select(widget: CentroidEncoderWidget, rows: list[int], qtbot: QtBot) -> None:
    """Select cells, and wait for what there is about them."""
    widget.select(np.array(rows))
    why = widget.cells.why
    qtbot.waitUntil(lambda: why.table is not None and not why.is_due)


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_click_raises_nothing_where_pixels_or_features_are_damaged(widget, viewer, cells, qtbot):
    damaged, shape = [], viewer.layers["nuclei"].data.shape

    def pixels(block):
        if damaged:
            raise OSError("damaged")
        return block

    ones = da.ones(shape, chunks=(8, 8))
    lazy = ones.map_blocks(pixels, dtype=float, meta=np.empty((0, 0)))
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

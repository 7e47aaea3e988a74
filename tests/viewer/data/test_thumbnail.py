"""Pictures of single cells: known pixels in the middle, whatever the layers and their places."""

from typing import Any

import anndata as ad
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from napari.components import ViewerModel
from napari.layers import Layer
from numpy.testing import assert_allclose, assert_array_equal

from centroid_encoder.viewer.data.ids import read_ids
from centroid_encoder.viewer.data.join import Join, Link
from centroid_encoder.viewer.data.tables import Table
from centroid_encoder.viewer.data.thumbnail import Thumbnail, make_thumbnail

RED, GREEN = (255, 0, 0), (0, 255, 0)
PLACE = {"scale": (0.5, 2.0), "rotate": 30, "translate": (100, -40)}


def join(layer: Layer, ids: list[int]) -> Join:
    adata = ad.AnnData(obs=pd.DataFrame({"cell_id": ids}, index=[f"c{i}" for i in ids]))
    return Link(Table(adata, "cells"), None, layer, "cell_id").make(read_ids(layer))


def picture(viewer: ViewerModel, layer: Any, row: int = 0, ids: tuple[int, ...] = (7,)) -> Any:
    layers = list(viewer.layers)
    shown = [layer for layer in layers if layer.visible]
    return make_thumbnail(shown, viewer.dims.point, layer, join(layer, list(ids)), row, side=60)


def assert_is_cell(found: Thumbnail | None, color: tuple[int, int, int]) -> None:
    """The cell fills a third of the side, in its colour; all around it is black."""
    colored = (found.pixels == color).all(axis=-1)
    assert colored[24:36, 24:36].all()
    assert not found.pixels[~colored].any()
    assert_allclose(np.ptp(found.outline, axis=0).max(), 1 / 3)
    assert_allclose((found.outline.min(axis=0) + found.outline.max(axis=0)) / 2, 0.5)
    assert not colored[:19].any()
    assert not colored[:, :19].any()


@pytest.fixture
def square() -> Any:
    """A label of 10 x 10 pixels in a large image."""
    image = np.zeros((400, 500), dtype=np.int32)
    image[200:210, 300:310] = 7
    return image


@pytest.mark.parametrize("place", [{}, PLACE], ids=["plain", "moved"])
@pytest.mark.parametrize("storage", ["memory", "dask", "multiscale"])
def test_a_label_in_the_colors_of_the_layers(square, place, storage):
    viewer = ViewerModel()
    image = square * 100
    if storage == "dask":
        image = da.from_array(image, (64, 64))
    if storage == "multiscale":
        image = [image, image[::2, ::2], image[::4, ::4]]
    options = {"blending": "additive", "contrast_limits": (0, 700), **place}
    viewer.add_image(image, colormap="red", **options)
    viewer.add_image(square, colormap="green", visible=False, **options)
    labels = viewer.add_labels(square, **place)
    found = picture(viewer, labels)
    if place:
        # The world axes differ from those of the pixels: a turned rectangle, as in the viewer.
        assert (found.pixels[30, 30] == RED).all()
        assert_allclose(np.ptp(found.outline, axis=0).max(), 1 / 3)
        assert found.pixels[..., 1:].max() == 0
    else:
        assert_is_cell(found, RED)


def test_contrast_limits_opacity_and_the_order_of_blending_count(square):
    viewer = ViewerModel()
    half = {"contrast_limits": (0, 14), "blending": "additive"}
    viewer.add_image(square, colormap="red", **half)
    green = viewer.add_image(square, colormap="green", opacity=0.5, **half)
    labels = viewer.add_labels(square)
    assert_allclose(picture(viewer, labels).pixels[30, 30], (128, 64, 0), atol=1)
    green.blending = "translucent"
    assert_allclose(picture(viewer, labels).pixels[30, 30], (64, 64, 0), atol=1)
    # A picture in its own colours lies above all, with black beyond its edge.
    rgb = np.stack([square * 0, square * 20, square * 0], axis=-1).astype(np.uint8)
    viewer.add_image(rgb, rgb=True)
    assert_array_equal(picture(viewer, labels).pixels[30, 30], (0, 140, 0))
    corner = picture(viewer, viewer.add_labels(np.roll(square, (-200, -300), axis=(0, 1))))
    assert not corner.pixels[:19].any()
    assert not corner.pixels[:, :19].any()


def test_the_plane_of_the_cell_is_drawn():
    viewer = ViewerModel()
    labels = np.zeros((9, 80, 80), dtype=np.int32)
    labels[3:6, 30:40, 30:40] = 7
    image = np.zeros(labels.shape)
    image[4] = labels[4] / 7
    image[0] = 1
    viewer.add_image(image, colormap="red", contrast_limits=(0, 1), scale=(3, 1, 1))
    layer = viewer.add_labels(labels, scale=(3, 1, 1))
    assert_is_cell(picture(viewer, layer), RED)
    # An axis that the cells lack: the plane that is shown.
    flat = ViewerModel()
    flat.add_image(image, colormap="red", contrast_limits=(0, 1))
    layer = flat.add_labels(labels[4])
    flat.dims.set_point(0, 4)
    assert_is_cell(picture(flat, layer), RED)
    flat.dims.set_point(0, 5)
    assert not picture(flat, layer).pixels.any()


def test_points_and_shapes_have_their_own_outlines(square):
    viewer = ViewerModel()
    viewer.add_image(square, colormap="red", contrast_limits=(0, 7))
    at = np.array([[10, 10], [204.5, 304.5]])
    features = pd.DataFrame({"cell_id": [3, 7]})
    points = viewer.add_points(at, size=10, features=features)
    found = picture(viewer, points, row=1, ids=(3, 7))
    assert_is_cell(found, RED)
    assert_allclose(np.linalg.norm(found.outline - 0.5, axis=1), 1 / 6)
    corners = at[1] + 5 * np.array([[-1, -1], [-1, 1], [1, 1], [1, -1]])
    shapes = viewer.add_shapes(
        [corners, corners], shape_type=["rectangle", "ellipse"], features=features
    )
    assert_is_cell(picture(viewer, shapes, row=0, ids=(3, 7)), RED)
    round_ = picture(viewer, shapes, row=1, ids=(3, 7)).outline
    assert_allclose(np.linalg.norm(round_ - 0.5, axis=1), 1 / 6)


def test_there_is_no_picture_without_an_image_or_the_cell(square):
    viewer = ViewerModel()
    labels = viewer.add_labels(square)
    assert picture(viewer, labels) is None
    viewer.add_image(square, translate=(1000, 0))
    assert picture(viewer, labels) is None
    viewer.add_image(square)
    joined = join(labels, [7])
    labels.data = np.zeros_like(square)
    assert make_thumbnail(list(viewer.layers), viewer.dims.point, labels, joined, 0) is None

"""Regions as they are drawn by `pl.voronoi` and by the widget."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import centroid_encoder as ce
from centroid_encoder.pl._regions import (
    add_image,
    class_regions,
    paint_image,
    panel_limits,
    plane_centers,
    plane_points,
)
from centroid_encoder.tl._result import read_result

LIMITS = np.array([[0.0, 0], [10, 10]])


def test_an_image_has_the_colours_of_the_classes_with_gaps_between():
    owners = np.zeros((40, 40), dtype=int)
    owners[:, 20:] = 1
    figure = plt.figure(figsize=(1, 1), dpi=100)
    ax = figure.add_axes((0, 0, 1, 1), xlim=(0, 10), ylim=(0, 10))
    ax.set_axis_off()
    paint_image(add_image(ax), owners, LIMITS, ["red", "blue"], 1.0)
    figure.canvas.draw()
    left, border, right = np.asarray(figure.canvas.buffer_rgba())[50, [20, 51, 80], :3].tolist()
    assert (left, right) == ([255, 0, 0], [0, 0, 255])
    assert min(border) > 150


class TestRegions:
    @pytest.mark.parametrize("n_components", [1, 2])
    def test_of_centers_are_drawn_as_patches(self, embed, n_components):
        adata = embed(4, n_components=n_components)
        result = read_result(adata, "ce")
        # The limits hold the centers too, which may lie beyond all cells.
        points = [plane_points(result.embedding), plane_centers(result.centers)]
        limits = panel_limits(np.vstack(points), equal=n_components > 1)
        shapes = class_regions(adata, result, "voronoi", limits)
        for ax in ce.pl.voronoi(adata, regions="voronoi", show=False):
            assert_allclose(np.transpose([ax.get_xlim(), ax.get_ylim()]), limits)
            drawn = [patch.get_path() for patch in ax.patches if patch.get_facecolor()[3] > 0]
            for path, shape in zip(drawn, shapes, strict=True):
                assert_array_equal(path.vertices[:-1], shape)

    @pytest.mark.parametrize("n_components", [1, 2])
    def test_of_a_decoder_are_an_image_of_its_decisions(self, embed, n_components):
        adata = embed(4, n_components=n_components, placement="bottleneck")
        result, model = read_result(adata, "ce"), ce.tl.fitted_model(adata)
        limits = panel_limits(plane_points(result.embedding), equal=n_components > 1)
        image = class_regions(adata, result, "decoder", limits)
        n = len(image)
        row, column = np.random.default_rng(0).integers(n, size=(2, 200))
        at = limits[0] + (np.column_stack([column, row]) + 0.5) / n * (limits[1] - limits[0])
        decided = model.decoder_distances(at[:, :n_components].astype(np.float32)).argmin(axis=1)
        assert (image[row, column] == decided).mean() > 0.99
        ax, _ = ce.pl.voronoi(adata, regions="decoder", show=False)
        assert not ax.patches
        assert [shown.get_visible() for shown in ax.images] == [True]

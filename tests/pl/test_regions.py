"""Regions ready to be drawn, here and in napari: one set of polygons for both."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.patches import PathPatch
from numpy.testing import assert_allclose, assert_array_equal

import centroid_encoder as ce
from centroid_encoder.pl._regions import (
    panel_limits,
    plane_centers,
    plane_points,
    region_outlines,
    region_path,
)
from centroid_encoder.tl._stored import read_result

SQUARE = np.array([[0.0, 0], [4, 0], [4, 4], [0, 4]])
HOLE = np.array([[1.0, 1], [1, 3], [3, 3], [3, 1]])
LIMITS = np.array([[0.0, 0], [10, 10]])


class TestPaths:
    def test_leave_holes_open(self):
        path = region_path([SQUARE, HOLE, SQUARE + np.array([6, 0])])
        figure = plt.figure(figsize=(1, 1), dpi=100)
        ax = figure.add_axes((0, 0, 1, 1), xlim=(0, 10), ylim=(0, 10))
        ax.set_axis_off()
        ax.add_patch(PathPatch(path, facecolor="black", linewidth=0))
        figure.canvas.draw()
        shade = np.asarray(figure.canvas.buffer_rgba())[::-1, :, 0]
        # On the rim, in the hole, between the two parts, on the other part.
        assert shade[20, [5, 20, 50, 80]].tolist() == [0, 255, 255, 0]

    def test_are_closed(self):
        path = region_path([SQUARE])
        assert_array_equal(path.vertices[0], path.vertices[4])
        assert path.codes[4] == path.CLOSEPOLY

    def test_of_a_class_that_owns_nothing_are_none(self):
        assert region_path([]) is None


class TestLimits:
    def test_are_equally_long_unless_asked_otherwise(self):
        points = np.array([[0.0, 0], [10, 2], [np.nan, np.nan]])
        assert_allclose(panel_limits(points), [[-0.5, -4.5], [10.5, 6.5]])
        assert_allclose(panel_limits(points, equal=False), [[-0.5, -0.1], [10.5, 2.1]])

    def test_of_three_components_hold_all_of_them(self):
        points = np.random.default_rng(0).normal(size=(50, 3)) * [1, 2, 3]
        low, high = panel_limits(points)
        assert ((low < points) & (points < high)).all()
        assert_allclose(high - low, (high - low)[0])

    def test_of_one_component_are_those_of_its_spread_points(self):
        embedding = np.linspace(0, 100, 30)[:, None]
        points = plane_points(embedding)
        assert_array_equal(points[:, :1], embedding)
        assert_array_equal(plane_points(embedding), points, "the spread must not flicker")
        low, high = panel_limits(points, equal=False)
        assert (-1.2 < low[1] < plane_centers(embedding)[:, 1]).all()
        assert ((plane_centers(embedding)[:, 1] == 0) & (high[1] < 1.2)).all()


class TestOutlines:
    @pytest.mark.parametrize("regions", ["voronoi", "decoder"])
    @pytest.mark.parametrize("n_components", [1, 2])
    def test_are_what_the_figure_shows(self, embed, regions, n_components):
        adata = embed(4, n_components=n_components)
        result = read_result(adata, "ce")
        # Centers included: they may lie beyond all cells.
        points = [plane_points(result.embedding), plane_centers(result.centers)]
        limits = panel_limits(np.vstack(points), equal=n_components > 1)
        outlines = region_outlines(adata, result, regions, limits)
        assert len(outlines) == 4
        axes = ce.pl.voronoi(adata, regions=regions, show=False)
        for ax in axes:
            assert_allclose(np.transpose([ax.get_xlim(), ax.get_ylim()]), limits)
            drawn = [patch.get_path() for patch in ax.patches if patch.get_facecolor()[3] > 0]
            paths = [region_path(outline) for outline in outlines if outline]
            assert len(drawn) == len(paths) > 1
            for path, other in zip(drawn, paths, strict=True):
                assert_array_equal(path.vertices, other.vertices)
                assert_array_equal(path.codes, other.codes)

    def test_are_none_where_none_can_be_drawn_or_are_asked_for(self, embed):
        adata = embed()
        result = read_result(adata, "ce")
        assert region_outlines(adata, result, None, LIMITS) == []
        adata = embed(n_components=3)
        result = read_result(adata, "ce")
        for regions in ("voronoi", "decoder"):
            assert region_outlines(adata, result, regions, panel_limits(result.embedding)) == []

"""Regions of the classes, as in `pl.voronoi` and the widget."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.patches import PathPatch
from numpy.testing import assert_allclose, assert_array_equal

import centroid_encoder as ce
from centroid_encoder.pl._regions import (
    class_regions,
    image_regions,
    panel_limits,
    plane_centers,
    plane_points,
)
from centroid_encoder.tl._result import read_result


def test_outlines_enclose_the_pixels_of_a_class_but_not_its_holes():
    image = np.zeros((40, 40), dtype=int)
    image[:, 20:] = 1
    image[5:15, 5:15] = 2
    limits = np.array([[0.0, 5], [10, 10]])
    paths = image_regions(image, 4, limits)
    assert len(paths[3]) == 0
    figure = plt.figure(figsize=(1, 1), dpi=40)
    figure.add_axes((0, 0, 1, 1), xlim=limits[:, 0], ylim=limits[:, 1]).set_axis_off()
    colors = np.eye(3)
    for path, color in zip(paths, colors, strict=False):
        figure.axes[0].add_patch(PathPatch(path, color=color, linewidth=0))
    figure.canvas.draw()
    drawn = np.asarray(figure.canvas.buffer_rgba())[::-1, :, :3] / 255
    assert (np.abs(drawn - colors[image]).max(axis=2) < 0.1).mean() > 0.9


@pytest.mark.parametrize("n_components", [1, 2])
def test_regions_of_centers_are_drawn_as_patches(embed, n_components):
    adata = embed(4, n_components=n_components)
    result = read_result(adata, "ce")
    # The limits include the centers, which may lie outside of all cells.
    points = [plane_points(result.embedding), plane_centers(result.centers)]
    limits = panel_limits(np.vstack(points), equal=n_components > 1)
    shapes = class_regions(adata, result, "voronoi", limits)
    for ax in ce.pl.voronoi(adata, regions="voronoi", show=False):
        assert_allclose(np.transpose([ax.get_xlim(), ax.get_ylim()]), limits)
        drawn = [patch.get_path() for patch in ax.patches if patch.get_facecolor()[3] > 0]
        for path, shape in zip(drawn, shapes, strict=True):
            assert_array_equal(path.vertices, shape.vertices)


@pytest.mark.parametrize("n_components", [1, 2])
def test_regions_of_a_decoder_are_its_decisions(embed, n_components):
    adata = embed(4, n_components=n_components, placement="bottleneck")
    model = ce.tl.fitted_model(adata)
    ax, _ = ce.pl.voronoi(adata, regions="decoder", show=False)
    limits = np.transpose([ax.get_xlim(), ax.get_ylim()])
    places = np.random.default_rng(0).uniform(*limits, (500, 2)).astype(np.float32)
    decided = model.decoder_distances(places[:, :n_components]).argmin(axis=1)
    found = np.full(500, -1)
    classes = [code for code in range(4) if (decided == code).any()]
    for code, patch in zip(classes, ax.patches, strict=False):
        found[patch.get_path().contains_points(places)] = code
    assert (found == decided).mean() > 0.98


def test_regions_have_the_limits_of_a_panel_of_ingested_cells(embed):
    reference = embed(4)
    query = reference[reference.obs["cell_type"] == "type 1"].copy()
    query.uns.clear()
    ce.tl.ingest(query, reference, progress=False)
    panel, regions = ce.pl.voronoi(query, show=False), ce.pl.regions(query)
    assert (regions.get_xlim(), regions.get_ylim()) == (panel.get_xlim(), panel.get_ylim())

"""The figure of the paper: cells, regions, titles and legends are those of the result."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.patches import PathPatch
from numpy.testing import assert_allclose
from scipy.spatial.distance import cdist

import centroid_encoder as ce


def draw(adata: Any, **kwargs: Any) -> list[Axes]:
    return list(np.ravel(ce.pl.voronoi(adata, show=False, **kwargs)))


def points(ax: Axes, color: str | None = None, edge: float = 0) -> np.ndarray:
    """Cells that are drawn in a panel, with one colour or with any."""
    lines = [line for line in ax.lines if line.get_marker() == "o"]
    coordinates = [
        np.column_stack(line.get_data())
        for line in lines
        if line.get_markeredgewidth() == edge and color in (None, to_hex(line.get_color()))
    ]
    return np.concatenate([np.empty((0, 2)), *coordinates])


def fills(ax: Axes) -> list[PathPatch]:
    return [patch for patch in ax.patches if patch.get_facecolor()[3] > 0]


def entries(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def as_set(array: np.ndarray) -> set[tuple[float, ...]]:
    return set(map(tuple, np.asarray(array).tolist()))


def test_titles_have_the_stored_error(embed):
    adata = embed()
    quality = adata.uns["ce"]["quality"]["test"]
    quality |= {"voronoi_error": 0.7, "largest_class_error": 0.6667}
    text = "\nno better than naming the largest class (66.7 %)"
    for quality["no_better_than_largest_class"], chance in ((False, ""), (True, text)):
        training, held_out = draw(adata)
        assert training.get_title() == "training cells (n = 96)"
        assert (
            held_out.get_title()
            == f"held-out Voronoi error 70.0 % (n = 24, too few to tell){chance}"
        )


def test_panels_show_each_cell_in_the_colour_of_its_class(embed):
    adata = embed(unlabeled=10)
    names, colors = ["type 0", "type 1", "type 2"], ["#ff0000", "#00ff00", "#0000ff"]
    for split, ax in zip(["train", "test"], draw(adata, palette=colors), strict=True):
        for name, color in zip(names, colors, strict=True):
            own = (adata.obs["ce_split"] == split) & (adata.obs["cell_type"] == name)
            assert as_set(points(ax, color)) == as_set(adata.obsm["X_ce"][own])
        # Unlabeled cells are in both panels, behind the others.
        assert as_set(points(ax, "#d3d3d3")) == as_set(adata.obsm["X_ce"][:10])
        order = {to_hex(line.get_color()): line.get_zorder() for line in ax.lines}
        assert all(order["#d3d3d3"] < order[color] for color in colors)


@pytest.mark.parametrize("n_components", [1, 2])
def test_misplaced_cells_are_those_nearer_to_another_center(embed, n_components):
    adata = embed(n_components=n_components, unlabeled=20, distance=0.5)
    embedding, centers = adata.obsm["X_ce"], adata.uns["ce"]["centers"]
    nearest = adata.uns["ce"]["classes"][cdist(embedding, centers).argmin(axis=1)]
    for split, ax in zip(["train", "test"], draw(adata, mark_misplaced=True), strict=True):
        wrong = (adata.obs["ce_split"] == split) & (nearest != adata.obs["cell_type"])
        assert wrong.any()
        circles = points(ax, edge=0.8)
        assert as_set(circles[:, :n_components]) == as_set(embedding[wrong])
        # The circle is at the place of the drawn cell, jitter included.
        assert as_set(circles) <= as_set(points(ax))
    assert entries(ax)[-1] == "misplaced"


def test_the_legend_is_beside_the_last_panel_in_category_order(embed):
    names = ["zeta", "alpha", "mu"]
    adata = embed(names=names, unlabeled=5)
    first, last = draw(adata)
    assert first.get_legend() is None
    assert entries(last) == [*names, "unlabeled"]
    assert last.get_legend().get_title().get_text() == "cell_type"
    colors = [to_hex(handle.get_color()) for handle in last.get_legend().legend_handles]
    regions = fills(ce.pl.regions(adata, regions="voronoi"))
    assert colors == [*(to_hex(patch.get_facecolor()) for patch in regions), "#d3d3d3"]


@pytest.mark.parametrize(
    ("names", "font_size"),
    [(["_hidden", "$no_maths$", "a" * 40], 14), ([f"type {i}" for i in range(60)], 10)],
    ids=["odd names", "60 classes"],
)
def test_the_legend_is_in_the_figure_and_covers_nothing(embed, names, font_size):
    with plt.rc_context({"font.size": font_size}):
        axes = draw(embed(len(names), n_obs=4 * len(names), names=names, test_size=0.25))
        figure = axes[0].figure
        figure.canvas.draw()
    legend = axes[-1].get_legend()
    whole, box = figure.bbox, legend.get_window_extent()
    assert axes[-1].get_window_extent().x1 < box.x0 < box.x1 < whole.x1
    assert whole.y0 < box.y0 < box.y1 < whole.y1
    for ax in axes:
        assert ax.title.get_window_extent().y1 < whole.y1
        assert ax.yaxis.label.get_window_extent().x0 > 0
        assert ax.xaxis.label.get_window_extent().y0 > 0
    assert_allclose(axes[0].get_window_extent().size, axes[1].get_window_extent().size)
    assert [name.replace("\n", " ") for name in entries(axes[-1])] == names


def test_one_component_is_drawn_with_a_random_height_over_bands(embed):
    adata = embed(n_components=1, unlabeled=5)
    for split, ax in zip(["train", "test"], draw(adata), strict=True):
        shown = adata.obs["ce_split"].isin([split, "unlabeled"])
        drawn = points(ax)
        assert as_set(drawn[:, :1]) == as_set(adata.obsm["X_ce"][shown])
        assert np.ptp(drawn[:, 1]) > 1
        for patch in fills(ax):
            inside = patch.get_path().vertices[:, 0]
            inside = inside[(inside > ax.get_xlim()[0]) & (inside < ax.get_xlim()[1])]
            assert len(np.unique(inside.round(6))) in (1, 2), "bands are upright"
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("CE1", "")


def test_a_map_that_cannot_be_drawn_is_an_error(embed):
    with pytest.raises(ValueError, match="two components, not 3"):
        draw(embed(n_components=3))
    adata = embed(unlabeled=3)
    adata = adata[adata.obs["ce_split"] == "unlabeled"]
    with pytest.raises(ValueError, match="no cell is in the split test"):
        draw(adata, split="test")
    with pytest.raises(ValueError, match="nothing to draw"):
        draw(adata)


def test_a_selection_of_cells_keeps_regions_and_colours(embed):
    adata = embed(4)
    whole = draw(adata, regions="voronoi")[1]
    # AnnData drops unused categories.
    selection = adata[adata.obs["cell_type"] == "type 2"]
    color = adata.uns["cell_type_colors"][2]
    for part in (selection, selection.copy()):
        training, held_out = draw(part, regions="voronoi")
        assert training.get_title() == "training cells (of all 96 cells, 24 shown)"
        assert [fill.get_facecolor() for fill in fills(held_out)] == [
            fill.get_facecolor() for fill in fills(whole)
        ]
        assert as_set(points(held_out)) == as_set(points(whole, color))
    assert selection.is_view

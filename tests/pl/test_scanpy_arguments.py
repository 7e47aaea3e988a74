"""Arguments that `pl.voronoi` shares with `scanpy.pl.embedding` do here what they do there."""

from __future__ import annotations

from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from numpy.testing import assert_allclose

import centroid_encoder as ce


@pytest.fixture
def adata(embed: Any) -> ad.AnnData:
    adata: ad.AnnData = embed()
    rng = np.random.default_rng(0)
    adata.obs["size"] = rng.normal(size=adata.n_obs)
    adata.obs["donor"] = pd.Categorical(rng.choice(["d1", "d2", "d3"], adata.n_obs))
    adata.uns["donor_colors"] = ["#111111", "#222222", "#333333"]
    adata.var["symbol"] = [f"SYMBOL{i}" for i in range(adata.n_vars)]
    adata.layers["counts"] = 2 * adata.X
    return adata


def both(adata: ad.AnnData, **kwargs: Any) -> tuple[Any, Any]:
    """Return the same figure by this package and by scanpy."""
    return (
        ce.pl.voronoi(adata, split="all", show=False, **kwargs),
        sc.pl.embedding(adata, "ce", show=False, **kwargs),
    )


def by_color(ax: Any) -> dict[str, set[tuple[float, ...]]]:
    """Places of the points of each colour."""
    found: dict[str, set[tuple[float, ...]]] = {}
    for line in ax.lines:
        places = set(map(tuple, np.column_stack(line.get_data()).astype(np.float32).tolist()))
        filled = line.get_markeredgewidth() == 0
        color = line.get_color() if filled else line.get_markeredgecolor()
        found.setdefault(to_hex(color), set()).update(places)
    for drawn in ax.collections:
        colors = np.broadcast_to(drawn.get_facecolors(), (len(drawn.get_offsets()), 4))
        for color, place in zip(colors, drawn.get_offsets().astype(np.float32), strict=True):
            found.setdefault(to_hex(color), set()).add(tuple(place.tolist()))
    return {color: places for color, places in found.items() if places}


@pytest.mark.parametrize(
    "ends",
    [
        {"vmin": 0.5},
        {"vmax": "p90"},
        {"vmin": "p5", "vmax": "p99.5"},
        {"vcenter": 0},
        {"vmin": -3, "vcenter": -1, "vmax": 4},
        {"vmax": lambda values: np.mean(values) + 1},
    ],
)
def test_ends_of_the_scale(adata: ad.AnnData, ends: dict[str, Any]) -> None:
    ours, theirs = both(adata, color="size", **ends)
    (own,), (other,) = ours.collections, theirs.collections
    assert type(own.norm) is type(other.norm)
    values = np.linspace(-3, 3, 20)
    assert_allclose(own.norm(values), other.norm(values), rtol=1e-6)


@pytest.mark.parametrize("variable", [{}, {"layer": "counts"}, {"use_raw": False}])
def test_variables_by_symbol(adata: ad.AnnData, variable: dict[str, Any]) -> None:
    raw = adata.copy()
    raw.X = 5 * raw.X
    adata.raw = raw
    ours, theirs = both(adata, color="SYMBOL2", gene_symbols="symbol", **variable)
    (own,), (other,) = ours.collections, theirs.collections
    assert_allclose(np.sort(own.get_array()), np.sort(other.get_array()), rtol=1e-6)


@pytest.mark.parametrize("groups", ["d2", ["d3", "d1"]])
def test_groups_and_the_colour_of_other_cells(adata: ad.AnnData, groups: Any) -> None:
    ours, theirs = both(adata, color="donor", groups=groups, na_color="#abcdef")
    assert by_color(ours) == by_color(theirs)


def test_a_list_is_a_grid(adata: ad.AnnData) -> None:
    colors = ["cell_type", "size", "gene1", "donor", "gene2"]
    ours, theirs = both(adata, color=colors, ncols=2, vmax=[1, 2, 3, 4, 5])
    ours[0].figure.canvas.draw()
    for axes in (ours, theirs):
        assert [ax.get_title() for ax in axes] == colors
        grid = [ax.get_subplotspec().get_geometry()[:2] for ax in axes]
        assert set(grid) == {(3, 2)}
    for one, other in zip(ours, theirs, strict=True):
        assert len(one.collections) == (one.get_title() in ("size", "gene1", "gene2"))
        if one.collections:
            assert one.collections[0].norm.vmax == other.collections[0].norm.vmax
    marked = ce.pl.voronoi(adata, color=colors, ncols=2, mark_misplaced=True, show=False)
    for axes in (ours, marked):
        boxes = [ax.get_tightbbox() for ax in axes]
        for i, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[i + 1 :])


def test_the_frame_the_title_and_the_legend(adata: ad.AnnData) -> None:
    look = {"legend_loc": "upper left", "legend_fontsize": 5, "frameon": False, "title": "Blood"}
    ours, theirs = both(adata, color="donor", **look)
    for ax in (ours, theirs):
        assert ax.get_title() == "Blood"
        assert not ax.axison
    # scanpy before 1.11 draws no legend at such a place.
    legends = [ax.get_legend() for ax in (ours, theirs) if ax.get_legend() is not None]
    assert ours.get_legend() in legends
    for legend in legends:
        # Only this package draws held-out cells as rings.
        found = [text.get_text() for text in legend.get_texts()]
        assert found == ["d1", "d2", "d3", *["held out"] * (legend.axes is ours)]
        assert {text.get_fontsize() for text in legend.get_texts()} == {5}
        assert legend._loc == 2
    for ax in both(adata, color="donor", legend_loc="none"):
        assert ax.get_legend() is None


def test_names_on_the_data(adata: ad.AnnData) -> None:
    look = {"legend_loc": "on data", "legend_fontsize": 6, "legend_fontoutline": 1}
    ours, theirs = both(adata, color="donor", **look)
    for ax in (ours, theirs):
        assert {text.get_text() for text in ax.texts} == {"d1", "d2", "d3"}
        assert {text.get_fontsize() for text in ax.texts} == {6}
        assert {len(text.get_path_effects()) for text in ax.texts} <= {1, 2}


def test_the_figure_is_returned(adata: ad.AnnData) -> None:
    figure = ce.pl.voronoi(adata, color=["size", "donor"], return_fig=True)
    assert isinstance(figure, Figure)
    assert [ax.get_title() for ax in figure.axes] == ["size", "donor"]


def test_regions_lie_beneath_points_of_scanpy(adata: ad.AnnData) -> None:
    ax = ce.pl.regions(adata)
    limits = ax.get_xlim(), ax.get_ylim()
    sc.pl.embedding(adata, "ce", color="cell_type", ax=ax, show=False)
    assert (ax.get_xlim(), ax.get_ylim()) == limits
    (image,) = ax.images
    assert image.get_zorder() < min(drawn.get_zorder() for drawn in ax.collections)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"groups": "type 9"}, ValueError, "has no category 'type 9'"),
        ({"color": "size", "groups": "d1"}, ValueError, "holds numbers"),
        ({"color": "size", "vmin": 3, "vmax": 1}, ValueError, "must rise"),
        ({"color": "size", "vmin": "95%"}, ValueError, "'p99'"),
        ({"color": ["size", "donor"], "vmin": [1]}, ValueError, "each of the 2 entries"),
        ({"color": "A", "gene_symbols": "symbols"}, KeyError, "symbol"),
        ({"color": []}, ValueError, "no entry"),
        ({"color": "donr"}, KeyError, "neither obs nor var_names has 'donr'; did you mean 'donor'"),
        ({"color": "gene33"}, KeyError, "has 'gene33'; did you mean 'gene3'"),
        ({"color": "gene3", "layer": "count"}, KeyError, "no 'count'; did you mean 'counts'"),
        ({"color": "gene3", "use_raw": True}, ValueError, "use_raw=True needs adata.raw"),
        ({"cmap": "virids"}, ValueError, "no matplotlib colour map"),
        ({"legend_loc": "left margin"}, ValueError, "right margin"),
        ({"gene_symbols": "symbol"}, ValueError, "no effect"),
        ({"title": ["a"]}, ValueError, "one entry for each of the 2 panels"),
        ({"regions": "cells"}, ValueError, "regions must be"),
        ({"split": "val"}, ValueError, "split must be"),
        ({"palette": ["red"]}, ValueError, "1 colours for 3 classes"),
        ({"key": "second"}, KeyError, "no result 'second'"),
        ({"ax": [None]}, ValueError, "hold 2 axes.* got 1.* split"),
    ],
)
def test_wrong_arguments_change_nothing_and_leave_no_figure(
    adata: ad.AnnData,
    unchanged: Any,
    wrong: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    with unchanged(adata), pytest.raises(error, match=message):
        ce.pl.voronoi(adata, show=False, **wrong)
    assert not plt.get_fignums()


def test_contours_hold_their_shares_of_the_cells(embed: Any) -> None:
    from matplotlib.path import Path

    adata = embed(2, n_obs=4_000)
    ax = ce.pl.voronoi(adata, split="all", contours=True, show=False)
    assert len(ax.collections) == 2
    for drawn, name in zip(ax.collections, ["type 0", "type 1"], strict=True):
        own = adata.obsm["X_ce"][adata.obs["cell_type"] == name]
        shares = [
            np.mean(sum(Path(ring).contains_points(own) for ring in path.to_polygons()) % 2)
            for path in drawn.get_paths()
        ]
        assert_allclose(sorted(shares), [0.5, 0.9], atol=0.04)


def test_a_palette_colours_the_column_that_is_drawn(adata: ad.AnnData) -> None:
    before = list(adata.uns["cell_type_colors"]) if "cell_type_colors" in adata.uns else None
    ours, theirs = both(adata, color="donor", palette=["#aa0000", "#00aa00", "#0000aa"])
    assert by_color(ours) == by_color(theirs)
    found = list(adata.uns["cell_type_colors"])
    assert before in (None, found)
    assert not {*found} & {"#aa0000", "#00aa00", "#0000aa"}
    ax = ce.pl.voronoi(adata, color="ce_label", split="all", show=False)
    assert {*by_color(ax)} == {*found}, "predicted classes have the colours of the classes"


def test_long_names_on_the_data_do_not_overlap(embed: Any) -> None:
    """Up to 25 are moved apart. More are left out where there is no room."""
    for n, least in ((20, 18), (40, 15)):
        names = [f"CD4+/CD45RA+/CD25- T cell {i}" for i in range(n)]
        adata = embed(n, n_obs=10 * n, names=names)
        ax = ce.pl.voronoi(adata, split="train", legend_loc="on data", show=False)
        ax.figure.canvas.draw()
        boxes = [text.get_window_extent() for text in ax.texts]
        assert len(boxes) >= least
        for i, box in enumerate(boxes):
            assert ax.bbox.x0 <= box.x0 + 1
            assert box.x1 <= ax.bbox.x1 + 1
            assert not any(box.shrunk(0.99, 0.99).overlaps(other) for other in boxes[:i])


def test_a_legend_never_lies_on_the_next_axes_nor_on_a_whole_panel(embed: Any) -> None:
    """That of circles and rings is in the panel with names on the data; a long one is beside it."""
    adata = embed()
    figure, (ax, other) = plt.subplots(1, 2)
    look = {"split": "all", "legend_loc": "on data", "mark_misplaced": True}
    ce.pl.voronoi(adata, ax=ax, show=False, **look)
    figure.canvas.draw()
    legend = ax.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["held out", "misplaced"]
    assert not legend.get_window_extent().overlaps(other.get_window_extent())
    assert ax.bbox.x0 < legend.get_window_extent().x0
    for n, is_inside in ((3, True), (20, False)):
        drawn = ce.pl.voronoi(embed(n, n_obs=10 * n), legend_loc="upper left", show=False)[-1]
        drawn.figure.canvas.draw()
        assert (drawn.get_legend().get_window_extent().x0 < drawn.bbox.x1) == is_inside

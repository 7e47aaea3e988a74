"""The paper's figure: that it shows what was computed, says so in words, and can be trusted."""

from __future__ import annotations

import base64
import io
import re
import time
from pathlib import Path
from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import cdist

import centroid_encoder as ce
from centroid_encoder.core.regions import voronoi_cells


def draw(adata: Any, **kwargs: Any) -> list[Axes]:
    axes = ce.pl.voronoi(adata, **({"show": False} | kwargs))
    return axes if isinstance(axes, list) else [axes]


def points(ax: Axes, color: str | None = None) -> np.ndarray:
    """Cells drawn in a panel, in that colour or in any; circles do not count."""
    lines = [
        line
        for line in ax.lines
        if line.get_marker() == "o"
        and line.get_markeredgewidth() == 0
        and color in (None, to_hex(line.get_color()))
    ]
    coordinates = [np.column_stack(line.get_data()) for line in lines]
    return np.concatenate([np.empty((0, 2)), *coordinates])


def circles(ax: Axes) -> np.ndarray:
    (line,) = (line for line in ax.lines if line.get_markeredgewidth() == 0.8)
    return np.column_stack(line.get_data())


def fills(ax: Axes) -> list[PathPatch]:
    return [patch for patch in ax.patches if patch.get_facecolor()[3] > 0]


def entries(ax: Axes) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def multiplied(adata: ad.AnnData, times: int) -> ad.AnnData:
    """Cells with their results, many times over and slightly spread."""
    repeated = np.tile(np.arange(adata.n_obs), times)
    obs = adata.obs.iloc[repeated].reset_index(drop=True)
    embedding = adata.obsm["X_ce"][repeated]
    embedding = embedding + np.random.default_rng(0).normal(0, 1e-3, embedding.shape)
    obs.index = obs.index.astype(str)
    return ad.AnnData(obs=obs, obsm={"X_ce": embedding}, uns=adata.uns)


def as_set(array: np.ndarray) -> set[tuple[float, ...]]:
    return set(map(tuple, np.asarray(array).tolist()))


class TestTitles:
    def test_give_the_error_that_was_counted(self, embed):
        adata = embed(n_obs=1500)
        training, held_out = draw(adata)
        quality = adata.uns["ce"]["quality"]
        assert training.get_title() == "training cells (n = 1,200)"
        error = f"{100 * quality['test']['voronoi_error']:.1f}"
        assert held_out.get_title() == f"held-out Voronoi error {error} % (n = 300)"

    def test_say_when_the_error_is_no_better_than_chance(self, embed):
        adata = embed()
        adata.uns["ce"]["quality"]["test"] |= {
            "voronoi_error": 0.7,
            "chance_error": 0.6667,
            "at_chance": True,
        }
        _, held_out = draw(adata)
        assert held_out.get_title() == (
            "held-out Voronoi error 70.0 % (n = 24)\nno better than chance (66.7 %)"
        )

    def test_tell_a_selection_of_cells_from_all(self, embed):
        adata = embed()
        training, held_out = draw(adata[adata.obs["cell_type"] != "type 1"])
        assert training.get_title() == "training cells (n = 96, 64 shown)"
        assert held_out.get_title().endswith("(n = 24, 16 shown)")

    @pytest.mark.parametrize(
        ("title", "split", "expected"),
        [
            (["a", "b"], None, ["a", "b"]),
            ("b", "test", ["b"]),
            (["b"], "test", ["b"]),
            (["", ""], None, ["", ""]),
        ],
    )
    def test_can_be_replaced(self, embed, title, split, expected):
        axes = draw(embed(), title=title, split=split)
        assert [ax.get_title() for ax in axes] == expected

    @pytest.mark.parametrize("title", ["one for two", ["a"], ["a", "b", "c"]])
    def test_must_be_one_for_each_panel(self, embed, title):
        with pytest.raises(ValueError, match="one entry for each of the 2 panels"):
            draw(embed(), title=title)


class TestPanels:
    def test_are_one_where_nothing_was_held_out(self, embed):
        axes = ce.pl.voronoi(embed(test_size=0), show=False)
        assert isinstance(axes, Axes)
        assert axes.get_title() == "training cells (n = 120)"

    @pytest.mark.parametrize("split", ["train", "test"])
    def test_are_one_on_request(self, embed, split):
        adata = embed()
        (ax,) = draw(adata, split=split)
        shown = adata.obsm["X_ce"][adata.obs["ce_split"] == split]
        assert as_set(points(ax)) == as_set(shown)

    def test_show_each_cell_in_the_colour_of_its_class(self, embed):
        adata = embed(unlabeled=10)
        colors = dict(
            zip(["type 0", "type 1", "type 2"], ["#ff0000", "#00ff00", "#0000ff"], strict=True)
        )
        for split, ax in zip(["train", "test"], draw(adata, palette=colors), strict=True):
            for name, color in colors.items():
                own = (adata.obs["ce_split"] == split) & (adata.obs["cell_type"] == name)
                assert as_set(points(ax, color)) == as_set(adata.obsm["X_ce"][own])
            # Unlabeled cells stand in both, behind the others.
            assert as_set(points(ax, "#d3d3d3")) == as_set(adata.obsm["X_ce"][:10])
            order = {to_hex(line.get_color()): line.get_zorder() for line in ax.lines}
            assert all(order["#d3d3d3"] < order[color] for color in colors.values())

    def test_share_their_limits_and_their_size(self, embed):
        adata = embed(unlabeled=10)
        one, other = draw(adata, title=["one", "o\nt\nh\ne\nr"])
        assert one.get_xlim() == other.get_xlim()
        assert one.get_ylim() == other.get_ylim()
        assert_allclose(one.get_position().size, other.get_position().size)
        low, high = np.transpose([one.get_xlim(), one.get_ylim()])
        assert ((low < adata.obsm["X_ce"]) & (adata.obsm["X_ce"] < high)).all()
        assert_allclose(*(high - low), err_msg="nearness must look the same in all directions")

    def test_leave_out_cells_without_an_embedding(self, embed, make_cells, fast):
        adata = make_cells()
        adata.X[:5] = np.nan
        ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False, missing="drop")
        drawn = np.concatenate([points(ax) for ax in draw(adata, mark_misplaced=True)])
        assert as_set(drawn) == as_set(adata.obsm["X_ce"][5:])

    def test_lie_on_the_axes_given(self, embed):
        adata = embed()
        figure, axes = plt.subplots(1, 2)
        assert ce.pl.voronoi(adata, ax=axes) == list(axes)
        assert ce.pl.voronoi(adata, ax=axes[1], split="test") is axes[1]
        assert plt.get_fignums() == [figure.number]
        assert tuple(figure.get_size_inches()) == tuple(plt.rcParams["figure.figsize"])

    @pytest.mark.parametrize("n", [1, 3])
    def test_must_be_as_many_as_the_axes_given(self, embed, n, unchanged):
        adata = embed()
        axes = plt.figure().subplots(1, n)
        with unchanged(adata), pytest.raises(ValueError, match=f"hold 2 axes.* got {n}.* split"):
            ce.pl.voronoi(adata, ax=axes)

    def test_of_the_test_split_need_held_out_cells(self, embed):
        with pytest.raises(ValueError, match="no cell was held out"):
            draw(embed(test_size=0), split="test")


class TestRegions:
    def test_are_the_voronoi_cells_of_the_core(self, embed):
        adata = embed(5)
        for ax in draw(adata):
            (x_min, x_max), (y_min, y_max) = ax.get_xlim(), ax.get_ylim()
            cells = voronoi_cells(adata.uns["ce"]["centers"], (x_min, y_min, x_max, y_max))
            outlines = [patch.get_path() for patch in fills(ax)]
            for outline, cell, center in zip(
                outlines, cells, adata.uns["ce"]["centers"], strict=True
            ):
                assert_allclose(outline.vertices[:-1], cell)
                assert outline.contains_point(center)

    @pytest.mark.parametrize("regions", ["voronoi", "decoder"])
    def test_follow_the_order_of_the_categories(self, make_cells, regions):
        adata = make_cells(names=["b", "a", "c"])
        adata.obs["cell_type"] = adata.obs["cell_type"].cat.set_categories(["c", "x", "b", "a"])
        model = ce.CentroidEncoder(hidden=(16,), max_epochs=20, learning_rate=0.01)
        ce.tl.centroid_encoder(adata, "cell_type", model=model, progress=False)
        palette = {"c": "#ff0000", "x": "#00ffff", "b": "#00ff00", "a": "#0000ff"}
        ax = draw(adata, palette=palette, regions=regions, split="train")[0]
        assert entries(ax) == ["c", "b", "a"]
        drawn = {to_hex(patch.get_facecolor()): patch.get_path() for patch in fills(ax)}
        for name in "abc":
            own = (adata.obs["cell_type"] == name) & (adata.obs["ce_split"] == "train")
            cells = adata.obsm["X_ce"][own]
            assert as_set(points(ax, palette[name])) == as_set(cells)
            # The classes are far apart.
            assert drawn[palette[name]].contains_points(cells).mean() > 0.9

    def test_can_be_left_out(self, embed):
        assert not draw(embed(), regions=None)[0].patches

    def test_of_a_class_that_owns_nothing_are_not_drawn(self, embed):
        adata = embed()
        adata.uns["ce"]["centers"][2] = adata.uns["ce"]["centers"][1]
        assert len(fills(draw(adata)[0])) == 2


class TestMisplacedCells:
    @pytest.mark.parametrize("n_components", [1, 2])
    def test_are_those_nearer_to_another_center(self, embed, n_components):
        adata = embed(n_components=n_components, unlabeled=20, distance=0.5)
        embedding, centers = adata.obsm["X_ce"], adata.uns["ce"]["centers"]
        nearest = adata.uns["ce"]["classes"][cdist(embedding, centers).argmin(axis=1)]
        for split, ax in zip(["train", "test"], draw(adata, mark_misplaced=True), strict=True):
            wrong = (adata.obs["ce_split"] == split) & (nearest != adata.obs["cell_type"])
            assert wrong.any()
            drawn = circles(ax)[:, :n_components]
            assert as_set(drawn) == as_set(embedding[wrong])
            # The circle is around the cell as it is drawn, jitter included.
            assert as_set(circles(ax)) <= as_set(points(ax))
        assert entries(ax)[-1] == "misplaced"

    @pytest.mark.parametrize("regions", ["decoder", None])
    def test_are_those_the_decoder_gives_to_another_class(self, embed, regions):
        adata = embed(unlabeled=20, distance=0.5)
        for split, ax in zip(
            ["train", "test"], draw(adata, mark_misplaced=True, regions=regions), strict=True
        ):
            wrong = adata.obs["ce_split"] == split
            wrong &= adata.obs["ce_label"].astype(str) != adata.obs["cell_type"].astype(str)
            assert wrong.any()
            assert as_set(circles(ax)) == as_set(adata.obsm["X_ce"][wrong])

    def test_are_not_marked_unasked(self, embed):
        ax = draw(embed())[-1]
        assert not any(line.get_markeredgewidth() for line in ax.lines)
        assert "misplaced" not in entries(ax)


class TestLegend:
    def test_stands_beside_the_last_panel_in_category_order(self, embed):
        names = ["zeta", "alpha", "mu"]
        first, last = draw(embed(names=names, unlabeled=5))
        assert first.get_legend() is None
        assert entries(last) == [*names, "unlabeled"]
        assert last.get_legend().get_title().get_text() == "cell_type"
        colors = [to_hex(handle.get_color()) for handle in last.get_legend().legend_handles]
        assert colors[-1] == "#d3d3d3"
        assert colors[:-1] == [to_hex(patch.get_facecolor()) for patch in fills(last)]

    def test_has_no_entry_for_what_is_not_there(self, embed):
        assert entries(draw(embed())[-1]) == ["type 0", "type 1", "type 2"]

    @pytest.mark.parametrize(
        "names",
        [
            ["_hidden", "$no_maths$", "$x_$", "100 $", "a" * 40],
            [f"terminally differentiated effector memory T cell, subset {i}" for i in range(4)],
            [f"{i}" for i in range(26)],
            [f"type {i}" for i in range(60)],
        ],
        ids=["odd names", "long names", "26 classes", "60 classes"],
    )
    @pytest.mark.parametrize("font_size", [10, 14])
    def test_lies_in_the_figure_and_over_nothing(self, embed, names, font_size):
        with plt.rc_context({"font.size": font_size}):
            axes = draw(embed(len(names), n_obs=4 * len(names), names=names, test_size=0.25))
            figure = axes[0].figure
            figure.canvas.draw()
        legend = axes[-1].get_legend()
        whole, box = figure.bbox, legend.get_window_extent()
        assert axes[-1].get_window_extent().x1 < box.x0
        assert box.x1 < whole.x1
        assert whole.y0 < box.y0
        assert box.y1 < whole.y1
        for ax in axes:
            assert ax.title.get_window_extent().y1 < whole.y1
            assert ax.yaxis.label.get_window_extent().x0 > 0
            assert ax.xaxis.label.get_window_extent().y0 > 0
        assert_allclose(axes[0].get_window_extent().size, axes[1].get_window_extent().size)
        drawn = [text.get_text().replace("\n", " ") for text in legend.get_texts()]
        assert drawn == names

    def test_ends_where_it_is_of_no_more_use(self, embed):
        names = [f"c{i}" for i in range(130)]
        (ax,) = draw(embed(130, n_obs=260, names=names, test_size=0))
        assert entries(ax)[:100] == names[:100]
        assert entries(ax)[100:] == ["… and 30 more"]

    def test_can_stand_on_the_data(self, embed):
        adata = embed(names=["a", "b", "c"])
        for ax in draw(adata, legend_loc="on data"):
            assert ax.get_legend() is None
            where = {text.get_text(): text.get_position() for text in ax.texts}
            assert set(where) == {"a", "b", "c"}
            for center, name in zip(adata.uns["ce"]["centers"], "abc", strict=True):
                assert_allclose(where[name], center, atol=0.2 * np.ptp(ax.get_xlim()))

    def test_on_the_data_stays_legible_where_centers_meet(self, embed):
        names = [f"a rather long name, number {i}" for i in range(8)]
        adata = embed(8, n_obs=160, names=names)
        adata.uns["ce"]["centers"][:6] = adata.obsm["X_ce"].mean(axis=0)
        (ax,) = draw(adata, legend_loc="on data", split="train")
        ax.figure.canvas.draw()
        boxes = [text.get_window_extent() for text in ax.texts]
        assert len(boxes) == 8
        for i, box in enumerate(boxes):
            assert not any(box.overlaps(other) for other in boxes[:i])
            assert ax.bbox.x0 - 1e-6 <= box.x0 < box.x1 <= ax.bbox.x1 + 1e-6
            assert ax.bbox.y0 - 1e-6 <= box.y0 < box.y1 <= ax.bbox.y1 + 1e-6

    def test_can_be_left_out(self, embed):
        for ax in draw(embed(), legend_loc=None):
            assert ax.get_legend() is None
            assert not ax.texts

    def test_makes_unlabeled_cells_recede_on_a_dark_page_too(self, embed):
        adata = embed(unlabeled=5)
        with plt.style.context("dark_background"):
            ax = draw(adata)[-1]
        assert entries(ax)[-1] == "unlabeled"
        handle = ax.get_legend().legend_handles[-1]
        assert to_hex(handle.get_color()) == to_hex("dimgray")
        assert as_set(points(ax, to_hex("dimgray"))) == as_set(adata.obsm["X_ce"][:5])


class TestDimensions:
    def test_one_is_spread_upwards_over_bands(self, embed):
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

    def test_one_has_decoder_regions_and_labels(self, embed):
        (ax,) = draw(embed(n_components=1), regions="decoder", legend_loc="on data", split="test")
        assert fills(ax)
        assert {text.get_text() for text in ax.texts} == {"type 0", "type 1", "type 2"}

    def test_two_are_named_by_the_key(self, embed):
        adata = embed()
        assert (draw(adata)[0].get_xlabel(), draw(adata)[0].get_ylabel()) == ("CE1", "CE2")
        adata = embed(key_added="second")
        ax = draw(adata, key="second")[0]
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("second1", "second2")

    def test_three_are_a_cloud_with_equal_axes(self, embed):
        adata = embed(n_components=3)
        one, other = draw(adata, mark_misplaced=True, legend_loc="on data")
        assert not one.patches
        assert one.get_zlabel() == "CE3"
        extents = [np.ptp(limits) for limits in (one.get_xlim(), one.get_ylim(), one.get_zlim())]
        assert_allclose(extents, extents[0])
        assert one.get_zlim() == other.get_zlim()
        drawn = [line for line in one.lines if line.get_markeredgewidth() == 0]
        coordinates = np.concatenate([np.column_stack(line.get_data_3d()) for line in drawn])
        assert as_set(coordinates) == as_set(adata.obsm["X_ce"][adata.obs["ce_split"] == "train"])
        one.figure.canvas.draw()

    def test_three_need_axes_of_their_kind(self, embed):
        adata = embed(n_components=3)
        with pytest.raises(ValueError, match="projection='3d'"):
            draw(adata, ax=plt.figure().subplots(1, 2))
        axes = plt.figure().subplots(1, 2, subplot_kw={"projection": "3d"})
        assert draw(adata, ax=axes) == list(axes)

    def test_four_are_too_many(self, embed):
        with pytest.raises(ValueError, match=r"4 components; .* up to three"):
            draw(embed(n_components=4))


class TestErrors:
    def test_name_the_call_to_make_first(self, cells, unchanged):
        with unchanged(cells), pytest.raises(KeyError, match=r"run ce.tl.centroid_encoder\(adata"):
            draw(cells)

    @pytest.mark.parametrize(
        ("kwargs", "words"),
        [
            ({"regions": "cells"}, "regions must be one of"),
            ({"split": "val"}, "split must be one of"),
            ({"legend_loc": "left"}, "legend_loc must be one of"),
            ({"palette": ["red"]}, "1 colours for 3 classes"),
            ({"key": "second"}, "no result 'second'"),
            ({"title": "x"}, "title"),
        ],
    )
    def test_change_nothing_and_leave_no_figure(self, embed, unchanged, kwargs, words):
        adata = embed()
        with unchanged(adata), pytest.raises((ValueError, KeyError), match=words):
            draw(adata, **kwargs)
        assert plt.get_fignums() == []

    @pytest.mark.parametrize("column", ["cell_type", "ce_split", "ce_label"])
    def test_name_a_column_that_is_gone(self, embed, column):
        adata = embed()
        adata.obs = adata.obs.rename(columns={column: "renamed"})
        with pytest.raises(KeyError, match=rf"obs\['{column}'\].* is gone"):
            draw(adata)

    def test_name_classes_that_are_new(self, embed):
        adata = embed()
        adata.obs["cell_type"] = adata.obs["cell_type"].cat.rename_categories({"type 1": "T cell"})
        with pytest.raises(ValueError, match=r"obs\['cell_type'\] has changed .*'T cell' was not"):
            draw(adata)

    def test_name_labels_that_are_lost(self, embed):
        adata = embed()
        adata.obs.iloc[3, 0] = np.nan
        with pytest.raises(ValueError, match=r"has changed .*nan was not among its classes"):
            draw(adata)


class TestSelections:
    def test_of_cells_keep_regions_and_colours(self, embed):
        adata = embed(4)
        whole = draw(adata)[1]
        # The class of the selection is predicted as others, and AnnData drops unused categories.
        selection = adata[adata.obs["cell_type"] == "type 2"]
        for part in (selection, selection.copy()):
            ax = draw(part)[1]
            assert [patch.get_facecolor() for patch in fills(ax)] == [
                patch.get_facecolor() for patch in fills(whole)
            ]
            color = adata.uns["cell_type_colors"][2]
            assert as_set(points(ax)) == as_set(points(whole, color)) == as_set(points(ax, color))

    def test_of_held_out_cells_are_one_panel(self, embed):
        adata = embed()
        (ax,) = draw(adata[adata.obs["ce_split"] == "test"])
        assert ax.get_title().startswith("held-out Voronoi error")

    def test_stay_views(self, embed, unchanged):
        adata = embed()
        view = adata[::2]
        with unchanged(adata), unchanged(view):
            draw(view)

    @pytest.mark.parametrize("dtype", [int, bool, object])
    def test_work_for_labels_of_any_kind(self, make_cells, fast, dtype):
        adata = make_cells(2)
        adata.obs["cell_type"] = adata.obs["cell_type"].cat.codes.astype(dtype)
        ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)
        assert entries(draw(adata[:50])[-1]) == [str(x) for x in np.unique(adata.obs["cell_type"])]


class TestShowAndSave:
    @pytest.fixture(autouse=True)
    def settings(self, monkeypatch, tmp_path):
        self.shown = []
        monkeypatch.setattr(plt, "show", lambda: self.shown.append(plt.get_fignums()))
        names = ("autosave", "autoshow", "figdir", "file_format_figs", "plot_suffix")
        before = {name: getattr(sc.settings, name) for name in names}
        self.folder = sc.settings.figdir = tmp_path / "figures"
        yield
        for name, value in before.items():
            setattr(sc.settings, name, value)

    def files(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*"))

    def test_show_returns_nothing(self, embed):
        assert ce.pl.voronoi(embed(), show=True) is None
        assert self.shown == [[1]]
        assert not self.folder.exists()

    def test_shows_as_scanpy_is_set(self, embed):
        adata = embed()
        sc.settings.autoshow = False
        assert len(ce.pl.voronoi(adata)) == 2
        assert not self.shown
        sc.settings.autoshow = True
        assert ce.pl.voronoi(adata) is None
        assert len(self.shown) == 1

    def test_does_not_show_axes_given(self, embed):
        axes = plt.figure().subplots(1, 2)
        assert ce.pl.voronoi(embed(), ax=axes) == list(axes)
        assert not self.shown
        assert ce.pl.voronoi(embed(), ax=axes, show=True) is None
        assert self.shown

    @pytest.mark.parametrize(
        ("save", "name"),
        [
            (True, "voronoi.pdf"),
            ("_first", "voronoi_first.pdf"),
            ("_first.png", "voronoi_first.png"),
            (".svg", "voronoi.svg"),
            ("_v1.2", "voronoi_v1.2.pdf"),
        ],
    )
    def test_saves_where_scanpy_does(self, embed, save, name):
        sc.settings.file_format_figs = "pdf"
        ce.pl.voronoi(embed(), show=False, save=save)
        assert self.files() == [name]
        # As in scanpy: a loop that saves figures leaves none open.
        assert plt.get_fignums() == []

    def test_saves_as_scanpy_is_set(self, embed):
        sc.settings.autosave = True
        sc.settings.plot_suffix = "_suffix"
        sc.settings.file_format_figs = "png"
        adata = embed()
        ce.pl.voronoi(adata, show=False, save=False)
        assert not self.folder.exists()
        ce.pl.voronoi(adata, show=False)
        assert self.files() == ["voronoi_suffix.png"]

    def test_saves_exactly_to_a_path(self, embed, tmp_path):
        ce.pl.voronoi(embed(), show=False, save=tmp_path / "here.png")
        assert (tmp_path / "here.png").read_bytes().startswith(b"\x89PNG")
        assert not self.folder.exists()

    def test_saves_before_it_shows(self, embed, tmp_path):
        assert ce.pl.voronoi(embed(), show=True, save=tmp_path / "here.png") is None
        assert (tmp_path / "here.png").exists()
        assert self.shown == [[1]]

    def test_leaves_figures_of_others_open(self, embed, tmp_path):
        figure, axes = plt.subplots(1, 2)
        other = plt.figure()
        ce.pl.voronoi(embed(), ax=axes, save=tmp_path / "here.png")
        ce.pl.voronoi(embed(), show=False, save=tmp_path / "there.png")
        assert plt.get_fignums() == [figure.number, other.number]

    @pytest.mark.parametrize(
        ("save", "where"),
        [
            ("{}/fig.png", "fig.png"),
            ("{}/first.pdf", "first.pdf"),
            ("{}/first", "first.pdf"),
            ("{}/_v1.2.svg", "_v1.2.svg"),
            ("fig.png", "fig.png"),
            ("fig.PNG", "fig.PNG"),
            ("./fig.tiff", "fig.tiff"),
            ("~/fig.png", "fig.png"),
        ],
    )
    def test_a_string_may_be_a_path(self, embed, tmp_path, monkeypatch, save, where):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HOME", str(tmp_path))
        sc.settings.file_format_figs = "pdf"
        ce.pl.voronoi(embed(), show=False, save=save.format(tmp_path))
        assert [path.name for path in tmp_path.iterdir()] == [where]

    @pytest.mark.parametrize(
        ("save", "words"),
        [
            (Path("nowhere/here.png"), "no folder nowhere"),
            ("nowhere/here.png", "no folder nowhere"),
            (Path("here.txt"), "the name must end in"),
            ("./here.txt", "the name must end in"),
            (Path("folder.png"), "is a folder"),
        ],
    )
    def test_complains_before_it_draws(self, embed, tmp_path, monkeypatch, unchanged, save, words):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "folder.png").mkdir()
        adata = embed()
        monkeypatch.setattr(plt, "figure", lambda **_: pytest.fail("it was drawn"))
        with unchanged(adata), pytest.raises((OSError, ValueError), match=words):
            ce.pl.voronoi(adata, show=False, save=save)
        assert not self.folder.exists()

    @pytest.mark.parametrize("dpi", [0, -1])
    def test_needs_dots(self, embed, dpi):
        with pytest.raises(ValueError, match=f"dpi must be positive; got {dpi}"):
            ce.pl.voronoi(embed(), show=False, dpi=dpi)

    @pytest.mark.parametrize("setting", ["figure", 50])
    def test_has_as_many_dots_as_asked_for(self, embed, tmp_path, setting):
        adata, widths = embed(), {}
        with plt.rc_context({"savefig.dpi": setting}):
            for dpi in (100, 200, None):
                ce.pl.voronoi(adata, show=False, save=tmp_path / "a.png", dpi=dpi)
                widths[dpi] = plt.imread(tmp_path / "a.png").shape[1]
        assert widths[200] == pytest.approx(2 * widths[100], rel=0.01)
        expected = 200 if setting == "figure" else 50
        assert widths[None] == pytest.approx(expected / 100 * widths[100], rel=0.01)

    @pytest.mark.parametrize(("dpi", "expected"), [(None, 300), (600, 600), (100, 100)])
    def test_has_sharp_points_in_vector_files(self, embed, tmp_path, dpi, expected):
        """Images in the file, which are the cells, against their size on the page."""
        with plt.rc_context({"savefig.dpi": 150, "svg.fonttype": "none"}):
            ce.pl.voronoi(embed(), show=False, save=tmp_path / "a.svg", dpi=dpi)
        text = (tmp_path / "a.svg").read_text()
        images = re.findall(r'<image[^>]*href="data:image/png;base64,\s*([^"]+)"[^>]*>', text)
        scales = re.findall(r"<image[^>]*transform=\"scale\(([\d.]+)", text)
        assert images
        assert len(scales) in (0, len(images))
        for tag, data in zip(re.findall(r"<image[^>]*>", text), images, strict=True):
            pixels = plt.imread(io.BytesIO(base64.b64decode(data))).shape[1]
            shown = float(re.search(r'width="([\d.]+)"', tag)[1])
            scale = re.search(r"scale\(([\d.]+)", tag)
            points = shown * (float(scale[1]) if scale else 1)
            assert 72 * pixels / points == pytest.approx(expected, rel=0.02)

    @pytest.mark.parametrize("suffix", ["pdf", "eps"])
    def test_writes_fonts_that_journals_take(self, embed, tmp_path, suffix):
        before = dict(plt.rcParams)
        with plt.rc_context({"pdf.compression": 0}):
            ce.pl.voronoi(embed(), show=False, save=tmp_path / f"a.{suffix}")
        data = (tmp_path / f"a.{suffix}").read_bytes()
        assert b"/Type3" not in data
        assert b"/FontType 3" not in data
        assert (b"/FontType 42" if suffix == "eps" else b"/CIDFontType2") in data
        assert dict(plt.rcParams) == before

    @pytest.mark.parametrize("suffix", ["svg", "pdf"])
    def test_rasterises_cells_but_not_words_and_regions(self, embed, tmp_path, suffix):
        size, adata = {}, embed()
        for n_obs in (120, 12_000):
            path = Path(tmp_path / f"{n_obs}.{suffix}")
            ce.pl.voronoi(multiplied(adata, n_obs // 120), show=False, save=path)
            size[n_obs] = path.stat().st_size
        # As vectors, every cell would take some 50 bytes even in a compressed file.
        assert size[12_000] < size[120] + 50 * 12_000 / 2
        if suffix == "svg":
            text = path.read_text()
            assert "<image" in text
            assert text.count("<path") > 6

    @pytest.mark.parametrize("backend", ["svg", "pdf"])
    def test_works_on_backends_that_draw_no_pixels(self, embed, tmp_path, backend):
        adata = embed()
        before = plt.get_backend()
        plt.switch_backend(backend)
        try:
            ce.pl.voronoi(adata, show=False, save=tmp_path / "a.png", legend_loc="on data")
            ce.pl.voronoi(adata, show=False, save=tmp_path / "b.png")
        finally:
            plt.switch_backend(before)
        assert (tmp_path / "b.png").exists()


def test_a_hundred_thousand_cells_take_seconds_at_most(embed, tmp_path):
    adata = multiplied(embed(10, n_obs=1000), 100)
    start = time.perf_counter()
    ce.pl.voronoi(adata, show=False, save=tmp_path / "many.png", mark_misplaced=True)
    # It takes about one; the bound is there for disasters on a busy machine.
    assert time.perf_counter() - start < 20


def test_cells_shrink_as_they_become_many_and_as_asked(embed):
    def size(ax: Axes) -> float:
        cells: list[Line2D] = [line for line in ax.lines if line.get_marker() == "o"]
        assert len({line.get_markersize() for line in cells}) == 1
        return cells[0].get_markersize()

    few = embed()
    many = multiplied(few, 40)
    assert size(draw(few)[0]) > size(draw(many)[0])
    assert size(draw(few, size=9)[0]) == pytest.approx(3)
    # In both panels alike, however few cells one shows.
    assert len({size(ax) for ax in draw(few)}) == 1


def test_the_figure_leaves_everything_but_the_colours(embed, unchanged):
    adata = embed(unlabeled=3)
    adata.uns["cell_type_colors"] = ["#111111", "#222222", "#333333"]
    with unchanged(adata):
        draw(adata, regions="decoder", mark_misplaced=True, legend_loc="on data")
    del adata.uns["cell_type_colors"]
    before = adata.copy()
    draw(adata)
    assert set(adata.uns) == {"ce", "cell_type_colors"}
    del adata.uns["cell_type_colors"]
    assert_array_equal(adata.obsm["X_ce"], before.obsm["X_ce"])
    pd.testing.assert_frame_equal(adata.obs, before.obs)


def test_a_selection_of_unlabeled_cells_has_no_panel(embed):
    adata = embed(unlabeled=3)
    chosen = adata[adata.obs["ce_split"] == "unlabeled"]
    assert len(chosen)
    with pytest.raises(ValueError, match="nothing to draw"):
        draw(chosen)


def test_a_class_called_unlabeled_keeps_its_colour_in_the_legend(make_cells, fast):
    adata = make_cells()
    adata.obs["cell_type"] = adata.obs["cell_type"].cat.rename_categories({"type 1": "unlabeled"})
    adata.obs.loc[adata.obs_names[:5], "cell_type"] = np.nan
    ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)
    texts = [text.get_text() for text in draw(adata)[-1].get_legend().get_texts()]
    assert {"unlabeled", "no label"} <= set(texts)

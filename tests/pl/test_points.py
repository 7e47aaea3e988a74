"""Points that are coloured by any column or variable, over the regions of the classes."""

from __future__ import annotations

from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_hex
from numpy.testing import assert_allclose
from scipy import sparse

import centroid_encoder as ce


def draw(adata: Any, color: str, **kwargs: Any) -> list[Any]:
    axes = ce.pl.voronoi(adata, color=color, **({"show": False} | kwargs))
    return axes if isinstance(axes, list) else [axes]


def numbers(ax: Any) -> dict[tuple[float, ...], float]:
    """Number of each point that is drawn in the colour of one."""
    (drawn,) = (one for one in ax.collections if isinstance(one, PathCollection))
    values = np.asarray(drawn.get_array())
    return dict(zip(map(tuple, np.asarray(drawn.get_offsets()).tolist()), values, strict=True))


def by_color(ax: Any) -> dict[str, np.ndarray]:
    lines = [line for line in ax.lines if line.get_markeredgewidth() == 0]
    return {to_hex(line.get_color()): np.column_stack(line.get_data()) for line in lines}


def expected(adata: ad.AnnData, values: np.ndarray, split: str) -> dict[tuple[float, ...], float]:
    shown = (adata.obs["ce_split"] == split).to_numpy()
    embedding = adata.obsm["X_ce"][shown].astype(float)
    return dict(zip(map(tuple, embedding.tolist()), values[shown], strict=True))


def legends(ax: Any) -> dict[str, list[str]]:
    found = [one for one in ax.get_children() if isinstance(one, plt.matplotlib.legend.Legend)]
    return {
        one.get_title().get_text(): [text.get_text() for text in one.get_texts()] for one in found
    }


@pytest.fixture
def adata(embed: Any) -> ad.AnnData:
    adata: ad.AnnData = embed()
    rng = np.random.default_rng(0)
    adata.obs["size"] = rng.normal(size=adata.n_obs)
    adata.obs["donor"] = pd.Categorical(rng.choice(["d1", "d2"], adata.n_obs))
    adata.layers["counts"] = 2 * adata.X
    return adata


def test_regions_stay_those_of_the_classes(adata: ad.AnnData) -> None:
    plain = ce.pl.voronoi(adata, show=False)
    for color in ("size", "donor", "gene3"):
        for one, other in zip(plain, draw(adata, color), strict=True):
            assert [to_hex(p.get_facecolor()) for p in other.patches] == [
                to_hex(p.get_facecolor()) for p in one.patches
            ]
            assert one.get_title() == other.get_title()


class TestNumbers:
    def test_of_a_column(self, adata: ad.AnnData) -> None:
        for split, ax in zip(("train", "test"), draw(adata, "size"), strict=True):
            assert numbers(ax) == expected(adata, adata.obs["size"].to_numpy(), split)

    @pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
    def test_of_a_variable(self, adata: ad.AnnData, kind: Any) -> None:
        values = np.asarray(adata[:, "gene3"].X).ravel().astype(float)
        adata.X = kind(adata.X)
        for split, ax in zip(("train", "test"), draw(adata, "gene3"), strict=True):
            assert numbers(ax) == expected(adata, values, split)

    def test_of_a_layer_and_of_raw_as_scanpy_takes_them(self, adata: ad.AnnData) -> None:
        x = np.asarray(adata[:, "gene3"].X).ravel().astype(float)
        raw = adata.copy()
        raw.X = 5 * raw.X
        raw.var_names = [f"raw{i}" if i != 3 else "gene3" for i in range(raw.n_vars)]
        adata.raw = raw
        for kwargs, factor in (
            ({}, 5),
            ({"use_raw": True}, 5),
            ({"use_raw": False}, 1),
            ({"layer": "counts"}, 2),
            ({"layer": "counts", "use_raw": False}, 2),
        ):
            found = numbers(draw(adata, "gene3", split="train", **kwargs)[0])
            wanted = expected(adata, factor * x, "train")
            assert_allclose([found[place] for place in wanted], list(wanted.values()), rtol=1e-6)
        assert numbers(draw(adata, "raw0", split="train")[0])

    def test_share_one_bar_and_one_scale(self, adata: ad.AnnData) -> None:
        one, other = draw(adata, "size")
        assert not one.child_axes
        (bar,) = other.child_axes
        assert bar.get_ylabel() == "size"
        limits = adata.obs["size"].min(), adata.obs["size"].max()
        assert_allclose(bar.get_ylim(), limits)
        for ax in (one, other):
            (drawn,) = ax.collections
            assert_allclose(drawn.get_clim(), limits)
            assert drawn.get_cmap().name == "viridis"
        assert legends(other) == {"cell_type": ["type 0", "type 1", "type 2"]}
        figure = one.figure
        figure.canvas.draw()
        legend = other.get_legend().get_window_extent()
        assert other.bbox.x1 < bar.get_tightbbox().x0 < bar.get_tightbbox().x1 < legend.x0
        assert legend.x1 < figure.bbox.x1

    def test_that_are_not_known_are_grey(self, adata: ad.AnnData) -> None:
        adata.obs.loc[adata.obs_names[:20], "size"] = np.nan
        adata.obs.loc[adata.obs_names[20:25], "size"] = np.inf
        drawn = [len(numbers(ax)) for ax in draw(adata, "size")]
        grey = [len(by_color(ax)["#d3d3d3"]) for ax in draw(adata, "size")]
        assert sum(drawn) == adata.n_obs - 25
        assert sum(grey) == 25

    @pytest.mark.parametrize("values", [np.nan, 3.0])
    def test_may_be_one_or_none(self, adata: ad.AnnData, values: float) -> None:
        adata.obs["size"] = values
        draw(adata, "size")[0].figure.canvas.draw()

    def test_may_be_of_any_dtype(self, adata: ad.AnnData) -> None:
        adata.obs["n"] = pd.array([None, *range(adata.n_obs - 1)], dtype="Int64")
        assert max(numbers(draw(adata, "n", split="train")[0]).values()) > 90

    def test_in_three_dimensions_and_in_one(self, embed: Any) -> None:
        for n in (1, 3):
            adata = embed(n_components=n)
            adata.obs["size"] = np.arange(adata.n_obs)
            one, _ = draw(adata, "size", mark_misplaced=True)
            one.figure.canvas.draw()


class TestCategories:
    def test_have_their_own_colours(self, adata: ad.AnnData) -> None:
        adata.uns["donor_colors"] = ["#123456", "#654321"]
        for split, ax in zip(("train", "test"), draw(adata, "donor"), strict=True):
            for donor, color in (("d1", "#123456"), ("d2", "#654321")):
                own = (adata.obs["ce_split"] == split) & (adata.obs["donor"] == donor)
                found = set(map(tuple, by_color(ax)[color].tolist()))
                assert found == set(map(tuple, adata.obsm["X_ce"][own].tolist()))
        assert adata.uns["donor_colors"] == ["#123456", "#654321"]

    def test_have_a_legend_beside_that_of_the_classes(self, adata: ad.AnnData) -> None:
        one, other = draw(adata, "donor", mark_misplaced=True)
        assert legends(one) == {}
        assert legends(other) == {
            "donor": ["d1", "d2"],
            "cell_type": ["type 0", "type 1", "type 2", "misplaced"],
        }
        other.figure.canvas.draw()
        first, second = (
            one.get_window_extent()
            for one in other.get_children()
            if isinstance(one, plt.matplotlib.legend.Legend)
        )
        assert not first.overlaps(second)
        assert max(first.x1, second.x1) < other.figure.bbox.x1

    @pytest.mark.parametrize("dtype", [bool, str])
    def test_may_be_words_and_truth_values(self, adata: ad.AnnData, dtype: type) -> None:
        adata.obs["half"] = (np.arange(adata.n_obs) % 2 == 0).astype(dtype)
        ax = draw(adata, "half")[-1]
        assert legends(ax)["half"] == ["False", "True"]

    def test_that_are_missing_are_grey_and_named(self, adata: ad.AnnData) -> None:
        adata.obs.loc[adata.obs_names[:30], "donor"] = np.nan
        axes = draw(adata, "donor")
        assert sum(len(by_color(ax)["#d3d3d3"]) for ax in axes) == 30
        assert legends(axes[-1])["donor"] == ["d1", "d2", "none"]

    def test_that_are_the_classes_make_the_usual_picture(self, adata: ad.AnnData) -> None:
        assert list(legends(draw(adata, "cell_type")[-1])) == ["cell_type"]


class TestErrors:
    @pytest.mark.parametrize(
        ("kwargs", "words"),
        [
            ({"color": "donr"}, "neither obs nor var_names has 'donr'; did you mean 'donor'"),
            ({"color": "gene33"}, "has 'gene33'; did you mean 'gene3'"),
            ({"color": "gene3", "layer": "count"}, "layers has no 'count'; did you mean 'counts'"),
            ({"color": "gene3", "use_raw": True}, "use_raw=True needs adata.raw"),
        ],
    )
    def test_name_what_is_near(
        self, adata: ad.AnnData, unchanged: Any, kwargs: dict[str, Any], words: str
    ) -> None:
        with unchanged(adata), pytest.raises((KeyError, ValueError), match=words):
            draw(adata, **kwargs)
        assert not plt.get_fignums()

    def test_raw_and_a_layer_exclude_each_other(self, adata: ad.AnnData) -> None:
        adata.raw = adata
        with pytest.raises(ValueError, match="exclude each other"):
            draw(adata, "gene3", layer="counts", use_raw=True)

    @pytest.mark.filterwarnings("ignore:Variable names are not unique")
    def test_say_that_a_name_occurs_twice(self, adata: ad.AnnData) -> None:
        adata.var_names = ["gene3", *adata.var_names[1:]]
        with pytest.raises(ValueError, match="var_names has 'gene3' 2 times"):
            draw(adata, "gene3")


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_a_table_on_disk_stays_there(adata: ad.AnnData, kind: Any, tmp_path: Any) -> None:
    adata.X = kind(adata.X)
    adata.raw = adata
    adata.write_h5ad(tmp_path / "cells.h5ad")
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    for use_raw in (True, False):
        found = numbers(draw(backed, "gene3", split="train", use_raw=use_raw)[0])
        assert found == numbers(draw(adata, "gene3", split="train", use_raw=use_raw)[0])
    backed.file.close()

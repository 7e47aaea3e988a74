"""Class colours: one palette for this package, scanpy and napari."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from cycler import cycler
from matplotlib.colors import to_hex

import centroid_encoder as ce


def drawn(adata, **kwargs) -> list[str]:
    """Colours of the regions, in the order of the classes."""
    ax = ce.pl.voronoi(adata, split="train", show=False, **kwargs)
    return [to_hex(p.get_facecolor()) for p in ax.patches if p.get_facecolor()[3] > 0]


@pytest.fixture
def three(embed):
    return embed(3)


KEY = "cell_type_colors"


class TestStoredColours:
    def test_are_used(self, three):
        three.uns[KEY] = ["#111111", "red", "#333333"]
        assert drawn(three) == ["#111111", "#ff0000", "#333333"]
        assert three.uns[KEY] == ["#111111", "red", "#333333"]

    def test_may_be_an_array_as_read_from_disk(self, three):
        three.uns[KEY] = np.array(["#111111", "#222222", "#333333"], dtype=object)
        assert drawn(three) == ["#111111", "#222222", "#333333"]
        assert type(three.uns[KEY]) is np.ndarray

    def test_may_be_more_than_there_are_categories(self, three):
        three.uns[KEY] = ["#111111", "#222222", "#333333", "#444444"]
        assert drawn(three) == ["#111111", "#222222", "#333333"]
        assert len(three.uns[KEY]) == 4

    @pytest.mark.parametrize("stored", [["#111111"], ["#111111", "#222222", "no colour"], []])
    def test_are_replaced_where_they_do_not_fit(self, three, stored):
        three.uns[KEY] = stored
        default = [to_hex(f"C{i}") for i in range(3)]
        assert drawn(three) == default
        assert three.uns[KEY] == default

    def test_count_empty_categories(self, embed, make_cells, fast):
        adata = make_cells()
        adata.obs["cell_type"] = adata.obs["cell_type"].cat.set_categories(
            ["type 2", "nobody", "type 0", "type 1"]
        )
        ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)
        adata.uns[KEY] = ["#222222", "#999999", "#000000", "#111111"]
        assert drawn(adata) == ["#222222", "#000000", "#111111"]


class TestDefaultColours:
    # 10 is what matplotlib's cycle holds; 20, 28 and 102 are the sizes of scanpy's palettes.
    @pytest.mark.parametrize("n", [2, 10, 11, 20, 21, 28, 29, 102])
    def test_are_scanpys(self, make_cells, n):
        adata = make_cells(n, 2 * n)
        model = ce.CentroidEncoder(hidden=(4,), max_epochs=1)
        ce.tl.centroid_encoder(adata, "cell_type", model=model, test_size=0, progress=False)
        by_scanpy = adata.copy()
        sc.pl.embedding(by_scanpy, "ce", color="cell_type", show=False)
        plt.close("all")
        colors = drawn(adata)
        assert adata.uns[KEY] == list(by_scanpy.uns[KEY])
        assert len(colors) <= n
        # And whoever comes second reads what the first wrote.
        assert drawn(by_scanpy) == colors
        before = list(adata.uns[KEY])
        sc.pl.embedding(adata, "ce", color="cell_type", show=False)
        assert list(adata.uns[KEY]) == before

    def test_follow_the_users_cycle_as_scanpys_do(self, three):
        with plt.rc_context({"axes.prop_cycle": cycler(color=["#aa0000", "#00aa00", "#0000aa"])}):
            assert drawn(three) == ["#aa0000", "#00aa00", "#0000aa"]

    def test_differ_even_for_more_classes_than_scanpy_has_colours_for(self, make_cells):
        adata = make_cells(150, 300)
        model = ce.CentroidEncoder(hidden=(4,), max_epochs=1)
        ce.tl.centroid_encoder(adata, "cell_type", model=model, test_size=0, progress=False)
        drawn(adata)
        assert len(set(adata.uns[KEY])) == 150

    def test_are_written_once_for_labels_that_are_no_categories(self, make_cells, fast):
        adata = make_cells()
        adata.obs["cell_type"] = adata.obs["cell_type"].cat.codes.astype(int)
        ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)
        drawn(adata)
        adata.obs["cell_type"] = adata.obs["cell_type"].astype("category")
        sc.pl.embedding(adata, "ce", color="cell_type", show=False)
        assert adata.uns[KEY] == [to_hex(f"C{i}") for i in range(3)]


class TestPalette:
    def test_may_name_colours_by_class(self, three):
        palette = {"type 1": "lime", "type 0": "#ff0000", "type 2": "b", "absent": "k"}
        expected = ["#ff0000", "#00ff00", "#0000ff"]
        assert drawn(three, palette=palette) == expected
        assert three.uns[KEY] == expected

    def test_need_not_name_empty_categories(self, embed):
        adata = embed(3)
        adata.obs["cell_type"] = adata.obs["cell_type"].cat.add_categories(["nobody"])
        assert drawn(adata, palette={"type 0": "r", "type 1": "g", "type 2": "b"})
        assert len(adata.uns[KEY]) == 4

    def test_may_be_a_list_in_category_order(self, three):
        expected = ["#ff0000", "#00ff00", "#0000ff"]
        assert drawn(three, palette=[*expected, "k"]) == expected
        assert drawn(three, palette=tuple(expected)) == expected
        assert three.uns[KEY] == expected

    def test_may_be_a_qualitative_colour_map(self, three):
        expected = [to_hex(mpl.colormaps["Set2"](i)) for i in range(3)]
        assert drawn(three, palette="Set2") == expected
        assert three.uns[KEY] == expected

    def test_may_be_a_continuous_colour_map(self, three):
        expected = [to_hex(mpl.colormaps["viridis"](x)) for x in (0.0, 0.5, 1.0)]
        assert drawn(three, palette="viridis") == expected

    def test_takes_the_place_of_stored_colours(self, three):
        three.uns[KEY] = ["#111111", "#222222", "#333333"]
        drawn(three, palette="Set2")
        assert three.uns[KEY] != ["#111111", "#222222", "#333333"]

    @pytest.mark.parametrize(
        ("palette", "words"),
        [
            (["r", "g"], "palette has 2 colours for 3 classes"),
            ({"type 0": "r"}, "palette has no colour for type 1, type 2"),
            (["r", "g", "bleu"], "'bleu', which is no colour"),
            ({"type 0": "r", "type 1": "g", "type 2": 7}, "7, which is no colour"),
            ("Set22", "'Set22' is no matplotlib colour map"),
        ],
    )
    def test_that_does_not_fit_is_an_error(self, three, unchanged, palette, words):
        with unchanged(three), pytest.raises(ValueError, match=words):
            drawn(three, palette=palette)

    def test_that_is_too_short_a_map_is_an_error(self, embed):
        with pytest.raises(ValueError, match="'Set2' has 8 colours for 9 classes"):
            drawn(embed(9), palette="Set2")


def test_colours_survive_a_new_order_of_the_categories(three):
    colors = dict(zip(three.obs["cell_type"].cat.categories, drawn(three), strict=True))
    three.obs["cell_type"] = pd.Categorical(three.obs["cell_type"], ["type 2", "type 0", "type 1"])
    three.uns[KEY] = [colors[name] for name in three.obs["cell_type"].cat.categories]
    # Regions go by the order of the training, colours by that of the column.
    assert drawn(three) == list(colors.values())

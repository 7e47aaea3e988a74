"""Class colours: one palette for this package, scanpy and napari."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scanpy as sc
from matplotlib.colors import to_hex, to_rgb
from scipy.spatial.distance import pdist
from skimage.color import deltaE_ciede2000, rgb2lab

import centroid_encoder as ce
from centroid_encoder.pl._colors import class_colors, default_palette, label_colors, set_label_color
from centroid_encoder.tl._result import read_result


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

    @pytest.mark.parametrize("stored", [["#111111"], ["#111111", "#222222", "no colour"], []])
    def test_are_replaced_where_they_do_not_fit(self, three, stored):
        three.uns[KEY] = stored
        default = default_palette(3)
        assert drawn(three) == default
        assert three.uns[KEY] == default


class TestDefaultColours:
    def test_are_those_of_okabe_and_ito(self, three):
        assert drawn(three) == ["#e69f00", "#56b4e9", "#009e73"] == three.uns[KEY]
        assert default_palette(7)[3:] == ["#f0e442", "#0072b2", "#d55e00", "#cc79a7"]

    def test_differ_from_each_other_from_greys_and_from_any_page(self):
        # White, the canvas of napari's dark theme, and the greys of unlabeled cells.
        pages = ["#ffffff", "#262930", "#000000", "lightgray", "dimgray"]
        lab = rgb2lab([to_rgb(color) for color in (*default_palette(20), *pages)])
        one, other = np.triu_indices(len(lab), 1)
        assert deltaE_ciede2000(lab[one], lab[other])[one < 20].min() > 8

    @pytest.mark.parametrize("n", [101, 150, 300])
    def test_of_many_classes_differ_wherever_they_lie(self, n):
        colors = default_palette(n)
        assert colors[:28] == default_palette(28)
        lab = rgb2lab([to_rgb(color) for color in colors])
        assert pdist(lab).min() > 10  # CIE76

    @pytest.mark.parametrize("scanpys", [False, True])
    def test_are_read_by_scanpy_whoever_has_set_its_figures(self, three, scanpys):
        with plt.rc_context():
            if scanpys:
                sc.set_figure_params()
            assert drawn(three) == default_palette(3)
            sc.pl.embedding(three, "ce", color="cell_type", show=False)
        assert three.uns[KEY] == ["#e69f00", "#56b4e9", "#009e73"]


class TestPalette:
    @pytest.mark.parametrize(
        ("palette", "expected"),
        [
            ("Set2", ["#66c2a5", "#fc8d62", "#8da0cb"]),
            ("viridis", ["#440154", "#21918c", "#fde725"]),
            (("#ff0000", "lime", "b", "k"), ["#ff0000", "#00ff00", "#0000ff"]),
        ],
    )
    def test_may_be_a_colour_map_or_a_list(self, three, palette, expected):
        three.uns[KEY] = ["#111111", "#222222", "#333333"]
        assert drawn(three, palette=palette) == expected
        assert three.uns[KEY] == expected

    def test_may_name_colours_by_class(self, three):
        palette = {"type 1": "lime", "type 0": "#ff0000", "type 2": "b", "absent": "k"}
        expected = ["#ff0000", "#00ff00", "#0000ff"]
        assert drawn(three, palette=palette) == expected
        assert three.uns[KEY] == expected

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


def labeled(make_cells, kind: str):
    """Three classes "a", "b", "c", or as near to that as a kind of label comes."""
    adata = make_cells(3, names=["c", "a", "b"])
    codes = adata.obs["cell_type"].cat.codes
    adata.obs["cell_type"] = {
        "category": adata.obs["cell_type"],
        "string": adata.obs["cell_type"].astype(object),
        "integer": codes.astype(int) * 10,
        "number with gaps": codes.astype(float).where(np.arange(len(codes)) > 5),
        "boolean": codes == 1,
    }[kind]
    return adata


KINDS = {
    "category": ["c", "a", "b"],
    "string": ["a", "b", "c"],
    "integer": [0, 10, 20],
    "number with gaps": [0, 1, 2],
    "boolean": [False, True],
}


@pytest.mark.parametrize("kind", KINDS)
def test_colours_of_a_column_are_those_of_the_result_to_come(make_cells, fast, unchanged, kind):
    adata = labeled(make_cells, kind)
    with unchanged(adata):
        before = label_colors(adata, "cell_type")
    assert list(before) == KINDS[kind]
    assert {type(name) for name in before} == {type(name) for name in KINDS[kind]}
    assert list(before.values()) == default_palette(len(before))
    ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)
    assert class_colors(adata, read_result(adata, "ce"), None) == before
    assert drawn(adata) == list(before.values())


def test_a_category_that_counts_as_unlabeled_keeps_its_colour(make_cells, fast):
    adata = labeled(make_cells, "string")
    adata.uns[KEY] = ["#111111", "#222222", "#333333"]
    ce.tl.centroid_encoder(adata, "cell_type", unlabeled_category="a", model=fast, progress=False)
    assert drawn(adata) == ["#222222", "#333333"]
    assert adata.uns[KEY] == ["#111111", "#222222", "#333333"]
    selection = adata[adata.obs["cell_type"] != "a"].copy()
    assert drawn(selection) == drawn(adata)


class TestSettingAColour:
    @pytest.mark.parametrize("kind", KINDS)
    def test_keeps_the_others(self, make_cells, kind):
        adata = labeled(make_cells, kind)
        before = label_colors(adata, "cell_type")
        category = KINDS[kind][1]
        set_label_color(adata, "cell_type", category, "gold")
        assert adata.uns[KEY] == list(label_colors(adata, "cell_type").values())
        assert label_colors(adata, "cell_type") == before | {category: "#ffd700"}

    def test_makes_a_copy_of_a_view(self, cells, unchanged):
        view = cells[::2]
        with unchanged(cells):
            set_label_color(view, "cell_type", "type 2", "k")
        assert not view.is_view
        assert view.n_obs == 60
        assert label_colors(view, "cell_type")["type 2"] == "#000000"

    @pytest.mark.parametrize(
        ("label_key", "category", "color", "error"),
        [
            ("cell_typ", "type 1", "red", KeyError),
            ("cell_type", "type 9", "red", KeyError),
            ("cell_type", "type 1", "no colour", ValueError),
        ],
    )
    def test_changes_nothing_that_is_not_there(
        self, cells, unchanged, label_key, category, color, error
    ):
        with unchanged(cells), pytest.raises(error):
            set_label_color(cells, label_key, category, color)

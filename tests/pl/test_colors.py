"""Class colours: one palette for this package, scanpy and napari."""

from __future__ import annotations

import re

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from cycler import cycler
from matplotlib.colors import to_hex, to_rgb
from numpy.testing import assert_allclose
from scanpy.plotting import palettes
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
        default = default_palette(3)
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


def seen(colors: list[str], kind: str) -> np.ndarray:
    """(n, 3) CIELAB of colours as people see them (Machado et al. 2009, severity 1)."""
    rgb = np.array([to_rgb(color) for color in colors])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(linear @ np.transpose(SEEN[kind]), 0, 1)
    return rgb2lab(
        np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    )


SEEN = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
}


def nearest(colors: list[str], kind: str, *others: str) -> float:
    """Smallest difference (CIEDE2000) between two colours, or between one and the others."""
    lab = seen(colors, kind)
    if others:
        return float(deltaE_ciede2000(lab[:, None], seen(list(others), kind)[None]).min())
    one, other = np.triu_indices(len(lab), 1)
    return float(deltaE_ciede2000(lab[one], lab[other]).min())


class TestDefaultColours:
    def test_are_those_of_okabe_and_ito(self, three):
        assert drawn(three) == ["#e69f00", "#56b4e9", "#009e73"] == three.uns[KEY]
        assert default_palette(7)[3:] == ["#f0e442", "#0072b2", "#d55e00", "#cc79a7"]

    def test_differ_as_much_as_is_said(self):
        """The table of `default_palette`, counted anew."""
        text = default_palette.__doc__
        rows = re.findall(r"^ *(\d+) +([\d.]+) +([\d.]+) +([\d.]+)(.*)$", text, re.M)
        assert [int(n) for n, *_ in rows] == [8, 16, 20, 28, 60, 100]
        for n, *said, _ in rows:
            found = [nearest(default_palette(int(n)), kind) for kind in SEEN]
            assert_allclose(found, [float(number) for number in said], atol=0.051)
        others = {
            "tab10": [to_hex(color) for color in mpl.colormaps["tab10"].colors],
            **{f"default_{n}": getattr(palettes, f"default_{n}") for n in (20, 28, 102)},
        }
        for *_, rest in rows:
            for worst, name in re.findall(r"([\d.]+) \(``(\w+)``\)", rest):
                found = min(nearest(others[name], kind) for kind in SEEN)
                assert found == pytest.approx(float(worst), abs=0.051)

    def test_are_no_greys_and_seen_on_any_page(self):
        # White, the canvas of napari's dark theme, and the greys of unlabeled cells.
        for kind in SEEN:
            pages = ("#ffffff", "#262930", "#000000", "lightgray", "dimgray")
            assert nearest(default_palette(20), kind, *pages) > 8

    def test_of_fewer_classes_are_the_first_of_more(self):
        for n in (2, 9, 30):
            assert default_palette(n) == default_palette(100)[:n]

    @pytest.mark.parametrize("scanpys", [False, True])
    def test_are_read_by_scanpy_whoever_has_set_its_figures(self, three, scanpys):
        with plt.rc_context():
            if scanpys:
                sc.set_figure_params()
            assert drawn(three) == default_palette(3)
            sc.pl.embedding(three, "ce", color="cell_type", show=False)
        assert three.uns[KEY] == ["#e69f00", "#56b4e9", "#009e73"]

    def test_are_scanpys_where_it_has_drawn_first(self, three):
        sc.pl.embedding(three, "ce", color="cell_type", show=False)
        before = list(three.uns[KEY])
        assert drawn(three) == before == list(three.uns[KEY])

    def test_follow_the_users_cycle(self, three):
        with plt.rc_context({"axes.prop_cycle": cycler(color=["#aa0000", "#00aa00", "#0000aa"])}):
            assert drawn(three) == ["#aa0000", "#00aa00", "#0000aa"]

    def test_differ_even_for_more_classes_than_there_are_distinct_colours(self, make_cells):
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
        assert adata.uns[KEY] == default_palette(3)


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
    assert drawn(three) == three.uns[KEY]


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


class TestLabelColours:
    """Colours of a label column, whether there is a result or not."""

    @pytest.mark.parametrize("kind", KINDS)
    def test_are_those_of_the_result_to_come(self, make_cells, fast, unchanged, kind):
        adata = labeled(make_cells, kind)
        with unchanged(adata):
            before = label_colors(adata, "cell_type")
        assert list(before) == KINDS[kind]
        assert {type(name) for name in before} == {type(name) for name in KINDS[kind]}
        assert list(before.values()) == default_palette(len(before))
        ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)
        assert class_colors(adata, read_result(adata, "ce"), None) == before
        assert drawn(adata) == list(before.values())
        assert label_colors(adata, "cell_type") == before

    @pytest.mark.parametrize("kind", ["category", "string"])
    def test_are_scanpys_where_some_cells_count_as_unlabeled(self, make_cells, fast, kind):
        adata = labeled(make_cells, kind)
        adata.uns[KEY] = ["#111111", "#222222", "#333333"]
        colors = label_colors(adata, "cell_type")
        ce.tl.centroid_encoder(
            adata, "cell_type", unlabeled_category="a", model=fast, progress=False
        )
        # The category has a colour of its own, and the others keep theirs.
        result = read_result(adata, "ce")
        assert class_colors(adata, result, None) == colors
        assert drawn(adata) == [colors[name] for name in result.classes]
        assert adata.uns[KEY] == ["#111111", "#222222", "#333333"]
        selection = adata[adata.obs["cell_type"] != "a"].copy()
        assert drawn(selection) == drawn(adata)

    def test_are_stored_ones_as_hex(self, cells):
        cells.uns[KEY] = np.array(["#111111", "red", "0.5", "g"], dtype=object)
        expected = ["#111111", "#ff0000", to_hex("0.5")]
        assert list(label_colors(cells, "cell_type").values()) == expected

    @pytest.mark.parametrize("stored", [["#111111"], ["#111111", "no colour", "#222222"], []])
    def test_are_new_where_the_stored_ones_do_not_fit(self, cells, unchanged, stored):
        cells.uns[KEY] = stored
        with unchanged(cells):
            colors = label_colors(cells, "cell_type")
        assert list(colors.values()) == default_palette(3)

    def test_may_come_from_a_palette(self, cells):
        cells.uns[KEY] = ["#111111", "#222222", "#333333"]
        assert list(label_colors(cells, "cell_type", ["r", "lime", "b"]).values()) == [
            "#ff0000",
            "#00ff00",
            "#0000ff",
        ]
        with pytest.raises(ValueError, match="palette has no colour for type 2"):
            label_colors(cells, "cell_type", {"type 0": "r", "type 1": "g"})

    def test_need_the_column(self, cells):
        with pytest.raises(KeyError, match=r"no column 'cell_typ'.*cell_type"):
            label_colors(cells, "cell_typ")


class TestSettingAColour:
    @pytest.mark.parametrize("kind", KINDS)
    def test_keeps_the_others(self, make_cells, kind):
        adata = labeled(make_cells, kind)
        before = label_colors(adata, "cell_type")
        category = KINDS[kind][1]
        set_label_color(adata, "cell_type", category, "gold")
        assert adata.uns[KEY] == list(label_colors(adata, "cell_type").values())
        assert label_colors(adata, "cell_type") == before | {category: "#ffd700"}

    def test_is_seen_by_the_figure_and_by_scanpy(self, three):
        set_label_color(three, "cell_type", "type 1", "#123456")
        assert drawn(three)[1] == "#123456"
        sc.pl.embedding(three, "ce", color="cell_type", show=False)
        assert three.uns[KEY][1] == "#123456"

    def test_mends_stored_colours_that_do_not_fit(self, cells):
        cells.uns[KEY] = ["#111111"]
        set_label_color(cells, "cell_type", "type 0", "k")
        assert cells.uns[KEY] == ["#000000", *default_palette(3)[1:]]

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


def test_colours_may_be_numbers(three):
    three.uns[KEY] = [(1, 0, 0), (0.0, 1.0, 0.0), (0, 0, 1)]
    assert drawn(three) == ["#ff0000", "#00ff00", "#0000ff"]
    three.uns[KEY] = np.eye(3)
    assert drawn(three) == ["#ff0000", "#00ff00", "#0000ff"]

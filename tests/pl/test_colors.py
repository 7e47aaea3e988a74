"""Class colours: one palette for this package, scanpy and napari."""

from __future__ import annotations

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
import scanpy as sc
from cycler import cycler
from matplotlib.colors import ListedColormap, to_hex, to_rgb
from skimage.color import deltaE_ciede2000, rgb2lab

import centroid_encoder as ce
from centroid_encoder.pl._colors import class_colors, default_palette, label_colors, set_label_color
from centroid_encoder.tl._result import read_result

KEY = "cell_type_colors"
OKABE_ITO = ["#e69f00", "#56b4e9", "#009e73", "#f0e442", "#0072b2", "#d55e00", "#cc79a7"]


def drawn(adata, **kwargs) -> list[str]:
    """Colours of the regions, in the order of the classes."""
    ax = ce.pl.regions(adata, regions="voronoi", show=False, **kwargs)
    return [to_hex(p.get_facecolor()) for p in ax.patches if p.get_facecolor()[3] > 0]


@pytest.fixture
def three(embed):
    return embed(3)


def test_stored_colours_are_used_if_they_fit(three):
    three.uns[KEY] = ["#111111", "red", "#333333"]
    assert drawn(three) == ["#111111", "#ff0000", "#333333"]
    assert three.uns[KEY] == ["#111111", "red", "#333333"]
    for stored in (["#111111"], ["#111111", "#222222", "no colour"], []):
        three.uns[KEY] = stored
        assert drawn(three) == OKABE_ITO[:3] == three.uns[KEY]


def test_default_colours_differ_from_each_other_and_from_greys_and_pages():
    assert default_palette(7) == OKABE_ITO
    # White, the canvas of napari's dark theme, and the greys of unlabeled cells.
    pages = ["#ffffff", "#262930", "#000000", "lightgray", "dimgray"]
    lab = rgb2lab([to_rgb(color) for color in (*default_palette(20), *pages)])
    one, other = np.triu_indices(len(lab), 1)
    assert deltaE_ciede2000(lab[one], lab[other])[one < 20].min() > 8


@pytest.mark.parametrize("scanpys", [False, True])
def test_scanpy_reads_the_colours_also_with_its_figure_settings(three, scanpys):
    with plt.rc_context():
        if scanpys:
            sc.set_figure_params()
        assert drawn(three) == OKABE_ITO[:3]
        sc.pl.embedding(three, "ce", color="cell_type", show=False)
    assert three.uns[KEY] == OKABE_ITO[:3]


@pytest.mark.parametrize(
    ("palette", "expected"),
    [
        ("Set2", ["#66c2a5", "#fc8d62", "#8da0cb"]),
        ("viridis", ["#440154", "#21918c", "#fde725"]),
        (("#ff0000", "lime", "b", "k"), ["#ff0000", "#00ff00", "#0000ff"]),
        (
            {"type 1": "lime", "type 0": "#ff0000", "type 2": "b", "absent": "k"},
            ["#ff0000", "#00ff00", "#0000ff"],
        ),
        (mpl.colormaps["Set2"], ["#66c2a5", "#fc8d62", "#8da0cb"]),
        (mpl.colormaps["viridis"], ["#440154", "#21918c", "#fde725"]),
        (ListedColormap([(1, 0, 0), (0, 1, 0), (0, 0, 1)]), ["#ff0000", "#00ff00", "#0000ff"]),
        (cycler(color=["#ff0000", "lime", "b"]), ["#ff0000", "#00ff00", "#0000ff"]),
        (np.eye(3), ["#ff0000", "#00ff00", "#0000ff"]),
    ],
)
def test_a_palette_may_be_a_colour_map_a_list_a_dict_or_a_cycler(three, palette, expected):
    three.uns[KEY] = ["#111111", "#222222", "#333333"]
    assert drawn(three, palette=palette) == expected == three.uns[KEY]
    three.uns[KEY] = ["#111111", "#222222", "#333333"]
    ce.pl.regions(three, palette=palette)
    assert three.uns[KEY] == expected


@pytest.mark.parametrize(
    ("palette", "words"),
    [
        (["r", "g"], "palette has 2 colours for 3 classes"),
        ({"type 0": "r"}, "palette has no colour for type 1, type 2"),
        (["r", "g", "bleu"], "'bleu', which is no colour"),
        ({"type 0": "r", "type 1": "g", "type 2": 7}, "7, which is no colour"),
        ("Set22", "'Set22' is no matplotlib colour map"),
        (mpl.colormaps["Set2"].resampled(2), "palette has 2 colours for 3 classes"),
        (cycler(linewidth=[1, 2, 3]), "palette has 0 colours for 3 classes"),
    ],
)
def test_a_palette_that_does_not_fit_is_an_error(three, unchanged, palette, words):
    with unchanged(three), pytest.raises(ValueError, match=words):
        drawn(three, palette=palette)


def test_a_palette_of_another_type_is_an_error(three, unchanged):
    with unchanged(three), pytest.raises(TypeError, match="palette must be a colour map"):
        drawn(three, palette=3)


KINDS = {
    "category": (lambda labels: labels, ["c", "a", "b"]),
    "string": (lambda labels: labels.astype(object), ["a", "b", "c"]),
    "integer": (lambda labels: 10 * labels.cat.codes.astype(int), [0, 10, 20]),
    "gaps": (lambda labels: labels.cat.codes.where(labels.index != "cell3"), [0, 1, 2]),
    "boolean": (lambda labels: labels.cat.codes == 1, [False, True]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_colours_of_a_column_are_the_same_after_a_training(make_cells, fast, unchanged, kind):
    adata = make_cells(3, names=["c", "a", "b"])
    convert, categories = KINDS[kind]
    adata.obs["cell_type"] = convert(adata.obs["cell_type"])
    with unchanged(adata):
        before = label_colors(adata, "cell_type")
    assert list(before) == categories
    assert {type(name) for name in before} == {type(name) for name in categories}
    assert list(before.values()) == default_palette(len(before))
    ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)
    assert class_colors(adata, read_result(adata, "ce"), None) == before
    assert drawn(adata) == list(before.values())
    set_label_color(adata, "cell_type", categories[1], "gold")
    assert label_colors(adata, "cell_type") == before | {categories[1]: "#ffd700"}


def test_a_category_that_counts_as_unlabeled_keeps_its_colour(make_cells, fast):
    adata = make_cells(3, names=["a", "b", "c"])
    adata.obs["cell_type"] = adata.obs["cell_type"].astype(object)
    adata.uns[KEY] = ["#111111", "#222222", "#333333"]
    ce.tl.centroid_encoder(adata, "cell_type", unlabeled_category="a", model=fast, progress=False)
    assert drawn(adata) == ["#222222", "#333333"]
    assert adata.uns[KEY] == ["#111111", "#222222", "#333333"]
    selection = adata[adata.obs["cell_type"] != "a"].copy()
    assert drawn(selection) == drawn(adata)


@pytest.mark.parametrize("stored", [None, ["red", "#56b4e9", "#e69f00"]])
def test_a_class_without_cells_keeps_its_colour(three, stored):
    if stored is not None:
        three.uns[KEY] = stored
    before = drawn(three)
    assert len({*before}) == 3
    for name in three.obs["cell_type"].cat.categories:
        selection = three[three.obs["cell_type"] != name]
        assert drawn(selection) == drawn(selection.copy()) == before


def test_a_class_without_cells_or_a_known_colour_has_one_of_its_own(three):
    three.uns[KEY] = ["red", "#56b4e9", "#e69f00"]
    selection = three[three.obs["cell_type"] != "type 0"].copy()
    assert drawn(selection)[1:] == three.uns[KEY][1:]
    assert len({*drawn(selection)}) == 3


def test_predicted_classes_have_the_colours_of_their_labels(make_cells, fast):
    """scanpy draws the columns of labels, of predictions and of a cross-validation alike."""
    adata = make_cells(3, names=["a", "none", "c"])
    kept = [adata.obs["cell_type"].cat.categories.get_loc(name) for name in "ac"]
    columns = ["ce_label_colors", "ce_cv_label_colors"]
    options = {"unlabeled_category": "none", "model": fast, "progress": False}

    def check() -> None:
        expected = [to_hex(adata.uns["cell_type_colors"][i]) for i in kept]
        assert [list(adata.uns[column]) for column in columns] == [expected] * 2

    ce.tl.centroid_encoder(adata, "cell_type", **options)
    assert not any(name.endswith("_colors") for name in adata.uns)
    adata.uns["cell_type_colors"] = np.array(["#ff0000", "#00ff00", "#0000ff"])
    for tool in (ce.tl.centroid_encoder, ce.tl.cross_validate):
        tool(adata, "cell_type", **options)
    check()
    ce.pl.voronoi(adata, palette=["#111111", "#222222", "#333333"], show=False)
    check()
    set_label_color(adata, "cell_type", "c", "gold")
    check()
    query = adata[:30].copy()
    query.uns.clear()
    ce.tl.ingest(query, adata, progress=False)
    assert list(query.uns["ce_label_colors"]) == list(adata.uns["ce_label_colors"])

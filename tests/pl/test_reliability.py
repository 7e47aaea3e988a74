"""The page has all results, and texts instead of missing figures."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

import centroid_encoder as ce
from centroid_encoder.tl._result import StoredCrossValidation
from centroid_encoder.tl._summary import summary


def draw(adata: Any, **kwargs: Any) -> Figure:
    return ce.pl.reliability(adata, show=False, **kwargs)


def titles(figure: Figure) -> list[str]:
    return [ax.get_title().split("\n")[0] for ax in figure.axes if ax.get_title()]


def words(figure: Figure) -> list[str]:
    (ax,) = (ax for ax in figure.axes if ax.texts and not ax.axison)
    (text,) = ax.texts
    lines = text.get_text().replace("\u00a0", " ").split("\n\n")
    return [line.replace("\n", " ") for line in lines]


def absent(figure: Figure) -> list[str]:
    """Texts instead of figures."""
    empty = [ax for ax in figure.axes if ax.axison and not ax.get_title()]
    return [text.get_text().replace("\n", " ") for ax in empty for text in ax.texts]


def assert_legible(figure: Figure) -> None:
    """All texts are on the page, and no two figures overlap."""
    figure.canvas.draw()
    boxes = [ax.get_tightbbox() for ax in figure.axes if ax.axison]
    boxes += [ax.texts[0].get_window_extent() for ax in figure.axes if not ax.axison]
    for i, box in enumerate(boxes):
        assert figure.bbox.x0 - 1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1
        assert figure.bbox.y0 - 1 <= box.y0 < box.y1 <= figure.bbox.y1 + 1
        assert not any(box.shrunk(0.99, 0.99).overlaps(other) for other in boxes[:i])


def test_the_page_has_all_results(embed, validate):
    adata = validate(embed())
    figure = draw(adata)
    error = f"{100 * adata.uns['ce']['quality']['test']['voronoi_error']:.1f} %"
    assert titles(figure) == [
        "training cells (n = 96)",
        f"held-out Voronoi error {error} (n = 24, too few to tell)",
        "out-of-fold labels, 5 folds, n = 120",
        "out-of-fold labels, 5 folds, n = 120",
        "p = 0.01 (99 permutations, the smallest possible)",
    ]
    assert absent(figure) == []
    assert words(figure) == summary(adata, "ce")
    assert_legible(figure)


def test_the_page_of_repeats_says_which_numbers_are_those_of_one_map(embed, validate):
    """Errors are means over the repeats; predicted classes follow from all repeats together."""
    adata = validate(embed())
    stored = StoredCrossValidation.read(adata, "ce")
    params = {**stored.params, "n_repeats": 2}
    adata.uns["ce_cv"] = replace(stored, params=params).to_uns()
    figure = draw(adata)
    words_of_both = "out-of-fold labels of all repeats, 5 folds × 2 repeats, n = 120"
    assert titles(figure)[2:4] == [words_of_both, words_of_both]
    assert words(figure)[1].startswith("Cross-validated error of one map ")
    assert_legible(figure)


def test_long_titles_do_not_reach_the_next_figure(embed, validate):
    adata = validate(embed())
    stored = StoredCrossValidation.read(adata, "ce")
    params = {**stored.params, "n_repeats": 2, "group_key": "sample of donor"}
    adata.obs["sample of donor"] = [f"s{i % 6}" for i in range(adata.n_obs)]
    adata.uns["ce_cv"] = replace(stored, params=params).to_uns()
    figure = draw(adata)
    figure.canvas.draw()
    boxes = [ax.title.get_window_extent() for ax in figure.axes if ax.get_title()][2:]
    assert len(boxes) == 3
    for box, other in pairwise(boxes):
        assert box.x1 < other.x0


def test_texts_replace_missing_figures(embed, cells, validate):
    figure = draw(embed(test_size=0))
    assert titles(figure) == ["training cells (n = 120)"]
    assert len(absent(figure)) == 3
    assert_legible(figure)
    figure = draw(validate(cells))
    assert absent(figure) == ["There is no map yet."]
    assert len(titles(figure)) == 3
    assert words(figure)[0].startswith("Cross-validated")
    assert_legible(figure)


def test_forty_long_names_leave_room_for_the_maps(embed):
    names = [f"CD4-positive, alpha-beta memory T cell (effector) {i}" for i in range(40)]
    figure = draw(embed(40, n_obs=400, names=names))
    assert_legible(figure)
    sides = [ax.get_window_extent().size / figure.dpi for ax in figure.axes[:2]]
    assert np.min(sides) > 3  # inches
    ends = [text.get_text()[-2:] for text in figure.axes[1].get_legend().get_texts()]
    assert ends == [name[-2:] for name in names]


def test_a_legend_of_one_column_is_not_higher_than_the_maps(embed):
    names = [f"CD4-positive, memory T cell {i}" for i in range(25)]
    figure = draw(embed(25, n_obs=250, names=names))
    assert_legible(figure)
    sides = [ax.get_window_extent().size / figure.dpi for ax in figure.axes[:2]]
    assert np.min(sides) > 3  # inches


@pytest.mark.slow
def test_a_hundred_classes_are_legible(make_cells, validate, fast):
    adata = make_cells(100, 1000, names=[f"a rather long class name {i}" for i in range(100)])
    ce.tl.centroid_encoder(adata, "cell_type", model=fast, progress=False)
    figure = draw(validate(adata))
    assert all(ax.get_legend() is None and len(ax.texts) > 20 for ax in figure.axes[:2])
    assert_legible(figure)


def test_the_text_names_the_classes_with_most_errors(make_cells, validate):
    adata = validate(make_cells(5))
    table = adata.uns["ce_cv"]["per_class"]
    table["voronoi_error"] = [0.21, 0.05, 0.9, 1.0, 0.4]
    also = "% of 24 cells wrong, 95 % interval 0.0 to 100.0 %"
    worst = (f"type {i} ({n} {also})" for i, n in ((3, 100), (2, 90), (4, 40)))
    assert f"Least reliable: {', '.join(worst)} and 1 more." in summary(adata, "ce")
    table["voronoi_error"] = 0.2
    assert not any("Least" in sentence for sentence in summary(adata, "ce"))

"""The confusion matrix: stored counts, legible for 2 and for 100 classes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from numpy.testing import assert_allclose, assert_array_equal

import centroid_encoder as ce


def draw(adata: Any, **kwargs: Any) -> Axes:
    return ce.pl.confusion(adata, show=False, **kwargs)


def squares(ax: Axes) -> np.ndarray:
    (image,) = ax.images
    return np.ma.filled(image.get_array().astype(float), np.nan)


def written(ax: Axes) -> dict[tuple[int, int], str]:
    """Row, column and text of the squares with one."""
    return {text.get_position()[::-1]: text.get_text() for text in ax.texts}


def names(labels: Any) -> list[str]:
    return [label.get_text() for label in labels]


def with_table(adata: ad.AnnData, table: Any) -> ad.AnnData:
    adata.uns["ce_cv"]["confusion"] = np.array(table)
    return adata


@pytest.fixture
def validated(cells, validate):
    """Twelve cells of each class; a and c are confused with each other, and b is not."""
    cells.obs["cell_type"] = cells.obs["cell_type"].cat.rename_categories(["a", "b", "c"])
    return with_table(validate(cells), [[9, 0, 3], [0, 12, 0], [6, 0, 6]])


def test_squares_are_shares_of_the_true_class_or_counts(validated):
    ax = draw(validated, order="category")
    assert_allclose(squares(ax), [[75, 0, 25], [0, 100, 0], [50, 0, 50]])
    shares = {(0, 0): "75", (0, 2): "25", (1, 1): "100", (2, 0): "50", (2, 2): "50"}
    assert written(ax) == shares
    assert ax.child_axes[0].get_ylabel() == "share of the true class (%)"
    assert ax.get_title() == "out-of-fold labels, 5 folds, n = 36\n75.0 % right"
    # Shares are rounded neither to 0 nor to 100.
    table = [[9_990, 10, 0], [0, 5, 0], [1, 6, 993]]
    ax = draw(with_table(validated, table), order="category")
    shares = {(0, 0): ">99", (0, 1): "<1", (1, 1): "100", (2, 0): "<1", (2, 1): "1", (2, 2): "99"}
    assert written(ax) == shares
    ax = draw(validated, order="category", counts=True)
    assert_allclose(squares(ax), table)
    assert written(ax)[0, 0] == "9,990"
    assert ax.child_axes[0].get_ylabel() == "cells"
    assert ax.images[0].norm.vmax == 9_990


def test_confused_classes_stand_side_by_side(make_cells, validate):
    adata = validate(make_cells(6, names=list("abcdef")))
    table = 20 * np.eye(6, dtype=int)
    for one, other in ((0, 3), (3, 5), (1, 4)):
        table[one, other] = table[other, one] = 6
    ax = draw(with_table(adata, table))
    order = "".join(names(ax.get_xticklabels()))
    assert [name[0] for name in names(ax.get_yticklabels())] == list(order)
    for pair in ("ad", "df", "be"):
        assert pair in order or pair[::-1] in order
    # The squares are in the order of the names.
    own = table.diagonal() / table.sum(axis=1)
    assert_allclose(squares(ax).diagonal(), [100 * own["abcdef".index(n)] for n in order])


def test_without_a_cross_validation_the_held_out_cells_are_counted(embed):
    adata = embed(unlabeled=12)
    ax = draw(adata, counts=True, order="category")
    test = adata.obs["ce_split"] == "test"
    expected = pd.crosstab(adata.obs["cell_type"][test], adata.obs["ce_label"][test])
    assert_array_equal(squares(ax), expected.reindex(columns=expected.index, fill_value=0))
    quality = adata.uns["ce"]["quality"]["test"]
    right = 100 * (1 - quality["voronoi_error"])
    assert ax.get_title() == f"held-out cells, n = {quality['n']}\n{right:.1f} % right"
    assert " of 22\n" in draw(adata[adata.obs["cell_type"] != "type 1"]).get_title()


def test_titles_have_the_share_that_was_right_before_labels_changed(embed):
    adata = embed(unlabeled=12)
    right = 100 * (1 - adata.uns["ce"]["quality"]["test"]["voronoi_error"])
    assert right < 100
    adata.obs["cell_type"] = adata.obs["ce_label"]
    for plot in (ce.pl.confusion, ce.pl.calibration):
        title = plot(adata, show=False).get_title()
        assert title.startswith(f"held-out cells ({right:.1f} % right before labels changed), n =")
    assert "100.0 % right" in draw(adata).get_title()
    assert "before" not in draw(adata[adata.obs["cell_type"] != "type 1"]).get_title()


def test_names_are_not_read_as_formulas_and_are_shortened(make_cells, validate):
    of_class = ["_hidden", "$no_maths$", "100 $", "terminally differentiated T cell, subset 1"]
    ax = draw(validate(make_cells(4, names=of_class)), order="category")
    ax.figure.canvas.draw()
    assert names(ax.get_xticklabels()) == [*of_class[:3], "terminally diffe…subset 1"]


@pytest.mark.parametrize(("n_classes", "given"), [(60, False), (10, True)])
def test_names_never_overlap(make_cells, validate, n_classes, given):
    adata = validate(make_cells(n_classes, n_obs=6 * n_classes))
    given = plt.subplots(figsize=(5, 4), layout="constrained")[1] if given else None
    ax = draw(adata, ax=given)
    ax.figure.canvas.draw()
    assert ax.bbox.width == pytest.approx(ax.bbox.height), "squares"
    for labels, side in ((ax.get_yticklabels(), "y"), (ax.get_xticklabels(), "x")):
        boxes = [label.get_window_extent() for label in labels]
        ends = sorted((getattr(b, f"{side}0"), getattr(b, f"{side}1")) for b in boxes)
        assert len(ends) > 1
        # The box of a text is a little higher than its letters.
        assert all(end < start + 2 for (_, end), (start, _) in pairwise(ends))
    assert bool(ax.texts) == (n_classes <= 10)
    for text in ax.texts:
        assert max(text.get_window_extent().size) < ax.bbox.width / n_classes

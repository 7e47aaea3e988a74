"""Which classes are taken for which: the counts that are stored, legible for 2 as for 100."""

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
    return ce.pl.confusion(adata, **({"show": False} | kwargs))


def squares(ax: Axes) -> np.ndarray:
    (image,) = ax.images
    return np.ma.filled(image.get_array().astype(float), np.nan)


def written(ax: Axes) -> dict[tuple[int, int], str]:
    """Row, column and text of the squares with one."""
    return {(text.get_position()[1], text.get_position()[0]): text.get_text() for text in ax.texts}


def rows(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_yticklabels()]


def columns(ax: Axes) -> list[str]:
    return [label.get_text() for label in ax.get_xticklabels()]


def with_table(adata: ad.AnnData, table: list[list[int]]) -> ad.AnnData:
    adata.uns["ce_cv"]["confusion"] = np.array(table)
    return adata


@pytest.fixture
def validated(cells, validate):
    """A is taken for c, and b for nothing else; twelve cells of each were counted."""
    cells.obs["cell_type"] = cells.obs["cell_type"].cat.rename_categories(["a", "b", "c"])
    return with_table(validate(cells), [[9, 0, 3], [0, 12, 0], [6, 0, 6]])


class TestSquares:
    def test_are_shares_of_the_true_class(self, validated):
        ax = draw(validated, order="category")
        assert_allclose(squares(ax), [[75, 0, 25], [0, 100, 0], [50, 0, 50]])
        assert written(ax) == {
            (0, 0): "75",
            (0, 2): "25",
            (1, 1): "100",
            (2, 0): "50",
            (2, 2): "50",
        }
        assert ax.child_axes[0].get_ylabel() == "share of the true class (%)"
        assert ax.get_title() == "out-of-fold labels, 5 folds, n = 36\n75.0 % right"
        assert (ax.get_xlabel(), ax.get_ylabel()) == (
            "predicted class",
            "true class (number of cells)",
        )

    def test_are_counts_on_request(self, validated):
        table = [[9_000, 0, 1_234], [0, 12, 0], [6, 0, 6]]
        ax = draw(with_table(validated, table), order="category", counts=True)
        assert_allclose(squares(ax), table)
        assert written(ax)[0, 2] == "1,234"
        assert ax.child_axes[0].get_ylabel() == "cells"
        assert ax.images[0].norm.vmax == 9_000

    def test_never_round_to_none_or_to_all(self, validated):
        ax = draw(with_table(validated, [[999, 1, 0], [0, 5, 0], [1, 6, 993]]), order="category")
        assert written(ax)[0, 0] == ">99"
        assert written(ax)[0, 1] == written(ax)[2, 0] == "<1"
        assert written(ax)[1, 1] == "100"

    def test_of_classes_without_cells_are_grey_and_last(self, validated):
        with_table(validated, [[0, 0, 0], [2, 8, 0], [0, 5, 5]])
        for counts in (False, True):
            ax = draw(validated, counts=counts)
            assert rows(ax) == ["b (10)", "c (10)", "a (0)"]
            assert np.isnan(squares(ax)[2]).all()
            assert np.isfinite(squares(ax)[:2]).all()
            assert_allclose(ax.images[0].cmap.get_bad()[:3], plt.cm.colors.to_rgb("lightgray"))
            assert not any(row == 2 for row, _ in written(ax))

    @pytest.mark.parametrize("style", ["default", "dark_background"])
    def test_have_legible_texts_on_any_page(self, validated, style):
        with plt.style.context(style):
            ax = draw(validated, order="category")
        image = ax.images[0]
        assert_allclose(image.cmap(0.0)[:3], ax.get_facecolor()[:3], err_msg="nothing is the page")
        for text in ax.texts:
            column, row = text.get_position()
            luminance = np.dot(image.to_rgba(image.get_array()[row, column])[:3], [0.3, 0.59, 0.11])
            assert abs(luminance - (text.get_color() == "white")) > 0.4

    def test_all_right_and_all_wrong(self, validated):
        ax = draw(with_table(validated, np.diag([3, 4, 5]).tolist()))
        assert ax.get_title().endswith("\n100.0 % right")
        assert rows(ax) == ["a (3)", "b (4)", "c (5)"], "nothing is confused: the given order"
        ax = draw(with_table(validated, [[0, 3, 0], [0, 0, 4], [5, 0, 0]]))
        assert ax.get_title().endswith("\n0.0 % right")
        assert set(written(ax).values()) == {"100"}


class TestOrder:
    def test_puts_side_by_side_what_is_confused(self, make_cells, validate):
        adata = validate(make_cells(6, names=list("abcdef")))
        table = 20 * np.eye(6, dtype=int)
        for one, other in ((0, 3), (3, 5), (1, 4)):
            table[one, other] = table[other, one] = 6
        ax = draw(with_table(adata, table.tolist()))
        order = "".join(name[0] for name in rows(ax))
        assert set(order) == set("abcdef")
        for pair in ("ad", "df", "be"):
            assert pair in order or pair[::-1] in order
        assert [name[0] for name in rows(ax)] == columns(ax)
        # The squares have moved with their names.
        assert_allclose(
            squares(ax).diagonal(),
            100 * table.diagonal() / table.sum(axis=1)[["abcdef".index(name) for name in order]],
        )

    def test_is_that_of_the_label_on_request(self, validated):
        validated.obs["cell_type"] = validated.obs["cell_type"].cat.set_categories(["c", "b", "a"])
        ax = draw(validated, order="category")
        assert columns(ax) == ["c", "b", "a"]

    def test_must_be_known(self, validated):
        with pytest.raises(ValueError, match=r"order must be one of .* got 'size'"):
            draw(validated, order="size")


class TestHeldOutCells:
    def test_are_counted_where_nothing_was_cross_validated(self, embed):
        adata = embed(unlabeled=12)
        ax = draw(adata, counts=True, order="category")
        test = adata.obs["ce_split"] == "test"
        expected = pd.crosstab(adata.obs["cell_type"][test], adata.obs["ce_label"][test])
        assert_array_equal(squares(ax), expected.reindex(columns=expected.index, fill_value=0))
        right = 100 * (1 - adata.uns["ce"]["quality"]["test"]["decoder_error"])
        n = adata.uns["ce"]["quality"]["test"]["n"]
        assert ax.get_title() == f"held-out cells, n = {n}\n{right:.1f} % right"

    def test_yield_to_the_out_of_fold_ones(self, embed, validate):
        assert (
            draw(validate(embed())).get_title().startswith("out-of-fold labels, 5 folds, n = 120")
        )

    def test_of_a_selection_are_said_to_be_one(self, embed):
        adata = embed()
        view = adata[adata.obs["cell_type"] != "type 1"]
        ax = draw(view)
        assert ax.get_title().startswith("held-out cells, n = 16 of 24\n")
        assert rows(ax)[-1] == "type 1 (0)"
        assert view.is_view

    def test_must_be_there(self, embed, unchanged):
        adata = embed(test_size=0)
        with (
            unchanged(adata),
            pytest.raises(
                ValueError, match=r"no cell was held out.*validate\(adata, 'cell_type'\)"
            ),
        ):
            draw(adata)
        adata = embed()
        with pytest.raises(ValueError, match="none of the held-out cells is in this selection"):
            draw(adata[adata.obs["ce_split"] == "train"])


@pytest.mark.parametrize(
    ("kwargs", "words"),
    [
        ({}, "5 folds"),
        ({"n_folds": 3, "n_repeats": 2}, "3 folds × 2 repeats"),
        ({"group_key": "$donor$"}, "5 folds by $donor$"),
    ],
)
def test_says_how_it_was_validated(cells, validate, kwargs, words):
    ax = draw(validate(cells, **kwargs))
    assert ax.get_title().startswith(f"out-of-fold labels, {words}, n = 120\n")
    assert not ax.title.get_parse_math()
    assert draw(cells, title="mine").get_title() == "mine"


class TestNames:
    @pytest.mark.parametrize("labels", [np.arange(120) % 4, np.arange(120) % 2 == 1], ids=str)
    @pytest.mark.parametrize("on_disk", [False, True])
    def test_can_be_numbers_and_truth_values(self, cells, validate, labels, on_disk, tmp_path):
        cells.obs["cell_type"] = labels
        validate(cells)
        if on_disk:
            cells.write_h5ad(tmp_path / "cells.h5ad")
            cells = ad.read_h5ad(tmp_path / "cells.h5ad")
        ax = draw(cells, order="category")
        assert columns(ax) == [str(value) for value in np.unique(labels)]
        assert ax.get_title().startswith("out-of-fold labels, 5 folds, n = 120\n")

    def test_odd_ones_are_written_as_they_are(self, make_cells, validate):
        names = ["_hidden", "$no_maths$", "100 $", " "]
        ax = draw(validate(make_cells(4, names=names)), order="category")
        ax.figure.canvas.draw()
        assert columns(ax) == names

    @pytest.mark.parametrize("font_size", [8, 10, 14])
    def test_long_ones_lose_their_middle_and_lie_in_the_figure(
        self, make_cells, validate, font_size
    ):
        names = [f"terminally differentiated effector memory T cell, subset {i}" for i in range(8)]
        with plt.rc_context({"font.size": font_size, "axes.grid": True}):
            ax = draw(validate(make_cells(8, names=names)))
        assert len(set(columns(ax))) == 8
        assert all(len(name) <= 30 and "…" in name for name in columns(ax))
        assert_inside(ax)

    @pytest.mark.parametrize(
        ("n_classes", "given"),
        [*((n, False) for n in (2, 30, 60, 250)), *((n, True) for n in (3, 10, 30, 100))],
    )
    def test_never_overlap(self, make_cells, validate, n_classes, given):
        adata = validate(make_cells(n_classes, n_obs=6 * n_classes))
        kwargs: dict[str, Any] = {}
        if given:
            _, kwargs["ax"] = plt.subplots(figsize=(5, 4), layout="constrained")
        ax = draw(adata, **kwargs)
        ax.figure.canvas.draw()
        assert_inside(ax)
        for labels, side in ((ax.get_yticklabels(), "y"), (ax.get_xticklabels(), "x")):
            boxes = sorted(
                (getattr(label.get_window_extent(), f"{side}0"), label) for label in labels
            )
            assert len(boxes) > 1
            for (_, one), (start, _) in pairwise(boxes):
                # A line of text is a little less high than its box.
                assert getattr(one.get_window_extent(), f"{side}1") < start + 2
        assert bool(ax.texts) == (n_classes <= (10 if given else 30))
        for text in ax.texts:
            width, height = text.get_window_extent().size
            assert max(width, height) < ax.bbox.width / n_classes


def assert_inside(ax: Axes) -> None:
    ax.figure.canvas.draw()
    whole, drawn = ax.figure.bbox, ax.get_tightbbox()
    assert whole.x0 <= drawn.x0 < drawn.x1 <= whole.x1
    assert whole.y0 <= drawn.y0 < drawn.y1 <= whole.y1
    assert ax.bbox.width == pytest.approx(ax.bbox.height), "squares"
    if ax.figure.get_layout_engine() is None:
        # And no more than a margin around it.
        assert_allclose(drawn.size, whole.size, atol=0.21 * ax.figure.dpi)


class TestErrors:
    def test_name_the_call_to_make_first(self, cells, unchanged):
        with unchanged(cells), pytest.raises(KeyError, match=r"run ce.tl.centroid_encoder\(adata"):
            draw(cells)

    def test_leave_no_figure(self, embed):
        with pytest.raises(ValueError, match="no cell was held out"):
            draw(embed(test_size=0))
        assert not plt.get_fignums()


def test_changes_nothing(embed, validate, unchanged):
    adata = validate(embed(unlabeled=5))
    with unchanged(adata):
        draw(adata)
        draw(adata, counts=True, order="category")

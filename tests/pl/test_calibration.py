"""Confidence against truth: that the points, their bars and the words are those of the cells."""

from __future__ import annotations

import math
import re
from statistics import NormalDist
from typing import Any

import anndata as ad
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from numpy.testing import assert_allclose

import centroid_encoder as ce
from centroid_encoder.core.calibration import calibration_bins


def draw(adata: Any, **kwargs: Any) -> Axes:
    return ce.pl.calibration(adata, **({"show": False} | kwargs))


def points(ax: Axes) -> np.ndarray:
    """Confidence and share right, in per cent, of each bin."""
    (bars,) = ax.containers[1:] if len(ax.containers) > 1 else ax.containers
    return np.column_stack(bars.lines[0].get_data())


def intervals(ax: Axes) -> np.ndarray:
    (bars,) = (c for c in ax.containers if hasattr(c, "has_yerr"))
    (collection,) = bars.lines[2]
    return np.array([segment[:, 1] for segment in collection.get_segments()])


def wilson(share: np.ndarray, n: np.ndarray) -> np.ndarray:
    """By the formula, as in the textbook."""
    z = NormalDist().inv_cdf(0.975)
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return np.column_stack([middle - half, middle + half])


def bins(adata: ad.AnnData, n_bins: int = 10) -> tuple[np.ndarray, ...]:
    own = adata.obs["cell_type"].to_numpy() == adata.obs["ce_cv_label"].to_numpy()
    known = adata.obs["ce_cv_confidence"].notna().to_numpy()
    return calibration_bins(adata.obs["ce_cv_confidence"].to_numpy()[known], own[known], n_bins)


class TestPoints:
    @pytest.mark.parametrize("n_bins", [1, 4, 10, 500])
    def test_are_bins_of_equally_many_cells(self, cells, validate, n_bins):
        adata = validate(cells)
        mean, share, count = bins(adata, n_bins)
        ax = draw(adata, n_bins=n_bins)
        assert_allclose(points(ax), 100 * np.column_stack([mean, share]), rtol=1e-5)
        assert_allclose(intervals(ax), 100 * wilson(share, count), atol=1e-4)

    @pytest.mark.parametrize("share_right", [0.0, 1.0])
    def test_all_wrong_or_all_right_have_bars_of_some_length(self, cells, validate, share_right):
        ax = draw(validate(cells, share_right=share_right))
        assert_allclose(points(ax)[:, 1], 100 * share_right)
        low, high = intervals(ax).T
        assert (low >= 0).all()
        assert (high <= 100).all()
        assert (high - low > 10).all(), "twelve cells prove little"

    def test_of_one_confidence_are_one(self, cells, validate):
        ax = draw(validate(cells, confidence=np.full(120, 0.7)))
        assert_allclose(points(ax)[:, 0], [70], rtol=1e-5)

    @pytest.mark.parametrize("confidence", [0.0, 1.0, 1.0000001])
    def test_at_the_ends_are_drawn_whole(self, cells, validate, confidence):
        ax = draw(validate(cells, confidence=np.full(120, confidence)))
        ax.figure.canvas.draw()
        assert_allclose(points(ax)[:, 0], [round(100 * confidence)])
        assert ax.get_xlim()[0] <= round(100 * confidence) <= ax.get_xlim()[1]

    def test_leave_out_cells_without_confidence(self, cells, validate):
        confidence = np.random.default_rng(0).random(120)
        confidence[:30] = np.nan
        ax = draw(validate(cells, confidence=confidence))
        assert "n = 120, 90 shown" in ax.get_title()
        assert_allclose(points(ax), 100 * np.column_stack(bins(cells)[:2]), rtol=1e-5)

    def test_lie_in_the_diagram_and_nothing_is_cut_off(self, cells, validate):
        for low in (0.0, 0.34, 0.97):
            confidence = np.linspace(low, 1, 120)
            ax = draw(validate(cells, confidence=confidence, share_right=0.9))
            left, right = ax.get_xlim()
            assert left <= 100 * low
            assert right == 100
            assert intervals(ax).min() >= left
            diagonal = ax.lines[0]
            assert_allclose(diagonal.get_data(), [[left, 100], [left, 100]])


def test_the_histogram_counts_all_cells(cells, validate):
    confidence = np.repeat([0.55, 0.95], [30, 90])
    ax = draw(validate(cells, confidence=confidence))
    heights = np.array([bar.get_height() for bar in ax.patches])
    assert len(heights) == 20
    assert_allclose(sorted(heights[heights > 0] / heights.max()), [1 / 3, 1])
    tops = [bar.get_y() + bar.get_height() for bar in ax.patches]
    assert max(tops) < ax.get_xlim()[0], "it stands beneath the diagram"
    assert "cells (highest bar: 90)" in [text.get_text() for text in ax.texts]


class TestTitle:
    def test_gives_the_error_that_was_computed(self, cells, validate):
        assert draw(validate(cells)).get_title() == (
            "out-of-fold labels, 5 folds, n = 120\nexpected calibration error 1.2 points"
        )

    def test_gives_its_interval_where_one_was_stored(self, cells, validate):
        quality = validate(cells).uns["ce_cv"]["quality"]
        quality |= {"calibration_error_low": 0.004, "calibration_error_high": 0.031}
        assert draw(cells).get_title().endswith("calibration error 1.2 points (0.4 to 3.1)")

    @pytest.mark.parametrize("error", [np.nan, None])
    def test_says_nothing_where_none_was(self, cells, validate, error):
        validate(cells).uns["ce_cv"]["quality"]["calibration_error"] = error
        if error is None:
            del cells.uns["ce_cv"]["quality"]["calibration_error"]
        assert draw(cells).get_title() == "out-of-fold labels, 5 folds, n = 120"

    def test_can_be_replaced(self, cells, validate):
        assert draw(validate(cells), title="mine").get_title() == "mine"

    def test_tells_a_selection_of_cells_from_all(self, cells, validate):
        view = validate(cells)[:48]
        assert "n = 120, 48 shown" in draw(view).get_title()
        assert view.is_view


def test_held_out_cells_stand_in_where_nothing_was_cross_validated(embed, validate, forget):
    adata = forget(validate(embed(unlabeled=10)))
    ax = draw(adata, n_bins=3)
    n = adata.uns["ce"]["quality"]["test"]["n"]
    title = f"held-out cells, n = {n}\nexpected calibration error 2.3 points (0.0 to 4.4)"
    assert ax.get_title() == title
    test = adata.obs[adata.obs["ce_split"] == "test"]
    right = test["ce_label"].astype(str) == test["cell_type"].astype(str)
    mean, share, _ = calibration_bins(test["ce_confidence"].to_numpy(), right.to_numpy(), 3)
    assert_allclose(points(ax), 100 * np.column_stack([mean, share]), rtol=1e-5)


@pytest.mark.parametrize("labels", [np.arange(120) % 3, np.arange(120) % 2 == 1], ids=str)
def test_reads_what_has_been_on_disk(cells, validate, labels, tmp_path):
    cells.obs["cell_type"] = labels
    validate(cells)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    before, after = draw(cells), draw(ad.read_h5ad(tmp_path / "cells.h5ad"))
    assert_allclose(points(after), points(before))
    assert after.get_title() == before.get_title()


class TestErrors:
    def test_name_the_call_to_make_first(self, cells, unchanged):
        with unchanged(cells), pytest.raises(KeyError, match=r"run ce.tl.centroid_encoder\(adata"):
            draw(cells)

    def test_say_that_there_is_no_confidence(self, embed, cells, validate):
        adata = embed()
        adata.obs["ce_confidence"] = np.nan
        with pytest.raises(ValueError, match="no cell among the held-out cells has a confidence"):
            draw(adata)
        validate(cells, confidence=np.full(120, np.nan))
        with pytest.raises(ValueError, match=r"among the out-of-fold labels, .* has a confidence"):
            draw(cells)
        assert not plt.get_fignums()

    def test_say_what_is_gone(self, cells, validate):
        validate(cells)
        for column in ("ce_cv_label", "ce_cv_own", "cell_type"):
            rest = cells.copy()
            del rest.obs[column]
            with pytest.raises(KeyError, match=rf"obs\['{column}'\].* is gone"):
                draw(rest)

    def test_say_that_the_labels_have_changed(self, cells, validate):
        validate(cells)
        cells.obs["cell_type"] = cells.obs["cell_type"].cat.rename_categories({"type 1": "new"})
        with pytest.raises(ValueError, match=r"changed since the cross-validation: 'new' was not"):
            draw(cells)

    @pytest.mark.parametrize("n_bins", [0, -1, 10**12, 1001, 2.5, math.nan, None, "10"])
    def test_say_how_many_bins_there_can_be(self, n_bins, cells):
        # Before anything is read: there is no result here.
        said = f"n_bins must be a whole number from 1 to 1000; got {n_bins!r}"
        with pytest.raises(ValueError, match=re.escape(said)):
            draw(cells, n_bins=n_bins)
        assert not plt.get_fignums()


def test_changes_nothing(embed, validate, unchanged):
    adata = validate(embed(unlabeled=5))
    with unchanged(adata):
        draw(adata)

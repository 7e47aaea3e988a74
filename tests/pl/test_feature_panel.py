"""Errors of three judges against the number of features."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pytest
from numpy.testing import assert_allclose

import centroid_encoder as ce


@pytest.mark.parametrize("balanced", [False, True])
def test_errors_intervals_and_the_map_with_all_features_are_drawn(
    balanced: bool, cells: ad.AnnData, add_panel: Any
) -> None:
    table = add_panel(cells).uns["feature_panel"]["errors"]
    column = "balanced_error" if balanced else "error"
    ax = ce.pl.feature_panel(cells, balanced=balanced, show=False)
    assert ax.get_ylabel() == f"held-out {column.replace('_', ' ')} (%)"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["2", "5"]
    for container, judge in zip(ax.containers, ("map", "input_knn", "forest"), strict=True):
        line, _, (bars,) = container
        rows = table[(table["judge"] == judge) & (table["size"] < 8)]
        assert_allclose(line.get_ydata(), 100 * rows[column])
        ends = 100 * rows[[f"{column}_low", f"{column}_high"]].to_numpy()
        assert_allclose([segment[:, 1] for segment in bars.get_segments()], ends)
    assert ax.get_legend().get_texts()[-1].get_text() == "map, all 8 features"
    assert_allclose(ax.lines[-1].get_ydata(), 100 * table[column].iloc[-3])
    assert "cell_type, n = 120, 5 folds" in ax.get_title()
    assert np.ptp(ax.get_ylim()) > 0

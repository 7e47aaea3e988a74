"""The reliability diagram: its points, intervals and title are those of the cells."""

from __future__ import annotations

import math
import re
from statistics import NormalDist
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from numpy.testing import assert_allclose

import centroid_encoder as ce
from centroid_encoder.core.calibration import calibration_bins


def draw(adata: Any, **kwargs: Any) -> Axes:
    return ce.pl.calibration(adata, show=False, **kwargs)


def points(ax: Axes) -> tuple[np.ndarray, np.ndarray]:
    """Confidence, share of right predictions and interval of each bin, in per cent."""
    (bars,) = (one for one in ax.containers if isinstance(one, ErrorbarContainer))
    (segments,) = bars.lines[2]
    ends = np.array([segment[:, 1] for segment in segments.get_segments()])
    return np.column_stack(bars.lines[0].get_data()), ends


def wilson(share: np.ndarray, n: np.ndarray) -> np.ndarray:
    """(n, 2) ends of the 95 % intervals, by the formula of Wilson."""
    z = NormalDist().inv_cdf(0.975)
    middle = (share + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z / (1 + z**2 / n) * np.sqrt(share * (1 - share) / n + z**2 / (4 * n**2))
    return np.column_stack([middle - half, middle + half])


@pytest.mark.parametrize(("n_bins", "share_right"), [(1, 0.8), (4, 0.0), (10, 1.0), (500, 0.8)])
def test_points_are_bins_of_equally_many_cells(cells, validate, n_bins, share_right):
    obs = validate(cells, share_right=share_right).obs
    right = obs["cell_type"].to_numpy() == obs["ce_cv_label"].to_numpy()
    mean, share, bins = calibration_bins(obs["ce_cv_confidence"].to_numpy(), right, n_bins)
    drawn, ends = points(draw(cells, n_bins=n_bins))
    assert_allclose(drawn, 100 * np.column_stack([mean, share]), rtol=1e-5)
    assert_allclose(ends, 100 * wilson(share, np.bincount(bins)), atol=1e-4)


def test_the_title_gives_the_error_that_was_stored(cells, validate):
    quality = validate(cells).uns["ce_cv"]["quality"]
    title = "out-of-fold labels, 5 folds, n = 120\ncalibration error 1.2 points"
    assert draw(cells).get_title() == f"{title} (95 % interval 0.4 to 3.1)"
    quality["calibration_error_low"] = np.nan
    assert draw(cells).get_title() == title
    quality["calibration_error"] = np.nan
    assert draw(cells[:48]).get_title() == "out-of-fold labels, 5 folds, of all 120 cells, 48 shown"
    assert draw(cells, title="mine").get_title() == "mine"


def test_without_a_cross_validation_the_held_out_cells_are_drawn(embed):
    adata = embed(unlabeled=10)
    ax = draw(adata, n_bins=3)
    n = adata.uns["ce"]["quality"]["test"]["n"]
    assert ax.get_title().startswith(f"held-out cells, n = {n}\ncalibration error ")
    test = adata.obs[adata.obs["ce_split"] == "test"]
    right = test["ce_label"].astype(str) == test["cell_type"].astype(str)
    mean, share, _ = calibration_bins(test["ce_confidence"].to_numpy(), right.to_numpy(), 3)
    assert_allclose(points(ax)[0], 100 * np.column_stack([mean, share]), rtol=1e-5)


@pytest.mark.parametrize("n_bins", [0, 1001, 2.5, math.nan, None, "10"])
def test_the_number_of_bins_is_checked_first(n_bins, cells):
    said = f"n_bins must be a whole number from 1 to 1000; got {n_bins!r}"
    with pytest.raises(ValueError, match=re.escape(said)):
        draw(cells, n_bins=n_bins)
    assert not plt.get_fignums()

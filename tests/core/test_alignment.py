"""New samples on the scale of the training."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from centroid_encoder.core.alignment import Alignment
from centroid_encoder.core.standardization import Standardizer


@pytest.mark.parametrize("scale", ["supervised", "feature", "global"])
def test_means_and_spreads_become_those_of_the_training(scale):
    rng = np.random.default_rng(0)
    X = rng.normal(3, [1, 2, 5], size=(4000, 3))
    standardizer = Standardizer.fit(X, np.arange(4000), np.arange(4000) % 2, scale, 10, None)
    query = 7 * X - 2
    found = Alignment.fit(query, standardizer)(query)
    # Twenty samples' worth of the training's own is left.
    assert_allclose(found, X, atol=0.15)


def test_gaps_stay_and_a_few_samples_move_nothing():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 3))
    standardizer = Standardizer.fit(X, np.arange(100), np.arange(100) % 2, "feature", 10, None)
    query = X + 4
    query[:50, 1] = np.nan
    query[:, 2] = np.nan
    found = Alignment.fit(query, standardizer)(query)
    assert_allclose(np.isnan(found), np.isnan(query))
    assert abs(found[:, 0].mean() - X[:, 0].mean()) < 1
    one = query[:1, :1]
    narrow = Standardizer.fit(X[:, :1], np.arange(100), np.arange(100) % 2, "feature", 10, None)
    assert_allclose(Alignment.fit(one, narrow)(one), one, atol=0.5)

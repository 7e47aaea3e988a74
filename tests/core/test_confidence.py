from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from centroid_encoder.core.confidence import calibration_bins


@given(st.integers(1, 80), st.integers(1, 15), st.integers(0, 2**32 - 1), st.booleans())
@settings(max_examples=80, deadline=None)
def test_bins_part_all_predictions_whatever_their_order(n, n_bins, seed, ties):
    rng = np.random.default_rng(seed)
    confidence = rng.random(n).astype(np.float32)
    if ties:
        confidence = confidence.round(1)
    right = rng.random(n) < confidence
    mean, share, count = calibration_bins(confidence, right, n_bins)

    assert 1 <= len(count) <= n_bins
    assert (count > 0).all()
    assert count.sum() == n
    assert (np.diff(mean) > 0).all()
    assert_allclose((mean * count).sum(), confidence.sum(dtype=np.float64))
    assert_allclose((share * count).sum(), right.sum())
    if not ties:
        assert np.ptp(count) <= 1, "the same number in each"
    shuffled = rng.permutation(n)
    again = calibration_bins(confidence[shuffled], right[shuffled], n_bins)
    assert_array_equal(count, again[2])
    assert_allclose(mean, again[0])
    assert_allclose(share, again[1])


def test_bins_by_hand():
    confidence = np.array([0.9, 0.2, 0.8, 0.4, 0.3, 1.0])
    right = np.array([True, False, False, True, False, True])
    mean, share, count = calibration_bins(confidence, right, 2)
    assert_allclose(mean, [0.3, 0.9])
    assert_allclose(share, [1 / 3, 2 / 3])
    assert_array_equal(count, [3, 3])


def test_equal_confidences_are_one_bin():
    mean, share, count = calibration_bins(
        np.full(7, 0.1, dtype=np.float32), np.arange(7) < 3, n_bins=10
    )
    assert_array_equal(mean, [np.float32(0.1)])
    assert_allclose(share, [3 / 7])
    assert_array_equal(count, [7])


def test_most_predictions_may_be_certain():
    confidence = np.array([0.5, 0.6, *np.ones(98)])
    mean, _, count = calibration_bins(confidence, confidence > 0.55, 10)
    assert_allclose(mean, [0.55, 1])
    assert_array_equal(count, [2, 98])


def test_nothing_is_in_no_bin():
    for part in calibration_bins(np.empty(0), np.empty(0, dtype=bool), 10):
        assert part.shape == (0,)


@pytest.mark.parametrize(
    ("confidence", "n_bins", "words"),
    [([0.5], 0, "at least 1; got 0"), ([np.nan], 3, "finite"), ([np.inf], 3, "finite")],
)
def test_says_what_is_wrong(confidence, n_bins, words):
    with pytest.raises(ValueError, match=words):
        calibration_bins(np.array(confidence), np.ones(1, dtype=bool), n_bins)

"""Probabilities from distances, and their calibration error."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from centroid_encoder.core.calibration import (
    Calibration,
    calibration_bins,
    calibration_error,
    cross_fitted_probabilities,
)


def drawn(
    n: int, calibration: Calibration, n_classes: int = 4
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Distances, and labels that are drawn from the probabilities of a calibration."""
    rng = np.random.default_rng(0)
    distances = rng.gamma(2.0, size=(n, n_classes))
    cumulative = calibration.probabilities(distances).cumsum(axis=1)
    return distances, (rng.uniform(size=(n, 1)) > cumulative).sum(axis=1)


def classes_apart(
    n: int, separation: float, seed: int, factor: float = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Distances of Gaussian samples to the means of five classes, times a factor."""
    means = np.random.default_rng(1).normal(size=(5, 3))
    means *= separation / np.min(cdist(means, means) + 99 * np.eye(5))
    rng = np.random.default_rng(seed)
    labels = rng.integers(5, size=n)
    points = means[labels] + rng.normal(size=(n, 3)) / np.sqrt(2)
    return factor * cdist(points, means), labels


def error(calibration: Calibration, distances: NDArray, labels: NDArray) -> float:
    probabilities = calibration.probabilities(distances)
    right = probabilities.argmax(axis=1) == labels
    mean, share, bins = calibration_bins(probabilities.max(axis=1), right)
    count = np.bincount(bins)
    return float(np.average(np.abs(mean - share), weights=count))


@pytest.mark.parametrize(("temperature", "exponent"), [(0.5, 2.0), (2.0, 1.0), (0.8, 0.5)])
def test_fit_recovers_the_calibration_from_which_labels_were_drawn(
    temperature: float, exponent: float
) -> None:
    truth = Calibration(temperature, exponent)
    distances, labels = drawn(20_000, truth)
    found = Calibration.fit(distances, labels)
    assert found.exponent == pytest.approx(exponent, rel=0.2)
    assert_allclose(found.probabilities(distances), truth.probabilities(distances), atol=0.05)
    assert error(found, distances, labels) < 0.015


def test_without_errors_the_confidence_stays_below_one() -> None:
    distances, labels = np.full((40, 3), 0.2), np.arange(40) % 3
    distances[np.arange(40), labels] = 0.1
    assert Calibration().probabilities(distances).max() < 0.4
    assert 0.9 < Calibration.fit(distances, labels).probabilities(distances).max() < 0.99


@pytest.mark.parametrize("separation", [1.2, 3.0, 6.0])
@pytest.mark.parametrize("n", [10, 50, 200])
def test_calibration_with_few_or_separable_samples_is_not_worse_than_none(
    separation: float, n: int
) -> None:
    distances, labels = classes_apart(5000, separation, 99)
    before = error(Calibration(), distances, labels)
    for seed in range(3):
        found = Calibration.fit(*classes_apart(n, separation, seed))
        # The terms of the classes are a little uncertain.
        assert error(found, distances, labels) <= before + (0.005 if n < 200 else 0.02)


@pytest.mark.filterwarnings("error")
def test_classes_that_are_not_in_the_map_are_ignored() -> None:
    distances, labels = drawn(2000, Calibration(0.7, 1.5))
    known = Calibration.fit(distances[labels != 3][:, :3], labels[labels != 3])
    distances[:, 3] = np.inf
    found = Calibration.fit(distances, labels)
    assert_array_equal(found.probabilities(distances)[:, 3], 0)
    assert found.temperature == pytest.approx(known.temperature, rel=0.02)
    assert Calibration.fit(distances[labels == 3], labels[labels == 3]) == Calibration()


@pytest.mark.parametrize("seed", range(3))
def test_each_prediction_of_a_reweighted_sample_has_its_own_share_right(seed: int) -> None:
    """Distances from odds with class weights, labels with the frequencies of the classes."""
    rng = np.random.default_rng(seed)
    shares, weights = np.array([0.9, 0.08, 0.02]), np.array([1.0, 3.0, 7.0])
    labels = rng.choice(3, 40_000, p=shares)
    x = labels[:, None] == np.arange(3)
    log_odds = np.log(shares) + 2 * (x + 0.7 * rng.normal(size=(len(labels), 3))) / 0.7**2 / 2
    weighted = log_odds + np.log(weights)
    distances = np.sqrt(weighted.max(axis=1, keepdims=True) - weighted)
    offsets = tuple((-np.log(weights)).tolist())
    some = np.arange(len(labels)) < 20_000
    found = Calibration.fit(distances[some], labels[some], offsets)
    probabilities, predicted = found.probabilities(distances[~some]), distances[~some].argmin(1)
    confidence = probabilities[np.arange(len(predicted)), predicted]
    for code in range(3):
        own = predicted == code
        right = (labels[~some][own] == code).mean()
        assert confidence[own].mean() == pytest.approx(right, abs=0.04)
    # A prediction need not be the most probable class.
    assert (probabilities.argmax(axis=1) != predicted).any()


def test_samples_with_more_weight_count_more() -> None:
    """Held-out samples of a sharper calibration move the result towards it."""
    (blunt, y), (sharp, y_sharp) = drawn(600, Calibration(1.5)), drawn(600, Calibration(0.5))
    distances, labels = np.concatenate([blunt, sharp]), np.append(y, y_sharp)
    found = [
        Calibration.fit(distances, labels, weights=np.repeat([1.0, w], 600)).temperature
        for w in (0.1, 1.0, 10.0)
    ]
    assert found[0] > found[1] > found[2]


def test_labels_of_a_fold_do_not_change_the_probabilities_of_the_fold() -> None:
    distances, labels = drawn(300, Calibration(0.7, 1.5))
    parts = np.arange(300) % 3
    before = cross_fitted_probabilities(distances, labels, parts)
    changed = np.where(parts == 1, (labels + 1) % 4, labels)
    after = cross_fitted_probabilities(distances, changed, parts)
    assert_array_equal(before[parts == 1], after[parts == 1])
    assert not np.array_equal(before[parts != 1], after[parts != 1])


@given(st.integers(1, 80), st.integers(1, 15), st.integers(0, 2**32 - 1), st.booleans())
def test_bins_hold_all_predictions(n: int, n_bins: int, seed: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    confidence = rng.random(n).astype(np.float32)
    confidence = confidence.round(1) if ties else confidence
    right = rng.random(n) < confidence
    mean, share, bins = calibration_bins(confidence, right, n_bins)
    count = np.bincount(bins)
    assert len(count) <= n_bins
    assert count.min() > 0
    assert (np.diff(mean) > 0).all()
    assert count.sum() == n
    assert_allclose((mean * count).sum(), confidence.sum(dtype=np.float64))
    assert_allclose((share * count).sum(), right.sum())
    if not ties:
        assert np.ptp(count) <= 1


def test_the_calibration_error_is_that_of_perfect_confidences_if_they_are() -> None:
    """The mean of squares is unbiased, however few the predictions are."""
    for gap, n in ((0.0, 60), (0.0, 1000), (0.15, 60), (0.15, 1000)):
        squares = []
        for seed in range(300):
            rng = np.random.default_rng(seed)
            confidence = rng.uniform(0.6, 0.95, n)
            right = rng.random(n) < confidence - gap
            mean, share, bins = calibration_bins(confidence, right)
            count = np.bincount(bins)
            chance = np.average(share * (1 - share) / (count - 1), weights=count)
            squares.append(np.average((mean - share) ** 2, weights=count) - chance)
            error = calibration_error(confidence, right)[0]
            assert error == pytest.approx(np.sqrt(max(squares[-1], 0)))
        spread = np.std(squares) / np.sqrt(len(squares))
        assert np.mean(squares) == pytest.approx(gap**2, abs=3 * spread)


@pytest.mark.parametrize("gap", [0.0, 0.05])
@pytest.mark.parametrize("n", [50, 1000])
def test_the_interval_covers_the_error(gap: float, n: int) -> None:
    covered = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        confidence = rng.uniform(0.5, 1, n)
        right = rng.random(n) < confidence - gap
        error, low, high = calibration_error(confidence, right)
        assert low <= error <= high
        covered += low <= gap <= high
    assert covered >= 55
    assert high - low < (0.4 if n == 50 else 0.1)


@pytest.mark.parametrize("n_donors", [4, 6, 10])
def test_the_interval_covers_the_error_of_new_donors(n_donors: int) -> None:
    """Confidences are right on average, and off by up to 30 points for each donor."""
    covered = {"cells": 0, "donors": 0}
    for seed in range(60):
        rng = np.random.default_rng(seed)
        donors = np.repeat(np.arange(n_donors), 200)
        confidence = rng.uniform(0.5, 0.9, len(donors))
        shift = rng.normal(scale=0.12, size=n_donors)[donors]
        right = rng.random(len(donors)) < (confidence + shift).clip(0, 1)
        for kind, units in (("cells", None), ("donors", donors)):
            _, low, _ = calibration_error(confidence, right, units)
            covered[kind] += low == 0
    assert covered["donors"] >= 54
    assert covered["cells"] < 48


def test_the_interval_if_all_predictions_are_right() -> None:
    _, low, high = calibration_error(np.full(30, 0.999), np.ones(30, dtype=bool))
    assert low == 0
    assert 0.02 < high < 0.2
    assert np.isnan(calibration_error(np.empty(0), np.empty(0, dtype=bool))).all()

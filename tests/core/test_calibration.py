"""Probabilities from distances, against what they were drawn from."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from centroid_encoder.core.confidence import (
    EXPONENTS,
    TEMPERATURES,
    UNCALIBRATED,
    Calibration,
    calibration_error_interval,
    cross_fitted_probabilities,
    expected_calibration_error,
)


def drawn(
    n: int, calibration: Calibration, n_classes: int = 4
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Distances, and labels as probable as the calibration says."""
    rng = np.random.default_rng(0)
    distances = rng.gamma(2.0, size=(n, n_classes))
    cumulative = calibration.probabilities(distances).cumsum(axis=1)
    return distances, (rng.uniform(size=(n, 1)) > cumulative).sum(axis=1)


@given(
    distances=st.lists(
        st.lists(st.floats(0, 50), min_size=3, max_size=3), min_size=1, max_size=20
    ).map(np.array),
    temperature=st.floats(0.1, 10),
    exponent=st.floats(*EXPONENTS),
)
def test_probabilities_are_those_of_the_formula(
    distances: NDArray[np.float64], temperature: float, exponent: float
) -> None:
    found = Calibration(temperature, exponent).probabilities(distances)
    weights = np.exp(
        -((distances / temperature) ** exponent)
        + ((distances.min(axis=1, keepdims=True) / temperature) ** exponent)
    )
    assert_allclose(found, weights / weights.sum(axis=1, keepdims=True), rtol=1e-9)
    nearest = distances == distances.min(axis=1, keepdims=True)
    assert (np.where(nearest, found, 0).max(axis=1) == found.max(axis=1)).all()


@pytest.mark.parametrize(("temperature", "exponent"), [(0.5, 2.0), (2.0, 1.0), (0.8, 0.5)])
def test_what_the_labels_were_drawn_from_is_found(temperature: float, exponent: float) -> None:
    truth = Calibration(temperature, exponent)
    distances, labels = drawn(20_000, truth)
    found = Calibration.fit(distances, labels)
    assert found.exponent == pytest.approx(exponent, rel=0.2)
    probabilities = found.probabilities(distances)
    assert_allclose(probabilities, truth.probabilities(distances), atol=0.05)
    right = probabilities.argmax(axis=1) == labels
    assert expected_calibration_error(probabilities.max(axis=1), right) < 0.015


def test_never_wrong_does_not_mean_certain() -> None:
    """Distances that tell little at the start are calibrated, but not to certainty."""
    distances = np.full((40, 3), 0.2)
    labels = np.arange(40) % 3
    distances[np.arange(40), labels] = 0.1
    found = Calibration.fit(distances, labels)
    assert TEMPERATURES[0] <= found.temperature <= TEMPERATURES[1]
    assert UNCALIBRATED.probabilities(distances).max() < 0.4
    assert 0.9 < found.probabilities(distances).max() < 0.99


def classes_apart(
    n: int, separation: float, seed: int, sure: float = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """Distances of Gaussian samples to the means of five classes, times `sure`."""
    means = np.random.default_rng(1).normal(size=(5, 3))
    means *= separation / np.min(cdist(means, means) + 99 * np.eye(5))
    rng = np.random.default_rng(seed)
    labels = rng.integers(5, size=n)
    points = means[labels] + rng.normal(size=(n, 3)) / np.sqrt(2)
    return sure * cdist(points, means), labels


def error(calibration: Calibration, distances: NDArray, labels: NDArray) -> float:
    probabilities = calibration.probabilities(distances)
    right = probabilities.argmax(axis=1) == labels
    return expected_calibration_error(probabilities.max(axis=1), right)


@pytest.mark.parametrize("separation", [1.2, 3.0, 6.0])
@pytest.mark.parametrize("n", [10, 20, 50, 200])
def test_few_or_separable_samples_make_nothing_worse(separation: float, n: int) -> None:
    """Where the start is right already. It was up to 0.1 worse with 20 samples."""
    distances, labels = classes_apart(5000, separation, 99)
    before = error(UNCALIBRATED, distances, labels)
    for seed in range(5):
        found = Calibration.fit(*classes_apart(n, separation, seed))
        assert error(found, distances, labels) <= before + 0.005


@pytest.mark.parametrize("sure", [0.2, 3.0])
@pytest.mark.parametrize("n", [20, 200])
def test_what_is_clearly_wrong_is_mended_by_few_samples(sure: float, n: int) -> None:
    separation = 6.0 if sure < 1 else 1.2
    distances, labels = classes_apart(5000, separation, 99, sure)
    before = error(UNCALIBRATED, distances, labels)
    found = Calibration.fit(*classes_apart(n, separation, 0, sure))
    assert before > 0.2
    assert error(found, distances, labels) < 0.1


@pytest.mark.parametrize("gap", [0.0, 0.05])
@pytest.mark.parametrize("n", [50, 1000])
def test_the_interval_holds_the_error(gap: float, n: int) -> None:
    held = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        confidence = rng.uniform(0.5, 1, n)
        right = rng.random(n) < confidence - gap
        low, high = calibration_error_interval(confidence, right)
        assert low <= expected_calibration_error(confidence, right) <= high
        held += low <= gap <= high
    assert held >= 55
    assert high - low < (0.4 if n == 50 else 0.1)


def test_the_interval_of_predictions_that_were_never_wrong() -> None:
    low, high = calibration_error_interval(np.full(30, 0.999), np.ones(30, dtype=bool))
    assert low == 0
    assert 0.02 < high < 0.2
    assert np.isnan(calibration_error_interval(np.empty(0), np.empty(0, dtype=bool))).all()


def test_a_class_that_the_map_does_not_know_is_not_asked_about() -> None:
    distances, labels = drawn(2000, Calibration(0.7, 1.5))
    known = Calibration.fit(distances[labels != 3][:, :3], labels[labels != 3])
    distances[:, 3] = np.inf
    found = Calibration.fit(distances, labels)
    assert_array_equal(found.probabilities(distances)[:, 3], 0)
    # Only the number of classes in the smoothed targets differs.
    assert found.temperature == pytest.approx(known.temperature, rel=0.02)
    assert np.isfinite(Calibration.fit(distances[labels == 3], labels[labels == 3]).temperature)


def test_a_part_has_no_say_in_its_own_probabilities() -> None:
    distances, labels = drawn(300, Calibration(0.7, 1.5))
    parts = np.arange(300) % 3
    before = cross_fitted_probabilities(distances, labels, parts)
    changed = np.where(parts == 1, (labels + 1) % 4, labels)
    after = cross_fitted_probabilities(distances, changed, parts)
    assert_array_equal(before[parts == 1], after[parts == 1])
    assert not np.array_equal(before[parts != 1], after[parts != 1])


def test_the_calibration_error_is_the_mean_gap() -> None:
    confidence = np.repeat([0.6, 0.8, 0.9], [10, 20, 10])
    right = np.concatenate([np.arange(10) < 7, np.arange(20) < 13, np.arange(10) < 9])
    # 0.1 too modest, 0.15 too sure, just right.
    assert expected_calibration_error(confidence, right) == pytest.approx((1 + 3 + 0) / 40)


def test_the_calibration_error_of_nothing_is_nothing() -> None:
    assert np.isnan(expected_calibration_error(np.empty(0), np.empty(0, dtype=bool)))

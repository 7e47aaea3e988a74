"""Which labels look wrong, on probabilities that are known."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from cleanlab.filter import find_label_issues
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy import sparse
from sklearn.covariance import ledoit_wolf
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from centroid_encoder.core.inputs import fit_standardizer
from centroid_encoder.core.suspects import joined, linear_probabilities, suspects


def drawn(
    n: int, distance: float, rate: float, seed: int, n_classes: int
) -> tuple[NDArray[np.intp], NDArray[np.bool_], NDArray[np.float64]]:
    """Labels, which of them are wrong, and the best possible probabilities of the labels.

    The classes are Gaussians at equal distances, and wrong labels are uniform.
    """
    rng = np.random.default_rng(seed)
    truth = rng.integers(n_classes, size=n)
    points = distance / np.sqrt(2) * np.eye(n_classes)[truth] + rng.normal(size=(n, n_classes))
    odds = np.exp(points * distance / np.sqrt(2))
    posterior = odds / odds.sum(axis=1, keepdims=True)
    wrong = rng.random(n) < rate
    labels = np.where(wrong, (truth + rng.integers(1, n_classes, n)) % n_classes, truth)
    return labels, wrong, (1 - rate) * posterior + rate * (1 - posterior) / (n_classes - 1)


def listed(labels: NDArray[np.intp], p: NDArray[np.float64]) -> tuple[NDArray[np.intp], str]:
    """Rows that look mislabelled, the worst first, and the reason if there are none."""
    doubt, _, reason = suspects(labels, p)
    return np.argsort(-doubt, kind="stable")[: (doubt > 0).sum()], reason


@pytest.mark.parametrize("n_classes", [2, 4, 7])
@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2])
def test_wrong_labels_are_found_whatever_the_number_of_classes(n_classes: int, rate: float) -> None:
    """The clean error of these classes is 1 to 5 %."""
    n_found = n_wrong = n_listed = 0
    for seed in range(3):
        labels, wrong, p = drawn(1500, 4.5, rate, seed, n_classes)
        rows, reason = listed(labels, p)
        assert reason == ""
        n_found, n_wrong = n_found + wrong[rows].sum(), n_wrong + wrong.sum()
        n_listed += len(rows)
    assert n_found / n_wrong >= 0.75
    assert n_found / n_listed >= 0.7


@pytest.mark.parametrize("n_classes", [2, 5, 10])
def test_classes_are_predicted_though_many_labels_of_one_class_are_wrong(n_classes: int) -> None:
    """The models predict the label of class 1 for cells of class 0 that are between the two."""
    truth, _, posterior = drawn(6000, 4.0, 0.0, 0, n_classes)
    rates, rng = np.eye(n_classes), np.random.default_rng(1)
    rates[0, :2] = 0.6, 0.4
    wrong = (truth == 0) & (rng.random(len(truth)) < 0.4)
    labels, p = np.where(wrong, 1, truth), posterior @ rates
    doubt, predicted, _ = suspects(labels, p)
    best = posterior.argmax(axis=1)
    misled = (p.argmax(axis=1) != best).sum()
    assert misled > 50
    assert (predicted != best).sum() < 0.3 * misled
    assert (doubt[wrong] > 0).mean() >= 0.8
    assert wrong[doubt > 0].mean() >= 0.8


@pytest.mark.parametrize("n_classes", [2, 4, 30])
@pytest.mark.parametrize("distance", [3.0, 4.5, 9.0])
def test_right_labels_are_hardly_listed_also_if_classes_overlap(
    n_classes: int, distance: float
) -> None:
    """The best possible error of 30 classes at a distance of 3 is 45 %."""
    labels, _, p = drawn(3000, distance, 0.0, 0, n_classes)
    rows, _ = listed(labels, p)
    assert len(rows) <= (0.035 if (n_classes, distance) == (30, 3.0) else 0.01) * len(labels)


def test_an_empty_list_has_a_reason() -> None:
    labels, _, p = drawn(2000, 4.0, 0.1, 0, 3)
    shuffled = np.random.default_rng(1).permutation(labels)
    # A cell between two classes, whose label is the second of them.
    agree, between = p.argmax(axis=1), p.copy()
    one = agree.copy()
    one[0] = (agree[0] + 1) % 3
    between[0] = np.where(
        np.arange(3) == one[0], 0.48, np.where(np.arange(3) == agree[0], 0.5, 0.02)
    )
    cases = {"confused": (shuffled, p), "agree": (agree, p), "between": (one, between)}
    for reason, case in cases.items():
        rows, found = listed(*case)
        assert (len(rows), found) == (0, reason)


def test_the_order_of_cells_does_not_matter() -> None:
    labels, _, p = drawn(800, 4.0, 0.1, 0, 4)
    order = np.random.default_rng(0).permutation(800)
    rows, _ = listed(labels, p)
    again, _ = listed(labels[order], p[order])
    assert set(order[again]) == set(rows)


def test_as_many_are_found_as_by_confident_learning_where_classes_overlap() -> None:
    """`cleanlab` is the reference; the package does not depend on it."""
    for rate in (0.1, 0.2):
        labels, wrong, p = drawn(2000, 3.0, rate, 3, 4)
        scores = []
        for rows in (listed(labels, p)[0], np.flatnonzero(find_label_issues(labels, p))):
            hits = wrong[rows].sum()
            scores.append(2 * hits / (wrong.sum() + len(rows)))
        assert scores[0] >= scores[1] - 0.02


@pytest.mark.parametrize("n_classes", [2, 4, 10])
def test_labels_of_one_class_that_have_the_name_of_another_one_are_found(n_classes: int) -> None:
    """A quarter of one class; only a few right labels elsewhere are listed."""
    n_found = n_wrong = n_listed = 0
    for seed in range(3):
        truth, _, p = drawn(300 * n_classes, 4.5, 0.0, seed, n_classes)
        wrong = (truth == 1) & (np.random.default_rng(seed).random(len(truth)) < 0.25)
        p[:, 0] += p[:, 1] / 4
        p[:, 1] *= 0.75
        rows, _ = listed(np.where(wrong, 0, truth), p)
        n_found, n_wrong = n_found + wrong[rows].sum(), n_wrong + wrong.sum()
        n_listed += len(rows)
    assert n_found / n_wrong >= 0.75
    assert n_found / n_listed >= 0.9


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_linear_probabilities_are_those_of_a_discriminant_analysis(kind: type) -> None:
    """Class 1 has no known row, and class 4 has one; a feature is constant."""
    rng = np.random.default_rng(0)
    codes = np.append(rng.choice([0, 2, 3], 600), 4)
    X = rng.normal(size=(601, 12)) + np.eye(12)[codes] * 2
    X[:, 5] = 1
    known, rows = np.append(np.arange(400), 600), np.arange(400, 600)
    scaler = fit_standardizer(kind(X), known, codes[known], "supervised", 10.0, None)[0]
    with warnings.catch_warnings(action="error"):
        found = linear_probabilities(kind(X), scaler, known, codes, rows, 5)
    # With fewer features than axes, the axes are a rotation, which changes no probability.
    z = np.asarray(scaler(X), dtype=float)
    classes, index = np.unique(codes[known], return_inverse=True)
    means = np.stack([z[known][index == i].mean(axis=0) for i in range(len(classes))])
    covariance = ledoit_wolf(z[known] - means[index], assume_centered=True)[0]
    model = LinearDiscriminantAnalysis("lsqr", covariance_estimator=Fixed(covariance))
    expected = model.fit(z[known], codes[known]).predict_proba(z[rows])
    assert_allclose(found[:, classes], expected, atol=2e-3)
    assert (found[:, 1] == 0).all()
    assert_allclose(joined(found, found), found, atol=1e-8)


class Fixed:
    """An estimator whose covariance is given."""

    def __init__(self, covariance: NDArray[np.float64]) -> None:
        self.covariance_ = covariance

    def fit(self, X: object) -> None:
        """Keep the covariance."""

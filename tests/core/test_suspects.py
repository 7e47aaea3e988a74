"""Which labels look wrong, on probabilities that are known."""

from __future__ import annotations

import numpy as np
import pytest
from cleanlab.filter import find_label_issues
from numpy.typing import NDArray

from centroid_encoder.core.suspects import suspects, typical_probabilities


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
    predicted, own = p.argmax(axis=1), p[np.arange(len(labels)), labels]
    return suspects(labels, predicted, own, typical_probabilities(p, labels, predicted))


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


@pytest.mark.parametrize("n_classes", [2, 4, 30])
@pytest.mark.parametrize("distance", [3.0, 4.5, 9.0])
def test_right_labels_are_hardly_listed_also_if_classes_overlap(
    n_classes: int, distance: float
) -> None:
    labels, _, p = drawn(3000, distance, 0.0, 0, n_classes)
    rows, _ = listed(labels, p)
    assert len(rows) <= 0.03 * len(labels)


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
    cases = {"chance": (shuffled, p), "agree": (agree, p), "between": (one, between)}
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

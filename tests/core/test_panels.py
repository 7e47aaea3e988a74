"""Choice of a few features, on features whose use is known."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from centroid_encoder.core.panels import choose_features


def chosen(X: np.ndarray, codes: np.ndarray, n: int) -> list[int]:
    return choose_features(X, codes, n, lambda: None).tolist()


@pytest.fixture
def noise() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(600, 40)).astype(np.float32)


def test_a_feature_for_each_class_comes_before_its_copies_and_noise(noise: np.ndarray) -> None:
    codes, X = np.arange(600) % 4, noise
    for j in range(3):
        X[:, 10 * j] += 4 * (codes == j)
        X[:, 10 * j + 1] = X[:, 10 * j] + 0.3 * X[:, 10 * j + 1]
    found = chosen(X, codes, 6)
    assert {i // 10 for i in found[:3]} == {0, 1, 2}
    assert {i % 10 for i in found[:3]} <= {0, 1}
    assert_array_equal(found, chosen(sparse.csr_matrix(X), codes, 6))
    assert_array_equal(found, chosen(1000 * X + 7, codes, 6))
    assert found[:3] == chosen(X, codes, 3)


def test_a_feature_that_is_useful_with_another_is_found(noise: np.ndarray) -> None:
    """One feature hardly differs between the classes, but explains the noise of the best one."""
    codes, X = np.arange(600) % 2, noise
    X[:, 7] += codes
    X[:, 20] += 0.3 * codes
    X[:, 5] = X[:, 20] + 0.3 * X[:, 5] + 2 * codes
    assert set(chosen(X, codes, 2)) == {5, 20}


def test_a_rare_class_gets_a_feature(noise: np.ndarray) -> None:
    codes = np.where(np.arange(600) < 12, 2, np.arange(600) % 2)
    noise[:, 3] += 6 * (codes == 2)
    noise[:, :3] += 3 * (codes == 1)[:, None]
    assert 3 in chosen(noise, codes, 2)


def test_constant_features_are_last_and_many_classes_are_possible(noise: np.ndarray) -> None:
    noise[:, 8:] = 1
    found = chosen(noise, np.arange(600) % 60, 20)
    assert set(found[:8]) == set(range(8))
    assert len(set(found)) == 20


def test_given_features_come_first(noise: np.ndarray) -> None:
    X, codes = noise.copy(), np.arange(len(noise)) % 3
    X[np.arange(len(X)), codes] += 4
    X[:, 9] = 1  # constant
    found = choose_features(X, codes, 6, lambda: None, np.array([9, 7]))
    assert found[:2].tolist() == [9, 7]
    assert set(found[2:5]) == {0, 1, 2}
    assert len(set(found)) == 6

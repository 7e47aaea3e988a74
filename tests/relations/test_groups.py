"""A training with groups loses no accuracy, whatever the sizes of the groups."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import load_digits

import centroid_encoder as ce

TWO = (0.95, 0.05)


@pytest.fixture(scope="module")
def digits():
    """600 digits to train on and 1,197 new ones."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, new = order[:600], order[600:]
    return X[train].astype(np.float32), y[train], X[new].astype(np.float32), y[new]


def donors(n: int, shares: tuple[float, ...]) -> np.ndarray:
    """Random donors with these shares of n cells."""
    names = [f"donor {i}" for i in range(len(shares))]
    return np.random.default_rng(0).choice(names, size=n, p=shares)


def fitted(X, y, groups=None, **params) -> ce.CentroidEncoder:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return ce.CentroidEncoder(random_state=0, **params).fit(X, y, groups=groups)


@pytest.fixture(scope="module")
def without_groups(digits) -> float:
    X, y, X_new, y_new = digits
    return 1 - fitted(X, y).score(X_new, y_new)


@pytest.mark.parametrize("shares", [TWO, (0.8, 0.05, 0.05, 0.05, 0.05)])
def test_random_donors_of_any_sizes_cost_no_accuracy(digits, shares, without_groups) -> None:
    X, y, X_new, y_new = digits
    model = fitted(X, y, donors(len(y), shares))
    assert 1 - model.score(X_new, y_new) <= without_groups + 0.01


def test_a_tiny_donor_changes_little(digits, without_groups) -> None:
    """Ten samples of a donor neither shorten the training nor narrow its inputs."""
    X, y, X_new, y_new = digits
    groups = np.where(np.arange(len(y)) < 10, "tiny", "large")
    groups[10:310] = "other"
    assert 1 - fitted(X, y, groups).score(X_new, y_new) <= without_groups + 0.015


def test_a_class_of_one_small_donor_is_still_placed(digits) -> None:
    X, y, X_new, y_new = digits
    groups = donors(len(y), (0.7, 0.3))
    kept = (y != 6) | (groups == "donor 1")
    model = fitted(X[kept], y[kept], groups[kept])
    assert model.score(X_new[y_new == 6], y_new[y_new == 6]) > 0.8


def test_a_donor_with_most_cells_is_named(digits) -> None:
    X, y, *_ = digits
    model = ce.CentroidEncoder(random_state=0, max_epochs=1, hidden=(4,))
    with pytest.warns(UserWarning, match=r"'donor 0' holds 9\d % of the training samples"):
        model.fit(X, y, groups=donors(len(y), TWO))
    with pytest.warns(UserWarning, match="all training samples are of group 'A'"):
        model.fit(X, y, groups=["A"] * len(y))
    # No warning where donors are of similar sizes.
    model.fit(X, y, groups=donors(len(y), (0.6, 0.4)))


def test_groups_must_fit_the_samples_and_have_an_effect(digits) -> None:
    X, y, *_ = digits
    groups = donors(len(y), TWO).astype(object)
    with pytest.raises(ValueError, match="groups has 3 entries"):
        ce.CentroidEncoder().fit(X, y, groups=["a", "b", "c"])
    for option in ({"placement": "bottleneck"}, {"n_networks": 1}):
        with pytest.raises(ValueError, match="groups has no effect with"):
            ce.CentroidEncoder(**option).fit(X, y, groups=groups)
    groups[:2] = None
    with pytest.raises(ValueError, match="groups has 2 missing values"):
        ce.CentroidEncoder().fit(X, y, groups=groups)

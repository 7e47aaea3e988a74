"""Probabilities are fitted to samples that the judging network was not trained on."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import centroid_encoder as ce


@pytest.fixture(scope="module")
def noisy():
    """Training and new samples, a fifth of whose labels are wrong."""
    X, y = make_blobs(1500, 20, centers=4, cluster_std=3.0, random_state=0)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(len(y)) < 0.2, rng.integers(4, size=len(y)), y)
    return X[:500], y[:500], X[500:], y[500:]


PAPER = {"placement": "bottleneck", "hidden": (100, 50), "max_epochs": 60}
MERGED = {"validation_fraction": 0.2, "merge_epochs": 50}


def overconfidence(model: ce.CentroidEncoder, X, y) -> float:
    """By how much the mean confidence exceeds the share of right predictions."""
    return float(model.predict_proba(X).max(axis=1).mean() - np.mean(model.predict(X) == y))


def test_several_networks_are_not_overconfident_after_a_merge(noisy) -> None:
    X, y, X_new, y_new = noisy
    model = ce.CentroidEncoder(hidden=(100,), max_epochs=30, random_state=0, **MERGED).fit(X, y)
    assert abs(overconfidence(model, X_new, y_new)) < 0.06


@pytest.mark.slow
@pytest.mark.parametrize("options", [MERGED, {}], ids=["merged", "all rows train"])
def test_one_network_without_unseen_samples_is_not_calibrated(noisy, options) -> None:
    X, y, *_ = noisy
    model = ce.CentroidEncoder(placement="bottleneck", hidden=(8,), max_epochs=3, **options)
    model.fit(X, y)
    calibration = model.calibration_
    assert (calibration.temperature, calibration.exponent, calibration.terms) == (1, 2, ())


def test_validation_samples_that_are_not_merged_calibrate(noisy) -> None:
    X, y, X_new, y_new = noisy
    model = ce.CentroidEncoder(random_state=0, **PAPER, validation_fraction=0.4).fit(X, y)
    assert abs(overconfidence(model, X_new, y_new)) < 0.06


def test_a_warning_names_a_map_without_calibration(cells, squeezed) -> None:
    with pytest.warns(UserWarning, match="confidence is not calibrated"):
        ce.tl.centroid_encoder(cells, "cell_type", test_size=0, model=squeezed, progress=False)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="confidence is not calibrated")
        ce.tl.centroid_encoder(cells, "cell_type", model=squeezed, progress=False)

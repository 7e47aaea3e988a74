"""Probabilities are fitted to samples that the network which places them was not trained on."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import centroid_encoder as ce

PAPER = {"placement": "bottleneck", "hidden": (200, 100), "max_epochs": 60}
MERGED = {"validation_fraction": 0.2, "merge_epochs": 20}


@pytest.fixture(scope="module")
def noisy():
    """Training and new samples; a fifth of the labels are wrong."""
    X, y = make_blobs(1500, 20, centers=4, cluster_std=3.0, random_state=0)
    rng = np.random.default_rng(0)
    y = np.where(rng.random(len(y)) < 0.2, rng.integers(4, size=len(y)), y)
    return X[:500], y[:500], X[500:], y[500:]


@pytest.mark.parametrize("options", [MERGED, PAPER | {"validation_fraction": 0.4}])
def test_confidence_holds_on_new_samples(noisy, options) -> None:
    X, y, X_new, y_new = noisy
    model = ce.CentroidEncoder(random_state=0, **options).fit(X, y)
    confidence = model.predict_proba(X_new).max(axis=1).mean()
    assert abs(confidence - model.score(X_new, y_new)) < 0.06


@pytest.mark.parametrize("options", [PAPER | MERGED, PAPER], ids=["merged", "all rows train"])
def test_one_network_without_unseen_samples_is_not_calibrated(noisy, options) -> None:
    X, y, *_ = noisy
    model = ce.CentroidEncoder(random_state=0, **options | {"max_epochs": 3}).fit(X, y)
    assert model.calibration_ == type(model.calibration_)()

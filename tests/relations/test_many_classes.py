"""Hundreds of classes are laid out in seconds; thousands are refused before anything is done."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.neighbors import NearestNeighbors

import centroid_encoder as ce
from centroid_encoder.core.layout import Layout


def test_near_classes_lie_near_each_other_among_a_thousand() -> None:
    rng = np.random.default_rng(0)
    plane = rng.normal(size=(1000, 2))
    centroids = plane @ rng.normal(size=(2, 30)) + 0.01 * rng.normal(size=(1000, 30))
    positions = Layout.fit(centroids, 2).positions
    found, wanted = (
        NearestNeighbors(n_neighbors=20).fit(points).kneighbors(return_distance=False)
        for points in (positions, centroids)
    )
    shared = np.mean([len(np.intersect1d(*pair)) / 20 for pair in zip(found, wanted, strict=True)])
    assert shared > 0.5


def test_five_thousand_classes_are_too_many() -> None:
    X = np.random.default_rng(0).normal(size=(15_000, 3))
    with pytest.raises(ValueError, match="5,000 classes are too many"):
        ce.CentroidEncoder().fit(X, np.arange(15_000) % 5_000)

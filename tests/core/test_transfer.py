"""`core.transfer`: how many labels of a query would change without its mean shift."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import centroid_encoder as ce
from centroid_encoder.core.map import FittedMap
from centroid_encoder.core.transfer import changed_by_recentring

Array = NDArray[np.float64]


def drawn(n: int, seed: int, d: int = 12) -> tuple[Array, NDArray[np.intp]]:
    rng = np.random.default_rng(seed)
    codes = rng.integers(4, size=n)
    return rng.normal(size=(n, d)) + 2.5 * np.eye(4, d)[codes], codes


@pytest.fixture(scope="module", params=["voronoi", "bottleneck"])
def map_(request: pytest.FixtureRequest) -> FittedMap:
    X, codes = drawn(400, 0)
    params: dict[str, Any] = {"placement": request.param, "hidden": (16,), "max_epochs": 20}
    return ce.CentroidEncoder(**params, random_state=0, device="cpu").fit(X, codes).fitted_map


def changed(map_: FittedMap, X: Array) -> float:
    return float(changed_by_recentring(map_, map_.standardizer(X)).mean())


def expected(map_: FittedMap, X: Array) -> float:
    """Class by class, in the units of the data."""
    centroids, moved, shift = map_.centroids().astype(float), map_, np.zeros(X.shape[1])

    def judged() -> tuple[Array, NDArray[np.intp]]:
        distances = np.concatenate([found for _, found in moved.judge(X)])
        return map_.calibration.probabilities(distances), distances.argmin(axis=1)

    p, before = judged()
    for _ in range(3):
        sure, total, shares = p.max(axis=1), np.zeros(X.shape[1]), 0.0
        for j, centroid in enumerate(centroids):
            weights = p[:, j] * sure
            if weights.sum() >= 1:
                share = weights.sum() / (weights.sum() + 10)
                total += share * (np.average(X, axis=0, weights=weights) - centroid)
                shares += share
        shift = total / (shares + 0.5) * (map_.standardizer.weight > 0)
        scaler = replace(map_.standardizer, mean=map_.standardizer.mean + shift)
        moved = replace(map_, inputs=replace(map_.inputs, standardizer=scaler))
        p, now = judged()
    return float((now != before).mean())


def test_the_shift_is_the_mean_of_the_residuals_of_the_classes(map_: FittedMap) -> None:
    for size in (0.0, 0.5, 1.5):
        X, _ = drawn(300, 1)
        X += size * np.random.default_rng(2).normal(size=X.shape[1])
        assert changed(map_, X) == pytest.approx(expected(map_, X), abs=0.007)


def test_a_shift_changes_labels_and_other_frequencies_do_not(map_: FittedMap) -> None:
    X, codes = drawn(600, 3)
    some = np.flatnonzero((codes < 2) | (np.arange(len(X)) % 8 == 0))
    shifted = X + 1.5 * np.random.default_rng(4).normal(size=X.shape[1])
    assert changed(map_, X) < 0.05
    assert changed(map_, X[some]) < 0.1
    assert changed(map_, shifted) > 0.15


def test_the_order_of_the_cells_does_not_matter(map_: FittedMap) -> None:
    X, _ = drawn(200, 5)
    z = map_.standardizer(X + 1)
    found = changed_by_recentring(map_, z)
    assert (changed_by_recentring(map_, torch.flip(z, [0])) != found[::-1]).sum() <= 1

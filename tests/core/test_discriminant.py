"""The discriminant analysis beside the networks."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from scipy.stats import multivariate_normal
from sklearn.covariance import ledoit_wolf
from sklearn.model_selection import train_test_split

from centroid_encoder import CentroidEncoder
from centroid_encoder.core.discriminant import FAR, LEAST, Discriminant, shrunk_covariance
from centroid_encoder.core.inputs import project


def test_likelihoods_are_those_of_normal_classes_with_a_common_covariance() -> None:
    rng, d = np.random.default_rng(0), 5
    codes, axes = rng.integers(4, size=400), torch.from_numpy(rng.normal(size=(3, d))).float()
    z = torch.from_numpy(rng.normal(size=(400, d)) + rng.normal(size=(4, d))[codes]).float()
    found = Discriminant.fit(z, axes, codes, 4)
    points = (z @ axes.T).numpy()
    means = np.stack([points[codes == j].mean(axis=0) for j in range(4)])
    covariance, _ = ledoit_wolf(points - means[codes], assume_centered=True)
    log = np.stack([multivariate_normal(mean, covariance).logpdf(points) for mean in means], axis=1)
    assert found.axes.shape == (3, d)
    less = log.max(axis=1)[:, None] - log
    shown = found.likelihoods(project(z, found.axes))
    assert_allclose(shown[less < 2], -less[less < 2], rtol=0.02, atol=1e-3)
    assert_allclose(shown, LEAST * np.tanh(less / -LEAST), atol=1e-3)


def test_classes_without_samples_are_the_least_likely() -> None:
    z = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    found = Discriminant.fit(z, torch.eye(4), np.arange(60) % 2, 3)
    assert (found.means[2] == FAR).all()
    assert (found.likelihoods(project(z, found.axes))[:, 2] == LEAST).all()


@pytest.mark.parametrize("value", [0.0, 3.0])
def test_constant_inputs_are_finite(value: float) -> None:
    found = Discriminant.fit(torch.full((20, 3), value), torch.eye(3), np.arange(20) % 2, 2)
    assert np.isfinite(found.axes).all()
    assert_allclose(found.likelihoods(project(torch.full((2, 3), value), found.axes)), 0, atol=1e-6)


def test_weak_features_that_are_strong_together_count() -> None:
    """Weights of single features leave out what only many of them show."""
    rng = np.random.default_rng(0)
    y = rng.integers(4, size=900)
    X = rng.normal(size=(900, 400)) + 0.35 * rng.normal(size=(4, 400))[y]
    X[:, :20] += 0.8 * rng.normal(size=(4, 20))[y]
    A, B, a, b = train_test_split(X, y, random_state=0, stratify=y)
    model = CentroidEncoder(random_state=0, device="cpu").fit(A, a)
    placer = model.fitted_map.placer
    assert placer is not None
    assert placer.voice > 0.05
    assert (model.predict(B) == b).mean() > 0.97


@pytest.mark.parametrize(("n", "d"), [(30, 50), (400, 5), (10, 1)])
def test_the_covariance_is_that_of_scikit_learn(n: int, d: int) -> None:
    x = np.random.default_rng(0).normal(size=(n, d)) * np.linspace(1, 3, d)
    expected, _ = ledoit_wolf(x, assume_centered=True)
    assert_allclose(shrunk_covariance(torch.from_numpy(x)), expected)

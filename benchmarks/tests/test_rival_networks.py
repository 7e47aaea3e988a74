"""Losses equal those of loops over pairs, and every supervised rival separates blobs."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from benchmarks.rivals import contrastive, networks
from benchmarks.rivals.objectives import (
    MCML,
    NCA,
    RIDGE,
    TSNE,
    Discriminant,
    ExemplarMCML,
    RegularizedNCA,
    neighbor_probabilities,
)
from centroid_encoder.core.quality import knn_predict
from centroid_encoder.core.targets import Batch

Array = NDArray[np.float64]
Kernel = Callable[[Array, Array], float]

LABELS = np.array([0, 0, 1, 2, 1, 0, 1, 4, 0, 1])  # 2 and 4 once, 3 never
DOFS = [None, 1.0, 3.0]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def tensor(X: Array) -> torch.Tensor:
    return torch.tensor(X, dtype=torch.float32)


def make_batch(
    code: Array, labels: NDArray[np.integer] = LABELS, output: Array | None = None
) -> Batch:
    z = torch.tensor(code, dtype=torch.float32, requires_grad=True)
    out = z if output is None else torch.tensor(output, dtype=torch.float32)
    return Batch(torch.arange(len(z)), torch.tensor(labels), None, z, out)


def kernel(dof: float | None) -> Kernel:
    def similarity(a: Array, b: Array) -> float:
        squared = float(((a - b) ** 2).sum())
        return math.exp(-squared) if dof is None else (1 + squared / dof) ** (-(dof + 1) / 2)

    return similarity


def nca(code: Array, labels: NDArray[np.integer], k: Kernel) -> float:
    right = 0.0
    for i in range(len(code)):
        others = [j for j in range(len(code)) if j != i]
        total = sum(k(code[i], code[j]) for j in others)
        right += sum(k(code[i], code[j]) / total for j in others if labels[j] == labels[i])
    return 1 - right / len(code)


def divergence(p: Array, code: Array, k: Kernel) -> float:
    pairs = [(i, j) for i in range(len(code)) for j in range(len(code)) if i != j]
    total = sum(k(code[i], code[j]) for i, j in pairs)
    return sum(
        p[i, j] * math.log(p[i, j] * total / k(code[i], code[j])) for i, j in pairs if p[i, j] > 0
    )


def class_pairs(labels: NDArray[np.integer]) -> Array:
    p = np.equal.outer(labels, labels).astype(float)
    np.fill_diagonal(p, 0)
    return p / p.sum()


@pytest.mark.parametrize("dof", DOFS)
@pytest.mark.parametrize("m", [1, 2, 5])
def test_nca_and_mcml(dof: float | None, m: int) -> None:
    code, k = rng().normal(size=(10, m)), kernel(dof)
    for objective, expected in (
        (NCA(dof), nca(code, LABELS, k)),
        (MCML(dof), divergence(class_pairs(LABELS), code, k)),
    ):
        found = objective.loss(make_batch(code))
        assert float(found.detach()) == pytest.approx(expected, rel=1e-5)


def test_regularized_nca() -> None:
    code, X, output = rng().normal(size=(10, 2)), rng().normal(size=(10, 6)), np.ones((10, 6))
    found = RegularizedNCA(tensor(X), 0.7).loss(make_batch(code, output=output))
    nats = np.mean([((X[i] - output[i]) ** 2).sum() / 2 for i in range(10)])
    expected = 0.7 * nca(code, LABELS, kernel(None)) + 0.3 * nats
    assert float(found.detach()) == pytest.approx(expected, rel=1e-5)


def test_exemplars() -> None:
    code, exemplars = rng().normal(size=(10, 2)), rng().normal(size=(7, 3))
    labels, W = np.array([0, 1, 1, 2, 3, 4, 0]), rng().normal(size=(3, 2))

    objective = ExemplarMCML(
        torch.tensor(exemplars, dtype=torch.float32),
        torch.tensor(labels),
        lambda x: x @ torch.tensor(W, dtype=torch.float32),
    )
    found = objective.loss(make_batch(code))

    expected, k = 0.0, kernel(1.0)
    for i in range(10):
        similarities = [k(code[i], e @ W) for e in exemplars]
        own = [s for s, label in zip(similarities, labels, strict=True) if label == LABELS[i]]
        for s in own:
            expected += math.log(1 / len(own) * sum(similarities) / s) / len(own) / 10
    assert float(found.detach()) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("perplexity", [2.0, 3.0])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_neighbor_probabilities_have_the_perplexity(perplexity: float, scale: float) -> None:
    X = scale * rng().normal(size=(12, 4))
    squared = ((X[:, None] - X) ** 2).sum(axis=2)
    p = neighbor_probabilities(torch.tensor(squared, dtype=torch.float32), perplexity).numpy()

    for i in range(12):
        others = [j for j in range(12) if j != i]
        assert p[i, i] == 0
        entropy = -sum(p[i, j] * math.log(p[i, j]) for j in others if p[i, j] > 0)
        assert math.exp(entropy) == pytest.approx(perplexity, rel=1e-3)
        # Gaussian: log p is linear in the squared distance, with one slope for all pairs.
        near = [j for j in others if p[i, j] > 1e-6]
        slopes = np.diff(np.log(p[i, near])) / np.diff(squared[i, near])
        np.testing.assert_allclose(slopes, slopes[0], rtol=1e-2)
        assert slopes[0] < 0


def test_tsne() -> None:
    X, code = rng().normal(size=(10, 4)), rng().normal(size=(10, 2))
    squared = ((X[:, None] - X) ** 2).sum(axis=2)
    conditional = neighbor_probabilities(torch.tensor(squared), 2.5).numpy()
    joint = (conditional + conditional.T) / 20
    found = TSNE(tensor(X), 2.5, 1.0).loss(make_batch(code))
    expected = divergence(joint, code, kernel(1.0))
    assert float(found.detach()) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("m", [1, 2, 3])
def test_discriminant(m: int) -> None:
    labels = LABELS
    code = rng().normal(size=(10, m)) + labels[:, None]
    classes, codes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    means = np.stack([code[labels == c].mean(axis=0) for c in classes])
    within = np.cov(code - means[codes], rowvar=False, bias=True).reshape(m, m)
    plain, weighted = np.zeros((m, m)), np.zeros((m, m))
    for a, b in permutations(range(len(classes)), 2):
        apart = means[a] - means[b]
        scatter = counts[a] * counts[b] * np.outer(apart, apart) / 200
        plain += scatter
        weighted += scatter / (apart @ apart)
    weighted *= np.trace(plain) / np.trace(weighted)
    total = within + weighted
    total += RIDGE * np.trace(total) / m * np.eye(m)
    expected = m - np.trace(np.linalg.solve(total, weighted))
    found = Discriminant().loss(make_batch(code))
    assert float(found.detach()) == pytest.approx(expected, rel=1e-4)


UNSUPERVISED = ["Autoencoder", "ParametricTSNE"]
SUPERVISED = ["NonlinearNCA", "DeepGaussianNCA", "DeepTNCA", "DeepGaussianMCML", "DeepTMCML"]
SUPERVISED += ["HOPE", "GerDA", "SupervisedContrastive", "ProxyAnchor"]


def make(name: str, **kwargs: Any) -> networks.NetworkRival:
    fast = {"hidden": (32, 16), "n_steps": 80, "batch_size": 100}
    module = networks if hasattr(networks, name) else contrastive
    rival: networks.NetworkRival = getattr(module, name)(**fast | kwargs)
    return rival


def blobs(n: int = 150) -> tuple[Array, NDArray[np.str_]]:
    draws = np.random.default_rng(3)
    codes = np.arange(n) % 3
    X = 3 * np.random.default_rng(7).normal(size=(3, 10))[codes] + draws.normal(size=(n, 10))
    # Real data have large values and means other than 0.
    return 100 + 50 * X, np.array(["b", "a", "c"])[codes]


@pytest.mark.parametrize("name", SUPERVISED)
def test_supervised_rivals_separate_blobs(name: str) -> None:
    X, y = blobs()
    codes = np.unique(y, return_inverse=True)[1]
    rival = make(name).fit(X[:100], y[:100])
    found = knn_predict(rival.transform(X[:100]), codes[:100], rival.transform(X[100:]))
    assert (found != codes[100:]).mean() < 0.1


@pytest.mark.parametrize("name", UNSUPERVISED)
def test_unsupervised_rivals_learn(name: str) -> None:
    losses = make(name).fit(*blobs()).losses_
    assert losses[-1] < 0.8 * losses[0]


@pytest.mark.parametrize("name", SUPERVISED + UNSUPERVISED)
def test_same_seed_same_bits(name: str) -> None:
    X, y = blobs(60)
    first, again, other = (make(name, n_steps=4, random_state=seed).fit(X, y) for seed in (0, 0, 1))
    assert first.transform(X).tobytes() == again.transform(X).tobytes()
    assert first.transform(X).tobytes() != other.transform(X).tobytes()

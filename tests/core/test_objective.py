from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA
from torch import Tensor

from centroid_encoder.core.network import Network
from centroid_encoder.core.objective import (
    Batch,
    CentroidTargets,
    Objective,
    Output,
    within_share,
)
from centroid_encoder.core.optimization import TrainingConfig
from centroid_encoder.core.quality import knn_predict
from centroid_encoder.core.reports import Report
from centroid_encoder.core.rows import Rows, standardized
from centroid_encoder.core.standardization import Standardizer
from centroid_encoder.core.training import TrainingData, train

Array = NDArray[np.float64]

CPU = torch.device("cpu")


def fit(centroids: Array, output: Output = "span") -> CentroidTargets:
    return CentroidTargets.fit(centroids, output, CPU)


def batch(output: Array, labels: NDArray[np.integer], weights: Array | None = None) -> Batch:
    out = torch.tensor(output, dtype=torch.float32)
    return Batch(
        rows=torch.arange(len(out)),
        labels=torch.tensor(labels),
        weights=None if weights is None else torch.tensor(weights, dtype=torch.float32),
        code=out,
        output=out,
    )


@st.composite
def centroid_sets(draw: st.DrawFn) -> Array:
    """M × d centroids in general position, on a line, coincident or in pairs; M > d too."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n_classes, d = draw(st.integers(1, 9)), draw(st.integers(1, 7))
    centroids = rng.normal(size=(n_classes, d))
    arrangement = draw(st.sampled_from(["general", "collinear", "coincident", "pairs"]))
    if arrangement == "collinear":
        centroids = rng.normal(size=(n_classes, 1)) * centroids[:1]
    if arrangement == "coincident":
        centroids[:] = centroids[0]
    if arrangement == "pairs":
        centroids = centroids[np.arange(n_classes) // 2]
    scale = 10.0 ** draw(st.integers(-3, 3))
    return scale * (centroids + draw(st.sampled_from([0.0, 10.0])))


def spread(centroids: Array) -> float:
    return float(np.abs(centroids - centroids.mean(axis=0)).max())


@given(centroid_sets(), st.integers(0, 2**32 - 1))
def test_span_keeps_distances_but_for_one_factor(centroids: Array, seed: int) -> None:
    targets = fit(centroids)
    output = np.random.default_rng(seed).normal(scale=2, size=(30, targets.n_outputs))

    in_input_space = cdist(output @ targets.basis + targets.origin, centroids)
    distances = targets.distances(torch.tensor(output, dtype=torch.float32)).numpy()

    assert targets.n_outputs <= max(1, min(len(centroids) - 1, centroids.shape[1]))
    factor = np.linalg.norm(targets.basis[0])
    np.testing.assert_allclose(factor * distances, in_input_space, rtol=1e-4, atol=1e-5 * factor)
    # Hence the same decision, wherever float32 can tell the two nearest apart.
    two = np.sort(in_input_space, axis=1)[:, :2]
    clear = two[:, -1] - two[:, 0] > 1e-4 * factor
    agree = distances.argmin(axis=1) == in_input_space.argmin(axis=1)
    assert agree[clear].all()


@given(centroid_sets(), st.integers(0, 2**32 - 1), st.booleans())
def test_full_loss_is_span_loss_times_a_factor_plus_what_leaves_the_span(
    centroids: Array, seed: int, weighted: bool
) -> None:
    # Hence both have the same minimum: outside the span there is nothing to gain.
    rng = np.random.default_rng(seed)
    span, full = fit(centroids), fit(centroids, "full")
    n_classes, d = centroids.shape
    labels = rng.integers(0, n_classes, 25)
    weights = rng.uniform(0.1, 2, 25) if weighted else None
    # Far enough from the targets for float32 to tell.
    noise = max(spread(centroids), 1e-2 * np.abs(centroids).max())
    f = centroids[labels] + noise * rng.normal(size=(25, d))

    square = np.square(span.basis[0]).sum()
    inside = (f - span.origin) @ span.basis.T / square
    outside = np.square(f - inside @ span.basis - span.origin).mean(axis=1)
    outside = (outside if weights is None else outside * weights).mean()
    expected = square * span.n_outputs / d * float(span.loss(batch(inside, labels, weights)))

    assert float(full.loss(batch(f, labels, weights))) == pytest.approx(
        expected + outside, rel=1e-3
    )


@given(centroid_sets(), st.sampled_from(["span", "full"]))
def test_targets_map_back_to_the_centroids(centroids: Array, output: Output) -> None:
    targets = fit(centroids, output)

    back = targets.to_input(targets.coordinates.numpy())

    assert back.dtype == np.float32
    np.testing.assert_allclose(back, centroids, rtol=1e-6, atol=1e-5 * spread(centroids))


@pytest.mark.parametrize(
    ("centroids", "n_outputs"),
    [
        (np.eye(4, 6), 3),
        (np.eye(4, 6)[:2], 1),
        (np.random.default_rng(0).normal(size=(9, 3)), 3),
        (np.linspace(0, 1, 5)[:, None] * [[3.0, 1.0, 2.0]], 1),
        (np.ones((3, 4)), 1),
        (np.ones((1, 4)), 1),
        (1e4 + np.eye(3), 2),
    ],
    ids=["simplex", "two classes", "M > d", "collinear", "coincident", "one class", "far away"],
)
def test_span_has_no_more_outputs_than_it_needs(centroids: Array, n_outputs: int) -> None:
    targets = fit(centroids)

    assert targets.n_outputs == n_outputs
    coordinates = targets.coordinates.numpy()
    np.testing.assert_allclose(coordinates.mean(axis=0), 0, atol=1e-6)
    # Unit mean square: the loss starts near 1 whatever the data.
    expected = 0 if not spread(centroids) else 1
    assert np.square(coordinates).mean() == pytest.approx(expected, abs=1e-5)


def test_full_output_is_the_input_space() -> None:
    centroids = np.random.default_rng(0).normal(size=(4, 6))
    targets = fit(centroids, "full")
    output = np.random.default_rng(1).normal(size=(10, 6))

    assert targets.n_outputs == 6
    np.testing.assert_array_equal(targets.coordinates, centroids.astype(np.float32))
    np.testing.assert_array_equal(targets.to_input(output), output.astype(np.float32))
    np.testing.assert_allclose(
        targets.distances(torch.tensor(output).float()), cdist(output, centroids), rtol=1e-5
    )


def test_distances_to_close_centroids_are_not_lost_in_cancellation() -> None:
    # ‖a‖² + ‖b‖² − 2ab would give 0 or NaN here.
    centroids = np.array([[1000.0, 0], [1000.001, 0]])
    targets = fit(centroids, "full")

    distances = targets.distances(torch.tensor([[1000.0, 0]]))

    np.testing.assert_allclose(distances, [[0, 0.001]], atol=1e-4)


def test_loss_is_the_weighted_mean_over_samples_and_coordinates() -> None:
    rng = np.random.default_rng(0)
    targets = fit(rng.normal(size=(3, 5)), "full")
    output, labels, weights = rng.normal(size=(7, 5)), rng.integers(0, 3, 7), rng.uniform(size=7)
    square = np.square(output - targets.coordinates.numpy()[labels])

    assert float(targets.loss(batch(output, labels))) == pytest.approx(square.mean(), rel=1e-5)
    assert float(targets.loss(batch(output, labels, weights))) == pytest.approx(
        (square.mean(axis=1) * weights).mean(), rel=1e-5
    )


class Autoencoder:
    """A rival: looks up the data it was built with."""

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        self.n_outputs = rows.n_inputs

    def loss(self, batch: Batch) -> Tensor:
        return (batch.output - self.rows.gather(batch.rows)).square().mean()

    def distances(self, output: Tensor) -> None:
        return None


class NeighbourhoodComponents:
    """A rival without a decoder: compares the codes within a batch (Goldberger et al. 2004)."""

    n_outputs = 0

    def loss(self, batch: Batch) -> Tensor:
        square = (batch.code[:, None] - batch.code).square().sum(dim=2)
        itself = torch.eye(len(square), dtype=torch.bool)
        log_p = torch.log_softmax(-square.masked_fill(itself, torch.inf), dim=1)
        same = (batch.labels[:, None] == batch.labels) & ~itself
        return -(log_p.exp() * same).sum(dim=1).mean()

    def distances(self, output: Tensor) -> None:
        return None


def run(
    objective: Objective, rows: Rows, labels: Array, network: Network, config: TrainingConfig
) -> list[Report]:
    validation = torch.arange(0, rows.n_rows, 5)
    is_train = torch.ones(rows.n_rows, dtype=torch.bool)
    is_train[validation] = False
    data = TrainingData(rows, torch.from_numpy(labels), torch.nonzero(is_train)[:, 0], validation)
    return list(train(network, objective, data, config, torch.Generator().manual_seed(0)))


def raw_rows(X: Array) -> Rows:
    zeros, ones = np.zeros(X.shape[1]), np.ones(X.shape[1])
    return standardized(X, Standardizer(zeros, ones, ones, np.inf), CPU)


def test_a_linear_autoencoder_reaches_the_error_of_pca() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2)) @ rng.normal(size=(2, 8)) + 0.3 * rng.normal(size=(300, 8)) + 1
    rows = raw_rows(X)
    network = Network(8, (), 2, 8, "relu", torch.Generator().manual_seed(0))
    config = TrainingConfig(batch_size=60, max_epochs=150, merge_epochs=150, learning_rate=0.02)

    reports = run(Autoencoder(rows), rows, np.zeros(300, dtype=int), network, config)

    pca = PCA(2).fit(X)
    best = np.square(X - pca.inverse_transform(pca.transform(X))).mean()
    with torch.no_grad():
        output = network.decode(network.encode(rows.gather(torch.arange(300)))).numpy()
    assert best * (1 - 1e-4) <= np.square(output - X).mean() < best * 1.01
    # No classes to decide between, so no share of wrong decisions; but a loss to stop by.
    assert all(math.isnan(report.validation_error) for report in reports)
    assert all(math.isfinite(report.validation_loss) for report in reports[:150])


@pytest.mark.parametrize("hidden", [(), (16,)])
def test_an_objective_without_decoder_trains_the_encoder(hidden: tuple[int, ...]) -> None:
    # Three classes in the first two of ten coordinates; the others are noise, and louder.
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 240)
    X = rng.normal(size=(240, 10)) * ([0.3, 0.3] + [2.0] * 8)
    X[:, :2] += np.array([[0, 0], [2, 0], [0, 2]])[labels]
    rows = raw_rows(X)
    network = Network(10, hidden, 2, 0, "tanh", torch.Generator().manual_seed(0))
    config = TrainingConfig(
        batch_size=64, max_epochs=60, pretrain_epochs=3, merge_epochs=2, learning_rate=0.02
    )

    def error() -> float:
        with torch.no_grad():
            z = network.encode(rows.gather(torch.arange(240))).numpy()
        return float((knn_predict(z, labels) != labels).mean())

    before = error()
    reports = run(NeighbourhoodComponents(), rows, labels, network, config)

    assert len(reports) == 3 * network.n_stages + 60 + 2
    assert before > 0.4
    assert error() < 0.1


@given(st.integers(0, 2**32 - 1), st.booleans())
def test_within_share_is_what_a_double_loop_counts(seed: int, weighted: bool) -> None:
    rng = np.random.default_rng(seed)
    n, n_classes = int(rng.integers(1, 40)), int(rng.integers(1, 6))
    code = rng.normal(size=(n, 2)) + 5 * rng.normal(size=2)
    labels = rng.integers(n_classes, size=n)
    weights = rng.uniform(0.1, 3, size=n) if weighted else np.ones(n)
    within = total = 0.0
    for z, label, weight in zip(code, labels, weights, strict=True):
        own = labels == label
        within += weight * np.sum((z - np.average(code[own], axis=0, weights=weights[own])) ** 2)
        total += weight * np.sum((z - np.average(code, axis=0, weights=weights)) ** 2)
    found = within_share(
        torch.tensor(code, dtype=torch.float64),
        torch.tensor(labels),
        torch.tensor(weights) if weighted else None,
        n_classes,
    )
    if n > 1:
        np.testing.assert_allclose(float(found), within / total, rtol=1e-7, atol=1e-12)
    assert -1e-9 <= float(found) <= (1 + 1e-9 if n > 1 else 0.05)


@given(st.integers(0, 2**32 - 1), st.floats(0.01, 100))
def test_within_share_knows_no_scale_no_place_and_no_direction(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    code, labels = rng.normal(size=(30, 2)), torch.tensor(rng.integers(4, size=30))
    turn, _ = np.linalg.qr(rng.normal(size=(2, 2)))
    moved = scale * code @ turn + 3 * rng.normal(size=2)
    shares = [float(within_share(torch.tensor(z), labels, None, 4)) for z in (code, moved)]
    np.testing.assert_allclose(shares[1], shares[0], rtol=1e-8)


def test_a_code_in_one_place_has_finite_gradients() -> None:
    code = torch.ones(6, 2, requires_grad=True)
    share = within_share(code, torch.tensor([0, 0, 1, 1, 2, 2]), None, 3)
    share.backward()
    assert share.item() == 0
    assert torch.isfinite(code.grad).all()


def test_compactness_adds_its_part_to_the_loss() -> None:
    rng = np.random.default_rng(0)
    centroids = rng.normal(size=(4, 6))
    labels = rng.integers(4, size=20)
    plain = fit(centroids)
    compact = CentroidTargets.fit(centroids, "span", CPU, 0.3)
    asked = batch(rng.normal(size=(20, plain.n_outputs)), labels)
    share = within_share(asked.code, asked.labels, None, 4)
    assert float(compact.loss(asked)) == pytest.approx(float(plain.loss(asked) + 0.3 * share))

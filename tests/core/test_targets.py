from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, pdist
from sklearn.utils import compute_class_weight

from centroid_encoder.core.targets import CentroidTargets, Output, class_weights, within_share
from tests.threads import threads

Array = NDArray[np.float64]
CPU = torch.device("cpu")


@st.composite
def centroid_sets(draw: st.DrawFn) -> Array:
    """(M, d) centroids in general position, on a line, coincident or in pairs; also M > d."""
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
    return 10.0 ** draw(st.integers(-3, 3)) * (centroids + draw(st.sampled_from([0.0, 10.0])))


def spread(centroids: Array) -> float:
    return float(np.abs(centroids - centroids.mean(axis=0)).max())


@given(centroid_sets(), st.integers(0, 2**32 - 1))
def test_span_and_full_output_decide_the_same(centroids: Array, seed: int) -> None:
    span, full = (CentroidTargets.fit(centroids, output, CPU) for output in ("span", "full"))
    output = np.random.default_rng(seed).normal(scale=2, size=(30, span.n_outputs))
    in_input_space = output @ span.basis + span.origin
    distances = span.distances(torch.tensor(output).float()).numpy()
    expected = cdist(in_input_space, centroids)
    factor = np.linalg.norm(span.basis[0])
    assert_allclose(factor * distances, expected, rtol=1e-4, atol=1e-5 * factor)
    of_full = full.distances(torch.tensor(in_input_space).float()).numpy()
    assert_allclose(of_full, expected, rtol=1e-3, atol=1e-6 * np.abs(in_input_space).max())
    # The decisions are the same unless two distances are equal in float32.
    two = np.sort(expected, axis=1)[:, :2]
    clear = two[:, -1] - two[:, 0] > 1e-4 * factor
    assert_array_equal(distances.argmin(axis=1)[clear], expected.argmin(axis=1)[clear])


@given(centroid_sets(), st.sampled_from(["span", "full"]))
def test_targets_map_back_to_the_centroids(centroids: Array, output: Output) -> None:
    targets = CentroidTargets.fit(centroids, output, CPU)
    back = targets.to_input(targets.coordinates.numpy())
    assert back.dtype == np.float32
    assert_allclose(back, centroids, rtol=1e-6, atol=1e-5 * spread(centroids))


@pytest.mark.parametrize(
    ("centroids", "n_outputs"),
    [
        (np.eye(4, 6), 3),
        (np.eye(4, 6)[:2], 1),
        (np.random.default_rng(0).normal(size=(9, 3)), 3),
        (np.linspace(0, 1, 5)[:, None] * [[3.0, 1.0, 2.0]], 1),
        (np.ones((3, 4)), 1),
        (1e4 + np.eye(3), 2),
    ],
    ids=["simplex", "two classes", "M > d", "collinear", "coincident", "far away"],
)
def test_span_has_as_many_outputs_as_the_rank_of_the_centroids(
    centroids: Array, n_outputs: int
) -> None:
    targets = CentroidTargets.fit(centroids, "span", CPU)
    assert targets.n_outputs == n_outputs
    coordinates = targets.coordinates.numpy()
    assert_allclose(coordinates.mean(axis=0), 0, atol=1e-6)
    # Their mean square is one, so that the loss starts near 1.
    assert np.square(coordinates).mean() == pytest.approx(float(spread(centroids) > 0), abs=1e-5)


@given(centroid_sets())
def test_distances_of_spread_out_targets_are_roots_of_those_of_centroids(centroids: Array) -> None:
    targets = CentroidTargets.spread_out(centroids, CPU).coordinates.double().numpy()
    wanted, found = pdist(centroids), pdist(targets) ** 2
    if len(wanted) and wanted.max() > 1e-6 * np.abs(centroids).max():
        assert_allclose(found / found.max(), wanted / wanted.max(), atol=1e-4)
        assert np.square(targets).mean() == pytest.approx(1, abs=1e-4)
    assert np.isfinite(targets).all()


def test_distances_to_close_centroids_are_not_lost_in_cancellation() -> None:
    targets = CentroidTargets.fit(np.array([[1000.0, 0], [1000.001, 0]]), "full", CPU)
    assert_allclose(targets.distances(torch.tensor([[1000.0, 0]])), [[0, 0.001]], atol=1e-4)


@given(st.integers(0, 2**32 - 1), st.booleans(), st.floats(0.01, 100))
def test_within_share_is_that_of_a_double_loop(seed: int, weighted: bool, scale: float) -> None:
    rng = np.random.default_rng(seed)
    n, n_classes = int(rng.integers(2, 40)), int(rng.integers(1, 6))
    code = rng.normal(size=(n, 2)) + 5 * rng.normal(size=2)
    labels = rng.integers(n_classes, size=n)
    weights = rng.uniform(0.1, 3, size=n) if weighted else np.ones(n)
    within = total = 0.0
    for z, label, weight in zip(code, labels, weights, strict=True):
        own = labels == label
        within += weight * np.sum((z - np.average(code[own], axis=0, weights=weights[own])) ** 2)
        total += weight * np.sum((z - np.average(code, axis=0, weights=weights)) ** 2)
    # The share does not depend on scale, place or direction.
    turn, _ = np.linalg.qr(rng.normal(size=(2, 2)))
    moved = scale * code @ turn + scale * rng.normal(size=2)
    for z in (code, moved):
        weight = torch.tensor(weights) if weighted else None
        found = float(within_share(torch.tensor(z), torch.tensor(labels), weight, n_classes))
        assert found == pytest.approx(within / total, rel=1e-6, abs=1e-9)


def test_equal_bottleneck_outputs_have_finite_gradients() -> None:
    code = torch.ones(6, 2, requires_grad=True)
    share = within_share(code, torch.tensor([0, 0, 1, 1, 2, 2]), None, 3)
    share.backward()
    assert share.item() == 0
    assert torch.isfinite(code.grad).all()


def test_gradients_of_a_wide_code_have_the_same_bits_on_several_threads() -> None:
    rng = np.random.default_rng(0)
    code = torch.tensor(rng.normal(size=(512, 300)), dtype=torch.float32, requires_grad=True)
    labels, found = torch.tensor(rng.integers(20, size=512)), set()
    with threads(2):
        for _ in range(30):
            (gradient,) = torch.autograd.grad(within_share(code, labels, None, 20), code)
            found.add(gradient.numpy().tobytes())
    assert len(found) == 1


def test_class_weights_are_those_of_scikit_learn() -> None:
    labels, classes = np.array(["a"] * 9 + ["b"]), np.array(["a", "b"])
    balanced = compute_class_weight("balanced", classes=classes, y=labels)
    none = np.array([], dtype=str)
    assert_allclose(class_weights(None, labels, classes, none), [1, 1])
    assert_allclose(class_weights("balanced", labels, classes, none), balanced)
    assert_allclose(class_weights("sqrt", labels, classes, none), np.sqrt(balanced))
    given = {"a": 2.0, "of nothing": 3.0}
    assert_allclose(class_weights(given, labels, classes, np.array(["of nothing"])), [2, 1])
    with pytest.raises(ValueError, match="class_weight must be above 0"):
        class_weights({"a": 0}, labels, classes, none)

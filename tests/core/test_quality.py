"""Errors of an embedding against scikit-learn and brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from centroid_encoder.core import quality
from centroid_encoder.core.quality import (
    input_neighbors,
    knn_predict,
    misplacement_depth,
    nearest_center,
    no_better_than,
    permutation_p_value,
    turned_onto,
)

Array = NDArray[np.float64]
Labels = NDArray[np.integer]


@st.composite
def embeddings(draw: st.DrawFn) -> tuple[Array, Labels, Array]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, q = draw(st.integers(2, 40)), draw(st.integers(1, 20))
    m, n_classes = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    points = rng.normal(size=(n + q, m))
    return points[:n], rng.integers(0, n_classes, n), points[n:]


@given(embeddings())
def test_knn_is_the_majority_of_the_five_nearest(case: tuple[Array, Labels, Array]) -> None:
    reference, labels, queries = case

    def majority(distances: Array, k: int) -> list[int]:
        nearest = np.argsort(distances, axis=1, kind="stable")[:, :k]
        return [int(np.bincount(labels[row]).argmax()) for row in nearest]

    expected = majority(cdist(queries, reference), min(5, len(reference)))
    np.testing.assert_array_equal(knn_predict(reference, labels, queries), expected)
    # A reference point is not its own neighbour.
    others = cdist(reference, reference)
    np.fill_diagonal(others, np.inf)
    expected = majority(others, min(5, len(reference) - 1))
    np.testing.assert_array_equal(knn_predict(reference, labels), expected)


def test_a_duplicate_counts_as_a_neighbour_and_no_points_give_an_empty_result() -> None:
    reference, labels = np.repeat([[0.0, 0], [9, 0]], 6, axis=0), np.repeat([0, 1], 6)
    np.testing.assert_array_equal(knn_predict(reference, labels), labels)
    assert knn_predict(reference, labels, np.zeros((0, 2))).shape == (0,)


@given(embeddings(), st.integers(1, 7))
def test_points_lie_in_the_cell_of_the_nearest_center(
    case: tuple[Array, Labels, Array], chunk: int
) -> None:
    centers, _, points = case
    expected = [np.square(centers - point).sum(axis=1).argmin() for point in points]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality, "AT_ONCE", chunk)
        np.testing.assert_array_equal(nearest_center(points, centers), expected)


@pytest.mark.parametrize("n_classes", [0, 2, 5])
@pytest.mark.parametrize("reflect", [1, -1])
def test_an_embedding_is_rotated_onto_another_one(n_classes: int, reflect: int) -> None:
    rng = np.random.default_rng(n_classes)
    points = rng.normal(size=(50, 2)) * [3, 1]
    points[3] = np.nan
    centers = rng.normal(size=(5, 2))
    turn = np.array([[0.6, -0.8], [0.8, 0.6]]) * [1, reflect]
    moved, moved_centers = points @ turn + 7, centers @ turn + 7
    # Two centers do not determine whether to reflect.
    pairs = moved_centers[:n_classes], centers[:n_classes]
    found = turned_onto((moved, moved_centers), pairs, (moved, points))
    np.testing.assert_allclose(found[0], points, atol=1e-9)
    np.testing.assert_allclose(found[1], centers, atol=1e-9)


@pytest.mark.parametrize("proportions", [[0.5, 0.5], [0.7, 0.2, 0.1]])
def test_random_predictions_are_no_better_than_the_largest_class(proportions: list[float]) -> None:
    rng, n_no_better = np.random.default_rng(0), 0
    for _ in range(100):
        labels, predicted = rng.choice(len(proportions), (2, 100), p=proportions)
        n_no_better += no_better_than(predicted != labels, labels != 0)
    assert n_no_better >= 90
    assert no_better_than(labels != 0, labels != 0)
    found = np.where(rng.random(100) < 0.7, labels, predicted)
    assert not no_better_than(found != labels, labels != 0)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_neighbours_in_the_input_are_those_of_z_scores_of_all_features(is_sparse: bool) -> None:
    rng = np.random.default_rng(0)
    X = rng.gamma(1.0, 10.0 ** rng.uniform(-2, 2, 700), size=(300, 700)) * (rng.random(700) < 0.9)
    labels, reference, rows = rng.integers(0, 3, 300), np.arange(0, 200), np.arange(200, 300)
    pipe = make_pipeline(StandardScaler(), KNeighborsClassifier(5))
    expected = pipe.fit(X[reference], labels[reference]).predict(X[rows])
    given = sparse.csr_matrix(X) if is_sparse else X
    found = input_neighbors(given, reference, labels[reference], rows)
    np.testing.assert_array_equal(found, expected)


def test_p_value_includes_the_observed_error() -> None:
    null = np.array([0.5, 0.6, 0.7, 0.8])
    found = [permutation_p_value(error, null) for error in (0.1, 0.6, 0.9)]
    assert found == pytest.approx([1 / 5, 3 / 5, 1])
    assert permutation_p_value(0.1, np.empty(0)) == 1


def test_depth_is_a_ratio_of_distances_and_above_zero() -> None:
    found = np.array([0, 1, 3, 2.5, 0, 1, 2], np.float32)
    own = np.array([5.0, 4, 4, 10, 0, 1, 1.9999999])
    depth = misplacement_depth(found, own)
    np.testing.assert_allclose(depth, [1, 0.75, 0.25, 0.75, 0, 0, 0], atol=1e-12)
    assert (depth > 0).all()

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial.distance import cdist
from sklearn.metrics import balanced_accuracy_score, zero_one_loss
from sklearn.neighbors import KNeighborsClassifier

from centroid_encoder.core import quality
from centroid_encoder.core.quality import (
    N_NEIGHBORS,
    Errors,
    class_centers,
    knn_predict,
    misplacement_depth,
    nearest_center,
    permutation_p_value,
)

Array = NDArray[np.float64]
Labels = NDArray[np.integer]


def errors_of(
    labels: Labels, predicted: Labels, n_classes: int | None = None, **changes: Any
) -> Errors:
    """All three predictions the same, unless told otherwise."""
    kinds = dict.fromkeys(("knn", "voronoi", "decoder"), predicted)
    return Errors.count(
        labels,
        **(kinds | {"largest_class": 0} | changes),
        n_classes=int(labels.max()) + 1 if n_classes is None else n_classes,
    )


def majority_of_the_nearest(distances: Array, labels: Labels, k: int) -> Labels:
    """Brute force; of classes with equal votes, the first."""
    nearest = np.argsort(distances, axis=1, kind="stable")[:, :k]
    n_classes = labels.max() + 1
    return np.array([np.bincount(labels[row], minlength=n_classes).argmax() for row in nearest])


@st.composite
def embeddings(draw: st.DrawFn) -> tuple[Array, Labels, Array]:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, q = draw(st.integers(2, 40)), draw(st.integers(1, 20))
    m, n_classes = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    points = rng.normal(size=(n + q, m))
    return points[:n], rng.integers(0, n_classes, n), points[n:]


@given(embeddings())
@settings(max_examples=40, deadline=None)
def test_knn_is_the_majority_of_the_five_nearest_or_of_as_many_as_there_are(
    case: tuple[Array, Labels, Array],
) -> None:
    reference, labels, queries = case
    k = min(5, len(reference))

    predicted = knn_predict(reference, labels, queries)

    brute = majority_of_the_nearest(cdist(queries, reference), labels, k)
    np.testing.assert_array_equal(predicted, brute)
    sklearn = KNeighborsClassifier(k).fit(reference, labels).predict(queries)
    np.testing.assert_array_equal(predicted, sklearn)


@given(embeddings())
@settings(max_examples=20, deadline=None)
def test_a_reference_point_is_not_its_own_neighbour(case: tuple[Array, Labels, Array]) -> None:
    reference, labels, _ = case
    k = min(5, len(reference) - 1)

    predicted = knn_predict(reference, labels)

    one_left_out = [
        KNeighborsClassifier(k)
        .fit(np.delete(reference, i, axis=0), np.delete(labels, i))
        .predict(reference[i : i + 1])[0]
        for i in range(len(reference))
    ]
    np.testing.assert_array_equal(predicted, one_left_out)


def test_five_neighbours_as_in_the_paper() -> None:
    assert N_NEIGHBORS == 5


def test_a_duplicate_of_a_reference_point_is_its_neighbour() -> None:
    # Two far pairs of duplicates and each pair of one class: with one neighbour, all are right.
    reference = np.repeat([[0.0, 0], [9, 0]], 6, axis=0)
    labels = np.repeat([0, 1], 6)

    np.testing.assert_array_equal(knn_predict(reference, labels), labels)


def test_knn_of_no_points_is_empty() -> None:
    predicted = knn_predict(np.zeros((6, 2)), np.zeros(6, dtype=int), np.zeros((0, 2)))

    assert predicted.shape == (0,)
    assert predicted.dtype == np.intp


@given(embeddings())
def test_voronoi_prediction_is_the_nearest_center(case: tuple[Array, Labels, Array]) -> None:
    centers, _, queries = case

    expected = [np.square(centers - query).sum(axis=1).argmin() for query in queries]

    np.testing.assert_array_equal(nearest_center(queries, centers), expected)


def test_a_point_on_a_border_lies_in_its_own_cell() -> None:
    centers = np.array([[0.0, 0], [2, 0], [0, 2]])
    points = np.array([[1.0, 1]] * 4 + [[1.5, 0], [0.5, 0]])

    # All three are as near to the first four, 1 and 0 are the nearest of the others.
    found = nearest_center(points, centers, np.array([0, 1, 2, -1, 0, 1]))

    np.testing.assert_array_equal(found, [0, 1, 2, 0, 1, 0])
    np.testing.assert_array_equal(nearest_center(points, centers), [0, 0, 0, 0, 1, 0])


def test_nothing_lies_in_the_cell_of_a_class_without_a_center() -> None:
    centers = np.array([[np.nan, np.nan], [0, 0], [3, 0]])
    points = np.array([[0.1, 0], [2.9, 0], [1, 1]])

    found = nearest_center(points, centers, np.array([0, 0, 2]))

    np.testing.assert_array_equal(found, [1, 2, 1])


@given(embeddings(), st.integers(1, 7))
def test_points_are_placed_one_by_one_however_many_there_are(
    case: tuple[Array, Labels, Array], chunk: int
) -> None:
    points, labels, centers = case
    own = labels % len(centers)
    distances = cdist(points, centers)
    points[::2] = centers[own[::2]] / 2 + centers[distances.argmin(axis=1)[::2]] / 2

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(quality, "AT_ONCE", chunk)
        found = nearest_center(points, centers, own)

    one_by_one = [
        nearest_center(points[i : i + 1], centers, own[i : i + 1])[0] for i in range(len(points))
    ]
    np.testing.assert_array_equal(found, one_by_one)


def test_depth_is_a_ratio_of_distances() -> None:
    depth = misplacement_depth(np.array([0, 1, 3, 2.5], np.float32), np.array([5.0, 4, 4, 10]))

    assert depth.dtype == np.float64
    np.testing.assert_allclose(depth, [1, 0.75, 0.25, 0.75], rtol=1e-15)


def test_depth_on_a_border_is_next_to_nothing_but_never_none() -> None:
    # As float32 distances can be of cells that a decision in higher precision has misplaced.
    depth = misplacement_depth(np.array([0.0, 1, 1e-30, 2]), np.array([0.0, 1, 1e-30, 1.9999999]))

    assert ((depth > 0) & (depth < 1e-12)).all()
    assert misplacement_depth(np.empty(0), np.empty(0)).shape == (0,)


@given(embeddings(), st.floats(0, 2 * np.pi), st.floats(-6, 6), st.floats(-100, 100))
@settings(max_examples=60, deadline=None)
def test_depth_does_not_depend_on_where_the_axes_lie_and_on_their_unit(
    case: tuple[Array, Labels, Array], angle: float, exponent: float, shift: float
) -> None:
    points, labels, centers = case
    own = labels % len(centers)

    def placed(points: Array, centers: Array) -> tuple[Labels, Array]:
        found = nearest_center(points, centers, own)
        distances, rows = cdist(points, centers), np.flatnonzero(found != own)
        return found, misplacement_depth(distances[rows, found[rows]], distances[rows, own[rows]])

    rotation = np.eye(points.shape[1])
    if len(rotation) > 1:
        rotation[:2, :2] = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    found, depth = placed(points, centers)
    moved = [(x @ rotation + shift) * 10**exponent for x in (points, centers)]
    found_moved, depth_moved = placed(*moved)

    np.testing.assert_array_equal(found_moved, found)
    np.testing.assert_allclose(depth_moved, depth, atol=1e-9)
    assert ((depth > 0) & (depth <= 1)).all()


def test_a_class_without_points_has_no_center() -> None:
    centers = class_centers(np.array([[1.0, 2], [3, 4]]), np.array([2, 2]), 4)

    np.testing.assert_array_equal(centers[2], [2, 3])
    assert np.isnan(centers[[0, 1, 3]]).all()


def test_class_centers_are_means_in_float64() -> None:
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.arange(3000) % 7)
    embedding = (rng.normal(size=(3000, 3)) + 1000).astype(np.float32)

    centers = class_centers(embedding, labels, 7)

    assert centers.dtype == np.float64
    expected = [embedding[labels == code].astype(float).mean(axis=0) for code in range(7)]
    np.testing.assert_allclose(centers, expected, rtol=1e-12)


@pytest.mark.filterwarnings("ignore::UserWarning:sklearn")
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(2, 6))
@settings(max_examples=50, deadline=None)
def test_errors_are_those_of_scikit_learn(seed: int, n: int, n_classes: int) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.choice(n_classes, n, p=rng.dirichlet(np.ones(n_classes)))
    predictions = {
        name: np.where(rng.uniform(size=n) < p, rng.integers(0, n_classes, n), labels)
        for name, p in (("knn", 0.2), ("voronoi", 0.5), ("decoder", 0.9))
    }
    largest = int(rng.integers(n_classes))

    errors = errors_of(labels, labels, n_classes, **predictions, largest_class=largest)

    assert errors.n == n
    np.testing.assert_array_equal(errors.class_n, np.bincount(labels, minlength=n_classes))
    for name, predicted in predictions.items():
        assert getattr(errors, name) == pytest.approx(zero_one_loss(labels, predicted))
        balanced = 1 - balanced_accuracy_score(labels, predicted)
        assert getattr(errors, f"balanced_{name}") == pytest.approx(balanced)
        per_class = [
            zero_one_loss(labels[labels == code], predicted[labels == code])
            if (labels == code).any()
            else np.nan
            for code in range(n_classes)
        ]
        np.testing.assert_allclose(getattr(errors, f"class_{name}"), per_class)
    assert errors.chance == pytest.approx(np.mean(labels != largest))


def test_without_samples_there_are_no_errors() -> None:
    none = np.zeros(0, dtype=np.intp)

    errors = errors_of(none, none, 3)

    assert errors.n == 0
    for name in ("knn", "voronoi", "decoder", "chance"):
        assert np.isnan(getattr(errors, name))
    for name in ("knn", "voronoi", "decoder"):
        assert np.isnan(getattr(errors, f"balanced_{name}"))
        np.testing.assert_array_equal(getattr(errors, f"class_{name}"), [np.nan] * 3)
    np.testing.assert_array_equal(errors.class_n, [0, 0, 0])
    assert not errors.at_chance()


@pytest.mark.parametrize("proportions", [[0.5, 0.5], [0.25] * 4, [0.7, 0.2, 0.1]])
def test_random_labels_are_found_at_chance(proportions: list[float]) -> None:
    rng = np.random.default_rng(0)

    def draw() -> bool:
        labels = rng.choice(len(proportions), 300, p=proportions)
        points = rng.normal(size=(300, 2))
        predicted = knn_predict(points[:200], labels[:200], points[200:])
        largest = int(np.bincount(labels[:200]).argmax())
        return errors_of(
            labels[200:], predicted, len(proportions), largest_class=largest
        ).at_chance()

    assert sum(draw() for _ in range(100)) >= 90


@pytest.mark.parametrize("distance", [1.5, 6.0])
def test_classes_that_do_separate_are_not_at_chance(distance: float) -> None:
    # 1.5: the classes overlap, yet there is something to see.
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 300)
    points = rng.normal(size=(300, 2)) + distance * np.array([[0, 0], [1, 0], [0, 1]])[labels]

    predicted = knn_predict(points[:200], labels[:200], points[200:])

    assert not errors_of(labels[200:], predicted).at_chance()


def test_naming_the_largest_class_is_no_better_than_chance() -> None:
    labels = np.repeat([0, 1], [950, 50])

    assert errors_of(labels, np.zeros_like(labels)).at_chance()
    assert not errors_of(labels, labels).at_chance()


def test_p_value_counts_the_observed_labeling_itself() -> None:
    null = np.array([0.5, 0.6, 0.7, 0.8])
    assert permutation_p_value(0.1, null) == pytest.approx(1 / 5)
    assert permutation_p_value(0.6, null) == pytest.approx(3 / 5)
    assert permutation_p_value(0.9, null) == 1
    assert permutation_p_value(0.1, np.empty(0)) == 1


def test_p_values_of_what_is_one_of_many_are_uniform() -> None:
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(4000, 20))
    p = np.array([permutation_p_value(float(draw[0]), draw[1:]) for draw in draws])
    assert (p <= 0.05).mean() == pytest.approx(0.05, abs=0.01)
    assert p.mean() == pytest.approx(0.525, abs=0.02)

"""Voronoi cells and images of decisions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.path import Path
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from centroid_encoder.core.regions import (
    blended_colors,
    bounding_box,
    region_image,
    voronoi_cells,
)

Array = NDArray[np.float64]

BOX = (-1.0, -1.5, 2.0, 1.0)
NORMAL = np.random.default_rng(1).normal(size=(300, 2))
LINE = np.linspace(-1, 1, 9)


def check_cells(centers: Array) -> list[Array]:
    """Points that are not close to a border lie only in the cell of their nearest center."""
    cells = voronoi_cells(centers, BOX)
    points = np.random.default_rng(0).uniform(BOX[:2], BOX[2:], size=(300, 2))
    distance = cdist(points, centers)
    nearest = distance.argmin(axis=1)
    elsewhere = (centers[nearest][:, None] != centers).any(axis=2)
    rival = np.where(elsewhere, distance, np.inf).min(axis=1)
    sure = rival - distance.min(axis=1) > 1e-9 * max(1, np.abs(centers).max())
    inside = np.zeros((300, len(centers)), dtype=bool)
    for j, cell in enumerate(cells):
        if len(cell):
            inside[:, j] = Path(np.vstack([cell, cell[:1]]), closed=True).contains_points(points)
    np.testing.assert_array_equal(inside[sure], (nearest[:, None] == range(len(centers)))[sure])
    return cells


anywhere = st.floats(-4, 4)
on_a_lattice = st.integers(-4, 4).map(lambda k: k / 2)


@given(
    st.one_of(
        st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=30).map(np.array)
        for coordinate in (anywhere, on_a_lattice)
    )
)
def test_cells_hold_the_points_nearest_to_their_center(centers: Array) -> None:
    check_cells(centers)


@pytest.mark.parametrize(
    "centers",
    [
        pytest.param(np.stack([LINE, 0.3 * LINE + 0.1], axis=1), id="oblique line"),
        pytest.param(np.stack([np.cos(LINE * 3), np.sin(LINE * 3)], axis=1), id="circle"),
        pytest.param(np.array([[0, 0], [1e-14, 0], [0, 1e-14], [1, 1]]), id="nearly coincident"),
        pytest.param(NORMAL, id="300"),
        pytest.param(NORMAL[:40] * 10.0 ** (np.arange(40)[:, None] % 4), id="far out"),
    ],
)
def test_degenerate_centers_have_correct_cells(centers: Array) -> None:
    check_cells(centers)


def test_a_center_that_is_not_finite_has_no_cell() -> None:
    centers = np.array([[np.nan, np.nan], [0.5, 0], [0, np.inf], [-0.5, 0]])
    cells = voronoi_cells(centers, BOX)
    assert [len(cell) > 0 for cell in cells] == [False, True, False, True]
    np.testing.assert_array_equal(cells[1], voronoi_cells(centers[[1, 3]], BOX)[0])
    assert not any(map(len, voronoi_cells(np.full((2, 2), np.nan), BOX)))
    assert voronoi_cells(np.empty((0, 2)), BOX) == []


@pytest.mark.parametrize("n_classes", [1, 12, 1000])
def test_an_image_has_the_decision_at_each_pixel(n_classes: int) -> None:
    centroids = np.random.default_rng(3).normal(size=(n_classes, 4))
    sizes = []

    def decide(z: NDArray[np.float32]) -> NDArray[np.intp]:
        sizes.append(len(z))
        x, y = z.astype(np.float64).T
        return cdist(np.stack([x, y, np.sin(2 * x), np.cos(2 * y)], axis=1), centroids).argmin(1)

    image = region_image(decide, BOX, 150)
    assert image.shape == (150, 150)
    assert max(sizes) < 10_000
    rows, columns = np.random.default_rng(0).integers(150, size=(2, 100))
    x = -1 + 3 * (columns + 0.5) / 150
    y = -1.5 + 2.5 * (rows + 0.5) / 150
    expected = decide(np.stack([x, y], axis=1).astype(np.float32))
    np.testing.assert_array_equal(image[rows, columns], expected)


@given(st.integers(0, 1000), st.integers(1, 30), st.integers(1, 2))
def test_the_strongest_colour_is_that_of_the_nearest_center(
    seed: int, n_classes: int, n_components: int
) -> None:
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(n_classes, n_components)) * 10 ** rng.uniform(-3, 3)
    low, high = centers.min() - centers.std() - 1e-3, centers.max() + centers.std() + 1e-3
    shares = blended_colors(centers, np.eye(n_classes), (low, low, high, high), 50)
    assert (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=2), 1, rtol=1e-6)
    middles = low + (high - low) * (np.arange(50) + 0.5) / 50
    pixels = np.stack(np.meshgrid(middles, middles), axis=-1)[..., :n_components]
    distances = cdist(pixels.reshape(-1, n_components), centers)
    two = np.sort(distances, axis=1)[:, :2]
    sure = (two[:, -1] - two[:, 0] > 1e-5 * (high - low)) | (n_classes == 1)
    np.testing.assert_array_equal(
        shares.reshape(-1, n_classes).argmax(axis=1)[sure], distances.argmin(axis=1)[sure]
    )


def test_equal_centers_and_centers_without_place_blend() -> None:
    centers = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [np.nan, np.nan]])
    shares = blended_colors(centers, np.eye(4), BOX)
    assert not shares[..., [1, 3]].any()
    np.testing.assert_allclose(shares.sum(axis=2), 1, rtol=1e-6)


def test_a_box_of_no_finite_point_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one finite"):
        bounding_box(np.array([[np.nan, 0]]))

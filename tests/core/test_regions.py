from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.spatial import Voronoi
from scipy.spatial.distance import cdist

from centroid_encoder.core.regions import (
    Box,
    Decide,
    Region,
    bounding_box,
    decoder_regions,
    voronoi_regions,
)

Array = NDArray[np.float64]

BOX = (-1.0, -1.5, 2.0, 1.0)
BOX_AREA = 7.5


def area(region: Region) -> float:
    """Signed, so that holes count negative."""
    return sum(
        float(x @ np.roll(y, -1) - y @ np.roll(x, -1)) / 2
        for x, y in (np.subtract(ring, ring[0]).T for ring in region)
    )


def winding(regions: list[Region], points: Array) -> NDArray[np.int64]:
    """How often each region winds around each point: 0 and 1 alone satisfy both fill rules."""
    count = np.zeros((len(points), len(regions)), dtype=np.int64)
    px, py = points[:, :1], points[:, 1:]
    for owner, region in enumerate(regions):
        for ring in region:
            (x, y), (x2, y2) = ring.T, np.roll(ring, -1, axis=0).T
            upward = (y <= py).astype(int) - (y2 <= py)
            left = (x2 - x) * (py - y) - (px - x) * (y2 - y)
            count[:, owner] += np.where(upward * left > 0, upward, 0).sum(axis=1)
    return count


def sample(n: int = 300) -> Array:
    return np.random.default_rng(0).uniform(BOX[:2], BOX[2:], size=(n, 2))


def check_cells(centers: Array) -> list[Region]:
    """Compare cells with brute force, leaving out points too close to a bisector to call."""
    regions = voronoi_regions(centers, BOX)
    tolerance = 1e-9 * max(1, np.abs(centers).max())

    points = sample()
    distance = cdist(points, centers)
    nearest = distance.argmin(axis=1)
    elsewhere = (centers[nearest][:, None] != centers).any(axis=2)
    rival = np.where(elsewhere, distance, np.inf).min(axis=1)
    sure = rival - distance.min(axis=1) > tolerance
    expected = nearest[:, None] == np.arange(len(centers))
    np.testing.assert_array_equal(winding(regions, points)[sure], expected[sure])

    assert sum(map(area, regions)) == pytest.approx(BOX_AREA, rel=1e-9)
    assert all(len(region) <= 1 for region in regions)
    rings = np.concatenate([ring for region in regions for ring in region])
    assert np.abs(rings - np.clip(rings, BOX[:2], BOX[2:])).max() < 1e-12
    return regions


def squared_distance_to(centers: Array) -> Decide:
    """Decide like a decoder that is the identity."""
    return lambda z: cdist(z.astype(np.float64), centers, "sqeuclidean")


anywhere = st.floats(-4, 4)
on_a_lattice = st.integers(-4, 4).map(lambda k: k / 2)
nearly_on_it = st.tuples(on_a_lattice, st.floats(-1e-12, 1e-12)).map(sum)
centers_strategy = st.one_of(
    st.lists(st.tuples(coordinate, coordinate), min_size=1, max_size=30).map(np.array)
    for coordinate in (anywhere, on_a_lattice, nearly_on_it)
)


@given(centers_strategy)
@settings(max_examples=150, deadline=None)
def test_cells_tile_the_box_and_hold_the_points_nearest_to_their_center(centers: Array) -> None:
    check_cells(centers)


NORMAL = np.random.default_rng(1).normal(size=(300, 2))
LINE = np.linspace(-1, 1, 9)


@pytest.mark.parametrize(
    "centers",
    [
        pytest.param(np.array([[0.3, 0.1]]), id="one"),
        pytest.param(np.array([[9.0, 9.0]]), id="one outside"),
        pytest.param(np.array([[0.3, 0.1], [0.4, -0.7]]), id="two"),
        pytest.param(np.stack([LINE, 0 * LINE], axis=1), id="horizontal line"),
        pytest.param(np.stack([LINE, 0.3 * LINE + 0.1], axis=1), id="oblique line"),
        pytest.param(np.stack([np.cos(LINE * 3), np.sin(LINE * 3)], axis=1), id="circle"),
        pytest.param(np.array([[0, 0], [1e-14, 0], [0, 1e-14], [1, 1]]), id="nearly coincident"),
        pytest.param(NORMAL, id="300"),
        pytest.param(5 + NORMAL[:40], id="all outside"),
        pytest.param(NORMAL[:40] * 10.0 ** (np.arange(40)[:, None] % 7), id="far out"),
    ],
)
def test_cells_of_special_centers(centers: Array) -> None:
    check_cells(centers)


@given(st.integers(-300, 300))
@settings(max_examples=20, deadline=None)
def test_cells_scale_with_their_centers(exponent: int) -> None:
    centers, scale = np.random.default_rng(2).uniform(-1, 1, size=(12, 2)), 2.0**exponent
    scaled = voronoi_regions(centers * scale, tuple(np.multiply(BOX, scale)))
    for before, after in zip(voronoi_regions(centers, BOX), scaled, strict=True):
        np.testing.assert_array_equal(after, np.multiply(before, scale))


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
@settings(max_examples=20, deadline=None)
def test_cells_move_with_their_centers(right: float, up: float) -> None:
    centers = np.random.default_rng(2).uniform(-1, 1, size=(12, 2))
    shift = np.array([right, up])
    moved = voronoi_regions(centers + shift, tuple(np.add(BOX, [*shift, *shift])))
    for before, after in zip(voronoi_regions(centers, BOX), moved, strict=True):
        np.testing.assert_allclose(after, before + shift[None], rtol=0, atol=1e-8)


def test_the_first_of_coincident_centers_owns_the_cell() -> None:
    regions = check_cells(np.array([[1, 0], [0.0, 0], [1, 0], [-0.0, 0], [1, 0]]))
    assert [len(region) for region in regions] == [1, 1, 0, 0, 0]


def test_a_center_that_is_not_finite_owns_nothing() -> None:
    centers = np.array([[np.nan, np.nan], [0.5, 0], [0, np.inf], [-0.5, 0]])
    regions = voronoi_regions(centers, BOX)
    finite = voronoi_regions(centers[[1, 3]], BOX)
    assert regions[0] == regions[2] == []
    assert voronoi_regions(np.full((2, 2), np.nan), BOX) == [[], []]
    assert voronoi_regions(np.empty((0, 2)), BOX) == []
    np.testing.assert_array_equal(regions[1], finite[0])
    np.testing.assert_array_equal(regions[3], finite[1])


def test_bounded_cells_agree_with_qhull() -> None:
    centers = np.random.default_rng(3).uniform(-1, 1, size=(80, 2))
    qhull = Voronoi(centers)
    compared = 0
    for center, index, region in zip(
        centers, qhull.point_region, voronoi_regions(centers, BOX), strict=True
    ):
        expected = qhull.vertices[qhull.regions[index]]
        if -1 in qhull.regions[index] or (expected < BOX[:2]).any() or (expected > BOX[2:]).any():
            continue
        by_angle = [np.argsort(np.arctan2(*(v - center).T)) for v in (expected, region[0])]
        np.testing.assert_allclose(region[0][by_angle[1]], expected[by_angle[0]], atol=1e-9)
        compared += 1
    assert compared > 40


@given(st.integers(2, 36), st.integers(1, 6), st.booleans(), st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_decoder_regions_of_noise_tile_the_box(
    resolution: int, n_classes: int, ties: bool, seed: int
) -> None:
    """Noise has every configuration: saddles, islands, junctions, ties, nothing known."""
    rng = np.random.default_rng(seed)
    table = rng.random((resolution, resolution, n_classes))
    if ties:
        table = np.where(table < 0.7, np.round(table), np.nan)
    x = np.linspace(BOX[0], BOX[2], resolution)
    y = np.linspace(BOX[1], BOX[3], resolution)
    regions = decoder_regions(
        lambda z: table[np.abs(z[:, 1:] - y).argmin(1), np.abs(z[:, :1] - x).argmin(1)],
        BOX,
        resolution=resolution,
    )
    assert sum(map(area, regions)) == pytest.approx(BOX_AREA, rel=1e-12)
    count = winding(regions, sample())
    assert (count >= 0).all()
    assert (count.sum(axis=1) == 1).all()
    if not ties:
        grid = np.stack(np.meshgrid(x, y), axis=-1)[1:-1, 1:-1].reshape(-1, 2)
        winner = table.argmin(axis=2)[1:-1, 1:-1].ravel()
        expected = winner[:, None] == np.arange(n_classes)
        np.testing.assert_array_equal(winding(regions, grid), expected)


def test_decoder_regions_agree_with_the_decision() -> None:
    centroids = np.random.default_rng(3).normal(size=(12, 4))

    def decide(z: NDArray[np.float32]) -> Array:
        x, y = z.astype(np.float64).T
        return cdist(np.stack([x, y, np.sin(2 * x), np.cos(2 * y)], axis=1), centroids)

    resolution, lipschitz = 120, np.sqrt(5)
    regions = decoder_regions(decide, BOX, resolution=resolution)
    points = sample(3000)
    distance = decide(points)
    best, second = np.sort(distance, axis=1)[:, :2].T
    # Where the decision cannot change within the diameter of a grid cell.
    sure = second - best > 2 * lipschitz * np.hypot(3, 2.5) / (resolution - 1)
    assert sure.mean() > 0.5
    expected = distance.argmin(axis=1)[:, None] == np.arange(len(centroids))
    np.testing.assert_array_equal(winding(regions, points)[sure], expected[sure])


def test_decoder_regions_of_the_identity_are_voronoi_cells() -> None:
    centers, resolution = np.random.default_rng(3).uniform(-1, 1, size=(20, 2)), 100
    traced = decoder_regions(squared_distance_to(centers), BOX, resolution=resolution)
    grid_cell = BOX_AREA / (resolution - 1) ** 2
    for cell, region in zip(voronoi_regions(centers, BOX), traced, strict=True):
        # Only the corners, about six, are cut off.
        assert area(region) == pytest.approx(area(cell), abs=3 * grid_cell)


def test_a_boundary_between_two_classes_is_far_finer_than_the_grid() -> None:
    centers = np.array([[0.3, 0.1], [0.4, -0.7]])
    exact = voronoi_regions(centers, BOX)
    traced = decoder_regions(squared_distance_to(centers), BOX, resolution=10)
    assert list(map(area, traced)) == pytest.approx(list(map(area, exact)), abs=1e-6)


def test_a_class_within_another_is_a_hole() -> None:
    """Rings of a target: disc, annulus, annulus, and the rest of the box."""
    radii = np.array([0.2, 0.5, 0.8])

    def decide(z: NDArray[np.float32]) -> Array:
        which = (np.linalg.norm(z, axis=1, keepdims=True) - radii).astype(np.float64)
        inner, outer = which.prod(axis=1), -which.prod(axis=1)
        return np.stack([inner, outer], axis=1)

    dark, light = decoder_regions(decide, BOX, resolution=200)
    disc, ring, rim = np.pi * radii**2
    assert sorted(area([r]) for r in dark) == pytest.approx([-ring, disc, rim], abs=2e-3)
    assert sorted(area([r]) for r in light) == pytest.approx([-rim, -disc, ring, 7.5], abs=2e-3)
    for circle in dark:
        distance = np.linalg.norm(circle, axis=1)
        assert np.abs(distance[:, None] - radii).min(axis=1).max() < 1e-3


def test_one_class_owns_the_whole_box() -> None:
    ((ring,),) = decoder_regions(lambda z: np.ones((len(z), 1)), BOX)
    assert sorted(ring.tolist()) == [[-1, -1.5], [-1, 1], [2, -1.5], [2, 1]]
    assert area([ring]) == BOX_AREA


def test_a_class_that_wins_nowhere_owns_nothing() -> None:
    never, unknown, same = [9.0, 9.0], [np.nan, np.nan], [0.5, 0.0]
    centers = np.array([never, unknown, [0.5, 0], same, [-0.5, 0]])
    regions = decoder_regions(squared_distance_to(centers), BOX, resolution=20)
    assert [len(region) for region in regions] == [0, 0, 1, 0, 1]


def test_a_thousand_classes_fit_in_memory() -> None:
    classes = np.linspace(BOX[0], BOX[2], 1000, dtype=np.float32)
    tracemalloc.start()
    decoder_regions(lambda z: np.abs(z[:, :1] - classes), BOX)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6  # all distances at once: 160 MB


@given(centers_strategy, st.floats(1e-6, 1e6), st.floats(-1e9, 1e9))
def test_every_box_has_area_and_its_points(points: Array, scale: float, shift: float) -> None:
    points = points * scale + shift
    x_min, y_min, x_max, y_max = bounding_box(points)
    assert ((points > (x_min, y_min)) & (points < (x_max, y_max))).all()


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ([[0, 10], [4, 20], [np.nan, 99], [99, np.inf], [1, 15]], (0, 10, 4, 20)),
        ([[0, 0]], (-0.5, -0.5, 0.5, 0.5)),
        ([[3, -4], [3, -4]], (1, -6, 5, -2)),
        ([[0, 7], [2, 7]], (0, 6, 2, 8)),
        ([[1, 0], [1, 1e-12]], (0.5, -0.5, 1.5, 0.5)),
    ],
)
def test_a_box_fits_its_finite_points_and_has_a_sensible_size(
    points: list[list[float]], expected: Box
) -> None:
    assert bounding_box(points, margin=0) == pytest.approx(expected)
    padding = 0.1 * np.subtract(expected[2:], expected[:2])
    padded = [*(expected[:2] - padding), *(expected[2:] + padding)]
    assert bounding_box(points, margin=0.1) == pytest.approx(padded)


def test_bad_input_is_refused() -> None:
    decide = squared_distance_to(np.zeros((1, 2)))
    with pytest.raises(ValueError, match="at least one finite"):
        bounding_box([[np.nan, 0]])
    with pytest.raises(ValueError, match=r"\(n, 2\), not \(3, 3\)"):
        voronoi_regions(np.zeros((3, 3)), BOX)
    for box in [(0, 0, 0, 1), (1, 0, 0, 1), (0, 0, np.inf, 1), (0, np.nan, 1, 1)]:
        with pytest.raises(ValueError, match="with area"):
            voronoi_regions([[0, 0]], box)
        with pytest.raises(ValueError, match="with area"):
            decoder_regions(decide, box)
    with pytest.raises(ValueError, match="at least 2"):
        decoder_regions(decide, BOX, resolution=1)

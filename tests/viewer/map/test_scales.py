"""Colours by position: smooth and distinct; of shares: brighter is more."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr

from centroid_encoder.viewer.map.scales import GRID, STEPS, plane_colors, scale_colors


def cielab(colors: list[str]) -> np.ndarray:
    """CIE 1976 L*a*b* of sRGB colours under D65: another ruler than the one they are made with."""
    rgb = np.array([to_rgb(color) for color in colors])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    xyz = linear @ np.transpose(to_xyz) / [0.9505, 1, 1.089]
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    x, y, z = f.T
    return np.column_stack([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def test_every_part_of_the_plane_has_its_own_colour():
    rng = np.random.default_rng(0)
    points = rng.uniform([-1, 10], [1, 30], size=(20_000, 2))
    codes, colors = plane_colors(points)
    assert len(colors) == len(set(colors)) == GRID**2
    assert set(codes) == set(range(GRID**2))
    # Who shares a colour is about one step apart at most.
    for code in (0, 100, GRID**2 - 1):
        extent = np.ptp(points[codes == code], axis=0)
        assert (extent <= 1.2 * np.array([2, 20]) / GRID).all()


def test_rows_go_up_and_columns_to_the_right():
    points = np.array([[-1, 10], [1, 11], [-0.9, 29], [1.1, 30], [0.1, 20]])
    codes, _ = plane_colors(points)
    quarter = GRID // 4
    assert codes.tolist() == [
        0,
        quarter * GRID + 3 * quarter,
        3 * quarter * GRID + quarter,
        GRID**2 - 1,
        GRID // 2 * (GRID + 1),
    ]


def test_where_points_huddle_they_are_told_apart_all_the_same():
    points = np.random.default_rng(0).normal(size=(500, 2)) ** 9
    assert len(set(plane_colors(points)[0])) > 250
    np.testing.assert_array_equal(plane_colors(points)[0], plane_colors(np.cbrt(points))[0])


def test_cells_without_a_place_have_no_colour():
    points = np.array([[np.nan, np.nan], [0, 20], [0, np.nan], [np.inf, 20]], dtype=np.float32)
    codes, _ = plane_colors(points)
    assert codes.tolist() == [-1, 0, -1, -1]
    assert plane_colors(points[:0])[0].shape == (0,)


def test_of_three_coordinates_the_first_two_count():
    points = np.random.default_rng(0).uniform(10, 30, size=(50, 3))
    np.testing.assert_array_equal(plane_colors(points)[0], plane_colors(points[:, :2])[0])


@pytest.mark.parametrize("axis", [0, 1])
def test_equal_steps_look_about_equal(axis):
    _, colors = plane_colors(np.zeros((0, 2)))
    lab = cielab(colors).reshape(GRID, GRID, 3)
    steps = np.linalg.norm(np.diff(lab, axis=axis), axis=-1)
    # An edge would look like a border between cells.
    assert steps.max() < 3 * np.median(steps)
    assert steps.min() > np.median(steps) / 3


def test_what_is_far_apart_looks_different():
    _, colors = plane_colors(np.zeros((0, 2)))
    places = np.stack(np.meshgrid(np.arange(GRID), np.arange(GRID)), axis=-1).reshape(-1, 2)
    apart, look = cdist(places, places), cdist(cielab(colors), cielab(colors))
    assert spearmanr(apart.ravel(), look.ravel()).statistic > 0.85
    # A difference of 2 is about the least that is seen; here it is easily seen.
    assert look[apart > GRID / 3].min() > 10


def test_no_colour_is_lost_on_a_black_or_a_white_page():
    _, colors = plane_colors(np.zeros((0, 2)))
    lightness = cielab(colors)[:, 0]
    assert lightness.min() > 35
    assert lightness.max() < 95


def brightness(color: str) -> float:
    return float(np.dot(to_rgb(color), (0.2126, 0.7152, 0.0722)))


def test_brighter_is_more() -> None:
    codes, colors = scale_colors([0, 0.2, 0.5, 0.99, 1, np.nan])
    assert codes.tolist() == [0, STEPS // 5, STEPS // 2, STEPS - 1, STEPS - 1, -1]
    assert len(colors) == STEPS
    shades = [brightness(color) for color in colors]
    assert shades == sorted(shades)
    assert len(set(colors)) == STEPS


def test_reversed() -> None:
    codes, colors = scale_colors(np.array([0.32, 0.92], dtype=np.float32), reverse=True)
    assert codes.tolist() == [6, 18]
    assert colors == scale_colors([])[1][::-1]

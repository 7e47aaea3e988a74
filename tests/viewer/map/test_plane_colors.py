"""Colours by position: smooth, distinct, and nothing for cells that are nowhere."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from numpy.testing import assert_array_equal
from scipy.spatial.distance import cdist
from scipy.stats import spearmanr

from centroid_encoder.viewer.map.plane_colors import GRID, plane_colors

LIMITS = np.array([[-1.0, 10], [1, 30]])


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
    points = rng.uniform(*LIMITS, size=(20_000, 2))
    codes, colors = plane_colors(points, LIMITS)
    assert len(colors) == len(set(colors)) == GRID**2
    assert set(codes) == set(range(GRID**2))
    # Who shares a colour is no further apart than one step.
    for code in (0, 100, GRID**2 - 1):
        extent = np.ptp(points[codes == code], axis=0)
        assert (extent <= (LIMITS[1] - LIMITS[0]) / GRID).all()


def test_rows_go_up_and_columns_to_the_right():
    points = np.array([[-1, 10], [1, 10], [-1, 30], [1, 30], [0.001, 20.001]])
    codes, _ = plane_colors(points, LIMITS)
    middle = GRID // 2 * (GRID + 1)
    assert codes.tolist() == [0, GRID - 1, GRID**2 - GRID, GRID**2 - 1, middle]


def test_points_beyond_the_map_take_the_colour_of_its_edge():
    points = np.array([[-9.0, 20.001], [9, 20.001], [0.001, -1e9], [1e30, 1e30]])
    codes, _ = plane_colors(points, LIMITS)
    half = GRID // 2
    assert codes.tolist() == [half * GRID, half * GRID + GRID - 1, half, GRID**2 - 1]


def test_cells_without_a_place_have_no_colour():
    points = np.array([[np.nan, np.nan], [0, 20], [0, np.nan], [np.inf, 20]], dtype=np.float32)
    codes, _ = plane_colors(points, LIMITS)
    assert codes.tolist()[0::2] == [-1, -1]
    assert (codes[1] >= 0, codes[3]) == (True, -1)
    assert plane_colors(points[:0], LIMITS)[0].shape == (0,)


def test_of_three_coordinates_the_first_two_count():
    points = np.random.default_rng(0).uniform(10, 30, size=(50, 3))
    limits = np.array([[10.0, 10, 10], [30, 30, 30]])
    flat, _ = plane_colors(points[:, :2], limits[:, :2])
    assert_array_equal(plane_colors(points, limits)[0], flat)


@pytest.mark.parametrize("axis", [0, 1])
def test_equal_steps_look_about_equal(axis):
    _, colors = plane_colors(np.zeros((0, 2)), LIMITS)
    lab = cielab(colors).reshape(GRID, GRID, 3)
    steps = np.linalg.norm(np.diff(lab, axis=axis), axis=-1)
    # An edge would look like a border between cells.
    assert steps.max() < 3 * np.median(steps)
    assert steps.min() > np.median(steps) / 3


def test_what_is_far_apart_looks_different():
    _, colors = plane_colors(np.zeros((0, 2)), LIMITS)
    places = np.stack(np.meshgrid(np.arange(GRID), np.arange(GRID)), axis=-1).reshape(-1, 2)
    apart, look = cdist(places, places), cdist(cielab(colors), cielab(colors))
    assert spearmanr(apart.ravel(), look.ravel()).statistic > 0.85
    # A difference of 2 is about the least that is seen; here it is easily seen.
    assert look[apart > GRID / 3].min() > 10


def test_no_colour_is_lost_on_a_black_or_a_white_page():
    _, colors = plane_colors(np.zeros((0, 2)), LIMITS)
    lightness = cielab(colors)[:, 0]
    assert lightness.min() > 35
    assert lightness.max() < 95

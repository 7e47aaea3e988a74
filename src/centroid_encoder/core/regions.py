"""Regions of the classes in the plane: Voronoi cells as polygons, decoder regions as an image."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy.spatial import Voronoi

from centroid_encoder.core.arrays import Codes, Doubles, Floats, Singles
from centroid_encoder.core.layout import Layout
from centroid_encoder.core.matrix import CHUNK

MARGIN = 0.05
Box: TypeAlias = "tuple[float, float, float, float] | Floats"
"""``(x_min, y_min, x_max, y_max)``, or the same as a (2, 2) array."""
Polygon: TypeAlias = Doubles
"""(k, 2) vertices, counter-clockwise; (0, 2) for a class without a region."""


def bounding_box(points: Floats) -> tuple[float, float, float, float]:
    """Box around (n, 2) points, with a margin on each side of `MARGIN` times its length.

    Points that are not finite are ignored; a ValueError is raised if there are no others. A side
    with a length of almost 0 gets the length of the other side. If both are, their length is that
    of the largest coordinate, or 1 at the origin.
    """
    points = np.asarray(points, dtype=np.float64)
    points = points[np.isfinite(points).all(axis=1)]
    if not len(points):
        raise ValueError("a bounding box needs at least one finite point")
    low, high = points.min(axis=0), points.max(axis=0)
    # Smaller lengths are rounding errors of a float32 embedding.
    noise = np.finfo(np.float32).eps * (np.abs(points).max() or 1.0)
    extent = high - low
    longest = extent.max() if extent.max() > noise else np.abs(points).max() or 1.0
    half = (0.5 + MARGIN) * np.where(extent > noise, extent, longest)
    middle = low + extent / 2
    (x_min, y_min), (x_max, y_max) = (middle - half).tolist(), (middle + half).tolist()
    return x_min, y_min, x_max, y_max


def voronoi_cells(centers: Floats, box: Box) -> list[Polygon]:
    """Voronoi cell of each of (M, 2) centers, exact within a box.

    The cells are not clipped: outer ones end far outside the box. If centers are equal, the first
    has the cell. A center of NaN has none.
    """
    cells = [np.empty((0, 2)) for _ in centers]
    finite = np.flatnonzero(np.isfinite(centers).all(axis=1))
    if not len(finite):
        return cells
    sites, first = np.unique(centers[finite].astype(np.float64), axis=0, return_index=True)
    corners = np.reshape(box, (2, 2))
    middle = corners.mean(axis=0)
    # Four distant points, whose own cells are outside of the box, bound all other cells.
    radius = 10 * np.abs(np.vstack([sites, corners]) - middle).max()
    distant = radius * np.array([[-1, 0], [1, 0], [0, -1], [0, 1]])
    diagram = Voronoi(np.vstack([sites - middle, distant]))
    for owner, region in zip(finite[first], diagram.point_region, strict=False):
        vertices = diagram.vertices[diagram.regions[region]]
        if len(vertices) > 2:
            away = vertices - vertices.mean(axis=0)
            cells[owner] = vertices[np.arctan2(away[:, 1], away[:, 0]).argsort()] + middle
    return cells


def region_image(decide: Callable[[Singles], Codes], box: Box, resolution: int = 320) -> Codes:
    """(resolution, resolution) class of each pixel of a box, the lowest row first.

    `decide` maps (n, 2) points to (n,) classes; it is called with a part of the pixels at a time.
    """
    classes = np.concatenate([decide(part) for part in _pixels(box, resolution)])
    return classes.reshape(resolution, resolution).astype(np.intp)


def blended_colors(centers: Floats, colors: Floats, box: Box, resolution: int = 200) -> Doubles:
    """(resolution, resolution, 3) colour of each pixel of a box, the lowest row first.

    It is the mean of the (M, 3) colours of the classes, weighted by the squared odds of the place
    (`Layout.distances`) with (M, m) centers: of one class near its center, of two at their border.
    Not squared, the odds of many classes would make the middle grey. A center of NaN has no weight.
    """
    there = np.flatnonzero(np.isfinite(centers).all(axis=1))
    # If centers are equal, the first has the region.
    positions, first = np.unique(centers[there], axis=0, return_index=True)
    layout, colors = Layout(positions.astype(np.float64)), colors[there[first]]
    parts = []
    for part in _pixels(box, resolution):
        weights = np.exp(-2 * np.square(layout.distances(part[:, : centers.shape[1]])))
        parts.append(weights @ colors / weights.sum(axis=1, keepdims=True))
    return np.concatenate(parts).reshape(resolution, resolution, colors.shape[1])


def _pixels(box: Box, resolution: int) -> list[Singles]:
    """(n, 2) middles of the pixels of a box, in parts of limited size."""
    low, high = np.reshape(box, (2, 2))
    steps = (np.arange(resolution) + 0.5) / resolution
    x, y = (low + (high - low) * steps[:, None]).T
    pixels = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2).astype(np.float32)
    return np.array_split(pixels, max(1, len(pixels) // CHUNK))

"""Who owns which part of the plane: Voronoi cells and decoder regions, as polygons in a box."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Box: TypeAlias = tuple[float, float, float, float]
"""``(x_min, y_min, x_max, y_max)``."""

Region: TypeAlias = list[NDArray[np.float64]]
"""Rings of shape ``(k, 2)``, the first vertex not repeated; empty where a class owns nothing.

Outer rings run counter-clockwise and holes clockwise, so the non-zero and the even-odd rule
fill the same area.
"""

Decide: TypeAlias = Callable[[NDArray[np.float32]], NDArray[np.floating[Any]]]
"""From points ``(n, 2)`` to each one's distance to every class, ``(n, n_classes)``."""

_Point: TypeAlias = tuple[float, float]

_OUTSIDE = -1
_STEPS = ((0, 1), (1, 0), (1, 1))  # (rows, columns): the edges of a grid cut into triangles
_ROWS_AT_ONCE = 16  # 1000 classes on 200 x 200 points: 27 MB of distances instead of 320


def bounding_box(points: ArrayLike, *, margin: float = 0.05) -> Box:
    """Box around points, with room to breathe.

    Parameters
    ----------
    points
        Coordinates, shape ``(n, 2)``. Rows that are not finite are ignored.
    margin
        Share of each side's length added at both of its ends.

    Returns
    -------
    ``(x_min, y_min, x_max, y_max)``, in the units of `points`. A side without length (all points
    on a horizontal or vertical line) is as long as the other one; around a single point the box
    is as large as the point's greatest coordinate, or 1 at the origin.

    Raises
    ------
    ValueError
        If `points` is not ``(n, 2)`` or has no finite row.
    """
    points = _as_points(points)
    points = points[np.isfinite(points).all(axis=1)]
    if not len(points):
        raise ValueError("a bounding box needs at least one finite point")
    low, high = points.min(axis=0), points.max(axis=0)
    extent = high - low
    # Lengths at the rounding error of a float32 embedding are no lengths.
    noise = float(np.finfo(np.float32).eps)
    reach = float(np.abs(points).max())
    longest = float(extent.max())
    if longest <= noise * reach:
        longest = reach or 1.0
    side = np.where(extent <= noise * longest, longest, extent)
    half = (0.5 + margin) * side
    middle = low + extent / 2
    (x_min, y_min), (x_max, y_max) = (middle - half).tolist(), (middle + half).tolist()
    return x_min, y_min, x_max, y_max


def voronoi_regions(centers: ArrayLike, box: Box) -> list[Region]:
    """Voronoi cell of every center, clipped to a box.

    Exact for any centers, degenerate ones included (one, two, collinear, outside the box).

    Parameters
    ----------
    centers
        Coordinates, shape ``(n, 2)``. The first of several coincident centers owns their cell;
        a center that is not finite (a class without cells) owns nothing.
    box
        ``(x_min, y_min, x_max, y_max)``, in the units of `centers`.

    Returns
    -------
    One region per center: a single convex ring, float64, or nothing.

    Raises
    ------
    ValueError
        If `centers` is not ``(n, 2)``, or `box` is not finite or has no area.
    """
    centers = _as_points(centers)
    corners = _corners(box)
    # Around the middle of the box, rounding is relative to what will be seen.
    middle = corners.mean(axis=0)
    sites = centers - middle
    (left, bottom), (right, top) = (corners - middle).tolist()
    whole = [(left, bottom), (right, bottom), (right, top), (left, top)]

    regions: list[Region] = [[] for _ in centers]
    finite = np.flatnonzero(np.isfinite(sites).all(axis=1))
    sites, first = np.unique(sites[finite], axis=0, return_index=True)
    for site, owner in zip(sites, finite[first], strict=True):
        cell = _cell(site, sites, whole)
        if len(cell) > 2:
            regions[owner].append(np.array(cell) + middle)
    return regions


def decoder_regions(decide: Decide, box: Box, *, resolution: int = 200) -> list[Region]:
    """Regions of the plane by the decoder's decision, traced on a grid.

    Boundaries are placed within grid cells by linear interpolation, and classes share them: the
    regions tile the box. What is thinner than a grid cell can be missed.

    Parameters
    ----------
    decide
        Maps points ``(n, 2)``, float32, to their distances ``(n, n_classes)`` from the classes;
        the smallest decides, the first of equals, and NaN never wins. Squared distances give
        the more accurate boundaries. Called on some rows of the grid at a time.
    box
        ``(x_min, y_min, x_max, y_max)``, in the units of the embedding.
    resolution
        Grid points along each side, at least 2.

    Returns
    -------
    One region per class, float64 rings; a class that is nowhere nearest owns nothing.

    Raises
    ------
    ValueError
        If `box` is not finite or has no area, or `resolution` is below 2.
    """
    if resolution < 2:
        raise ValueError(f"resolution must be at least 2, not {resolution}")
    low, high = _corners(box)
    x, y = np.linspace(low, high, resolution).T
    owner, cut, n_classes = _decisions(decide, x, y)
    return _trace(owner, cut, x, y, n_classes)


def _as_points(points: ArrayLike) -> NDArray[np.float64]:
    array = np.asarray(points, dtype=np.float64)
    if array.ndim != 2 or array.shape[1] != 2:
        raise ValueError(f"expected points of shape (n, 2), not {array.shape}")
    return array


def _corners(box: Box) -> NDArray[np.float64]:
    corners = np.array(box, dtype=np.float64).reshape(2, 2)
    if not (np.isfinite(corners).all() and (corners[0] < corners[1]).all()):
        raise ValueError(f"expected a finite box (x_min, y_min, x_max, y_max) with area, not {box}")
    return corners


def _cell(
    site: NDArray[np.float64], sites: NDArray[np.float64], polygon: list[_Point]
) -> list[_Point]:
    """Clip a convex polygon by the bisectors between `site` and all `sites`, nearest first."""
    normals = sites - site
    nearest_first = np.hypot(normals[:, 0], normals[:, 1]).argsort()[1:]
    normals = normals[nearest_first]
    offsets = (normals * (sites[nearest_first] + site)).sum(axis=1) / 2
    while polygon and len(normals):
        beyond = np.array(polygon) @ normals.T - offsets
        # A bisector that misses the polygon also misses whatever will be left of it.
        cutting = np.flatnonzero(beyond.max(axis=0) > 0)
        if not len(cutting):
            break
        polygon = _clip(polygon, beyond[:, cutting[0]].tolist())
        normals, offsets = normals[cutting[1:]], offsets[cutting[1:]]
    return polygon


def _clip(polygon: list[_Point], beyond: list[float]) -> list[_Point]:
    """Part of a convex polygon where `beyond`, linear and given at the vertices, is <= 0."""
    # Plain Python: for half a dozen vertices several times as fast as arrays.
    clipped = []
    for i, ((x, y), here) in enumerate(zip(polygon, beyond, strict=True)):
        (last_x, last_y), last = polygon[i - 1], beyond[i - 1]
        if here < 0 < last or last < 0 < here:
            share = last / (last - here)
            clipped.append((last_x + share * (x - last_x), last_y + share * (y - last_y)))
        if here <= 0:
            clipped.append((x, y))
    return clipped


def _decisions(
    decide: Decide, x: NDArray[np.float64], y: NDArray[np.float64]
) -> tuple[NDArray[np.intp], NDArray[np.float64], int]:
    """Decide on a grid.

    Returns the owner of every grid point, in a frame one point wide that belongs to nobody; how
    far along each edge (by step, starting point) the decision changes, from 0 to 1; and the
    number of classes.
    """
    n = len(x)
    owner = np.full((n + 2, n + 2), _OUTSIDE, dtype=np.intp)
    cut = np.full((len(_STEPS), n + 2, n + 2), 0.5)
    for bottom in range(0, n - 1, _ROWS_AT_ONCE):
        # One row more, shared with the next block: the edges in between have two ends.
        block = slice(bottom, bottom + _ROWS_AT_ONCE + 1)
        z = np.stack(np.meshgrid(x, y[block]), axis=-1).astype(np.float32)
        distance = np.asarray(decide(z.reshape(-1, 2))).reshape(*z.shape[:2], -1)
        distance = np.where(np.isnan(distance), np.inf, distance)
        winner = distance.argmin(axis=2)
        owner[1:-1, 1:-1][block] = winner
        for step, (up, right) in enumerate(_STEPS):
            start, end = np.s_[: len(z) - up, : n - right], np.s_[up:, right:]
            lead = _lead(distance[start], winner[start], winner[end])
            lag = _lead(distance[end], winner[end], winner[start])
            with np.errstate(invalid="ignore"):
                share = lead / (lead + lag)
            cut[step, 1:-1, 1:-1][block][start] = np.where(np.isnan(share), 0.5, share)
    return owner, cut, distance.shape[2]


def _lead(
    distance: NDArray[np.floating[Any]], winner: NDArray[np.intp], rival: NDArray[np.intp]
) -> NDArray[np.float64]:
    """By how much the winner is nearer than the rival."""
    far, near = (
        np.take_along_axis(distance, index[..., None], axis=2)[..., 0].astype(np.float64)
        for index in (rival, winner)
    )
    with np.errstate(invalid="ignore"):
        return far - near


def _trace(
    owner: NDArray[np.intp],
    cut: NDArray[np.float64],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    n_classes: int,
) -> list[Region]:
    """Outline every owner's region on the triangulated grid.

    Contouring each class by itself would leave a hole wherever three regions meet. Here a
    triangle is divided among its corners' owners, whose outlines share all their points.

    The corners of an owner in a triangle are consecutive, so its outline crosses the triangle once:
    a link from the side that leaves its corners to the side that enters them. In the triangle
    beyond that side, the same edge leaves the owner's corners: there begins the next link.
    """
    owners, sides = _triangles(owner)
    mixed = (owners != owners[:, :1]).any(axis=1)
    owners, sides = owners[mixed], sides[mixed]

    points = _crossings(sides, cut, x, y)
    next_owners = np.roll(owners, -1, axis=1)
    leaves = owners != next_owners
    # Three outlines meet in the middle of the three sides. At the frame they meet on the only side
    # that is inside the box.
    real = (owners != _OUTSIDE) & (next_owners != _OUTSIDE)
    junction = (points * real[..., None]).sum(axis=1) / np.maximum(real.sum(axis=1), 1)[:, None]
    between = np.where(leaves.all(axis=1)[:, None, None], junction[:, None], points)
    # The side that enters is the next but one, or the next if the owner has the corner before too.
    from_two_corners = owners == np.roll(owners, 1, axis=1)
    entering = (np.arange(3) + np.where(from_two_corners, 1, 2)) % 3
    # The last bit of a side's number tells in which direction it is run.
    onward = np.take_along_axis(sides, entering, axis=1) ^ 1

    links = leaves & (owners != _OUTSIDE)
    number = np.empty(6 * owner.size, dtype=np.intp)
    number[sides[links]] = np.arange(links.sum())
    following = dict(enumerate(number[onward[links]].tolist()))
    steps, owners = np.stack([points[links], between[links]], axis=1), owners[links]

    regions: list[Region] = [[] for _ in range(n_classes)]
    for chain in _cycles(following):
        ring = _without_idle_vertices(steps[chain].reshape(-1, 2))
        if len(ring) > 2:
            regions[owners[chain[0]]].append(ring)
    return regions


def _cycles(following: dict[int, int]) -> Iterator[list[int]]:
    """Take apart a permutation, given as the successor of each number."""
    while following:
        first, link = following.popitem()
        chain = [first]
        while link != first:
            chain.append(link)
            link = following.pop(link)
        yield chain


def _triangles(owner: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Cut a grid into triangles: the owners of their corners and their sides, ``(t, 3)`` each.

    Corners go counter-clockwise; side k runs from corner k to the next. The side along step s
    out of vertex v has the number ``6 v + 2 s``; the same edge run backwards, one more.
    """
    width = owner.shape[1]
    a = np.arange(owner.size).reshape(owner.shape)[:-1, :-1].ravel()
    b, c, d = a + 1, a + width + 1, a + width
    lower = np.stack([[a, b, c], [6 * a, 6 * b + 2, 6 * a + 5]])
    upper = np.stack([[a, c, d], [6 * a + 4, 6 * d + 1, 6 * a + 3]])
    corners, sides = np.concatenate([lower, upper], axis=2).transpose(0, 2, 1)
    return owner.ravel()[corners], sides


def _crossings(
    sides: NDArray[np.intp],
    cut: NDArray[np.float64],
    x: NDArray[np.float64],
    y: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Where the decision changes along sides ``(t, 3)``: points ``(t, 3, 2)``."""
    row, column = np.divmod(sides // 6, cut.shape[2])
    step = sides // 2 % 3
    up, right = np.array(_STEPS).T
    end_row, end_column = row + up[step], column + right[step]
    # The frame lies on the edge of the box, so that outlines close along it.
    x, y = np.pad(x, 1, mode="edge"), np.pad(y, 1, mode="edge")
    start = np.stack([x[column], y[row]], axis=-1)
    end = np.stack([x[end_column], y[end_row]], axis=-1)
    return start + cut[step, row, column, None] * (end - start)


def _without_idle_vertices(ring: NDArray[np.float64]) -> NDArray[np.float64]:
    """Drop repeated vertices, then those on a straight line, as along the box."""
    ring = ring[(ring != np.roll(ring, 1, axis=0)).any(axis=1)]
    back, ahead = ring - np.roll(ring, 1, axis=0), np.roll(ring, -1, axis=0) - ring
    turns: NDArray[np.bool_] = back[:, 0] * ahead[:, 1] != back[:, 1] * ahead[:, 0]
    return ring[turns]

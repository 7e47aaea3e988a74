"""Regions of the classes in the plane of an embedding, as paths to draw."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from anndata import AnnData
from matplotlib.path import Path
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from skimage.measure import find_contours

from centroid_encoder import tl
from centroid_encoder.core.regions import bounding_box, region_image, voronoi_cells
from centroid_encoder.tl._result import Regions, Result

Points: TypeAlias = NDArray[np.floating]

REGION_ALPHA = 0.16


def plane_points(embedding: Points) -> Points:
    """Add a random second coordinate to a one-dimensional embedding, so that points are visible."""
    if embedding.shape[1] > 1:
        return embedding
    jitter = np.random.default_rng(0).uniform(-1, 1, len(embedding))
    return np.column_stack([embedding[:, 0], jitter])


def plane_centers(centers: Points) -> Points:
    """Add the second coordinate 0 to one-dimensional centers."""
    return centers if centers.shape[1] > 1 else np.pad(centers, ((0, 0), (0, 1)))


def panel_limits(points: Points, *, equal: bool = True) -> Points:
    """Return (2, 2) limits of all panels: the smallest and the largest coordinates.

    With `equal`, which suits two components of an embedding, both axes have the same length.
    """
    limits = np.reshape(bounding_box(points[:, :2]), (2, 2))
    if equal:
        half = (limits[1] - limits[0]).max() / 2
        limits = limits.mean(axis=0) + np.array([[-half], [half]])
    return limits


def class_regions(
    adata: AnnData, result: Result, regions: Regions | None, limits: Points
) -> list[Path]:
    """Return the region of each class within (2, 2) limits; none with more than two components."""
    n_components = result.embedding.shape[1]
    if regions is None or n_components > 2:
        return []
    if regions == "voronoi":
        return center_regions(result.centers, limits)
    model = tl.fitted_model(adata, result.key)
    order = result.classes.get_indexer(model.classes_)
    image = region_image(
        lambda z: order[model.decoder_distances(z[:, :n_components]).argmin(axis=1)], limits
    )
    return image_regions(image, len(order), limits)


def center_regions(centers: Points, limits: Points) -> list[Path]:
    """Voronoi cells of (M, 1) or (M, 2) centers; an empty path for a center of NaN."""
    cells = voronoi_cells(plane_centers(centers), limits)
    return [Path(np.vstack([cell, cell[:1]]), closed=len(cell) > 0) for cell in cells]


def image_regions(image: NDArray[np.integer], n_classes: int, limits: Points) -> list[Path]:
    """Outlines of the classes in an (n, n) image of their indices; empty paths if not present."""
    # Padding, so that the outlines are closed outside of the limits.
    beyond = 4
    padded = np.pad(np.pad(image, beyond, mode="edge"), beyond, constant_values=-1)
    pixel = (limits[1] - limits[0]) / len(image)
    paths = []
    for code in range(n_classes):
        # Blurred, so that the outlines show no steps.
        share = gaussian_filter((padded == code).astype(np.float64), 1)
        contours = find_contours(share, 0.5)  # type: ignore[no-untyped-call]
        rings = [limits[0] + pixel * (ring[:, ::-1] - 2 * beyond + 0.5) for ring in contours]
        paths.append(Path.make_compound_path(*(Path(ring, closed=True) for ring in rings)))
    return paths

"""Regions of the classes in the plane of an embedding, ready to be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.path import Path
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from skimage.measure import find_contours

from centroid_encoder import tl
from centroid_encoder.core.regions import Box, bounding_box, region_image, voronoi_cells
from centroid_encoder.tl._result import Regions, Result

if TYPE_CHECKING:
    from anndata import AnnData

REGION_ALPHA = 0.16


def plane_points(embedding: NDArray[np.floating]) -> NDArray[np.floating]:
    """Give a one-dimensional embedding a second coordinate, for legibility only."""
    if embedding.shape[1] > 1:
        return embedding
    jitter = np.random.default_rng(0).uniform(-1, 1, len(embedding))
    return np.column_stack([embedding[:, 0], jitter])


def plane_centers(centers: NDArray[np.floating]) -> NDArray[np.floating]:
    """Give one-dimensional centers a second coordinate, half-way up."""
    return centers if centers.shape[1] > 1 else np.pad(centers, ((0, 0), (0, 1)))


def panel_limits(points: NDArray[np.floating], *, equal: bool = True) -> NDArray[np.floating]:
    """Return (2, 2) limits of all panels.

    Both axes are equally long if both are components of the embedding: nearness must look the same
    in all directions.
    """
    limits = np.reshape(bounding_box(points[:, :2]), (2, 2))
    if equal:
        half = (limits[1] - limits[0]).max() / 2
        limits = limits.mean(axis=0) + np.array([[-half], [half]])
    return limits


def class_regions(
    adata: AnnData, result: Result, regions: Regions | None, limits: NDArray[np.floating]
) -> list[Path]:
    """Return the region of each class within (2, 2) limits; none with more than two components."""
    n_components = result.embedding.shape[1]
    if regions is None or n_components > 2:
        return []
    if regions == "voronoi" or not result.stored.has_decoder:
        return center_regions(result.centers, limits)
    model = tl.fitted_model(adata, result.key)
    order = result.classes.get_indexer(model.classes_)
    image = region_image(
        lambda z: order[model.decoder_distances(z[:, :n_components]).argmin(axis=1)], _box(limits)
    )
    return image_regions(image, len(order), limits)


def center_regions(centers: NDArray[np.floating], limits: NDArray[np.floating]) -> list[Path]:
    """Voronoi cells of (M, 1) or (M, 2) centers; empty for one that is NaN."""
    cells = voronoi_cells(plane_centers(centers), _box(limits))
    return [Path(np.vstack([cell, cell[:1]]), closed=len(cell) > 0) for cell in cells]


def image_regions(
    image: NDArray[np.integer], n_classes: int, limits: NDArray[np.floating]
) -> list[Path]:
    """Outlines of the classes in an (n, n) image of their indices; empty for one without pixels."""
    # The outlines are closed, beyond the limits.
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


def _box(limits: NDArray[np.floating]) -> Box:
    (x_min, y_min), (x_max, y_max) = limits.tolist()
    return x_min, y_min, x_max, y_max

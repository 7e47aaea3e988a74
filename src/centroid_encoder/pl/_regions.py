"""Regions of the classes in the plane of an embedding, ready to be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from matplotlib.colors import to_rgba
from matplotlib.image import AxesImage
from matplotlib.path import Path
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter

from centroid_encoder import tl
from centroid_encoder.core.regions import (
    Box,
    Polygon,
    bounding_box,
    region_image,
    voronoi_cells,
)
from centroid_encoder.tl._result import Regions, Result

if TYPE_CHECKING:
    from anndata import AnnData

Shapes: TypeAlias = "Sequence[Polygon] | NDArray[np.intp]"
"""Polygon of each class, or an image of class indices; an empty list for no regions."""

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
) -> Shapes:
    """Return the regions of a result within (2, 2) limits; none with more than two components."""
    n_components = result.embedding.shape[1]
    if regions is None or n_components > 2:
        return []
    if regions == "voronoi" or not result.stored.has_decoder:
        return center_regions(result.centers, limits)
    model = tl.fitted_model(adata, result.key)
    order = result.classes.get_indexer(model.classes_)
    return region_image(
        lambda z: order[model.decoder_distances(z[:, :n_components]).argmin(axis=1)], _box(limits)
    )


def center_regions(centers: NDArray[np.floating], limits: NDArray[np.floating]) -> list[Polygon]:
    """Voronoi cells of (M, 1) or (M, 2) centers; empty for one that is NaN."""
    return voronoi_cells(plane_centers(centers), _box(limits))


def region_paths(shapes: Shapes, n_classes: int) -> list[Path]:
    """Return the outline of each class; it is empty without a region, and for an image."""
    if isinstance(shapes, np.ndarray) or not shapes:
        return [Path(np.empty((0, 2)))] * n_classes
    return [Path(np.vstack([ring, ring[:1]]), closed=len(ring) > 0) for ring in shapes]


def add_image(ax: Any) -> AxesImage:
    """Add an invisible image beneath all points; see `paint_image`."""
    image = AxesImage(ax, origin="lower", interpolation="bilinear", visible=False, zorder=0.5)
    ax.add_image(image)
    return image


def paint_image(
    image: AxesImage,
    shapes: Shapes,
    limits: NDArray[np.floating],
    colors: Sequence[str],
    alpha: float,
) -> None:
    """Show regions that are an image in the colours of the classes, with gaps between them."""
    image.set_visible(isinstance(shapes, np.ndarray))
    if isinstance(shapes, np.ndarray):
        rgba = np.array([to_rgba(color, alpha) for color in colors])[shapes]
        border = np.zeros(shapes.shape, dtype=bool)
        border[1:] |= shapes[1:] != shapes[:-1]
        border[:, 1:] |= shapes[:, 1:] != shapes[:, :-1]
        # Blurred, so that the gaps show no steps.
        rgba[..., 3] *= 1 - np.minimum(2 * gaussian_filter(border.astype(float), 0.8), 1)
        image.set_data(rgba)
        (x_min, y_min), (x_max, y_max) = limits.tolist()
        image.set_extent((x_min, x_max, y_min, y_max))


def _box(limits: NDArray[np.floating]) -> Box:
    (x_min, y_min), (x_max, y_max) = limits.tolist()
    return x_min, y_min, x_max, y_max

"""Regions of the classes in the plane of an embedding, ready to be drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.path import Path
from numpy.typing import NDArray

from centroid_encoder import tl
from centroid_encoder.core.regions import (
    Box,
    Region,
    bounding_box,
    decoder_regions,
    voronoi_regions,
)
from centroid_encoder.tl._stored import Regions, Result

if TYPE_CHECKING:
    from anndata import AnnData

REGION_ALPHA = 0.22


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
    """(2, 2) or (2, 3) limits of all panels.

    Where all axes are components of the embedding, they are equally long: nearness must look the
    same in all directions.
    """
    limits = np.reshape(bounding_box(points[:, :2]), (2, 2))
    if points.shape[1] == 3:
        limits = np.column_stack([limits, np.reshape(bounding_box(points[:, 1:]), (2, 2))[:, 1]])
    if equal:
        half = (limits[1] - limits[0]).max() / 2
        limits = limits.mean(axis=0) + np.array([[-half], [half]])
    return limits


def region_outlines(
    adata: AnnData, result: Result, regions: Regions | None, limits: NDArray[np.floating]
) -> list[Region]:
    """Region of each class of a result; empty where none are asked for, or in three dimensions.

    Parameters
    ----------
    adata
        What the result was read from, with the map.
    result
        An embedding.
    regions
        Which kind; None for none.
    limits
        (2, 2) what `panel_limits` gave for its points.
    """
    n_components = result.embedding.shape[1]
    if regions is None or n_components > 2:
        return []
    if regions == "voronoi":
        return voronoi_outlines(result.centers, limits)
    model = tl.fitted_model(adata, result.key)
    order = result.classes.get_indexer(model.classes_)

    def decide(z: NDArray[np.float32]) -> NDArray[np.float32]:
        distances = np.empty((len(z), len(order)), np.float32)
        distances[:, order] = model.decoder_distances(z[:, :n_components]) ** 2
        return distances

    return decoder_regions(decide, _box(limits))


def voronoi_outlines(centers: NDArray[np.floating], limits: NDArray[np.floating]) -> list[Region]:
    """Voronoi cell of each of (M, 1) or (M, 2) centers; of one that is NaN, nothing."""
    return voronoi_regions(plane_centers(centers), _box(limits))


def region_path(region: Region) -> Path | None:
    """All rings of a region as one path, its holes left open; None for a region that is empty."""
    if not region:
        return None
    rings = [Path(np.vstack([ring, ring[:1]]), closed=True) for ring in region]
    return Path.make_compound_path(*rings)


def _box(limits: NDArray[np.floating]) -> Box:
    (x_min, y_min), (x_max, y_max) = limits.tolist()
    return x_min, y_min, x_max, y_max

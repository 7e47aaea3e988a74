"""Regions of the classes in the plane of an embedding, as paths to draw."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from anndata import AnnData
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.image import AxesImage
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from skimage.measure import find_contours

from centroid_encoder import tl
from centroid_encoder.core.regions import blended_colors, bounding_box, region_image, voronoi_cells
from centroid_encoder.tl._check import check_choice
from centroid_encoder.tl._result import Regions, Result

Points: TypeAlias = NDArray[np.floating]

Drawn = Literal["soft", "voronoi", "decoder"]
"""Kinds of regions; soft ones are Voronoi cells whose colours blend."""
REGION_ALPHA = 0.18


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


def check_drawn(result: Result, regions: Drawn | None) -> None:
    """Raise an InputError if the map has no such regions."""
    if regions is not None:
        check_choice("regions", regions, Drawn)
    if regions != "soft":
        result.check_regions(regions)


def decided_by(result: Result, regions: Drawn | None) -> Regions:
    """Return the rule whose decisions are drawn, or that of the model without regions."""
    return result.decided_by if regions is None else "voronoi" if regions == "soft" else regions


class RegionPatches:
    """The regions of the classes within (2, 2) limits; none with more than two components."""

    def __init__(
        self,
        adata: AnnData,
        result: Result,
        regions: Drawn | None,
        limits: Points,
        colors: Sequence[str],
    ) -> None:
        self.colors, self.limits = colors, limits
        self.image: NDArray[np.floating] | None = None
        self.paths = class_regions(adata, result, regions, limits)
        if self.paths and regions == "soft":
            rgb = np.array([to_rgb(color) for color in colors])
            self.image = blended_colors(result.centers, rgb, limits)

    def draw(self, ax: Any) -> None:
        """Draw the regions beneath all else, without a change of the limits of the axes."""
        style: dict[str, Any] = {"facecolor": "none", "edgecolor": "0.6", "linewidth": 0.4}
        beneath = {"rasterized": self.image is not None, "zorder": 0.6}
        if self.image is not None:
            # Unlike `imshow`, this keeps the aspect and the limits of the axes.
            image = AxesImage(ax, origin="lower", interpolation="bilinear")
            image.set_data(self.image)
            image.set_extent((*self.limits[:, 0], *self.limits[:, 1]))
            image.set(alpha=REGION_ALPHA, rasterized=True, zorder=0.5, clip_path=ax.patch)
            ax.add_artist(image)
        for path, color in zip(self.paths, self.colors, strict=False):
            if len(path):
                if self.image is None:
                    # Borders have the colour of the page, which can be light or dark.
                    style = {"facecolor": to_rgba(color, REGION_ALPHA), "linewidth": 1}
                    style["edgecolor"] = ax.get_facecolor()
                ax.add_patch(PathPatch(path, **style, **beneath))


def class_regions(
    adata: AnnData, result: Result, regions: Drawn | None, limits: Points
) -> list[Path]:
    """Return the region of each class within (2, 2) limits; none with more than two components."""
    n_components = result.embedding.shape[1]
    if regions is None or n_components > 2:
        return []
    if regions != "decoder":
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

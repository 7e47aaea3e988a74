"""The plane of a map: places, limits, and the regions of the classes, as paths to draw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from anndata import AnnData
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter
from skimage.measure import find_contours

from centroid_encoder import tl
from centroid_encoder.core.regions import blended_colors, bounding_box, region_image, voronoi_cells
from centroid_encoder.errors import check
from centroid_encoder.pl._colors import Palette, class_colors, label_colors
from centroid_encoder.pl._values import Values, read_values
from centroid_encoder.tables import obs_key
from centroid_encoder.tl._check import check_choice
from centroid_encoder.tl._result import QUERY, UNASSIGNED, UNLABELED, Regions, Result, read_result

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


class Plane:
    """A map of one or two components: places, limits, colours, and the regions of its classes.

    An InputError is raised for more components, and for regions that the map does not have. The
    palette is that of the classes if they are among the `names` that give the cells their colours.
    """

    def __init__(
        self,
        adata: AnnData,
        key: str,
        regions: Drawn | None,
        palette: Palette | None,
        names: Sequence[str | None] = (None,),
    ) -> None:
        self.adata, self.result, self._palette = adata, read_result(adata, key), palette
        result, n_components = self.result, self.result.embedding.shape[1]
        if regions is not None:
            check_choice("regions", regions, Drawn)
        self._rule: Regions | None = "voronoi" if regions == "soft" else regions
        result.check_regions(self._rule)
        advice = "train with n_components=2, or draw them with sc.pl.embedding"
        text = f"this figure shows two components, not {n_components}; {advice}"
        check(n_components <= 2, text)
        self.points, self.centers = plane_points(result.embedding), plane_centers(result.centers)
        # The limits include the centers, since a class may have no cell near its center.
        inside = self.points if result.is_query else np.vstack([self.points, self.centers])
        self.limits = panel_limits(inside, equal=n_components > 1)
        has_classes = None in names or result.label_key in names
        self.colors = class_colors(adata, result, palette if has_classes else None)
        """Colours of all categories of the labels."""
        self.of_class = {name: self.colors[name] for name in result.classes}
        self.paths = class_regions(adata, result, regions, self.limits)
        self._image: NDArray[np.floating] | None = None
        if regions == "soft":
            rgb = np.array([to_rgb(color) for color in self.of_class.values()])
            self._image = blended_colors(result.centers, rgb, self.limits)

    @property
    def misplaced(self) -> NDArray[np.bool_]:
        """(n_obs,) mask of the cells that lie in the region of another class."""
        return self.result.misplaced(self._rule or self.result.decided_by)

    def draw(self, ax: Any) -> None:
        """Draw the regions beneath all else, without a change of the limits of the axes."""
        is_soft = self._image is not None
        if is_soft:
            look = {"origin": "lower", "interpolation": "bilinear", "alpha": REGION_ALPHA}
            look |= {"extent": self.limits.T.ravel(), "aspect": ax.get_aspect()}
            ax.imshow(self._image, rasterized=True, zorder=0.5, **look)
        # Borders of filled regions have the colour of the page, which can be light or dark.
        edge, width = ("0.6", 0.4) if is_soft else (ax.get_facecolor(), 1)
        style = {"edgecolor": edge, "linewidth": width, "rasterized": is_soft, "zorder": 0.6}
        for path, color in zip(self.paths, self.of_class.values(), strict=False):
            if len(path):
                face = "none" if is_soft else to_rgba(color, REGION_ALPHA)
                ax.add_patch(PathPatch(path, facecolor=face, **style))

    def values(self, name: str | None, **variable: Any) -> Values:
        """Return the classes of the cells, or a column or variable as `read_values` does.

        Categories that are classes, such as predicted ones, have the colours of the classes.
        """
        result = self.result
        if name in (None, result.label_key):
            grey = []
            if (result.split == UNLABELED).any():
                grey.append("no label" if "unlabeled" in map(str, result.classes) else "unlabeled")
            codes, of_class = result.codes, dict(self.of_class)
            query = (result.split == QUERY).to_numpy()
            if (query & (codes < 0) & ~result.unassigned).any():
                # Some cells have a parent of classes.
                column = obs_key(result.key, "label")
                labels = self.adata.obs[column].where(query)
                for one, color in label_colors(self.adata, column).items():
                    if one != UNASSIGNED and (labels == one).any():
                        of_class.setdefault(one, color)
                found = pd.Index(list(of_class)).get_indexer(labels.astype(object))
                codes = np.where(found >= len(result.classes), found, codes)
            if result.unassigned.any():
                grey.append(UNASSIGNED)
            name = result.label_key
            if query.any() and name != obs_key(result.key, "label"):
                name += " (query: predicted)"
            return Values(name, codes, of_class, grey, of_classes=True)
        values = read_values(self.adata, str(name), **variable, palette=self._palette)
        text = f"no cell of the map has a value of {name!r}"
        check((values.known & result.embedded).any(), text, "color")
        same = {str(one): color for one, color in self.of_class.items()}
        if self._palette is None and values.colors and {*map(str, values.colors)} <= same.keys():
            values = replace(values, colors={one: same[str(one)] for one in values.colors})
        return values


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

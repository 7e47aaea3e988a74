"""A small picture of one cell, from the Image layers that the viewer shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from napari.layers import Image, Labels, Layer, Points
from numpy.typing import NDArray
from skimage.measure import find_contours

from centroid_encoder.viewer.data.columns import image_of
from centroid_encoder.viewer.data.ids import CellLayer, pixels
from centroid_encoder.viewer.data.join import Join

MARGIN = 3.0
"""Side of the picture in diameters of the cell."""
MAX_READ = 300
"""Pixels along a side that are read of an image."""
LOOKS = ("visible", "contrast_limits", "colormap", "gamma", "opacity", "blending")
"""Events of an Image layer after which a picture is another one."""


@dataclass(frozen=True, eq=False)
class Thumbnail:
    """A picture of a cell, and the outline of the cell in it."""

    pixels: NDArray[np.uint8]
    """(side, side, 3) colours."""
    outline: NDArray[np.float64]
    """(n, 2) vertices, y and x, as shares of the side."""


def layers_of_cell(
    layers: Iterable[Layer], obs: pd.DataFrame, image_column: str | None, row: int
) -> list[Layer]:
    """Return the layers that do not show another image than that of the cell in a row of `obs`.

    The names of layers and images match as in the search for labels; a layer with another name
    counts for all images.
    """
    layers = list(layers)
    if image_column is None:
        return layers
    images = obs[image_column]
    is_category = isinstance(images.dtype, pd.CategoricalDtype)
    names = images.cat.categories if is_category else images.dropna().unique()
    if len(names) < 2:
        return layers
    shown = [image_of(layer, names) for layer in layers]
    return [x for x, image in zip(layers, shown, strict=True) if image in (None, images.iloc[row])]


def make_thumbnail(
    layers: Sequence[Layer],
    point: Sequence[float],
    layer: CellLayer,
    join: Join,
    row: int,
    side: int = 160,
) -> Thumbnail | None:
    """Draw the images around a cell, with their colour maps, and outline the cell.

    Only the last two axes are drawn, in the plane of the cell's center. Along axes that the layer
    of the cell lacks, the plane is that of `point`, in world coordinates. None if the cell is not
    in the layer, or if no image covers it.
    """
    drawn = outline(layer, join, int(join.ids[row]))
    if drawn is None:
        return None
    matrix, offset = to_world(layer)
    drawn = drawn @ matrix.T + offset
    center = (drawn.min(axis=0) + drawn.max(axis=0)) / 2
    extent = MARGIN * max(float(np.ptp(drawn[:, -2:], axis=0).max()), 1e-9)
    corner = center[-2:] - extent / 2
    steps = (np.arange(side) + 0.5) / side * extent
    grid = np.stack(np.meshgrid(*(corner[:, None] + steps), indexing="ij"), axis=-1)
    center = np.append(np.asarray(point)[: len(point) - len(center)], center)
    canvas, is_covered = np.zeros((side, side, 3)), False
    for image in layers:
        if isinstance(image, Image) and image.ndim <= len(center):
            places = np.empty((side, side, image.ndim))
            places[...] = center[-image.ndim :]
            places[..., -2:] = grid
            matrix, offset = to_world(image)
            color = _colors(image, (places - offset) @ np.linalg.inv(matrix).T)
            if color is None:
                continue
            alpha = color[..., 3:] * image.opacity
            behind = canvas if image.blending == "additive" else canvas * (1 - alpha)
            canvas, is_covered = behind + color[..., :3] * alpha, True
    if not is_covered:
        return None
    shown = (255 * canvas.clip(0, 1)).round().astype(np.uint8)
    return Thumbnail(shown, (drawn[:, -2:] - corner) / extent)


def outline(layer: CellLayer, join: Join, item: int) -> NDArray[np.float64] | None:
    """(n, ndim) vertices of a cell, in pixels of its layer, in the plane of its center."""
    angles = np.linspace(0, 2 * np.pi, 49)[:, None]
    if isinstance(layer, Labels):
        box = join.of.box(np.array([item]))
        mask, low = np.asarray(pixels(layer)[box]) == item, np.array([side.start for side in box])
        found = np.argwhere(mask)
        if not len(found):
            return None
        # Choose the plane with pixels of the cell that is nearest to its center.
        planes = found[:, :-2]
        plane = planes[np.abs(planes - planes.mean(axis=0)).sum(axis=1).argmin()]
        framed = np.pad(mask[tuple(plane)], 1).astype(np.float64)
        contours = find_contours(framed, 0.5)  # type: ignore[no-untyped-call]
        longest = max(contours, key=len) - 1
        return np.asarray(np.hstack([np.tile(plane, (len(longest), 1)), longest]) + low)
    if item >= len(layer.data):
        return None
    vertices = np.asarray(layer.data[item], dtype=np.float64)
    if isinstance(layer, Points):
        center, (a, b) = vertices, layer.size[item] / 2 * np.eye(layer.ndim)[-2:]
    elif str(layer.shape_type[item]) == "ellipse":
        center, (a, b) = vertices.mean(axis=0), np.diff(vertices[:3], axis=0) / 2
    else:
        return vertices
    return np.asarray(center + np.sin(angles) * a + np.cos(angles) * b)


def to_world(layer: Layer) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Matrix and offset from pixels of a layer to world coordinates."""
    offset = np.array(layer.data_to_world(np.zeros(layer.ndim)))
    units = [np.array(layer.data_to_world(unit)) - offset for unit in np.eye(layer.ndim)]
    return np.stack(units, axis=1), offset


def _colors(image: Image, places: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """RGBA of an image at (side, side, ndim) places in its pixels; None if all are outside."""
    levels: Sequence[Any] = image.data if image.multiscale else [image.data]
    full = np.array(levels[0].shape[: image.ndim])
    corners = places[:: len(places) - 1, :: len(places) - 1].reshape(4, -1)
    low, high = corners.min(axis=0), corners.max(axis=0)
    if (high < -0.5).any() or (low > full - 0.5).any():
        return None
    for level in levels:
        scale = full / level.shape[: image.ndim]
        if ((high - low) / scale).max() <= MAX_READ:
            break
    shape = np.array(level.shape[: image.ndim])
    at = np.rint((places + 0.5) / scale - 0.5).astype(int)
    ends = np.rint((np.stack([low, high]) + 0.5) / scale - 0.5).astype(int)
    start, stop = ends.clip(0, shape - 1)
    stop += 1
    step = np.maximum(1, -(-(stop - start) // MAX_READ))
    crop = np.asarray(level[tuple(map(slice, start, stop, step))])
    inside = ((at >= 0) & (at < shape)).all(axis=-1)
    seen = crop[tuple(np.moveaxis((at.clip(start, stop - 1) - start) // step, -1, 0))]
    if image.rgb:
        top = np.iinfo(seen.dtype).max if seen.dtype.kind in "ui" else 1
        color = np.ones((*inside.shape, 4))
        color[..., : seen.shape[-1]] = seen / top
        color[..., :3] **= image.gamma
    else:
        dark, bright = image.contrast_limits
        values = ((seen.astype(np.float64) - dark) / (bright - dark)).clip(0, 1) ** image.gamma
        # Mapping 256 values to colours is faster than mapping all pixels.
        colors = np.asarray(image.colormap.map(np.linspace(0, 1, 256)))
        color = colors[np.rint(255 * np.nan_to_num(values)).astype(np.uint8)]
    color[~inside] = 0
    return np.asarray(color, dtype=np.float64)

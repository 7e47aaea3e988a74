"""Layers of cells and their ids: the values of a label image, the indices of points and shapes."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any, TypeAlias

import dask.array as da
import numpy as np
from napari.layers import Image, Labels, Points, Shapes
from numpy.typing import NDArray
from scipy import ndimage

ItemLayer: TypeAlias = Points | Shapes
"""Layers of cells that are points or shapes, each with a row of features."""
CellLayer: TypeAlias = Labels | Points | Shapes
"""Layers whose labels, points or shapes may be cells."""

MAX_PIXELS_AT_ONCE = 2**24
"""Label images in memory with more pixels, and all lazy ones, are read in a thread."""
PIXELS_OF_CENTERS = 2**21
"""Approximate number of pixels from which the centers of labels are computed."""


PLACE = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")
"""Attributes of the place of a layer."""


@dataclass(frozen=True, eq=False)
class LayerIds:
    """The ids of a layer, read once for all links to it."""

    item: str
    """Kind of the cells: ``"label"``, ``"point"`` or ``"shape"``."""
    ids: NDArray[np.int64]
    """The labels, or the indices of the points or shapes, in ascending order."""
    centers: NDArray[np.floating]
    """(n_ids, ndim) centers in pixels, NaN for labels without a sampled pixel."""
    step: int = 1
    """Only every `step`-th pixel was sampled for the centers."""
    checksum: int = 0
    """The `checksum` of the pixels."""


def pixels(layer: Labels | Image) -> Any:
    """Return the pixels at full resolution: an array of NumPy, dask, zarr or another library."""
    return layer.data[0] if layer.multiscale else layer.data


def checksum(image: Any) -> int:
    """Return a number that changes with the pixels of an image in memory; 0 for a lazy image."""
    return zlib.crc32(np.ascontiguousarray(image).data) if isinstance(image, np.ndarray) else 0


def as_mask(image: Image) -> Labels | None:
    """Return an image in memory as Labels if it may be a mask: whole numbers in patches.

    napari opens a mask in a ``.tif`` file as an Image layer.
    """
    data = None if image.rgb or image.multiscale else image.data
    if not isinstance(data, np.ndarray) or data.dtype.kind not in "iu":
        return None
    rows = data[..., :: math.ceil(data.size / PIXELS_OF_CENTERS), :]
    left, right = rows[..., 1:], rows[..., :-1]
    inside = (left != 0) & (right != 0)
    if not inside.any() or (left == right)[inside].mean() <= 0.5:
        return None
    place = {key: getattr(image, key) for key in PLACE}
    return Labels(data, name=f"{image.name} labels", **place)


def is_slow(layer: Labels) -> bool:
    """Return whether the pixels are so many, or lazy, that reading them would block the window."""
    image = pixels(layer)
    return type(image) is not np.ndarray or image.size > MAX_PIXELS_AT_ONCE


def read_ids(layer: CellLayer) -> LayerIds:
    """Read the ids of a layer."""
    if isinstance(layer, Labels):
        return label_ids(pixels(layer))
    if isinstance(layer, Points):
        return LayerIds("point", np.arange(len(layer.data)), layer.data)
    centers = np.reshape([vertices.mean(axis=0) for vertices in layer.data], (-1, layer.ndim))
    return LayerIds("shape", np.arange(len(layer.data)), centers)


def label_ids(image: Any) -> LayerIds:
    """Read the values in a label image, except the background, and their centers."""
    step = max(1, math.ceil((math.prod(image.shape) / PIXELS_OF_CENTERS) ** 0.5))
    if isinstance(image, np.ndarray):
        part = image[..., ::step, ::step]
        # Only the last pixel of each run of equal pixels is kept: `np.unique` of all is slower.
        flat = image.ravel()
        ends = np.flatnonzero(flat[1:] != flat[:-1])
        values = np.unique(np.append(flat[ends], flat[-1:]))
    else:
        lazy = da.asarray(image)
        values, part = da.compute(da.unique(lazy), lazy[..., ::step, ::step])
    if values.dtype == np.uint64 and len(values) and values[-1] > np.iinfo(np.int64).max:
        raise ValueError(f"the label {values[-1]} is too large; labels must be below 2**63")
    ids, part = values[values != 0].astype(np.int64), part.astype(np.int64)
    with np.errstate(invalid="ignore"):
        found = ndimage.center_of_mass(np.broadcast_to(1, part.shape), part, ids)
    centers = np.reshape(np.array(found, dtype=float), (len(ids), part.ndim))
    centers[:, -2:] *= step
    return LayerIds("label", ids, centers, step, checksum(image))

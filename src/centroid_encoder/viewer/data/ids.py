"""Layers of cells and their ids: the values of a label image, the indices of points and shapes."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field
from itertools import accumulate, product
from typing import Any, TypeAlias
from uuid import uuid4

import dask.array as da
import numpy as np
import pandas as pd
from dask.array.core import normalize_chunks, slices_from_chunks
from dask.delayed import delayed
from napari.layers import Image, Labels, Points, Shapes
from numpy.typing import ArrayLike, NDArray

ItemLayer: TypeAlias = Points | Shapes
"""Layers of cells that are points or shapes, each with a row of features."""
CellLayer: TypeAlias = Labels | Points | Shapes
"""Layers whose labels, points or shapes may be cells."""

MAX_PIXELS_AT_ONCE = 2**22
"""Label images in memory with more pixels, and all lazy ones, are read in a thread."""

SIDE_OF_BLOCK = 1024
"""Side in pixels of the blocks in which label images in memory are read."""
MAX_OVERVIEW = 2**24
"""Largest number of pixels of an overview."""

PLACE = ("scale", "translate", "rotate", "shear", "affine", "units", "axis_labels")
"""Attributes of the place of a layer, and the events after they have changed."""


@dataclass(frozen=True, eq=False)
class LayerIds:
    """The ids of a layer, read once for all links to it."""

    item: str
    """Kind of the cells: ``"label"``, ``"point"`` or ``"shape"``."""
    ids: NDArray[np.int64]
    """The labels, or the indices of the points or shapes, in ascending order."""
    centers: NDArray[np.floating]
    """(n_ids, ndim) centers in pixels."""
    boxes: NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 2, 0), dtype=np.int64))
    """(n_ids, 2, ndim) first pixels and ends of the boxes around labels; empty for points, shapes.
    """
    checksum: int = 0
    """The `checksum` of the pixels."""
    overview: NDArray[Any] | None = None
    """A part of the pixels, in even steps, of a lazy image with large planes; None for others."""

    def boxes_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n, 2, ndim) boxes around some labels of the layer."""
        return self.boxes[np.searchsorted(self.ids, ids)]

    def box(self, ids: NDArray[np.int64], margin: int = 0) -> tuple[slice, ...]:
        """Return one box around several labels, with a margin inside the image, as slices."""
        boxes = self.boxes_of(ids)
        low, high = boxes[:, 0].min(axis=0) - margin, boxes[:, 1].max(axis=0) + margin
        return tuple(map(slice, low.clip(0).tolist(), high.tolist()))


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
    rows = data[..., :: math.ceil(data.size / MAX_PIXELS_AT_ONCE), :]
    left, right = rows[..., 1:], rows[..., :-1]
    inside = (left != 0) & (right != 0)
    if not inside.any() or (left == right)[inside].mean() <= 0.5:
        return None
    place = {key: getattr(image, key) for key in PLACE}
    return Labels(data, name=f"{image.name} labels", **place)


def lazily(image: Any) -> da.Array:
    """Return an image as an array of dask; its blocks are parts of planes if it has none itself."""
    if type(image) is not np.ndarray:
        lazy: da.Array = da.asarray(image)
        return lazy
    sizes = (*(1,) * (image.ndim - 2), SIDE_OF_BLOCK, SIDE_OF_BLOCK)
    chunks, name = normalize_chunks(sizes, image.shape), f"labels-{uuid4()}"
    places = zip(np.ndindex(*map(len, chunks)), slices_from_chunks(chunks), strict=True)
    # Not `from_array`, which copies the pixels.
    return da.Array({(name, *at): image[part] for at, part in places}, name, chunks, image.dtype)


def is_slow(layer: Labels) -> bool:
    """Return whether the pixels are so many, or lazy, that reading them would block the window."""
    image = pixels(layer)
    return type(image) is not np.ndarray or image.size > MAX_PIXELS_AT_ONCE


def read_ids(layer: CellLayer) -> LayerIds:
    """Read the ids of a layer."""
    if isinstance(layer, Labels):
        return label_ids(pixels(layer), with_overview=not layer.multiscale)
    if isinstance(layer, Points):
        return LayerIds("point", np.arange(len(layer.data)), layer.data)
    centers = np.reshape([vertices.mean(axis=0) for vertices in layer.data], (-1, layer.ndim))
    return LayerIds("shape", np.arange(len(layer.data)), centers)


def label_ids(image: Any, *, with_overview: bool = False) -> LayerIds:
    """Read the values in a label image, except the background, their centers and their boxes."""
    lazy, overview = lazily(image), None
    has_large_planes = math.prod(image.shape[-2:]) > MAX_PIXELS_AT_ONCE
    if with_overview and has_large_planes and type(image) is not np.ndarray:
        step = math.ceil((lazy.size / MAX_OVERVIEW) ** 0.5)
        overview = lazy[..., ::step, ::step]
    starts = product(*([0, *accumulate(sizes[:-1])] for sizes in lazy.chunks))
    # Without optimization, each block is read once, also for the overview.
    parts = lazy.to_delayed(optimize_graph=False).ravel()
    blocks = (delayed(_runs)(*one) for one in zip(parts, starts, strict=True))
    overview, *rows = da.compute(overview, *blocks, optimize_graph=False)
    found = _summed(pd.concat(rows))
    ids = found.index.to_numpy()
    if len(ids) and ids[-1] > np.iinfo(np.int64).max:
        raise ValueError(f"the label {ids[-1]} is too large; labels must be below 2**63")
    n, sums, *ends = np.split(found.to_numpy(), 1 + lazy.ndim * np.arange(3), axis=1)
    boxes = np.stack(ends, axis=1).astype(np.int64)
    return LayerIds("label", ids.astype(np.int64), sums / n, boxes, checksum(image), overview)


def _runs(block: ArrayLike, start: tuple[int, ...]) -> pd.DataFrame:
    """Return a row for each label of a block that begins at a pixel of the image.

    The columns are the number of pixels and, for each axis, the sums of their positions, the first
    pixels, and the ends. Only runs of equal pixels in a row are counted: they are far fewer than
    the pixels.
    """
    block = np.asarray(block)
    flat, width = block.ravel(), block.shape[-1]
    is_end = np.ones(len(flat), dtype=bool)
    np.not_equal(flat[1:], flat[:-1], out=is_end[:-1])
    is_end[width - 1 :: width] = True
    ends = np.flatnonzero(is_end)
    n = np.diff(ends, prepend=-1)
    ends, n = (x[flat[ends] != 0] for x in (ends, n[:, None]))
    last = np.stack(np.unravel_index(ends, block.shape), axis=1) + start
    first = last.copy()
    first[:, -1:] -= n - 1
    runs = np.hstack([n, (first + last) * n / 2, first, last + 1])
    return _summed(pd.DataFrame(runs, index=flat[ends]))


def _summed(rows: pd.DataFrame) -> pd.DataFrame:
    """Combine the rows of equal labels, and sort them by label."""
    n_axes = len(rows.columns) // 3
    ways = ["sum"] * (1 + n_axes) + ["min"] * n_axes + ["max"] * n_axes
    return rows.groupby(level=0).agg(dict(enumerate(ways)))

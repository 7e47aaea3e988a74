"""Ids of cells: values of a column, labels of an image, indices of points and shapes."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import dask.array as da
import numpy as np
import pandas as pd
from napari.layers import Image, Labels, Points, Shapes
from numpy.typing import NDArray

ItemLayer: TypeAlias = Points | Shapes
"""Layers of cells that are points or shapes, each with a row of features."""
CellLayer: TypeAlias = Labels | Points | Shapes
"""Layers whose labels, points or shapes may be cells."""

ID_NAMES = (
    "instanceid", "cellid", "label", "index", "objectnumber", "labelid", "objectid", "cellnumber",
    "cellnb", "nucleusid", "segmentid", "object", "cell", "id",
)  # fmt: skip
"""Names of columns of ids, without case and punctuation; the likeliest first."""
MAX_PIXELS_AT_ONCE = 2**24
"""Labels in memory with more pixels are read in a thread, like all lazy ones."""
PIXELS_OF_CENTERS = 2**21
"""Centers of labels are computed from about so many pixels."""


@dataclass(frozen=True, eq=False)
class LayerIds:
    """The ids of a layer, read once for all links to it."""

    item: str
    """What the layer holds: ``"label"``, ``"point"`` or ``"shape"``."""
    ids: NDArray[np.int64]
    """Sorted: the labels, or the indices of the points or shapes."""
    centers: NDArray[np.floating] | None = None
    """(n_ids, ndim) centers of labels in pixels, NaN for labels between the sampled pixels."""
    step: int = 1
    """Distance of the pixels that were sampled for the centers."""


def named(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Columns with one of these names, in the order of the names."""
    plain = {column: re.sub(r"[\W_]", "", str(column)).lower() for column in table}
    return sorted(
        (key for key in plain if plain[key] in names), key=lambda k: names.index(plain[k])
    )


def are_ids(table: pd.DataFrame) -> list[str]:
    """Columns that have a name of ids and different values in all rows: no classes."""
    return [name for name in named(table, ID_NAMES) if table[name].dropna().is_unique]


def may_be_ids(column: pd.Series) -> bool:
    """Tell whether a column may hold ids: whole numbers or text, most of them different."""
    values = column.dropna()
    if not len(values) or values.duplicated().mean() > 0.9:
        return False
    if pd.api.types.is_float_dtype(column.dtype):
        return bool((np.mod(values, 1) == 0).all())
    return not pd.api.types.is_bool_dtype(column.dtype)


def whole_numbers(column: pd.Series, name: str) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Values as integers, 0 where there is none, and a mask of the rows that have one.

    Raises
    ------
    ValueError
        If a value is no whole number; the message calls the column `name`.
    """
    there = column.notna().to_numpy(dtype=bool)
    values = column[there]
    if isinstance(values.dtype, pd.CategoricalDtype):
        values = values.astype(values.cat.categories.dtype)
    numbers = pd.to_numeric(values, errors="coerce")
    floats = numbers.to_numpy(float, na_value=np.nan)
    # Larger floats are not exact; neither truths nor dates are ids.
    limit = 2.0**53 if numbers.dtype.kind == "f" else 2.0**63
    whole = (np.abs(floats) < limit) & (values.dtype.kind not in "bmM")
    whole[whole] = floats[whole] % 1 == 0
    if not whole.all():
        wrong = values[~whole].iloc[0]
        shown = wrong.item() if isinstance(wrong, np.generic) else wrong
        raise ValueError(f"{name} holds {shown!r}, which is no label: labels are whole numbers")
    found = np.zeros(len(column), dtype=np.int64)
    found[there] = numbers.to_numpy(dtype=np.int64)
    return found, there


def pixels(layer: Labels | Image) -> Any:
    """Pixels at full resolution, as an array of NumPy, dask, zarr or another library."""
    return layer.data[0] if layer.multiscale else layer.data


def is_slow(layer: Labels) -> bool:
    """Tell whether the pixels are large or lazy, so that reading them would block the window."""
    image = pixels(layer)
    return type(image) is not np.ndarray or image.size > MAX_PIXELS_AT_ONCE


def read_ids(layer: CellLayer) -> LayerIds:
    """Read the ids of a layer."""
    if isinstance(layer, Labels):
        return label_ids(pixels(layer))
    item = "point" if isinstance(layer, Points) else "shape"
    return LayerIds(item, np.arange(len(layer.data)))


def label_ids(image: Any) -> LayerIds:
    """Read the values in a label image, without the background, and their centers."""
    step = max(1, math.ceil((math.prod(image.shape) / PIXELS_OF_CENTERS) ** 0.5))
    if isinstance(image, np.ndarray):
        part = image[..., ::step, ::step]
        # Labels come in runs: their ends are found faster than the different values of all pixels.
        flat = image.ravel()
        ends = np.flatnonzero(flat[1:] != flat[:-1])
        values = np.unique(np.append(flat[ends], flat[-1:]))
    else:
        lazy = da.asarray(image)
        values, part = da.compute(da.unique(lazy), lazy[..., ::step, ::step])
    if values.dtype == np.uint64 and len(values) and values[-1] > np.iinfo(np.int64).max:
        raise ValueError(f"the label {values[-1]} is too large; labels must be below 2**63")
    ids = values[values != 0].astype(np.int64)
    return LayerIds("label", ids, _centers(part, step, ids), step)


def _centers(part: NDArray[Any], step: int, ids: NDArray[np.int64]) -> NDArray[np.floating]:
    """Centers of labels, from every `step`-th pixel along the last two axes."""
    codes, values = pd.factorize(part.ravel())
    n, seen = np.bincount(codes), values != 0
    at = np.searchsorted(ids, values[seen].astype(np.int64))
    centers = np.full((len(ids), part.ndim), np.nan)
    grid = np.meshgrid(*map(np.arange, part.shape), indexing="ij", sparse=True)
    for axis, places in enumerate(grid):
        sums = np.bincount(codes, weights=np.broadcast_to(places, part.shape).ravel())
        centers[at, axis] = (sums / n)[seen] * (step if axis >= part.ndim - 2 else 1)
    return centers

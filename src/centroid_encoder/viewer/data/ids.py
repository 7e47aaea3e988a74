"""Ids of cells, as columns of tables and pixels of images hold them."""

from __future__ import annotations

import math
import numbers
import re
import zlib
from collections.abc import Iterator, Sequence
from itertools import pairwise, product
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from napari.layers import Labels, Points, Shapes
from numpy.typing import NDArray

ItemLayer: TypeAlias = Points | Shapes
"""Layers of cells that are points or shapes, each with a row of features."""
CellLayer: TypeAlias = Labels | Points | Shapes
"""Layers whose labels, points or shapes may be cells."""

NUMBERED = ("id", "number", "nb", "nr", "no", "num", "index", "idx", "label")
"""How columns of ids end."""
# As people and programs write them, without case and punctuation; the likelier first.
INSTANCE_KEYS = tuple(
    dict.fromkeys(
        [
            "instanceid", "cellid", "label", "labelid", "objectid", "objectnumber", "segmentid",
            "nucleusid", "id", "cell", "index", "object",
        ]
        + [
            f"{thing}{ending}"
            for thing in ("instance", "cell", "object", "obj", "label", "segment", "segmentation",
                          "nucleus", "nuclei", "mask")
            for ending in NUMBERED
        ]
    )
)  # fmt: skip
BLOCK = 2**24
"""Pixels of an image that are looked at together."""


def named(table: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """Columns with one of these names, in their order."""
    plain = {column: re.sub(r"[\W_]", "", str(column)).lower() for column in table}
    return sorted(
        (key for key in plain if plain[key] in names), key=lambda k: names.index(plain[k])
    )


def are_ids(table: pd.DataFrame) -> list[str]:
    """Columns that are called like ids and are different for all rows: no classes."""
    return [name for name in named(table, INSTANCE_KEYS) if table[name].dropna().is_unique]


def may_be_ids(column: pd.Series) -> bool:
    """Tell whether a column may hold ids: whole numbers or text, and not the same all over."""
    values = column.dropna()
    if not len(values) or values.duplicated().mean() > 0.9:
        return False
    if pd.api.types.is_float_dtype(column.dtype):
        return bool((np.mod(values, 1) == 0).all())
    return not pd.api.types.is_bool_dtype(column.dtype)


def label_ids(layer: Labels) -> NDArray[np.int64]:
    """Values in an image of labels at full resolution, sorted, without the background."""
    image = layer.data[0] if layer.multiscale else layer.data
    found = [np.empty(0, dtype=np.int64)]
    for block in _blocks(image):
        values = np.asarray(image[block]).ravel()
        if not len(values):
            continue
        # Labels come in runs, and to find their ends is much faster than to sort all pixels.
        ends = np.flatnonzero(values[1:] != values[:-1])
        values = pd.unique(np.append(values[ends], values[-1]))
        if values.dtype == np.uint64 and values.max() > np.iinfo(np.int64).max:
            raise ValueError(f"the label {values.max()} is too large; labels must be below 2**63")
        found.append(values.astype(np.int64))
    ids = np.unique(np.concatenate(found))
    labels: NDArray[np.int64] = ids[ids != 0]
    return labels


def digest(image: Any) -> int:
    """Return a number that another image hardly has."""
    found = 0
    for block in _blocks(image):
        found = zlib.crc32(np.ascontiguousarray(image[block]).tobytes(), found)
    return found


def _blocks(image: Any) -> Iterator[tuple[slice, ...]]:
    """Parts of an image that fit into memory: the chunks of dask, else slabs."""
    chunks = getattr(image, "chunks", None)
    if not (chunks and isinstance(chunks[0], tuple)):
        height = max(1, BLOCK // max(1, math.prod(image.shape[1:])))
        starts = range(0, image.shape[0], height)
        yield from ((slice(start, start + height),) for start in starts)
        return
    edges = [np.cumsum([0, *sizes]).tolist() for sizes in chunks]
    yield from product(*([slice(*ends) for ends in pairwise(axis)] for axis in edges))


def whole_numbers(
    column: pd.Series, name: str, *, prefixed: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Values as integers, 0 where there is none, and where there is one.

    Parameters
    ----------
    column
        The values.
    name
        What the error calls them.
    prefixed
        Whether to take ``"cell_12"`` for 12, if all values begin with the same ``"cell_"``.

    Raises
    ------
    ValueError
        If something is no whole number.
    """
    if column.dtype.kind not in "iuf":
        codes, uniques = pd.factorize(column)
        if prefixed:
            uniques = _without_prefix(list(uniques))
        parsed = np.fromiter((_whole_number(value, name) for value in uniques), dtype=np.int64)
        return np.append(parsed, 0)[codes], codes >= 0
    there = column.notna().to_numpy(dtype=bool)
    values = column[there].to_numpy(dtype=getattr(column.dtype, "numpy_dtype", column.dtype))
    whole = np.ones(len(values), dtype=bool)
    if values.dtype.kind == "f":
        whole = np.isfinite(values) & (values == np.rint(values)) & (abs(values) < 2.0**63)
    elif values.dtype == np.uint64:
        whole = values <= np.iinfo(np.int64).max
    if not whole.all():
        raise ValueError(_no_id(values[~whole][0], name))
    whole_numbers = np.zeros(len(column), dtype=np.int64)
    whole_numbers[there] = values.astype(np.int64)
    return whole_numbers, there


def _without_prefix(values: list[object]) -> list[object]:
    """Numbers of values that are a number after the same text; other values as they are."""
    found = [re.fullmatch(r"(.*?\D)(\d+(?:\.0*)?)", str(value), re.ASCII) for value in values]
    # A letter or "_" tells a prefix from the digits before the point of a fraction.
    prefixes = {match[1] if match and re.search(r"[^\W\d]", match[1]) else "" for match in found}
    if len(prefixes) != 1 or "" in prefixes:
        return values
    return [match[2] for match in found if match]


def _whole_number(value: object, name: str) -> int:
    # There may be a million of them; with so few digits, they are in range.
    if isinstance(value, str) and len(value) < 19 and value.isascii() and value.isdecimal():
        return int(value)
    number = value
    if isinstance(value, str):
        # What int() takes would make the number 12 of a "1_2".
        match = re.fullmatch(r"\s*([+-]?\d+)(\.0*)?\s*", value, re.ASCII)
        number = int(match[1]) if match else None
    elif isinstance(value, float | np.floating) and float(value).is_integer():
        number = int(value)
    if not isinstance(number, numbers.Integral) or isinstance(number, bool):
        raise ValueError(_no_id(value, name))
    if not -(2**63) <= int(number) < 2**63:
        raise ValueError(_no_id(value, name))
    return int(number)


def _no_id(value: object, name: str) -> str:
    # Numpy's scalars would show their type.
    shown = value.item() if isinstance(value, np.generic) else value
    return f"{name} holds {shown!r}, which is no label: labels are whole numbers below 2**63"


def texts(column: pd.Series) -> tuple[NDArray[np.object_], NDArray[np.bool_]]:
    """Values as text, and where there is one."""
    return column.astype(str).to_numpy(dtype=object), column.notna().to_numpy(dtype=bool)

"""Regions of a table: which images its cells are in, and which of them a layer shows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pandas as pd
from napari.layers import Layer

from centroid_encoder.viewer.data.ids import named

# Without case and punctuation; the likelier first.
REGION_KEYS = tuple(
    dict.fromkeys(
        [
            "region", "libraryid", "fov", "fovname", "imageid", "image", "imagename", "slideid",
            "slide", "sampleid", "sample",
        ]
        + [
            f"{thing}{ending}"
            for thing in ("region", "fov", "image", "img", "mask", "roi", "slide", "sample")
            for ending in ("id", "name", "number", "nb", "nr", "no", "num", "index", "file")
        ]
    )
)  # fmt: skip
MANY = 1000
"""Regions that no table has; what has more is no column of regions."""
ENDINGS = re.compile(
    r"\.(ome|tiff?|png|jpe?g|bmp|zarr|h5|hdf5|npy|qptiff|svs|czi|nd2|lif|ndpi|scn|mrxs|mcd)"
    r"(?![^\W_])"
)
"""Of names of files with images, in lower case."""
MASKS = {
    "mask", "masks", "label", "labels", "seg", "segmentation", "segmentations", "segmented",
    "cellpose", "stardist", "mesmer",
}  # fmt: skip
"""Words that say of an image that it is one of labels."""
WHAT = MASKS | {"cell", "cells", "nuclei", "nucleus", "nuclear", "image", "images", "img"}
"""Words that say what of an image a layer shows, not which image."""

THINGS = WHAT | {"fov", "roi", "slide", "sample", "region", "core", "tile"}
"""Words before the number of an image."""


class Region(NamedTuple):
    """A part of a table: the cells of one image."""

    column: str
    """Column of ``obs`` that says which region a cell is in."""
    value: object = None
    """Its value for these cells; None takes the cells of all regions."""


def guess_region(obs: pd.DataFrame, layer: Layer, known: str | None = None) -> Region | None:
    """Guess the column of regions, and which of them a layer shows.

    A region is known by its name, which is that of the layer but for endings of files and words
    such as "mask": ``A.tiff`` is shown by ``A_mask``.

    Parameters
    ----------
    obs
        Columns of the table.
    layer
        The layer.
    known
        Column of regions, if it is known.

    Returns
    -------
    Region or None
        Its value is None if it is not clear which one the layer shows. None without a column.
    """
    names = [str(name) for name in (layer.metadata.get("name"), layer.name) if name]
    columns = named(obs, REGION_KEYS) if known is None else [known]
    regions = {column: list(pd.unique(obs[column].dropna())) for column in columns}
    regions = {column: values for column, values in regions.items() if 0 < len(values) < MANY}
    for same in (str, plain):
        for column, values in regions.items():
            for name in names:
                shown = [value for value in values if same(str(value)) == same(name)]
                if len(shown) == 1:
                    return Region(column, shown[0])
    for column, values in regions.items():
        if len(values) > 1:
            return Region(column)
    return next((Region(column, values[0]) for column, values in regions.items()), None)


def plain(name: str) -> str:
    """What of the name of an image or a layer says which image it is."""
    words = all_words(name)
    rest = [word for word in words if word not in WHAT]
    return " ".join(rest or words)


def specific_words(name: str) -> frozenset[str]:
    """Words of a name that say which image it is, or which channel: none in ``nuclei_mask``."""
    return frozenset(all_words(name)) - WHAT


def is_of_image(name: str, *images: str) -> bool:
    """Tell whether the name of a layer or a file begins, goes on or ends with that of an image.

    ``fov3_DAPI`` is of the image 3, and ``fov1_CD3`` is not.
    """
    return not word_runs(name).isdisjoint(map(image_words, images))


def image_words(image: str) -> tuple[str, ...]:
    """Words of the name of an image by which files and layers are known to be of it."""
    return tuple(word for word in all_words(image) if word not in WHAT)


def word_runs(name: str) -> set[tuple[str, ...]]:
    """Words in a row in the name of a layer or a file that may be the name of its image."""
    chunks = [all_words(chunk) for chunk in re.findall(r"[^\W_]+", _without_ending(name))]
    words = [word for chunk in chunks for word in chunk]
    starts, ends, at = set(), set(), 0
    for chunk in chunks:
        starts |= {at, *([at + 1] if chunk[0] in THINGS else [])}
        at += len(chunk)
        ends.add(at)
    return {tuple(words[start:end]) for start in starts for end in ends if start < end}


def alike(name: str, others: Iterable[Layer]) -> Sequence[Layer]:
    """Sort layers: those first that show the same of their image as one of this name."""
    what = WHAT & set(all_words(name))
    return sorted(others, key=lambda layer: WHAT & set(all_words(layer.name)) != what)


def all_words(name: str) -> list[str]:
    """Words of the name of an image or a layer, in lower case; 7 for 007."""
    words = re.findall(r"\d+|[^\W\d_]+", _without_ending(name))
    return [word.lstrip("0") or "0" if word.isdigit() else word for word in words]


def _without_ending(name: str) -> str:
    # napari numbers layers of the same name.
    name = re.sub(r" \[\d+\]$", "", re.split(r"[/\\]", name)[-1]).lower()
    return ENDINGS.sub("", name)

"""The images of a table, and the layer that shows each of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import pandas as pd
from napari.layers import Layer

from centroid_encoder.viewer.data.join import Join, Link

ONE_IMAGE = ""
"""Column of images of a table whose cells are all in one image."""
ENDINGS = re.compile(
    r"\.(ome|tiff?|png|jpe?g|bmp|zarr|h5|hdf5|npy|qptiff|svs|czi|nd2|lif|ndpi|scn|mrxs|mcd)"
    r"(?![^\W_])"
)
"""Endings of the names of image files, in lower case."""
GENERAL_WORDS = {
    "mask", "masks", "label", "labels", "seg", "segmentation", "segmentations", "segmented",
    "cellpose", "stardist", "mesmer", "cell", "cells", "nuclei", "nucleus", "nuclear", "image",
    "images", "img",
}  # fmt: skip
"""Words in names of layers that are the same for all images."""


@dataclass(frozen=True)
class TableImage:
    """One image of a table, or all of them, if one layer shows all of them."""

    value: object
    """Value in the column of images; None for all."""
    n_cells: int
    link: Link | None = None
    """Link to the layer that shows it, if one does."""
    join: Join | None = None
    """None also if the link cannot be joined."""
    remark: str = ""
    """A sentence on a fault of the link; empty if there is none."""

    @property
    def name(self) -> str:
        """Name of the image in the table."""
        return "all images" if self.value is None else str(self.value)


def images_by_name(layers: Iterable[Layer], values: Iterable[object]) -> dict[Layer, object]:
    """Return the image that each layer shows, by its name.

    Names agree if they are equal, or equal without endings of files and words such as "mask":
    ``A_mask`` shows ``A.tiff``. A name that agrees with several images shows none of them.
    """
    exact = {str(value): value for value in values}
    similar: dict[str, list[object]] = {}
    for name, value in exact.items():
        similar.setdefault(_plain(name), []).append(value)
    found: dict[Layer, object] = {}
    for layer in layers:
        # napari-spatialdata keeps the name of the element.
        for name in (str(name) for name in (layer.name, layer.metadata.get("name")) if name):
            alike = similar.get(_plain(name), [])
            if name in exact:
                found[layer] = exact[name]
            elif len(alike) == 1:
                found.setdefault(layer, alike[0])
    return found


def _plain(name: str) -> str:
    """Words and numbers that distinguish the name of an image or a layer; 7 for 007."""
    # napari numbers layers of the same name.
    name = re.sub(r" \[\d+\]$", "", re.split(r"[/\\]", name)[-1]).lower()
    words = re.findall(r"\d+|[^\W\d_]+", ENDINGS.sub("", name))
    words = [word.lstrip("0") or "0" if word.isdigit() else word for word in words]
    return " ".join([word for word in words if word not in GENERAL_WORDS] or words)


def table_images(
    obs: pd.DataFrame, column: str, joins: Mapping[Link, Join], faults: Mapping[Link, Exception]
) -> list[TableImage]:
    """List the images of a table in the order of their categories, or of their names.

    Parameters
    ----------
    obs, column
        Columns of the table, and the name of the column of images.
    joins
        Joins of the links that could be joined.
    faults
        Faults of links, joined or not.
    """
    counts = obs[column].value_counts(sort=False)
    values: list[object] = list(counts.index[counts > 0])
    if not isinstance(obs[column].dtype, pd.CategoricalDtype):
        # 2 before 10, also in names.
        values.sort(key=_natural)
    links = {str(link.image): link for link in [*faults, *joins]}
    images = []
    for value in [*([None] if str(None) in links else []), *values]:
        link = links.get(str(value))
        n_cells = int(counts.sum() if value is None else counts[value])
        image = TableImage(value, n_cells, link)
        if link is not None:
            image = replace(image, join=joins.get(link), remark=str(faults.get(link, "")))
        images.append(image)
    return images


def _natural(value: object) -> list[object]:
    """Key to sort names by their numbers."""
    return [int(x) if x.isdecimal() else x for x in re.split(r"(\d+)", str(value))]

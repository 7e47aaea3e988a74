"""Decide which layers are measured together, as arguments of `tl.measure`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from anndata import AnnData
from napari.layers import Image, Labels

from centroid_encoder.core.axes import channel_axes, kept_axes
from centroid_encoder.viewer.data.ids import pixels

if TYPE_CHECKING:
    from centroid_encoder.tl._measure import Measurement

UNLABELED = "cell_type"
"""Column for the labels that the user will give."""
RGB = ("red", "green", "blue")
TIMES = ("t", "time", "frame", "frames")
"""Names of a time axis, in lower case."""
MAX_NAMES = 3
"""With more label images, only their number is shown."""


def name_of(job: Measurement) -> str:
    """Return the names of the label images, or their number."""
    names = list(job.labels)
    return ", ".join(names) if len(names) <= MAX_NAMES else f"{len(names)} label images"


def describe(job: Measurement) -> str:
    """Return the channels of each label image, and the unit, as text."""
    found = [f"{one}: {', '.join(them) or 'only shapes'}" for one, them in job.images.items()]
    unit = "layer units" if job.unit in ("px", "units") else job.unit
    return "\n".join([*found, f"Lengths in {unit}."])


def measured(job: Measurement) -> AnnData:
    """Return the table of a job that has run; in ``obs["cell_type"]`` no cell has a label yet."""
    adata = job.table()
    adata.obs[UNLABELED] = pd.Categorical([None] * adata.n_obs, pd.Index([], dtype=object))
    return adata


def may_be_time(labels: Labels) -> bool | None:
    """Return whether the first axis is likely to be time; None if it cannot be time."""
    if labels.ndim not in (3, 4) or _shape(labels)[0] == 1:
        return None
    name, unit = str(labels.axis_labels[0]).lower(), labels.units[0]
    return labels.ndim == 4 or name in TIMES or dict(unit.dimensionality) == {"[time]": 1}


def have_same_pixels(labels: Labels, image: Image) -> bool:
    """Return whether an image has the same pixels as labels, apart from an axis of channels."""
    place, expected = (np.stack([layer.scale, layer.translate]) for layer in (image, labels))
    expected = expected[:, kept_axes(_shape(labels))]
    return any(
        np.allclose(
            expected, place[:, kept_axes(_shape(image), without=axis)], rtol=1e-4, atol=1e-9
        )
        for axis in channel_axes(_shape(image), _shape(labels))
    )


def plan(labels: Sequence[Labels], images: Sequence[Image], *, time_series: bool) -> Measurement:
    """Assign each image to the label images whose cells it measures.

    An image belongs to all label images with the same pixels in the same place. If the first words
    of the names distinguish the label images (``A_mask``, ``B_mask``, ``A_DAPI``, ``B_DAPI``), an
    image belongs only to that with the same first word, and the rest is the name of the channel.

    Raises
    ------
    ValueError
        If there are no labels, if an image fits none of them, if two channels have the same name,
        or if units differ.
    """
    if not labels:
        raise ValueError("choose at least one Labels layer with cells to measure")
    stems = [_stem(layer.name) for layer in labels]
    by_name = len(set(stems)) == len(stems) > 1 and {_stem(one.name) for one in images} <= {*stems}
    channels: dict[str, dict[str, Any]] = {layer.name: {} for layer in labels}
    for image in images:
        fitting = [layer for layer in labels if have_same_pixels(layer, image)]
        name = re.sub(r" \[\d+\]$", "", image.name)  # napari numbers layers of the same name
        if by_name:
            stem = _stem(name)
            fitting = [layer for layer in fitting if _stem(layer.name) == stem]
            name = name.removeprefix(stem).strip("_-. ") or name
        if not fitting:
            raise ValueError(
                f"{image.name} has the shape {_shape(image)} and {labels[0].name} the shape "
                f"{_shape(labels[0])}: an image must have the same pixels as the labels, with the "
                "same scale and position; untick one of them"
            )
        found = {name: pixels(image)}
        if image.rgb:
            found = {f"{name}_{color}": found[name][..., i] for i, color in enumerate(RGB)}
        for layer in fitting:
            for twice in found.keys() & channels[layer.name]:
                text = f"{layer.name} has two channels called {twice}, the second is {image.name}"
                raise ValueError(f"{text}; rename a layer")
            channels[layer.name] |= found
    first_axis = int(time_series)
    units = {f"{unit:~}" for layer in labels for unit in layer.units[first_axis:]}
    if len(units) > 1:
        raise ValueError(
            f"the labels have several units, {' and '.join(sorted(units))}; give all the same "
            "unit, or measure the layers one by one"
        )
    spacing = {layer.name: tuple(map(float, np.abs(layer.scale[first_axis:]))) for layer in labels}
    # Unicode has two letters for micro.
    unit = re.sub("[µμ]", "u", units.pop())
    if unit in ("px", "pixel"):
        # This is napari's default unit, so a scale other than 1 is in an unknown unit.
        unit = "px" if all(step == 1 for steps in spacing.values() for step in steps) else "units"
    named = {layer.name: pixels(layer) for layer in labels}
    from centroid_encoder.tl._measure import Measurement  # Imports PyTorch.

    return Measurement(named, channels, spacing, unit, time_series=time_series)


def _stem(name: str) -> str:
    """Return the first word of a name."""
    return re.split(r"[\W_]", name, maxsplit=1)[0]


def _shape(layer: Labels | Image) -> tuple[int, ...]:
    shape = tuple(pixels(layer).shape)
    return shape[:-1] if getattr(layer, "rgb", False) else shape

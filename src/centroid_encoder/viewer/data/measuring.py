"""Decide which layers are measured together, as arguments of `tl.measure`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from anndata import AnnData
from napari.layers import Image, Labels

from centroid_encoder.core.axes import channel_axes, kept_axes
from centroid_encoder.viewer.data.columns import image_of, image_stem, without_stem
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


def describe(pairs: Mapping[str, Mapping[str, Image]], unit: str) -> str:
    """Return the images of each label image and their channels, and the unit, as text."""
    lines = []
    for mask, own in pairs.items():
        names = [f"{x.name} as {name}" if x.name != name else name for name, x in own.items()]
        lines.append(f"{mask}: {', '.join(names) or 'only shapes'}")
    unit = "layer units" if unit in ("px", "units") else unit
    return "\n".join([*lines, f"Lengths in {unit}."])


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


def pair(labels: Sequence[Labels], images: Sequence[Image]) -> dict[str, dict[str, Image]]:
    """Return the images that are measured in each label image, by the names of their channels.

    An image belongs to label images with the same pixels in the same place; if its name begins as
    those of some (``A_1_mask``, ``A_1_DAPI``), only to these. The rest of the name is that of the
    channel, or ``"image"`` if there is none, so that the next image has the same features.

    Raises
    ------
    ValueError
        If there are no labels, if an image fits none of them, or if two channels have one name.
    """
    if not labels:
        raise ValueError("choose at least one Labels layer with cells to measure")
    stems = {layer: image_stem(layer.name) for layer in labels}
    found: dict[str, dict[str, Image]] = {layer.name: {} for layer in labels}
    stem_of = {
        image: image_of(image, [stem for stem in stems.values() if stem]) for image in images
    }
    for image, stem in stem_of.items():
        named = [layer for layer in labels if stem and stems[layer] == stem]
        fitting = [layer for layer in named or labels if have_same_pixels(layer, image)]
        if not fitting:
            one = (named or labels)[0]
            raise ValueError(
                f"{image.name} has the shape {_shape(image)} and {one.name} the shape "
                f"{_shape(one)}: an image must have the same pixels as the labels, with the "
                "same scale and position; untick one of them"
            )
        name = without_stem(image.name, str(stem or ""))
        # Beside images of other names, it is that of a channel: CD3 beside DAPI and DAPI_mask.
        name = name or ("image" if all(stem_of.values()) else image.name)
        for layer in fitting:
            if name in found[layer.name]:
                text = f"{layer.name} has two channels called {name}, the second is {image.name}"
                raise ValueError(f"{text}; rename a layer")
            found[layer.name][name] = image
    return found


def plan(labels: Sequence[Labels], images: Sequence[Image], *, time_series: bool) -> Measurement:
    """Return the job that measures label images in the images of `pair`.

    Raises a ValueError as `pair` does, and if units differ.
    """
    channels: dict[str, dict[str, Any]] = {}
    for mask, own in pair(labels, images).items():
        channels[mask] = {}
        for name, image in own.items():
            found = {name: pixels(image)}
            if image.rgb:
                found = {f"{name}_{color}": found[name][..., i] for i, color in enumerate(RGB)}
            channels[mask] |= found
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


def _shape(layer: Labels | Image) -> tuple[int, ...]:
    shape = tuple(pixels(layer).shape)
    return shape[:-1] if getattr(layer, "rgb", False) else shape

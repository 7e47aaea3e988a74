"""Decide which layers are measured together, as arguments of `tl.measure`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from anndata import AnnData
from napari.layers import Image, Labels

from centroid_encoder.errors import check
from centroid_encoder.tl._axes import channel_axes, kept_axes
from centroid_encoder.viewer.data.columns import EXTENSIONS, GENERAL_WORDS, NUMBER
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

    They have the same pixels in the same place. An image whose name begins as that of a label image
    (``A_1_DAPI``, ``A_1_mask``), or contains it, belongs to that with which it shares most words.
    The other words are the name of the channel, or ``"image"`` without any, so that the next image
    has the same features. Without such names, an image is measured in all label images.

    Raises
    ------
    ValueError
        If there are no labels, if an image fits none of them, or if two channels have one name.
    """
    check(labels, "choose at least one Labels layer with cells to measure")
    parts = {layer.name: [_plain(x) for x in _words(layer.name)] for layer in labels}
    stems = {name: [x for x in words if x not in GENERAL_WORDS] for name, words in parts.items()}
    shared: dict[tuple[str, Image], tuple[int, int]] = {}
    for image in images:
        own = {name: _shared(stem, image.name) for name, stem in stems.items()}
        best = max(own.values())
        fitting = [x for x in labels if own[x.name] == best and have_same_pixels(x, image)]
        one = next(layer for layer in labels if own[layer.name] == best)
        text = f"{image.name} has the shape {_shape(image)} and {one.name} the shape {_shape(one)}:"
        text += " an image must have the same pixels as the labels, with the same scale and"
        check(fitting, f"{text} position; untick one of them")
        shared |= {(layer.name, image): best for layer in fitting}
    several = len({*map(tuple, stems.values())}) > 1 and any(n for n, _ in shared.values())
    found: dict[str, dict[str, Image]] = {name: {} for name in stems}
    for (mask, image), (n, place) in shared.items():
        text = f"the name of {image.name} does not show to which labels it belongs; rename it as"
        check(n or not several, f"{text} {labels[0].name}, or untick it")
        others = [n for (one, _), (n, _) in shared.items() if one == mask]
        n = min(filter(None, others), default=0) if n else 0
        words, plain = _words(image.name), re.sub(NUMBER, "", image.name)
        # Beside images of other names, it is that of a channel: DAPI, beside CD3 and DAPI_mask.
        name = "_".join(words[:-place] + words[n - place :]) if n else plain
        name = name or ("image" if all(others) else plain)
        text = f"{mask} has two channels called {name}, the second is {image.name}; rename a layer"
        check(name not in found[mask], text)
        found[mask][name] = image
    return found


def _words(name: str) -> list[str]:
    """Return the parts of a name between punctuation, without general words at the beginning."""
    words = re.findall(r"[^\W_]+", EXTENSIONS.sub("", re.sub(NUMBER, "", name)))
    while words[1:] and words[0].lower() in GENERAL_WORDS:
        words.pop(0)
    return words


def _plain(word: str) -> str:
    return word.lower().lstrip("0") or "0"


def _shared(stem: list[str], name: str) -> tuple[int, int]:
    """Return how many words of a stem begin a name, or are in it, and their place as minus."""
    words = [_plain(word) for word in _words(name)]
    n = next((i for i, (a, b) in enumerate(zip(stem, words, strict=False)) if a != b), None)
    n = min(len(stem), len(words)) if n is None else n
    inside = [i for i in range(len(words)) if stem and words[i : i + len(stem)] == stem]
    return (len(stem), -inside[0]) if inside and not n else (n, 0)


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
    text = f"the labels have several units, {' and '.join(sorted(units))}; give all the same unit,"
    check(len(units) == 1, f"{text} or measure the layers one by one")
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

"""The label images and channels of a measurement: checked and named, and no pixel of them read."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from centroid_encoder.core import measurement
from centroid_encoder.errors import Advice, InputError, InputTypeError, Message, Setting
from centroid_encoder.tl._names import check_text


@dataclass(frozen=True)
class Channel:
    """One channel of an image, and which axes of that are time and channels."""

    image: Any
    axis: int | None = None
    index: int = 0

    def frame(self, number: int | None) -> Any:
        """Pixels of a frame, which some arrays read now."""
        if number is None and self.axis is None:
            return self.image
        where: list[Any] = [slice(None)] * len(self.image.shape)
        if self.axis is not None:
            where[self.axis] = self.index
        if number is not None:
            where[1 if self.axis == 0 else 0] = number
        return self.image[tuple(where)]


@dataclass(frozen=True)
class Region:
    """A label image and what is measured in it."""

    name: str
    labels: Channel
    spacing: tuple[float, ...]
    channels: dict[str, Channel] = field(default_factory=dict)

    def frames(self, *, time_series: bool) -> Iterable[int | None]:
        """Numbers of its frames; None alone stands for what has none."""
        return range(self.labels.image.shape[0]) if time_series else (None,)


def checked_region(
    name: str,
    labels: Any,
    images: Mapping[str, Any],
    *,
    spacing: Any,
    channel_axis: int | None,
    time_series: bool,
) -> Region:
    """Check one label image and its channels; no pixel is read."""
    check_text(name, "the name of labels")
    labels = _array(f"labels {name!r}", labels)
    if labels.dtype.kind == "b":
        raise InputTypeError(
            "labels {!r} are a mask, True or False: number its parts first, with "
            "skimage.measure.label",
            name,
        )
    if labels.dtype.kind not in "iu":
        raise InputTypeError(
            "labels {!r} are of dtype {}; labels are whole numbers, so convert them first, with "
            "astype(int)",
            *(name, labels.dtype),
        )
    ndim = len(labels.shape) - time_series
    if ndim not in (2, 3):
        also = "" if time_series or ndim != 4 else "; if the first axis is time, {}"
        raise InputError(
            f"labels {{!r}} have the shape {{}}, but space has 2 or 3 axes{also}",
            *(name, tuple(labels.shape)),
            *([Advice("time_series", True)] if also else []),
        )
    channels: dict[str, Channel] = {}
    for channel, image in images.items():
        new = _channels(channel, image, name, labels, channel_axis)
        if twice := channels.keys() & new.keys():
            raise InputError("two channels would be called {!r}; give them other names", min(twice))
        channels |= new
    return Region(name, Channel(labels), _checked_spacing(spacing, name, ndim), channels)


def alike(regions: list[Region]) -> list[Region]:
    """Check that the same is measured of all regions, and put the channels in one order."""
    first = regions[0]
    regions = [
        replace(region, channels={name: region.channels[name] for name in first.channels})
        if region.channels.keys() == first.channels.keys()
        else region
        for region in regions
    ]
    for other in regions[1:]:
        if len(other.spacing) != len(first.spacing):
            raise InputError(
                "labels {!r} have {} axes of space and labels {!r} {}: measure one at a time",
                *(first.name, len(first.spacing), other.name, len(other.spacing)),
            )
        if set(other.channels) != set(first.channels):
            raise InputError(
                "labels {!r} have the channels {} and labels {!r} {}: give all the same, or "
                "measure one at a time",
                *(first.name, listed(first.channels)),
                *(other.name, listed(other.channels)),
            )
        shapes = [measurement.shape_properties(one.spacing) for one in (first, other)]
        if shapes[0] != shapes[1]:
            raise InputError(
                "the pixels of labels {!r} are square and those of labels {!r} are not, or the "
                "other way round: they have no perimeter in common, so measure one at a time",
                *(first.name, other.name),
            )
    return regions


def _channels(
    name: str, image: Any, region: str, labels: Any, channel_axis: int | None
) -> dict[str, Channel]:
    """Channels of an image by their names."""
    check_text(name, "the name of an image")
    image = _array(f"image {name!r}", image)
    if image.dtype.kind not in "biuf":
        raise InputTypeError("image {!r} is of dtype {}, no intensities", name, image.dtype)
    shape, wanted = tuple(image.shape), tuple(labels.shape)
    if shape == wanted:
        return {name: Channel(image)}
    axes = [axis for axis in range(len(shape)) if shape[:axis] + shape[axis + 1 :] == wanted]
    if channel_axis is not None:
        axes = [axis for axis in axes if channel_axis in (axis, axis - len(shape))]
    if not axes:
        raise InputError(
            "image {!r} has the shape {} and labels {!r} {}: they must have the same pixels, and "
            "beside them the image may have an axis of channels{}",
            *(name, shape, region, wanted),
            "" if channel_axis is None else Message(" ({})", Setting("channel_axis", channel_axis)),
        )
    if len(axes) > 1:
        raise InputError(
            "image {!r} of the shape {} may have its channels on axis {}; {}",
            *(name, shape, " or ".join(map(str, axes)), Advice("channel_axis", axes[0])),
        )
    return {f"{name}_{i}": Channel(image, axes[0], i) for i in range(shape[axes[0]])}


def images_of(name: Any, images: Any, regions: Mapping[Any, Any]) -> dict[str, Any]:
    """Images of a region by their names."""
    if images is None:
        return {}
    if not isinstance(images, Mapping):
        return {"intensity": images}
    nested = [isinstance(one, Mapping) for one in images.values()]
    if not any(nested):
        return {str(channel): image for channel, image in images.items()}
    if not all(nested) or name not in images:
        raise InputError(
            "{} has images of some regions, but none of labels {!r}: it must have a mapping for "
            "each of {}",
            *(Setting("images"), name, listed(regions)),
        )
    return {str(channel): image for channel, image in images[name].items()}


def _array(what: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        value = np.asarray(value)
    if not (hasattr(value, "shape") and hasattr(value, "dtype")):
        raise InputTypeError("{} must be an array; got {}", what, type(value).__name__)
    return value


def _checked_spacing(spacing: Any, name: str, ndim: int) -> tuple[float, ...]:
    if spacing is None:
        spacing = 1.0
    one_for_all = isinstance(spacing, numbers.Real)
    values = [spacing] * ndim if one_for_all else list(np.ravel(spacing))
    numeric = all(isinstance(one, numbers.Real) for one in values)
    if len(values) != ndim or not numeric or not all(0 < one < math.inf for one in values):
        raise InputError(
            "{} must be a positive number, or {} of them for labels {!r}; got {!r}",
            *(Setting("spacing"), ndim, name, spacing),
        )
    return tuple(map(float, values))


def listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"

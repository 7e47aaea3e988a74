"""What of the layers is measured together: which image belongs to which labels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from napari.layers import Image, Labels, Layer
from numpy.typing import NDArray

from centroid_encoder.viewer.data.images import ENDINGS, specific_words
from centroid_encoder.viewer.data.tables import is_drawn

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.tl._run import Callback

UNLABELED = "cell_type"
"""Column of labels to be given."""
RGB = ("red", "green", "blue")
TIMES = ("t", "time", "frame", "frames")
"""Names of an axis of time, in lower case."""
MANY = 3
"""Regions that are named."""


@dataclass(frozen=True)
class Plan:
    """What is to be measured; all but the layers as `tl.measure` takes it."""

    layers: Mapping[str, Labels]
    """What is measured, by region."""
    images: Mapping[str, Mapping[str, Any]]
    spacing: Mapping[str, tuple[float, ...]]
    unit: str
    time_series: bool

    @property
    def name(self) -> str:
        """What the table is called."""
        names = list(self.layers)
        return ", ".join(names) if len(names) <= MANY else f"{len(names)} label images"

    def __str__(self) -> str:
        lines = []
        channels = {region: ", ".join(found) for region, found in self.images.items()}
        if len(set(channels.values())) == 1:
            channels = {", ".join(channels): next(iter(channels.values()))}
        for regions, found in channels.items():
            lines.append(f"{regions}: {found or 'shapes alone, no image of the same pixels'}")
        return "\n".join([*lines, f"Lengths in {self.unit}."])


class Measuring:
    """The measuring of a plan, as a job for a thread.

    Attributes
    ----------
    notices
        Warnings.
    adata
        The table, after `run`. No cell has a label yet, in ``obs["cell_type"]``.
    apart
        Where labels begin anew in each frame: the layer, the name of a new layer, and its label
        image, in which each cell of each frame has a number of its own. A layer shows a cell by
        its number alone.
    """

    def __init__(self, chosen: Plan) -> None:
        from centroid_encoder.tl._measure import Measurement

        # A thread must not touch layers.
        self._labels = {region: _full(layer) for region, layer in chosen.layers.items()}
        self._plan = chosen
        self._job = Measurement(
            self._labels,
            chosen.images,
            spacing=chosen.spacing,
            unit=chosen.unit,
            time_series=chosen.time_series,
        )
        self.notices = self._job.notices
        self.adata: AnnData | None = None
        self.apart: list[tuple[Labels, str, NDArray[np.int32]]] = []

    def detach(self) -> None:
        """Nothing to do: pixels are read once, as they are then."""

    def run(self, callback: Callback | None = None) -> None:
        """Measure; see `Measurement.run`."""
        self._job.run(callback)
        adata = self._job.table()
        if self._plan.time_series:
            self._take_frames_apart(adata)
        no_labels = pd.Categorical([None] * adata.n_obs, categories=pd.Index([], dtype=object))
        adata.obs[UNLABELED] = no_labels
        self.adata = adata

    def _take_frames_apart(self, adata: AnnData) -> None:
        obs = adata.obs
        names: dict[str, str] = {}
        if not obs.duplicated(["region", "label"]).any():
            return
        obs["instance"] = obs.groupby("region", observed=True).cumcount().to_numpy() + 1
        for region, cells in obs.groupby("region", observed=True):
            labels = self._labels[str(region)]
            image = np.zeros(labels.shape, dtype=np.int32)
            for frame, those in cells.groupby("frame"):
                # In their order, as they were measured.
                known, numbers = those["label"].to_numpy(), those["instance"].to_numpy()
                pixels = np.asarray(labels[int(frame)])
                at = np.searchsorted(known, pixels).clip(max=len(known) - 1)
                image[int(frame)] = np.where(known[at] == pixels, numbers[at], 0)
            name = names[str(region)] = f"{region} (frames apart)"
            self.apart.append((self._plan.layers[str(region)], name, image))
        obs["region"] = obs["region"].cat.rename_categories(names)
        attrs = adata.uns["spatialdata_attrs"]
        attrs["instance_key"] = "instance"
        regions = list(obs["region"].cat.categories)
        attrs["region"] = regions if len(regions) > 1 else regions[0]


def measurable(layers: Iterable[Layer]) -> tuple[list[Labels], list[Image]]:
    """Return the layers that hold cells to be measured, and those that hold intensities."""
    own = [layer for layer in layers if not is_drawn(layer)]
    labels = [layer for layer in own if isinstance(layer, Labels)]
    # Labels are no images, in napari either.
    return labels, [layer for layer in own if isinstance(layer, Image)]


def may_be_time(labels: Labels) -> bool | None:
    """Tell whether the first axis is time: None if that cannot be."""
    if labels.ndim != 3:
        return True if labels.ndim == 4 else None
    name, unit = str(labels.axis_labels[0]).lower(), labels.units[0]
    return name in TIMES or dict(unit.dimensionality) == {"[time]": 1}


def have_same_pixels(labels: Labels, image: Image) -> bool:
    """Tell whether an image has the pixels of labels, and maybe an axis of channels beside them."""
    wanted, shape = _shape(labels), _shape(image)
    if shape == wanted:
        axes = range(len(wanted))
        kept: list[int] | None = list(axes)
    else:
        kept = next(
            (
                [*range(axis), *range(axis + 1, len(shape))]
                for axis in range(len(shape))
                if shape[:axis] + shape[axis + 1 :] == wanted
            ),
            None,
        )
    return kept is not None and all(
        np.allclose(ours, np.asarray(theirs)[kept], rtol=1e-4, atol=1e-9)
        for ours, theirs in ((labels.scale, image.scale), (labels.translate, image.translate))
    )


def plan(labels: Sequence[Labels], images: Sequence[Image], *, time_series: bool) -> Plan:
    """Find out what belongs together.

    An image belongs to all labels with the same pixels in the same place. Where some of them are
    of other images, as their names say (``A_mask`` and ``B_mask``), one that has such a name too
    (``A_DAPI``) belongs to these alone, and the rest of its name is that of the channel.

    Raises
    ------
    ValueError
        If there are no labels, if they have too many axes or too few, if an image has the pixels of
        none of them, or if they are of different units.
    """
    if not labels:
        raise ValueError("choose the labels of the cells that are to be measured")
    for layer in labels:
        n_axes = layer.ndim - int(time_series)
        if n_axes not in (2, 3):
            also = "one of them" if n_axes > 3 else "none of them"
            raise ValueError(
                f"{layer.name} has {layer.ndim} axes; there must be 2 or 3 of space and one of "
                f"time at most. Say that {also} is time"
            )
    owned = {layer.name: specific_words(layer.name) for layer in labels} if len(labels) > 1 else {}
    channels: dict[str, dict[str, Any]] = {layer.name: {} for layer in labels}
    for image in images:
        fitting = [layer for layer in labels if have_same_pixels(layer, image)]
        if not fitting:
            raise ValueError(_misfit(labels[0], image))
        words = specific_words(image.name)
        owners = [
            layer for layer in fitting if owned.get(layer.name) and owned[layer.name] <= words
        ]
        for layer in owners or fitting:
            name = _channel(image.name, owned[layer.name] if owners else frozenset())
            for channel, pixels in _pixels(image, name).items():
                if channel in channels[layer.name]:
                    raise ValueError(
                        f"{layer.name} has two channels called {channel}; rename a layer, or "
                        "measure one after the other"
                    )
                channels[layer.name][channel] = pixels
    units = {_unit(layer, time_series=time_series) for layer in labels}
    if len(units) > 1:
        raise ValueError(
            f"the labels are in different units, {' and '.join(sorted(units))}; measure one after "
            "the other"
        )
    n_times = int(time_series)
    return Plan(
        {layer.name: layer for layer in labels},
        channels,
        {layer.name: tuple(map(float, np.abs(layer.scale[n_times:]))) for layer in labels},
        units.pop(),
        time_series,
    )


def _channel(name: str, of_region: frozenset[str]) -> str:
    """Name of a channel: that of its layer, without what says which region it is of."""
    # napari numbers layers of the same name.
    name = re.sub(r" \[\d+\]$", "", name)
    if not of_region:
        return name
    words = re.findall(r"[^\W_]+", re.sub(ENDINGS.pattern, "", name, flags=re.IGNORECASE))
    return "_".join(word for word in words if not specific_words(word) <= of_region) or "image"


def _pixels(image: Image, name: str) -> dict[str, Any]:
    """Intensities of a layer, those of colours one by one."""
    pixels = _full(image)
    if not image.rgb:
        return {name: pixels}
    return {f"{name}_{color}": pixels[..., i] for i, color in enumerate(RGB)}


def _full(layer: Labels | Image) -> Any:
    """Pixels at full resolution."""
    return layer.data[0] if layer.multiscale else layer.data


def _shape(layer: Labels | Image) -> tuple[int, ...]:
    shape = tuple(_full(layer).shape)
    return shape[:-1] if getattr(layer, "rgb", False) else shape


def _unit(labels: Labels, *, time_series: bool) -> str:
    """Unit of the axes of space, as it is written in names."""
    units = {f"{unit:~}" for unit in labels.units[int(time_series) :]}
    if len(units) > 1:
        raise ValueError(
            f"the axes of {labels.name} are in different units, {' and '.join(sorted(units))}; set "
            "layer.units to the same for all"
        )
    # Two letters that look alike: micro and the Greek one.
    unit = re.sub("[µμ]", "u", units.pop())
    return {"pixel": "px"}.get(unit, unit)


def _misfit(labels: Labels, image: Image) -> str:
    """Say why an image cannot be measured."""
    ours, theirs = _shape(labels), _shape(image)
    text = f"{image.name} has the shape {theirs} and {labels.name} {ours}"
    if ours == theirs:
        text = f"{image.name} and {labels.name} have the same shape, but another scale or place"
    return f"{text}: an image must have the pixels of the labels; leave one of them out"

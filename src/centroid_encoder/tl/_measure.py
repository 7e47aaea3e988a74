"""A table of cells, measured from label images and intensities."""

from __future__ import annotations

import logging
import numbers
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from centroid_encoder.core import measurement
from centroid_encoder.core.reports import StoppedTooEarly, never
from centroid_encoder.errors import Advice, InputError, Message, Setting
from centroid_encoder.tl._label_images import Region, alike, checked_region, images_of, listed
from centroid_encoder.tl._log import shown_as_scanpy
from centroid_encoder.tl._names import check_text
from centroid_encoder.tl._run import Callback, Progress, run_job

if TYPE_CHECKING:
    from anndata import AnnData

logger = logging.getLogger("centroid_encoder")

REGION, LABEL, FRAME = "region", "label", "frame"
"""Columns of ``obs``."""
SPATIAL = "spatialdata_attrs"
"""Key in ``uns`` of what joins the table to label images, as SpatialData has it."""
PIXEL = "px"
"""Unit of length where no spacing is given."""


def measure(
    labels: Any,
    images: Any = None,
    *,
    spacing: Any = None,
    unit: str | None = None,
    channel_axis: int | None = None,
    time_series: bool = False,
    quantiles: float | Sequence[float] = (0.1, 0.5, 0.9),
    progress: bool = True,
) -> AnnData:
    """Measure the cells of label images: a table of their shapes, places and intensities.

    Shapes are those of :func:`skimage.measure.regionprops`, under its names. Arrays may be NumPy's,
    dask's, or anything else that is sliced like them; they are read in parts.

    Parameters
    ----------
    labels
        Label image of shape (y, x) or (z, y, x): whole numbers, one for each cell, 0 for the
        background. Of several regions (nuclei and cell bodies, or many images) a mapping from
        their names to label images.
    images
        Intensities in the same pixels: an image of the same shape or with one axis more, that of
        the channels; or a mapping from names of channels to images. Where regions have
        images of their own, a mapping from the names of the regions to such mappings.
    spacing
        Distance of two pixels, one number or one for each axis of space, in the order of the axes.
        Where regions differ, a mapping from their names. Default: 1.
    unit
        Unit of `spacing`, such as ``"um"``; it becomes part of the names. Default: px.
    channel_axis
        Axis of the images that holds the channels. Default: the one that the labels do not have.
    time_series
        Whether the first axis of the labels, and of the images beside channels, is time. Each cell
        of each frame then has a row of its own.
    quantiles
        Quantiles of the intensities of a cell, as shares in [0, 1]; 0 is its minimum.
    progress
        Whether to show a progress bar.

    Returns
    -------
    AnnData
        One row a cell, and a frame, in the order of regions, frames and labels.

        ``X`` : dtype ``float32``
            Shapes: ``area``, ``perimeter``, ``axis_major_length``, ``axis_minor_length``,
            ``eccentricity``, ``solidity``, ``extent``; in three dimensions ``volume``, and neither
            perimeter, eccentricity nor solidity. Where pixels are not square, there is no
            perimeter. Lengths have the unit in their names, such as ``area_um2``. Then for each
            channel the mean, the standard deviation and the quantiles of its pixels:
            ``DAPI_mean``, ``DAPI_std``, ``DAPI_q50``. Without names, channels are called
            ``intensity``.
        ``var["channel"]``, ``var["property"]``, ``var["unit"]`` : dtype ``category``
            What each of them is; shapes have no channel.
        ``obs["region"]`` : dtype ``category``, ``obs["label"]`` : dtype ``int64``
            Where a cell is found: the name of the labels (``"labels"`` without a name) and
            its value there. With `time_series`, also ``obs["frame"]`` : dtype ``int64``.
        ``obsm["spatial"]`` : dtype ``float64``
            Center of each cell, x, y(, z), in `unit`.
        ``uns["spatialdata_attrs"]``
            The columns above, as SpatialData and the napari plugin look for them.
        ``uns["measure"]``
            `unit`, and `spacing` of each region as an array.

    Raises
    ------
    TypeError
        If something is no image, or labels are no whole numbers.
    ValueError
        If labels and images do not fit, if labels are negative, or if there are no cells.

    Notes
    -----
    Pixels that are not finite do not count; a cell of nothing else has NaN. Label images without
    cells are left out with a warning.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> from skimage import data, filters, measure
    >>> image = data.coins()
    >>> labels = measure.label(image > filters.threshold_otsu(image))
    >>> adata = ce.tl.measure(labels, {"grey": image}, progress=False)
    """
    with shown_as_scanpy():
        job = Measurement(
            labels,
            images,
            spacing=spacing,
            unit=unit,
            channel_axis=channel_axis,
            time_series=time_series,
            quantiles=quantiles,
        )
        run_job(job, progress=progress)
        return job.table()


class Measurement:
    """The measuring of cells in three steps, of which the second may run in a thread.

    Making it checks the shapes and reads no pixel; `steps` measures; `table` puts it together. The
    parameters are those of `measure`.

    Attributes
    ----------
    notices
        What to warn of; `steps` adds to it.
    """

    def __init__(
        self,
        labels: Any,
        images: Any = None,
        *,
        spacing: Any = None,
        unit: str | None = None,
        channel_axis: int | None = None,
        time_series: bool = False,
        quantiles: float | Sequence[float] = (0.1, 0.5, 0.9),
    ) -> None:
        self._started = time.perf_counter()
        self.notices: list[Message] = []
        self._time_series = time_series
        self._quantiles = _checked_quantiles(quantiles)
        others = channel_axis is not None, self._quantiles != (0.1, 0.5, 0.9)
        if any(others) and (images is None or (isinstance(images, Mapping) and not images)):
            name = "channel_axis" if others[0] else "quantiles"
            raise InputError("{} has no effect without {}", Setting(name), Setting("images"))
        if unit is None and spacing is not None:
            raise InputError("{} has no unit; {}", Setting("spacing"), Advice("unit", "um"))
        self._unit = unit or PIXEL
        check_text(self._unit, Setting("unit"))
        named = labels if isinstance(labels, Mapping) else {"labels": labels}
        if not named:
            raise InputError("{} is empty: there is nothing to measure", Setting("labels"))
        regions = [
            checked_region(
                str(name),
                one,
                images_of(name, images, named),
                spacing=spacing.get(name) if isinstance(spacing, Mapping) else spacing,
                channel_axis=channel_axis,
                time_series=time_series,
            )
            for name, one in named.items()
        ]
        self._regions = alike(regions)
        logger.info("measuring cells of %s", listed(region.name for region in self._regions))
        self._parts: list[_Part] = []

    def rename_channels(self, names: Sequence[str]) -> None:
        """Give all channels other names, in their order.

        Raises
        ------
        ValueError
            If these are not as many different names as there are channels.
        """
        channels = self._regions[0].channels
        if len(set(names)) != len(names) or len(names) != len(channels):
            raise InputError(
                "there are {} channels, {}; these are not as many different names: {}",
                *(len(channels), listed(channels), listed(names)),
            )
        for name in names:
            check_text(name, "the name of a channel")
        self._regions = [
            replace(region, channels=dict(zip(names, region.channels.values(), strict=True)))
            for region in self._regions
        ]

    def detach(self) -> None:
        """Nothing of an AnnData is read."""

    def run(self, callback: Callback | None = None) -> None:
        """Measure; see `Job.run`."""
        callback = callback or (lambda _: False)
        for step in self.steps(stop=lambda: callback(None)):
            callback(step)

    def steps(
        self, *, stop: Callable[[], bool] = never, snapshot: Callable[[], bool] = never
    ) -> Generator[Progress, None, None]:
        """Measure everything.

        Parameters
        ----------
        stop
            Asked again and again; True ends it, and nothing is kept.
        snapshot
            Never asked: there is nothing to draw meanwhile.

        Yields
        ------
        Progress
            After each part of an image, once the cells are counted.

        Raises
        ------
        StoppedTooEarly
            If `stop` ended it.
        ValueError
            If labels are negative, or if there are no cells.
        """
        counted: list[tuple[Region, int | None, measurement.Found]] = []
        for region in self._regions:
            n_labels = 0
            for frame in region.frames(time_series=self._time_series):
                try:
                    found = _counted(measurement.find(region.labels.frame(frame)), stop)
                except ValueError as error:
                    raise InputError("labels {!r}: {}", region.name, error) from error
                counted.append((region, frame, found))
                n_labels += len(found.labels)
            self._note(region, n_labels)
        n_total, n_before = sum(len(found.labels) for *_, found in counted), 0
        if not n_total:
            raise InputError(
                "the labels hold no cells: all pixels are 0, which is the background; segment the "
                "image first"
            )
        parts: list[_Part] = []
        for region, frame, found in counted:
            measuring = measurement.measure(
                region.labels.frame(frame),
                found,
                [channel.frame(frame) for channel in region.channels.values()],
                spacing=region.spacing,
                quantiles=self._quantiles,
            )
            while True:
                _check(stop)
                try:
                    yield Progress(n_before + next(measuring), n_total)
                except StopIteration as end:
                    parts.append(_Part(region, frame or 0, end.value))
                    break
            n_before += len(found.labels)
        self._parts = parts
        n_not_finite = sum(part.measured.n_not_finite for part in parts)
        if n_not_finite:
            self.notices.append(
                Message(
                    f"{n_not_finite:,} pixels of cells are NaN or infinite and do not count; a "
                    "cell without any other has NaN"
                )
            )

    def table(self) -> AnnData:
        """Return what was measured.

        Raises
        ------
        RuntimeError
            If the steps have not been run to their end.
        """
        if not self._parts:
            raise RuntimeError("nothing to return: the measuring has not ended")
        from anndata import AnnData

        parts = [part for part in self._parts if len(part.measured.labels)] or self._parts
        shapes = measurement.shape_properties(parts[0].region.spacing)
        X = np.concatenate(
            [
                np.column_stack(
                    [
                        *(part.measured.shapes[name] for name in shapes),
                        part.measured.intensities.reshape(len(part.measured.labels), -1),
                    ]
                )
                for part in parts
            ]
        )
        regions = list(dict.fromkeys(part.region.name for part in parts))
        adata = AnnData(
            X.astype(np.float32),
            obs=self._obs(parts, regions),
            var=self._var(shapes, list(parts[0].region.channels)),
            obsm={"spatial": np.concatenate([part.measured.centers[:, ::-1] for part in parts])},
            uns={
                SPATIAL: {
                    "region": regions if len(regions) > 1 else regions[0],
                    "region_key": REGION,
                    "instance_key": LABEL,
                },
                "measure": {
                    "unit": self._unit,
                    "spacing": np.array(
                        [region.spacing for region in self._regions if region.name in regions]
                    ),
                },
            },
        )
        logger.info(
            "    finished (%.1f s): %s cells, %s variables",
            time.perf_counter() - self._started,
            f"{adata.n_obs:,}",
            adata.n_vars,
        )
        return adata

    def _obs(self, parts: list[_Part], regions: list[str]) -> pd.DataFrame:
        counts = [len(part.measured.labels) for part in parts]
        names = np.repeat([part.region.name for part in parts], counts)
        columns: dict[str, Any] = {
            REGION: pd.Categorical(names, categories=regions),
            LABEL: np.concatenate([part.measured.labels for part in parts]),
        }
        if self._time_series:
            columns[FRAME] = np.repeat([part.frame for part in parts], counts).astype(np.int64)
        stems = [
            f"{p.region.name}_t{p.frame}" if self._time_series else p.region.name for p in parts
        ]
        index = [
            f"{stem}_{label}"
            for stem, part in zip(stems, parts, strict=True)
            for label in part.measured.labels.tolist()
        ]
        return pd.DataFrame(columns, index=pd.Index(index))

    def _var(self, shapes: Mapping[str, int], channels: list[str]) -> pd.DataFrame:
        rows: list[tuple[str, str | None, str, str]] = []
        for name, power in shapes.items():
            unit = "" if not power else f"{self._unit}{power if power > 1 else ''}"
            rows.append((f"{name}_{unit}" if unit else name, None, name, unit))
        statistics = ["mean", "std", *map(_quantile_name, self._quantiles)]
        rows += [
            (f"{channel}_{name}", channel, name, "intensity")
            for channel in channels
            for name in statistics
        ]
        index, of, what, unit_of = zip(*rows, strict=True)
        columns = {"channel": of, "property": what, "unit": unit_of}
        return pd.DataFrame(
            {name: pd.Categorical(values) for name, values in columns.items()},
            index=pd.Index(index),
        )

    def _note(self, region: Region, n_labels: int) -> None:
        if n_labels == 0 and len(self._regions) > 1:
            self.notices.append(Message(f"labels {region.name!r} hold no cells and are left out"))
        elif n_labels == 1:
            self.notices.append(
                Message(
                    f"labels {region.name!r} hold a single cell; if they are a mask, number its "
                    "parts first, with skimage.measure.label"
                )
            )


@dataclass(frozen=True)
class _Part:
    """What was measured of one frame of a region."""

    region: Region
    frame: int
    measured: measurement.Measured


def _checked_quantiles(quantiles: float | Sequence[float]) -> tuple[float, ...]:
    values = tuple(quantiles) if isinstance(quantiles, Iterable) else (quantiles,)
    if not all(isinstance(one, numbers.Real) and 0 <= one <= 1 for one in values):
        raise InputError("{} must be shares in [0, 1]; got {!r}", Setting("quantiles"), values)
    return tuple(dict.fromkeys(map(float, values)))


def _quantile_name(share: float) -> str:
    """``q05`` for 0.05, ``q99.9`` for 0.999."""
    percent = f"{100 * share:.10g}"
    return f"q{'0' if 0 < 100 * share < 10 else ''}{percent}"


def _counted(
    steps: Generator[None, None, measurement.Found], stop: Callable[[], bool]
) -> measurement.Found:
    """Run steps of which there is nothing to tell yet."""
    while True:
        _check(stop)
        try:
            next(steps)
        except StopIteration as end:
            found: measurement.Found = end.value
            return found


def _check(stop: Callable[[], bool]) -> None:
    if stop():
        raise StoppedTooEarly("stopped before the cells were measured")

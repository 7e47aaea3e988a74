"""Measure the cells of label images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from joblib import Parallel, delayed
from numpy.typing import NDArray

from centroid_encoder.errors import InputError
from centroid_encoder.tl._run import Callback, Progress, check_stop, run_job

SHAPES = ["area", "axis_major_length", "axis_minor_length", "eccentricity", "extent"]
MORE = ["equivalent_diameter_area", "feret_diameter_max", "perimeter", "solidity"]
CHUNK = 1_000
"""Number of cells whose shapes are measured by one task, in about a second."""
MASK = "Number the parts of a mask with skimage.measure.label"


def measure(
    labels: Any,
    images: Any = None,
    *,
    spacing: Any = None,
    unit: str | None = None,
    channel_axis: int | None = None,
    time_series: bool = False,
    properties: Sequence[str] = (),
    quantiles: float | Sequence[float] = (),
    progress: bool = True,
) -> AnnData:
    """Make a table of the shapes, positions and intensities of the cells in label images.

    Images may be NumPy or dask arrays, or anything else that is sliced like them. They are read
    frame by frame and channel by channel. More than 5,000 cells of a frame are measured in several
    processes.

    Parameters
    ----------
    labels
        Label image of shape (y, x) or (z, y, x): one integer for each cell, 0 for the background.
        For several label images (of nuclei and cell bodies, or of many fields of view), a mapping
        from their names to the images.
    images
        Intensities of the same pixels: an image of the same shape, or with one more axis for the
        channels; or a mapping from names of channels to such images. If each label image has its
        own intensities, a mapping from the names of the label images to such mappings.
    spacing
        Distance of two pixels: one number, or one for each axis of space, in the order of the axes.
        If it differs between label images, a mapping from their names. Default: 1.
    unit
        Unit of `spacing`, such as ``"um"``; it is a part of the names of shapes. Default: px.
    channel_axis
        Axis of the images that holds the channels. Default: the one that the labels do not have.
    time_series
        Whether the first axis of the labels, and the first axis of the images other than that of
        the channels, is time. The table then has a row for each cell in each frame.
    properties
        More shapes to measure: ``"equivalent_diameter_area"``, ``"feret_diameter_max"``,
        ``"solidity"``, and in two dimensions ``"perimeter"``.
    quantiles
        Quantiles of the intensities of each cell, as shares in [0, 1]; 0.5 is the median.
    progress
        Whether to show a progress bar.

    Returns
    -------
    AnnData
        One row for each cell (and frame), in the order of label images, frames and labels.

        ``X`` : dtype ``float32``
            Shapes as :func:`skimage.measure.regionprops` defines them: ``area``,
            ``axis_major_length``, ``axis_minor_length``, ``eccentricity``, ``extent`` and
            `properties`; in three dimensions ``volume`` instead of area, and no eccentricity. The
            unit is part of the name, such as ``area_um2``. Then, for each channel, the mean, the
            standard deviation and the quantiles of the finite pixels of the cell: ``DAPI_mean``,
            ``DAPI_std``, ``DAPI_q50``; NaN if there are none. A channel without a name is called
            ``intensity``.
        ``var["channel"]``, ``var["property"]``, ``var["unit"]`` : dtype ``category``
            The parts of these names; shapes have no channel.
        ``obs["region"]`` : dtype ``category``, ``obs["label"]`` : dtype ``int64``
            Name of the label image (``"labels"`` if it has none), and value of the cell in it. With
            `time_series`, also ``obs["frame"]`` : dtype ``int64``.
        ``obsm["spatial"]`` : dtype ``float64``
            Center of each cell: x, y and, in three dimensions, z, in `unit`.
        ``uns["spatialdata_attrs"]``, ``uns["measure"]``
            The columns of ``obs`` that join the table to label images, as in SpatialData; and the
            `unit` and the `spacing` of each label image.

    Raises
    ------
    ValueError
        If labels are negative or not integers, if the shapes of images and labels do not fit
        together, or if there are no cells.

    Examples
    --------
    >>> import centroid_encoder as ce
    >>> from skimage import data, filters, measure
    >>> image = data.coins()
    >>> labels = measure.label(image > filters.threshold_otsu(image))
    >>> adata = ce.tl.measure(labels, {"grey": image}, progress=False)
    """
    options = spacing, unit, channel_axis, time_series, properties, quantiles
    job = Measurement(labels, images, *options)
    run_job(job, progress=progress)
    return job.table()


@dataclass(eq=False)
class Measurement:
    """A job that measures cells, with the parameters of `measure`.

    The constructor checks the input without reading pixels. `channels` may be renamed before
    `table` is called.
    """

    labels: Any
    images: Any = None
    spacing: Any = None
    unit: str | None = None
    channel_axis: int | None = None
    time_series: bool = False
    properties: Sequence[str] = ()
    quantiles: float | Sequence[float] = ()

    def __post_init__(self) -> None:
        self.notices: list[str] = []
        self._parts: list[tuple[pd.DataFrame, NDArray[np.float32], NDArray[np.float64]]] = []
        self._shares: list[float] = np.unique(np.asarray(self.quantiles, dtype=float)).tolist()
        fits = all(0 <= share <= 1 for share in self._shares)
        _check(fits, f"quantiles must be in [0, 1]; got {self.quantiles!r}", "quantiles")
        fits = set(self.properties) <= set(MORE)
        _check(fits, f"properties must be among {MORE}; got {self.properties!r}", "properties")
        fits = self.spacing is None or self.unit is not None
        _check(fits, "spacing has no unit; pass unit='um'", "spacing")
        images = {} if self.images is None else self.images
        images = images if isinstance(images, Mapping) else {"intensity": images}
        for name, given in ("channel_axis", self.channel_axis), ("quantiles", self._shares):
            fits = len(images) > 0 or given in (None, [])
            _check(fits, f"{name} has no effect without images", name)
        named = self.labels if isinstance(self.labels, Mapping) else {"labels": self.labels}
        self._regions = {str(key): self._region(key, one, images) for key, one in named.items()}
        kinds = {key: (len(one[1]), *sorted(one[2])) for key, one in self._regions.items()}
        text = f"labels must have the same number of axes and the same channels; got {kinds}"
        _check(len(set(kinds.values())) == 1, text, "labels")
        _, spacing, channels = next(iter(self._regions.values()))
        self._ndim, self.channels = len(spacing), list(channels)
        self._shapes = list(dict.fromkeys([*SHAPES, *self.properties]))
        if self._ndim == 3:
            self._shapes.remove("eccentricity")

    def _region(self, name: Any, labels: Any, images: Any) -> tuple[Any, list[float], Any]:
        """Return a label image, its spacing, and a function for each channel that reads a frame."""
        text = f"labels {name!r} must be integers, one for each cell; got {labels.dtype}. {MASK}"
        _check(labels.dtype.kind in "iu", text, "labels")
        shape, ndim = tuple(labels.shape), len(labels.shape) - self.time_series
        text = f"labels {name!r} have the shape {shape}, but space has 2 or 3 axes"
        _check(ndim in (2, 3), f"{text}; for one more of time, pass time_series=True", "labels")
        given = self.spacing.get(name) if isinstance(self.spacing, Mapping) else self.spacing
        spacing = np.ravel(1.0 if given is None else given).tolist()
        fits = len(spacing) in (1, ndim) and all(0 < step < np.inf for step in spacing)
        text = f"spacing must be a positive number, or {ndim} of them for labels {name!r}"
        _check(fits, f"{text}; got {given!r}", "spacing")
        if any(isinstance(one, Mapping) for one in images.values()):
            _check(name in images, f"images has no images of labels {name!r}", "images")
            images = images[name]
        channels = {}
        for channel, image in images.items():
            own = tuple(image.shape)
            axes = [i for i in range(len(own)) if own[:i] + own[i + 1 :] == shape]
            axes = [i for i in axes if self.channel_axis in (None, i, i - len(own))]
            text = f"image {channel!r} has the shape {own} and labels {name!r} {shape}: the pixels "
            text += "must be the same, beside one axis of channels, which channel_axis may choose"
            _check(own == shape or len(axes) == 1, text, "images")
            if own == shape:
                channels[str(channel)] = partial(_read, image)
            for i in range(own[axes[0]]) if axes else ():
                channels[f"{channel}_{i}"] = partial(_read, image, axis=axes[0], index=i)
        return labels, spacing * (ndim // len(spacing)), channels

    def run(self, callback: Callback | None = None) -> None:
        """Measure everything; see `Job.run`."""
        step, n_done, n_found = partial(check_stop, callback or (lambda _: False)), 0, 0
        names = list(next(iter(self._regions.values()))[2])
        for name, (labels, spacing, channels) in self._regions.items():
            n_before = n_found
            for frame in range(labels.shape[0]) if self.time_series else [None]:
                step(None)
                pixels = _read(labels, frame).astype(np.int64, copy=False)
                codes, found = pd.factorize(pixels.ravel(), sort=True)
                # The code 0 is reserved for the background, even if there is none.
                codes, found = codes.reshape(pixels.shape) + (0 not in found), found[found != 0]
                lowest = found.min(initial=0)
                _check(lowest == 0, f"labels {name!r} contain the negative {lowest}", "labels")
                if len(found) == 0:
                    continue
                n_found += len(found)
                places = np.indices(codes.shape, sparse=True)
                centers = [_statistics(codes, place + 0 * codes)[:, 0] for place in places[::-1]]
                columns = []
                for channel in names:
                    step(None)
                    columns.append(_statistics(codes, channels[channel](frame), self._shares))
                chunks = []
                for chunk in _measured(codes, self._shapes, spacing):
                    chunks.append(pd.DataFrame(chunk))
                    n_done += len(chunks[-1])
                    step(Progress(n_done, n_found))
                shapes = pd.concat(chunks).sort_values("label").drop(columns="label")
                obs = pd.DataFrame({"region": name, "label": found, "frame": frame})
                stem = name if frame is None else f"{name}_t{frame}"
                obs.index = [f"{stem}_{label}" for label in found]
                X = np.column_stack([shapes, *columns]).astype(np.float32)
                self._parts.append((obs, X, np.column_stack(centers) * spacing[::-1]))
            if n_found - n_before < 2:
                self.notices.append(f"labels {name!r} hold {n_found - n_before} cells. {MASK}")
        _check(n_done > 0, "the labels hold no cells: all pixels are background, 0", "labels")

    def table(self) -> AnnData:
        """Return the cells that `run` measured."""
        tables, arrays, centers = (list(parts) for parts in zip(*self._parts, strict=True))
        obs, X, unit = pd.concat(tables), np.concatenate(arrays), self.unit or "px"
        regions = list(obs["region"].unique())
        obs["region"] = pd.Categorical(obs["region"], categories=regions)
        region = regions if len(regions) > 1 else regions[0]
        joins = {"region": region, "region_key": "region", "instance_key": "label"}
        spacing = np.array([self._regions[name][1] for name in regions])
        units = {"area": f"{unit}{self._ndim}", "eccentricity": "", "extent": "", "solidity": ""}
        statistics = ["mean", "std", *(f"q{100 * share:02g}" for share in self._shares)]
        rows = [("", name, units.get(name, unit)) for name in self._shapes]
        if self._ndim == 3:
            rows[0] = ("", "volume", f"{unit}3")
        rows += [(channel, name, "intensity") for channel in self.channels for name in statistics]
        var = pd.DataFrame(rows, columns=["channel", "property", "unit"])
        var.index = [f"{a}_{b}" if a else f"{b}_{c}".rstrip("_") for a, b, c in rows]
        return AnnData(
            np.where(np.isfinite(X), X, np.nan),
            obs=obs if self.time_series else obs.drop(columns="frame"),
            var=var.replace({"channel": {"": None}}).astype("category"),
            obsm={"spatial": np.concatenate(centers)},
            uns={"spatialdata_attrs": joins, "measure": {"unit": unit, "spacing": spacing}},
        )


def _read(image: Any, frame: int | None, axis: int | None = None, index: int = 0) -> NDArray[Any]:
    """Read a frame of an image; of several channels, read the one at an index of the `axis`."""
    where: list[Any] = [slice(None)] * len(image.shape)
    if axis is not None:
        where[axis] = index
    if frame is not None:
        where[1 if axis == 0 else 0] = frame
    return np.asarray(image[tuple(where)])


def _statistics(
    codes: NDArray[np.int64], pixels: NDArray[Any], shares: Sequence[float] = ()
) -> NDArray[np.float64]:
    """Return the mean, standard deviation and quantiles of the finite pixels of each cell.

    `codes` are the pixels of the label image, from 1 to n_cells, and `shares` are the quantiles;
    the shape is (n_cells, 2 + n_shares).
    """
    inside = (codes > 0) & np.isfinite(pixels)
    values = pd.Series(pixels[inside].astype(np.float64)).groupby(codes[inside])
    columns = [values.mean(), values.std(ddof=0), *(values.quantile(share) for share in shares)]
    table = pd.concat(columns, axis=1).reindex(range(1, codes.max() + 1))
    return np.asarray(table)


def _measured(
    codes: NDArray[np.int64], properties: list[str], spacing: list[float]
) -> Iterator[dict[str, NDArray[Any]]]:
    """Measure the shapes of `CHUNK` cells at a time, and those of many cells in processes."""
    from scipy.ndimage import find_objects
    from skimage.measure import regionprops_table

    # The cells of a chunk are neighbors along the longest axis, so that only a part of the image is
    # read.
    axis = int(np.argmax(codes.shape))
    ends = np.array([(box[axis].start, box[axis].stop) for box in find_objects(codes)])
    chunks = np.array_split(np.argsort(ends[:, 0]), -(-len(ends) // CHUNK))

    def part(cells: NDArray[np.intp]) -> Any:
        """Return the part of the image with these cells; all others are background."""
        kept = np.zeros(len(ends) + 1, dtype=np.int32)
        kept[cells + 1] = cells + 1
        return kept[codes.take(range(ends[cells, 0].min(), ends[cells, 1].max()), axis)]

    task = partial(regionprops_table, properties=["label", *properties], spacing=spacing)
    parallel = Parallel(-1 if len(chunks) > 5 else 1, return_as="generator")
    yield from parallel(delayed(task)(part(cells)) for cells in chunks)


def _check(fits: bool, text: str, parameter: str) -> None:
    if not fits:
        raise InputError(text, parameter=parameter)

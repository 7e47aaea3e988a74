"""Measure the cells of label images."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import pandas as pd
from anndata import AnnData
from joblib import Parallel, delayed
from numpy.typing import NDArray

from centroid_encoder.checks import are_shares
from centroid_encoder.core.arrays import Codes, Doubles, Singles
from centroid_encoder.errors import check
from centroid_encoder.tl._axes import channel_axes, kept_axes
from centroid_encoder.tl._run import Callback, Progress, check_stop, run_job

SHAPES = ["area", "axis_major_length", "axis_minor_length", "eccentricity", "extent"]
MORE = ["equivalent_diameter_area", "feret_diameter_max", "perimeter", "solidity"]
CHUNK = 1_000
"""Number of cells whose shapes are measured by one task, in about a second."""
HULL = {"feret_diameter_max", "solidity"}
"""Shapes that need a convex hull; in three dimensions, a cell within a plane has none."""
MASK = "Number the parts of a mask with skimage.measure.label"
ARRAY = (
    "Pass an array, such as tifffile.imread and numpy.asarray return, or the masks of Cellpose: "
    "numpy.load('…_seg.npy', allow_pickle=True).item()['masks']"
)


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
    frame by frame and channel by channel. Axes of length 1 before or after the others do not count:
    labels of shape (1, y, x) are a plane. Masked pixels are background in labels, and missing in
    images. More than 5,000 cells of a frame are measured in several processes.

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
            `properties`; in three dimensions ``volume`` instead of area, no eccentricity, and NaN
            for the solidity and the Feret diameter of cells whose pixels lie in one plane. The unit
            is part of the name, such as ``area_um2``. Then, for each channel, the mean, the
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
        together, if two names are the same, or if there are no cells.

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
        self._parts: list[tuple[pd.DataFrame, Singles, Doubles]] = []
        fits, text = are_shares(self.quantiles), "quantiles must be in [0, 1]"
        check(fits, f"{text}; got {self.quantiles!r}", "quantiles")
        self._shares: list[float] = np.unique(np.asarray(self.quantiles, dtype=float)).tolist()
        properties = self.properties
        fits = isinstance(properties, Iterable) and all(name in MORE for name in properties)
        check(fits, f"properties must be among {MORE}; got {properties!r}", "properties")
        fits = self.spacing is None or self.unit is not None
        check(fits, "spacing has no unit; pass unit='um'", "spacing")
        fits = self.channel_axis is None or isinstance(self.channel_axis, Integral)
        text = f"channel_axis must be the number of an axis; got {self.channel_axis!r}"
        check(fits, text, "channel_axis")
        images = {} if self.images is None else self.images
        images = images if isinstance(images, Mapping) else {"intensity": images}
        for name, given in ("channel_axis", self.channel_axis), ("quantiles", self._shares):
            fits = len(images) > 0 or given in (None, [])
            check(fits, f"{name} has no effect without images", name)
        named = self.labels if isinstance(self.labels, Mapping) else {"labels": self.labels}
        _check_names(((str(key), f"labels {key!r}") for key in named), "labels")
        self._regions = {str(key): self._region(key, one, images) for key, one in named.items()}
        kinds = {key: (len(one[1]), *sorted(one[2])) for key, one in self._regions.items()}
        text = f"labels must have the same number of axes and the same channels; got {kinds}"
        check(len(set(kinds.values())) == 1, text, "labels")
        _, spacing, channels = next(iter(self._regions.values()))
        self._ndim, self.channels = len(spacing), list(channels)
        self._shapes = list(dict.fromkeys([*SHAPES, *properties]))
        if self._ndim == 3:
            self._shapes.remove("eccentricity")

    def _region(self, name: Any, labels: Any, images: Any) -> tuple[Any, list[float], Any]:
        """Return a label image, its spacing, and a function for each channel that reads a frame."""
        text = f"labels {name!r} must be integers, as skimage.measure.label or .astype(int) returns"
        _check_array(labels, "iu", text, "labels")
        shape, first = tuple(labels.shape), int(self.time_series)
        axes = kept_axes(shape, first)[first:]
        ndim, text = len(axes), f"labels {name!r} have the shape {shape}"
        cure = "for one more of time, pass time_series=True"
        check(ndim in (2, 3), f"{text}, but space has 2 or 3 axes; {cure}", "labels")
        fits = ndim == 2 or labels.dtype != np.uint8 or shape[axes[2]] not in (3, 4)
        check(fits, f"{text}, like a picture in colours; pass one number for each pixel", "labels")
        given = self.spacing.get(name, ()) if isinstance(self.spacing, Mapping) else self.spacing
        spacing = np.ravel(1.0 if given is None else given).tolist()
        if len(spacing) == len(shape) - first:
            spacing = [spacing[axis - first] for axis in axes]
        fits = len(spacing) in (1, ndim) and all(0 < step < np.inf for step in spacing)
        text = f"spacing must be a positive number, or {ndim} of them for labels {name!r}"
        check(fits, f"{text}; got {given!r}", "spacing")
        nested = [isinstance(one, Mapping) for one in images.values()]
        if any(nested):
            text = "images must be arrays, or a mapping for each of the labels; got images of"
            fits = name in images and all(nested)
            check(fits, f"{text} {list(images)}, and labels {name!r}", "images")
            images = images[name]
        channels = []
        for channel, image in images.items():
            _check_array(image, "biuf", f"image {channel!r} must be numbers", "images")
            own, given = tuple(image.shape), self.channel_axis
            fitting = channel_axes(own, shape, first)
            if given is not None:
                fitting = [axis for axis in fitting if axis in (None, given, given + len(own))]
            text = f"image {channel!r} has the shape {own} and labels {name!r} {shape}: the pixels "
            text += "must be the same, beside one axis of channels, which channel_axis may choose"
            check(len(fitting) == 1 or fitting[:1] == [None], text, "images")
            axis = fitting[0 if given is None else -1]
            for i in [None] if axis is None else range(own[axis]):
                key = str(channel) if i is None else f"{channel}_{i}"
                read = partial(_read, image, axis=axis, index=i)
                channels.append((key, f"a channel of image {channel!r}", read))
        _check_names(channels, "images")
        readers = {key: read for key, _, read in channels}
        return labels, spacing * (ndim // len(spacing)), readers

    def run(self, callback: Callback | None = None) -> None:
        """Measure everything; see `Job.run`."""
        step, n_done, n_found = partial(check_stop, callback or (lambda _: False)), 0, 0
        names = list(next(iter(self._regions.values()))[2])
        for name, (labels, spacing, channels) in self._regions.items():
            n_before = n_found
            for frame in range(labels.shape[0]) if self.time_series else [None]:
                step(None)
                pixels = np.ma.filled(_read(labels, frame), 0)
                lowest, highest = int(pixels.min(initial=0)), int(pixels.max(initial=0))
                check(lowest == 0, f"labels {name!r} contain the negative {lowest}", "labels")
                text = f"labels {name!r} contain {highest}, but must be below 2**63"
                check(highest < 2**63, text, "labels")
                pixels = pixels.astype(np.int64, copy=False)
                codes, found = pd.factorize(pixels.ravel(), sort=True)
                # The code 0 is reserved for the background, even if there is none.
                codes, found = codes.reshape(pixels.shape) + (0 not in found), found[found != 0]
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
                    chunks.append(chunk)
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
        check(n_done > 0, "the labels hold no cells: all pixels are background, 0", "labels")
        n_shapes = len(self._shapes)
        n_flat = sum(np.isnan(X[:, :n_shapes]).any(axis=1).sum() for _, X, _ in self._parts)
        if n_flat:
            text = "solidity and Feret diameter are NaN for cells whose pixels lie in one plane"
            self.notices.append(f"{text}: {n_flat:,} of {n_done:,} cells")

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
        rows = [(None, name, units.get(name, unit)) for name in self._shapes]
        if self._ndim == 3:
            rows[0] = (None, "volume", f"{unit}3")
        rows += [(channel, name, "intensity") for channel in self.channels for name in statistics]
        var = pd.DataFrame(rows, columns=["channel", "property", "unit"])
        var.index = [f"{b}_{c}".rstrip("_") if a is None else f"{a}_{b}" for a, b, c in rows]
        parts = [f"{b} in {c}" if a is None else f"{b} of channel {a!r}" for a, b, c in rows]
        _check_names(zip(var.index, parts, strict=True), "images")
        return AnnData(
            np.where(np.isfinite(X), X, np.nan),
            obs=obs if self.time_series else obs.drop(columns="frame"),
            var=var.astype("category"),
            obsm={"spatial": np.concatenate(centers)},
            uns={"spatialdata_attrs": joins, "measure": {"unit": unit, "spacing": spacing}},
        )


def _read(
    image: Any, frame: int | None, axis: int | None = None, index: int | None = None
) -> NDArray[Any]:
    """Read a frame of an image; of several channels, read the one at an index of the `axis`.

    The result is a plane or a volume, and is a masked array if the image is one.
    """
    where: list[Any] = [slice(None)] * len(image.shape)
    if axis is not None:
        where[axis] = index
    if frame is not None:
        where[1 if axis == 0 else 0] = frame
    part = image[tuple(where)]
    # NumPy would drop the mask of a dask array.
    pixels: NDArray[Any] = np.asanyarray(part.compute() if hasattr(part, "compute") else part)
    return pixels.reshape([pixels.shape[axis] for axis in kept_axes(pixels.shape)])


def _statistics(
    codes: NDArray[np.int64], pixels: NDArray[Any], shares: Sequence[float] = ()
) -> Doubles:
    """Return the mean, standard deviation and quantiles of the finite pixels of each cell.

    `codes` are the pixels of the label image, from 1 to n_cells, and `shares` are the quantiles;
    the shape is (n_cells, 2 + n_shares).
    """
    inside = (codes > 0) & np.ma.filled(np.isfinite(pixels), False)
    values = pd.Series(np.asarray(pixels[inside], np.float64)).groupby(codes[inside])
    columns = [values.mean(), values.std(ddof=0), *(values.quantile(share) for share in shares)]
    table = pd.concat(columns, axis=1).reindex(range(1, codes.max() + 1))
    return np.asarray(table)


def _measured(
    codes: NDArray[np.int64], properties: list[str], spacing: list[float]
) -> Iterator[pd.DataFrame]:
    """Measure the shapes of `CHUNK` cells at a time, and those of many cells in processes."""
    from scipy.ndimage import find_objects

    # The cells of a chunk are neighbors along the longest axis, so that only a part of the image is
    # read.
    axis = int(np.argmax(codes.shape))
    ends = np.array([(box[axis].start, box[axis].stop) for box in find_objects(codes)])
    chunks = np.array_split(np.argsort(ends[:, 0]), -(-len(ends) // CHUNK))

    def part(cells: Codes) -> Any:
        """Return the part of the image with these cells; all others are background."""
        kept = np.zeros(len(ends) + 1, dtype=np.int32)
        kept[cells + 1] = cells + 1
        return kept[codes.take(range(ends[cells, 0].min(), ends[cells, 1].max()), axis)]

    parallel = Parallel(-1 if len(chunks) > 5 else 1, return_as="generator")
    yield from parallel(
        delayed(_measure_shapes)(part(cells), properties, spacing) for cells in chunks
    )


def _measure_shapes(
    codes: NDArray[Any], properties: list[str], spacing: list[float]
) -> pd.DataFrame:
    """Measure shapes as regionprops_table does, which fails if a cell of a volume is flat."""
    from skimage.measure import regionprops

    table: dict[str, list[Any]] = {name: [] for name in ["label", *properties]}
    may_fail = codes.ndim == 3 and not HULL.isdisjoint(table)
    for cell in regionprops(codes, spacing=spacing):  # type: ignore[no-untyped-call]
        is_flat = may_fail and np.linalg.matrix_rank(cell.coords - cell.coords[0]) < 3
        for name, column in table.items():
            column.append(np.nan if is_flat and name in HULL else cell[name])
    return pd.DataFrame(table)


def _check_array(image: Any, kinds: str, text: str, parameter: str) -> None:
    """Raise an InputError if an object is no dense array of one of the kinds of numbers."""
    dtype: Any = getattr(image, "dtype", "no dtype")
    fits = isinstance(dtype, np.dtype) and not dtype.hasobject
    fits = fits and hasattr(image, "shape") and not hasattr(image, "nnz")
    fits = fits and not isinstance(image, np.matrix)
    check(fits, f"{text}; got {type(image).__name__} ({dtype}). {ARRAY}", parameter)
    check(dtype.kind in kinds, f"{text}; got {dtype}", parameter)


def _check_names(parts: Iterable[Sequence[Any]], parameter: str) -> None:
    """Raise an InputError if two parts have the same name; each is a name and a description."""
    first: dict[str, str] = {}
    for name, what, *_ in parts:
        text = f"{first.get(name)} and {what} would have the same name, {name!r}; rename one"
        check(name not in first, text, parameter)
        first[name] = what

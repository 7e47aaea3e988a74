"""Sizes, shapes, places and intensities of the objects of a label image.

The pixels are sorted by object, a band of the image at a time, and each property is then a sum over
segments, for all objects at once. Definitions are those of :func:`skimage.measure.regionprops`,
which goes from object to object and takes some twenty times as long. An image need not fit into
memory: what is kept of earlier bands are the pixels of objects that go on in later ones.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

BAND = 2**19
"""Pixels that are looked at together: as many as a cache holds, and few enough that other threads
have their turn."""

# By what a pixel of the border and its eight neighbours on the border add up to, where a neighbour
# across an edge counts 2, one across a corner 10, and the pixel itself 1: the length of the border
# that the pixel stands for.
STEPS = np.zeros(50)
STEPS[[5, 7, 15, 17, 25, 27]] = 1
STEPS[[21, 33]] = np.sqrt(2)
STEPS[[13, 23]] = (1 + np.sqrt(2)) / 2


@dataclass(frozen=True)
class Found:
    """The objects of a label image."""

    labels: NDArray[np.int64]
    """(n,) their labels, in order."""
    last: NDArray[np.intp]
    """(n,) last band that has pixels of them."""


@dataclass(frozen=True)
class Measured:
    """Properties of n objects, in units of the spacing."""

    labels: NDArray[np.int64]
    """(n,) their labels, in order."""
    centers: NDArray[np.float64]
    """(n, ndim) means of their pixels."""
    shapes: dict[str, NDArray[np.float64]]
    """(n,) of each of `shape_properties`."""
    intensities: NDArray[np.float64]
    """(n, n_channels, 2 + n_quantiles) mean, standard deviation and quantiles; NaN for objects
    without a finite pixel."""
    n_not_finite: int
    """Pixels of objects that were left out, since they are not finite."""


def shape_properties(spacing: Sequence[float]) -> dict[str, int]:
    """Return the properties of shapes, and the power of the unit of length that each is in.

    Those of three dimensions are those that have a meaning there. A perimeter is counted in pixels,
    which must be square for it.
    """
    ndim = len(spacing)
    powers = {"area" if ndim == 2 else "volume": ndim}
    if ndim == 2 and spacing[0] == spacing[1]:
        powers["perimeter"] = 1
    powers |= {"axis_major_length": 1, "axis_minor_length": 1}
    if ndim == 2:
        powers |= {"eccentricity": 0, "solidity": 0}
    return powers | {"extent": 0}


def find(labels: Any) -> Generator[None, None, Found]:
    """Find the objects of a label image.

    Parameters
    ----------
    labels
        (y, x) or (z, y, x) whole numbers of any kind, 0 for the background; an array, or what is
        sliced and shaped like one.

    Yields
    ------
    None
        After each band.

    Raises
    ------
    ValueError
        If a label is negative, or too large for 64 bits with a sign.
    """
    rows = _Rows(labels)
    found = [np.empty(0, dtype=np.int64)]
    for start, stop in _bands(labels.shape):
        values = rows[start:stop].ravel()
        # Labels come in runs, and to find their ends is much faster than to sort all pixels.
        ends = np.flatnonzero(values[1:] != values[:-1])
        values = np.unique(np.append(values[ends], values[-1]))
        for wrong in (values[0], values[-1]):
            if not 0 <= int(wrong) <= np.iinfo(np.int64).max:
                raise ValueError(
                    f"the label {wrong} is not from 0, which is the background, to 2**63 − 1"
                )
        found.append(values[values != 0].astype(np.int64))
        yield
    bands = np.repeat(np.arange(-1, len(found) - 1), [len(values) for values in found])
    # Of several, np.unique gives the first one.
    labels, first = np.unique(np.concatenate(found)[::-1], return_index=True)
    return Found(labels, bands[::-1][first])


def measure(
    labels: Any,
    found: Found,
    channels: Sequence[Any],
    *,
    spacing: Sequence[float],
    quantiles: Sequence[float],
) -> Generator[int, None, Measured]:
    """Measure all objects of a label image.

    Parameters
    ----------
    labels
        (y, x) or (z, y, x), as for `find`.
    found
        What that has found. Objects that have changed since are measured as they are now; new ones
        are left out, and so are those that are gone.
    channels
        Intensities, each of the shape of `labels`.
    spacing
        (ndim,) distance of two pixels along each axis.
    quantiles
        Shares in [0, 1].

    Yields
    ------
    int
        How many objects are measured, after each band.
    """
    n, ndim = len(found.labels), len(spacing)
    powers = shape_properties(spacing)
    centers = np.full((n, ndim), np.nan)
    shapes = {name: np.full(n, np.nan) for name in powers}
    intensities = np.full((n, len(channels), 2 + len(quantiles)), np.nan)
    perimeter = np.zeros(n)
    rows, images = _Rows(labels), [_Rows(channel) for channel in channels]
    width = int(np.prod(labels.shape[1:]))
    kept = _Pixels(np.empty(0, np.intp), np.empty(0, np.intp), [np.empty(0) for _ in channels])
    n_done = n_not_finite = 0
    for band, (start, stop) in enumerate(_bands(labels.shape)):
        # Whether a pixel is on a border, and where that goes on, its neighbours know.
        n_before = min(start, 2)
        around = rows[start - n_before : stop + 2]
        inside = around[n_before : n_before + stop - start].ravel()
        there, codes = _coded(inside, found.labels)
        values = [image[start:stop].ravel()[there] for image in images]
        pixels = kept.and_also(_Pixels(there + start * width, codes, values))
        if "perimeter" in powers and len(codes):
            steps = _steps(around, n_before, stop - start).ravel()[there]
            # Neighbours mostly have numbers near each other.
            sums = np.bincount(codes - codes.min(), steps)
            perimeter[codes.min() :][: len(sums)] += sums
        complete = found.last[pixels.codes] <= band
        kept, pixels = pixels.where(~complete), pixels.where(complete)
        if len(pixels.codes):
            segments = Segments.of(pixels.codes)
            which = segments.codes
            places = np.unravel_index(pixels.places[segments.order], labels.shape)
            centers[which], geometry = _geometry(segments, places, spacing)
            for name, value in geometry.items():
                if name in shapes:
                    shapes[name][which] = value
            for i, value in enumerate(pixels.values):
                intensities[which, i], n_bad = _statistics(
                    segments, value[segments.order], quantiles
                )
                n_not_finite += n_bad
            n_done += len(which)
        yield n_done
    if "perimeter" in powers:
        shapes["perimeter"] = perimeter * spacing[0]
    there = np.isfinite(centers[:, 0])
    return Measured(
        found.labels[there],
        centers[there],
        {name: value[there] for name, value in shapes.items()},
        intensities[there],
        n_not_finite,
    )


@dataclass(frozen=True)
class _Pixels:
    """Pixels of objects."""

    places: NDArray[np.intp]
    """Index into the flat image."""
    codes: NDArray[np.intp]
    """Which object it is of."""
    values: list[NDArray[Any]]
    """Intensity in each channel."""

    def and_also(self, others: _Pixels) -> _Pixels:
        if not len(self.codes):
            return others
        return _Pixels(
            np.concatenate([self.places, others.places]),
            np.concatenate([self.codes, others.codes]),
            [np.concatenate(both) for both in zip(self.values, others.values, strict=True)],
        )

    def where(self, mask: NDArray[np.bool_]) -> _Pixels:
        return _Pixels(self.places[mask], self.codes[mask], [value[mask] for value in self.values])


@dataclass(frozen=True)
class Segments:
    """Pixels sorted by object."""

    codes: NDArray[np.intp]
    """(k,) the objects that there are, in order."""
    order: NDArray[np.intp]
    """(n,) pixels, those of one object after those of the other."""
    starts: NDArray[np.intp]
    """(k,) where those of an object begin."""
    counts: NDArray[np.intp]
    """(k,) how many there are."""

    @classmethod
    def of(cls, codes: NDArray[np.intp]) -> Segments:
        """Sort pixels by their objects."""
        order = np.argsort(codes, kind="stable")
        codes = codes[order]
        starts = np.flatnonzero(np.diff(codes, prepend=-1))
        return cls(codes[starts], order, starts, np.diff(starts, append=len(codes)))

    def sums(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """(k,) sums of sorted pixels."""
        total: NDArray[np.float64] = np.add.reduceat(values, self.starts)
        return total

    def spread(self, values: NDArray[Any]) -> NDArray[Any]:
        """(n,) the values of objects, for each of their pixels."""
        return np.repeat(values, self.counts)


def _geometry(
    segments: Segments, places: Sequence[NDArray[np.intp]], spacing: Sequence[float]
) -> tuple[NDArray[np.float64], dict[str, NDArray[np.float64]]]:
    """Centers of objects and properties of their shapes, from the places of their pixels."""
    ndim, counts = len(spacing), segments.counts
    centers = np.column_stack([segments.sums(at.astype(float)) / counts for at in places])
    apart = [at - segments.spread(centers[:, axis]) for axis, at in enumerate(places)]
    scatter = np.empty((len(counts), ndim, ndim))
    for i in range(ndim):
        for j in range(i + 1):
            moment = segments.sums(apart[i] * apart[j]) / counts * spacing[i] * spacing[j]
            scatter[:, i, j] = scatter[:, j, i] = moment
    variances = np.linalg.eigvalsh(scatter).clip(min=0)
    box = np.ones(len(counts))
    for at in places:
        first = np.minimum.reduceat(at, segments.starts)
        box *= np.maximum.reduceat(at, segments.starts) - first + 1
    # Axes of the ellipse, or of the ellipsoid, that has these variances.
    minor, major = (np.sqrt(4 * (ndim + 2) * variances[:, at]) for at in (0, -1))
    size = counts * float(np.prod(spacing))
    convex = _convex_areas(segments, *places) if ndim == 2 else counts
    with np.errstate(invalid="ignore"):
        ratio = np.where(variances[:, -1] > 0, variances[:, 0] / variances[:, -1], 1)
    return centers * spacing, {
        "area": size,
        "volume": size,
        "axis_major_length": major,
        "axis_minor_length": minor,
        "eccentricity": np.sqrt(1 - ratio),
        "extent": counts / box,
        "solidity": counts / convex,
    }


def _convex_areas(segments: Segments, y: NDArray[np.intp], x: NDArray[np.intp]) -> NDArray[np.intp]:
    """(k,) pixels within the convex hull of each object, from the places of its sorted pixels."""
    objects = segments.spread(np.arange(len(segments.codes)))
    starts = np.flatnonzero((np.diff(objects, prepend=-1) != 0) | (np.diff(y, prepend=-1) != 0))
    ends = np.append(starts[1:], len(y)) - 1
    objects, y = objects[starts], y[starts]
    last = _farthest(objects, y, x[ends])
    first = _farthest(objects, y, -x[starts])
    first_rows = np.flatnonzero(np.diff(objects, prepend=-1))
    n_rows = y[np.append(first_rows[1:], len(y)) - 1] - y[first_rows] + 1
    areas: NDArray[np.intp] = np.add.reduceat(last + first + 1, np.cumsum(n_rows) - n_rows)
    return areas


def _farthest(
    objects: NDArray[np.intp], y: NDArray[np.intp], x: NDArray[np.intp]
) -> NDArray[np.intp]:
    """Largest x within the convex hull, in each row of each object from its first to its last.

    Parameters
    ----------
    objects, y, x
        (n_rows,) largest x of the object itself in its rows, in order; rows may lack.
    """
    # The hull is that of the middles of the edges of the pixels, in units of half a pixel.
    across = (2 * y[:, None] + [-1, 0, 1]).ravel()
    along = (2 * x[:, None] + [0, 1, 0]).ravel()
    of = np.repeat(objects, 3)
    # Between two rows are points of both.
    starts = np.flatnonzero((np.diff(of, prepend=-1) != 0) | (np.diff(across, prepend=-2) != 0))
    of, across, along = of[starts], across[starts], np.maximum.reduceat(along, starts)
    while True:
        # What is not beyond the line between its neighbours is no corner, even if they are none.
        inner = (of[1:-1] == of[:-2]) & (of[1:-1] == of[2:])
        rise, run = along[1:-1] - along[:-2], across[1:-1] - across[:-2]
        whole_rise, whole_run = along[2:] - along[:-2], across[2:] - across[:-2]
        corner = np.ones(len(of), dtype=bool)
        corner[1:-1] = ~(inner & (rise * whole_run <= whole_rise * run))
        if corner.all():
            break
        of, across, along = of[corner], across[corner], along[corner]
    starts = np.flatnonzero(np.diff(of, prepend=-1))
    ends = np.append(starts[1:], len(of)) - 1
    n_rows = (across[ends] - across[starts]) // 2
    behind = np.repeat(np.cumsum(n_rows) - n_rows, n_rows)
    rows = np.repeat(across[starts] + 1, n_rows) + 2 * (np.arange(len(behind)) - behind)
    # Rows and corners are sorted by object and then by row.
    height = int(across.max()) + 2
    before = (
        np.searchsorted(of * height + across, np.repeat(of[starts], n_rows) * height + rows) - 1
    )
    run = across[before + 1] - across[before]
    rise = along[before + 1] - along[before]
    farthest: NDArray[np.intp] = (along[before] * run + rise * (rows - across[before])) // (2 * run)
    return farthest


def _statistics(
    segments: Segments, values: NDArray[Any], quantiles: Sequence[float]
) -> tuple[NDArray[np.float64], int]:
    """(k, 2 + n_quantiles) mean, sd and quantiles of sorted pixels; how many are not finite."""
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    exact = values.astype(np.float64)
    finite = np.isfinite(single)
    n_bad = len(finite) - int(np.count_nonzero(finite))
    counts = segments.counts
    if n_bad:
        exact = np.where(finite, exact, 0)
        counts = np.add.reduceat(finite, segments.starts, dtype=np.intp)
    with np.errstate(invalid="ignore"):
        mean = segments.sums(exact) / counts
        apart = np.where(finite, exact - segments.spread(mean), 0)
        sd = np.sqrt(segments.sums(apart * apart) / counts)
    ranked = _sorted(segments, np.where(finite, single, np.float32(np.inf)))
    columns = [mean, sd]
    for share in quantiles:
        at = share * np.maximum(counts - 1, 0)
        below = np.floor(at).astype(np.intp)
        low = ranked[segments.starts + below].astype(np.float64)
        high = ranked[segments.starts + np.minimum(below + 1, np.maximum(counts - 1, 0))]
        with np.errstate(invalid="ignore"):
            columns.append(np.where(counts > 0, low + (at - below) * (high - low), np.nan))
    return np.column_stack(columns), n_bad


def _sorted(segments: Segments, values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Sort the pixels of each object by their values.

    Numbers of 64 bits, an object above and the bits of a value below, are sorted many times faster
    than by two keys. The bits of positive floats are in their order, those of negative ones in the
    opposite one.
    """
    top = np.uint32(2**31)
    bits = values.view(np.uint32)
    bits = np.where(bits & top, ~bits, bits | top)
    keys = segments.spread(np.arange(len(segments.codes), dtype=np.uint64) << np.uint64(32)) | bits
    keys.sort()
    bits = keys.astype(np.uint32)
    return np.where(bits & top, bits ^ top, ~bits).view(np.float32)


def _coded(
    values: NDArray[Any], labels: NDArray[np.int64]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Where pixels of objects are, and which objects: index into `labels`, which are sorted."""
    there = np.flatnonzero(values)
    values = values[there]
    if not len(there) or not len(labels):
        return there[:0], there[:0]
    # As above: one search for a run.
    starts = np.append(0, np.flatnonzero(values[1:] != values[:-1]) + 1)
    runs = values[starts].astype(np.int64)
    codes = np.searchsorted(labels, runs).clip(max=len(labels) - 1)
    counts = np.diff(starts, append=len(values))
    known = labels[codes] == runs
    if not known.all():
        there, codes, counts = there[np.repeat(known, counts)], codes[known], counts[known]
    return there, np.repeat(codes, counts)


def _steps(labels: NDArray[Any], n_before: int, n_rows: int) -> NDArray[np.float64]:
    """Length of border that each pixel stands for, in pixels.

    Parameters
    ----------
    labels
        (y, x), with up to two rows before and after those that are wanted.
    n_before, n_rows
        How many are before, and how many are wanted.
    """
    padded = np.zeros((n_rows + 4, labels.shape[1] + 4), dtype=labels.dtype)
    first = 2 - n_before
    padded[first : first + len(labels), 2:-2] = labels
    flat, width = padded.ravel(), padded.shape[1]
    edges, corners = (-width, -1, 1, width), (-width - 1, -width + 1, width - 1, width + 1)
    # What is compared with neighbours has some: the rows and columns around are background.
    objects = width + 1 + np.flatnonzero(flat[width + 1 : -width - 1])
    own = flat[objects]
    outer = np.zeros(len(objects), dtype=bool)
    for step in edges:
        outer |= flat[objects + step] != own
    border = np.zeros(len(flat), dtype=bool)
    border[objects[outer]] = True
    own, at = own[outer], objects[outer]
    inside = (at >= 2 * width) & (at < (n_rows + 2) * width)
    own, at = own[inside], at[inside]
    code = np.ones(len(at), dtype=np.intp)
    for steps, value in ((edges, 2), (corners, 10)):
        for step in steps:
            code += value * (border[at + step] & (flat[at + step] == own))
    lengths = np.zeros(len(flat))
    lengths[at] = STEPS[code]
    return lengths.reshape(padded.shape)[2:-2, 2:-2]


class _Rows:
    """Rows of an array, from the first to the last; of one in chunks, each chunk is read once."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self._edges: list[int] = []
        chunks = getattr(array, "chunks", None)
        if chunks:
            # dask has the sizes of all chunks, zarr and HDF5 that of each.
            sizes = chunks[0] if isinstance(chunks[0], tuple) else None
            n = array.shape[0]
            edges = range(0, n, chunks[0]) if sizes is None else np.cumsum([0, *sizes])
            self._edges = sorted({*map(int, edges), n})
        self._start = self._stop = 0
        self._block: NDArray[Any] = np.empty(0)

    def __getitem__(self, rows: slice) -> NDArray[Any]:
        start, stop = rows.start, min(rows.stop, self._array.shape[0])
        if not self._edges:
            return np.asarray(self._array[start:stop])
        if stop > self._stop:
            edge = self._edges[bisect_left(self._edges, stop)]
            new = np.asarray(self._array[self._stop : edge])
            old = self._block[start - self._start :]
            self._block = np.concatenate([old, new]) if len(old) else new
            self._start, self._stop = self._stop - len(old), edge
        return self._block[start - self._start : stop - self._start]


def _bands(shape: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last row of each band, the latter not included."""
    height = max(1, BAND // max(1, int(np.prod(shape[1:]))))
    for start in range(0, shape[0], height):
        yield start, min(start + height, shape[0])

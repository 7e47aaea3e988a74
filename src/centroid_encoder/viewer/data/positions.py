"""Where cells are, and whether their labels are there too."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from napari.layers import Labels, Layer
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from centroid_encoder.viewer.data.ids import INSTANCE_KEYS, named
from centroid_encoder.viewer.data.join import OBS_NAMES, LayerIds, Link

if TYPE_CHECKING:
    from anndata import AnnData

AXES = ("z", "y", "x")
"""In napari's order."""
PLACES = {"centroid", "bbox", "box", "boundingbox", "boundingboxminimum", "boundingboxmaximum"}
WORDS = PLACES | {
    "center", "centre", "location", "position", "pos", "coord", "coordinate", "spatial",
    "areashape", "weighted", "local", "global", "px", "pixel", "pixels", "um", "µm",
    "micron", "microns",
}  # fmt: skip
"""Words of columns of positions, beside the axis."""
PIXELS = 2**21
"""Pixels of an image that are looked at."""
PAIRS = 2000
"""Cells that are compared, if there are so many; with fewer than `FEW` nothing can be said."""
FEW = 20
FITS, HALF, HARDLY = 0.8, 0.5, 0.2
"""Shares of the cells that lie where their label is."""
SOME = 50
"""Other regions that are tried."""
SAME = 0.1
"""Share by which two scales may differ: what one program calls the center of a cell another does
not."""


@dataclass(frozen=True)
class Misfit:
    """Cells do not lie where the labels that they are joined to are."""

    text: str
    better: Link | None
    """What would join them to labels at their places."""


def axis(name: object) -> str | None:
    """Axis of a column of positions: x, y or z, or its number; None for any other column."""
    words = re.findall(r"\d+|[^\W\d_]+", str(name).lower())
    rest = [word for word in words if word not in WORDS]
    if len(rest) != 1 or not (rest[0] in AXES or (rest[0].isdigit() and PLACES & set(words))):
        return None
    return str(rest[0])


def coordinates(adata: AnnData) -> tuple[str, NDArray[np.floating]] | None:
    """Positions of cells, from ``obsm["spatial"]`` or from columns such as ``centroid_x``.

    Returns
    -------
    tuple or None
        Where they are, and (n_obs, 2 or 3) positions in napari's order, the last axis first. None
        if there are none.
    """
    spatial = numbers(adata.obsm.get("spatial"))
    if spatial is not None and spatial.shape[1] in (2, 3):
        return 'obsm["spatial"]', spatial[:, ::-1]
    found = {axis(name): name for name in adata.obs if not _is_box(name)}
    for wanted in (AXES, AXES[1:], ("0", "1", "2"), ("0", "1")):
        if set(wanted) <= set(found):
            columns = [found[a] for a in wanted]
            where = " and ".join(f"obs[{name!r}]" for name in columns[-2:])
            place = numbers(adata.obs[columns])
            return None if place is None else (where, place)
    return None


def numbers(value: Any) -> NDArray[np.floating] | None:
    """Dense table with at least one complete row, or None."""
    if isinstance(value, pd.DataFrame):
        known = {str(column).lower(): column for column in value}
        # Columns that say which is which need not be in order.
        if set(known) in ({"x", "y"}, {"x", "y", "z"}):
            value = value[[known[axis] for axis in sorted(known)]]
        if not all(map(pd.api.types.is_numeric_dtype, value.dtypes)):
            return None
        value = value.to_numpy(dtype=float, na_value=np.nan)
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind not in "iuf":
        return None
    table = value.astype(float)
    return table if np.isfinite(table).all(axis=1).any() else None


def check_positions(
    link: Link, read: Callable[[Layer], LayerIds]
) -> tuple[Misfit | None, str | None]:
    """Compare the positions that a table stores with those of the labels its cells are joined to.

    Units, origin, and axes that point elsewhere do not speak against a link: any affine map may lie
    between. But a scale that is neither that of the pixels nor that of the layer is told: of labels
    of another resolution, or of a layer whose scale is not set.

    Parameters
    ----------
    link
        What joins them; it must say which row is which.
    read
        What gives the ids of a layer.

    Returns
    -------
    misfit
        None if they agree, or if nothing can be said.
    scale
        What is to be said of the scale, as a sentence; None if nothing is.
    """
    layer, place = link.layer, coordinates(link.table.adata)
    if not isinstance(layer, Labels) or place is None:
        return None, None
    where, positions = place
    ids, centers, near = _centers(layer)

    def fit_of(link: Link) -> _Fit | None:
        """How the cells lie to their labels; None if there are too few."""
        try:
            join = link.make(read)
        except ValueError:
            return None
        rows = np.flatnonzero(join.joined & np.isfinite(positions).all(axis=1))
        at = pd.Index(ids).get_indexer(join.ids[rows])
        places, labels = positions[rows[at >= 0]], centers[at[at >= 0]]
        if len(places) < FEW or places.shape[1] != labels.shape[1]:
            return None
        some = np.linspace(0, len(places) - 1, min(len(places), PAIRS)).astype(int)
        return _fit(places[some], labels[some], near)

    def share_of(link: Link) -> float:
        fit = fit_of(link)
        return 0.0 if fit is None else fit.share

    fit = fit_of(link)
    if fit is None:
        return None, None
    share = fit.share
    if share >= HALF:
        return None, _other_scale(fit, layer, where) if share >= FITS else None
    others = {other: share_of(other) for other in _others(link)}
    better = max(others, key=others.__getitem__)
    text = (
        f"The positions in {where} speak against this: {100 * share:.0f} % of the cells lie where "
        "their label is"
    )
    if others[better] >= FITS:
        region = better.region if better.region != link.region else None
        with_it = f"with {better.ids_name}" if region is None else f"as {region.value}"
        text += f"; {with_it} it would be {100 * others[better]:.0f} %."
        return Misfit(text, better), None
    if share < HARDLY:
        return Misfit(f"{text}. The ids may be those of another image.", None), None
    return None, None


def _others(link: Link) -> Iterator[Link]:
    """Other ways to join a table to the same layer."""
    for shift in (-1, 0, 1):
        if shift != link.shift:
            yield replace(link, shift=shift)
    for name in [*named(link.table.adata.obs, INSTANCE_KEYS), OBS_NAMES]:
        if name != link.id_column:
            yield replace(link, id_column=name, shift=0)
    region, obs = link.region, link.table.adata.obs
    if region is not None and region.column in obs:
        values = pd.unique(obs[region.column].dropna())
        for value in [value for value in values if str(value) != str(region.value)][:SOME]:
            yield replace(link, region=region._replace(value=value))


@dataclass(frozen=True)
class _Fit:
    """Positions that are mapped to the centers of labels as well as an affine map can."""

    share: float
    """Of the cells that then lie where their label is."""
    pixels: NDArray[np.floating]
    """(ndim,) pixels along each axis of the labels that one unit of the positions is."""
    errors: NDArray[np.floating]
    """(ndim,) by which share these may be wrong, if labels are as far off as counts as near."""


def _fit(places: NDArray[np.floating], labels: NDArray[np.floating], near: float) -> _Fit:
    """Map (n, ndim) positions to centers of labels, in pixels."""
    n = len(places)
    # Coordinates of a slide are large, and all alike.
    places = places - places.mean(axis=0)
    with_one = np.column_stack([places, np.ones(n)])
    fitted = np.ones(n, dtype=bool)
    for _ in range(3):
        affine = np.linalg.lstsq(with_one[fitted], labels[fitted], rcond=None)[0]
        apart = np.linalg.norm(with_one @ affine - labels, axis=1)
        # Again without those that are far off: a few wrong ones must not tilt it.
        fitted = apart <= np.median(apart)
    spread = labels.std(axis=0) * n**0.5
    errors = np.divide(near, spread, out=np.full_like(spread, np.inf), where=spread > 0)
    share = float((apart < near).mean())
    return _Fit(share, np.linalg.norm(affine[:-1], axis=0), errors)


def _other_scale(fit: _Fit, layer: Labels, where: str) -> str | None:
    """Say on which scale the positions are, if that is neither the pixels' nor the layer's."""
    own = np.abs(layer.scale)
    if not (fit.pixels > 0).all():
        return None
    sizes = 1 / fit.pixels
    # What few cells, or cells in a line, leave open is not told.
    margin = SAME + 4 * fit.errors
    for expected in (np.ones_like(own), own):
        if (np.abs(np.log(sizes / expected)) < margin).all():
            return None
    alike = np.ptp(np.log(sizes)) < SAME
    size = f"{sizes.mean():.3g}" if alike else " x ".join(f"{one:.3g}" for one in sizes)
    known = "1" if np.allclose(own, 1) else "1, nor the layer's scale"
    return (
        f"The positions in {where} are on another scale than {layer.name}: a pixel is {size} of "
        f"their units, not {known}. The cells are joined by their ids all the same; if the labels "
        "are of another resolution than the image that was measured, open those."
    )


def _centers(labels: Labels) -> tuple[NDArray[np.int64], NDArray[np.floating], float]:
    """Values of labels, their (n, ndim) centers, and a distance nearer than their neighbours."""
    image = labels.data[0] if labels.multiscale else labels.data
    step = max(1, math.ceil((math.prod(image.shape) / PIXELS) ** 0.5))
    part = np.asarray(image[..., ::step, ::step])
    codes, values = pd.factorize(part.ravel())
    n = np.bincount(codes)
    axes = np.meshgrid(*map(np.arange, part.shape), indexing="ij", sparse=True)
    steps = [1] * (part.ndim - 2) + [step, step]
    centers = np.column_stack(
        [
            by * np.bincount(codes, weights=np.broadcast_to(places, part.shape).ravel()) / n
            for places, by in zip(axes, steps, strict=True)
        ]
    )
    there = values != 0
    values, centers = values[there].astype(np.int64), centers[there]
    if len(values) < FEW:
        return values, centers, 0.0
    some = centers[:: max(1, len(centers) // PAIRS)]
    apart = np.median(np.asarray(cKDTree(centers).query(some, k=2)[0])[:, 1])
    return values, centers, max(0.75 * float(apart), 2.0 * (step - 1))


def _is_box(name: object) -> bool:
    return bool(re.search(r"b(ounding)?_?box", str(name).lower()))

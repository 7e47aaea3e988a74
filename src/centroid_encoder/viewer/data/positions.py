"""Positions of cells, and a check that cells lie where their labels are."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.spatial import cKDTree

from centroid_encoder.viewer.data.join import Join, Link

if TYPE_CHECKING:
    from anndata import AnnData

WORDS_BEFORE_NUMBERS = {
    "centroid", "bbox", "box", "boundingbox", "boundingboxminimum", "boundingboxmaximum"
}  # fmt: skip
POSITION_WORDS = WORDS_BEFORE_NUMBERS | {
    "center", "centre", "location", "position", "pos", "coord", "coordinate", "spatial",
    "areashape", "weighted", "local", "global", "px", "pixel", "pixels", "um", "µm",
    "micron", "microns",
}  # fmt: skip
"""Words of names of positions, beside the axis."""
MAX_COMPARED = 2000
"""Number of cells whose positions are compared."""
MIN_COMPARED = 20
"""With fewer cells, positions are not compared."""
SHARE_OF_A_FIT, SHARE_OF_A_MISFIT = 0.8, 0.2
"""Shares of the cells that lie where their labels are."""


class Misfit(ValueError):
    """Cells do not lie where the labels are that they are joined to.

    Attributes
    ----------
    better
        The same link with another shift, if that mends it.
    """

    def __init__(self, text: str, better: Link | None) -> None:
        super().__init__(text)
        self.better = better


def axis(name: object) -> str | None:
    """Axis of a column of positions: x, y or z, or its number; None for any other column."""
    words = re.findall(r"\d+|[^\W\d_]+", str(name).lower())
    rest = [word for word in words if word not in POSITION_WORDS]
    if len(rest) != 1:
        return None
    numbered = rest[0].isdigit() and WORDS_BEFORE_NUMBERS & set(words)
    return str(rest[0]) if rest[0] in ("z", "y", "x") or numbered else None


def coordinates(adata: AnnData) -> tuple[str, NDArray[np.floating]] | None:
    """Positions of cells, from ``obsm["spatial"]`` or from columns such as ``X_centroid``.

    Returns
    -------
    tuple or None
        The place of the positions in messages, and (n_obs, 2 or 3) positions in napari's order,
        the last axis first. None if there are none.
    """
    spatial = numbers(adata.obsm.get("spatial"))
    if spatial is not None and spatial.shape[1] in (2, 3):
        return 'obsm["spatial"]', spatial[:, ::-1]
    found = {axis(name): name for name in adata.obs if "box" not in str(name).lower()}
    for wanted in ("zyx", "yx", "012", "01"):
        if set(wanted) <= set(found):
            columns = [found[a] for a in wanted]
            where = " and ".join(f"obs[{name!r}]" for name in columns[-2:])
            place = numbers(adata.obs[columns].set_axis(range(len(columns)), axis=1))
            return None if place is None else (where, place)
    return None


def numbers(value: Any) -> NDArray[np.floating] | None:
    """Dense table with at least one complete row, or None."""
    if isinstance(value, pd.DataFrame):
        known = {str(column).lower(): column for column in value}
        # Columns that are called x and y need not be in order.
        if set(known) in ({"x", "y"}, {"x", "y", "z"}):
            value = value[[known[axis] for axis in sorted(known)]]
        if not all(map(pd.api.types.is_numeric_dtype, value.dtypes)):
            return None
        value = value.to_numpy(dtype=float, na_value=np.nan)
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind not in "iuf":
        return None
    table = value.astype(float)
    return table if np.isfinite(table).all(axis=1).any() else None


def find_misfit(link: Link, join: Join) -> Misfit | None:
    """Return what contradicts a join: the positions of the cells, or ids that are off by one.

    An affine map may lie between positions and pixels: units, origin and directions of the axes do
    not contradict.
    """
    if join.of.centers is None:
        return None
    where, places = coordinates(link.table.adata) or ("", None)
    share = _share_at_labels(join, places)
    if share is not None and share >= 0.5:
        return None
    text = (
        f"The positions in {where} speak against this: {100 * (share or 0):.0f} % of the cells "
        "lie where their label is"
    )
    for by in (-1, 1):
        better = replace(link, shift=link.shift + by)
        try:
            mended = better.make(join.of)
        except ValueError:  # Ids of no cell may repeat, but those of labels may not.
            continue
        if share is None and mended.n_joined == mended.n_rows and not mended.n_unmatched_ids:
            return Misfit(
                f"The ids in {link.ids_name} are off by one: with {better.ids_name} they are those "
                f"of all labels of {link.layer.name}.",
                better,
            )
        fit = _share_at_labels(mended, places) or 0
        if fit >= SHARE_OF_A_FIT:
            return Misfit(f"{text}; with {better.ids_name} it would be {100 * fit:.0f} %.", better)
    if share is None or share >= SHARE_OF_A_MISFIT:
        return None
    return Misfit(f"{text}. The ids may be those of another image.", None)


def _share_at_labels(join: Join, positions: NDArray[np.floating] | None) -> float | None:
    """Share of the cells at the centers of their labels, after an affine map; None for too few."""
    centers = join.of.centers
    if centers is None or positions is None or positions.shape[1] != centers.shape[1]:
        return None
    places = positions[join.joined]
    labels = centers[np.searchsorted(join.of.ids, join.ids[join.joined])]
    rows = np.flatnonzero(np.isfinite(np.hstack([places, labels])).all(axis=1))
    if len(rows) < MIN_COMPARED:
        return None
    rows = rows[:: math.ceil(len(rows) / MAX_COMPARED)]
    places, labels = places[rows], labels[rows]
    # Coordinates of a slide are large, and all alike.
    with_one = np.column_stack([places - places.mean(axis=0), np.ones(len(places))])
    fitted = np.ones(len(places), dtype=bool)
    for _ in range(3):
        affine = np.linalg.lstsq(with_one[fitted], labels[fitted], rcond=None)[0]
        apart = np.linalg.norm(with_one @ affine - labels, axis=1)
        # Again without the half that lies far off: a few wrong ones must not tilt the map.
        fitted = apart <= np.median(apart)
    centers = centers[np.isfinite(centers).all(axis=1)]
    nearest = np.asarray(cKDTree(centers).query(labels, k=2)[0])[:, 1]
    near = max(0.75 * float(np.median(nearest)), 2.0 * (join.of.step - 1))
    return float((apart < near).mean())

"""Join rows of a table to ids of a layer: by ids and never by position."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from centroid_encoder.viewer.data.columns import OBS_NAMES, coordinates, whole_numbers
from centroid_encoder.viewer.data.ids import CellLayer, ItemLayer, LayerIds
from centroid_encoder.viewer.data.tables import Table

MAX_COMPARED = 2000
"""Number of cells whose positions are compared with the centers of their labels."""
MIN_COMPARED = 20
"""With fewer cells, positions are not compared."""
SHARE_OF_A_FIT, SHARE_OF_A_MISFIT = 0.8, 0.2
"""Shares of the cells that lie where their labels are."""


@dataclass(frozen=True)
class Link:
    """A table, one of the layers that show its cells, and the columns that join them.

    A table of many images has a link for each of them.
    """

    table: Table
    image: object
    """Value of the image that the layer shows; None for all cells."""
    layer: CellLayer
    id_column: str | None
    """Column of ``obs`` with the cell's id in the layer, or `OBS_NAMES`; None if it is unknown."""
    shift: int = 0
    """Number that is added to the ids of the column: 1 if they count from 0 and labels from 1."""
    image_column: str | None = None
    """Column of ``obs`` with the image of a cell; None if all are in one."""

    @property
    def ids_name(self) -> str:
        """Name of the ids in messages."""
        name = OBS_NAMES if self.id_column == OBS_NAMES else f"obs[{self.id_column!r}]"
        return f"{name} {self.shift:+}" if self.shift else name

    def rows(self) -> NDArray[np.intp]:
        """Rows of the table that are cells of the image."""
        obs = self.table.adata.obs
        if self.image is None:
            return np.arange(len(obs))
        if self.image_column not in obs:
            raise ValueError(f"obs has no column {self.image_column!r}; choose another one")
        codes, values = pd.factorize(obs[self.image_column])
        wanted = [str(value) == str(self.image) for value in values]
        return np.flatnonzero(np.append(wanted, False).astype(bool)[codes])

    def ids(self) -> pd.Series:
        """Ids of all rows, as the table has them; a ValueError says why there are none."""
        obs, name = self.table.adata.obs, self.id_column
        if name is None:
            raise ValueError("no column of the table has a name of ids; choose the column")
        if name not in obs and name != OBS_NAMES:
            raise ValueError(f"obs has no column {name!r}; choose another one")
        return obs[name] if name in obs else obs.index.to_series()

    def make(self, of: LayerIds) -> Join:
        """Find out which row is which label, point or shape.

        The ids of a Labels layer are the values in its image but 0, the background. Those of a
        Points or Shapes layer are a column of its features, of the same name as the id column or
        ``"index"``, or the ``metadata["indices"]`` of napari-spatialdata; the names of cells are
        compared with its feature ``"cell"``.

        A ValueError if the ids are ambiguous: no column, one that is gone, that holds no ids, or
        the same id twice.
        """
        n_obs, rows = self.table.adata.n_obs, self.rows()
        found = _find(self, of, rows)
        joined = np.zeros(n_obs, dtype=bool)
        joined[rows] = found >= 0
        found = found[found >= 0]
        ids = np.zeros(n_obs, dtype=np.int64)
        ids[joined] = of.ids[found]
        row = np.full(len(of.ids), -1, dtype=np.intp)
        row[found] = np.flatnonzero(joined)
        return Join(ids, joined, len(rows), of, row)


@dataclass(frozen=True, eq=False)
class Join:
    """Which row of a table is which label of an image, which point or shape; see `Link.make`."""

    ids: NDArray[np.int64]
    """(n_obs,) id of each row in the layer: the label's value, or the index of the point or shape.
    Without meaning where a row is not joined."""
    joined: NDArray[np.bool_]
    """(n_obs,) rows that are in the layer."""
    n_rows: int
    """Rows of the layer's image, in the layer or not."""
    of: LayerIds = field(repr=False)
    """All ids of the layer, of cells or not."""
    _row: NDArray[np.intp] = field(repr=False)

    @property
    def n_joined(self) -> int:
        """Rows that are in the layer."""
        return int(self.joined.sum())

    @property
    def n_unmatched_ids(self) -> int:
        """Ids in the layer that no row has."""
        return int((self._row < 0).sum())

    @property
    def is_likely(self) -> bool:
        """Whether at least half of the rows, or half of the ids in the layer, are joined."""
        return 2 * self.n_joined >= min(self.n_rows, len(self.of.ids))

    def is_like(self, other: Join) -> bool:
        """Tell whether another join has the same pairs, and the pixels are the same."""
        return (
            self.of is other.of
            and np.array_equal(self.joined, other.joined)
            and np.array_equal(self.ids, other.ids)
        )

    def rows(self, ids: ArrayLike) -> NDArray[np.intp]:
        """Row of each id; −1 where there is none, as for the background."""
        wanted, known = np.asarray(ids, dtype=np.int64), self.of.ids
        if not len(known):
            return np.full(wanted.shape, -1, dtype=np.intp)
        at = np.searchsorted(known, wanted).clip(max=len(known) - 1)
        return np.where(known[at] == wanted, self._row[at], -1)

    def __str__(self) -> str:
        n_obs, n, item = len(self.joined), self.n_unmatched_ids, self.of.item
        part = f" of {n_obs:,}" if self.n_rows < n_obs else ""
        where = "the image" if item == "label" else "the layer"
        return (
            f"{self.n_rows:,}{part} cell{'s' * (n_obs != 1)}; "
            f"{self.n_rows - self.n_joined:,} without a {item} in {where}; "
            f"{n:,} {item}{'s' * (n != 1)} without a row"
        )


def _find(link: Link, of: LayerIds, rows: NDArray[np.intp]) -> NDArray[np.intp]:
    """Index into the ids of a layer of each of the rows; −1 for rows that are not in it."""
    column = link.ids().iloc[rows].reset_index(drop=True)
    if isinstance(link.layer, ItemLayer):
        items = _item_ids(link.layer, of.item, link)
        try:
            ids, known = whole_numbers(column, link.ids_name), whole_numbers(items, "features")
        except ValueError:
            ids, known = (x.astype(object).map(str, na_action="ignore") for x in (column, items))
    else:
        ids, known = whole_numbers(column, link.ids_name) + link.shift, pd.Series(of.ids)
        ids = ids.mask(ids == 0)
    index = pd.Index(known.dropna())
    if not index.is_unique:
        several = index[index.duplicated()][0]
        raise ValueError(f"several {of.item}s have the id {several}; give every {of.item} its own")
    repeated = ids[ids.notna() & ids.duplicated()].unique()
    if len(repeated):
        names = ", ".join(map(str, repeated[:3]))
        more = f" and {len(repeated) - 3:,} more" if len(repeated) > 3 else ""
        cure = "another column of ids"
        if link.image is None:
            cure += ", or the column of images" if link.image_column is None else ", or one image"
        same = f"{link.ids_name} gives several cells the same {of.item}"
        raise ValueError(f"{same}: {names}{more}; choose {cure}")
    # get_indexer returns −1 for ids that are not there: the last element here.
    found = np.append(np.flatnonzero(known.notna()), -1)
    return np.asarray(found[index.get_indexer(ids)])


def _item_ids(layer: ItemLayer, item: str, link: Link) -> pd.Series:
    """Id of each point or shape, to be compared with those of the table."""
    features, indices = layer.features, layer.metadata.get("indices")
    by_names = link.id_column == OBS_NAMES and OBS_NAMES not in link.table.adata.obs
    name = "cell" if by_names else link.id_column
    if name in features:
        return features[name]
    if by_names and link.table.is_made_of(features):
        return pd.Series(np.arange(len(features)))
    if not by_names:
        if isinstance(indices, Sequence | np.ndarray | pd.Index) and len(indices) == len(
            layer.data
        ):
            return pd.Series(indices)
        if "index" in features:
            return features["index"]
    raise ValueError(
        f"the {item}s have no ids to compare {link.ids_name} with; give the layer a feature "
        f"{name!r}, or choose another column"
    )


class Misfit(ValueError):
    """Cells do not lie where the labels are that they are joined to.

    `better` is the same link with another shift, if that mends it.
    """

    def __init__(self, text: str, better: Link | None) -> None:
        super().__init__(text)
        self.better = better


def find_misfit(link: Link, join: Join) -> Misfit | None:
    """Return what contradicts a join: the positions of the cells, or ids that are off by one.

    An affine map may lie between positions and pixels: units, origin and directions of the axes do
    not contradict.
    """
    where, places = coordinates(link.table.adata) or ("", None)
    share = _share_at_labels(join, places)
    if join.of.centers is None or (share or 0) >= 0.5:
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


@dataclass(frozen=True)
class TableImage:
    """One image of a table, or all of them, if one layer shows all of them."""

    value: object
    """Value in the column of images; None for all."""
    n_cells: int
    link: Link | None = None
    """Link to the layer that shows it, if one does."""
    join: Join | None = None
    """None also if the link cannot be joined."""
    remark: str = ""
    """A sentence on a fault of the link; empty if there is none."""

    @property
    def name(self) -> str:
        """Name of the image in the table."""
        return "all images" if self.value is None else str(self.value)


def table_images(
    column: pd.Series, joins: Mapping[Link, Join], faults: Mapping[Link, Exception]
) -> list[TableImage]:
    """List the images of a column in the order of its categories, or of the names."""
    counts = column.value_counts(sort=False)
    values: list[object] = list(counts.index[counts > 0])
    if not isinstance(column.dtype, pd.CategoricalDtype):
        values.sort(key=_natural)
    links = {str(link.image): link for link in [*faults, *joins]}
    images = []
    for value in [*([None] if str(None) in links else []), *values]:
        image = TableImage(value, int(counts.sum() if value is None else counts[value]))
        if (link := links.get(str(value))) is not None:
            remark = str(faults.get(link, ""))
            image = replace(image, link=link, join=joins.get(link), remark=remark)
        images.append(image)
    return images


def _natural(value: object) -> list[object]:
    """Key to sort names by their numbers: 2 before 10."""
    return [int(x) if x.isdecimal() else x for x in re.split(r"(\d+)", str(value))]

"""Rows of a table and ids of a layer, joined by ids and never by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from centroid_encoder.viewer.data.ids import CellLayer, ItemLayer, LayerIds, whole_numbers

if TYPE_CHECKING:
    from centroid_encoder.viewer.data.tables import Table

OBS_NAMES = "obs_names"
"""Id column that stands for the names of the cells, unless there is a column of that name."""


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
        adata, name = self.table.adata, self.id_column
        if name is None:
            raise ValueError("no column of the table has a name of ids; choose the column")
        if name in adata.obs:
            return adata.obs[name]
        if name == OBS_NAMES:
            return pd.Series(adata.obs_names, index=adata.obs_names)
        raise ValueError(f"obs has no column {name!r}; choose another one")

    def labels(self, rows: NDArray[np.intp]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Return the label of each of the rows, and a mask of those that have one."""
        values, there = whole_numbers(self.ids().iloc[rows], self.ids_name)
        return values + self.shift, there

    def make(self, of: LayerIds) -> Join:
        """Find out which row is which label, point or shape.

        The ids of a Labels layer are the values in its image but 0, the background. Those of a
        Points or Shapes layer are a column of its features, of the same name as the id column or
        ``"index"``, or the ``metadata["indices"]`` of napari-spatialdata; the names of cells are
        compared with its feature ``"cell"``.

        Parameters
        ----------
        of
            The ids of the layer.

        Raises
        ------
        ValueError
            If the ids are ambiguous: no column, one that is gone, that holds no ids, or the same id
            twice.
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
    values: NDArray[Any]
    known: NDArray[Any]
    if isinstance(link.layer, ItemLayer):
        column, items = link.ids().iloc[rows], _item_ids(link.layer, of.item, link)
        try:
            values, there = whole_numbers(column, link.ids_name)
            known, has_id = whole_numbers(items, "features")
        except ValueError:
            values, there = column.astype(str).to_numpy(dtype=object), column.notna().to_numpy()
            known, has_id = items.astype(str).to_numpy(dtype=object), items.notna().to_numpy()
    else:
        values, there = link.labels(rows)
        there = there & (values != 0)
        known, has_id = of.ids, np.ones(len(of.ids), dtype=bool)
    index = pd.Index(known[has_id])
    if not index.is_unique:
        several = index[index.duplicated()][0]
        raise ValueError(f"several {of.item}s have the id {several}; give every {of.item} its own")
    ids = pd.Series(values[there])
    repeated = ids[ids.duplicated()].unique()
    if len(repeated):
        raise ValueError(_repeated(repeated, link, of.item))
    found = np.full(len(rows), -1, dtype=np.intp)
    # get_indexer returns −1 for ids that are not there: the last element here.
    found[there] = np.append(np.flatnonzero(has_id), -1)[index.get_indexer(ids)]
    return found


def _repeated(values: NDArray[Any], link: Link, item: str) -> str:
    names = ", ".join(str(value) for value in values[:3])
    more = f" and {len(values) - 3:,} more" if len(values) > 3 else ""
    cure = "another column of ids"
    if link.image is None:
        cure += ", or the column of images" if link.image_column is None else ", or one image"
    return f"{link.ids_name} gives several cells the same {item}: {names}{more}; choose {cure}"


def _item_ids(layer: ItemLayer, item: str, link: Link) -> pd.Series:
    """Id of each point or shape, to be compared with those of the table."""
    adata, features, indices = link.table.adata, layer.features, layer.metadata.get("indices")
    if link.id_column == OBS_NAMES and OBS_NAMES not in adata.obs:
        if "cell" in features:
            return features["cell"]
        if link.table.is_made_of(features):
            return pd.Series(np.arange(len(features)))
        raise ValueError(
            f"no feature holds ids of the {item}s, and the features have changed if the table was "
            "made of them; choose a column of ids, or the table that is made of them now"
        )
    if link.id_column in features:
        return features[link.id_column]
    if isinstance(indices, Sequence | np.ndarray | pd.Index) and len(indices) == len(layer.data):
        return pd.Series(indices)
    if "index" in features:
        return features["index"]
    raise ValueError(
        f"the {item}s have no ids to compare {link.ids_name} with; give the layer a feature "
        f"{link.id_column!r}, or choose another column"
    )

"""Join the rows of a table to the cells of a layer: by their ids, never by their positions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from centroid_encoder.errors import InputError, check
from centroid_encoder.tables import affine_residuals
from centroid_encoder.tl._positions import positions
from centroid_encoder.viewer.data.columns import OBS_NAMES, name_of, whole_numbers
from centroid_encoder.viewer.data.ids import CellLayer, ItemLayer, LayerIds
from centroid_encoder.viewer.data.tables import Table

MAX_COMPARED = 2000
"""Largest number of cells whose positions are compared with the centers of their labels."""
MIN_COMPARED = 20
"""With fewer cells, positions are not compared."""
GOOD_FIT = 0.8
"""If at least this share of the cells lies at their labels, the ids are right."""
BAD_FIT = 0.2
"""If a smaller share of the cells lies at their labels, the ids are wrong."""


@dataclass(frozen=True)
class Link:
    """A table, one layer that shows its cells, and the columns that join them.

    A table of many images has one link for each open image.
    """

    table: Table
    image: object
    """Value of the image that the layer shows; None for all cells."""
    layer: CellLayer
    id_column: str | None
    """Column of ``obs`` with the cell's id in the layer, or `OBS_NAMES`; None if unknown."""
    shift: int = 0
    """Number added to the ids of the column: 1 if they start at 0 and the labels at 1."""
    image_column: str | None = None
    """Column of ``obs`` with the image of each cell; None if all cells are in one image."""

    @property
    def ids_name(self) -> str:
        """Name of the ids in messages."""
        by_names = self.id_column == OBS_NAMES
        name = "the names of the cells" if by_names else f"the column {self.id_column!r}"
        return f"{name} {self.shift:+}" if self.shift else name

    def make(self, of: LayerIds) -> Join:
        """Match the rows of the table with the labels, points or shapes of the layer.

        The ids of a Labels layer are the values in its image except 0, the background. The ids of
        a Points or Shapes layer are the feature with the name of the id column, else
        ``metadata["indices"]`` (from napari-spatialdata), else the feature ``"index"``. If the id
        column is `OBS_NAMES`, they are the feature ``"cell"``.

        Raises
        ------
        ValueError
            If there is no column of ids, if a value is no id, or if an id is not unique.
        """
        obs = self.table.adata.obs
        n_obs, rows = len(obs), np.arange(len(obs))
        if self.image is not None:
            text = f"the table has no column {self.image_column!r}; choose another one"
            check(self.image_column in obs, text)
            codes, values = pd.factorize(obs[self.image_column])
            wanted = [name_of(value) == name_of(self.image) for value in values]
            rows = np.flatnonzero(np.append(wanted, False).astype(bool)[codes])
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
    """The pairs of table rows and labels, points or shapes; made by `Link.make`."""

    ids: NDArray[np.int64]
    """(n_obs,) id of each row in the layer: the value of the label, or the index of the point or
    shape. Undefined where `joined` is False."""
    joined: NDArray[np.bool_]
    """(n_obs,) whether the row is in the layer."""
    n_rows: int
    """Number of rows that are cells of the layer's image, joined or not."""
    of: LayerIds = field(repr=False)
    """All ids of the layer."""
    _row: NDArray[np.intp] = field(repr=False)
    """Row of each of these ids; −1 for none."""

    @property
    def n_joined(self) -> int:
        """Number of rows that are in the layer."""
        return int(self.joined.sum())

    @property
    def n_unmatched_ids(self) -> int:
        """Number of ids in the layer that no row has."""
        return int((self._row < 0).sum())

    def centers(self, rows: NDArray[np.intp]) -> NDArray[np.floating]:
        """Return the (n, ndim) centers of joined rows in pixels of the layer."""
        return self.of.centers[np.searchsorted(self.of.ids, self.ids[rows])]

    def is_like(self, other: Join) -> bool:
        """Return whether another join has the same pairs and the same pixels."""
        same = np.array_equal(self.joined, other.joined) and np.array_equal(self.ids, other.ids)
        return same and self.of is other.of

    def rows(self, ids: ArrayLike) -> NDArray[np.intp]:
        """Return the row of each id; −1 for the background and other ids without a row."""
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
    """Return for each row its index in ``of.ids``; −1 for rows that are not in the layer."""
    obs, name = link.table.adata.obs, link.id_column
    text = "no column of the table has a usual name for ids, such as cell_id; choose the column"
    check(name is not None, text)
    is_there = name in obs or name == OBS_NAMES
    check(is_there, f"the table has no column {name!r}; choose another one")
    column = (obs[name] if name in obs else obs.index.to_series()).iloc[rows]
    column = column.reset_index(drop=True)
    if isinstance(link.layer, ItemLayer):
        items = _item_ids(link.layer, of.item, link)
        try:
            ids, known = whole_numbers(column, link.ids_name), whole_numbers(items, "features")
        except ValueError:
            ids, known = (
                x.astype(object).map(name_of, na_action="ignore") for x in (column, items)
            )
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
    # `get_indexer` returns −1 for a missing id, which selects the last element here: also −1.
    found = np.append(np.flatnonzero(known.notna()), -1)
    return np.asarray(found[index.get_indexer(ids)])


def _item_ids(layer: ItemLayer, item: str, link: Link) -> pd.Series:
    """Return the id of each point or shape; see `Link.make`."""
    features, indices = layer.features, layer.metadata.get("indices")
    by_names = link.id_column == OBS_NAMES and OBS_NAMES not in link.table.adata.obs
    name = "cell" if by_names else link.id_column
    if name in features:
        return features[name]
    if by_names and link.table.is_made_of(features):
        return pd.Series(np.arange(len(features)))
    if not by_names and indices is not None and len(indices) == len(layer.data):
        return pd.Series(indices)
    if not by_names and "index" in features:
        return features["index"]
    text = f"the {item}s have no ids to compare {link.ids_name} with; give the layer a feature"
    raise InputError(f"{text} {name!r}, or choose another column")


class Misfit(ValueError):
    """Warning that the cells may not belong to the labels that they are joined to.

    `better` is the link with a shift that corrects it, or the same link if it can be confirmed; or
    None.
    """

    def __init__(self, text: str, better: Link | None) -> None:
        super().__init__(text)
        self.better = better


def find_misfit(link: Link, join: Join, question: str = "") -> ValueError | None:
    """Return a `Misfit` if positions contradict a join, or if all ids are off by one.

    The `question` is whether the layer is the right one; positions can answer it. An error that is
    no `Misfit` says that most cells have no label, and that their positions do not prove the join.

    Positions and pixels are compared after an affine fit, so units, origin and directions of the
    axes do not matter.
    """
    where, places = positions(link.table.adata) or ("", None)
    asked = Misfit(question, link) if question else None
    if join.of.item != "label":
        return asked
    if ((share := _share_at_labels(join, places)) or 0) >= 0.5:
        return None
    missing = join.n_rows - join.n_joined
    text = f"{missing:,} of {join.n_rows:,} cells have no label in {link.layer.name}, which is left"
    cure = "as it is: the table may belong to another image; choose another layer or column"
    if missing > join.n_rows / 2:
        return InputError(f"{text} {cure}")
    text = (
        f"The positions in {where} contradict these ids: only {100 * (share or 0):.0f} % of the "
        "cells lie at their label"
    )
    for by in (-1, 1):
        better = replace(link, shift=link.shift + by)
        try:
            mended = better.make(join.of)
        except ValueError:  # The id 0 may repeat, but after the shift it is the id of a label.
            continue
        if share is None and mended.n_joined == mended.n_rows and not mended.n_unmatched_ids:
            return Misfit(
                f"The ids in {link.ids_name} are off by one: {better.ids_name} gives all labels of "
                f"{link.layer.name}.",
                better,
            )
        fit = _share_at_labels(mended, places) or 0
        if fit >= GOOD_FIT:
            return Misfit(f"{text}; with {better.ids_name} it would be {100 * fit:.0f} %.", better)
    if share is None or share >= BAD_FIT:
        return asked
    return Misfit(f"{text}. The ids may be those of another image.", None)


def _share_at_labels(join: Join, positions: NDArray[np.floating] | None) -> float | None:
    """Return the share of cells at the centers of their labels, after an affine fit.

    None if fewer than `MIN_COMPARED` cells have a position and a center.
    """
    centers = join.of.centers
    if positions is None or positions.shape[1] != centers.shape[1]:
        return None
    places, labels = positions[join.joined], join.centers(np.flatnonzero(join.joined))
    rows = np.flatnonzero(np.isfinite(np.hstack([places, labels])).all(axis=1))
    if len(rows) < MIN_COMPARED:
        return None
    rows = rows[:: math.ceil(len(rows) / MAX_COMPARED)]
    places, labels = places[rows], labels[rows]
    apart = np.linalg.norm(affine_residuals(labels, places), axis=1)
    centers = centers[np.isfinite(centers).all(axis=1)]
    nearest = np.asarray(cKDTree(centers).query(labels, k=2)[0])[:, 1]
    return float((apart < 0.75 * float(np.median(nearest))).mean())


@dataclass(frozen=True)
class TableImage:
    """One image of a table, or all images together."""

    value: object
    """Value in the column of images; None for all images."""
    n_cells: int
    link: Link | None = None
    """Link to the layer that shows it, or None."""
    join: Join | None = None
    """Join of that link; None if it failed."""
    remark: str = ""
    """A sentence on a fault of the link; empty without one."""

    @property
    def name(self) -> str:
        """Name of the image in the table."""
        return "all images" if self.value is None else name_of(self.value)

"""Rows of a table and ids of a layer, brought together by keys and never by position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from napari.layers import Labels, Layer, Points
from numpy.typing import ArrayLike, NDArray

from centroid_encoder.viewer.data.ids import ItemLayer, digest, label_ids, texts, whole_numbers
from centroid_encoder.viewer.data.regions import Region

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.viewer.data.tables import Table

OBS_NAMES = "obs_names"
"""Id column that stands for the names of the cells, unless there is a column of that name."""


@dataclass(frozen=True)
class Link:
    """What joins a table to one of the layers that show its cells.

    A table of many images has a link for each of them.
    """

    table: Table
    region: Region | None
    """The cells that the layer shows; None for all, in a table without a column of regions."""
    layer: Layer
    id_column: str | None
    """Column of ``obs`` with the cell's id in the layer, or `OBS_NAMES`; None if it is unknown."""
    shift: int = 0
    """What is added to the ids of the column: 1 if they count from 0 and labels from 1."""
    undecided: tuple[str | None, ...] = field(default=(), compare=False)
    """Columns of ids that all fit, but differently, while none is chosen."""
    unclear: bool = field(default=False, compare=False)
    """Whether the layer could show one of several regions, while none is chosen."""

    @property
    def ids_name(self) -> str:
        """What the ids are called in messages."""
        name = OBS_NAMES if self.id_column == OBS_NAMES else f"obs[{self.id_column!r}]"
        return f"{name} {self.shift:+}" if self.shift else name

    def ids(self) -> pd.Series:
        """Ids of all rows, as the table has them; a ValueError says what is wrong with them."""
        adata, name = self.table.adata, self.id_column
        if self.unclear and self.region is not None and self.region.value is None:
            raise ValueError(
                f"{self.layer.name} could show one of the images in obs[{self.region.column!r}] "
                "or all of them; choose what it shows"
            )
        if name is None and self.undecided:
            names = " and ".join(f"obs[{name!r}]" for name in self.undecided)
            raise ValueError(
                f"{names} could all hold the layer's ids, but join it to different cells; choose "
                "one of them"
            )
        if name is None:
            raise ValueError(
                "no column of the table seems to hold the layer's ids; choose one, or another layer"
            )
        if name in adata.obs:
            return adata.obs[name]
        if name == OBS_NAMES:
            return pd.Series(adata.obs_names, index=adata.obs_names)
        raise ValueError(f"obs has no column {name!r}; choose another one")

    def make(self, read: Callable[[Layer], LayerIds] | None = None) -> Join:
        """Find out which row is which label, point or shape.

        The ids of a Labels layer are the values in its image but 0, the background. Those of a
        Points or Shapes layer are a column of its features, of the same name as the id column or
        ``"index"``, or what napari-spatialdata keeps for it in ``metadata["indices"]``; the names
        of cells are compared with its feature ``"cell"``.

        Parameters
        ----------
        read
            What gives the ids of a layer, if they are known already.

        Raises
        ------
        ValueError
            If the link does not say which row is which: no column, one that is gone, that holds no
            ids, or the same id twice.
        """
        return _join(self, (read or LayerIds.of)(self.layer))


@dataclass(frozen=True, eq=False)
class Join:
    """Which row of a table is which label of an image, which point or shape; see `Link.make`."""

    ids: NDArray[np.int64]
    """(n_obs,) id of each row in the layer: the label's value, or the index of the point or shape.
    Without meaning where a row is not joined."""
    joined: NDArray[np.bool_]
    """(n_obs,) rows that are in the layer."""
    n_rows: int
    """Rows of the layer's region, in the layer or not."""
    n_unmatched_ids: int
    """Ids in the layer that no row has."""
    item: str
    """What the layer holds: ``"label"``, ``"point"`` or ``"shape"``."""
    known: NDArray[np.int64] = field(repr=False)
    """Ids of the layer, of cells or not."""
    _row: NDArray[np.intp] = field(repr=False)
    pixels: int = 0
    """What tells an image of labels from others with the same ids."""

    @property
    def n_joined(self) -> int:
        """Rows that are in the layer."""
        return int(self.joined.sum())

    def is_like(self, other: Join) -> bool:
        """Tell whether another join says the same of the same pixels."""
        return (
            self.pixels == other.pixels
            and np.array_equal(self.known, other.known)
            and np.array_equal(self.joined, other.joined)
            and np.array_equal(self.ids, other.ids)
        )

    def rows(self, ids: ArrayLike) -> NDArray[np.intp]:
        """Row of each id; −1 where there is none, as for the background."""
        wanted = np.asarray(ids, dtype=np.int64)
        if not len(self.known):
            return np.full(wanted.shape, -1, dtype=np.intp)
        at = np.searchsorted(self.known, wanted).clip(max=len(self.known) - 1)
        return np.where(self.known[at] == wanted, self._row[at], -1)

    def __str__(self) -> str:
        n_obs = len(self.joined)
        part = f" of {n_obs:,}" if self.n_rows < n_obs else ""
        where = "the image" if self.item == "label" else "the layer"
        return (
            f"{self.n_rows:,}{part} cell{'s' * (n_obs != 1)}; "
            f"{self.n_rows - self.n_joined:,} without a {self.item} in {where}; "
            f"{self.n_unmatched_ids:,} {self.item}{'s' * (self.n_unmatched_ids != 1)} "
            "without a row"
        )


@dataclass(frozen=True)
class LayerIds:
    """The ids of a layer, read once for all columns that are tried on them."""

    item: str
    ids: NDArray[np.int64]
    """Sorted: the labels, or the indices of the points or shapes."""
    pixels: int = 0
    """What tells an image of labels from others with the same ids."""

    @classmethod
    def of(cls, layer: Layer) -> LayerIds:
        """Read them; a ValueError says that the layer has none."""
        if isinstance(layer, Labels):
            image = layer.data[0] if layer.multiscale else layer.data
            return cls("label", label_ids(layer), digest(image))
        if isinstance(layer, ItemLayer):
            item = "point" if isinstance(layer, Points) else "shape"
            return cls(item, np.arange(len(layer.data)))
        raise ValueError(
            f"{layer.name} holds neither labels nor points nor shapes; choose another layer"
        )

    def find(self, link: Link, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Index into `ids` of each of the rows; −1 for rows that are not in the layer."""
        column, name = link.ids().iloc[rows], link.ids_name
        known: NDArray[Any]
        values: NDArray[Any]
        if isinstance(link.layer, ItemLayer):
            items = _item_ids(link.layer, self.item, link)
            try:
                values, there = whole_numbers(column, name)
                known, has_id = whole_numbers(items, "features")
            except ValueError:
                (values, there), (known, has_id) = texts(column), texts(items)
        else:
            values, there = whole_numbers(column, name, prefixed=True)
            # Not in place: pandas 3 lends its arrays for reading only.
            values = values + link.shift
            there = there & (values != 0)
            known, has_id = self.ids, np.ones(len(self.ids), dtype=bool)
        index = pd.Index(known[has_id])
        if not index.is_unique:
            several = index[index.duplicated()][0]
            raise ValueError(
                f"several {self.item}s have the id {several}; give every {self.item} its own"
            )
        ids = pd.Series(values[there])
        repeated = ids[ids.duplicated()].unique()
        if len(repeated):
            raise ValueError(_repeated(repeated, link, self.item))
        found = np.full(len(rows), -1, dtype=np.intp)
        # −1, not found, is the last one here.
        found[there] = np.append(np.flatnonzero(has_id), -1)[index.get_indexer(ids)]
        return found


def _join(link: Link, layer: LayerIds) -> Join:
    n_obs, rows = link.table.adata.n_obs, _rows_of_region(link)
    found = layer.find(link, rows)
    joined = np.zeros(n_obs, dtype=bool)
    joined[rows] = found >= 0
    found = found[found >= 0]
    ids = np.zeros(n_obs, dtype=np.int64)
    ids[joined] = layer.ids[found]
    row = np.full(len(layer.ids), -1, dtype=np.intp)
    row[found] = np.flatnonzero(joined)
    n_unmatched_ids = int((row < 0).sum())
    return Join(ids, joined, len(rows), n_unmatched_ids, layer.item, layer.ids, row, layer.pixels)


def _rows_of_region(link: Link) -> NDArray[np.intp]:
    obs, region = link.table.adata.obs, link.region
    if region is None or region.value is None:
        return np.arange(len(obs))
    if region.column not in obs:
        raise ValueError(f"obs has no column {region.column!r}; choose another one")
    codes, values = pd.factorize(obs[region.column])
    wanted = [str(value) == str(region.value) for value in values]
    return np.flatnonzero(np.append(wanted, False).astype(bool)[codes])


def _repeated(values: NDArray[Any], link: Link, item: str) -> str:
    names = ", ".join(str(value) for value in values[:3])
    more = f" and {len(values) - 3:,} more" if len(values) > 3 else ""
    cure = "another column"
    if link.region is not None and link.region.value is None:
        cure += ", or the region that the layer shows"
    return f"{link.ids_name} gives several cells the same {item}: {names}{more}; choose {cure}"


# -- points and shapes ---------------------------------------------------------------------------


def _item_ids(layer: ItemLayer, item: str, link: Link) -> pd.Series:
    """Id of each point or shape, to be compared with those of the table."""
    adata, features, indices = link.table.adata, layer.features, layer.metadata.get("indices")
    if link.id_column == OBS_NAMES and OBS_NAMES not in adata.obs:
        if "cell" in features:
            return features["cell"]
        _check_unmoved(features, item, adata)
        return pd.Series(np.arange(len(features)))
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


def _check_unmoved(features: pd.DataFrame, item: str, adata: AnnData) -> None:
    """Check that the cells are numbered as the items are: that their measurements agree."""
    names = [name for name in features if str(name) in adata.var_names]
    numeric = all(pd.api.types.is_numeric_dtype(features[name].dtype) for name in names)
    if not names or not numeric or not adata.var_names.is_unique:
        raise ValueError(f"the {item}s do not say which cell is which; choose a column of ids")
    numbers, there = whole_numbers(pd.Series(adata.obs_names), OBS_NAMES)
    inside = bool((there & (numbers >= 0) & (numbers < len(features))).all())
    if inside:
        now = features[names].to_numpy(dtype=np.float64, na_value=np.nan)[numbers]
        then = adata[:, [str(name) for name in names]].to_df().to_numpy(dtype=np.float64)
        inside = np.array_equal(now, then, equal_nan=True)
    if not inside:
        raise ValueError(
            f"the {item}s or their features have changed since the table was made of them; choose "
            "the table that is made of them now"
        )

"""Rows of a table and ids of a layer, brought together by keys and never by position."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd
from napari.layers import Labels, Layer, Points
from numpy.typing import ArrayLike, NDArray

from centroid_encoder.viewer.data.ids import INSTANCE_KEYS, label_ids, named, texts, whole_numbers

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.viewer.data.tables import Table

OBS_NAMES = "obs_names"
"""Id column that stands for the names of the cells, unless there is a column of that name."""

REGION_KEYS = (
    "region", "libraryid", "fov", "fovname", "imageid", "image", "imagename", "slideid", "slide",
    "sampleid", "sample",
)  # fmt: skip
MANY = 1000
"""Regions that no table has; what has more is no column of regions."""


class Region(NamedTuple):
    """A part of a table: the cells of one image."""

    column: str
    """Column of ``obs`` that says which region a cell is in."""
    value: object = None
    """Its value for these cells; None takes the cells of all regions."""


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

    def make(self) -> Join:
        """Find out which row is which label or point.

        The ids of a Labels layer are the values in its image but 0, the background. Those of a
        Points layer are a column of its features, of the same name as the id column or
        ``"index"``, or what napari-spatialdata keeps for it in ``metadata["indices"]``; the names
        of cells are compared with its feature ``"cell"``.

        Raises
        ------
        ValueError
            If the link does not say which row is which: no column, one that is gone, that holds no
            ids, or the same id twice.
        """
        return _join(self, _Ids.of(self.layer))


@dataclass(frozen=True, eq=False)
class Join:
    """Which row of a table is which label of an image, or which point; see `Link.make`."""

    ids: NDArray[np.int64]
    """(n_obs,) id of each row in the layer: the label's value or the point's index. Without
    meaning where a row is not joined."""
    joined: NDArray[np.bool_]
    """(n_obs,) rows that are in the layer."""
    n_rows: int
    """Rows of the layer's region, in the layer or not."""
    n_unmatched_ids: int
    """Ids in the layer that no row has."""
    item: str
    """What the layer holds: ``"label"`` or ``"point"``."""
    _known: NDArray[np.int64] = field(repr=False)
    _row: NDArray[np.intp] = field(repr=False)

    @property
    def n_joined(self) -> int:
        """Rows that are in the layer."""
        return int(self.joined.sum())

    def rows(self, ids: ArrayLike) -> NDArray[np.intp]:
        """Row of each id; −1 where there is none, as for the background."""
        wanted = np.asarray(ids, dtype=np.int64)
        if not len(self._known):
            return np.full(wanted.shape, -1, dtype=np.intp)
        at = np.searchsorted(self._known, wanted).clip(max=len(self._known) - 1)
        return np.where(self._known[at] == wanted, self._row[at], -1)

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


def guess(table: Table, layer: Layer) -> Link:
    """Guess what joins a table to a layer.

    What SpatialData declares comes first, in ``uns["spatialdata_attrs"]`` or in the layer's
    metadata; else columns of ids are known by their names and by their values, of which at least
    half must be in the layer, or, for a table of more than the layer shows, the other way round.

    Returns
    -------
    Link
        Its ``id_column`` is None if no column fits.
    """
    adata, declared = table.adata, _declared(table.adata, layer)
    region = _guess_region(adata, layer, declared.get("region_key"))
    fallback = Link(table, region, layer, declared.get("instance_key"))
    try:
        ids = _Ids.of(layer)
    except ValueError:
        # It is said when the link is made.
        return fallback
    for column in _id_columns(adata, layer, fallback.id_column):
        link = Link(table, region, layer, column)
        try:
            join = _join(link, ids)
        except ValueError:
            continue
        # A single common value is no evidence where there could be more.
        enough = max(min(2, join.n_rows), min(join.n_rows, len(ids.ids)) / 2)
        if join.n_joined >= (1 if column == fallback.id_column else enough):
            return link
    return fallback


def guess_link(
    table: Table,
    layers: Sequence[Layer],
    guess: Callable[[Table, Layer], Link] = guess,
) -> Link | None:
    """Guess which layer shows a table: the one it was found on, else that with most of its cells.

    Points that were made of the table itself come last: where the image is, there are labels.

    Parameters
    ----------
    table
        The table.
    layers
        Layers to choose from.
    guess
        What gives the link to a layer; default: the function `guess`.

    Returns
    -------
    Link or None
        None if none of the layers holds any of the cells.
    """
    own = next((guess(table, layer) for layer in layers if layer is table.layer), None)
    if table.origin == "features" or (own is not None and isinstance(own.layer, Labels)):
        return own
    links = [guess(table, layer) for layer in layers if own is None or isinstance(layer, Labels)]
    counts = [_n_joined(link) for link in links]
    most = max(counts, default=0)
    if own is not None and most <= table.adata.n_obs / 2:
        return own
    return links[counts.index(most)] if most else None


def _n_joined(link: Link) -> int:
    try:
        return link.make().n_joined
    except ValueError:
        return 0


@dataclass(frozen=True)
class _Ids:
    """The ids of a layer, read once for all columns that are tried on them."""

    layer: Layer
    item: str
    ids: NDArray[np.int64]
    """Sorted: the labels, or the indices of the points."""

    @classmethod
    def of(cls, layer: Layer) -> _Ids:
        if isinstance(layer, Labels):
            return cls(layer, "label", label_ids(layer))
        if isinstance(layer, Points):
            return cls(layer, "point", np.arange(len(layer.data)))
        raise ValueError(f"{layer.name} holds neither labels nor points; choose another layer")

    def find(self, link: Link, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Index into `ids` of each of the rows; −1 for rows that are not in the layer."""
        column, name = _column(link).iloc[rows], _name(link)
        known: NDArray[Any]
        values: NDArray[Any]
        if isinstance(self.layer, Points):
            points = _point_ids(self.layer, link)
            try:
                values, there = whole_numbers(column, name)
                known, has_id = whole_numbers(points, "features")
            except ValueError:
                (values, there), (known, has_id) = texts(column), texts(points)
        else:
            values, there = whole_numbers(column, name)
            there &= values != 0
            known, has_id = self.ids, np.ones(len(self.ids), dtype=bool)
        index = pd.Index(known[has_id])
        if not index.is_unique:
            several = index[index.duplicated()][0]
            raise ValueError(f"several points have the id {several}; give every point its own")
        ids = pd.Series(values[there])
        repeated = ids[ids.duplicated()].unique()
        if len(repeated):
            raise ValueError(_repeated(repeated, link, self.item))
        found = np.full(len(rows), -1, dtype=np.intp)
        # −1, not found, is the last one here.
        found[there] = np.append(np.flatnonzero(has_id), -1)[index.get_indexer(ids)]
        return found


def _join(link: Link, layer: _Ids) -> Join:
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
    return Join(ids, joined, len(rows), n_unmatched_ids, layer.item, layer.ids, row)


def _name(link: Link) -> str:
    return OBS_NAMES if link.id_column == OBS_NAMES else f"obs[{link.id_column!r}]"


def _column(link: Link) -> pd.Series:
    """Ids of all rows, as the table has them."""
    adata, name = link.table.adata, link.id_column
    if name is None:
        raise ValueError(
            f"no column of the table seems to hold the ids of {link.layer.name}; choose one, or "
            "another layer"
        )
    if name in adata.obs:
        return adata.obs[name]
    if name == OBS_NAMES:
        return pd.Series(adata.obs_names, index=adata.obs_names)
    raise ValueError(f"obs has no column {name!r}; choose another one")


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
    return f"{_name(link)} gives several cells the same {item}: {names}{more}; choose {cure}"


# -- points --------------------------------------------------------------------------------------


def _point_ids(layer: Points, link: Link) -> pd.Series:
    """Id of each point, to be compared with those of the table."""
    adata, features, indices = link.table.adata, layer.features, layer.metadata.get("indices")
    if link.id_column == OBS_NAMES and OBS_NAMES not in adata.obs:
        if "cell" in features:
            return features["cell"]
        _check_unmoved(features, adata)
        return pd.Series(np.arange(len(features)))
    if link.id_column in features:
        return features[link.id_column]
    if isinstance(indices, Sequence | np.ndarray | pd.Index) and len(indices) == len(layer.data):
        return pd.Series(indices)
    if "index" in features:
        return features["index"]
    raise ValueError(
        f"the points have no ids to compare {_name(link)} with; give the layer a feature "
        f"{link.id_column!r}, or choose another column"
    )


def _check_unmoved(features: pd.DataFrame, adata: AnnData) -> None:
    """Check that the cells are numbered as the points are: that their measurements agree."""
    names = [name for name in features if str(name) in adata.var_names]
    numeric = all(pd.api.types.is_numeric_dtype(features[name].dtype) for name in names)
    if not names or not numeric or not adata.var_names.is_unique:
        raise ValueError("the points do not say which cell is which; choose a column of ids")
    numbers, there = whole_numbers(pd.Series(adata.obs_names), OBS_NAMES)
    inside = bool((there & (numbers >= 0) & (numbers < len(features))).all())
    if inside:
        now = features[names].to_numpy(dtype=np.float64, na_value=np.nan)[numbers]
        then = adata[:, [str(name) for name in names]].to_df().to_numpy(dtype=np.float64)
        inside = np.array_equal(now, then, equal_nan=True)
    if not inside:
        raise ValueError(
            "the points or their features have changed since the table was made of them; choose "
            "the table that is made of them now"
        )


# -- guesses -------------------------------------------------------------------------------------


def _declared(adata: AnnData, layer: Layer) -> dict[str, str]:
    """Columns that SpatialData's own metadata name, or napari's rule for features."""
    attrs = adata.uns.get("spatialdata_attrs")
    sources = [attrs if isinstance(attrs, Mapping) else {}, layer.metadata]
    features = getattr(layer, "features", pd.DataFrame())
    own = adata.n_vars and set(adata.var_names) <= set(map(str, features))
    if own and len(features) == adata.n_obs:
        sources.append({"instance_key": "index"})
    declared: dict[str, str] = {}
    for name in ("region_key", "instance_key"):
        columns = [source[name] for source in sources if source.get(name) in adata.obs]
        if columns:
            declared[name] = str(columns[0])
    return declared


def _id_columns(adata: AnnData, layer: Layer, declared: str | None) -> list[str]:
    """Columns that may hold the ids, the likelier first."""
    columns = named(adata.obs, INSTANCE_KEYS)
    # pandas, too, calls numbers of rows so, which are nobody's ids.
    if "index" in columns and np.array_equal(adata.obs["index"], np.arange(adata.n_obs)):
        columns.remove("index")
    if isinstance(layer, Points):
        # Without names of cells, points are compared with cells last: by all they have.
        columns = [*[OBS_NAMES] * ("cell" in layer.features), *columns, OBS_NAMES]
    return list(dict.fromkeys([declared, *columns] if declared is not None else columns))


def _guess_region(adata: AnnData, layer: Layer, declared: str | None) -> Region | None:
    """Column of regions, and which of them the layer shows: None of them if that is not clear."""
    names = [str(name) for name in (layer.metadata.get("name"), layer.name) if name]
    columns = named(adata.obs, REGION_KEYS) if declared is None else [declared]
    regions = {column: list(pd.unique(adata.obs[column].dropna())) for column in columns}
    regions = {column: values for column, values in regions.items() if 0 < len(values) < MANY}
    for column, values in regions.items():
        shown = [value for name in names for value in values if str(value) == name]
        if shown:
            return Region(column, shown[0])
    for column, values in regions.items():
        if len(values) > 1:
            return Region(column)
    return next((Region(column, values[0]) for column, values in regions.items()), None)

"""Guesses what joins a table to layers: only by evidence, and never where it is not clear."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from napari.layers import Labels, Layer

from centroid_encoder.viewer.data.ids import INSTANCE_KEYS, ItemLayer, named, whole_numbers
from centroid_encoder.viewer.data.join import OBS_NAMES, Join, LayerIds, Link
from centroid_encoder.viewer.data.regions import MANY, Region, guess_region

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.viewer.data.tables import Table

CERTAIN = 20
"""Cells of a region from which on it is no accident that a layer has exactly their ids."""


ONE_IMAGE = ""
"""Column of regions of a table whose cells are all in one image, as the user says."""


class Columns(NamedTuple):
    """Columns of ``obs`` by which the user has joined a table to a layer."""

    ids: str | None
    shift: int = 0
    regions: str | None = None
    """None if they are not known, `ONE_IMAGE` if there are none."""


def guess(
    table: Table,
    layer: Layer,
    read: Callable[[Layer], LayerIds] | None = None,
    like: Columns | None = None,
    shows: Region | None = None,
) -> Link:
    """Guess what joins a table to a layer.

    The columns that join it to another layer by the user's choice come first; then those that
    SpatialData declares, in ``uns["spatialdata_attrs"]`` or in the layer's metadata; else columns
    of ids are known by their names and by their values, of which at least half must be in the
    layer, or, for a table of more than the layer shows, the other way round.

    In a table of several images, a layer whose name is that of none shows all of them if it has at
    least half of the cells of each, or the one that has exactly its ids. Otherwise it is for the
    user to say what it shows: ids that begin at 1 are in every image.

    Parameters
    ----------
    table, layer
        What to join.
    read
        What gives the ids of a layer, if they are known already.
    like
        How the user joined the table to another layer.
    shows
        What the layer shows, if it is known.

    Returns
    -------
    Link
        Its ``id_column`` is None if no column fits.
    """
    adata, declared = table.adata, _declared(table.adata, layer)
    if like is not None:
        chosen = {"instance_key": like.ids, "region_key": like.regions}
        declared |= {name: str(column) for name, column in chosen.items() if column in adata.obs}
    is_one = shows is None and like is not None and like.regions == ONE_IMAGE
    region = shows
    if shows is None and not is_one:
        region = guess_region(adata.obs, layer, declared.get("region_key"))
    first, shift = declared.get("instance_key"), 0 if like is None else like.shift
    many = (
        shows is None and isinstance(layer, Labels) and region is not None and region.value is None
    )
    fallback = Link(table, region, layer, first, shift, unclear=many and first is not None)
    try:
        ids = (read or LayerIds.of)(layer)
    except ValueError:
        # It is said when the link is made.
        return fallback
    columns = _id_columns(adata, layer, first)
    links = [Link(table, region, layer, name, shift * (name == first)) for name in columns]
    fitting: list[tuple[Link, Join]] = []
    for link in links:
        try:
            join = link.make(lambda _: ids)
        except ValueError:
            continue
        # A single common value is no evidence where there could be more.
        enough = max(min(2, join.n_rows), min(join.n_rows, len(ids.ids)) / 2)
        if many and not _has_of_each(join, region, adata):
            continue
        if not many and link == fallback and like is None:
            enough = 1
        if join.n_joined >= enough:
            fitting.append((link, join))
    if not isinstance(layer, Labels) or (fitting and fitting[0][0].id_column == first):
        return fitting[0][0] if fitting else fallback
    if fitting:
        return _only(fitting)
    if is_one:
        return fallback
    if shows is not None:
        return fallback if links == [] else links[0]
    for link in links:
        for column in _columns_of_regions(link) if region is None else [region.column]:
            place = guess_region(adata.obs, layer, column)
            found = _of_a_region(replace(link, region=place), ids)
            if found is not None:
                return found
    return fallback


def _has_of_each(join: Join, region: Region | None, adata: AnnData) -> bool:
    """Tell whether at least half of the cells of each image are joined."""
    if region is None:
        return True
    shares = pd.Series(join.joined).groupby(adata.obs[region.column].to_numpy()).mean()
    return bool((shares >= 0.5).all())


def _only(fitting: list[tuple[Link, Join]]) -> Link:
    """Return the first link, if no other one that fits as well says something else."""
    link, join = fitting[0]
    others = [
        other.id_column
        for other, its in fitting[1:]
        if its.n_joined >= join.n_joined
        and not np.array_equal(its.ids * its.joined, join.ids * join.joined)
    ]
    if not others:
        return link
    return replace(link, id_column=None, undecided=(link.id_column, *others))


def _columns_of_regions(link: Link) -> Iterator[str]:
    """Columns that tell apart the cells with one id, as those of regions do."""
    obs = link.table.adata.obs
    if link.id_column not in obs:
        return
    ids = obs[link.id_column]
    if not ids.duplicated().any():
        return
    for name in obs:
        column = obs[name]
        if name == link.id_column or pd.api.types.is_float_dtype(column.dtype):
            continue
        if 1 < column.nunique() < MANY and not pd.DataFrame({0: column, 1: ids}).duplicated().any():
            yield str(name)


def _of_a_region(link: Link, ids: LayerIds) -> Link | None:
    """Find the region that a layer shows, by its name or as the only one with exactly its ids.

    Returns
    -------
    Link or None
        The link to that region, or to all of them if there is no such region but one with half of
        the ids in the layer: it is for the user to say which one it is. None without ids.
    """
    if link.region is None:
        return None
    try:
        values, there = whole_numbers(link.ids(), link.ids_name, prefixed=True)
    except ValueError:
        return None
    values = values + link.shift
    cells = pd.DataFrame({"id": values, "known": np.isin(values, ids.ids)})
    regions = link.table.adata.obs[link.region.column].to_numpy()
    found = cells[there & (values != 0)].groupby(regions[there & (values != 0)])
    found = found.agg(n=("id", "size"), different=("id", "nunique"), known=("known", "sum"))
    found = found[(found["n"] == found["different"]) & (found["known"] >= found["n"] / 2)]
    if link.region.value is not None:
        return link if link.region.value in found.index else None
    same = found[(found["known"] == len(ids.ids)) & (found["known"] == found["n"])]
    if len(same) == 1 and len(ids.ids) >= CERTAIN:
        return replace(link, region=link.region._replace(value=same.index[0]))
    return replace(link, unclear=True) if len(found) else None


def guess_link(
    table: Table,
    links: Sequence[Link],
    read: Callable[[Layer], LayerIds] | None = None,
) -> Link | None:
    """Guess which layer shows a table: the one it was found on, else that with most of its cells.

    Points that were made of the table itself come last: where the image is, there are labels.

    Parameters
    ----------
    table
        The table.
    links
        What would join it to each of the layers.
    read
        What gives the ids of a layer, if they are known already.

    Returns
    -------
    Link or None
        None if none of the layers holds any of the cells.
    """
    own = next((link for link in links if link.layer is table.layer), None)
    if table.origin == "features" or (own is not None and isinstance(own.layer, Labels)):
        return own
    if own is not None:
        links = [link for link in links if isinstance(link.layer, Labels)]
    joins = [_join(link, read) for link in links]
    # With as many cells in several, the one with the fewest labels beside them.
    found = [
        (join.n_joined, -join.n_unmatched_ids, -i)
        for i, join in enumerate(joins)
        if join is not None and join.n_joined
    ]
    most, _, at = max(found, default=(0, 0, 0))
    if own is not None and most <= table.adata.n_obs / 2:
        return own
    if most:
        return links[-at]
    # The user can say which region a layer shows, and by which ids.
    unclear = (link for link, join in zip(links, joins, strict=True) if join is None)
    asked = (u for u in unclear if u.undecided or (u.region and u.id_column is not None))
    return next(asked, None)


def _join(link: Link, read: Callable[[Layer], LayerIds] | None) -> Join | None:
    try:
        return link.make(read)
    except ValueError:
        return None


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
    if isinstance(layer, ItemLayer):
        # Without names of cells, points are compared with cells last: by all they have.
        columns = [*[OBS_NAMES] * ("cell" in layer.features), *columns, OBS_NAMES]
    return list(dict.fromkeys([declared, *columns] if declared is not None else columns))

"""Find the tables of cells in a viewer, and turn features of layers into tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast, get_args
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from anndata import AnnData
from napari.layers import Labels, Layer

from centroid_encoder.tables import (
    ID_NAMES,
    as_obs,
    cv_key,
    embedding_key,
    frame_to_anndata,
    obs_key,
    result_columns,
)
from centroid_encoder.viewer.data.columns import NUMBER, are_ids, named
from centroid_encoder.viewer.data.ids import CellLayer

Origin = Literal["spatialdata", "metadata", "file", "features", "notebook"]
"""Place where a table was found; the list of tables has this order."""
DRAWN = "centroid_encoder_drawn"
"""Key in the metadata of the layers that the widget draws; they have no cells of their own."""
BEFORE = " (before the change)"
"""End of the name of a table that its layer no longer holds."""
NOT_SHOWN = object()
"""Stands for the image of a layer if the user chose that it shows nothing of the table."""


@dataclass(eq=False, repr=False)
class Table:
    """A table of cells and the place where it was found.

    Tables are compared by identity, so that results are written into the table that was trained
    on, even if the user has chosen another one since.
    """

    adata: AnnData
    """The AnnData itself, not a copy: results are written into it."""
    name: str
    """Name in the list of tables."""
    layer: Layer | None = None
    """Layer that holds it."""
    origin: Origin = "notebook"
    path: Path | None = None
    """File that it was read from or last saved to."""
    sdata: Any = None
    """SpatialData object that contains it."""
    table_name: str | None = None
    """Its name in the SpatialData object."""
    ids: tuple[str, int] | None = None
    """Column of ids that the user chose, and the number that is added to them."""
    image_column: str | None = None
    """Column of images that the user chose, or `ONE_IMAGE`."""
    images: WeakKeyDictionary[Layer, object] = field(default_factory=WeakKeyDictionary)
    """Image that each layer shows: None for all images, or `NOT_SHOWN`; the latest comes last."""
    declined: bool = False
    """Whether the user chose that no layer shows the table."""
    unsaved: bool = False
    """Whether results or labels were written into it since it was opened or saved."""
    features: pd.DataFrame | None = None
    """Copy of the features that it was made of, with the names of the cells."""
    added: set[str] = field(default_factory=set)
    """Columns of ``obs`` that others have added to these features."""

    @property
    def declared(self) -> Mapping[str, Any]:
        """The entries of ``uns["spatialdata_attrs"]``, where SpatialData names columns."""
        attrs = self.adata.uns.get("spatialdata_attrs")
        return attrs if isinstance(attrs, Mapping) else {}

    def is_made_of(self, features: pd.DataFrame) -> bool:
        """Return whether the table was made of these features; further columns do not matter."""
        mine = self.features
        if mine is None or len(features) != len(mine) or not set(mine) <= set(features):
            return False
        return bool(features[list(mine)].set_axis(mine.index).equals(mine))


def find_tables(layers: Iterable[Layer], known: list[Table]) -> list[Table]:
    """Return the tables of layers and the known tables, in the order of `Origin`.

    An AnnData that is in several places gives one table, with the first layer that can show its
    cells. A known table stays the same object. It also stays if its layer was removed; one of
    features, or one that its layer no longer holds, stays only with unsaved results.
    """
    # Layers that can show cells come first; an Image layer can hold an AnnData, too.
    layers = sorted(layers, key=lambda layer: not isinstance(layer, CellLayer))
    places = [place for layer in layers for place in _tables_of(layer, known)]
    found: list[Table] = []
    for place in sorted(places, key=lambda place: place.origin != "spatialdata"):
        table = next((t for t in [*found, *known] if t.adata is place.adata), place)
        if table not in found:
            table.name, table.layer, table.origin = place.name, place.layer, place.origin
            table.sdata, table.table_name = place.sdata, place.table_name
            found.append(table)
        # Keep the file that the table was last saved to.
        table.path = table.path or place.path
    for table in (table for table in known if table not in found):
        is_replaced = table.layer in layers
        if table.unsaved or not (is_replaced or (table.origin == "features" and table.layer)):
            table.name = re.sub(NUMBER, "", table.name) + BEFORE * is_replaced
            table.layer = None
            found.append(table)
    found.sort(key=lambda table: get_args(Origin).index(table.origin))
    names: Counter[str] = Counter()
    for table in found:
        names[table.name] += 1
        if names[table.name] > 1:
            # napari numbers layers of the same name in this way.
            table.name += f" [{names[table.name] - 1}]"
    return found


def is_drawn(layer: Layer) -> bool:
    """Return whether the widget has drawn this layer."""
    return DRAWN in layer.metadata


def _tables_of(layer: Layer, known: list[Table]) -> Iterator[Table]:
    """Yield the tables of the layer's SpatialData object or its AnnData, and of its features."""
    sdata, adata, path = (layer.metadata.get(key) for key in ("sdata", "adata", "path"))
    tables = getattr(sdata, "tables", None)
    element = layer.metadata.get("name") or layer.name
    for name, annotating in tables.items() if isinstance(tables, Mapping) else ():
        title = f"{name} ({layer.name})"
        table = Table(annotating, title, layer, "spatialdata", sdata=sdata, table_name=name)
        regions = table.declared.get("region")
        if element in ([regions] if isinstance(regions, str) else list(regions or ())):
            # `adata` is a copy of this table, which napari-spatialdata has made.
            adata = None
            yield table
    if isinstance(adata, AnnData) and isinstance(path, str | Path):
        yield Table(adata, Path(path).name, layer, "file", Path(path))
    elif isinstance(adata, AnnData):
        yield Table(adata, f"{layer.name}: AnnData", layer, "metadata")
    if isinstance(layer, CellLayer):
        yield from _of_features(layer, known)


def _of_features(layer: CellLayer, known: list[Table]) -> Iterator[Table]:
    """Yield the known table of a layer's features, or a new one; none without measurements.

    Without results, a table is made again when others add columns, which may be measurements. With
    results, these columns are copied into ``obs``, but replace none that was there before.
    """
    features, name = layer.features, f"{layer.name}: features"
    for table in known:
        if table.layer in (layer, None) and table.is_made_of(features):
            mine = cast("pd.DataFrame", table.features)
            others = features.columns.difference([*mine, *result_columns(features)], sort=False)
            if others.empty or table.unsaved or table.path is not None:
                obs = table.adata.obs
                for column in others:
                    # Labels that are given here are not replaced.
                    if (text := str(column)) not in obs or text in table.added:
                        obs[text] = as_obs(features[column]).set_axis(mine.index)
                        table.added.add(text)
                yield replace(table, name=name, layer=layer, origin="features")
                return
    # It takes long to make a table of the names of many cells.
    numbers = features.select_dtypes("number")
    if len(named(numbers, ID_NAMES)) < len(numbers.columns):
        adata = features_to_anndata(features, of_labels=isinstance(layer, Labels))
        if adata.n_vars:
            made_of = features.set_axis(adata.obs_names)
            yield Table(adata, name, layer, "features", features=made_of)


def features_to_anndata(features: pd.DataFrame, *, of_labels: bool) -> AnnData:
    """Return a layer's features as a table of cells; see `frame_to_anndata`.

    If the features of a Labels layer have no ids, ``obs["index"]`` follows napari's rule: the first
    row is label 0, the second label 1, and so on.
    """
    adata = frame_to_anndata(features, names=False)
    if of_labels and "index" not in adata.obs and not are_ids(adata.obs):
        adata.obs["index"] = np.arange(adata.n_obs)
    index = adata.obs.get("index")
    if index is not None and index.notna().all() and index.is_unique:
        adata.obs_names = index.astype(str)
        adata.obs_names.name = None
    return adata


def publish(table: Table, key: str) -> None:
    """Add the result `key` to the features that a table was made of, unless they have changed."""
    layer, adata = table.layer, table.adata
    if not isinstance(layer, CellLayer) or not table.is_made_of(layer.features):
        return
    if table.features is None or not table.features.index.equals(adata.obs_names):
        return
    features = layer.features
    names = obs_key(key, "split"), obs_key(key, "label"), obs_key(cv_key(key), "label")
    columns = {name: adata.obs[name].array for name in names if name in adata.obs}
    # A cross-validation alone has no embedding.
    embedding = adata.obsm.get(embedding_key(key), np.empty((len(features), 0)))
    for i, values in enumerate(embedding.T, start=1):
        # Do not replace a measurement of the same name.
        if (name := f"{'CE' if key == 'ce' else key}{i}") not in adata.var_names:
            columns[name] = values
    layer.features = features.assign(**columns)

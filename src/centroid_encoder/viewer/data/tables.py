"""Tables of cells in a viewer: where they are found, and features of layers as tables."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from anndata import AnnData
from napari.layers import Labels, Layer

from centroid_encoder.tl._result import cv_key, embedding_key, keys_in, obs_key
from centroid_encoder.viewer.data.columns import ID_NAMES, are_ids, axis, named
from centroid_encoder.viewer.data.ids import CellLayer, ItemLayer

logger = logging.getLogger("centroid_encoder")

Origin = Literal["spatialdata", "metadata", "file", "features", "notebook"]
"""Place where a table is found, in the order of listing."""
DRAWN = "centroid_encoder_drawn"
"""Key in the metadata of a layer that is drawn on top of another one, and has no cells itself."""
NOT_SHOWN = object()
"""Image of a layer that shows nothing of the table, by the choice of the user."""
WITH_POSITIONS = "with positions"
"""Key in ``obsm`` of all numbers of a layer's features, positions included."""


@dataclass
class Choices:
    """Choices of the user for one table; everything else is guessed."""

    ids: tuple[str, int] | None = None
    """Column of ids, and the number that is added to them."""
    image_column: str | None = None
    images: WeakKeyDictionary[Layer, object] = field(default_factory=WeakKeyDictionary)
    """The image that a layer shows, None for all of them, or `NOT_SHOWN`; the latest comes last."""
    declined: bool = False
    """Whether no layer is to show the table."""


@dataclass(eq=False, repr=False)
class Table:
    """A table of cells and the place where it was found.

    Tables are compared by identity: results go to the table they were trained on, whatever is
    chosen meanwhile.
    """

    adata: AnnData
    """The AnnData itself, not a copy: results are written into it."""
    name: str
    """Name in the list of tables."""
    layer: Layer | None = None
    """Layer it was found on."""
    origin: Origin = "notebook"
    path: Path | None = None
    """The file it came from, or was last saved to."""
    sdata: Any = None
    """The SpatialData object it is a table of."""
    table_name: str | None = None
    """Its name in the SpatialData object."""
    choices: Choices = field(default_factory=Choices)
    _features: pd.DataFrame | None = None
    _columns: tuple[Any, ...] = ()

    @property
    def declared(self) -> Mapping[str, Any]:
        """Columns that SpatialData declares in ``uns["spatialdata_attrs"]``; empty without it."""
        attrs = self.adata.uns.get("spatialdata_attrs")
        return attrs if isinstance(attrs, Mapping) else {}

    def is_made_of(self, features: pd.DataFrame) -> bool:
        """Tell whether these features are the table's, nothing added and nothing replaced."""
        same: bool = features is self._features
        return same and tuple(features.columns) == self._columns

    def follow(self, features: pd.DataFrame) -> None:
        """Take these features for the table's own from now on."""
        self._features, self._columns = features, tuple(features.columns)


def find_tables(
    layers: Iterable[Layer], opened: Iterable[Table], known: Iterable[Table]
) -> list[Table]:
    """Find the tables of layers and those that were opened, in the order of `Origin`.

    An AnnData in several places is listed once, with the first layer that can show its cells. A
    table that is known already stays the same object.
    """
    known = list(known)
    # Images carry AnnData too, but no cells.
    layers = sorted(layers, key=lambda layer: not isinstance(layer, CellLayer))
    places = [*(place for layer in layers for place in _tables_of(layer, known)), *opened]
    found: list[Table] = []
    for place in sorted(places, key=lambda place: place.origin != "spatialdata"):
        table = next((t for t in [*found, *known] if t.adata is place.adata), None) or copy(place)
        if table not in found:
            table.name, table.layer, table.origin = place.name, place.layer, place.origin
            table.sdata, table.table_name = place.sdata, place.table_name
            found.append(table)
        # The file it was last saved to counts more than the one it came from.
        table.path = table.path or place.path
    found.sort(key=lambda table: get_args(Origin).index(table.origin))
    names: Counter[str] = Counter()
    for table in found:
        names[table.name] += 1
        if names[table.name] > 1:
            # As napari numbers layers of the same name.
            table.name += f" [{names[table.name] - 1}]"
    return found


def is_drawn(layer: Layer) -> bool:
    """Tell whether a layer is one that was drawn on top of another."""
    return DRAWN in layer.metadata


def _tables_of(layer: Layer, known: list[Table]) -> Iterator[Table]:
    """Tables of the layer's SpatialData object, or its AnnData; and the table of its features."""
    sdata, adata, path = (layer.metadata.get(key) for key in ("sdata", "adata", "path"))
    tables = getattr(sdata, "tables", None)
    element = layer.metadata.get("name") or layer.name
    for name, annotating in tables.items() if isinstance(tables, Mapping) else ():
        title = f"{name} ({layer.name})"
        table = Table(annotating, title, layer, "spatialdata", sdata=sdata, table_name=name)
        regions = table.declared.get("region")
        if element in ([regions] if isinstance(regions, str) else list(regions or ())):
            # napari-spatialdata attaches a copy, and another one for each table chosen there.
            adata = None
            yield table
    if isinstance(adata, AnnData) and isinstance(path, str | Path):
        yield Table(adata, Path(path).name, layer, "file", Path(path))
    elif isinstance(adata, AnnData):
        yield Table(adata, f"{layer.name}: AnnData", layer, "metadata")
    if isinstance(layer, CellLayer) and measured(features := layer.features):
        same = next((t for t in known if t.layer is layer and t.is_made_of(features)), None)
        of_labels = isinstance(layer, Labels)
        adata = same.adata if same else features_to_anndata(features, of_labels=of_labels)
        table = Table(adata, f"{layer.name}: features", layer, "features")
        table.follow(features)
        yield table


def measured(features: pd.DataFrame) -> list[Any]:
    """Columns to learn from: numbers that are no ids, no results and no positions.

    Without other columns, positions are returned.
    """
    numbers = _numbers(features)
    return [name for name in numbers if axis(name) is None] or numbers


def _numbers(features: pd.DataFrame) -> list[Any]:
    """Columns of numbers that are no ids and no results, since that would be circular."""
    n, keys = len(features.columns), keys_in(features.columns)
    results = {f"{_axis(key)}{i}" for key in keys for i in range(1, n + 1)}
    others = results.union(named(features, ID_NAMES))
    return [
        name
        for name, dtype in features.dtypes.items()
        if dtype.kind in "iuf" and str(name) not in others
    ]


def features_to_anndata(features: pd.DataFrame, *, of_labels: bool) -> AnnData:
    """Return a layer's features as cells.

    Measurements become ``X``; everything else, and whole numbers too, since they may be classes,
    becomes ``obs``. All numbers, positions included, are in ``obsm``. Features of labels without
    ids get a column ``"index"`` by napari's rule: the first row is label 0, the second label 1, and
    so on.
    """
    names, numbers = measured(features), _numbers(features)
    obs = {
        str(name): _categorical(column)
        for name, column in features.items()
        if name not in names or column.dtype.kind in "iu"
    }
    if of_labels and "index" not in obs and not are_ids(features):
        obs["index"] = pd.Series(np.arange(len(features)), index=features.index)
    index = pd.RangeIndex(len(features)).astype(str)
    if "index" in obs and obs["index"].notna().all() and obs["index"].is_unique:
        index = pd.Index(obs["index"]).astype(str).rename(None)
    single = all(features[name].dtype == np.float32 for name in names)
    dtype = np.float32 if single else np.float64
    obsm = {}
    if names != numbers:
        obsm[WITH_POSITIONS] = features[numbers].to_numpy(dtype, na_value=np.nan)
    return AnnData(
        features[names].to_numpy(dtype, na_value=np.nan),
        obs=pd.DataFrame(obs, index=features.index).set_axis(index),
        var=pd.DataFrame(index=[str(name) for name in names]),
        obsm=obsm,
    )


def publish(table: Table, key: str) -> None:
    """Add the result `key` to the features a table was made of; other columns do not change."""
    layer, adata = table.layer, table.adata
    if table.origin != "features" or not isinstance(layer, CellLayer):
        return
    features = layer.features
    if not table.is_made_of(features):
        logger.warning(
            "the features of %s have changed since the training began: they do not get the result",
            layer.name,
        )
        return
    names = obs_key(key, "split"), obs_key(key, "label"), obs_key(cv_key(key), "label")
    columns = {name: adata.obs[name].array for name in names if name in adata.obs}
    # After a cross-validation alone there is no embedding.
    embedding = adata.obsm.get(embedding_key(key), np.empty((len(features), 0)))
    for i, values in enumerate(embedding.T, start=1):
        # A measurement of the same name is not replaced.
        if (name := f"{_axis(key)}{i}") not in adata.var_names:
            columns[name] = values
    defaults = layer.feature_defaults if isinstance(layer, ItemLayer) else None
    layer.features = features.assign(**columns)
    table.follow(layer.features)
    if defaults is not None:
        # napari resets the values for the next point.
        layer.feature_defaults = layer.feature_defaults.assign(**defaults)


def _axis(key: str) -> str:
    return "CE" if key == "ce" else key


def _categorical(column: pd.Series) -> pd.Series:
    """Text as categories, as AnnData has it; other columns as they are."""
    column = column.infer_objects()
    # Dates, among others, cannot be saved.
    if column.dtype.kind in "biuf" or isinstance(column.dtype, pd.CategoricalDtype):
        return column
    return column.astype(str).where(column.notna()).astype("category")

"""Which tables of cells there are in a viewer, and where they live."""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard, get_args
from weakref import ReferenceType, WeakKeyDictionary, WeakValueDictionary, ref

import numpy as np
import pandas as pd
from napari.layers import Labels, Layer, Points
from numpy.typing import NDArray

from centroid_encoder.tl._stored import embedding_key
from centroid_encoder.viewer.data.features import features_to_anndata, measured, with_result
from centroid_encoder.viewer.data.ids import whole_numbers
from centroid_encoder.viewer.data.join import Join, guess_keys

if TYPE_CHECKING:
    from anndata import AnnData
    from napari.components import LayerList

Origin = Literal["spatialdata", "metadata", "file", "features", "notebook"]
"""Where a table is found, in the order of listing."""

_OF_FEATURES: WeakKeyDictionary[Layer, ReferenceType[Table]] = WeakKeyDictionary()
"""The table of each layer's features: what one widget has learned, the other one knows."""

_ADDED: WeakKeyDictionary[LayerList, dict[int, tuple[AnnData, str, Path | None]]] = (
    WeakKeyDictionary()
)
"""What was opened in each viewer: a widget that is closed takes no results with it."""

logger = logging.getLogger("centroid_encoder")


class Table:
    """A table of cells and the place where it was found.

    Tables are told apart by identity: results go to the table they were trained on, whatever is
    chosen meanwhile.

    Parameters
    ----------
    adata
        The AnnData, or what makes it when it is asked for.
    name
        What the user knows it by.
    layer
        Layer it was found on, or None.
    origin
        What it is a part of.
    path
        The ``.h5ad`` file it came from.
    sdata, table_name
        The SpatialData object it is a table of, and its name there.
    others
        All layers of the viewer, on some of which copies of the table may be.
    """

    def __init__(
        self,
        adata: AnnData | Callable[[], AnnData],
        name: str,
        layer: Layer | None,
        origin: Origin,
        path: Path | None = None,
        sdata: Any = None,
        table_name: str | None = None,
        *,
        others: Iterable[Layer] = (),
    ) -> None:
        self._adata = adata
        self.name = name
        self.layer = layer
        self.origin = origin
        self.path = path
        self.sdata = sdata
        self.table_name = table_name
        self._others = others
        self._features: pd.DataFrame | None = None
        self._columns: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"<Table {self.name!r} ({self.origin})>"

    @property
    def adata(self) -> AnnData:
        """The authoritative AnnData: what is written elsewhere would be lost."""
        if callable(self._adata):
            self._adata = self._adata()
        return self._adata

    def publish(self, key: str) -> None:
        """Show a result that was written to `adata` to other plugins, where they would look for it.

        That is the copies that napari-spatialdata keeps of a SpatialData table, and the features of
        the layer, if it is they that the table was made of. Nothing else of them changes.
        """
        if self.origin == "spatialdata":
            for layer in self._others:
                copy = layer.metadata.get("adata")
                if layer.metadata.get("sdata") is self.sdata and _is_copy(copy, self.adata):
                    layer.metadata["adata"] = _with_result(copy, self.adata, key)
        elif self.origin == "features" and isinstance(self.layer, Labels | Points):
            rows = self._rows_of_features(self.layer)
            if rows is None:
                logger.warning(
                    "the features of %s are no longer those that were learned from: they do not "
                    "get the result",
                    self.layer.name,
                )
                return
            embedding = self.adata.obsm.get(embedding_key(key))
            _assign(self.layer, with_result(self.layer.features, self.adata, key, embedding, rows))

    def is_made_of(self, features: pd.DataFrame) -> bool:
        """Tell whether these features are the table's, nothing added and nothing replaced."""
        same: bool = features is self._features
        return same and tuple(features.columns) == self._columns

    def follow(self, features: pd.DataFrame) -> None:
        """Take these features for the table's own from now on."""
        self._features, self._columns = features, tuple(features.columns)

    def _rows_of_features(self, layer: Labels | Points) -> NDArray[np.intp] | None:
        """Row of `adata` of each row of the layer's features, −1 for none; None if unknown."""
        features = layer.features
        if self.is_made_of(features):
            return np.arange(self.adata.n_obs)
        try:
            if isinstance(layer, Points):
                join = Join.make(self.adata, layer, guess_keys(self.adata, layer))
                return join.rows(np.arange(len(features)))
            ids, known = np.arange(len(features)), np.ones(len(features), dtype=bool)
            if "index" in features:
                ids, known = whole_numbers(features["index"], "features")
            rows = pd.Index(whole_numbers(self.adata.obs["index"], "obs")[0]).get_indexer(ids)
        except (ValueError, pd.errors.InvalidIndexError):
            return None
        return np.where(known, rows, -1)


class Tables:
    """The tables of one viewer.

    Parameters
    ----------
    layers
        The viewer's layers.
    """

    def __init__(self, layers: LayerList) -> None:
        self._layers = layers
        self._added = _ADDED.setdefault(layers, {})
        # A table keeps its AnnData alive, whose id is thus nobody else's while the table lives.
        self._known: WeakValueDictionary[int, Table] = WeakValueDictionary()
        self._found: list[Table] = []

    def add(self, adata: AnnData, name: str, *, path: Path | None = None) -> Table:
        """Add an AnnData of a file, if it has a path, or of a notebook, while the viewer lives."""
        self._added[id(adata)] = adata, name, path
        self.find()
        return self._known[id(adata)]

    def find(self) -> list[Table]:
        """Find all tables, those of SpatialData first; a table stays the same object.

        An AnnData that is found several times is listed once, with the first layer that can show
        its cells.
        """
        # Images carry AnnData too, but no cells.
        layers = sorted(self._layers, key=lambda layer: not isinstance(layer, Labels | Points))
        places: dict[int, _Place] = {}
        for place in [*_places_of_tables(layers), *_places_attached(layers), *self._places_added()]:
            places.setdefault(id(place.adata), place)
        tables = [self._table(place) for place in places.values()]
        tables += [table for layer in layers if (table := _of_features(layer)) is not None]
        self._found = sorted(tables, key=lambda table: get_args(Origin).index(table.origin))
        _tell_apart(self._found)
        return list(self._found)

    def _places_added(self) -> Iterator[_Place]:
        for adata, name, path in self._added.values():
            yield _Place(adata, name, None, "notebook" if path is None else "file", path)

    def _table(self, place: _Place) -> Table:
        adata, name, layer, origin, path, sdata, table_name = place
        if path is None and id(adata) in self._added:
            path = self._added[id(adata)][2]
        table = self._known.get(id(adata))
        if table is None:
            table = self._known[id(adata)] = Table(adata, name, layer, origin, others=self._layers)
        table.name, table.layer, table.origin = name, layer, origin
        table.sdata, table.table_name = sdata, table_name
        # Where it was last saved to counts more than where it came from.
        table.path = table.path or path
        return table


class _Place(NamedTuple):
    adata: AnnData
    name: str
    layer: Layer | None
    origin: Origin
    path: Path | None = None
    sdata: Any = None
    table_name: str | None = None


def _places_of_tables(layers: list[Layer]) -> Iterator[_Place]:
    for layer in layers:
        for name, adata in _annotating(layer).items():
            sdata = layer.metadata["sdata"]
            shown = f"{name} ({layer.name})"
            yield _Place(adata, shown, layer, "spatialdata", sdata=sdata, table_name=name)


def _places_attached(layers: list[Layer]) -> Iterator[_Place]:
    for layer in layers:
        adata, path = layer.metadata.get("adata"), layer.metadata.get("path")
        # What napari-spatialdata attaches is a copy, and another one as soon as the user chooses
        # another table there.
        if not _is_anndata(adata) or _annotating(layer):
            continue
        if isinstance(path, str | Path):
            yield _Place(adata, Path(path).name, layer, "file", Path(path))
        else:
            yield _Place(adata, f"{layer.name}: AnnData", layer, "metadata")


def _annotating(layer: Layer) -> dict[str, AnnData]:
    """Tables of the layer's SpatialData object that describe what the layer shows."""
    tables = getattr(layer.metadata.get("sdata"), "tables", None)
    element = layer.metadata.get("name") or layer.name
    found = {}
    for name, adata in tables.items() if isinstance(tables, Mapping) else ():
        attrs = adata.uns.get("spatialdata_attrs") or {}
        regions = attrs.get("region")
        if element in ([regions] if isinstance(regions, str) else list(regions or ())):
            found[name] = adata
    return found


def _of_features(layer: Layer) -> Table | None:
    """Table of the layer's features, one for all widgets; None if they measure nothing."""
    if not isinstance(layer, Labels | Points):
        return None
    features = layer.features
    table = _current(layer)
    if table is None or not table.is_made_of(features):
        if not measured(features):
            return None
        make = partial(features_to_anndata, features, of_labels=isinstance(layer, Labels))
        table = Table(make, "", layer, "features")
        table.follow(features)
        _OF_FEATURES[layer] = ref(table)
    table.name = f"{layer.name}: features"
    return table


def _current(layer: Layer) -> Table | None:
    known = _OF_FEATURES.get(layer)
    return None if known is None else known()


def _assign(layer: Labels | Points, features: pd.DataFrame) -> None:
    """Replace the features of a layer by more of them."""
    before, table = layer.features, _current(layer)
    defaults = layer.feature_defaults if isinstance(layer, Points) else None
    layer.features = features
    if defaults is not None:
        # napari forgets what the user has set for the next point.
        layer.feature_defaults = layer.feature_defaults.assign(**defaults)
    if table is not None and table.is_made_of(before):
        table.follow(layer.features)


def _is_anndata(value: object) -> TypeGuard[AnnData]:
    """Tell whether something is an AnnData, without importing what would make one."""
    anndata = sys.modules.get("anndata")
    return anndata is not None and isinstance(value, anndata.AnnData)


def _is_copy(copy: object, adata: AnnData) -> bool:
    """Tell whether an AnnData is made of rows of another one."""
    if not _is_anndata(copy) or copy is adata or not adata.obs_names.is_unique:
        return False
    rows = adata.obs_names.get_indexer(copy.obs_names)
    if (rows < 0).any() or not copy.var_names.equals(adata.var_names):
        return False
    # Names of cells are often mere numbers.
    key = adata.uns["spatialdata_attrs"].get("instance_key")
    return key in copy.obs and np.array_equal(copy.obs[key], adata.obs[key].iloc[rows])


def _with_result(copy: AnnData, adata: AnnData, key: str) -> AnnData:
    """Bring a result into a copy of some of the rows."""
    rows = adata.obs_names.get_indexer(copy.obs_names)
    if copy.is_view:
        copy = copy.copy()
    for name in adata.obs.columns:
        if str(name).startswith(f"{key}_"):
            copy.obs[name] = adata.obs[name].array.take(rows)
    if embedding_key(key) in adata.obsm:
        copy.obsm[embedding_key(key)] = adata.obsm[embedding_key(key)][rows]
    for result in (key, f"{key}_cv"):
        stored = adata.uns.get(result)
        if isinstance(stored, Mapping) and "params" in stored:
            palettes = f"{stored['params']['label_key']}_colors", f"{result}_label_colors"
            for name in (result, *palettes):
                if name in adata.uns:
                    copy.uns[name] = deepcopy(adata.uns[name])
    return copy


def _tell_apart(tables: list[Table]) -> None:
    """Number tables of the same name, as napari does with layers."""
    seen: Counter[str] = Counter()
    for table in tables:
        seen[table.name] += 1
        if seen[table.name] > 1:
            table.name += f" [{seen[table.name] - 1}]"

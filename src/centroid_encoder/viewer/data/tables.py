"""Which tables of cells there are in a viewer, and where they live."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, get_args
from weakref import ReferenceType, WeakKeyDictionary, WeakValueDictionary, ref

import pandas as pd
from napari.layers import Labels, Layer

from centroid_encoder.viewer.data.features import features_to_anndata, measured
from centroid_encoder.viewer.data.ids import CellLayer

if TYPE_CHECKING:
    from anndata import AnnData
    from napari.components import LayerList

Origin = Literal["spatialdata", "metadata", "file", "features", "notebook"]
"""Where a table is found, in the order of listing."""

_OF_FEATURES: WeakKeyDictionary[Layer, ReferenceType[Table]] = WeakKeyDictionary()
"""The table of each layer's features: what one widget has learned, the other one knows."""

_ADDED: WeakKeyDictionary[LayerList, dict[int, Table]] = WeakKeyDictionary()
"""What was opened in each viewer: a widget that is closed takes no results with it."""

DRAWN = "centroid_encoder_drawn"
"""Key in the metadata of a layer that is drawn on top of another one, and has no cells itself."""


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

    Attributes
    ----------
    others
        All layers of the viewer, on some of which copies of the table may be.
    """

    def __init__(
        self,
        adata: AnnData | Callable[[], AnnData],
        name: str,
        layer: Layer | None = None,
        origin: Origin = "notebook",
        path: Path | None = None,
        sdata: Any = None,
        table_name: str | None = None,
    ) -> None:
        self._adata = adata
        self.name = name
        self.layer = layer
        self.origin = origin
        self.path = path
        self.sdata = sdata
        self.table_name = table_name
        self.others: Iterable[Layer] = ()
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

    def is_made_of(self, features: pd.DataFrame) -> bool:
        """Tell whether these features are the table's, nothing added and nothing replaced."""
        same: bool = features is self._features
        return same and tuple(features.columns) == self._columns

    def follow(self, features: pd.DataFrame) -> None:
        """Take these features for the table's own from now on."""
        self._features, self._columns = features, tuple(features.columns)


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
        origin: Origin = "notebook" if path is None else "file"
        self._added[id(adata)] = Table(adata, name, None, origin, path)
        self.find()
        return self._known[id(adata)]

    def find(self) -> list[Table]:
        """Find all tables, those of SpatialData first; a table stays the same object.

        An AnnData that is found several times is listed once, with the first layer that can show
        its cells.
        """
        # Images carry AnnData too, but no cells.
        layers = sorted(self._layers, key=lambda layer: not isinstance(layer, CellLayer))
        places: dict[int, Table] = {}
        for place in [*_of_spatialdata(layers), *_attached(layers), *self._added.values()]:
            places.setdefault(id(place.adata), place)
        tables = [self._table(place) for place in places.values()]
        tables += [table for layer in layers if (table := _of_features(layer)) is not None]
        self._found = sorted(tables, key=lambda table: get_args(Origin).index(table.origin))
        _tell_apart(self._found)
        return list(self._found)

    def _table(self, place: Table) -> Table:
        """Return the known table of the same AnnData, which is now in this place."""
        adata, added = place.adata, self._added.get(id(place.adata))
        # What was added belongs to the viewer: a widget has a table of its own.
        table = self._known.get(id(adata))
        if table is None:
            table = self._known[id(adata)] = Table(adata, place.name)
        table.name, table.layer, table.origin = place.name, place.layer, place.origin
        table.sdata, table.table_name = place.sdata, place.table_name
        table.others = self._layers
        # Where it was last saved to counts more than where it came from.
        table.path = table.path or place.path or (None if added is None else added.path)
        return table


def is_drawn(layer: Layer) -> bool:
    """Tell whether a layer is one that was drawn on top of another."""
    return DRAWN in layer.metadata


def layers_of_cells(layers: Iterable[Layer]) -> list[CellLayer]:
    """Return the layers whose labels, points or shapes may be the cells of a table."""
    return [layer for layer in layers if isinstance(layer, CellLayer) and not is_drawn(layer)]


def table_of_features(layer: Layer) -> Table | None:
    """Return the table that was made last of the layer's features, if anybody still has it."""
    known = _OF_FEATURES.get(layer)
    return None if known is None else known()


def is_anndata(value: object) -> TypeGuard[AnnData]:
    """Tell whether something is an AnnData, without importing what would make one."""
    anndata = sys.modules.get("anndata")
    return anndata is not None and isinstance(value, anndata.AnnData)


def _of_spatialdata(layers: list[Layer]) -> Iterator[Table]:
    for layer in layers:
        for name, adata in _annotating(layer).items():
            sdata = layer.metadata["sdata"]
            yield Table(adata, f"{name} ({layer.name})", layer, "spatialdata", None, sdata, name)


def _attached(layers: list[Layer]) -> Iterator[Table]:
    for layer in layers:
        adata, path = layer.metadata.get("adata"), layer.metadata.get("path")
        # What napari-spatialdata attaches is a copy, and another one as soon as the user chooses
        # another table there.
        if not is_anndata(adata) or _annotating(layer):
            continue
        if isinstance(path, str | Path):
            yield Table(adata, Path(path).name, layer, "file", Path(path))
        else:
            yield Table(adata, f"{layer.name}: AnnData", layer, "metadata")


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
    if not isinstance(layer, CellLayer):
        return None
    features = layer.features
    table = table_of_features(layer)
    if table is None or not table.is_made_of(features):
        if not measured(features):
            return None
        make = partial(features_to_anndata, features, of_labels=isinstance(layer, Labels))
        table = Table(make, "", layer, "features")
        table.follow(features)
        _OF_FEATURES[layer] = ref(table)
    table.name = f"{layer.name}: features"
    return table


def _tell_apart(tables: list[Table]) -> None:
    """Number tables of the same name, as napari does with layers."""
    seen: Counter[str] = Counter()
    for table in tables:
        seen[table.name] += 1
        if seen[table.name] > 1:
            table.name += f" [{seen[table.name] - 1}]"

"""Tables of cells in a viewer, and the places where they live."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, get_args

import pandas as pd
from napari.layers import Labels, Layer

from centroid_encoder.viewer.data.features import features_to_anndata, measured
from centroid_encoder.viewer.data.ids import CellLayer

if TYPE_CHECKING:
    from anndata import AnnData

Origin = Literal["spatialdata", "metadata", "file", "features", "notebook"]
"""Place where a table is found, in the order of listing."""

DRAWN = "centroid_encoder_drawn"
"""Key in the metadata of a layer that is drawn on top of another one, and has no cells itself."""


@dataclass(eq=False, repr=False)
class Table:
    """A table of cells and the place where it was found.

    Tables are compared by identity: results go to the table they were trained on, whatever is
    chosen meanwhile.
    """

    source: AnnData | Callable[[], AnnData]
    """The AnnData, or a function that makes it when it is first used."""
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
    _features: pd.DataFrame | None = None
    _columns: tuple[Any, ...] = ()

    def __repr__(self) -> str:
        return f"<Table {self.name!r} ({self.origin})>"

    @property
    def adata(self) -> AnnData:
        """The AnnData itself, not a copy: results are written into it."""
        if callable(self.source):
            self.source = self.source()
        return self.source

    @property
    def declared(self) -> Mapping[str, Any]:
        """Columns that SpatialData declares in ``uns["spatialdata_attrs"]``; empty without it."""
        return _declared(self.adata)

    def is_made_of(self, features: pd.DataFrame) -> bool:
        """Tell whether these features are the table's, nothing added and nothing replaced."""
        same: bool = features is self._features
        return same and tuple(features.columns) == self._columns

    def follow(self, features: pd.DataFrame) -> None:
        """Take these features for the table's own from now on."""
        self._features, self._columns = features, tuple(features.columns)

    def holds(self, adata: AnnData) -> bool:
        """Tell whether this is the table of an AnnData."""
        return self.source is adata


def find_tables(
    layers: Iterable[Layer], opened: Iterable[Table], known: Iterable[Table]
) -> list[Table]:
    """Find all tables, those of SpatialData first.

    Parameters
    ----------
    layers
        Layers of the viewer.
    opened
        AnnData of files and notebooks.
    known
        Tables that were found before; a table stays the same object.

    Returns
    -------
    list
        An AnnData in several places is listed once, with the first layer that can show its cells.
    """
    known = list(known)
    # Images carry AnnData too, but no cells.
    layers = sorted(layers, key=lambda layer: not isinstance(layer, CellLayer))
    found: list[Table] = []
    for place in [*_of_spatialdata(layers), *_attached(layers), *opened]:
        table = next((t for t in [*found, *known] if t.holds(place.adata)), None)
        table = table or Table(place.adata, place.name)
        if table not in found:
            table.name, table.layer, table.origin = place.name, place.layer, place.origin
            table.sdata, table.table_name = place.sdata, place.table_name
            found.append(table)
        # The file it was last saved to counts more than the one it came from.
        table.path = table.path or place.path
    found += [t for layer in layers if (t := _of_features(layer, known)) is not None]
    found.sort(key=lambda table: get_args(Origin).index(table.origin))
    _number_names(found)
    return found


def is_drawn(layer: Layer) -> bool:
    """Tell whether a layer is one that was drawn on top of another."""
    return DRAWN in layer.metadata


def layers_of_cells(layers: Iterable[Layer]) -> list[CellLayer]:
    """Return the layers whose labels, points or shapes may be the cells of a table."""
    return [layer for layer in layers if isinstance(layer, CellLayer) and not is_drawn(layer)]


def _is_anndata(value: object) -> TypeGuard[AnnData]:
    # Without importing anndata, which takes long: nothing is an AnnData before that.
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
        # napari-spatialdata attaches a copy, and another one for each table chosen there.
        if not _is_anndata(adata) or _annotating(layer):
            continue
        if isinstance(path, str | Path):
            yield Table(adata, Path(path).name, layer, "file", Path(path))
        else:
            yield Table(adata, f"{layer.name}: AnnData", layer, "metadata")


def _annotating(layer: Layer) -> dict[str, AnnData]:
    """Tables of the layer's SpatialData object that describe the layer."""
    tables = getattr(layer.metadata.get("sdata"), "tables", None)
    element = layer.metadata.get("name") or layer.name
    found = {}
    for name, adata in tables.items() if isinstance(tables, Mapping) else ():
        regions = _declared(adata).get("region")
        if element in ([regions] if isinstance(regions, str) else list(regions or ())):
            found[name] = adata
    return found


def _declared(adata: AnnData) -> Mapping[str, Any]:
    attrs = adata.uns.get("spatialdata_attrs")
    return attrs if isinstance(attrs, Mapping) else {}


def _of_features(layer: Layer, known: list[Table]) -> Table | None:
    """Table of the layer's features; None if they measure nothing."""
    if not isinstance(layer, CellLayer):
        return None
    features = layer.features
    table = next((t for t in known if t.layer is layer and t.is_made_of(features)), None)
    if table is None:
        if not measured(features):
            return None
        make = partial(features_to_anndata, features, of_labels=isinstance(layer, Labels))
        table = Table(make, "", layer, "features")
        table.follow(features)
    table.name = f"{layer.name}: features"
    return table


def _number_names(tables: list[Table]) -> None:
    """Number tables of the same name, as napari does with layers."""
    seen: Counter[str] = Counter()
    for table in tables:
        seen[table.name] += 1
        if seen[table.name] > 1:
            table.name += f" [{seen[table.name] - 1}]"

"""The tables and layers of a viewer, the table that is chosen, and the layers that show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from anndata import AnnData
from napari.components import LayerList
from napari.layers import Image, Labels, Layer
from natsort import natsorted
from numpy.typing import NDArray
from psygnal import Signal

from centroid_encoder.tl._roles import Role
from centroid_encoder.tl._table import with_roles
from centroid_encoder.viewer.data.columns import (
    ONE_IMAGE,
    id_column,
    id_columns,
    image_column,
    images_by_name,
    name_of,
)
from centroid_encoder.viewer.data.ids import CellLayer, LayerIds, is_slow, read_ids
from centroid_encoder.viewer.data.join import Join, Link, TableImage, find_misfit
from centroid_encoder.viewer.data.tables import NOT_SHOWN, Table, find_tables, is_drawn


class Catalog:
    """The tables and layers of a viewer, the chosen table, and its links to layers.

    The catalog follows the layers from `connect` to `disconnect`. One action of the user often
    causes many layer events, some of them before napari has finished it. So the catalog only
    emits `stirred` or `painted`, and a panel calls `refresh` or `join_again` once afterwards.

    Attributes
    ----------
    tables, table
        All tables in the order of the list, and the chosen one or None.
    joins
        The join of each link. A table of many images has one link for each layer.
    faults
        The error of each link that has no join, and a `Misfit` where cells do not seem to lie at
        their labels.
    read_later
        Function that reads the ids of a large or lazy layer into a future in a thread and then
        calls `take_ids`. If it is None, the catalog reads them at once.
    """

    listed = Signal()
    """Tables or layers were added, removed or renamed."""
    table_changed = Signal()
    """Another table was chosen; `link_changed` follows."""
    link_changed = Signal()
    """Links or joins have changed."""
    stirred = Signal()
    """Layers were added, removed or changed; `refresh` is due."""
    painted = Signal()
    """The ids in a linked layer may have changed; `join_again` is due."""

    def __init__(self, layers: LayerList) -> None:
        self.tables: list[Table] = []
        self.table: Table | None = None
        self.joins: dict[Link, Join] = {}
        self.faults: dict[Link, ValueError] = {}
        self.read_later: Callable[[Labels, Future[LayerIds]], None] | None = None
        self._all = layers
        self._opened: list[Table] = []
        self._links: list[Link] = []
        self._ids: WeakKeyDictionary[Layer, Future[LayerIds]] = WeakKeyDictionary()

    @property
    def layers(self) -> list[CellLayer]:
        """The layers whose labels, points or shapes can be cells of a table."""
        return [x for x in self._all if isinstance(x, CellLayer) and not is_drawn(x)]

    @property
    def measurable(self) -> tuple[list[Labels], list[Image]]:
        """The Labels layers with cells to measure, and the Image layers."""
        labels = [layer for layer in self.layers if isinstance(layer, Labels)]
        return labels, [layer for layer in self._all if isinstance(layer, Image)]

    @property
    def link(self) -> Link | None:
        """The link to the chosen layer: the first link of the table, or None."""
        return next(iter(self._links), None)

    @property
    def join(self) -> Join | None:
        """The join with the chosen layer, or None."""
        return None if self.link is None else self.joins.get(self.link)

    @property
    def layer(self) -> Layer | None:
        """The chosen layer, or None."""
        return None if self.link is None else self.link.layer

    @property
    def reading(self) -> list[Layer]:
        """The layers whose ids are being read in a thread."""
        return [x for x in self.layers if x in self._ids and not self._ids[x].done()]

    def connect(self) -> None:
        """Start to follow the layers of the viewer."""
        self._all.events.connect(self._on_event)
        self.refresh()

    def disconnect(self) -> None:
        """Stop following the layers; ids that a thread still reads are dropped."""
        self._all.events.disconnect(self._on_event)
        self._ids.clear()
        self._links = []

    def _on_event(self, event: Any) -> None:
        """Handle an event of the layer list or of one layer."""
        layer, kind = event.sources[0], event.type
        if isinstance(layer, Layer) and is_drawn(layer):
            return
        if kind in ("inserted", "removed", "reordered", "name", "features", "metadata"):
            self.stirred.emit()
        has_ids = ("data", "labels_update") if isinstance(layer, Labels) else ("data", "features")
        if isinstance(layer, CellLayer) and kind in has_ids:
            self._ids.pop(layer, None)
            if any(link.layer is layer for link in self._links):
                self.painted.emit()

    def add(self, adata: AnnData, name: str, *, path: Path | None = None) -> Table:
        """Add an AnnData from a file or a notebook to the tables."""
        place = Table(adata, name, None, "notebook" if path is None else "file", path)
        self._opened = [*(x for x in self._opened if x.adata is not adata), place]
        self.refresh()
        return next(table for table in self.tables if table.adata is adata)

    def choose_roles(self, roles: Mapping[str, Role]) -> None:
        """Give columns of the chosen table other roles; raise an InputError if they do not fit."""
        table = self._chosen
        before, table.adata = table.adata, with_roles(table.adata, roles)
        for opened in (x for x in self._opened if x.adata is before):
            opened.adata = table.adata
        self._links, self.joins, self.faults = [], {}, {}
        self.table_changed.emit()
        self.join_again()

    def close(self, table: Table | None) -> None:
        """Remove a table that was added from the list, unless a layer also holds it."""
        self._opened = [x for x in self._opened if table is None or x.adata is not table.adata]
        self.refresh()

    def refresh(self) -> None:
        """Search for tables again; keep the choices whose tables and layers still exist."""
        chosen = self.table
        layer = None if chosen is None else chosen.layer
        if chosen is not None and chosen.path and layer is not None and layer not in self._all:
            # The user closed the layer of a file; the file stays open.
            self._opened.append(Table(chosen.adata, chosen.name, None, "file", chosen.path))
        self.tables = find_tables(self._all, self._opened, self.tables)
        if chosen not in self.tables:
            # Prefer a table of the same layer: another plugin may have replaced its AnnData.
            same = [x for x in self.tables if layer is not None and x.layer is layer]
            self.choose(next(iter([*same, *self.tables]), None))
        elif self._find_links() != self._links:
            self.join_again()
        self.listed.emit()

    def choose(self, table: Table | None) -> None:
        """Choose a table and join it to the layers that show it; the same table is joined again."""
        if table is not self.table:
            self.table, self._links, self.joins, self.faults = table, [], {}, {}
            self.table_changed.emit()
        self.join_again()

    @property
    def _chosen(self) -> Table:
        assert self.table is not None
        return self.table

    def choose_layer(self, layer: Layer | None) -> None:
        """Choose the layer that shows the table; with None, no layer shows it."""
        if layer is None:
            self._chosen.declined = True
            self.join_again()
        else:
            image = self._chosen.images.pop(layer, NOT_SHOWN)
            by_name = self._images_by_name().get(layer)
            self.show_image(by_name if image is NOT_SHOWN else image, layer)

    def choose_ids(self, id_column: str | None, shift: int = 0) -> None:
        """Choose the column of ids for all layers; without a column, the catalog guesses it."""
        self._chosen.ids = (id_column, shift) if id_column else None
        self.join_again()

    def choose_image_column(self, column: str) -> None:
        """Choose the column that holds the image of each cell, or `ONE_IMAGE`."""
        self._chosen.image_column = column
        self._chosen.images.clear()
        self.join_again()

    def show_image(self, value: object, layer: Layer | None) -> None:
        """Choose the one layer that shows an image of the table, or None for no layer.

        A `value` of None stands for all images.
        """
        images = self._chosen.images
        self._chosen.declined = False
        for link in self._links:
            if name_of(link.image) == name_of(value) or (link.image is None and layer is not None):
                images[link.layer] = NOT_SHOWN
        if layer is not None:
            if value is None:
                images.clear()
            images[layer] = value
        self.join_again()

    def show_positions(self) -> None:
        """Add the cells of the table as points at their positions."""
        from centroid_encoder.viewer.data.reader import points_layer

        if self.table is not None:
            layer = Layer.create(*points_layer(self.table.adata, self.table.name, self.table.path))
            self._all.append(layer)
            self.refresh()
            self.choose_layer(layer)

    def join_again(self) -> None:
        """Find the links and join them; a join without a change stays the same object."""
        joins, faults = self.joins, self.faults
        self._links, self.joins, self.faults = self._find_links(), {}, {}
        for link in self._links:
            join, fault = joins.get(link), faults.get(link) if link in joins else None
            try:
                # While a thread reads the layer, there are no ids and the old join stays.
                made = None if (ids := self._read(link.layer)) is None else link.make(ids)
                if made is not None and (join is None or not join.is_like(made)):
                    join, fault = made, find_misfit(link, made)
            except ValueError as error:
                join, fault = None, error
            if join is not None:
                self.joins[link] = join
            if fault is not None:
                self.faults[link] = fault
        self.link_changed.emit()

    def _read(self, layer: CellLayer) -> LayerIds | None:
        """Return the ids of a layer, or None while a thread reads them; cached until it changes."""
        if layer not in self._ids:
            ids = self._ids[layer] = Future()
            if isinstance(layer, Labels) and self.read_later is not None and is_slow(layer):
                self.read_later(layer, ids)
            else:
                try:
                    ids.set_result(read_ids(layer))
                except ValueError as error:
                    ids.set_exception(error)
        found = self._ids[layer]
        return found.result() if found.done() else None

    def take_ids(self, ids: Future[LayerIds]) -> None:
        """Join the layer whose ids a thread has read, unless the layer has changed since."""
        if ids in self._ids.values():
            self.join_again()

    def _find_links(self) -> list[Link]:
        """Return the links that the user chose, else those found by names, else by ids."""
        table, column = self.table, self.image_column
        if table is None or table.declined:
            return []
        obs, declared = table.adata.obs, table.declared.get("instance_key")
        of_layer = table.origin == "features"
        columns = [] if table.ids else id_columns(obs, column, declared, of_layer=of_layer)

        def link(layer: CellLayer, image: object = None) -> Link:
            ids = table.ids or (id_column(obs, layer, columns), 0)
            return Link(table, image, layer, *ids, column)

        chosen = list(table.images)
        # If the user chose two layers for an image, the later choice counts.
        layers = sorted(self.layers, key=lambda x: -chosen.index(x) if x in chosen else 1)
        shown = self._images_by_name() | dict(table.images)
        found: dict[str, Link] = {}
        for layer in layers:
            image = shown.get(layer, NOT_SHOWN)
            if image is None:
                return [link(layer)]
            if image is not NOT_SHOWN:
                found.setdefault(name_of(image), link(layer, image))
        if found or any(layer in chosen for layer in layers):
            return list(found.values())
        best = self._best_layer([link(layer) for layer in layers])
        if best is not None and not self.reading:
            # Keep this layer when its labels change.
            table.images[best.layer] = None
        return [] if best is None else [best]

    def _best_layer(self, links: list[Link]) -> Link | None:
        """Return the link to the table's own layer, or to the layer with most of its cells.

        Labels with at least half of the cells come before the table's own points.
        """
        own = next((link for link in links if link.layer is link.table.layer), None)
        if own is not None and (isinstance(own.layer, Labels) or own.table.origin == "features"):
            return own
        fits: dict[Link, tuple[int, int]] = {}
        for link in links:
            least = 0 if own is None else link.table.adata.n_obs // 2
            if own is None or isinstance(link.layer, Labels):
                with suppress(ValueError):
                    if (ids := self._read(link.layer)) is not None:
                        join = link.make(ids)
                        half = min(join.n_rows, len(ids.ids)) / 2
                        if join.n_joined > least and join.n_joined >= half:
                            # If layers are equal, take that with the fewest other labels.
                            fits[link] = join.n_joined, -join.n_unmatched_ids
        return max(fits, key=lambda link: fits[link], default=own)

    @property
    def image_column(self) -> str | None:
        """Column that holds the image of each cell; None if all cells are in one image."""
        if self.table is None or self.table.image_column == ONE_IMAGE:
            return None
        declared = self.table.declared.get("region_key")
        return image_column(self.table.adata.obs, self.table.image_column or declared)

    def _image_of_cells(self) -> pd.Series | None:
        column = self.image_column
        return None if self.table is None or column is None else self.table.adata.obs[column]

    def _images_by_name(self) -> dict[Layer, object]:
        images = self._image_of_cells()
        return {} if images is None else images_by_name(self.layers, images.dropna().unique())

    def images(self) -> list[TableImage]:
        """Return the images of the table with the layers that show them; empty for one image.

        They are in the order of the categories, or else by name and number: 2 before 10.
        """
        column = self._image_of_cells()
        if column is None:
            return []
        counts = column.value_counts(sort=False)
        values: list[object] = list(counts.index[counts > 0])
        if not isinstance(column.dtype, pd.CategoricalDtype):
            values = natsorted(values, key=str)
        links = {name_of(link.image): link for link in [*self.faults, *self.joins]}
        images = []
        for value in [*([None] if name_of(None) in links else []), *values]:
            n_cells = int(counts.sum() if value is None else counts[value])
            link = links.get(name_of(value))
            shown = () if link is None else (link, self.joins.get(link), self.faults.get(link, ""))
            images.append(TableImage(value, n_cells, *shown))
        return images

    def unseen(self, rows: NDArray[np.intp]) -> str:
        """Return why no layer shows any of these cells; empty if one does, or without cells."""
        images, joins = self._image_of_cells(), self.joins
        if not len(rows) or any(join.joined[rows].any() for join in joins.values()):
            return ""
        if not joins:
            return "No layer shows the cells of this table."
        shown = {name_of(link.image) for link in joins}
        if images is not None and name_of(None) not in shown:
            for image in images.iloc[rows].dropna().unique():
                if name_of(image) not in shown:
                    return f"In {name_of(image)}, which is not open."
        return f"Not in the layer {next(iter(joins)).layer.name}."

    def absence(self) -> str:
        """Return a sentence on why no layer shows the table; empty if one does."""
        if self.table is None or self.joins or self.faults:
            return ""
        cells = f"{self.table.adata.n_obs:,} cells"
        if self.table.declined:
            return f"{cells}; shown in no layer."
        if self.reading:
            return f"{cells}; reading the labels of {self.reading[0].name} …"
        if not self.layers:
            return f"{cells}; no layer to show them in."
        return f"{cells}; no layer has most of their ids. Choose the layer, and the column of ids."

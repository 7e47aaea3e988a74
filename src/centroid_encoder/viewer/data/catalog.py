"""The tables and layers of a viewer, the table that is chosen, and the layers that show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import numpy as np
import pandas as pd
from anndata import AnnData
from napari.components import LayerList
from napari.layers import Image, Labels, Layer
from napari.utils.notifications import show_info
from natsort import natsorted
from numpy.typing import NDArray
from psygnal import Signal

from centroid_encoder.errors import InputError
from centroid_encoder.tables import CHOSEN, ROLES, Role, are_places, keys_in, with_roles
from centroid_encoder.viewer.data.columns import (
    ONE_IMAGE,
    id_columns,
    ids_of,
    image_column,
    images_by_name,
    name_of,
)
from centroid_encoder.viewer.data.ids import (
    CellLayer,
    LayerIds,
    as_mask,
    checksum,
    is_slow,
    pixels,
    read_ids,
)
from centroid_encoder.viewer.data.join import Join, Link, Misfit, TableImage, find_misfit
from centroid_encoder.viewer.data.tables import NOT_SHOWN, Table, find_tables, is_drawn

Then = Callable[[Future[Any]], None]
KEPT = "centroid_encoder_tables"
"""Attribute of the layers of a viewer: the tables of a catalog that was disconnected; the chosen
one comes first."""
CATALOGS = "centroid_encoder_catalogs"
"""Attribute of an AnnData: the catalogs that have shown it."""

FOLLOWS = "follows the centers of the cells in their layer"
"""Reason of the role of a column that is a position by its values."""


class _Catalogs(WeakSet["Catalog"]):
    """The catalogs that show an AnnData; a copy of it has none."""

    def __reduce__(self) -> Any:
        return set, ()


def _catalogs_of(adata: AnnData) -> WeakSet[Catalog]:
    """Return the catalogs that have shown an AnnData."""
    if not isinstance(vars(adata).get(CATALOGS), _Catalogs):
        vars(adata)[CATALOGS] = _Catalogs()
    found: WeakSet[Catalog] = vars(adata)[CATALOGS]
    return found


class Catalog:
    """The tables and layers of a viewer, the chosen table, and its links to layers.

    The catalog follows the layers from `connect` to `disconnect`. One action of the user often
    causes many layer events, some of them before napari has finished it. So the catalog only
    emits `stirred`, and a panel calls `refresh` once afterwards.

    Attributes
    ----------
    tables, table
        All tables in the order of the list, and the chosen one or None.
    joins
        The join of each link. A table of many images has one link for each layer.
    faults
        The error of each link that has no join, and a `Misfit` where cells do not seem to lie at
        their labels.
    put_away
        The layers that were hidden since they show another image than that of the selected cell.
    in_thread
        Function that calls a first function in a thread, and then a second one in this thread with
        a future of the result, which it returns. If it is None, large and lazy layers are read at
        once.
    together
        Context in which several events follow one another, so that all can be handled at its end.
    """

    changed = Signal(str)
    """The part that has changed: ``"table"`` if another one was chosen, ``"cells"`` if it has other
    cells, both before its links; ``"columns"`` if others have written into it; ``"links"`` or
    joins; ``"tables"``, the list of tables or layers."""
    stirred = Signal(bool)
    """Layers have changed and `refresh` is due; True if only the ids in a linked layer may have
    changed, which the user may still be painting."""

    def __init__(self, layers: LayerList) -> None:
        self.tables: list[Table] = []
        self.table: Table | None = None
        self.joins: dict[Link, Join] = {}
        self.faults: dict[Link, ValueError] = {}
        self.in_thread: Callable[[Callable[[], Any], Then], Future[Any]] | None = None
        self.together: Callable[[], AbstractContextManager[None]] = nullcontext
        self.put_away: WeakSet[Layer] = WeakSet()
        self._all = layers
        self._cells: pd.Index | None = None
        self._image_column: str | None = None
        self._links: list[Link] = []
        self._tried: dict[Link, Join | ValueError] = {}
        self._ids: WeakKeyDictionary[Layer, Future[LayerIds]] = WeakKeyDictionary()
        self._redrawn: WeakSet[Layer] = WeakSet()
        self._masks: WeakKeyDictionary[Image, Labels | None] = WeakKeyDictionary()

    @property
    def layers(self) -> list[CellLayer]:
        """The layers whose labels, points or shapes can be cells of a table.

        An Image layer that may be a mask is there as Labels, which are added to the viewer once
        they are joined.
        """
        own = [x for x in self._all if isinstance(x, CellLayer) and not is_drawn(x)]
        masks = (self._masks.get(x) for x in self._all if isinstance(x, Image))
        return own + [x for x in masks if x is not None and x not in self._all]

    @property
    def measurable(self) -> tuple[list[Labels], list[Image]]:
        """The Labels layers with cells to measure, and the Image layers."""
        labels = [layer for layer in self.layers if isinstance(layer, Labels)]
        images = (layer for layer in self._all if isinstance(layer, Image))
        return labels, [image for image in images if self._masks.get(image) is None]

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
        """Start to follow the layers of the viewer; its tables of an earlier catalog are back."""
        self._all.events.connect(self._on_event)
        self.tables = vars(self._all).pop(KEPT, self.tables)
        self.refresh()

    def disconnect(self) -> None:
        """Stop following the layers; ids that a thread still reads are dropped."""
        self._all.events.disconnect(self._on_event)
        if self.table is not None:
            _catalogs_of(self.table.adata).discard(self)
        kept = sorted(self.tables, key=lambda table: table is not self.table)
        vars(self._all)[KEPT] = kept
        self._ids.clear()
        self._links = []

    def _on_event(self, event: Any) -> None:
        """Handle an event of the layer list or of one layer."""
        layer, kind = event.sources[0], event.type
        if kind in ("inserted", "removed"):
            layer = event.value
        if isinstance(layer, Layer) and is_drawn(layer):
            return
        if kind == "removed" or (isinstance(layer, Image) and kind == "data"):
            # Labels of a mask that the user removed do not come back.
            for image in [x for x, mask in self._masks.items() if layer in (x, mask)]:
                self._masks[image] = None
        has_ids = ("data", "labels_update") if isinstance(layer, Labels) else ("data", "features")
        if isinstance(layer, CellLayer) and kind in has_ids:
            self._ids.pop(layer, None)
        elif (
            kind == "set_data"
            and isinstance(layer, Labels)
            and isinstance(pixels(layer), np.ndarray)
        ):
            # napari's undo, and code that changes pixels in place, cause no other event.
            self._redrawn.add(layer)
        is_linked = any(link.layer is layer for link in self._links)
        if kind in ("inserted", "removed", "reordered", "name", "features", "metadata"):
            self.stirred.emit(False)
        elif is_linked and (layer not in self._ids or layer in self._redrawn):
            self.stirred.emit(True)

    def add(self, adata: AnnData, name: str, *, path: Path | None = None) -> Table:
        """Add an AnnData from a file or a notebook to the tables."""
        table = next((table for table in self.tables if table.adata is adata), None)
        if table is None:
            table = Table(adata, name, None, "notebook" if path is None else "file", path)
            self.tables.append(table)
        table.name, table.path = name, table.path or path
        self.refresh()
        return table

    def open(self, adata: AnnData, name: str, *, path: Path | None = None) -> None:
        """Add an AnnData, and choose it; it may be one that is chosen and has changed."""
        is_new = all(table.adata is not adata for table in self.tables)
        with self.together():
            table = self.add(adata, name, path=path)
            # A first table was chosen when it was added, and joining takes long with many cells.
            if not is_new or self.table is not table:
                self.choose(table)

    def choose_roles(self, roles: Mapping[str, Role]) -> None:
        """Give columns of the chosen table other roles; raise an InputError if they do not fit."""
        table = self._chosen
        table.adata = with_roles(table.adata, roles)
        self._show(table)

    def close(self, table: Table) -> None:
        """Remove a table from the list, unless a layer also holds it."""
        self.tables.remove(table)
        self.refresh()

    def refresh(self) -> None:
        """Search for tables again; keep the choices whose tables and layers still exist."""
        with self.together():
            self._refresh()

    def _refresh(self) -> None:
        chosen, before, held = self.table, self.tables, [table.layer for table in self.tables]
        layer = None if chosen is None else chosen.layer
        n_columns = 0 if chosen is None else chosen.adata.obs.shape[1]
        for image in (x for x in self._all if isinstance(x, Image) and x not in self._masks):
            self._masks[image] = as_mask(image)
        self.tables = find_tables(self._all, before)
        new = [table for table in self.tables if table.layer not in held]
        was_of_layer = chosen is not None and chosen.origin not in ("file", "notebook")
        if chosen not in self.tables:
            # Prefer a table of the same layer: another plugin may have replaced its AnnData.
            same = [x for x in self.tables if layer is not None and x.layer is layer]
            others = [*(x for x in before if x in self.tables), *self.tables]
            self.choose(next(iter([*same, *others]), None))
        elif new and layer is None and was_of_layer:
            # The layer of the chosen table was removed before; the user has opened another one.
            self.choose(new[0])
        elif (
            any(self._must_read(link.layer) for link in self._links)
            or self._find_links() != self._links
        ):
            self.join_again()
        self._add_mask()
        if chosen is not None and chosen is self.table and chosen.adata.obs.shape[1] > n_columns:
            self.changed.emit("columns")
        self.changed.emit("tables")

    def choose(self, table: Table | None) -> None:
        """Choose a table and join it to the layers that show it; the same table is joined again."""
        if table is not self.table:
            self._show(table)
        else:
            self.join_again()

    def _show(self, table: Table | None, what: str = "table") -> None:
        """Show a table, or one whose cells have changed, and join it."""
        self.table, self._links, self.joins, self.faults = table, [], {}, {}
        self._cells = None if table is None else table.adata.obs_names
        if table is not None:
            _catalogs_of(table.adata).add(self)
        with self.together():
            self.changed.emit(what)
            self.join_again()

    def check_cells(self) -> bool:
        """Return whether the table still has the cells that it was shown with; else show it again.

        Code of the user can remove, add or reorder the cells of an AnnData in place.
        """
        cells = None if self.table is None else self.table.adata.obs_names
        if cells is self._cells or (cells is not None and cells.equals(self._cells)):
            return True
        self._show(self.table, "cells")
        return False

    def show_elsewhere(self, table: Table) -> None:
        """Let other viewers show what was written into this table."""
        for other in _catalogs_of(table.adata) - {self}:
            if other.table is not None and other.table.adata is table.adata:
                other.table.unsaved = True
                other.changed.emit("columns")

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
        self.joins, self.faults = {}, {}
        self.join_again()

    def show_positions(self) -> None:
        """Add the cells of the table as points at their positions, on the first visible image."""
        from centroid_encoder.viewer.data.reader import place_on, points_layer

        if (table := self.table) is not None:
            points, options, kind = points_layer(table.adata, table.name, table.path)
            images = (x for x in self._all if isinstance(x, Image | Labels) and not is_drawn(x))
            if (image := next((x for x in images if x.visible), None)) is not None:
                place, assumed = place_on(image, table.adata, np.shape(points)[1])
                options = {**options, **place}
                if assumed:
                    show_info(assumed)
            layer = Layer.create(points, options, kind)
            self._all.append(layer)
            self.refresh()
            self.choose_layer(layer)

    def join_again(self) -> None:
        """Find the links and join them; a join without a change stays the same object."""
        if not self.check_cells():
            return
        joins, faults = self.joins, self.faults
        self._links, self.joins, self.faults = self._find_links(), {}, {}
        for link in self._links:
            # While a thread reads the layer, the old join stays.
            made, join = self._make(link), joins.get(link)
            fault = None if join is None else faults.get(link)
            if isinstance(made, ValueError):
                join, fault = None, made
            elif made is not None and (join is None or not join.is_like(made)):
                fault = find_misfit(link, made, self._question(link))
                join = made if fault is None or isinstance(fault, Misfit) else None
            if join is not None:
                self.joins[link] = join
            if fault is not None:
                self.faults[link] = fault
        if not all(link.layer in self._all for link in self.joins):
            self.stirred.emit(False)
        if self.joins != joins and self._leave_out_places():
            self._show(self._chosen)
        else:
            self.changed.emit("links")

    def _leave_out_places(self) -> bool:
        """Make positions of the features of a read table that follow the centers of the labels.

        Return whether there are any. Features that the user has chosen stay.
        """
        table, ndim = self.table, 0 if self.layer is None else self.layer.ndim
        joins = [join for link, join in self.joins.items() if link.layer.ndim == ndim]
        # Labels and maps of the user stay with the features that they were made from.
        if table is None or not joins or ROLES not in table.adata.uns:
            return False
        if table.unsaved or keys_in(table.adata.obs):
            return False
        roles = table.adata.uns[ROLES]
        rows = [np.flatnonzero(join.joined) for join in joins]
        centers = np.concatenate([join.centers(x) for join, x in zip(joins, rows, strict=True)])
        images = np.repeat(np.arange(len(rows)), [len(x) for x in rows])
        values = np.asarray(table.adata.X)[np.concatenate(rows)]
        found = table.adata.var_names[are_places(values, centers, images)]
        found = found.difference(roles["column"][roles["reason"] == CHOSEN])
        if not 0 < len(found) < table.adata.n_vars:
            return False
        table.adata = with_roles(table.adata, dict.fromkeys(found, "position"))
        at = table.adata.uns[ROLES]["column"].isin(found)
        table.adata.uns[ROLES].loc[at, "reason"] = FOLLOWS
        names = " and ".join(map(repr, found)) if len(found) < 3 else f"{len(found)} columns"
        show_info(f"{names}: positions of the cells by their values, and no features.")
        return True

    def _question(self, link: Link) -> str:
        """Return a question if no layer has the name of an image of the table, or an empty text.

        The layer in which the table was found, and one that the user chose, are right. A number
        such as that of CellProfiler is no name.
        """
        images, layer = self._image_of_cells(), link.layer
        is_chosen = layer is link.table.layer or layer in link.table.images
        name = "0" if images is None else name_of(images.dropna().iloc[0])
        if name.isdecimal() or link.image is not None or is_chosen:
            return ""
        return (
            f"No open layer has the name of an image in the column {self.image_column!r}, such as "
            f"{name}. Are these the cells of {layer.name}?"
        )

    def _add_mask(self) -> None:
        """Add the Labels of a joined Image layer, since only Labels have colours.

        napari takes half a second for each: the event of its insertion leads to the next one.
        """
        joined = {link.layer for link in self.joins} - {*self._all}
        missing = [(image, x) for image, x in self._masks.items() if x is not None and x in joined]
        for image, labels in missing[:1]:
            image.visible = False
            # It stays hidden when the image of another cell is shown.
            self.put_away.discard(image)
            self._all.insert(self._all.index(image) + 1, labels)
            if len(missing) == 1:
                show_info(f"{image.name} holds the ids of cells: {labels.name} shows them.")

    def _must_read(self, layer: CellLayer) -> bool:
        """Return whether the ids of a layer are not known, or its pixels have changed in place."""
        if layer in self._redrawn and layer in self._ids:
            read = self._ids[layer]
            if read.done():
                self._redrawn.discard(layer)
                if read.exception() is not None:
                    return True
                # napari also redraws a stack for another plane.
                then = partial(self._on_checksum, layer, read.result().checksum)
                self._run(checksum, layer, pixels(layer), then)
        return layer not in self._ids

    def _on_checksum(self, layer: CellLayer, known: int, now: Future[int]) -> None:
        if now.exception() is None and now.result() != known:
            self._ids.pop(layer, None)
            self.stirred.emit(True)

    def _run(
        self, function: Callable[[Any], Any], layer: CellLayer, value: Any, then: Then
    ) -> Future[Any]:
        """Call a function, in a thread if the layer is large or lazy, and then `then`."""
        if self.in_thread is not None and isinstance(layer, Labels) and is_slow(layer):
            return self.in_thread(partial(function, value), then)
        done: Future[Any] = Future()
        try:
            done.set_result(function(value))
        except ValueError as error:
            done.set_exception(error)
        then(done)
        return done

    def _read(self, layer: CellLayer) -> LayerIds | None:
        """Return the ids of a layer, or None while a thread reads them; cached until it changes."""
        if self._must_read(layer):
            self._ids[layer] = self._run(read_ids, layer, layer, self._on_ids)
        found = self._ids[layer]
        return found.result() if found.done() else None

    def _on_ids(self, ids: Future[LayerIds]) -> None:
        # The layer may have changed since.
        if ids in self._ids.values():
            self.join_again()

    def _make(self, link: Link) -> Join | ValueError | None:
        """Return the join of a link, or why there is none; None while a thread reads the layer."""
        if link not in self._tried:
            try:
                if (ids := self._read(link.layer)) is None:
                    return None
                self._tried[link] = link.make(ids)
            except ValueError as error:
                self._tried[link] = error
        return self._tried[link]

    def _find_links(self) -> list[Link]:
        """Return the links that the user chose, else those found by names, else by ids."""
        table = self.table
        column, self._tried = self._find_image_column(), {}
        self._image_column = column
        if table is None or table.declined:
            return []
        obs, declared = table.adata.obs, table.declared.get("instance_key")
        of_layer = table.origin == "features"
        columns = [] if table.ids else id_columns(obs, column, declared, of_layer=of_layer)

        def link(layer: CellLayer, image: object = None) -> Link:
            ids = [table.ids] if table.ids else [(x, 0) for x in ids_of(obs, layer, columns)]
            links = [Link(table, image, layer, *pair, column) for pair in ids]
            return links[0] if len(links) == 1 else next(filter(self._fit, links), links[0])

        chosen = list(table.images)
        # If the user chose two layers for an image, the later choice counts.
        layers = sorted(self.layers, key=lambda x: -chosen.index(x) if x in chosen else 1)
        shown = self._images_by_name() | dict(table.images)
        found: dict[str, Link] = {}
        # A layer can have the name of a single image by chance: most cells must be there.
        several = bool(self.images())
        least = 0 if several else len(obs) / 2
        for layer in layers:
            image = shown.get(layer, NOT_SHOWN)
            if image is None:
                return [link(layer)]
            if image is not NOT_SHOWN and name_of(image) not in found:
                one = link(layer, image)
                is_sure = several and layer in self._all
                fit = None if is_sure else self._fit(one)
                if is_sure or (fit is not None and fit[0] >= least):
                    found[name_of(image)] = one
        if found or any(layer in chosen for layer in layers):
            return list(found.values())
        best = self._best_layer([link(layer) for layer in layers])
        if best is None or self.reading:
            return [] if best is None else [best]
        made, question = self._make(best), self._question(best)
        fault = find_misfit(best, made) if isinstance(made, Join) else None
        if best.layer is not table.layer and isinstance(fault, Misfit) and fault.better is None:
            text = f"{fault} Choose the layer to join them nevertheless"
            self._tried[best] = InputError(text)
        elif not question:
            # Keep this layer when its labels change.
            table.images[best.layer] = None
        return [best]

    def _best_layer(self, links: list[Link]) -> Link | None:
        """Return the link to the table's own layer, or to the layer with most of its cells.

        Labels with at least half of the cells come before the table's own points.
        """
        own = next((link for link in links if link.layer is link.table.layer), None)
        if own is not None and (isinstance(own.layer, Labels) or own.table.origin == "features"):
            return own
        least = 0 if own is None else own.table.adata.n_obs // 2
        links = [link for link in links if own is None or isinstance(link.layer, Labels)]
        fits = {link: fit for link in links if (fit := self._fit(link)) and fit[0] > least}
        return max(fits, key=lambda link: fits[link], default=own)

    def _fit(self, link: Link) -> tuple[int, int] | None:
        """Return how many cells a link joins, and how many labels it leaves, as minus; None if few.

        An image that may be no mask must have most of the cells and few other labels.
        """
        made, least = self._make(link), min if link.layer in self._all else max
        if not isinstance(made, Join):
            return None
        # If layers are equal, take that with the fewest other labels.
        fit = made.n_joined, -made.n_unmatched_ids
        return fit if fit[0] >= max(1, least(made.n_rows, len(made.of.ids)) / 2) else None

    @property
    def image_column(self) -> str | None:
        """Column that holds the image of each cell; None if all cells are in one image."""
        there = self.table is not None and self._image_column in self.table.adata.obs
        return self._image_column if there else None

    def _find_image_column(self) -> str | None:
        if self.table is None or self.table.image_column == ONE_IMAGE:
            return None
        declared = self.table.declared.get("region_key")
        return image_column(self.table.adata.obs, self.table.image_column or declared, self.layers)

    def _image_of_cells(self) -> pd.Series | None:
        column = self.image_column
        return None if self.table is None or column is None else self.table.adata.obs[column]

    def _images_by_name(self) -> dict[Layer, object]:
        images = self._image_of_cells()
        return {} if images is None else images_by_name(self.layers, images.dropna().unique())

    def images(self) -> list[TableImage]:
        """Return the images of the table with the layers that show them; empty for fewer than two.

        They are in the order of the categories, or else by name and number: 2 before 10.
        """
        column = self._image_of_cells()
        if column is None:
            return []
        counts = column.value_counts(sort=False)
        values: list[object] = list(counts.index[counts > 0])
        if len(values) < 2:
            return []
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
        if self.images():
            column = self.image_column
            images = self.table.adata.obs[column].dropna()
            return (
                f"{cells}; no layer has the name of an image in the column {column!r}, such as "
                f"{name_of(images.iloc[0])}, or most of the ids. Choose the layer of each image."
            )
        tried = list(self._tried.values())
        if tried and all(isinstance(one, ValueError) for one in tried):
            return f"{cells}; {tried[0]}."
        ids = " or ".join(dict.fromkeys(link.ids_name for link in self._tried))
        return (
            f"{cells}; no layer has most of their ids in {ids}. Choose the layer, and the column "
            "of ids."
        )

"""The tables and layers of a viewer, and which table is shown in which layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from napari.layers import Labels, Layer, Points
from psygnal import Signal

from centroid_encoder.viewer.data.join import Join, Link, Region, guess, guess_link
from centroid_encoder.viewer.data.tables import Table, Tables, layers_of_cells

if TYPE_CHECKING:
    from anndata import AnnData
    from napari.components import LayerList

LAYERS = ("inserted", "removed", "reordered")
"""Events of the list of layers after which tables and layers are looked for again."""
PLACES = ("name", "features", "metadata")
"""Events of a layer after which they are, too; a change inside of the metadata tells nobody."""
IDS = ("data", "labels_update")
"""Events of a layer that may have other ids now."""


class Catalog:
    """What can be chosen: tables and layers; and what is: a table, and its link to a layer.

    Layers are followed from `connect` to `disconnect`. Their events come in bursts, and while
    napari is still busy with the layer: `stirred` and `painted` tell that `refresh` or
    `join_again` should follow soon, and whoever has an event loop calls it once for all of them.

    Parameters
    ----------
    layers
        The viewer's layers.

    Attributes
    ----------
    tables
        All tables, in the order of listing.
    layers
        The layers that may show their cells.
    table
        The table that is chosen, or None.
    link
        What joins it to a layer, or None if no layer shows it.
    join
        Which row is which label or point there; None also if the link does not say it.
    problem
        What is wrong with the link then, or None.
    """

    listed = Signal()
    """Tables or layers have come, gone or changed their names."""
    table_changed = Signal()
    """Another table is chosen; its link comes later."""
    link_changed = Signal()
    """There is another link, or it was made anew."""
    stirred = Signal()
    """Layers have come, gone or changed: `refresh` soon."""
    painted = Signal()
    """The layer of the link may have other ids: `join_again` soon."""

    def __init__(self, layers: LayerList) -> None:
        self.tables: list[Table] = []
        self.layers: list[Labels | Points] = []
        self.table: Table | None = None
        self.link: Link | None = None
        self.join: Join | None = None
        self.problem: ValueError | None = None
        self._all = layers
        self._tables = Tables(layers)
        self._watched: list[Layer] = []
        # No links: they would keep alive what they join.
        self._chosen: WeakKeyDictionary[
            Table, WeakKeyDictionary[Layer, tuple[Region | None, str | None]]
        ] = WeakKeyDictionary()

    @property
    def joins(self) -> dict[Link, Join]:
        """The links by which cells are shown, and what is which there; one of them today."""
        return {} if self.link is None or self.join is None else {self.link: self.join}

    @property
    def layer(self) -> Layer | None:
        """The layer that shows the table, or None."""
        return None if self.link is None else self.link.layer

    def connect(self) -> None:
        """Follow the layers of the viewer."""
        for name in LAYERS:
            self._all.events[name].connect(self._on_layers)
        self.refresh()

    def disconnect(self) -> None:
        """Follow them no longer."""
        for name in LAYERS:
            self._all.events[name].disconnect(self._on_layers)
        self._watch([])

    def add(self, adata: AnnData, name: str, *, path: Path | None = None) -> Table:
        """List an AnnData of a file or a notebook."""
        table = self._tables.add(adata, name, path=path)
        self.refresh()
        return table

    def open(self, path: Path) -> Table:
        """Read a ``.h5ad`` and list it.

        Raises
        ------
        OSError
            If the file is damaged or of another kind.
        """
        from centroid_encoder.viewer.data.reader import read_adata

        return self.add(read_adata(path), path.name, path=path)

    def refresh(self) -> None:
        """Look for tables and layers again; what is chosen stays, where it still exists."""
        self._watch(list(self._all))
        self.tables, self.layers = self._tables.find(), layers_of_cells(self._all)
        table = self.table
        if table is not None and table.path is not None and table not in self.tables:
            # Its layer was closed, not the file.
            table = self._tables.add(table.adata, table.name, path=table.path)
            self.tables = self._tables.find()
        if table not in self.tables:
            table = self._successor()
        if table is not self.table:
            self.choose(table)
        elif self.layer not in self.layers:
            self._link_best()
        self.listed.emit()

    def _successor(self) -> Table | None:
        """Return what is chosen in place of a table that is gone.

        Where another plugin has replaced a layer's features, that is what they are now; the same
        goes for what is attached to it.
        """
        gone = self.table
        if gone is not None and gone.layer is not None:
            for table in self.tables:
                if (table.origin, table.layer) == (gone.origin, gone.layer):
                    return table
        return next(iter(self.tables), None)

    def choose(self, table: Table | None) -> None:
        """Choose a table, and the layer that fits it best.

        The same table again, if its cells have changed, stays in its layer.
        """
        layer = self.layer if table is self.table else None
        if table is not self.table:
            self.table, self.link, self.join = table, None, None
            self.table_changed.emit()
        if layer in self.layers:
            self.choose_layer(layer)
        else:
            self._link_best()

    def choose_layer(self, layer: Layer | None) -> None:
        """Choose the layer that shows the table, or that none does."""
        table = self.table
        self.link = None if table is None or layer is None else self._guess(table, layer)
        self.join_again()

    def choose_link(self, link: Link) -> None:
        """Choose what joins the table to a layer, and remember it for that layer."""
        known = self._chosen.setdefault(link.table, WeakKeyDictionary())
        known[link.layer] = link.region, link.id_column
        self.link = link
        self.join_again()

    def choose_ids(self, id_column: str) -> None:
        """Choose the column of ids; the region stays as it was guessed."""
        if self.link is not None:
            self.choose_link(replace(self.link, id_column=id_column))

    def join_again(self) -> None:
        """Make the link; `problem` says why if that cannot be."""
        self.join = self.problem = None
        try:
            if self.link is not None:
                self.join = self.link.make()
        except ValueError as error:
            self.problem = error
        self.link_changed.emit()

    def _link_best(self) -> None:
        table = self.table
        self.link = None if table is None else guess_link(table, self.layers, self._guess)
        self.join_again()

    def _guess(self, table: Table, layer: Layer) -> Link:
        """Return the link that was chosen for a layer, or a guess, which is kept as well."""
        known = self._chosen.setdefault(table, WeakKeyDictionary())
        if layer not in known:
            link = guess(table, layer)
            known[layer] = link.region, link.id_column
        region, id_column = known[layer]
        return Link(table, region, layer, id_column)

    # -- layers that change ----------------------------------------------------------------------

    def _on_layers(self, _: Any) -> None:
        self.stirred.emit()

    def _on_ids(self, event: Any) -> None:
        if event.source is self.layer:
            self.painted.emit()

    def _watch(self, layers: list[Layer]) -> None:
        """Listen to these layers, and to no others."""
        for layer in self._watched:
            if layer not in layers:
                self._each(layer, "disconnect")
        for layer in layers:
            if layer not in self._watched:
                self._each(layer, "connect")
        self._watched = layers

    def _each(self, layer: Layer, do: str) -> None:
        for names, slot in ((PLACES, self._on_layers), (IDS, self._on_ids)):
            for name in names:
                if name in layer.events:
                    getattr(layer.events[name], do)(slot)

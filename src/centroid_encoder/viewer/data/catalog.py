"""The tables and layers of a viewer, and which table is shown in which layer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from napari.layers import Image, Labels, Layer, Points
from psygnal import Signal

from centroid_encoder.viewer.data.guesses import guess, guess_link
from centroid_encoder.viewer.data.join import Join, LayerIds, Link
from centroid_encoder.viewer.data.measuring import measurable
from centroid_encoder.viewer.data.positions import Misfit, check_positions
from centroid_encoder.viewer.data.regions import Region, alike
from centroid_encoder.viewer.data.tables import Table, Tables, layers_of_cells

if TYPE_CHECKING:
    import numpy as np
    from anndata import AnnData
    from napari.components import LayerList
    from numpy.typing import NDArray

LAYERS = ("inserted", "removed", "reordered")
"""Events of the list of layers after which tables and layers are looked for again."""
PLACES = ("name", "features", "metadata")
"""Events of a layer after which they are, too; a change inside of the metadata tells nobody."""
IDS = ("data", "labels_update")
"""Events of a layer that may have other ids now."""

FEW = 5
"""Layers of which it is said why they do not show a table."""

_How = tuple[Region | None, str | None, int, tuple[str | None, ...]]
"""What joins a layer to a table: the fields of a `Link` but these two."""
_Known = WeakKeyDictionary[Layer, _How]


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
    measurable
        Layers that hold cells to be measured, and those that hold intensities.
    table
        The table that is chosen, or None.
    link
        What joins it to the layer that is chosen, or None if no layer shows it.
    joins
        The links by which cells are shown, and which row is which label or point there: that one,
        unless it does not say so, and those to layers that show other regions of the table.
    problem
        What is wrong with the link then, or None.
    misfit
        How the positions of the cells speak against the link, or None.
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
        self.measurable: tuple[list[Labels], list[Image]] = [], []
        self.table: Table | None = None
        self.link: Link | None = None
        self.joins: dict[Link, Join] = {}
        self.problem: ValueError | None = None
        self.misfit: Misfit | None = None
        self._all = layers
        self._tables = Tables(layers)
        self._watched: list[Layer] = []
        self._named: list[tuple[int, str]] = []
        # What was compared with the positions of the cells last.
        self._compared: Link | None = None
        # The user wants the cells in no layer.
        self._declined = False
        # By table. No links: they would keep alive what they join.
        self._chosen: WeakKeyDictionary[Table, _Known] = WeakKeyDictionary()
        self._guessed: WeakKeyDictionary[Table, _Known] = WeakKeyDictionary()
        self._ids: WeakKeyDictionary[Layer, LayerIds] = WeakKeyDictionary()

    @property
    def join(self) -> Join | None:
        """Which row is which label or point in the layer that is chosen, if the link says it."""
        return None if self.link is None else self.joins.get(self.link)

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
        """Read a ``.h5ad`` or a ``.zarr`` and list it.

        Raises
        ------
        OSError
            If the file is damaged or of another kind.
        """
        from centroid_encoder.viewer.data.reader import read_adata

        return self.add(read_adata(path), path.name, path=path)

    def add_in_place_of(self, layer: Labels, name: str, labels: NDArray[np.int32]) -> None:
        """Add a layer of other labels in the pixels of one that is there, which is hidden."""
        same = ("scale", "translate", "rotate", "shear", "units", "axis_labels", "opacity")
        new = Labels(labels, name=name, **{what: getattr(layer, what) for what in same})
        layer.visible = False
        self._all.insert(self._all.index(layer) + 1 if layer in self._all else 0, new)

    def refresh(self) -> None:
        """Look for tables and layers again; what is chosen stays, where it still exists."""
        self._watch(list(self._all))
        self.tables, self.layers = self._tables.find(), layers_of_cells(self._all)
        self.measurable = measurable(self._all)
        named = [(id(layer), layer.name) for layer in self.layers]
        others_may_fit, self._named = named != self._named, named
        if others_may_fit:
            self._guessed.clear()
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
        elif others_may_fit and self.link is not None and self.link.region is not None:
            self.join_again()
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
        # What is gone may not have been heard of yet.
        self.layers = layers_of_cells(self._all)
        layer = self.layer if table is self.table else None
        if table is not self.table:
            self.table, self.link, self.joins = table, None, {}
            self.table_changed.emit()
        if layer in self.layers:
            self.choose_layer(layer)
        else:
            self._link_best()

    def choose_layer(self, layer: Layer | None) -> None:
        """Choose the layer that shows the table, or that none does."""
        table = self.table
        self._declined = layer is None
        self.link = None if table is None or layer is None else self._guess(table, layer)
        self.join_again()

    def choose_link(self, link: Link) -> None:
        """Choose what joins the table to a layer, and remember it.

        Other layers are joined in the same way, where it fits them and nothing else was chosen.
        """
        known = self._chosen.setdefault(link.table, WeakKeyDictionary())
        known[link.layer] = _how(link)
        self._guessed.pop(link.table, None)
        self.link = link
        self.join_again()

    def choose_ids(self, id_column: str) -> None:
        """Choose the column of ids; the region stays as it was guessed."""
        if self.link is not None:
            self.choose_link(replace(self.link, id_column=id_column, shift=0))

    def join_again(self) -> None:
        """Make the links; `problem` says why if that cannot be."""
        self.joins, self.problem = {}, None
        if self.misfit is not None or self.link != self._compared:
            # Not for each stroke of who paints labels: it takes a while.
            self.misfit, self._compared = None, None
        if self.link is not None:
            # Who changes an array in place tells nobody.
            self._ids.pop(self.link.layer, None)
            try:
                self.joins[self.link] = self.link.make(self._read)
                if self._compared is None:
                    self.misfit, self._compared = check_positions(self.link, self._read), self.link
            except ValueError as error:
                self.problem = error
            self._join_other_regions(self.link)
        self.link_changed.emit()

    def _join_other_regions(self, chosen: Link) -> None:
        """Join the layers that show other regions of the table, one layer a region."""
        if chosen.region is None or chosen.region.value is None:
            return
        shown = {chosen.region}
        for layer in alike(chosen.layer.name, self.layers):
            link = chosen if layer is chosen.layer else self._guess(chosen.table, layer)
            region = link.region
            if region is None or region.value is None or region in shown:
                continue
            try:
                join = link.make(self._read)
            except ValueError:
                continue
            if region.column == chosen.region.column and join.n_joined:
                self.joins[link] = join
                shown.add(region)

    def absence(self) -> str:
        """Return why no layer shows the table, as sentences; empty if one does."""
        table = self.table
        if table is None or self.link is not None:
            return ""
        cells = f"{table.adata.n_obs:,} cells"
        if self._declined:
            return f"{cells}; shown in no layer."
        reasons = []
        for layer in self.layers[:FEW] if table.adata.n_obs else ():
            link = self._guess(table, layer)
            try:
                link.make(self._read)
                reasons.append(f"{layer.name}: {link.ids_name} holds none of its ids.")
            except ValueError as error:
                reasons.append(f"{layer.name}: {error}.")
        return "\n".join([f"{cells}; no layer to show them in.", *reasons])

    def unseen(self, rows: NDArray[np.intp]) -> str:
        """Return why none of these cells is in a layer; empty if one is, or if there are none.

        Cells of another image can be selected in the map, while no layer of it is open.
        """
        table, link = self.table, self.link
        if table is None or not len(rows):
            return ""
        if any(join.joined[rows].any() for join in self.joins.values()):
            return ""
        if link is None:
            return "No layer shows the cells of this table."
        region, obs = link.region, table.adata.obs
        shown = [other.region for other in self.joins]
        if region is not None and region.column in obs:
            values = obs[region.column].iloc[rows].dropna().unique()
            elsewhere = [str(v) for v in values if region._replace(value=v) not in shown]
            if elsewhere and region.value is not None:
                more = " …" if len(elsewhere) > 3 else ""
                return f"In {', '.join(elsewhere[:3])}{more}: no layer of that image is joined."
        return f"Not in the layer {link.layer.name}."

    def _link_best(self) -> None:
        table = self.table
        self.link, self._declined = None, False
        if table is not None:
            self.link = guess_link(table, self.layers, self._guess, self._read)
        self.join_again()

    def _read(self, layer: Layer) -> LayerIds:
        """Ids of a layer, read once as long as it does not change."""
        if layer not in self._ids:
            self._ids[layer] = LayerIds.of(layer)
        return self._ids[layer]

    def _guess(self, table: Table, layer: Layer) -> Link:
        """Return the link that was chosen for a layer, or a guess, which is kept as well."""
        chosen = self._chosen.setdefault(table, WeakKeyDictionary())
        if layer in chosen:
            return _link(table, layer, chosen[layer])
        known = self._guessed.setdefault(table, WeakKeyDictionary())
        if layer not in known:
            like = next((_link(table, other, how) for other, how in chosen.items()), None)
            known[layer] = _how(guess(table, layer, self._read, like))
        return _link(table, layer, known[layer])

    # -- layers that change ----------------------------------------------------------------------

    def _on_layers(self, _: Any) -> None:
        self.stirred.emit()

    def _on_ids(self, event: Any) -> None:
        self._ids.pop(event.source, None)
        if any(link.layer is event.source for link in (*self.joins, self.link) if link):
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


def _how(link: Link) -> _How:
    return link.region, link.id_column, link.shift, link.undecided


def _link(table: Table, layer: Layer, how: _How) -> Link:
    region, id_column, shift, undecided = how
    return Link(table, region, layer, id_column, shift, undecided)

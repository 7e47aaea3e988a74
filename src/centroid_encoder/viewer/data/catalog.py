"""The tables and layers of a viewer, and which table is shown in which layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from napari.layers import Image, Labels, Layer
from psygnal import Signal

from centroid_encoder.viewer.data.guesses import ONE_IMAGE, Columns, guess, guess_link
from centroid_encoder.viewer.data.ids import CellLayer
from centroid_encoder.viewer.data.images import TableImage, region_column, table_images, unseen
from centroid_encoder.viewer.data.join import Join, Link
from centroid_encoder.viewer.data.known import Known
from centroid_encoder.viewer.data.measuring import measurable
from centroid_encoder.viewer.data.memory import How
from centroid_encoder.viewer.data.positions import Misfit, check_positions
from centroid_encoder.viewer.data.regions import Region, alike
from centroid_encoder.viewer.data.tables import Table, Tables, layers_of_cells
from centroid_encoder.viewer.data.watch import LayerWatch

if TYPE_CHECKING:
    import numpy as np
    from anndata import AnnData
    from napari.components import LayerList
    from numpy.typing import NDArray

FEW = 5
"""Layers of which it is said why they do not show a table."""


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
        The links by which cells are shown, and which row is which label, point or shape there: that
        one, unless it does not say so, and those to layers that show other regions of the table.
    problem
        What is wrong with the link then, or None.
    problems
        What is wrong with links to layers that show other regions.
    misfits
        How the positions of the cells speak against links.
    scales
        What is to be said of links whose positions are on another scale than their labels.
    lost
        The table that was chosen until its layer was removed, and the name of that layer; None once
        the user has chosen again.
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
    """The layer of the link may have other ids, or pixels of another size: `join_again` soon."""

    def __init__(self, layers: LayerList) -> None:
        self.tables: list[Table] = []
        self.layers: list[CellLayer] = []
        self.measurable: tuple[list[Labels], list[Image]] = [], []
        self.table: Table | None = None
        self.link: Link | None = None
        self.joins: dict[Link, Join] = {}
        self.problem: ValueError | None = None
        self.problems: dict[Link, ValueError] = {}
        self.misfits: dict[Link, Misfit] = {}
        self.scales: dict[Link, str] = {}
        self.lost: tuple[Table, str] | None = None
        self._all = layers
        self._tables = Tables(layers)
        self._watch = LayerWatch(layers)
        self._watch.stirred.connect(self._on_stirred)
        self._watch.ids_changed.connect(self._on_ids)
        self._watch.scaled.connect(self._on_scale)
        self._known = Known()
        self._named: list[tuple[int, str]] = []
        # What was compared with the positions of the cells.
        self._compared: set[Link] = set()
        # The user wants the cells in no layer.
        self._declined = False

    @property
    def join(self) -> Join | None:
        """Which row is which label or point in the layer that is chosen, if the link says it."""
        return None if self.link is None else self.joins.get(self.link)

    @property
    def layer(self) -> Layer | None:
        """The layer that shows the table, or None."""
        return None if self.link is None else self.link.layer

    @property
    def misfit(self) -> Misfit | None:
        """How the positions of the cells speak against one of the links, or None."""
        return next(iter(self.misfits.values()), None)

    def connect(self) -> None:
        """Follow the layers of the viewer."""
        self._watch.connect()
        self.refresh()

    def disconnect(self) -> None:
        """Follow them no longer."""
        self._watch.disconnect()

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
        self._watch.follow(self._all)
        self.tables, self.layers = self._tables.find(), layers_of_cells(self._all)
        self.measurable = measurable(self._all)
        named = [(id(layer), layer.name) for layer in self.layers]
        others_may_fit, self._named = named != self._named, named
        if others_may_fit:
            self._known.forget_guesses()
        table = self.table
        if table is not None and table.path is not None and table not in self.tables:
            # Its layer was closed, not the file.
            table = self._tables.add(table.adata, table.name, path=table.path)
            self.tables = self._tables.find()
        is_back = self._look_for_lost()
        if table not in self.tables:
            table = self._successor()
        if table is not self.table:
            self._choose(table)
        elif is_back:
            self.link_changed.emit()
        elif self.layer not in self.layers:
            if not self._declined:
                self._link_best()
        elif others_may_fit and self.link is not None and self.link.region is not None:
            # Its name may tell another region now.
            self.link = self._known.guess(self.link.table, self.link.layer)
            self.join_again()
        self.listed.emit()

    def _look_for_lost(self) -> bool:
        """Note a table that has gone with its layer; tell whether one that was lost is back."""
        gone = self.table
        if gone is not None and gone not in self.tables and gone.layer is not None:
            if gone.layer not in self._all:
                # Without the layer, which may be large.
                self.lost = Table(gone.adata, gone.name), gone.layer.name
        elif self.lost is not None and any(layer.name == self.lost[1] for layer in self._all):
            self.lost = None
            return True
        return False

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
        self.lost = None
        self._choose(table)

    def _choose(self, table: Table | None) -> None:
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

    def keep_lost(self) -> None:
        """List and choose the table whose layer was removed; it stays as long as the viewer."""
        if self.lost is not None:
            table, _ = self.lost
            self.choose(self.add(table.adata, table.name))

    def choose_layer(self, layer: Layer | None) -> None:
        """Choose the layer that shows the table, or that none does."""
        table = self.table
        self._declined = layer is None
        self.link = None
        if table is not None and layer is not None:
            self._known.memory(table).allow(layer)
            self.link = self._known.guess(table, layer)
        self.join_again()

    def choose_link(self, link: Link) -> None:
        """Choose what joins the table to a layer, and remember it.

        Other layers are joined in the same way, where it fits them and nothing else was chosen.
        """
        self._known.memory(link.table).choose(link.layer, How.of(link))
        self._declined = False
        self.link = self._known.guess(link.table, link.layer)
        self.join_again()

    def choose_ids(self, id_column: str | None, shift: int = 0) -> None:
        """Choose the column of ids for all layers; the regions stay as they are."""
        table = self.table
        if self.link is not None:
            self.choose_link(replace(self.link, id_column=id_column, shift=shift))
        elif table is not None:
            column = self.region_column
            self._known.memory(table).choose_columns(Columns(id_column, shift, column))
            self._link_best()

    # -- images of the table ---------------------------------------------------------------------

    @property
    def region_column(self) -> str | None:
        """Column that says which image a cell is in; None if all are in one."""
        if self.table is None:
            return None
        adata, known = self.table.adata, self._known.memory(self.table).columns
        obs, attrs = adata.obs, adata.uns.get("spatialdata_attrs")
        declared = attrs.get("region_key") if isinstance(attrs, Mapping) else None
        if known is not None and known.regions is not None:
            declared = known.regions
        if declared == ONE_IMAGE:
            return None
        if self.link is not None and self.link.region is not None:
            declared = self.link.region.column
        return region_column(obs, declared)

    def images(self) -> list[TableImage]:
        """The images of the table, and what shows each of them; none if there is only one."""
        column = self.region_column
        if self.table is None or column is None:
            return []
        wrong = {link: str(error) for link, error in self.problems.items()}
        if self.problem is not None and self.link is not None:
            wrong[self.link] = str(self.problem)
        wrong |= {link: misfit.text for link, misfit in self.misfits.items()}
        return table_images(self.table.adata.obs, column, self.joins, wrong)

    def choose_region_column(self, column: str) -> None:
        """Choose the column that says which image a cell is in, or `ONE_IMAGE`."""
        table, link = self.table, self.link
        if table is not None:
            ids, shift = (None, 0) if link is None else (link.id_column, link.shift)
            self._known.memory(table).choose_columns(Columns(ids, shift, column))
            self._link_best()

    def show_region(self, value: object, layer: Layer | None) -> None:
        """Choose the layer that shows an image of the table, or that none does.

        Parameters
        ----------
        value
            The image, as the table calls it; None for all of them.
        layer
            The layer, which shows nothing else of the table then.
        """
        table, column = self.table, self.region_column
        if table is None or column is None:
            return
        memory, region = self._known.memory(table), Region(column, value)
        before = [link for link in (*self.joins, *self.problems, self.link) if link is not None]
        for link in before:
            if link.layer is not layer and link.region == region:
                memory.choose(link.layer, None)
        if layer is not None:
            like = memory.columns
            if like is None and self.link is not None:
                like = Columns(self.link.id_column, self.link.shift, column)
            self.choose_link(guess(table, layer, self._known.read, like, region))
        elif self.link is not None and memory.is_chosen(self.link.layer):
            self._link_best()
        else:
            self.join_again()

    # -- what is joined --------------------------------------------------------------------------

    def join_again(self) -> None:
        """Make the links; `problem` and `problems` say why if that cannot be."""
        self.joins, self.problem, self.problems = {}, None, {}
        if self.link is not None:
            # Who changes an array in place tells nobody.
            self._known.forget(self.link.layer)
            try:
                self.joins[self.link] = self.link.make(self._known.read)
            except ValueError as error:
                self.problem = error
            self._join_other_regions(self.link)
        self._compare()
        self.link_changed.emit()

    def _join_other_regions(self, chosen: Link) -> None:
        """Join the layers that show other regions of the table, one layer a region."""
        if chosen.region is None or (chosen.region.value is None and chosen in self.joins):
            return
        shown = {chosen.region}
        layers = alike(chosen.layer.name, self.layers)
        memory = self._known.memory(chosen.table)
        # What the user says counts more than names.
        for layer in sorted(layers, key=lambda layer: not memory.is_chosen(layer)):
            link = None if layer is chosen.layer else self._known.guess(chosen.table, layer)
            region = None if link is None else link.region
            if link is None or region is None or region.value is None or region in shown:
                continue
            if region.column != chosen.region.column:
                continue
            try:
                join = link.make(self._known.read)
            except ValueError as error:
                self.problems[link] = error
                continue
            if join.n_joined:
                self.joins[link] = join
                shown.add(region)

    def _compare(self) -> None:
        """Compare positions, once for a link: it takes too long for each stroke of a brush."""
        self._compared &= set(self.joins)
        known = self._compared
        self.misfits = {link: found for link, found in self.misfits.items() if link in known}
        self.scales = {link: said for link, said in self.scales.items() if link in known}
        for link in self.joins:
            if link not in self._compared:
                self._compared.add(link)
                misfit, scale = check_positions(link, self._known.read)
                self.misfits |= {} if misfit is None else {link: misfit}
                self.scales |= {} if scale is None else {link: scale}

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
            link = self._known.guess(table, layer)
            if link is None:
                continue
            try:
                link.make(self._known.read)
                reasons.append(f"{layer.name}: {link.ids_name} holds none of its ids.")
            except ValueError as error:
                reasons.append(f"{layer.name}: {error}.")
        return "\n".join([f"{cells}; no layer to show them in.", *reasons])

    def unseen(self, rows: NDArray[np.intp]) -> str:
        """Return why none of these cells is in a layer; empty if one is, or if there are none."""
        if self.table is None:
            return ""
        return unseen(self.table.adata.obs, rows, self.link, self.joins)

    def _link_best(self) -> None:
        table = self.table
        self.link, self._declined = None, False
        if table is not None:
            links = [link for layer in self.layers if (link := self._known.guess(table, layer))]
            self.link = guess_link(table, links, self._known.read)
        self.join_again()

    # -- layers that change ----------------------------------------------------------------------

    def _on_stirred(self) -> None:
        self.stirred.emit()

    def _on_ids(self, layer: Layer) -> None:
        self._known.forget(layer)
        if any(link.layer is layer for link in (*self.joins, self.link) if link):
            self.painted.emit()

    def _on_scale(self, layer: Layer) -> None:
        moved = {link for link in self._compared if link.layer is layer}
        if moved:
            self._compared -= moved
            self.painted.emit()

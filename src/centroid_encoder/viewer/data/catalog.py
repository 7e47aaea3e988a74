"""The tables and layers of a viewer, the table that is chosen, and the layers that show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from napari.layers import Image, Labels, Layer, Points
from psygnal import Signal

from centroid_encoder.viewer.data.guess import best_layer, id_column, id_columns
from centroid_encoder.viewer.data.ids import CellLayer, LayerIds, is_slow, read_ids
from centroid_encoder.viewer.data.images import (
    ONE_IMAGE,
    TableImage,
    image_column,
    images_by_name,
    table_images,
    unseen,
)
from centroid_encoder.viewer.data.join import Join, Link
from centroid_encoder.viewer.data.measuring import measurable
from centroid_encoder.viewer.data.positions import Misfit, coordinates, find_misfit
from centroid_encoder.viewer.data.tables import Table, find_tables, layers_of_cells

if TYPE_CHECKING:
    import numpy as np
    from anndata import AnnData
    from napari.components import LayerList
    from numpy.typing import NDArray

NOT_SHOWN = object()
"""Stands for the image of a layer that shows none, by the choice of the user."""


@dataclass
class Choice:
    """Choices of the user for one table; what is None is guessed."""

    ids: tuple[str, int] | None = None
    """Column of ids, and the number that is added to them."""
    image_column: str | None = None
    layer: Callable[[], Layer | None] = lambda: None
    """Weak reference to the layer that was chosen or found."""
    images: WeakKeyDictionary[Layer, object] = field(default_factory=WeakKeyDictionary)
    """The image that a layer shows, None for all of them, or `NOT_SHOWN`."""
    declined: bool = False
    """Whether no layer is to show the table."""


class Reading:
    """Stands for the ids of a layer while a thread reads them."""


class Catalog:
    """Tables and layers of a viewer; the table that is chosen, and its links to layers.

    Layers are followed from `connect` to `disconnect`. Their events come in bursts, and while
    napari is still busy with the layer. Therefore the catalog emits `stirred` and `painted`, and a
    panel with an event loop calls `refresh` or `join_again` once for all of them.

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
        The first link of the table, that of the layer that is chosen; None if no layer shows it.
    joins
        The links that are joined. A table of many images has a link for each layer.
    problems
        Errors of links that cannot be joined.
    misfits
        Links whose cells do not seem to lie where their labels are.
    read_later
        Reads the ids of a large or lazy layer and calls `take_ids` with them. Without it, these
        are read at once.
    """

    listed = Signal()
    """Tables or layers have come, gone or changed their names."""
    table_changed = Signal()
    """Another table is chosen; its links come later."""
    link_changed = Signal()
    """There are other links, or they were made anew."""
    stirred = Signal()
    """Layers have come, gone or changed: `refresh` soon."""
    painted = Signal()
    """A layer of a link may have other ids: `join_again` soon."""

    def __init__(self, layers: LayerList) -> None:
        self.tables: list[Table] = []
        self.layers: list[CellLayer] = []
        self.measurable: tuple[list[Labels], list[Image]] = [], []
        self.table: Table | None = None
        self.link: Link | None = None
        self.joins: dict[Link, Join] = {}
        self.problems: dict[Link, ValueError] = {}
        self.misfits: dict[Link, Misfit] = {}
        self.read_later: Callable[[Labels, Reading], None] | None = None
        self._all = layers
        self._opened: list[Table] = []
        self._links: list[Link] = []
        self._choices: WeakKeyDictionary[Table, Choice] = WeakKeyDictionary()
        self._ids: WeakKeyDictionary[Layer, LayerIds | ValueError | Reading] = WeakKeyDictionary()

    @property
    def join(self) -> Join | None:
        """The join of the layer that is chosen, or None."""
        return None if self.link is None else self.joins.get(self.link)

    @property
    def layer(self) -> Layer | None:
        """The layer that is chosen, or None."""
        return None if self.link is None else self.link.layer

    @property
    def problem(self) -> ValueError | None:
        """The error of the link to the layer that is chosen, or None."""
        return None if self.link is None else self.problems.get(self.link)

    @property
    def reading(self) -> list[Layer]:
        """Layers whose ids a thread is reading."""
        return [x for x in self.layers if isinstance(self._ids.get(x), Reading)]

    # -- tables ----------------------------------------------------------------------------------

    def connect(self) -> None:
        """Follow the layers of the viewer."""
        self._all.events.connect(self._on_event)
        self.refresh()

    def disconnect(self) -> None:
        """Follow them no longer; ids that are being read are dropped."""
        self._all.events.disconnect(self._on_event)
        self._ids.clear()
        self._links = []

    def add(self, adata: AnnData, name: str, *, path: Path | None = None) -> Table:
        """List an AnnData of a file or a notebook."""
        place = Table(adata, name, None, "notebook" if path is None else "file", path)
        self._opened = [*(x for x in self._opened if not x.holds(adata)), place]
        self.refresh()
        return next(table for table in self.tables if table.holds(adata))

    def open(self, path: Path) -> Table:
        """Read a ``.h5ad`` or a ``.zarr`` and list it.

        Raises
        ------
        OSError
            If the file is damaged or of another kind.
        """
        from centroid_encoder.viewer.data.reader import read_adata

        return self.add(read_adata(path), path.name, path=path)

    def is_opened(self, table: Table) -> bool:
        """Tell whether a table was opened or handed over, so that it can be closed."""
        return any(table.holds(place.adata) for place in self._opened)

    def close(self, table: Table) -> None:
        """List a table that was opened no longer, unless it is also found on a layer."""
        self._opened = [place for place in self._opened if not table.holds(place.adata)]
        self.refresh()

    def add_in_place_of(self, layer: Labels, name: str, labels: NDArray[np.int32]) -> None:
        """Add a layer of other labels in the pixels of one that is there, which is hidden."""
        same = ("scale", "translate", "rotate", "shear", "units", "axis_labels", "opacity")
        new = Labels(labels, name=name, **{what: getattr(layer, what) for what in same})
        layer.visible = False
        self._all.insert(self._all.index(layer) + 1 if layer in self._all else 0, new)

    def refresh(self) -> None:
        """Look for tables and layers again; the choices stay, where they still exist."""
        self.layers, self.measurable = layers_of_cells(self._all), measurable(self._all)
        table, known = self.table, self.tables
        self.tables = find_tables(self._all, self._opened, known)
        gone = table is not None and table.layer is not None and table not in self.tables
        if table is not None and gone and table.path is not None:
            # Its layer was closed, not the file.
            self._opened.append(Table(table.adata, table.name, None, "file", table.path))
            self.tables = find_tables(self._all, self._opened, known)
        if table not in self.tables:
            self._choose(self._successor())
        elif self._find_links() != self._links:
            self.join_again()
        self.listed.emit()

    def _successor(self) -> Table | None:
        """Return the table that takes the place of one that is gone: one of the same layer first.

        Another plugin may have replaced the features of a layer, or an AnnData that is attached.
        """
        gone = self.table
        if gone is not None and gone.layer is not None:
            for table in self.tables:
                if (table.origin, table.layer) == (gone.origin, gone.layer):
                    return table
        return next(iter(self.tables), None)

    def choose(self, table: Table | None) -> None:
        """Choose a table, and find the layers that show it; the same table is joined anew."""
        # A thread may choose a table before the viewer's events have been processed.
        self.layers = layers_of_cells(self._all)
        self._choose(table)

    def _choose(self, table: Table | None) -> None:
        if table is not self.table:
            self.table, self.link, self._links = table, None, []
            self.joins, self.problems, self.misfits = {}, {}, {}
            self.table_changed.emit()
        self.join_again()

    # -- choices of the user ---------------------------------------------------------------------

    @property
    def _choice(self) -> Choice:
        return Choice() if self.table is None else self._choices.setdefault(self.table, Choice())

    def choose_layer(self, layer: Layer | None) -> None:
        """Choose the layer that shows the table, or that none does."""
        choice = self._choice
        choice.declined = layer is None
        if layer is not None:
            choice.layer = ref(layer)
            if choice.images.get(layer) is NOT_SHOWN:
                del choice.images[layer]
            if self.image_column is not None and layer not in self._images_by_name():
                choice.images.setdefault(layer, None)
        self.join_again()

    def choose_ids(self, id_column: str | None, shift: int = 0) -> None:
        """Choose the column of ids for all layers; a guess without one."""
        self._choice.ids = (id_column, shift) if id_column else None
        self.join_again()

    def choose_image_column(self, column: str) -> None:
        """Choose the column that holds the image of each cell, or `ONE_IMAGE`."""
        self._choice.image_column = column
        self._choice.images.clear()
        self.join_again()

    def show_image(self, value: object, layer: Layer | None) -> None:
        """Choose the layer that shows an image of the table, or that none does.

        Parameters
        ----------
        value
            The image, as the table calls it; None for all of them.
        layer
            The layer, which shows nothing else of the table then.
        """
        choice = self._choice
        choice.declined = False
        for link in self._links:
            if str(link.image) == str(value) or (link.image is None and layer is not None):
                choice.images[link.layer] = NOT_SHOWN
        if layer is not None:
            if value is None:
                choice.images.clear()
            choice.images[layer] = value
        self.join_again()

    def show_positions(self) -> None:
        """Add the cells of the table as points at their positions."""
        from centroid_encoder.viewer.data.reader import points_layer

        if self.table is not None:
            data, options, _ = points_layer(self.table.adata, self.table.name, self.table.path)
            layer = Points(data, **options)
            self._all.append(layer)
            self.refresh()
            self.choose_layer(layer)

    @property
    def has_positions(self) -> bool:
        """Whether no layer shows the table, and its cells have positions."""
        return (
            self.table is not None
            and self.link is None
            and not self.reading
            and coordinates(self.table.adata) is not None
        )

    # -- images of the table ---------------------------------------------------------------------

    @property
    def image_column(self) -> str | None:
        """Column that holds the image of each cell; None if all are in one."""
        if self.table is None or self._choice.image_column == ONE_IMAGE:
            return None
        attrs = self.table.adata.uns.get("spatialdata_attrs")
        declared = attrs.get("region_key") if isinstance(attrs, Mapping) else None
        return image_column(self.table.adata.obs, self._choice.image_column or declared)

    def images(self) -> list[TableImage]:
        """The images of the table, and the layers that show them; empty if there is only one."""
        column = self.image_column
        if self.table is None or column is None:
            return []
        remarks = {link: str(error) for link, error in self.problems.items()}
        remarks |= {link: misfit.text for link, misfit in self.misfits.items()}
        return table_images(self.table.adata.obs, column, self.joins, remarks)

    def unseen(self, rows: NDArray[np.intp]) -> str:
        """Return why none of these cells is in a layer; empty if one is, or if there are none."""
        if self.table is None:
            return ""
        return unseen(self.table.adata.obs, rows, self.image_column, self.joins)

    def absence(self) -> str:
        """Return why no layer shows the table, as sentences; empty if one does."""
        if self.table is None or self.joins or self.problem is not None:
            return ""
        cells = f"{self.table.adata.n_obs:,} cells"
        if self._choice.declined:
            return f"{cells}; shown in no layer."
        if self.reading:
            return f"{cells}; reading the labels of {self.reading[0].name} …"
        if not self.layers:
            return f"{cells}; no layer to show them in."
        return f"{cells}; no layer has most of their ids. Choose the layer, and the column of ids."

    # -- links -----------------------------------------------------------------------------------

    def join_again(self) -> None:
        """Make the links; a join stays the same object if neither ids nor pixels have changed."""
        joins, misfits = self.joins, self.misfits
        self._links = self._find_links()
        self.link = next(iter(self._links), None)
        self.joins, self.problems, self.misfits = {}, {}, {}
        for link in self._links:
            try:
                ids = self._read(link.layer)
                # While a thread reads the layer, its cells stay where they were.
                join = joins.get(link) if ids is None else link.make(ids)
            except ValueError as error:
                self.problems[link] = error
                continue
            if join is None:
                continue
            before = joins.get(link)
            is_same = before is not None and before.is_like(join)
            self.joins[link] = before if before is not None and is_same else join
            misfit = misfits.get(link) if is_same else find_misfit(link, join)
            if misfit is not None:
                self.misfits[link] = misfit
        self.link_changed.emit()

    def _find_links(self) -> list[Link]:
        """Return the links by the choices of the user, else by names and ids."""
        table, choice, column = self.table, self._choice, self.image_column
        if table is None or choice.declined:
            return []

        columns = id_columns(table, column) if choice.ids is None else []

        def link(layer: Layer, image: object = None) -> Link:
            ids = choice.ids or (id_column(table, layer, columns), 0)
            return Link(table, image, layer, *ids, column)

        main = choice.layer()
        main = main if main in self.layers else None
        shown = self._images_by_name() | dict(choice.images)
        found: dict[str, Link] = {}
        # The choices of the user come first.
        layers = sorted(self.layers, key=lambda x: (x is not main, x not in choice.images))
        for layer in layers:
            image = shown.get(layer, NOT_SHOWN)
            if image is None:
                return [link(layer)]
            if image is not NOT_SHOWN:
                found.setdefault(str(image), link(layer, image))
        if found:
            return list(found.values())
        if main is None and any(layer in choice.images for layer in self.layers):
            return []
        if main is None:
            main = self._best_layer(table, link)
        return [] if main is None else [link(main)]

    def _best_layer(self, table: Table, link: Callable[[Layer], Link]) -> Layer | None:
        """Return the layer that shows the table by its ids, and keep it as if it were chosen."""

        def join(layer: Layer) -> Join | None:
            try:
                ids = self._read(layer)
                return None if ids is None else link(layer).make(ids)
            except ValueError:
                return None

        layer = best_layer(table, self.layers, join)
        if layer is not None and not self.reading:
            self._choice.layer = ref(layer)
        return layer

    def _images_by_name(self) -> dict[Layer, object]:
        column = self.image_column
        if self.table is None or column is None:
            return {}
        values = self.table.adata.obs[column].dropna().unique()
        return images_by_name(self.layers, values)

    # -- ids of layers ---------------------------------------------------------------------------

    def _read(self, layer: Layer) -> LayerIds | None:
        """Ids of a layer, read once until it changes; None while a thread reads them."""
        if layer not in self._ids:
            if isinstance(layer, Labels) and self.read_later is not None and is_slow(layer):
                reading = self._ids[layer] = Reading()
                self.read_later(layer, reading)
            else:
                try:
                    self._ids[layer] = read_ids(layer)
                except ValueError as error:
                    self._ids[layer] = error
        found = self._ids[layer]
        if isinstance(found, ValueError):
            raise found
        return None if isinstance(found, Reading) else found

    def take_ids(self, layer: Layer, reading: Reading, ids: LayerIds | ValueError) -> None:
        """Take the ids that a thread has read, unless the layer has changed meanwhile."""
        if self._ids.get(layer) is reading:
            self._ids[layer] = ids
            self.join_again()

    def _on_event(self, event: Any) -> None:
        """Handle an event of the list of layers, or of a layer in it."""
        layer, kind = event.sources[0], event.type
        if kind in ("inserted", "removed", "reordered", "name", "features", "metadata"):
            self.stirred.emit()
        has_ids = ("data", "labels_update") if isinstance(layer, Labels) else ("data", "features")
        if isinstance(layer, CellLayer) and kind in has_ids:
            self._ids.pop(layer, None)
            if any(link.layer is layer for link in self._links):
                self.painted.emit()

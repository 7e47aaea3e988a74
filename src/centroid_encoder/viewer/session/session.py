"""What the widget shows and what is chosen in it: one state without Qt, which panels observe.

A panel calls the methods of the session and connects to its events; panels do not know each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from napari.components import LayerList
from numpy.typing import NDArray
from psygnal import Signal

from centroid_encoder.pl._colors import class_colors, label_colors, set_label_color
from centroid_encoder.tl._result import (
    Column,
    Result,
    StoredCrossValidation,
    StoredMap,
    obs_key,
    read_result,
)
from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.publish import publish
from centroid_encoder.viewer.session.provenance import MadeBy, Provenance
from centroid_encoder.viewer.session.relabeling import Relabeling

if TYPE_CHECKING:
    from anndata import AnnData

    from centroid_encoder.tl._result import Regions
    from centroid_encoder.viewer.data.join import Join, Link
    from centroid_encoder.viewer.data.tables import Table

SelectionMode = Literal["replace", "add", "remove"]
Kind = Literal["info", "warning", "error"]

NO_TABLE = (
    "No table yet.\n\nOpen a .h5ad or .zarr above, measure the cells of a Labels layer,\n"
    "or open a sample: File ▸ Open Sample ▸ Centroid-Encoder"
)
NO_MAP = "No map yet.\n\nChoose the labels and press Train."


class Session:
    """State of one widget.

    Every event comes after the state has changed. Those without a value say that panels should
    look again.

    Parameters
    ----------
    layers
        The layers of the viewer; without a viewer, none.

    Attributes
    ----------
    catalog
        Tables and layers: which there are, and which are chosen.
    table
        The table that is chosen, or None.
    key
        Name of its results: ``uns[key]``, ``obs[f"{key}_…"]``.
    result, check
        What is stored under that name: the map, and what a cross-validation found; None for none.
    absence
        Why there is no map, in words for its place.
    links
        Which layers show its cells, and which row is what there.
    selected
        (n_obs,) mask of the selected cells.
    regions
        Kind of regions that the map shows, or None.
    hidden
        Names of the classes that the map does not show.
    provenance
        How each result was made.
    """

    said = Signal(object, str)
    """Something to tell the user, a text or an exception, and its kind."""
    failed = Signal(object)
    """An exception that ends what the user wanted."""
    table_changed = Signal()
    """Another table, or the cells of the same one are others."""
    columns_changed = Signal()
    """The table may have other columns."""
    label_key_changed = Signal()
    result_changed = Signal()
    """The map and the cross-validation were read."""
    check_changed = Signal()
    """The cross-validation alone was read."""
    labels_changed = Signal()
    """Cells were relabelled, or that was undone."""
    values_changed = Signal(object)
    """Codes and colours by which cells are coloured instead of by their class, or None."""
    colors_changed = Signal()
    """A class has another colour."""
    selection_changed = Signal()
    links_changed = Signal()
    zoom_requested = Signal()
    """The user wants to see the selected cells in their layers."""
    regions_changed = Signal()
    hidden_changed = Signal()
    mapped = Signal()
    """The cells that are shown now were sent through the map of others."""
    framed = Signal(object, object, str)
    """A training of cells of the table, its `Report` with an embedding, and the label column."""
    drawn = Signal()
    """All of the map is on the screen."""

    def __init__(self, layers: LayerList | None = None) -> None:
        self.catalog = Catalog(LayerList() if layers is None else layers)
        self.catalog.table_changed.connect(self._on_table)
        self.catalog.link_changed.connect(self.links_changed.emit)
        self.key = "ce"
        self.result: Result | None = None
        self.check: StoredCrossValidation | None = None
        self.absence = NO_TABLE
        self.selected = np.zeros(0, dtype=bool)
        self.regions: Regions | None = "voronoi"
        self.hidden: frozenset[str] = frozenset()
        self.provenance = Provenance()
        self._label_key: str | None = None
        self._relabelings: list[Relabeling] = []
        # The cells as they were when they were read: anndata tells nobody when they change.
        self._obs_names = pd.Index([])

    # -- what is chosen --------------------------------------------------------------------------

    @property
    def table(self) -> Table | None:
        """The table that is chosen."""
        return self.catalog.table

    @property
    def links(self) -> dict[Link, Join]:
        """Which layers show its cells, and which row is what there."""
        return self.catalog.joins

    @property
    def adata(self) -> AnnData | None:
        """The AnnData of the table that is chosen."""
        return None if self.table is None else self.table.adata

    @property
    def label_key(self) -> str | None:
        """The label column that is chosen; None also if it has been deleted since."""
        there = self.adata is not None and self._label_key in self.adata.obs
        return self._label_key if there else None

    @property
    def shown_labels(self) -> str | None:
        """Label column of what is shown: that of the map, else the one that is chosen."""
        return self.label_key if self.result is None else self.result.label_key

    @property
    def trained_labels(self) -> str | None:
        """Label column of the result that came with the table, if it is still there."""
        stored = None if self.adata is None else self.adata.uns.get(self.key)
        params = stored.get("params") if isinstance(stored, Mapping) else None
        label_key = params.get("label_key") if isinstance(params, Mapping) else None
        return label_key if self.adata is not None and label_key in self.adata.obs else None

    @property
    def misplaced_by(self) -> Regions:
        """Kind of regions that tell which cells are misplaced."""
        if self.result is not None and not self.result.stored.has_decoder:
            return "voronoi"
        return self.regions or "decoder"

    @property
    def relabeling(self) -> Relabeling | None:
        """Relabelling of the labels that are chosen, which goes on where it was left."""
        adata, label_key = self.adata, self.label_key
        if adata is None or label_key is None:
            return None
        for known in self._relabelings:
            if known.adata is adata and label_key in (known.column, known.label_key):
                return known
        # Or go on with that of an earlier day.
        column = f"{label_key}_relabeled"
        begun = Relabeling(adata, label_key, column if column in adata.obs else None)
        self._relabelings.append(begun)
        return begun

    def _on_table(self) -> None:
        """Read the table that is chosen; its links come afterwards."""
        adata = self.adata
        self._obs_names = pd.Index([]) if adata is None else adata.obs_names
        self.selected = np.zeros(len(self._obs_names), dtype=bool)
        # The map of the table before says nothing of this one.
        self.result = self.check = None
        self.say("")
        self.table_changed.emit()
        self.read()

    def choose_key(self, key: str) -> None:
        """Choose the name of the results."""
        if key != self.key:
            self.key = key
            self.read()

    def choose_labels(self, label_key: str | None) -> None:
        """Choose the label column."""
        self._label_key = label_key
        self.label_key_changed.emit()

    def choose_regions(self, regions: Regions | None) -> None:
        """Choose the kind of regions that the map shows."""
        self.regions = regions
        if not self.reread():
            self.regions_changed.emit()

    def hide_classes(self, names: frozenset[str]) -> None:
        """Choose the classes that the map does not show."""
        self.hidden = names
        self.hidden_changed.emit()

    def say(self, text: str | Exception, kind: Kind = "info") -> None:
        """Tell the user something, or that there is nothing to tell any more."""
        self.said.emit(text, kind)

    # -- what is stored --------------------------------------------------------------------------

    def read(self) -> None:
        """Read what is stored under the key; events tell what there is."""
        if self.reread():
            return
        self.result, self.absence = self._read_map()
        self.check = self._read_check()
        self.result_changed.emit()

    def show_mapped(self, table: Table, key: str) -> None:
        """Go to cells that were sent through a map, and choose the name of the result."""
        if table not in self.catalog.tables:
            return
        self.key = key
        if table is self.table:
            self.read()
        else:
            self.catalog.choose(table)
        if self.result is not None:
            self.mapped.emit()

    def _read_map(self) -> tuple[Result | None, str]:
        """Return the map, or why there is none."""
        adata = self.adata
        if adata is None:
            return None, NO_TABLE
        try:
            return read_result(adata, self.key), ""
        except (KeyError, ValueError) as error:
            # Without a map there is nothing wrong; with a part of one, the user should know.
            if self.key in adata.uns or not isinstance(error, KeyError):
                self.say(error, "warning")
            return None, NO_MAP

    @property
    def reference(self) -> Result | None:
        """The map that the cells were sent through, with its own cells; None if it is not open.

        Tables do not know where they came from, but a map is known by its classes, its centers and
        its network.
        """
        if self.result is None or not self.result.is_query:
            return None
        own = self.result.stored
        for table in self.catalog.tables:
            for key in table.adata.uns:
                try:
                    stored = StoredMap.read(table.adata, key)
                    if stored is None or stored.ingested_from is not None:
                        continue
                    same = stored.classes.equals(own.classes)
                    if same and np.array_equal(stored.centers, own.centers) and _alike(stored, own):
                        return read_result(table.adata, key)
                except (KeyError, ValueError):  # damaged, or no result at all
                    continue
        return None

    def _read_check(self) -> StoredCrossValidation | None:
        return None if self.adata is None else StoredCrossValidation.read(self.adata, self.key)

    def reread(self) -> bool:
        """Read the table anew if its cells have changed, which no event tells; return whether."""
        if self.table is None or self.table.adata.obs_names.equals(self._obs_names):
            return False
        self._on_table()
        self.catalog.choose(self.table)
        self.say("The cells of the table have changed; this is how they are now.")
        return True

    def write(self, job: Any, table: Table, made_by: MadeBy, *, stopped: bool = False) -> None:
        """Write what a job has computed into its table, and show it if that is the one shown.

        Parameters
        ----------
        job
            A job whose steps are done.
        table
            The table whose cells it read.
        made_by
            The call that it stands for.
        stopped
            Whether the user stopped a training before its end.

        Raises
        ------
        ValueError
            If the cells of the table are no longer those of the job.
        """
        job.write(table.adata)
        publish(table, job.key)
        if stopped:
            n_epochs = len(table.adata.uns[job.key]["history"])
            made_by = replace(made_by, stopped_after=n_epochs)
        self.provenance.remember(table, job.key, made_by)
        if table is not self.table:
            return
        self.columns_changed.emit()
        if made_by.function != "cross_validate":
            self.read()
        elif job.key == self.key and not self.reread():
            # The map stays as it is.
            self.check = self._read_check()
            self.check_changed.emit()

    # -- cells -----------------------------------------------------------------------------------

    def select(self, rows: NDArray[np.intp], mode: SelectionMode = "replace") -> None:
        """Select cells: rows of the AnnData."""
        if self.reread():
            # Those are rows of the cells that were there before.
            return
        if mode == "replace":
            self.selected = np.zeros(len(self._obs_names), dtype=bool)
        self.selected[rows] = mode != "remove"
        self.selection_changed.emit()

    def go_to(self, rows: NDArray[np.intp]) -> None:
        """Select cells and look at them in their layers."""
        self.select(rows)
        self.zoom_requested.emit()

    def describe(self, row: int, *, predictions: bool = True) -> str:
        """Return what is known of a cell, a line each.

        Parameters
        ----------
        row
            Row of the AnnData.
        predictions
            Whether the map is that of `result`; while a training runs, there are none yet.
        """
        if self.adata is None or self.reread():
            return ""
        result = self.result if predictions else None
        label_key = self.label_key if result is None else result.label_key
        obs = self.adata.obs
        lines = [f"cell {obs.index[row]}"]
        if label_key in obs:
            lines.append(f"{label_key}: {obs[label_key].iloc[row]}")
        if result is not None:
            code = result.predicted[row]
            lines.append(f"predicted: {result.classes[code] if code >= 0 else '–'}")
            names: tuple[Column, ...] = ("confidence", "novelty")
            for name in names:
                column = obs_key(result.key, name)
                if column in obs and np.isfinite(obs[column].iloc[row]):
                    lines.append(f"{name}: {obs[column].iloc[row]:.2f}")
        return "\n".join(lines)

    # -- classes ---------------------------------------------------------------------------------

    @property
    def class_colors(self) -> dict[object, str]:
        """Colour of each class that is shown; empty without labels."""
        if self.adata is None:
            return {}
        if self.result is not None:
            colors = class_colors(self.adata, self.result, None)
            return {name: colors[name] for name in self.result.classes}
        return {} if self.label_key is None else label_colors(self.adata, self.label_key)

    def colors_of(self, label_key: str | None) -> dict[object, str]:
        """Colour of each class of a label column; empty if it is gone."""
        there = self.adata is not None and label_key in self.adata.obs
        return label_colors(self.adata, str(label_key)) if there else {}

    def recolor_class(self, code: int, color: str) -> None:
        """Colour a class everywhere: in the map, in layers, and for scanpy."""
        label_key = self.shown_labels
        if self.adata is None or label_key is None or self.reread():
            return
        try:
            set_label_color(self.adata, label_key, list(self.class_colors)[code], color)
        except KeyError as error:
            self.failed.emit(error)
            return
        self.colors_changed.emit()

    @property
    def new_labels(self) -> Sequence[str]:
        """Labels that cells can be given: those of the column, and those given before."""
        adata, relabeling = self.adata, self.relabeling
        if adata is None or relabeling is None:
            return []
        names = dict.fromkeys(map(str, label_colors(adata, relabeling.label_key)))
        if relabeling.column in adata.obs:
            names |= dict.fromkeys(map(str, label_colors(adata, relabeling.column)))
        return list(names)

    def relabel(self, label: str) -> None:
        """Give the selected cells another label; an empty one takes theirs away."""
        relabeling, rows = self.relabeling, np.flatnonzero(self.selected)
        if self.reread() or relabeling is None or not len(rows):
            return
        label = label.strip()
        if self._changes_labels("relabel", rows, label or None):
            cells = f"{len(rows):,} {'cell is' if len(rows) == 1 else 'cells are'}"
            self.say(
                f"{cells} now {label or 'unlabeled'}. Written to obs[{relabeling.column!r}]; "
                "choose it as labels to train with it."
            )

    def undo(self) -> None:
        """Take the last relabelling back."""
        self._changes_labels("undo")

    def redo(self) -> None:
        """Do again what was undone last."""
        self._changes_labels("redo")

    def _changes_labels(self, name: str, *arguments: Any) -> bool:
        """Relabel, undo or redo; return whether it worked."""
        relabeling = self.relabeling
        if relabeling is None:
            return False
        self.say("")
        try:
            getattr(relabeling, name)(*arguments)
        except (KeyError, IndexError, TypeError, ValueError, RuntimeError) as error:
            self.failed.emit(error)
            return False
        finally:
            # What failed may have found that something else has changed the column.
            self.columns_changed.emit()
            self.labels_changed.emit()
        return True


def _alike(one: StoredMap, other: StoredMap) -> bool:
    """Tell whether two maps have the same arrays, as far as both have them.

    Positions of classes follow from the data alone, and two trainings share them.
    """
    some, others = ((stored.model or {}).get("arrays", {}) for stored in (one, other))
    return all(np.array_equal(some[name], others[name]) for name in some if name in others)

"""The state of the widget, without Qt: what the user has chosen and what is shown.

Panels call the methods of the session and connect to its events; no panel refers to another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
from anndata import AnnData
from napari.components import LayerList
from numpy.typing import NDArray
from psygnal import Signal

from centroid_encoder.errors import InputError
from centroid_encoder.pl._axes import RULES, title_rule
from centroid_encoder.pl._colors import class_colors, label_colors, set_label_color
from centroid_encoder.pl._values import variable_source
from centroid_encoder.tl._check import is_key
from centroid_encoder.tl._result import (
    SELECTIONS,
    Regions,
    Result,
    StoredCrossValidation,
    cv_key,
    keys_in,
    read_result,
)
from centroid_encoder.tl._roles import Role
from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.tables import Table, publish
from centroid_encoder.viewer.session.corrections import (
    codes_in,
    corrected,
    correction_column,
    current_classes,
    read_stored,
)
from centroid_encoder.viewer.session.draft import DRAFT_KEY, keep_places
from centroid_encoder.viewer.session.groups import Group
from centroid_encoder.viewer.session.labeling import NEW_COLUMN, Labeling
from centroid_encoder.viewer.session.provenance import Call, find_reference

if TYPE_CHECKING:
    from centroid_encoder.core.reports import Frame
    from centroid_encoder.tl._centroid_encoder import Training

CHANGED_CELLS = "The table has other cells, or another order; it was read again. Repeat this step."
SelectionMode = Literal["replace", "add", "remove"]
Kind = Literal["info", "warning", "error"]
Values = tuple[NDArray[np.intp], list[str]]
"""(n_obs,) index of each cell's colour, −1 for grey, and the colours."""


class Session:
    """State of one widget.

    Its signals are emitted after the whole state has changed. Panels then read the state again;
    the order of the panels does not matter.

    Parameters
    ----------
    layers
        The layers of the viewer; without a viewer, none.

    Attributes
    ----------
    catalog
        Tables and layers: those that exist and those that are chosen.
    key
        Name of the results: ``uns[key]``, ``obs[f"{key}_…"]``.
    result, check
        The stored map and cross-validation under that name, or None.
    classes, codes
        The classes of the map, followed by those that were added later; (n_obs,) indices into
        `classes`, −1 for cells without one. Both are empty without a map.
    labeling
        Labels that are given by hand now, or None.
    draft
        The live map of these labels under the key ``"ce"``, in an AnnData that shares the matrix
        with the table; None without one.
    drawn, drawn_adata
        The map that is drawn, which is the draft if there is one, and the AnnData that holds it.
    frame
        The `Training` of the table that runs, its live `Frame` and its label column. None before
        the first frame, and once the result was read.
    selected
        (n_obs,) mask of the selected cells.
    group, parts
        The same cells and how they were selected, and their classes if they were selected by class.
    values
        Colours of the cells in the map if they are not coloured by class, or None.
    regions
        Kind of regions that the map shows, or None.
    hidden
        Names of the classes that the map does not show.
    """

    said = Signal(object, str)
    """A text or an exception to show, and its kind; an error ended an action of the user."""
    table_changed = Signal()
    """Another table was chosen; `columns_changed` and `shown_changed` follow."""
    columns_changed = Signal()
    """The columns of the table may have changed; `shown_changed` follows."""
    shown_changed = Signal()
    """Changed: the map, the live map, the check, the labels, their column, colours or regions."""
    look_changed = Signal()
    """The points of the map are coloured by other values, or other classes are hidden."""
    selection_changed = Signal(bool)
    """Other cells are selected, and whether the camera is to move to them."""
    begun = Signal()
    """A function of `tl` begins to run."""
    finished = Signal(str)
    """A function of `tl` has written its result, which is shown."""
    framed = Signal()
    """There is another live frame of a running training."""

    def __init__(self, layers: LayerList | None = None) -> None:
        self.catalog = Catalog(LayerList() if layers is None else layers)
        self.catalog.table_changed.connect(self._on_table)
        self._adata_read: AnnData | None = None
        self.key = "ce"
        self.result: Result | None = None
        self.check: StoredCrossValidation | None = None
        self.selected = np.zeros(0, dtype=bool)
        self.group, self.parts = Group(self.selected, ""), tuple[Group, ...]()
        self.values: Values | None = None
        self.regions: Regions | None = "voronoi"
        self.hidden: frozenset[str] = frozenset()
        self.classes, self.codes = pd.Index([]), np.zeros(0, dtype=np.intp)
        self._label_key: str | None = None
        self._corrections: Labeling | None = None
        self.labeling: Labeling | None = None
        self.draft: AnnData | None = None
        self._draft_result: Result | None = None
        self.frame: tuple[Training, Frame, str] | None = None

    @property
    def table(self) -> Table | None:
        """The table that is chosen."""
        return self.catalog.table

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
        """Label column of the map, or the one that is chosen."""
        return self.label_key if self.drawn is None else self.drawn.label_key

    @property
    def drawn(self) -> Result | None:
        """The map that is drawn: the live map of the labelling, or the stored one."""
        return self.result if self._draft_result is None else self._draft_result

    @property
    def drawn_adata(self) -> AnnData | None:
        """The AnnData that holds that map."""
        return self.adata if self.draft is None else self.draft

    @property
    def misplaced_by(self) -> Regions:
        """Kind of regions that decides which cells are misplaced."""
        return self.regions or ("voronoi" if self.result is None else self.result.decided_by)

    @property
    def rule(self) -> tuple[str, str]:
        """Rule by which errors are counted, as in the title of the map: its name, and its text."""
        return RULES[self.regions] if self.drawn is None else title_rule(self.drawn, self.regions)

    @property
    def editable(self) -> Labeling | None:
        """The labelling by hand, or else the corrections of the chosen labels.

        The steps of the corrections can be undone until other labels are chosen.
        """
        adata, label_key = self.adata, self.label_key
        if self.labeling is not None or adata is None or label_key is None:
            return self.labeling
        column, original = correction_column(adata, label_key)
        if self._corrections is None or self._corrections.column != column:
            self._corrections = Labeling(adata, column, original)
        return self._corrections

    def corrected(self, label_key: str | None) -> str | None:
        """Return the column with the corrections of `label_key`, or `label_key` without any."""
        adata = self.adata
        return label_key if adata is None or label_key is None else corrected(adata, label_key)

    def _on_table(self, is_other: bool) -> None:
        """Read the table that is chosen, its links come afterwards, or what others have written."""
        if not is_other:
            # A live map of the labelling stays, and a first map does not.
            is_live = self.labeling is not None and self.draft is not None
            (self._after_labels if is_live else self.read)()
            return
        adata = self.adata
        self.selected = np.zeros(0 if adata is None else adata.n_obs, dtype=bool)
        self.group, self.parts = Group(self.selected, ""), ()
        self._corrections = self._label_key = None
        if self.labeling is not None:
            self.labeling.close()
        self.labeling = self.draft = self._draft_result = None
        self.hidden = frozenset()
        if adata is not None:
            # The key of the results that were shown last, or "ce", or the first other key.
            keys = (self.key, "ce", *keys_in(adata.obs))
            stored = (key for key in keys if key in adata.uns or cv_key(key) in adata.uns)
            self.key = next(stored, "ce")
        self.say("")
        self._read()
        self.table_changed.emit()
        self.columns_changed.emit()
        self.shown_changed.emit()
        if adata is not None and adata is self._adata_read:
            self.say(CHANGED_CELLS, "error")
        self._adata_read = adata

    def start_labeling(self, column: str = NEW_COLUMN) -> None:
        """Begin to label cells by hand in a new column, or continue in one.

        The column becomes the label column that is chosen.
        """
        if self.adata is None or not self.catalog.check_cells():
            return
        self.end_labeling()
        self.say("")
        try:
            self.labeling = Labeling(self.adata, column)
        except ValueError as error:
            self.say(error, "error")
            return
        self._label_key = self.labeling.column
        # A first map is one of other labels.
        self.draft = self._draft_result = None
        self._after_labels()

    def end_labeling(self) -> None:
        """End the labelling by hand and drop its live map; the labels stay."""
        if (labeling := self.labeling) is None:
            return
        labeling.close()
        self.labeling = None
        # The labels of the stored map may have changed.
        self.read()

    def show_draft(self, draft: AnnData | None) -> None:
        """Draw a live map of the labelling in place of the stored one; None ends that."""
        if draft is None and self.draft is None:
            return
        if draft is not None and self._draft_result is not None:
            keep_places(draft, self._draft_result)
        self.draft = draft
        self._draft_result = None if draft is None else read_result(draft, DRAFT_KEY)
        self._read_classes()
        self.shown_changed.emit()

    def show_frame(self, training: Training, frame: Frame, label_key: str) -> None:
        """Draw a live frame of a running training in place of a map."""
        self.frame = training, frame, label_key
        self.framed.emit()

    def drop_frame(self) -> None:
        """Draw the map again: the training has ended without another one."""
        if self.frame is not None:
            self.frame = None
            self.shown_changed.emit()

    def choose_labels(self, label_key: str | None) -> None:
        """Choose the label column."""
        if label_key != self._label_key:
            self._label_key = label_key
            self.shown_changed.emit()

    def choose_roles(self, roles: Mapping[str, Role]) -> None:
        """Give columns of the table other roles, unless labels are given by hand."""
        if self.labeling is not None:
            self.say("Press Done under Label before you choose other features.", "error")
            return
        try:
            self.catalog.choose_roles(roles)
        except InputError as error:
            self.say(error, "error")

    def choose_regions(self, regions: Regions | None) -> None:
        """Choose the kind of regions that the map shows."""
        self.regions = regions
        self.shown_changed.emit()

    def hide_classes(self, names: frozenset[str]) -> None:
        """Choose the classes that the map does not show."""
        self.hidden = names
        self.look_changed.emit()

    def say(self, text: str | Exception, kind: Kind = "info") -> None:
        """Show a text or an exception; an empty text removes the last one."""
        self.said.emit(text, kind)

    def read(self) -> None:
        """Read what is stored under the key, and show it."""
        if not self.catalog.check_cells():
            return
        self._read()
        self.columns_changed.emit()
        self.shown_changed.emit()

    def _read(self) -> None:
        adata = self.adata
        self.result = self.check = self.values = None
        if adata is not None:
            try:
                self.check = StoredCrossValidation.read(adata, self.key)
                self.result, remark = read_stored(adata, self.key)
                if remark:
                    self.say(remark, "warning")
            except (KeyError, ValueError) as error:
                # Report a damaged map, and not a missing one.
                if self.key in adata.uns or not isinstance(error, KeyError):
                    self.say(error, "warning")
        if self.regions == "decoder" and not (self.result and self.result.stored.has_decoder):
            self.regions = "voronoi"
        self.frame = None
        if self.result is not None or adata is None:
            # A map that was just trained replaces the live map.
            self.draft = self._draft_result = None
        self._read_classes()

    def _read_classes(self) -> None:
        self.classes, self.codes = pd.Index([]), np.zeros(0, dtype=np.intp)
        if self.adata is not None and self.drawn is not None:
            is_draft = self.draft is not None
            self.classes, self.codes = current_classes(self.adata, self.drawn, is_draft=is_draft)

    @property
    def reference(self) -> Result | None:
        """The map in which the cells were placed, with its own cells; None if it is not open."""
        if self.result is None or not self.result.is_query:
            return None
        return find_reference(self.catalog.tables, self.result.stored)

    def write(self, job: Any, table: Table, call: Call) -> None:
        """Write the result of a finished job into its table, and show it if the table is chosen.

        Raises a ValueError if the cells of the table have changed since the job began.
        """
        job.write(table.adata)
        table.unsaved = True
        publish(table, job.key)
        self.catalog.show_elsewhere(table)
        if table is not self.table:
            return
        is_check = call.function == "cross_validate"
        if not is_check or (self.shown_labels or "").startswith(cv_key(job.key)):
            self.read()
        else:
            # The map that is shown stays, as does a live map.
            self.check = StoredCrossValidation.read(table.adata, self.key)
            self.columns_changed.emit()
            self.shown_changed.emit()
        if job.key == self.key:
            self.finished.emit(call.function)

    def select(
        self,
        rows: NDArray[np.intp],
        mode: SelectionMode = "replace",
        *,
        zoom: bool = False,
        how: str = "selection",
        uses_features: bool = True,
        parts: tuple[Group, ...] = (),
    ) -> None:
        """Select cells, rows of the AnnData, and move the camera to them if wanted."""
        if not self.catalog.check_cells():
            return
        if mode == "replace":
            self.selected = np.zeros_like(self.selected)
        elif self.selected.any():
            before = self.group
            how = before.how if how in before.how else f"{before.how}, {mode} {how}"
            uses_features |= before.uses_features
        self.selected[rows] = mode != "remove"
        self.group, self.parts = Group(self.selected.copy(), how, uses_features), parts
        self.selection_changed.emit(zoom)

    def keep_group(self, name: str) -> None:
        """Write the selected cells as a boolean column, and how they were selected into ``uns``."""
        table, name = self.table, name.strip()
        if table is None or not self.catalog.check_cells():
            return
        adata, kept = table.adata, table.adata.uns.get(SELECTIONS, {})
        others = [*adata.obs.columns.difference([*kept]), *variable_source(adata).var_names]
        if name in (*others, self.shown_labels) or not is_key(name):
            self.say(f"{name!r} is taken, or no name for a column; choose another one.", "error")
            return
        adata.obs[name] = self.group.rows.copy()
        made = {"how": self.group.how, "uses_features": self.group.uses_features}
        adata.uns[SELECTIONS] = {**kept, name: made}
        table.unsaved = True
        self.catalog.show_elsewhere(table)
        self.columns_changed.emit()
        self.shown_changed.emit()
        self.say(f"{self.selected.sum():,} cells are in the column {name!r}; see Colour by.")

    def color_cells(self, values: Values | None) -> None:
        """Colour the cells of the map by something else than their classes; None ends that."""
        if values is not self.values:
            self.values = values
            self.look_changed.emit()

    @property
    def class_colors(self) -> dict[object, str]:
        """Colour of each class that is shown; empty without labels."""
        adata, shown = self.adata, self.shown_labels
        if adata is None or shown is None or shown not in adata.obs:
            return {}
        colors = label_colors(adata, corrected(adata, shown))
        if self.drawn is None or self.drawn_adata is None:
            return colors
        of_map = class_colors(self.drawn_adata, self.drawn, None)
        # Corrections may lack classes of the map.
        colors = label_colors(adata, shown) | colors
        # The colours of a draft may be older than those of the labels.
        colors = colors | of_map if self.draft is None else of_map | colors
        return {name: colors[name] for name in self.classes}

    def recolor_class(self, code: int, color: str) -> None:
        """Colour a class in the map, in layers, and for scanpy."""
        adata, shown = self.adata, self.shown_labels
        if adata is None or shown is None:
            return
        try:
            name = list(self.class_colors)[code]
            for column in {shown, corrected(adata, shown)}:
                if name in label_colors(adata, column):
                    set_label_color(adata, column, name, color)
        except KeyError as error:
            self.say(error, "error")
            return
        self.shown_changed.emit()

    @property
    def shown_codes(self) -> NDArray[np.intp]:
        """(n_obs,) index of each cell's class in `class_colors`; −1 without one."""
        adata, shown = self.adata, self.shown_labels
        if self.drawn is not None or adata is None:
            return self.codes
        if shown is None:
            return np.full(adata.n_obs, -1, dtype=np.intp)
        classes = pd.Index(list(self.class_colors), dtype=object)
        return codes_in(classes, adata.obs[corrected(adata, shown)])

    def rename_class(self, name: str, new: str) -> None:
        """Rename a class in the labels that are given by hand, or in a copy of the column."""
        self._correct(lambda labeling: labeling.rename_class(name, new))

    def merge_class(self, name: str, into: str) -> None:
        """Give all cells of a class another class, in the same column as `rename_class`."""
        self._correct(lambda labeling: labeling.merge_class(name, into))

    @property
    def new_labels(self) -> list[str]:
        """Labels that cells can be given: those of the column and of its corrections."""
        adata, column = self.adata, self.corrected(self.label_key)
        return [] if adata is None or column is None else [*map(str, label_colors(adata, column))]

    def label_selected(self, label: str) -> None:
        """Label the selected cells; an empty label removes theirs."""
        rows, name = np.flatnonzero(self.selected), label.strip()
        cells = f"{len(rows):,} {'cell is' if len(rows) == 1 else 'cells are'}"
        text = f"{cells} now {name or 'unlabeled'}. "
        self._correct(lambda labeling: labeling.assign(rows, name), text)

    def confirm_selected(self) -> None:
        """Note that the labels of the selected cells are right."""
        rows = np.flatnonzero(self.selected)
        self._change_labels(lambda labeling: labeling.confirm(rows))

    def undo(self) -> None:
        """Undo the last change of labels."""
        self._change_labels(Labeling.undo)

    def redo(self) -> None:
        """Redo the change of labels that was undone last."""
        self._change_labels(Labeling.redo)

    def change_labels(self, change: Callable[[Labeling], object]) -> bool:
        """Change the labels that are given by hand, or their classes; return whether it worked."""
        return self.labeling is not None and self._change_labels(change) is not None

    def _correct(self, change: Callable[[Labeling], object], text: str = "") -> None:
        """Change labels, and say in which column corrections were written."""
        done = self._change_labels(change)
        if done is not None and done is not self.labeling:
            how = "Choose it as Classes, in the first line, to train with it."
            if self.result is not None:
                how = "Train on corrections, under Review, trains with it."
            self.say(f"{text}Written to the column {done.column!r}. {how}")

    def _change_labels(self, change: Callable[[Labeling], object]) -> Labeling | None:
        """Change labels; return the labelling by hand or the corrections if that worked."""
        if (labeling := self.editable) is None or not self.catalog.check_cells():
            return None
        self.say("")
        if not labeling.is_there:
            self.end_labeling()
            text = f"the column {labeling.column!r} was deleted; start labelling again"
            self.say(RuntimeError(text), "error")
            return None
        failure = None
        try:
            change(labeling)
        except (KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
            failure = error
        # A labelling by hand adds no column.
        self._after_labels(columns=labeling is not self.labeling)
        if failure is not None:
            self.say(failure, "error")
            return None
        if self.table is not None:
            self.table.unsaved = True
            self.catalog.show_elsewhere(self.table)
        return labeling

    def _after_labels(self, *, columns: bool = True) -> None:
        self._read_classes()
        if columns:
            self.columns_changed.emit()
        self.shown_changed.emit()
        if self.labeling is not None and (fault := self.labeling.fault) is not None:
            self.say(f"The labels could not be written to their backup file: {fault}", "warning")

"""The one writer of the state of a widget, without Qt, and what follows from the state.

Panels call the methods of the session and draw its state. A panel holds only panels inside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from inspect import ismethod
from typing import Any, Literal
from weakref import WeakMethod, ref

import numpy as np
import pandas as pd
from anndata import AnnData
from napari.components import LayerList
from numpy.typing import NDArray

from centroid_encoder.errors import InputError
from centroid_encoder.pl._axes import RULES, title_rule
from centroid_encoder.pl._colors import class_colors, label_colors, set_label_color
from centroid_encoder.pl._values import variable_source
from centroid_encoder.tables import Role, cv_key, is_key, keys_in
from centroid_encoder.tl._result import (
    SELECTIONS,
    Regions,
    Result,
    StoredCrossValidation,
    read_result,
)
from centroid_encoder.viewer.data.catalog import Catalog
from centroid_encoder.viewer.data.tables import Table, publish
from centroid_encoder.viewer.session.corrections import (
    codes_in,
    corrected,
    corrected_colors,
    correction_column,
    current_classes,
    read_stored,
)
from centroid_encoder.viewer.session.draft import DRAFT_KEY, keep_places
from centroid_encoder.viewer.session.groups import Group
from centroid_encoder.viewer.session.labeling import NEW_COLUMN, Labeling
from centroid_encoder.viewer.session.provenance import Call, by_image, find_reference
from centroid_encoder.viewer.session.state import Kind, State, Version

CHANGED_CELLS = "The table has other cells, or another order; it was read again. Repeat this step."
SelectionMode = Literal["replace", "add", "remove"]
View = Callable[[State, State], None]
"""Draws a state; the first argument is the state that was drawn before."""
Shown = tuple[dict[object, str], NDArray[np.intp]]
"""Colours of classes by name, and the index of each cell's class among them."""


class Session:
    """Holds the `state` of one widget, and changes it.

    After each change, the views get the state before and the state now. A view changes no state
    while it draws, but what it draws into may: such changes are drawn after all views.

    Parameters
    ----------
    layers
        The layers of the viewer; without a viewer, none.

    Attributes
    ----------
    catalog
        Tables and layers: those that exist and those that are chosen.
    state
        The choices of the user, and what was read for them.
    """

    def __init__(self, layers: LayerList | None = None) -> None:
        self.catalog = Catalog(LayerList() if layers is None else layers)
        self.state = self._drawn = State()
        self._views: list[ref[View]] = []
        self._n_changing = 0
        self._made: dict[Callable[..., Any], tuple[tuple[object, ...], Any]] = {}
        self._corrections: Labeling | None = None
        self.catalog.together = self.changing
        self.catalog.changed.connect(self._on_catalog)

    def show_in(self, view: View) -> None:
        """Let a method of a panel, or a function, draw each further state; it is not kept alive."""
        self._views.append(WeakMethod(view) if ismethod(view) else ref(view))

    def set(self, **parts: Any) -> None:
        """Replace parts of the state, and draw it."""
        with self.changing():
            if any(getattr(self.state, name) is not value for name, value in parts.items()):
                self.state = replace(self.state, **parts)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Draw the state once, after several changes."""
        self._n_changing += 1
        try:
            yield
        finally:
            self._n_changing -= 1
            if not self._n_changing:
                self._draw()

    def _draw(self) -> None:
        """Call all views until the state stays as it is; a view that fails stops no other one."""
        failures: list[Exception] = []
        self._n_changing += 1
        try:
            while self._drawn is not self.state:
                before, now = self._drawn, self.state
                self._drawn = now
                for view in list(self._views):
                    if (render := view()) is None:
                        self._views.remove(view)
                        continue
                    try:
                        render(before, now)
                    except Exception as error:
                        failures.append(error)
        finally:
            self._n_changing -= 1
        if failures:
            raise failures[0]

    def of(self, make: Callable[..., Any], *inputs: object) -> Any:
        """Return the value of a function, which is called again only for other inputs."""
        known, value = self._made.get(make, ((), None))
        if len(known) != len(inputs) or any(a is not b for a, b in zip(known, inputs, strict=True)):
            value = make(*inputs)
            self._made[make] = inputs, value
        return value

    @property
    def table(self) -> Table | None:
        """The table that is chosen."""
        return self.state.table

    @property
    def adata(self) -> AnnData | None:
        """The AnnData of the table that is chosen."""
        return self.state.adata

    @property
    def label_key(self) -> str | None:
        """The label column that is chosen; None also if it has been deleted since."""
        adata, key = self.adata, self.state.label_key
        return key if adata is not None and key in adata.obs else None

    @property
    def shown_labels(self) -> str | None:
        """Label column of the map, or the one that is chosen."""
        drawn = self.state.drawn
        return self.label_key if drawn is None else drawn.label_key

    @property
    def class_colors(self) -> dict[object, str]:
        """Colour of each class: those of the map and those that were added later, or of a column.

        Empty without labels.
        """
        return self._shown[0]

    @property
    def shown_codes(self) -> NDArray[np.intp]:
        """(n_obs,) index of each cell's class in `class_colors`; −1 without one."""
        return self._shown[1]

    @property
    def _shown(self) -> Shown:
        now = self.state
        parts = now.adata, self.shown_labels, now.drawn, now.draft, now.labels
        found: Shown = self.of(_shown_classes, *parts)
        return found

    @property
    def misplaced_by(self) -> Regions:
        """Kind of regions that decides which cells are misplaced."""
        regions, result = self.state.regions, self.state.result
        return regions or ("voronoi" if result is None else result.decided_by)

    @property
    def rule(self) -> tuple[str, str]:
        """Rule by which errors are counted, as in the title of the map: its name, and its text."""
        regions, drawn = self.state.regions, self.state.drawn
        return RULES[regions] if drawn is None else title_rule(drawn, regions)

    @property
    def editable(self) -> Labeling | None:
        """The labelling by hand, or else the corrections of the chosen labels.

        The steps of the corrections can be undone until other labels are chosen.
        """
        adata, label_key, labeling = self.adata, self.label_key, self.state.labeling
        if labeling is not None or adata is None or label_key is None:
            return labeling
        column, original = correction_column(adata, label_key)
        if self._corrections is None or self._corrections.column != column:
            self._corrections = Labeling(adata, column, original)
        return self._corrections

    def corrected(self, label_key: str | None) -> str | None:
        """Return the column with the corrections of `label_key`, or `label_key` without any."""
        adata = self.adata
        return label_key if adata is None or label_key is None else corrected(adata, label_key)

    def _on_catalog(self, what: str) -> None:
        """Read the table that is chosen, or what others have written into it."""
        if what in ("table", "cells"):
            with self.changing():
                self._on_table()
                if what == "cells":
                    self.say(CHANGED_CELLS, "error")
        elif what != "columns":
            self.set(**{what: Version()})
        elif self.state.labeling is not None and self.state.draft is not None:
            # A live map of the labelling stays, and a first map does not.
            self._after_labels()
        else:
            self.read()

    def _on_table(self) -> None:
        """Read the table that is chosen; its links come afterwards."""
        labeling, key = self.state.labeling, self.state.key
        if labeling is not None:
            labeling.close()
        table, self._corrections = self.catalog.table, None
        # Values of another table would keep it in memory.
        self._made.clear()
        adata = None if table is None else table.adata
        if adata is not None:
            # The key of the results that were shown last, or "ce", or the first other key.
            keys = (key, "ce", *keys_in(adata.obs))
            key = next((x for x in keys if x in adata.uns or cv_key(x) in adata.uns), "ce")
        nothing = Group(np.zeros(0 if adata is None else adata.n_obs, dtype=bool), "")
        self.set(table=table, cells=Version(), label_key=None, key=key, hidden=frozenset())
        self.set(labeling=None, draft=None, draft_result=None, group=nothing, parts=())
        self.set(plane=None, components=None)
        self.say("")
        self._read()

    def start_labeling(self, column: str = NEW_COLUMN) -> None:
        """Begin to label cells by hand in a new column, or continue in one.

        The column becomes the label column that is chosen.
        """
        if self.adata is None or not self.catalog.check_cells():
            return
        with self.changing():
            self.end_labeling()
            self.say("")
            try:
                labeling = Labeling(self.adata, column)
            except ValueError as error:
                self.say(error, "error")
                return
            # A first map is one of other labels.
            self.set(labeling=labeling, label_key=labeling.column, draft=None, draft_result=None)
            self._after_labels()

    def end_labeling(self) -> None:
        """End the labelling by hand and drop its live map; the labels stay."""
        if (labeling := self.state.labeling) is not None:
            labeling.close()
            with self.changing():
                self.set(labeling=None)
                # The labels of the stored map may have changed.
                self.read()

    def show_draft(self, draft: AnnData | None) -> None:
        """Draw a live map of the labelling in place of the stored one; None ends that."""
        before = self.state.draft_result
        if draft is not None and before is not None:
            keep_places(draft, before)
        self.set(draft=draft, draft_result=None if draft is None else read_result(draft, DRAFT_KEY))

    def choose_labels(self, label_key: str | None) -> None:
        """Choose the label column."""
        if label_key != self.state.label_key:
            self.set(label_key=label_key)

    def choose_roles(self, roles: Mapping[str, Role]) -> None:
        """Give columns of the table other roles, unless labels are given by hand."""
        if self.state.labeling is not None:
            self.say("Press Done under Label before you choose other features.", "error")
            return
        try:
            self.catalog.choose_roles(roles)
        except InputError as error:
            self.say(error, "error")

    def say(self, text: str | Exception, kind: Kind = "info") -> None:
        """Show a text or an exception; an empty text removes the last one."""
        self.set(message=(text, kind))

    def read(self) -> None:
        """Read what is stored under the key, and show it."""
        if self.catalog.check_cells():
            self._read()

    def _read(self) -> None:
        adata, key, regions = self.adata, self.state.key, self.state.regions
        result: Result | None = None
        check: StoredCrossValidation | None = None
        with self.changing():
            if adata is not None:
                try:
                    check = StoredCrossValidation.read(adata, key)
                    result, remark = read_stored(adata, key)
                    if remark:
                        self.say(remark, "warning")
                except (KeyError, ValueError) as error:
                    # Report a damaged map, and not a missing one.
                    if key in adata.uns or not isinstance(error, KeyError):
                        self.say(error, "warning")
            if regions == "decoder" and not (result and result.stored.has_decoder):
                regions = "voronoi"
            self.set(result=result, check=check, frame=None, regions=regions)
            self.set(columns=Version(), labels=Version())
            if result is not None or adata is None:
                # A map that was just trained replaces the live map.
                self.set(draft=None, draft_result=None)

    @property
    def reference(self) -> Result | None:
        """The map in which the cells were placed, with its own cells; None if it is not open."""
        result = self.state.result
        if result is None or not result.is_query:
            return None
        return find_reference(self.catalog.tables, result.stored)

    def write(self, job: Any, table: Table, call: Call) -> None:
        """Write the result of a finished job into its table, and show it if the table is chosen.

        Raises a ValueError if the cells of the table have changed since the job began.
        """
        job.write(table.adata)
        table.unsaved = True
        publish(table, job.key)
        self.catalog.show_elsewhere(table)
        if table is not self.table:
            self.set(tables=Version())
            return
        is_check, key = call.function == "cross_validate", self.state.key
        with self.changing():
            if not is_check or (self.shown_labels or "").startswith(cv_key(job.key)):
                self.read()
            else:
                # The map that is shown stays, as does a live map.
                check = StoredCrossValidation.read(table.adata, key)
                self.set(check=check, columns=Version(), labels=Version())
            if job.key in (key, by_image(key)):
                self.set(written=call, **({} if is_check else {"plane": None}))

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
        before = self.state.group
        selected = before.rows.copy()
        if mode == "replace":
            selected[:] = False
        elif before.rows.any():
            how = before.how if how in before.how else f"{before.how}, {mode} {how}"
            uses_features |= before.uses_features
        selected[rows] = mode != "remove"
        group = Group(selected, how, uses_features)
        self.set(group=group, parts=parts, zoomed=group if zoom else None)

    def keep_group(self, name: str) -> None:
        """Write the selected cells as a boolean column, and how they were selected into ``uns``."""
        table, group, name = self.table, self.state.group, name.strip()
        if table is None or not self.catalog.check_cells():
            return
        adata, kept = table.adata, table.adata.uns.get(SELECTIONS, {})
        others = [*adata.obs.columns.difference([*kept]), *variable_source(adata).var_names]
        if name in (*others, self.shown_labels) or not is_key(name):
            self.say(f"{name!r} is taken, or no name for a column; choose another one.", "error")
            return
        adata.obs[name] = group.rows.copy()
        made = {"how": group.how, "uses_features": group.uses_features}
        adata.uns[SELECTIONS] = {**kept, name: made}
        with self.changing():
            self.wrote()
            self.say(f"{group.rows.sum():,} cells are in the column {name!r}; see Colour by.")

    def wrote(self) -> None:
        """Show that columns or colours were written into the table, here and in other viewers."""
        if (table := self.table) is not None:
            table.unsaved = True
            with self.changing():
                self.catalog.show_elsewhere(table)
                self.set(columns=Version(), labels=Version())

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
        self.wrote()

    def rename_class(self, name: str, new: str) -> None:
        """Rename a class in the labels that are given by hand, or in a copy of the column."""
        self.change_labels(lambda labeling: labeling.rename_class(name, new), done="")

    def merge_class(self, name: str, into: str) -> None:
        """Give all cells of a class another class, in the same column as `rename_class`."""
        self.change_labels(lambda labeling: labeling.merge_class(name, into), done="")

    @property
    def new_labels(self) -> list[str]:
        """Labels that cells can be given: those of the column and of its corrections."""
        adata, column = self.adata, self.corrected(self.label_key)
        return [] if adata is None or column is None else [*map(str, label_colors(adata, column))]

    def label_selected(self, label: str) -> None:
        """Label the selected cells; an empty label removes theirs."""
        rows, name = np.flatnonzero(self.state.selected), label.strip()
        cells = f"{len(rows):,} {'cell is' if len(rows) == 1 else 'cells are'}"
        text = f"{cells} now {name or 'unlabeled'}. "
        self.change_labels(lambda labeling: labeling.assign(rows, name), text)

    def confirm_selected(self) -> None:
        """Note that the labels of the selected cells are right."""
        rows = np.flatnonzero(self.state.selected)
        self.change_labels(lambda labeling: labeling.confirm(rows))

    def undo(self) -> None:
        """Undo the last change of labels."""
        self.change_labels(Labeling.undo)

    def redo(self) -> None:
        """Redo the change of labels that was undone last."""
        self.change_labels(Labeling.redo)

    def change_labels(self, change: Callable[[Labeling], object], done: str | None = None) -> bool:
        """Change the labels that are given by hand, or else the corrections.

        Returns whether it worked. With a text, it is said with the column of the corrections.
        """
        if (labeling := self.editable) is None or not self.catalog.check_cells():
            return False
        by_hand = labeling is self.state.labeling
        with self.changing():
            self.say("")
            if not labeling.is_there:
                self.end_labeling()
                text = f"the column {labeling.column!r} was deleted; start labelling again"
                self.say(RuntimeError(text), "error")
                return False
            failure = None
            try:
                change(labeling)
            except (KeyError, TypeError, ValueError, RuntimeError, OSError) as error:
                failure = error
            # A labelling by hand adds no column.
            self._after_labels(columns=not by_hand)
            if failure is not None:
                self.say(failure, "error")
                return False
            if self.table is not None:
                self.table.unsaved = True
                self.catalog.show_elsewhere(self.table)
            if done is not None and not by_hand:
                how = "To train with it, choose it as Classes: ☰ ▸ Cells, classes and features."
                if self.state.result is not None:
                    how = "Train on corrections, under Review, trains with it."
                self.say(f"{done}Written to the column {labeling.column!r}. {how}")
        return True

    def _after_labels(self, *, columns: bool = True) -> None:
        with self.changing():
            self.set(labels=Version(), **({"columns": Version()} if columns else {}))
            labeling = self.state.labeling
            if labeling is not None and (fault := labeling.fault) is not None:
                text = f"The labels could not be written to their backup file: {fault}"
                self.say(text, "warning")


def _shown_classes(
    adata: AnnData | None,
    shown: str | None,
    drawn: Result | None,
    draft: AnnData | None,
    _: Version,
) -> Shown:
    if adata is None or shown is None or shown not in adata.obs:
        return {}, np.full(0 if adata is None else adata.n_obs, -1)
    colors = corrected_colors(adata, shown)
    if drawn is None:
        labels = adata.obs[corrected(adata, shown)]
        return colors, codes_in(pd.Index(list(colors), dtype=object), labels)
    classes, codes = current_classes(adata, drawn, is_draft=draft is not None)
    of_map = class_colors(adata if draft is None else draft, drawn, None)
    # Corrections may lack classes of the map.
    colors = label_colors(adata, shown) | colors
    # The colours of a draft may be older than those of the labels.
    colors = colors | of_map if draft is None else of_map | colors
    return {name: colors[name] for name in classes}, codes

"""Place the cells of another table in the map of the chosen table."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd
from anndata import AnnData
from magicgui.widgets import ComboBox, FloatSpinBox, LineEdit
from qtpy.QtWidgets import QLabel

from centroid_encoder.errors import InputError, check
from centroid_encoder.pl._colors import label_colors
from centroid_encoder.tables import colors_key, keys_in
from centroid_encoder.tl._result import StoredMap
from centroid_encoder.viewer.data.tables import Table
from centroid_encoder.viewer.panels.fields import (
    Choice,
    Form,
    button,
    form_layout,
    offer,
    side_by_side,
    sources,
)
from centroid_encoder.viewer.panels.form import MISSING
from centroid_encoder.viewer.panels.job import (
    JobPanel,
    TaskRow,
    ask_table,
    n_left_out,
    read_and_check,
    read_tables,
)
from centroid_encoder.viewer.session.provenance import Call
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import State

if TYPE_CHECKING:
    from pathlib import Path

INGEST = "tl.ingest"
AS_FOR_THE_MAP = "as for the map"
SURE = 0.5
"""Least confidence of a class, and of a parent, unless another is chosen."""
ESTIMATED = [*MISSING[:2], ("estimate the values", "estimate")]


class NewDataPanel(JobPanel):
    """Places the cells of another table in the map.

    The parent lays out `form`, its settings, and `opening`, `progress`, `message` and `cures`.
    """

    cures_of: ClassVar[dict[str, dict[str, dict[str, object]]]] = {
        "missing": {
            "Leave out these cells": {"missing": "drop"},
            "Estimate the values": {"missing": "estimate"},
        },
        "max_missing": {"Estimate the values": {"missing": "estimate", "max_missing": 1.0}},
    }

    def __init__(self, session: Session) -> None:
        self.features = ComboBox(name="features", label="Features", choices=[AS_FOR_THE_MAP])
        self.missing = ComboBox(name="missing", label="Missing", choices=ESTIMATED)
        self.confidence = FloatSpinBox(
            name="min_confidence", label="Confidence from", value=0, min=0, max=1, step=0.05
        )
        self.novelty = FloatSpinBox(
            name="max_novelty", label="Novelty up to", value=1, min=0, max=1, step=0.01
        )
        self.parents = ComboBox(name="parents", label="Parents", choices=[("none", "")])
        self.key_added = LineEdit(name="key_added", label="Store as", value="ce")
        limits = self.confidence, self.parents, self.novelty
        fields = self.features, self.missing, *limits, self.key_added
        form = Form((INGEST,), *fields)
        super().__init__(session, form)
        tip = "Place the cells of this table in the map of another one, without training"
        self.place_button = button("", tip, self.place)
        """Shown for a table without a map; the parent lays it out."""
        self.place_button.hide()
        self.table_box = Choice("New cells", "Table of the new cells", self._on_table)
        self.opening = TaskRow(self.enable)
        tip = "Read a .h5ad, a .zarr or a table of another program"
        self.open_button = button("Open …", tip, self._ask)
        tip = (
            "Place these cells in the map without training: each gets a position, a class, a "
            "confidence and a novelty"
        )
        self.map_button = button("Map new data", tip, self.run)
        form.setLayout(form_layout(*fields))
        row = side_by_side(QLabel("New cells"), (self.table_box, 1), self.open_button)
        row.addWidget(self.map_button)
        row.addStretch()
        self.setLayout(row)
        session.show_in(self.show_state)
        self.offer()

    @property
    def reference(self) -> Table | None:
        """The table with the shown map, or None."""
        return None if self.session.state.result is None else self.session.table

    def _ask(self) -> None:
        """Let the user choose a table, read it, and choose it as the new cells."""

        def opened(adata: AnnData, name: str, *, path: Path) -> None:
            self.table_box.choose(self.session.catalog.add(adata, name, path=path))

        def failed(error: Exception) -> None:
            self.say_error(error)
            self.enable()

        read_tables(self.opening, ask_table(self), opened, failed)
        self.enable()

    def show_state(self, before: State, now: State) -> None:
        """Offer the tables and the columns of parents, which depend on the map."""
        if now.differs(before, "cells", "key") or (before.result is None) != (now.result is None):
            self.message.say("")
            self.key_added.value = now.key
        if now.differs(before, "columns", "key"):
            columns = parent_columns(self.session)
            offer(self.parents, [("none", ""), *columns], self.parents.value)
        if now.differs(before, "tables", "cells", "result"):
            self.offer()
        if now.differs(before, "tables", "cells", "result", "labeling"):
            self.place_button.setVisible((origin := self._map_elsewhere) is not None)
            if origin is not None:
                self.place_button.setText(f"Place in the map of {origin[0].name}")

    @property
    def _map_elsewhere(self) -> tuple[Table, str] | None:
        """The first table with a map, and the name of the map, if the shown table has none."""
        now = self.session.state
        if now.table is None or now.result is not None or now.labeling is not None:
            return None
        for table in self.session.catalog.tables:
            for key in keys_in(table.adata.obs):
                with suppress(KeyError, ValueError):  # A map may be damaged.
                    stored = StoredMap.read(table.adata, key)
                    if stored is not None and stored.model is not None and table is not now.table:
                        return table, key
        return None

    def place(self) -> None:
        """Place the cells of the shown table in the map of another one."""
        if (origin := self._map_elsewhere) is not None and self.session.table is not None:
            self._place(*origin, self.session.table)

    def offer(self) -> None:
        """Offer all tables except that with the map."""
        chosen = self.table_box.value
        others = [table for table in self.session.catalog.tables if table is not self.reference]
        first = others[0] if others else None
        entries = [(table.name, table) for table in others]
        self.table_box.offer(entries, chosen if chosen in others else first)
        if self.table_box.value is not chosen:
            self._on_table(self.table_box.value)
        self.enable()

    def run(self) -> None:
        """Start to place the cells of the chosen table, unless a job is running."""
        reference, table = self.reference, self.table_box.value
        if reference is not None and table is not None:
            self._place(reference, self.session.state.key, table)

    def _place(self, reference: Table, key: str, table: Table, **arguments: object) -> None:
        if self.task is not None:
            return
        stored = reference.adata.uns[key]["params"]
        names = {"key": key, "key_added": self.key_added.value.strip() or key}
        if self.parents.value and not self.confidence.value:
            self.confidence.value = SURE  # Otherwise every cell gets a class.
        chosen = self.form.arguments(INGEST) | names | arguments
        call = Call("ingest", str(stored["label_key"]), chosen)
        origin = reference.name if reference.path is None else reference.path.name
        make = partial(ingestion, table, call, _map_of(reference.adata, key), origin)
        again = partial(self._place, reference, key, table)
        written = partial(self._show_placed, reference, table, call)
        self.begin(table, call, make, table.name, again, written=written)

    def enable(self) -> None:
        """Enable the controls that can be used now."""
        ready = self.reference is not None and self.task is None
        self.place_button.setEnabled(self.task is None)
        has_table = self.table_box.value is not None
        self.table_box.setVisible(has_table)
        self.map_button.setVisible(has_table)
        # Another table is chosen until the new one is read.
        self.map_button.setEnabled(ready and has_table and self.opening.task is None)
        for widget in (self.table_box, self.open_button, self.form):
            widget.setEnabled(ready)

    def _show_placed(self, reference: Table, table: Table, call: Call) -> None:
        """Show the placed cells, unless the user has chosen a third table."""
        session, warning = self.session, self.message.text()
        if session.table not in (reference, table) or table not in session.catalog.tables:
            return
        with session.changing():
            session.set(key=call.key)
            if table is session.table:
                session.read()
            else:
                session.catalog.choose(table)
            if (result := session.state.result) is not None:
                session.set(written=call)
                n = int(result.unassigned[result.embedded].sum())
                unassigned = f", {n:,} unassigned" if n else ""
                session.say(
                    f"{result.embedded.sum():,} cells placed in the map of {reference.name}"
                    f"{unassigned}. {warning}".strip(),
                    "warning" if warning else "info",
                )

    def _on_table(self, table: Table | None) -> None:
        own = [] if table is None else sources(table.adata)
        offer(self.features, [AS_FOR_THE_MAP, *own], self.features.value)
        self._on_setting()


def ingestion(table: Table, call: Call, reference: AnnData, origin: str) -> Any:
    """Return the job that places the cells; `origin` is the name of the reference.

    Raises an InputError if the results would replace a map that was trained on these cells.
    """
    own = StoredMap.read(table.adata, call.key)
    fits = own is None or own.ingested_from is not None
    text = f"{table.name} has a map of its own named {call.key!r}, which would be overwritten;"
    check(fits, f"{text} choose another name under Store as", "key_added")
    try:
        job = read_and_check(table, call, reference)
    except InputError as error:
        if error.parameter == "missing":  # All cells lack some features: none can be left out.
            error.parameter = "max_missing"
        raise
    if "missing" not in call.parameters:
        without = replace(call, parameters={**call.parameters, "missing": "drop"})
        dropping = read_and_check(table, without, reference)
        job = dropping if n_left_out(dropping) else job
    job.origin = origin
    return job


def _map_of(reference: AnnData, key: str) -> AnnData:
    """Return what `tl.ingest` reads of a reference: the map, labels, their colours, loadings."""
    stored = reference.uns[key]
    uns, label_key = {key: stored}, str(stored["params"]["label_key"])
    obs = pd.DataFrame(index=reference.obs_names)
    if label_key in reference.obs:
        # Any column may hold the parents of the classes.
        obs = reference.obs.copy(deep=False)
        uns[colors_key(label_key)] = np.array(list(label_colors(reference, label_key).values()))
    return AnnData(obs=obs, uns=uns, var=reference.var[[]], varm=dict(reference.varm))


def parent_columns(session: Session) -> list[str]:
    """Return the columns in which all cells of a class of the map have one value, or none."""
    adata, result = session.adata, session.state.result
    if adata is None or result is None or result.label_key not in adata.obs:
        return []
    labels, found = adata.obs[result.label_key], []
    for name, column in adata.obs.select_dtypes("category").items():
        if name != result.label_key and 1 < len(column.cat.categories) < len(result.classes):
            pairs = pd.DataFrame({"class": labels, "parent": column}).dropna().drop_duplicates()
            if not pairs.loc[pairs["class"].isin(result.classes), "class"].duplicated().any():
                found.append(str(name))
    return found

"""Place the cells of another table in the map of the chosen table."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np
import pandas as pd
from anndata import AnnData
from magicgui.widgets import ComboBox, FloatSpinBox, LineEdit
from qtpy.QtWidgets import QLabel

from centroid_encoder.errors import InputError, check
from centroid_encoder.pl._colors import label_colors
from centroid_encoder.tables import colors_key
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
from centroid_encoder.viewer.panels.job import JobPanel, n_left_out, read_and_check
from centroid_encoder.viewer.panels.progress import Opening
from centroid_encoder.viewer.session.provenance import Call
from centroid_encoder.viewer.session.session import Session

if TYPE_CHECKING:
    from pathlib import Path

    from centroid_encoder.tl._ingest import Ingestion
    from centroid_encoder.tl._run import Job

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
        self._offered: tuple[Table | None, str] = None, ""
        self._used: Table | None = None
        """Table with the map that the running job uses."""
        self.table_box = Choice("New cells", "Table of the new cells", self._on_table)
        self.opening = Opening(self._add, self.say_error)
        tip = "Read a .h5ad, a .zarr or a table of another program"
        self.open_button = button("Open …", tip, self.opening.ask)
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
        session.shown_changed.connect(self.offer)
        session.catalog.listed.connect(self.offer)
        self.offer()

    @property
    def reference(self) -> Table | None:
        """The table with the shown map, or None."""
        return None if self.session.result is None else self.session.table

    def _add(self, adata: AnnData, name: str, *, path: Path) -> None:
        """Add a table that was opened here, and choose it."""
        self.table_box.choose(self.session.catalog.add(adata, name, path=path))

    def offer(self) -> None:
        """Offer all tables except that with the map."""
        offered, chosen = (self.reference, self.session.key), self.table_box.value
        if offered != self._offered:
            self.message.say("")
            self.key_added.value = self.session.key
            columns = parent_columns(self.session)
            offer(self.parents, [("none", ""), *columns], self.parents.value)
        self._offered = offered
        others = [table for table in self.session.catalog.tables if table is not self.reference]
        first = others[0] if others else None
        entries = [(table.name, table) for table in others]
        self.table_box.offer(entries, chosen if chosen in others else first)
        if self.table_box.value is not chosen:
            self._on_table(self.table_box.value)
        self.enable()

    def run(self, **arguments: object) -> None:
        """Start to place the cells of the chosen table, unless a job is running."""
        reference, table, key = self.reference, self.table_box.value, self.session.key
        if self.task is not None or reference is None or table is None:
            return
        stored = reference.adata.uns[key]["params"]
        names = {"key": key, "key_added": self.key_added.value.strip() or key}
        if self.parents.value and not self.confidence.value:
            self.confidence.value = SURE  # Otherwise every cell gets a class.
        chosen = self.form.arguments(INGEST) | names | arguments
        call = Call("ingest", str(stored["label_key"]), chosen)
        self._used = reference
        origin = reference.name if reference.path is None else reference.path.name
        make = partial(ingestion, table, call, _map_of(reference.adata, key), origin)
        self.begin(table, call, make, table.name)

    def enable(self) -> None:
        """Enable the controls that can be used now."""
        ready = self.reference is not None and self.task is None
        has_table = self.table_box.value is not None
        self.table_box.setVisible(has_table)
        self.map_button.setVisible(has_table)
        self.map_button.setEnabled(ready and has_table)
        for widget in (self.table_box, self.open_button, self.form):
            widget.setEnabled(ready)

    def written(self, table: Table, call: Call) -> None:
        """Show the placed cells, unless the user has chosen a third table."""
        session, reference, warning = self.session, self._used, self.message.text()
        if session.table not in (reference, table) or table not in session.catalog.tables:
            return
        assert reference is not None
        session.key = call.key
        if table is session.table:
            session.read()
        else:
            session.catalog.choose(table)
        if session.result is not None:
            session.finished.emit("ingest")
            placed = session.result.embedded
            n = int(session.result.unassigned[placed].sum())
            unassigned = f", {n:,} unassigned" if n else ""
            session.say(
                f"{placed.sum():,} cells placed in the map of {reference.name}{unassigned}. "
                f"{warning}".strip(),
                "warning" if warning else "info",
            )

    def _on_table(self, table: Table | None) -> None:
        own = [] if table is None else sources(table.adata)
        offer(self.features, [AS_FOR_THE_MAP, *own], self.features.value)
        self._on_setting()


def ingestion(table: Table, call: Call, reference: AnnData, origin: str) -> Job:
    """Return the job that places the cells; `origin` is the name of the reference.

    Raises an InputError if the results would replace a map that was trained on these cells.
    """
    own = StoredMap.read(table.adata, call.key)
    fits = own is None or own.ingested_from is not None
    text = f"{table.name} has a map of its own named {call.key!r}, which would be overwritten;"
    check(fits, f"{text} choose another name under Store as", "key_added")
    try:
        job = cast("Ingestion", read_and_check(table, call, reference))
    except InputError as error:
        if error.parameter == "missing":  # All cells lack some features: none can be left out.
            error.parameter = "max_missing"
        raise
    if "missing" not in call.parameters:
        without = replace(call, parameters={**call.parameters, "missing": "drop"})
        dropping = cast("Ingestion", read_and_check(table, without, reference))
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
    adata, result = session.adata, session.result
    if adata is None or result is None or result.label_key not in adata.obs:
        return []
    labels, found = adata.obs[result.label_key], []
    for name, column in adata.obs.select_dtypes("category").items():
        if name != result.label_key and 1 < len(column.cat.categories) < len(result.classes):
            pairs = pd.DataFrame({"class": labels, "parent": column}).dropna().drop_duplicates()
            if not pairs.loc[pairs["class"].isin(result.classes), "class"].duplicated().any():
                found.append(str(name))
    return found

"""Send the cells of another table through the map of the one that is chosen."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from magicgui.widgets import ComboBox, FloatSpinBox, LineEdit
from magicgui.widgets.bases import ValueWidget
from napari.utils.notifications import show_error
from qtpy.QtCore import Signal
from qtpy.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from centroid_encoder.viewer.data.publish import publish
from centroid_encoder.viewer.panels.choice import Choice
from centroid_encoder.viewer.panels.form import form_label, form_layout
from centroid_encoder.viewer.panels.message import Message, sentence
from centroid_encoder.viewer.panels.progress import ProgressRow
from centroid_encoder.viewer.session.provenance import MadeBy

if TYPE_CHECKING:
    from centroid_encoder.viewer._ingestion import Ingestion
    from centroid_encoder.viewer.data.tables import Table

AS_FOR_THE_MAP = "where the map's were"
KINDS = {"layers": "layer", "obsm": "use_rep"}
MISSING = {"stop and say so": "error", "take the training mean": "mean"}

logger = logging.getLogger("centroid_encoder")


class NewDataPanel(QWidget):
    """Which cells, what to do about those that do not fit, and a button.

    Attributes
    ----------
    table_box
        The tables whose cells can be sent through the map.
    map_button, progress, message
        What begins it, how far it is, and the line below for what goes wrong.
    ingestion
        What runs, or None.
    """

    file_chosen = Signal(object)
    """A `Path` that is to be read as another table."""
    finished = Signal(object, object, str, object)
    """Cells were mapped: the `Table` with the map, that of the cells, the key and the `MadeBy`."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.ingestion: Ingestion | None = None
        self._reference: Table | None = None
        self._key: str | None = None
        self._what: tuple[Table, Table, MadeBy] | None = None
        # With the window, Qt takes the panel away unasked; nobody must hear of what then ends.
        self._running: list[Ingestion] = []
        self.destroyed.connect(partial(_forget, self._running))

        self.table_box = Choice("Table of the new cells, of whatever tissue or sample")
        self.table_box.setPlaceholderText("no other table found")
        self.table_box.currentIndexChanged.connect(self._on_table)
        self.open_button = QPushButton("Open …")
        self.open_button.setToolTip("Read a .h5ad")
        self.open_button.clicked.connect(self._ask_file)
        self.features = ComboBox(
            label="Features",
            choices=[AS_FOR_THE_MAP],
            tooltip="Where the new cells' values are, normalised like those that were learned from",
        )
        self.missing = ComboBox(
            label="Missing",
            choices=list(MISSING),
            tooltip="What to do about features that the map knows and the new cells lack, and "
            "about NaN",
        )
        self.max_missing = FloatSpinBox(
            label="",
            value=0.2,
            min=0,
            max=1,
            step=0.05,
            tooltip="Share of the map's features that may be missing, at most",
        )
        self.min_confidence = FloatSpinBox(
            label="Confidence ≥",
            value=0,
            min=0,
            max=1,
            step=0.05,
            tooltip="A cell whose class is less probable than that stays unassigned",
        )
        self.max_novelty = FloatSpinBox(
            label="novelty ≤",
            value=1,
            min=0,
            max=1,
            step=0.01,
            tooltip="A cell that is more unusual than this share of the training cells stays "
            "unassigned: the map may not know its class",
        )
        self.key_added = LineEdit(
            label="Store as", value="ce", tooltip="Name of the result in the new cells' table"
        )
        self.map_button = QPushButton("Map new data")
        self.map_button.setToolTip(
            "Send these cells through the map as it is: nothing is trained. Each gets a place, a "
            "class, a confidence and a novelty"
        )
        self.map_button.clicked.connect(self.map_cells)
        self.progress = ProgressRow()
        self.progress.cancel_requested.connect(self.cancel)
        self.message = Message()
        self._lay_out()
        for field in (*self._fields.values(), self.features):
            field.changed.connect(self._on_setting)
        self.offer([], None, None)

    def offer(self, tables: list[Table], reference: Table | None, key: str | None) -> None:
        """Offer tables to map.

        Parameters
        ----------
        tables
            All tables.
        reference, key
            The one with the map and the name of the map; None if there is none.
        """
        chosen = self.table
        if (reference, key) != (self._reference, self._key):
            self.message.say("")
            self.key_added.value = key or "ce"
        self._reference, self._key = reference, key
        others = [table for table in tables if table is not reference]
        kept = chosen in others
        first = others[0] if others else None
        self.table_box.offer([(table.name, table) for table in others], chosen if kept else first)
        if not kept:
            self._on_table()
        self._enable()

    @property
    def table(self) -> Table | None:
        """The table that is chosen, or None."""
        table: Table | None = self.table_box.value
        return table

    @property
    def mapped(self) -> Table | None:
        """The table whose cells are being mapped, or None."""
        return None if self._what is None else self._what[1]

    def choose(self, table: Table) -> None:
        """Choose a table."""
        self.table_box.choose(table)

    def parameters(self) -> dict[str, Any]:
        """Keyword arguments of `tl.ingest` that differ from its defaults."""
        chosen: dict[str, Any] = {}
        where = str(self.features.value)
        kind, _, name = where.partition(": ")
        if where == "X":
            chosen["use_rep"] = "X"
        elif kind in KINDS:
            chosen[KINDS[kind]] = name
        if MISSING[self.missing.value] != "error":
            chosen["missing"] = MISSING[self.missing.value]
        for field, default in (
            (self.max_missing, 0.2),
            (self.min_confidence, 0),
            (self.max_novelty, 1),
        ):
            if field.value != default:
                chosen[field.name] = round(field.value, 4)
        if self._key != "ce":
            chosen["key"] = self._key
        if self.key != self._key:
            chosen["key_added"] = self.key
        return chosen

    @property
    def key(self) -> str:
        """Where the results will be."""
        return self.key_added.value.strip() or self._key or "ce"

    def map_cells(self) -> None:
        """Begin, with the table and the settings that are chosen; one at a time."""
        from centroid_encoder.viewer._ingestion import Ingestion

        reference, table, key = self._reference, self.table, self._key
        if self.ingestion is not None or reference is None or table is None or key is None:
            return
        self.message.say("")
        arguments = self.parameters()
        try:
            if _is_trained(table.adata.uns.get(self.key)):
                raise ValueError(
                    f"{table.name} has a map of its own in uns[{self.key!r}], which this would "
                    "replace: choose another name for key_added"
                )
            ingestion = Ingestion(table.adata, reference.adata, key, reference.name, arguments)
        except Exception as error:  # Whatever it is, it ends as a sentence, not as a traceback.
            self.say_error(error)
            return
        label_key = str(reference.adata.uns[key]["params"]["label_key"])
        made_by = MadeBy(
            "ingest", label_key, arguments, reference=str(reference.path or reference.name)
        )
        self.ingestion = ingestion
        self._running.append(ingestion)
        self._what = reference, table, made_by
        ingestion.finished.connect(self._on_finished)
        ingestion.failed.connect(self._on_failed)
        ingestion.reported.connect(self._on_reported)
        self.progress.begin(table.name, stoppable=False)
        self._enable()
        ingestion.start()

    def cancel(self) -> None:
        """Leave everything as it was."""
        if self.ingestion is not None:
            self.ingestion.cancel()
            self._end()
            self.message.say("Cancelled; nothing has changed.")

    def say_error(self, error: Exception) -> None:
        """Say what went wrong, and where it can be mended."""
        logger.debug("failed", exc_info=error)
        text = self._mend(sentence(error))
        self.message.say(text, "error")
        show_error(text)

    @property
    def _fields(self) -> dict[str, ValueWidget[Any]]:
        """The knobs by the name of the parameter of `tl.ingest` that they set."""
        names = ("missing", "max_missing", "min_confidence", "max_novelty", "key_added")
        return {name: getattr(self, name) for name in names}

    def _mend(self, error: str) -> str:
        """Say in the words of the fields where an error can be mended."""
        error = re.sub(r"for key_added\.$", "under Store as.", error)
        error = re.sub(r", or name the layer where that is\.$", ", or choose Features.", error)
        if error.startswith("max_novelty needs"):
            return "This map does not know what is usual: leave novelty at 1, or train it anew."
        fault, advice, more = error.partition(" Pass missing='mean'")
        if advice:
            also = " and allow more of them" if "max_missing" in more else ""
            return f"{fault} Choose under Missing{also}."
        error = re.sub(r"more than max_missing=([\d.]+)\.$", r"more than \1 (Missing).", error)
        if "NaN" in error:
            error += " Choose under Missing."
        return error

    def _on_reported(self, n_done: int) -> None:
        if self.mapped is not None:
            n = self.mapped.adata.n_obs
            self.progress.advance(n_done, n, f"{n_done:,} of {n:,} cells")

    def _on_finished(self, warnings: list[str]) -> None:
        ingestion, what = self.ingestion, self._what
        if ingestion is None or what is None:
            return
        reference, table, made_by = what
        self._end()
        try:
            ingestion.write(table.adata)
            publish(table, ingestion.key)
        except Exception as error:  # Whatever it is, it ends as a sentence, not as a traceback.
            self.say_error(error)
            return
        self.message.say(" ".join(map(sentence, warnings)), "warning")
        self.finished.emit(reference, table, ingestion.key, made_by)

    def _on_failed(self, error: Exception) -> None:
        self._end()
        self.say_error(error)

    def _end(self) -> None:
        self.ingestion = self._what = None
        self._running.clear()
        self.progress.end()
        self._enable()

    def _enable(self) -> None:
        running = self.ingestion is not None
        ready = self._reference is not None and not running
        self.map_button.setEnabled(ready and self.table is not None)
        for widget in (self.table_box, self.open_button):
            widget.setEnabled(ready)
        for field in (*self._fields.values(), self.features):
            field.enabled = ready
        self.max_missing.enabled = ready and MISSING[self.missing.value] == "mean"

    def _on_table(self, _: int = 0) -> None:
        """Offer where the values of the chosen table can be."""
        choices = [AS_FOR_THE_MAP]
        if self.table is not None:
            adata = self.table.adata
            choices += [
                *(["X"] if adata.X is not None else []),
                *(f"layers: {name}" for name in adata.layers),
                *(f"obsm: {name}" for name in adata.obsm),
            ]
        chosen = self.features.value
        self.features.choices = choices
        self.features.value = chosen if chosen in choices else AS_FOR_THE_MAP
        self._on_setting()

    def _on_setting(self, _: Any = None) -> None:
        self._enable()
        # What was wrong may be mended now; the button will tell.
        if self.message.kind == "error":
            self.message.say("")

    def _ask_file(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self, "Open a table", "", "AnnData (*.h5ad)")
        if name:
            self.file_chosen.emit(Path(name))

    def _lay_out(self) -> None:
        for name in (*self._fields, "features"):
            field = getattr(self, name)
            field.name = name
            field.native.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        for box in (self.features.native, self.missing.native):
            box.setSizeAdjustPolicy(box.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            box.setMinimumContentsLength(8)
        form = form_layout()
        form.addRow(form_label("New cells"), _row((self.table_box, 1), (self.open_button, 0)))
        form.addRow(form_label("Features"), self.features.native)
        form.addRow(
            form_label("Missing"), _row((self.missing.native, 2), (self.max_missing.native, 1))
        )
        thresholds = _row(
            (self.min_confidence.native, 1),
            (QLabel(self.max_novelty.label), 0),
            (self.max_novelty.native, 1),
        )
        form.addRow(form_label(self.min_confidence.label), thresholds)
        form.addRow(
            form_label("Store as"),
            _row((self.key_added.native, 1), (self.map_button, 1)),
        )
        layout = QVBoxLayout(self)
        layout.setContentsMargins(2, 4, 2, 0)
        layout.addLayout(form)
        layout.addWidget(self.progress)
        layout.addWidget(self.message)
        layout.addStretch()


def _row(*widgets: tuple[QWidget, int]) -> QHBoxLayout:
    row = QHBoxLayout()
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(4)
    for widget, stretch in widgets:
        row.addWidget(widget, stretch)
    return row


def _is_trained(stored: object) -> bool:
    """Tell a map that was trained on a table from one that its cells were sent through."""
    return (
        isinstance(stored, Mapping)
        and "model" in stored
        and "ingested_from" not in stored.get("params", {})
    )


def _forget(running: list[Ingestion], *_: object) -> None:
    for ingestion in running:
        ingestion.cancel()

"""Which table, which layer, and how the two are joined."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from napari.components import ViewerModel
from napari.layers import Labels, Layer, Points
from qtpy.QtCore import Qt, QTimer, Signal
from qtpy.QtWidgets import (
    QComboBox,
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from centroid_encoder.viewer.data.join import Join, Keys, guess_keys
from centroid_encoder.viewer.data.tables import Table, Tables
from centroid_encoder.viewer.map.overlay import is_drawn
from centroid_encoder.viewer.panels.form import form_label, form_layout
from centroid_encoder.viewer.panels.message import Kind, Lines, Message, sentence

if TYPE_CHECKING:
    from anndata import AnnData

EMPTY = "Open a .h5ad, or attach an AnnData to a layer (layer.metadata['adata'] = adata)."
NO_LAYER = "none"
ALL = "all"


class DataPanel(QWidget):
    """Pick a table, the layer whose labels or points are its cells, and the columns that join them.

    Attributes
    ----------
    table
        The table that is chosen, or None.
    layer, join
        The layer it is joined to, and how; both or neither are None.
    """

    table_changed = Signal()
    join_changed = Signal()
    listed = Signal()
    """Tables have come, gone or changed their name."""

    def __init__(self, viewer: ViewerModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.viewer = viewer
        self.tables = Tables(viewer.layers)
        self.table: Table | None = None
        self.layer: Labels | Points | None = None
        self.join: Join | None = None
        self._listed: list[Table] = []
        self._layers: list[Labels | Points] = []
        self._keys: WeakKeyDictionary[Table, WeakKeyDictionary[Layer, Keys]] = WeakKeyDictionary()
        self._watched: list[Layer] = []
        self._refresh = QTimer(self, interval=0, singleShot=True)
        self._refresh.timeout.connect(self.refresh)
        self._rejoin = QTimer(self, interval=300, singleShot=True)
        self._rejoin.timeout.connect(self._join)

        self.table_box = QComboBox()
        self.table_box.setToolTip("Tables of cells that were found in napari")
        self.table_box.currentIndexChanged.connect(self._on_table)
        self.open_button = QPushButton("Open …")
        self.open_button.setToolTip("Read a .h5ad")
        self.open_button.clicked.connect(self._ask_file)
        self.layer_box = QComboBox()
        self.layer_box.setToolTip("Layer whose labels or points are the cells of the table")
        self.layer_box.currentIndexChanged.connect(self._on_layer)
        self.instance_box = QComboBox()
        self.instance_box.setToolTip("Column of obs that holds each cell's id in the layer")
        self.instance_box.currentIndexChanged.connect(self._on_keys)
        self.region_box = QComboBox()
        self.region_box.setToolTip("Which part of the table the layer shows")
        self.region_box.currentIndexChanged.connect(self._on_keys)
        for box in (self.table_box, self.layer_box, self.instance_box, self.region_box):
            box.setSizeAdjustPolicy(
                QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
            )
            box.setMinimumContentsLength(5)
        self.joined_text = Lines()
        self.joined_text.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.message = Message()

        first = _row((self.table_box, 1), (self.open_button, 0))
        self._by = QLabel("by")
        self._in = QLabel("in")
        second = _row(
            (self.layer_box, 3),
            (self._by, 0),
            (self.instance_box, 2),
            (self._in, 0),
            (self.region_box, 2),
        )
        form = form_layout()
        form.addRow(form_label("Table"), first)
        form.addRow(form_label("Cells in"), second)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addLayout(form)
        layout.addWidget(self.joined_text)
        layout.addWidget(self.message)

    def connect_viewer(self) -> None:
        """Follow the layers of the viewer."""
        events = self.viewer.layers.events
        for name in ("inserted", "removed", "reordered"):
            getattr(events, name).connect(self._on_layers)
        self.refresh()

    def disconnect_viewer(self) -> None:
        """Follow them no longer."""
        self._refresh.stop()
        self._rejoin.stop()
        events = self.viewer.layers.events
        for name in ("inserted", "removed", "reordered"):
            getattr(events, name).disconnect(self._on_layers)
        self._watch([])

    def add(self, adata: AnnData, name: str, *, path: Path | None = None) -> Table:
        """List an AnnData of a file or a notebook."""
        table = self.tables.add(adata, name, path=path)
        self.refresh()
        return table

    @property
    def found(self) -> list[Table]:
        """All tables, in the order of listing."""
        return list(self._listed)

    def choose(self, table: Table) -> None:
        """Choose a table."""
        self.table_box.setCurrentIndex(self._listed.index(table))

    def choose_layer(self, layer: Labels | Points | None) -> None:
        """Choose the layer."""
        index = 0 if layer is None else self._layers.index(layer) + 1
        self.layer_box.setCurrentIndex(index)

    def read_again(self) -> None:
        """Show the same table anew, whose cells have changed."""
        layer = self.layer
        self._set_table(self.table)
        if layer in self._layers:
            self.choose_layer(layer)

    def choose_keys(self, keys: Keys) -> None:
        """Choose the columns that join table and layer."""
        if self.table is not None and self.layer is not None:
            self._keys.setdefault(self.table, WeakKeyDictionary())[self.layer] = keys
            self._join()

    def choose_instances(self, instance_key: str) -> None:
        """Choose the column of ids; the region stays as it was guessed."""
        if self.table is not None and self.layer is not None:
            keys = self._keys_of(self.table, self.layer)
            self.choose_keys(replace(keys, instance_key=instance_key))

    def open_file(self, path: Path) -> Table | None:
        """Read a .h5ad and choose it; what goes wrong is said in the panel."""
        from centroid_encoder.viewer.data.reader import read_adata

        self.message.say("")
        try:
            adata = read_adata(path)
        except OSError as error:
            self.message.say(sentence(error), "error")
            return None
        table = self.add(adata, path.name, path=path)
        self.choose(table)
        return table

    def refresh(self) -> None:
        """Look for tables and layers again; what is chosen stays, where it still exists."""
        self._refresh.stop()
        self._watch(list(self.viewer.layers))
        self._listed = self.tables.find()
        names = [table.name for table in self._listed]
        chosen = self.table if self.table in self._listed else None
        if chosen is None and self.table is not None and self.table.path is not None:
            # Its layer was closed, not the file.
            chosen = self.tables.add(self.table.adata, self.table.name, path=self.table.path)
            self._listed = self.tables.find()
            names = [table.name for table in self._listed]
        if chosen is None and self._listed:
            chosen = self._successor()
        _fill(self.table_box, names, -1 if chosen is None else self._listed.index(chosen))
        self.table_box.setEnabled(bool(names))
        if not names:
            self.table_box.setPlaceholderText("no table found")
            self.message.say(EMPTY)
        elif self.message.text() == EMPTY:
            self.message.say("")
        if chosen is not self.table:
            self._set_table(chosen)
        else:
            self._offer_layers()
        self.listed.emit()

    def _successor(self) -> Table:
        """Return what is chosen in place of a table that is gone.

        Where another plugin has replaced a layer's features, that is what they are now; the same
        goes for what is attached to it.
        """
        gone = self.table
        if gone is not None and gone.layer is not None:
            for table in self._listed:
                if (table.origin, table.layer) == (gone.origin, gone.layer):
                    return table
        return self._listed[0]

    # -- what the user chooses -----------------------------------------------------------------

    def _ask_file(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self, "Open a table", "", "AnnData (*.h5ad)")
        if name:
            self.open_file(Path(name))

    def _on_table(self, index: int) -> None:
        table = self._listed[index] if 0 <= index < len(self._listed) else None
        if table is not self.table:
            self._set_table(table)

    def _set_table(self, table: Table | None) -> None:
        self.table, self.layer, self.join = table, None, None
        # Who joins must know the table first.
        self.table_changed.emit()
        self._offer_layers()

    def _on_layer(self, index: int) -> None:
        self.layer = self._layers[index - 1] if index > 0 else None
        self._join()

    def _on_keys(self, _: int) -> None:
        if self.table is None or self.layer is None:
            return
        instance = self.instance_box.currentData()
        keys = self._keys_of(self.table, self.layer)
        region = self.region_box.currentData()
        self.choose_keys(replace(keys, instance_key=instance, region=region))

    def _on_layers(self, *_: Any) -> None:
        # Removal and insertion come in bursts, and while napari is still busy with the layer.
        self._refresh.start()

    def _on_data(self, *_: Any) -> None:
        self._rejoin.start()

    def _watch(self, layers: list[Layer]) -> None:
        for layer in self._watched:
            if layer not in layers:
                for name, slot in self._slots(layer):
                    getattr(layer.events, name).disconnect(slot)
        for layer in layers:
            if layer not in self._watched:
                for name, slot in self._slots(layer):
                    getattr(layer.events, name).connect(slot)
        self._watched = layers

    def _slots(self, layer: Layer) -> list[tuple[str, Any]]:
        slots = [("name", self._on_layers), ("features", self._on_layers), ("data", self._on_data)]
        # Assigning metadata tells; changing the dict in place cannot be heard.
        slots.append(("metadata", self._on_layers))
        slots.append(("labels_update", self._on_data))
        return [(name, slot) for name, slot in slots if name in layer.events]

    # -- joining -----------------------------------------------------------------------------------

    def _offer_layers(self) -> None:
        layers = [
            layer
            for layer in self.viewer.layers
            if isinstance(layer, Labels | Points) and not is_drawn(layer)
        ]
        before = self.layer
        self._layers = layers
        if self.layer not in layers:
            self.layer = self._best_layer()
        index = 0 if self.layer is None else layers.index(self.layer) + 1
        _fill(self.layer_box, [NO_LAYER, *(layer.name for layer in layers)], index)
        self.layer_box.setEnabled(self.table is not None)
        if self.layer is not before or self.layer is None:
            self._join()

    def _best_layer(self) -> Labels | Points | None:
        """Return the layer the table was found on, else the one in which most cells are found.

        Points that were made of the table itself come last: where the image is, there are labels.
        """
        table, most = self.table, 0
        own = table.layer if table is not None and table.layer in self._layers else None
        if table is None or isinstance(own, Labels) or table.origin == "features":
            return own
        best: Labels | Points | None = None
        for layer in self._layers:
            if own is not None and not isinstance(layer, Labels):
                continue
            with suppress(ValueError):
                found = Join.make(table.adata, layer, self._keys_of(table, layer))
                n = int(found.joined.sum())
                if n > most:
                    best, most = layer, n
        return best if own is None or most > table.adata.n_obs / 2 else own

    def _keys_of(self, table: Table, layer: Labels | Points) -> Keys:
        """Return what was chosen to join a table to a layer, or a guess."""
        known = self._keys.setdefault(table, WeakKeyDictionary())
        if layer not in known:
            known[layer] = guess_keys(table.adata, layer)
        return known[layer]

    def _join(self) -> None:
        self._rejoin.stop()
        table, layer = self.table, self.layer
        self.join = None
        text = ""
        kind: Kind = "info"
        if table is not None and layer is not None:
            keys = self._keys_of(table, layer)
            self._offer_keys(table.adata, layer, keys)
            try:
                if keys.instance_key is None:
                    raise ValueError(
                        f"no column of the table seems to hold the ids of {layer.name}; choose "
                        "one, or another layer"
                    )
                self.join = Join.make(table.adata, layer, keys)
                text = str(self.join)
                if not self.join.joined.any():
                    kind = "warning"
            except ValueError as error:
                text, kind = sentence(error), "error"
        else:
            for widget in (self._by, self.instance_box, self._in, self.region_box):
                widget.hide()
            if table is not None:
                n = table.adata.n_obs
                text = f"{n:,} cells; no layer to show them in."
        self.joined_text.setText(text if kind != "error" else "")
        self.joined_text.setVisible(bool(text) and kind != "error")
        if kind == "error" or self.message.text() != EMPTY:
            self.message.say(text if kind == "error" else "", kind)
        self.join_changed.emit()

    def _offer_keys(self, adata: AnnData, layer: Layer, keys: Keys) -> None:
        instances = [str(name) for name in adata.obs.columns if _may_be_ids(adata.obs[name])]
        entries: dict[str, str | None] = {name: name for name in instances}
        if keys.instance_key is not None:
            entries.setdefault(keys.instance_key, keys.instance_key)
        else:
            entries = dict[str, str | None]({"choose …": None}) | entries
        _fill_data(self.instance_box, entries, keys.instance_key)
        regions: dict[str, Any] = {ALL: None}
        if keys.region_key is not None:
            regions |= {str(name): name for name in pd.unique(adata.obs[keys.region_key].dropna())}
        _fill_data(self.region_box, regions, keys.region)
        for widget in (self._by, self.instance_box):
            widget.setVisible(True)
        for widget in (self._in, self.region_box):
            widget.setVisible(len(regions) > 2)


def _may_be_ids(column: pd.Series) -> bool:
    values = column.dropna()
    if not len(values) or values.duplicated().mean() > 0.9:
        return False
    if pd.api.types.is_float_dtype(column.dtype):
        return bool((np.mod(values, 1) == 0).all())
    return not pd.api.types.is_bool_dtype(column.dtype)


def _row(*widgets: tuple[QWidget, int]) -> QHBoxLayout:
    row = QHBoxLayout()
    row.setContentsMargins(0, 0, 0, 0)
    row.setSpacing(4)
    for widget, stretch in widgets:
        row.addWidget(widget, stretch)
    return row


def _fill(box: QComboBox, names: list[str], index: int) -> None:
    _fill_data(box, dict(enumerate(names)), index, names)


def _fill_data(
    box: QComboBox, entries: dict[Any, Any], value: Any, names: list[str] | None = None
) -> None:
    """Fill a box without telling anybody."""
    blocked = box.blockSignals(True)
    box.clear()
    for i, (name, data) in enumerate(entries.items()):
        box.addItem(names[i] if names else str(name), data)
    data = list(entries.values()) if names is None else list(range(len(names)))
    box.setCurrentIndex(data.index(value) if value in data else -1)
    box.blockSignals(blocked)

"""The dock widget: its layout, and what its parts have to know of each other."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
from napari.utils.notifications import show_info
from napari.utils.theme import get_theme
from numpy.typing import NDArray
from qtpy.QtCore import QEvent, Qt, QTimer
from qtpy.QtWidgets import QScrollArea, QSplitter, QTabWidget, QVBoxLayout, QWidget

from centroid_encoder.viewer._wheel import WheelGuard
from centroid_encoder.viewer.map import colorings
from centroid_encoder.viewer.map.figure import Style
from centroid_encoder.viewer.panels.cells import CellsPanel
from centroid_encoder.viewer.panels.check import Verdict
from centroid_encoder.viewer.panels.classes import ClassTable
from centroid_encoder.viewer.panels.data import DataPanel
from centroid_encoder.viewer.panels.map import MapPanel
from centroid_encoder.viewer.panels.message import Message, sentence
from centroid_encoder.viewer.panels.misplaced import MisplacedTable
from centroid_encoder.viewer.panels.new_data import NewDataPanel
from centroid_encoder.viewer.panels.save import SaveRow
from centroid_encoder.viewer.panels.training import TrainingPanel
from centroid_encoder.viewer.session.misplaced import OUT_OF_FOLD
from centroid_encoder.viewer.session.session import Session

if TYPE_CHECKING:
    from anndata import AnnData
    from napari.layers import Labels, Points
    from napari.viewer import Viewer

    from centroid_encoder.core.training import Report
    from centroid_encoder.tl import _centroid_encoder
    from centroid_encoder.tl._stored import Result
    from centroid_encoder.viewer._worker import Worker
    from centroid_encoder.viewer.data.tables import Table
    from centroid_encoder.viewer.session.session import Kind

WIDTH = 410
"""Pixels below which something would be cut off."""
OTHER_LABELS = "This is the map of"
WORKSHOP = "centroid_encoder.viewer._worker"
SETTLED = 200
"""Milliseconds after which the widget is on the screen."""


class CentroidEncoderWidget(QWidget):
    """Train a map of labelled cells, watch it unfold, and link it to the image.

    Parameters
    ----------
    napari_viewer
        The viewer whose layers hold the cells.

    Attributes
    ----------
    viewer
        That viewer.
    session, catalog
        What is chosen and shown, which the parts observe; and what there is to choose from.
    """

    def __init__(self, napari_viewer: Viewer) -> None:
        super().__init__()
        # napari hands plugins a proxy, which is not the viewer where identity matters.
        self.viewer: Viewer = getattr(napari_viewer, "__wrapped__", napari_viewer)
        self.session = Session(self.viewer.layers)
        self._connected = False
        self._frame_colors: list[str] | None = None
        self.catalog = self.session.catalog
        self.data = DataPanel(self.catalog)
        self.trainer = TrainingPanel(self.session)
        self.form = self.trainer.form
        self.message = self.trainer.message
        self.verdict = Verdict(self.session, self.form.words)
        self.map = MapPanel(self.session)
        self.cells = CellsPanel(self.session, self.viewer)
        self.classes = ClassTable(self.session)
        self.misplaced = MisplacedTable(self.session)
        self.new_data = NewDataPanel(self.session)
        self.keep = SaveRow(self.session)
        self._lay_out()
        self._wire()
        self._attach()

    # -- for notebooks ---------------------------------------------------------------------------

    def show_table(
        self,
        adata: AnnData,
        *,
        name: str = "notebook",
        layer: Labels | Points | None = None,
        label_key: str | None = None,
        instance_key: str | None = None,
    ) -> None:
        """Choose an AnnData and, if given, what it is joined to; see `viewer.open`."""
        for key in (label_key, instance_key):
            if key is not None and key not in adata.obs:
                raise KeyError(f"obs has no column {key!r}")
        self.catalog.choose(self.catalog.add(adata, name))
        self.form.set_adata(adata, label_key)
        if layer is not None:
            self.catalog.choose_layer(layer)
        if instance_key is not None:
            self.catalog.choose_ids(instance_key)

    def select(self, rows: NDArray[np.intp]) -> None:
        """Select cells: rows of the AnnData that is chosen."""
        self.session.select(rows)

    @property
    def result(self) -> Result | None:
        """The map that is drawn, or None."""
        return self.session.result

    # -- training --------------------------------------------------------------------------------

    @property
    def training(self) -> Worker | None:
        """The training that runs, of one map or of all those of a check, or None."""
        return self.trainer.training

    def train(self) -> None:
        """Train on the table that is chosen; one training at a time."""
        self.trainer.train()

    def check(self) -> None:
        """Cross-validate the labels of the table that is chosen, at a time when nothing trains."""
        self.trainer.check()

    def stop(self) -> None:
        """End the training and keep the best map so far."""
        self.trainer.stop()

    def cancel(self) -> None:
        """End the training or the check and leave everything as it was."""
        self.trainer.cancel()

    def _on_frame(self, run: _centroid_encoder.Training, report: Report) -> None:
        """Draw the map as it is after an epoch, if the user still looks at its table."""
        training, table = self.trainer.training, self.trainer.table
        if training is None:
            return
        # Rows of a frame are those of the cells that were there when the training began.
        there = table is not None and table.adata.obs_names.equals(run.obs_names)
        if table is not self.session.table or not there:
            training.drawn()
            return
        self.map.show_report(run, report, self._live_colors(run))
        self._on_shown()

    def _live_colors(self, run: _centroid_encoder.Training) -> list[str]:
        """Return the colours of the classes that are trained on, found once for all frames."""
        if self._frame_colors is None:
            colors = self.session.colors_of(self.trainer.label_key)
            self._frame_colors = [colors.get(name, colorings.GREY) for name in run.classes]
        return self._frame_colors

    def _on_finished(self, table: Table) -> None:
        if table is self.session.table:
            self._offer_columns()

    def _on_checked(self, table: Table, key: str) -> None:
        if table is not self.session.table:
            return
        self._offer_columns()
        if key == self.session.key and not self.session.reread():
            self.session.read_check()
            self.misplaced.choose(OUT_OF_FOLD)
            self.tabs.setCurrentWidget(self.misplaced)

    def _on_ended(self, checked: bool) -> None:
        self._on_colors()
        if not checked:
            # A live frame must not outlive its training.
            self.session.read()

    # -- what is shown ---------------------------------------------------------------------------

    def _on_table(self) -> None:
        """Offer what the table holds."""
        session = self.session
        self.form.set_adata(session.adata, session.trained_labels)

    def _offer_columns(self) -> None:
        """Offer the label columns again, of which there may be new ones."""
        if self.session.adata is not None:
            self.form.set_adata(self.session.adata, self.form.label_key.value)

    def _on_labels(self) -> None:
        """Say whose map is shown if it is not that of the labels that are chosen."""
        session = self.session
        if session.result is not None and session.label_key not in (
            None,
            session.result.label_key,
        ):
            session.say(
                f"{OTHER_LABELS} {session.result.label_key}; press Train for one of "
                f"{session.label_key}."
            )
        elif self.message.text().startswith(OTHER_LABELS):
            session.say("")

    def _on_shown(self) -> None:
        """Switch classes on and off in the map; all are on while it shows those of other labels."""
        names, shown = self.map.class_names, self.classes.shown
        legend = [row.name for row in self.classes.model.rows]
        shown = shown if legend == names else np.ones(len(names), dtype=bool)
        if names and not np.array_equal(shown, self.map.canvas.map.shown):
            self.map.canvas.map.set_shown(shown)

    def _on_colors(self) -> None:
        self._frame_colors = None

    def _on_drawn(self) -> None:
        if self.training is not None:
            self.training.drawn()

    # -- new data --------------------------------------------------------------------------------

    def _on_mapped(self, reference: Table, table: Table, key: str) -> None:
        """Go to the cells that have been mapped, unless the user has gone elsewhere."""
        if self.session.table not in (reference, table) or table not in self.catalog.tables:
            return
        warning = self.new_data.message.text()
        self.form.key_added.value = key
        if table is self.session.table:
            self._offer_columns()
            self.session.read()
        else:
            self.catalog.choose(table)
        if self.session.result is None:
            return
        self.cells.color_box.setCurrentText(colorings.PREDICTED)
        n = int((self.session.result.predicted < 0).sum())
        unassigned = f"; {n:,} stay unassigned" if n else ""
        self.session.say(
            f"{table.adata.n_obs:,} cells were sent through the map of {reference.name}"
            f"{unassigned}. {warning}".strip(),
            "warning" if warning else "info",
        )

    # -- coming and going ------------------------------------------------------------------------

    def changeEvent(self, event: QEvent) -> None:
        """Leave the viewer as it was when the dock is closed; come back when it is docked again."""
        super().changeEvent(event)
        if event.type() == QEvent.Type.ParentChange and hasattr(self, "_connected"):
            if self.parent() is None:
                self._detach()
            else:
                self._attach()

    def _attach(self) -> None:
        if not self._connected:
            self._connected = True
            self.viewer.events.theme.connect(self._on_theme)
            self._on_theme()
            self.catalog.connect()
            # PyTorch, before Train is pressed, once the widget is on the screen. Not in a thread:
            # two threads that import scikit-learn at once find each other's half of it.
            QTimer.singleShot(SETTLED, partial(import_module, WORKSHOP))
            if self.session.table is None:
                self.session.read()
            elif not self.cells.linked:
                self.cells.link()

    def _detach(self) -> None:
        if self._connected:
            self._connected = False
            if self.training is not None:
                what = "check" if self.trainer.checking else "training"
                show_info(f"Centroid-Encoder was closed; its {what} is cancelled.")
            self.cancel()
            self.new_data.cancel()
            self.cells.unlink()
            self.catalog.disconnect()
            self.data.stop()
            self.viewer.events.theme.disconnect(self._on_theme)

    def _on_theme(self, _: Any = None) -> None:
        theme = get_theme(self.viewer.theme)
        style = Style(
            page=theme.background.as_hex("long"),
            panel=theme.canvas.as_hex("long"),
            ink=theme.text.as_hex("long"),
            unlabeled=theme.highlight.as_hex("long"),
        )
        icon_color = theme.icon.as_hex("long")
        self.map.canvas.set_style(style, icon_color)
        self.form.set_icon_color(icon_color)
        kinds = {
            "info": theme.text.as_hex("long"),
            "warning": "#e3b617" if style.dark else "#8a6a00",
            "error": "#ff6b6b" if style.dark else "#b00020",
        }
        for message in self.findChildren(Message):
            message.set_colors(kinds)

    def _lay_out(self) -> None:
        self.tabs = QTabWidget()
        self.tabs.addTab(self.classes, "Classes")
        self.tabs.addTab(self.misplaced, "Misplaced cells")
        self.tabs.addTab(self.new_data, "New data")
        below = _column(self.cells, self.tabs)
        splitter = QSplitter(Qt.Orientation.Vertical)
        splitter.addWidget(self.map)
        splitter.addWidget(below)
        splitter.setStretchFactor(0, 3)
        splitter.setStretchFactor(1, 2)
        splitter.setChildrenCollapsible(False)
        splitter.setSizes([520, 340])
        content = _Content()
        parts = QVBoxLayout(content)
        parts.setContentsMargins(8, 4, 8, 4)
        for widget in (self.data, self.trainer, self.verdict):
            parts.addWidget(widget)
        parts.addWidget(splitter, stretch=1)
        # A low window shows a part of it, rather than grow beyond the screen and stay so.
        scrolled = QScrollArea()
        scrolled.setWidget(_column(content))
        scrolled.setWidgetResizable(True)
        scrolled.setFrameShape(QScrollArea.Shape.NoFrame)
        scrolled.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        # Always in sight: what is not saved is lost.
        bottom = QVBoxLayout()
        bottom.setContentsMargins(8, 0, 8, 4)
        bottom.addWidget(self.keep)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(4)
        layout.addWidget(scrolled, stretch=1)
        layout.addLayout(bottom)
        self.setMinimumWidth(WIDTH)
        WheelGuard(self)

    def _wire(self) -> None:
        """Let the session and the parts know of each other; psygnal holds methods weakly."""
        session = self.session
        session.said.connect(self._on_said)
        session.failed.connect(self.trainer.say_error)
        session.table_changed.connect(self._on_table)
        session.columns_changed.connect(self._offer_columns)
        session.label_key_changed.connect(self._on_labels)
        session.result_changed.connect(self._on_shown)
        session.colors_changed.connect(self._on_colors)
        self.new_data.finished.connect(self._on_mapped)
        self.form.label_key_changed.connect(session.choose_labels)
        self.form.key_added.changed.connect(self._on_key)
        self.trainer.train_button.clicked.connect(self.train)
        self.trainer.check_button.clicked.connect(self.check)
        self.trainer.framed.connect(self._on_frame)
        self.trainer.finished.connect(self._on_finished)
        self.trainer.checked.connect(self._on_checked)
        self.trainer.ended.connect(self._on_ended)
        self.map.canvas.drawn.connect(self._on_drawn)
        self.classes.shown_changed.connect(self._on_shown)

    def _on_said(self, text: str | Exception, kind: Kind) -> None:
        self.message.say(text if isinstance(text, str) else sentence(text, self.form.words), kind)

    def _on_key(self) -> None:
        self.session.choose_key(self.form.key)


def _column(*widgets: QWidget) -> QWidget:
    """Put widgets one below the other; the last one gets the room that is left."""
    column = QWidget()
    layout = QVBoxLayout(column)
    layout.setContentsMargins(0, 0, 0, 0)
    for widget in widgets:
        layout.addWidget(widget)
    layout.setStretch(len(widgets) - 1, 1)
    return column


class _Content(QWidget):
    """All parts; a scroll area asks them for the least height, not for what they would like."""

    def hasHeightForWidth(self) -> bool:
        return False

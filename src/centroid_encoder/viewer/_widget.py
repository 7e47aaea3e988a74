"""The dock widget: every part does one job, this one lets them know of each other."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from napari.utils.notifications import show_info
from napari.utils.theme import get_theme
from numpy.typing import NDArray
from qtpy.QtCore import QEvent, Qt, QTimer
from qtpy.QtWidgets import (
    QScrollArea,
    QSplitter,
    QTabWidget,
    QVBoxLayout,
    QWidget,
)

from centroid_encoder import tl
from centroid_encoder.pl._colors import class_colors, label_colors, set_label_color
from centroid_encoder.pl._unseen import read_cross_validation
from centroid_encoder.tl._stored import Result, read_result
from centroid_encoder.viewer._wheel import WheelGuard
from centroid_encoder.viewer.map import colorings
from centroid_encoder.viewer.map.figure import Style
from centroid_encoder.viewer.panels.cells import CellsPanel
from centroid_encoder.viewer.panels.check import Verdict, doubts, verdict
from centroid_encoder.viewer.panels.classes import ClassRow, ClassTable
from centroid_encoder.viewer.panels.data import DataPanel
from centroid_encoder.viewer.panels.map import MapPanel
from centroid_encoder.viewer.panels.message import sentence
from centroid_encoder.viewer.panels.misplaced import MisplacedTable
from centroid_encoder.viewer.panels.new_data import NewDataPanel
from centroid_encoder.viewer.panels.save import SaveRow
from centroid_encoder.viewer.panels.training import TrainingPanel
from centroid_encoder.viewer.session.misplaced import OUT_OF_FOLD, REGIONS
from centroid_encoder.viewer.session.provenance import Provenance
from centroid_encoder.viewer.session.relabeling import Relabeling, Relabelings

if TYPE_CHECKING:
    from pathlib import Path

    from anndata import AnnData
    from napari.layers import Labels, Points
    from napari.viewer import Viewer

    from centroid_encoder.core.training import Report
    from centroid_encoder.tl._run import Run
    from centroid_encoder.viewer._worker import Training
    from centroid_encoder.viewer.data.tables import Table
    from centroid_encoder.viewer.session.provenance import MadeBy

NO_TABLE = (
    "No table yet.\n\nOpen a .h5ad above, or a sample:\nFile ▸ Open Sample ▸ Centroid-Encoder"
)
NO_RESULT = "No map yet.\n\nChoose the labels and press Train."
WIDTH = 410
"""Pixels below which something would be cut off."""
OTHER_LABELS = "This is the map of"
UNLIKELY = 0.05
"""Out-of-fold probability of its own label up to which a cell is listed."""
WORKSHOP = "centroid_encoder.viewer._worker"
SETTLED = 200
"""Milliseconds after which the widget is on the screen."""

logger = logging.getLogger("centroid_encoder")


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
    result
        What is drawn, or None.
    """

    def __init__(self, napari_viewer: Viewer) -> None:
        super().__init__()
        # napari hands plugins a proxy, which is not the viewer where identity matters.
        self.viewer: Viewer = getattr(napari_viewer, "__wrapped__", napari_viewer)
        self.result: Result | None = None
        self._frame_colors: list[str] | None = None
        self._obs_names = pd.Index([])
        self._relabelings = Relabelings()
        self._provenance = Provenance()
        self._connected = False
        self.data = DataPanel(self.viewer)
        self.trainer = TrainingPanel()
        self.form = self.trainer.form
        self.message = self.trainer.message
        self.verdict = Verdict()
        self.map = MapPanel()
        self.cells = CellsPanel()
        self.classes = ClassTable()
        self.misplaced = MisplacedTable()
        self.new_data = NewDataPanel()
        self.keep = SaveRow(self._provenance)
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
        self.data.choose(self.data.add(adata, name))
        self.form.set_adata(adata, label_key)
        if layer is not None:
            self.data.choose_layer(layer)
        if instance_key is not None:
            self.data.choose_instances(instance_key)

    def select(self, rows: NDArray[np.intp]) -> None:
        """Select cells: rows of the AnnData that is chosen."""
        self._select(rows, "replace")

    # -- training --------------------------------------------------------------------------------

    @property
    def training(self) -> Training | None:
        """The training that runs, of one map or of all those of a check, or None."""
        return self.trainer.training

    def train(self) -> None:
        """Train on the table that is chosen; one training at a time."""
        if self.training is None:
            self._keep_up()
            self.trainer.train(self.data.table, self._relabeled)

    def check(self) -> None:
        """Cross-validate the labels of the table that is chosen, at a time when nothing trains."""
        if self.training is None:
            self._keep_up()
            self.trainer.check(self.data.table, self._relabeled)

    def stop(self) -> None:
        """End the training and keep the best map so far."""
        self.trainer.stop()

    def cancel(self) -> None:
        """End the training or the check and leave everything as it was."""
        self.trainer.cancel()

    @property
    def _unfolds(self) -> bool:
        """Whether the map is that of a training that runs; a check leaves it as it is."""
        return self.training is not None and not self.trainer.checking

    def _on_frame(self, run: Run, report: Report) -> None:
        training, table = self.trainer.training, self.trainer.table
        if training is None:
            return
        # Rows of a frame are those of the cells that were there when the training began.
        there = table is not None and table.adata.obs_names.equals(run.obs_names)
        if table is None or table is not self.data.table or not there:
            training.drawn()
            return
        self.map.show_report(run, report, self._live_colors(table, run))
        self._on_shown(self.classes.shown)

    def _live_colors(self, table: Table, run: Run) -> list[str]:
        """Return the colours of the classes that are trained on, found once for all frames."""
        if self._frame_colors is None:
            label_key, obs = self.trainer.label_key, table.adata.obs
            # The labels may have changed meanwhile.
            gone = label_key is None or label_key not in obs
            colors = {} if gone else label_colors(table.adata, str(label_key))
            self._frame_colors = [colors.get(name, colorings.GREY) for name in run.classes]
        return self._frame_colors

    def _on_finished(self, table: Table, key: str, made_by: MadeBy) -> None:
        self._provenance.remember(table, key, made_by)
        if table is self.data.table:
            self._offer_columns()

    def _on_checked(self, table: Table, key: str, made_by: MadeBy) -> None:
        self._provenance.remember(table, key, made_by)
        if table is not self.data.table:
            return
        self._offer_columns()
        if key == self.form.key and not self._keep_up():
            self.misplaced.choose(OUT_OF_FOLD)
            self._show_check()
            self._show_classes()
            self._show_keep()
            self._offer_colorings()
            self.tabs.setCurrentWidget(self.misplaced)

    def _on_ended(self, checked: bool) -> None:
        self._frame_colors = None
        self.trainer.set_ready(self.data.table is not None)
        if not checked:
            # A live frame must not outlive its training.
            self._show_result()

    # -- what is shown ---------------------------------------------------------------------------

    @property
    def _label_key(self) -> str | None:
        """Label column that is chosen; None also if it has been deleted since."""
        table, label_key = self.data.table, self.form.label_key.value
        there = table is not None and label_key in table.adata.obs
        return str(label_key) if there else None

    def _on_table(self) -> None:
        table = self.data.table
        self.cells.unlink()
        self._obs_names = pd.Index([]) if table is None else table.adata.obs_names
        self.message.say("")
        # That of the table before says nothing about this one's labels.
        self.result = None
        self.form.set_adata(
            None if table is None else table.adata, _trained_on(table, self.form.key)
        )
        self.cells.selected = np.zeros(0 if table is None else table.adata.n_obs, dtype=bool)
        self.trainer.set_ready(table is not None)
        self._show_result()

    def _keep_up(self) -> bool:
        """Show the table anew if its cells have changed, which cannot be heard; tell whether."""
        table = self.data.table
        if table is None or table.adata.obs_names.equals(self._obs_names):
            return False
        self.data.read_again()
        self.message.say("The cells of the table have changed; this is how they are now.")
        return True

    def _offer_columns(self) -> None:
        """Offer the label columns again, of which there may be new ones."""
        if self.data.table is not None:
            self.form.set_adata(self.data.table.adata, self.form.label_key.value)

    def _show_result(self) -> None:
        """Show what is stored under the key that the form says, or that there is nothing."""
        if self._keep_up():
            return
        table = self.data.table
        self.result = None
        if table is None:
            self.map.clear(NO_TABLE)
        else:
            try:
                self.result = read_result(table.adata, self.form.key)
            except KeyError as error:
                self.map.clear(NO_RESULT)
                if self.form.key in table.adata.uns:
                    # There was one, but a part of it is gone.
                    self.message.say(sentence(error), "warning")
            except ValueError as error:
                self.map.clear(NO_RESULT)
                self.message.say(sentence(error), "warning")
            if self.result is not None and self.result.embedding.shape[1] != 2:
                self.map.clear("This map does not have two dimensions.\n\nTrain one that has.")
                self.result = None
        if self.result is not None:
            assert table is not None
            self.map.show_result(table.adata, self.result, self._class_colors())
        self._show_classes()
        self._show_check()
        self._show_keep()
        self._offer_tables()
        self._offer_colorings()
        self._select(np.empty(0, dtype=np.intp), "add")

    @property
    def _check(self) -> Mapping[str, Any] | None:
        """What a cross-validation of the table has found, under the key that the form says."""
        table = self.data.table
        return None if table is None else read_cross_validation(table.adata, self.form.key)

    def _show_check(self) -> None:
        check = self._check
        if check is None:
            self.verdict.say("", "")
        else:
            self.verdict.say(verdict(check), self.form.where(doubts(check)))
        self._show_misplaced()

    def _show_keep(self) -> None:
        self.keep.set_state(
            self.data.table,
            None if self.result is None else self.result.key,
            self.map.drawn_regions,
            check_key=None if self._check is None else self.form.key,
        )

    def _offer_tables(self) -> None:
        """Offer to send the cells of other tables through the map."""
        mapped = self.result is not None
        self.new_data.offer(
            self.data.found,
            self.data.table if mapped else None,
            self.form.key if mapped else None,
        )

    def _class_colors(self) -> list[str]:
        assert self.data.table is not None
        assert self.result is not None
        colors = class_colors(self.data.table.adata, self.result, None)
        return [colors[name] for name in self.result.classes]

    def _show_classes(self) -> None:
        table, label_key = self.data.table, self._label_key
        if table is None or label_key is None:
            self.classes.set_classes([])
            return
        check = self._check
        shown = label_key if self.result is None else self.result.label_key
        out_of_fold: dict[str, float] = {}
        if check is not None and check["params"]["label_key"] == shown:
            per_class = check["per_class"]
            out_of_fold = dict(zip(per_class["class"], per_class["knn_error"], strict=True))
        if self.result is not None:
            rows = [
                ClassRow(
                    str(name),
                    color,
                    int((self.result.codes == code).sum()),
                    float(error),
                    out_of_fold.get(str(name), np.nan),
                )
                for code, (name, color, error) in enumerate(
                    zip(
                        self.result.classes,
                        self._class_colors(),
                        self._class_errors(),
                        strict=True,
                    )
                )
            ]
        else:
            counts = table.adata.obs[label_key].value_counts()
            colors = label_colors(table.adata, label_key)
            rows = [
                ClassRow(
                    str(name),
                    color,
                    int(counts.get(name, 0)),
                    np.nan,
                    out_of_fold.get(str(name), np.nan),
                )
                for name, color in colors.items()
            ]
        self.classes.set_classes(rows)
        self._on_shown(self.classes.shown)

    def _class_errors(self) -> NDArray[np.floating]:
        """(n_classes,) held-out errors; NaN for cells that were not trained on."""
        assert self.result is not None
        if colorings.is_query(self.result):
            return np.full(len(self.result.classes), np.nan)
        errors = self.result.stored["quality"]["per_class"]["test_knn_error"]
        return np.asarray(errors, dtype=np.float64)

    def _show_misplaced(self) -> None:
        table, check, misplaced = self.data.table, self._check, self.misplaced
        query = self.result is not None and colorings.is_query(self.result)
        trained = self.result is not None and not query
        sources = {REGIONS: trained, OUT_OF_FOLD: check is not None}
        misplaced.offer([source for source, there in sources.items() if there])
        rows = np.empty(0, dtype=np.intp)
        label_key, cells = None, pd.DataFrame(columns=list(misplaced.source.columns)[1:])
        if table is None or not any(sources.values()):
            misplaced.summary.setText(
                "These cells have no labels to doubt: their classes are what the map takes them "
                "for."
                if query
                else "Train a map first, or check the labels: cells that may be mislabelled are "
                "listed here."
            )
        else:
            try:
                label_key, cells = (
                    self._out_of_fold(table, check)
                    if check is not None and misplaced.source is OUT_OF_FOLD
                    else self._in_other_regions(table)
                )
            except KeyError as error:
                misplaced.summary.setText(sentence(error))
            rows = table.adata.obs_names.get_indexer(cells.index)
        relabeling = self._relabeling()
        # Those of another column say nothing about these labels.
        relabels = relabeling is not None and label_key in (relabeling.label_key, relabeling.column)
        labels = relabeling.labels if relabeling is not None and relabels else None
        misplaced.set_cells(cells, rows, labels)
        self._show_steps()

    def _in_other_regions(self, table: Table) -> tuple[str, pd.DataFrame]:
        """Return the labels of the map, and which cells lie in another class's region."""
        assert self.result is not None
        cells = tl.misplaced(table.adata, key=self.result.key, regions=self.map.regions)
        n, labeled = len(cells), int((self.result.codes >= 0).sum())
        kind = "Voronoi cell" if self.map.regions == "voronoi" else "decoder region"
        self.misplaced.summary.setText(
            f"{n:,} of {labeled:,} labelled cells lie in another class's {kind}."
        )
        return self.result.label_key, cells

    def _out_of_fold(self, table: Table, check: Mapping[str, Any]) -> tuple[str, pd.DataFrame]:
        """Return the labels that were checked, and which cells are taken for another class."""
        cells = tl.mislabeled(table.adata, key=self.form.key, max_own=UNLIKELY)
        labeled = int(check["quality"]["n"])
        self.misplaced.summary.setText(
            f"{len(cells):,} of {labeled:,} labels are given a probability of "
            f"{100 * UNLIKELY:.0f} % or less by networks that have not seen the cell."
        )
        return str(check["params"]["label_key"]), cells

    def _on_source(self) -> None:
        if not self._keep_up():
            self._show_misplaced()

    def _on_label_key(self, _: object) -> None:
        label_key = self._label_key
        if self.result is not None and label_key not in (None, self.result.label_key):
            self.message.say(
                f"{OTHER_LABELS} {self.result.label_key}; press Train for one of {label_key}."
            )
        elif self.message.text().startswith(OTHER_LABELS):
            self.message.say("")
        self._show_classes()
        self._recolor()
        self._show_steps()

    def _on_shown(self, shown: NDArray[np.bool_]) -> None:
        """Switch classes on and off in the map; all are on while it shows those of other labels."""
        names = self.map.class_names
        legend = [row.name for row in self.classes.model.rows]
        shown = shown if legend == names else np.ones(len(names), dtype=bool)
        if names and not np.array_equal(shown, self.map.canvas.map.shown):
            self.map.canvas.set_shown(shown)

    def _on_color(self, code: int, color: str) -> None:
        """Colour a class in the map, in the layer and for scanpy."""
        table = self.data.table
        label_key = self._label_key if self.result is None else self.result.label_key
        if table is None or label_key is None or self._keep_up():
            return
        try:
            known = list(label_colors(table.adata, label_key))
            classes = known if self.result is None else list(self.result.classes)
            set_label_color(table.adata, label_key, classes[code], color)
        except KeyError as error:
            self.trainer.say_error(error)
            return
        self._frame_colors = None
        self._show_classes()
        if self.result is not None:
            self.map.set_colors(self._class_colors())
        self._recolor()

    # -- new data --------------------------------------------------------------------------------

    def _on_file(self, path: Path) -> None:
        """List a file whose cells are to be mapped; what is chosen stays."""
        from centroid_encoder.viewer.data.reader import read_adata

        try:
            adata = read_adata(path)
        except OSError as error:
            self.new_data.say_error(error)
            return
        self.new_data.choose(self.data.add(adata, path.name, path=path))

    def _on_mapped(self, reference: Table, table: Table, key: str, made_by: MadeBy) -> None:
        """Go to the cells that have been mapped, unless the user has gone elsewhere."""
        self._provenance.remember(table, key, made_by)
        if self.data.table not in (reference, table) or table not in self.data.found:
            return
        warning = self.new_data.message.text()
        self.form.key_added.value = key
        if table is self.data.table:
            self._offer_columns()
            self._show_result()
        else:
            self.data.choose(table)
        if self.result is None:
            return
        self.cells.color_box.setCurrentText(colorings.PREDICTED)
        n = int((self.result.predicted < 0).sum())
        unassigned = f"; {n:,} stay unassigned" if n else ""
        self.message.say(
            f"{table.adata.n_obs:,} cells were sent through the map of {reference.name}"
            f"{unassigned}. {warning}".strip(),
            "warning" if warning else "info",
        )

    # -- selection and link ----------------------------------------------------------------------

    def _select(self, rows: NDArray[np.intp], mode: str) -> None:
        if self._keep_up():
            # Those are rows of the cells that were there before.
            return
        table = self.data.table
        self.cells.select(rows, mode, 0 if table is None else table.adata.n_obs)
        if self.result is not None and not self._unfolds:
            self.map.canvas.select(self.cells.selected)
        self._show_steps()

    def _on_chosen(self, rows: NDArray[np.intp]) -> None:
        """Go to cells that were chosen in the table."""
        self._select(rows, "replace")
        self.cells.zoom()

    def _on_join(self) -> None:
        self.cells.unlink()
        data = self.data
        if data.layer is not None and data.join is not None:
            self.cells.link(self.viewer, data.layer, data.join, self._on_picked)
        self._offer_colorings()
        self._select(np.empty(0, dtype=np.intp), "add")

    def _on_picked(self, rows: NDArray[np.intp]) -> None:
        self._select(rows, "replace")

    def _offer_colorings(self) -> None:
        table = self.data.table
        self.cells.offer_colorings(
            [colorings.LABEL]
            if table is None
            else colorings.modes(table.adata, self.form.key, self.result)
        )
        self._recolor()

    def _recolor(self) -> None:
        if self._keep_up():
            return
        table = self.data.table
        adata = None if table is None else table.adata
        try:
            self.cells.recolor(adata, self._label_key, self.result, self.map.regions, self.form.key)
        except Exception as error:
            self.trainer.say_error(error)

    # -- relabelling -----------------------------------------------------------------------------

    def _relabeling(self) -> Relabeling | None:
        table, label_key = self.data.table, self._label_key
        if table is None or label_key is None:
            return None
        return self._relabelings.of(table.adata, label_key)

    @property
    def _relabeled(self) -> str | None:
        """Column that corrected labels are written to."""
        relabeling = self._relabeling()
        return None if relabeling is None else relabeling.column

    def _on_relabel(self, label: str) -> None:
        if self._keep_up():
            return
        relabeling = self._relabeling()
        rows = np.flatnonzero(self.cells.selected)
        if relabeling is None or not len(rows):
            return
        label = label.strip()
        if self._step("relabel", rows, label or None):
            cells = f"{len(rows):,} {'cell is' if len(rows) == 1 else 'cells are'}"
            self.message.say(
                f"{cells} now {label or 'unlabeled'}. Written to obs[{relabeling.column!r}]; "
                "choose it as labels to train with it."
            )

    def _step(self, name: str, *arguments: Any) -> bool:
        """Relabel, undo or redo; tell whether it worked."""
        done = True
        try:
            self.message.say("")
            getattr(self._relabeling(), name)(*arguments)
            self._show_misplaced()
        except Exception as error:
            done = False
            self.trainer.say_error(error)
        self._offer_columns()
        self._show_steps()
        return done

    def _show_steps(self) -> None:
        relabeling = self._relabeling()
        table, label_key = self.data.table, self._label_key
        if table is None or label_key is None or relabeling is None:
            self.misplaced.set_labels([])
            self.misplaced.set_steps(relabel=False, undo="", redo="")
            return
        names = dict(label_colors(table.adata, label_key))
        if relabeling.column in table.adata.obs:
            names |= label_colors(table.adata, relabeling.column)
        self.misplaced.set_labels([str(name) for name in names])
        stack = relabeling.stack
        self.misplaced.set_steps(
            relabel=bool(self.cells.selected.any()),
            undo=stack.undoText() if stack.canUndo() else "",
            redo=stack.redoText() if stack.canRedo() else "",
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
            self.data.connect_viewer()
            # PyTorch, before Train is pressed, once the widget is on the screen. Not in a thread:
            # two threads that import scikit-learn at once find each other's half of it.
            QTimer.singleShot(SETTLED, partial(import_module, WORKSHOP))
            if self.data.table is None:
                self._on_table()
            elif not self.cells.linked:
                self._on_join()

    def _detach(self) -> None:
        if self._connected:
            self._connected = False
            if self.training is not None:
                what = "check" if self.trainer.checking else "training"
                show_info(f"Centroid-Encoder was closed; its {what} is cancelled.")
            self.cancel()
            self.new_data.cancel()
            self.cells.unlink()
            self.data.disconnect_viewer()
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
        for message in (
            self.message,
            self.data.message,
            self.keep.message,
            self.verdict.found,
            self.verdict.doubts,
            self.new_data.message,
        ):
            message.set_colors(kinds)

    def _lay_out(self) -> None:
        top = QWidget()
        above = QVBoxLayout(top)
        above.setContentsMargins(0, 0, 0, 0)
        above.setSpacing(6)
        for widget in (self.data, self.trainer, self.verdict):
            above.addWidget(widget)

        self.tabs = QTabWidget()
        self.tabs.addTab(self.classes, "Classes")
        self.tabs.addTab(self.misplaced, "Misplaced cells")
        self.tabs.addTab(self.new_data, "New data")
        below = QWidget()
        beneath = QVBoxLayout(below)
        beneath.setContentsMargins(0, 0, 0, 0)
        beneath.addWidget(self.cells)
        beneath.addWidget(self.tabs, stretch=1)

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
        parts.addWidget(top)
        parts.addWidget(splitter, stretch=1)
        # A low window shows a part of it, rather than grow beyond the screen and stay so.
        scrolled = QScrollArea()
        held = QWidget()
        holder = QVBoxLayout(held)
        holder.setContentsMargins(0, 0, 0, 0)
        holder.addWidget(content)
        scrolled.setWidget(held)
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
        self.data.table_changed.connect(self._on_table)
        self.data.join_changed.connect(self._on_join)
        self.data.listed.connect(self._offer_tables)
        self.new_data.file_chosen.connect(self._on_file)
        self.new_data.finished.connect(self._on_mapped)
        self.form.label_key_changed.connect(self._on_label_key)
        self.form.key_added.changed.connect(lambda _: self._show_result())
        self.trainer.train_button.clicked.connect(self.train)
        self.trainer.check_button.clicked.connect(self.check)
        self.trainer.framed.connect(self._on_frame)
        self.trainer.finished.connect(self._on_finished)
        self.trainer.checked.connect(self._on_checked)
        self.trainer.ended.connect(self._on_ended)
        self.map.canvas.selection_made.connect(self._select)
        self.map.canvas.describe = self._describe
        self.map.regions_changed.connect(self._on_regions)
        self.map.canvas.canvas.mpl_connect("draw_event", self._on_drawn)
        self.cells.mode_changed.connect(self._recolor)
        self.cells.clear_requested.connect(lambda: self._select(np.empty(0, np.intp), "replace"))
        self.classes.shown_changed.connect(self._on_shown)
        self.classes.color_changed.connect(self._on_color)
        self.misplaced.source_changed.connect(self._on_source)
        self.misplaced.cells_chosen.connect(self._on_chosen)
        self.misplaced.relabel_requested.connect(self._on_relabel)
        self.misplaced.undo_requested.connect(lambda: self._step("undo"))
        self.misplaced.redo_requested.connect(lambda: self._step("redo"))

    def _on_regions(self) -> None:
        if self._keep_up():
            return
        self._show_keep()
        self._show_misplaced()
        self._recolor()

    def _describe(self, row: int) -> str:
        """What is said of a cell under the mouse."""
        table, result = self.data.table, self.result
        if table is None or self._keep_up():
            return ""
        if self._unfolds:
            # There are no predictions yet.
            result = None
        label_key = self._label_key if result is None else result.label_key
        obs = table.adata.obs
        lines = [f"cell {obs.index[row]}"]
        if label_key in obs:
            lines.append(f"{label_key}: {obs[label_key].iloc[row]}")
        if result is not None:
            code = result.predicted[row]
            lines.append(f"predicted: {result.classes[code] if code >= 0 else '–'}")
            for name in ("confidence", "novelty"):
                column = f"{result.key}_{name}"
                if column in obs and np.isfinite(obs[column].iloc[row]):
                    lines.append(f"{name}: {obs[column].iloc[row]:.2f}")
        return "\n".join(lines)

    def _on_drawn(self, _: Any) -> None:
        if self.training is not None:
            self.training.drawn()


def _trained_on(table: Table | None, key: str) -> str | None:
    """Label column of the result that came with a table, if it is still there."""
    stored = None if table is None else table.adata.uns.get(key)
    params = stored.get("params") if isinstance(stored, Mapping) else None
    label_key = params.get("label_key") if isinstance(params, Mapping) else None
    return label_key if table is not None and label_key in table.adata.obs else None


class _Content(QWidget):
    """All parts; a scroll area asks them for the least height, not for what they would like."""

    def hasHeightForWidth(self) -> bool:
        return False

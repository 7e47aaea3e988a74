"""Choose a table, the layers that show its cells, and the columns that join them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from napari.layers import Layer
from qtpy.QtCore import QModelIndex, Qt
from qtpy.QtGui import QDropEvent, QResizeEvent
from qtpy.QtWidgets import (
    QLabel,
    QMenu,
    QMessageBox,
    QPushButton,
    QSizePolicy,
    QWidget,
)

from centroid_encoder.tables import is_table
from centroid_encoder.tl._positions import positions
from centroid_encoder.viewer.data.columns import (
    OBS_NAMES,
    ONE_IMAGE,
    image_columns,
    may_be_ids,
)
from centroid_encoder.viewer.data.join import Link, Misfit, TableImage
from centroid_encoder.viewer.data.measuring import measured, name_of
from centroid_encoder.viewer.panels.fields import (
    Choice,
    button,
    column,
    delayed,
    form_label,
    form_layout,
    side_by_side,
)
from centroid_encoder.viewer.panels.job import TaskRow, ask_table, read_tables
from centroid_encoder.viewer.panels.measure import MeasureDialog
from centroid_encoder.viewer.panels.message import Message, in_words, sentence
from centroid_encoder.viewer.panels.table_model import TableView
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import State
from centroid_encoder.viewer.task import Task, make_and_run

if TYPE_CHECKING:
    from centroid_encoder.tl._measure import Measurement

FEW = 0.01
"""Share of cells that are in no layer from which the join looks wrong."""
PAUSE = 300
"""Painted labels are joined again after so many milliseconds without a change."""
COLUMNS = ("image", "cells", "in layer", "missing")
LAYER = 2
VISIBLE_ROWS = 4
CLOSE_WIDTH = 24
"""Width of the button that hides the details, in pixels."""


class DataPanel(QWidget):
    """Choose a table, the layers that show its cells, and the columns that join them.

    For a table of several images, a list shows the layer of each image. The parent lays out
    `opening`, `measuring`, `message`, `positions_button`, and `fold`, a line about a bad join.
    """

    def __init__(self, session: Session) -> None:
        super().__init__()
        self._session = session
        catalog = self.catalog = session.catalog
        catalog.in_thread = self._in_thread
        self._refresh = delayed(self, 0, catalog.refresh)

        self.opening, self.measuring = TaskRow(), TaskRow()
        tip = "Tables of cells in napari"
        self.table_box = Choice("Table", tip, catalog.choose)
        self.menu = QMenu(self)
        self.menu.setToolTipsVisible(True)
        self.open_action = self.menu.addAction("Open table …", lambda: self.read(*ask_table(self)))
        ask_folder = partial(ask_table, self, is_folder=True)
        self.menu.addAction("Open .zarr folder …", lambda: self.read(*ask_folder()))
        self.measure_action = self.menu.addAction("Measure cells …", self._ask_layers)
        self.measure_action.setToolTip("Make a table of the cells of Labels and Image layers")
        self.close_action = self.menu.addAction("Close table", self._on_close)
        self.menu.addSeparator()
        tip = "Show or hide how the table and the layers belong together, the classes and features"
        self.menu.addAction("Cells, classes and features …", self.toggle).setToolTip(tip)
        tip = "Layer whose labels, points or shapes are the cells of the table"
        self.layer_box = Choice("Layer of the cells", tip, catalog.choose_layer)
        tip = "Column with the id of each cell in the layer"
        self.instance_box = Choice("Column of ids", tip, lambda ids: catalog.choose_ids(*ids))
        tip = "Column with the image of each cell"
        self.image_box = Choice("Column of images", tip, catalog.choose_image_column)
        self.images_table = ImageTable(catalog.show_image)
        self.fold = Fold()
        self.joined_text, self.message = Message(), Message()
        tip = "Match each row of the table to the object of the label image at its position"
        self.mend_button = button("", tip, self._on_mend)
        self.mend_button.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        tip = "Add a Points layer of the cells at their positions"
        self.positions_button = button("Show positions", tip, catalog.show_positions)

        self._by, self._in = form_label("joined by"), QLabel("in")
        self._cells_in = form_label("Segmentation")
        form = form_layout()
        close_button = button("×", "Hide these details; ☰ shows them again", self.hide)
        close_button.setFixedWidth(CLOSE_WIDTH)
        form.addRow(self._cells_in, side_by_side((self.layer_box, 1), close_button))
        form.addRow(self._by, side_by_side(self.instance_box, self._in, self.image_box))
        self.fold.clicked.connect(self.toggle)
        joined = self.joined_text, self.mend_button
        self.below = column(self, form, self.images_table, *joined)
        self.below.setContentsMargins(6, 4, 6, 4)
        self.hide()
        session.show_in(self.show_state)
        catalog.stirred.connect(lambda painted: self._refresh.start(PAUSE * painted))

    def toggle(self) -> None:
        """Show or hide how the table and the layers belong together."""
        self.setVisible(self.isHidden())

    def _show_fold(self) -> None:
        """Say in one line that cells or layers are not joined, or nothing."""
        catalog, missing, n = self.catalog, 0, 0
        for join in catalog.joins.values():
            missing, n = missing + join.n_rows - join.n_joined, n + join.n_rows
        text = f"{missing:,} of {n:,} cells not found" if missing > FEW * n else ""
        if not catalog.joins and catalog.layers and not (catalog.table and catalog.table.declined):
            text = catalog.absence().partition("; ")[2]
        faults = [*map(sentence, catalog.faults.values())]
        self.fold.say((faults or [text])[0], self.joined_text.text())

    def stop(self) -> None:
        """Cancel timers and threads, since the widget is being closed."""
        self._refresh.stop()
        self.opening.cancel()
        self.measuring.cancel()

    def read(self, *paths: Path) -> None:
        """Read tables in a thread, and choose each."""
        read_tables(self.opening, paths, self.catalog.open, self._on_failed)

    def measure(self, plan: Measurement) -> None:
        """Measure cells in a thread, and add their table."""
        self.message.say("")
        work = partial(make_and_run, lambda: plan)
        self.measuring.begin(work, f"Measuring {name_of(plan)}", self._on_measured)

    def _on_close(self) -> None:
        """Close the chosen table, after a question if its results are not saved."""
        table = self.catalog.table
        if table is None:
            return
        answers = QMessageBox.StandardButton
        text = f"The labels and maps in {table.name} are not saved. Close it anyway?"
        if not table.unsaved or answers.Yes == QMessageBox.question(self, "Close the table", text):
            self.catalog.close(table)

    def _on_failed(self, error: Exception) -> None:
        self.message.say(error, "error")

    def _ask_layers(self) -> None:
        def accepted() -> None:
            if dialog.plan is not None:
                self.measure(dialog.plan)

        dialog = MeasureDialog(*self.catalog.measurable, self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.accepted.connect(accepted)
        # Not `exec`, which would start another event loop.
        dialog.open()

    def _on_measured(self, job: Measurement, error: Exception | None) -> None:
        if error is not None:
            self._on_failed(error)
            return
        adata = measured(job)
        self.catalog.open(adata, f"{name_of(job)}: measured")
        notices = " ".join(map(sentence, job.notices))
        if notices and not self.catalog.faults:
            self.message.say(notices, "warning")

    @property
    def _better(self) -> Link | None:
        """The join that corrects the first fault of the links, if there is one."""
        fault = next(iter(self.catalog.faults.values()), None)
        return fault.better if isinstance(fault, Misfit) else None

    def _on_mend(self) -> None:
        if (better := self._better) is not None and better in self.catalog.joins:
            self.catalog.choose_layer(better.layer)
        elif better is not None:
            self.catalog.choose_ids(better.id_column, better.shift)

    def _in_thread(
        self, work: Callable[[], Any], then: Callable[[Future[Any]], None]
    ) -> Future[Any]:
        """Call `work` in a thread, and then `then` in this one; return what `then` gets."""
        future: Future[Any] = Future()

        def on_end(found: Any, error: Exception | None) -> None:
            if error is None:
                future.set_result(found)
            else:  # Reading lazy pixels can raise any error.
                future.set_exception(ValueError(str(error)))
            then(future)

        Task(lambda _: work(), on_end, self, daemon=True)
        return future

    def show_state(self, before: State, now: State) -> None:
        """Show the tables and layers, and how they are joined."""
        if now.differs(before, "links", "table"):
            self._show_link()
        elif now.differs(before, "tables"):
            self._show_lists()

    def _show_lists(self) -> None:
        catalog, table = self.catalog, self.catalog.table
        tables = [(table.name, table) for table in catalog.tables]
        self.table_box.offer(tables, table)
        self.table_box.setVisible(bool(tables))
        self.close_action.setEnabled(table is not None and table.layer is None)
        layers = [(layer.name, layer) for layer in catalog.layers]
        self.layer_box.offer([("none", None), *layers], catalog.layer)
        self.layer_box.setEnabled(table is not None)
        self.measure_action.setEnabled(bool(catalog.measurable[0]))
        self._show_fold()

    def _show_link(self) -> None:
        catalog, table = self.catalog, self.catalog.table
        images = catalog.images()
        self._offer_columns(catalog.link, bool(images))
        self._show_images(images)
        if images and catalog.joins:
            self.joined_text.say(summary(images))
        else:
            self.joined_text.say(catalog.absence() if catalog.join is None else str(catalog.join))
        self._show_fault(bool(images))
        without_layer = table is not None and not (catalog.link or catalog.reading)
        places = positions(table.adata) if table is not None and without_layer else None
        self.positions_button.setVisible(places is not None)
        self._show_lists()

    def _show_fault(self, of_several: bool) -> None:
        """Show the first fault of the links, and a button if it can be corrected."""
        self.message.say("")
        for link, fault in list(self.catalog.faults.items())[:1]:
            text = f"{link.layer.name}: " * of_several + sentence(fault)
            self.message.say(text, "warning" if isinstance(fault, Misfit) else "error")
        if (better := self._better) is not None:
            text = f"Join by {in_words(better.ids_name)}"
            self.mend_button.setText("Yes" if better in self.catalog.joins else text)
        self.mend_button.setVisible(better is not None)

    def _show_images(self, images: list[TableImage]) -> None:
        """List the images, and a last row for all images in one layer."""
        for widget in (self._cells_in, self.layer_box):
            widget.setVisible(not images)
        self.images_table.setVisible(bool(images))
        if images and images[0].value is not None:
            images = [*images, TableImage(None, sum(image.n_cells for image in images))]
        self.images_table.show_images(images, self.catalog.layers)

    def _offer_columns(self, link: Link | None, several: bool) -> None:
        """Offer the columns that can hold ids, and those that can hold images."""
        table = self.catalog.table
        columns: list[tuple[str, str]] = []
        if table is not None:
            obs = table.adata.obs
            names = [str(name) for name in obs if may_be_ids(obs[name])]
            ids = [(name, (name, 0)) for name in [*names, OBS_NAMES]]
            by = table.ids or ("", 0)
            if link is not None:
                by = link.id_column or "", link.shift
            if by not in [value for _, value in ids]:
                shifted = f" {by[1]:+}" if by[1] else ""
                ids.insert(0, (f"{by[0]}{shifted}" or "choose …", by))
            self.instance_box.offer(ids, by)
            columns = [(name, name) for name in image_columns(obs)]
            chosen = self.catalog.image_column if several else ONE_IMAGE
            self.image_box.offer([("one image", ONE_IMAGE), *columns], chosen)
        for widget in (self._by, self.instance_box):
            to_join = table is not None and self.catalog.layers and not table.declined
            widget.setVisible(table is not None and (several or bool(to_join)))
        for widget in (self._in, self.image_box):
            widget.setVisible(bool(columns) and (several or link is not None))


class Fold(QPushButton):
    """A line that shows or hides the details; hidden if nothing is wrong.

    A text that is too long ends with an ellipsis.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said = ""
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)

    def say(self, text: str, more: str) -> None:
        """Show a text, and all of it and more in the tooltip."""
        self._said = f"⚠ {text}"
        tip = "Show or hide how the table and the layers belong together"
        self.setToolTip(f"{text}\n{more}\n{tip}")
        self.setAccessibleName(text)
        self.setVisible(bool(text))
        self._elide()

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Show as much of the text as there is room for."""
        super().resizeEvent(event)
        self._elide()

    def _elide(self) -> None:
        room, end = self.width() - 12, Qt.TextElideMode.ElideRight
        self.setText(self.fontMetrics().elidedText(self._said, end, room))


def summary(images: list[TableImage]) -> str:
    """Return a sentence on the numbers of cells and images, and how many are joined."""
    joins = [image.join for image in images if image.join is not None]
    if images[0].value is None:
        return str(joins[0])
    n_cells = sum(image.n_cells for image in images)
    missing = sum(join.n_rows - join.n_joined for join in joins)
    others = sum(join.n_unmatched_ids for join in joins)
    return (
        f"{n_cells:,} cells in {len(images)} images, {len(joins)} of them open; in these, "
        f"{missing:,} cells not found, {others:,} label{'s' * (others != 1)} without a row"
    )


def dropped(event: QDropEvent) -> tuple[list[Path], list[Path]]:
    """Return the dropped files that are tables, and all others."""
    data = event.mimeData()
    paths = [Path(url.toLocalFile()) for url in data.urls()] if data is not None else []
    tables = [x for x in paths if x.suffix.lower() in (".h5ad", ".zarr") or is_table(x)]
    return tables, [path for path in paths if path not in tables]


class ImageTable(TableView):
    """A row for each image; a click or Enter on its layer opens a menu of layers.

    `choose` is called with the value of an image (None for all images), and the layer that is to
    show it, or None.
    """

    def __init__(self, choose: Callable[[object, Any], object]) -> None:
        super().__init__("Images of the table")
        self._choose = choose
        self.images: list[TableImage] = []
        self._layers: list[Layer] = []
        # The Tab key moves to the next control instead of the next cell.
        self.setTabKeyNavigation(False)
        self.clicked.connect(self._on_clicked)
        self.activated.connect(self._on_clicked)

    def show_images(self, images: Sequence[TableImage], layers: Sequence[Layer]) -> None:
        """Show images, and offer these layers for them."""
        self.images, self._layers = list(images), list(layers)
        rows = []
        for image in images:
            layer, join = "–" if image.link is None else image.link.layer.name, image.join
            missing = "" if join is None else f"{join.n_rows - join.n_joined:,}"
            cells = image.name, f"{image.n_cells:,}", "⚠ " * bool(image.remark) + layer, missing
            rows.append((*cells, image.remark or str(join or "")))
        table = pd.DataFrame(rows, columns=[*COLUMNS, "tip"])
        self.set_table(table, [(name, "") for name in COLUMNS], [0, LAYER])
        self.setFixedHeight(self.height_of(min(max(len(images), 2), VISIBLE_ROWS)))

    def menu(self, row: int) -> QMenu:
        """Return the menu of layers for an image."""
        image, menu = self.images[row], QMenu(self)
        shown = None if image.link is None else image.link.layer
        for name, layer in [("in no layer", None), *((x.name, x) for x in self._layers)]:
            action = menu.addAction(name, partial(self._choose, image.value, layer))
            action.setCheckable(True)
            action.setChecked(layer is shown)
        return menu

    def _on_clicked(self, index: QModelIndex) -> None:
        if index.column() == LAYER:
            self.open_menu(self.menu(index.row()), index)

"""Make a table of cells from layers: which ones, and the measuring of them in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from napari.layers import Image, Labels, Layer
from qtpy.QtCore import Qt, Signal
from qtpy.QtWidgets import (
    QAbstractItemView,
    QCheckBox,
    QDialog,
    QDialogButtonBox,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QWidget,
)

from centroid_encoder.viewer.data.measuring import (
    Measuring,
    Plan,
    have_same_pixels,
    may_be_time,
    plan,
)
from centroid_encoder.viewer.panels.fields import column
from centroid_encoder.viewer.panels.message import Message, sentence
from centroid_encoder.viewer.panels.progress import ProgressRow

if TYPE_CHECKING:
    from centroid_encoder.viewer._worker import Worker

ROWS = 6
"""Layers of a list that are seen without scrolling."""
WIDTH = 380
"""Least width of the dialog in pixels."""


class LayerList(QListWidget):
    """Layers with a box each; `itemChanged` tells of them."""

    def __init__(self, name: str, layers: Sequence[Layer]) -> None:
        super().__init__()
        self._layers = list(layers)
        self.setAccessibleName(name)
        self.setSelectionMode(QAbstractItemView.SelectionMode.NoSelection)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        for layer in layers:
            item = QListWidgetItem(layer.name)
            item.setToolTip(layer.name)
            item.setFlags(Qt.ItemFlag.ItemIsUserCheckable | Qt.ItemFlag.ItemIsEnabled)
            item.setCheckState(Qt.CheckState.Unchecked)
            self.addItem(item)
        if layers:
            rows = min(max(len(layers), 2), ROWS)
            self.setFixedHeight(rows * self.sizeHintForRow(0) + 2 * self.frameWidth() + 4)

    @property
    def chosen(self) -> list[Any]:
        """Layers whose box is ticked."""
        return [
            layer
            for i, layer in enumerate(self._layers)
            if self._item(i).checkState() == Qt.CheckState.Checked
        ]

    def choose(self, layers: Sequence[Layer]) -> None:
        """Tick the boxes of these layers alone."""
        for i, layer in enumerate(self._layers):
            wanted = any(layer is one for one in layers)
            state = Qt.CheckState.Checked if wanted else Qt.CheckState.Unchecked
            self._item(i).setCheckState(state)

    def _item(self, i: int) -> QListWidgetItem:
        item = self.item(i)
        assert item is not None
        return item


class MeasureDialog(QDialog):
    """Choose what to measure: at first all labels that are visible, and all that fits them.

    Parameters
    ----------
    labels, images
        The layers there are.

    Attributes
    ----------
    plan
        What is measured; None as long as something is in the way, which the dialog says.
    """

    def __init__(
        self, labels: Sequence[Labels], images: Sequence[Image], parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Measure cells")
        self.setMinimumWidth(WIDTH)
        self.plan: Plan | None = None
        self.labels_list = LayerList("Labels", labels)
        self.images_list = LayerList("Images", images)
        self.time_box = QCheckBox("The first axis is time")
        self.time_box.setToolTip(
            "Measure each frame by itself: a cell has a row for each frame that it is in"
        )
        self.text = Message()
        self.text.setMinimumHeight(4 * self.fontMetrics().lineSpacing())
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel)
        self.measure_button = self.buttons.addButton(
            "Measure", QDialogButtonBox.ButtonRole.AcceptRole
        )
        self.buttons.accepted.connect(self.accept)
        self.buttons.rejected.connect(self.reject)
        self.labels_list.choose([layer for layer in labels if layer.visible] or labels)
        fitting = [one for one in images if any(have_same_pixels(layer, one) for layer in labels)]
        self.images_list.choose(fitting)
        times = [may_be_time(layer) for layer in labels]
        self.time_box.setVisible(any(time is not None for time in times))
        self.time_box.setChecked(any(times))
        images_label = QLabel("Intensities of" if images else "No image is open: shapes alone.")
        self.images_list.setVisible(bool(images))
        parts = QLabel("Cells of"), self.labels_list, images_label, self.images_list, self.time_box
        layout = column(self, *parts, self.text)
        layout.addStretch()
        layout.addWidget(self.buttons)
        layout.setContentsMargins(10, 10, 10, 10)
        for shown in (self.labels_list, self.images_list):
            shown.itemChanged.connect(self._on_choice)
        self.time_box.toggled.connect(self._on_choice)
        self._on_choice()

    def _on_choice(self, _: object = None) -> None:
        """Say what will be measured, or what is in the way."""
        try:
            self.plan = plan(
                self.labels_list.chosen,
                self.images_list.chosen,
                time_series=self.time_box.isChecked(),
            )
        except ValueError as error:
            self.plan = None
            self.text.say(sentence(error), "error")
        else:
            self.text.say(str(self.plan))
        self.measure_button.setEnabled(self.plan is not None)


class MeasureRow(QWidget):
    """Measures cells in a thread, and shows how far it is; hidden while there is nothing to do."""

    measured = Signal(object, str)
    """A `Measuring` that has ended, and what its table is called."""
    failed = Signal(object)
    """The exception that ended it."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.worker: Worker | None = None
        self._job: Measuring | None = None
        self._name = ""
        self.progress = ProgressRow()
        self.progress.cancel_requested.connect(self.cancel)
        column(self, self.progress)
        self.hide()

    def begin(self, chosen: Plan) -> None:
        """Measure, in place of what is being measured."""
        from centroid_encoder.viewer._worker import Worker

        self.cancel()
        try:
            self._job = Measuring(chosen)
        except Exception as error:  # Whatever it is, it ends as a sentence, not as a traceback.
            self.failed.emit(error)
            return
        self._name = f"{chosen.name}: measured"
        self.worker = Worker(self._job, self)
        self.worker.reported.connect(self._on_reported)
        self.worker.finished.connect(self._on_finished)
        self.worker.failed.connect(self._on_failed)
        self.show()
        self.progress.begin(f"Measuring {chosen.name}", stoppable=False)
        self.worker.start()

    def cancel(self) -> None:
        """Measure no further; the thread ends by itself, unheard."""
        if self.worker is not None:
            self.worker.cancel()
            self._end()

    def _on_reported(self, step: Any) -> None:
        if self.worker is not None:
            self.progress.report(step)

    def _on_finished(self) -> None:
        job = self._job
        self._end()
        if job is not None:
            self.measured.emit(job, self._name)

    def _on_failed(self, error: Exception) -> None:
        self._end()
        self.failed.emit(error)

    def _end(self) -> None:
        worker = self.worker
        self.worker = self._job = None
        if worker is not None:
            worker.deleteLater()
        self.progress.end()
        self.hide()

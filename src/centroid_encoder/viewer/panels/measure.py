"""Choose the layers to measure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from napari.layers import Image, Labels, Layer
from qtpy.QtCore import Qt
from qtpy.QtWidgets import (
    QCheckBox,
    QDialog,
    QDialogButtonBox,
    QLabel,
    QListWidget,
    QListWidgetItem,
    QWidget,
)

from centroid_encoder.viewer.data.measuring import (
    describe,
    have_same_pixels,
    may_be_time,
    pair,
    plan,
)
from centroid_encoder.viewer.panels.fields import column
from centroid_encoder.viewer.panels.message import Message

if TYPE_CHECKING:
    from centroid_encoder.tl._measure import Measurement

MIN_WIDTH = 380
"""Smallest width of the dialog in pixels."""


class LayerList(QListWidget):
    """A list of layers with check boxes; the `chosen` ones are checked at first."""

    def __init__(self, name: str, layers: Sequence[Layer], chosen: Sequence[Layer]) -> None:
        super().__init__()
        self._layers = layers
        self.setAccessibleName(name)
        self.setTextElideMode(Qt.TextElideMode.ElideMiddle)
        self.setMaximumHeight(140)
        for layer in layers:
            item = QListWidgetItem(layer.name, self)
            item.setFlags(Qt.ItemFlag.ItemIsUserCheckable | Qt.ItemFlag.ItemIsEnabled)
            is_chosen = layer in chosen
            item.setCheckState(Qt.CheckState.Checked if is_chosen else Qt.CheckState.Unchecked)

    @property
    def chosen(self) -> list[Any]:
        """The checked layers."""
        checked = Qt.CheckState.Checked
        return [x for i, x in enumerate(self._layers) if self.item(i).checkState() == checked]


class MeasureDialog(QDialog):
    """Choose what to measure; the default is all visible labels and all images that fit them.

    `plan` is the job for the chosen layers. It is None if they do not fit; the dialog says why.
    """

    def __init__(
        self, labels: Sequence[Labels], images: Sequence[Image], parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle("Measure cells")
        self.setMinimumWidth(MIN_WIDTH)
        self.plan: Measurement | None = None
        visible = [layer for layer in labels if layer.visible] or labels
        fitting = [one for one in images if any(have_same_pixels(layer, one) for layer in labels)]
        self.labels_list = LayerList("Labels", labels, visible)
        self.images_list = LayerList("Images", images, fitting)
        self.time_box = QCheckBox("The first axis is time")
        self.time_box.setToolTip("Measure each frame separately: one row for each cell and frame")
        self.text = Message()
        self.text.setMinimumHeight(4 * self.fontMetrics().lineSpacing())
        self.buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Cancel)
        self.measure_button = self.buttons.addButton(
            "Measure", QDialogButtonBox.ButtonRole.AcceptRole
        )
        self.buttons.accepted.connect(self.accept)
        self.buttons.rejected.connect(self.reject)
        times = [may_be_time(layer) for layer in labels]
        self.time_box.setVisible(any(time is not None for time in times))
        self.time_box.setChecked(any(times))
        images_label = QLabel("Intensities of" if images else "No image is open: only shapes.")
        self.images_list.setVisible(bool(images))
        parts = QLabel("Cells of"), self.labels_list, images_label, self.images_list, self.time_box
        column(self, *parts, self.text, self.buttons).setContentsMargins(10, 10, 10, 10)
        for shown in (self.labels_list, self.images_list):
            shown.itemChanged.connect(self._on_choice)
        self.time_box.toggled.connect(self._on_choice)
        self._on_choice()

    def _on_choice(self, _: object = None) -> None:
        """Show what will be measured, or why the layers do not fit."""
        chosen = self.labels_list.chosen, self.images_list.chosen
        try:
            self.plan = plan(*chosen, time_series=self.time_box.isChecked())
        except ValueError as error:
            self.plan = None
            self.text.say(error, "error")
        else:
            self.text.say(describe(pair(*chosen), str(self.plan.unit)))
        self.measure_button.setEnabled(self.plan is not None)

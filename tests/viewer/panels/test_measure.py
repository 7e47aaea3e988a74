"""Measure layers: the table is joined to them, in a real window."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from napari import Viewer
from pytestqt.qtbot import QtBot
from qtpy.QtCore import Qt

import centroid_encoder as ce
from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.panels.measure import MeasureDialog
from tests.viewer.seen import give_label

Open = Callable[[], "CentroidEncoderWidget"]

N = 144
LABELS = np.kron(np.arange(1, N + 1).reshape(12, 12), np.pad(np.ones((4, 4), int), (0, 1)))
IMAGE = np.random.default_rng(0).normal(20 * (LABELS % 2), 1) * (LABELS > 0)


def ask(widget: CentroidEncoderWidget) -> MeasureDialog:
    widget.data.measure_action.trigger()
    dialog = widget.data._dialog
    assert dialog is not None
    return dialog


def measure(widget: CentroidEncoderWidget, qtbot: QtBot) -> None:
    dialog = ask(widget)
    qtbot.mouseClick(dialog.measure_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: widget.data.measuring.task is None, timeout=60_000)


def test_from_an_image_and_its_labels_to_a_map(
    viewer: Viewer, open_widget: Open, qtbot: QtBot, train: Callable[..., None]
) -> None:
    viewer.add_image(IMAGE, name="CD3", scale=(0.5, 0.5), units="um")
    viewer.add_labels(LABELS, name="nuclei", scale=(0.5, 0.5), units="um")
    widget = open_widget()

    measure(widget, qtbot)

    table = widget.catalog.table
    assert table is not None
    assert table.name == "nuclei: measured"
    assert str(widget.catalog.join) == (
        "144 cells; 0 without a label in the image; 0 labels without a row"
    )
    expected = ce.tl.measure(
        {"nuclei": LABELS}, {"CD3": IMAGE}, spacing=0.5, unit="um", progress=False
    )
    np.testing.assert_array_equal(table.adata.X, expected.X)
    assert not widget.data.message.text()
    assert "No cell has a label" in widget.form.hint.text()
    # Label the cells by hand, as the widget proposes.
    bright = table.adata[:, "CD3_mean"].X.ravel() > 10
    for name, rows in (("bright", bright), ("dim", ~bright)):
        widget.select(np.flatnonzero(rows))
        give_label(widget.cells.label_button, name)
    widget.form.label_key.value = "cell_type_relabeled"
    train(widget)
    assert set(widget.result.classes) == {"bright", "dim"}


def test_several_labels_are_measured_and_joined_at_once(
    viewer: Viewer, open_widget: Open, qtbot: QtBot
) -> None:
    for name in ("A_CD3", "B_CD3"):
        viewer.add_image(IMAGE, name=name)
    for name in ("A_mask", "B_mask"):
        viewer.add_labels(LABELS, name=name)
    widget = open_widget()

    dialog = ask(widget)
    assert dialog.text.text().startswith("A_mask: CD3\nB_mask: CD3\n")
    dialog.accept()
    qtbot.waitUntil(lambda: len(widget.catalog.joins) == 2, timeout=60_000)

    assert widget.catalog.table is not None
    assert widget.catalog.table.adata.n_obs == 2 * N
    for link, join in widget.catalog.joins.items():
        assert link.image == link.layer.name
        assert join.n_joined == N


def test_a_mask_of_one_plane_is_measured_as_a_plane(
    viewer: Viewer, open_widget: Open, qtbot: QtBot
) -> None:
    viewer.add_image(IMAGE, name="CD3")
    labels = viewer.add_labels(LABELS[None, None], name="nuclei", opacity=0.5)
    widget = open_widget()
    dialog = ask(widget)
    assert dialog.images_list.chosen == [viewer.layers["CD3"]]
    assert dialog.time_box.isHidden()
    dialog.reject()

    measure(widget, qtbot)

    assert widget.catalog.table is not None
    adata = widget.catalog.table.adata
    expected = ce.tl.measure({"nuclei": LABELS}, {"CD3": IMAGE}, progress=False)
    np.testing.assert_array_equal(adata.X, expected.X)
    assert adata.var_names.equals(expected.var_names)
    assert adata.obs_names.equals(expected.obs_names)
    [(link, join)] = widget.catalog.joins.items()
    assert link.layer is labels
    assert join.n_joined == N
    assert widget.data.message.kind == "info"


def test_the_dialog_shows_why_layers_do_not_fit(
    viewer: Viewer, open_widget: Open, qtbot: QtBot
) -> None:
    widget = open_widget()
    assert not widget.data.measure_action.isEnabled()
    fits = viewer.add_image(IMAGE, name="CD3")
    viewer.add_image(IMAGE[:9], name="CD4")
    labels = viewer.add_labels(LABELS, name="nuclei")
    qtbot.waitUntil(widget.data.measure_action.isEnabled)
    dialog = ask(widget)
    assert dialog.labels_list.chosen == [labels]
    assert dialog.images_list.chosen == [fits]
    assert dialog.time_box.isHidden()

    dialog.images_list.item(1).setCheckState(Qt.CheckState.Checked)
    assert dialog.text.kind == "error"
    assert "CD4 has the shape (9, 60) and nuclei the shape (60, 60)" in dialog.text.text()
    assert not dialog.measure_button.isEnabled()
    for row in (0, 1):
        dialog.images_list.item(row).setCheckState(Qt.CheckState.Unchecked)
    assert "only shapes" in dialog.text.text()
    assert dialog.measure_button.isEnabled()
    dialog.labels_list.item(0).setCheckState(Qt.CheckState.Unchecked)
    assert not dialog.measure_button.isEnabled()
    dialog.reject()
    assert widget.data.measuring.task is None
    assert widget.catalog.table is None


@pytest.mark.filterwarnings("ignore:.*negative:UserWarning")
def test_errors_and_warnings_about_pixels_are_shown(
    viewer: Viewer, open_widget: Open, qtbot: QtBot
) -> None:
    layer = viewer.add_labels(LABELS - 5, name="nuclei")
    widget = open_widget()
    measure(widget, qtbot)
    assert widget.data.message.kind == "error"
    assert "contain the negative -5" in widget.data.message.text()
    assert widget.catalog.table is None

    layer.data = (LABELS > 0).astype(int)
    measure(widget, qtbot)
    assert widget.data.message.kind == "warning"
    assert "hold 1 cells" in widget.data.message.text()
    assert widget.catalog.table is not None

"""Measure layers: the table is joined to them, in a real window."""

import numpy as np
import pytest
from pytestqt.qtbot import QtBot
from qtpy.QtCore import Qt

import centroid_encoder as ce
from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.panels.measure import MeasureDialog
from tests.viewer.seen import give_label

N = 144
LABELS = np.kron(np.arange(1, N + 1).reshape(12, 12), np.pad(np.ones((4, 4), int), (0, 1)))
IMAGE = np.random.default_rng(0).normal(20 * (LABELS % 2), 1) * (LABELS > 0)


def ask(widget: CentroidEncoderWidget) -> MeasureDialog:
    widget.data.measure_action.trigger()
    return widget.data.findChild(MeasureDialog)


def measure(widget: CentroidEncoderWidget, qtbot: QtBot) -> None:
    ask(widget).measure_button.click()
    qtbot.waitUntil(lambda: widget.data.measuring.task is None, timeout=60_000)


def test_from_an_image_and_its_labels_to_a_map(viewer, open_widget, qtbot, train):
    viewer.add_image(IMAGE, name="CD3", scale=(0.5, 0.5), units="um")
    viewer.add_labels(LABELS, name="nuclei", scale=(0.5, 0.5), units="um")
    widget = open_widget()
    measure(widget, qtbot)
    table = widget.catalog.table
    assert table.name == "nuclei: measured"
    assert widget.catalog.join.joined.all()
    options = {"spacing": 0.5, "unit": "um", "progress": False}
    expected = ce.tl.measure({"nuclei": LABELS}, {"CD3": IMAGE}, **options)
    np.testing.assert_array_equal(table.adata.X, expected.X)
    assert "No cell has a label" in widget.form.hint.text()
    # Label the cells by hand, as the widget proposes.
    bright = table.adata[:, "CD3_mean"].X.ravel() > 10
    for name, rows in (("bright", bright), ("dim", ~bright)):
        widget.select(np.flatnonzero(rows))
        give_label(widget.cells.label_button, name)
    widget.form.label_key.value = "cell_type_relabeled"
    train(widget)
    assert set(widget.result.classes) == {"bright", "dim"}


def test_several_labels_are_measured_and_joined_at_once(viewer, open_widget, qtbot):
    for name in "AB":
        viewer.add_image(IMAGE, name=f"{name}_CD3")
        viewer.add_labels(LABELS, name=f"{name}_mask")
    widget = open_widget()
    assert ask(widget).text.text().startswith("A_mask: A_CD3 as CD3\nB_mask: B_CD3 as CD3\n")
    widget.data.findChild(MeasureDialog).accept()
    qtbot.waitUntil(lambda: len(widget.catalog.joins) == 2, timeout=60_000)
    assert widget.catalog.table.adata.n_obs == 2 * N
    for link, join in widget.catalog.joins.items():
        assert link.image == link.layer.name
        assert join.n_joined == N


def test_a_mask_of_one_plane_is_measured_as_a_plane(viewer, open_widget, qtbot):
    viewer.add_image(IMAGE, name="CD3")
    labels = viewer.add_labels(LABELS[None, None], name="nuclei", opacity=0.5)
    widget = open_widget()
    measure(widget, qtbot)
    adata = widget.catalog.table.adata
    expected = ce.tl.measure({"nuclei": LABELS}, {"CD3": IMAGE}, progress=False)
    np.testing.assert_array_equal(adata.X, expected.X)
    assert adata.var_names.equals(expected.var_names)
    assert adata.obs_names.equals(expected.obs_names)
    [(link, join)] = widget.catalog.joins.items()
    assert link.layer is labels
    assert join.n_joined == N


def test_the_dialog_shows_why_layers_do_not_fit(viewer, open_widget, qtbot):
    widget = open_widget()
    assert not widget.data.measure_action.isEnabled()
    fits = viewer.add_image(IMAGE, name="CD3")
    viewer.add_image(IMAGE[:9], name="CD4")
    labels = viewer.add_labels(LABELS, name="nuclei")
    qtbot.waitUntil(widget.data.measure_action.isEnabled)
    dialog = ask(widget)
    assert dialog.labels_list.chosen == [labels]
    assert dialog.images_list.chosen == [fits]
    dialog.images_list.item(1).setCheckState(Qt.CheckState.Checked)
    assert dialog.text.kind == "error"
    assert "CD4 has the shape (9, 60) and nuclei the shape (60, 60)" in dialog.text.text()
    assert not dialog.measure_button.isEnabled()
    for row in (0, 1):
        dialog.images_list.item(row).setCheckState(Qt.CheckState.Unchecked)
    assert dialog.measure_button.isEnabled()
    dialog.labels_list.item(0).setCheckState(Qt.CheckState.Unchecked)
    assert not dialog.measure_button.isEnabled()
    dialog.reject()
    assert widget.data.measuring.task is None
    assert widget.catalog.table is None


@pytest.mark.filterwarnings("ignore:.*negative:UserWarning")
def test_errors_and_warnings_about_pixels_are_shown(viewer, open_widget, qtbot):
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

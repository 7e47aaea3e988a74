"""From layers alone to a table that is joined to them, in a real window."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import anndata as ad
import dask.array as da
import numpy as np
import pytest
from qtpy.QtCore import Qt

import centroid_encoder as ce
from centroid_encoder.viewer.panels.measure import MeasureDialog

if TYPE_CHECKING:
    from napari import Viewer
    from pytestqt.qtbot import QtBot

    from centroid_encoder.viewer import CentroidEncoderWidget

Open = Callable[[], "CentroidEncoderWidget"]

N = 144
LABELS = np.kron(np.arange(1, N + 1).reshape(12, 12), np.pad(np.ones((4, 4), int), (0, 1)))
IMAGE = np.random.default_rng(0).normal(20 * (LABELS % 2), 1) * (LABELS > 0)


def ask(widget: CentroidEncoderWidget) -> MeasureDialog:
    widget.data.measure_button.click()
    dialog = widget.data._dialog
    assert dialog is not None
    return dialog


def measure(widget: CentroidEncoderWidget, qtbot: QtBot) -> None:
    dialog = ask(widget)
    qtbot.mouseClick(dialog.measure_button, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: widget.data.measuring.worker is None, timeout=30_000)


def test_from_an_image_and_its_labels_to_a_map(
    viewer: Viewer, open_widget: Open, qtbot: QtBot, tmp_path: Path, save: Callable[..., None]
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
    assert "7 variables; no cell has a label yet." in widget.data.message.text()
    # By hand, as the widget says.
    bright = table.adata[:, "CD3_mean"].X.ravel() > 10
    for name, rows in (("bright", bright), ("dim", ~bright)):
        widget.select(np.flatnonzero(rows))
        widget.misplaced.label_box.setCurrentText(name)
        widget.misplaced.relabel_button.click()
    widget.form.label_key.value = "cell_type_relabeled"
    widget.train()
    qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
    assert widget.result is not None
    assert set(widget.result.classes) == {"bright", "dim"}
    save(widget, tmp_path / "cells.h5ad")
    assert ad.read_h5ad(tmp_path / "cells.h5ad").obsm["X_ce"].shape == (N, 2)


def test_several_labels_are_measured_and_joined_at_once(
    viewer: Viewer, open_widget: Open, qtbot: QtBot
) -> None:
    for name in ("A_CD3", "B_CD3"):
        viewer.add_image(IMAGE, name=name)
    for name in ("A_mask", "B_mask"):
        viewer.add_labels(LABELS, name=name)
    widget = open_widget()

    dialog = ask(widget)
    assert dialog.text.text().startswith("A_mask, B_mask: CD3\n")
    dialog.accept()
    qtbot.waitUntil(lambda: len(widget.catalog.joins) == 2, timeout=30_000)

    assert widget.catalog.table is not None
    assert widget.catalog.table.adata.n_obs == 2 * N
    for link, join in widget.catalog.joins.items():
        assert link.image == link.layer.name
        assert join.n_joined == N


def test_frames_whose_labels_begin_anew_are_shown_in_a_layer_of_their_own(
    viewer: Viewer, open_widget: Open, qtbot: QtBot
) -> None:
    viewer.add_labels(np.stack([LABELS, LABELS[::-1]]), name="nuclei", axis_labels=("t", "y", "x"))
    widget = open_widget()

    measure(widget, qtbot)

    assert not viewer.layers["nuclei"].visible
    assert widget.catalog.layer is viewer.layers["nuclei (frames apart)"]
    assert str(widget.catalog.join).startswith("288 cells; 0 without a label in the image; 0 lab")
    assert "Labels begin anew in each frame" in widget.data.message.text()
    # Only what is visible is measured again.
    assert [layer.name for layer in ask(widget).labels_list.chosen] == ["nuclei (frames apart)"]


def test_the_dialog_says_what_is_in_the_way(
    viewer: Viewer, open_widget: Open, qtbot: QtBot
) -> None:
    widget = open_widget()
    assert not widget.data.measure_button.isEnabled()
    fits = viewer.add_image(IMAGE, name="CD3")
    other = viewer.add_image(IMAGE[:9], name="CD4")
    labels = viewer.add_labels(LABELS, name="nuclei")
    qtbot.waitUntil(widget.data.measure_button.isEnabled)
    dialog = ask(widget)
    assert dialog.labels_list.chosen == [labels]
    assert dialog.images_list.chosen == [fits]
    assert dialog.time_box.isHidden()

    dialog.images_list.choose([fits, other])
    assert dialog.text.kind == "error"
    assert "CD4 has the shape (9, 60) and nuclei (60, 60)" in dialog.text.text()
    assert not dialog.measure_button.isEnabled()
    dialog.images_list.choose([])
    assert "shapes alone" in dialog.text.text()
    assert dialog.measure_button.isEnabled()
    dialog.labels_list.choose([])
    assert not dialog.measure_button.isEnabled()
    dialog.reject()
    assert widget.data.measuring.worker is None
    assert widget.catalog.table is None


def waiting(image: np.ndarray) -> tuple[Any, Event, Event]:
    """An image that is read only once an event allows it."""
    begun, allowed = Event(), Event()

    def read(block: np.ndarray) -> np.ndarray:
        begun.set()
        allowed.wait(60)
        return block

    lazy = da.from_array(image, chunks=(20, 60))
    return lazy.map_blocks(read, dtype=image.dtype, meta=image), begun, allowed


@pytest.mark.parametrize("how", ["cancel", "close"])
def test_measuring_can_be_cancelled(
    how: str, viewer: Viewer, open_widget: Open, qtbot: QtBot
) -> None:
    image, begun, allowed = waiting(IMAGE)
    viewer.add_labels(LABELS, name="nuclei")
    viewer.add_image(image, name="CD3", contrast_limits=(0, 30), visible=False)
    widget = open_widget()
    row = widget.data.measuring
    begun.clear()
    ask(widget).accept()
    qtbot.waitUntil(begun.is_set, timeout=30_000)
    assert row.isVisible()

    if how == "cancel":
        cancel = row.progress.findChild(type(widget.data.measure_button), "cancel")
        assert cancel is not None
        qtbot.mouseClick(cancel, Qt.MouseButton.LeftButton)
    else:
        viewer.window.remove_dock_widget(widget.parent())
    assert row.worker is None
    assert row.isHidden()
    allowed.set()
    qtbot.wait(300)

    assert widget.catalog.tables == []


@pytest.mark.filterwarnings("ignore:.*negative:UserWarning")
def test_what_is_wrong_with_pixels_is_said(viewer: Viewer, open_widget: Open, qtbot: QtBot) -> None:
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

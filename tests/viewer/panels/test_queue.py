"""The queue of suggested cells: answered by keys, as napari dispatches them, and by the strip."""

from typing import Any

import anndata as ad
import numpy as np
import pytest
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QAbstractSpinBox, QComboBox, QLineEdit

from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.panels.strip import N_THUMBNAILS

KEY = Qt.Key
COLUMN = "cell_type_by_hand"


@pytest.fixture
def widget(viewer, table, image_of, label) -> CentroidEncoderWidget:
    """The widget on cells in an image, with a class for each kind."""
    viewer.add_image(image_of(table).astype(np.float32), name="image")
    return label(classes=sorted(table.obs["truth"].unique()))


def given(adata: ad.AnnData) -> dict[int, str]:
    labels = adata.obs[COLUMN].reset_index(drop=True).dropna().astype(str)
    return {int(row): name for row, name in labels.items()}


def current(widget: CentroidEncoderWidget) -> int:
    cell = widget.queue.current
    assert cell is not None, widget.queue.text.text()
    return cell.row


def selected(widget: CentroidEncoderWidget) -> list[int]:
    return [int(row) for row in np.flatnonzero(widget.session.state.selected)]


def label_next(widget: CentroidEncoderWidget, strike: Any, table: ad.AnnData) -> int:
    """Press the key of the true class of the suggested cell; return its row."""
    row = current(widget)
    strike(KEY(KEY.Key_1 + int(table.obs["truth"].iloc[row].removeprefix("type "))))
    return row


@pytest.mark.slow
def test_a_queue_is_answered_by_keys(widget, strike, table, viewer, settled, qtbot):
    queue = widget.queue
    strike(KEY.Key_Return)
    assert not given(table)
    queue.suggest_button.click()
    settled(widget)
    assert selected(widget) == [current(widget)]
    assert queue.text.text().startswith("1 of 20 · typical")
    # The cell is in the middle of the view.
    place = np.argwhere(viewer.layers["cells"].data == table.obs["cell_id"].iloc[current(widget)])
    middle = place.mean(axis=0)
    qtbot.waitUntil(lambda: np.allclose(viewer.scene.camera.center[1:], middle, atol=1))

    first = label_next(widget, strike, table)
    assert selected(widget) == [current(widget)]
    skipped = current(widget)
    strike(KEY.Key_N)
    second = label_next(widget, strike, table)
    assert set(given(table)) == {first, second}
    # Undo goes back to the cell.
    widget.save_row.undo_button.click()
    assert selected(widget) == [second]
    assert set(given(table)) == {first}
    for _ in range(10):
        label_next(widget, strike, table)
    settled(widget)
    assert widget.session.state.draft is not None

    # The live map proposes a class; Enter gives it to no cell but the one that is shown.
    cell, before = queue.current, given(table)
    widget.select(np.array([first]))
    strike(KEY.Key_Return)
    assert given(table) == before
    assert selected(widget) == [cell.row]
    strike(KEY.Key_Return)
    assert given(table) == before | {cell.row: cell.label}
    assert skipped not in given(table)
    # Undo takes the answer back, too.
    widget.save_row.undo_button.click()
    assert given(table) == before
    assert selected(widget) == [cell.row]
    # Four labels for each class are few, which is said before anything is written.
    queue.apply_button.click()
    assert "Fewer than 5 labels" in widget.message.text()
    assert f"{COLUMN}_predicted" not in table.obs
    queue.apply_button.click()
    assert table.obs[f"{COLUMN}_predicted"].notna().all()
    # Without an image there is no strip.
    viewer.layers.remove("image")
    qtbot.waitUntil(lambda: not queue.strip.isVisible())


@pytest.mark.slow
def test_the_strip_shows_the_next_cells(widget, strike, table, settled, qtbot, viewer):
    queue, strip = widget.queue, widget.queue.strip
    queue.suggest_button.click()
    settled(widget)
    for _ in range(21):
        label_next(widget, strike, table)
        qtbot.waitUntil(lambda: queue.current is not None)
    settled(widget)
    qtbot.waitUntil(lambda: all(picture is not None for picture in strip.pictures))
    assert len(strip.pictures) == N_THUMBNAILS
    # The pictures follow the image.
    assert strip.pictures[0].pixels.any()
    viewer.layers["image"].contrast_limits = (1e5, 2e5)
    qtbot.waitUntil(lambda: not strip.pictures[0].pixels.any())
    cells = queue.queue.open(widget.session.state.labeling.codes)
    assert {caption.text for caption in strip.captions} <= set(table.obs["truth"])
    place = strip.visualItemRect(strip.item(6)).center()
    qtbot.mouseClick(strip.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert selected(widget) == [cells[6].row]
    # After it comes the cell that was shown before.
    label_next(widget, strike, table)
    assert selected(widget) == [cells[0].row]
    # No picture stays for another table, nor when the strip gets another width there.
    widget.show_table(table[:40].copy(), name="other")
    strip.resize(strip.width() - 50, strip.height())
    assert strip.count() == 0
    assert not strip.captions


def test_an_answer_for_another_table_is_dropped(widget, table, qtbot):
    widget.queue.suggest_button.click()
    qtbot.waitUntil(lambda: widget.queue.is_searching)
    widget.show_table(table[:40].copy(), name="other")
    widget.label.start_button.click()
    assert not widget.queue.is_searching
    qtbot.wait(500)
    assert widget.queue.current is None
    assert not widget.session.state.selected.any()


@pytest.mark.slow
def test_enter_in_a_field_labels_no_cell(widget, table, viewer, settled, qtbot):
    for name in table.obs["truth"].unique():
        rows = np.flatnonzero(table.obs["truth"] == name)[:4]
        assert widget.session.change_labels(lambda x, name=name, rows=rows: x.assign(rows, name))
    settled(widget)
    widget.queue.suggest_button.click()
    settled(widget)
    assert widget.queue.current.label
    before, window = given(table), viewer.window._qt_window
    kinds = (QLineEdit, QAbstractSpinBox, QComboBox)
    fields = [x for kind in kinds for x in window.findChildren(kind) if x.isVisible()]
    written = [x for x in fields if not isinstance(x, QComboBox) or x.isEditable()]
    assert {"Colour by", "New class", "Least confidence"} <= {x.accessibleName() for x in written}
    for field in written:
        for _ in range(2):
            field.setFocus()
            assert window.focusWidget() in (field, field.focusProxy())
            qtbot.keyClick(field, KEY.Key_Return)
            assert given(table) == before, (field, window.focusWidget())
    # Beside the fields, Enter accepts the suggestion.
    qtbot.keyClick(widget.map.canvas.canvas, KEY.Key_Return)
    assert len(given(table)) == len(before) + 1

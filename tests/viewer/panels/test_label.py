"""The tab Label: keys in the image and the map, the live map, and napari's own keys."""

from typing import Any
from unittest.mock import patch

import anndata as ad
import numpy as np
import pytest
from napari.layers import Layer
from numpy.testing import assert_allclose, assert_array_equal
from qtpy.compat import isalive
from qtpy.QtCore import QEvent, QPoint, Qt
from qtpy.QtGui import QColor, QKeyEvent
from qtpy.QtWidgets import QApplication, QColorDialog, QDockWidget, QInputDialog

from centroid_encoder.viewer import CentroidEncoderWidget
from tests.viewer.seen import seen_colors

KEY, CTRL = Qt.Key, Qt.KeyboardModifier.ControlModifier
SHIFT = Qt.KeyboardModifier.ShiftModifier
COLUMN = "cell_type_by_hand"


def given(adata: ad.AnnData, column: str = COLUMN) -> dict[str, str]:
    return adata.obs[column].dropna().astype(str).to_dict()


def of_kind(adata: ad.AnnData, kind: int, n: int, start: int = 0) -> Any:
    return np.flatnonzero(adata.obs["truth"] == f"type {kind}")[start : start + n]


def label_some(widget: CentroidEncoderWidget, n: int = 3) -> None:
    """Label cells of two kinds, enough for a live map."""
    for kind, name in enumerate("ab"):
        widget.select(of_kind(widget.session.adata, kind, n))
        widget.label.label(name)


def test_the_hint_on_a_column_without_labels_goes_with_the_first_label(label, table):
    widget = label("labels")
    hint = widget.form.hint
    assert "No cell has a label" in hint.text()
    label_some(widget, 1)
    assert not hint.text()
    for _ in range(2):
        widget.save_row.undo_button.click()
    assert "No cell has a label" in hint.text()


def shown_classes(widget: CentroidEncoderWidget) -> list[list[str]]:
    return [[row.name, row.key, str(row.n)] for row in widget.classes.rows]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["labels", "points"])
def test_keys_label_the_selected_cells(kind, label, strike, table, viewer, qtbot):
    widget = label(kind)
    strike(KEY.Key_1)
    assert "Select cells first" in widget.message.text()
    widget.select(np.array([0, 1]))
    strike(KEY.Key_1)
    widget.select(np.array([2]))
    strike(KEY.Key_2)
    assert given(table) == {"cell0": "a", "cell1": "a", "cell2": "b"}
    assert shown_classes(widget) == [["a", "1", "2"], ["b", "2", "1"]]
    strike(KEY.Key_0)
    assert given(table) == {"cell0": "a", "cell1": "a"}
    strike(KEY.Key_Z, CTRL)
    assert given(table)["cell2"] == "b"
    strike(KEY.Key_Z, CTRL)
    strike(KEY.Key_Z, CTRL | SHIFT)
    assert given(table)["cell2"] == "b"
    # The layer shows the labels in one of the next events.
    qtbot.waitUntil(lambda: not widget.cells.tissue.due)
    layer = viewer.layers["cells"]
    if kind == "points":
        shown = layer.face_color
        # Points without a label are faint, and not gone.
        assert 0 < shown[3][3] < 0.5
    else:
        shown = seen_colors(viewer, layer, table.obs["cell_id"][:4])
        # Labels without a label are outlined, and show the stain.
        drawn = viewer.layers["cells · label"].data
        first, fourth = (drawn[layer.data == table.obs["cell_id"].iloc[row]] for row in (0, 3))
        assert first.all()
        assert np.count_nonzero(fourth) == len(fourth) - 4
    assert_allclose(shown[0], shown[1])
    assert not np.allclose(shown[0], shown[2])


@pytest.mark.slow
def test_the_keys_serve_whatever_layer_is_active(label, strike, table, viewer):
    widget = label()
    points = viewer.add_points([[1, 1]])
    shapes = viewer.add_shapes([[[0, 0], [2, 2]]], shape_type="line")
    for i, layer in enumerate((points, shapes, viewer.add_image(np.zeros((9, 9))), None)):
        viewer.layers.selection.active = layer
        before = [(one, str(one.mode)) for one in viewer.layers]
        widget.select(np.array([i]))
        strike(KEY.Key_2)
        assert given(table)[f"cell{i}"] == "b"
        assert all(str(one.mode) == mode for one, mode in before)
    # The lasso in the image is a layer, too.
    widget.map.canvas.buttons["lasso"].click()
    widget.select(np.array([9]))
    strike(KEY.Key_2)
    assert given(table)["cell9"] == "b"


@pytest.mark.slow
def test_keys_are_those_of_napari_while_labels_are_painted(label, strike, viewer, table):
    widget, layer = label(), viewer.layers["cells"]
    widget.select(np.array([3, 4]))
    strike(KEY.Key_1)
    layer.mode = "fill"
    before = layer.data.copy()
    layer.paint((1, 1), int(layer.data.max()) + 1)
    assert (layer.data != before).any()
    strike(KEY.Key_2)
    strike(KEY.Key_Z, CTRL)
    assert_array_equal(layer.data, before)
    assert given(table) == {"cell3": "a", "cell4": "a"}
    layer.mode = "pan_zoom"
    strike(KEY.Key_2)
    assert given(table) == {"cell3": "b", "cell4": "b"}
    strike(KEY.Key_Z, CTRL)
    assert given(table) == {"cell3": "a", "cell4": "a"}


def test_keys_of_napari_that_delete_do_nothing_meanwhile(label, strike, viewer, table, qtbot):
    widget = label("points", classes=())
    layer = viewer.layers["cells"]
    n = len(layer.data)
    widget.select(np.array([3, 4]))
    qtbot.waitUntil(lambda: len(layer.selected_data) == 2)
    for key in (KEY.Key_1, KEY.Key_3, KEY.Key_Delete, KEY.Key_Backspace, KEY.Key_A, KEY.Key_Return):
        strike(key)
    for key in (KEY.Key_C, KEY.Key_V, KEY.Key_Delete):
        strike(key, CTRL)
    assert (len(layer.data), str(layer.mode)) == (n, "pan_zoom")
    assert layer in viewer.layers
    assert not given(table)
    # One can still look beneath a layer.
    strike(KEY.Key_V)
    assert not layer.visible
    strike(KEY.Key_V)
    # Afterwards they are napari's again.
    widget.label.start_button.click()
    layer.selected_data = {3}
    strike(KEY.Key_1)
    assert len(layer.data) == n - 1


def test_a_binding_of_the_user_comes_back(label, strike, viewer, table):
    pressed: list[Layer] = []
    widget = label()
    layer, start = viewer.layers["cells"], widget.label.start_button
    start.click()
    keys = set(layer.keymap), set(viewer.keymap)
    layer.bind_key("1", pressed.append)
    start.click()
    widget.select(np.array([0]))
    strike(KEY.Key_1)
    assert given(table) == {"cell0": "a"}
    viewer.add_points([[0, 0]])
    start.click()
    viewer.layers.selection.active = layer
    strike(KEY.Key_1)
    assert pressed == [layer]
    layer.bind_key("1", None)
    # A dock that is closed while one labels gives all keys back.
    start.click()
    viewer.window.remove_dock_widget(widget)
    assert widget.session.state.labeling is None
    assert (set(layer.keymap), set(viewer.keymap)) == keys


def test_keys_serve_in_the_map_and_in_the_dock_and_not_in_a_line(label, qtbot, table):
    widget = label()
    canvas, line = widget.map.canvas.canvas, widget.label.name_line
    widget.select(np.array([5]))
    for part, key, expected in (
        (canvas, KEY.Key_1, {"cell5": "a"}),
        (widget.classes.view, KEY.Key_2, {"cell5": "b"}),
        (widget.label.start_button, KEY.Key_0, {}),
    ):
        qtbot.keyClick(part, key)
        assert given(table) == expected
    qtbot.keyClick(canvas, KEY.Key_Z, CTRL)
    assert given(table) == {"cell5": "b"}
    qtbot.keyClick(canvas, KEY.Key_Z, CTRL | SHIFT)
    qtbot.keyClick(line, KEY.Key_1)
    assert line.text() == "1"
    # Menus have Alt, and a key that is held down labels once.
    qtbot.keyClick(canvas, KEY.Key_1, Qt.KeyboardModifier.AltModifier)
    none = Qt.KeyboardModifier.NoModifier
    held = QKeyEvent(QEvent.Type.KeyPress, KEY.Key_1.value, none, "1", True)
    QApplication.sendEvent(canvas, held)
    assert not given(table)


@pytest.mark.slow
@pytest.mark.parametrize("is_floating", [False, True])
def test_keys_serve_wherever_the_focus_is(is_floating, label, qtbot, table, viewer):
    widget = label("labels")
    dock, qt = widget.parentWidget(), viewer.window._qt_viewer
    while not isinstance(dock, QDockWidget):
        dock = dock.parentWidget()
    dock.setFloating(is_floating)
    docks = viewer.window._qt_window.findChildren(QDockWidget)
    places = (
        widget.label.start_button,
        widget.data,
        qt.layers,
        qt.controls,
        qt.canvas.native,
        *docks,
    )
    for row, place in enumerate(places):
        widget.select(np.array([row]))
        qtbot.keyClick(place, KEY.Key_1)
        assert str(viewer.layers["cells"].mode) == "pan_zoom", place
        assert list(given(table)) == [f"cell{i}" for i in range(row + 1)], place
    dock.setFloating(False)


def test_enter_in_a_line_is_no_answer_to_the_queue(label, qtbot, table, viewer):
    widget = label()
    accepted: list[bool] = []
    widget.label.keys.acts["accept"] = lambda: accepted.append(True)
    line = widget.label.name_line
    viewer.window._qt_window.activateWindow()
    line.setFocus()
    line.setText("c")
    qtbot.keyClick(line, KEY.Key_Return)
    assert "c" in [one.name for one in widget.session.state.labeling.classes]
    assert not accepted
    widget.classes.view.setFocus()
    qtbot.keyClick(widget.classes.view, KEY.Key_Return)
    assert accepted


def test_a_class_is_renamed_gets_a_key_and_a_colour_and_is_removed(label, table):
    widget = label()
    classes = widget.classes

    def choose(entry: str, text: str = "") -> None:
        """Choose an entry in the menu of the second class, and answer its dialog."""
        actions = {action.text(): action for action in classes.menu(1).actions()}
        with (
            patch.object(QInputDialog, "getText", return_value=(text, True)),
            patch.object(QColorDialog, "getColor", return_value=QColor(text)),
        ):
            actions[entry].trigger()

    widget.select(np.array([0]))
    widget.label.label("b")
    choose("Rename …", "macrophage")
    choose("Key …", "M")
    choose("Colour …", "#123456")
    assert shown_classes(widget) == [["a", "1", "0"], ["macrophage", "M", "1"]]
    assert classes.rows[1].color == "#123456"
    assert given(table) == {"cell0": "macrophage"}
    widget.select(np.array([], dtype=int))
    choose("Select its cells")
    assert np.flatnonzero(widget.session.state.selected).tolist() == [0]
    choose("Remove, with its labels")
    assert shown_classes(widget) == [["a", "1", "0"]]
    assert not given(table)


@pytest.mark.slow
def test_a_live_map_appears_and_keeps_its_places(label, table, settled):
    widget = label()
    session, panel = widget.session, widget.label
    label_some(widget)
    settled(widget)
    first = session.state.drawn
    assert session.state.draft.X is table.X
    assert_array_equal(widget.map.canvas.map.scene.points, first.embedding)
    assert widget.result is None
    assert list(table.obsm) == []
    centers = dict(zip(first.classes, first.centers, strict=True))

    widget.select(of_kind(table, 2, 12))
    panel.label("c")
    widget.select(of_kind(table, 0, 12, start=3))
    panel.label("a")
    # Before the next training, the cells have the colours of their new labels.
    assert widget.map.canvas.map.scene.names == ("a", "b", "c")
    settled(widget)
    second = session.state.drawn
    assert list(second.classes) == ["a", "b", "c"]
    between = np.linalg.norm(centers["a"] - centers["b"])
    for name, center in zip(second.classes[:2], second.centers[:2], strict=True):
        assert np.linalg.norm(center - centers[name]) < 0.6 * between
    held_out = session.state.draft.obs["held_out"].to_numpy()
    assert 0 < held_out.sum() < 10
    assert session.state.draft.obs[COLUMN][held_out].isna().all()
    assert f"of {held_out.sum()} wrong" in widget.map.canvas.title.text()
    # Cells of the live map are selected as those of any map.
    widget.map.canvas.select(np.array([7]), "replace", "lasso")
    assert_array_equal(np.flatnonzero(session.state.selected), [7])
    # The live map stays after Done.
    panel.start_button.click()
    assert_array_equal(widget.map.canvas.map.scene.points, second.embedding)
    assert COLUMN in table.obs
    assert widget.form.label_key.value == COLUMN


@pytest.mark.slow
def test_the_stored_map_comes_back(label, table, settled, train):
    widget = label()
    label_some(widget, 6)
    settled(widget)
    train(widget)
    # The map that was trained is to be seen.
    stored = widget.result
    assert stored.label_key == COLUMN
    assert widget.session.state.drawn is stored
    widget.select(of_kind(table, 2, 3))
    widget.label.label("c")
    settled(widget)
    assert widget.session.state.drawn is not stored
    widget.label.start_button.click()
    assert widget.session.state.drawn is widget.result
    # It stays when its classes are renamed and its cells lose their labels.
    widget.label.start_button.click()
    widget.session.change_labels(lambda labeling: labeling.rename_class("a", "z"))
    widget.select(of_kind(table, 1, 1))
    widget.label.label("")
    widget.label.start_button.click()
    for _ in range(2):
        assert widget.session.state.drawn is widget.result is not None
        assert "renamed or removed" in widget.message.text()
        assert widget.map.canvas.map.scene.names == ("a", "b", "c", "z")
        widget.session.read()
    train(widget)
    assert "renamed" not in widget.message.text()
    assert list(widget.result.classes) == ["z", "b", "c"]


@pytest.mark.slow
def test_a_training_is_dropped_when_labels_change_or_the_table(label, table, settled, qtbot):
    widget = label()
    live = widget.label.live
    label_some(widget)
    qtbot.waitUntil(lambda: live.task is not None)
    running = live.task
    widget.session.undo()
    assert live.task is None
    widget.session.redo()
    qtbot.waitUntil(lambda: live.task is not None)
    assert live.task is not running
    widget.show_table(ad.AnnData(np.ones((5, 2))))
    assert widget.session.state.labeling is None
    assert not live.is_due
    assert len(given(table)) == 6
    # The labels are continued when the table is shown again.
    widget.show_table(table)
    assert widget.label.column_line.text() == COLUMN
    widget.label.start_button.click()
    assert shown_classes(widget) == [["a", "1", "3"], ["b", "2", "3"]]
    settled(widget)
    assert widget.session.state.draft is not None


@pytest.mark.slow
def test_a_window_that_closes_ends_the_training_of_a_live_map(label, viewer, qtbot):
    widget = label()
    session, live = widget.session, widget.label.live
    label_some(widget)
    qtbot.waitUntil(lambda: live.task is not None)
    with patch.object(viewer.window._qt_window, "_save_current_window_settings"):
        viewer.close()
    qtbot.waitUntil(lambda: not isalive(live))
    assert session.state.draft is None


@pytest.mark.slow
def test_missing_values_do_not_end_the_live_map_and_bad_features_say_why(label, table, settled):
    table.X[0, 0] = np.nan
    table.obsm["constant"] = np.ones((table.n_obs, 3))
    widget = label()
    label_some(widget)
    settled(widget)
    assert widget.session.state.draft is not None
    widget.form.features.value = "obsm: constant"
    settled(widget)
    assert widget.session.state.draft is None
    assert "No live map" in widget.label.live_text.text()


def test_labels_are_written_to_csv_and_read_again(label, table, tmp_path):
    widget = label()
    widget.select(np.array([0, 1]))
    widget.label.label("a")
    widget.label.export_csv(tmp_path / "labels.csv")
    widget.session.undo()
    # An import begins to label if nobody does.
    widget.label.end()
    with (tmp_path / "labels.csv").open("a") as file:
        file.write("nobody,b\n")
    widget.label.import_csv(tmp_path / "labels.csv")
    assert given(table) == {"cell0": "a", "cell1": "a"}
    assert "1 of its cells" in widget.message.text()


@pytest.mark.slow
def test_a_column_that_was_deleted_meanwhile_ends_the_labelling(label, strike, table):
    widget = label()
    widget.select(np.array([0]))
    strike(KEY.Key_1)
    del table.obs[COLUMN]
    widget.select(np.array([1]))
    strike(KEY.Key_1)
    assert "was deleted" in widget.message.text()
    assert widget.session.state.labeling is None
    assert COLUMN not in table.obs


def test_a_click_with_shift_adds_a_cell_and_with_control_removes_one(label, table, viewer, qtbot):
    widget = label()
    layer, native = viewer.layers["cells"], viewer.window._qt_viewer.canvas.native
    viewer.reset_view()
    none, left = Qt.KeyboardModifier.NoModifier, Qt.MouseButton.LeftButton
    for row, keys in ((0, none), (1, SHIFT), (2, SHIFT), (1, CTRL)):
        place = np.argwhere(layer.data == table.obs["cell_id"].iloc[row]).mean(axis=0)
        center, zoom = np.array(viewer.scene.camera.center[1:]), viewer.scene.camera.zoom
        y, x = (layer.data_to_world(place) - center) * zoom / native.devicePixelRatioF()
        at = QPoint(round(x), round(y)) + native.rect().center()
        qtbot.mouseClick(native, left, keys, at)
    assert np.flatnonzero(widget.session.state.selected).tolist() == [0, 2]
    # A click beside the cells selects none, so that the next key labels none.
    qtbot.mouseClick(native, left, none, QPoint(1, 1))
    assert not widget.session.state.selected.any()

"""What napari and code of the user do to layers and tables while the widget is open."""

import gc
import weakref

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from napari import Viewer
from napari._app_model import get_app_model
from napari.components import ViewerModel
from napari.layers import Labels
from napari.settings import get_settings
from qtpy.QtCore import QEvent, QTimer
from qtpy.QtGui import QCloseEvent
from qtpy.QtWidgets import QApplication, QFileDialog, QLineEdit, QMessageBox

from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.data.tables import is_drawn
from tests.viewer.seen import entries, is_colored, open_table, outlined, seen_colors


def label_by_hand(widget: CentroidEncoderWidget) -> AnnData:
    """Label cells of two classes, and return their table."""
    widget.session.start_labeling()
    for name, rows in (("A", range(8)), ("B", range(8, 15))):
        assert widget.session.change_labels(lambda x, name=name, rows=rows: x.assign(rows, name))
    return widget.session.adata


def n_by_hand(widget: CentroidEncoderWidget) -> int:
    return int((widget.session.state.labeling.codes >= 0).sum())


def close_dock(viewer: Viewer) -> None:
    viewer.window.remove_dock_widget("all")
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    gc.collect()


def assert_colors_are_right(viewer: Viewer, layer: Labels, adata: AnnData) -> None:
    """Check that each cell in the layer has the colour of its class, and no pixel another one."""
    there = np.isin(adata.obs["cell_id"], layer.data)
    found = seen_colors(viewer, layer, adata.obs["cell_id"][there])
    codes = adata.obs["cell_type"].cat.codes[there]
    assert len(np.unique(found, axis=0)) == 3
    assert len(pd.DataFrame(found).assign(code=codes.to_numpy()).drop_duplicates()) == 3
    (drawn,) = (x for x in viewer.layers if x.name.startswith(f"{layer.name} · "))
    assert np.array_equal(drawn.data > 0, np.isin(layer.data, adata.obs["cell_id"]))


@pytest.mark.slow
def test_a_reopened_dock_finds_the_tables_and_what_was_chosen(
    viewer, open_widget, cells, embed, tmp_path, monkeypatch
):
    embed().write_h5ad(tmp_path / "cells.h5ad")
    widget = open_widget()
    open_table(widget.catalog, tmp_path / "cells.h5ad")
    adata = label_by_hand(widget)
    del widget
    close_dock(viewer)
    widget = open_widget()
    assert entries(widget.data.table_box) == ["cells.h5ad"]
    assert widget.session.adata is adata
    assert widget.result is not None
    widget.session.start_labeling()
    assert n_by_hand(widget) == 15
    # The table that was chosen is chosen again.
    chosen = widget.catalog.add(cells, "a second one")
    widget.catalog.choose(chosen)
    del widget
    close_dock(viewer)
    widget = open_widget()
    assert widget.catalog.table is chosen
    # A table with unsaved labels is closed after a question.
    widget.catalog.choose(next(x for x in widget.catalog.tables if x.adata is adata))
    answers = [QMessageBox.StandardButton.Yes, QMessageBox.StandardButton.No]
    monkeypatch.setattr(QMessageBox, "question", lambda *_: answers.pop())
    for n_tables in (2, 1, 0):
        widget.data.close_action.trigger()
        assert len(widget.catalog.tables) == n_tables
    assert not answers


@pytest.mark.slow
def test_columns_that_others_add_to_features_are_added_to_the_table(
    viewer, open_widget, cells, image_of, train, qtbot
):
    image = image_of(cells)
    ids, kind = cells.obs["cell_id"].to_numpy(), cells.obs["cell_type"].to_numpy()
    table = pd.DataFrame(cells.X, columns=cells.var_names).assign(index=ids, kind=kind)
    layer = viewer.add_labels(image, name="nuclei", features=table)
    widget = open_widget()
    widget.form.label_key.value = "kind"
    train(widget)
    assert list(layer.features) == [*table, "ce_split", "ce_label", "CE1", "CE2"]
    adata = label_by_hand(widget)
    # A plugin adds a column in place, and another one replaces the features.
    layer.features["cluster"] = pd.Categorical(["x", "y"] * 60)
    widget.select(np.array([3]))
    layer.features = layer.features.assign(more=1)
    qtbot.waitUntil(lambda: "more" in adata.obs)
    assert widget.session.adata is adata
    assert adata.obs["cluster"].tolist() == ["x", "y"] * 60
    assert "cluster" in entries(widget.cells.color_box)
    assert np.array_equal(widget.map.canvas.map.scene.points, adata.obsm["X_ce"])
    assert n_by_hand(widget) == 15
    assert entries(widget.data.table_box) == ["nuclei: features"]


def test_the_table_of_earlier_features_stays_when_a_point_is_added(
    viewer, open_widget, cells, qtbot
):
    places = np.random.default_rng(0).uniform(0, 99, (120, 2))
    layer = viewer.add_points(places, features=cells.to_df(), name="dots")
    widget = open_widget()
    adata = label_by_hand(widget)
    before = ["dots: features", "dots: features (before the change)"]
    for n in (121, 122):
        layer.add((50, 50))
        qtbot.waitUntil(lambda n=n: widget.catalog.tables[0].adata.n_obs == n)
        assert entries(widget.data.table_box) == before
        assert widget.session.adata is adata
        assert n_by_hand(widget) == 15


def test_the_table_of_a_removed_layer_stays(
    viewer, open_widget, cells, image_of, make_cells, qtbot
):
    layer = weakref.ref(viewer.add_labels(image_of(cells), metadata={"adata": cells}))
    widget = open_widget()
    assert label_by_hand(widget) is cells
    widget.cells.color_box.setCurrentText("label")
    widget.select(np.array([3]))
    viewer.layers.selection.clear()
    viewer.layers.clear()
    qtbot.waitUntil(lambda: widget.catalog.link is None)
    assert widget.session.adata is cells
    assert n_by_hand(widget) == 15
    qtbot.wait(50)
    gc.collect()
    assert layer() is None
    # The next table that the user opens is shown.
    viewer.add_labels(np.zeros((9, 9), int), metadata={"adata": make_cells()})
    qtbot.waitUntil(lambda: widget.session.adata is not cells)
    assert len(widget.catalog.tables) == 2


def test_saving_asks_before_it_replaces_a_file(open_widget, cells, tmp_path, qtbot):
    widget = open_widget()
    row = widget.save_row
    widget.show_table(cells)
    (tmp_path / "precious.csv").write_text("my other data")

    def ask(name: str) -> QFileDialog:
        row.entries["table"].trigger()
        dialog = row.findChildren(QFileDialog)[-1]
        dialog.setDirectory(str(tmp_path))
        csv = next(kind for kind in dialog.nameFilters() if "csv" in kind)
        dialog.selectNameFilter(csv)
        dialog.filterSelected.emit(csv)
        (field,) = dialog.findChildren(QLineEdit)
        assert field.text() == "cells_ce.csv"
        field.setText(name)
        return dialog

    asked: list[str] = []

    def refuse() -> None:
        boxes = [x for x in QApplication.topLevelWidgets() if isinstance(x, QMessageBox)]
        shown = next((box for box in boxes if box.isVisible()), None)
        if shown is None:
            QTimer.singleShot(100, refuse)
            return
        asked.append(shown.text())
        shown.button(QMessageBox.StandardButton.No).click()

    dialog = ask("precious")
    QTimer.singleShot(100, refuse)
    dialog.accept()
    assert "precious.csv already exists" in asked[0]
    assert (tmp_path / "precious.csv").read_text() == "my other data"
    # Without the focus, the field does not forget the file that it has found.
    dialog.reject()
    ask("mine").accept()
    qtbot.waitUntil(lambda: row.task is None and (tmp_path / "mine.csv").exists())


@pytest.mark.parametrize("command", ["close_dialog", "quit_dialog"])
def test_napari_asks_before_it_closes_with_unsaved_tables(
    viewer, open_widget, cells, monkeypatch, command
):
    widget, window, asked = open_widget(), viewer.window._qt_window, list[str]()

    def refuse(_: object, __: str, text: str) -> QMessageBox.StandardButton:
        asked.append(text)
        return QMessageBox.StandardButton.No

    monkeypatch.setattr(QMessageBox, "question", refuse)
    monkeypatch.setattr(get_settings().application, "confirm_close_window", False)
    monkeypatch.setattr(QApplication, "activeWindow", lambda: window)
    widget.show_table(cells, label_key="cell_type")
    widget.session.wrote()
    get_app_model().commands.execute_command(f"napari.window.file.{command}").result()
    assert asked == ["The labels and maps in notebook are not saved. Close napari anyway?"]
    assert window.isVisible()
    # A program that closes the viewer is not asked; this closes the canvas first.
    with monkeypatch.context() as change:
        change.setattr(viewer.window._qt_viewer, "isHidden", lambda: True)
        assert not widget.eventFilter(window, QCloseEvent())
    assert len(asked) == 1
    window._quit_app = False


@pytest.fixture
def shown(viewer, open_on, embed) -> tuple[CentroidEncoderWidget, Labels, AnnData]:
    """The widget with a map, and its layer in the colours of the classes."""
    widget = open_on(adata := embed())
    widget.cells.color_box.setCurrentText("label")
    return widget, viewer.layers["nuclei"], adata


def drawn(viewer: Viewer) -> list[str]:
    return [layer.name for layer in viewer.layers if is_drawn(layer)]


def test_drawn_layers_follow_the_name_and_the_order_and_can_be_deleted(viewer, shown, qtbot):
    widget, layer, _ = shown
    widget.select(np.array([5]))
    layer.name = "cells"
    qtbot.waitUntil(lambda: drawn(viewer) == ["cells · label", "selected cells"])
    viewer.layers.move(0, len(viewer.layers))
    qtbot.waitUntil(lambda: viewer.layers.index(layer) == 0)
    assert drawn(viewer) == ["cells · label", "selected cells"]
    # Colours that were deleted can be chosen again.
    viewer.layers.remove("cells · label")
    qtbot.wait(50)
    assert not is_colored(viewer, layer)
    box = widget.cells.color_box
    box.activated.emit(box.currentIndex())  # as a click on the entry does
    assert is_colored(viewer, layer)


def test_strokes_are_seen_at_once_and_have_their_colors_afterwards(viewer, shown, qtbot):
    widget, layer, adata = shown
    widget.select(np.array([5]))
    viewer.layers.selection.active = layer
    layer.mode, layer.brush_size = "fill", 3  # the circle of the brush crashes Xvfb later
    assert layer.opacity > 0.5
    new, own = int(layer.data.max()) + 1, int(adata.obs["cell_id"].iloc[5])
    colors = viewer.layers["nuclei · label"]
    assert not colors.visible
    layer.paint((2, 2), new)
    layer.paint((12, 12), own)
    layer.mode = "pan_zoom"
    # The same layers show the new pixels.
    code = colors.data[tuple(np.argwhere(layer.data == own)[-1])]
    qtbot.waitUntil(lambda: colors.data[12, 12] == code > 0)
    qtbot.waitUntil(lambda: outlined(viewer, layer)[11, 11] == 1)
    assert colors.data[2, 2] == 0
    assert colors in viewer.layers
    assert layer.opacity == 0


@pytest.mark.slow
def test_undo_of_napari_and_pixels_changed_in_place_are_noticed(viewer, shown, qtbot):
    widget, layer, adata = shown
    gone = int(layer.data[2, 2])
    layer.brush_size = 6

    def missing(n: int) -> None:
        text = f"{n} without a label in the image"
        qtbot.waitUntil(lambda: text in widget.data.joined_text.text())
        assert_colors_are_right(viewer, layer, adata)

    layer.paint((2, 2), 0)
    missing(1)
    for act, n in ((layer.undo, 0), (layer.redo, 1), (layer.undo, 0)):
        act()
        missing(n)
    layer.data[layer.data == gone] = 0
    layer.refresh()
    missing(1)
    # Without a change, the cells are not joined again.
    changed: list[str] = []
    widget.catalog.changed.connect(changed.append)
    layer.refresh()
    qtbot.wait(500)
    assert "links" not in changed


def test_a_large_stack_is_compared_in_a_thread(open_on, table, viewer, qtbot, monkeypatch):
    widget = open_on(table)
    monkeypatch.setattr("centroid_encoder.viewer.data.ids.MAX_PIXELS_AT_ONCE", 10)
    layer = viewer.layers["nuclei"]
    join = widget.catalog.join
    # napari has redrawn it, but the pixels are the same.
    layer.refresh()
    qtbot.wait(500)
    assert widget.catalog.join is join
    item = int(table.obs["cell_id"].iloc[0])
    layer.data[layer.data == item] = 0
    layer.refresh()
    qtbot.waitUntil(lambda: widget.catalog.join.n_joined == table.n_obs - 1)


@pytest.mark.slow
@pytest.mark.parametrize("act", ["select", "label", "color"])
def test_cells_removed_in_place_are_noticed_before_anything_is_written(viewer, shown, act, qtbot):
    widget, layer, adata = shown
    label_by_hand(widget)
    widget.select(np.array([80]))
    kept = adata.obs["cell_type_by_hand"].iloc[10:].astype(object)
    adata._inplace_subset_obs(np.arange(120) >= 10)
    if act == "select":
        widget.select(np.array([100]))
    elif act == "label":
        widget.session.label_selected("T")
    else:
        widget.cells.color_box.choose(("", "cell_type"))
    assert widget.message.kind == "error"
    assert "it was read again" in widget.message.text()
    assert adata.obs["cell_type_by_hand"].astype(object).equals(kept)
    assert not widget.session.state.selected.any()
    # Afterwards, everything is that of the cells that are left.
    (at,) = np.flatnonzero(adata.obs_names == "cell50")
    widget.select(np.array([at]))
    (drawn,) = (x for x in viewer.layers if x.name == "selected cells")
    assert set(layer.data[outlined(viewer, layer, drawn) > 0]) == {adata.obs["cell_id"].iloc[at]}
    widget.cells.color_box.setCurrentText("label")
    assert_colors_are_right(viewer, layer, adata)
    qtbot.wait(10)


@pytest.mark.slow
def test_two_widgets_on_one_table_show_one_result(open_widget, cells, train, qtbot):
    widget, other = open_widget(), CentroidEncoderWidget(ViewerModel())
    qtbot.addWidget(other)
    other.form.max_epochs.value = 3
    for one in (widget, other):
        one.show_table(cells, label_key="cell_type")
        qtbot.waitUntil(lambda one=one: one.session.state.draft is not None, timeout=30_000)
    # It replaces the first maps.
    for trainer in (widget, other):
        train(trainer)
        for one in (widget, other):
            assert np.array_equal(one.map.canvas.map.scene.points, cells.obsm["X_ce"])
    label_by_hand(widget)
    assert "cell_type_by_hand" in entries(other.cells.color_box)
    other.close()
    other.setParent(None)
    other._detach()
    train(widget)


@pytest.mark.slow
def test_a_table_that_does_not_fit_is_not_painted(viewer, shown, image_of, make_cells, qtbot):
    widget, layer, adata = shown
    # Another tissue has a few of the ids.
    other = np.where(np.isin(layer.data, adata.obs["cell_id"][:50]), layer.data, 0)
    layer.data = other
    qtbot.waitUntil(lambda: not widget.catalog.joins)
    assert "70 of 120 cells have no label in nuclei" in widget.data.message.text()
    assert list(viewer.layers) == [layer]
    assert layer.opacity > 0


def test_a_mask_that_napari_opens_as_an_image_is_joined(
    viewer, open_widget, cells, image_of, qtbot
):
    image = image_of(cells).astype(np.uint16)
    photo = np.random.default_rng(0).integers(1, 400, image.shape).astype(np.uint16)
    viewer.add_image(photo, name="DAPI")
    mask = viewer.add_image(image, name="mask", scale=(2, 2))
    widget = open_widget()
    assert [x.name for x in widget.catalog.layers] == ["mask labels"]
    widget.show_table(cells, label_key="cell_type")
    names = ["DAPI", "mask", "mask labels", "mask labels · label"]
    qtbot.waitUntil(lambda: [x.name for x in viewer.layers] == names)
    labels = viewer.layers["mask labels"]
    assert widget.catalog.layer is labels
    assert not mask.visible
    assert np.array_equal(labels.scale, mask.scale)
    widget.cells.color_box.setCurrentText("label")
    assert_colors_are_right(viewer, labels, cells)
    # They do not come back if the user removes them.
    viewer.layers.remove(labels)
    qtbot.waitUntil(lambda: widget.catalog.link is None)
    assert [x.name for x in viewer.layers] == ["DAPI", "mask"]

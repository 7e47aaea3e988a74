from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from anndata.tests.helpers import assert_equal
from matplotlib.colors import to_hex
from napari import Viewer
from napari.layers import Labels
from napari.utils.notifications import ErrorNotification, Notification, notification_manager
from pytestqt.qtbot import QtBot
from qtpy.QtCore import QEvent, QPoint, QPointF, Qt
from qtpy.QtGui import QGuiApplication, QWheelEvent
from qtpy.QtWidgets import QAbstractSpinBox, QApplication, QComboBox, QPushButton

import centroid_encoder as ce
from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.panels.map import NO_TABLE
from tests.viewer.seen import (
    entries,
    give_label,
    open_table,
    seen_colors,
    texts,
)

Open = Callable[[], CentroidEncoderWidget]
Train = Callable[[CentroidEncoderWidget], None]

MODEL = ce.CentroidEncoder(max_epochs=3)


@pytest.fixture
def add_cells(viewer: Viewer, cells: AnnData, image_of: Callable[..., Any]) -> Callable[[], Labels]:
    """Add the layer of the cells with their table in its metadata."""
    return lambda: viewer.add_labels(image_of(cells), name="nuclei", metadata={"adata": cells})


@pytest.fixture
def widget(add_cells: Callable[[], Labels], open_widget: Open) -> CentroidEncoderWidget:
    """The widget with a table and its layer."""
    add_cells()
    return open_widget()


@pytest.fixture
def trained(
    add_cells: Callable[[], Labels], open_widget: Open, cells: AnnData, embed: Any
) -> CentroidEncoderWidget:
    """The widget with a map, and its layer."""
    done = embed(distance=3.0)
    cells.obs, cells.uns, cells.obsm = done.obs, done.uns, done.obsm
    add_cells()
    return open_widget()


def colors_of(viewer: Viewer, layer: Labels, ids: Any) -> list[str]:
    return [to_hex(color) for color in seen_colors(viewer, layer, ids)]


# -- what there is to see ------------------------------------------------------------------------


def test_an_empty_viewer_says_what_to_do_next(open_widget: Open):
    widget = open_widget()
    assert NO_TABLE in texts(widget)
    # What cannot do anything yet is not shown.
    shown = [x.text() for x in widget.findChildren(QPushButton) if x.isVisible()]
    assert shown == ["Open table …", "Measure cells …", "Sample tissue"]
    assert not any(x.isVisible() for x in (widget.tabs, *widget.findChildren(QComboBox)))
    widget.train()
    assert widget.training is None
    assert widget.message.text() == "Choose a table and the column of its classes first."


# -- training ------------------------------------------------------------------------------------


def test_results_are_those_of_the_function(
    add_cells: Callable[[], Labels], open_widget: Open, train: Train, cells: AnnData
):
    cells.obs["donor"] = pd.Categorical.from_codes(np.arange(120) // 20, list("abcdef"))
    cells.var["some"] = np.arange(8) % 2 == 0
    cells.var["highly_variable"] = np.arange(8) < 5
    cells.layers["other"] = cells.X + 1
    cells.layers["other"][3, 2] = np.nan
    arguments = {"mask_var": "some", "unlabeled_category": "type 2", "missing": "drop"}
    arguments |= {"test_size": 0.4, "group_key": "donor"}
    add_cells()
    widget = open_widget()
    widget.form.features.value = "layers: other"
    for name, value in arguments.items():
        getattr(widget.form, name).value = value
    expected = cells.copy()
    train(widget)
    arguments["layer"] = "other"
    ce.tl.centroid_encoder(expected, "cell_type", model=MODEL, progress=False, **arguments)
    for adata in (cells, expected):
        # NaN is not equal to itself.
        for values in (adata.layers["other"], adata.obsm["X_ce"]):
            np.nan_to_num(values, copy=False)
    assert_equal(cells, expected, exact=True)
    assert widget.result.key == "ce"
    assert widget.message.kind != "error"


def test_live_frames_are_drawn_and_stop_keeps_the_map(
    widget: CentroidEncoderWidget, qtbot: QtBot, cells: AnnData
):
    widget.form.max_epochs.value = 100_000
    scenes: list[Any] = []
    widget.train()
    training = widget.training
    training.framed.connect(lambda _: scenes.append(widget.map.canvas.map.scene))
    qtbot.waitUntil(lambda: len(scenes) > 3, timeout=60_000)
    assert widget.map.canvas.title.text() == "96 cells in training"
    assert (len(scenes[0].rows), len(scenes[0].hollow)) == (120, 24)
    assert any(
        "train, epoch" in text and "loss" in text for text in texts(widget.training_panel.progress)
    )
    assert widget.training_panel.progress.isVisible()
    assert not widget.training_panel.train_button.isEnabled()
    assert "X_ce" not in cells.obsm

    widget.training_panel.progress._stop.click()
    qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
    epochs = len(cells.uns["ce"]["history"])
    assert 0 < epochs < 100_000
    assert not widget.training_panel.progress.isVisible()
    assert np.array_equal(widget.map.canvas.map.scene.points, cells.obsm["X_ce"])


@pytest.fixture
def notified() -> Iterator[list[Notification]]:
    """Notifications of napari."""
    seen: list[Notification] = []
    notification_manager.notification_ready.connect(seen.append)
    yield seen
    notification_manager.notification_ready.disconnect(seen.append)


def test_errors_are_one_readable_line(
    open_widget: Open,
    train: Train,
    make_cells: Callable[..., AnnData],
    notified: list[Notification],
    unchanged: Any,
):
    widget, adata = open_widget(), make_cells()
    widget.show_table(adata, label_key="cell_type")
    # The labels are changed in a notebook, which the widget does not notice.
    adata.obs["cell_type"] = pd.Categorical([None] * 120)
    with unchanged(adata):
        train(widget)
    assert widget.message.text().startswith("Column 'cell_type' has no labels")
    assert widget.message.isVisible()
    assert widget.training_panel.train_button.isEnabled()
    (note,) = notified
    assert note.message == widget.message.text()
    # An `ErrorNotification` would show a traceback.
    assert not isinstance(note, ErrorNotification)


def test_missing_values_show_their_field(
    widget: CentroidEncoderWidget, train: Train, cells: AnnData, unchanged: Any, qtbot: QtBot
):
    cells.X[3:15, 2] = np.nan
    with unchanged(cells):
        train(widget)
    text = widget.message.text()
    assert "12 NaN or infinite values in 12 of 120 cells; the first is" in text
    assert "missing=" not in text
    cures = widget.training_panel.cures
    assert cures.isVisible()
    # They leave with their message.
    widget.session.say("")
    assert cures.isHidden()
    train(widget)
    next(x for x in cures.findChildren(QPushButton) if "mean" in x.text()).click()
    qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
    assert widget.message.kind != "error"
    assert np.isfinite(cells.obsm["X_ce"]).all()
    assert np.isnan(cells.X[3, 2])
    assert cures.isHidden()


# -- results that are there ----------------------------------------------------------------------


def test_a_message_says_that_labels_have_changed(
    add_cells: Callable[[], Labels], open_widget: Open, cells: AnnData, unchanged: Any
):
    ce.tl.centroid_encoder(cells, "cell_type", model=MODEL, progress=False)
    cells.obs["cell_type"] = cells.obs["cell_type"].cat.rename_categories({"type 0": "new"})
    add_cells()
    with unchanged(cells):
        widget = open_widget()
        assert widget.message.text().startswith(
            "Column 'cell_type' has changed since the embedding was made: 'new' was not among"
        )
        assert widget.result is None


def test_two_of_three_dimensions_are_drawn(
    add_cells: Callable[[], Labels], open_widget: Open, train: Train, cells: AnnData
):
    ce.tl.centroid_encoder(cells, "cell_type", model=MODEL, n_components=3, progress=False)
    add_cells()
    widget = open_widget()
    drawn, box = widget.map.canvas.map, widget.map.axes_box
    assert entries(box) == ["components 1, 2", "components 1, 3", "components 2, 3"]
    # Regions are drawn only in two dimensions.
    assert box.isEnabled()
    assert not widget.map.regions_box.isEnabled()
    for i, axes in enumerate([[0, 1], [0, 2], [1, 2]]):
        box.setCurrentIndex(i)
        assert drawn.scene is not None
        np.testing.assert_array_equal(drawn.scene.points, cells.obsm["X_ce"][:, axes])
    widget.select(np.array([3]))
    widget.cells.color_box.choose("novelty")
    widget.cells.color_box.choose("misplaced cells")
    train(widget)
    assert cells.obsm["X_ce"].shape == (120, 2)
    assert drawn.scene is not None
    np.testing.assert_array_equal(drawn.scene.points, cells.obsm["X_ce"])
    assert widget.map.regions_box.isEnabled()
    assert not box.isEnabled()


# -- the map and the layer -----------------------------------------------------------------------


def test_the_map_moves_into_a_dock_of_its_own_and_back(
    trained: CentroidEncoderWidget, viewer: Viewer, qtbot: QtBot
):
    button, picture = trained.map.canvas.buttons["full"], trained.picture
    viewer.window._qt_window.resize(1440, 900)
    before, tissue = picture.width(), viewer.window._qt_viewer
    button.click()
    qtbot.waitUntil(lambda: picture.width() > before)
    assert not trained.isAncestorOf(picture)
    qtbot.waitUntil(lambda: tissue.width() >= 1440 / 3)
    button.click()
    assert trained.isAncestorOf(picture)
    assert picture.isVisible()
    button.click()
    qtbot.waitUntil(lambda: picture.width() > before)
    picture.parentWidget().close()
    assert trained.isAncestorOf(picture)
    # This dock does not keep the width of the other one.
    qtbot.wait(300)
    assert trained.width() < 0.45 * 1440
    button.click()
    viewer.window.remove_dock_widget(trained)
    assert trained.isAncestorOf(picture)


def test_the_wheel_does_not_change_fields_without_focus(trained: CentroidEncoderWidget):
    trained.misplaced.setFocus()
    fields = [*trained.findChildren(QComboBox), *trained.findChildren(QAbstractSpinBox)]
    assert len(fields) > 8

    def shown() -> list[str]:
        return [
            field.currentText() if isinstance(field, QComboBox) else field.text()
            for field in fields
        ]

    before = shown()
    nowhere, none = QPointF(), Qt.KeyboardModifier.NoModifier
    turned = QPoint(0, 0), QPoint(0, -120), Qt.MouseButton.NoButton, none
    for field in fields:
        phase = Qt.ScrollPhase.NoScrollPhase
        QApplication.sendEvent(field, QWheelEvent(nowhere, nowhere, *turned, phase, False))
    assert shown() == before


def counts(widget: CentroidEncoderWidget) -> dict[str, int]:
    return {row.name: row.n for row in widget.classes.rows}


@pytest.mark.parametrize("label_key", ["cell_type", "cell_type_relabeled"])
def test_a_new_class_is_shown_saved_and_opened(
    trained: CentroidEncoderWidget,
    train: Train,
    save: Callable[..., None],
    viewer: Viewer,
    cells: AnnData,
    tmp_path: Path,
    label_key: str,
    qtbot: QtBot,
):
    widget, layer, rows = trained, viewer.layers["nuclei"], np.array([0, 3])

    def relabel(name: str) -> None:
        widget.select(rows)
        give_label(widget.cells.label_button, name)

    widget.cells.color_box.choose("label")
    if label_key != "cell_type":
        relabel("type 2")
        widget.form.label_key.value = label_key
        train(widget)
    assert widget.result.label_key == label_key
    before, labels = counts(widget), cells.obs[label_key].copy()
    relabel("mast cell")
    # The counts, the map and the layer show the class, in its own colour.
    qtbot.wait(1)
    assert cells.obs[label_key].equals(labels)
    assert counts(widget)["mast cell"] == 2
    assert sum(counts(widget).values()) == sum(before.values())
    color = widget.classes.rows[-1].color
    assert len({row.color for row in widget.classes.rows}) == 4
    figure = widget.map.canvas.map
    assert figure.scene.names[-1] == "mast cell"
    assert np.flatnonzero(figure.scene.codes == 3).tolist() == rows.tolist()
    assert figure.colors[3] == color
    assert colors_of(viewer, layer, cells.obs["cell_id"].iloc[rows]) == [color, color]
    widget.save_row.undo_button.click()
    qtbot.wait(1)
    assert counts(widget) == before
    assert color not in colors_of(viewer, layer, cells.obs["cell_id"])
    widget.save_row.redo_button.click()
    save(widget, tmp_path / "cells_ce.h5ad")
    open_table(widget.catalog, tmp_path / "cells_ce.h5ad")
    assert widget.session.adata is not cells
    assert counts(widget)["mast cell"] == 2
    assert widget.classes.rows[-1].color == color
    points = widget.map.canvas.map.scene.points
    assert np.array_equal(points, cells.obsm["X_ce"])


def test_model_and_figures_can_be_saved(
    trained: CentroidEncoderWidget, cells: AnnData, tmp_path: Path, qtbot: QtBot, unchanged: Any
):
    keep = trained.save_row
    keep.save_model(tmp_path / "map.safetensors")
    qtbot.waitUntil(lambda: keep.task is None, timeout=60_000)
    model = ce.load(tmp_path / "map.safetensors")
    # Leave out training cells: in the table, networks that have not seen them placed them.
    others = cells[cells.obs["ce_split"] != "train"]
    assert np.array_equal(model.transform(others.to_df()), others.obsm["X_ce"])
    keep.save_figure(tmp_path / "map.png")
    keep.save_figure(tmp_path / "page.png", ce.pl.reliability)
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("map.png", "page.png"))
    assert list(cells.uns["cell_type_colors"]) == trained.map.canvas.map.colors
    with unchanged(cells):
        keep.save_figure(tmp_path / "map.jpgg")
        assert keep.message.kind == "error"
        assert trained.message.kind != "error"
    keep.copy_action.trigger()
    assert "ce.tl.centroid_encoder(" in QGuiApplication.clipboard().text()


# -- while a training runs -----------------------------------------------------------------------


@pytest.fixture
def begin(qtbot: QtBot) -> Train:
    """Start an endless training, and wait for its first frame and epoch."""

    def run(widget: CentroidEncoderWidget) -> None:
        widget.form.max_epochs.value = 100_000
        frames: list[Any] = []
        reports: list[Any] = []
        widget.train()
        assert widget.training is not None, widget.message.text()
        widget.training.framed.connect(frames.append)
        widget.training.reported.connect(reports.append)
        qtbot.waitUntil(
            lambda: bool(frames) and any(report.epoch for report in reports), timeout=60_000
        )

    return run


@pytest.fixture
def end(qtbot: QtBot) -> Train:
    """Stop the training, and wait for its result."""

    def run(widget: CentroidEncoderWidget) -> None:
        widget.stop()
        qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)

    return run


def test_a_result_is_written_into_the_table_that_was_trained_on(
    widget: CentroidEncoderWidget,
    begin: Train,
    end: Train,
    cells: AnnData,
    make_cells: Callable[..., AnnData],
    unchanged: Any,
):
    other = make_cells(n_obs=90)
    ce.tl.centroid_encoder(other, "cell_type", model=MODEL, progress=False)
    with unchanged(other):
        begin(widget)
        widget.show_table(other, name="other table")
        assert np.array_equal(widget.map.canvas.map.scene.points, other.obsm["X_ce"])
        widget.select(np.array([80]))
        end(widget)
        assert np.array_equal(widget.map.canvas.map.scene.points, other.obsm["X_ce"])
    widget.catalog.choose(next(t for t in widget.catalog.tables if t.adata is cells))
    assert np.array_equal(widget.map.canvas.map.scene.points, cells.obsm["X_ce"])


def test_cells_that_change_during_a_training_get_no_results(
    widget: CentroidEncoderWidget, begin: Train, end: Train, cells: AnnData, unchanged: Any
):
    begin(widget)
    cells._inplace_subset_obs(np.arange(120) % 3 > 0)
    with unchanged(cells):
        end(widget)
    assert "have changed since they were read" in widget.message.text()


def test_qt_deletes_a_closed_widget_as_a_whole(viewer: Viewer, open_widget: Open):
    widget, deleted = open_widget(), []
    widget.destroyed.connect(lambda: deleted.append("widget"))
    widget.picture.destroyed.connect(lambda: deleted.append("map"))
    widget.picture.owner = widget.tabs.owner = widget  # The map is the first to be collected.
    viewer.window.remove_dock_widget("all")
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    del widget
    gc.collect()
    assert deleted == ["widget", "map"]


# -- tables of others ----------------------------------------------------------------------------


def test_a_result_is_written_into_a_table_of_spatialdata(
    viewer: Viewer, open_widget: Open, train: Train, cells: AnnData, image_of: Callable[..., Any]
):
    image = image_of(cells)
    cells.obs["region"] = pd.Categorical(np.where(np.arange(120) < 80, "left", "right"))
    cells.uns["spatialdata_attrs"] = {
        "region": ["left", "right"], "region_key": "region", "instance_key": "cell_id",
    }  # fmt: skip
    sdata = SimpleNamespace(tables={"table": cells}, path=None)
    copy = cells[cells.obs["region"] == "left"].copy()
    viewer.add_labels(
        np.where(np.isin(image, copy.obs["cell_id"]), image, 0),
        name="left image",
        metadata={"sdata": sdata, "name": "left", "adata": copy, "table_names": ["table"]},
    )
    widget = open_widget()
    assert entries(widget.data.table_box) == ["table (left image)"]
    assert "120 cells in 2 images, 1 of them open" in widget.data.fold.toolTip()
    expected = cells.copy()
    train(widget)
    ce.tl.centroid_encoder(expected, "cell_type", model=MODEL, progress=False)
    assert_equal(cells, expected, exact=True)


def test_results_are_added_to_the_features_of_a_layer(
    viewer: Viewer, open_widget: Open, train: Train, cells: AnnData, image_of: Callable[..., Any]
):
    image = image_of(cells)
    features = pd.DataFrame(cells.X, columns=cells.var_names).assign(
        index=cells.obs["cell_id"].to_numpy(), kind=cells.obs["cell_type"].to_numpy(), note="theirs"
    )
    layer = viewer.add_labels(image, name="nuclei", features=features)
    before = layer.features.copy()
    widget = open_widget()
    assert widget.data.table_box.currentText() == "nuclei: features"
    widget.form.label_key.value = "kind"
    train(widget)
    adata = widget.catalog.table.adata
    assert list(layer.features) == [*before, "ce_split", "ce_label", "CE1", "CE2"]
    # The result is still shown after the event for the new columns.
    widget.catalog.refresh()
    assert widget.result is not None
    assert np.array_equal(widget.map.canvas.map.scene.points, adata.obsm["X_ce"])

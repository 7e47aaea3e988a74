from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from anndata.tests.helpers import assert_equal
from matplotlib.colors import to_hex
from napari.layers import Labels
from napari.utils.notifications import (
    ErrorNotification,
    Notification,
    NotificationSeverity,
    notification_manager,
)
from qtpy.QtCore import QPoint, QPointF, Qt
from qtpy.QtGui import QGuiApplication, QWheelEvent
from qtpy.QtWidgets import (
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLabel,
    QTabWidget,
    QWidget,
)

import centroid_encoder as ce
from centroid_encoder.viewer.data.tables import is_drawn
from tests.viewer.seen import is_colored, seen_colors

if TYPE_CHECKING:
    from napari import Viewer
    from pytestqt.qtbot import QtBot

    from centroid_encoder.viewer import CentroidEncoderWidget

    Open = Callable[[], CentroidEncoderWidget]
    Train = Callable[[CentroidEncoderWidget], None]

MODEL = ce.CentroidEncoder(max_epochs=3)


@pytest.fixture
def add_cells(
    viewer: Viewer, cells: AnnData, image_of: Callable[..., Any]
) -> Callable[..., Labels]:
    """Add the layer of the cells, to which their table is attached."""

    def add(name: str = "nuclei", adata: AnnData = cells) -> Labels:
        return viewer.add_labels(image_of(adata), name=name, metadata={"adata": adata})

    return add


@pytest.fixture
def widget(add_cells: Callable[..., Labels], open_widget: Open) -> CentroidEncoderWidget:
    """The widget with a table and its layer."""
    add_cells()
    return open_widget()


@pytest.fixture
def trained(widget: CentroidEncoderWidget, train: Train) -> CentroidEncoderWidget:
    train(widget)
    return widget


def texts(widget: QWidget) -> list[str]:
    """What is to be read in a widget."""
    return [label.text() for label in widget.findChildren(QLabel) if label.isVisible()]


def entries(box: Any) -> list[str]:
    return [box.itemText(i) for i in range(box.count())]


def colors_of(viewer: Viewer, layer: Labels, ids: Any) -> list[str]:
    return [to_hex(color) for color in seen_colors(viewer, layer, ids)]


def pixel(layer: Labels, label: int) -> tuple[float, ...]:
    """World coordinates of the middle of a label."""
    inside = np.argwhere(np.asarray(layer.data) == label)
    return tuple(layer.data_to_world(inside.mean(axis=0)))


# -- what there is to see ------------------------------------------------------------------------


def test_an_empty_viewer_says_what_to_do_next(open_widget: Open):
    widget = open_widget()
    assert any("or attach an AnnData to a layer" in text for text in texts(widget))
    assert any("File ▸ Open Sample ▸ Centroid-Encoder" in text for text in texts(widget))
    assert not widget.trainer.train_button.isEnabled()
    assert not widget.keep.save_button.isEnabled()
    assert not widget.cells.color_box.isEnabled()
    widget.train()
    assert widget.training is None
    assert widget.message.text() == "There is no table to train on."


def test_a_table_without_a_map_says_what_to_do_next(widget: CentroidEncoderWidget):
    assert "120 cells; 0 without a label in the image; 0 labels without a row" in texts(widget)
    assert "No map yet.\n\nChoose the labels and press Train." in texts(widget)
    assert not any("Open a .h5ad" in text for text in texts(widget))
    assert widget.trainer.train_button.isEnabled()
    assert not widget.keep.copy_button.isEnabled()
    assert widget.form.label_key.value == "cell_type"


def test_the_widget_fills_itself_when_layers_come(
    open_widget: Open, add_cells: Callable[..., Labels], qtbot: QtBot, cells: AnnData
):
    widget = open_widget()
    layer = add_cells()
    qtbot.waitUntil(lambda: widget.catalog.table is not None)
    assert widget.catalog.table.adata is cells
    assert widget.catalog.layer is layer
    assert widget.catalog.join.joined.all()


def test_what_the_reader_opens_is_chosen_with_its_points(
    viewer: Viewer, open_widget: Open, train: Train, cells: AnnData, tmp_path: Path
):
    cells.obsm["spatial"] = np.random.default_rng(0).uniform(0, 9, (120, 2))
    cells.obsm["spatial"][5] = np.nan
    cells.write_h5ad(tmp_path / "cells.h5ad")
    widget = open_widget()
    (layer,) = viewer.open(tmp_path / "cells.h5ad", plugin="centroid-encoder")
    widget.catalog.refresh()
    assert widget.catalog.table.adata is layer.metadata["adata"]
    assert widget.catalog.layer is layer
    assert "120 cells; 1 without a point in the layer; 0 points without a row" in texts(widget)
    train(widget)
    widget.cells.color_box.setCurrentText("label")
    colors = dict(zip(layer.metadata["adata"].obs["cell_type"].cat.categories,
                      widget.map.canvas.map._colors, strict=True))  # fmt: skip
    expected = [colors[name] for name in np.delete(cells.obs["cell_type"].to_numpy(), 5)]
    assert [to_hex(color) for color in layer.face_color] == expected


# -- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "arguments"),
    [
        ({}, {}),
        (
            {
                "features": "obsm: X_pca",
                "test_size": 0.4,
                "group_key": "donor",
                "random_state": 7,
                "key_added": "pca",
            },
            {
                "use_rep": "X_pca",
                "test_size": 0.4,
                "group_key": "donor",
                "random_state": 7,
                "key_added": "pca",
            },
        ),
        (
            {
                "mask_var": "some",
                "unlabeled_category": "type 2",
                "missing": "leave these cells out",
            },
            {"mask_var": "some", "unlabeled_category": "type 2", "missing": "drop"},
        ),
        ({"features": "layers: other", "mask_var": "all"}, {"layer": "other", "mask_var": None}),
    ],
    ids=["default", "obsm", "mask", "layer"],
)
def test_results_are_those_of_the_function(
    add_cells: Callable[..., Labels],
    open_widget: Open,
    train: Train,
    cells: AnnData,
    values: dict[str, Any],
    arguments: dict[str, Any],
):
    cells.obs["donor"] = pd.Categorical.from_codes(np.arange(120) // 20, list("abcdef"))
    cells.var["some"] = np.arange(8) % 2 == 0
    cells.var["highly_variable"] = np.arange(8) < 5
    cells.obsm["X_pca"] = np.random.default_rng(0).normal(size=(120, 4)).astype(np.float32)
    cells.layers["other"] = cells.X + 1
    if "missing" in values:
        cells.X[3, 2] = np.nan
    add_cells()
    widget = open_widget()
    for name, value in values.items():
        getattr(widget.form, name).value = value
    expected = cells.copy()
    train(widget)
    ce.tl.centroid_encoder(expected, "cell_type", model=MODEL, progress=False, **arguments)
    for adata in (cells, expected):
        # Not equal to itself.
        for values in (adata.X, *adata.obsm.values()):
            np.nan_to_num(values, copy=False)
    assert_equal(cells, expected, exact=True)
    assert widget.result.key == arguments.get("key_added", "ce")
    assert widget.message.kind != "error"


def test_by_default_it_trains_as_the_function_does(
    viewer: Viewer, train: Train, make_cells: Callable[..., AnnData]
):
    cells = make_cells(n_obs=30)
    expected = cells.copy()
    _, widget = viewer.window.add_plugin_dock_widget("centroid-encoder")
    widget.show_table(cells)
    train(widget)
    ce.tl.centroid_encoder(expected, "cell_type", progress=False)
    # The least bit of this one, an optimiser's and not a network's, was once another.
    errors = [adata.uns["ce"]["quality"]["test"] for adata in (cells, expected)]
    for name in ("calibration_error", "calibration_error_low", "calibration_error_high"):
        first, second = (error.pop(name) for error in errors)
        assert first == pytest.approx(second, rel=1e-9, nan_ok=True)
    assert_equal(cells, expected, exact=True)


def test_warnings_are_shown(widget: CentroidEncoderWidget, train: Train, cells: AnnData):
    cells.X = np.random.default_rng(0).poisson(30, cells.shape).astype(np.float32)
    train(widget)
    assert widget.message.isVisible()
    assert widget.message.text().startswith("X looks like raw counts; log-normalise first")
    assert "X_ce" in cells.obsm


def test_the_map_unfolds_live_and_stop_keeps_it(
    widget: CentroidEncoderWidget, qtbot: QtBot, cells: AnnData
):
    widget.form.max_epochs.value = 100_000
    scenes: list[Any] = []
    widget.train()
    training = widget.training
    training.framed.connect(lambda _: scenes.append(widget.map.canvas.map.scene))
    qtbot.waitUntil(lambda: len(scenes) > 3, timeout=60_000)
    assert [panel.title for panel in scenes[0].panels] == [
        "training cells (n = 96)", "held-out cells (n = 24)",
    ]  # fmt: skip
    assert any("train, epoch" in text and "loss" in text for text in texts(widget.trainer.progress))
    assert widget.trainer.progress.isVisible()
    assert not widget.trainer.train_button.isEnabled()
    assert "X_ce" not in cells.obsm

    widget.trainer.progress._stop.click()
    qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
    epochs = len(cells.uns["ce"]["history"])
    assert 0 < epochs < 100_000
    assert not widget.trainer.progress.isVisible()
    assert np.array_equal(widget.map.canvas.map.scene.points, cells.obsm["X_ce"])
    assert f"stopped by hand after epoch {epochs}" in widget.keep.script()


def test_cancel_leaves_everything_as_it_was(
    widget: CentroidEncoderWidget, qtbot: QtBot, cells: AnnData, viewer: Viewer, unchanged: Any
):
    layer = viewer.layers["nuclei"]
    colormap, features = layer.colormap, layer.features
    with unchanged(cells):
        widget.form.max_epochs.value = 100_000
        widget.train()
        qtbot.waitUntil(lambda: widget.map.canvas.map.scene is not None, timeout=60_000)
        thread = widget.training._worker
        widget.trainer.progress._cancel.click()
        assert widget.training is None
        qtbot.waitUntil(lambda: not thread.is_running, timeout=10_000)
        qtbot.wait(50)
    assert widget.message.text() == "Cancelled; nothing has changed."
    assert "No map yet.\n\nChoose the labels and press Train." in texts(widget)
    assert layer.colormap is colormap
    assert layer.features is features
    assert list(viewer.layers) == [layer]


def test_cancel_keeps_the_map_before(
    trained: CentroidEncoderWidget, qtbot: QtBot, cells: AnnData, unchanged: Any
):
    with unchanged(cells):
        trained.form.max_epochs.value = 100_000
        trained.train()
        qtbot.waitUntil(lambda: trained.map._limits is not None, timeout=60_000)
        trained.cancel()
    assert np.array_equal(trained.map.canvas.map.scene.points, cells.obsm["X_ce"])
    assert trained.keep.copy_button.isEnabled()


@pytest.fixture
def notified() -> Iterator[list[Notification]]:
    """What napari has notified the user of."""
    seen: list[Notification] = []
    notification_manager.notification_ready.connect(seen.append)
    yield seen
    notification_manager.notification_ready.disconnect(seen.append)


def test_errors_are_one_readable_line(
    open_widget: Open,
    make_cells: Callable[..., AnnData],
    notified: list[Notification],
    unchanged: Any,
):
    cases: dict[str, Any] = {
        r"No cell has a label in obs\['cell_type'\]\.": pd.Categorical([None] * 120),
        r"obs\['cell_type'\] has one class only \('T'\); a supervised embedding needs .*": "T",
        r"obs\['cell_type'\] holds fractional numbers \(120 different ones\), not .*": (
            np.linspace(0, 1, 120)
        ),
        r"obs has no column 'cell_type'; did you mean 'cell_types'\?": None,
    }
    widget = open_widget()
    for message, labels in cases.items():
        adata = make_cells()
        widget.show_table(adata, label_key="cell_type")
        # As in a notebook, where the widget does not hear of it.
        if labels is None:
            adata.obs = adata.obs.rename(columns={"cell_type": "cell_types"})
        else:
            adata.obs["cell_type"] = labels
        with unchanged(adata):
            widget.trainer.train_button.click()
        assert widget.training is None
        assert re.fullmatch(message, widget.message.text())
        assert widget.message.isVisible()
        assert notified[-1].message == widget.message.text()
        assert widget.trainer.train_button.isEnabled()
    assert len(notified) == len(cases)
    # That would come with a traceback.
    assert not any(isinstance(note, ErrorNotification) for note in notified)


def test_missing_values_show_their_field(
    widget: CentroidEncoderWidget, train: Train, cells: AnnData, unchanged: Any
):
    cells.X[3, 2] = np.nan
    with unchanged(cells):
        widget.train()
    text = widget.message.text()
    assert "1 NaN or infinite values in 1 of 120 cells; the first is" in text
    assert 'missing="drop"' in text
    assert widget.form.missing.native.isVisible()
    widget.form.missing.value = "take the feature's mean"
    train(widget)
    assert widget.message.kind != "error"
    assert np.isfinite(cells.obsm["X_ce"]).all()
    assert np.isnan(cells.X[3, 2])


def test_an_error_ends_when_its_cause_is_gone(
    add_cells: Callable[..., Labels], open_widget: Open, train: Train, cells: AnnData
):
    cells.obs["donor"] = pd.Categorical(["a", "b", None, "c"] * 30)
    add_cells()
    widget = open_widget()
    widget.form.group_key.value = "donor"
    widget.train()
    assert "30 labeled cells have no value in obs['donor']" in widget.message.text()
    widget.form.group_key.value = "none"
    train(widget)
    assert widget.message.kind != "error"


def test_an_error_in_the_thread_is_shown(
    widget: CentroidEncoderWidget,
    cells: AnnData,
    qtbot: QtBot,
    notified: list[Notification],
    unchanged: Any,
):
    # float32 cannot hold what float64 can.
    cells.X = cells.X.astype(np.float64)
    cells.X[:, 0] *= 1e300
    with unchanged(cells):
        widget.train()
        qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
    assert widget.message.text()
    assert [note.severity for note in notified] == [NotificationSeverity.ERROR]
    assert widget.trainer.train_button.isEnabled()


# -- results that are there ----------------------------------------------------------------------


def test_a_result_that_came_with_the_table_is_shown(
    add_cells: Callable[..., Labels], open_widget: Open, cells: AnnData
):
    ce.tl.centroid_encoder(cells, "cell_type", model=MODEL, progress=False)
    add_cells()
    widget = open_widget()
    assert np.array_equal(widget.map.canvas.map.scene.points, cells.obsm["X_ce"])
    assert widget.map.canvas.isVisible()
    assert widget.keep.copy_button.isEnabled()
    script = widget.keep.script().replace("\n", "").replace(" ", "")
    assert 'adata,"cell_type",model=ce.CentroidEncoder(max_epochs=3),)' in script


def test_several_results_are_told_apart_by_their_names(
    trained: CentroidEncoderWidget, train: Train, cells: AnnData
):
    first = cells.obsm["X_ce"]
    trained.form.key_added.value = "second"
    assert "No map yet.\n\nChoose the labels and press Train." in texts(trained)
    trained.form.random_state.value = 5
    train(trained)
    assert trained.result.key == "second"
    assert np.array_equal(trained.map.canvas.map.scene.points, cells.obsm["second"])
    assert not np.array_equal(cells.obsm["second"], first)
    trained.form.key_added.value = "ce"
    assert cells.obsm["X_ce"] is first
    assert np.array_equal(trained.map.canvas.map.scene.points, first)


def test_labels_that_have_changed_since_are_said(
    add_cells: Callable[..., Labels], open_widget: Open, cells: AnnData, unchanged: Any
):
    ce.tl.centroid_encoder(cells, "cell_type", model=MODEL, progress=False)
    cells.obs["cell_type"] = cells.obs["cell_type"].cat.rename_categories({"type 0": "new"})
    add_cells()
    with unchanged(cells):
        widget = open_widget()
        assert widget.message.text().startswith(
            "obs['cell_type'] has changed since the embedding was made: 'new' was not among"
        )
        assert widget.result is None
        assert "No map yet.\n\nChoose the labels and press Train." in texts(widget)


def test_of_a_result_of_three_dimensions_two_are_drawn(
    add_cells: Callable[..., Labels], open_widget: Open, train: Train, cells: AnnData
):
    ce.tl.centroid_encoder(cells, "cell_type", model=MODEL, n_components=3, progress=False)
    add_cells()
    widget = open_widget()
    drawn, box = widget.map.canvas.map, widget.map.axes_box
    assert entries(box) == ["components 1, 2", "components 1, 3", "components 2, 3"]
    # There are no regions in space.
    assert box.isVisible()
    assert not widget.map.regions_box.isVisible()
    for i, axes in enumerate([[0, 1], [0, 2], [1, 2]]):
        box.setCurrentIndex(i)
        assert drawn.scene is not None
        np.testing.assert_array_equal(drawn.scene.points, cells.obsm["X_ce"][:, axes])
    widget.select(np.array([3]))
    widget.cells.color_box.setCurrentText("novelty")
    widget.cells.color_box.setCurrentText("misplaced cells")
    train(widget)
    assert cells.obsm["X_ce"].shape == (120, 2)
    assert drawn.scene is not None
    np.testing.assert_array_equal(drawn.scene.points, cells.obsm["X_ce"])
    assert widget.map.regions_box.isVisible()
    assert not box.isVisible()


def test_a_result_of_one_dimension_is_drawn(
    add_cells: Callable[..., Labels], open_widget: Open, cells: AnnData
):
    ce.tl.centroid_encoder(cells, "cell_type", model=MODEL, n_components=1, progress=False)
    add_cells()
    scene = open_widget().map.canvas.map.scene
    assert scene is not None
    np.testing.assert_array_equal(scene.points[:, 0], cells.obsm["X_ce"][:, 0])
    assert len(scene.shapes) == 3


# -- the map and the layer -----------------------------------------------------------------------


def test_colors_are_the_same_everywhere(
    trained: CentroidEncoderWidget, viewer: Viewer, cells: AnnData
):
    layer = viewer.layers["nuclei"]
    trained.cells.color_box.setCurrentText("label")
    trained.session.recolor_class(1, "#123456")
    assert list(cells.uns["cell_type_colors"])[1] == "#123456"
    colors = np.array(cells.uns["cell_type_colors"])
    assert [row.color for row in trained.classes.rows] == list(colors)
    assert colors_of(viewer, layer, cells.obs["cell_id"]) == list(
        colors[cells.obs["cell_type"].cat.codes]
    )
    trained.cells.color_box.setCurrentText("as it was")
    assert not is_colored(viewer, layer)


def test_layers_can_be_colored_by(trained: CentroidEncoderWidget, viewer: Viewer, cells: AnnData):
    layer, result = viewer.layers["nuclei"], trained.result
    groups = {
        "label": cells.obs["cell_type"],
        "predicted class": cells.obs["ce_label"],
        "misplaced cells": result.misplaced("voronoi"),
    }
    for mode, group in groups.items():
        trained.cells.color_box.setCurrentText(mode)
        together = pd.crosstab(
            np.array(colors_of(viewer, layer, cells.obs["cell_id"])), np.asarray(group)
        ).to_numpy()
        # One colour for each group, one group for each colour.
        assert (np.count_nonzero(together, axis=0) == 1).all()
        assert (np.count_nonzero(together, axis=1) == 1).all()
    trained.cells.color_box.setCurrentText("novelty")
    assert len(set(colors_of(viewer, layer, cells.obs["cell_id"]))) > 10
    assert trained.cells.color_text.isVisible()
    trained.cells.color_box.setCurrentText("as it was")
    assert not is_colored(viewer, layer)
    assert not trained.cells.color_text.isVisible()


def test_a_selection_in_the_map_marks_the_layer_and_back(
    trained: CentroidEncoderWidget, viewer: Viewer, cells: AnnData
):
    layer = viewer.layers["nuclei"]
    rows = np.array([3, 17, 80])
    trained.select(rows)
    assert "3 cells selected" in texts(trained)
    (drawn,) = [layer for layer in viewer.layers if is_drawn(layer)]
    marked = np.unique(layer.data[np.asarray(drawn.data) > 0])
    assert set(marked) == set(cells.obs["cell_id"].iloc[rows])
    assert viewer.layers.selection.active is layer
    before = viewer.scene.camera.zoom, viewer.scene.camera.center
    trained.cells.show_button.click()
    assert (viewer.scene.camera.zoom, viewer.scene.camera.center) != before
    trained.cells.clear_button.click()
    assert list(viewer.layers) == [layer]
    assert "No cell selected" in texts(trained)

    trained.cells._on_picked(np.array([5]))
    assert "1 cell selected" in texts(trained)
    marked = [panel.selected.get_xydata() for panel in trained.map.canvas.map._panels]
    assert np.array_equal(np.concatenate(marked), cells.obsm["X_ce"][[5]].astype(float))


def test_a_misplaced_cell_is_gone_to(
    make_cells: Callable[..., AnnData], add_cells: Callable[..., Labels], open_widget: Open,
    train: Train, viewer: Viewer,
):  # fmt: skip
    adata = make_cells(distance=0.5)
    layer = add_cells(adata=adata)
    widget = open_widget()
    train(widget)
    tabs = widget.findChild(QTabWidget)
    tabs.setCurrentWidget(widget.misplaced)
    table = ce.tl.misplaced(adata)
    assert len(table) > 5
    assert widget.misplaced.model.rowCount() == len(table)
    for row in (0, 4):
        widget.misplaced.view.selectRow(row)
        name = table.index[row]
        assert adata.obs_names[np.flatnonzero(widget.session.selected)].tolist() == [name]
        middle = pixel(layer, adata.obs["cell_id"][name])
        assert np.allclose(viewer.scene.camera.center[1:], middle, atol=1)
        assert widget.misplaced.label_box.currentText() == table["region"].iloc[row]


def test_a_new_class_that_was_typed_stays_typed(trained: CentroidEncoderWidget, cells: AnnData):
    box = trained.misplaced.label_box
    box.setEditText("plasma cell")
    trained.select(np.array([0, 3]))
    assert box.currentText() == "plasma cell"
    trained.misplaced.relabel_button.click()
    assert cells.obs["cell_type_relabeled"].iloc[[0, 3]].tolist() == ["plasma cell"] * 2
    assert "2 cells are now plasma cell." in " ".join(texts(trained))
    assert box.currentText() == "plasma cell"
    assert box.findText("plasma cell") >= 0


def test_undo_leaves_the_labels_of_a_map(
    trained: CentroidEncoderWidget, train: Train, cells: AnnData
):
    trained.select(np.array([0, 3]))
    trained.misplaced.label_box.setCurrentText("type 2")
    trained.misplaced.relabel_button.click()
    trained.form.label_key.value = "cell_type_relabeled"
    train(trained)
    trained.misplaced.undo_button.click()
    assert cells.obs["cell_type_relabeled"].tolist() == cells.obs["cell_type"].tolist()
    assert trained.result is not None
    assert ce.pl.voronoi(cells, show=False) is not None


def test_another_table_has_nothing_to_do_with_the_map_before(
    trained: CentroidEncoderWidget, make_cells: Callable[..., AnnData]
):
    other = make_cells(n_obs=30)
    other.obs = other.obs.rename(columns={"cell_type": "phenotype"})
    trained.show_table(other, name="other")
    assert trained.result is None
    assert "This is the map of" not in " ".join(texts(trained))


def test_a_training_leaves_the_selection(trained: CentroidEncoderWidget, train: Train):
    trained.select(np.array([2, 5, 7]))
    train(trained)
    assert np.flatnonzero(trained.session.selected).tolist() == [2, 5, 7]


def test_the_wheel_changes_no_field_that_it_passes(trained: CentroidEncoderWidget):
    trained.misplaced.setFocus()
    fields = [*trained.findChildren(QComboBox), *trained.findChildren(QAbstractSpinBox)]
    assert len(fields) > 8

    def shown() -> list[str]:
        return [
            field.currentText() if isinstance(field, QComboBox) else field.text()
            for field in fields
        ]

    before = shown()
    for field in fields:
        point = QPointF(field.rect().center())
        event = QWheelEvent(
            point,
            QPointF(field.mapToGlobal(field.rect().center())),
            QPoint(0, 0),
            QPoint(0, -120),
            Qt.MouseButton.NoButton,
            Qt.KeyboardModifier.NoModifier,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(field, event)
    assert shown() == before


def test_relabeling_is_a_step_in_a_new_column(
    trained: CentroidEncoderWidget, train: Train, cells: AnnData
):
    before = cells.copy()
    trained.select(np.array([0, 3]))
    trained.misplaced.label_box.setCurrentText("type 2")
    trained.misplaced.relabel_button.click()
    labels = cells.obs["cell_type_relabeled"]
    assert labels.iloc[[0, 1, 3]].tolist() == [
        "type 2",
        "type 1",
        "type 2",
    ]
    assert (
        "2 cells are now type 2. Written to obs['cell_type_relabeled']; choose it as labels to "
        "train with it."
    ) in texts(trained)
    relabeled = cells.copy()
    trained.misplaced.undo_button.click()
    assert_equal(cells, before, exact=True)
    assert "cell_type_relabeled" not in trained.form.label_key.choices
    trained.misplaced.redo_button.click()
    assert_equal(cells, relabeled, exact=True)
    trained.form.label_key.value = "cell_type_relabeled"
    train(trained)
    assert cells.uns["ce"]["params"]["label_key"] == "cell_type_relabeled"
    assert "labels corrected by hand" in trained.keep.script()


# -- keeping -------------------------------------------------------------------------------------


def test_everything_can_be_saved(trained: CentroidEncoderWidget, cells: AnnData, tmp_path: Path):
    expected = cells.copy()
    keep = trained.keep
    keep.save_table(tmp_path / "cells.h5ad")
    assert keep.message.text() == "Saved cells.h5ad."
    saved = ad.read_h5ad(tmp_path / "cells.h5ad")
    for name in ("obs", "obsm"):
        assert_equal(getattr(saved, name), getattr(expected, name), exact=True)
    keep.save_model(tmp_path / "map.safetensors")
    model = ce.load(tmp_path / "map.safetensors")
    # Training cells are placed by networks that have not seen them; `transform` asks all.
    others = cells[cells.obs["ce_split"] != "train"]
    assert np.array_equal(model.transform(others.to_df()), others.obsm["X_ce"])
    keep.save_figure(tmp_path / "map.png")
    assert (tmp_path / "map.png").stat().st_size > 10_000
    keep.save_reliability(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 10_000
    # The figure's colours are the map's.
    assert list(cells.uns.pop("cell_type_colors")) == trained.map.canvas.map._colors
    assert_equal(cells, expected, exact=True)


def test_what_cannot_be_saved_is_said_there(
    trained: CentroidEncoderWidget, notified: list[Notification], tmp_path: Path
):
    keep = trained.keep
    # Not to be taken for the knobs of these names.
    for save, name in (
        (keep.save_table, "device/cells.h5ad"),
        (keep.save_model, "missing/map.safetensors"),
        (keep.save_figure, "map.jpgg"),
        (keep.save_reliability, "missing/page.png"),
    ):
        save(tmp_path / name)
        assert keep.message.isVisible()
        expected = "The name must end in" if name == "map.jpgg" else "There is no folder"
        assert keep.message.text().startswith(expected)
        assert trained.message.kind != "error"
        assert notified[-1].message == keep.message.text()
    assert len(notified) == 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_script_makes_the_same_map(
    add_cells: Callable[..., Labels],
    open_widget: Open,
    train: Train,
    cells: AnnData,
    tmp_path: Path,
):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    widget = open_widget()
    widget.data.open_file(tmp_path / "cells.h5ad")
    widget.form.key_added.value = "mine"
    widget.form.test_size.value = 0.3
    train(widget)
    widget.keep.copy_button.click()
    script = QGuiApplication.clipboard().text()
    assert "Copied." in widget.keep.message.text()
    # Nothing opens a window there.
    environment = os.environ | {"OMP_NUM_THREADS": "1", "MPLBACKEND": "agg"}
    subprocess.run([sys.executable, "-c", script], check=True, cwd=tmp_path, env=environment)
    made = ad.read_h5ad(tmp_path / "cells_mine.h5ad")
    adata = widget.catalog.table.adata
    assert np.array_equal(made.obsm["mine"], adata.obsm["mine"])
    assert made.obs["mine_label"].tolist() == adata.obs["mine_label"].tolist()


# -- tables of others ----------------------------------------------------------------------------


def test_a_table_of_spatialdata_gets_the_result_and_its_copies_too(
    viewer: Viewer, open_widget: Open, train: Train, cells: AnnData, image_of: Callable[..., Any]
):
    image = image_of(cells)
    cells.obs["region"] = pd.Categorical(np.where(np.arange(120) < 80, "left", "right"))
    cells.uns["spatialdata_attrs"] = {
        "region": ["left", "right"], "region_key": "region", "instance_key": "cell_id",
    }  # fmt: skip
    sdata = SimpleNamespace(tables={"table": cells}, path=None)
    copy = cells[cells.obs["region"] == "left"].copy()
    left = viewer.add_labels(
        np.where(np.isin(image, copy.obs["cell_id"]), image, 0),
        name="left image",
        metadata={"sdata": sdata, "name": "left", "adata": copy, "table_names": ["table"]},
    )
    widget = open_widget()
    assert entries(widget.data.table_box) == ["table (left image)"]
    assert "1 of 2 images open; 0 of their cells not found; 0 labels without a row" in texts(widget)
    expected = cells.copy()
    train(widget)
    ce.tl.centroid_encoder(expected, "cell_type", model=MODEL, progress=False)
    assert_equal(cells, expected, exact=True)
    shown = left.metadata["adata"]
    assert np.array_equal(shown.obsm["X_ce"], cells[shown.obs_names].obsm["X_ce"])
    # What is not in this image is not taken for something in it.
    widget.select(np.array([0, 100]))
    (drawn,) = [layer for layer in viewer.layers if is_drawn(layer)]
    assert set(left.data[np.asarray(drawn.data) > 0]) == {cells.obs["cell_id"].iloc[0]}


def test_results_are_merged_into_features(
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
    pd.testing.assert_frame_equal(layer.features[list(before)], before)
    assert list(layer.features)[len(before.columns) :] == ["ce_split", "ce_label", "CE1", "CE2"]
    assert np.array_equal(layer.features[["CE1", "CE2"]], adata.obsm["X_ce"])
    assert layer.features["ce_label"].tolist() == adata.obs["ce_label"].tolist()
    # The result is still on the screen once napari has told of the new columns.
    widget.catalog.refresh()
    assert widget.result is not None
    assert np.array_equal(widget.map.canvas.map.scene.points, adata.obsm["X_ce"])


def test_an_error_goes_when_its_setting_changes(
    open_widget: Open, make_cells: Callable[..., AnnData]
):
    adata = make_cells()
    adata.X[3, 2] = np.nan
    widget = open_widget()
    widget.show_table(adata, label_key="cell_type")
    widget.trainer.train_button.click()
    assert "1 NaN or infinite values" in widget.message.text()
    widget.form.missing.value = "leave these cells out"
    assert not widget.message.text()


def test_a_widget_that_is_closed_leaves_its_tables_for_the_next(
    viewer: Viewer, open_widget: Open, train: Train, cells: AnnData, tmp_path: Path
):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    first = open_widget()
    first.data.open_file(tmp_path / "cells.h5ad")
    train(first)
    (dock,) = viewer.window._wrapped_dock_widgets.values()
    viewer.window.remove_dock_widget(dock)
    second = open_widget()
    assert second is not first
    assert second.catalog.table.name == "cells.h5ad"
    assert second.result is not None
    assert second.map.canvas.map.scene is not None

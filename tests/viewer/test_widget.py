import gc
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata.tests.helpers import assert_equal
from matplotlib.colors import to_hex
from napari import Viewer
from napari.layers import Labels
from napari.utils.notifications import notification_manager
from qtpy.QtCore import QEvent, QPoint, QPointF, QRect, Qt
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
def add_cells(viewer, cells, image_of) -> Callable[[], Labels]:
    """Add the layer of the cells with their table in its metadata."""
    return lambda: viewer.add_labels(image_of(cells), name="nuclei", metadata={"adata": cells})


@pytest.fixture
def widget(add_cells, open_widget) -> CentroidEncoderWidget:
    """The widget with a table and its layer."""
    add_cells()
    return open_widget()


@pytest.fixture
def trained(add_cells, open_widget, cells, embed) -> CentroidEncoderWidget:
    """The widget with a map, and its layer."""
    done = embed(distance=3.0)
    cells.obs, cells.uns, cells.obsm = done.obs, done.uns, done.obsm
    add_cells()
    return open_widget()


def colors_of(viewer: Viewer, layer: Labels, ids: Any) -> list[str]:
    return [to_hex(color) for color in seen_colors(viewer, layer, ids)]


def test_an_empty_viewer_shows_only_what_can_be_done(open_widget):
    widget = open_widget()
    assert NO_TABLE in texts(widget)
    shown = [x.text() for x in widget.findChildren(QPushButton) if x.isVisible()]
    assert shown == ["Open table …", "Measure cells …", "Sample tissue"]
    assert not any(x.isVisible() for x in (widget.tabs, *widget.findChildren(QComboBox)))
    widget.train()
    assert widget.training is None


@pytest.mark.slow
def test_results_are_those_of_the_function(add_cells, open_widget, train, cells):
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
        quality = adata.uns["ce"]["quality"]
        for name, values in quality.items():
            filled = {x: np.nan_to_num(value) for x, value in values.items()}
            quality[name] = values.fillna(0) if name == "per_class" else filled
    assert_equal(cells, expected, exact=True)
    assert widget.result.key == "ce"
    assert widget.message.kind != "error"


def test_live_frames_are_drawn_and_stop_keeps_the_map(widget, qtbot, cells):
    widget.form.max_epochs.value = 100_000
    scenes: list[Any] = []
    widget.train()
    progress = widget.training_panel.progress
    drawn = widget.map.canvas.map
    widget.training.news.connect(lambda kind, _: kind == "framed" and scenes.append(drawn.scene))
    qtbot.waitUntil(lambda: len(scenes) > 3, timeout=60_000)
    assert (len(scenes[0].rows), len(scenes[0].hollow)) == (120, 24)
    assert any("train, epoch" in text and "loss" in text for text in texts(progress))
    assert not widget.training_panel.train_button.isEnabled()
    assert "X_ce" not in cells.obsm

    progress._stop.click()
    qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
    assert 0 < len(cells.uns["ce"]["history"]) < 100_000
    assert not progress.isVisible()
    assert np.array_equal(widget.map.canvas.map.scene.points, cells.obsm["X_ce"])


def test_errors_are_one_readable_line(open_widget, train, make_cells, unchanged):
    widget, adata = open_widget(), make_cells()
    widget.show_table(adata, label_key="cell_type")
    # The labels are changed in a notebook, which the widget does not notice.
    adata.obs["cell_type"] = pd.Categorical([None] * 120)
    notification_manager.records.clear()
    with unchanged(adata):
        train(widget)
    assert widget.message.text().startswith("Column 'cell_type' has no labels")
    assert widget.training_panel.train_button.isEnabled()
    # napari does not show it a second time.
    assert not notification_manager.records


@pytest.mark.slow
def test_missing_values_show_their_field(widget, train, cells, unchanged, qtbot):
    cells.X[:2, 2] = np.nan
    train(widget)
    # A few cells are left out of the map, and keep their labels.
    assert "2 of 120 cells are left out" in widget.message.text()
    assert np.isnan(cells.obsm["X_ce"]).any(axis=1).sum() == 2
    assert [row.n for row in widget.classes.rows] == [40, 40, 40]
    cells.X[2:12, 2] = np.nan
    with unchanged(cells):
        train(widget)
    assert "12 NaN or infinite values in 12 of 120 cells" in widget.message.text()
    cures = widget.training_panel.cures
    assert cures.isVisible()
    next(x for x in cures.findChildren(QPushButton) if "mean" in x.text()).click()
    qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
    assert widget.message.kind != "error"
    assert np.isfinite(cells.obsm["X_ce"]).all()
    assert np.isnan(cells.X[3, 2])
    assert cures.isHidden()


def test_a_message_says_that_labels_have_changed(add_cells, open_widget, cells, embed, unchanged):
    done = embed(distance=3.0)
    cells.obs, cells.uns, cells.obsm = done.obs, done.uns, done.obsm
    cells.obs["cell_type"] = cells.obs["cell_type"].cat.rename_categories({"type 0": "new"})
    add_cells()
    with unchanged(cells):
        widget = open_widget()
        assert "has changed since the embedding was made: 'new'" in widget.message.text()
        assert widget.result is None


@pytest.mark.slow
def test_two_of_three_dimensions_are_drawn(open_widget, train, embed):
    cells, widget = embed(n_components=3), open_widget()
    widget.show_table(cells, label_key="cell_type")
    drawn, box = widget.map.canvas.map, widget.map.axes_box
    assert entries(box) == ["components 1, 2", "components 1, 3", "components 2, 3"]
    # Regions are drawn only in two dimensions.
    assert (box.isEnabled(), widget.map.regions_box.isEnabled()) == (True, False)
    for i, axes in enumerate([[0, 1], [0, 2], [1, 2]]):
        box.setCurrentIndex(i)
        np.testing.assert_array_equal(drawn.scene.points, cells.obsm["X_ce"][:, axes])
    train(widget)
    assert cells.obsm["X_ce"].shape == (120, 2)
    np.testing.assert_array_equal(drawn.scene.points, cells.obsm["X_ce"])
    assert (box.isEnabled(), widget.map.regions_box.isEnabled()) == (False, True)


@pytest.mark.slow
@pytest.mark.parametrize("size", [(1280, 780), (1500, 950), (2400, 1000)])
def test_the_map_is_larger_in_a_dock_of_its_own_and_comes_back(trained, viewer, qtbot, size):
    button, picture, canvas = (
        trained.map.canvas.buttons["full"],
        trained.picture,
        trained.map.canvas,
    )
    window, tissue = viewer.window._qt_window, viewer.window._qt_viewer
    window.resize(*size)
    qtbot.waitUntil(lambda: window.width() == size[0])
    window.resizeDocks([trained.parentWidget()], [round(0.4 * size[0])], Qt.Orientation.Horizontal)
    qtbot.wait(50)

    def side() -> int:
        return min(canvas.width(), canvas.height())

    before, width = side(), trained.width()
    for close in (button.click, lambda: picture.parentWidget().close()):
        button.click()
        qtbot.waitUntil(lambda: side() > before)
        assert not trained.isAncestorOf(picture)
        assert tissue.width() >= size[0] / 4
        full, dock = picture.parentWidget(), trained.parentWidget()
        place = QRect(dock.mapToGlobal(QPoint(0, 0)), dock.size())
        assert not (full.isFloating() and full.frameGeometry().intersects(place))
        close()
        assert trained.isAncestorOf(picture)
        qtbot.waitUntil(lambda: side() == before)
        qtbot.waitUntil(lambda: trained.width() == width)
    button.click()
    viewer.window.remove_dock_widget(trained)
    assert trained.isAncestorOf(picture)


def test_the_wheel_does_not_change_fields_without_focus(trained):
    trained.misplaced.setFocus()
    boxes, numbers = trained.findChildren(QComboBox), trained.findChildren(QAbstractSpinBox)
    assert len(boxes) + len(numbers) > 8

    def shown() -> list[str]:
        return [*(box.currentText() for box in boxes), *(number.text() for number in numbers)]

    before = shown()
    nowhere, none = QPointF(), Qt.KeyboardModifier.NoModifier
    turned = QPoint(0, 0), QPoint(0, -120), Qt.MouseButton.NoButton, none
    for field in (*boxes, *numbers):
        phase = Qt.ScrollPhase.NoScrollPhase
        QApplication.sendEvent(field, QWheelEvent(nowhere, nowhere, *turned, phase, False))
    assert shown() == before


def counts(widget: CentroidEncoderWidget) -> dict[str, int]:
    return {row.name: row.n for row in widget.classes.rows}


@pytest.mark.slow
@pytest.mark.parametrize("label_key", ["cell_type", "cell_type_relabeled"])
def test_a_new_class_is_shown_saved_and_opened(
    trained, train, save, viewer, cells, tmp_path, label_key, qtbot
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
    assert np.flatnonzero(figure.scene.codes == 3).tolist() == rows.tolist()
    assert (figure.scene.names[3], figure.colors[3]) == ("mast cell", color)
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
    assert np.array_equal(figure.scene.points, cells.obsm["X_ce"])


@pytest.mark.slow
def test_model_and_figures_can_be_saved(trained, cells, tmp_path, qtbot, unchanged):
    keep = trained.save_row

    def finish() -> None:
        qtbot.waitUntil(lambda: keep.task is None, timeout=60_000)

    keep.save_model(tmp_path / "map.safetensors")
    finish()
    model = ce.load(tmp_path / "map.safetensors")
    # Leave out training cells: in the table, networks that have not seen them placed them.
    others = cells[cells.obs["ce_split"] != "train"]
    assert np.array_equal(model.transform(others.to_df()), others.obsm["X_ce"])
    for name, plot in (("map.png", ce.pl.voronoi), ("page.png", ce.pl.reliability)):
        keep.save_figure(tmp_path / name, plot)
        # A thread writes the figure.
        assert keep.message.text() == "Saving …"
        assert not (tmp_path / name).exists()
        finish()
        assert keep.message.text() == f"Saved {name}."
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("map.png", "page.png"))
    assert list(cells.uns["cell_type_colors"]) == trained.map.canvas.map.colors
    with unchanged(cells):
        keep.save_figure(tmp_path / "map.jpgg")
        finish()
        assert keep.message.kind == "error"
        assert trained.message.kind != "error"
    keep.copy_action.trigger()
    assert "ce.tl.centroid_encoder(" in QGuiApplication.clipboard().text()


def test_the_picture_of_image_and_map_explains_the_colors_that_are_shown(trained, cells):
    cells.obs["donor"] = pd.Categorical(["first", "second"] * 60)
    trained.session.wrote()
    for way, expected in {
        "label": ["type 0", "type 1", "type 2"],
        ("", "donor"): ["first", "second"],
        "misplaced cells": ["in another class's region", "other"],
    }.items():
        trained.cells.color_box.choose(way)
        (legend,) = trained.save_row.picture().legends
        assert [text.get_text() for text in legend.get_texts()] == expected
    trained.cells.color_box.choose(("", "gene0"))
    figure = trained.save_row.picture()
    assert [ax.get_ylabel() for ax in figure.axes][-1] == "gene0"


@pytest.fixture
def begin(qtbot) -> Train:
    """Start an endless training, and wait for its first epoch."""

    def run(widget: CentroidEncoderWidget) -> None:
        widget.form.max_epochs.value = 100_000
        news: list[Any] = []
        widget.train()
        assert widget.training is not None, widget.message.text()
        widget.training.news.connect(lambda kind, new: kind == "reported" and news.append(new))
        qtbot.waitUntil(lambda: any(report.epoch for report in news), timeout=60_000)

    return run


@pytest.fixture
def end(qtbot) -> Train:
    """Stop the training, and wait for its result."""

    def run(widget: CentroidEncoderWidget) -> None:
        widget.stop()
        qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)

    return run


@pytest.mark.slow
def test_a_result_is_written_into_the_table_that_was_trained_on(
    widget, begin, end, cells, embed, unchanged
):
    other = embed()
    with unchanged(other):
        begin(widget)
        widget.show_table(other, name="other table")
        widget.select(np.array([80]))
        end(widget)
        assert np.array_equal(widget.map.canvas.map.scene.points, other.obsm["X_ce"])
    widget.catalog.choose(next(t for t in widget.catalog.tables if t.adata is cells))
    assert np.array_equal(widget.map.canvas.map.scene.points, cells.obsm["X_ce"])


@pytest.mark.slow
def test_cells_that_change_during_a_training_get_no_results(widget, begin, end, cells, unchanged):
    begin(widget)
    cells._inplace_subset_obs(np.arange(120) % 3 > 0)
    with unchanged(cells):
        end(widget)
    assert "have changed since they were read" in widget.message.text()


def test_qt_deletes_a_closed_widget_as_a_whole(viewer, open_widget):
    widget, deleted = open_widget(), []
    widget.destroyed.connect(lambda: deleted.append("widget"))
    widget.picture.destroyed.connect(lambda: deleted.append("map"))
    widget.picture.owner = widget.tabs.owner = widget  # The map is the first to be collected.
    viewer.window.remove_dock_widget("all")
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    del widget
    gc.collect()
    assert deleted == ["widget", "map"]


@pytest.mark.slow
def test_a_result_is_written_into_a_table_of_spatialdata(
    viewer, open_widget, train, cells, image_of
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

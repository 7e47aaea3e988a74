from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from anndata.tests.helpers import assert_equal
from matplotlib.colors import to_hex, to_rgba
from napari.layers import Labels
from napari.utils.notifications import ErrorNotification, notification_manager
from qtpy.QtCore import Qt
from qtpy.QtGui import QGuiApplication
from qtpy.QtWidgets import QLabel, QWidget

import centroid_encoder as ce
from centroid_encoder.viewer._link import is_drawn

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


def colors_of(layer: Labels, ids: Any) -> list[str]:
    return [to_hex(layer.colormap.map(int(label))) for label in np.ravel(ids)]


def pixel(layer: Labels, label: int) -> tuple[float, ...]:
    """World coordinates of the middle of a label."""
    inside = np.argwhere(np.asarray(layer.data) == label)
    return tuple(layer.data_to_world(inside.mean(axis=0)))


# -- what there is to see ------------------------------------------------------------------------


def test_an_empty_viewer_says_what_to_do_next(open_widget: Open):
    widget = open_widget()
    assert any("Open a .h5ad, or attach an AnnData to a layer" in text for text in texts(widget))
    assert any("File ▸ Open Sample ▸ Centroid-Encoder" in text for text in texts(widget))
    assert not widget.train_button.isEnabled()
    assert not widget.keep.save_button.isEnabled()
    assert not widget.color_box.isEnabled()
    widget.train()
    assert widget.training is None
    assert widget.message.text() == "There is no table to train on."


def test_a_table_without_a_map_says_what_to_do_next(widget: CentroidEncoderWidget):
    assert "120 cells; 0 without a label in the image; 0 labels without a row" in texts(widget)
    assert "No map yet.\n\nChoose the labels and press Train." in texts(widget)
    assert not any("Open a .h5ad" in text for text in texts(widget))
    assert widget.train_button.isEnabled()
    assert not widget.keep.copy_button.isEnabled()
    assert widget.form.label_key.value == "cell_type"


def test_the_widget_fills_itself_when_layers_come(
    open_widget: Open, add_cells: Callable[..., Labels], qtbot: QtBot, cells: AnnData
):
    widget = open_widget()
    layer = add_cells()
    qtbot.waitUntil(lambda: widget.data.table is not None)
    assert widget.data.table.adata is cells
    assert widget.data.layer is layer
    assert widget.data.join.joined.all()


def test_tables_are_offered_in_order(
    viewer: Viewer, open_widget: Open, make_cells: Callable[..., AnnData], tmp_path: Path
):
    opened, given, attached, stored = (make_cells() for _ in range(4))
    opened.write_h5ad(tmp_path / "cells.h5ad")
    stored.uns["spatialdata_attrs"] = {"region": "element"}
    sdata = SimpleNamespace(tables={"table": stored}, path=None)
    blank = np.zeros((4, 4), dtype=int)
    widget = open_widget()
    widget.show_table(given, name="given")
    features = pd.DataFrame({"area": np.arange(5.0)})
    viewer.add_labels(blank, name="measured", features=features)
    widget.data.open_file(tmp_path / "cells.h5ad")
    viewer.add_labels(blank, name="attached", metadata={"adata": attached})
    viewer.add_labels(blank, name="layer", metadata={"sdata": sdata, "name": "element"})
    widget.data.refresh()
    assert entries(widget.data.table_box) == [
        "table (layer)", "attached: AnnData", "cells.h5ad", "measured: features", "given",
    ]  # fmt: skip
    # What the user has opened stays chosen.
    assert widget.data.table_box.currentText() == "cells.h5ad"


def test_what_the_reader_opens_is_chosen_with_its_points(
    viewer: Viewer, open_widget: Open, train: Train, cells: AnnData, tmp_path: Path
):
    cells.obsm["spatial"] = np.random.default_rng(0).uniform(0, 9, (120, 2))
    cells.obsm["spatial"][5] = np.nan
    cells.write_h5ad(tmp_path / "cells.h5ad")
    widget = open_widget()
    (layer,) = viewer.open(tmp_path / "cells.h5ad", plugin="centroid-encoder")
    widget.data.refresh()
    assert widget.data.table.adata is layer.metadata["adata"]
    assert widget.data.layer is layer
    assert "120 cells; 1 without a point in the layer; 0 points without a row" in texts(widget)
    train(widget)
    widget.color_box.setCurrentText("label")
    colors = dict(zip(layer.metadata["adata"].obs["cell_type"].cat.categories,
                      widget.map.canvas.map._colors, strict=True))  # fmt: skip
    expected = [colors[name] for name in np.delete(cells.obs["cell_type"].to_numpy(), 5)]
    assert [to_hex(color) for color in layer.face_color] == expected


def test_a_file_that_is_no_table_is_said_where_it_was_opened(open_widget: Open, tmp_path: Path):
    widget = open_widget()
    (tmp_path / "cells.h5ad").write_text("no table")
    assert widget.data.open_file(tmp_path / "cells.h5ad") is None
    assert widget.data.message.isVisible()
    assert widget.data.message.text().startswith("cells.h5ad cannot be read: ")


# -- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "arguments"),
    [
        ({}, {}),
        ({"test_size": 0.4, "random_state": 7}, {"test_size": 0.4, "random_state": 7}),
        ({"group_key": "donor"}, {"group_key": "donor"}),
        ({"features": "obsm: X_pca", "key_added": "pca"}, {"use_rep": "X_pca", "key_added": "pca"}),
        ({"mask_var": "some", "unlabeled_category": "type 2", "missing": "leave these cells out"},
         {"mask_var": "some", "unlabeled_category": "type 2", "missing": "drop"}),
        ({"features": "layers: other", "mask_var": "all"}, {"layer": "other", "mask_var": None}),
    ],
)  # fmt: skip
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
    assert_equal(cells, expected, exact=True)
    assert widget.result.key == arguments.get("key_added", "ce")
    assert widget.message.text() == ""


def test_by_default_it_trains_as_the_function_does(
    add_cells: Callable[..., Labels], viewer: Viewer, train: Train, cells: AnnData
):
    add_cells()
    _, widget = viewer.window.add_plugin_dock_widget("centroid-encoder")
    expected = cells.copy()
    train(widget)
    ce.tl.centroid_encoder(expected, "cell_type", progress=False)
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
    frames: list[Any] = []
    widget.train()
    training = widget.training
    training.reported.connect(lambda report: frames.append((report, widget.map.canvas.map.scene)))
    qtbot.waitUntil(
        lambda: sum(report.embedding is not None for report, _ in frames) > 3, timeout=60_000
    )
    scenes = [scene for report, scene in frames if report.embedding is not None]
    assert [panel.title for panel in scenes[0].panels] == [
        "training cells (n = 96)", "held-out cells (n = 24)",
    ]  # fmt: skip
    assert any("train, epoch" in text and "loss" in text for text in texts(widget.progress))
    assert widget.progress.isVisible()
    assert not widget.train_button.isEnabled()
    assert "X_ce" not in cells.obsm

    widget.progress._stop.click()
    qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
    epochs = len(cells.uns["ce"]["history"])
    assert 0 < epochs < 100_000
    assert not widget.progress.isVisible()
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
        widget.progress._cancel.click()
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


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        pytest.param(
            lambda adata: adata.X.__setitem__((3, 2), np.nan),
            r"X has 1 NaN and 0 infinite values in 1 of 120 cells; the first is 'gene2' of cell "
            r"'cell3'\..* \(Advanced ▸ Missing values\)",
            id="NaN",
        ),
        pytest.param(
            lambda adata: adata.obs.__setitem__("cell_type", "T"),
            r"Obs\['cell_type'\] has one class only \('T'\); a supervised embedding needs two .*",
            id="one class",
        ),
        pytest.param(
            lambda adata: adata.obs.__setitem__("cell_type", np.nan),
            r"No cell has a label in obs\['cell_type'\]\.",
            id="no label",
        ),
        pytest.param(
            lambda adata: adata.obs.rename(columns={"cell_type": "cell_types"}, inplace=True),
            r"Obs has no column 'cell_type'; did you mean 'cell_types'\?",
            id="no column",
        ),
        pytest.param(
            lambda adata: adata.obs.__setitem__("cell_type", np.linspace(0, 1, 120)),
            r"Obs\['cell_type'\] holds fractional numbers \(120 different ones\), not classes; .*",
            id="float",
        ),
    ],
)
def test_errors_are_one_readable_line(
    widget: CentroidEncoderWidget,
    cells: AnnData,
    unchanged: Any,
    spoil: Callable[[AnnData], None],
    message: str,
):
    notified: list[Any] = []
    notification_manager.notification_ready.connect(notified.append)
    spoil(cells)
    with unchanged(cells):
        widget.train()
    assert widget.training is None
    pytest.importorskip("re").fullmatch(message, widget.message.text()) or pytest.fail(
        widget.message.text()
    )
    assert widget.message.isVisible()
    assert [note.message for note in notified] == [widget.message.text()]
    assert not any(isinstance(note, ErrorNotification) for note in notified)
    assert widget.train_button.isEnabled()
    notification_manager.notification_ready.disconnect(notified.append)

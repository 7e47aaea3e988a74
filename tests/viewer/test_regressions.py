"""What other plugins of this kind got wrong, and what happens while a training runs."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anndata as ad
import dask.array as da
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from matplotlib.colors import to_hex, to_rgba
from napari.layers import Labels, Layer
from qtpy.QtWidgets import QApplication, QLabel

import centroid_encoder as ce
from centroid_encoder.pl._colors import label_colors
from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.data.tables import is_drawn
from centroid_encoder.viewer.session.misplaced import REGIONS
from tests.viewer.seen import is_colored, seen_colors

if TYPE_CHECKING:
    from napari import Viewer
    from pytestqt.qtbot import QtBot

    Open = Callable[[], CentroidEncoderWidget]
    Train = Callable[[CentroidEncoderWidget], None]
    Image = Callable[..., Any]

MODEL = ce.CentroidEncoder(max_epochs=3)
NO_COLOR = (0, 0, 0, 0)


@pytest.fixture
def begin(qtbot: QtBot) -> Callable[[CentroidEncoderWidget], None]:
    """Begin a training that takes forever, and wait for its first frame and epoch."""

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
def end(qtbot: QtBot) -> Callable[[CentroidEncoderWidget], None]:
    """Stop the training, and wait until its result is there."""

    def run(widget: CentroidEncoderWidget) -> None:
        widget.stop()
        qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)

    return run


@pytest.fixture
def widget(
    viewer: Viewer, cells: AnnData, image_of: Image, open_widget: Open
) -> CentroidEncoderWidget:
    """The widget with a table and its layer."""
    viewer.add_labels(image_of(cells), name="nuclei", metadata={"adata": cells})
    return open_widget()


def texts(widget: CentroidEncoderWidget) -> list[str]:
    return [label.text() for label in widget.findChildren(QLabel) if label.isVisible()]


def painted() -> None:
    """Let napari paint, which crashes where layers come and go more quickly than it can."""
    QApplication.processEvents()


def drawn(viewer: Viewer) -> list[Layer]:
    return [layer for layer in viewer.layers if is_drawn(layer)]


def check_linked(widget: CentroidEncoderWidget, layer: Labels, id_key: str = "cell_id") -> None:
    """Check colours, marks and picking, label by label."""
    adata, label_key = widget.catalog.table.adata, widget.form.label_key.value
    image = np.asarray(layer.data[0] if layer.multiscale else layer.data)
    rows = {int(label): row for row, label in enumerate(adata.obs[id_key]) if label != 0}
    colors = label_colors(adata, label_key)
    assert widget.catalog.layer is layer
    widget.cells.color_box.setCurrentText("label")
    for label in np.unique(image):
        name = adata.obs[label_key].iloc[rows[label]] if label in rows else np.nan
        expected = NO_COLOR if pd.isna(name) else to_rgba(colors[name])
        (color,) = seen_colors(widget.viewer, layer, label)
        assert np.allclose(color, expected, atol=0.01), label
        assert widget.catalog.join.rows([label]) == [rows.get(label, -1)]
    widget.cells.color_box.setCurrentText("as it was")
    painted()
    present = [row for label, row in rows.items() if label in image]
    some = np.array(sorted(present)[::7], dtype=np.intp)
    widget.select(some)
    (mark,) = drawn(widget.viewer)
    marked = np.asarray(mark.data[0] if layer.multiscale else mark.data) > 0
    assert set(image[marked]) == set(adata.obs[id_key].iloc[some])
    painted()
    widget.select(some[:0])
    painted()
    assert not drawn(widget.viewer)


# -- ids -----------------------------------------------------------------------------------------


def test_ids_are_never_taken_for_positions(
    viewer: Viewer, make_cells: Callable[..., AnnData], image_of: Image, open_widget: Open
):
    adata = make_cells()
    image = image_of(adata)
    assert adata.obs["cell_id"].max() > 120
    assert not adata.obs["cell_id"].is_monotonic_increasing
    widget = open_widget()
    shuffled = adata[np.random.default_rng(1).permutation(120)].copy()
    filtered = adata[np.arange(120) % 3 > 0].copy()
    zero = adata.copy()
    zero.obs.loc[zero.obs_names[5], "cell_id"] = 0
    text = adata.copy()
    text.obs["cell_id"] = text.obs["cell_id"].astype(str).astype("category")
    cases = {
        "120 cells; 0 without a label in the image; 0 labels without a row": adata,
        "120 cells; 0 without a label in the image; 0 labels without a row ": shuffled,
        "80 cells; 0 without a label in the image; 40 labels without a row": filtered,
        "120 cells; 1 without a label in the image; 1 label without a row": zero,
    }
    for expected, table in cases.items():
        layer = viewer.add_labels(image, metadata={"adata": table})
        widget.catalog.refresh()
        assert widget.catalog.table.adata is table
        assert expected.strip() in texts(widget)
        check_linked(widget, layer)
        viewer.layers.remove(layer)
        painted()
        assert widget.catalog.table is None
    # Rows that the image does not have.
    cut = np.where(np.isin(image, adata.obs["cell_id"].iloc[::4]), 0, image)
    layer = viewer.add_labels(cut, metadata={"adata": adata})
    widget.catalog.refresh()
    assert "120 cells; 30 without a label in the image; 0 labels without a row" in texts(widget)
    check_linked(widget, layer)


def test_painting_labels_joins_anew(widget: CentroidEncoderWidget, viewer: Viewer, qtbot: QtBot):
    layer = viewer.layers["nuclei"]
    layer.data_setitem(np.nonzero(layer.data == layer.data[0, 0]), 999)
    qtbot.waitUntil(lambda: "1 without a label" in widget.data.joined_text.text(), timeout=5_000)
    assert "1 label without a row" in widget.data.joined_text.text()
    check_linked(widget, layer)


@pytest.mark.parametrize(
    "kind",
    [
        "3-D",
        "multiscale",
        pytest.param("dask", marks=pytest.mark.slow),
        pytest.param("scaled", marks=pytest.mark.slow),
    ],
)
def test_images_of_all_kinds(
    viewer: Viewer, cells: AnnData, image_of: Image, open_widget: Open, train: Train, kind: str
):
    image = image_of(cells)
    data: Any = {
        "3-D": np.stack([np.zeros_like(image), image, image, np.zeros_like(image)]),
        "multiscale": [image, image[::2, ::2]],
        "dask": da.from_array(image, chunks=20),
    }.get(kind, image)
    scale = (0.5, 0.25) if kind == "scaled" else None
    layer = viewer.add_labels(data, name="nuclei", scale=scale, metadata={"adata": cells})
    widget = open_widget()
    check_linked(widget, layer)
    train(widget)
    check_linked(widget, layer)
    widget.select(np.array([40]))
    widget.cells.show_button.click()
    inside = np.argwhere(np.asarray(image) == cells.obs["cell_id"].iloc[40])
    middle = np.array(layer.data_to_world((*[1] * (kind == "3-D"), *inside.mean(axis=0))))[-2:]
    assert np.allclose(viewer.scene.camera.center[-2:], middle, atol=1)
    if kind == "3-D":
        assert 1 <= viewer.dims.point[0] <= 2


# -- labels and palettes -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("text", marks=pytest.mark.slow),
        pytest.param("integer", marks=pytest.mark.slow),
        pytest.param("bool", marks=pytest.mark.slow),
        "integer and missing",
    ],
)
def test_classes_of_all_kinds(
    viewer: Viewer,
    cells: AnnData,
    image_of: Image,
    open_widget: Open,
    train: Train,
    tmp_path: Path,
    kind: str,
):
    number = np.arange(120) % 2 + 10
    labels = {
        "text": np.array(["a", "b"])[number - 10],
        "integer": number,
        "bool": number == 10,
        "integer and missing": np.where(np.arange(120) % 5, number, np.nan),
    }[kind]
    cells.obs["kind"] = labels
    layer = viewer.add_labels(image_of(cells), metadata={"adata": cells})
    widget = open_widget()
    widget.form.label_key.value = "kind"
    names = {"text": ["a", "b"], "bool": ["False", "True"]}.get(kind, ["10", "11"])
    assert [row.name for row in widget.classes.rows] == names
    check_linked(widget, layer)
    train(widget)
    expected = cells.copy()
    ce.tl.centroid_encoder(expected, "kind", model=MODEL, progress=False)
    assert np.array_equal(cells.obsm["X_ce"], expected.obsm["X_ce"])
    assert [row.name for row in widget.classes.rows] == names
    check_linked(widget, layer)
    widget.session.recolor_class(1, "#010203")
    assert list(cells.uns["kind_colors"])[1] == "#010203"
    widget.select(np.array([0, 1]))
    widget.session.relabel(names[0])
    column = cells.obs["kind_relabeled"]
    assert [str(value) for value in column.iloc[:2]] == [names[0], names[0]]
    widget.keep.save_table(tmp_path / "cells.h5ad")
    assert widget.keep.message.text() == "Saved cells.h5ad."
    saved = ad.read_h5ad(tmp_path / "cells.h5ad").obs
    for name in ("ce_label", "kind_relabeled"):
        assert [str(value) for value in saved[name]] == [str(value) for value in cells.obs[name]]


@pytest.mark.parametrize(
    "palette",
    [["#ff0000"], ["#ff0000", "#00ff00", "#0000ff", "#ffff00"], ["red", "none of", "these"], []],
    ids=["short", "long", "wrong", "empty"],
)
def test_palettes_that_do_not_fit(
    viewer: Viewer, cells: AnnData, image_of: Image, open_widget: Open, train: Train, palette: Any
):
    cells.uns["cell_type_colors"] = palette
    layer = viewer.add_labels(image_of(cells), metadata={"adata": cells})
    widget = open_widget()
    check_linked(widget, layer)
    train(widget)
    assert cells.uns["cell_type_colors"] is palette
    colors = [row.color for row in widget.classes.rows]
    assert len(set(colors)) == 3
    assert (colors == palette[:3]) == (len(palette) == 4)
    check_linked(widget, layer)


def test_colors_of_a_layer_are_not_lost(widget: CentroidEncoderWidget, viewer: Viewer):
    """Switching between layers and tables leaves every layer as it was."""
    layer = viewer.layers["nuclei"]
    other = viewer.add_labels(layer.data.copy(), name="other")
    widget.catalog.refresh()
    for _ in range(2):
        widget.cells.color_box.setCurrentText("label")
        assert is_colored(viewer, layer)
        widget.catalog.choose_layer(other)
        assert not is_colored(viewer, layer)
        # It is the cells that are coloured, in whatever layer they are shown.
        assert is_colored(viewer, other)
        widget.catalog.choose_layer(layer)
        assert not is_colored(viewer, other)
        widget.cells.color_box.setCurrentText("as it was")
    assert not is_colored(viewer, layer)


# -- features ------------------------------------------------------------------------------------


@pytest.fixture
def measured(
    viewer: Viewer, cells: AnnData, image_of: Image, open_widget: Open
) -> CentroidEncoderWidget:
    """The widget with the features of one of two layers as its table."""
    image = image_of(cells)
    viewer.add_labels(image, name="attached", metadata={"adata": cells})
    features = pd.DataFrame(cells.X, columns=cells.var_names).assign(
        index=cells.obs["cell_id"].to_numpy(), kind=cells.obs["cell_type"].to_numpy()
    )
    viewer.add_labels(image, name="measured", features=features)
    widget = open_widget()
    widget.data.table_box.setCurrentText("measured: features")
    widget.form.label_key.value = "kind"
    return widget


def test_features_replaced_by_another_plugin(
    measured: CentroidEncoderWidget, viewer: Viewer, train: Train, qtbot: QtBot
):
    layer, table = viewer.layers["measured"], measured.catalog.table
    shuffled = layer.features.sample(frac=0.5, random_state=0).assign(added=3.0)
    layer.features = shuffled
    qtbot.waitUntil(lambda: measured.catalog.table is not table)
    # It is the new one of the same layer, not just any.
    assert measured.data.table_box.currentText() == "measured: features"
    assert measured.form.label_key.value == "kind"
    adata = measured.catalog.table.adata
    assert adata.n_obs == 60
    assert adata.var_names[-1] == "added"
    check_linked(measured, layer, "index")
    train(measured)
    assert layer.features["ce_label"].tolist() == adata.obs["ce_label"].tolist()
    assert layer.features["added"].tolist() == [3.0] * 60


def test_features_replaced_while_training(
    measured: CentroidEncoderWidget,
    viewer: Viewer,
    qtbot: QtBot,
    begin: Train,
    end: Train,
    cells: AnnData,
    unchanged: Any,
):
    layer, table = viewer.layers["measured"], measured.catalog.table
    before = layer.features.copy()
    with unchanged(cells):
        begin(measured)
        layer.features = before.sample(frac=0.5, random_state=0).assign(added="theirs")
        qtbot.waitUntil(lambda: measured.catalog.table is not table)
        end(measured)
    # Each result is with its cell.
    found = layer.features.set_index("index")
    expected = table.adata.obs.set_index("index").loc[found.index]
    assert found["ce_label"].tolist() == expected["ce_label"].tolist()
    assert found["added"].tolist() == ["theirs"] * 60
    assert len(layer.features) == 60
    assert "X_ce" in table.adata.obsm
    assert "X_ce" not in measured.catalog.table.adata.obsm


# -- layers that come and go ---------------------------------------------------------------------


def test_a_layer_removed_while_training(
    widget: CentroidEncoderWidget,
    viewer: Viewer,
    qtbot: QtBot,
    begin: Train,
    end: Train,
    cells: AnnData,
):
    begin(widget)
    widget.cells.color_box.setCurrentText("label")
    widget.select(np.array([3]))
    layer = viewer.layers["nuclei"]
    viewer.layers.remove(layer)
    qtbot.waitUntil(lambda: widget.catalog.table is None)
    assert not drawn(viewer)
    end(widget)
    # Its table gets what was trained on it.
    assert cells.obsm["X_ce"].shape == (120, 2)
    assert widget.result is None
    assert any("Open a .h5ad" in text for text in texts(widget))
    viewer.layers.append(layer)
    qtbot.waitUntil(lambda: widget.catalog.table is not None)
    assert np.array_equal(widget.map.canvas.map.scene.points, cells.obsm["X_ce"])


def test_nothing_of_a_removed_layer_stays(
    widget: CentroidEncoderWidget, viewer: Viewer, train: Train, qtbot: QtBot
):
    train(widget)
    widget.cells.color_box.setCurrentText("label")
    widget.select(np.array([3]))
    layer = weakref.ref(viewer.layers["nuclei"])
    viewer.layers.selection.clear()
    viewer.layers.clear()
    qtbot.waitUntil(lambda: widget.catalog.table is None)
    qtbot.wait(50)
    gc.collect()
    assert layer() is None


def test_a_layer_renamed_while_training(
    widget: CentroidEncoderWidget,
    viewer: Viewer,
    qtbot: QtBot,
    begin: Train,
    end: Train,
    cells: AnnData,
    make_cells: Callable[..., AnnData],
    unchanged: Any,
):
    other = make_cells()
    begin(widget)
    layer = viewer.layers["nuclei"]
    layer.name = "renamed"
    with unchanged(other):
        viewer.add_labels(layer.data, name="nuclei", metadata={"adata": other})
        qtbot.waitUntil(lambda: widget.data.table_box.count() == 2)
        assert widget.data.table_box.currentText() == "renamed: AnnData"
        end(widget)
    assert "X_ce" in cells.obsm
    assert widget.catalog.layer is layer
    check_linked(widget, layer)


# -- the dock ------------------------------------------------------------------------------------


def dock_of(widget: CentroidEncoderWidget, viewer: Viewer) -> Any:
    (dock,) = [
        dock
        for dock in viewer.window._wrapped_dock_widgets.values()
        if dock.inner_widget() is widget
    ]
    return dock


def test_the_dock_floats_and_comes_back_while_training(
    widget: CentroidEncoderWidget,
    viewer: Viewer,
    qtbot: QtBot,
    begin: Train,
    end: Train,
    cells: AnnData,
):
    dock = dock_of(widget, viewer)
    begin(widget)
    for floating in (True, False, True, False):
        dock.setFloating(floating)
        frames: list[Any] = []
        widget.training.reported.connect(frames.append)
        qtbot.waitUntil(lambda frames=frames: len(frames) > 3, timeout=30_000)
    end(widget)
    assert np.array_equal(widget.map.canvas.map.scene.points, cells.obsm["X_ce"])
    check_linked(widget, viewer.layers["nuclei"])


def test_closing_the_dock_while_training_leaves_everything_as_it_was(
    widget: CentroidEncoderWidget,
    viewer: Viewer,
    qtbot: QtBot,
    begin: Train,
    cells: AnnData,
    unchanged: Any,
    open_widget: Open,
    train: Train,
):
    layer = viewer.layers["nuclei"]
    opacity, callbacks = layer.opacity, list(viewer.mouse_drag_callbacks)
    callbacks.remove(widget.cells._on_press)
    with unchanged(cells):
        begin(widget)
        widget.cells.color_box.setCurrentText("label")
        widget.select(np.array([3]))
        thread = widget.training._worker
        viewer.window.remove_dock_widget(dock_of(widget, viewer))
        qtbot.waitUntil(lambda: not thread.is_running, timeout=10_000)
        qtbot.wait(50)
    assert list(viewer.layers) == [layer]
    assert layer.opacity == opacity
    assert viewer.mouse_drag_callbacks == callbacks
    # Nothing listens any more.
    viewer.theme = "light"
    layer.name = "renamed"
    layer.features = pd.DataFrame({"area": np.arange(3.0)})
    viewer.layers.clear()
    viewer.layers.append(layer)
    qtbot.wait(50)
    again = open_widget()
    train(again)
    check_linked(again, layer)


def test_the_viewer_is_closed_while_training(
    widget: CentroidEncoderWidget,
    viewer: Viewer,
    qtbot: QtBot,
    begin: Train,
    cells: AnnData,
    unchanged: Any,
):
    with unchanged(cells):
        begin(widget)
        widget.cells.color_box.setCurrentText("label")
        widget.select(np.array([3]))
        thread = widget.training._worker
        viewer.close()
        qtbot.waitUntil(lambda: not thread.is_running, timeout=10_000)
        qtbot.wait(100)


def test_two_widgets_in_one_viewer(
    widget: CentroidEncoderWidget,
    viewer: Viewer,
    begin: Train,
    end: Train,
    train: Train,
    cells: AnnData,
    make_cells: Callable[..., AnnData],
    image_of: Image,
):
    layer = viewer.layers["nuclei"]
    own = layer.opacity
    other = make_cells(n_classes=4)
    image_of(other)
    second = CentroidEncoderWidget(viewer)
    dock = viewer.window.add_dock_widget(second, name="second")
    second.show_table(other, layer=layer)
    begin(widget)
    begin(second)
    end(widget)
    assert second.training is not None
    assert "X_ce" not in other.obsm
    end(second)
    assert len(cells.uns["ce"]["classes"]) == 3
    assert len(other.uns["ce"]["classes"]) == 4
    # Both show the same layer. Who comes last, colours it; in the end it is as it was.
    widget.cells.color_box.setCurrentText("label")
    second.cells.color_box.setCurrentText("predicted class")
    widget.cells.color_box.setCurrentText("misplaced cells")
    second.cells.color_box.setCurrentText("as it was")
    widget.cells.color_box.setCurrentText("as it was")
    assert layer.opacity == own
    second.cells.color_box.setCurrentText("label")
    widget.select(np.array([1]))
    second.select(np.array([2]))
    assert len(drawn(viewer)) == 3  # the colours, and the marks of both
    # What one has drawn is nothing to train on for the other.
    assert second.data.layer_box.count() == 2
    viewer.window.remove_dock_widget(dock)
    assert layer.opacity == own
    assert len(drawn(viewer)) == 1
    widget.select(np.array([], dtype=int))
    assert list(viewer.layers) == [layer]
    check_linked(widget, layer)


def test_the_theme_is_switched(
    widget: CentroidEncoderWidget, viewer: Viewer, begin: Train, end: Train
):
    def colors() -> tuple[Any, ...]:
        figure = widget.map.canvas.map
        return (
            to_hex(figure.figure.get_facecolor()),
            to_hex(figure.axes[0].get_facecolor()),
            to_hex(figure.axes[0].title.get_color()),
            widget.message.styleSheet(),
        )

    begin(widget)
    dark = colors()
    viewer.theme = "light"
    light = colors()
    assert all(a != b for a, b in zip(dark, light, strict=True))
    assert sum(to_rgba(light[0])) > sum(to_rgba(dark[0]))
    end(widget)
    assert colors() == light
    viewer.theme = "dark"
    assert colors() == dark


# -- while a training runs -----------------------------------------------------------------------


def test_what_is_chosen_while_training_is_not_what_was_trained(
    widget: CentroidEncoderWidget,
    viewer: Viewer,
    qtbot: QtBot,
    begin: Train,
    end: Train,
    cells: AnnData,
    make_cells: Callable[..., AnnData],
    unchanged: Any,
):
    cells.obs["half"] = pd.Categorical(np.where(np.arange(120) < 60, "a", "b"))
    widget.show_table(cells)
    other = make_cells(n_obs=90)
    ce.tl.centroid_encoder(other, "cell_type", model=MODEL, progress=False)
    layer = viewer.layers["nuclei"]
    viewer.add_labels(layer.data.copy(), name="other")
    widget.catalog.refresh()
    with unchanged(other):
        begin(widget)
        widget.form.label_key.value = "half"
        widget.form.key_added.value = "mine"
        widget.form.random_state.value = 9
        widget.catalog.choose_layer(viewer.layers["other"])
        widget.show_table(other, name="other table")
        # Frames of the one are not drawn over the other.
        frames: list[Any] = []
        widget.training.framed.connect(frames.append)
        qtbot.waitUntil(lambda: len(frames) > 1, timeout=30_000)
        assert widget.map.canvas.map.scene is None
        widget.form.key_added.value = "ce"
        assert np.array_equal(widget.map.canvas.map.scene.points, other.obsm["X_ce"])
        widget.select(np.array([80]))
        assert "1 cell selected" in texts(widget)
        end(widget)
        assert np.array_equal(widget.map.canvas.map.scene.points, other.obsm["X_ce"])
    assert cells.uns["ce"]["params"]["label_key"] == "cell_type"
    assert cells.uns["ce"]["params"]["random_state"] == 0
    assert "mine" not in cells.uns
    widget.catalog.choose(next(t for t in widget.catalog.tables if t.adata is cells))
    assert np.array_equal(widget.map.canvas.map.scene.points, cells.obsm["X_ce"])
    assert "cell_type" in widget.keep.script()
    assert "half" not in widget.keep.script()


def test_one_training_at_a_time(
    widget: CentroidEncoderWidget, begin: Train, end: Train, train: Train, cells: AnnData
):
    begin(widget)
    training = widget.training
    widget.train()
    assert widget.training is training
    end(widget)
    widget.form.max_epochs.value = 3
    train(widget)
    assert len(cells.uns["ce"]["history"]) == 3
    train(widget)
    expected = cells.copy()
    ce.tl.centroid_encoder(expected, "cell_type", model=MODEL, progress=False)
    assert np.array_equal(cells.obsm["X_ce"], expected.obsm["X_ce"])


@pytest.mark.parametrize("change", ["fewer", "reordered", "renamed"])
def test_cells_that_change_while_training_do_not_get_results_of_others(
    widget: CentroidEncoderWidget,
    viewer: Viewer,
    qtbot: QtBot,
    begin: Train,
    cells: AnnData,
    unchanged: Any,
    train: Train,
    change: str,
):
    begin(widget)
    if change == "fewer":
        # As scanpy's filters do.
        cells._inplace_subset_obs(np.arange(120) % 3 > 0)
    elif change == "reordered":
        cells._inplace_subset_obs(np.arange(120)[::-1])
    else:
        cells.obs_names = [f"renamed{i}" for i in range(120)]
    with unchanged(cells):
        qtbot.wait(300)
        widget.stop()
        qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
    assert "have changed since they were read" in widget.message.text()
    widget.form.max_epochs.value = 3
    train(widget)
    assert np.array_equal(widget.map.canvas.map.scene.points, cells.obsm["X_ce"])
    check_linked(widget, viewer.layers["nuclei"])


def test_cells_that_change_behind_the_map_are_not_confused(
    widget: CentroidEncoderWidget, viewer: Viewer, train: Train, cells: AnnData
):
    train(widget)
    widget.cells.color_box.setCurrentText("label")
    cells._inplace_subset_obs(np.arange(120) % 3 > 0)
    # Rows of the map that is still on the screen.
    widget.map.canvas.selection_made.emit(np.array([4, 7, 119]), "replace")
    assert len(widget.session.selected) == 80
    assert not widget.session.selected.any()
    assert widget.message.text().startswith("The cells of the table have changed")
    assert np.array_equal(widget.map.canvas.map.scene.points, cells.obsm["X_ce"])
    widget.session.recolor_class(0, "#ff0000")
    widget.map.regions_box.setCurrentText("decoder regions")
    widget.cells.color_box.setCurrentText("predicted class")
    widget.cells.color_box.setCurrentText("label")
    check_linked(widget, viewer.layers["nuclei"])


@pytest.mark.parametrize("placement", ["bottleneck", "Voronoi"])
def test_decoder_regions_are_named_where_there_is_a_decoder(
    widget: CentroidEncoderWidget, train: Train, placement: str
):
    widget.form.placement.value = placement
    train(widget)
    for regions in ("decoder regions", "no regions"):
        widget.map.regions_box.setCurrentText(regions)
        _, _, summary = REGIONS.list_cells(widget.session)
        region = "decoder region" if placement == "bottleneck" else "Voronoi cell"
        assert summary.endswith(f"lie in another class's {region}.")


def test_labels_that_go_while_training(
    widget: CentroidEncoderWidget, begin: Train, end: Train, qtbot: QtBot, cells: AnnData
):
    begin(widget)
    del cells.obs["cell_type"]
    frames: list[Any] = []
    widget.training.framed.connect(frames.append)
    qtbot.waitUntil(lambda: bool(frames), timeout=30_000)
    end(widget)
    assert "X_ce" in cells.obsm
    assert "obs['cell_type'], the labels this embedding was made with, is gone" in (
        widget.message.text()
    )
    widget.select(np.array([1]))
    widget.cells.color_box.setCurrentText("label")


# -- next to nothing -----------------------------------------------------------------------------


def test_a_table_without_cells(widget: CentroidEncoderWidget, cells: AnnData):
    empty = cells[:0].copy()
    widget.show_table(empty, name="empty")
    assert any(text.startswith("0 cells; no layer to show them in.") for text in texts(widget))
    widget.catalog.choose_layer(widget.viewer.layers["nuclei"])
    widget.catalog.choose_ids("cell_id")
    assert "0 cells; 0 without a label in the image; 120 labels without a row" in texts(widget)
    widget.cells.color_box.setCurrentText("label")
    widget.train()
    assert widget.training is None
    assert widget.message.text() == "adata has no cells."


def test_no_cell_has_a_label(widget: CentroidEncoderWidget, viewer: Viewer, cells: AnnData):
    cells.obs["nothing"] = pd.Categorical([None] * 120)
    cells.obs["nan"] = np.nan
    # Opening it again is how a notebook tells of new columns.
    widget.show_table(cells)
    for name in ("nothing", "nan"):
        widget.form.label_key.value = name
        assert widget.form.label_key.value == name
        widget.cells.color_box.setCurrentText("label")
        assert np.array_equal(seen_colors(viewer, viewer.layers["nuclei"], 5)[0], NO_COLOR)
        widget.train()
        assert widget.training is None
        assert widget.message.text() == f"No cell has a label in obs['{name}']."
        assert widget.classes.view.rowCount() == 0


def test_an_image_without_labels(widget: CentroidEncoderWidget, viewer: Viewer, train: Train):
    layer = viewer.add_labels(np.zeros((10, 10), dtype=int), name="nothing")
    widget.catalog.refresh()
    widget.catalog.choose_layer(layer)
    widget.data.instance_box.setCurrentText("cell_id")
    assert "120 cells; 120 without a label in the image; 0 labels without a row" in texts(widget)
    train(widget)
    widget.cells.color_box.setCurrentText("label")
    widget.select(np.array([3]))
    widget.cells.show_button.click()
    assert "1 cell selected" in texts(widget)

"""The map's panel: names, new cells over those of the reference, and a window of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anndata as ad
import numpy as np
import pytest
from anndata import AnnData
from numpy.typing import NDArray
from qtpy.QtCore import QPoint, Qt
from qtpy.QtTest import QTest

import centroid_encoder as ce
from centroid_encoder.pl._regions import panel_limits
from centroid_encoder.viewer.panels.map import MapPanel
from centroid_encoder.viewer.session.session import Session

if TYPE_CHECKING:
    from napari import Viewer
    from pytestqt.qtbot import QtBot

    from centroid_encoder.viewer import CentroidEncoderWidget
    from centroid_encoder.viewer.map.figure import MapFigure

    Open = Callable[[], CentroidEncoderWidget]
    Embed = Callable[..., AnnData]

LEFT, PLAIN = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier


@pytest.fixture
def reference(embed: Embed) -> AnnData:
    return embed(4)


@pytest.fixture
def query(reference: AnnData, make_cells: Callable[..., AnnData]) -> AnnData:
    """New cells of two of the four classes."""
    new = make_cells(4, distance=1.0)
    new = new[new.obs["cell_type"].isin(["type 0", "type 1"])].copy()
    new.obs_names = [f"new{i}" for i in range(new.n_obs)]
    ce.tl.ingest(new, reference, progress=False)
    return new


@pytest.fixture
def panel(qtbot: QtBot) -> MapPanel:
    panel = MapPanel(Session())
    qtbot.addWidget(panel)
    panel.resize(500, 500)
    with qtbot.waitExposed(panel):
        panel.show()
    return panel


def show(panel: MapPanel, *tables: AnnData) -> MapFigure:
    """Choose the last of some tables."""
    catalog = panel._session.catalog
    for i, adata in enumerate(tables):
        catalog.choose(catalog.add(adata, f"table {i}"))
    return panel.canvas.map


def entries(box: Any) -> list[str]:
    return [box.itemText(i) for i in range(box.count())]


def names_on(figure: MapFigure) -> list[str]:
    """What is written on the first panel."""
    return [text.get_text() for text in figure.axes[0].texts if text.get_text()]


def view(figure: MapFigure) -> NDArray[np.floating]:
    ax = figure.axes[0]
    return np.array([ax.get_xlim(), ax.get_ylim()]).T


def grey(figure: MapFigure) -> NDArray[np.floating]:
    """Points that are drawn behind all others."""
    line = min(figure.axes[0].lines, key=lambda line: line.get_zorder())
    return np.asarray(line.get_xydata())


# -- new cells -----------------------------------------------------------------------------------


def test_new_cells_lie_over_those_of_the_reference(
    panel: MapPanel, reference: AnnData, query: AnnData
) -> None:
    figure = show(panel, reference)
    before, regions = view(figure), figure.scene.shapes if figure.scene else ()
    assert not len(grey(figure))
    figure = show(panel, query)
    assert figure.scene is not None
    new = query.obsm["X_ce"]
    inside = ((new >= before[0]) & (new <= before[1])).all()
    both = panel_limits(
        np.concatenate([reference.obsm["X_ce"], new, reference.uns["ce"]["centers"]])
    )
    np.testing.assert_allclose(view(figure), before if inside else both)
    np.testing.assert_array_equal(grey(figure), reference.obsm["X_ce"])
    legend = figure.axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["reference cells (n = 120)"]
    # All classes have a region, those without new cells as well.
    assert len(figure.scene.shapes) == len(regions) == 4
    assert all(map(len, figure.scene.shapes))
    # Nobody picks what is grey.
    assert len(figure.scene.points) == query.n_obs
    figure = show(panel, reference)
    assert not len(grey(figure))
    assert figure.axes[0].get_legend() is None


def test_new_cells_that_lie_beyond_the_reference_are_seen(
    panel: MapPanel, reference: AnnData, query: AnnData
) -> None:
    query.obsm["X_ce"][0] = 100
    figure = show(panel, reference, query)
    assert (view(figure)[1] > 100).all()


def test_without_the_reference_all_regions_are_there(panel: MapPanel, query: AnnData) -> None:
    figure = show(panel, query)
    assert figure.scene is not None
    assert not len(grey(figure))
    assert all(map(len, figure.scene.shapes))
    (low, high), centers = view(figure), query.uns["ce"]["centers"]
    assert ((centers > low) & (centers < high)).all()


def test_the_map_of_another_training_is_not_behind(
    panel: MapPanel, reference: AnnData, query: AnnData
) -> None:
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=2)
    ce.tl.centroid_encoder(reference, "cell_type", model=model, progress=False)
    assert not len(grey(show(panel, reference, query)))


def test_cells_of_both_kinds_in_one_table(
    panel: MapPanel, reference: AnnData, query: AnnData
) -> None:
    reference.obs["ce_label"] = reference.obs["ce_label"].astype(str)
    query.obs["ce_label"] = query.obs["ce_label"].astype(str)
    for table in (reference, query):
        table.obs["ce_split"] = table.obs["ce_split"].astype(str)
    both = ad.concat([reference, query], join="outer")
    both.uns = query.uns
    both.obs["ce_label"] = both.obs["ce_label"].astype("category")
    both.obs["ce_split"] = both.obs["ce_split"].astype("category")
    np.testing.assert_array_equal(grey(show(panel, both)), reference.obsm["X_ce"])


# -- names ---------------------------------------------------------------------------------------


def test_names_are_written_until_they_are_switched_off(panel: MapPanel, reference: AnnData) -> None:
    figure = show(panel, reference)
    button = panel.canvas.buttons["names"]
    assert button.isChecked()
    assert names_on(figure) == [f"type {i}" for i in range(4)]
    panel._session.hide_classes(frozenset({"type 1"}))
    assert names_on(figure) == ["type 0", "type 2", "type 3"]
    button.click()
    assert names_on(figure) == []
    show(panel, reference)
    assert names_on(figure) == []
    button.click()
    assert len(names_on(figure)) == 3


def test_names_do_not_overlap_and_stay_in_the_panel(panel: MapPanel, embed: Embed) -> None:
    names = [f"a class with number {i}" for i in range(12)]
    figure = show(panel, embed(12, n_obs=240, names=names))
    panel.canvas.canvas.draw()
    (frame, _) = (ax.get_window_extent() for ax in figure.axes)
    boxes = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text()]
    assert len(boxes) == 12
    for i, box in enumerate(boxes):
        assert frame.x0 - 1 <= box.x0
        assert box.y1 <= frame.y1 + 1
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_of_many_classes_only_who_wants_them_sees_the_names(panel: MapPanel, embed: Embed) -> None:
    figure = show(panel, embed(25, n_obs=250))
    assert not panel.canvas.buttons["names"].isChecked()
    assert names_on(figure) == []
    panel.canvas.buttons["names"].click()
    assert len(names_on(figure)) == 25
    # Those out of view have none.
    figure.axes[0].set(xlim=(1e3, 1e3 + 1))
    figure.place_names()
    assert names_on(figure) == []


# -- any column or variable ----------------------------------------------------------------------


def test_the_layer_is_colored_by_any_column_or_variable(
    viewer: Viewer, open_widget: Open, cells: AnnData, image_of: Any
) -> None:
    cells.obs["size"] = np.arange(120.0)
    layer = viewer.add_labels(image_of(cells), metadata={"adata": cells}, name="nuclei")
    widget = open_widget()
    panel, own = widget.cells, layer.colormap
    assert not panel.value_box.isVisible()
    panel.color_box.setCurrentText("column or variable …")
    assert panel.value_box.isVisible()
    names = [panel.value_box.itemText(i) for i in range(panel.value_box.count())]
    assert names == [*cells.obs.columns, *cells.var_names]

    def lightness() -> NDArray[np.floating]:
        return np.array([sum(layer.colormap.map(int(i))[:3]) for i in cells.obs["cell_id"]])

    panel.value_box.setCurrentIndex(names.index("size"))
    assert np.corrcoef(lightness(), cells.obs["size"])[0, 1] > 0.9
    assert "█" in panel.color_text.text()
    panel.value_box.setCurrentIndex(names.index("gene3"))
    assert np.corrcoef(lightness(), cells.X[:, 3])[0, 1] > 0.9
    panel.value_box.setCurrentIndex(names.index("cell_type"))
    assert "type 2" in panel.color_text.text()
    # A column that has gone since is an error, and no cell has a colour that is not its own.
    del cells.obs["size"]
    panel.value_box.setCurrentIndex(names.index("size"))
    assert layer.colormap is own
    panel.color_box.setCurrentText("as it was")
    assert not panel.value_box.isVisible()
    assert layer.colormap is own


def test_the_map_has_the_colors_of_a_column_or_variable_too(
    viewer: Viewer, open_widget: Open, embed: Embed
) -> None:
    cells = embed(3, unlabeled=5)
    cells.obs["size"] = [*np.arange(119.0), np.nan]
    widget = open_widget()
    widget.show_table(cells, label_key="cell_type")
    figure, panel = widget.map.canvas.map, widget.cells
    classes = [line.get_color() for line in figure.axes[0].lines[1:5]]
    figure.axes[0].set(xlim=(-1, 1))
    # There is no layer, and nothing else than the map to be coloured.
    assert entries(panel.color_box) == ["as it was", "column or variable …"]
    panel.color_box.setCurrentText("column or variable …")
    panel.value_box.setCurrentIndex(panel.value_box.findText("size"))

    def colored() -> dict[tuple[float, ...], str]:
        return {
            tuple(point): line.get_color()
            for ax in figure.axes
            for line in ax.lines
            if not line.get_animated()
            for point in line.get_xydata()
        }

    colors, embedding = colored(), cells.obsm["X_ce"]
    assert len(colors) == 120
    assert len({colors[tuple(embedding[row])] for row in range(119)}) == 20
    assert colors[tuple(embedding[0])] != colors[tuple(embedding[110])]
    assert figure.axes[0].get_xlim() == (-1, 1)
    # Classes that are switched off are off, and the selection stays.
    widget.select(np.array([7]))
    widget.session.hide_classes(frozenset({"type 0"}))
    hidden = cells.obs["cell_type"].eq("type 0").sum()
    assert len(colored()) == 120 - hidden
    widget.session.hide_classes(frozenset())
    # Another table, or no values, and the classes have their colours again.
    panel.color_box.setCurrentText("as it was")
    assert [line.get_color() for line in figure.axes[0].lines[1:5]] == classes
    panel.color_box.setCurrentText("column or variable …")
    widget.show_table(embed(3, n_obs=90), name="other", label_key="cell_type")
    assert figure.scene is not None
    assert len(figure.scene.points) == 90
    assert len(colored()) == 90


# -- a window of its own -------------------------------------------------------------------------


def test_the_map_pops_out_and_comes_back(
    viewer: Viewer, open_widget: Open, qtbot: QtBot, embed: Embed, image_of: Any
) -> None:
    cells = embed(3)
    viewer.add_labels(image_of(cells), metadata={"adata": cells}, name="nuclei")
    widget = open_widget()
    canvas, button = widget.map.canvas, widget.map.canvas.buttons["window"]
    below, above = widget.tabs.height(), widget.map.height()
    button.click()
    window = canvas.window()
    assert window is not widget.window()
    qtbot.waitExposed(window)
    # What is below gets the room.
    qtbot.waitUntil(lambda: widget.tabs.height() > below)
    # The lasso selects, and a training is drawn.
    qtbot.wait(100)
    frame, height = canvas.map.axes[0].get_window_extent(), canvas.canvas.height()
    x0, x1, y0, y1 = (round(end) for end in (frame.x0, frame.x1, frame.y0, frame.y1))
    corners = [(x0 + 2, y0 + 2), (x0 + 2, y1 - 2), (x1 - 2, y1 - 2), (x1 - 2, y0 + 2)]
    QTest.mousePress(canvas.canvas, LEFT, PLAIN, QPoint(corners[0][0], height - corners[0][1]))
    for x, y in corners:
        QTest.mouseMove(canvas.canvas, QPoint(x, height - y))
    QTest.mouseRelease(canvas.canvas, LEFT, PLAIN, QPoint(corners[3][0], height - corners[3][1]))
    assert widget.session.selected.sum() > 50
    before = canvas.map.scene
    widget.train()
    qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
    assert canvas.map.scene is not before
    assert canvas.window() is window
    widget.session.recolor_class(0, "#123456")
    assert canvas.map.axes[0].lines[1].get_color() == "#123456"
    window.close()
    assert canvas.window() is widget.window()
    assert canvas.isVisible()
    qtbot.waitUntil(lambda: widget.map.height() > 0.7 * above)
    button.click()
    button.click()
    assert canvas.window() is widget.window()
    # The window goes with the widget.
    button.click()
    window = canvas.window()
    closed: list[bool] = []
    window.destroyed.connect(lambda: closed.append(True))
    viewer.window.remove_dock_widget("all")
    qtbot.waitUntil(lambda: bool(closed))

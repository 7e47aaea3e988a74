"""The map's panel: names, new cells over those of the reference, and a window of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import anndata as ad
import numpy as np
import pytest
from anndata import AnnData
from matplotlib.colors import to_rgb
from napari.components import ViewerModel
from numpy.typing import NDArray
from scipy.spatial import Delaunay
from scipy.spatial.distance import pdist
from skimage.color import rgb2lab

import centroid_encoder as ce
from centroid_encoder.pl._regions import panel_limits
from centroid_encoder.viewer.map.colorings import color_cells, color_column
from centroid_encoder.viewer.map.dots import Dots
from centroid_encoder.viewer.panels.cells import CellsPanel
from centroid_encoder.viewer.panels.map import MapPanel
from centroid_encoder.viewer.session.session import Session

if TYPE_CHECKING:
    from napari import Viewer
    from pytestqt.qtbot import QtBot

    from centroid_encoder.viewer import CentroidEncoderWidget
    from centroid_encoder.viewer.map.figure import MapFigure

    Open = Callable[[], CentroidEncoderWidget]
    Embed = Callable[..., AnnData]


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
    """Names on the first panel."""
    return [text.get_text() for text in figure.axes[0].texts if text.get_text()]


def view(figure: MapFigure) -> NDArray[np.floating]:
    ax = figure.axes[0]
    return np.array([ax.get_xlim(), ax.get_ylim()]).T


def dots(figure: MapFigure, panel: int = 0) -> list[Dots]:
    """Reference cells, and the cells above them."""
    found = [artist for artist in figure.axes[panel].artists if isinstance(artist, Dots)]
    return sorted(found, key=lambda artist: artist.get_zorder())


def grey(figure: MapFigure) -> NDArray[np.floating]:
    """Points that are drawn behind all others."""
    return dots(figure)[0].points


def colors(figure: MapFigure) -> dict[tuple[float, ...], str]:
    """Colour of each point of the cells."""
    shown = [dots(figure, i)[1] for i in range(len(figure.axes))]
    return {
        tuple(point): f"#{bytes(color).hex()}"
        for cells in shown
        for point, color in zip(cells.points, cells.colors, strict=True)
    }


# -- new cells -----------------------------------------------------------------------------------


def test_new_cells_lie_over_those_of_the_reference(
    panel: MapPanel, reference: AnnData, query: AnnData
) -> None:
    query.obsm["X_ce"][0] = 100
    figure = show(panel, reference, query)
    assert figure.scene is not None
    everything = np.concatenate(
        [reference.obsm["X_ce"], query.obsm["X_ce"], reference.uns["ce"]["centers"]]
    )
    np.testing.assert_allclose(view(figure), panel_limits(everything))
    np.testing.assert_array_equal(grey(figure), reference.obsm["X_ce"])
    assert "pale: reference cells (n = 120)" in figure.axes[0].title.get_text()
    # All classes have a region, those without new cells as well.
    assert len(figure.scene.shapes) == 4
    assert all(map(len, figure.scene.shapes))
    assert len(figure.scene.points) == query.n_obs
    figure = show(panel, reference)
    assert not len(grey(figure))
    assert "reference" not in figure.axes[0].title.get_text()


def test_without_the_reference_all_regions_are_there(panel: MapPanel, query: AnnData) -> None:
    figure = show(panel, query)
    assert figure.scene is not None
    assert not len(grey(figure))
    assert all(map(len, figure.scene.shapes))
    (low, high), centers = view(figure), query.uns["ce"]["centers"]
    assert ((centers > low) & (centers < high)).all()


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


@pytest.mark.parametrize("map_first", [True, False])
def test_panels_handle_events_in_any_order(qtbot: QtBot, embed: Embed, map_first: bool) -> None:
    session = Session()
    makers = {"map": MapPanel, "cells": lambda session: CellsPanel(session, ViewerModel())}
    panels: dict[str, Any] = {}
    for name in sorted(makers, reverse=map_first):
        panels[name] = makers[name](session)
        qtbot.addWidget(panels[name])
    # As the form does.
    session.columns_changed.connect(lambda: session.choose_labels("cell_type"))
    tables = embed(3, n_obs=60), embed(3), embed(4)
    for i, adata in enumerate((*tables, tables[0])):
        adata.obs["size"] = np.arange(adata.n_obs) * 0.5
        figure, box = show(panels["map"], adata), panels["cells"].value_box
        if not i:
            panels["cells"].color_box.setCurrentText("column or variable …")
            box.setCurrentIndex(entries(box).index("size"))
        expected, seen = color_column(adata, "size"), colors(figure)
        for point, code in zip(adata.obsm["X_ce"], expected.codes, strict=True):
            assert seen[tuple(point)] == expected.colors[code]


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


# -- what is drawn ---------------------------------------------------------------------------------


def test_decoder_regions_are_offered_for_maps_with_a_decoder(panel: MapPanel, embed: Embed) -> None:
    box = panel.regions_box
    show(panel, embed(3))
    assert entries(box) == ["Voronoi cells", "no regions"]
    show(panel, embed(3, placement="bottleneck"))
    assert entries(box)[2:] == ["decoder regions"]
    box.setCurrentText("decoder regions")
    assert panel._session.regions == "decoder"
    show(panel, embed(3))
    assert entries(box) == ["Voronoi cells", "no regions"]
    assert panel._session.regions == "voronoi"


@pytest.mark.parametrize("size", [(442, 340), (442, 620), (900, 500)])
def test_the_panels_fill_the_room(
    panel: MapPanel, reference: AnnData, qtbot: QtBot, size: tuple[int, int]
) -> None:
    figure = show(panel, reference)
    panel.resize(*size)
    qtbot.wait(50)
    boxes = [ax.get_window_extent() for ax in figure.axes]
    width, height = figure.figure.bbox.size
    ends = [box.y1 for box in boxes] + [box.y0 for box in boxes]
    assert max(ends) - min(ends) >= 0.6 * height or boxes[0].width > 0.47 * width


def test_the_map_has_the_colors_that_are_chosen(
    viewer: Viewer, open_widget: Open, embed: Embed
) -> None:
    cells = embed(3, unlabeled=5)
    cells.obs["size"] = [*np.arange(119.0), np.nan]
    cells.obs["barcode"] = cells.obs_names
    widget = open_widget()
    widget.show_table(cells, label_key="cell_type")
    figure, panel = widget.map.canvas.map, widget.cells
    embedding, of_classes = cells.obsm["X_ce"], colors(figure)
    figure.axes[0].set(xlim=(-1, 1))
    for name in entries(panel.color_box)[1:-1]:
        panel.color_box.setCurrentText(name)
        expected = color_cells(name, panel._subject)
        found = colors(figure)
        for row in np.flatnonzero(expected.codes >= 0):
            assert found[tuple(embedding[row])] == expected.colors[expected.codes[row]]
    # The labels are chosen first, and no column of barcodes.
    panel.color_box.setCurrentText("column or variable …")
    assert panel.value_box.currentText() == "cell_type"
    panel.value_box.setCurrentIndex(entries(panel.value_box).index("size"))
    assert len({colors(figure)[tuple(embedding[row])] for row in range(119)}) == 20
    assert "█" in panel.color_text.text()
    assert figure.axes[0].get_xlim() == (-1, 1)
    panel.value_box.setCurrentIndex(entries(panel.value_box).index("barcode"))
    assert len(set(colors(figure).values())) == 101
    assert "all but the 100 largest" in panel.color_text.text()
    # Classes that are switched off are off.
    widget.session.hide_classes(frozenset({"type 0"}))
    assert len(colors(figure)) == 120 - cells.obs["cell_type"].eq("type 0").sum()
    widget.session.hide_classes(frozenset())
    # A column that has gone since is an error, and the classes have their colours again.
    del cells.obs["size"]
    panel.value_box.setCurrentIndex(entries(panel.value_box).index("size"))
    assert colors(figure) == of_classes
    panel.color_box.setCurrentText("as it was")
    assert colors(figure) == of_classes
    assert not panel.value_box.isVisible()


def test_neighbours_of_many_classes_have_different_colors(panel: MapPanel, embed: Embed) -> None:
    show(panel, embed(150, n_obs=900))
    lab = rgb2lab([to_rgb(color) for color in panel._session.class_colors.values()])
    for simplex in Delaunay(panel._session.result.centers).simplices:
        assert pdist(lab[simplex]).min() > 10


# -- a window of its own -------------------------------------------------------------------------


def test_the_map_pops_out_and_comes_back(
    viewer: Viewer, open_widget: Open, qtbot: QtBot, embed: Embed
) -> None:
    cells = embed(3)
    widget = open_widget()
    widget.show_table(cells, label_key="cell_type")
    canvas, button = widget.map.canvas, widget.map.canvas.buttons["window"]
    button.click()
    window = canvas.window()
    assert window is not widget.window()
    qtbot.waitExposed(window)
    widget.session.recolor_class(0, "#123456")
    assert "#123456" in colors(canvas.map).values()
    window.close()
    assert canvas.window() is widget.window()
    assert canvas.isVisible()
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

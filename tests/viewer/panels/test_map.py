"""The panel of the map: names, new cells above reference cells, regions and colours."""

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from napari.components import ViewerModel
from numpy.typing import NDArray
from pytestqt.qtbot import QtBot

import centroid_encoder as ce
from centroid_encoder.pl._regions import panel_limits
from centroid_encoder.viewer.map.artists import Dots
from centroid_encoder.viewer.map.colorings import color_cells
from centroid_encoder.viewer.map.figure import MapFigure
from centroid_encoder.viewer.panels.cells import CellsPanel
from centroid_encoder.viewer.panels.map import MapPanel
from centroid_encoder.viewer.session.session import Session
from centroid_encoder.viewer.session.state import State
from tests.viewer.seen import entries, names_on


@pytest.fixture
def query(embed, make_cells) -> tuple[AnnData, AnnData]:
    """Cells with a map of four classes, and new cells of two of these classes."""
    reference, new = embed(4), make_cells(4, distance=1.0)
    new = new[new.obs["cell_type"].isin(["type 0", "type 1"])].copy()
    new.obs_names = [f"new{i}" for i in range(new.n_obs)]
    ce.tl.ingest(new, reference, progress=False)
    return reference, new


@pytest.fixture
def panel(qtbot) -> MapPanel:
    return shown(MapPanel(Session()), qtbot)


def shown(panel: MapPanel, qtbot: QtBot) -> MapPanel:
    qtbot.addWidget(panel)
    panel.resize(500, 500)
    with qtbot.waitExposed(panel):
        panel.show()
    return panel


def mapped(names: list[str]) -> AnnData:
    """Ten cells of each class, with a map that was not trained."""
    adata = AnnData(np.zeros((10 * len(names), 0)))
    angles = np.linspace(0, 2 * np.pi, len(names), endpoint=False)
    centers = np.column_stack([np.cos(angles), np.sin(angles)])
    adata.obsm["X_ce"] = np.repeat(centers, 10, axis=0)
    adata.obs["kind"] = adata.obs["ce_label"] = pd.Categorical(np.repeat(names, 10), names)
    adata.obs["ce_split"] = pd.Categorical(["train"] * adata.n_obs)
    adata.uns["ce"] = {"params": {"label_key": "kind"}, "classes": names, "centers": centers}
    return adata


def show(panel: MapPanel, *tables: AnnData) -> MapFigure:
    """Add tables, and choose the last one."""
    catalog = panel._session.catalog
    for i, adata in enumerate(tables):
        catalog.choose(catalog.add(adata, f"table {i}"))
    return panel.canvas.map


def shown_names(figure: MapFigure) -> list[str]:
    """Names on the map."""
    return [name.text for name in names_on(figure.ax)]


def view(figure: MapFigure) -> NDArray[np.floating]:
    ax = figure.ax
    return np.array([ax.get_xlim(), ax.get_ylim()]).T


def dots(figure: MapFigure) -> list[Dots]:
    """Points of reference cells, and of the cells above them."""
    found = [artist for artist in figure.ax.artists if isinstance(artist, Dots)]
    return sorted(found, key=lambda artist: artist.get_zorder())


def grey(figure: MapFigure) -> NDArray[np.floating]:
    """Points of the reference cells."""
    return dots(figure)[0].points


def colors(figure: MapFigure) -> dict[tuple[float, ...], str]:
    """Colour of each point of the cells, except rings."""
    cells, is_ring = dots(figure)[1], np.isin(figure.rows, figure.scene.hollow)
    found = zip(cells.points, cells.palette[0][cells.codes], is_ring, strict=True)
    return {tuple(point): f"#{bytes(color).hex()}" for point, color, ring in found if not ring}


def test_new_cells_are_drawn_above_reference_cells(panel, query):
    reference, new = query
    figure = show(panel, new)
    # Without the reference, classes without new cells also have a region.
    assert not len(grey(figure))
    assert len(figure.scene.shapes) == 4
    assert all(map(len, figure.scene.shapes))
    (low, high), centers = view(figure), new.uns["ce"]["centers"]
    assert ((centers > low) & (centers < high)).all()
    new.obsm["X_ce"][0] = 100
    show(panel, reference, new)
    everything = np.concatenate([reference.obsm["X_ce"], new.obsm["X_ce"], centers])
    np.testing.assert_allclose(view(figure), panel_limits(everything))
    np.testing.assert_array_equal(grey(figure), reference.obsm["X_ce"])
    title = panel.canvas.title
    counted = new.uns["ce"]["compared"][["n_differing", "n"]].sum()
    text = f"{counted.iloc[0]} of {counted.iloc[1]} differ from cell_type"
    assert title.text() == f"{new.n_obs} cells placed, {text}\ngrey: reference cells"
    assert title.toolTip().endswith("pale: 120 reference cells")
    assert len(figure.scene.points) == new.n_obs
    show(panel, reference)
    assert not len(grey(figure))
    # Training cells and new cells can be in one table.
    for table in query:
        table.obs = table.obs.astype({"ce_label": str, "ce_split": str})
    both = ad.concat(query, join="outer")
    both.uns = reference.uns
    both.obs = both.obs.astype({"ce_label": "category", "ce_split": "category"})
    np.testing.assert_array_equal(grey(show(panel, both)), reference.obsm["X_ce"])


def test_new_cells_beside_training_cells_have_their_own_labels(panel, query):
    both = ad.concat(query, join="outer", uns_merge="first")
    both.obs.loc[both.obs_names[-1], "cell_type"] = np.nan
    codes = show(panel, both).scene.codes
    np.testing.assert_array_equal(codes, both.obs["cell_type"].cat.codes)


def test_names_can_be_switched_off(panel):
    # Those of many classes are hidden at first.
    figure, button = (
        show(panel, mapped([f"type {i}" for i in range(25)])),
        panel.canvas.names_action,
    )
    assert shown_names(figure) == []
    button.trigger()
    assert len(shown_names(figure)) == 25
    names = [f"a class with number {i}" for i in range(12)]
    show(panel, mapped(names))
    assert shown_names(figure) == names
    # The names do not overlap.
    boxes = [name.box for name in names_on(figure.ax)]
    for i, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:i])
    panel._session.set(hidden=frozenset(names[1:]))
    assert shown_names(figure) == names[:1]
    button.trigger()
    assert shown_names(figure) == []


def test_held_out_cells_are_rings_and_can_be_shown_alone(panel, embed):
    adata, button = embed(3), panel.canvas.buttons["held-out"]
    figure = show(panel, adata)
    held_out = np.flatnonzero(adata.obs["ce_split"] == "test")
    assert 0 < len(held_out) < 120
    assert np.array_equal(figure.scene.hollow, held_out)
    assert panel.canvas.title.text().endswith(f" of {len(held_out)} wrong (too few to tell)")
    for rows in (held_out, np.arange(120)):
        button.click()
        assert sorted(figure.rows) == rows.tolist()
    # Without held-out cells, there is no such button.
    show(panel, mapped(["A", "B"]))
    assert button.isHidden()
    assert panel.canvas.title.text() == "20 cells, none held out"


def test_decoder_regions_are_offered_for_maps_with_a_decoder(panel, embed):
    box, without = panel.regions_box, ["Voronoi cells", "no regions"]
    show(panel, embed(3))
    assert entries(box) == without
    show(panel, embed(3, placement="bottleneck"))
    assert entries(box) == [*without, "decoder regions"]
    box.setCurrentText("decoder regions")
    assert panel._session.state.regions == "decoder"
    show(panel, embed(3))
    assert entries(box) == without
    assert panel._session.state.regions == "voronoi"


@pytest.fixture
def panels(qtbot) -> tuple[MapPanel, CellsPanel]:
    """The panels of a session in which label columns are chosen as in the form."""
    session = Session()
    cells = CellsPanel(session, ViewerModel())
    qtbot.addWidget(cells)

    def choose(before: State, now: State) -> None:
        session.choose_labels("cell_type")

    session.show_in(choose)
    cells.choose = choose
    return shown(MapPanel(session), qtbot), cells


def test_a_smaller_table_can_be_chosen_during_a_training(panels, make_cells):
    panel, cells = panels
    session, adata = panel._session, make_cells()
    session.catalog.choose(session.catalog.add(adata, "cells"))
    cells.show_column("cell_type")
    run = ce.tl.centroid_encoder.job(adata, "cell_type")
    session.set(frame=(run, (adata.X[:, :2], None), "cell_type"))
    session.catalog.choose(session.catalog.add(adata[:30].copy(), "fewer"))
    assert not len(panel.canvas.map.rows)


def test_the_map_has_the_chosen_colors(panels, embed):
    adata = embed(3, unlabeled=5)
    adata.obs["size"] = [*np.arange(119.0), np.nan]
    panel, cells = panels
    figure = show(panel, adata)
    embedding, of_classes = adata.obsm["X_ce"], colors(figure)
    solid = np.setdiff1d(np.arange(120), figure.scene.hollow)
    figure.ax.set(xlim=(-1, 1))
    ways = entries(cells.color_box)
    for name in ways[: ways.index("original colours")]:
        cells.color_box.choose(name)
        expected, found = color_cells(name, panel._session), colors(figure)
        for row in np.intersect1d(solid, np.flatnonzero(expected.codes >= 0)):
            assert found[tuple(embedding[row])] == expected.colors[expected.codes[row]]
    cells.show_column("size")
    assert len({colors(figure)[tuple(embedding[row])] for row in solid[:-1]}) == 20
    assert not cells.gate.isHidden()
    assert figure.ax.get_xlim() == (-1, 1)
    # If the chosen column has been deleted, the cells have the colours of their classes.
    cells.show_column("cell_type")
    del adata.obs["size"]
    cells.show_column("size")
    assert colors(figure) == of_classes

"""Cells are selected by their values, described and labelled; a first map appears by itself."""

import numpy as np
import pytest
from anndata import AnnData
from matplotlib.colors import to_hex
from qtpy.QtCore import Qt

from centroid_encoder.viewer import CentroidEncoderWidget
from tests.viewer.seen import give_label, is_colored, marked, seen_colors


@pytest.fixture
def mapped(embed) -> AnnData:
    """Cells with a map and a column of numbers."""
    adata = embed(3)
    adata.obs["size"] = [*np.arange(119.0), np.nan]
    return adata


@pytest.fixture
def widget(mapped, open_on) -> CentroidEncoderWidget:
    return open_on(mapped)


@pytest.mark.slow
def test_the_gate_selects_cells_by_value_in_map_and_tissue(widget, viewer, mapped):
    gate, ids = widget.cells.gate, mapped.obs["cell_id"].to_numpy()
    assert gate.isHidden()
    widget.cells.show_column("size")
    assert gate.isVisible()
    for box in gate.boxes:
        assert box.lineEdit().width() > box.fontMetrics().horizontalAdvance(box.text())
    for ends, rows in (((10, 20), range(10, 21)), ((100, 118), range(100, 119))):
        gate.slider.setValue(ends)
        assert sorted(widget.map.canvas.map.selected) == list(rows)
        assert marked(viewer, viewer.layers["nuclei"]) == set(ids[list(rows)])
    # A label does not move the handles.
    give_label(widget.cells.label_button, "type 2")
    assert gate.slider.value() == (100, 118)
    # A number can be typed.
    low, high = gate.boxes
    high.setValue(110)
    assert sorted(widget.map.canvas.map.selected) == list(range(100, 111))
    low.setValue(0)
    assert sorted(widget.map.canvas.map.selected) == list(range(111))
    widget.cells.color_box.choose("label")
    assert gate.isHidden()


def test_a_part_of_a_name_is_enough_to_colour_by_it(widget, viewer, mapped, qtbot):
    box, layer = widget.cells.color_box, viewer.layers["nuclei"]
    # The labels are shown at first.
    assert box.currentText() == "label"
    assert is_colored(viewer, layer)
    for typed, found in (("ize", "size"), ("ORIG", "original colours"), ("nothing", None)):
        box.lineEdit().selectAll()
        qtbot.keyClicks(box.lineEdit(), typed)
        qtbot.keyClick(box.lineEdit(), Qt.Key.Key_Return)
        assert box.currentText() == (found or "original colours")
        assert is_colored(viewer, layer) == (found == "size")
    box.choose("size")
    assert box.lineEdit().cursorPosition() == 0


@pytest.mark.slow
def test_the_selection_is_described_and_labelled(widget, mapped):
    cells, said = widget.cells, widget.cells.selection_text
    assert said.text() == "No cell selected"
    assert cells.label_button.isHidden()
    widget.select(np.array([3]))
    name, label = mapped.obs_names[3], mapped.obs["cell_type"].iloc[3]
    assert said.text().startswith(f"{name} · cell_type: {label} · predicted: ")
    kinds = mapped.obs["cell_type"].to_numpy()
    ones, zeros = (np.flatnonzero(kinds == kind) for kind in ("type 1", "type 0"))
    rows = np.array([*ones[:2], zeros[0]])
    widget.select(rows)
    assert said.text() == "3 cells selected: 2 type 1, 1 type 0"
    give_label(cells.label_button, "type 2")
    assert set(mapped.obs["cell_type_relabeled"].iloc[rows]) == {"type 2"}
    assert np.array_equal(mapped.obs["cell_type"], kinds)


def test_cells_of_a_table_without_labels_are_described(mapped, open_on):
    widget = open_on(AnnData(mapped.X, obs=mapped.obs[[]]))
    widget.select(np.arange(3))
    assert widget.cells.selection_text.text() == "3 cells selected"


@pytest.mark.slow
def test_a_first_map_appears_by_itself_and_train_replaces_it(
    viewer, cells, open_on, train, unchanged, qtbot
):
    cells.obs["half"] = np.arange(120) % 2 == 0
    widget = open_on(cells)
    session, canvas = widget.session, widget.map.canvas
    with unchanged(cells):
        for column in ("cell_type", "half"):
            widget.form.label_key.value = column
            qtbot.waitUntil(
                lambda key=column: (
                    session.state.draft is not None and session.state.drawn.label_key == key
                ),
                timeout=60_000,
            )
            assert len(canvas.map.rows) == 120
            # A fifth of the cells is held out; its error is a number, since these are few.
            assert len(canvas.map.scene.hollow) == 24
            assert canvas.title.text().startswith("draft: ")
            assert canvas.title.text().endswith(" of 24 wrong (too few to tell)")
            colors = [session.class_colors[name] for name in cells.obs[column]]
            seen = seen_colors(viewer, viewer.layers["nuclei"], cells.obs["cell_id"])
            assert [to_hex(color) for color in seen] == colors
        # Held-out cells keep their labels.
        assert [row.n for row in widget.classes.rows] == [60, 60]
        assert widget.result is None
        assert not widget.save_row.entries["figure"].isEnabled()
    train(widget)
    assert session.state.draft is None
    assert widget.result.label_key == "half"
    assert not canvas.title.text().startswith("draft")

"""The card of a selection: its strongest features, sets to compare, groups and tables to keep."""

from unittest.mock import patch

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from numpy.typing import NDArray
from pytestqt.qtbot import QtBot
from qtpy.QtCore import Qt
from qtpy.QtWidgets import QFileDialog, QInputDialog

from centroid_encoder.core.effects import effects
from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.session.groups import Group, compare
from tests.viewer.seen import entries, is_colored

PLANTED = np.arange(0, 40)
"""Cells whose gene5 is large."""


@pytest.fixture
def mapped(embed) -> AnnData:
    """Cells with a map; one gene is large in the cells of `PLANTED`."""
    cells = embed(3)
    cells.X[PLANTED, 5] += 20
    return cells


@pytest.fixture
def widget(mapped, open_on) -> CentroidEncoderWidget:
    return open_on(mapped)


def features(widget: CentroidEncoderWidget, qtbot: QtBot) -> list[str]:
    """Names of the features that are listed, once the cells were compared."""
    panel = widget.cells.effects
    qtbot.waitUntil(lambda: panel.table is not None)
    assert panel.view.isVisible()
    return panel.view.frame.table["feature"].tolist()


def lasso(widget: CentroidEncoderWidget, rows: NDArray[np.intp]) -> None:
    """Select cells as with a lasso in the map."""
    widget.map.canvas.select(rows, "replace", "lasso")


def keep(widget: CentroidEncoderWidget, name: str | None = None) -> str:
    """Press the button for a group, and accept the proposed name or type another; return it."""
    typed = []

    def answer(*_: object, text: str) -> tuple[str, bool]:
        typed.append(text if name is None else name)
        return typed[0], True

    with patch.object(QInputDialog, "getText", answer):
        widget.cells.effects.keep_button.click()
    return typed[0]


def test_the_strongest_feature_is_first_and_a_click_colours_map_and_tissue_by_it(
    widget, viewer, mapped, qtbot
):
    panel = widget.cells.effects
    assert not panel.isVisible()
    lasso(widget, PLANTED)
    found = features(widget, qtbot)
    assert found[0] == "gene5"
    assert len(found) == 5
    assert panel.text.text() == "lasso in the map against the rest"
    expected = effects(mapped.X, np.isin(np.arange(120), PLANTED, invert=True).astype(int), 2)
    table = panel.table.loc[mapped.var_names]
    assert np.allclose(table["auroc"], expected["auroc"][0])
    assert np.allclose(table["difference_in_sd"], expected["difference"][0])
    assert np.allclose(table["mean_other"], expected["mean_rest"][0])
    tip = panel.view.frame.data(panel.view.frame.index(0, 0), Qt.ItemDataRole.ToolTipRole)
    assert "selected by their features" in tip
    at = panel.view.visualRect(panel.view.frame.index(0, 0)).center()
    qtbot.mouseClick(panel.view.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert widget.cells.color_box.currentText() == "gene5"
    assert widget.map.canvas.map.values is not None
    assert is_colored(viewer, viewer.layers["nuclei"])
    # The colours change nothing about the selection.
    assert features(widget, qtbot) == found
    widget.select(np.empty(0, dtype=np.intp))
    assert not panel.isVisible()


def test_two_sets_are_compared_until_one_is_cleared(widget, mapped, qtbot):
    panel = widget.cells.effects
    mapped.X[60:70, 2] -= 30
    lasso(widget, np.arange(60, 70))
    panel.set_buttons["A"].click()
    assert panel.set_buttons["A"].text() == "A 10"
    # Until both are set, the selection is compared with the rest.
    widget.session.select(np.arange(65, 120), how="lasso in the image", uses_features=False)
    features(widget, qtbot)
    assert set(panel.table["other"]) == {"the rest"}
    panel.set_buttons["B"].click()
    widget.select(np.empty(0, dtype=np.intp))
    assert features(widget, qtbot)[0] == "gene2"
    assert panel.text.text() == "A against B"
    assert panel.set_buttons["B"].text() == "B 55"
    one = panel.table.loc["gene2"]
    assert (one["group"], one["other"]) == ("A: lasso in the map", "B: lasso in the image")
    # Cells 65 to 69 are in both.
    assert one["mean"] == pytest.approx(mapped.X[60:65, 2].mean(), rel=1e-4)
    assert any("5 cells of both" in note for note in panel.table.attrs["notes"])
    panel.set_buttons["A"].click()
    assert not panel.isVisible()
    assert not panel.view.isVisible()


def test_two_classes_of_the_list_are_compared(widget, mapped, qtbot):
    panel = widget.cells.effects
    widget.classes.select([0, 2])
    features(widget, qtbot)
    kinds, one = mapped.obs["cell_type"].to_numpy(), panel.table.loc["gene1"]
    assert (one["group"], one["other"]) == ("type 0", "type 2")
    assert one["mean"] == pytest.approx(mapped.X[kinds == "type 0", 1].mean(), rel=1e-4)
    assert one["mean_other"] == pytest.approx(mapped.X[kinds == "type 2", 1].mean(), rel=1e-4)
    # The labels are the user's.
    assert panel.table.attrs["notes"] == []


def test_a_group_is_a_column_that_says_how_it_was_made_and_is_saved(widget, mapped, save, tmp_path):
    lasso(widget, PLANTED)
    assert keep(widget) == "selection 1"
    # A selection of several steps names all.
    widget.session.select(np.arange(9), how="lasso in the image", uses_features=False)
    widget.map.canvas.select(np.arange(5), "remove", "lasso")
    keep(widget)
    widget.classes.select([1])
    keep(widget)
    widget.cells.show_column("gene1")
    low, high = widget.cells.gate.slider.value()
    widget.cells.gate.slider.setValue((low, (low + high) / 2))
    keep(widget, "low gene1")
    kept = widget.session.state.selected.copy()
    assert {"selection 1", "selection 2", "low gene1"} <= set(entries(widget.cells.color_box))
    for taken in ("cell_type", "gene3", " ", "a/b"):
        before = mapped.obs.copy()
        keep(widget, taken)
        assert "choose another" in widget.message.text()
        pd.testing.assert_frame_equal(mapped.obs, before)
    # A group of ours may be replaced.
    lasso(widget, np.arange(3))
    keep(widget, "selection 1")
    save(widget, tmp_path / "cells.h5ad")
    saved = ad.read_h5ad(tmp_path / "cells.h5ad")
    assert saved.obs["selection 1"].dtype == bool
    assert np.flatnonzero(saved.obs["selection 1"]).tolist() == [0, 1, 2]
    assert (saved.obs["selection 3"] == (mapped.obs["cell_type"] == "type 1")).all()
    assert np.array_equal(saved.obs["low gene1"], kept)
    made = {k: (v["how"], bool(v["uses_features"])) for k, v in saved.uns["ce_selections"].items()}
    assert made == {
        "selection 1": ("lasso in the map", True),
        "selection 2": ("lasso in the image, remove lasso in the map", True),
        "selection 3": ("class type 1", False),
        "low gene1": ("gate on gene1", True),
    }


def test_all_features_are_saved_as_a_table(widget, mapped, tmp_path, qtbot):
    lasso(widget, PLANTED)
    features(widget, qtbot)
    widget.cells.effects.save_button.click()
    dialog = widget.findChild(QFileDialog)
    dialog.selectFile(str(tmp_path / "differences"))
    dialog.accept()
    # A thread writes the file.
    qtbot.waitUntil(lambda: widget.message.text() == "Saved differences.csv.")
    table = pd.read_csv(tmp_path / "differences.csv")
    assert table.columns.tolist() == [
        "feature", "auroc", "difference_in_sd", "mean", "mean_other", "share_above_zero",
        "share_above_zero_other", "group", "other",
    ]  # fmt: skip
    assert set(table["feature"]) == set(mapped.var_names)
    assert table["feature"][0] == "gene5"
    assert set(table["group"]) == {"lasso in the map"}


def test_only_the_last_selection_is_compared_and_one_cell_is_not(widget, qtbot):
    panel = widget.cells.effects
    lasso(widget, np.arange(50, 90))
    assert panel.comparing.is_due
    lasso(widget, PLANTED)
    assert panel.table is None
    assert features(widget, qtbot)[0] == "gene5"
    widget.select(np.array([3]))
    assert not panel.isVisible()
    assert not panel.view.isVisible()
    qtbot.waitUntil(widget.cells.why.isVisible)


def test_other_cells_in_the_table_clear_the_sets(widget, mapped):
    panel = widget.cells.effects
    lasso(widget, PLANTED)
    panel.set_buttons["A"].click()
    mapped._inplace_subset_obs(np.arange(120)[::-1])
    panel.set_buttons["B"].click()
    assert panel.sets == {}
    assert "other cells" in widget.message.text()


def test_large_groups_are_sampled_and_features_of_a_table_without_a_map_are_compared(
    make_cells, monkeypatch
):
    cells, rows = make_cells(), np.arange(120) < 90
    cells.X[rows, 4] += 9
    groups = Group(rows, "gate on gene4"), Group(~rows, "the rest", False)
    exact = compare(cells, None, groups)
    monkeypatch.setattr("centroid_encoder.viewer.session.groups.MAX_VALUES", 100)
    monkeypatch.setattr("centroid_encoder.viewer.session.groups.MAX_CELLS", 40)
    sampled = compare(cells, None, groups)
    pd.testing.assert_frame_equal(sampled, compare(cells, None, groups))
    assert exact.index[0] == sampled.index[0] == "gene4"
    assert "At most 40 cells of each group" in sampled.attrs["notes"][0]
    others = exact.drop(index="gene4").index
    assert not np.allclose(exact.loc[others, "mean"], sampled.loc[others, "mean"])
    # The smaller group is whole.
    assert np.allclose(exact.loc[others, "mean_other"], sampled.loc[others, "mean_other"])


def test_cells_of_confused_classes_are_named_by_both(widget, mapped):
    session = widget.session
    widget.show_mode(widget.misplaced)
    widget.misplaced.source_box.choose(None)
    view = widget.misplaced.view
    index = next(
        view.frame.index(i, j) for i in range(3) for j in range(1, 4)
        if view.frame.data(view.frame.index(i, j))
    )  # fmt: skip
    view.clicked.emit(index)
    label, predicted = f"type {index.row()}", f"type {index.column() - 1}"
    assert session.state.group.how == f"label {label}, predicted {predicted}"
    assert session.state.group.uses_features
    assert set(mapped.obs["cell_type"][session.state.selected]) == {label}
    assert set(mapped.obs["ce_label"][session.state.selected]) == {predicted}

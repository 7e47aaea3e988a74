"""Check labels: a cross-validation in the widget, from the button to the saved file."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from anndata.tests.helpers import assert_equal
from napari import Viewer
from pytestqt.qtbot import QtBot

import centroid_encoder as ce
from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.session.misplaced import OUT_OF_FOLD, REGIONS
from tests.viewer.seen import entries, open_table, seen_colors, texts

Open = Callable[[], CentroidEncoderWidget]
Do = Callable[[CentroidEncoderWidget], None]
MakeCells = Callable[..., AnnData]


@pytest.fixture
def cells(make_cells: MakeCells) -> AnnData:
    """Cells of distant classes, some with a wrong label."""
    adata = make_cells(distance=1.5)
    codes = adata.obs["cell_type"].cat.codes.to_numpy(copy=True)
    codes[::12] = (codes[::12] + 1) % 3
    adata.obs["cell_type"] = pd.Categorical.from_codes(codes, adata.obs["cell_type"].cat.categories)
    return adata


@pytest.fixture
def widget(
    viewer: Viewer, cells: AnnData, image_of: Callable[..., Any], open_widget: Open
) -> CentroidEncoderWidget:
    """The widget with a table and its layer, set to two folds."""
    viewer.add_labels(image_of(cells), name="nuclei", metadata={"adata": cells})
    widget = open_widget()
    widget.form.n_folds.value = 2
    return widget


# -- what it does --------------------------------------------------------------------------------


def test_results_are_those_of_the_function(
    widget: CentroidEncoderWidget, check: Do, cells: AnnData
):
    cells.obs["donor"] = pd.Categorical.from_codes(np.arange(120) // 40, list("abc"))
    cells.X[3, 2] = np.nan
    widget.show_table(cells)
    # A cross-validation holds out only its folds.
    widget.form.test_size.value = 0.4
    arguments = {"n_folds": 3, "group_key": "donor", "n_permutations": 1, "missing": "drop"}
    for name, value in arguments.items():
        getattr(widget.form, name).value = value
    arguments["model"] = ce.CentroidEncoder(max_epochs=3)
    wanted = ce.tl.cross_validate(cells, "cell_type", progress=False, copy=True, **arguments)
    check(widget)
    assert "against shuffled labels" in widget.misplaced.found.text()
    for adata in (cells, wanted):
        np.nan_to_num(adata.X, copy=False)
        for column in adata.obs.columns[adata.obs.dtypes == np.float32]:
            adata.obs[column] = adata.obs[column].fillna(-1)
    assert_equal(cells, wanted, exact=True)


def test_the_error_is_shown_and_doubtful_cells_are_listed(
    widget: CentroidEncoderWidget, viewer: Viewer, train: Do, check: Do, cells: AnnData
):
    train(widget)
    assert widget.misplaced.found.isHidden()
    assert OUT_OF_FOLD.name not in entries(widget.misplaced.source_box)
    embedding = cells.obsm["X_ce"]
    widget.select(np.array([7]))
    widget.form.max_epochs.value = 10
    check(widget)
    # The settings of the check are not those of the map.
    assert "max_epochs=3" in widget.message.text()
    # The map and the selection do not change.
    assert cells.obsm["X_ce"] is embedding
    assert np.flatnonzero(widget.session.selected).tolist() == [7]
    assert np.array_equal(widget.map.canvas.map.scene.points, embedding)

    quality = cells.uns["ce_cv"]["quality"]
    error, low, high = (100 * quality[f"voronoi_error{end}"] for end in ("", "_low", "_high"))
    found = widget.misplaced.found.text().replace("\u00a0", " ")
    interval = f"95 % interval {low:.1f} to {high:.1f} %, 2 folds, n = 120"
    assert f"Voronoi error of held-out cells: {error:.1f} % ({interval})" in found
    for name in ("input_knn_error", "largest_class_error"):
        assert f"{100 * quality[name]:.1f} %" in found
    assert widget.misplaced.isVisible()
    per_class = cells.uns["ce_cv"]["per_class"]
    held_out = cells.uns["ce"]["quality"]["per_class"]
    # The errors of the classes are counted by the rule in the title of the map.
    for regions, rule in (("no regions", "knn"), ("Voronoi cells", "voronoi")):
        widget.map.regions_box.setCurrentText(regions)
        rows = widget.classes.rows
        assert [row.out_of_fold for row in rows] == per_class[f"{rule}_error"].tolist()
        assert [row.error for row in rows] == held_out[f"test_{rule}_error"].tolist()
    assert widget.misplaced.source is OUT_OF_FOLD
    suspects = ce.tl.mislabeled(cells)
    assert set(suspects.index) & set(cells.obs_names[::12])
    assert widget.misplaced.model.table["cell"].tolist() == suspects.index.tolist()
    assert (
        f"For {len(suspects)} of 120 cells, the label looks wrong to networks that have not seen "
        "the cell."
    ) in texts(widget)
    widget.misplaced.view.selectRow(0)
    assert cells.obs_names[widget.session.selected].tolist() == [suspects.index[0]]
    assert widget.misplaced.label_button.text() == f"Change to {suspects['predicted'].iloc[0]}"
    # The layer shows these cells.
    layer = viewer.layers["nuclei"]
    widget.cells.color_box.choose("out-of-fold error")
    wrong = (cells.obs["ce_cv_label"] != cells.obs["cell_type"]).to_numpy()
    colors = seen_colors(viewer, layer, cells.obs["cell_id"])
    assert len(np.unique(colors[wrong], axis=0)) == len(np.unique(colors[~wrong], axis=0)) == 1
    assert not np.array_equal(colors[wrong][0], colors[~wrong][0])


def test_warnings_are_shown(widget: CentroidEncoderWidget, qtbot: QtBot, cells: AnnData):
    cells.obs["donor"] = pd.Categorical.from_codes(np.arange(120) % 4, list("abcd"))
    rates = 30 + 30 * np.eye(3, cells.n_vars)[cells.obs["cell_type"].cat.codes]
    cells.X = np.random.default_rng(0).poisson(rates).astype(np.float32)
    widget.show_table(cells)
    begun: list[str] = []
    widget.check()
    widget.training.begun.connect(lambda _: begun.append(widget.message.text()))
    qtbot.waitUntil(lambda: widget.training is None, timeout=60_000)
    assert begun[0].startswith("X looks like raw counts; log-normalise first")
    assert "'donor'" in begun[0]
    # Each warning is shown once.
    assert "'donor'" in widget.misplaced.doubts.text()
    assert widget.message.text().startswith("X looks like raw counts")
    assert "donor" not in widget.message.text()
    # Messages name no parameters: the widget has fields.
    assert "group_key" not in begun[0] + widget.misplaced.doubts.text()


def test_a_check_of_other_labels_than_those_of_the_map(
    open_widget: Open, check: Do, embed: MakeCells
):
    cells, widget = embed(), open_widget()
    cells.obs["half"] = pd.Categorical(np.where(np.arange(120) < 60, "a", "b"))
    widget.show_table(cells)
    widget.form.n_folds.value = 2
    widget.form.label_key.value = "half"
    check(widget)
    assert widget.misplaced.found.text().startswith("half: ")
    assert set(widget.misplaced.model.table["label"]) <= {"a", "b"}
    # The table shows the classes of the map; the others were not checked.
    assert all(np.isnan(row.out_of_fold) for row in widget.classes.rows)
    widget.misplaced.choose(REGIONS)
    # The chosen label column is not that of the map, and nothing was relabelled.
    assert set(widget.misplaced.model.table["label"]) <= set(cells.obs["cell_type"].cat.categories)


def test_a_map_is_read_again_if_a_check_replaces_its_labels(
    widget: CentroidEncoderWidget, train: Do, check: Do, cells: AnnData
):
    check(widget)
    widget.form.label_key.value = "ce_cv_label"
    train(widget)
    labels = cells.obs["cell_type"].astype(str)
    labels[:40] = "new"
    cells.obs["cell_type"] = labels
    widget.form.label_key.value = "cell_type"
    check(widget)
    # As in a file that is opened again, the map has no class "new".
    assert widget.result is None
    assert not len(widget.session.classes)


# -- while it runs -------------------------------------------------------------------------------


@pytest.fixture
def study(make_cells: MakeCells) -> AnnData:
    """Cells of three images, with a shift for each image."""
    adata = make_cells(n_obs=180, distance=1.5)
    image = np.arange(180) // 60
    adata.X += 2 * np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)[image]
    adata.obs["image"] = pd.Categorical.from_codes(image, list("abc"))
    adata.obs["cell_id"] = np.arange(180) % 60 + 1
    return adata


def test_several_images_give_two_errors(open_widget: Open, check: Do, study: AnnData):
    widget = open_widget()
    widget.form.n_folds.value = 3
    widget.show_table(study, label_key="cell_type")
    assert widget.catalog.image_column == "image"
    check(widget)
    ours, others = study.uns["ce_cv"], study.uns["ce_images_cv"]
    assert "group_key" not in ours["params"]
    assert others["params"]["group_key"] == "image"
    assert others["params"]["n_folds"] == 3
    text = widget.misplaced.found.text().replace("\u00a0", " ")
    first, second = (100 * found["quality"]["voronoi_error"] for found in (ours, others))
    assert f"images that the networks have seen: {first:.1f} % (95 % interval" in text
    assert f"have not seen: {second:.1f} % (95 % interval" in text
    assert "Quote the second for new images" in text
    assert "group_key" not in widget.misplaced.doubts.text()
    script = widget.save_row.script()
    assert script.count("ce.tl.cross_validate(") == 2
    assert "group_key='image'" in script
    assert "key_added='ce_images'" in script
    # The stored check is damaged.
    kept = others.pop("classes")
    widget.session.read()
    assert "Press Check labels" in widget.misplaced.doubts.text()
    others["classes"] = kept
    # If the user holds out whole images, there is no second check.
    widget.form.group_key.value = "image"
    check(widget)
    assert study.uns["ce_cv"]["params"]["group_key"] == "image"
    assert "Voronoi error of held-out cells" in widget.misplaced.found.text()
    # If each class is in one image only, the second error cannot be estimated.
    other = study[study.obs["image"] != "c"].copy()
    other.obs["cell_type"] = pd.Categorical(np.where(other.obs["image"] == "a", "x", "y"))
    other.uns.clear()
    widget.show_table(other, label_key="cell_type")
    widget.form.group_key.value = None
    check(widget)
    assert "ce_cv" in other.uns
    assert "ce_images_cv" not in other.uns
    assert widget.message.text().startswith("The error on new images could not be estimated. ")
    assert widget.misplaced.found.isVisible()


def test_an_error_shows_the_field_of_its_parameter(
    widget: CentroidEncoderWidget, check: Do, cells: AnnData, unchanged: Any
):
    cells.obs["donor"] = pd.Categorical.from_codes(np.arange(120) % 3, list("abc"))
    widget.show_table(cells)
    widget.form.n_folds.value = 4
    widget.form.group_key.value = "donor"
    with unchanged(cells):
        check(widget)
    assert "n_folds=4" in widget.message.text()
    assert widget.form.advanced.isVisible()
    widget.form.n_folds.value = 3
    assert widget.message.text() == ""
    check(widget)
    assert "3 folds by donor" in widget.misplaced.found.text()


# -- where it stays ------------------------------------------------------------------------------


def test_a_check_that_is_stored_in_the_table_is_shown(
    open_widget: Open, cells: AnnData, tmp_path: Path, check: Do, save: Callable[..., None]
):
    cells.obs["donor"] = pd.Categorical.from_codes(np.arange(120) % 4, list("abcd"))
    cells.write_h5ad(tmp_path / "cells.h5ad")
    widget = open_widget()
    open_table(widget.catalog, tmp_path / "cells.h5ad")
    widget.form.n_folds.value = 2
    check(widget)
    # A check needs no map.
    assert "ce" not in widget.session.adata.uns
    assert widget.result is None
    assert widget.misplaced.source is OUT_OF_FOLD
    assert widget.save_row.copy_action.isEnabled()
    assert not widget.save_row.save_model_action.isEnabled()
    assert widget.save_row.save_reliability_action.isEnabled()
    assert widget.form.label_key.value == "cell_type"
    found, doubted = widget.misplaced.found.text(), widget.misplaced.doubts.text()
    listed, known = widget.misplaced.model.table, widget.save_row.script()
    save(widget, tmp_path / "again.h5ad")
    again = open_table(widget.catalog, tmp_path / "again.h5ad")
    assert again is not None
    assert again.adata is not cells
    assert (widget.misplaced.found.text(), widget.misplaced.doubts.text()) == (found, doubted)
    assert widget.misplaced.found.isVisible()
    pd.testing.assert_frame_equal(widget.misplaced.model.table, listed, check_categorical=False)
    # The same as if the table had been checked here, except for its file (of as many letters, for
    # the same line breaks).
    assert widget.save_row.script() == re.sub(r"cells(?=(_ce)?\.h5ad)", "again", known)
    assert "model=ce.CentroidEncoder(" in known

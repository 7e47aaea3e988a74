"""Check labels: a cross-validation in the widget, from the button to the saved file."""

import re

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from anndata.tests.helpers import assert_equal

import centroid_encoder as ce
from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.session.misplaced import OUT_OF_FOLD, REGIONS
from tests.viewer.seen import entries, open_table, seen_colors, texts


@pytest.fixture
def cells(make_cells) -> AnnData:
    """Cells of distant classes, some with a wrong label."""
    adata = make_cells(distance=1.5)
    codes = adata.obs["cell_type"].cat.codes.to_numpy(copy=True)
    codes[::12] = (codes[::12] + 1) % 3
    adata.obs["cell_type"] = pd.Categorical.from_codes(codes, adata.obs["cell_type"].cat.categories)
    return adata


@pytest.fixture
def widget(cells, open_on) -> CentroidEncoderWidget:
    """The widget with a table and its layer, set to two folds."""
    widget = open_on(cells)
    widget.form.n_folds.value = 2
    return widget


def test_results_are_those_of_the_function(widget, check, cells):
    cells.obs["donor"] = pd.Categorical.from_codes(np.arange(120) // 40, list("abc"))
    cells.X[3, 2] = np.nan
    widget.show_table(cells)
    # A cross-validation holds out only its folds.
    widget.form.test_size.value = 0.4
    arguments = {"n_folds": 2, "group_key": "donor", "n_permutations": 1, "missing": "drop"}
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


def test_the_error_is_shown_and_doubtful_cells_are_listed(widget, viewer, train, check, cells):
    train(widget)
    assert widget.misplaced.found.isHidden()
    assert OUT_OF_FOLD.name not in entries(widget.misplaced.source_box)
    embedding = cells.obsm["X_ce"]
    widget.select(np.array([7]))
    check(widget)
    # The map and the selection do not change.
    assert cells.obsm["X_ce"] is embedding
    assert np.flatnonzero(widget.session.state.selected).tolist() == [7]
    assert np.array_equal(widget.map.canvas.map.scene.points, embedding)

    quality = cells.uns["ce_cv"]["quality"]
    error, low, high = (100 * quality[f"voronoi_error{end}"] for end in ("", "_low", "_high"))
    found = widget.misplaced.found.text().replace("\u00a0", " ")
    interval = f"95 % interval {low:.1f} to {high:.1f} %, 2 folds, n = 120"
    text = f"held-out cells in the region of another class: {error:.1f} % ({interval})"
    assert text in found
    # The list hides the result in a low card, so that it is a message, too.
    assert text in widget.message.text().replace("\u00a0", " ")
    per_class = cells.uns["ce_cv"]["per_class"]
    held_out = cells.uns["ce"]["quality"]["per_class"]
    # The errors of the classes are counted by the rule in the title of the map.
    for regions, rule in (("no regions", "knn"), ("Voronoi cells", "voronoi")):
        widget.map.regions_box.setCurrentText(regions)
        rows = widget.classes.rows
        assert [row.out_of_fold for row in rows] == per_class[f"{rule}_error"].tolist()
        assert [row.error for row in rows] == held_out[f"test_{rule}_error"].tolist()
    suspects = ce.tl.mislabeled(cells)
    assert set(suspects.index) & set(cells.obs_names[::12])
    assert widget.misplaced.model.table["cell"].tolist() == suspects.index.tolist()
    assert any(f"For {len(suspects)} of 120 cells, the label" in text for text in texts(widget))
    widget.misplaced.view.selectRow(0)
    assert cells.obs_names[widget.session.state.selected].tolist() == [suspects.index[0]]
    assert widget.misplaced.label_button.text() == f"Change to {suspects['predicted'].iloc[0]}"
    # The layer shows these cells.
    widget.cells.color_box.choose("out-of-fold error")
    wrong = (cells.obs["ce_cv_label"] != cells.obs["cell_type"]).to_numpy()
    colors = seen_colors(viewer, viewer.layers["nuclei"], cells.obs["cell_id"])
    assert len(np.unique(colors[wrong], axis=0)) == len(np.unique(colors[~wrong], axis=0)) == 1
    assert not np.array_equal(colors[wrong][0], colors[~wrong][0])


def test_warnings_are_shown(widget, check, cells):
    rates = 30 + 30 * np.eye(3, cells.n_vars)[cells.obs["cell_type"].cat.codes]
    cells.X = np.random.default_rng(0).poisson(rates).astype(np.float32)
    widget.show_table(cells)
    check(widget)
    assert widget.message.text().startswith("X looks like raw counts; log-normalise first")


def test_a_check_of_other_labels_than_those_of_the_map(open_widget, check, embed):
    cells, widget = embed(), open_widget()
    cells.obs["half"] = pd.Categorical(np.where(np.arange(120) < 60, "a", "b"))
    cells.obs["donor"] = pd.Categorical.from_codes(np.arange(120) % 4, list("abcd"))
    widget.show_table(cells)
    widget.form.n_folds.value = 2
    widget.form.label_key.value = "half"
    check(widget)
    assert widget.misplaced.found.text().startswith("half: ")
    assert set(widget.misplaced.model.table["label"]) <= {"a", "b"}
    # Messages name no parameters: the widget has fields.
    assert "'donor'" in widget.misplaced.doubts.text()
    assert "group_key" not in widget.misplaced.doubts.text()
    # The table shows the classes of the map; the others were not checked.
    assert all(np.isnan(row.out_of_fold) for row in widget.classes.rows)
    widget.misplaced.choose(REGIONS)
    # The chosen label column is not that of the map, and nothing was relabelled.
    assert set(widget.misplaced.model.table["label"]) <= set(cells.obs["cell_type"].cat.categories)


@pytest.fixture
def study(make_cells) -> AnnData:
    """Cells of three images, with a shift for each image."""
    adata = make_cells(n_obs=180, distance=1.5)
    image = np.arange(180) // 60
    adata.X += 2 * np.random.default_rng(0).normal(size=(3, 8)).astype(np.float32)[image]
    adata.obs["image"] = pd.Categorical.from_codes(image, list("abc"))
    adata.obs["cell_id"] = np.arange(180) % 60 + 1
    return adata


@pytest.mark.slow
def test_several_images_give_two_errors(open_widget, check, study):
    widget = open_widget()
    widget.form.n_folds.value = 3
    widget.show_table(study, label_key="cell_type")
    assert widget.catalog.image_column == "image"
    check(widget)
    ours, others = study.uns["ce_cv"], study.uns["ce_images_cv"]
    assert "group_key" not in ours["params"]
    assert (others["params"]["group_key"], others["params"]["n_folds"]) == ("image", 3)
    text = widget.misplaced.found.text().replace("\u00a0", " ")
    first, second = (100 * found["quality"]["voronoi_error"] for found in (ours, others))
    assert f"images that the networks have seen: {first:.1f} % (95 % interval" in text
    assert f"have not seen: {second:.1f} % (95 % interval" in text
    script = widget.save_row.script()
    assert script.count("ce.tl.cross_validate(") == 2
    assert "key_added='ce_images'" in script
    # The stored check is damaged.
    del others["classes"]
    widget.session.read()
    assert "Press Check labels" in widget.misplaced.doubts.text()
    # If each class is in one image only, the second error cannot be estimated.
    other = study[study.obs["image"] != "c"].copy()
    other.obs["cell_type"] = pd.Categorical(np.where(other.obs["image"] == "a", "x", "y"))
    other.uns.clear()
    widget.show_table(other, label_key="cell_type")
    check(widget)
    assert "ce_cv" in other.uns
    assert "ce_images_cv" not in other.uns
    assert widget.message.text().startswith("The error on new images could not be estimated. ")
    assert widget.misplaced.found.isVisible()


def test_a_check_that_is_stored_in_the_table_is_shown(open_widget, cells, tmp_path, check, save):
    cells.write_h5ad(tmp_path / "cells.h5ad")
    widget = open_widget()
    open_table(widget.catalog, tmp_path / "cells.h5ad")
    widget.form.n_folds.value = 2
    check(widget)
    # A check needs no map.
    assert "ce" not in widget.session.adata.uns
    assert widget.result is None
    keep = widget.save_row
    enabled = keep.copy_action, keep.entries["model"], keep.entries["reliability"]
    assert [action.isEnabled() for action in enabled] == [True, False, True]
    found, listed = widget.misplaced.found.text(), widget.misplaced.model.table
    script = keep.script()
    save(widget, tmp_path / "again.h5ad")
    assert open_table(widget.catalog, tmp_path / "again.h5ad").adata is not cells
    assert widget.misplaced.found.text() == found
    assert widget.misplaced.source is OUT_OF_FOLD
    pd.testing.assert_frame_equal(widget.misplaced.model.table, listed, check_categorical=False)
    # The same as if the table had been checked here, except for its file (of as many letters, for
    # the same line breaks).
    assert keep.script() == re.sub(r"cells(?=(_ce)?\.h5ad)", "again", script)
    assert "model=ce.CentroidEncoder(" in script


@pytest.mark.slow
def test_decisions_stay_in_view(viewer, cells, open_on, train, qtbot):
    widget = open_on(cells)
    viewer.window._qt_window.resize(1280, 780)
    train(widget)
    widget.show_mode(widget.misplaced)
    long = "A message of several lines. " * 20
    for part in (widget.message, widget.misplaced.found, widget.misplaced.doubts):
        part.say(long, "warning")
    qtbot.wait(50)
    for button in (widget.misplaced.label_button, widget.misplaced.right_button):
        assert not button.visibleRegion().isEmpty()
        assert button.visibleRegion().boundingRect() == button.rect()
    widget.show_mode(widget.cells)
    assert not widget.misplaced.right_button.isVisible()

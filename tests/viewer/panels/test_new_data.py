"""New data: cells of another table are placed in a map, saved and opened again."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from anndata.tests.helpers import assert_equal
from matplotlib.colors import to_hex
from qtpy.QtWidgets import QFileDialog, QPushButton

import centroid_encoder as ce
from centroid_encoder.viewer import CentroidEncoderWidget
from centroid_encoder.viewer.map.colorings import GREY
from centroid_encoder.viewer.panels.map import describe
from centroid_encoder.viewer.panels.new_data import NewDataPanel
from tests.viewer.seen import entries, give_label, is_colored, open_table, seen_colors

Do = Callable[[CentroidEncoderWidget], None]


@pytest.fixture
def cells(embed) -> AnnData:
    """Cells of classes that overlap a little, with a map."""
    return embed()


@pytest.fixture
def others(make_cells) -> AnnData:
    """New cells of the same classes, without labels."""
    adata = make_cells(n_obs=150, distance=1.0)
    adata.X += np.random.default_rng(1).normal(0, 0.5, adata.shape).astype(np.float32)
    adata.obs_names = [f"new{i}" for i in range(150)]
    del adata.obs["cell_type"]
    return adata


@pytest.fixture
def widget(viewer, cells, others, image_of, open_on) -> CentroidEncoderWidget:
    """The widget with a map, and another table with its own layer."""
    viewer.add_labels(image_of(others, 1), name="other", metadata={"adata": others})
    widget = open_on(cells)
    choose(widget, cells)
    return widget


def choose(widget: CentroidEncoderWidget, adata: AnnData) -> None:
    """Choose a table by its AnnData."""
    widget.catalog.choose(next(t for t in widget.catalog.tables if t.adata is adata))


@pytest.fixture
def send(qtbot) -> Do:
    """Press Map new data, and wait for the end."""

    def run(widget: CentroidEncoderWidget) -> None:
        widget.new_data.map_button.click()
        qtbot.waitUntil(lambda: widget.new_data.task is None, timeout=60_000)

    return run


def test_results_are_those_of_the_function(widget, send, cells, others):
    panel = widget.new_data
    others.layers["logged"] = others.X.copy()
    others.layers["logged"][3, 2] = np.nan
    others.X = None
    panel.table_box.currentIndexChanged.emit(0)
    panel.features.value = "layers: logged"
    arguments = {"key_added": "mine", "min_confidence": 0.8, "missing": "estimate"}
    for name, value in arguments.items():
        panel.form.fields[name].value = value
    arguments["layer"] = "logged"
    colors = [row.color for row in widget.classes.rows]
    expected = others.copy()
    ce.tl.ingest(expected, cells, progress=False, **arguments)
    send(widget)
    assert widget.catalog.table.adata is others
    # The reference is the name of its table, and the colours are those of the widget.
    assert others.uns["mine"]["params"].pop("ingested_from") == "nuclei: AnnData"
    expected.uns["mine"]["params"].pop("ingested_from")
    assert list(others.uns.pop("mine_label_colors"))[:3] == colors
    assert others.uns["mine"].pop("colors").tolist() == colors
    for adata in (others, expected):
        np.nan_to_num(adata.layers["logged"], copy=False)
    assert_equal(others, expected, exact=True)


def test_a_table_without_a_map_can_be_placed_in_another_one(widget, cells, others, qtbot):
    assert widget.new_data.place_button.isHidden()
    choose(widget, others)
    assert widget.new_data.place_button.isVisible()
    assert widget.new_data.place_button.text().startswith("Place in the map of ")
    widget.new_data.place_button.click()
    qtbot.waitUntil(lambda: widget.new_data.task is None, timeout=60_000)
    assert widget.session.adata is others
    expected = ce.tl.ingest(others, cells, copy=True, progress=False)
    assert (others.obs["ce_label"] == expected.obs["ce_label"]).all()
    assert widget.new_data.place_button.isHidden()


def test_placed_cells_with_labels_get_no_offer_to_train(widget, others, qtbot):
    others.obs["Class"] = pd.Categorical(["T cell", "B cell"] * 75)
    choose(widget, others)
    widget.new_data.place_button.click()
    qtbot.waitUntil(lambda: widget.new_data.task is None, timeout=60_000)
    assert widget.session.label_key == "Class"
    assert widget.session.shown_labels == "ce_label"
    assert "press Train for a map" not in widget.notes.log.toPlainText()


def test_the_widget_goes_to_the_new_cells(widget, viewer, send, others, cells):
    assert entries(widget.new_data.table_box) == ["other: AnnData"]
    widget.new_data.confidence.value = 0.7
    send(widget)
    assert widget.data.table_box.currentText() == "other: AnnData"
    assert widget.catalog.layer is viewer.layers["other"]
    assert widget.catalog.join.joined.all()
    n = int((others.obs["ce_label"] == "unassigned").sum())
    assert 0 < n < 150
    assert widget.message.text().startswith(
        f"150 cells placed in the map of nuclei: AnnData, {n} unassigned."
    )
    assert np.array_equal(widget.map.canvas.map.scene.points, others.obsm["X_ce"])
    # Cells are coloured by class; those without a class are grey.
    assert widget.cells.color_box.currentText() == "predicted class"
    legend = {row.name: row.color for row in widget.classes.rows} | {"unassigned": GREY}
    colors = seen_colors(viewer, widget.catalog.layer, others.obs["cell_id"])
    seen = [to_hex(color) for color in colors]
    assert seen == [legend[name] for name in others.obs["ce_label"]]
    # These cells have no labels, and thus no errors.
    assert widget.misplaced.model.rowCount() == 0
    assert "no labels to check" in widget.misplaced.summary.text()
    assert all(np.isnan(row.error) for row in widget.classes.rows)
    assert not is_colored(viewer, viewer.layers["nuclei"])

    # The training cells and their map have not changed.
    choose(widget, cells)
    assert len(widget.map.canvas.map.rows) == cells.n_obs
    assert not is_colored(viewer, viewer.layers["other"])
    # A second job replaces the first result.
    widget.new_data.confidence.value = 0
    send(widget)
    assert "unassigned" not in others.obs["ce_label"].cat.categories


def test_mapped_cells_can_be_relabelled_saved_and_opened(
    widget, send, others, tmp_path, save, train, unchanged
):
    widget.new_data.novelty.value = 0.5
    send(widget)
    assert (others.obs["ce_label"] == "unassigned").any()
    # A training on predicted labels does not replace these labels.
    assert widget.form.label_key.value == "ce_label"
    with unchanged(others):
        train(widget)
    assert "choose another column under Classes" in widget.message.text()
    assert "key_added" not in widget.message.text()
    widget.select(np.array([0, 1]))
    give_label(widget.cells.label_button, "type 1")
    assert others.obs["ce_label_relabeled"].iloc[:2].tolist() == ["type 1", "type 1"]
    save(widget, tmp_path / "mapped.h5ad")
    assert not widget.save_row.entries["reliability"].isEnabled()
    open_table(widget.catalog, tmp_path / "mapped.h5ad")
    assert np.array_equal(widget.map.canvas.map.scene.points, others.obsm["X_ce"])
    # The saved table contains the map, in which more cells can be placed.
    assert widget.new_data.map_button.isEnabled()
    script = widget.save_row.script()
    assert "max_novelty=0.5" in script
    assert "belongs to the table 'nuclei: AnnData'" in script


@pytest.mark.slow
def test_cells_with_missing_values_are_left_out_if_they_are_few_or_after_a_question(
    widget, viewer, send, others, qtbot, unchanged
):
    others.X[[3, 50], 2] = np.nan
    send(widget)
    assert "2 of 150 cells are left out" in widget.message.text()
    assert np.isnan(others.obsm["X_ce"]).any(axis=1).nonzero()[0].tolist() == [3, 50]
    assert set(range(150)) - set(widget.map.canvas.map.rows) == {3, 50}
    colors = seen_colors(viewer, viewer.layers["other"], others.obs["cell_id"].iloc[[3, 50, 60]])
    assert colors[:, 3].astype(bool).tolist() == [False, False, True]
    widget.select(np.array([3]))
    assert "predicted: –" in "\n".join(describe(widget.session, 3, widget.result))
    assert "missing='drop'" in widget.save_row.script()
    # Many cells are left out only after a question.
    others.X[:20, 2] = np.nan
    choose(widget, next(t.adata for t in widget.catalog.tables if t.adata is not others))
    with unchanged(others):
        send(widget)
    panel = widget.new_data
    assert "21 NaN" in panel.message.text()
    next(x for x in panel.cures.findChildren(QPushButton) if "Leave out" in x.text()).click()
    qtbot.waitUntil(lambda: panel.task is None, timeout=60_000)
    assert np.isnan(others.obsm["X_ce"][:, 0]).sum() == 21


@pytest.mark.slow
def test_the_new_cells_can_be_opened_from_a_file(
    widget, monkeypatch, qtbot, send, others, tmp_path
):
    others.write_h5ad(tmp_path / "new.h5ad")
    (tmp_path / "none.h5ad").write_text("no table")
    panel, before = widget.new_data, widget.catalog.table
    monkeypatch.setattr(
        QFileDialog, "getOpenFileName", lambda *_: (str(tmp_path / "none.h5ad"), "")
    )
    panel.open_button.click()
    panel.opening.cancel()
    assert panel.map_button.isEnabled()
    for name in ("none", "new"):
        path = str(tmp_path / f"{name}.h5ad")
        monkeypatch.setattr(QFileDialog, "getOpenFileName", lambda *_, path=path: (path, ""))
        panel.open_button.click()
        assert panel.opening.task is not None
        # Another table is chosen until then.
        assert not panel.map_button.isEnabled()
        qtbot.waitUntil(panel.map_button.isEnabled, timeout=60_000)
        assert panel.opening.task is None
        if name == "none":
            assert panel.message.text().startswith("none.h5ad cannot be read: ")
    assert panel.message.text() == ""
    assert widget.catalog.table is before
    assert panel.table_box.currentText() == "new.h5ad"
    send(widget)
    assert widget.data.table_box.currentText() == "new.h5ad"
    assert "X_ce" in widget.catalog.table.adata.obsm
    assert "X_ce" not in others.obsm


@pytest.mark.slow
def test_a_map_that_was_trained_on_the_new_cells_is_not_replaced(
    widget, send, cells, others, embed, unchanged
):
    panel, own = widget.new_data, embed(n_obs=150)
    others.obs["cell_type"] = others.obs_names  # not the labels of this map
    others.uns, others.obsm = own.uns, own.obsm
    with unchanged(others):
        send(widget)
    assert "has a map of its own" in panel.message.text()
    assert panel.message.kind == "error"
    assert widget.catalog.table.adata is cells
    panel.key_added.value = "mapped"
    assert panel.message.text() == ""
    send(widget)
    assert widget.catalog.table.adata is others
    assert widget.result.key == "mapped"


def test_the_widget_stays_at_a_third_table_that_the_user_has_chosen(
    widget, qtbot, others, make_cells
):
    widget.new_data.map_button.click()
    third = make_cells(n_obs=60)
    widget.show_table(third, name="third")
    qtbot.waitUntil(lambda: widget.new_data.task is None, timeout=60_000)
    assert "X_ce" in others.obsm
    assert widget.catalog.table.adata is third


def shown_cures(panel: NewDataPanel) -> list[QPushButton]:
    return [x for x in panel.cures.findChildren(QPushButton) if not x.isHidden()]


@pytest.mark.slow
@pytest.mark.parametrize("n_absent", [1, 4])
def test_cells_without_some_features_have_a_way_into_the_map(
    widget, send, cells, others, qtbot, unchanged, n_absent
):
    panel, lacking = widget.new_data, others[:, n_absent:].copy()
    lacking.X[0, 0] = np.nan
    panel.table_box.choose(table := widget.catalog.add(lacking, "lacking"))
    with unchanged(lacking):
        send(widget)
    # One line names them; no cell can be left out.
    text = panel.message.text()
    assert f"lacks {n_absent} of the 8 features that the map uses: " in text
    assert all(name in text for name in others.var_names[:n_absent])
    assert "max_missing" not in text
    assert [x.text() for x in shown_cures(panel)] == ["Estimate the values"]
    shown_cures(panel)[0].click()
    qtbot.waitUntil(lambda: panel.task is None, timeout=60_000)
    assert widget.catalog.table.adata is lacking
    assert np.isfinite(lacking.obsm["X_ce"]).all()
    assert "they are estimated from the others" in widget.notes.log.toPlainText()
    # The limit is not forgotten in the script.
    assert "max_missing=1.0" in widget.save_row.script()
    # The field is set now; beyond the limit, the question comes again.
    choose(widget, cells)
    panel.table_box.choose(table)
    send(widget)
    assert [x.text() for x in shown_cures(panel)] == ["Estimate the values"] * (n_absent == 4)


@pytest.mark.slow
def test_doubtful_cells_get_a_parent(widget, send, cells, others):
    """The columns that group the classes of the map are offered."""
    names = cells.obs["cell_type"].cat.categories
    groups = dict(zip(names, ["ab", "ab", *names[2:]], strict=True))
    cells.obs["group"] = pd.Categorical(cells.obs["cell_type"].map(groups))
    cells.obs["donor"] = pd.Categorical(np.arange(cells.n_obs) % 2)
    panel = widget.new_data
    widget.session.read()
    panel.offer()
    assert list(panel.parents.choices) == ["", "group"]
    panel.parents.value = "group"
    panel.confidence.value = 0.9
    send(widget)
    assert "ab" in set(others.obs["ce_label"])
    expected = others.copy()
    ce.tl.ingest(expected, cells, min_confidence=0.9, parents="group", progress=False)
    assert (expected.obs["ce_label"].astype(str) == others.obs["ce_label"].astype(str)).all()


@pytest.mark.slow
def test_new_cells_with_labels_are_reviewed(widget, send, cells, others):
    others.obs["cell_type"] = [f"type {i % 3}" for i in range(150)]
    send(widget)
    differs = others.obs["ce_label"].astype(str) != others.obs["cell_type"]
    n = int(differs.sum())
    assert 0 < n < 150
    text = f"150 cells placed, {n} of 150 differ from cell_type\ngrey: reference cells"
    assert widget.map.canvas.title.text() == text
    assert len(widget.misplaced.model.table) == n


def test_a_sample_that_differs_is_reported(widget, send, others):
    others.X = others.X + 2 * np.random.default_rng(0).normal(size=others.n_vars)
    send(widget)
    assert "of the labels may be wrong" in widget.message.text()
    expected = others.uns["ce"]["params"]["expected_error"]
    assert expected > 0.15
    text = f"150 cells placed, about {100 * expected:.0f} % may be wrong\ngrey: reference cells"
    assert widget.map.canvas.title.text() == text

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from napari.layers import Labels
from qtpy.QtTest import QTest

import centroid_encoder as ce
from centroid_encoder.viewer.data.tables import find_tables
from centroid_encoder.viewer.panels.form import TrainingForm


@pytest.fixture
def form(qtbot) -> TrainingForm:
    form = TrainingForm()
    qtbot.addWidget(form)
    return form


def categorical(n: int, n_categories: int) -> pd.Categorical:
    names = [f"c{i}" for i in range(n_categories)]
    return pd.Categorical.from_codes(np.arange(n) % n_categories, names)


@pytest.fixture
def table(make_cells) -> AnnData:
    """Cells with columns of many types."""
    adata = make_cells(n_obs=1200)
    adata.obs["name"] = categorical(1200, 1100)
    adata.obs["area"] = np.linspace(0, 1, 1200)
    adata.obs["cell_id"] = np.arange(1200)
    adata.obs["cluster"] = np.where(np.arange(1200) % 9, np.arange(1200) % 3, np.nan)
    adata.obs["alive"] = np.arange(1200) % 2 == 0
    adata.obs["donor"] = categorical(1200, 4)
    return adata


def test_columns_of_labels_are_offered_the_likeliest_first(form, table):
    form.set_adata(table)
    choices = ("cell_type", "donor", "cluster", "alive", "name")
    assert form.label_key.choices[1:] == choices
    assert form.label_key.value == "cell_type"
    assert form.hint.isHidden()
    form.set_adata(AnnData(table.X, obs=table.obs[["area"]]))
    assert form.label_key.value is None
    assert "cluster the cells" in form.hint.text()
    form.set_adata(None)
    assert form.hint.isHidden()


@pytest.mark.parametrize(
    ("columns", "likely"),
    [
        (["donor", "Phenotype"], "Phenotype"),
        (["ce_label", "my_celltype_v2"], "my_celltype_v2"),
        (["leiden", "cell_type"], "cell_type"),
        (["donor", "batch"], "donor"),
    ],
)
def test_the_label_column_is_guessed_by_its_name(form, columns, likely):
    obs = pd.DataFrame({name: categorical(6, 2) for name in columns})
    form.set_adata(AnnData(np.zeros((6, 2)), obs=obs.set_axis(list("abcdef"))))
    assert form.label_key.value == likely


def test_a_column_with_one_value_has_no_classes_to_guess(form):
    obs = pd.DataFrame({"region": categorical(6, 1), "leiden": categorical(6, 2)}, list("abcdef"))
    for names, likely in ((["region", "leiden"], "leiden"), (["region"], None)):
        form.set_adata(AnnData(np.zeros((6, 2)), obs=obs[names]))
        assert form.label_key.value == likely


def test_representations_are_offered_but_not_results(form, table):
    table.layers["scaled"] = table.X
    for name in ("X_pca", "spatial", "spatial_microns"):
        table.obsm[name] = table.X[:, :2]
    model = ce.CentroidEncoder(hidden=(4,), max_epochs=1)
    ce.tl.centroid_encoder(table, "donor", model=model, key_added="mine", progress=False)
    form.set_adata(table)
    assert form.features.choices == ("X", "layers: scaled", "obsm: X_pca")
    del table.X
    form.set_adata(table)
    assert form.features.choices == ("layers: scaled", "obsm: X_pca")


def test_choices_are_kept_if_another_table_has_them(form, table, make_cells):
    table.layers["scaled"] = table.X
    form.set_adata(table)
    form.label_key.value = "donor"
    form.group_key.value = "cell_type"
    form.features.value = "layers: scaled"
    assert form.unlabeled_category.choices == (None, "c0", "c1", "c2", "c3")
    form.unlabeled_category.value = "c1"
    form.set_adata(table)
    expected = {"layer": "scaled", "group_key": "cell_type", "unlabeled_category": "c1"}
    for adata, label_key, parameters in (
        (table, "donor", expected),
        (make_cells(), "cell_type", {"group_key": "cell_type"}),
        (None, None, {}),
    ):
        form.set_adata(adata)
        assert (form.label_key.value, form.parameters()) == (label_key, parameters)


def test_fields_that_were_changed_are_arguments(form, table):
    table.layers["a: b"] = table.X
    form.set_adata(table)
    changed = {"test_size": 0.35, "n_components": 3, "placement": "bottleneck"}
    for name, value in changed.items():
        getattr(form, name).value = value
    form.features.value = "layers: a: b"
    assert form.parameters() == changed | {"layer": "a: b"}
    form.features.value = "X"
    form.placement.value = "voronoi"
    assert form.parameters() == {"test_size": 0.35, "n_components": 3}
    assert form.max_epochs.native.placeholderText() == "auto"
    form.max_epochs.value = " 7 "
    assert form.parameters()["model"].get_params()["max_epochs"] == 7
    # Only digits can be typed.
    form.max_epochs.value = ""
    QTest.keyClicks(form.max_epochs.native, "few")
    assert form.max_epochs.value == ""


def test_variables_are_chosen_as_in_the_function(form, table):
    table.var["marker"] = np.arange(8) < 3
    form.set_adata(table)
    form.mask_var.value = "marker"
    assert form.parameters() == {"mask_var": "marker"}

    other = table.copy()
    other.var["highly_variable"] = np.arange(8) < 5
    del other.var["marker"]
    form.set_adata(other)
    assert form.mask_var.value == "highly_variable"
    assert form.parameters() == {}
    form.mask_var.value = None
    assert form.parameters() == {"mask_var": None}
    # The table is set again after each training.
    form.set_adata(other)
    assert form.parameters() == {"mask_var": None}
    # A representation has no variables.
    other.obsm["X_pca"] = other.X
    form.set_adata(other)
    form.features.value = "obsm: X_pca"
    assert form.parameters() == {"use_rep": "X_pca"}


def test_the_field_of_a_wrong_parameter_is_shown(form, qtbot):
    qtbot.addWidget(form.advanced)
    for name, is_advanced in (("label_key", False), ("model", False), ("missing", True)):
        form.point_at(name)
        assert form.advanced.isVisible() == is_advanced


def test_labels_among_the_variables_are_left_out(form):
    features = pd.DataFrame({"area": np.linspace(1, 2, 12), "grade": np.arange(12) % 3})
    layer = Labels(np.arange(13)[None], features=features.assign(index=np.arange(1, 13)))
    (table,) = find_tables([layer], [])
    form.set_adata(table.adata, "grade")
    mask = form.parameters()["mask_var"]
    assert table.adata.var_names[mask].tolist() == ["area"]
    # A variable that only has the same name as the labels is kept.
    table.adata.obs["grade"] = pd.Categorical(["a", "b"] * 6)
    form.set_adata(table.adata, "grade")
    assert "mask_var" not in form.parameters()

"""Pictures that were made without labels: chosen, or shown before there are labels."""

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.preprocessing import scale

from centroid_encoder.viewer.session.planes import COMPONENTS, components, representations
from tests.viewer.seen import names_on


@pytest.fixture
def unlabelled(table) -> ad.AnnData:
    """Cells without any label column, and a representation of them."""
    table.obs = table.obs[[]]
    return table


def places(widget) -> np.ndarray:
    """Places of all cells in the map."""
    return widget.map.canvas.map.scene.points


def choose(widget, text: str) -> None:
    """Choose an entry of the menu above the map."""
    widget.map.menu.aboutToShow.emit()
    next(x for x in widget.map.menu.actions() if x.text() == text).trigger()


def test_without_labels_the_components_are_shown(open_widget, unlabelled, qtbot):
    widget = open_widget()
    widget.show_table(unlabelled)
    qtbot.waitUntil(lambda: len(places(widget)) == unlabelled.n_obs)
    expected = PCA(2).fit_transform(scale(unlabelled.X.astype(float)))
    for own, other in zip(places(widget).T, expected.T, strict=True):
        assert abs(np.corrcoef(own, other)[0, 1]) > 0.999
    assert widget.map.canvas.title.text().endswith("made without labels: no error is known")
    # The lasso selects cells, which are labelled on this picture.
    widget.map.canvas.select(np.arange(5), "replace", "lasso")
    widget.label.start_button.click()
    assert len(places(widget)) == unlabelled.n_obs
    widget.label.name_line.setText("T cell")
    widget.label.add_class()
    widget.label.label("T cell")
    assert names_on(widget.map.canvas.map.ax)[0].text == "T cell"


def test_a_umap_is_preferred_and_places_are_no_features(open_widget, unlabelled):
    n = unlabelled.n_obs
    unlabelled.obsm["spatial"] = np.random.default_rng(0).uniform(size=(n, 2))
    unlabelled.obsm["X_umap"] = np.random.default_rng(1).uniform(size=(n, 2))
    widget = open_widget()
    widget.show_table(unlabelled)
    assert_array_equal(places(widget), unlabelled.obsm["X_umap"])
    choose(widget, "spatial")
    # The first row of an image is at the top.
    assert_array_equal(places(widget), unlabelled.obsm["spatial"] * [1, -1])
    widget.map.canvas.select(np.arange(5), "replace", "lasso")
    assert not widget.session.state.group.uses_features


def test_a_map_and_a_picture_without_labels_can_be_exchanged(open_widget, embed):
    mapped = embed()
    mapped.obsm["X_umap"] = np.random.default_rng(1).uniform(size=(mapped.n_obs, 2))
    widget = open_widget()
    widget.show_table(mapped)
    assert_array_equal(places(widget), mapped.obsm["X_ce"])
    assert representations(mapped) == ["X_umap"]
    choose(widget, "X_umap")
    assert_array_equal(places(widget), mapped.obsm["X_umap"])
    assert not len(widget.map.canvas.map.scene.shapes)
    choose(widget, "Centroid-Encoder map")
    assert_array_equal(places(widget), mapped.obsm["X_ce"])
    assert len(widget.map.canvas.map.scene.shapes) == 3
    # Another table has its own.
    choose(widget, "X_umap")
    widget.show_table(embed(random_state=1), name="other")
    assert widget.session.state.plane is None


def test_two_columns_or_genes(open_widget, embed):
    mapped = embed()
    mapped.obs["size"] = np.arange(mapped.n_obs)
    mapped.obs["kind"] = pd.Categorical(["a", "b"] * (mapped.n_obs // 2))
    widget = open_widget()
    widget.show_table(mapped)
    name = mapped.var_names[0]
    widget.session.set(plane=("size", name))
    assert_allclose(places(widget), np.column_stack([mapped.obs["size"], mapped.X[:, 0]]))
    widget.session.set(plane=("size", "kind"))
    assert "does not hold numbers" in widget.message.text()
    assert_array_equal(places(widget), mapped.obsm["X_ce"])


def test_components_of_sparse_and_incomplete_values(make_cells):
    adata = make_cells()
    found = components(adata)
    adata.X[3, 0] = np.nan
    assert np.isnan(components(adata)[3]).all()
    assert np.isfinite(components(adata)[4:]).all()
    adata.X[3, 0] = 0
    # Sparse values are centered, but not scaled.
    expected = np.abs(PCA(2).fit_transform(adata.X.astype(float)))
    adata.X = sparse.csr_matrix(adata.X)
    assert_allclose(np.abs(components(adata)), expected, rtol=1e-3, atol=1e-3)
    assert found.shape == expected.shape
    assert COMPONENTS not in representations(adata)

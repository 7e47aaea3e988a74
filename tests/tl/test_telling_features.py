"""Features that separate classes: their AUROC, any storage, and few features that are alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anndata as ad
import dask.array as da
import numpy as np
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal
from scipy import sparse
from sklearn.metrics import roc_auc_score

import centroid_encoder as ce
from centroid_encoder.tl._telling_features import MAX_CELLS


@pytest.fixture
def trained(make_cells: Callable[..., ad.AnnData]) -> ad.AnnData:
    """Overlapping classes of rounded values, with ties; the last cell is mislabeled."""
    cells = make_cells(n_obs=240, n_vars=12, distance=1.5)
    cells.X = np.round(cells.X)
    cells.obs.iloc[-1, 0] = "type 0"
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=8, device="cpu")
    ce.tl.centroid_encoder(cells, "cell_type", model=model, progress=False)
    return cells


def labels_of(adata: ad.AnnData, table):
    return table["class"].iloc[0], table["other"].iloc[0]


def test_auroc_and_quantiles_are_those_of_the_labeled_cells(trained):
    cell = ce.tl.misplaced(trained).index[0]
    table = ce.tl.telling_features(trained, cell, n_features=12)
    assert set(table.index) == set(trained.var_names)
    assert (table["value"] == trained[cell, table.index].X.ravel()).all()
    first, other = labels_of(trained, table)
    assert first == trained.obs.loc[cell, "cell_type"]
    assert other == trained.obs.loc[cell, "ce_label"]
    labels = trained.obs["cell_type"]
    both = trained[labels.isin([first, other])]
    is_first = both.obs["cell_type"] == first
    for name, row in table.iterrows():
        values = both[:, name].X.ravel()
        assert row["auroc"] == pytest.approx(roc_auc_score(is_first, values))
        ends = np.quantile(values[is_first], [0.1, 0.5, 0.9])
        assert_allclose(row[["low", "median", "high"]].astype(float), ends)
        ends = np.quantile(values[~is_first], [0.1, 0.5, 0.9])
        assert_allclose(row[["other_low", "other_median", "other_high"]].astype(float), ends)
    distance = (table["auroc"] - 0.5).abs()
    assert distance.iloc[0] == distance.max()


def test_a_cell_in_its_class_is_compared_with_the_second_likeliest(trained):
    model = ce.tl.fitted_model(trained, device="cpu")
    probabilities = model.predict_proba(trained.to_df())
    right = np.flatnonzero(trained.obs["cell_type"].astype(str) == trained.obs["ce_label"])
    for row in right[:20]:
        table = ce.tl.telling_features(trained, trained.obs_names[row])
        first, other = labels_of(trained, table)
        assert first == trained.obs["ce_label"].iloc[row]
        others = probabilities[row] * (model.classes_ != first)
        assert other == model.classes_[others.argmax()]


def test_storage_and_order_of_the_cells_do_not_matter(trained, tmp_path: Path):
    cell = ce.tl.misplaced(trained).index[0]
    expected = ce.tl.telling_features(trained, cell)
    others = [trained[::-1].copy()]
    for convert in (sparse.csr_matrix, sparse.csc_matrix, lambda X: da.from_array(X, (50, -1))):
        others.append(trained.copy())
        others[-1].X = convert(trained.X)
    trained.write_h5ad(tmp_path / "cells.h5ad")
    others.append(ad.read_h5ad(tmp_path / "cells.h5ad", backed="r"))
    for other in others:
        assert_frame_equal(ce.tl.telling_features(other, cell), expected)


def test_copies_of_a_feature_are_listed_after_different_ones(make_cells):
    cells = make_cells(n_obs=300, n_vars=6, distance=1.0)
    copies = np.tile(cells.X[:, [0]], 20) + np.linspace(0, 1, 20, dtype=np.float32)
    wide = ad.AnnData(np.hstack([cells.X, copies]), obs=cells.obs)
    wide.var_names = [*cells.var_names, *(f"copy{i}" for i in range(20))]
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=5, device="cpu")
    ce.tl.centroid_encoder(wide, "cell_type", model=model, progress=False)
    table = ce.tl.telling_features(wide, "cell0", n_features=6)
    assert sum(name.startswith("copy") or name == "gene0" for name in table.index) == 1


def test_only_features_of_the_map_are_listed_and_gaps_are_filled(make_cells):
    cells = make_cells(n_obs=240)
    cells.var["marker"] = np.arange(8) < 3
    cells.X[:40, 1] = np.nan
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=5, device="cpu")
    options = {"mask_var": "marker", "missing": "mean", "progress": False}
    ce.tl.centroid_encoder(cells, "cell_type", model=model, **options)
    table = ce.tl.telling_features(cells, "cell0", n_features=9)
    assert sorted(table.index) == ["gene0", "gene1", "gene2"]
    assert np.isnan(table.loc["gene1", "value"])
    assert table.drop(columns="value").notna().all(axis=None)


def test_quantiles_are_those_of_the_values_that_are_there(make_cells):
    cells = make_cells(n_classes=2, n_obs=200, distance=0)
    is_first = (cells.obs["cell_type"] == "type 0").to_numpy()
    cells.X[~is_first, 2] += 10
    cells.X[np.random.default_rng(0).random(200) < 0.6, 2] = np.nan
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=5, device="cpu")
    ce.tl.centroid_encoder(cells, "cell_type", missing="mean", model=model, progress=False)
    row = ce.tl.telling_features(cells, classes=("type 0", "type 1"), n_features=1).iloc[0]
    assert row.name == "gene2"
    for prefix, mask in (("", is_first), ("other_", ~is_first)):
        names = [f"{prefix}{end}" for end in ("low", "median", "high")]
        expected = np.nanquantile(cells.X[mask, 2].astype(float), [0.1, 0.5, 0.9])
        assert_allclose(row[names].astype(float), expected)


def test_the_sample_of_a_large_class_is_always_the_same(make_cells):
    cells = make_cells(n_classes=2, n_obs=2 * MAX_CELLS + 400, distance=0.5)
    model = ce.CentroidEncoder(hidden=(8,), max_epochs=2, device="cpu")
    ce.tl.centroid_encoder(cells, "cell_type", model=model, progress=False)
    table = ce.tl.telling_features(cells, "cell0")
    assert_frame_equal(table, ce.tl.telling_features(cells, "cell0"))
    first = cells.obs["cell_type"] == table["class"].iloc[0]
    exact = [roc_auc_score(first, cells[:, name].X.ravel()) for name in table.index]
    assert_allclose(table["auroc"], exact, atol=0.05)


def test_ingested_cells_are_compared_by_their_predicted_classes(trained, make_cells):
    query = make_cells(n_obs=60, n_vars=12, distance=1.5)[:, ::-1].copy()
    ce.tl.ingest(query, trained, progress=False)
    table = ce.tl.telling_features(query, "cell0")
    assert table["class"].iloc[0] == query.obs["ce_label"].iloc[0]
    assert (table["value"] == query["cell0", table.index].X.ravel()).all()
    for end, name in (("median", table["class"].iloc[0]), ("other_median", table["other"].iloc[0])):
        own = query[query.obs["ce_label"] == name, table.index].X
        assert_allclose(table[end], np.median(own, axis=0), rtol=1e-6)


def test_errors_name_what_is_wrong(trained):
    with pytest.raises(KeyError, match="cell0"):
        ce.tl.telling_features(trained, "cel0")
    with pytest.raises(ValueError, match="n_features"):
        ce.tl.telling_features(trained, "cell0", n_features=0)
    with pytest.raises(KeyError, match="no result"):
        ce.tl.telling_features(trained, "cell0", key="other")
    trained.obs.loc["cell0", "ce_label"] = np.nan
    with pytest.raises(ValueError, match="not in the map"):
        ce.tl.telling_features(trained, "cell0")


def test_classes_may_be_numbers(trained):
    trained.obs["number"] = trained.obs["cell_type"].astype("category").cat.codes.astype(int)
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=2, device="cpu")
    ce.tl.centroid_encoder(trained, "number", model=model, progress=False)
    table = ce.tl.telling_features(trained, classes=1)
    assert set(table["class"]) == {1}
    assert set(table["other"]) == {"rest"}


def test_the_variables_are_listed_for_a_map_of_principal_components(make_cells):
    cells = make_cells()
    cells.obsm["X_pca"] = cells.X[:, :4] * 2
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=5, device="cpu")
    ce.tl.centroid_encoder(cells, "cell_type", use_rep="X_pca", model=model, progress=False)
    table = ce.tl.telling_features(cells, "cell0", n_features=3)
    assert set(table.index) <= set(cells.var_names)

"""Suggested cells: which ones, in which order, and for which reason."""

from __future__ import annotations

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from pandas.testing import assert_frame_equal
from scipy import sparse

import centroid_encoder as ce
from centroid_encoder.core import suggestion
from centroid_encoder.core.gaps import Imputed


@pytest.fixture(scope="module")
def labelled():
    """300 cells of four overlapping classes in three images; 40 of them labelled, with a map."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 4, 300)
    X = (1.2 * rng.normal(size=(4, 8))[codes] + rng.normal(size=(300, 8))).astype(np.float32)
    obs = pd.DataFrame({"truth": pd.Categorical.from_codes(codes, list("dabc"))})
    obs["image"] = pd.Categorical.from_codes(np.arange(300) % 3, ["one", "two", "three"])
    obs["label"] = obs["truth"].where(np.arange(300) < 40)
    obs.index = [f"cell{i}" for i in range(300)]
    adata = ad.AnnData(X, obs=obs)
    ce.tl.centroid_encoder(adata, "label", progress=False)
    return adata


def few(labelled: ad.AnnData) -> ad.AnnData:
    """Return the same cells without a map."""
    return ad.AnnData(labelled.X.copy(), obs=labelled.obs[["truth", "image", "label"]])


def test_suggests_cells_without_a_label_between_two_classes(labelled):
    queue = ce.tl.suggest(labelled, n=20)
    assert queue.index.is_unique
    assert len(queue) == 20
    assert labelled.obs.loc[queue.index, "label"].isna().all()
    unsure = queue[queue["reason"] == "unsure"]
    assert len(unsure) >= 18
    margins = (unsure["probability"] - unsure["runner_up_probability"]).abs()
    assert margins.is_monotonic_increasing
    # Their classes are those of the map; their confidence is lower than that of most other cells.
    assert (queue["label"].astype(str) == labelled.obs.loc[queue.index, "ce_label"]).all()
    sure = labelled.obs["ce_confidence"][labelled.obs["label"].isna()]
    assert unsure["probability"].median() < sure.quantile(0.2)


def test_probabilities_are_those_of_the_map(labelled):
    queue = ce.tl.suggest(labelled, n=10)
    model = ce.tl.fitted_model(labelled)
    x = labelled[queue.index].to_df()
    assert (queue["label"].astype(str) == model.predict(x)).all()
    found = pd.DataFrame(model.predict_proba(x), queue.index, model.classes_)
    for name, probability in (("label", "probability"), ("runner_up", "runner_up_probability")):
        own = [found.loc[cell, label] for cell, label in queue[name].items()]
        assert_allclose(queue[probability], own, rtol=1e-4)
    assert (queue["label"].astype(str) != queue["runner_up"].astype(str)).all()


def test_probabilities_allow_for_missing_values_as_in_a_query(labelled):
    adata = labelled.copy()
    adata.X[60:80] = np.nan
    adata.X[100:, :6] = np.nan
    queue = ce.tl.suggest(adata, n=60)
    assert (adata[queue.index].to_df().isna().sum(axis=1) == 6).sum() > 20
    query = ad.AnnData(adata.X, obs=adata.obs[[]], var=adata.var)
    ce.tl.ingest(query, labelled, missing="estimate", max_missing=1, progress=False)
    found = query.obs.loc[queue.index]
    assert (queue["label"].astype(str) == found["ce_label"].astype(str)).all()
    assert_allclose(queue["probability"], found["ce_confidence"], rtol=1e-4)


def test_suggests_typical_cells_without_a_map(labelled):
    adata = few(labelled)
    queue = ce.tl.suggest(adata, n=4)
    assert queue["reason"].tolist() == ["typical"] * 4
    missing = queue[["label", "runner_up", "probability", "runner_up_probability"]].isna()
    assert missing.to_numpy().all()
    # The classes are separate, so that there is one typical cell of each.
    assert adata.obs.loc[queue.index, "truth"].nunique() == 4


def test_typical_cells_are_near_the_middle_of_parts_without_a_label():
    rng = np.random.default_rng(0)
    codes = np.repeat([0, 1, 2], [200, 100, 50])
    middles = np.array([[0.0, 0], [20, 0], [0, 20]])
    points = middles[codes] + rng.normal(size=(350, 2))
    is_labelled = np.zeros(350, dtype=bool)
    is_labelled[:2] = True
    rows = suggestion.typical(points, is_labelled, np.zeros(350, dtype=int), 1, seed=0)
    # There are three clusters, and the largest has labels; the next largest is chosen.
    assert codes[rows].tolist() == [1]
    assert np.linalg.norm(points[rows] - middles[1]) < 0.6


def test_cells_of_a_class_without_labels_are_novel():
    rng = np.random.default_rng(1)
    codes = np.repeat([0, 1, 2], [150, 150, 30])
    X = (6 * np.eye(3, 10)[codes] + rng.normal(size=(330, 10))).astype(np.float32)
    labels = pd.Series(pd.Categorical.from_codes(codes, list("abc")))
    labels = labels.where((rng.random(330) < 0.3) & (codes < 2)).cat.remove_unused_categories()
    adata = ad.AnnData(
        X, obs=pd.DataFrame({"label": labels.to_numpy()}, index=map(str, range(330)))
    )
    adata.obs["label"] = adata.obs["label"].astype("category")
    ce.tl.centroid_encoder(adata, "label", progress=False)
    queue = ce.tl.suggest(adata, n=20)
    novel = queue.index[queue["reason"] == "novel"].astype(int)
    assert len(novel) == 2
    assert (codes[novel] == 2).all()


@pytest.mark.parametrize("with_map", [True, False])
def test_the_cells_are_spread_over_the_images(labelled, with_map):
    adata = labelled if with_map else few(labelled)
    counts = adata.obs.loc[ce.tl.suggest(adata, n=15, image_key="image").index, "image"]
    assert counts.value_counts().min() >= (1 if with_map else 5)


@pytest.mark.parametrize("with_map", [True, False])
def test_storage_does_not_matter(labelled, with_map):
    adata = labelled.copy() if with_map else few(labelled)
    adata.X[np.abs(adata.X) < 0.3] = 0
    queue = ce.tl.suggest(adata, n=10)
    assert_frame_equal(queue, ce.tl.suggest(adata, n=10))
    adata.X = sparse.csr_matrix(adata.X)
    again = ce.tl.suggest(adata, n=10)
    assert queue.index.tolist() == again.index.tolist()


def test_another_label_column_than_that_of_the_map(labelled):
    adata = labelled.copy()
    adata.obs["since"] = adata.obs["truth"].where(np.arange(300) < 250)
    queue = ce.tl.suggest(adata, n=100, label_key="since")
    # Fifty cells have no label in this column.
    assert sorted(queue.index) == sorted(adata.obs_names[250:])


def test_a_cell_without_values_is_not_suggested(labelled):
    adata = few(labelled)
    adata.X[100:290] = np.nan
    assert "cell150" not in ce.tl.suggest(adata, n=300, label_key="label").index


def test_a_query_with_the_map_of_a_reference(labelled):
    query = few(labelled)[200:].copy()
    ce.tl.ingest(query, labelled, progress=False)
    queue = ce.tl.suggest(query, n=10)
    assert queue.index.isin(query.obs_names).all()
    assert set(queue["reason"]) <= {"typical", "unsure", "novel"}
    assert queue["label"].notna().all()


def test_errors(labelled):
    with pytest.raises(ValueError, match="all cells have labels"):
        ce.tl.suggest(labelled, label_key="truth")
    with pytest.raises(ValueError, match="use_rep has no effect"):
        ce.tl.suggest(labelled, use_rep="X")
    with pytest.raises(KeyError, match="imag"):
        ce.tl.suggest(labelled, image_key="imag")
    with pytest.raises(ValueError, match="n must be at least 1"):
        ce.tl.suggest(labelled, n=0)


@pytest.mark.parametrize("mask", ["few", np.arange(8) < 3, None])
def test_a_mask_has_no_effect_with_a_map_and_is_an_error(labelled, mask):
    labelled.var["few"] = np.arange(8) < 3
    with pytest.raises(ValueError, match="mask_var has no effect"):
        ce.tl.suggest(labelled, n=5, mask_var=mask)


def test_one_missing_value_makes_no_sparse_pool_dense(labelled):
    X = sparse.hstack([labelled.X, sparse.random(300, 4000, 0.01, random_state=0)], "csr")
    wide = ad.AnnData(X.astype(np.float32), obs=labelled.obs[["label"]])
    ce.tl.centroid_encoder(
        wide, "label", model=ce.CentroidEncoder.from_recipe("draft"), progress=False
    )
    wide.X.data[wide.X.indptr[200]] = np.nan
    dense = []
    with pytest.MonkeyPatch.context() as patch:
        plain = Imputed._estimates
        patch.setattr(Imputed, "_estimates", lambda self: dense.append(self) or plain(self))
        assert len(ce.tl.suggest(wide, n=5)) == 5
    assert all(sparse.issparse(cells.x) and len(cells._rows) <= 1 for cells in dense)

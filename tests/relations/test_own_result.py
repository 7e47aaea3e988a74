"""A cell's result depends on that cell and on the genes that the whole query lacks."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from hypothesis import given, settings
from hypothesis import strategies as st

import centroid_encoder as ce
from tests.cases import cases

COLUMNS = ("ce_label", "ce_confidence", "ce_novelty")


@pytest.fixture(scope="module")
def reference(_pbmc: AnnData) -> AnnData:
    """The map of 500 real cells."""
    known = AnnData(_pbmc.raw.X[:500].toarray(), obs=_pbmc.obs[:500], var=_pbmc.raw.var)
    model = ce.CentroidEncoder(max_epochs=5)
    ce.tl.centroid_encoder(known, "bulk_labels", test_size=0, model=model, progress=False)
    return known


@pytest.fixture(scope="module")
def query(_pbmc: AnnData) -> AnnData:
    return AnnData(_pbmc.raw.X[500:].toarray(), obs=_pbmc.obs[500:].copy(), var=_pbmc.raw.var)


def with_gaps(query: AnnData, seed: int) -> AnnData:
    """The query with gaps in few patterns: cells share them, or have their own."""
    rng = np.random.default_rng(seed)
    adata = query.copy()
    patterns = rng.random((int(rng.integers(1, 30)), adata.n_vars)) < rng.uniform(0, 0.3)
    of_cell = rng.integers(len(patterns), size=adata.n_obs)
    has_gaps = rng.random(adata.n_obs) < rng.uniform(0, 1)
    adata.X[patterns[of_cell] & has_gaps[:, None]] = np.nan
    return adata


def results(adata: AnnData, reference: AnnData, **options) -> pd.DataFrame:
    adata = adata.copy()
    ce.tl.ingest(adata, reference, missing="estimate", progress=False, **options)
    found = adata.obs[list(COLUMNS)].copy()
    found["ce_label"] = found["ce_label"].astype(str)
    found[["x", "y"]] = adata.obsm["X_ce"]
    return found


def assert_same(found: pd.DataFrame, wanted: pd.DataFrame) -> None:
    """Each cell has the same result, within rounding: a rank moves by few training cells."""
    wanted = wanted.loc[found.index]
    assert (found["ce_label"] == wanted["ce_label"]).all()
    np.testing.assert_allclose(found[["x", "y"]], wanted[["x", "y"]], atol=1e-3)
    np.testing.assert_allclose(found["ce_confidence"], wanted["ce_confidence"], atol=1e-3)
    np.testing.assert_allclose(found["ce_novelty"], wanted["ce_novelty"], atol=5e-3)


@settings(max_examples=cases(8), deadline=None)
@given(seed=st.integers(0, 2**16))
def test_other_cells_and_their_order_change_nothing(seed, reference, query) -> None:
    adata = with_gaps(query, seed)
    wanted = results(adata, reference)
    rng = np.random.default_rng(seed)
    for _ in range(2):
        some = rng.permutation(adata.n_obs)[: rng.integers(1, adata.n_obs)]
        assert_same(results(adata[some], reference), wanted)


@settings(max_examples=cases(4), deadline=None)
@given(seed=st.integers(0, 2**16))
def test_gaps_of_other_cells_change_nothing(seed, reference, query) -> None:
    adata = with_gaps(query, seed)
    complete = np.isfinite(adata.X).all(axis=1)
    assert_same(results(adata, reference)[complete], results(query, reference))


def test_genes_that_the_query_lacks_count_for_all_cells_alike(reference, query) -> None:
    lacking = query[:, np.arange(query.n_vars) % 5 > 0].copy()
    wanted = results(lacking, reference, max_missing=0.5)
    assert_same(results(lacking[::3], reference, max_missing=0.5), wanted)
    # Novelty leaves them out: cells of known types are not novel.
    assert 0.2 < wanted["ce_novelty"].median() < 0.8


def test_a_cell_with_too_many_gaps_is_unassigned(reference, query, caplog) -> None:
    adata = query.copy()
    used = np.flatnonzero(ce.tl.fitted_model(reference).feature_weights_ > 0)
    few, many = used[: int(0.15 * len(used))], used[: int(0.25 * len(used))]
    adata.X[0, few] = np.nan
    adata.X[1, many] = np.nan
    adata.X[2] = np.nan
    found = results(adata, reference)
    assert (found["ce_label"] == "unassigned").tolist() == [False, True, True] + 197 * [False]
    assert found["ce_novelty"].isna().tolist() == [False, True, True] + 197 * [False]
    assert (
        "2 cells are unassigned: they lack more of the map's features than max_missing=0.2"
        in caplog.text
    )
    # A cell without any value has no class in any case.
    found = results(adata, reference, max_missing=1)
    assert (found["ce_label"] == "unassigned").tolist() == [False, False, True] + 197 * [False]


def test_a_training_cell_without_any_value_takes_no_part(query) -> None:
    adata = query.copy()
    adata.X[3] = np.nan
    model = ce.CentroidEncoder(max_epochs=2)
    ce.tl.centroid_encoder(adata, "bulk_labels", missing="mean", model=model, progress=False)
    assert pd.isna(adata.obs["ce_label"].iloc[3])
    assert np.isnan(adata.obsm["X_ce"][3]).all()

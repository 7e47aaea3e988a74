"""Coarser classes: `parents` of `tl.ingest` and `tl.cross_validate`, and stored probabilities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from numpy.testing import assert_allclose

import centroid_encoder as ce

NAMES = ["B naive", "B memory", "CD4", "CD8", "NK"]
LINEAGE = {"B naive": "B", "B memory": "B", "CD4": "T", "CD8": "T", "NK": "NK"}
COMPARTMENT = {"T": "T/NK", "NK": "T/NK"}


def drawn(n: int, seed: int) -> AnnData:
    """Return cells whose kinds overlap within a lineage."""
    rng = np.random.default_rng(seed)
    codes = rng.integers(5, size=n)
    means = np.zeros((5, 10))
    means[[0, 1], 0] = means[[2, 3], 1] = means[4, 2] = 5
    means[[1, 3], [3, 4]] = 1.2
    X = (rng.normal(size=(n, 10)) + means[codes]).astype(np.float32)
    obs = pd.DataFrame({"kind": pd.Categorical.from_codes(codes, NAMES)})
    obs["lineage"] = obs["kind"].map(LINEAGE)
    obs["compartment"] = obs["lineage"].map(COMPARTMENT)
    obs["donor"] = pd.Categorical([f"d{i % 6}" for i in range(n)])
    obs.index = [f"cell {seed} {i}" for i in range(n)]
    return AnnData(X, obs, pd.DataFrame(index=[f"g{i}" for i in range(10)]))


@pytest.fixture(scope="module")
def known() -> AnnData:
    adata = drawn(600, 0)
    adata.uns["kind_colors"] = ["#000080", "#000000", "#ff0000", "#800000", "#00ff00"]
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=15)
    ce.tl.centroid_encoder(adata, "kind", model=model, probabilities=True, progress=False)
    return adata


def placed(known: AnnData, **kwargs: Any) -> AnnData:
    query = drawn(300, 1)
    ce.tl.ingest(query, known, progress=False, probabilities=True, **kwargs)
    return query


def test_doubtful_cells_get_the_lowest_parent_that_is_sure(known: AnnData) -> None:
    query = placed(known, min_confidence=0.8, parents=["lineage", "compartment"])
    p = pd.DataFrame(query.obsm["ce_probabilities"], columns=query.uns["ce"]["classes"])
    assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    seen = set()
    for i, (label, level) in enumerate(query.obs[["ce_label", "ce_level"]].itertuples(index=False)):
        row, confidence = p.iloc[i], query.obs["ce_confidence"].iloc[i]
        shares = [row]
        shares += [s := row.groupby(LINEAGE).sum()]
        shares += [s.groupby(COMPARTMENT).sum()]
        expected = next(((x.idxmax(), j) for j, x in enumerate(shares) if x.max() >= 0.8), None)
        assert (label, level) == (expected or ("unassigned", -1))
        if expected is not None:
            assert confidence == pytest.approx(shares[level].max(), rel=1e-4)
        seen.add(level)
    assert {0, 1} <= seen


def test_parents_assign_more_cells_with_few_errors(known: AnnData) -> None:
    plain, coarse = (placed(known, min_confidence=0.8, **x) for x in ({}, {"parents": LINEAGE}))
    unassigned = [(x.obs["ce_label"] == "unassigned").mean() for x in (plain, coarse)]
    assert unassigned[1] < 0.5 * unassigned[0]
    of_parents = coarse.obs["ce_level"] == 1
    label = coarse.obs["ce_label"].astype(str)
    assert (label == coarse.obs["lineage"].astype(str))[of_parents].mean() > 0.9
    same = ~of_parents
    assert (label == plain.obs["ce_label"].astype(str))[same].all()


def test_cells_with_a_parent_are_compared_with_their_labels(known: AnnData) -> None:
    query = placed(known, min_confidence=0.8, parents=["lineage", "compartment"])
    label, level = query.obs["ce_label"].astype(str), query.obs["ce_level"]
    kinds = query.obs[["kind", "lineage", "compartment"]].astype(str).to_numpy()
    assigned, compared = (level >= 0).to_numpy(), query.uns["ce"]["compared"]
    own = kinds[np.arange(300), level.clip(0)]
    assert (level > 0).sum() > 20
    assert compared["n"].sum() == assigned.sum()
    assert compared["n_differing"].sum() == (own != label)[assigned].sum() > 0


def test_colours_figures_and_files(known: AnnData, tmp_path: Any) -> None:
    query = placed(known, min_confidence=0.8, parents="lineage")
    query.write_h5ad(tmp_path / "query.h5ad")
    for adata in (query, ad.read_h5ad(tmp_path / "query.h5ad")):
        names = adata.obs["ce_label"].cat.categories
        colors = dict(zip(names, adata.uns["ce_label_colors"], strict=True))
        assert colors["B"] == "#000040"
        assert colors["T"] == "#c00000"
        legend = ce.pl.voronoi(adata, show=False, legend_loc="right margin").get_legend()
        texts = {text.get_text() for text in legend.get_texts()}
        assert {"B", "T"} <= texts
        # The query can be a reference.
        again = drawn(50, 2)
        ce.tl.ingest(again, adata, progress=False)
        assert set(again.obs["ce_label"]) <= set(NAMES)


@pytest.mark.parametrize(
    ("parents", "text"),
    [
        ({"CD4": "T", "CD3": "T"}, "'CD3', which is no class"),
        ({"CD4": "T", "T": "CD4"}, "circle: CD4 → T → CD4"),
        ([{"CD4": "T"}, {"CD4": "helper"}], "'CD4' is under two parents, 'T' and 'helper'"),
        ("donor", "is under two parents"),
        ("no_such", "no_such"),
        ([], "columns or mappings"),
        ({}, "no parent"),
    ],
)
def test_wrong_parents_are_errors(
    known: AnnData, unchanged: Callable[[AnnData], Any], parents: Any, text: str
) -> None:
    query = drawn(20, 3)
    error = KeyError if parents == "no_such" else ValueError
    with unchanged(query), pytest.raises(error, match=text):
        ce.tl.ingest(query, known, min_confidence=0.5, parents=parents, progress=False)


def test_parents_need_a_threshold_and_columns_need_cells(known: AnnData) -> None:
    query = drawn(20, 3)
    with pytest.raises(ValueError, match="parents has no effect"):
        ce.tl.ingest(query, known, parents="lineage", progress=False)
    model = ce.tl.fitted_model(known)
    with pytest.raises(ValueError, match="the reference has no cells"):
        ce.tl.ingest(query, model, min_confidence=0.5, parents="lineage", progress=False)
    ce.tl.ingest(query, model, min_confidence=0.5, parents=LINEAGE, progress=False)
    assert "ce_level" in query.obs
    ce.tl.ingest(query, model, progress=False)
    assert "ce_level" not in query.obs


def test_probabilities_of_a_training(known: AnnData) -> None:
    p, classes = known.obsm["ce_probabilities"], known.uns["ce"]["classes"]
    assert_allclose(p.sum(axis=1), 1, rtol=1e-5)
    predicted = pd.Index(classes).get_indexer(known.obs["ce_label"].astype(str))
    assert_allclose(known.obs["ce_confidence"], p[np.arange(len(p)), predicted], rtol=1e-5)
    again = known.copy()
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=2)
    ce.tl.centroid_encoder(again, "kind", model=model, progress=False)
    assert "ce_probabilities" not in again.obsm


def test_errors_at_each_level_of_a_cross_validation(known: AnnData) -> None:
    adata, model = known.copy(), ce.CentroidEncoder(hidden=(16,), max_epochs=15)
    of_both = {"parents": ["lineage", "compartment"], "probabilities": True}
    ce.tl.cross_validate(adata, "kind", n_folds=3, model=model, progress=False, **of_both)
    levels, p = adata.uns["ce_cv"]["levels"], adata.obsm["ce_cv_probabilities"]
    assert levels["level"].tolist() == [0, 1, 2]
    assert levels["n_classes"].tolist() == [5, 3, 2]
    found = pd.DataFrame(p, adata.obs_names, columns=adata.uns["ce_cv"]["classes"])
    truth = adata.obs["kind"].astype(str)
    for level, parents in enumerate(({}, LINEAGE, COMPARTMENT)):
        found = found.T.groupby([parents.get(x, x) for x in found]).sum().T
        truth = truth.map(lambda x, parents=parents: parents.get(x, x))
        label = found.idxmax(axis=1) if level else adata.obs["ce_cv_label"].astype(str)
        error = (label != truth).mean()
        assert levels["voronoi_error"][level] == pytest.approx(error)
    assert levels["voronoi_error"][1] < 0.5 * levels["voronoi_error"][0]
    assert levels["calibration_error"][1] < 0.05


def test_reference_and_query_in_one_table(known: AnnData) -> None:
    query = placed(known, min_confidence=0.97, parents="lineage")
    both = ad.concat([known, query], join="outer", uns_merge="first")
    ax = ce.pl.voronoi(both, show=False, legend_loc="right margin")
    n = int((query.obs["ce_label"] == "unassigned").sum())
    assert n > 0
    titles = [one.get_title() for one in np.ravel(ax)]
    assert any(f"query cells (n = 300, {n} unassigned)" in title for title in titles)
    assert len(ce.tl.misplaced(both)) == len(ce.tl.misplaced(known))


def test_names_that_are_no_text_are_refused_and_missing_parents_left_out(known: AnnData) -> None:
    numbered, query = known.copy(), drawn(20, 3)
    numbered.obs["number"] = numbered.obs["kind"].cat.codes.astype(int)
    model = ce.CentroidEncoder(hidden=(16,), max_epochs=2)
    ce.tl.centroid_encoder(numbered, "number", model=model, key_added="n", progress=False)
    for reference, key, parents in (
        (numbered, "n", {0: "B", 1: "B"}),
        (known, "ce", {"CD4": 1, "CD8": 1}),
    ):
        with pytest.raises(ValueError, match="names that are text"):
            ce.tl.ingest(
                query, reference, key=key, min_confidence=0.5, parents=parents, progress=False
            )
    with pytest.raises(ValueError, match="must not be called 'unassigned'"):
        ce.tl.ingest(
            query, known, min_confidence=0.5, parents={"CD4": "unassigned"}, progress=False
        )
    series = pd.Series({"CD4": "T", "CD8": "T", "NK": np.nan})
    ce.tl.ingest(query, known, min_confidence=0.5, parents=series, progress=False)
    assert dict(query.uns["ce"]["parents"].to_numpy()) == {"CD4": "T", "CD8": "T"}


def test_columns_of_the_user_stay(known: AnnData) -> None:
    query = drawn(20, 3)
    query.obs["mine_level"] = 1
    query.obsm["mine_probabilities"] = np.ones((20, 2))
    ce.tl.ingest(query, known, key_added="mine", progress=False)
    assert "mine_level" in query.obs
    assert "mine_probabilities" in query.obsm


def test_levels_do_not_replace_another_column(known: AnnData) -> None:
    query = drawn(20, 3)
    query.obs["ce_level"] = "by hand"
    with pytest.raises(ValueError, match="obs\\['ce_level'\\] exists already"):
        ce.tl.ingest(query, known, parents=LINEAGE, min_confidence=0.5, progress=False)
    assert (query.obs["ce_level"] == "by hand").all()

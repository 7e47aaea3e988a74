"""Unlabelled cells that help a training, and what they must not change."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.neighbors import kneighbors_graph
from sklearn.semi_supervised import LabelSpreading

import centroid_encoder as ce
from centroid_encoder.core.saved import to_arrays
from centroid_encoder.core.spread import N_ROUNDS, SUREST, soft_labels
from centroid_encoder.tl._fitted_model import fitted_model


def digits(n_labeled: int, seed: int = 0, n: int = 900) -> ad.AnnData:
    """Images of digits with few labels in ``obs["t"]`` and all in ``obs["truth"]``."""
    X, y = load_digits(return_X_y=True)
    rows = np.random.default_rng(seed).permutation(len(y))[:n]
    cells = ad.AnnData(X[rows].astype(np.float32))
    cells.obs["truth"] = pd.Categorical(y[rows].astype(str))
    cells.obs["t"] = cells.obs["truth"].where(np.arange(n) < n_labeled)
    return cells


SMALL = ce.CentroidEncoder(hidden=(64,), max_epochs=20)


def trained(cells: ad.AnnData, **options: Any) -> ad.AnnData:
    options = {"use_unlabeled": True, "model": SMALL, "progress": False} | options
    ce.tl.centroid_encoder(cells, "t", **options)
    return cells


def parts(cells: ad.AnnData) -> dict[str, Any]:
    return to_arrays(fitted_model(cells, "ce", device="cpu").fitted_map)[1]


def test_labels_are_spread_as_by_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    graph = sparse.csr_array((rng.random((80, 80)) < 0.1) * rng.random((80, 80)))
    graph.setdiag(0)
    # scikit-learn has no weights, so that all classes have as many labels.
    codes = np.where(np.arange(80) < 30, np.arange(80) % 3, -1)
    folds = np.where(codes < 0, -1, np.arange(80) // 3 % 2)
    rows, soft = soft_labels(graph, codes, folds, 2, 3)
    dense = graph.maximum(graph.T).toarray()
    for k in range(2):
        known = np.where(folds == k, -1, codes)
        reference = LabelSpreading(lambda *_: dense, alpha=0.9, max_iter=N_ROUNDS, tol=0)
        with pytest.warns(UserWarning, match="max_iter"):
            expected = reference.fit(X, known).label_distributions_
        assert_allclose(soft[k], expected[rows[k]], rtol=1e-4)
        others = np.setdiff1d(np.flatnonzero(codes < 0), rows[k])
        assert len(rows[k]) == int(SUREST * 50)
        assert expected[rows[k]].max(axis=1).min() >= expected[others].max(axis=1).max()


def test_few_labels_beside_many_cells_gain() -> None:
    errors: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(3):
        for use in errors:
            cells = digits(20, seed)
            ce.tl.centroid_encoder(cells, "t", test_size=0, use_unlabeled=use, progress=False)
            new = cells.obs["t"].isna()
            errors[use].append((cells.obs["ce_label"] != cells.obs["truth"])[new].mean())
    gains = np.subtract(errors[False], errors[True])
    assert gains.min() > -0.01
    assert gains.mean() > 0.01


def test_the_out_of_fold_error_is_not_too_small() -> None:
    """Labels of a training that are predicted by itself look better than they are."""
    said, true = [], []
    for seed in range(4):
        cells = trained(digits(60, seed, n=600), test_size=0)
        train, new = cells.obs["ce_split"] == "train", cells.obs["t"].isna()
        wrong = cells.obs["ce_label"] != cells.obs["truth"]
        said.append(wrong[train].mean())
        true.append(wrong[new].mean())
    # Two standard errors of 240 cells.
    assert np.mean(said) > np.mean(true) - 2 * np.sqrt(np.mean(true) / 240)


@pytest.mark.parametrize(("n_classes", "grouped"), [(2, True), (10, False)])
def test_noise_is_at_chance(n_classes: int, grouped: bool) -> None:
    right = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        cells = ad.AnnData(rng.normal(size=(600, 6)).astype(np.float32))
        labels = pd.Series(rng.integers(0, n_classes, 600).astype(str), cells.obs_names)
        cells.obs["t"] = pd.Categorical(labels.where(np.arange(600) < 250))
        cells.obs["donor"] = pd.Categorical((np.arange(600) % 10).astype(str))
        trained(cells, group_key="donor" if grouped else None)
        judged = cells.obs["t"].notna()
        right.append((cells.obs["ce_label"] == cells.obs["t"])[judged].mean())
    assert np.mean(right) == pytest.approx(1 / n_classes, abs=3 * np.sqrt(0.25 / 750))


@pytest.mark.parametrize("neighbors_key", [None, "neighbors"])
def test_held_out_cells_shape_nothing(neighbors_key: str | None) -> None:
    cells = digits(60, seed=3)
    cells.obsp["connectivities"] = kneighbors_graph(cells.X, 15)
    cells.uns["neighbors"] = {"connectivities_key": "connectivities"}
    others = cells.copy()
    trained(cells, neighbors_key=neighbors_key)
    held_out = (cells.obs["ce_split"] == "test").to_numpy()
    others.X[held_out] = 16 - others.X[held_out]
    graph = others.obsp["connectivities"].toarray()
    graph[held_out] = graph[:, held_out] = 1
    others.obsp["connectivities"] = sparse.csr_matrix(graph)
    trained(others, neighbors_key=neighbors_key)
    assert cells.uns["ce"]["params"]["unlabeled_used"]
    one, other = parts(cells), parts(others)
    for name, array in one.items():
        assert_array_equal(array, other[name], err_msg=name)


def test_a_column_chooses_the_cells_that_may_help() -> None:
    cells = digits(60, seed=3)
    cells.obs["good"] = np.arange(900) < 700
    others = cells.copy()
    others.X[700:] = 16 - others.X[700:]
    for adata in (cells, others):
        trained(adata, use_unlabeled="good")
    assert cells.uns["ce"]["params"]["unlabeled_used"]
    for name, array in parts(cells).items():
        assert_array_equal(array, parts(others)[name], err_msg=name)


def test_cells_of_held_out_donors_shape_nothing() -> None:
    cells = digits(60)
    cells.obs["donor"] = pd.Categorical((np.arange(900) % 6).astype(str))
    others = cells.copy()
    trained(cells, group_key="donor")
    donors = cells.obs["donor"][cells.obs["ce_split"] == "test"].unique()
    theirs = cells.obs["donor"].isin(donors).to_numpy()
    assert (theirs & cells.obs["t"].isna()).any()
    others.X[theirs] = 16 - others.X[theirs]
    trained(others, group_key="donor")
    assert cells.uns["ce"]["params"]["unlabeled_used"]
    for name, array in parts(cells).items():
        assert_array_equal(array, parts(others)[name], err_msg=name)


def test_it_is_said_if_only_held_out_donors_have_unlabeled_cells() -> None:
    cells = digits(200, n=200)
    donors = np.arange(200) % 4
    cells.obs["donor"] = pd.Categorical(donors.astype(str))
    model, said = ce.CentroidEncoder(max_epochs=2), []
    for donor in range(4):
        some = cells.copy()
        some.obs.loc[some.obs_names[donors == donor][:5], "t"] = np.nan
        job = ce.tl.centroid_encoder.job(
            some, "t", use_unlabeled=True, group_key="donor", model=model
        )
        job.run()
        job.write(some)
        said.append(any("are in held-out groups" in notice for notice in job.notices))
        assert said[-1] == (some.obs["ce_split"][donors == donor] == "test").any()
    assert any(said)


def test_a_cross_validation_chooses_in_each_fold() -> None:
    cells = digits(80)
    options = {"n_folds": 2, "use_unlabeled": True, "model": SMALL, "progress": False}
    ce.tl.cross_validate(cells, "t", **options)
    labeled = cells.obs["t"].notna()
    wrong = (cells.obs["ce_cv_label"] != cells.obs["t"])[labeled].mean()
    assert cells.uns["ce_cv"]["quality"]["voronoi_error"] == pytest.approx(wrong)
    assert cells.uns["ce_cv"]["params"]["use_unlabeled"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"use_unlabeled": True, "placement": "bottleneck"}, "several networks"),
        ({"use_unlabeled": True, "model": ce.CentroidEncoder(n_networks=1)}, "several networks"),
        ({"neighbors_key": "neighbors"}, "without use_unlabeled"),
        ({"use_unlabeled": True, "neighbors_key": "neighbours"}, "no 'neighbours'"),
        ({"use_unlabeled": "goood"}, "no column 'goood'"),
        ({"use_unlabeled": 1}, "must be True, False or the name"),
        ({"use_unlabeled": "truth"}, "never is"),
    ],
)
def test_options_without_effect_are_errors(options: Any, words: str) -> None:
    for function in (ce.tl.centroid_encoder, ce.tl.cross_validate):
        with pytest.raises((ValueError, KeyError), match=words):
            function(digits(80), "t", progress=False, **options)


def test_all_cells_have_a_label() -> None:
    with pytest.raises(ValueError, match="without a label"):
        trained(digits(900))

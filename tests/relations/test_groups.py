"""A training with groups loses little accuracy, whatever the sizes of the groups."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

import centroid_encoder as ce
from benchmarks import datasets

TWO = (0.95, 0.05)


@pytest.fixture(scope="module")
def digits():
    """600 digits to train on and the other 1,197 to test."""
    X, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:600], order[600:]
    return X[train].astype(np.float32), y[train], X[test].astype(np.float32), y[test]


def groups_of(n: int, shares: tuple[float, ...], seed: int = 0) -> np.ndarray:
    """Random donors with these shares of n cells."""
    names = np.array([f"donor {i}" for i in range(len(shares))])
    return np.random.default_rng(seed).choice(names, size=n, p=shares)


def error(model: ce.CentroidEncoder, X, y) -> float:
    return float(np.mean(model.predict(X) != y))


@pytest.mark.parametrize(
    "shares", [TWO, pytest.param((0.8, 0.05, 0.05, 0.05, 0.05), marks=pytest.mark.slow)]
)
def test_random_donors_of_any_sizes_cost_no_accuracy(digits, shares) -> None:
    X, y, X_new, y_new = digits
    model = ce.CentroidEncoder(hidden=(200, 100), max_epochs=30, random_state=0)
    alone = clone(model).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        grouped = model.fit(X, y, groups=groups_of(len(y), shares))
    assert error(grouped, X_new, y_new) <= error(alone, X_new, y_new) + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pbmc_3tech/pbmc_3tech.h5ad", "pbmc3k/pbmc3k_annotated.h5ad"])
def test_cells_of_unequal_donors_lose_at_most_two_points(name: str) -> None:
    if datasets.data_folder() is None:
        pytest.skip("THE DATA FOLDER IS ABSENT: set CE_DATA")
    adata = datasets.read_h5ad(name)
    label_key = "cell_type" if "cell_type" in adata.obs else "classified"
    new = np.random.default_rng(0).random(adata.n_obs) < 1 / 3
    known, query = adata[~new].copy(), adata[new].copy()
    known.obs["random donor"] = groups_of(known.n_obs, TWO)
    errors = []
    for group_key in (None, "random donor"):
        ce.tl.centroid_encoder(known, label_key, group_key=group_key, test_size=0, progress=False)
        ce.tl.ingest(query, known, progress=False)
        errors.append(
            np.mean(query.obs["ce_label"].astype(str) != query.obs[label_key].astype(str))
        )
    assert errors[1] <= errors[0] + 0.02


def test_a_class_of_one_small_donor_is_still_placed(digits) -> None:
    X, y, X_new, y_new = digits
    groups = groups_of(len(y), (0.7, 0.3))
    kept = (y != 6) | (groups == "donor 1")
    model = ce.CentroidEncoder(random_state=0).fit(X[kept], y[kept], groups=groups[kept])
    of_class = y_new == 6
    # The network that places this donor has never seen the class, so that one vote is lost. With
    # seeds 0 to 3, the error is 0.21 to 0.32 with the pinned, the newest and the lowest versions.
    assert error(model, X_new[of_class], y_new[of_class]) < 0.35


def test_a_donor_with_most_cells_is_named(digits) -> None:
    X, y, *_ = digits
    model = ce.CentroidEncoder(random_state=0, max_epochs=3)
    with pytest.warns(UserWarning, match=r"'donor 0' holds 9\d % of the training samples"):
        model.fit(X, y, groups=groups_of(len(y), TWO))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.fit(X, y, groups=groups_of(len(y), (0.6, 0.4)))


def test_one_donor_left_for_training_is_named(make_cells) -> None:
    adata = make_cells(n_obs=200, distance=0.5)
    adata.obs["donor"] = np.where(np.arange(200) < 150, "A", "B")
    model = ce.CentroidEncoder(max_epochs=3)
    with pytest.warns(UserWarning, match="all training samples are of donor 'A'"):
        ce.tl.centroid_encoder(adata, "cell_type", group_key="donor", model=model, progress=False)
    # Networks that have not seen the cells place them.
    stored = ce.tl.fitted_model(adata)
    moved = np.abs(stored.transform(adata.to_df()) - adata.obsm["X_ce"]).max(axis=1)
    assert (moved[adata.obs["ce_split"] == "train"] > 0).mean() > 0.5


def test_groups_must_fit_the_samples(digits) -> None:
    X, y, *_ = digits
    model = ce.CentroidEncoder()
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y, groups=["a", "b", "c"])
    groups = groups_of(len(y), TWO).astype(object)
    groups[:2] = None
    with pytest.raises(ValueError, match="groups has 2 missing values"):
        model.fit(X, y, groups=groups)


@pytest.mark.parametrize("option", [{"placement": "bottleneck"}, {"n_networks": 1}])
def test_groups_without_effect_are_an_error(digits, option) -> None:
    X, y, *_ = digits
    with pytest.raises(ValueError, match="groups has no effect with"):
        ce.CentroidEncoder(**option).fit(X, y, groups=groups_of(len(y), TWO))

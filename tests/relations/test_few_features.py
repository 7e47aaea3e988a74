"""Few features, for which the networks also receive discriminant axes and ramps."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_wine
from sklearn.model_selection import train_test_split

import centroid_encoder as ce
from centroid_encoder.core.saved import to_arrays
from centroid_encoder.tl._fitted_model import fitted_model


def wine_cells() -> ad.AnnData:
    X, y = load_wine(return_X_y=True)
    obs = pd.DataFrame({"t": pd.Categorical(y.astype(str))}, index=[f"c{i}" for i in range(len(y))])
    return ad.AnnData(X.astype(np.float32), obs=obs)


@pytest.mark.slow
@pytest.mark.parametrize(("n_classes", "grouped"), [(2, True), (10, False)])
def test_noise_is_at_chance(n_classes: int, grouped: bool) -> None:
    right, confident = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, codes = rng.normal(size=(300, 6)), rng.integers(0, n_classes, 300)
        groups = np.arange(300) // 30 if grouped else None
        model = ce.CentroidEncoder(random_state=seed, max_epochs=12)
        fit = model.fit_codes(X, codes, np.arange(n_classes), groups=groups)
        distances = np.concatenate([found for _, found in fit.judge()])
        right.append(np.mean(distances.argmin(axis=1) == codes))
        new = model.predict_proba(rng.normal(size=(500, 6)))
        confident.append(new.max(axis=1).mean())
    # Three standard errors of 1,200 guesses.
    assert np.mean(right) == pytest.approx(1 / n_classes, abs=3 * np.sqrt(0.25 / 1200))
    assert np.mean(confident) < 1 / n_classes + 0.12


@pytest.mark.slow
def test_a_column_of_noise_changes_little() -> None:
    X, y = load_wine(return_X_y=True)
    noise = np.random.default_rng(0).normal(size=(len(X), 1))
    wrong: dict[str, list[Any]] = {"without": [], "with": []}
    for seed in range(2):
        for name, table in (("without", X), ("with", np.hstack([X, noise]))):
            x, x_test, labels, truth = train_test_split(table, y, stratify=y, random_state=seed)
            model = ce.CentroidEncoder(random_state=seed).fit(x, labels)
            wrong[name].append(model.predict(x_test) != truth)
    assert np.mean(wrong["without"]) < 0.05
    assert np.not_equal(wrong["without"], wrong["with"]).mean() < 0.03


def test_held_out_cells_shape_nothing() -> None:
    cells, model = wine_cells(), ce.CentroidEncoder(hidden=(32,), max_epochs=5)
    ce.tl.centroid_encoder(cells, "t", model=model, progress=False)
    others = wine_cells()
    held_out = (cells.obs["ce_split"] == "test").to_numpy()
    others.X[held_out] = 3 * others.X[held_out] + 1000
    ce.tl.centroid_encoder(others, "t", model=model, progress=False)
    assert (others.obs["ce_split"] == cells.obs["ce_split"]).all()
    one, other = (
        to_arrays(fitted_model(x, "ce", device="cpu").fitted_map)[1] for x in (cells, others)
    )
    assert {"knots", "axes"} <= one.keys()
    for name, array in one.items():
        np.testing.assert_array_equal(array, other[name], err_msg=name)


def test_a_stored_map_places_cells_as_before() -> None:
    cells, model = wine_cells(), ce.CentroidEncoder(hidden=(32,), max_epochs=5)
    ce.tl.centroid_encoder(cells, "t", model=model, progress=False)
    held_out = cells.obs["ce_split"] == "test"
    query = wine_cells()[held_out.to_numpy()].copy()
    ce.tl.ingest(query, cells, progress=False)
    np.testing.assert_allclose(query.obsm["X_ce"], cells.obsm["X_ce"][held_out], atol=1e-5)

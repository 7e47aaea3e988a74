"""Variance in two components, ablation, and data sets of few samples."""

from __future__ import annotations

from pathlib import Path

import anndata as ad
import numpy as np
import pandas as pd
import pytest
import scanpy as sc
from scipy import sparse
from sklearn.datasets import load_digits

from benchmarks import ablation, errors, few, protocols, render, variance
from benchmarks.protocols import EXPERIMENTS


def test_the_output_has_more_variance_in_two_components_than_the_images() -> None:
    X, y = load_digits(return_X_y=True)
    chosen = np.isin(y, (4, 9))
    images, hidden, output = variance.trained(X[chosen], (y[chosen] == 9).astype(int))(X[chosen])
    assert images.shape == hidden.shape == output.shape == (chosen.sum(), 64)
    assert variance.kept(output) > 1.5 * variance.kept(images)


def test_ablation_runs_and_table(tmp_path: Path) -> None:
    path = tmp_path / "ablation.csv"
    method = ablation.METHODS["class weights"]
    errors.run_cases([(EXPERIMENTS["iris"], method, 0)], path)
    assert len(pd.read_csv(path)) == 1

    steps, n = list(ablation.STEPS), len(ablation.IN_STEPS)
    rows = pd.DataFrame(
        {
            "experiment": np.tile(ablation.IN_STEPS, 2 * len(steps)),
            "method": np.repeat(steps, 2 * n),
            "run": np.tile(np.repeat([10, 11], n), len(steps)),
            "knn_error": np.repeat(0.01 * np.arange(len(steps)), 2 * n),
            "voronoi_error": 0.03,
        }
    )
    table = render.steps_table(rows).splitlines()
    assert table[3].startswith(f"| {steps[1]} | 1.0 / 3.0 |")
    assert table[3].endswith("| +1.0\u00a0±\u00a00.0 / +0.0\u00a0±\u00a00.0 |")


def test_cells_of_the_largest_classes_with_the_most_variable_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = np.random.default_rng(0).poisson([1, 20, 1, 5, 300], size=(60, 5)).astype(np.float32)
    adata = ad.AnnData(sparse.csr_matrix(counts))
    adata.obs["type"] = pd.Categorical(["rare"] * 5 + ["B"] * 25 + ["T"] * 30)
    adata.write_h5ad(tmp_path / "cells.h5ad")
    monkeypatch.setenv("CE_DATA", str(tmp_path))
    X, y = few.cells("cells.h5ad", "type", 2, 2)
    assert set(y) == {"B", "T"}
    np.testing.assert_array_equal(X, counts[5:, [1, 4]])
    X, _ = few.cells("cells.h5ad", "type", 3, 5, counts=True)
    sc.pp.normalize_total(adata)
    sc.pp.log1p(adata)
    np.testing.assert_allclose(X, adata.X.toarray(), rtol=1e-4)


def test_outside_has_the_samples_that_are_in_no_fold_of_the_first_draw() -> None:
    X = np.arange(2000)[:, None]
    y = X[:, 0] % 2
    rest, labels = few.outside((X, y))
    drawn = np.concatenate([X_test for *_, X_test, _ in protocols.ten_folds(lambda: (X, y))(10)])
    assert sorted(np.concatenate([rest, drawn])[:, 0]) == list(range(2000))
    assert (labels == rest[:, 0] % 2).all()

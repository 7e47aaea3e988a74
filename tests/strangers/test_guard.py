"""A feature that is no measurement is named before a training."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from anndata import AnnData
from scipy import sparse

import centroid_encoder as ce

N = 300
ROW, CLASSES = np.arange(N), np.repeat(["B", "NK", "T"], N // 3)


def notices_on(column: np.ndarray, *, is_sparse: bool = False) -> list[str]:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.poisson(1, (N, 3)) + rng.random((N, 3)), column]).astype(np.float32)
    names = pd.DataFrame(index=["CD3", "CD8", "CD20", "suspect"])
    obs = pd.DataFrame({"cell_type": CLASSES}, index=ROW.astype(str))
    adata = AnnData(sparse.csr_matrix(X) if is_sparse else X, obs=obs, var=names)
    notices = ce.tl.centroid_encoder.job(adata, "cell_type").notices
    return [text for text in map(str, notices) if "'suspect'" in text]


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize(
    "column",
    [ROW, ROW[::-1], ROW + 1e6, ROW // 2, ROW // 30, np.repeat([3, 1, 2], N // 3)],
    ids=str,
)
def test_it_is_named(column: np.ndarray, is_sparse: bool) -> None:
    (notice,) = notices_on(column, is_sparse=is_sparse)
    assert "if it is no measurement" in notice


@pytest.mark.parametrize(
    "column",
    [
        np.random.default_rng(0).permutation(N),
        np.r_[np.zeros(N - 3), 1, 2, 3],
        np.full(N, 3),
        np.repeat([5, 0, 0], N // 3),
        np.sort(np.random.default_rng(0).random(N)),
    ],
    ids=["any order", "a rare gene", "constant", "one class", "sorted fractions"],
)
def test_a_measurement_is_not_named(column: np.ndarray) -> None:
    assert not notices_on(column)

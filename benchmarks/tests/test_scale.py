"""The generated cells of the benchmark of large data."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import scale


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> scale.Cells:
    monkeypatch.setattr(scale, "N_POOL", scale.BLOCK)
    return scale.Cells(3 * scale.BLOCK)


def test_rows_do_not_depend_on_the_other_rows_of_an_index(cells: scale.Cells) -> None:
    some = np.sort(np.random.default_rng(0).permutation(cells.shape[0])[:500])
    X = cells[:]
    assert X.shape == cells.shape
    assert (cells[some] != X[some]).nnz == 0
    assert (cells[4000:9000] != X[4000:9000]).nnz == 0
    assert X.nnz / np.prod(X.shape) == pytest.approx(0.05, abs=0.01)
    # Each block has the rows of the pool in another order.
    assert (X[: scale.BLOCK] != X[scale.BLOCK : 2 * scale.BLOCK]).nnz > 0


def test_rows_are_near_the_mean_of_their_class(cells: scale.Cells) -> None:
    X, codes = cells[:].toarray(), cells.codes()
    means = np.stack([X[codes == code].mean(axis=0) for code in range(scale.N_CLASSES)])
    nearest = (np.square(means).sum(axis=1) - 2 * X @ means.T).argmin(axis=1)
    assert (nearest == codes).mean() > 0.5

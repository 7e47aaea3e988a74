from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from benchmarks import scale


@pytest.fixture
def cells(monkeypatch: pytest.MonkeyPatch) -> scale.Cells:
    monkeypatch.setattr(scale, "N_POOL", scale.BLOCK)
    return scale.Cells(3 * scale.BLOCK)


def test_generated_rows_do_not_depend_on_what_is_read_with_them(cells: scale.Cells) -> None:
    some = np.sort(np.random.default_rng(0).permutation(cells.shape[0])[:500])
    X = cells[:]
    assert X.shape == cells.shape
    assert (cells[some] != X[some]).nnz == 0
    assert (cells[4000:9000] != X[4000:9000]).nnz == 0
    assert X.nnz / np.prod(X.shape) == pytest.approx(0.05, abs=0.01)
    # Rows of the pool are in another order in each block.
    assert (X[: scale.BLOCK] != X[scale.BLOCK : 2 * scale.BLOCK]).nnz > 0


def test_classes_are_those_of_the_rows(cells: scale.Cells) -> None:
    X, codes = cells[:].toarray(), cells.codes()
    means = np.stack([X[codes == code].mean(axis=0) for code in range(scale.N_CLASSES)])
    nearest = (np.square(means).sum(axis=1) - 2 * X @ means.T).argmin(axis=1)
    assert (nearest == codes).mean() > 0.5


def test_a_table_with_a_row_for_each_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(scale, "N_POOL", scale.BLOCK)
    # In this process, for the small pool.
    monkeypatch.setattr(
        scale.subprocess,
        "run",
        lambda *args, **options: SimpleNamespace(stdout=json.dumps(scale.measure(250))),
    )
    path = tmp_path / "scale.csv"
    monkeypatch.setattr("sys.argv", ["scale", "250", "-o", str(path)])
    scale.main()
    [row] = pd.read_csv(path).to_dict("records")
    assert row["cells"] == 250
    assert row["training_seconds"] > 0
    assert 0 <= row["error"] < 0.9
    assert "placing_seconds" in capsys.readouterr().out

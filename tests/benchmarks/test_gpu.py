from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import gpu, render


def test_runs_without_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # Without images and network: the cells are drawn at random.
    monkeypatch.setenv("CE_DATA", str(tmp_path))
    results = tmp_path / "gpu.csv"
    command = ["gpu", "--device", "cpu", "--samples", "60", "--results", str(results)]
    monkeypatch.setattr("sys.argv", command)
    gpu.main()
    printed = capsys.readouterr().out
    assert "without MNIST" in printed
    checked = [line for line in printed.splitlines() if line.startswith(("ok", "NO"))]
    assert len(checked) == 12
    assert all(line.startswith("ok") for line in checked)
    with results.open() as file:
        lines = list(csv.DictReader(file))
    assert [line["data"] for line in lines] == ["cells"] * 2
    assert all(float(line["epoch_seconds"]) > 0 for line in lines)
    assert render.gpu_table(pd.read_csv(results)).count("one by one") == 2

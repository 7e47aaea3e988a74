"""The benchmark for GPUs, on a CPU."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import gpu, render


def test_checks_and_measurements_run_on_a_cpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The data folder is empty, so only random cells are used.
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

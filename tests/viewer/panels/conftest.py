"""What tests of labels by hand share: a table with the true labels, and journals of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import anndata as ad
import pytest


@pytest.fixture(autouse=True)
def _own_journals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test finds the journals of another one."""
    monkeypatch.setenv("CENTROID_ENCODER_JOURNALS", str(tmp_path / "journals"))


@pytest.fixture
def table(make_cells: Callable[..., ad.AnnData]) -> ad.AnnData:
    """Cells of three kinds in ``obs["truth"]``, without a layer."""
    cells = make_cells()
    cells.obs["truth"] = cells.obs.pop("cell_type").astype(str)
    return cells

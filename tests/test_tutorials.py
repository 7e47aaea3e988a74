"""Cells of the tutorials work with other data."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import scanpy as sc

import centroid_encoder as ce

FIRST_MAP = Path(__file__).parent.parent / "docs" / "tutorials" / "first-map.md"


def test_a_map_of_all_genes_is_saved_and_read(cells, fast, tmp_path, monkeypatch):
    if not FIRST_MAP.exists():
        pytest.skip("the tutorials are not here")
    monkeypatch.chdir(tmp_path)
    ce.tl.centroid_encoder(cells, "cell_type", model=fast, progress=False)
    cell = re.findall(r"```\{code-cell\}\n(.+?)```", FIRST_MAP.read_text(), re.DOTALL)[-1]
    names = {"adata": cells, "sc": sc, "ce": ce}
    exec(cell, names)
    assert names["genes"].shape == (3, cells.n_vars)

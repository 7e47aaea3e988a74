"""The estimated size of an AnnData is that of its file, or a little more."""

from __future__ import annotations

from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from centroid_encoder.tables import size_of


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_matrix, sparse.csc_matrix])
def test_the_size_of_a_file_is_estimated(layout: Any, tmp_path) -> None:
    rng = np.random.default_rng(0)
    n, d = 2000, 50
    X = layout(rng.poisson(0.5, size=(n, d)).astype(np.float32))
    names = [f"cell {i} of the µ-th donor" for i in range(n)]
    obs = pd.DataFrame({"text": [f"{i}" for i in range(n)]}, index=names)
    obs["kind"] = pd.Categorical(rng.choice(["a", "b"], n))
    obs["number"] = pd.array(rng.integers(0, 9, n), dtype="Int64")
    adata = ad.AnnData(X, obs, layers={"counts": X}, obsm={"X_pca": rng.normal(size=(n, 5))})
    adata.obsm["frame"] = pd.DataFrame({"x": np.arange(n)}, index=names)
    adata.raw = adata.copy()
    adata.uns = {"map": {"arrays": {"weights": np.zeros((300, 300))}, "config": "{}" * 5000}}
    adata.uns |= {"kind_colors": ["#ff0000", "#00ff00"], "spread": 0.5}
    adata.write_h5ad(tmp_path / "cells.h5ad")
    size = (tmp_path / "cells.h5ad").stat().st_size
    assert size <= size_of(adata) <= 1.1 * size + 100_000
    backed = ad.read_h5ad(tmp_path / "cells.h5ad", backed="r")
    assert size <= size_of(backed) <= 1.1 * size + 100_000
    backed.file.close()

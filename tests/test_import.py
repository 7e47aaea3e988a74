"""Effects of `import centroid_encoder`, and its public names."""

from __future__ import annotations

import subprocess
import sys

import pytest

import centroid_encoder as ce

HEAVY = (
    *("torch", "scanpy", "anndata", "matplotlib", "sklearn", "scipy", "pandas", "numpy"),
    *("napari", "qtpy", "PySide6", "PyQt6", "PyQt5"),
)


def python(code: str) -> str:
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], check=True, capture_output=True, text=True
    )
    assert result.stderr == ""
    return result.stdout.strip()


def test_the_import_loads_no_slow_packages():
    code = f"""
import sys, centroid_encoder as ce
dir(ce), ce.__version__, ce.__all__, hasattr(ce, "nonsense")
print(*set({HEAVY}) & set(sys.modules))
"""
    assert python(code) == ""


def test_each_part_loads_only_what_it_needs():
    code = """
import sys, centroid_encoder as ce
dir(ce.viewer), ce.viewer.__all__, hasattr(ce.viewer, "nonsense")
print(*{"torch"} & set(sys.modules))
import numpy as np
X, y = np.random.default_rng(0).normal(size=(30, 4)), np.arange(30) % 3
ce.CentroidEncoder(max_epochs=1, device="cpu", placement="voronoi").fit(X, y)
print(*{"anndata", "scanpy", "matplotlib"} & set(sys.modules))
# The optimisers of torch import its compiler, which takes a second.
print(*{"torch._dynamo", "torch._inductor", "sympy"} & set(sys.modules))
ce.tl, ce.pl
print(*{"qtpy", "PySide6", "PyQt6", "PyQt5", "napari"} & set(sys.modules))
"""
    assert python(code) == ""


def test_names_resolve():
    for module in (ce, ce.pl, ce.tl):
        assert set(module.__all__) <= set(dir(module))
        for name in module.__all__:
            assert getattr(module, name) is not None


def test_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="No centroid_encoder attribute umap"):
        _ = ce.umap
    assert not hasattr(ce, "__path_that_is_not_there__")


def test_the_installed_scanpy_finds_neighbors_of_many_cells():
    """Above 8,192 cells, scanpy reads sparse matrices of pynndescent, of a type by version."""
    import anndata as ad
    import numpy as np
    import scanpy as sc

    rows = np.random.default_rng(0).normal(size=(9_000, 5)).astype(np.float32)
    adata = ad.AnnData(rows)
    sc.pp.neighbors(adata, use_rep="X", n_neighbors=4)
    row = adata.obsp["distances"][[0]]
    assert np.allclose(row.data, np.linalg.norm(rows[row.indices] - rows[0], axis=1), atol=1e-5)

"""Write the numbers that users get, or compare them with those written before.

``python tests/public_numbers.py numbers.npz`` writes the file, or compares with it if it exists. A
change that is to leave all numbers as they were is checked so: run it before and after.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import anndata as ad
import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.datasets import load_digits, load_wine

import centroid_encoder as ce

SETTINGS = {"max_epochs": 12, "hidden": (32, 16), "random_state": 0, "device": "cpu"}


def table(load: Any, is_sparse: bool = False) -> ad.AnnData:
    """Return a data set of scikit-learn with classes, donors, a gene set and some gaps."""
    X, y = load(return_X_y=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(X))[:900]
    X, y = X[order].astype(np.float32), y[order]
    if not is_sparse:
        X[rng.random(X.shape) < 0.01] = np.nan
    obs = pd.DataFrame({"kind": pd.Categorical([f"c{i}" for i in y])})
    obs["donor"] = pd.Categorical([f"d{i}" for i in rng.integers(0, 5, len(y))])
    obs.loc[rng.random(len(y)) < 0.05, "kind"] = np.nan
    obs.index = [f"cell {i}" for i in range(len(obs))]
    return ad.AnnData(sparse.csr_matrix(X) if is_sparse else X, obs=obs)


def run(cells: ad.AnnData, missing: str, **params: Any) -> ad.AnnData:
    """Train, check, rank and list on two thirds of the cells; place the others, with a gap."""
    n = 2 * len(cells) // 3
    adata, query = cells[:n].copy(), cells[n:, :-1].copy()
    model = ce.CentroidEncoder(**SETTINGS, **params)
    common: dict[str, Any] = {"model": model, "missing": missing, "progress": False}
    ce.tl.centroid_encoder(adata, "kind", **common)
    ce.tl.cross_validate(adata, "kind", group_key="donor", n_folds=3, n_permutations=2, **common)
    ce.tl.rank_features(adata, "kind", group_key="donor", progress=False)
    ce.tl.ingest(query, adata, missing="estimate", max_missing=1, progress=False)
    adata.uns["placed"] = {"places": query.obsm["X_ce"], **dict(query.obs)}
    adata.uns["mislabeled"] = dict(ce.tl.mislabeled(adata))
    adata.uns["composition"] = dict(ce.tl.composition(adata, "donor"))
    return adata


def flat(value: Any, name: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the arrays in mappings and tables, with their names."""
    if isinstance(value, pd.DataFrame):
        value = dict(value.reset_index())
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from flat(part, f"{name}/{key}")
    elif isinstance(value, np.ndarray) and value.dtype.names:
        yield from flat({key: value[key] for key in value.dtype.names}, name)
    elif "written_by" not in name:
        array = np.asarray(value)
        yield name, array.astype(str) if array.dtype.kind == "O" else array


def main() -> None:
    path, numbers = Path(sys.argv[1]), dict[str, np.ndarray]()
    for name, cells, missing, params in (
        ("wine", table(load_wine), "mean", {}),
        ("digits", table(load_digits, is_sparse=True), "error", {}),
        ("bottleneck", table(load_wine), "mean", {"placement": "bottleneck"}),
    ):
        found = run(cells, missing, **params)
        parts = {"obs": found.obs, "obsm": dict(found.obsm), "uns": dict(found.uns)}
        numbers |= dict(flat(parts, name))
    if not path.exists():
        np.savez_compressed(path, **numbers)
        print(f"wrote {len(numbers)} arrays")
        return
    with np.load(path) as before:
        differ = [
            name
            for name in {*before.files, *numbers}
            if name not in before.files
            or name not in numbers
            or before[name].tobytes() != numbers[name].tobytes()
        ]
    print(f"{len(numbers)} arrays, {len(differ)} differ", *sorted(differ), sep="\n")
    sys.exit(len(differ) > 0)


if __name__ == "__main__":
    main()
